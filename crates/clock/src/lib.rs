//! The one clock of the system: wall time that follows tokio's timer.
//!
//! Every timestamp written and every delay waited for comes from here. In a normal runtime it is real time. In a runtime whose
//! time is paused (`tokio::time::pause`, `start_paused = true`) it is virtual: it stands still while there is work to do and
//! jumps to the next timer when there is none, so an hour of cluster life takes seconds and the same seed gives the same
//! timestamps. No other crate calls `Timestamp::now` or `SystemTime::now`.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Wall time derived from tokio's timer. Cheap to copy; all copies agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Timestamp,
    start: Instant,
}

impl Clock {
    /// A clock that shows the machine's time now and follows tokio's timer from here.
    ///
    /// Must be called inside a tokio runtime if that runtime's time is paused.
    pub fn real() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one place where time comes from")]
        Self::starting_at(Timestamp::now())
    }

    /// A clock that shows `epoch` now. With paused tokio time this is a virtual clock.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, start: Instant::now() }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.start.elapsed()).unwrap_or(SignedDuration::MAX);
        self.epoch.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn virtual_time_jumps_to_the_next_timer() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        tokio::time::sleep(std::time::Duration::from_hours(1)).await;
        assert_eq!(clock.now().to_string(), "1970-01-01T01:00:00Z");
    }
}
