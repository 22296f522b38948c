//! A number that stands for a value: equal values have equal numbers. Used to see that nothing changed without keeping the value.

use std::{
    collections::hash_map::DefaultHasher,
    fmt::{self, Debug, Write as _},
    hash::Hasher as _,
};

struct Feed(DefaultHasher);

impl fmt::Write for Feed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// The number of a value, by all that its debug text shows.
pub(crate) fn of(value: &impl Debug) -> u64 {
    let mut feed = Feed(DefaultHasher::new());
    // Feeding a hash cannot fail.
    let _ = write!(feed, "{value:?}");
    feed.0.finish()
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
