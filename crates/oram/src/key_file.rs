//! The file that holds the key which all clients of a store share, as it is or sealed by a password.

use std::fmt::Write as _;
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tacita_block::NewFile;
use tacita_secret::{
    KEY_LEN, Key, NoMemory, Opening, Password, SALT_LEN, Sealing, TAG_LEN, Tag, random,
};

use crate::durable;
use crate::error::{Error, Kind, Result};

/// How a key begins that is as it is, and one that is sealed.
const PLAIN: &str = "tacita-oram-key-1 ";
const SEALED: &str = "tacita-oram-key-2 ";
/// What a stretched password is used for.
const SEALING: u8 = 1;
const SEALED_LEN: usize = SALT_LEN + KEY_LEN + TAG_LEN;
const FILE_LEN_MAX: usize = SEALED.len() + 2 * SEALED_LEN + 1;

/// What a key file holds.
#[derive(Debug)]
pub enum KeyFile {
    /// The key.
    Plain(Key),
    /// The key, which a password opens.
    Sealed(SealedKey),
}

/// A key that a password opens.
#[derive(Debug)]
pub struct SealedKey {
    salt: [u8; SALT_LEN],
    key: [u8; KEY_LEN],
    tag: Tag,
}

/// A key file that is only its maker's yet.
#[derive(Debug)]
pub struct NewKey {
    _file: File,
}

impl KeyFile {
    /// What the file at `path` holds.
    ///
    /// # Errors
    /// [`Kind::WrongKey`] if it is no key file; [`Kind::Busy`] if whoever makes it has not made its store
    /// yet, and may take it away; [`Kind::Storage`] if it cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |e: std::io::Error| Error::of_storage(path.display(), e);
        let mut text = [0; FILE_LEN_MAX + 1];
        let mut file = loop {
            let file = File::open(path).map_err(failed)?;
            // Where files cannot be locked, nobody has locked it.
            if let Err(TryLockError::WouldBlock) = file.try_lock_shared() {
                let text = format!("{}: it is just being made", path.display());
                return Err(Error::new(Kind::Busy, text));
            }
            // Another may have been put in its place meanwhile, or it may have been taken away.
            let identity = |of: Metadata| (of.dev(), of.ino());
            let opened = file.metadata().map(identity).map_err(failed)?;
            if opened == fs::metadata(path).map(identity).map_err(failed)? {
                break file;
            }
        };
        let mut len = 0;
        while len < text.len() {
            match file.read(&mut text[len..]).map_err(failed)? {
                0 => break,
                count => len += count,
            }
        }
        Self::decode(&text[..len]).ok_or_else(|| {
            Error::new(Kind::WrongKey, format!("{}: this is no key of a store", path.display()))
        })
    }

    /// From the bytes of a file; `None` if it is no key file.
    pub fn decode(text: &[u8]) -> Option<Self> {
        if let Some(digits) = text.strip_prefix(PLAIN.as_bytes()) {
            let mut bytes = bytes::<KEY_LEN>(digits)?;
            return Some(Self::Plain(Key::take(&mut bytes)));
        }
        let bytes = bytes::<SEALED_LEN>(text.strip_prefix(SEALED.as_bytes())?)?;
        let (salt, rest) = bytes.split_first_chunk()?;
        let (key, tag) = rest.split_first_chunk()?;
        Some(Self::Sealed(SealedKey { salt: *salt, key: *key, tag: tag.try_into().ok()? }))
    }

    /// Whether a password is needed.
    pub const fn is_sealed(&self) -> bool {
        matches!(self, Self::Sealed(_))
    }

    /// The key.
    ///
    /// # Errors
    /// [`Kind::WrongKey`] if it is sealed, and not by this password; [`Kind::Memory`].
    pub fn open(self, password: Option<&Password>) -> Result<Key> {
        let sealed = match self {
            Self::Plain(key) => return Ok(key),
            Self::Sealed(sealed) => sealed,
        };
        let wrong = || Error::new(Kind::WrongKey, "the password is not the key file's");
        let stretched = password.ok_or_else(wrong)?.stretch(&sealed.salt);
        let stretched = stretched.map_err(no_memory)?;
        let mut bytes = sealed.key;
        let opening = Opening::under(&stretched, SEALING, &[]);
        let opened = opening.open(0, SEALED.as_bytes(), &mut bytes, &sealed.tag);
        opened.map_err(|_| wrong())?;
        Ok(Key::take(&mut bytes))
    }
}

/// Makes a new key and a file at `path` that holds it, which only its owner can read; sealed, if there is a
/// password.
///
/// Until what comes with it is dropped nobody else reads the file, so that its maker can take it away
/// again, and no store is left whose key it was.
///
/// # Errors
/// [`Kind::Exists`] if there is such a file: it is as it was; [`Kind::Storage`]; [`Kind::Memory`].
pub fn create(path: &Path, password: Option<&Password>) -> Result<(Key, NewKey)> {
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::AlreadyExists => Error::new(Kind::Exists, format!("{}: {e}", path.display())),
        _ => Error::of_storage(path.display(), e),
    };
    let key = Key::random().map_err(failed)?;
    let text = encode(path, &key, password)?;
    let file = durable::create(path, text.as_bytes()).map_err(failed)?;
    Ok((key, NewKey { _file: file }))
}

/// Seals the key in the file at `path` by another password, or by none. Copies of the file are as they were.
///
/// # Errors
/// As [`KeyFile::read`] and [`KeyFile::open`]; [`Kind::Exists`] if it has been changed meanwhile. The file is as
/// it was then.
pub fn set_password(path: &Path, old: Option<&Password>, new: Option<&Password>) -> Result<()> {
    Change::begin(path)?.end(old, new)
}

/// A key file that is to get another password. What has its name when this is begun is what is read and replaced,
/// and nothing that comes there meanwhile, another key as little as the same one that somebody else seals.
struct Change<'a> {
    path: &'a Path,
    key: KeyFile,
    new: NewFile,
}

impl<'a> Change<'a> {
    fn begin(path: &'a Path) -> Result<Self> {
        let new = NewFile::create(path).map_err(|e| Error::of_storage(path.display(), e))?;
        Ok(Self { path, key: KeyFile::read(path)?, new })
    }

    fn end(self, old: Option<&Password>, new: Option<&Password>) -> Result<()> {
        let path = self.path;
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::AlreadyExists => Error::new(
                Kind::Exists,
                format!("{}: it has been changed meanwhile", path.display()),
            ),
            _ => Error::of_storage(path.display(), e),
        };
        let text = encode(path, &self.key.open(old)?, new)?;
        self.new.file().write_all(text.as_bytes()).map_err(failed)?;
        // What has the name is looked at, and replaced, by one at a time.
        let _alone = path.canonicalize().ok().and_then(|key| alone_in(key.parent()?));
        self.new.publish().map_err(failed)
    }
}

/// The folder, locked until it is dropped, where folders can be.
fn alone_in(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    folder.lock().ok().map(|()| folder)
}

fn encode(path: &Path, key: &Key, password: Option<&Password>) -> Result<String> {
    // In its full length from the beginning: what grows leaves copies behind.
    let mut text = String::with_capacity(FILE_LEN_MAX);
    let Some(password) = password else {
        push(&mut text, PLAIN, &[key.expose()]);
        return Ok(text);
    };
    let salt: [u8; SALT_LEN] = random().map_err(|e| Error::of_storage(path.display(), e))?;
    let stretched = password.stretch(&salt).map_err(no_memory)?;
    let mut bytes = *key.expose();
    let mut sealing = Sealing::under(&stretched, SEALING, &[]);
    let tag = sealing.seal(0, SEALED.as_bytes(), &mut bytes);
    push(&mut text, SEALED, &[&salt, &bytes, &tag]);
    Ok(text)
}

/// A line: how it begins, and bytes in hexadecimal.
fn push(text: &mut String, begin: &str, parts: &[&[u8]]) {
    text.push_str(begin);
    for byte in parts.iter().copied().flatten() {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
}

/// So many bytes from as many pairs of digits.
fn bytes<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let pairs = digits.trim_ascii_end().as_chunks::<2>();
    if pairs.0.len() != N || !pairs.1.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(pairs.0) {
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok());
        *byte = digit(digits[0])? << 4 | digit(digits[1])?;
    }
    Some(bytes)
}

fn no_memory(error: NoMemory) -> Error {
    Error::new(Kind::Memory, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Result<Key> {
        KeyFile::read(path)?.open(None)
    }

    #[test]
    fn a_key_is_read_as_it_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let (key, _) = create(&path, None).unwrap();
        assert_eq!(read(&path).unwrap().expose(), key.expose());
        assert_eq!(create(&path, None).unwrap_err().kind(), Kind::Exists);
        let long = format!("{PLAIN}{}", "a".repeat(66));
        let texts = ["", "tacita-oram-key-1 \n", "tacita-oram-key-1 zz", "anything else", &long];
        for text in texts {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), Kind::WrongKey);
        }
        assert_eq!(read(&folder.path().join("none")).unwrap_err().kind(), Kind::Storage);
    }

    /// Of two who change it at once one is told that it was the other, and no key is lost that comes in its place.
    #[test]
    fn what_changes_while_it_is_changed_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["key", "other"].map(|name| folder.path().join(name));
        let (key, _) = create(&path, None).unwrap();
        let [first, second] = [(); 2].map(|()| Change::begin(&path).unwrap());
        let password = Password::new("one".into());
        first.end(None, Some(&password)).unwrap();
        assert_eq!(second.end(None, None).unwrap_err().kind(), Kind::Exists);
        let opened = KeyFile::read(&path).unwrap().open(Some(&password)).unwrap();
        assert_eq!(opened.expose(), key.expose());
        let change = Change::begin(&path).unwrap();
        let (key, _) = create(&other, None).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(change.end(Some(&password), None).unwrap_err().kind(), Kind::Exists);
        assert_eq!(read(&path).unwrap().expose(), key.expose());
    }

    /// Whoever would give the key its name looks what has it when nobody else is doing so.
    #[test]
    fn who_changes_a_key_waits_for_who_does_so_already() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["key", "other"].map(|name| folder.path().join(name));
        drop(create(&path, None).unwrap());
        let change = Change::begin(&path).unwrap();
        let alone = alone_in(folder.path()).unwrap();
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| change.end(None, None));
            let (key, _) = create(&other, None).unwrap();
            fs::rename(&other, &path).unwrap();
            drop(alone);
            assert_eq!(changing.join().unwrap().unwrap_err().kind(), Kind::Exists);
            assert_eq!(read(&path).unwrap().expose(), key.expose());
        });
    }

    /// Its maker may take it away again, when there is no store of it.
    #[test]
    fn nobody_has_a_key_before_its_maker_has_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let (key, new) = create(&path, None).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), Kind::Busy);
        drop(new);
        assert_eq!(read(&path).unwrap().expose(), key.expose());
    }

    #[test]
    fn a_sealed_key_is_opened_by_its_password_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let password = |text: &str| Password::new(text.into());
        let open = |text: &str| KeyFile::read(&path).unwrap().open(Some(&password(text)));
        let (key, _) = create(&path, Some(&password("one"))).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(KeyFile::read(&path).unwrap().is_sealed());
        assert_eq!(open("one").unwrap().expose(), key.expose());
        assert_eq!(open("two").unwrap_err().kind(), Kind::WrongKey);
        assert_eq!(read(&path).unwrap_err().kind(), Kind::WrongKey);
        // No digit of it can be another one.
        for at in [SEALED.len() + 3, SEALED.len() + 70, text.len() - 2] {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            std::fs::write(&path, &other).unwrap();
            assert_eq!(open("one").unwrap_err().kind(), Kind::WrongKey);
        }
        std::fs::write(&path, &text[..text.len() - 3]).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), Kind::WrongKey);
        std::fs::write(&path, &text).unwrap();
        let wrong = set_password(&path, Some(&password("two")), None).unwrap_err();
        assert_eq!(wrong.kind(), Kind::WrongKey);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        set_password(&path, Some(&password("one")), Some(&password("two"))).unwrap();
        assert_eq!(open("one").unwrap_err().kind(), Kind::WrongKey);
        assert_eq!(open("two").unwrap().expose(), key.expose());
        set_password(&path, Some(&password("two")), None).unwrap();
        assert_eq!(read(&path).unwrap().expose(), key.expose());
    }
}
