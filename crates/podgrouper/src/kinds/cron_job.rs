//! CronJobs: each of its Jobs is a workload of its own. What only the CronJob says counts for them all.

use crate::{
    error::Trouble,
    kinds::{Kind, job::Job, plain::Plain},
    owner::{Owner, Reference, Workload},
    rules::Rules,
    wanted::Wanted,
};

pub(super) struct CronJob;

impl Kind for CronJob {
    fn needs(&self, workload: &Workload<'_>) -> Option<Reference> {
        Job.needs(&workload.with_top(job_of(workload)?))
    }

    fn group(&self, workload: &Workload<'_>, rules: &Rules<'_>) -> Result<Wanted, Trouble> {
        match job_of(workload) {
            Some(job) => Job.group(&workload.with_top(job), rules),
            // A pod that a CronJob owns directly is somebody's own idea; it is a workload all the same.
            None => Plain.group(workload, rules),
        }
    }
}

/// The Job between the pod and the CronJob.
fn job_of<'a>(workload: &Workload<'a>) -> Option<&'a Owner> {
    workload.from_below().find(|owner| owner.reference.kind == "Job" && owner.reference.group() == "batch")
}
