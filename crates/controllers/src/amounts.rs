//! Amounts of resources by name, added up exactly, and their text in a status.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kai_quantity::Format;
use serde_json::{Map, Value};

/// Billionths in one.
pub(crate) const NANO: i128 = 1_000_000_000;
/// Billionths in a thousandth.
pub(crate) const MILLI: i128 = NANO / 1000;
/// Billionths in a millionth.
pub(crate) const MICRO: i128 = 1000;

/// How much of which resource, in billionths; never zero of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, i128>);

impl Amounts {
    /// Adds billionths of a resource.
    pub fn add(&mut self, resource: &str, nano: i128) {
        if nano == 0 {
            return;
        }
        // Names are few and known: only the first of each costs memory.
        let Some(sum) = self.0.get_mut(resource) else {
            self.0.insert(resource.to_owned(), nano);
            return;
        };
        *sum = sum.saturating_add(nano);
        if *sum == 0 {
            self.0.remove(resource);
        }
    }

    /// Adds other amounts.
    pub fn add_all(&mut self, others: &Self) {
        for (resource, nano) in &others.0 {
            self.add(resource, *nano);
        }
    }

    /// Takes away other amounts.
    pub fn take_all(&mut self, others: &Self) {
        for (resource, nano) in &others.0 {
            self.add(resource, nano.saturating_neg());
        }
    }

    /// Billionths of a resource.
    #[must_use]
    pub fn of(&self, resource: &str) -> i128 {
        self.0.get(resource).copied().unwrap_or(0)
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Billionths of GPUs as queues count them: devices of any plugin, MIG profiles by their slices, devices of DRA
    /// classes.
    #[must_use]
    pub fn gpus(&self) -> i128 {
        let each = self.0.iter().map(|(resource, nano)| kai_convert::gpus_of(resource, *nano));
        each.fold(0, i128::saturating_add)
    }

    /// What to write into a status that has `old`: changed ones with their text, those that are gone as null; nothing
    /// if equal.
    #[must_use]
    pub fn patch(&self, old: &BTreeMap<String, Quantity>) -> Option<Value> {
        let mut patch = Map::new();
        for (resource, nano) in &self.0 {
            let known = old.get(resource).and_then(|text| text.0.parse::<kai_quantity::Quantity>().ok());
            if known.and_then(|known| known.nano()) != Some(*nano) {
                patch.insert(resource.clone(), Value::String(text(resource, *nano)));
            }
        }
        for resource in old.keys().filter(|resource| !self.0.contains_key(*resource)) {
            patch.insert(resource.clone(), Value::Null);
        }
        (!patch.is_empty()).then_some(Value::Object(patch))
    }

    /// As a status has them.
    #[must_use]
    pub fn quantities(&self) -> BTreeMap<String, Quantity> {
        self.0.iter().map(|(resource, nano)| (resource.clone(), Quantity(text(resource, *nano)))).collect()
    }
}

fn text(resource: &str, nano: i128) -> String {
    let bytes = matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    let format = if bytes { Format::BinarySi } else { Format::DecimalSi };
    kai_quantity::Quantity::from_nano(nano, format).to_string()
}

/// A number of units for people, with at most three digits after the point.
pub(crate) fn shown(nano: i128) -> String {
    let milli = nano / MILLI;
    let whole = milli / 1000;
    let rest = (milli % 1000).unsigned_abs();
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{}", format!("{rest:03}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use kai_api::names::resources;

    use super::*;

    fn amounts(list: &[(&str, i128)]) -> Amounts {
        let mut amounts = Amounts::default();
        for (resource, nano) in list {
            amounts.add(resource, *nano);
        }
        amounts
    }

    #[test]
    fn texts_are_as_kubernetes_writes_them() {
        let all = amounts(&[("cpu", 1500 * MILLI), ("memory", (3 << 30) * NANO), ("nvidia.com/gpu", 250_000 * MICRO)]);
        let texts: Vec<String> = all.quantities().into_values().map(|quantity| quantity.0).collect();
        assert_eq!(texts, ["1500m", "3Gi", "250m"]);
    }

    #[test]
    fn a_patch_has_only_what_changed_and_nothing_for_the_same_number_in_other_words() {
        let old = BTreeMap::from([
            ("cpu".to_owned(), Quantity("1000m".into())),
            ("memory".to_owned(), Quantity("1Gi".into())),
            ("nvidia.com/gpu".to_owned(), Quantity("1".into())),
        ]);
        let new = amounts(&[("cpu", NANO), ("memory", (2 << 30) * NANO)]);
        let patch = new.patch(&old).expect("a change");
        assert_eq!(patch, serde_json::json!({"memory": "2Gi", "nvidia.com/gpu": null}));
        assert_eq!(new.patch(&new.quantities()), None);
    }

    #[test]
    fn gpus_of_plugins_profiles_and_classes_are_counted_but_not_memory() {
        let all = amounts(&[
            ("nvidia.com/gpu", 500_000 * MICRO),
            ("amd.com/gpu", NANO),
            ("nvidia.com/mig-3g.20gb", 2 * NANO),
            ("gpu.nvidia.com", 4 * NANO),
            (resources::GPU_MEMORY, 30_720 * NANO),
            ("cpu", NANO),
        ]);
        assert_eq!(all.gpus(), 11_500_000 * MICRO);
    }

    #[test]
    fn what_is_taken_away_again_is_gone() {
        let mut all = amounts(&[("cpu", NANO)]);
        all.take_all(&amounts(&[("cpu", NANO)]));
        assert!(all.is_empty());
        assert_eq!((shown(1_500_000_000), shown(8 * NANO)), ("1.5".to_owned(), "8".to_owned()));
    }
}
