//! The pods that count, by group: fed by a watch, a few hundred bytes for each pod instead of the whole object.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Pod;
use kai_convert::{Asked, GpuPart};
use kai_kit::{Key, watch::News};

use crate::pod_facts::PodFacts;

/// Pods and who asks for them.
#[derive(Debug, Default)]
pub struct PodBook {
    pods: BTreeMap<Key, PodFacts>,
    groups: BTreeMap<Key, BTreeSet<Key>>,
    claims: BTreeMap<String, BTreeSet<Key>>,
    asked: BTreeSet<Arc<Asked>>,
    listing: Option<BTreeSet<Key>>,
    complete: bool,
}

impl PodBook {
    /// Takes in what the watch tells. The groups for which something changed.
    pub fn take(&mut self, news: News<Arc<Pod>>) -> Vec<Key> {
        match news {
            News::Begin => {
                self.listing = Some(BTreeSet::new());
                Vec::new()
            }
            News::Listed(pod) | News::Applied(pod) => {
                let key = Key::of(pod.as_ref());
                if let Some(seen) = &mut self.listing {
                    seen.insert(key.clone());
                }
                self.set(key, PodFacts::of(&pod))
            }
            News::Deleted(pod) => self.set(Key::of(pod.as_ref()), None),
            News::Complete => {
                self.complete = true;
                let seen = self.listing.take().unwrap_or_default();
                let gone: Vec<Key> = self.pods.keys().filter(|key| !seen.contains(key)).cloned().collect();
                let touched: BTreeSet<Key> = gone.into_iter().flat_map(|key| self.set(key, None)).collect();
                self.asked.retain(|asked| Arc::strong_count(asked) > 1);
                touched.into_iter().collect()
            }
        }
    }

    /// Whether a list was read to its end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The pods of a group.
    pub fn of_group(&self, group: &Key) -> impl Iterator<Item = &PodFacts> {
        self.groups.get(group).into_iter().flatten().filter_map(|key| self.pods.get(key))
    }

    /// The groups with pods that use a claim.
    #[must_use]
    pub fn groups_with_claim(&self, claim: &str) -> BTreeSet<Key> {
        let pods = self.claims.get(claim).into_iter().flatten();
        pods.filter_map(|key| Some(group_of(key, self.pods.get(key)?))).collect()
    }

    /// The groups with pods that hold part of a GPU's memory on a node.
    #[must_use]
    pub fn groups_by_memory(&self, node: &str) -> BTreeSet<Key> {
        let pods = self.pods.iter().filter(|(_, facts)| {
            facts.node.as_deref() == Some(node) && matches!(facts.asked.part, Some(GpuPart::Memory { .. }))
        });
        pods.map(|(key, facts)| group_of(key, facts)).collect()
    }

    fn set(&mut self, key: Key, facts: Option<PodFacts>) -> Vec<Key> {
        let facts = facts.map(|facts| self.shared(facts));
        let old = self.pods.get(&key);
        if old == facts.as_ref() {
            return Vec::new();
        }
        let mut touched = Vec::new();
        if let Some(old) = self.pods.remove(&key) {
            let group = group_of(&key, &old);
            forget(&mut self.groups, &group, &key);
            for claim in &old.claims {
                forget(&mut self.claims, claim, &key);
            }
            touched.push(group);
        }
        if let Some(facts) = facts {
            let group = group_of(&key, &facts);
            self.groups.entry(group.clone()).or_default().insert(key.clone());
            for claim in &facts.claims {
                self.claims.entry(claim.clone()).or_default().insert(key.clone());
            }
            if !touched.contains(&group) {
                touched.push(group);
            }
            self.pods.insert(key, facts);
        }
        touched
    }

    /// The pods of a gang ask for the same: they keep it once.
    fn shared(&mut self, mut facts: PodFacts) -> PodFacts {
        match self.asked.get(&facts.asked) {
            Some(known) => facts.asked = Arc::clone(known),
            None => {
                self.asked.insert(Arc::clone(&facts.asked));
            }
        }
        facts
    }
}

fn group_of(pod: &Key, facts: &PodFacts) -> Key {
    Key::new(pod.namespace.clone(), facts.group.clone())
}

fn forget<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Key>>, at: &K, key: &Key) {
    if let Some(found) = index.get_mut(at) {
        found.remove(key);
        if found.is_empty() {
            index.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, group: &str, phase: &str) -> Pod {
        let object = json!({"metadata": {"name": name, "namespace": "team", "annotations": {"pod-group-name": group}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}, "status": {"phase": phase}});
        serde_json::from_value(object).expect("a pod")
    }

    #[test]
    fn pods_that_ended_moved_or_vanished_touch_their_groups_and_the_same_again_touches_nobody() {
        let mut book = PodBook::default();
        let a = Key::new("team", "a");
        assert_eq!(book.take(News::Applied(Arc::new(pod("p", "a", "Pending")))), std::slice::from_ref(&a));
        assert!(book.take(News::Applied(Arc::new(pod("p", "a", "Pending")))).is_empty());
        assert_eq!(book.take(News::Applied(Arc::new(pod("p", "b", "Pending")))), [a.clone(), Key::new("team", "b")]);
        assert_eq!(book.of_group(&a).count(), 0);
        assert_eq!(book.take(News::Applied(Arc::new(pod("p", "b", "Succeeded")))), [Key::new("team", "b")]);
        book.take(News::Applied(Arc::new(pod("q", "a", "Running"))));
        book.take(News::Begin);
        assert_eq!(book.take(News::Complete), [a]);
        assert!(book.pods.is_empty() && book.groups.is_empty() && book.asked.is_empty());
    }
}
