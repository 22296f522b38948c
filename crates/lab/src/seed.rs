//! Chance that depends only on a seed and on what it is for, never on the order of questions.
//!
//! Every draw names its subject (`["start", "default/train-0"]`), so adding a node or reordering calls does not change anyone
//! else's delays, and two processes with one seed agree.

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// A source of named random values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// A generator for one subject.
    pub fn rng(self, subject: &[&str]) -> StdRng {
        StdRng::seed_from_u64(self.hash(subject))
    }

    /// An evenly spread 64-bit number for one subject (FNV-1a over the parts, then a finaliser).
    pub fn hash(self, subject: &[&str]) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for part in subject {
            for byte in part.bytes().chain([0xff]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^ (hash >> 33)
    }

    /// A UUID (version 4 form) for one subject.
    pub fn uuid(self, subject: &[&str]) -> String {
        let mut bytes: [u8; 16] = self.rng(subject).random();
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex = hex(&bytes);
        format!("{}-{}-{}-{}-{}", &hex[0..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32])
    }

    /// 64 hexadecimal digits for one subject, as container runtimes name containers.
    pub fn container_id(self, subject: &[&str]) -> String {
        let bytes: [u8; 32] = self.rng(subject).random();
        hex(&bytes)
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_subject_same_value_and_other_subject_other_value() {
        let seed = Seed(7);
        assert_eq!(seed.uuid(&["gpu", "node-0", "1"]), seed.uuid(&["gpu", "node-0", "1"]));
        assert_ne!(seed.uuid(&["gpu", "node-0", "1"]), seed.uuid(&["gpu", "node-01", ""]));
        assert_ne!(seed.hash(&["a"]), Seed(8).hash(&["a"]));
        assert_eq!(seed.container_id(&["x"]).len(), 64);
    }
}
