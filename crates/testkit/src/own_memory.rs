//! Searching the memory of the process itself: what a core dump would show, and more.

use std::fmt;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

/// Bytes that are read at once.
const PART_LEN: usize = 1 << 20;

/// Something that was found.
#[derive(Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where it lies.
    pub address: usize,
    /// The mapping in which it lies, as `/proc/self/maps` has it.
    pub mapping: String,
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x} in {}", self.address, self.mapping)
    }
}

/// Every place in writable memory from which on `N` bytes are what is looked for.
///
/// # Panics
/// If the system does not show the process its own memory.
pub fn search<const N: usize>(is_it: impl Fn(&[u8; N]) -> bool) -> Vec<Finding> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("it can be read");
    let memory = File::open("/proc/self/mem").expect("it can be read");
    let mut findings = Vec::new();
    let mut part = vec![0; PART_LEN];
    let own = part.as_ptr_range();
    let own = own.start as usize..own.end as usize;
    for mapping in maps.lines().filter(|line| line.contains(" rw") && !line.contains("[v")) {
        let (start, rest) = mapping.split_once('-').expect("a range");
        let end = rest.split(' ').next().expect("a range");
        let number = |text| usize::from_str_radix(text, 16).expect("an address");
        let (mut at, end) = (number(start), number(end));
        // Parts overlap, so that nothing lies across two.
        while at + N <= end {
            let len = PART_LEN.min(end - at);
            if memory.read_exact_at(&mut part[..len], at as u64).is_ok() {
                for (offset, window) in part[..len].windows(N).enumerate() {
                    let address = at + offset;
                    // What was just read is not what is looked for.
                    if !own.contains(&address) && is_it(window.try_into().expect("as long")) {
                        findings.push(Finding { address, mapping: mapping.to_owned() });
                    }
                }
            }
            at += len - (N - 1);
        }
        part.fill(0);
    }
    findings
}

/// Does something so deep on the stack that what it leaves there is not overwritten by whoever looks
/// for it.
#[inline(never)]
#[allow(clippy::large_stack_arrays, reason = "that is what it is for")]
pub fn deep<T>(act: impl FnOnce() -> T) -> T {
    let mut above = [0u8; 256 << 10];
    black_box(&mut above);
    let done = act();
    black_box(&mut above);
    done
}

/// Length of what [`is_key_schedule`] looks at.
pub const SCHEDULE_LEN: usize = 48;

/// Whether these bytes are three round keys of AES-256, one after the other: with two of them the
/// whole key can be computed. Random bytes are not, but for one case in 2^125.
///
/// FIPS 197, section 5.2.
pub fn is_key_schedule(bytes: &[u8; SCHEDULE_LEN]) -> bool {
    let word = |n: usize| -> [u8; 4] { bytes[4 * n..4 * n + 4].try_into().expect("a word") };
    let sum = |a: [u8; 4], b: [u8; 4]| [a[0] ^ b[0], a[1] ^ b[1], a[2] ^ b[2], a[3] ^ b[3]];
    if bytes[32..] == [0; 16] || (9..12).any(|n| word(n) != sum(word(n - 8), word(n - 1))) {
        return false;
    }
    let (step, last) = (sum(word(8), word(0)), word(7).map(|byte| SUBSTITUTES[usize::from(byte)]));
    let turned = sum(step, [last[1], last[2], last[3], last[0]]);
    let constant = turned[1..] == [0; 3] && turned[0].is_power_of_two();
    step == last || constant
}

/// The S-box of AES.
#[allow(clippy::cast_possible_truncation, reason = "a byte")]
const SUBSTITUTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        // The inverse is the 254th power.
        let (mut inverse, mut power) = (byte as u8, 1);
        while power < 254 {
            inverse = times(inverse, byte as u8);
            power += 1;
        }
        table[byte] = inverse
            ^ inverse.rotate_left(1)
            ^ inverse.rotate_left(2)
            ^ inverse.rotate_left(3)
            ^ inverse.rotate_left(4)
            ^ 0x63;
        byte += 1;
    }
    table
};

const fn times(a: u8, b: u8) -> u8 {
    let (mut product, mut factor, mut bit) = (0, a, 0);
    while bit < 8 {
        if b >> bit & 1 == 1 {
            product ^= factor;
        }
        factor = (factor << 1) ^ if factor & 0x80 == 0 { 0 } else { 0x1b };
        bit += 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 197, appendix A.3: words 4 to 19.
    #[test]
    fn the_published_schedule_is_one() {
        let words: [u32; 16] = [
            0x1f35_2c07,
            0x3b61_08d7,
            0x2d98_10a3,
            0x0914_dff4,
            0x9ba3_5411,
            0x8e69_25af,
            0xa51a_8b5f,
            0x2067_fcde,
            0xa8b0_9c1a,
            0x93d1_94cd,
            0xbe49_846e,
            0xb75d_5b9a,
            0xd59a_ecb8,
            0x5bf3_c917,
            0xfee9_4248,
            0xde8e_be96,
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let found: Vec<usize> = (0..=bytes.len() - SCHEDULE_LEN)
            .filter(|at| is_key_schedule(bytes[*at..][..SCHEDULE_LEN].try_into().expect("48")))
            .collect();
        assert_eq!(found, [0, 16]);
        bytes[5] ^= 1;
        assert!(!is_key_schedule(bytes[..SCHEDULE_LEN].try_into().expect("48")));
        assert!(!is_key_schedule(&[0; SCHEDULE_LEN]));
    }

    #[test]
    fn what_is_there_is_found() {
        let hidden: Vec<u8> = (0..64u8).map(|n| n.wrapping_mul(37) ^ 0x5a).collect();
        let wanted =
            |bytes: &[u8; 64]| (0..).zip(bytes).all(|(n, b)| *b == u8::wrapping_mul(n, 37) ^ 0x5a);
        let found = search(wanted);
        assert!(found.iter().any(|f| f.address == hidden.as_ptr() as usize), "{found:?}");
    }
}
