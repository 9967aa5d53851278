//! The superblock: what a volume is, and the key under which its keys lie.

use tacita_secret::{
    Key, NoMemory, OneTimeCipher, Opening, Password, SALT_LEN, Sealing, TAG_LEN, Tag, random,
};

use crate::Compression;
use crate::fields::{Fields, Malformed, Put};
use crate::layout::Layout;

const MAGIC: [u8; 8] = *b"TacDNEFS";
const VERSION: u32 = 1;
/// Length of what is stored in bytes; the rest of the page is zero.
const LEN: usize = 160;
/// Where the part begins that the master key is sealed with.
const CONTEXT: std::ops::Range<usize> = 24..80;
/// Length of a volume's name in bytes.
pub const UUID_LEN: usize = 16;
/// Length of the master key in bytes.
pub const MASTER_LEN: usize = 32;
/// What a stretched password is used for.
const WRAPPING: u8 = 1;

/// How nodes are encrypted.
pub type CipherChoice = OneTimeCipher;

const fn cipher_number(cipher: CipherChoice) -> u8 {
    match cipher {
        OneTimeCipher::Aes128Ctr => 1,
        OneTimeCipher::Aes128Gcm => 2,
        OneTimeCipher::Aes256Gcm => 3,
    }
}

const fn cipher_from(number: u8) -> Result<CipherChoice, Malformed> {
    match number {
        1 => Ok(OneTimeCipher::Aes128Ctr),
        2 => Ok(OneTimeCipher::Aes128Gcm),
        3 => Ok(OneTimeCipher::Aes256Gcm),
        _ => Err(Malformed("its cipher is unknown")),
    }
}

/// What is chosen when a volume is made, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Its name.
    pub uuid: [u8; UUID_LEN],
    /// Length of a logical erase block in bytes.
    pub leb_len_bytes: u32,
    /// How many there are.
    pub lebs: u32,
    /// Length of a page in bytes.
    pub page_len_bytes: u32,
    /// Erase blocks of the key storage area.
    pub key_lebs: u32,
    /// Most bytes of a file in one data node.
    pub node_len_bytes: u32,
    /// How nodes are encrypted.
    pub cipher: CipherChoice,
    /// How they are compressed before that.
    pub compression: Compression,
}

/// How the master key lies in the superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// As it is: whoever has the volume reads what is not deleted.
    Clear,
    /// Sealed under a password.
    Password,
    /// Not at all: keys are in memory only, and nothing outlives the mount.
    Memory,
}

/// Why a password does not open the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// It is another one.
    #[error("the password does not open this volume")]
    WrongPassword,
    /// It could not be tried.
    #[error("{0}")]
    NoMemory(NoMemory),
}

/// What a volume is. Both superblocks hold the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// What was chosen when it was made.
    pub parameters: Parameters,
    /// How the master key is protected.
    pub protection: Protection,
    /// Grows with every change of the superblock.
    pub generation: u64,
    salt: [u8; SALT_LEN],
    master: [u8; MASTER_LEN],
    tag: Tag,
}

/// A superblock and its master key.
#[derive(Debug)]
pub struct Unlocked {
    /// The superblock.
    pub superblock: Superblock,
    /// The key under which key pages are sealed.
    pub master: Key,
}

impl Superblock {
    /// A superblock of these parameters with `master` under `password`, if there is one.
    ///
    /// # Errors
    /// If the operating system has no random source; `OutOfMemory` for a password if there is not enough.
    pub fn new(
        parameters: Parameters,
        generation: u64,
        master: &Key,
        password: Option<&Password>,
    ) -> std::io::Result<Self> {
        let protection = if password.is_some() { Protection::Password } else { Protection::Clear };
        let mut superblock = Self {
            parameters,
            protection,
            generation,
            salt: random()?,
            master: *master.expose(),
            tag: [0; TAG_LEN],
        };
        if let Some(password) = password {
            let context = superblock.encode();
            let stretched = password.stretch(&superblock.salt)?;
            let mut sealing = Sealing::under(&stretched, WRAPPING, &[]);
            superblock.tag = sealing.seal(0, &context[CONTEXT], &mut superblock.master);
        }
        Ok(superblock)
    }

    /// A superblock without a master key.
    pub const fn ephemeral(parameters: Parameters, generation: u64) -> Self {
        Self {
            parameters,
            protection: Protection::Memory,
            generation,
            salt: [0; SALT_LEN],
            master: [0; MASTER_LEN],
            tag: [0; TAG_LEN],
        }
    }

    /// The master key.
    ///
    /// # Errors
    /// [`Closed::WrongPassword`], also if there is none where one is needed, and if the key was in memory
    /// only; [`Closed::NoMemory`].
    pub fn unlock(self, password: Option<&Password>) -> Result<Unlocked, Closed> {
        let mut bytes = self.master;
        if self.protection == Protection::Memory {
            return Err(Closed::WrongPassword);
        }
        if self.protection == Protection::Password {
            let stretched = password.ok_or(Closed::WrongPassword)?.stretch(&self.salt);
            let stretched = stretched.map_err(Closed::NoMemory)?;
            Opening::under(&stretched, WRAPPING, &[])
                .open(0, &self.encode()[CONTEXT], &mut bytes, &self.tag)
                .map_err(|_| Closed::WrongPassword)?;
        }
        Ok(Unlocked { superblock: self, master: Key::take(&mut bytes) })
    }

    /// The first bytes of its page.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LEN);
        out.put(&MAGIC);
        out.put_u32(0);
        out.put_u32(VERSION);
        out.put_u64(self.generation);
        out.put(&self.parameters.uuid);
        out.put_u32(self.parameters.leb_len_bytes);
        out.put_u32(self.parameters.lebs);
        out.put_u32(self.parameters.page_len_bytes);
        out.put_u32(self.parameters.key_lebs);
        out.put_u32(self.parameters.node_len_bytes);
        out.put_u8(cipher_number(self.parameters.cipher));
        out.put_u8(self.parameters.compression.number());
        out.put_u8(match self.protection {
            Protection::Clear => 0,
            Protection::Password => 1,
            Protection::Memory => 2,
        });
        out.put(&[0; 17]);
        out.put(&self.salt);
        out.put(&self.master);
        out.put(&self.tag);
        let crc = crc32fast::hash(&out);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// From the first bytes of its page.
    ///
    /// # Errors
    /// [`Malformed`] if they are no superblock of this version.
    pub fn decode(page: &[u8]) -> Result<Self, Malformed> {
        let page = page.get(..LEN).ok_or(Malformed("it is too short"))?;
        let mut fields = Fields(page);
        if fields.array()? != MAGIC {
            return Err(Malformed("it does not begin as a superblock does"));
        }
        let crc = fields.u32()?;
        let mut zeroed = page.to_vec();
        zeroed[8..12].fill(0);
        if crc32fast::hash(&zeroed) != crc {
            return Err(Malformed("its checksum is wrong"));
        }
        if fields.u32()? != VERSION {
            return Err(Malformed("its format version is unknown to this program"));
        }
        let generation = fields.u64()?;
        let uuid = fields.array()?;
        let parameters = Parameters {
            uuid,
            leb_len_bytes: fields.u32()?,
            lebs: fields.u32()?,
            page_len_bytes: fields.u32()?,
            key_lebs: fields.u32()?,
            node_len_bytes: fields.u32()?,
            cipher: cipher_from(fields.u8()?)?,
            compression: Compression::from_number(fields.u8()?)?,
        };
        let protection = match fields.u8()? {
            0 => Protection::Clear,
            1 => Protection::Password,
            2 => Protection::Memory,
            _ => return Err(Malformed("its protection is unknown")),
        };
        fields.bytes(17)?;
        Layout::new(&parameters)?;
        Ok(Self {
            parameters,
            protection,
            generation,
            salt: fields.array()?,
            master: fields.array()?,
            tag: fields.array()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        Parameters {
            uuid: [5; UUID_LEN],
            leb_len_bytes: 63 * 2048,
            lebs: 100,
            page_len_bytes: 2048,
            key_lebs: 2,
            node_len_bytes: 4096,
            cipher: OneTimeCipher::Aes256Gcm,
            compression: Compression::Lz4,
        }
    }

    #[test]
    fn comes_back_from_its_bytes_with_its_master_key() {
        let master = Key::take(&mut [9; 32]);
        let password = Password::new(b"correct".to_vec());
        for password in [None, Some(&password)] {
            let superblock = Superblock::new(parameters(), 3, &master, password).unwrap();
            let bytes = superblock.encode();
            assert_eq!(bytes.len(), LEN);
            assert_eq!(bytes.windows(32).any(|w| w == [9; 32]), password.is_none());
            let back = Superblock::decode(&bytes).unwrap();
            assert_eq!(back, superblock);
            assert_eq!(back.unlock(password).unwrap().master.expose(), master.expose());
        }
    }

    #[test]
    fn an_ephemeral_one_has_no_key() {
        let superblock = Superblock::ephemeral(parameters(), 4);
        assert_eq!(Superblock::decode(&superblock.encode()).unwrap(), superblock);
        superblock.unlock(None).unwrap_err();
    }

    #[test]
    fn another_password_none_and_other_parameters_open_nothing() {
        let master = Key::take(&mut [9; 32]);
        let password = Password::new(b"correct".to_vec());
        let superblock = Superblock::new(parameters(), 3, &master, Some(&password)).unwrap();
        let wrong = Password::new(b"wrong".to_vec());
        superblock.clone().unlock(Some(&wrong)).unwrap_err();
        superblock.clone().unlock(None).unwrap_err();
        let mut other = superblock;
        other.parameters.key_lebs += 1;
        other.unlock(Some(&password)).unwrap_err();
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let master = Key::take(&mut [9; 32]);
        let bytes = Superblock::new(parameters(), 3, &master, None).unwrap().encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            Superblock::decode(&flipped).unwrap_err();
        }
    }
}
