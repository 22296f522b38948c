//! Pods without an owner, and pods that belong to a pod. Those of a Spark application share the group of their
//! application.

use kai_api::names::objects;

use crate::{
    error::Trouble,
    kinds::Kind,
    owner::{Workload, entry},
    rules::Rules,
    wanted::Wanted,
};

const SPARK_NAME: &str = "spark-app-name";
const SPARK_SELECTOR: &str = "spark-app-selector";

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
