//! A page of keys: sealed, with a header that tells its place and epoch.
//!
//! Each page is sealed under a key of its own, made of the master key and the page's salt. So whoever
//! has the master key can read every page that is left of any erase block, and nobody else any.

use tacita_secret::{Key, Opening, SALT_LEN, Sealing, TAG_LEN};

use crate::fields::{Fields, Malformed, Put};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 96;
const MAGIC: [u8; 8] = *b"TacKeyPg";
/// Where the tag begins: what is before it is authenticated.
const TAG_AT: usize = 64;
/// What the master key is used for.
const SEALING: u8 = 1;

/// How many keys of `key_len` bytes a page holds.
pub(crate) const fn capacity(page_len_bytes: u32, key_len: usize) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "both are shorter than a page")]
    let (header, key) = (HEADER_LEN as u32, key_len as u32);
    (page_len_bytes - header) / key
}

/// Where a page belongs, and when it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which erase block of the key storage area, from 0.
    pub leb: u32,
    /// Which page of it.
    pub page: u32,
    /// The purging epoch that began when it was written.
    pub epoch: u64,
}

/// Seals the keys that lie in `page` behind the header, in place, and writes the header.
///
/// # Panics
/// If the page is shorter than its header.
pub fn seal(master: &Key, place: Place, salt: &[u8; SALT_LEN], page: &mut [u8]) {
    let (header, keys) = page.split_at_mut(HEADER_LEN);
    let mut out = Vec::with_capacity(HEADER_LEN);
    out.put(&MAGIC);
    out.put_u32(place.leb);
    out.put_u32(place.page);
    out.put_u64(place.epoch);
    out.put(salt);
    out.put_u64(0);
    let tag = Sealing::under(master, SEALING, &[salt]).seal(0, &out, keys);
    out.put(&tag);
    out.put(&[0; HEADER_LEN - TAG_AT - TAG_LEN]);
    header.copy_from_slice(&out);
}

/// Opens a page in place: from then on the keys lie behind the header. Where it belongs is for the
/// caller to compare.
///
/// # Errors
/// [`Malformed`] if it is no page of keys under this master key.
pub fn open(master: &Key, page: &mut [u8]) -> Result<Place, Malformed> {
    let place = peek(page)?;
    let (header, keys) = page.split_at_mut(HEADER_LEN);
    let salt = &header[24..24 + SALT_LEN];
    let tag = Fields(&header[TAG_AT..]).array()?;
    Opening::under(master, SEALING, &[salt])
        .open(0, &header[..TAG_AT], keys, &tag)
        .map_err(|_| Malformed("it is not what was sealed"))?;
    Ok(place)
}

/// Where a page says that it belongs, without opening it.
///
/// # Errors
/// [`Malformed`] if it does not begin as a page of keys does.
pub fn peek(page: &[u8]) -> Result<Place, Malformed> {
    let mut fields = Fields(page.get(..HEADER_LEN).ok_or(Malformed("it is too short"))?);
    if fields.array()? != MAGIC {
        return Err(Malformed("it does not begin as a page of keys does"));
    }
    Ok(Place { leb: fields.u32()?, page: fields.u32()?, epoch: fields.u64()? })
}

/// The keys of an opened page, each `key_len` bytes long.
pub fn keys(page: &[u8], key_len: usize) -> impl Iterator<Item = &[u8]> {
    page[HEADER_LEN..].chunks_exact(key_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_opens_at_its_place_under_its_master_key_alone() {
        let master = Key::take(&mut [1; 32]);
        let place = Place { leb: 3, page: 7, epoch: 11 };
        let mut page = vec![0; 512];
        page[HEADER_LEN..].fill(0x55);
        seal(&master, place, &[4; SALT_LEN], &mut page);
        assert!(!page.windows(16).any(|window| window == [0x55; 16]));
        let mut opened = page.clone();
        assert_eq!(open(&master, &mut opened), Ok(place));
        assert_eq!(keys(&opened, 32).count(), 13);
        assert!(keys(&opened, 32).all(|key| key == [0x55; 32]));
        open(&Key::take(&mut [2; 32]), &mut page.clone()).unwrap_err();
        for at in [0, 9, 13, 17, 30, 60, 70, 100, 511] {
            let mut flipped = page.clone();
            flipped[at] ^= 1;
            assert!(open(&master, &mut flipped).is_err(), "byte {at}");
        }
    }
}
