//! Identities and name suffixes. With a seed they repeat from run to run, which is what makes a recorded run comparable.

use parking_lot::Mutex;

/// Letters and digits of generated names: none that make words or look alike, as in apimachinery.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A source of identities (`SplitMix64`).
#[derive(Debug)]
pub struct Random(Mutex<u64>);

impl Random {
    /// Seeded, or different every time.
    pub fn new(seed: Option<u64>) -> Self {
        let state = seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
        Self(Mutex::new(state))
    }

    fn next(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A version 4 UUID.
    pub fn uid(&self) -> String {
        let (high, low) = (u128::from(self.next()), u128::from(self.next()));
        uuid::Builder::from_random_bytes(((high << 64) | low).to_be_bytes()).into_uuid().to_string()
    }

    /// A name that begins with `base` (cut to leave room) and ends in five random characters.
    pub fn name(&self, base: &str) -> String {
        const LONGEST: usize = 63 - 5;
        let cut = (0..=base.len().min(LONGEST)).rev().find(|&at| base.is_char_boundary(at)).unwrap_or(0);
        let mut name = base.get(..cut).unwrap_or_default().to_owned();
        let mut bits = self.next();
        for _ in 0..5 {
            let index = usize::try_from(bits % 27).unwrap_or(0);
            name.push(char::from(ALPHABET.get(index).copied().unwrap_or(b'b')));
            bits /= 27;
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_names_again() {
        let names = |seed| {
            let random = Random::new(Some(seed));
            (random.uid(), random.name("job-"), random.name(&"x".repeat(100)))
        };
        assert_eq!(names(7), names(7));
        assert_ne!(names(7), names(8));
        let (uid, short, long) = names(7);
        assert_eq!(uuid::Uuid::parse_str(&uid).unwrap().get_version_num(), 4);
        assert!(short.starts_with("job-") && short.len() == 9);
        assert_eq!(long.len(), 63);
    }
}
