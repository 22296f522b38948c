//! Powers of two with fractional exponents, as integers: how usage fades.
//!
//! A number is counted in parts of 2⁴⁸. The factor 2^y for 0 ≤ y ≤ 1 is the product of 2^(1/2), 2^(1/4), … over the bits of y; these
//! are repeated integer square roots of 2, to 62 bits. Everything is rounded down: results are too small by less than 3 parts of 2⁴⁸
//! (the exponent is cut to 48 bits, which is worth 2 · ln 2; the result too, which is worth 1; the products in between next to
//! nothing), and the same everywhere.

/// The number 1.
pub(super) const ONE: u64 = 1 << PLACES;

const PLACES: u32 = 48;
const ROOT_PLACES: u32 = 62;
const ROOTS: [u64; PLACES as usize] = roots();

#[expect(clippy::cast_possible_truncation, reason = "a root of 2 is less than 2: 63 bits")]
const fn roots() -> [u64; PLACES as usize] {
    let mut roots = [0; PLACES as usize];
    let mut root: u128 = 2 << ROOT_PLACES;
    let mut place = 0;
    while place < roots.len() {
        root = (root << ROOT_PLACES).isqrt();
        roots[place] = root as u64;
        place += 1;
    }
    roots
}

/// `2^(span / half_life)` for a span of at most one half-life.
pub(super) fn growth(span: u64, half_life: u64) -> u64 {
    if span >= half_life {
        return 2 * ONE;
    }
    // Less than 1 because the span is less than the half-life: 48 bits.
    let exponent = (u128::from(span) << PLACES) / u128::from(half_life);
    let mut product: u128 = 1 << ROOT_PLACES;
    for (root, place) in ROOTS.iter().zip((0..PLACES).rev()) {
        if exponent >> place & 1 == 1 {
            product = (product * u128::from(*root)) >> ROOT_PLACES;
        }
    }
    u64::try_from(product >> (ROOT_PLACES - PLACES)).unwrap_or(2 * ONE)
}

/// The factor `2^(−age / half_life)`.
#[derive(Clone, Copy)]
pub(super) struct Fading {
    halvings: u32,
    /// In parts of [`ONE`], at most 1.
    rest: u64,
}

impl Fading {
    /// No fading at all.
    pub(super) const NONE: Self = Self { halvings: 0, rest: ONE };

    /// What is left after `age`.
    pub(super) fn after(age: u64, half_life: u64) -> Self {
        let half_life = half_life.max(1);
        let halvings = u32::try_from(age / half_life).unwrap_or(u32::MAX);
        // 2^(−r) = 2^(1−r) / 2
        Self { halvings, rest: growth(half_life - age % half_life, half_life) / 2 }
    }

    /// What is left of `amount`, rounded down.
    pub(super) fn of(self, amount: u128) -> u128 {
        let rest = u128::from(self.rest);
        // Split, so that the product of 128 and 49 bits fits: neither part is more than `amount`.
        let whole = (amount >> PLACES) * rest;
        let part = ((amount & u128::from(ONE - 1)) * rest) >> PLACES;
        whole.saturating_add(part).checked_shr(self.halvings).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[expect(clippy::cast_precision_loss, reason = "compared with a tolerance")]
    fn number(parts: u64) -> f64 {
        parts as f64 / ONE as f64
    }

    #[test]
    fn one_half_life_halves_exactly() {
        for half_life in [1, 2, 3, 1000, 604_800_000, 1 << 44] {
            assert_eq!(growth(0, half_life), ONE);
            assert_eq!(growth(half_life, half_life), 2 * ONE);
            assert_eq!(Fading::after(half_life, half_life).of(1 << 100), 1 << 99);
            assert_eq!(Fading::after(3 * half_life, half_life).of(1 << 100), 1 << 97);
            assert_eq!(Fading::after(0, half_life).of(u128::MAX), u128::MAX);
        }
    }

    #[test]
    fn what_is_very_old_is_nothing() {
        assert_eq!(Fading::after(u64::MAX, 1).of(u128::MAX), 0);
        assert_eq!(Fading::after(128, 1).of(u128::MAX), 0);
    }

    proptest! {
        #[test]
        #[expect(clippy::cast_precision_loss, reason = "compared with a tolerance")]
        fn growth_is_that_of_floating_point(half_life in 1..1_u64 << 44, part in 0.0..1.0_f64) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "any span will do")]
            let span = (half_life as f64 * part) as u64;
            let expected = (span as f64 / half_life as f64).exp2();
            prop_assert!((number(growth(span, half_life)) - expected).abs() < 3.0 / ONE as f64);
        }

        #[test]
        fn growth_never_falls(half_life in 1..1_u64 << 44, span in 0..1_u64 << 44, more in 0..1_000_u64) {
            prop_assert!(growth(span, half_life) <= growth(span + more, half_life));
        }

        #[test]
        #[expect(clippy::cast_precision_loss, reason = "compared with a tolerance")]
        fn fading_is_that_of_floating_point(half_life in 1..1_u64 << 40, age in 0..1_u64 << 42, amount in 1_u128 << 90..1 << 120) {
            let left = Fading::after(age, half_life).of(amount) as f64;
            let expected = amount as f64 * (-(age as f64) / half_life as f64).exp2();
            prop_assert!((left - expected).abs() <= expected * 1e-12 + 1.0);
        }
    }
}
