//! Quantities as Kubernetes reads and writes them.

use super::*;
use proptest::prelude::*;

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn suffixes_mean_what_kubernetes_says() {
    for (text, nano) in [
        ("1n", 1),
        ("1u", 1_000),
        ("1m", 1_000_000),
        ("1", 1_000_000_000),
        ("1k", 1_000_000_000_000),
        ("1Ki", 1_024_000_000_000),
        ("1.5Mi", 1_572_864_000_000_000),
        ("1e3", 1_000_000_000_000),
        ("1E3", 1_000_000_000_000),
        ("1E", 1_000_000_000_000_000_000_000_000_000),
        ("-0.1", -100_000_000),
        ("+.5", 500_000_000),
    ] {
        assert_eq!(quantity(text).nano(), Some(nano), "{text}");
    }
}

#[test]
fn units_round_away_from_zero() {
    assert_eq!(quantity("1100m").value(), 2);
    assert_eq!(quantity("-1100m").value(), -2);
    assert_eq!(quantity("1n").milli_value(), 1);
    assert_eq!(quantity("0.0000000001").nano(), Some(1));
}

#[test]
fn accessors_saturate_instead_of_wrapping() {
    assert_eq!(quantity("1000E").value(), i64::MAX);
    assert_eq!(quantity("-1e30").milli_value(), i64::MIN);
    assert_eq!(quantity("1e40").nano(), None);
    assert_eq!(quantity("1e40").nano_saturating(), i128::MAX);
    assert_eq!(quantity("1e-2147483648").nano(), Some(1));
    assert_eq!(quantity("0e99999999999").value(), 0);
    assert_eq!(quantity("100Ei").value(), i64::MAX);
}

#[test]
fn decimal_amounts_beyond_the_largest_suffix_keep_their_value() {
    assert_eq!(quantity("1000E").to_string(), "1e21");
    assert_eq!(quantity("1000E").to_string().parse(), Ok(quantity("1000E")));
}

#[test]
fn errors_name_the_text() {
    let message = |text: &str| text.parse::<Quantity>().map_err(|error| error.to_string());
    assert_eq!(message(""), Err("quantity is empty".to_owned()));
    assert_eq!(
        message("1Kb"),
        Err("quantity `1Kb` is not a number with an optional suffix such as `m`, `k`, `Mi` or `e3`".to_owned())
    );
    assert_eq!(message("5K"), Err("quantity `5K` has the unknown suffix `K`".to_owned()));
    assert!(message(&"x".repeat(10_000)).is_err_and(|message| message.len() < 200));
}

#[test]
fn equal_numbers_are_equal_whatever_their_suffix() {
    assert_eq!(quantity("1Gi"), quantity("1024Mi"));
    assert_eq!(quantity("0Ki"), quantity("-0"));
    assert!(quantity("999m") < quantity("1"));
    assert!(quantity("-1Ki") < quantity("-1k"));
    assert!(quantity("1e400") > quantity("9e399"));
}

proptest! {
    #[test]
    fn printing_and_reading_gives_the_same_number(mantissa in any::<i64>(), exponent in -9_i32..30, binary in any::<bool>()) {
        let format = if binary { Format::BinarySi } else { Format::DecimalSi };
        // Binary quantities cannot be written beyond i64, so only whole i64s of them print and read back.
        let number = if binary { Quantity::from_value(mantissa.max(-i64::MAX), format) } else { Quantity::new(i128::from(mantissa), exponent, format) };
        prop_assert_eq!(number.to_string().parse::<Quantity>(), Ok(number));
    }

    #[test]
    fn order_is_the_order_of_billionths(a in any::<i64>(), b in any::<i64>(), shift_a in -9_i32..6, shift_b in -9_i32..6) {
        let (a, b) = (Quantity::new(i128::from(a), shift_a, Format::DecimalSi), Quantity::new(i128::from(b), shift_b, Format::DecimalSi));
        prop_assert_eq!(a.cmp(&b), a.nano().cmp(&b.nano()));
    }

    #[test]
    fn whole_units_are_never_fewer_than_asked_for(nano in any::<i64>()) {
        let quantity = Quantity::from_nano(i128::from(nano), Format::DecimalSi);
        let whole = i128::from(quantity.value()) * 1_000_000_000;
        let distance = whole.abs() - i128::from(nano).abs();
        prop_assert!((0..1_000_000_000).contains(&distance));
    }
}
