//! A folder that is there when it is finished, or not at all.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use tacita_block::{name_beside, rename_to_free_name};
use tacita_daemon::Interrupts;

use crate::output::shown_name;
use crate::{exit, output};

/// How often taking away what somebody may still be filling is tried again, where it fails otherwise
/// than by what has come there.
const FAILURES_MAX: u32 = 100;

/// Permissions of what its owner may do anything with.
const OWN: u32 = 0o700;

/// Longest list of extended attributes, and longest value, in bytes: those of Linux.
const ATTRIBUTE_LEN_MAX: usize = 64 << 10;

/// A hidden folder, which [`NewFolder::publish`] gives its name, and makes durable. It goes when this is dropped, and
/// with a signal that ends the process; only a kill leaves it, under its hidden name.
///
/// What it is in may be somebody else's, who can give names there to anything: so it is reached by no name.
#[derive(Debug)]
pub(crate) struct NewFolder {
    hidden: PathBuf,
    folder: PathBuf,
    /// Whether the folder was there, and it is within.
    is_within: bool,
    /// The hidden folder, and what it is in, by which all is made durable.
    made: fs::File,
    above: fs::File,
    /// Held by whoever makes it, gives it its name, or takes it away for good.
    fate: Arc<Mutex<()>>,
}

impl NewFolder {
    /// A folder that will be called `folder`, which does not exist or is empty.
    ///
    /// # Errors
    /// [`ErrorKind::DirectoryNotEmpty`] if it is not empty; if what is above it is not there or
    /// cannot be written; if it is there and its permissions are not this user's to set.
    pub(crate) fn prepare(folder: &Path) -> io::Result<Self> {
        Self::begin(folder, 0o777)
    }

    /// The same, which nobody else looks into before it has got its permissions from whoever fills it.
    ///
    /// # Errors
    /// As [`NewFolder::prepare`].
    pub(crate) fn prepare_closed(folder: &Path) -> io::Result<Self> {
        Self::begin(folder, OWN)
    }

    fn begin(folder: &Path, bits: u32) -> io::Result<Self> {
        let (hidden, is_within) = match fs::read_dir(folder) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(ErrorKind::DirectoryNotEmpty.into());
                }
                // It may be a mount point, so it stays the folder it is. That it can get its permissions in
                // the end is seen before anything is in it.
                fs::set_permissions(folder, fs::metadata(folder)?.permissions())?;
                (folder.join(format!(".tacita-{}", std::process::id())), true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (name_beside(folder)?, false),
            Err(error) => return Err(error),
        };
        let parent = hidden.parent().filter(|parent| *parent != Path::new(""));
        let above = fs::File::open(parent.unwrap_or(Path::new(".")))?;
        let fate = Arc::default();
        watch_for_signals(&hidden, &fate)?;
        let made = {
            // A signal that has come before ends the process with the lock held.
            let _fate = fate.lock();
            make(&above, name_of(&hidden), bits)?
        };
        let this = Self { hidden, folder: folder.to_owned(), is_within, made, above, fate };
        this.refuse_company()?;
        Ok(this)
    }

    /// Where it is filled: it is empty yet.
    pub(crate) fn path(&self) -> PathBuf {
        place(&self.made)
    }

    /// Makes what is in it durable, then its name.
    ///
    /// # Errors
    /// [`ErrorKind::DirectoryNotEmpty`] if somebody has made or filled the folder meanwhile, to whom
    /// nothing happens; if the file system fails, also in writing what it has taken already.
    pub(crate) fn publish(self) -> io::Result<()> {
        rustix::fs::syncfs(&self.above)?;
        let fate = self.fate.lock();
        let above = place(&self.above);
        if self.is_within {
            self.take_out_all(&above)?;
        } else {
            let [hidden, name] = [&self.hidden, &self.folder].map(|path| above.join(name_of(path)));
            rename_to_free_name(&hidden, &name).map_err(not_alone)?;
        }
        drop(fate);
        self.above.sync_all()
    }

    /// Takes what was made out into the folder that was there, which nobody else looks into meanwhile.
    fn take_out_all(&self, folder: &Path) -> io::Result<()> {
        self.refuse_company()?;
        // What goes out of a folder, or into it, changes its times.
        let (meta, before) = (self.made.metadata()?, self.above.metadata()?.permissions());
        for folder in [&self.made, &self.above] {
            folder.set_permissions(fs::Permissions::from_mode(OWN))?;
        }
        let made = self.path();
        let taken = take_attributes(&made, folder).and_then(|()| {
            fs::read_dir(&made)?.try_for_each(|entry| {
                let entry = entry?;
                take_out(&entry.path(), &folder.join(entry.file_name())).map_err(not_alone)
            })
        });
        if let Err(error) = taken {
            self.above.set_permissions(before)?;
            return Err(error);
        }
        rustix::fs::unlinkat(&self.above, name_of(&self.hidden), AtFlags::REMOVEDIR)?;
        take_times_and_owner(&meta, folder)?;
        self.above.set_permissions(meta.permissions())
    }

    /// Two that have found the same folder empty do not mix what they bring.
    fn refuse_company(&self) -> io::Result<()> {
        if self.is_within {
            for entry in fs::read_dir(place(&self.above))? {
                if Some(&*entry?.file_name()) != self.hidden.file_name() {
                    return Err(ErrorKind::DirectoryNotEmpty.into());
                }
            }
        }
        Ok(())
    }
}

/// A path that leads to a folder wherever it is by now, and to no other.
fn place(folder: &fs::File) -> PathBuf {
    // The point is for calls that follow no link.
    PathBuf::from(format!("/proc/self/fd/{}/.", folder.as_raw_fd()))
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// Makes a folder, and opens it.
fn make(above: &fs::File, name: &OsStr, bits: u32) -> io::Result<fs::File> {
    rustix::fs::mkdirat(above, name, Mode::from_raw_mode(bits))?;
    let opened = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = fs::File::from(rustix::fs::openat(above, name, flags, Mode::empty())?);
        // Whoever owns what it is in may have put his own in its place.
        if made.metadata()?.uid() != rustix::process::geteuid().as_raw() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        if !place(&made).exists() {
            let text = "/proc/self/fd does not show what is open: mount /proc";
            return Err(io::Error::new(ErrorKind::Unsupported, text));
        }
        Ok(made)
    };
    opened().inspect_err(|_| _ = rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR))
}

fn watch_for_signals(hidden: &Path, fate: &Arc<Mutex<()>>) -> io::Result<()> {
    let mut interrupts = Interrupts::watch().map_err(|e| {
        let refusal = tacita_daemon::refusal_of(&e).and_then(io::Error::raw_os_error);
        refusal.map_or_else(|| io::Error::other(e), io::Error::from_raw_os_error)
    })?;
    let (hidden, fate) = (hidden.to_owned(), Arc::clone(fate));
    std::thread::Builder::new().name("tacita-signals".to_owned()).spawn(move || {
        let signal = interrupts.wait_for_number().unwrap_or_default();
        let _fate = fate.lock();
        take_away_for_good(&hidden);
        std::process::exit(exit::of_signal(signal).into());
    })?;
    Ok(())
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        // Who takes it away after a signal is not disturbed, and ends the process.
        let _fate = self.fate.lock();
        if self.hidden.exists()
            && let Err(error) = take_away(&self.hidden)
        {
            tell_of_what_stays(&self.hidden, &error);
        }
    }
}

/// Takes away what somebody may still be filling: he finds his folder gone, so this comes to an end.
fn take_away_for_good(hidden: &Path) {
    let mut failures = 0;
    while hidden.exists() {
        match take_away(hidden) {
            Ok(()) => {}
            // Something has come in between.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            Err(_) if failures < FAILURES_MAX => failures += 1,
            Err(error) => return tell_of_what_stays(hidden, &error),
        }
    }
}

/// Takes away a folder and all that is in it, also where folders in it are such that nobody may take
/// anything out of them.
fn take_away(hidden: &Path) -> io::Result<()> {
    // What is empty goes without a descriptor, which there may not be.
    if fs::remove_dir(hidden).is_ok() {
        return Ok(());
    }
    match fs::remove_dir_all(hidden) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            open_up(hidden);
            fs::remove_dir_all(hidden)
        }
        done => done,
    }
}

/// Lets the owner do what he likes in all folders. Where that cannot be, removing them tells why.
fn open_up(folder: &Path) {
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(OWN));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // Nobody else can put a link there meanwhile: he could not write to the folder.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

fn tell_of_what_stays(hidden: &Path, error: &io::Error) {
    output::say(&format!("tacita: {}: cannot be removed: {error}", shown_name(hidden)));
}

/// Who has the name has made or filled the folder.
fn not_alone(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::AlreadyExists => ErrorKind::DirectoryNotEmpty.into(),
        _ => error,
    }
}

/// Gives what was made another name, also where it is a folder that nobody may write to: what is above it is
/// written there.
fn take_out(made: &Path, name: &Path) -> io::Result<()> {
    match rename_to_free_name(made, name) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let meta = fs::symlink_metadata(made)?;
            if !meta.is_dir() {
                return Err(error);
            }
            fs::set_permissions(made, fs::Permissions::from_mode(OWN))?;
            rename_to_free_name(made, name)?;
            fs::set_permissions(name, meta.permissions())
        }
        done => done,
    }
}

/// Gives a folder the extended attributes of another one, as far as this user sets any: what the system
/// keeps there by itself, such as access control lists, it has.
fn take_attributes(from: &Path, to: &Path) -> io::Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    let is_set = |name: &&[u8]| {
        name.starts_with(b"user.") || is_root && !name.is_empty() && !name.starts_with(b"system.")
    };
    let mut names = vec![0; ATTRIBUTE_LEN_MAX];
    let len = match rustix::fs::listxattr(from, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        listed => listed?,
    };
    for name in names[..len].split(|&byte| byte == 0).filter(is_set) {
        let name = OsStr::from_bytes(name);
        let mut value = vec![0; ATTRIBUTE_LEN_MAX];
        let len = rustix::fs::getxattr(from, name, &mut value[..])?;
        rustix::fs::setxattr(to, name, &value[..len], XattrFlags::empty())?;
    }
    Ok(())
}

fn take_times_and_owner(meta: &fs::Metadata, folder: &Path) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(folder, Some(meta.uid()), Some(meta.gid()))?;
    }
    let times = fs::FileTimes::new().set_accessed(meta.accessed()?).set_modified(meta.modified()?);
    fs::File::open(folder)?.set_times(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_before_anybody_fills_it_and_goes_with_its_owner() {
        let above = tempfile::tempdir().unwrap();
        let new = NewFolder::prepare(&above.path().join("out")).unwrap();
        let hidden = new.hidden.clone();
        assert!(hidden.is_dir(), "whoever filled it could make it after a signal");
        assert_eq!(fs::metadata(&hidden).unwrap().ino(), fs::metadata(new.path()).unwrap().ino());
        drop(new);
        assert!(!hidden.exists());
    }

    /// Does something as a user whom permissions bind; root is another one meanwhile.
    fn as_ordinary_user(act: impl FnOnce() + Send) {
        use rustix::process::{Uid, geteuid};
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if geteuid().is_root() {
                    let user = Some(Uid::from_raw(65534));
                    rustix::thread::set_thread_res_uid(None::<Uid>, user, None::<Uid>).unwrap();
                }
                act();
            });
        });
    }

    fn allow(folder: &Path, mode: u32) {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_nobody_may_take_anything_out_of_goes_all_the_same() {
        let above = tempfile::tempdir().unwrap();
        let above = above.path();
        allow(above, 0o777);
        as_ordinary_user(|| {
            let fill = |folder: &Path| {
                for (name, mode) in [("within/read", 0o500), ("within/none", 0)] {
                    fs::create_dir_all(folder.join(name)).unwrap();
                    fs::write(folder.join(name).join("file"), "content").unwrap();
                    allow(&folder.join(name), mode);
                }
                allow(&folder.join("within"), 0o500);
            };
            let new = NewFolder::prepare(&above.join("out")).unwrap();
            let hidden = new.hidden.clone();
            fill(&hidden);
            drop(new);
            assert!(!hidden.exists());
            // As after a signal.
            fill(&hidden);
            take_away_for_good(&hidden);
            assert!(!hidden.exists());
        });
    }

    #[test]
    fn what_cannot_be_taken_away_keeps_nobody_from_ending() {
        let above = tempfile::tempdir().unwrap();
        let fixed = above.path().join("fixed");
        fs::create_dir_all(fixed.join("out")).unwrap();
        fs::write(fixed.join("out/file"), "content").unwrap();
        allow(&fixed, 0o500);
        as_ordinary_user(|| take_away_for_good(&fixed.join("out")));
        assert!(fixed.join("out").exists());
        allow(&fixed, 0o700);
    }

    #[test]
    fn of_two_with_one_name_the_first_has_it() {
        let above = tempfile::tempdir().unwrap();
        for is_there in [false, true] {
            let out = above.path().join(format!("out-{is_there}"));
            if is_there {
                fs::create_dir(&out).unwrap();
            }
            let new = NewFolder::prepare(&out).unwrap();
            fs::write(new.path().join("file"), "ours").unwrap();
            let hidden = new.hidden.clone();
            // As another process does in between.
            fs::create_dir_all(&out).unwrap();
            fs::write(out.join("file"), "theirs").unwrap();
            let refused = new.publish().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::DirectoryNotEmpty);
            assert_eq!(fs::read(out.join("file")).unwrap(), b"theirs");
            assert!(!hidden.exists());
        }
    }

    #[test]
    fn who_can_give_names_to_others_things_gets_none_of_them() {
        let above = tempfile::tempdir().unwrap();
        let (out, others) = (above.path().join("out"), above.path().join("others"));
        for folder in [&out, &others] {
            fs::create_dir(folder).unwrap();
        }
        allow(&others, 0o750);
        fs::write(others.join("secret"), "").unwrap();
        let new = NewFolder::prepare_closed(&out).unwrap();
        assert_eq!(new.made.metadata().unwrap().mode() & 0o777, OWN);
        fs::write(new.path().join("file"), "ours").unwrap();
        allow(&new.path(), 0o711);
        // As the owner of what it is in does meanwhile.
        fs::rename(&out, above.path().join("moved")).unwrap();
        fs::create_dir(&out).unwrap();
        std::os::unix::fs::symlink(&others, out.join(new.hidden.file_name().unwrap())).unwrap();
        new.publish().unwrap();
        assert_eq!(fs::read(above.path().join("moved/file")).unwrap(), b"ours");
        assert!(others.join("secret").exists() && !out.join("secret").exists());
        let modes = [&others, &above.path().join("moved")].map(|f| fs::metadata(f).unwrap().mode());
        assert_eq!(modes.map(|mode| mode & 0o777), [0o750, 0o711]);
    }
}
