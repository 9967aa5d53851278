//! Whether bytes are all zero: asked of every block that is written, so by what compares fastest.

/// Whether all bytes are zero; so are no bytes.
pub fn is_zero(bytes: &[u8]) -> bool {
    // The first is zero, and each is as the one before it.
    bytes.first().is_none_or(|first| *first == 0 && bytes[..bytes.len() - 1] == bytes[1..])
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    #[test]
    fn one_bit_anywhere_is_seen() {
        for len in [0, 1, 15, 16, 17, 100, 4096] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes), "{len} zeros");
            for at in 0..len {
                bytes[at] = 1 << (at % 8);
                assert!(!is_zero(&bytes), "byte {at} of {len}");
                bytes[at] = 0;
            }
        }
    }
}
