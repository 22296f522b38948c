//! Parts of GPUs: what a pod may ask for, and what it may no longer change.
//!
//! The scheduler's own reader of these annotations has the last word, so that nothing is let in that it cannot read.

use kai_api::names::annotations::{GPU_FRACTION, GPU_FRACTION_CONTAINER, GPU_FRACTION_DEVICES, GPU_MEMORY, MPS};
use kai_convert::Gpus;
use kai_quantity::{Format, Quantity};

use super::{
    subject::{Subject, devices},
    target,
};
use crate::{review::Refusal, rules::Settings};

/// What a pod's annotations ask of GPUs.
const REQUEST: [&str; 5] = [GPU_FRACTION, GPU_MEMORY, GPU_FRACTION_DEVICES, GPU_FRACTION_CONTAINER, MPS];

/// Whether a pod asks for a part of a GPU.
pub(super) fn asks(subject: &Subject<'_>) -> bool {
    subject.written(GPU_FRACTION).is_some() || subject.written(GPU_MEMORY).is_some()
}

/// Whether two versions of a pod ask for different things.
pub(super) fn differ(old: &Subject<'_>, new: &Subject<'_>) -> bool {
    REQUEST.iter().any(|name| old.annotation(name) != new.annotation(name))
        || old.spec().map(|spec| &spec.scheduler_name) != new.spec().map(|spec| &spec.scheduler_name)
}

/// Refuses what cannot be shared like this; advice for what is only odd.
pub(super) fn check(subject: &Subject<'_>, settings: &Settings) -> Result<Vec<String>, Refusal> {
    let (fraction, memory) = (subject.written(GPU_FRACTION), subject.written(GPU_MEMORY));
    let shares = fraction.is_some() || memory.is_some();
    let asked = if fraction.is_some() { GPU_FRACTION } else { GPU_MEMORY };
    if shares && !settings.gpu_sharing {
        let what = "the pod asks for GPU sharing while GPU sharing is disabled";
        let remedy = "ask for whole GPUs, or set `admission.gpuSharing: true` in the Config";
        return Err(subject.refuse_annotation(asked, what, remedy));
    }
    if subject.written(MPS) == Some("true") && !shares {
        let what = "MPS can only be used with a GPU fraction";
        return Err(subject.refuse_annotation(MPS, what, "remove it, or add `gpu-fraction` or `gpu-memory`"));
    }
    if let Some(text) = memory
        && fraction.is_some()
    {
        let what = format_args!("`{text}`: cannot request both GPU and GPU memory");
        return Err(subject.refuse_annotation(GPU_MEMORY, what, "remove it or `gpu-fraction`"));
    }
    if shares {
        check_whole(subject, asked)?;
    } else if let Some(text) = subject.written(GPU_FRACTION_DEVICES) {
        let what = format_args!("`{text}`: cannot request several fractional devices without portion or gpu-memory");
        return Err(subject.refuse_annotation(
            GPU_FRACTION_DEVICES,
            what,
            "add `gpu-fraction` or `gpu-memory`, or remove it",
        ));
    }
    if let Some(text) = memory {
        check_memory(subject, text)?;
    }
    let mut warnings = Vec::new();
    if let Some(text) = fraction {
        warnings.extend(check_fraction(subject, text)?);
    }
    if let Some(text) = subject.written(GPU_FRACTION_DEVICES) {
        check_devices(subject, text)?;
    }
    if shares {
        target::find(subject)?;
        agree(subject)?;
    } else if subject.written(GPU_FRACTION_CONTAINER).is_some() {
        warnings.push(subject.advise(GPU_FRACTION_CONTAINER, "has no effect without `gpu-fraction` or `gpu-memory`"));
    }
    for name in [GPU_FRACTION, GPU_MEMORY].into_iter().filter(|name| subject.annotation(name).is_some()) {
        if subject.written(name).is_none() {
            warnings.push(subject.advise(name, "is empty and has no effect"));
        }
    }
    Ok(warnings)
}

fn check_whole(subject: &Subject<'_>, asked: &str) -> Result<(), Refusal> {
    for container in subject.containers().chain(subject.init_containers()) {
        let Some(resource) = devices(container.resources.as_ref()) else { continue };
        let name = &container.name;
        let what = if asked == GPU_MEMORY {
            format!("cannot request both GPU and GPU memory: container `{name}` has `{resource}`")
        } else {
            format!(
                "cannot have both a GPU fraction request and a whole GPU resource request/limit: container `{name}` \
                 has `{resource}`"
            )
        };
        let remedy = format!("remove the annotation, or `{resource}` from requests and limits of the container");
        return Err(subject.refuse_annotation(asked, what, &remedy));
    }
    Ok(())
}

fn check_memory(subject: &Subject<'_>, text: &str) -> Result<(), Refusal> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits && text.bytes().any(|byte| byte != b'0') {
        return Ok(());
    }
    let remedy = match mebibytes(text) {
        Some(number) => format!("give MiB as a plain number: `{number}`"),
        None => "give MiB as a plain number, such as `30720`".to_owned(),
    };
    let what = format_args!("`{}` must be a positive integer greater than 0", shown(text));
    Err(subject.refuse_annotation(GPU_MEMORY, what, &remedy))
}

/// What somebody may have meant who wrote a unit, in MiB. GPU memory is sold in powers of two, however it is written.
fn mebibytes(text: &str) -> Option<u64> {
    let end = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    match unit.trim().to_ascii_lowercase().as_str() {
        "m" | "mb" | "mi" | "mib" => Some(number),
        "g" | "gb" | "gi" | "gib" => number.checked_mul(1024),
        _ => None,
    }
}

fn check_fraction(subject: &Subject<'_>, text: &str) -> Result<Option<String>, Refusal> {
    const REMEDY: &str = "write a decimal between 0 and 1, such as `0.5`";
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'+' | b'-' | b'e' | b'E'));
    let number = text.parse::<Quantity>().ok().filter(|_| plain && subject.annotation(GPU_FRACTION) == Some(text));
    let Some(number) = number else {
        // As it was written: spaces around a number are what is wrong with it.
        let written = subject.annotation(GPU_FRACTION).unwrap_or(text);
        let what = format_args!("`{}` must be a decimal or scientific float", shown(written));
        let remedy = if plain && written != text { "write it without spaces" } else { REMEDY };
        return Err(subject.refuse_annotation(GPU_FRACTION, what, remedy));
    };
    if number >= Quantity::from_value(1, Format::DecimalSi) {
        let what = format_args!("`{}` must be a positive number smaller than 1.0", shown(text));
        let remedy =
            "write a decimal between 0 and 1; for whole GPUs remove it and set the container's limit `nvidia.com/gpu`";
        return Err(subject.refuse_annotation(GPU_FRACTION, what, remedy));
    }
    if number.is_zero() || number.is_negative() {
        let what = format_args!("`{}` must be a positive number smaller than 1.0", shown(text));
        return Err(subject.refuse_annotation(GPU_FRACTION, what, REMEDY));
    }
    let Ok(Gpus::Portion { millionths, .. }) = read(subject) else { return Ok(None) };
    let counted = Quantity::from_nano(i128::from(millionths) * 1000, Format::DecimalSi);
    let inexact = (counted != number).then(|| {
        let parts = format!("{millionths:06}");
        let counts = format!("0.{}", parts.trim_end_matches('0'));
        subject
            .advise(GPU_FRACTION, format_args!("`{}` counts as {counts}: shares are kept in millionths", shown(text)))
    });
    Ok(inexact)
}

fn check_devices(subject: &Subject<'_>, text: &str) -> Result<(), Refusal> {
    if text.parse::<u32>().is_ok_and(|count| count > 0) && !text.starts_with('+') {
        return Ok(());
    }
    let what = format_args!("`{}`: fraction count must be a positive integer greater than 0", shown(text));
    Err(subject.refuse_annotation(GPU_FRACTION_DEVICES, what, "write a whole number such as `2`"))
}

/// What the scheduler will read.
fn read(subject: &Subject<'_>) -> Result<Gpus, String> {
    match subject.annotations() {
        Some(notes) => kai_convert::gpus(notes, 0),
        None => Ok(Gpus::None),
    }
}

/// Refuses what the scheduler could not read, in its words.
fn agree(subject: &Subject<'_>) -> Result<(), Refusal> {
    match read(subject) {
        Ok(Gpus::Portion { .. } | Gpus::Memory { .. }) => Ok(()),
        Ok(_) => Err(subject.refuse_annotation(GPU_FRACTION, "is no part of a GPU", "write a decimal between 0 and 1")),
        Err(complaint) => Err(subject.refuse_as_scheduler(&complaint)),
    }
}

/// Refuses changes that the scheduler's books or the containers could not follow.
pub(super) fn check_frozen(old: &Subject<'_>, new: &Subject<'_>) -> Result<(), Refusal> {
    const AGAIN: &str = "delete the pod and create it anew with other annotations";
    let asked = |subject: &Subject<'_>| {
        if subject.written(GPU_FRACTION).is_some() { GPU_FRACTION } else { GPU_MEMORY }
    };
    match (asks(old), asks(new)) {
        (false, true) => {
            let what = "cannot be added to a pod that exists: its containers were made for whole GPUs or none";
            return Err(new.refuse_annotation(asked(new), what, AGAIN));
        }
        (true, false) => {
            let what = "cannot be removed: the pod's containers were made for a part of a GPU";
            return Err(new.refuse_annotation(asked(old), what, AGAIN));
        }
        _ => {}
    }
    let frozen = |name: &str| {
        let (before, after) = (old.annotation(name), new.annotation(name));
        let shown = |text: Option<&str>| text.map_or_else(|| "nothing".to_owned(), |text| format!("`{}`", shown(text)));
        (before != after).then(|| (shown(before), shown(after)))
    };
    if asks(new)
        && let Some((before, after)) = frozen(GPU_FRACTION_CONTAINER)
    {
        let what =
            format_args!("cannot change from {before} to {after}: the container was told of its GPU at creation");
        return Err(new.refuse_annotation(GPU_FRACTION_CONTAINER, what, AGAIN));
    }
    let Some(node) = old.node() else { return Ok(()) };
    for name in [GPU_FRACTION, GPU_MEMORY, GPU_FRACTION_DEVICES] {
        if let Some((before, after)) = frozen(name) {
            let what = format_args!(
                "cannot change from {before} to {after}: the pod is bound to node `{node}` and holds its part \
                 of the GPU"
            );
            return Err(new.refuse_annotation(name, what, AGAIN));
        }
    }
    Ok(())
}

fn shown(text: &str) -> String {
    text.chars().take(32).collect()
}
