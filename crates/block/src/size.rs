//! Sizes in bytes as people write and read them, with K, M, G and T for powers of 1024.

/// Reads a size.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match &text[digits.len()..] {
        "" | "B" => 1,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "m" | "MiB" => 1 << 20,
        "G" | "g" | "GiB" => 1 << 30,
        "T" | "t" | "TiB" => 1 << 40,
        unit => return Err(format!("unknown unit {unit:?}: sizes end in K, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{digits:?} is not a number of bytes"))?;
    number.checked_mul(factor).ok_or_else(|| "too large".to_owned())
}

/// Shows a size to people.
pub fn show(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in units {
        if bytes >= 1 << shift {
            let tenths = (u128::from(bytes) * 10) >> shift;
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("64K"), Ok(65536));
        assert_eq!(parse("3G"), Ok(3 << 30));
        assert!(parse("").is_err());
        assert!(parse("12X").is_err());
        assert!(parse("-1").is_err());
        assert!(parse("99999999T").is_err());
        assert_eq!(show(1536), "1.5 KiB");
        assert_eq!(show(7), "7 bytes");
    }
}
