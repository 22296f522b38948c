//! Amounts of the resources of a node, as integers, and the three that queues share.

use smallvec::SmallVec;

use crate::{cluster::words::Words, ids::Word};

/// Millionths of one GPU: the unit in which queues count GPUs.
pub const GPU: i64 = 1_000_000;

/// The largest amount of one resource a single object may name; above it the object is refused. Far beyond any machine, and small enough
/// that sums over millions of objects stay inside the integers used for them.
pub const LARGEST: i64 = 1_000_000_000_000_000;

/// The resources that every node has: places in [`Amounts::fixed`].
pub mod fixed {
    /// Millicores.
    pub const CPU: usize = 0;
    /// Bytes.
    pub const MEMORY: usize = 1;
    /// Whole GPUs served by a device plugin.
    pub const GPU: usize = 2;
    /// Slots for pods.
    pub const PODS: usize = 3;
    /// Bytes of ephemeral storage.
    pub const STORAGE: usize = 4;
    /// How many there are.
    pub const COUNT: usize = 5;
}

/// A resource of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Resource {
    /// One of [`fixed`].
    Fixed(u8),
    /// Any other, by its interned name: MIG profiles too.
    Extended(Word),
}

impl Resource {
    /// Whole GPUs served by a device plugin.
    pub const GPU: Self = Self::Fixed(2);
    /// Slots for pods.
    pub const PODS: Self = Self::Fixed(3);
}

/// How much of each resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts {
    /// The resources of every node, in the places named by [`fixed`].
    pub fixed: [i64; fixed::COUNT],
    /// All others, sorted by name's id, without zeros.
    pub extended: SmallVec<[(Word, i64); 1]>,
}

impl Amounts {
    /// The amount of one resource.
    #[must_use]
    pub fn of(&self, resource: Resource) -> i64 {
        match resource {
            Resource::Fixed(place) => self.fixed.get(place as usize).copied().unwrap_or(0),
            Resource::Extended(word) => self.extended(word),
        }
    }

    /// The amount of an extended resource.
    #[must_use]
    pub fn extended(&self, word: Word) -> i64 {
        self.extended.iter().find(|(name, _)| *name == word).map_or(0, |(_, amount)| *amount)
    }

    /// Adds `other`, `times` over (−1 subtracts).
    pub fn add(&mut self, other: &Self, times: i64) {
        for (mine, theirs) in self.fixed.iter_mut().zip(other.fixed) {
            *mine += theirs * times;
        }
        for (word, amount) in &other.extended {
            self.add_extended(*word, amount * times);
        }
    }

    /// Takes the larger of each.
    pub fn widen(&mut self, other: &Self) {
        for (mine, theirs) in self.fixed.iter_mut().zip(other.fixed) {
            *mine = (*mine).max(theirs);
        }
        for (word, amount) in &other.extended {
            self.add_extended(*word, (amount - self.extended(*word)).max(0));
        }
    }

    /// Adds to one extended resource.
    pub fn add_extended(&mut self, word: Word, amount: i64) {
        match self.extended.binary_search_by_key(&word, |(name, _)| *name) {
            Ok(place) => {
                self.extended[place].1 += amount;
                if self.extended[place].1 == 0 {
                    self.extended.remove(place);
                }
            }
            Err(place) if amount != 0 => self.extended.insert(place, (word, amount)),
            Err(_) => {}
        }
    }

    /// Whether `request` fits into this: no resource it asks for is short.
    #[inline]
    #[must_use]
    pub fn fit(&self, request: &Self) -> bool {
        self.fixed.iter().zip(request.fixed).all(|(free, wanted)| wanted <= 0 || wanted <= *free)
            && request.extended.iter().all(|(word, wanted)| *wanted <= self.extended(*word))
    }

    /// The first resource of which `request` asks more than there is, with the amount that is missing. Of extended resources the first by
    /// name: the order of words is that of arrival.
    #[must_use]
    pub fn shortage(&self, request: &Self, words: &Words) -> Option<(Resource, i64)> {
        let fixed = self.fixed.iter().zip(request.fixed).position(|(free, wanted)| wanted > 0 && wanted > *free);
        if let Some(place) = fixed {
            let missing = request.fixed[place] - self.fixed[place];
            return Some((Resource::Fixed(u8::try_from(place).unwrap_or(0)), missing));
        }
        let short = request.extended.iter().filter(|(word, wanted)| *wanted > self.extended(*word));
        let short = short.min_by_key(|(word, _)| words.text(*word));
        short.map(|(word, wanted)| (Resource::Extended(*word), wanted - self.extended(*word)))
    }
}

/// What queues share: cpu, memory, GPUs. Sums over any number of pods fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Shares(pub [i128; 3]);

/// The places in [`Shares`].
pub mod share {
    /// Millicores.
    pub const CPU: usize = 0;
    /// Bytes.
    pub const MEMORY: usize = 1;
    /// Millionths of a GPU.
    pub const GPU: usize = 2;
}

impl Shares {
    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Subtracts `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine -= theirs;
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 3]
    }
}

/// What `amount` MiB are of a device of `of` MiB, in millionths: rounded up, so that nobody is charged less than they hold.
#[must_use]
pub fn share_of(amount: i128, of: u64) -> i128 {
    let of = i128::from(of.max(1));
    (amount * i128::from(GPU) + of - 1) / of
}
