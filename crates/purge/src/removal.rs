//! Purging and removing what is named by a path, without a mount.

mod finish;
mod several;
mod spools;
mod walk;

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Statx, StatxFlags, accessat,
    openat, renameat_with, statx,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use tacita_clock::Cancellation;

use crate::erasure::{self, Erasure, Fate, Written};
use crate::error::{During, errno_of};
use crate::ext4::folder::{Left, Wanted};
use crate::faults::{Fault, Step, planted, step};
use crate::lower_fs::LowerFs;
use crate::method::Method;
use crate::verdict::{Content, Part, Verdict};
use crate::witness;
use crate::xattrs::{Overwritten, Owner, Shared};
use crate::{Error, Kind, Result, descriptors, names, obstacle, xattrs};
use several::Named;
use walk::{Emptied, Visit, look_up};

/// Why attributes are left of what is removed under one of several names.
const OTHER_NAMES: &str = "it has other names, and keeps them";

/// Who hears how many bytes of a file have been overwritten, in all passes, and of how many.
#[derive(Clone, Default)]
pub struct Watcher(Option<Rc<dyn Fn(u64, u64)>>);

impl Watcher {
    /// Whoever it is.
    pub fn new(told: impl Fn(u64, u64) + 'static) -> Self {
        Self(Some(Rc::new(told)))
    }

    fn tell(&self, done: u64, of: u64) {
        if let Some(told) = &self.0 {
            told(done, of);
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watcher").field(&self.0.is_some()).finish()
    }
}

/// How paths are purged.
#[derive(Debug, Clone, Default)]
pub struct RemovalOptions {
    /// What goes over the content.
    pub method: Method,
    /// Folders with everything in them.
    pub recursive: bool,
    /// Also where overwriting does not reach the old blocks; the verdict says so.
    pub anyway: bool,
    /// Hears how far it is with a file.
    pub watcher: Watcher,
    /// Ends the run between two writes. What has been removed by then is dealt with as far as that
    /// takes no time; everything else is kept, and the verdicts say so.
    pub stop: Cancellation,
}

/// A run of purging over any number of paths. The journal is erased once, at its end.
#[derive(Debug)]
pub struct Removal {
    options: RemovalOptions,
    places: HashMap<(u32, u32), Place>,
    verdicts: Vec<Told>,
    /// Emptied folders by depth: the deepest go first.
    folders: BTreeMap<usize, Vec<Emptied>>,
    /// Names of files that have others, by device and inode number.
    several: HashMap<((u32, u32), u64), Vec<Named>>,
    failure: Option<(Kind, Option<Errno>)>,
    is_cut_short: bool,
}

/// A file system that something is removed from.
#[derive(Debug)]
struct Place {
    lower: Rc<LowerFs>,
    any: OwnedFd,
    /// Folders that lost names, by their inode numbers.
    touched: HashMap<u64, (File, Wanted)>,
    /// What was seen of folders before they were removed.
    gone: HashMap<u64, Option<Left>>,
    /// What was last seen of its journal.
    journal: Part,
    /// Why something could not be written back.
    unwritten: Option<String>,
}

/// What was seen of folders, by device and inode number; `None` where nobody can tell.
type Looked = HashMap<((u32, u32), u64), Option<Left>>;

/// A verdict, and what has to be known before it is final.
#[derive(Debug)]
struct Told {
    device: (u32, u32),
    /// Inode number of the folder that it was removed from.
    folder: u64,
    name: OsString,
    verdict: Verdict,
    /// Values that other files had as well.
    shared: Option<Box<Shared>>,
}

impl Removal {
    /// Nothing is done yet.
    pub fn new(options: RemovalOptions) -> Self {
        descriptors::raise_limit();
        Self {
            options,
            places: HashMap::new(),
            verdicts: Vec::new(),
            folders: BTreeMap::new(),
            several: HashMap::new(),
            failure: None,
            is_cut_short: false,
        }
    }

    /// Purges and removes what is at `path`. What cannot be purged stays, and its verdict says why.
    pub fn purge(&mut self, path: &Path) {
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let Some(name) = path.file_name() else {
            let text = "no name that could be removed: give that of the folder itself";
            self.keep(path, None, &Error::new(Kind::Invalid, text));
            return;
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, parent, flags, Mode::empty()).during("opening it");
        let opened = opened.and_then(|dir| spools::check_outside(parent).map(|()| dir));
        match opened {
            Ok(dir) => self.walk(&Rc::new(dir), name, path),
            Err(error) => self.keep(path, None, &error),
        }
    }

    /// Why something was kept, the first time that it was; for the exit code.
    pub fn failure(&self) -> Option<Kind> {
        self.failure.map(|(kind, _)| kind)
    }

    /// What the kernel said then, if that is the cause.
    pub fn refusal(&self) -> Option<Errno> {
        self.failure?.1
    }

    /// Whether [`RemovalOptions::stop`] has left anything undone.
    pub const fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    fn keep(&mut self, path: &Path, stat: Option<&Statx>, error: &Error) {
        let verdict = self.verdict(path, stat);
        self.keep_with(verdict, error);
    }

    /// The same of what has a verdict already, which says how much of it has been overwritten.
    fn keep_with(&mut self, mut verdict: Verdict, error: &Error) {
        self.failure.get_or_insert((error.kind(), error.errno()));
        self.is_cut_short |= error.kind() == Kind::Interrupted;
        verdict.content = Content::Kept(match verdict.overwritten + verdict.in_memory {
            0 if error.kind() == Kind::Interrupted => format!("{error}; nothing was overwritten"),
            0 => error.to_string(),
            bytes => format!("{error}; {bytes} bytes were written over it, all passes together"),
        });
        self.verdicts.push(Told::new(verdict));
    }

    /// A verdict with nothing done yet.
    fn verdict(&self, path: &Path, stat: Option<&Statx>) -> Verdict {
        let (inode, size) = (stat.map(|stat| stat.stx_ino), stat.map(|stat| stat.stx_size));
        Verdict::new(Some(path.to_owned()), inode, size, self.options.method.to_string())
    }

    /// Refuses to go on when the run is to end.
    fn check_wanted(&self) -> Result<()> {
        if self.options.stop.is_cancelled() && !planted(Fault::StopUnheeded) {
            return Err(Error::new(Kind::Interrupted, "interrupted"));
        }
        Ok(())
    }

    /// Purges what is no folder; a folder is to be gone through first, if it may be.
    fn purge_entry(
        &mut self,
        dir: &Rc<OwnedFd>,
        name: &OsStr,
        path: &Path,
        depth: usize,
    ) -> Option<Visit> {
        let (entry, stat) = match look_up(dir, name, depth) {
            Ok(found) => found,
            Err(error) => {
                self.keep(path, None, &error);
                return None;
            }
        };
        match self.try_entry(dir, (&entry, name), path, (&stat, depth)) {
            Ok(true) => self.enter(dir, (entry, name), path, (stat, depth)),
            Ok(false) => None,
            Err(error) => {
                self.keep(path, Some(&stat), &error);
                None
            }
        }
    }

    /// Whether it is a folder, which nothing has been done with yet.
    fn try_entry(
        &mut self,
        dir: &Rc<OwnedFd>,
        (entry, name): (&OwnedFd, &OsStr),
        path: &Path,
        (stat, depth): (&Statx, usize),
    ) -> Result<bool> {
        self.check_wanted()?;
        check_removable(dir, stat)?;
        let lower = self.place(dir, stat)?;
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        if kind == FileType::Directory && !self.options.recursive {
            let text = "a folder: --recursive purges it with everything in it";
            return Err(Error::new(Kind::Invalid, text));
        }
        if kind != FileType::Directory
            && let Some(error) = not_meant(kind, path).filter(|_| depth == 0)
        {
            return Err(error);
        }
        self.check_suited(&lower)?;
        if kind == FileType::Directory {
            return spools::check_unserved(entry, name).map(|()| true);
        }
        if kind == FileType::RegularFile && stat.stx_nlink > 1 {
            return self.gather(dir, name, path, stat).map(|()| false);
        }
        // Before anything is touched: what cannot be looked at afterwards is kept.
        let folder = self.hold(dir, stat)?;
        step(Step::Found);
        let mut told = Told::new(self.verdict(path, Some(stat)));
        match self.purge_aside(&lower, dir, (entry, name), &mut told) {
            Ok(()) => self.removed((folder, name), stat, told),
            Err(error) => self.keep_with(told.verdict, &error),
        }
        Ok(false)
    }

    /// Refuses where overwriting does not help, and what needs a mount: nothing of it is touched then,
    /// whatever it is.
    fn check_suited(&self, lower: &LowerFs) -> Result<()> {
        if !self.options.anyway {
            lower.check()?;
        }
        if self.options.method.holds() {
            let text = "method f holds files for as long as they were kept: it needs a mount";
            return Err(Error::new(Kind::Invalid, text));
        }
        Ok(())
    }

    /// Purges what a name stands for under another name that nobody knows: so nobody can put a new
    /// file in its place meanwhile, or give it a second name. What is kept gets its name back, unless
    /// somebody has that by now.
    fn purge_aside(
        &self,
        lower: &LowerFs,
        dir: &OwnedFd,
        (entry, name): (&OwnedFd, &OsStr),
        told: &mut Told,
    ) -> Result<()> {
        let flags = AtFlags::EMPTY_PATH;
        let again = || {
            statx(entry, "", flags, StatxFlags::BASIC_STATS).during("asking for what it is by now")
        };
        let aside = if planted(Fault::AsideUnhooked) { None } else { names::replace(dir, name)? };
        let Some(aside) = aside.as_deref().map(OsStr::new) else {
            return self.purge_one(lower, dir, (entry, name), &again()?, told);
        };
        let purged = is_named(dir, aside, entry)
            .and_then(|()| self.purge_one(lower, dir, (entry, aside), &again()?, told));
        let Err(error) = purged else {
            return Ok(());
        };
        if planted(Fault::AsideStays) {
            return Err(error);
        }
        Err(give_back(dir, (aside, name), error))
    }

    fn purge_one(
        &self,
        lower: &LowerFs,
        dir: &OwnedFd,
        (entry, name): (&OwnedFd, &OsStr),
        stat: &Statx,
        told: &mut Told,
    ) -> Result<()> {
        told.verdict.size = Some(stat.stx_size);
        let content = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => self.overwrite(lower, entry, (stat, 1), told)?,
            kind => {
                erase_unopened(lower, dir, (entry, stat), told)?;
                match kind {
                    FileType::Symlink => Content::of_target(lower, stat),
                    // There is nothing in it but the name.
                    _ => Content::NothingStored,
                }
            }
        };
        names::remove(lower, dir, name, false)?;
        told.verdict.content = content;
        told.verdict.add_risks(lower);
        Ok(())
    }

    fn overwrite(
        &self,
        lower: &LowerFs,
        entry: &OwnedFd,
        (stat, count): (&Statx, usize),
        told: &mut Told,
    ) -> Result<Content> {
        let verdict = &mut told.verdict;
        if stat.stx_nlink as usize > count {
            return Err(has_other_names(stat.stx_nlink));
        }
        // It would be overwritten up to the limit, and kept.
        let end = stat.stx_size.next_multiple_of(stat.stx_blksize.max(1).into());
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| end > limit) {
            let text = "it is longer than a limit lets this process write (`ulimit -f`); nothing \
                        was overwritten";
            return Err(Error::new(Kind::Unpurgeable, text));
        }
        let file = open_again(entry)?;
        if !lower.is_ours_alone(&file) {
            let text = "another program has it open; nothing was overwritten";
            return Err(Error::new(Kind::InUse, text));
        }
        witness::show(&file, stat.stx_ino, verdict.path.as_deref().and_then(Path::file_name), None);
        let (written, of) = (Cell::new(Written::default()), Cell::new(0));
        let watcher = |now: Written| {
            written.set(now);
            if of.get() > 0 {
                self.options.watcher.tell(now.stored, of.get());
            }
            self.check_wanted()
        };
        let done = self.overwrite_watched(lower, &file, &watcher, &of);
        let now = written.get();
        (verdict.overwritten, verdict.in_memory) = (now.stored, now.in_memory);
        let (content, in_memory) = done?;
        verdict.in_memory = in_memory;
        told.take_values(lower, xattrs::erase_all(lower, Owner::open(&file))?);
        if matches!(content, Content::Shared(_)) {
            // At once, not when the file system comes to it: who has them last finds them its own.
            file.set_len(0).during("letting go of blocks that others have as well")?;
        }
        Ok(content)
    }

    /// Overwrites a file that is ours alone; what can be said of its content, and how much of it has
    /// never left memory. `of` is what is to be written over it.
    fn overwrite_watched(
        &self,
        lower: &LowerFs,
        file: &File,
        watcher: erasure::Watcher<'_>,
        of: &Cell<u64>,
    ) -> Result<(Content, u64)> {
        let method = &self.options.method;
        let mut erasure = Erasure::prepare_watched(lower, (file, &Fate::Dies), method, watcher)?;
        if erasure.shared() > 0 && !self.options.anyway {
            let text = "it shares blocks with another file, which would stay: --anyway removes it all \
                        the same, and overwrites them with the last file that has them";
            return Err(Error::new(Kind::Unpurgeable, text));
        }
        of.set(erasure.stored() * method.passes().len() as u64);
        erasure.run(0, &mut |_| ())?;
        Ok((erasure.judge()?, erasure.in_memory))
    }

    /// The file system that an entry of `dir` lies on, remembered for the end.
    fn place(&mut self, dir: &OwnedFd, stat: &Statx) -> Result<Rc<LowerFs>> {
        if let Some(place) = self.places.get(&device(stat)) {
            return Ok(Rc::clone(&place.lower));
        }
        let any = names::reopen_folder(dir).during("opening a folder")?;
        let lower = Rc::new(LowerFs::beneath(&any)?);
        let place = Place {
            lower: Rc::clone(&lower),
            any,
            touched: HashMap::new(),
            gone: HashMap::new(),
            journal: Part::Pending,
            unwritten: None,
        };
        self.places.insert(device(stat), place);
        Ok(lower)
    }

    /// Something has been removed from a folder that is held; its verdict is final when that has been
    /// looked at.
    fn removed(&mut self, (folder, name): (u64, &OsStr), stat: &Statx, mut told: Told) {
        told.verdict.removed = true;
        told.verdict.name = Part::Pending;
        told.device = device(stat);
        told.folder = folder;
        name.clone_into(&mut told.name);
        let place = self.places.get_mut(&told.device);
        if let Some((_, wanted)) = place.and_then(|place| place.touched.get_mut(&folder)) {
            wanted.names.insert(name.to_owned());
        }
        self.verdicts.push(told);
    }

    /// Holds a folder that is about to lose a name, to look at it afterwards; its inode number.
    fn hold(&mut self, dir: &OwnedFd, of: &Statx) -> Result<u64> {
        let stat = statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::INO)
            .during("asking for a folder's number")?;
        if let Some(place) = self.places.get_mut(&device(of))
            && let Entry::Vacant(new) = place.touched.entry(stat.stx_ino)
        {
            let dir = names::reopen_folder(dir).during("opening a folder")?;
            new.insert((File::from(dir), Wanted::default()));
        }
        Ok(stat.stx_ino)
    }
}

impl Told {
    const fn new(verdict: Verdict) -> Self {
        Self { device: (0, 0), folder: 0, name: OsString::new(), verdict, shared: None }
    }

    /// Says what became of the values of attributes.
    fn take_values(&mut self, lower: &LowerFs, overwritten: Overwritten) {
        self.verdict.attributes = Part::of_values(lower, &overwritten);
        self.shared = overwritten.into_shared();
    }
}

/// Gives what is kept its name back, unless somebody has that by now; why it is kept.
fn give_back(dir: &OwnedFd, (aside, name): (&OsStr, &OsStr), error: Error) -> Error {
    match renameat_with(dir, aside, dir, name, RenameFlags::NOREPLACE) {
        Ok(()) => error,
        Err(e) => {
            let (aside, e) = (aside.display(), std::io::Error::from(e));
            Error::new(error.kind(), format!("{error}; it is called {aside} now: {e}"))
        }
    }
}

/// Why a file stays of which not all names are to go.
fn has_other_names(count: u32) -> Error {
    let text = format!(
        "it has {count} names, and its content lives on under the others; nothing was overwritten"
    );
    Error::new(Kind::Unpurgeable, text)
}

/// Erases the attributes of a link, pipe, socket or device that is about to lose its last name.
fn erase_unopened(
    lower: &LowerFs,
    dir: &OwnedFd,
    (entry, stat): (&OwnedFd, &Statx),
    told: &mut Told,
) -> Result<()> {
    if !xattrs::has_data(entry).during("listing attributes")? {
        return Ok(());
    }
    if stat.stx_nlink > 1 {
        told.verdict.attributes = Part::Left(OTHER_NAMES.to_owned());
        return Ok(());
    }
    let beside = names::reopen_folder(dir).during("opening a folder")?;
    told.take_values(lower, xattrs::erase_all(lower, Owner::unopened(entry, &beside))?);
    Ok(())
}

/// Why what is no folder cannot be what somebody meant who gave this path.
fn not_meant(kind: FileType, path: &Path) -> Option<Error> {
    if path.as_os_str().as_bytes().ends_with(b"/") {
        let text = "no folder, but a slash at its end: without it its own name is meant";
        return Some(Error::new(Kind::Invalid, text));
    }
    matches!(kind, FileType::BlockDevice | FileType::CharacterDevice).then(|| {
        let text = "a device: what is on it would stay, and only its name would go, as by rm";
        Error::new(Kind::Unpurgeable, text)
    })
}

/// Refuses what could be overwritten, but not be removed: nothing of it is touched then.
fn check_removable(dir: &OwnedFd, stat: &Statx) -> Result<()> {
    if let Some(why) = obstacle::of_file(stat) {
        return Err(Error::new(Kind::Unpurgeable, why));
    }
    let above = statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
        .during("asking for its folder")?;
    if let Some(why) = obstacle::of_folder(&above) {
        return Err(Error::new(Kind::Unpurgeable, why));
    }
    accessat(dir, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
        .during("removing a name from its folder")?;
    let user = rustix::process::geteuid();
    let owners = [above.stx_uid, stat.stx_uid];
    if u32::from(above.stx_mode) & Mode::SVTX.bits() != 0
        && !user.is_root()
        && !owners.contains(&user.as_raw())
    {
        let text = "in a sticky folder only the owners of file and folder may remove it";
        return Err(Error::new(Kind::NotPermitted, text));
    }
    Ok(())
}

/// Refuses if a name does not stand for that file any more.
fn is_named(dir: &OwnedFd, name: &OsStr, entry: &OwnedFd) -> Result<()> {
    let numbers = |stat: &Statx| (device(stat), stat.stx_ino);
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    let ask = |file: &OwnedFd, name: &OsStr| statx(file, name, flags, StatxFlags::INO);
    let held = ask(entry, OsStr::new("")).during("asking for its number")?;
    let found = ask(dir, name).during("asking for what has its name")?;
    if numbers(&held) == numbers(&found) {
        return Ok(());
    }
    let text = "another program has put another file in its place; nothing was overwritten";
    Err(Error::new(Kind::InUse, text))
}

/// Opens for writing what is held by its number only; nothing else can be meant.
fn open_again(entry: &OwnedFd) -> Result<File> {
    let path = format!("/proc/self/fd/{}", entry.as_fd().as_raw_fd());
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|e| Error::of_kernel(errno_of(&e), "opening it for overwriting"))
}

fn list(folder: &OwnedFd) -> rustix::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::new(names::reopen_folder(folder)?)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    Ok(names)
}

fn device(stat: &Statx) -> (u32, u32) {
    (stat.stx_dev_major, stat.stx_dev_minor)
}
