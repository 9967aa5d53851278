//! What Tacita's systems use of cryptography, and nothing else names a cipher crate.
//!
//! Here: the one pseudo-random function ([`Prf`], keyed BLAKE3), the one checksum ([`digest`],
//! BLAKE3), the fingerprint that people compare with other tools ([`sha256`]) and the random source
//! of the operating system ([`random`]).

#![forbid(unsafe_code)]

mod prf;

pub use prf::{Digest, Prf, digest};

/// SHA-256 of `bytes`: what `sha256sum` prints. For comparing by hand only; it is the slower one.
pub fn sha256(bytes: &[u8]) -> Digest {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).into()
}

/// `N` bytes from the random source of the operating system.
///
/// # Errors
/// If the operating system has no random source.
pub fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}
