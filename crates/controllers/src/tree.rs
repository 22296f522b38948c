//! Queues as a tree: sums from the leaves to the top in one pass, and which queues hang in the air.
//!
//! A queue hangs in the air if its parent does not exist, if it is its own ancestor, or if a queue above it hangs.
//! Rings are cut at each
//! of their queues, so that what remains is a forest and every sum is finite.

use std::collections::{BTreeMap, BTreeSet};

use crate::sums::Sums;

/// Why a queue has no way to the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Orphan {
    /// Its parent, of this name, does not exist.
    ParentMissing(String),
    /// It is its own ancestor: the queues of the ring, from itself upwards.
    Ring(Vec<String>),
    /// This queue above it is an orphan.
    Below(String),
}

/// A queue in its tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Of its own groups and of all queues below.
    pub sums: Sums,
    /// The queues whose parent it is.
    pub children: Vec<String>,
    /// Why it has no way to the top.
    pub orphan: Option<Orphan>,
}

/// The view of every queue, from the parent of each and the sums of their own groups.
#[must_use]
pub fn views(parents: &BTreeMap<String, Option<String>>, own: &BTreeMap<String, Sums>) -> BTreeMap<String, View> {
    let rings = rings(parents);
    let known = |name: &&String| parents.contains_key(*name);
    let mut views: BTreeMap<String, View> = BTreeMap::new();
    let mut waiting: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, parent) in parents {
        let sums = own.get(name).cloned().unwrap_or_default();
        views.entry(name.clone()).or_default().sums = sums;
        if let Some(parent) = parent.as_ref().filter(known) {
            views.entry(parent.clone()).or_default().children.push(name.clone());
            if !rings.contains_key(name.as_str()) {
                *waiting.entry(parent).or_default() += 1;
            }
        }
    }
    let mut order: Vec<&String> = parents.keys().filter(|name| !waiting.contains_key(name.as_str())).collect();
    let mut next = 0;
    while let Some(name) = order.get(next).copied() {
        next += 1;
        if rings.contains_key(name.as_str()) {
            continue;
        }
        let Some(parent) = parents.get(name).and_then(Option::as_ref).filter(known) else { continue };
        let sums = views.get(name).map(|view| view.sums.clone()).unwrap_or_default();
        if let Some(view) = views.get_mut(parent) {
            view.sums.add_all(&sums);
        }
        if let Some(left) = waiting.get_mut(parent.as_str()) {
            *left -= 1;
            if *left == 0 {
                order.push(parent);
            }
        }
    }
    // Parents come after all their children, so backwards they come first.
    for name in order.into_iter().rev() {
        let parent = parents.get(name).and_then(Option::as_ref);
        let orphan = match (rings.get(name.as_str()), parent) {
            (Some(ring), _) => Some(Orphan::Ring(ring.clone())),
            (None, Some(parent)) => match views.get(parent) {
                None => Some(Orphan::ParentMissing(parent.clone())),
                Some(View { orphan: Some(Orphan::Below(above)), .. }) => Some(Orphan::Below(above.clone())),
                Some(View { orphan: Some(_), .. }) => Some(Orphan::Below(parent.clone())),
                Some(_) => None,
            },
            (None, None) => None,
        };
        if let Some(view) = views.get_mut(name) {
            view.orphan = orphan;
        }
    }
    views
}

/// The queues that are their own ancestors, each with its ring.
fn rings(parents: &BTreeMap<String, Option<String>>) -> BTreeMap<&str, Vec<String>> {
    let mut rings = BTreeMap::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in parents.keys() {
        let mut path: Vec<&str> = Vec::new();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut at = Some(start.as_str());
        while let Some(name) = at.filter(|name| !done.contains(name)) {
            if let Some(place) = places.get(name) {
                let ring = path.get(*place..).unwrap_or_default();
                for (turn, member) in ring.iter().enumerate() {
                    let turned = ring.iter().cycle().skip(turn).take(ring.len());
                    rings.insert(*member, turned.map(|name| (*name).to_owned()).collect());
                }
                break;
            }
            // A parent that does not exist is the end of the way.
            let Some((name, parent)) = parents.get_key_value(name) else { break };
            places.insert(name, path.len());
            path.push(name);
            at = parent.as_deref();
        }
        done.extend(path);
    }
    rings
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree(edges: &[(&str, &str)]) -> BTreeMap<String, Option<String>> {
        let parent = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        edges.iter().map(|(name, above)| ((*name).to_owned(), parent(above))).collect()
    }

    fn cpu(nano: i128) -> Sums {
        let mut sums = Sums::default();
        sums.allocated.add("cpu", nano);
        sums
    }

    #[test]
    fn sums_reach_the_top_at_once() {
        let parents = tree(&[("top", ""), ("middle", "top"), ("leaf", "middle"), ("other", "top")]);
        let own = [("leaf".to_owned(), cpu(3)), ("other".to_owned(), cpu(4)), ("middle".to_owned(), cpu(1))].into();
        let views = views(&parents, &own);
        assert_eq!((&views["top"].sums, &views["middle"].sums), (&cpu(8), &cpu(4)));
        assert_eq!(views["top"].children, ["middle", "other"]);
        assert!(views.values().all(|view| view.orphan.is_none()));
    }

    #[test]
    fn orphans_are_told_apart() {
        let parents = tree(&[
            ("lost", "nowhere"),
            ("below-lost", "lost"),
            ("deep", "below-lost"),
            ("a", "b"),
            ("b", "a"),
            ("on-a", "a"),
            ("self", "self"),
        ]);
        let views = views(&parents, &BTreeMap::new());
        let orphan = |name: &str| views[name].orphan.clone().expect("an orphan");
        assert_eq!(orphan("lost"), Orphan::ParentMissing("nowhere".into()));
        assert_eq!(orphan("below-lost"), Orphan::Below("lost".into()));
        assert_eq!(orphan("deep"), Orphan::Below("lost".into()));
        assert_eq!(orphan("a"), Orphan::Ring(vec!["a".into(), "b".into()]));
        assert_eq!(orphan("b"), Orphan::Ring(vec!["b".into(), "a".into()]));
        assert_eq!(orphan("on-a"), Orphan::Below("a".into()));
        assert_eq!(orphan("self"), Orphan::Ring(vec!["self".into()]));
    }

    /// Whether a queue is among its own ancestors, found by walking as far as there are queues.
    fn in_ring(name: &str, parents: &BTreeMap<String, Option<String>>) -> bool {
        let mut at = parents[name].clone();
        for _ in 0..parents.len() {
            match at {
                Some(above) if above == name => return true,
                Some(above) => at = parents.get(&above).cloned().flatten(),
                None => return false,
            }
        }
        false
    }

    fn reaches_top(name: &str, parents: &BTreeMap<String, Option<String>>) -> bool {
        let mut at = name.to_owned();
        for _ in 0..=parents.len() {
            match parents.get(&at) {
                None => return false,
                Some(None) => return true,
                Some(Some(above)) => at = above.clone(),
            }
        }
        false
    }

    fn slowly(name: &str, parents: &BTreeMap<String, Option<String>>, own: &BTreeMap<String, Sums>) -> Sums {
        let mut sum = own.get(name).cloned().unwrap_or_default();
        for (child, parent) in parents {
            if parent.as_deref() == Some(name) && !in_ring(child, parents) {
                sum.add_all(&slowly(child, parents, own));
            }
        }
        sum
    }

    proptest! {
        #[test]
        fn one_pass_finds_what_plain_recursion_finds(edges in proptest::collection::vec((0_usize..14, 0_i128..100), 1..12)) {
            let name = |index: usize| format!("q{index}");
            // 12 is nobody, 13 is a queue that does not exist.
            let parent = |index: usize| (index != 12).then(|| name(index));
            let parents: BTreeMap<_, _> = edges.iter().enumerate().map(|(at, (up, _))| (name(at), parent(*up))).collect();
            let own: BTreeMap<_, _> = edges.iter().enumerate().map(|(at, (_, nano))| (name(at), cpu(*nano))).collect();
            let views = views(&parents, &own);
            prop_assert_eq!(views.len(), parents.len());
            for (name, view) in &views {
                prop_assert_eq!(&view.sums, &slowly(name, &parents, &own), "{}", name);
                prop_assert_eq!(view.orphan.is_none(), reaches_top(name, &parents), "{}", name);
                prop_assert_eq!(matches!(view.orphan, Some(Orphan::Ring(_))), in_ring(name, &parents), "{}", name);
            }
        }
    }
}
