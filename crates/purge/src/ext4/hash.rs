//! How ext4 finds the block of an indexed folder that a name belongs to.
//!
//! Only for names of the letters that fillers are made of: those are the same folded, and whether
//! bytes have a sign makes no difference.

use std::array::from_fn;

/// What hashes begin with where the file system has no seed.
const SEED_DEFAULT: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// No hash is as large: it would mean the end of a folder.
const END: u32 = 0x7fff_ffff << 1;

/// A way to hash, by its number in the head of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    /// Half of MD4, the default.
    HalfMd4,
    /// The Tiny Encryption Algorithm.
    Tea,
}

impl Hash {
    /// By its number; `None` for what is not known here.
    pub(super) const fn of(number: u8) -> Option<Self> {
        match number {
            1 | 4 => Some(Self::HalfMd4),
            2 | 5 => Some(Self::Tea),
            _ => None,
        }
    }

    /// The hash of a name.
    pub(super) fn name(self, seed: [u32; 4], name: &[u8]) -> u32 {
        let mut state = if seed == [0; 4] { SEED_DEFAULT } else { seed };
        let chunk_len = if self == Self::HalfMd4 { 32 } else { 16 };
        for (index, chunk) in name.chunks(chunk_len).enumerate() {
            let left = name.len() - index * chunk_len;
            match self {
                Self::HalfMd4 => half_md4(&mut state, &words(chunk, left)),
                Self::Tea => tea(&mut state, &words(chunk, left)),
            }
        }
        let hash = match self {
            Self::HalfMd4 => state[1],
            Self::Tea => state[0],
        } & !1;
        if hash == END { END - 2 } else { hash }
    }
}

/// A chunk of a name as numbers, filled up with the length of what was left of the name.
fn words<const COUNT: usize>(chunk: &[u8], left: usize) -> [u32; COUNT] {
    let len = u32::try_from(left).unwrap_or(u32::MAX);
    let pad = (len | len << 8) | (len | len << 8) << 16;
    let mut parts = chunk.chunks(4);
    from_fn(|_| {
        let part = parts.next().unwrap_or_default();
        part.iter().fold(pad, |word, byte| (word << 8).wrapping_add(u32::from(*byte)))
    })
}

fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    const ORDERS: [[usize; 8]; 3] =
        [[0, 1, 2, 3, 4, 5, 6, 7], [1, 3, 5, 7, 0, 2, 4, 6], [3, 7, 2, 6, 1, 5, 0, 4]];
    const SHIFTS: [[u32; 4]; 3] = [[3, 7, 11, 19], [3, 5, 9, 13], [3, 9, 11, 15]];
    const CONSTANTS: [u32; 3] = [0, 0x5a82_7999, 0x6ed9_eba1];
    let mix = |round: usize, x: u32, y: u32, z: u32| match round {
        0 => z ^ (x & (y ^ z)),
        1 => (x & y).wrapping_add((x ^ y) & z),
        _ => x ^ y ^ z,
    };
    let mut s = *state;
    for round in 0..3 {
        for (turn, word) in ORDERS[round].into_iter().enumerate() {
            // a, d, c, b take turns.
            let at = (4 - turn % 4) % 4;
            let [x, y, z] = [1, 2, 3].map(|next| s[(at + next) % 4]);
            let sum = s[at]
                .wrapping_add(mix(round, x, y, z))
                .wrapping_add(words[word])
                .wrapping_add(CONSTANTS[round]);
            s[at] = sum.rotate_left(SHIFTS[round][turn % 4]);
        }
    }
    for (old, new) in state.iter_mut().zip(s) {
        *old = old.wrapping_add(new);
    }
}

fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    const DELTA: u32 = 0x9E37_79B9;
    let (mut one, mut two, mut sum) = (state[0], state[1], 0_u32);
    let half = |other: u32, sum: u32, a: u32, b: u32| {
        (other << 4).wrapping_add(a) ^ other.wrapping_add(sum) ^ (other >> 5).wrapping_add(b)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        one = one.wrapping_add(half(two, sum, key[0], key[1]));
        two = two.wrapping_add(half(one, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(one);
    state[1] = state[1].wrapping_add(two);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `dx_hash` of debugfs says, with the seed 01234567-89ab-cdef-0123-456789abcdef.
    #[test]
    fn hashes_are_those_of_the_file_system() {
        let seed = [0x6745_2301, 0xefcd_ab89, 0x6745_2301, 0xefcd_ab89];
        let long = "averylongnameofmorethanthirtytwocharacters0123";
        let known = [
            (Hash::HalfMd4, "a", 0x35dc_0cc4),
            (Hash::Tea, "a", 0x6d0e_a4c0),
            (Hash::HalfMd4, "hello", 0xa26e_4a80),
            (Hash::Tea, "hello", 0x6f5b_b1a8),
            (Hash::HalfMd4, long, 0x90ae_a68a),
            (Hash::Tea, long, 0xc185_4770),
        ];
        for (hash, name, expected) in known {
            assert_eq!(hash.name(seed, name.as_bytes()), expected, "{hash:?} of {name}");
        }
        assert_eq!(Hash::HalfMd4.name([0; 4], b"hello"), 0x1746_da32, "without a seed");
    }
}
