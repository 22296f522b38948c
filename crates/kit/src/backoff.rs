//! Growing pauses between attempts. Without chance: equal histories wait equally long.

use std::time::Duration;

/// Pauses that double from a first to a longest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Backoff {
    /// From `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The pause after this many failures in a row, from 1.
    #[must_use]
    pub fn after(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        let pauses: Vec<u64> = [1, 2, 3, 6, 7, u32::MAX].map(|failures| backoff.after(failures).as_secs()).into();
        assert_eq!(pauses, [1, 2, 4, 32, 60, 60]);
    }
}
