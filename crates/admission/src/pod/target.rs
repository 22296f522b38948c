//! Which container of a pod gets the part of a GPU: the named one, or the first.

use kai_api::names::annotations::GPU_FRACTION_CONTAINER;

use super::subject::Subject;
use crate::review::Refusal;

/// A container by its list and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) init: bool,
    pub(super) index: usize,
}

impl Target {
    /// The field of the pod's spec that lists it.
    pub(super) fn list(self) -> &'static str {
        if self.init { "initContainers" } else { "containers" }
    }

    /// What its place adds to the names of its `ConfigMaps`.
    pub(super) fn suffix(self) -> String {
        format!("{}{}", if self.init { "i" } else { "" }, self.index)
    }
}

/// Finds it.
pub(super) fn find(subject: &Subject<'_>) -> Result<Target, Refusal> {
    // As the binder looks for it: to the letter.
    let Some(wanted) = subject.annotation(GPU_FRACTION_CONTAINER).filter(|name| !name.is_empty()) else {
        return match subject.containers().next() {
            Some(_) => Ok(Target { init: false, index: 0 }),
            None => Err(subject.refuse("field `spec.containers`", "is empty", "add a container")),
        };
    };
    let init = subject.init_containers().enumerate().map(|(index, container)| (true, index, container));
    let main = subject.containers().enumerate().map(|(index, container)| (false, index, container));
    let mut found = init.chain(main).filter(|(_, _, container)| container.name == wanted);
    let Some((init, index, _)) = found.next() else {
        let names =
            subject.init_containers().chain(subject.containers()).map(|container| format!("`{}`", container.name));
        let remedy = format!("name one of {}", names.collect::<Vec<_>>().join(", "));
        let what = format_args!("container `{wanted}` not found for fraction request");
        return Err(subject.refuse_annotation(GPU_FRACTION_CONTAINER, what, &remedy));
    };
    if found.next().is_some() {
        let what = format_args!("container `{wanted}` is in the pod more than once");
        return Err(subject.refuse_annotation(GPU_FRACTION_CONTAINER, what, "give each container a name of its own"));
    }
    Ok(Target { init, index })
}
