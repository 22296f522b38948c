//! From when and until when a certificate is valid: the one thing of X.509 that is read here and not by the TLS
//! library.

use jiff::{Timestamp, civil, tz::TimeZone};

/// The life of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// The life of a certificate in DER; nothing if it is none.
pub(super) fn of(certificate: &[u8]) -> Option<Validity> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (fields, _) = element(certificate, SEQUENCE)?;
    let fields = element(fields, VERSION).map_or(fields, |(_, rest)| rest);
    let (_serial, fields) = element(fields, INTEGER)?;
    let (_algorithm, fields) = element(fields, SEQUENCE)?;
    let (_issuer, fields) = element(fields, SEQUENCE)?;
    let (validity, _) = element(fields, SEQUENCE)?;
    let (from, rest) = time(validity)?;
    let (until, _) = time(rest)?;
    Some(Validity { from, until })
}

/// The contents of the element at the beginning, if it has this tag, and what comes after it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, bytes) = bytes.split_first()?;
    let (first, bytes) = bytes.split_first()?;
    if *found != tag {
        return None;
    }
    let (length, bytes) = if *first < 0x80 {
        (usize::from(*first), bytes)
    } else {
        let (digits, bytes) = bytes.split_at_checked(usize::from(*first & 0x7f))?;
        // Four digits are more than any certificate is long.
        let length =
            (digits.len() <= 4).then(|| digits.iter().fold(0, |sum, digit| (sum << 8) | usize::from(*digit)))?;
        (length, bytes)
    };
    bytes.split_at_checked(length)
}

fn time(bytes: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (text, rest, years) = match *bytes.first()? {
        UTC_TIME => element(bytes, UTC_TIME).map(|(text, rest)| (text, rest, 2))?,
        _ => element(bytes, GENERALIZED_TIME).map(|(text, rest)| (text, rest, 4))?,
    };
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, text) = text.split_at_checked(years)?;
    let year: i16 = year.parse().ok()?;
    let year = match years {
        2 if year < 50 => 2000 + year,
        2 => 1900 + year,
        _ => year,
    };
    let part = |index: usize| text.get(index * 2..index * 2 + 2)?.parse::<i8>().ok();
    let date = civil::DateTime::new(year, part(0)?, part(1)?, part(2)?, part(3)?, part(4)?, 0).ok()?;
    Some((date.to_zoned(TimeZone::UTC).ok()?.timestamp(), rest))
}
