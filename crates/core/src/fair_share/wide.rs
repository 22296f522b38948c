//! Unsigned integers of 256 bits, as far as exact division of shares needs them: amounts and weights of 128 bits are multiplied
//! before they are divided. Nearly all real numbers fit into 128 bits and take the short way.

use std::cmp::Ordering;

/// An unsigned integer of 256 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wide {
    high: u128,
    low: u128,
}

const HALF: u32 = 64;
const LOW_HALF: u128 = u64::MAX as u128;

impl Wide {
    /// `left × right`, which always fits.
    #[must_use]
    pub(crate) fn product(left: u128, right: u128) -> Self {
        if let Some(low) = left.checked_mul(right) {
            return Self { high: 0, low };
        }
        let (left_high, left_low) = (left >> HALF, left & LOW_HALF);
        let (right_high, right_low) = (right >> HALF, right & LOW_HALF);
        let (outer, inner) = (left_low * right_low, left_high * right_low);
        let middle = (outer >> HALF) + (inner & LOW_HALF) + ((left_low * right_high) & LOW_HALF);
        let high = left_high * right_high + (inner >> HALF) + ((left_low * right_high) >> HALF) + (middle >> HALF);
        Self { high, low: (outer & LOW_HALF) | (middle << HALF) }
    }

    /// Adds `amount`; the sums made here stay far below 2²⁵⁶.
    pub(crate) fn add(&mut self, amount: u128) {
        let (low, carry) = self.low.overflowing_add(amount);
        self.low = low;
        self.high = self.high.wrapping_add(u128::from(carry));
    }

    /// Whether this is 0.
    #[must_use]
    pub(crate) fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// The value if it fits into 128 bits, else the largest that does.
    #[must_use]
    pub(crate) fn saturate(self) -> u128 {
        if self.high == 0 { self.low } else { u128::MAX }
    }

    /// Quotient and remainder; division by 0 leaves everything in the remainder.
    #[must_use]
    pub(crate) fn divide(self, divisor: Self) -> (Self, Self) {
        if self < divisor || divisor.is_zero() {
            return (Self::default(), self);
        }
        if self.high == 0 {
            return (Self::from(self.low / divisor.low), Self::from(self.low % divisor.low));
        }
        let (mut quotient, mut remainder) = (Self::default(), Self::default());
        for place in (0..self.bits()).rev() {
            let carry = remainder.high >> 127 == 1;
            remainder = remainder.doubled(self.bit(place));
            quotient = quotient.doubled(carry || remainder >= divisor);
            if carry || remainder >= divisor {
                remainder = remainder.wrapping_minus(divisor);
            }
        }
        (quotient, remainder)
    }

    fn bits(self) -> u32 {
        if self.high == 0 { 128 - self.low.leading_zeros() } else { 256 - self.high.leading_zeros() }
    }

    fn bit(self, place: u32) -> bool {
        let half = if place < 128 { self.low >> place } else { self.high >> (place - 128) };
        half & 1 == 1
    }

    fn doubled(self, last_bit: bool) -> Self {
        Self { high: (self.high << 1) | (self.low >> 127), low: (self.low << 1) | u128::from(last_bit) }
    }

    fn wrapping_minus(self, other: Self) -> Self {
        let (low, borrow) = self.low.overflowing_sub(other.low);
        Self { high: self.high.wrapping_sub(other.high).wrapping_sub(u128::from(borrow)), low }
    }
}

impl From<u128> for Wide {
    fn from(low: u128) -> Self {
        Self { high: 0, low }
    }
}

/// A fraction; its denominator is not 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fraction {
    pub(crate) numerator: Wide,
    pub(crate) denominator: Wide,
}

impl Fraction {
    /// Compares exactly: integer parts first, then the turned-over rests, as in Euclid's algorithm. Cross-multiplying would
    /// need 512 bits.
    #[must_use]
    pub(crate) fn compare(self, other: Self) -> Ordering {
        if self.denominator == other.denominator {
            return self.numerator.cmp(&other.numerator);
        }
        let (mut left, mut right) = (self, other);
        loop {
            let (left_whole, left_rest) = left.numerator.divide(left.denominator);
            let (right_whole, right_rest) = right.numerator.divide(right.denominator);
            let order = left_whole.cmp(&right_whole);
            if order != Ordering::Equal || left_rest.is_zero() || right_rest.is_zero() {
                return order.then(right_rest.is_zero().cmp(&left_rest.is_zero()));
            }
            let turned_left = Self { numerator: left.denominator, denominator: left_rest };
            left = Self { numerator: right.denominator, denominator: right_rest };
            right = turned_left;
        }
    }
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use proptest::prelude::*;

    use super::*;

    fn big(wide: Wide) -> BigUint {
        (BigUint::from(wide.high) << 128) + BigUint::from(wide.low)
    }

    fn wide() -> impl Strategy<Value = Wide> {
        (any::<u128>(), 0..=128_u32, any::<u128>(), 0..128_u32).prop_map(|(high, cut, low, low_cut)| Wide {
            high: high.checked_shr(cut).unwrap_or(0),
            low: low >> low_cut,
        })
    }

    proptest! {
        #[test]
        fn products_and_sums_are_those_of_big_integers(left: u128, right: u128, more: u128) {
            let mut result = Wide::product(left, right);
            prop_assert_eq!(big(result), BigUint::from(left) * right);
            let before = big(result);
            if result.high < u128::MAX {
                result.add(more);
                prop_assert_eq!(big(result), before + more);
            }
        }

        #[test]
        fn quotients_are_those_of_big_integers(dividend in wide(), divisor in wide()) {
            prop_assume!(!divisor.is_zero());
            let (quotient, remainder) = dividend.divide(divisor);
            prop_assert_eq!(big(quotient), big(dividend) / big(divisor));
            prop_assert_eq!(big(remainder), big(dividend) % big(divisor));
        }

        #[test]
        fn fractions_compare_like_cross_products(a in wide(), b in wide(), c in wide(), d in wide(), scale in 1..9_u128) {
            prop_assume!(!b.is_zero() && !d.is_zero());
            let order = |a, b, c, d| Fraction { numerator: a, denominator: b }.compare(Fraction { numerator: c, denominator: d });
            prop_assert_eq!(order(a, b, c, d), (big(a) * big(d)).cmp(&(big(c) * big(b))));
            let (small, whole) = (Wide::from(a.low >> 4), Wide::from((b.low >> 4) + 1));
            let (scaled, scaled_whole) = (Wide::product(a.low >> 4, scale), Wide::product((b.low >> 4) + 1, scale));
            prop_assert_eq!(order(small, whole, scaled, scaled_whole), Ordering::Equal);
        }
    }
}
