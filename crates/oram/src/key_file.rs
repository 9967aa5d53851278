//! The file that holds the key which all clients of a store share.

use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;

use tacita_secret::{KEY_LEN, Key};

use crate::durable;
use crate::error::{Error, Kind, Result};

const PREFIX: &str = "tacita-oram-key-1 ";
const FILE_LEN: usize = PREFIX.len() + 2 * KEY_LEN + 1;

/// The key in the file at `path`.
///
/// # Errors
/// [`Kind::WrongKey`] if the file holds none; [`Kind::Storage`] if it cannot be read.
pub fn read(path: &Path) -> Result<Key> {
    let failed = |e: std::io::Error| storage(path, &e);
    let mut text = [0; FILE_LEN + 1];
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut len = 0;
    while len < text.len() {
        match file.read(&mut text[len..]).map_err(failed)? {
            0 => break,
            count => len += count,
        }
    }
    let digits = text[..len].strip_prefix(PREFIX.as_bytes()).map(<[u8]>::trim_ascii_end);
    let key = digits.filter(|digits| digits.len() == 2 * KEY_LEN).and_then(|digits| {
        let mut bytes = [0; KEY_LEN];
        for (byte, digits) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            let digits = std::str::from_utf8(digits).ok()?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(Key::take(&mut bytes))
    });
    key.ok_or_else(|| {
        Error::new(Kind::WrongKey, format!("{}: this is no key of a store", path.display()))
    })
}

/// Makes a new key and a file at `path` that holds it, which only its owner can read.
///
/// # Errors
/// [`Kind::Storage`], also if there is such a file: it is as it was.
pub fn create(path: &Path) -> Result<Key> {
    let failed = |e: std::io::Error| storage(path, &e);
    let key = Key::random().map_err(failed)?;
    let mut text = PREFIX.to_owned();
    for byte in key.expose() {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
    durable::create(path, text.as_bytes()).map_err(failed)?;
    Ok(key)
}

fn storage(path: &Path, error: &std::io::Error) -> Error {
    Error::new(Kind::Storage, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = create(&path).unwrap();
        assert_eq!(read(&path).unwrap().expose(), key.expose());
        assert_eq!(create(&path).unwrap_err().kind(), Kind::Storage);
        for text in ["", "tacita-oram-key-1 \n", "tacita-oram-key-1 zz", "anything else"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), Kind::WrongKey);
        }
        assert_eq!(read(&folder.path().join("none")).unwrap_err().kind(), Kind::Storage);
    }
}
