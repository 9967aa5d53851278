//! Compression of what nodes hold, before they are encrypted.

use crate::fields::Malformed;

/// Level of zstd: the lowest of the usual ones, for a node is written while a program waits.
const ZSTD_LEVEL: i32 = 1;

/// How the payload of a node is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not at all.
    None,
    /// As an LZ4 block.
    #[default]
    Lz4,
    /// As a zstd frame.
    Zstd,
}

impl Compression {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
        }
    }

    pub(crate) const fn from_number(number: u8) -> Result<Self, Malformed> {
        match number {
            0 => Ok(Self::None),
            1 => Ok(Self::Lz4),
            2 => Ok(Self::Zstd),
            _ => Err(Malformed("its compression is unknown")),
        }
    }

    /// Appends the compressed `plain` to `out`, if that saves something: how it was compressed.
    pub(crate) fn compress(self, plain: &[u8], out: &mut Vec<u8>) -> Self {
        let start = out.len();
        let compressed = match self {
            Self::None => false,
            Self::Lz4 => {
                out.resize(start + lz4_flex::block::get_maximum_output_size(plain.len()), 0);
                match lz4_flex::block::compress_into(plain, &mut out[start..]) {
                    Ok(len) => {
                        out.truncate(start + len);
                        true
                    }
                    Err(_) => false,
                }
            }
            Self::Zstd => match zstd::bulk::compress(plain, ZSTD_LEVEL) {
                Ok(bytes) => {
                    out.extend_from_slice(&bytes);
                    true
                }
                Err(_) => false,
            },
        };
        if compressed && out.len() - start < plain.len() {
            return self;
        }
        out.truncate(start);
        out.extend_from_slice(plain);
        Self::None
    }

    /// Decompresses `packed`, which is known to make `out` full.
    pub(crate) fn decompress_into(self, packed: &[u8], out: &mut [u8]) -> Result<(), Malformed> {
        let len = match self {
            Self::None => {
                if packed.len() != out.len() {
                    return Err(Malformed("its length is not that of its content"));
                }
                out.copy_from_slice(packed);
                packed.len()
            }
            Self::Lz4 => lz4_flex::block::decompress_into(packed, out)
                .map_err(|_| Malformed("it cannot be decompressed"))?,
            Self::Zstd => zstd::bulk::decompress_to_buffer(packed, out)
                .map_err(|_| Malformed("it cannot be decompressed"))?,
        };
        if len != out.len() {
            return Err(Malformed("its length is not that of its content"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    #[test]
    fn what_is_compressed_comes_back_and_takes_no_more_room() {
        let noise: Vec<u8> =
            (0..5000u32).flat_map(|i| i.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
        for plain in [&b""[..], b"x", &[7; 4096], &noise[..4096]] {
            for compression in ALL {
                let mut packed = vec![1, 2];
                let how = compression.compress(plain, &mut packed);
                assert!(packed.len() - 2 <= plain.len() && packed[..2] == [1, 2]);
                let mut back = vec![0; plain.len()];
                how.decompress_into(&packed[2..], &mut back).unwrap();
                assert_eq!(back, plain);
            }
        }
        for compression in &ALL[1..] {
            assert_eq!(compression.compress(&[7; 4096], &mut Vec::new()), *compression);
        }
    }

    #[test]
    fn what_makes_another_length_is_refused() {
        for compression in ALL {
            let mut packed = Vec::new();
            let how = compression.compress(&[7; 100], &mut packed);
            for len in [0, 99, 101] {
                how.decompress_into(&packed, &mut vec![0; len]).unwrap_err();
            }
        }
    }
}
