//! Jobs: one group; as many pods start together as `kai.scheduler/batch-min-member` says, else each as it can.

use kai_api::names::{annotations, objects};
use serde_json::Value;

use crate::{
    error::Trouble,
    kinds::Kind,
    owner::{Owner, Reference, Workload},
    rules::Rules,
    wanted::Wanted,
};

pub(super) struct Job;

impl Kind for Job {
    /// Whether as many pods as must start together can run at once is in the spec.
    fn needs(&self, workload: &Workload<'_>) -> Option<Reference> {
        let reference = &workload.top.reference;
        let gang = workload.from_top().any(|owner| owner.annotations.contains_key(annotations::BATCH_MIN_MEMBER));
        (gang && !workload.objects.contains_key(reference)).then(|| reference.clone())
    }

    fn group(&self, workload: &Workload<'_>, rules: &Rules<'_>) -> Result<Wanted, Trouble> {
        let mut wanted = rules.group(workload, objects::PRIORITY_TRAIN);
        let pod = Owner::of_pod(workload.pod);
        if rules.keep_legacy && (rules.group_exists)(&kai_api::group_name(&pod.reference.name, &pod.uid)) {
            wanted.only_for(&pod);
            return Ok(wanted);
        }
        if let Some(count) = rules.batch_min_member(workload)? {
            wanted.min_member = Some(count);
            let at_once = workload.object(&workload.top.reference).map(pods_at_once);
            if let Some(at_once) = at_once.filter(|at_once| *at_once < i64::from(count)) {
                wanted.warnings.push(format!(
                    "{}: {count} pods must start together (annotation {}), but the Job runs only {at_once} at once; \
                     raise spec.parallelism or lower the annotation",
                    workload.top.reference,
                    annotations::BATCH_MIN_MEMBER
                ));
            }
        }
        Ok(wanted)
    }
}

/// How many pods of a Job run at the same time.
fn pods_at_once(job: &Value) -> i64 {
    let number = |pointer: &str| job.pointer(pointer).and_then(Value::as_i64);
    let parallelism = number("/spec/parallelism").unwrap_or(1);
    number("/spec/completions").map_or(parallelism, |completions| completions.min(parallelism))
}
