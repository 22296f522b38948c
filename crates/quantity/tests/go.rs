//! Four thousand quantities as the Go library reads and prints them (`tests/go.tsv`, made by `tests/go/main.go`).

use kai_quantity::Quantity;

/// Billionths of a plain decimal number, counted without the parser under test.
fn nano(decimal: &str) -> Option<i128> {
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    format!("{whole}{fraction:0<9}").parse().ok()
}

/// Whether Go printed a number that it cannot read back: a decimal of 1000E and more loses its suffix.
fn go_lost_the_suffix(exact: i128) -> bool {
    exact.abs() >= 10_i128.pow(9 + 21) && exact % 10_i128.pow(9 + 21) == 0
}

#[test]
fn reads_and_prints_as_go_does() {
    let (mut read, mut refused) = (0, 0);
    for line in include_str!("go.tsv").lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let ours = fields[0].parse::<Quantity>();
        let [text, canonical, value, milli, exact] = fields[..] else {
            assert!(ours.is_err(), "{line}: Go refuses it, we read {ours:?}");
            refused += 1;
            continue;
        };
        let ours = ours.unwrap_or_else(|error| panic!("{line}: {error}"));
        read += 1;
        let Some(exact) = nano(exact) else {
            assert_eq!(ours.nano(), None, "{text}");
            assert!(matches!(ours.value(), i64::MIN | i64::MAX), "{text} saturates");
            continue;
        };
        assert_eq!(ours.nano(), Some(exact), "{text}");
        if !go_lost_the_suffix(exact) || canonical.contains('e') {
            assert_eq!(ours.to_string(), canonical, "{text}");
        }
        assert_eq!(ours.to_string().parse(), Ok(ours), "{text}");
        // Go's Value of negative or too large numbers is sometimes 0, sometimes wrapped, sometimes off by one.
        if (0..=i128::from(i64::MAX / 1000) * 1_000_000_000).contains(&exact) {
            assert_eq!(ours.value().to_string(), value, "{text}");
            assert_eq!(ours.milli_value().to_string(), milli, "{text}");
        }
    }
    assert!(read > 3000 && refused > 600, "the table is there: {read} read, {refused} refused");
}
