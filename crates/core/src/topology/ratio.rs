//! Exact fractions: how many times a request goes into what is free. Compared without rounding and without overflow.

use std::cmp::Ordering;

/// A fraction that is not negative.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratio {
    numerator: u128,
    denominator: u128,
}

impl Ratio {
    /// More than any other.
    pub(super) const INFINITE: Self = Self { numerator: u128::MAX, denominator: 1 };

    /// How many times `request` goes into `free`; nothing asked goes in without end.
    pub(super) fn of(free: i128, request: i128) -> Self {
        match u128::try_from(request) {
            Ok(denominator) if denominator > 0 => Self { numerator: u128::try_from(free).unwrap_or(0), denominator },
            _ => Self::INFINITE,
        }
    }

    /// A whole number.
    pub(super) fn whole(number: u64) -> Self {
        Self { numerator: u128::from(number), denominator: 1 }
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        let left = self.numerator.checked_mul(other.denominator);
        let right = other.numerator.checked_mul(self.denominator);
        if let (Some(left), Some(right)) = (left, right) {
            return left.cmp(&right);
        }
        compare_slowly((self.numerator, self.denominator), (other.numerator, other.denominator))
    }
}

/// Compares by continued fractions, for numbers whose products do not fit.
fn compare_slowly(mut left: (u128, u128), mut right: (u128, u128)) -> Ordering {
    let mut turned = false;
    loop {
        let order = (left.0 / left.1).cmp(&(right.0 / right.1));
        let rests = (left.0 % left.1, right.0 % right.1);
        let order = match (order, rests) {
            (Ordering::Equal, (0, 0)) => Ordering::Equal,
            (Ordering::Equal, (0, _)) => Ordering::Less,
            (Ordering::Equal, (_, 0)) => Ordering::Greater,
            (Ordering::Equal, _) => {
                // Of two rests the one with the smaller inverse is the larger one.
                (left, right) = ((left.1, rests.0), (right.1, rests.1));
                turned = !turned;
                continue;
            }
            (order, _) => order,
        };
        return if turned { order.reverse() } else { order };
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ratio {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_fractions_with_different_terms_are_equal() {
        assert_eq!(Ratio::of(2, 4), Ratio::of(1, 2));
        assert!(Ratio::of(1, 3) < Ratio::of(334, 1000));
    }

    #[test]
    fn what_is_missing_counts_as_nothing_and_no_request_as_endless() {
        assert_eq!(Ratio::of(-5, 4), Ratio::whole(0));
        assert_eq!(Ratio::of(7, 0), Ratio::INFINITE);
    }

    #[test]
    fn products_beyond_the_integers_are_still_compared_exactly() {
        let large = i128::MAX;
        assert!(Ratio::of(large, large - 1) < Ratio::of(large - 1, large - 2));
        assert_eq!(Ratio::of(large, large), Ratio::whole(1));
        assert!(Ratio::of(large - 1, large) < Ratio::whole(1));
    }

    proptest! {
        #[test]
        fn the_slow_comparison_agrees_with_multiplication(
            a in 0_u128..2000, b in 1_u128..50, c in 0_u128..2000, d in 1_u128..50,
        ) {
            prop_assert_eq!(compare_slowly((a, b), (c, d)), (a * d).cmp(&(c * b)));
        }
    }
}
