//! Sizes in bytes as people write and read them, with K, M, G and T for powers of 1024.

use std::num::IntErrorKind;

/// Reads a size.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse(text: &str) -> Result<u64, String> {
    parse_up_to(text, u64::MAX)
}

/// Reads a size that has a limit.
///
/// # Errors
/// What is wrong with it, in words: the limit, however far it is beyond that.
pub fn parse_up_to(text: &str, max: u64) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match &text[digits.len()..] {
        "" | "B" => 1,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "m" | "MiB" => 1 << 20,
        "G" | "g" | "GiB" => 1 << 30,
        "T" | "t" | "TiB" => 1 << 40,
        unit => return Err(format!("unknown unit {unit:?}: sizes end in K, M, G or T")),
    };
    let bytes = match digits.parse::<u64>() {
        Ok(number) => number.checked_mul(factor),
        Err(e) if *e.kind() == IntErrorKind::PosOverflow => None,
        Err(_) => return Err(format!("{digits:?} is not a number of bytes")),
    };
    bytes.filter(|bytes| *bytes <= max).ok_or_else(|| format!("too large: {} at most", show(max)))
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
        assert_eq!(parse_up_to("4K", 4096), Ok(4096));
        for beyond in ["4097", "5K", "99999999T", "99999999999999999999"] {
            assert_eq!(parse_up_to(beyond, 4096), Err("too large: 4.0 KiB at most".to_owned()));
        }
        assert!(parse("99999999T").unwrap_err().starts_with("too large: 16777215.9 TiB"));
        assert_eq!(show(1536), "1.5 KiB");
        assert_eq!(show(7), "7 bytes");
    }
}
