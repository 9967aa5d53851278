//! Blobs as files of a folder, one each, called as objects are displayed.
//!
//! A file is written under another name, made durable, and gets its name only if nothing has it; then the
//! folder is made durable. The root is replaced under a lock. So clients that share what they remember may
//! all have one folder open; a server has its own for itself, for what it remembers of the log is in memory.
//! What a crash leaves behind is a nameless beginning, which the next opening removes.
//!
//! The folder is held open, and whoever has it open goes on with it, whatever its name stands for by then.

mod held;

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use self::held::Held;
use super::{BlobStore, Put, Swap, within};
use crate::durable::{OPEN_MAX, can_be_open, sync_folder};
use crate::error::{Error, Kind, Result};
use crate::object::Object;

/// Where files are written before they have their names.
const NEW: &str = "new";
const ROOT: &str = "root";
/// Who swaps the root has this lock.
const LOCK: &str = "lock";
/// Who begins a file shares this lock until it has the file's own; who removes leftovers has it alone.
const NEW_LOCK: &str = "lock-new";

/// Who serves the folder has this lock.
const SERVED_LOCK: &str = "lock-served";

/// How many files this process has begun: their names before they have them.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// What other processes have not, on whatever machine: process ids may be the same.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());

/// A store in a folder.
#[derive(Debug, Clone)]
pub struct FolderStore {
    folder: Arc<Held>,
}

impl FolderStore {
    /// Opens the folder, makes it if there is none, and removes what a crash has left.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        // Whoever serves it may go to another folder.
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let failed = |e| Error::of_storage(format_args!("open {}", folder.display()), e);
        if !folder.is_dir() {
            can_be_open(OPEN_MAX).map_err(failed)?;
        }
        let held = make_folder(&folder).and_then(|()| Held::open(&folder)).map_err(failed)?;
        let store = Self { folder: Arc::new(held) };
        store.remove_leftovers().map_err(failed)?;
        Ok(store)
    }

    /// The folder as it is, to be looked at; `None` if there is none. Nothing is made or removed.
    ///
    /// # Errors
    /// [`Kind::Storage`].
    pub fn look(folder: &Path) -> Result<Option<Self>> {
        let failed = |e| Error::of_storage(format_args!("open {}", folder.display()), e);
        let held = found(Held::open(folder)).map_err(failed)?;
        Ok(held.map(|held| Self { folder: Arc::new(held) }))
    }

    fn remove_leftovers(&self) -> io::Result<()> {
        self.folder.make_folder(Path::new(NEW))?;
        let _lock = match self.lock(NEW_LOCK, FlockOperation::NonBlockingLockExclusive) {
            // Somebody begins a file just now, or stands still there: the next opening will do.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            locked => locked?,
        };
        for (name, _) in self.folder.list(Path::new(NEW))? {
            // Whoever still writes to it holds its lock.
            let is_left = match self.folder.file(&name) {
                Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(),
                Err(e) if e.kind() == io::ErrorKind::NotFound => false,
                Err(e) => return Err(e),
            };
            if is_left {
                self.folder.remove(&name)?;
            }
        }
        self.folder.sync_folder(Path::new(""))
    }

    /// The lock is held until what is returned is dropped.
    fn lock(&self, name: &str, how: FlockOperation) -> io::Result<File> {
        let lock = self.folder.file_to_write(name)?;
        flock(&lock, how)?;
        Ok(lock)
    }

    /// The folder is served by whoever has what is returned, and by nobody else.
    ///
    /// # Errors
    /// [`Kind::Busy`] if another server has it; [`Kind::Storage`].
    pub fn serve_alone(&self) -> Result<File> {
        self.lock(SERVED_LOCK, FlockOperation::NonBlockingLockExclusive).map_err(|e| {
            if e.kind() == io::ErrorKind::WouldBlock {
                let what = format!("{}: another server serves it", self.folder.name.display());
                return Error::new(Kind::Busy, what);
            }
            self.failed("lock", SERVED_LOCK, e)
        })
    }

    fn failed(&self, operation: &str, name: &str, error: io::Error) -> Error {
        let path = self.folder.name.join(name);
        Error::of_storage(format_args!("{operation} {}", path.display()), error)
    }

    /// Does what may wait for a disk on a thread that may wait.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: &'static str,
        name: String,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let store = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            work(&store).map_err(|e| store.failed(operation, &name, e))
        });
        done.await.unwrap_or_else(|e| {
            Err(Error::new(Kind::Storage, format!("{operation}: the runtime ends: {e}")))
        })
    }

    /// A new file with these bytes, durable but for its name, and the lock on it.
    fn begin(&self, bytes: &[u8]) -> io::Result<(String, File)> {
        let begun = BEGUN.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NEW}/{:016x}-{begun}", *PROCESS);
        let lock = self.lock(NEW_LOCK, FlockOperation::LockShared)?;
        let mut file = self.folder.new_file(&name)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        drop(lock);
        match file.write_all(bytes).and_then(|()| file.sync_all()) {
            Ok(()) => Ok((name, file)),
            Err(e) => {
                // Half of it would keep the room that is lacking.
                let _ = self.folder.remove(&name);
                Err(e)
            }
        }
    }

    fn put_now(&self, object: Object, bytes: &[u8]) -> io::Result<Put> {
        let name = object.to_string();
        let parent = folder_of(&name);
        if self.folder.stat(&name)?.is_some() {
            // Whoever has created it may not have come to this yet.
            self.folder.sync_folder(parent)?;
            return Ok(Put::Exists);
        }
        self.folder.make_folder(parent)?;
        let (new, _file) = self.begin(bytes)?;
        let put = match self.folder.rename_new(&new, &name) {
            Ok(()) => Put::Created,
            Err(Errno::EXIST) => {
                self.folder.remove(&new)?;
                Put::Exists
            }
            Err(e) => {
                self.folder.remove(&new)?;
                return Err(e.into());
            }
        };
        self.folder.sync_folder(parent)?;
        Ok(put)
    }

    fn delete_now(&self, object: Object) -> io::Result<()> {
        let name = object.to_string();
        self.folder.remove(&name)?;
        found(self.folder.sync_folder(folder_of(&name))).map(|_| ())
    }

    fn swap_now(&self, expected: Option<&Bytes>, new: &[u8]) -> io::Result<Swap> {
        let _lock = self.lock(LOCK, FlockOperation::LockExclusive)?;
        let now = self.root_now()?;
        if now.as_ref() != expected {
            // Whoever has swapped it may have failed before it was durable.
            self.folder.sync_folder(Path::new(""))?;
            return Ok(Swap::Differs(now));
        }
        let (begun, _file) = self.begin(new)?;
        self.folder.rename(&begun, ROOT)?;
        self.folder.sync_folder(Path::new(""))?;
        Ok(Swap::Swapped)
    }

    fn root_now(&self) -> io::Result<Option<Bytes>> {
        Ok(found(self.folder.read(ROOT))?.map(Bytes::from))
    }

    fn list_now(&self, folder: &Path, prefix: &str, names: &mut Vec<Object>) -> io::Result<()> {
        for (path, is_folder) in found(self.folder.list(folder))?.into_iter().flatten() {
            let Some(name) = path.to_str() else { continue };
            // Folders beside the way to the prefix are not looked into.
            let is_on_the_way = name.starts_with(prefix) || prefix.starts_with(name);
            if !is_on_the_way || name == NEW {
                continue;
            }
            if is_folder {
                self.list_now(&path, prefix, names)?;
            } else if let Ok(object) = name.parse()
                && name.starts_with(prefix)
            {
                names.push(object);
            }
        }
        Ok(())
    }
}

#[async_trait]
impl BlobStore for FolderStore {
    async fn get(&self, object: Object, ranges: &[Range<u64>]) -> Result<Option<Vec<Bytes>>> {
        let fail = |e: io::Error| self.failed("read", &object.to_string(), e);
        let Some(file) = found(self.folder.file(object.to_string())).map_err(fail)? else {
            return Ok(None);
        };
        let len = file.metadata().map_err(fail)?.len();
        let mut lens = Vec::with_capacity(ranges.len());
        for range in ranges {
            lens.push((within(object, range, len)?.len(), range.start));
        }
        let mut parts = Vec::with_capacity(ranges.len());
        for (len, at) in &lens {
            let mut part = vec![0; *len];
            if !self.folder.read_now(&file, &mut part, *at) {
                break;
            }
            parts.push(Bytes::from(part));
        }
        if parts.len() == ranges.len() {
            return Ok(Some(parts));
        }
        // Not all of it is in the machine's memory.
        let read = self.blocking("read", object.to_string(), move |_| {
            let read = |(len, at)| {
                let mut part = vec![0; len];
                file.read_exact_at(&mut part, at)?;
                Ok(Bytes::from(part))
            };
            lens.into_iter().map(read).collect()
        });
        read.await.map(Some)
    }

    async fn len(&self, object: Object) -> Result<Option<u64>> {
        let name = object.to_string();
        let stat = self.folder.stat(&name).map_err(|e| self.failed("look at", &name, e))?;
        Ok(stat.map(|stat| stat.st_size.cast_unsigned()))
    }

    async fn put_if_absent(&self, object: Object, bytes: Bytes) -> Result<Put> {
        let work = move |store: &Self| store.put_now(object, &bytes);
        self.blocking("write", object.to_string(), work).await
    }

    async fn delete(&self, object: Object) -> Result<()> {
        let work = move |store: &Self| store.delete_now(object);
        self.blocking("remove", object.to_string(), work).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let prefix = prefix.to_owned();
        let work = move |store: &Self| {
            let mut names = Vec::new();
            store.list_now(Path::new(""), &prefix, &mut names)?;
            Ok(names)
        };
        self.blocking("list", String::new(), work).await
    }

    async fn root(&self) -> Result<Option<Bytes>> {
        self.root_now().map_err(|e| self.failed("read", ROOT, e))
    }

    async fn swap_root(&self, expected: Option<Bytes>, new: Bytes) -> Result<Swap> {
        let work = move |store: &Self| store.swap_now(expected.as_ref(), &new);
        self.blocking("write", ROOT.into(), work).await
    }
}

/// A folder in which a store is to be made, as it is before.
#[derive(Debug)]
pub(crate) struct Beginning {
    folder: PathBuf,
    /// What is not there, of it and the folders above, the deepest first.
    missing: Vec<PathBuf>,
    /// The folder itself, locked.
    alone: Option<File>,
}

impl Beginning {
    /// To be called before the folder is opened.
    pub(crate) fn of(folder: &Path) -> Self {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let missing = folder.ancestors().take_while(|above| !above.exists());
        Self { missing: missing.map(Path::to_owned).collect(), folder, alone: None }
    }

    /// From now on nobody else begins a store there, who could lose by what is taken back.
    ///
    /// # Errors
    /// [`Kind::Busy`] if somebody has begun one; [`Kind::Storage`].
    pub(crate) fn alone(&mut self) -> Result<()> {
        self.alone = Some(self.lock().map_err(|e| {
            let folder = self.folder.display();
            match e.kind() {
                io::ErrorKind::WouldBlock => {
                    Error::new(Kind::Busy, format!("{folder}: a store is being made there"))
                }
                _ => Error::of_storage(format_args!("lock {folder}"), e),
            }
        })?);
        Ok(())
    }

    fn lock(&self) -> io::Result<File> {
        let folder = File::open(&self.folder)?;
        flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
        Ok(folder)
    }

    /// Takes back what has been begun there, unless it has become a store; whether it has not. Folders
    /// with anything else in them stay, and so does what somebody else has begun.
    pub(crate) fn take_back(&self) -> bool {
        let locked = self.alone.is_none().then(|| self.lock());
        if let Some(Err(e)) = &locked
            && e.kind() == io::ErrorKind::WouldBlock
        {
            return true;
        }
        let Ok(held) = found(Held::open(&self.folder)) else { return false };
        if let Some(held) = held {
            let store = FolderStore { folder: Arc::new(held) };
            // Nobody makes it a store meanwhile. Where there is no room for a lock, nobody can.
            let _lock = store.lock(LOCK, FlockOperation::LockExclusive);
            if !matches!(store.root_now(), Ok(None)) {
                return false;
            }
            let served = store.serve_alone();
            if served.as_ref().is_err_and(|e| e.kind() == Kind::Busy) {
                // It is the folder of whoever serves it.
                return true;
            }
            let manifest = Object::Manifest { period: 0 }.to_string();
            for file in [LOCK, NEW_LOCK, SERVED_LOCK, &manifest] {
                let _ = store.folder.remove(file);
            }
            for folder in [folder_of(&manifest), Path::new(NEW)] {
                let _ = store.folder.remove_folder(folder);
            }
        }
        for folder in &self.missing {
            let _ = fs::remove_dir(folder);
        }
        true
    }
}

/// The folder of an object.
fn folder_of(name: &str) -> &Path {
    Path::new(name).parent().expect("names have folders")
}

/// The folder, and those above it, durably.
fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        make_folder(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        result => result?,
    }
    parent.map_or(Ok(()), sync_folder)
}

/// `None` for what is not there.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::{Uid, geteuid};

    use super::*;

    /// What a crash has left is removed, and what another process still writes is not.
    #[tokio::test]
    async fn leftovers_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderStore::open(folder.path()).unwrap();
        let object = Object::Log { first: 0 };
        store.put_if_absent(object, Bytes::from_static(b"whole")).await.unwrap();
        let left = folder.path().join(NEW).join("1-1");
        fs::write(&left, b"half").unwrap();
        let (written, _file) = store.begin(b"under way").unwrap();
        // A process that another test begins just then has the lock for a moment, too.
        let open_until_gone = || {
            let mut opened = (0..10_000).map(|_| FolderStore::open(folder.path()).unwrap());
            opened.any(|_| !left.exists())
        };
        assert!(open_until_gone() && folder.path().join(written).exists());
        // Whoever stands still where it begins a file keeps nobody from opening.
        let begins = store.lock(NEW_LOCK, FlockOperation::LockShared).unwrap();
        fs::write(&left, b"half").unwrap();
        FolderStore::open(folder.path()).unwrap();
        assert!(left.exists());
        drop(begins);
        assert!(open_until_gone());
        assert_eq!(store.list("").await.unwrap(), [object]);
    }

    /// Whoever has it open goes on with the folder that it has opened, whatever comes in its place.
    #[tokio::test]
    async fn one_that_is_open_is_reached_without_its_name() {
        let above = tempfile::tempdir().unwrap();
        let [folder, moved] = ["folder", "moved"].map(|name| above.path().join(name));
        let store = FolderStore::open(&folder).unwrap();
        fs::rename(&folder, &moved).unwrap();
        fs::create_dir(&folder).unwrap();
        let object = Object::Log { first: 0 };
        store.put_if_absent(object, Bytes::from_static(b"content")).await.unwrap();
        store.swap_root(None, Bytes::from_static(b"root")).await.unwrap();
        assert_eq!(store.list("").await.unwrap(), [object]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        let again = FolderStore::open(&moved).unwrap();
        assert_eq!(again.list("").await.unwrap(), [object]);
        assert!(again.root().await.unwrap().is_some());
    }

    /// A file system that is in memory refuses to say what would have to be waited for.
    #[tokio::test]
    async fn what_is_in_memory_is_read_at_once() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            eprintln!("SKIPPED: a store in memory: there is no /dev/shm");
            return;
        };
        let held = Held::open(folder.path()).unwrap();
        fs::write(folder.path().join("file"), b"content").unwrap();
        let (file, mut part) = (held.file("file").unwrap(), [0; 4]);
        assert!(held.read_now(&file, &mut part, 3) && part == *b"tent");
        assert!(!held.read_now(&file, &mut part, 4), "it ends before");
    }

    /// Whoever comes next must not take for durable what was not made so, as on a disk that fails for a moment.
    #[test]
    fn what_is_not_durable_is_not_taken_for_it() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("store");
        let allow = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        allow(above.path(), 0o777);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if geteuid().is_root() {
                    let user = Some(Uid::from_raw(65534));
                    rustix::thread::set_thread_res_uid(None::<Uid>, user, None::<Uid>).unwrap();
                }
                let store = FolderStore::open(&path).unwrap();
                let first = Object::Log { first: 0 };
                let root = Bytes::from_static(b"root");
                // What can be changed, and not read, cannot be made durable.
                allow(&path, 0o300);
                for _ in 0..2 {
                    assert!(store.put_now(first, b"first").is_err());
                    assert!(store.swap_now(None, &root).is_err());
                }
                allow(&path, 0o700);
                assert!(store.root_now().unwrap().is_some(), "it was only not durable");
                assert_eq!(store.put_now(first, b"first").unwrap(), Put::Created);
                assert_eq!(store.swap_now(None, &root).unwrap(), Swap::Differs(Some(root)));
            });
        });
    }

    #[tokio::test]
    async fn strange_files_are_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderStore::open(folder.path()).unwrap();
        fs::create_dir_all(folder.path().join("log/deep")).unwrap();
        for name in ["log/strange", "log/deep/0000000000000000", "notes.txt", "log/0"] {
            fs::write(folder.path().join(name), b"").unwrap();
        }
        assert_eq!(store.list("").await.unwrap(), []);
    }

    /// Somebody else's files stay, and so does what has become a store.
    #[tokio::test]
    async fn what_was_begun_is_taken_back() {
        let above = tempfile::tempdir().unwrap();
        let (strange, folder) = (above.path().join("strange"), above.path().join("a/b"));
        fs::write(&strange, b"").unwrap();
        let names = || fs::read_dir(above.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let first = Object::Manifest { period: 0 };
        for folder in [above.path(), &folder] {
            let (mut beginning, mut other) = (Beginning::of(folder), Beginning::of(folder));
            let store = FolderStore::open(folder).unwrap();
            beginning.alone().unwrap();
            assert_eq!(other.alone().unwrap_err().kind(), Kind::Busy);
            store.put_if_absent(first, Bytes::from_static(b"first")).await.unwrap();
            other.take_back();
            assert_eq!(store.list("").await.unwrap(), [first], "it is not the other's");
            assert!(beginning.take_back());
            assert_eq!(names().collect::<Vec<_>>(), ["strange"]);
        }
        let beginning = Beginning::of(&folder);
        let store = FolderStore::open(&folder).unwrap();
        store.put_if_absent(first, Bytes::from_static(b"first")).await.unwrap();
        store.swap_root(None, Bytes::from_static(b"root")).await.unwrap();
        assert!(!beginning.take_back());
        assert_eq!(store.list("").await.unwrap(), [first]);
        assert!(store.root().await.unwrap().is_some());
    }

    #[test]
    fn what_is_no_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        let error = FolderStore::open(&file).unwrap_err();
        assert_eq!(error.kind(), Kind::Storage);
        assert!(error.to_string().contains("file"), "{error}");
    }
}
