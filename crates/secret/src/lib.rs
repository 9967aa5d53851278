//! What Tacita's systems use of cryptography, and nothing else names a cipher crate.
//!
//! Here: the one pseudo-random function ([`Prf`], keyed BLAKE3), the one checksum ([`digest`],
//! BLAKE3), the fingerprint that people compare with other tools ([`sha256`]), the random source of
//! the operating system ([`random`]), keys ([`Key`]) and the way from a password to one
//! ([`Password`], Argon2id), authenticated encryption of numbered slots ([`Sealing`], [`Opening`], [`Openings`],
//! AES-256-GCM), of messages that have a key each ([`FreshKey`], [`MessageKey`]) and of what lies at
//! places ([`Places`]), and what cannot be told from them ([`Noise`], AES-256-CTR).

#[cfg(not(feature = "faults"))]
#[allow(unreachable_pub, reason = "public with the feature only")]
mod faults;
#[cfg(feature = "faults")]
pub mod faults;
mod gcm;
mod key;
mod locked;
mod mapping;
mod noise;
mod one_time;
mod password;
mod places;
mod prf;
mod sealing;
mod slab;

pub use key::{KEY_LEN, Key};
pub use locked::LockedBytes;
pub use mapping::keys_are_locked;
pub use noise::Noise;
pub use one_time::{
    CHECK_VALUE_LEN, CheckValue, ENCRYPTS, FreshKey, MessageKey, OneTimeCipher, Traces,
    check_value_of,
};
pub use password::{NoMemory, Password, SALT_LEN};
pub use places::{PLACE_LEN, Places};
pub use prf::{Digest, Prf, digest, digest_of};
pub use sealing::{Counted, Forged, OneOpening, Opening, Openings, Sealing, TAG_LEN, Tag};

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
