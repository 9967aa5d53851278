//! Numbers from repeated measurements.

/// The middle value, or the mean of the two; `None` without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n.is_multiple_of(2) => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
        _ => Some(sorted[middle]),
    }
}

/// A count as a floating point number; counts here stay far below 2^53.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

/// Bytes in MiB.
pub(crate) fn mib(bytes: u64) -> f64 {
    real(bytes) / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    }
}
