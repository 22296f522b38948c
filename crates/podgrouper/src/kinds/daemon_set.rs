//! DaemonSets: each pod by itself, since each is for another node. Pods that KAI put into one group for all of them
//! stay there.

use kai_api::names::{annotations, objects};

use crate::{
    error::Trouble,
    kinds::Kind,
    owner::{Owner, Workload, entry},
    rules::Rules,
    wanted::Wanted,
};

pub(super) struct DaemonSet;

impl Kind for DaemonSet {
    fn group(&self, workload: &Workload<'_>, rules: &Rules<'_>) -> Result<Wanted, Trouble> {
        let mut wanted = rules.group(workload, objects::PRIORITY_TRAIN);
        let present = entry(workload.pod.metadata.annotations.as_ref(), annotations::POD_GROUP);
        let shared = present == Some(&wanted.name) && (rules.group_exists)(&wanted.name);
        if !shared {
            wanted.only_for(&Owner::of_pod(workload.pod));
        }
        Ok(wanted)
    }
}
