//! A number that stands for a value: equal values have equal numbers. Used to see that nothing changed without keeping the value.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher as _},
};

/// The number of a value.
pub(crate) fn of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The number of a text without its digits: texts that differ in counts only are alike.
pub(crate) fn without_numbers(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for byte in text.bytes().filter(|byte| !byte.is_ascii_digit()) {
        hasher.write_u8(byte);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_in_numbers_only_are_alike() {
        assert_eq!(without_numbers("3 of 4 nodes"), without_numbers("12 of 40 nodes"));
        assert_ne!(without_numbers("3 nodes"), without_numbers("3 pods"));
        assert_ne!(of(&"a1"), of(&"a2"));
    }
}
