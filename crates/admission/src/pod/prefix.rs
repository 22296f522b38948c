//! The beginning of the names of the `ConfigMaps` through which a container learns its GPU.
//!
//! It is made anew at every creation, whatever the pod brought: who could choose it could make the binder write into,
//! and later delete, a `ConfigMap` of somebody else.

use sha2::{Digest as _, Sha256};

use super::{subject::Subject, target::Target};

/// The longest name of a volume, and what every `ConfigMap` keeps to.
const LONGEST: usize = 63;
/// Characters that make no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many of them tell two prefixes apart.
const RANDOM: usize = 7;
const END: &str = "-shared-gpu";

/// The prefix for a request: the same one for the same request.
pub(super) fn fresh(subject: &Subject<'_>, target: Target, request: &str) -> String {
    let metadata = &subject.pod.metadata;
    let owner = metadata.owner_references.iter().flatten().next().map(|owner| owner.name.as_str());
    let names = [owner, metadata.name.as_deref(), metadata.generate_name.as_deref()];
    let name = names.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or("pod");
    let longest_end = format!("-{}{END}-i{}-evar", "x".repeat(RANDOM), target.index).len();
    let room = LONGEST.saturating_sub(longest_end);
    let name: String = name.chars().filter(char::is_ascii).take(room).collect();
    let name = name.trim_end_matches(['.', '-']);
    let name = if name.is_empty() { "pod" } else { name };
    format!("{name}-{}{END}", random(request))
}

fn random(request: &str) -> String {
    let digest = Sha256::digest(request.as_bytes());
    let letters = digest.iter().take(RANDOM);
    letters
        .map(|byte| ALPHABET.get(usize::from(*byte) % ALPHABET.len()).map_or('x', |letter| char::from(*letter)))
        .collect()
}

/// The `ConfigMap` with the container's GPU.
pub(super) fn capabilities(prefix: &str, target: Target) -> String {
    format!("{prefix}-{}", target.suffix())
}

/// The `ConfigMap` that becomes the container's environment as a whole.
pub(super) fn environment(prefix: &str, target: Target) -> String {
    format!("{prefix}-{}-evar", target.suffix())
}

/// The volume that keeps the pod from starting before the first of them is there.
pub(super) fn volume(prefix: &str, target: Target) -> String {
    format!("{}-vol", capabilities(prefix, target)).replace('.', "-")
}

/// Whether a name is one that was made from this prefix, for any container.
pub(super) fn is_made_from(prefix: &str, name: &str, end: &str) -> bool {
    let place =
        name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')).and_then(|rest| rest.strip_suffix(end));
    let digits = place.map(|place| place.strip_prefix('i').unwrap_or(place));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}
