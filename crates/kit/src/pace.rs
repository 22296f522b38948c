//! How much has happened lately: in a flood of work, what nobody waits for is put off.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// What "lately" is.
const LATELY: Duration = Duration::from_secs(2);

/// Counts what happens, and forgets it soon.
#[derive(Debug, Default)]
pub struct Pace {
    recent: VecDeque<(Instant, usize)>,
    sum: usize,
}

impl Pace {
    /// Something happened so many times; how often it did lately, these times included.
    pub fn count(&mut self, times: usize) -> usize {
        let now = Instant::now();
        while let Some((at, old)) = self.recent.front().copied()
            && now.duration_since(at) >= LATELY
        {
            self.recent.pop_front();
            self.sum -= old;
        }
        if times > 0 {
            self.recent.push_back((now, times));
        }
        self.sum += times;
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_happened_two_seconds_ago_no_longer_counts() {
        let mut pace = Pace::default();
        assert_eq!((pace.count(3), pace.count(2)), (3, 5));
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(pace.count(1), 6);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(pace.count(1), 2);
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(pace.count(0), 0);
    }
}
