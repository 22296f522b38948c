//! Deployments: each pod by itself. Replicas of a service need neither each other nor the same fate.

use kai_api::names::objects;

use crate::{
    error::Trouble,
    kinds::Kind,
    owner::{Owner, Workload},
    rules::Rules,
    wanted::Wanted,
};

pub(super) struct Deployment;

impl Kind for Deployment {
    fn group(&self, workload: &Workload<'_>, rules: &Rules<'_>) -> Result<Wanted, Trouble> {
        let mut wanted = rules.group(workload, objects::PRIORITY_INFERENCE);
        wanted.only_for(&Owner::of_pod(workload.pod));
        Ok(wanted)
    }
}
