//! String formats that a schema may name (`date-time`, `uuid`, `ipv4`, …). An unknown format allows everything, as in the real server.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use regex::Regex;

/// The formats the real server knows, without their dashes.
const KNOWN: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Whether the real server knows a format.
pub(super) fn is_known(format: &str) -> bool {
    KNOWN.contains(&format.replace('-', "").as_str())
}

/// Whether a string has a format.
pub(super) fn matches(format: &str, text: &str) -> bool {
    // Dashes in format names do not count.
    match format.replace('-', "").as_str() {
        "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => duration(text).is_some() || LONG_DURATION.is_match(text),
        "byte" => !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "uuid" => UUID.is_match(text),
        "uuid3" => UUID.is_match(text) && uuid_version(text) == Some('3'),
        "uuid4" => UUID.is_match(text) && uuid_version(text) == Some('4'),
        "uuid5" => UUID.is_match(text) && uuid_version(text) == Some('5'),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => MAC.is_match(text),
        "email" => EMAIL.is_match(text),
        "uri" => text.starts_with('/') || URI.is_match(text),
        "hostname" => HOSTNAME.is_match(text) && text.len() <= 255,
        "hexcolor" => HEX_COLOR.is_match(text),
        "ssn" => SOCIAL_SECURITY.is_match(text),
        "k8sshortname" => text.len() <= 63 && SHORT_NAME.is_match(text),
        "k8slongname" => text.len() <= 253 && text.split('.').all(|label| SHORT_NAME.is_match(label)),
        _ => true,
    }
}

/// A duration as Go writes it (`1h30m`, `1.5s`), in nanoseconds.
pub(crate) fn duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.as_bytes().first()? {
        b'-' => (-1.0, text.get(1..)?),
        b'+' => (1.0, text.get(1..)?),
        _ => (1.0, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest.get(..end)?.parse().ok()?;
        rest = rest.get(end..)?;
        let (unit, nanoseconds) =
            [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 6e10), ("h", 3.6e12)]
                .into_iter()
                .find(|(unit, _)| rest.starts_with(unit))?;
        rest = rest.get(unit.len()..)?;
        total += number * nanoseconds;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates; Go refuses durations beyond 290 years")]
    let nanoseconds = (sign * total) as i64;
    Some(nanoseconds)
}

fn uuid_version(text: &str) -> Option<char> {
    text.chars().filter(|c| *c != '-').nth(12)
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match (address.parse::<Ipv4Addr>(), address.parse::<Ipv6Addr>()) {
        (Ok(_), _) => 32,
        (_, Ok(_)) => 128,
        _ => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

/// A pattern written in this file; a test compiles them all.
macro_rules! pattern {
    ($name:ident, $source:literal) => {
        static $name: LazyLock<Regex> =
            LazyLock::new(|| Regex::new($source).expect("a constant pattern, compiled by a test"));
    };
}

pattern!(UUID, r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$");
pattern!(
    MAC,
    r"(?i)^([0-9a-f]{2}[:-]){5}([0-9a-f]{2})$|^([0-9a-f]{2}[:-]){7}([0-9a-f]{2})$|^([0-9a-f]{4}\.){2}[0-9a-f]{4}$"
);
pattern!(EMAIL, r"^[^\s@<>]+@[^\s@<>]+$");
pattern!(URI, r"^[a-zA-Z][a-zA-Z0-9+.-]*:[^\s]+$");
pattern!(HOSTNAME, r"^([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$");
pattern!(HEX_COLOR, r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
pattern!(SOCIAL_SECURITY, r"^\d{3}[- ]?\d{2}[- ]?\d{4}$");
pattern!(SHORT_NAME, r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$");
pattern!(
    LONG_DURATION,
    r"(?i)^\s*\d+\s*(w|wk|weeks?|d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|ms|millis?|milliseconds?|us|micros?|microseconds?|ns|nanos?|nanoseconds?)\s*$"
);

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn each_format_takes_its_own_and_refuses_others() {
        for (format, good, bad) in [
            ("date-time", "2026-11-15T22:13:55Z", "yesterday"),
            ("date", "2026-11-15", "2026-13-15"),
            ("duration", "1h30m", "soon"),
            ("duration", "2 weeks", "weeks"),
            ("byte", "aGVsbG8=", "?"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
            ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "00:00:5e:00:53:01", "00"),
            ("email", "a@example.com", "a"),
            ("uri", "https://example.com/x", "no uri"),
            ("hostname", "node-1.example.com", "-x"),
            ("hexcolor", "#00ff00", "green"),
            ("ssn", "123-45-6789", "1"),
            ("k8s-short-name", "abc", "Abc"),
            ("k8s-long-name", "a.b", "a..b"),
        ] {
            assert!(matches(format, good), "{format} {good}");
            assert!(!matches(format, bad), "{format} {bad}");
        }
        assert!(matches("int32", "anything"));
    }
}
