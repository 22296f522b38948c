//! ReplicaSets, StatefulSets and everything unknown: one group per top owner, of which one pod is enough to start
//! unless it says otherwise.

use kai_api::names::objects;

use crate::{error::Trouble, kinds::Kind, owner::Workload, rules::Rules, wanted::Wanted};

pub(super) struct Plain;

impl Kind for Plain {
    fn group(&self, workload: &Workload<'_>, rules: &Rules<'_>) -> Result<Wanted, Trouble> {
        let mut wanted = rules.group(workload, objects::PRIORITY_TRAIN);
        if let Some(count) = rules.batch_min_member(workload)? {
            wanted.min_member = Some(count);
        }
        Ok(wanted)
    }
}
