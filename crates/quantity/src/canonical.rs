//! Printing a quantity in its canonical form, as Go's `CanonicalizeBytes` does.
//!
//! No fraction and no precision lost, and the largest suffix for which that holds. Binary quantities under 1024, or with a fraction,
//! print in decimal form.

use std::fmt;

use crate::{Format, Quantity};

/// Decimal suffixes by exponent / 3, from `n` (-9) to `E` (18).
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// Binary suffixes by power of 1024.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return formatter.pad("0");
        }
        let text = match self.format {
            Format::BinarySi => {
                self.whole().filter(|whole| whole.unsigned_abs() >= 1024).map_or_else(|| self.decimal(), binary)
            }
            Format::DecimalSi => self.decimal(),
            Format::DecimalExponent => self.with_exponent(),
        };
        formatter.pad(&text)
    }
}

impl Quantity {
    /// The number itself if it has no fraction; a binary quantity always fits.
    fn whole(&self) -> Option<i128> {
        let shift = u32::try_from(self.exponent).ok()?;
        self.mantissa.checked_mul(10_i128.checked_pow(shift)?)
    }

    fn decimal(&self) -> String {
        let (number, exponent) = self.thousands();
        let suffix = usize::try_from(exponent / 3 + 3).ok().and_then(|index| DECIMAL.get(index));
        suffix.map_or_else(|| self.with_exponent(), |suffix| format!("{number}{suffix}"))
    }

    fn with_exponent(&self) -> String {
        match self.thousands() {
            (number, 0) => number,
            (number, exponent) => format!("{number}e{exponent}"),
        }
    }

    /// Digits and an exponent that is a multiple of three.
    fn thousands(&self) -> (String, i32) {
        let spare = self.exponent.rem_euclid(3);
        let zeros = ["", "0", "00"].get(usize::try_from(spare).unwrap_or_default()).copied().unwrap_or_default();
        (format!("{}{zeros}", self.mantissa), self.exponent - spare)
    }
}

fn binary(mut number: i128) -> String {
    let mut index = 0;
    while number % 1024 == 0 && index + 1 < BINARY.len() {
        number /= 1024;
        index += 1;
    }
    format!("{number}{}", BINARY[index])
}
