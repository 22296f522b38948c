//! Kinds of workloads: what the group of each looks like. One file per kind; what is not listed here is a [`plain`]
//! workload.

mod cron_job;
mod daemon_set;
mod deployment;
mod job;
mod plain;
mod pod;

use crate::{
    error::Trouble,
    owner::{Reference, Workload},
    rules::Rules,
    wanted::Wanted,
};

/// How the pods of a kind of workload are grouped.
pub trait Kind: Sync {
    /// The next object that must be read before [`Kind::group`] can answer; asked again until there is none.
    fn needs(&self, workload: &Workload<'_>) -> Option<Reference> {
        let _ = workload;
        None
    }

    /// The group that the pod of this workload belongs to.
    fn group(&self, workload: &Workload<'_>, rules: &Rules<'_>) -> Result<Wanted, Trouble>;
}

/// The kind of an object, in whatever version.
pub fn of(reference: &Reference) -> &'static dyn Kind {
    match (reference.group(), reference.kind.as_str()) {
        ("", "Pod") => &pod::Pod,
        ("apps", "Deployment") => &deployment::Deployment,
        ("apps", "DaemonSet") => &daemon_set::DaemonSet,
        ("batch", "Job") => &job::Job,
        ("batch", "CronJob") => &cron_job::CronJob,
        _ => &plain::Plain,
    }
}
