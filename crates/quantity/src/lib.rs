//! Kubernetes quantities (`500m`, `1.5Gi`, `2e3`) as exact integers; knows no JSON, no Kubernetes types and no floating point.
//!
//! A quantity is a decimal number `mantissa * 10^exponent` plus the [`Format`] it was written in. Everything the Go parser
//! takes is taken here, with its rounding: parts finer than a billionth are rounded away from zero, and a binary quantity stops
//! at the largest `i64`. Equality and order look at the number only, so `1Gi` equals `1024Mi`.
//!
//! Three deliberate differences, all where Go loses the number: decimal amounts of 1000E and more print with an exponent (Go drops
//! the suffix), accessors saturate (Go wraps or answers 0), and exponents wider than 32 bits saturate (Go wraps). Numbers of more
//! than 38 significant digits keep the first 38, rounded away from zero.
//!
//! ```
//! use kai_quantity::Quantity;
//! let memory: Quantity = "1.5Gi".parse()?;
//! assert_eq!(memory.value(), 1_610_612_736);
//! assert_eq!(memory.to_string(), "1536Mi");
//! # Ok::<(), kai_quantity::ParseQuantityError>(())
//! ```

mod canonical;
mod parse;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

pub use parse::ParseQuantityError;

/// The most significant digits that a quantity keeps: as many nines as fit an `i128`.
const MAX_DIGITS: u32 = 38;

/// The finest unit of a quantity, as a power of ten.
const NANO: i32 = -9;

/// How a quantity was written, which decides how it prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Suffixes `n u m k M G T P E`, or none.
    #[default]
    DecimalSi,
    /// Suffixes `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// Exponents such as `e3`.
    DecimalExponent,
}

/// An amount of a resource.
///
/// The mantissa has no factor of ten (zero has exponent 0), so equal numbers have equal fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    mantissa: i128,
    exponent: i32,
    format: Format,
}

impl Quantity {
    /// So many whole units.
    pub fn from_value(value: i64, format: Format) -> Self {
        Self::new(i128::from(value), 0, format)
    }

    /// So many thousandths.
    pub fn from_milli(milli: i64, format: Format) -> Self {
        Self::new(i128::from(milli), -3, format)
    }

    /// So many billionths.
    pub fn from_nano(nano: i128, format: Format) -> Self {
        Self::new(nano, NANO, format)
    }

    /// Brings any decimal number into the normal form, keeping 38 digits.
    fn new(mut mantissa: i128, mut exponent: i32, format: Format) -> Self {
        if mantissa == 0 {
            return Self { mantissa: 0, exponent: 0, format };
        }
        if mantissa.unsigned_abs() >= 10_u128.pow(MAX_DIGITS) {
            mantissa = divide_away_from_zero(mantissa, 10);
            exponent = exponent.saturating_add(1);
        }
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent = exponent.saturating_add(1);
        }
        Self { mantissa, exponent, format }
    }

    /// How it was written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// Whether it is below zero.
    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    /// Whole units, fractions rounded away from zero, saturating at the ends of `i64`.
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// Thousandths, finer fractions rounded away from zero, saturating at the ends of `i64`.
    pub fn milli_value(&self) -> i64 {
        self.scaled(-3)
    }

    /// Billionths, exactly; none when that does not fit an `i128`.
    pub fn nano(&self) -> Option<i128> {
        let shift = u32::try_from(self.exponent - NANO).ok()?;
        self.mantissa.checked_mul(10_i128.checked_pow(shift)?)
    }

    /// Billionths, saturating at the ends of `i128`.
    pub fn nano_saturating(&self) -> i128 {
        self.nano().unwrap_or(if self.is_negative() { i128::MIN } else { i128::MAX })
    }

    /// The amount in units of `10^scale`, rounded away from zero and saturating.
    fn scaled(&self, scale: i32) -> i64 {
        let shift = i64::from(self.exponent) - i64::from(scale);
        let power = u32::try_from(shift.unsigned_abs()).ok().and_then(|shift| 10_i128.checked_pow(shift));
        let exact = match (shift >= 0, power) {
            (true, power) => power.and_then(|power| self.mantissa.checked_mul(power)),
            (false, Some(power)) => Some(divide_away_from_zero(self.mantissa, power)),
            (false, None) => Some(self.mantissa.signum()),
        };
        let saturated = if self.is_negative() { i64::MIN } else { i64::MAX };
        exact.map_or(if self.is_zero() { 0 } else { saturated }, |exact| i64::try_from(exact).unwrap_or(saturated))
    }

    /// Position of the leading digit, which orders two positive numbers unless it is the same.
    fn magnitude(&self) -> i64 {
        i64::from(digits(self.mantissa)) + i64::from(self.exponent)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        (self.mantissa, self.exponent) == (other.mantissa, other.exponent)
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.mantissa, self.exponent).hash(state);
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs != Ordering::Equal || self.is_zero() {
            return signs;
        }
        let sizes = self.magnitude().cmp(&other.magnitude()).then_with(|| {
            // Same leading position: pad the shorter mantissa with zeros. Both then have as many digits as the longer one, at most 38.
            let (mine, theirs) = (self.mantissa.unsigned_abs(), other.mantissa.unsigned_abs());
            let (my_digits, their_digits) = (digits(self.mantissa), digits(other.mantissa));
            let width = my_digits.max(their_digits);
            let pad = |number: u128, digits: u32| number.saturating_mul(10_u128.saturating_pow(width - digits));
            pad(mine, my_digits).cmp(&pad(theirs, their_digits))
        });
        if self.is_negative() { sizes.reverse() } else { sizes }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Number of decimal digits; 0 has none.
fn digits(number: i128) -> u32 {
    number.unsigned_abs().checked_ilog10().map_or(0, |log| log + 1)
}

/// Division that rounds away from zero: whoever asks for a little gets a little. The divisor is positive.
fn divide_away_from_zero(number: i128, divisor: i128) -> i128 {
    let quotient = number / divisor;
    if number % divisor == 0 { quotient } else { quotient + number.signum() }
}

#[cfg(test)]
mod tests;
