//! Amounts from text and numbers to integers, exactly; what cannot be an amount becomes a sentence that names the field.
//!
//! What a pod asks for is rounded up, what a node has is rounded down, so that rounding never makes room that is not there.

use std::{collections::BTreeMap, fmt::Display};

use k8s_openapi::{apimachinery::pkg::api::resource::Quantity, jiff::Timestamp};
use kai_core::{
    amounts::{GPU, LARGEST},
    time::{Span, Time},
};

/// Amounts by resource, as Kubernetes writes them.
pub(crate) type ResourceList = BTreeMap<String, Quantity>;

/// Billionths in one.
const NANO: i128 = 1_000_000_000;

/// Where parts of a unit go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// Up: requests.
    Up,
    /// Down: what there is.
    Down,
}

/// What is wrong with a field, as one sentence with a hint.
pub(crate) fn wrong(field: impl Display, what: impl Display, hint: &str) -> String {
    format!("field `{field}`: {what}; hint: {hint}")
}

/// An amount of a resource in the core's unit: millicores for cpu, whole units for everything else.
pub(crate) fn amount(field: impl Display, resource: &str, quantity: &Quantity, round: Round) -> Result<i64, String> {
    let parsed: kai_quantity::Quantity = quantity.0.parse().map_err(|_| {
        let shown: String = quantity.0.chars().take(64).collect();
        wrong(
            &field,
            format_args!("`{shown}` is not a quantity"),
            "write a number with a unit, such as `500m` or `2Gi`",
        )
    })?;
    if parsed.is_negative() {
        return Err(wrong(&field, format_args!("{parsed} is negative"), "write 0 or more"));
    }
    let unit = if resource == "cpu" { NANO / 1000 } else { NANO };
    let nano = parsed.nano_saturating();
    let amount = match round {
        Round::Down => nano / unit,
        Round::Up => nano / unit + i128::from(nano % unit != 0),
    };
    i64::try_from(amount).ok().filter(|amount| *amount <= LARGEST).ok_or_else(|| {
        wrong(&field, format_args!("{parsed} is more than any machine has"), "write the amount one machine could have")
    })
}

/// Millionths of a decimal number such as `0.29`, exactly; finer parts are cut off. `None`: not a number or out of range.
pub(crate) fn millionths(text: &str) -> Option<i64> {
    let parsed: kai_quantity::Quantity = text.trim().parse().ok()?;
    i64::try_from(parsed.nano_saturating() / (NANO / i128::from(GPU))).ok()
}

/// A number of a queue, times `scale`, by the decimal digits that a reader of the object sees; kept within what the core counts.
/// `None`: not a number at all.
pub(crate) fn scaled(number: f64, scale: i64) -> Option<i64> {
    if !number.is_finite() {
        return None;
    }
    let digits: kai_quantity::Quantity = format!("{number}").parse().ok()?;
    let exact = digits.nano_saturating().saturating_mul(i128::from(scale)) / NANO;
    i64::try_from(exact.clamp(-i128::from(LARGEST), i128::from(LARGEST))).ok()
}

/// A point in time for the core.
pub(crate) fn time(timestamp: Timestamp) -> Time {
    Time(timestamp.as_millisecond())
}

/// A point in time of an object's metadata; the beginning of time where it has none.
pub(crate) fn created(time_of: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>) -> Time {
    time_of.map_or(Time(0), |found| time(found.0))
}

/// A point in time written in an annotation; unreadable ones are as if they were not there, since only schedulers write them.
pub(crate) fn annotated(text: Option<&String>) -> Option<Time> {
    text.and_then(|text| text.trim().parse::<Timestamp>().ok()).map(time)
}

/// A span for the core, to the millisecond; a negative one stays negative.
pub(crate) fn span(duration: kai_api::Duration) -> Span {
    let nanoseconds = duration.nanoseconds();
    let milliseconds = nanoseconds / 1_000_000;
    Span(if milliseconds == 0 { nanoseconds.signum().min(0) } else { milliseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity(text.to_owned())
    }

    #[test]
    fn requests_round_up_and_capacities_down() {
        assert_eq!(amount("f", "cpu", &quantity("1500u"), Round::Up), Ok(2));
        assert_eq!(amount("f", "cpu", &quantity("1500u"), Round::Down), Ok(1));
        assert_eq!(amount("f", "memory", &quantity("1.5Gi"), Round::Up), Ok(1_610_612_736));
        assert_eq!(amount("f", "cpu", &quantity("1k"), Round::Down), Ok(1_000_000));
    }

    #[test]
    fn bad_amounts_name_their_field() {
        for text in ["two", "-1", "1000000000000000000", "", "99E"] {
            let error = amount("spec.x", "nvidia.com/gpu", &quantity(text), Round::Up).expect_err("not an amount");
            assert!(error.starts_with("field `spec.x`: ") && error.contains("hint: "), "{error}");
        }
    }

    #[test]
    fn fractions_are_read_as_decimal_text() {
        assert_eq!(millionths("0.29"), Some(290_000));
        assert_eq!(millionths("0.3333333333"), Some(333_333));
        assert_eq!(millionths("5e-1"), Some(500_000));
        assert_eq!(millionths("half"), None);
        assert_eq!(millionths("NaN"), None);
    }

    #[test]
    fn numbers_of_queues_are_exact_and_bounded() {
        assert_eq!(scaled(0.5, GPU), Some(500_000));
        assert_eq!(scaled(0.1, GPU), Some(100_000));
        assert_eq!(scaled(-1.0, 1_000_000), Some(-1_000_000));
        assert_eq!(scaled(1e300, GPU), Some(LARGEST));
        assert_eq!(scaled(f64::NAN, GPU), None);
    }

    #[test]
    fn a_negative_span_stays_negative() {
        assert_eq!(span(kai_api::Duration::from_nanoseconds(-5)), Span(-1));
        assert_eq!(span(kai_api::Duration::from_seconds(60)), Span(60_000));
        assert_eq!(span(kai_api::Duration::from_nanoseconds(5)), Span(0));
    }
}
