//! Exit codes, and what is said with them: the cause, then the remedy. The table is docs/cli.md's.

use std::os::unix::fs::FileTypeExt;

use tacita_hifs::Kind;

use crate::output::shown_name;
pub(crate) use tacita_daemon::Failure;
pub(crate) use tacita_daemon::exit::*;

/// Result of a command.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// A failure of mounting or unmounting.
pub(crate) fn of_mount(error: &tacita_vfs::Error) -> Failure {
    use tacita_vfs::Kind;
    if let Some(told) = told(error) {
        return told.clone();
    }
    if let Some(daemon) = std::error::Error::source(error).and_then(|e| e.downcast_ref())
        && let tacita_daemon::Kind::NoPlace = tacita_daemon::Error::kind(daemon)
    {
        return Failure::from(daemon);
    }
    let code = match error.kind() {
        Kind::Unsupported | Kind::NotPermitted => NOT_HERE,
        Kind::Busy => BUSY,
        Kind::NotFound | Kind::NotDirectory | Kind::Invalid => USAGE,
        Kind::NoSpace | Kind::Quota => NO_SPACE,
        _ => DEVICE,
    };
    let failure = refused(code, shown_name(tacita_daemon::with_causes(error)), error);
    match error.kind() {
        Kind::NotPermitted => failure.with_remedy(
            "users other than root need a folder of their own to mount on, /dev/fuse open to them \
             (mode 0666), and for allow_other a line `user_allow_other` in /etc/fuse.conf",
        ),
        Kind::Unsupported => failure.with_remedy(INSTALL_FUSE),
        Kind::Busy => failure.or_remedy("`tacita umount DIR` first, or name another folder"),
        Kind::NotFound | Kind::NotDirectory => failure.or_remedy("name a folder that is there"),
        Kind::Invalid => failure.or_remedy("`--help` of the command tells its options"),
        _ => failure.or_remedy(MEDIUM),
    }
}

/// What is said already, with a remedy of its own: by a daemon of its end, or of what is refused.
fn told(error: &tacita_vfs::Error) -> Option<&Failure> {
    std::error::Error::source(error)?.downcast_ref()
}

/// What can be done where something fails beneath, and how does not tell more.
pub(crate) const MEDIUM: &str = "see to what it lies on: the kernel's log (`dmesg`) says more";

/// What makes mounting possible.
const INSTALL_FUSE: &str = "load the fuse module or install fuse3";

/// A failure with a mount that is there.
pub(crate) fn of_mounted(error: &tacita_vfs::Error) -> Failure {
    let failure = of_mount(error);
    if told(error).is_some() {
        return failure;
    }
    match error.kind() {
        tacita_vfs::Kind::NotPermitted => {
            failure.with_remedy("the user who has mounted it, and root, may do this")
        }
        tacita_vfs::Kind::NotFound => {
            failure.with_remedy("check the path: `tacita status` lists what is mounted")
        }
        tacita_vfs::Kind::Busy => failure.with_remedy(
            "end the programs that use it (`fuser -vm DIR` names them), and do it again",
        ),
        tacita_vfs::Kind::Stale => failure.with_remedy("mount it again: what was synced is there"),
        _ => failure,
    }
}

/// A failure of giving a mount other options, which the kernel lets root alone do: who has mounted it may
/// not.
pub(crate) fn of_remount(error: &tacita_vfs::Error) -> Failure {
    match error.kind() {
        tacita_vfs::Kind::NotPermitted => of_mount(error)
            .with_remedy("root alone may do this: unmount it, and mount it with other options"),
        _ => of_mounted(error),
    }
}

/// A failure of serving a mount to its end.
pub(crate) fn of_serving(error: &tacita_vfs::Error) -> Failure {
    use tacita_vfs::Kind;
    let failure = of_mount(error);
    match (error.kind(), tacita_daemon::remedy_for(error)) {
        (Kind::Io | Kind::NoSpace | Kind::Quota, None) => failure.with_remedy(
            "what the last sync without failure had is there; see to the cause, and mount again",
        ),
        (Kind::Io, Some(remedy)) => failure
            .with_remedy(format!("{remedy}; what the last sync without failure had is there")),
        _ => failure,
    }
}

/// A failure, with the code and what can be done where the system has refused something that tells.
pub(crate) fn refused(
    code: u8,
    text: String,
    error: &(dyn std::error::Error + 'static),
) -> Failure {
    let remedy = tacita_daemon::remedy_for(error).map(str::to_owned);
    Failure { remedy, ..Failure::new(tacita_daemon::code_for(error).unwrap_or(code), text) }
}

/// A failure of mounting; `instead` says what does without FUSE.
pub(crate) fn of_mounting(error: &tacita_vfs::Error, instead: &str) -> Failure {
    let failure = of_mount(error);
    if error.kind() != tacita_vfs::Kind::Unsupported {
        return failure;
    }
    // What fusermount3 wants otherwise has its own.
    let own = told(error).and_then(|told| told.remedy.as_deref());
    failure.with_remedy(format!("{}; {instead}", own.unwrap_or(INSTALL_FUSE)))
}

/// A failure with an image; `path` names it.
pub(crate) fn of_image(path: &std::path::Path, error: &tacita_hifs::Error) -> Failure {
    if let Some(device) = error.device() {
        return of_device(path, device);
    }
    let path = shown_name(path);
    match error.kind() {
        Kind::Geometry => Failure::usage(format!("{path}: {error}"))
            .with_remedy("`tacita hifs format --help` tells what is possible"),
        Kind::NotAnImage => Failure::new(DEVICE, format!("{path}: not a HIFS image: {error}"))
            .with_remedy("check the path; `tacita hifs format` makes an image"),
        Kind::Version => Failure::new(DEVICE, format!("{path}: {error}"))
            .with_remedy("use the version of tacita that made it"),
        Kind::NoSpace => Failure::new(NO_SPACE, format!("{path}: {error}"))
            .with_remedy("delete files, or make a larger image"),
        Kind::Interrupted => Failure::new(DEVICE, format!("{path}: {error}")).with_remedy(
            "mount it once for writing, which finishes or erases that commit; without writing `tacita hifs \
             unpack --salvage IMAGE FOLDER` takes its files",
        ),
        Kind::Damaged => Failure::new(DEVICE, format!("{path}: damaged: {error}")).with_remedy(
            "nothing has been changed; restore it from a backup, or take what is left: `tacita hifs unpack \
             --salvage IMAGE FOLDER`",
        ),
        _ => Failure::new(DEVICE, format!("{path}: {error}")).with_remedy(MEDIUM),
    }
}

/// What an error says, naming the path once.
fn naming(path: &std::path::Path, error: &dyn std::error::Error) -> String {
    let text = shown_name(tacita_daemon::with_causes(error));
    let (named, name) = (shown_name(path.display().to_string()), shown_name(path));
    if says(&text, &named) { text.replace(&named, &name) } else { format!("{name}: {text}") }
}

/// Whether a name stands in a text by itself, not as a part of a word.
fn says(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let (before, behind) =
            (text[..at].chars().next_back(), text[at + name.len()..].chars().next());
        ![before, behind].into_iter().flatten().any(char::is_alphanumeric)
    })
}

/// What is at a path that holds no image, whatever is tried.
pub(crate) fn odd_at(path: &std::path::Path) -> Option<&'static str> {
    let kind = path.metadata().ok()?.file_type();
    [
        (kind.is_dir(), "a folder"),
        (kind.is_socket(), "a socket"),
        (kind.is_fifo(), "a pipe"),
        (kind.is_char_device(), "a character device"),
    ]
    .into_iter()
    .find_map(|(is_it, what)| is_it.then_some(what))
}

/// A failure of the device or file under an image.
pub(crate) fn of_device(path: &std::path::Path, error: &tacita_block::Error) -> Failure {
    if let tacita_block::Kind::Unavailable | tacita_block::Kind::Io = error.kind()
        && let Some(odd) = odd_at(path)
    {
        return Failure::new(DEVICE, format!("{}: this is {odd}", shown_name(path)))
            .with_remedy(FILE_OR_DEVICE);
    }
    let code = match error.kind() {
        tacita_block::Kind::Busy => BUSY,
        tacita_block::Kind::NoSpace => NO_SPACE,
        tacita_block::Kind::Exists => USAGE,
        _ => DEVICE,
    };
    let text = naming(path, error);
    let failure = refused(code, text, error);
    match error.kind() {
        tacita_block::Kind::Busy => failure.or_remedy(IN_USE),
        tacita_block::Kind::Exists => failure.with_remedy(
            "it has come since this command began, and is as it was; --force overwrites it",
        ),
        tacita_block::Kind::ReadOnly => failure.with_remedy(MAKE_WRITABLE),
        tacita_block::Kind::Unavailable => failure.or_remedy(FILE_OR_DEVICE),
        tacita_block::Kind::NoSpace => failure.or_remedy("make room there"),
        _ => failure.or_remedy(MEDIUM),
    }
}

/// What an image can be.
const FILE_OR_DEVICE: &str = "name a file or a block device";

/// A failure of serving NBD clients at a socket.
pub(crate) fn of_nbd(socket: &std::path::Path, error: &tacita_nbd::Error) -> Failure {
    use tacita_nbd::Kind;
    let text = naming(socket, error);
    match error.kind() {
        Kind::Busy => Failure::new(BUSY, text).with_remedy(
            "`tacita status SOCKET` says what listens there: close that first, or give another socket",
        ),
        Kind::Invalid | Kind::Exists => Failure::usage(text).with_remedy("give another socket"),
        Kind::Unavailable => Failure::usage(text)
            .with_remedy("give a socket in a folder that is there and that you may write"),
        _ => refused(DEVICE, text, error).or_remedy("see to the cause, or give another socket"),
    }
}

/// A failure of making a file for an image.
pub(crate) fn of_new_file(path: &std::path::Path, error: &tacita_block::Error) -> Failure {
    let failure = of_device(path, error);
    match tacita_daemon::refusal_of(error).map(std::io::Error::kind) {
        Some(std::io::ErrorKind::FileTooLarge) => failure.with_remedy(
            "the file system there, or a limit (`ulimit -f`), lets no file be so long: give a smaller \
             size, or another place",
        ),
        _ => failure,
    }
}

/// A failure of opening what can be of use where it can only be read: `reading` says how.
pub(crate) fn or_reading(failure: Failure, reading: &str) -> Failure {
    if failure.remedy.as_deref() != Some(MAKE_WRITABLE) {
        return failure;
    }
    failure.with_remedy(format!("{MAKE_WRITABLE}, or {reading}"))
}

/// What to do about an image or a device that somebody else has.
const IN_USE: &str = "is it mounted? `tacita umount DIR`, or `tacita pddm close SOCKET`, first; \
                      `tacita status` with the same says where";

/// What makes a file or device writable.
const MAKE_WRITABLE: &str = "make it writable (by its mode, `chattr -i`, `mount -o remount,rw` of what it \
                             lies on, or a device by `blockdev --setrw`)";

/// A failure with a DNEFS volume; `path` names it.
pub(crate) fn of_dnefs(path: &std::path::Path, error: &tacita_dnefs::Error) -> Failure {
    use tacita_dnefs::Kind;
    if let Some(flash) = error.device() {
        return of_flash(path, flash);
    }
    let text = format!("{}: {error}", shown_name(path));
    match error.kind() {
        Kind::Parameters => Failure::usage(text)
            .with_remedy("`tacita dnefs format --help` tells what is possible"),
        Kind::NotAVolume => Failure::new(DEVICE, text)
            .with_remedy("check the path; `tacita dnefs format` makes a volume"),
        Kind::WrongPassword => Failure::new(NO_VOLUME, text)
            .with_remedy("try again, or give another volume"),
        Kind::Memory => Failure::no_memory(text),
        Kind::Ephemeral => Failure::usage(text).with_remedy(
            "mount it with --ephemeral, or make a new one with `tacita dnefs format --force`",
        ),
        Kind::NoSpace => Failure::new(NO_SPACE, text)
            .with_remedy("delete files, or make a larger volume"),
        Kind::NoKeys => Failure::new(NO_SPACE, text)
            .with_remedy("delete files, or make a volume with smaller nodes (`--node-size`), which has more keys"),
        Kind::Damaged => Failure::new(DEVICE, text).with_remedy(
            "nothing has been changed; `tacita dnefs check` tells more; restore it from a backup",
        ),
        _ => Failure::new(DEVICE, text).with_remedy(MEDIUM),
    }
}

/// A device that is not there.
pub(crate) fn no_device(path: &std::path::Path) -> Failure {
    Failure::new(DEVICE, format!("{}: there is no such device", shown_name(path))).with_remedy(
        "attach the chip to UBI with `ubiattach -p /dev/mtdN` and make a volume with `ubimkvol`",
    )
}

/// Keys of a length that no cipher has.
pub(crate) fn key_length(len_bytes: u32) -> Failure {
    Failure::usage(format!("no cipher has keys of {len_bytes} bytes"))
        .with_remedy("give --key 16 or --key 32")
}

/// A failure of the flash under a volume.
pub(crate) fn of_flash(path: &std::path::Path, error: &tacita_flash::Error) -> Failure {
    use tacita_flash::Kind;
    if error.kind() == Kind::Unavailable && path.starts_with("/dev") && !path.exists() {
        return no_device(path);
    }
    if let Kind::Unavailable | Kind::Io = error.kind()
        && let Some(odd) = odd_at(path).filter(|_| !crate::dnefs::is_device(path))
    {
        return Failure::new(DEVICE, format!("{}: this is {odd}", shown_name(path)))
            .with_remedy(FILE_OR_UBI);
    }
    let text = naming(path, error);
    match error.kind() {
        Kind::Busy => refused(BUSY, text, error).or_remedy(IN_USE),
        Kind::ReadOnly => Failure::new(DEVICE, text).with_remedy(MAKE_WRITABLE),
        Kind::OutOfRange => {
            Failure::usage(text).with_remedy("`tacita dnefs format --help` tells what is possible")
        }
        Kind::NoSpace => refused(NO_SPACE, text, error).or_remedy("make room there"),
        Kind::Corrupt => Failure::new(DEVICE, text).with_remedy(
            "check the path, that a copy has its whole length, and that tacita is as new as what made it",
        ),
        Kind::Unavailable => refused(DEVICE, text, error).or_remedy(FILE_OR_UBI),
        _ => refused(DEVICE, text, error).or_remedy(MEDIUM),
    }
}

/// What a volume can be.
const FILE_OR_UBI: &str =
    "name a file that `tacita dnefs format` has made, or a device /dev/ubiX_Y";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_ends_without_room_or_keys_says_so() {
        for kind in [tacita_vfs::Kind::NoSpace, tacita_vfs::Kind::Quota] {
            let failure = of_serving(&tacita_vfs::Error::new(kind, "the final sync failed"));
            assert_eq!(failure.code, NO_SPACE);
            assert!(failure.remedy.unwrap().contains("last sync without failure"));
        }
    }

    #[test]
    fn a_name_is_told_also_where_its_letters_stand_in_words() {
        let error = std::io::Error::other("no image of flash memory");
        let told = |name: &str| naming(std::path::Path::new(name), &error);
        for name in ["i", "flash memory.img", "lash"] {
            assert_eq!(told(name), format!("{name}: no image of flash memory"));
        }
        let opening = std::io::Error::other("cannot open i: not there");
        assert_eq!(naming(std::path::Path::new("i"), &opening), "cannot open i: not there");
    }

    #[test]
    fn who_has_mounted_something_is_not_sent_to_do_what_root_alone_may() {
        let refused = tacita_vfs::Error::new(tacita_vfs::Kind::NotPermitted, "/mnt: not permitted");
        let (remedy, unmount) = (of_remount(&refused).remedy, of_mounted(&refused).remedy);
        assert!(remedy.is_some_and(|remedy| remedy.starts_with("root alone may do this")));
        assert!(unmount.is_some_and(|remedy| remedy.starts_with("the user who has mounted it")));
    }
    #[test]
    fn what_fusermount_wants_is_told_beside_what_does_without_it() {
        let refused = Failure::new(NOT_HERE, "no entry").with_remedy("make an entry");
        let error = || tacita_vfs::Error::new(tacita_vfs::Kind::Unsupported, "no entry");
        let remedy = |error: tacita_vfs::Error| of_mounting(&error, "or unpack it").remedy.unwrap();
        assert_eq!(remedy(error()), format!("{INSTALL_FUSE}; or unpack it"));
        assert_eq!(remedy(error().because(refused)), "make an entry; or unpack it");
    }
}
