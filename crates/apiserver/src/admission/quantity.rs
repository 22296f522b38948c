//! Amounts of resources as limit ranges compare and add them: `500m`, `1Gi`, `1e3`.
//!
//! Kept in thousandths, rounded up, which is as exact as the comparisons of a real server.

use std::fmt;

/// An amount and the form it is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quantity {
    thousandths: i128,
    binary: bool,
}

const DECIMAL: [(&str, u32); 10] =
    [("n", 0), ("u", 3), ("m", 6), ("", 9), ("k", 12), ("M", 15), ("G", 18), ("T", 21), ("P", 24), ("E", 27)];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    /// Reads a quantity; `None` when it is not one or has more digits than any machine has bytes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let split = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
        let (number, suffix) = text.split_at(split);
        let (negative, digits) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !all_digits(whole) || !all_digits(fraction) || whole.len() + fraction.len() == 0 {
            return None;
        }
        // More digits would overflow below; trailing zeros of the fraction do not count.
        let fraction = fraction.trim_end_matches('0');
        if whole.trim_start_matches('0').len() > 18 || fraction.len() > 9 {
            return None;
        }
        let billionths: i128 = format!("0{whole}{fraction:0<9}").parse().ok()?;
        let (billionths, binary) = match BINARY.iter().position(|binary| *binary == suffix) {
            Some(index) => (billionths.checked_mul(1_i128 << (10 * (index + 1)))?, true),
            None => (scale(billionths, exponent(suffix)?)?, false),
        };
        let billionths = if negative { -billionths } else { billionths };
        Some(Self { thousandths: div_up(billionths, 1_000_000), binary })
    }

    /// The sum, written like `self`, or like `other` if `self` is nothing.
    pub(super) fn plus(self, other: Self) -> Self {
        let binary = if self.thousandths == 0 { other.binary } else { self.binary };
        Self { thousandths: self.thousandths.saturating_add(other.thousandths), binary }
    }

    /// The larger of the two.
    pub(super) fn max(self, other: Self) -> Self {
        if other.thousandths > self.thousandths { other } else { self }
    }

    pub(super) fn exceeds(self, other: Self) -> bool {
        self.thousandths > other.thousandths
    }

    pub(super) fn is_zero(self) -> bool {
        self.thousandths == 0
    }

    /// How many times `other` this is.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people, computed as a real server computes it")]
    pub(super) fn ratio(self, other: Self) -> f64 {
        self.thousandths as f64 / other.thousandths as f64
    }

    #[expect(clippy::cast_precision_loss, reason = "compared with a ratio")]
    pub(super) fn as_f64(self) -> f64 {
        self.thousandths as f64 / 1000.0
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.thousandths / 1000, self.thousandths % 1000);
        if rest != 0 {
            return write!(f, "{}m", self.thousandths);
        }
        if self.binary && whole.abs() >= 1024 {
            let fits = |index: &usize| whole % (1_i128 << (10 * (index + 1))) == 0;
            return match (0..BINARY.len()).rev().find(fits) {
                Some(index) => write!(f, "{}{}", whole >> (10 * (index + 1)), BINARY[index]),
                None => write!(f, "{whole}"),
            };
        }
        let suffixes = ["E", "P", "T", "G", "M", "k"];
        let fits = suffixes.iter().zip([18, 15, 12, 9, 6, 3]).find(|(_, power)| whole % 10_i128.pow(*power) == 0);
        match fits {
            Some((suffix, power)) if whole != 0 => write!(f, "{}{suffix}", whole / 10_i128.pow(power)),
            _ => write!(f, "{whole}"),
        }
    }
}

/// The power of ten that a suffix stands for, plus nine.
fn exponent(suffix: &str) -> Option<i32> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return i32::try_from(*power).ok();
    }
    let digits = suffix.strip_prefix(['e', 'E'])?;
    digits.parse::<i32>().ok().filter(|power| (-30..=18).contains(power)).map(|power| power + 9)
}

/// Billionths of a number with this power of ten (plus nine).
fn scale(billionths: i128, exponent: i32) -> Option<i128> {
    let power = u32::try_from((exponent - 9).abs()).ok()?;
    let factor = 10_i128.checked_pow(power)?;
    if exponent >= 9 { billionths.checked_mul(factor) } else { Some(div_up(billionths, factor)) }
}

/// Division that rounds away from zero, as quantities do.
fn div_up(number: i128, divisor: i128) -> i128 {
    let quotient = number / divisor;
    if number % divisor == 0 { quotient } else { quotient + number.signum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_and_print_in_their_canonical_form() {
        for (text, expected) in [
            ("0", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("1Gi", "1Gi"),
            ("1024Mi", "1Gi"),
            ("1025Mi", "1025Mi"),
            ("512", "512"),
            ("1000", "1k"),
            ("1e3", "1k"),
            ("1E", "1E"),
            ("100u", "1m"),
            ("1n", "1m"),
            ("-1", "-1"),
            (".5Gi", "512Mi"),
        ] {
            assert_eq!(Quantity::parse(text).map(|q| q.to_string()).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "x", "1Q", "1.2.3", "--1", "1e", "1e99", ".", "9999999999999999999"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
    }
}
