//! Durations as Go writes them (`1h30m`, `-1s`), in nanoseconds.
//!
//! What passes the schema's pattern also parses: a duration beyond the range of 64 bits (292 years) saturates, so that no stored
//! object can stop the reading of all the others.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What Go's `time.ParseDuration` takes.
const PATTERN: &str = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// Fraction digits that can matter: an hour has 3.6 * 10^12 nanoseconds.
const FRACTION_DIGITS: usize = 18;

/// A span of time, negative ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    nanoseconds: i64,
}

/// A text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("duration `{text}` is not a number with a unit such as `30s`, `5m` or `1h30m`")]
pub struct ParseDurationError {
    /// What was read.
    pub text: String,
}

impl Duration {
    /// So many nanoseconds.
    pub const fn from_nanoseconds(nanoseconds: i64) -> Self {
        Self { nanoseconds }
    }

    /// So many seconds, saturating.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { nanoseconds: seconds.saturating_mul(1_000_000_000) }
    }

    /// In nanoseconds.
    pub const fn nanoseconds(self) -> i64 {
        self.nanoseconds
    }

    /// Whether it is below zero.
    pub const fn is_negative(self) -> bool {
        self.nanoseconds < 0
    }

    /// As a span that cannot be negative; none if it is.
    pub fn to_std(self) -> Option<std::time::Duration> {
        u64::try_from(self.nanoseconds).ok().map(std::time::Duration::from_nanos)
    }
}

impl FromStr for Duration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let magnitude = if unsigned == "0" { Some(0) } else { read_parts(unsigned) };
        let magnitude = magnitude.ok_or_else(|| ParseDurationError { text: text.chars().take(64).collect() })?;
        let signed = if text.starts_with('-') { -magnitude } else { magnitude };
        let end = if signed < 0 { i64::MIN } else { i64::MAX };
        Ok(Self { nanoseconds: i64::try_from(signed).unwrap_or(end) })
    }
}

/// Sum of `number unit` parts in nanoseconds, saturating; none if there is no part or a bad one.
fn read_parts(mut rest: &str) -> Option<i128> {
    let mut total = 0_i128;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (whole, after) = split(rest, |c| c.is_ascii_digit());
        let (fraction, after) =
            after.strip_prefix('.').map_or(("", after), |after| split(after, |c| c.is_ascii_digit()));
        let (unit, after) = split(after, |c| c != '.' && !c.is_ascii_digit());
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit = nanoseconds_of(unit)?;
        let number = |digits: &str| {
            digits.bytes().fold(0_i128, |sum, digit| sum.saturating_mul(10).saturating_add(i128::from(digit - b'0')))
        };
        let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS)];
        let scale = (0..fraction.len()).fold(1_i128, |scale, _| scale * 10);
        total =
            total.saturating_add(number(whole).saturating_mul(unit)).saturating_add(number(fraction) * unit / scale);
        rest = after;
    }
    Some(total)
}

fn split(text: &str, inside: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !inside(c)).unwrap_or(text.len()))
}

fn nanoseconds_of(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        // The micro sign and the Greek letter look the same.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

impl fmt::Display for Duration {
    /// As Go prints it: `1h30m0s`, `1.5s`, `20ms`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.nanoseconds.unsigned_abs();
        if self.is_negative() {
            formatter.write_str("-")?;
        }
        let with_fraction = |number: u64, unit: u64| {
            let digits = unit.ilog10() as usize;
            let fraction = format!("{:0digits$}", number % unit);
            let fraction = fraction.trim_end_matches('0');
            if unit == 1 || fraction.is_empty() {
                format!("{}", number / unit)
            } else {
                format!("{}.{fraction}", number / unit)
            }
        };
        match nanoseconds {
            0 => formatter.write_str("0s"),
            1..1_000 => write!(formatter, "{nanoseconds}ns"),
            1_000..1_000_000 => write!(formatter, "{}µs", with_fraction(nanoseconds, 1_000)),
            1_000_000..1_000_000_000 => write!(formatter, "{}ms", with_fraction(nanoseconds, 1_000_000)),
            _ => {
                let minutes = nanoseconds / 60_000_000_000;
                let (hours, minutes) = (minutes / 60, minutes % 60);
                if hours > 0 {
                    write!(formatter, "{hours}h")?;
                }
                if hours > 0 || minutes > 0 {
                    write!(formatter, "{minutes}m")?;
                }
                write!(formatter, "{}s", with_fraction(nanoseconds % 60_000_000_000, 1_000_000_000))
            }
        }
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nanoseconds(text: &str) -> Option<i64> {
        text.parse().ok().map(Duration::nanoseconds)
    }

    #[test]
    fn reads_what_go_reads() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("5m", 300_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("-1s", -1_000_000_000),
            ("+1us2µs3μs", 6_000),
            ("0.9999999999999999999999s", 999_999_999),
        ] {
            assert_eq!(nanoseconds(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in ["", "-", "5", "m", ".s", "1d", "1 s", "1s ", "1h-1m", "--1s", "1.2.3s", "1e3s", "١s"] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }

    #[test]
    fn prints_what_go_prints() {
        for (text, printed) in [
            ("5m", "5m0s"),
            ("90m", "1h30m0s"),
            ("1500ms", "1.5s"),
            ("0.02s", "20ms"),
            ("-1500us", "-1.5ms"),
            ("1500ns", "1.5µs"),
            ("61.05s", "1m1.05s"),
            ("0h", "0s"),
        ] {
            assert_eq!(text.parse::<Duration>().map(|duration| duration.to_string()), Ok(printed.to_owned()));
        }
    }

    #[test]
    fn too_long_durations_saturate() {
        assert_eq!(nanoseconds(&format!("{}h", "9".repeat(5_000))), Some(i64::MAX));
        assert_eq!(nanoseconds("-9999999999h"), Some(i64::MIN));
        assert_eq!(nanoseconds(&Duration::from_nanoseconds(i64::MIN).to_string()), Some(i64::MIN));
    }

    proptest! {
        #[test]
        fn printing_and_reading_gives_the_same_duration(nanoseconds in any::<i64>()) {
            let duration = Duration::from_nanoseconds(nanoseconds);
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in "[-+]?[0-9.]{0,20}(ns|us|µs|ms|s|m|h|x)?[0-9.]{0,20}(s|m|h)?") {
            let _ = text.parse::<Duration>();
        }
    }
}
