//! Which of two versions of an API is the better one: `v2 > v1 > v1beta2 > v1alpha1 > anything else by name`.

use std::cmp::{Ordering, Reverse};

/// Orders version names; the greatest is the preferred one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionPriority<'a> {
    name: &'a str,
    /// Stability (2 stable, 1 beta, 0 alpha), major and minor number; none when the name is not of that form.
    numbers: Option<(u8, u64, u64)>,
}

impl<'a> VersionPriority<'a> {
    /// The priority of a version name.
    pub fn of(name: &'a str) -> Self {
        Self { name, numbers: numbers(name) }
    }

    /// The version's name.
    pub fn name(self) -> &'a str {
        self.name
    }
}

impl Ord for VersionPriority<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| Reverse(self.name).cmp(&Reverse(other.name)))
    }
}

impl PartialOrd for VersionPriority<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn numbers(name: &str) -> Option<(u8, u64, u64)> {
    let rest = name.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(end);
    let major = number(major)?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    if let Some(minor) = rest.strip_prefix("beta") {
        return Some((1, major, number(minor)?));
    }
    Some((0, major, number(rest.strip_prefix("alpha")?)?))
}

/// A number without leading zeros.
fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_before_beta_and_alpha() {
        let mut versions = [
            "foo10",
            "v1alpha1",
            "v10",
            "v3beta1",
            "v11alpha2",
            "v2",
            "v11beta2",
            "v1",
            "foo1",
            "v12alpha1",
            "v10beta3",
        ];
        versions.sort_by_key(|name| Reverse(VersionPriority::of(name)));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v11beta2",
                "v10beta3",
                "v3beta1",
                "v12alpha1",
                "v11alpha2",
                "v1alpha1",
                "foo1",
                "foo10"
            ]
        );
    }
}
