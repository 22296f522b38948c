//! What only the components write: the scheduler's books stand on it, so that a tenant who could write it could take
//! what is not theirs.

use std::collections::BTreeMap;

use kai_api::names::{annotations, labels, namespaces};

use super::subject::Subject;
use crate::{
    review::{Refusal, User},
    rules::Settings,
};

/// Refuses what a user writes in place of a component.
pub(super) fn check(
    subject: &Subject<'_>,
    old: Option<&Subject<'_>>,
    settings: &Settings,
    user: &User,
) -> Result<(), Refusal> {
    if settings.trusts(user) {
        return Ok(());
    }
    let name = &user.username;
    if let Some(label) = changed_group(subject, old) {
        let what = format_args!("only the binder writes it, not user `{name}`");
        let remedy = "leave the label as it is; in a new pod or template, remove it";
        return Err(subject.refuse(&format!("label `{label}`"), what, remedy));
    }
    let mut notes = vec![annotations::RECEIVED_RESOURCE_TYPE];
    if old.is_some() {
        // In a new pod it is replaced, and a fresh one was put in before this rule is asked.
        notes.push(annotations::SHARED_GPU_CONFIG_MAP);
    }
    for note in notes {
        if subject.annotation(note) != old.and_then(|old| old.annotation(note)) {
            let what = format_args!("only the components write it, not user `{name}`");
            let remedy = "leave the annotation as it is; in a new pod or template, remove it";
            return Err(subject.refuse_annotation(note, what, remedy));
        }
    }
    let reserves = |subject: &Subject<'_>| subject.label(labels::APP) == Some(namespaces::RESERVATION);
    if reserves(subject) != old.is_some_and(reserves) && subject.namespace() != settings.reservation_namespace {
        let what = format_args!(
            "`{}` marks reservation pods, which are only in namespace `{}`",
            namespaces::RESERVATION,
            settings.reservation_namespace
        );
        return Err(subject.refuse(&format!("label `{}`", labels::APP), what, "choose another value"));
    }
    Ok(())
}

/// A label of a GPU group that is not as it was.
fn changed_group<'a>(subject: &Subject<'a>, old: Option<&Subject<'a>>) -> Option<&'a str> {
    let groups = |subject: &Subject<'a>| -> BTreeMap<&'a str, &'a str> {
        let tags = subject.pod.metadata.labels.iter().flatten();
        let groups = tags
            .filter(|(name, _)| *name == labels::GPU_GROUP || name.starts_with(labels::GPU_GROUP_PREFIX))
            .map(|(name, value)| (name.as_str(), value.as_str()));
        groups.collect()
    };
    let (new, old) = (groups(subject), old.map(groups).unwrap_or_default());
    let mut names = new.keys().chain(old.keys()).copied();
    names.find(|name| new.get(name) != old.get(name))
}
