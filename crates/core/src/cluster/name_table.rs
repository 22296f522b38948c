//! Names to ids without keeping the names twice: a table of ids that looks names up where the objects keep them.
//!
//! Open addressing with linear probing. The table is at most three quarters full, so a search ends soon; a removed entry leaves a mark over
//! which searches go on, and growing sweeps the marks away.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

const EMPTY: u32 = u32::MAX;
const REMOVED: u32 = u32::MAX - 1;

/// A table of ids.
#[derive(Clone, Debug, Default)]
pub struct NameTable {
    slots: Vec<u32>,
    /// Slots that are not empty, removed ones too.
    filled: usize,
    /// Ids in the table.
    live: usize,
}

impl NameTable {
    /// The id of a name, where `name_of` tells the name of an id.
    pub fn find<'n>(&self, name: &str, name_of: impl Fn(u32) -> &'n str) -> Option<u32> {
        self.place(name, name_of).map(|place| self.slots[place])
    }

    /// Enters a name that is not in the table.
    pub fn insert<'n>(&mut self, name: &str, id: u32, name_of: impl Fn(u32) -> &'n str) {
        if (self.filled + 1) * 4 > self.slots.len() * 3 {
            self.grow(name_of);
        }
        self.live += 1;
        self.put(hash(name), id);
    }

    /// Takes a name out and returns its id.
    pub fn remove<'n>(&mut self, name: &str, name_of: impl Fn(u32) -> &'n str) -> Option<u32> {
        let place = self.place(name, name_of)?;
        self.live -= 1;
        Some(std::mem::replace(&mut self.slots[place], REMOVED))
    }

    fn place<'n>(&self, name: &str, name_of: impl Fn(u32) -> &'n str) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut place = hash(name) & mask;
        loop {
            match self.slots[place] {
                EMPTY => return None,
                REMOVED => {}
                id if name_of(id) == name => return Some(place),
                _ => {}
            }
            place = (place + 1) & mask;
        }
    }

    fn put(&mut self, hash: usize, id: u32) {
        let mask = self.slots.len() - 1;
        let mut place = hash & mask;
        while self.slots[place] != EMPTY {
            place = (place + 1) & mask;
        }
        self.slots[place] = id;
        self.filled += 1;
    }

    fn grow<'n>(&mut self, name_of: impl Fn(u32) -> &'n str) {
        let size = (self.live * 2).next_power_of_two().max(16);
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; size]);
        self.filled = 0;
        for id in old.into_iter().filter(|id| *id < REMOVED) {
            self.put(hash(name_of(id)), id);
        }
    }
}

fn hash(name: &str) -> usize {
    let mut hasher = FxHasher::default();
    name.hash(&mut hasher);
    // The low bits choose the slot; the high ones are the better mixed.
    usize::try_from(hasher.finish() >> 20).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::NameTable;

    proptest! {
        #[test]
        fn a_table_finds_what_a_map_finds(steps in proptest::collection::vec((any::<bool>(), 0..60_u32), 0..400)) {
            let names: Vec<String> = (0..60).map(|id| format!("pod-{id}")).collect();
            let name_of = |id: u32| names[id as usize].as_str();
            let (mut table, mut map) = (NameTable::default(), BTreeMap::new());
            for (insert, id) in steps {
                let name = name_of(id);
                prop_assert_eq!(table.find(name, name_of), map.get(name).copied());
                if !insert {
                    prop_assert_eq!(table.remove(name, name_of), map.remove(name));
                } else if map.insert(name, id).is_none() {
                    table.insert(name, id, name_of);
                }
            }
        }
    }
}
