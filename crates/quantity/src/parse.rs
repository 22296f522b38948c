//! Reading a quantity: sign, digits, fraction, suffix.
//!
//! The grammar is the Go parser's, which is looser than its documentation: digits may be missing altogether (`+`, `.`, `Ki` are
//! zero). Up to 18 digits are computed in one integer; longer numbers go through [`Digits`], where arithmetic is done on decimal
//! digits and no length overflows.

use std::str::FromStr;

use crate::{Format, MAX_DIGITS, NANO, Quantity, divide_away_from_zero};

/// Digits for which `number * 2^60` surely fits an `i128`.
const FAST_DIGITS: usize = 18;

/// Significant digits that are looked at; whether anything beyond them is non-zero is remembered as one more digit.
/// Binary quantities need at most 57 places before the billionths (38 digits and 2^60).
const MAX_READ: usize = 128;

/// Characters of a text that an error repeats.
const SHOWN: usize = 64;

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// Nothing there.
    #[error("quantity is empty")]
    Empty,
    /// A character that cannot be part of a quantity, or one in the wrong place.
    #[error("quantity `{text}` is not a number with an optional suffix such as `m`, `k`, `Mi` or `e3`")]
    Malformed {
        /// What was read, shortened.
        text: String,
    },
    /// A suffix that is none of the known ones.
    #[error("quantity `{text}` has the unknown suffix `{suffix}`")]
    Suffix {
        /// What was read, shortened.
        text: String,
        /// The part after the number, shortened.
        suffix: String,
    },
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(ParseQuantityError::Empty);
        }
        let (negative, unsigned) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let multiplier = Multiplier::read(suffix).map_err(|problem| match problem {
            SuffixProblem::Shape => ParseQuantityError::Malformed { text: shorten(text) },
            SuffixProblem::Unknown => ParseQuantityError::Suffix { text: shorten(text), suffix: shorten(suffix) },
        })?;
        if whole.is_empty() && fraction.is_empty() && multiplier.needs_digits() {
            return Err(ParseQuantityError::Malformed { text: shorten(text) });
        }
        Ok(multiplier.apply(negative, whole, fraction))
    }
}

/// What a suffix multiplies with.
struct Multiplier {
    power_of_two: u32,
    power_of_ten: i32,
    format: Format,
}

enum SuffixProblem {
    Shape,
    Unknown,
}

impl Multiplier {
    fn read(suffix: &str) -> Result<Self, SuffixProblem> {
        let decimal = |power_of_ten| Ok(Self { power_of_two: 0, power_of_ten, format: Format::DecimalSi });
        let binary = |power_of_two| Ok(Self { power_of_two, power_of_ten: 0, format: Format::BinarySi });
        match suffix {
            "" => decimal(0),
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
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
            _ => Self::read_exponent(suffix),
        }
    }

    fn read_exponent(suffix: &str) -> Result<Self, SuffixProblem> {
        let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let number = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(SuffixProblem::Shape);
        }
        let exponent = suffix.strip_prefix(['e', 'E']).ok_or(SuffixProblem::Unknown)?;
        let exponent: i64 = exponent.parse().map_err(|_| SuffixProblem::Unknown)?;
        // Half of the range, so that adding lengths and shifts below cannot leave an i32.
        let limit = i64::from(i32::MAX / 2);
        let power_of_ten = i32::try_from(exponent.clamp(-limit, limit)).unwrap_or_default();
        Ok(Self { power_of_two: 0, power_of_ten, format: Format::DecimalExponent })
    }

    /// Whether Go refuses this suffix without a number before it; it takes `Ki` and `.` as zero but not `Pi`.
    fn needs_digits(&self) -> bool {
        self.power_of_two >= 50 || self.power_of_ten < NANO
    }

    /// The quantity whose digits are `whole.fraction`.
    fn apply(&self, negative: bool, whole: &str, fraction: &str) -> Quantity {
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let exponent = i64::from(self.power_of_ten) - i64::try_from(fraction.len()).unwrap_or(i64::MAX / 4);
        let (mantissa, exponent) = if whole.len() + fraction.len() <= FAST_DIGITS {
            self.apply_fast(whole, fraction, exponent)
        } else {
            self.apply_slow(whole, fraction, exponent)
        };
        let exponent = i32::try_from(exponent).unwrap_or(i32::MAX / 2);
        let mut quantity = Quantity::new(if negative { -mantissa } else { mantissa }, exponent, self.format);
        if self.format == Format::BinarySi {
            let limit = Quantity::from_value(if negative { -i64::MAX } else { i64::MAX }, Format::BinarySi);
            quantity = if negative { quantity.max(limit) } else { quantity.min(limit) };
        }
        quantity
    }

    fn apply_fast(&self, whole: &str, fraction: &str, exponent: i64) -> (i128, i64) {
        let number =
            whole.bytes().chain(fraction.bytes()).fold(0_i128, |number, digit| number * 10 + i128::from(digit - b'0'));
        round_to_nano(number << self.power_of_two, exponent)
    }

    fn apply_slow(&self, whole: &str, fraction: &str, exponent: i64) -> (i128, i64) {
        let mut digits = Digits::read(whole.bytes().chain(fraction.bytes()), exponent);
        for _ in 0..self.power_of_two {
            digits.double();
        }
        digits.round();
        digits.finish()
    }
}

/// Rounds what is finer than a billionth away from zero.
fn round_to_nano(number: i128, exponent: i64) -> (i128, i64) {
    let nano = i64::from(NANO);
    if exponent >= nano || number == 0 {
        return (number, exponent);
    }
    let excess = u32::try_from(nano - exponent).ok().and_then(|excess| 10_i128.checked_pow(excess));
    (excess.map_or(1, |power| divide_away_from_zero(number, power)), nano)
}

/// A positive decimal number of any length: digits, most significant first, times a power of ten.
struct Digits {
    digits: Vec<u8>,
    exponent: i64,
}

impl Digits {
    fn read(digits: impl Iterator<Item = u8>, exponent: i64) -> Self {
        let mut read: Vec<u8> = digits.map(|digit| digit - b'0').skip_while(|digit| *digit == 0).collect();
        let mut exponent = exponent;
        if read.len() > MAX_READ {
            let rest = read.split_off(MAX_READ);
            exponent += i64::try_from(rest.len()).unwrap_or(i64::MAX / 4);
            if rest.iter().any(|digit| *digit != 0) {
                read.push(1);
                exponent -= 1;
            }
        }
        Self { digits: read, exponent }
    }

    fn double(&mut self) {
        let mut carry = 0;
        for digit in self.digits.iter_mut().rev() {
            let doubled = *digit * 2 + carry;
            *digit = doubled % 10;
            carry = doubled / 10;
        }
        if carry > 0 {
            self.digits.insert(0, carry);
        }
    }

    /// Rounds away from zero to a billionth, and to the digits that are kept.
    fn round(&mut self) {
        let finer = usize::try_from(i64::from(NANO) - self.exponent).unwrap_or(0);
        let longer = self.digits.len().saturating_sub(MAX_DIGITS as usize);
        let drop = finer.max(longer);
        if drop == 0 || self.digits.is_empty() {
            return;
        }
        let kept = self.digits.len().saturating_sub(drop);
        let dropped = self.digits.split_off(kept);
        self.exponent += i64::try_from(drop).unwrap_or(i64::MAX / 4);
        if dropped.iter().any(|digit| *digit != 0) {
            self.increment();
        }
    }

    fn increment(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            *digit = (*digit + 1) % 10;
            if *digit != 0 {
                return;
            }
        }
        self.digits.insert(0, 1);
    }

    fn finish(&self) -> (i128, i64) {
        (
            self.digits
                .iter()
                .fold(0_i128, |number, digit| number.saturating_mul(10).saturating_add(i128::from(*digit))),
            self.exponent,
        )
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn long_and_short_arithmetic_agree(whole in "[0-9]{0,9}", fraction in "[0-9]{0,9}", power_of_two in 0_u32..61, power_of_ten in -20_i32..20) {
            let multiplier = Multiplier { power_of_two, power_of_ten, format: Format::DecimalSi };
            let exponent = i64::from(power_of_ten) - i64::try_from(fraction.len()).unwrap();
            let (fast, fast_exponent) = multiplier.apply_fast(&whole, &fraction, exponent);
            let (slow, slow_exponent) = multiplier.apply_slow(&whole, &fraction, exponent);
            let fast = Quantity::new(fast, i32::try_from(fast_exponent).unwrap(), Format::DecimalSi);
            let slow = Quantity::new(slow, i32::try_from(slow_exponent).unwrap(), Format::DecimalSi);
            prop_assert_eq!(fast, slow);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Quantity>();
        }

        #[test]
        fn no_almost_quantity_panics(text in "[-+]?[0-9.]{0,60}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,25}") {
            if let Ok(quantity) = text.parse::<Quantity>() {
                let _ = (quantity.value(), quantity.milli_value(), quantity.nano_saturating(), quantity.to_string());
            }
        }
    }
}
