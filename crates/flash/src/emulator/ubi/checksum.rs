//! The checksum of UBI: CRC-32 (polynomial `0xedb88320`) from all ones, without a final inversion.

/// What a byte adds to the checksum when so many bytes follow it: eight at a time are eight look-ups
/// that do not wait for each other.
static TABLES: [[u32; 256]; 8] = tables();

/// The checksum of the parts, one after the other.
pub(super) fn checksum(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(u32::MAX, |crc, part| extended(crc, part))
}

fn extended(mut crc: u32, data: &[u8]) -> u32 {
    let (eights, rest) = data.as_chunks::<8>();
    for eight in eights {
        let mixed = u64::from_le_bytes(*eight) ^ u64::from(crc);
        crc = mixed
            .to_le_bytes()
            .iter()
            .zip(TABLES.iter().rev())
            .fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
    }
    for byte in rest {
        crc = (crc >> 8) ^ TABLES[0][usize::from(crc.to_le_bytes()[0] ^ byte)];
    }
    crc
}

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut byte = 0u32;
    while byte < 256 {
        let mut crc = byte;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0xedb8_8320 * (crc & 1));
            bit += 1;
        }
        tables[0][byte as usize] = crc;
        byte += 1;
    }
    let mut entry = 256;
    while entry < 8 * 256 {
        let before = tables[entry / 256 - 1][entry % 256];
        tables[entry / 256][entry % 256] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
        entry += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standard check value, without the final inversion.
    #[test]
    fn is_the_usual_one_but_for_the_last_inversion() {
        assert_eq!(checksum(&[b"123456789"]), !0xcbf4_3926);
        assert_eq!(checksum(&[b"123", b"", b"456789"]), !0xcbf4_3926);
        assert_eq!(checksum(&[]), u32::MAX);
        // An empty entry of a volume table, as every tool for UBI knows it.
        assert_eq!(checksum(&[&[0; 168]]), 0xf116_c36b);
    }

    #[test]
    fn eight_bytes_at_a_time_are_as_one() {
        let data: Vec<u8> =
            (0..1000u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        for len in [0, 1, 7, 8, 9, 63, 64, 1000] {
            let one = data[..len].iter().map(std::slice::from_ref).collect::<Vec<_>>();
            assert_eq!(checksum(&[&data[..len]]), checksum(&one), "{len} bytes");
        }
    }
}
