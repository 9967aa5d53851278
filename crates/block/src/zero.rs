//! Whether bytes are all zero: asked of every block that is written, so in words and not in bytes.

/// Whether all bytes are zero; so are no bytes.
pub fn is_zero(bytes: &[u8]) -> bool {
    let words = bytes.chunks_exact(16);
    words.remainder().iter().all(|&byte| byte == 0) && words.into_iter().all(|word| word == [0; 16])
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
