//! Processor time of a turn: whoever shares two cores with an API server is as fast as both together are cheap.

use std::time::Duration;

use rustix::param::clock_ticks_per_second;

use crate::bench::core::measure::processor_time;

/// Processor time so far, or of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Of this process: nodes, clients and whoever binds.
    pub own: Duration,
    /// Of the API server, where that is a process that was started for the turn.
    pub server: Option<Duration>,
}

impl Spent {
    /// So far, with a server of this process id.
    pub fn so_far(server: Option<u32>) -> Self {
        Self { own: processor_time(), server: server.and_then(processor_time_of) }
    }

    /// What was spent since an earlier moment.
    pub fn since(self, earlier: Self) -> Self {
        let server = self.server.zip(earlier.server).map(|(now, then)| now.saturating_sub(then));
        Self { own: self.own.saturating_sub(earlier.own), server }
    }
}

/// Processor time of another process, in the kernel's ticks of mostly a hundredth of a second.
fn processor_time_of(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program may contain anything but ends with the last parenthesis; user and system time are fields 14 and 15.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().ok()).sum::<Option<_>>()?;
    Some(Duration::from_millis(ticks * 1000 / clock_ticks_per_second().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_another_process_what_this_one_knows_of_itself() {
        let begin = processor_time();
        while processor_time().saturating_sub(begin) < Duration::from_millis(60) {}
        // Other tests of this process go on meanwhile: what the kernel tells lies between two looks, but for two ticks.
        let before = processor_time();
        let told = processor_time_of(std::process::id()).expect("there is /proc");
        let (after, ticks) = (processor_time(), Duration::from_millis(2 * 1000 / clock_ticks_per_second().max(1)));
        assert!(before <= told + ticks && told <= after + ticks, "{before:?} {told:?} {after:?}");
        assert_eq!(processor_time_of(u32::MAX), None);
    }
}
