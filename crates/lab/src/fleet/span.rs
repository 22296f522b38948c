//! A duration, or a range of durations to draw from.

use std::time::Duration;

use rand::RngExt;

use crate::seed::Seed;

/// A delay: fixed when both ends are equal, else drawn evenly between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Shortest.
    pub from: Duration,
    /// Longest.
    pub to: Duration,
}

impl Span {
    /// Always `duration`.
    pub const fn fixed(duration: Duration) -> Self {
        Self { from: duration, to: duration }
    }

    /// The delay for one subject, to the millisecond.
    pub fn draw(self, seed: Seed, subject: &[&str]) -> Duration {
        if self.from == self.to {
            return self.from;
        }
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let (low, high) = (millis(self.from), millis(self.to));
        Duration::from_millis(if low < high { seed.rng(subject).random_range(low..=high) } else { low })
    }

    /// Reads `2s`, `500ms`, `1.5` (seconds) or a range `1s..3s`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((from, to)) = text.split_once("..") else {
            return Ok(Self::fixed(parse_duration(text)?));
        };
        let (from, to) = (parse_duration(from)?, parse_duration(to)?);
        if from > to {
            return Err(format!("`{text}` ends before it begins"));
        }
        Ok(Self { from, to })
    }
}

/// Reads a duration: a number with `ms`, `s`, `m` or `h`; without a unit it is seconds. At most 1000 days.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const LONGEST_SECONDS: f64 = 86_400_000.0;
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{text}` is not a duration such as `500ms`, `2s`, `5m` or `1h`")),
    };
    let number: f64 =
        number.parse().map_err(|_| format!("`{text}` is not a duration such as `500ms`, `2s`, `5m` or `1h`"))?;
    let seconds = number * factor;
    if !seconds.is_finite() || seconds > LONGEST_SECONDS {
        return Err(format!("`{text}` is longer than 1000 days"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_ranges_are_read() {
        assert_eq!(parse_duration("1.5").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_duration("5m").unwrap(), Duration::from_mins(5));
        let span = Span::parse("1s..3s").unwrap();
        for subject in ["a", "b", "c"] {
            let drawn = span.draw(Seed(1), &[subject]);
            assert!(drawn >= span.from && drawn <= span.to);
        }
        for bad in ["", "x", "1d", "-1s", "3s..1s", "1s..", "1e9", "99999999999h"] {
            assert!(Span::parse(bad).is_err(), "{bad}");
        }
    }
}
