//! A folder that is there when it is finished, or not at all.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tacita_block::{name_beside, rename_to_free_name};
use tacita_daemon::Interrupts;

use crate::output::shown_name;
use crate::{exit, output};

/// A hidden folder, which [`NewFolder::publish`] gives its name. It goes when this is dropped, and
/// with a signal that ends the process; only a kill leaves it, under its hidden name.
#[derive(Debug)]
pub(crate) struct NewFolder {
    hidden: PathBuf,
    folder: PathBuf,
    /// Whether the folder was there, and it is within.
    is_within: bool,
    /// Held by whoever makes it, gives it its name, or takes it away for good.
    fate: Arc<Mutex<()>>,
}

impl NewFolder {
    /// A folder that will be called `folder`, which does not exist or is empty.
    ///
    /// # Errors
    /// [`ErrorKind::DirectoryNotEmpty`] if it is not empty; if what is above it is not there or
    /// cannot be written.
    pub(crate) fn prepare(folder: &Path) -> io::Result<Self> {
        let (hidden, is_within) = match fs::read_dir(folder) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(ErrorKind::DirectoryNotEmpty.into());
                }
                // It may be a mount point or belong to somebody, so it stays the folder it is.
                (folder.join(format!(".tacita-{}", std::process::id())), true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (name_beside(folder)?, false),
            Err(error) => return Err(error),
        };
        let parent = hidden.parent().filter(|parent| *parent != Path::new(""));
        fs::metadata(parent.unwrap_or(Path::new(".")))?;
        let folder = folder.to_owned();
        let this = Self { hidden, folder, is_within, fate: Arc::default() };
        this.watch_for_signals()?;
        {
            // A signal that has come before ends the process with the lock held.
            let _fate = this.fate.lock();
            fs::create_dir(&this.hidden)?;
        }
        this.refuse_company()?;
        Ok(this)
    }

    /// Where it is filled: it is empty yet.
    pub(crate) fn path(&self) -> &Path {
        &self.hidden
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// [`ErrorKind::DirectoryNotEmpty`] if somebody has made or filled the folder meanwhile, to whom
    /// nothing happens; if the file system fails.
    pub(crate) fn publish(self) -> io::Result<()> {
        let _fate = self.fate.lock();
        if !self.is_within {
            return rename_to_free_name(&self.hidden, &self.folder).map_err(not_alone);
        }
        self.refuse_company()?;
        for entry in fs::read_dir(&self.hidden)? {
            let entry = entry?;
            let name = self.folder.join(entry.file_name());
            rename_to_free_name(&entry.path(), &name).map_err(not_alone)?;
        }
        let meta = fs::metadata(&self.hidden)?;
        fs::set_permissions(&self.folder, meta.permissions())?;
        take_times_and_owner(&meta, &self.folder)
    }

    /// Two that have found the same folder empty do not mix what they bring.
    fn refuse_company(&self) -> io::Result<()> {
        if self.is_within {
            for entry in fs::read_dir(&self.folder)? {
                if Some(&*entry?.file_name()) != self.hidden.file_name() {
                    return Err(ErrorKind::DirectoryNotEmpty.into());
                }
            }
        }
        Ok(())
    }

    fn watch_for_signals(&self) -> io::Result<()> {
        let mut interrupts = Interrupts::watch().map_err(io::Error::other)?;
        let (hidden, fate) = (self.hidden.clone(), self.fate.clone());
        std::thread::Builder::new().name("tacita-signals".to_owned()).spawn(move || {
            let signal = interrupts.wait_for_number().unwrap_or_default();
            let _fate = fate.lock();
            // Whoever fills it finds his folder gone, so this comes to an end.
            while hidden.exists() {
                let _ = fs::remove_dir_all(&hidden);
            }
            std::process::exit(exit::of_signal(signal).into());
        })?;
        Ok(())
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        // Who takes it away after a signal is not disturbed, and ends the process.
        let _fate = self.fate.lock();
        if self.hidden.exists()
            && let Err(error) = fs::remove_dir_all(&self.hidden)
        {
            output::say(&format!(
                "tacita: {}: cannot be removed: {error}",
                shown_name(&self.hidden)
            ));
        }
    }
}

/// Who has the name has made or filled the folder.
fn not_alone(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::AlreadyExists => ErrorKind::DirectoryNotEmpty.into(),
        _ => error,
    }
}

fn take_times_and_owner(meta: &fs::Metadata, folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
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
        let hidden = new.path().to_owned();
        assert!(hidden.is_dir(), "whoever filled it could make it after a signal");
        drop(new);
        assert!(!hidden.exists());
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
            let hidden = new.path().to_owned();
            // As another process does in between.
            fs::create_dir_all(&out).unwrap();
            fs::write(out.join("file"), "theirs").unwrap();
            let refused = new.publish().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::DirectoryNotEmpty);
            assert_eq!(fs::read(out.join("file")).unwrap(), b"theirs");
            assert!(!hidden.exists());
        }
    }
}
