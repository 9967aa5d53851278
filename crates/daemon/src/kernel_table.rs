//! Tables of the kernel that name files, such as those of mounts and of swap: names are any bytes, in
//! UTF-8 or not.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Number of the mount.
    pub id: u64,
    /// Number of the mounted file system, as in `0:42`.
    pub device: String,
    /// Where it is mounted.
    pub place: PathBuf,
    /// Type of the file system, as in `fuse.tacita-hifs`.
    pub kind: String,
    /// What is mounted, as whoever mounts it has said.
    pub source: OsString,
    /// Options of this mount, as in `rw,noatime`.
    pub options: String,
    /// Options of the file system, as in `rw,user_id=1000`.
    pub options_of_all: String,
}

impl Mount {
    /// The user who has mounted it, if it is a file system in user space.
    #[must_use]
    pub fn mounter(&self) -> Option<u32> {
        let mut options = self.options_of_all.split(',');
        options.find_map(|option| option.strip_prefix("user_id="))?.parse().ok()
    }
}

/// The mounts of a table such as `/proc/self/mountinfo`; what lies on top comes last.
pub fn mounts(table: &[u8]) -> impl DoubleEndedIterator<Item = Mount> {
    table.split(|byte| *byte == b'\n').filter_map(mount)
}

fn mount(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    // Between them there are as many fields as it has relations with others.
    let end = fields.iter().position(|field| *field == b"-")?;
    let (of_mount, of_all) = (&fields[..end], &fields[end + 1..]);
    Some(Mount {
        id: text(of_mount.first()?).parse().ok()?,
        device: text(of_mount.get(2)?),
        place: unescaped(of_mount.get(4)?).into(),
        kind: text(of_all.first()?),
        source: unescaped(of_all.get(1)?),
        options: text(of_mount.get(5)?),
        options_of_all: text(of_all.get(2)?),
    })
}

/// The name in a field of a table, where three octal digits stand for a blank, the end of a line and
/// the like.
#[must_use]
pub fn unescaped(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| *first == b'\\');
        let escaped = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = escaped.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &behind[3..] } else { behind };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn names_of_all_kinds() {
        let name = |field: &[u8]| unescaped(field).as_bytes().to_vec();
        assert_eq!(name(br"/a\040b\134c\012\043"), b"/a b\\c\n#");
        assert_eq!(name(br"\1\0400\"), br"\1 0\");
        assert_eq!(name(br"\9x"), br"\9x");
        assert_eq!(name(b"/\xff\\040\xfe"), b"/\xff \xfe");
    }

    #[test]
    fn one_name_that_is_not_utf_8_hides_nothing() {
        let table = b"28 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw,discard\n\
            31 28 0:7 / /m\xff rw - tmpfs none rw\n\
            104 28 0:42 / /a\\040b\\012 rw,nosuid shared:2 master:1 - fuse.x /a\\043 rw,user_id=7\n";
        let all: Vec<Mount> = mounts(table).collect();
        assert_eq!(all.iter().map(|mount| mount.id).collect::<Vec<_>>(), [28, 31, 104]);
        assert_eq!(all[1].place.as_os_str().as_bytes(), b"/m\xff");
        let wanted = Mount {
            id: 104,
            device: "0:42".to_owned(),
            place: "/a b\n".into(),
            kind: "fuse.x".to_owned(),
            source: "/a#".into(),
            options: "rw,nosuid".to_owned(),
            options_of_all: "rw,user_id=7".to_owned(),
        };
        assert_eq!(all[2], wanted);
        assert_eq!(all.iter().map(Mount::mounter).collect::<Vec<_>>(), [None, None, Some(7)]);
        assert_eq!(mounts(b"").next(), None);
        assert_eq!(mounts(b"28 1 8:1 / / rw\nx - y").next(), None);
    }
}
