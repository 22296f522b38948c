//! What the groups of each queue add up to, kept up to date by differences: exact integers leave no remainder.

use std::collections::BTreeMap;

use kai_kit::Key;

use crate::sums::Sums;

/// Groups with their sums, and queues with the sums of their own groups.
#[derive(Debug, Default)]
pub struct Ledger {
    groups: BTreeMap<Key, (String, Sums)>,
    queues: BTreeMap<String, Sums>,
}

impl Ledger {
    /// Enters what a group of a queue has. Whether anything changed.
    pub fn set(&mut self, group: &Key, queue: &str, sums: &Sums) -> bool {
        if self.groups.get(group).is_some_and(|(known, old)| known == queue && old == sums) {
            return false;
        }
        self.remove(group);
        self.queues.entry(queue.to_owned()).or_default().add_all(sums);
        self.groups.insert(group.clone(), (queue.to_owned(), sums.clone()));
        true
    }

    /// Takes a group out. Whether it was there.
    pub fn remove(&mut self, group: &Key) -> bool {
        let Some((queue, sums)) = self.groups.remove(group) else { return false };
        if let Some(sum) = self.queues.get_mut(&queue) {
            sum.take_all(&sums);
            if sum.is_empty() {
                self.queues.remove(&queue);
            }
        }
        true
    }

    /// The sums of each queue's own groups.
    #[must_use]
    pub fn queues(&self) -> &BTreeMap<String, Sums> {
        &self.queues
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(nano: i128) -> Sums {
        let mut sums = Sums::default();
        sums.requested.add("cpu", nano);
        sums
    }

    #[test]
    fn a_group_that_changes_or_moves_leaves_nothing_behind() {
        let mut ledger = Ledger::default();
        let group = Key::new("team", "g");
        assert!(ledger.set(&group, "a", &cpu(5)));
        assert!(!ledger.set(&group, "a", &cpu(5)));
        assert!(ledger.set(&Key::new("team", "h"), "a", &cpu(1)));
        assert!(ledger.set(&group, "b", &cpu(7)));
        assert_eq!(ledger.queues().get("a"), Some(&cpu(1)));
        assert!(ledger.remove(&group));
        assert!(!ledger.remove(&group));
        assert_eq!(ledger.queues().len(), 1);
    }
}
