//! Pods without an owner, and pods that belong to a pod. Those of a Spark application share the group of their
//! application.

use kai_api::names::{labels::SPARK_SELECTOR, objects};

use crate::{
    error::Trouble,
    kinds::Kind,
    owner::{Workload, entry},
    rules::Rules,
    wanted::Wanted,
};

const SPARK_NAME: &str = "spark-app-name";

pub(super) struct Pod;

impl Kind for Pod {
    fn group(&self, workload: &Workload<'_>, rules: &Rules<'_>) -> Result<Wanted, Trouble> {
        let mut wanted = rules.group(workload, objects::PRIORITY_TRAIN);
        let labels = workload.pod.metadata.labels.as_ref();
        if let (Some(_), Some(selector)) = (entry(labels, SPARK_NAME), entry(labels, SPARK_SELECTOR)) {
            if !is_name(selector) {
                return Err(Trouble::Input(format!(
                    "the pod: label {SPARK_SELECTOR} `{selector}` cannot be the name of a PodGroup; \
                     use lower case letters, digits, `-` and `.`"
                )));
            }
            selector.clone_into(&mut wanted.name);
        }
        Ok(wanted)
    }
}

/// Whether an object can have this name.
fn is_name(text: &str) -> bool {
    let inside = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    text.split('.').all(|part| {
        let (first, last) = (part.bytes().next(), part.bytes().next_back());
        first.is_some_and(inside)
            && last.is_some_and(inside)
            && part.bytes().all(|letter| inside(letter) || letter == b'-')
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1 as k8s;
    use kai_api::names::{annotations, labels};
    use proptest::{collection::btree_map, option, prelude::*, sample::select};
    use serde_json::json;

    use super::*;
    use crate::{owner::Owner, type_defaults::TypeDefaults};

    /// Labels and annotations that the group of a pod may follow, and one that it does not.
    const KEYS: &[&str] = &[
        labels::QUEUE,
        labels::PROJECT,
        labels::NODE_POOL,
        labels::PREEMPTIBILITY,
        labels::PRIORITY_CLASS,
        labels::USER,
        labels::SUBGROUP,
        SPARK_NAME,
        SPARK_SELECTOR,
        annotations::TOPOLOGY,
        annotations::TOPOLOGY_REQUIRED,
        annotations::PREEMPTION_DELAY,
        annotations::STALENESS_GRACE_PERIOD,
        annotations::BATCH_MIN_MEMBER,
        "app",
    ];

    fn settings() -> impl Strategy<Value = BTreeMap<&'static str, &'static str>> {
        btree_map(select(KEYS), select(&["", "a", "5s", "preemptible"][..]), 0..4)
    }

    proptest! {
        #[test]
        fn the_group_that_a_pod_implies_is_the_one_that_is_made(
            tags in settings(), notes in settings(), class in option::of(select(&["", "high"][..])),
        ) {
            let pod: k8s::Pod = serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "team", "uid": "u", "labels": tags, "annotations": notes},
                "spec": {"priorityClassName": class, "containers": []},
            })).expect("a pod");
            let owners = [std::sync::Arc::new(Owner::of_pod(&pod))];
            let workload = Workload { pod: &pod, owners: &owners, top: &owners[0], objects: &BTreeMap::new() };
            let rules = Rules {
                queue_label: labels::QUEUE,
                node_pool_label: labels::NODE_POOL,
                class_exists: &|_| true,
                group_exists: &|_| false,
                keep_legacy: true,
                defaults: &TypeDefaults::default(),
            };
            if let Some(implied) = kai_api::implied_group(&pod, labels::QUEUE, Some(labels::NODE_POOL)) {
                let made = Pod.group(&workload, &rules).expect("a group").to_pod_group(labels::QUEUE, labels::NODE_POOL);
                prop_assert_eq!(&implied.metadata.name, &made.metadata.name);
                prop_assert_eq!(&implied.metadata.namespace, &made.metadata.namespace);
                prop_assert_eq!(&implied.spec, &made.spec);
                let pool = |group: &kai_api::PodGroup| {
                    entry(group.metadata.labels.as_ref(), labels::NODE_POOL).map(str::to_owned)
                };
                prop_assert_eq!(pool(&implied), pool(&made));
            }
        }
    }
}
