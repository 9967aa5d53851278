//! Sizes as people write them.

/// A size in bytes, or with K, M, G or T in powers of 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.chars().last() {
        Some('K' | 'k') => (&text[..text.len() - 1], 10),
        Some('M' | 'm') => (&text[..text.len() - 1], 20),
        Some('G' | 'g') => (&text[..text.len() - 1], 30),
        Some('T' | 't') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| "not a size".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("1G"), Ok(1 << 30));
        assert!(size("").is_err());
        assert!(size("G").is_err());
        assert!(size("99999999999G").is_err());
    }
}
