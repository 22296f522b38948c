//! The rules for pods, in KAI's order: sharing of GPUs, access to devices, runtime class. Pods of other schedulers are
//! left alone, except that they may not pass themselves off as ours.

mod device_access;
mod inject;
mod prefix;
mod protected;
mod sharing;
mod subject;
mod target;
#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::Pod;
use kai_api::names::annotations;

use self::subject::Subject;
use crate::{
    review::{Consent, Operation, Request, Verdict},
    rules::Settings,
};

/// The annotations that the rules are about, devices in environments aside.
pub(crate) const NOTED_ANNOTATIONS: &[&str] = &[
    annotations::GPU_FRACTION,
    annotations::GPU_MEMORY,
    annotations::GPU_FRACTION_DEVICES,
    annotations::GPU_FRACTION_CONTAINER,
    annotations::MPS,
    annotations::RECEIVED_RESOURCE_TYPE,
    annotations::SHARED_GPU_CONFIG_MAP,
];

/// Completes a pod. A new one is then judged, as it will be: nobody is asked about it again.
pub(crate) fn mutate(settings: &Settings, request: &Request) -> Verdict {
    if matches!(request.operation, Operation::Delete | Operation::Connect) {
        return Ok(Consent::default());
    }
    let pod: Pod = request.object()?;
    let subject = Subject::new(&pod, request);
    if !subject.is_of(&settings.scheduler) {
        return Ok(Consent::default());
    }
    subject.check_namespace(request)?;
    let mut changed = request.object.clone();
    let mut warnings = Vec::new();
    if request.operation == Operation::Create && settings.gpu_sharing && sharing::asks(&subject) {
        // What is not well formed is refused first: nothing can be made of it.
        sharing::check(&subject, settings)?;
        let created_bound = subject.node().is_some() && settings.trusts(&request.user_info);
        if !(created_bound && subject.prefix().is_some()) {
            inject::inject(&subject, settings, &request.uid, &mut changed, &mut warnings)?;
        }
        inject::set_runtime_class(settings, &mut changed);
    }
    if settings.block_visible_devices {
        device_access::hide(&subject, &mut changed, &mut warnings)?;
    }
    let consent = Consent::changing(&request.object, &changed, warnings);
    if request.operation != Operation::Create {
        return Ok(consent);
    }
    let judged = validate(settings, &Request { object: changed, ..request.clone() })?;
    Ok(Consent { warnings: [consent.warnings, judged.warnings].concat(), ..consent })
}

/// Judges a pod.
pub(crate) fn validate(settings: &Settings, request: &Request) -> Verdict {
    if matches!(request.operation, Operation::Delete | Operation::Connect) {
        return Ok(Consent::default());
    }
    let pod: Pod = request.object()?;
    let subject = Subject::new(&pod, request);
    let old: Option<Pod> = (request.operation == Operation::Update).then(|| request.old_object()).transpose()?;
    let old = old.as_ref().map(|old| Subject::new(old, request));
    protected::check(&subject, old.as_ref(), settings, &request.user_info)?;
    if !subject.is_of(&settings.scheduler) {
        return Ok(Consent::default());
    }
    subject.check_namespace(request)?;
    let mut warnings = Vec::new();
    // A pod that was let in is not held up later for what it always was: finalizers and labels must stay changeable.
    if old.as_ref().is_none_or(|old| sharing::differ(old, &subject)) {
        warnings = sharing::check(&subject, settings)?;
    }
    if let Some(old) = &old {
        sharing::check_frozen(old, &subject)?;
    }
    if settings.block_visible_devices {
        device_access::check(&subject, old.as_ref())?;
    }
    Ok(Consent::with(warnings))
}
