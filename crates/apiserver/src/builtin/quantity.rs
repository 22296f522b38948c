//! Kubernetes quantities: parsing, comparing and the canonical form a server answers with.
//!
//! An amount is kept in thousand-millionths (nano), the smallest unit Kubernetes knows, as `i128`: wide enough for every value
//! a resource can have. Amounts beyond that are capped, as the real server caps binary ones.

use std::fmt::Write as _;

use serde_json::Value;

const NANO: i128 = 1_000_000_000;
/// The largest amount the binary format may have (2^63 - 1).
const BINARY_CAP: i128 = (i64::MAX as i128) * NANO;

/// What the real server says about text that is no quantity.
pub(crate) const FORMAT_WRONG: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NUMERIC_WRONG: &str = "unable to parse numeric part of quantity";
const SUFFIX_WRONG: &str = "unable to parse quantity's suffix";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

/// An amount of a resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    nano: i128,
    format: Format,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.nano.partial_cmp(&other.nano)
    }
}

/// Text split into its parts, and whether it is in canonical form already.
struct Parsed {
    quantity: Quantity,
    canonical: bool,
}

impl Quantity {
    /// Nothing.
    pub(crate) const ZERO: Self = Self { nano: 0, format: Format::Decimal };

    /// Reads a quantity from a string or number.
    pub(crate) fn from_value(value: &Value) -> Result<Self, &'static str> {
        match value {
            Value::String(text) => parse(text).map(|parsed| parsed.quantity),
            Value::Number(number) => parse(&number_text(number)).map(|parsed| parsed.quantity),
            _ => Err(FORMAT_WRONG),
        }
    }

    /// Below zero.
    pub(crate) fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Above zero.
    pub(crate) fn is_positive(self) -> bool {
        self.nano > 0
    }

    /// Whether there is no fraction when rounded up to thousandths, as the real server asks.
    pub(crate) fn is_integer(self) -> bool {
        self.rounded_up(NANO / 1000).nano % NANO == 0
    }

    /// Whether this is a whole multiple of another positive amount.
    pub(crate) fn is_multiple_of(self, other: Self) -> bool {
        other.nano > 0 && self.nano % other.nano == 0
    }

    /// The sum; the format of the first wins, as in Go.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { nano: self.nano.saturating_add(other.nano), format: self.format }
    }

    fn rounded_up(self, unit: i128) -> Self {
        let rest = self.nano % unit;
        if rest == 0 {
            return self;
        }
        let away = if self.nano > 0 { unit - rest } else { -unit - rest };
        Self { nano: self.nano.saturating_add(away), ..self }
    }

    /// The canonical text: no fraction, the largest suffix that keeps the number whole.
    pub(crate) fn canonical(self) -> String {
        if self.nano == 0 {
            return "0".to_owned();
        }
        let small = self.nano.abs() < 1024 * NANO;
        if self.format == Format::Binary && !small && self.nano % NANO == 0 {
            return binary_text(self.nano / NANO);
        }
        decimal_text(self.nano, self.format)
    }
}

/// The canonical text of a quantity value if it differs from what is there; `None` when nothing is to be done.
///
/// `resource_list` says that the value is part of a resource list, whose amounts are rounded up to thousandths.
pub(crate) fn canonical_value(value: &Value, list: ResourceList) -> Result<Option<String>, &'static str> {
    let text = match value {
        Value::String(text) => std::borrow::Cow::Borrowed(text.trim()),
        Value::Number(number) => number_text(number).into(),
        Value::Null => return Ok(Some("0".to_owned())),
        _ => return Err(FORMAT_WRONG),
    };
    let parsed = parse(&text)?;
    let rounded = match list {
        ResourceList::Yes => parsed.quantity.rounded_up(NANO / 1000),
        ResourceList::No => parsed.quantity,
    };
    let is_kept = parsed.canonical && rounded == parsed.quantity;
    if is_kept && value.as_str().is_some_and(|given| given.len() == text.len()) {
        return Ok(None);
    }
    let canonical = if is_kept { text.into_owned() } else { rounded.canonical() };
    Ok(if value.as_str() == Some(canonical.as_str()) { None } else { Some(canonical) })
}

/// Whether a quantity stands in a resource list.
#[derive(Clone, Copy)]
pub(crate) enum ResourceList {
    /// Yes: it is rounded up to thousandths.
    Yes,
    /// No: it is kept.
    No,
}

fn number_text(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 => format!("{float:.0}"),
        _ => number.to_string(),
    }
}

fn parse(text: &str) -> Result<Parsed, &'static str> {
    if text.is_empty() {
        return Err(FORMAT_WRONG);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let negative = text.starts_with('-');
    let trimmed = unsigned.trim_start_matches('0');
    if trimmed.is_empty() {
        return Ok(Parsed { quantity: Quantity::ZERO, canonical: text == "0" });
    }
    let whole_end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (whole, rest) = trimmed.split_at(whole_end);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
        None => ("", rest),
    };
    check_suffix_shape(suffix)?;
    let (base, exponent, format) = interpret_suffix(suffix).ok_or(SUFFIX_WRONG)?;
    // `+` alone, or a suffix without number
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        || (unsigned.starts_with('.') && fraction.is_empty())
    {
        return Err(NUMERIC_WRONG);
    }
    let magnitude = magnitude(whole, fraction, base, exponent);
    let magnitude = if format == Format::Binary { magnitude.min(BINARY_CAP) } else { magnitude };
    let format = if format == Format::Binary && magnitude < NANO && magnitude > 0 { Format::Decimal } else { format };
    let quantity = Quantity { nano: if negative { -magnitude } else { magnitude }, format };
    let canonical = is_canonical(whole, fraction, base, exponent);
    Ok(Parsed { quantity, canonical })
}

/// The suffix may only be letters of units, then a sign, then digits.
fn check_suffix_shape(suffix: &str) -> Result<(), &'static str> {
    let rest = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    if rest.chars().all(|c| c.is_ascii_digit()) { Ok(()) } else { Err(FORMAT_WRONG) }
}

fn interpret_suffix(suffix: &str) -> Option<(u8, i32, Format)> {
    let decimal = |exponent| Some((10, exponent, Format::Decimal));
    let binary = |exponent| Some((2, exponent, Format::Binary));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => suffix
            .strip_prefix(['e', 'E'])
            .and_then(|digits| digits.parse::<i32>().ok())
            .map(|exponent| (10, exponent, Format::Exponent)),
    }
}

/// The amount in nano, rounded up, capped at the largest `i128`.
fn magnitude(whole: &str, fraction: &str, base: u8, exponent: i32) -> i128 {
    let digits = whole.bytes().chain(fraction.bytes());
    let mut value: i128 = 0;
    for digit in digits {
        match value.checked_mul(10).and_then(|value| value.checked_add(i128::from(digit - b'0'))) {
            Some(next) => value = next,
            None => return i128::MAX,
        }
    }
    let fraction_digits = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let (value, scale) = match base {
        2 => match value.checked_mul(1_i128 << exponent.clamp(0, 60)) {
            Some(value) => (value, 9_i32.saturating_sub(fraction_digits)),
            None => return i128::MAX,
        },
        _ => (value, exponent.saturating_add(9).saturating_sub(fraction_digits)),
    };
    if value == 0 {
        return 0;
    }
    if scale >= 0 {
        let factor = 10_i128.checked_pow(scale.unsigned_abs());
        return factor.and_then(|factor| value.checked_mul(factor)).unwrap_or(i128::MAX);
    }
    match 10_i128.checked_pow(scale.unsigned_abs()) {
        Some(divisor) => value / divisor + i128::from(value % divisor != 0),
        None => 1,
    }
}

/// Whether the real server keeps the text as it came.
fn is_canonical(whole: &str, fraction: &str, base: u8, exponent: i32) -> bool {
    let digits = whole.len() + fraction.len();
    if base == 2 {
        let last_three = whole.bytes().rev().take(3).enumerate();
        // only the lowest three bits matter, and 1000 is a multiple of 8
        let low = last_three.fold(0_u32, |sum, (place, digit)| {
            sum + u32::from(digit - b'0') * 10_u32.pow(u32::try_from(place).unwrap_or(0))
        });
        // the real server keeps text only while the amount fits fifteen decimal digits
        let exponent_digits = usize::try_from(exponent).unwrap_or(0) * 3 / 10;
        return fraction.is_empty() && digits + exponent_digits < 15 && low & 7 != 0;
    }
    let scale = exponent.saturating_sub(i32::try_from(fraction.len()).unwrap_or(i32::MAX));
    let ends_in_thousands = whole.ends_with("000") && fraction.is_empty() || fraction.ends_with("000");
    digits <= 18 && scale >= -9 && scale % 3 == 0 && !ends_in_thousands && !whole.is_empty()
}

fn decimal_text(nano: i128, format: Format) -> String {
    const SUFFIXES: [(&str, &str); 10] = [
        ("n", "e-9"),
        ("u", "e-6"),
        ("m", "e-3"),
        ("", ""),
        ("k", "e3"),
        ("M", "e6"),
        ("G", "e9"),
        ("T", "e12"),
        ("P", "e15"),
        ("E", "e18"),
    ];
    let mut value = nano;
    let mut step = 0;
    while value % 1000 == 0 && step + 1 < SUFFIXES.len() {
        value /= 1000;
        step += 1;
    }
    let (letter, exponent) = SUFFIXES.get(step).copied().unwrap_or(("", ""));
    let mut text = value.to_string();
    let _ = write!(text, "{}", if format == Format::Exponent { exponent } else { letter });
    text
}

fn binary_text(whole: i128) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut value = whole;
    let mut step = 0;
    while value % 1024 == 0 && step + 1 < SUFFIXES.len() {
        value /= 1024;
        step += 1;
    }
    format!("{value}{}", SUFFIXES.get(step).copied().unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn canonical(value: &Value) -> String {
        match canonical_value(value, ResourceList::Yes) {
            Ok(Some(text)) => text,
            Ok(None) => value.as_str().unwrap_or_default().to_owned(),
            Err(why) => why.to_owned(),
        }
    }

    #[test]
    fn quantities_are_answered_in_canonical_form() {
        for (given, expected) in [
            (json!("1000m"), "1"),
            (json!("1500m"), "1500m"),
            (json!("0.5"), "500m"),
            (json!(0.5), "500m"),
            (json!(2), "2"),
            (json!("1000"), "1k"),
            (json!("1024Mi"), "1Gi"),
            (json!("1000Mi"), "1000Mi"),
            (json!("1.5Gi"), "1536Mi"),
            (json!("0.5Gi"), "512Mi"),
            (json!("128974848"), "128974848"),
            (json!("129e6"), "129e6"),
            (json!("129M"), "129M"),
            (json!("512Ki"), "512Ki"),
            (json!("1023"), "1023"),
            (json!("0"), "0"),
            (json!("00"), "0"),
            (json!("100u"), "1m"),
            (json!("-1"), "-1"),
            (json!("0.0001"), "1m"),
            (json!("100Ei"), "9223372036854775807"),
        ] {
            assert_eq!(canonical(&given), expected, "{given}");
        }
    }

    #[test]
    fn text_that_is_no_quantity_is_refused_with_the_real_words() {
        assert_eq!(canonical(&json!("lots")), FORMAT_WRONG);
        assert_eq!(canonical(&json!("1x")), FORMAT_WRONG);
        assert_eq!(canonical(&json!("1 Gi")), FORMAT_WRONG);
        assert_eq!(canonical(&json!("")), FORMAT_WRONG);
        assert_eq!(canonical(&json!("1Mm")), SUFFIX_WRONG);
        assert_eq!(canonical(&json!("1iK")), SUFFIX_WRONG);
    }

    #[test]
    fn amounts_compare_across_formats() {
        let quantity = |text: &str| Quantity::from_value(&json!(text)).expect("a quantity");
        assert!(quantity("1Gi") > quantity("1G"));
        assert!(quantity("1000m") == quantity("1"));
        assert!(quantity("1").is_integer() && !quantity("500m").is_integer());
        assert!(quantity("4Mi").is_multiple_of(quantity("2Mi")) && !quantity("3Mi").is_multiple_of(quantity("2Mi")));
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_stable_and_keeps_the_amount(text in "[+-]?[0-9]{1,25}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e3|E-2)?") {
            if let Ok(first) = Quantity::from_value(&json!(text)) {
                let again = Quantity::from_value(&json!(first.canonical()));
                if first.nano.abs() < i128::MAX {
                    prop_assert_eq!(Ok(first), again);
                }
            }
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = canonical_value(&json!(text), ResourceList::Yes);
        }
    }
}
