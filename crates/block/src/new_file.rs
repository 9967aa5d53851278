//! A file that is there when it is finished, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::loop_device::refuse_held;

/// As many symbolic links as the kernel follows.
const LINKS_MAX: u32 = 40;

/// Characters of a name that a hidden one has, too: four bytes each at most, of 255.
const KEPT_MAX: usize = 48;

/// A regular file without a name, for its owner alone. [`NewFile::publish`] gives it its name;
/// until then it goes with the process that makes it, however that ends, and what has the name stays.
///
/// Where the file system has no files without names, it has a random one beside its own meanwhile,
/// which is left behind if the process is killed; and so it has everywhere for the moment in which it
/// takes the place of another. [`remove_left`] removes what was left.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
    /// Who had its name when it was begun; held, so that no other file is taken for it.
    before: Option<File>,
    /// The name it has meanwhile, if it must have one.
    beside: Option<PathBuf>,
}

impl NewFile {
    /// An empty file that will be called `path`; a symbolic link there is followed, also to a file that
    /// is not there yet.
    ///
    /// # Errors
    /// If the folder is not there or cannot be written; if nothing can have the name, as where it is too
    /// long; [`io::ErrorKind::InvalidInput`] if what has it is no regular file: a device would be gone, and
    /// nobody would hear of what it was to get; [`io::ErrorKind::PermissionDenied`] for a link that somebody else has
    /// put into a folder where anybody may, such as `/tmp`.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = followed(path.as_ref())?;
        match fs::metadata(&path) {
            Ok(there) if !there.is_file() => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
            }
            // A name that nothing can have is no news after all the work.
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let held = (OFlags::PATH | OFlags::CLOEXEC).bits().cast_signed();
        let before = OpenOptions::new().read(true).custom_flags(held).open(&path).ok();
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let nameless = options
            .clone()
            .custom_flags((OFlags::TMPFILE | OFlags::CLOEXEC).bits().cast_signed())
            .open(folder_of(&path));
        match nameless {
            Ok(file) => {
                lock(&file);
                Ok(Self { file, path, before, beside: None })
            }
            Err(e) if is_not_offered(&e) => {
                let beside = name_beside(&path)?;
                let file = options.create_new(true).open(&beside)?;
                lock(&file);
                Ok(Self { file, path, before, beside: Some(beside) })
            }
            Err(e) => Err(e),
        }
    }

    /// The file.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Where it will be: symbolic links have been followed.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses to take the name of a file that the kernel swaps to, which it would not let go, and of one that
    /// a loop device shows which somebody has for himself: what is in it would go with the mount.
    ///
    /// # Errors
    /// [`crate::Kind::Busy`].
    pub fn refuse_held(&self) -> crate::Result<()> {
        self.before.as_ref().map_or(Ok(()), |before| refuse_held(before, &self.path))
    }

    /// Makes the content durable, then the name, in place of what had it when the file was begun.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if another file has come since, which nothing befalls; if the
    /// disk is full or fails: then what had the name before still has it, unless the error says that the new
    /// file is there: the disk has failed only when its name was to be made durable.
    pub fn publish(mut self) -> io::Result<()> {
        match &self.before {
            Some(before) if has_name(before, &self.path) => self.take_name(),
            _ => self.take_free_name(),
        }
    }

    /// Makes the content durable, then the name, which nobody has.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if somebody has it by now, whom nothing befalls; if the disk is
    /// full or fails, as [`NewFile::publish`]. It can be tried again if the file is not there.
    pub fn take_free_name(&mut self) -> io::Result<()> {
        // Opened while nothing has been done: there may be no descriptor for it.
        let folder = File::open(folder_of(&self.path))?;
        self.file.sync_all()?;
        match &self.beside {
            Some(beside) => rename_to_free_name(beside, &self.path)?,
            None => self.link(&self.path)?,
        }
        self.beside = None;
        keep_names(&folder)
    }

    /// Makes the content durable, then the name, in place of whoever has it.
    ///
    /// # Errors
    /// As [`NewFile::publish`], but for files that have come since.
    pub(crate) fn take_name(&mut self) -> io::Result<()> {
        let folder = File::open(folder_of(&self.path))?;
        self.file.sync_all()?;
        let named = match self.beside.take() {
            Some(beside) => Some(beside),
            // In one step where nobody has the name: whoever is killed leaves nothing beside it.
            None => match self.link(&self.path) {
                Ok(()) => None,
                Err(Errno::EXIST) => {
                    let beside = name_beside(&self.path)?;
                    self.link(&beside)?;
                    Some(beside)
                }
                Err(e) => return Err(e.into()),
            },
        };
        if let Some(named) = named
            && let Err(e) = fs::rename(&named, &self.path)
        {
            self.beside = Some(named);
            return Err(e);
        }
        keep_names(&folder)
    }

    /// Gives the nameless file a name that nobody has.
    fn link(&self, path: &Path) -> rustix::io::Result<()> {
        let nameless = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(CWD, nameless, CWD, path, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(beside) = self.beside.take() {
            // It is not finished, so nobody misses it.
            let _ = fs::remove_file(beside);
        }
    }
}

/// What has failed behind a new file's name: what is so, and then why.
#[derive(Debug, thiserror::Error)]
#[error("the new file is there, and whether it keeps its name when power fails is not known: {0}")]
struct NameNotDurable(#[source] io::Error);

/// Makes the names in a folder durable, one of which is a new file's.
fn keep_names(folder: &File) -> io::Result<()> {
    folder.sync_all().map_err(|e| io::Error::new(e.kind(), NameNotDurable(e)))
}

/// Whether the file is there that could not be made as it should be.
pub(crate) fn is_there_after(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<NameNotDurable>)
}

/// Says to [`remove_left`] that somebody makes it. Where there are no locks its process does.
fn lock(file: &File) {
    let _ = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Removes what [`NewFile`]s for this name have left whose processes were killed: files of this user's
/// with such hidden names, that nobody has locked, of processes that are no more.
pub fn remove_left(path: impl AsRef<Path>) {
    let Ok(path) = followed(path.as_ref()) else { return };
    let (Some(beginning), Ok(there)) = (beginning_beside(&path), fs::read_dir(folder_of(&path)))
    else {
        return;
    };
    for entry in there.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| process_of(name.strip_prefix(&beginning)?));
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
            && is_left(&entry.path())
        {
            // What cannot be removed stays as it was.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process in the end of a hidden name; `None` if it is none of ours.
fn process_of(end: &str) -> Option<u32> {
    let (process, nanoseconds) = end.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(process) && is_number(nanoseconds)).then(|| process.parse().ok())?
}

/// Whether that is a file as we make them, which nobody has locked.
fn is_left(path: &Path) -> bool {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOATIME | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let Ok((file, meta)) = opened.and_then(|file| file.metadata().map(|meta| (file, meta))) else {
        return false;
    };
    let is_ours = meta.uid() == rustix::process::geteuid().as_raw();
    let is_plain = meta.is_file() && meta.nlink() == 1 && meta.mode() & 0o7777 == 0o600;
    is_ours
        && is_plain
        && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Gives a file or folder another name, which nobody has.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if somebody has it, whom nothing befalls; the file system's.
pub fn rename_to_free_name(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system knows it. None gives a second file a name that is taken, nor a folder
        // that of one with anything in it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if fs::symlink_metadata(from)?.is_dir() {
                return match fs::symlink_metadata(to) {
                    Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                    Err(_) => fs::rename(from, to),
                };
            }
            rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty())?;
            fs::remove_file(from)
        }
        other => Ok(other?),
    }
}

/// Where symbolic links lead, as far as there are some.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] where that is for others to say.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else { break };
        if is_planted(&path) {
            let text = "a link that another user has put there";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        path = folder_of(&path).join(target);
    }
    Ok(path.canonicalize().unwrap_or(path))
}

/// Whether a link is another user's, in a folder where anybody may put one: the kernel follows none of those
/// (`fs.protected_symlinks`), and who reads where it leads is not asked.
fn is_planted(link: &Path) -> bool {
    const ANYBODYS: u32 = 0o1002;
    let (Ok(link), Ok(folder)) = (fs::symlink_metadata(link), fs::metadata(folder_of(link))) else {
        return false;
    };
    let trusted = [rustix::process::geteuid().as_raw(), folder.uid()];
    folder.mode() & ANYBODYS == ANYBODYS && !trusted.contains(&link.uid())
}

fn is_not_offered(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::OPNOTSUPP | Errno::ISDIR))
}

/// Whether a path still is a name of this file.
pub(crate) fn has_name(file: &File, path: &Path) -> bool {
    let (Ok(here), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (here.dev(), here.ino()) == (there.dev(), there.ino())
}

/// The folder that holds a path's last name.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// A hidden name beside `path` that nobody else has chosen, and that begins like its name: a whole one may
/// be as long as names can be.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if `path` ends in no name.
pub fn name_beside(path: &Path) -> io::Result<PathBuf> {
    let beginning = beginning_beside(path).ok_or(io::ErrorKind::InvalidInput)?;
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let unique = format!("{beginning}{}-{}", std::process::id(), time.tv_nsec);
    Ok(path.with_file_name(unique))
}

/// How hidden names beside `path` begin.
fn beginning_beside(path: &Path) -> Option<String> {
    let name: String = path.file_name()?.to_string_lossy().chars().take(KEPT_MAX).collect();
    Some(format!(".{name}."))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn is_there_when_published() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        for content in [b"first", b"other"] {
            let before = names(folder.path());
            let new = NewFile::create(&path).unwrap();
            new.file().write_all(content).unwrap();
            assert_eq!(names(folder.path()), before);
            new.publish().unwrap();
            assert_eq!(names(folder.path()), ["new"]);
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        drop(NewFile::create(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"other");
        assert_eq!(names(folder.path()), ["new"]);
        assert!(NewFile::create(folder.path().join("none/new")).is_err());
    }

    /// No process has such a number: there are 2^22 at most.
    const NOBODY: u32 = (1 << 22) + 1;

    #[test]
    fn what_killed_processes_have_left_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let make = |name: &str| {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            options.open(folder.path().join(name)).unwrap()
        };
        let stays = [
            "new".to_owned(),
            format!(".new.{}-5", std::process::id()),
            format!(".new.{NOBODY}-6"),
            format!(".new.{NOBODY}-"),
            format!(".new.{NOBODY}-1a"),
            format!(".new.{NOBODY}"),
            format!(".other.{NOBODY}-1"),
            format!("new.{NOBODY}-1"),
        ];
        let held = stays.each_ref().map(|name| make(name));
        lock(&held[2]);
        let shared = make(&format!(".new.{NOBODY}-7"));
        shared.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        fs::create_dir(folder.path().join(format!(".new.{NOBODY}-8"))).unwrap();
        let mut wanted = stays.to_vec();
        wanted.extend([7, 8].map(|number| format!(".new.{NOBODY}-{number}")));
        wanted.sort();
        drop(make(&format!(".new.{NOBODY}-9")));
        remove_left(&path);
        assert_eq!(names(folder.path()), wanted);
        drop(held);
        remove_left(&path);
        wanted.retain(|name| *name != format!(".new.{NOBODY}-6"));
        assert_eq!(names(folder.path()), wanted);
    }

    #[test]
    fn what_has_come_since_it_was_begun_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("new"), folder.path().join("other"));
        for is_there in [false, true] {
            if is_there {
                fs::write(&path, "before").unwrap();
            }
            let new = NewFile::create(&path).unwrap();
            new.file().write_all(b"new").unwrap();
            fs::write(&other, "came meanwhile").unwrap();
            fs::rename(&other, &path).unwrap();
            assert_eq!(new.publish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&path).unwrap(), b"came meanwhile");
            fs::remove_file(&path).unwrap();
            assert_eq!(names(folder.path()), [""; 0]);
        }
        fs::write(&path, "goes meanwhile").unwrap();
        let new = NewFile::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        new.publish().unwrap();
        assert_eq!(names(folder.path()), ["new"]);
    }

    #[test]
    fn takes_a_free_name_only() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("new"), folder.path().join("other"));
        for is_beside in [false, true] {
            let mut new = NewFile::create(&path).unwrap();
            if is_beside && new.beside.is_none() {
                // As on a file system without nameless files.
                let beside = folder.path().join(".beside");
                new.link(&beside).unwrap();
                new.beside = Some(beside);
            }
            new.file().write_all(b"new").unwrap();
            fs::write(&path, "came meanwhile").unwrap();
            let refused = new.take_free_name().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&path).unwrap(), b"came meanwhile");
            fs::rename(&path, &other).unwrap();
            new.take_free_name().unwrap();
            drop(new);
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(names(folder.path()), ["new", "other"]);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn takes_no_name_from_what_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for there in [&pipe, folder.path()] {
            let refused = NewFile::create(there).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_name_may_be_as_long_as_names_can_be() {
        let folder = tempfile::tempdir().unwrap();
        for longest in ["n".repeat(255), "\u{20ac}".repeat(85)] {
            let path = folder.path().join(&longest);
            for content in [b"first", b"other"] {
                let new = NewFile::create(&path).unwrap();
                new.file().write_all(content).unwrap();
                new.publish().unwrap();
                assert_eq!(fs::read(&path).unwrap(), content);
            }
            assert_eq!(names(folder.path()), [longest]);
            fs::remove_file(&path).unwrap();
        }
    }

    /// That is told before there is any work, and as it is.
    #[test]
    fn what_nothing_can_be_called_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        fs::write(at("file"), "stays").unwrap();
        let too_long = "n".repeat(256);
        for (name, errno) in [
            ("loop", Errno::LOOP),
            ("file/", Errno::NOTDIR),
            ("file/below", Errno::NOTDIR),
            (&too_long, Errno::NAMETOOLONG),
        ] {
            let refused = NewFile::create(at(name)).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(errno.raw_os_error()), "{name}: {refused}");
        }
        assert_eq!(fs::read(at("file")).unwrap(), b"stays");
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        std::os::unix::fs::symlink("file", &link).unwrap();
        for content in [b"first", b"other"] {
            let new = NewFile::create(&link).unwrap();
            new.file().write_all(content).unwrap();
            new.publish().unwrap();
            assert!(link.is_symlink());
            assert_eq!(fs::read(&file).unwrap(), content);
        }
    }

    #[test]
    fn what_others_have_put_where_anybody_may_leads_nowhere() {
        use std::os::unix::fs::{PermissionsExt, lchown, symlink};
        if !rustix::process::geteuid().is_root() {
            return eprintln!(
                "SKIPPED: what_others_have_put_where_anybody_may_leads_nowhere: only root makes what is others'"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let (link, aim) = (folder.path().join("link"), folder.path().join("aim"));
        symlink("aim", &link).unwrap();
        for (mode, owner, is_followed) in
            [(0o1777, 65534, false), (0o1777, 0, true), (0o777, 65534, true), (0o1755, 65534, true)]
        {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            lchown(&link, Some(owner), None).unwrap();
            for is_there in [false, true] {
                if is_there {
                    fs::write(&aim, "").unwrap();
                }
                let made = NewFile::create(&link).map(|new| new.path().to_owned());
                match made {
                    Ok(path) if is_followed => assert_eq!(path.file_name(), aim.file_name()),
                    Err(e) if !is_followed => assert_eq!(e.kind(), io::ErrorKind::PermissionDenied),
                    made => panic!("{mode:o} {owner} {is_there}: {made:?}"),
                }
            }
            fs::remove_file(&aim).unwrap();
        }
    }
}
