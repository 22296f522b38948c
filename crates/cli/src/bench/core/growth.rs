//! How time grows with size: the exponent `e` of the power law `time = c * size^e` that fits best.

/// Growth that counts as about linear.
pub const TARGET: f64 = 1.15;

/// The slope of the least-squares line through the logarithms; `None` where fewer than two sizes differ.
pub fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let usable = points.iter().filter(|(size, time)| *size > 0.0 && *time > 0.0);
    let logs: Vec<(f64, f64)> = usable.map(|(size, time)| (size.ln(), time.ln())).collect();
    let count = f64::from(u32::try_from(logs.len()).ok()?);
    let mean_size = logs.iter().map(|(size, _)| size).sum::<f64>() / count;
    let mean_time = logs.iter().map(|(_, time)| time).sum::<f64>() / count;
    let spread: f64 = logs.iter().map(|(size, _)| (size - mean_size).powi(2)).sum();
    let together: f64 = logs.iter().map(|(size, time)| (size - mean_size) * (time - mean_time)).sum();
    (spread > 0.0).then(|| together / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_law_gives_its_exponent() {
        let squares: Vec<_> = [10.0, 50.0, 700.0].map(|size: f64| (size, 3.0 * size.powf(2.17))).to_vec();
        assert!((exponent(&squares).unwrap() - 2.17).abs() < 1e-9);
    }

    #[test]
    fn one_size_has_no_growth() {
        assert_eq!(exponent(&[(10.0, 1.0), (10.0, 2.0)]), None);
        assert_eq!(exponent(&[]), None);
    }

    #[test]
    fn kais_published_times_give_its_published_growth() {
        let large = exponent(&[(500.0, 5930.0), (1000.0, 26_700.0)]).unwrap();
        assert!((large - 2.17).abs() < 0.01, "{large}");
        let hopeless = exponent(&[(50.0, 2280.0), (100.0, 13_100.0)]).unwrap();
        assert!((hopeless - 2.5).abs() < 0.05, "{hopeless}");
    }
}
