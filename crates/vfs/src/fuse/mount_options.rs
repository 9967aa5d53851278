//! Options of a mount, and what they are called by the library and the kernel.

use std::path::Path;
use std::thread::available_parallelism;
use std::time::Duration;

use fuser::{Config, MountOption, SessionACL};
use rustix::mount::MountFlags;
use tacita_daemon::Failure;

use super::remount::flags;
use crate::{Error, Kind, Result};

/// How long the kernel may keep names and attributes unless told otherwise: all changes pass
/// through the mount, so only a bound on mistakes of ours.
const TTL_DEFAULT: Duration = Duration::from_hours(1);

/// How often everything is put on the medium unless told otherwise.
const SYNC_INTERVAL_DEFAULT: Duration = Duration::from_secs(5);

/// Requests that the kernel sends ahead of answers unless told otherwise.
const BACKGROUND_MAX_DEFAULT: u16 = 64;

/// All permission bits.
const UMASK_MAX: u16 = 0o777;

/// How a file system is mounted. Permission bits are always checked by the kernel.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "independent switches, each an option of mount")]
pub struct MountOptions {
    /// Nothing can be changed through the mount.
    pub read_only: bool,
    /// Other users than the one who mounts may enter.
    pub allow_other: bool,
    /// What the mount table shows as the source.
    pub fs_name: String,
    /// What the mount table shows as the type, after `fuse.`.
    pub subtype: String,
    /// Threads that serve requests; 0 for one a core.
    pub threads: usize,
    /// How long the kernel may keep names and attributes.
    pub ttl: Duration,
    /// The kernel collects writes. Faster, but data lies in memory of the kernel for longer.
    pub writeback_cache: bool,
    /// The kernel may read and write lower files directly, where a system offers them and the
    /// privilege is there.
    pub passthrough: bool,
    /// What other users do takes room on their account, not on that of the process that serves them:
    /// so none of what a lower file system keeps for root.
    pub callers_room: bool,
    /// Requests that the kernel sends ahead of answers.
    pub background_max: u16,
    /// Further options, as after `-o`.
    pub extra: Vec<String>,
    /// How often everything is put on the medium; zero for never.
    pub sync_interval: Duration,
    /// Everything is put on the medium also when nothing has been changed for so long.
    pub sync_when_quiet: Option<Duration>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: false,
            fs_name: "tacita".to_owned(),
            subtype: "tacita".to_owned(),
            threads: 0,
            ttl: TTL_DEFAULT,
            writeback_cache: false,
            passthrough: false,
            callers_room: false,
            background_max: BACKGROUND_MAX_DEFAULT,
            extra: Vec::new(),
            sync_interval: SYNC_INTERVAL_DEFAULT,
            sync_when_quiet: None,
        }
    }
}

impl MountOptions {
    /// What the mount table shows as the source: its path, or `instead` where that is not fit for it.
    pub fn source(path: &Path, instead: &str) -> String {
        let text = path.to_str().filter(|text| is_fit(text));
        text.unwrap_or(instead).to_owned()
    }

    /// The settings of the library that stand for these options.
    pub(super) fn config(&self) -> Result<Config> {
        for name in [&self.fs_name, &self.subtype] {
            if !is_fit(name) {
                let text = format!("{name}: not fit for the mount table");
                return Err(Error::new(Kind::Invalid, text));
            }
        }
        let mut options = vec![
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
            MountOption::FSName(self.fs_name.clone()),
            // The library keeps its own option of this name from the kernel when root mounts.
            MountOption::CUSTOM(format!("subtype={}", self.subtype)),
            if self.read_only || self.has_extra("ro") { MountOption::RO } else { MountOption::RW },
        ];
        for option in self.extras() {
            options.extend(parse_option(option)?);
        }
        let mut config = Config::default();
        config.mount_options = options;
        config.acl = if self.allow_other || self.has_extra("allow_other") {
            SessionACL::All
        } else {
            SessionACL::Owner
        };
        let threads = match self.threads {
            0 => available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        config.n_threads = Some(threads);
        config.clone_fd = threads > 1;
        Ok(config)
    }

    /// Owners and permission bits that are shown instead of those of the files.
    pub(super) fn shown(&self) -> Result<Shown> {
        let mut shown = Shown::default();
        self.extras().try_for_each(|option| shown.take(option))?;
        Ok(shown)
    }

    /// What is put on the medium before it is answered.
    pub(super) fn at_once(&self) -> AtOnce {
        let flags = flags(&self.extra.join(","));
        if flags.contains(MountFlags::SYNCHRONOUS) {
            AtOnce::All
        } else if flags.contains(MountFlags::DIRSYNC) {
            AtOnce::Names
        } else {
            AtOnce::Nothing
        }
    }

    /// How the mount is to be, if that has what mounting itself cannot say, as root then does anew.
    pub(super) fn afterwards(&self) -> Option<MountFlags> {
        let mut all = flags(&format!("nosuid,nodev,{}", self.extra.join(",")));
        all.set(MountFlags::RDONLY, self.read_only || self.has_extra("ro"));
        all.contains(MountFlags::NOSYMFOLLOW).then_some(all | MountFlags::BIND)
    }

    fn extras(&self) -> impl Iterator<Item = &str> {
        self.extra.iter().flat_map(|extra| each(extra))
    }

    fn has_extra(&self, wanted: &str) -> bool {
        self.extras().any(|option| option == wanted)
    }
}

/// The options of a list, as after `-o`. What stands in quotes, as contexts of `SELinux` do, is one.
pub(super) fn each(list: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let options = list.split(move |c| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    });
    options.filter(|option| !option.is_empty())
}

/// Refuses an option that nobody knows, or that has a value which makes no sense.
pub(super) fn is_known(option: &str) -> Result<()> {
    parse_option(option)?;
    Shown::default().take(option)
}

/// What is asked for in vain: an option, or a place; what is wrong with it, and what can be done.
pub(super) fn refused(what: &str, cause: &str, remedy: &str) -> Error {
    let failure = Failure::usage(format!("{what}: {cause}")).with_remedy(remedy);
    Error::new(Kind::Invalid, failure.cause.clone()).because(failure)
}

/// Whether the library and the mount table can take a name.
fn is_fit(name: &str) -> bool {
    !name.is_empty() && !name.contains([',', '\\', '\0', '\n'])
}

/// What is put on the medium before it is answered, which the kernel leaves to file systems, but for what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AtOnce {
    /// Nothing that nobody asks for.
    Nothing,
    /// Names that come, go and move: `dirsync`.
    Names,
    /// Attributes and room, too: `sync`.
    All,
}

/// What is shown of every file instead of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) umask: Option<u16>,
}

impl Shown {
    /// Takes an option, if it is one of these.
    fn take(&mut self, option: &str) -> Result<()> {
        let Some((name, value)) = option.split_once('=') else { return Ok(()) };
        let is_digits = value.bytes().all(|byte| byte.is_ascii_digit());
        let number = |radix| u32::from_str_radix(value, radix).ok().filter(|_| is_digits);
        match name {
            "uid" | "gid" => {
                let (remedy, taken) = match name {
                    "uid" => ("give the number of a user, as `id -u NAME` says it", &mut self.uid),
                    _ => (
                        "give the number of a group, as `getent group NAME` says it",
                        &mut self.gid,
                    ),
                };
                // The last number is nobody's: the system's calls mean by it that nothing changes.
                let id = number(10).filter(|id| *id < u32::MAX);
                let cause = "this is no number that users and groups have";
                *taken = Some(id.ok_or_else(|| refused(option, cause, remedy))?);
            }
            "umask" => {
                let mask = number(8).and_then(|mask| u16::try_from(mask).ok());
                let mask = mask.filter(|mask| *mask <= UMASK_MAX).ok_or_else(|| {
                    let cause = "this is no mask of permission bits";
                    refused(option, cause, "give an octal number from 0 to 777, such as umask=077")
                });
                self.umask = Some(mask?);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Options that are settled elsewhere, or by whoever reads /etc/fstab, or that say what is done anyway.
const NO_MATTER: [&str; 37] = [
    "allow_other",
    "ro",
    "rw",
    "defaults",
    "default_permissions",
    "noatime",
    "atime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "diratime",
    "nodiratime",
    "auto",
    "noauto",
    "fail",
    "nofail",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "_netdev",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "nosymfollow",
    "symfollow",
    "silent",
    "loud",
    "nonempty",
];

/// The same, with a value behind them.
const NO_MATTER_EITHER: [&str; 10] =
    ["x-", "X-", "comment=", "uid=", "gid=", "umask=", "user=", "uhelper=", "fsname=", "subtype="];

/// What the kernel takes as it is: `SELinux` has four of them.
const KERNELS: [&str; 5] = ["max_read=", "context=", "fscontext=", "defcontext=", "rootcontext="];

/// An option as after `-o`; none for those that change nothing here.
fn parse_option(option: &str) -> Result<Option<MountOption>> {
    let is_no_matter = NO_MATTER.contains(&option)
        || NO_MATTER_EITHER.iter().any(|beginning| option.starts_with(beginning));
    if is_no_matter {
        return Ok(None);
    }
    if let Some(value) = option.strip_prefix("max_read=")
        && (!value.bytes().all(|byte| byte.is_ascii_digit()) || value.parse::<u32>().is_err())
    {
        let remedy = "give how many bytes the kernel asks for at most, such as max_read=65536";
        return Err(refused(option, "this is no number of bytes", remedy));
    }
    Ok(Some(match option {
        "dev" => MountOption::Dev,
        "nodev" => MountOption::NoDev,
        "suid" => MountOption::Suid,
        "nosuid" => MountOption::NoSuid,
        "exec" => MountOption::Exec,
        "noexec" => MountOption::NoExec,
        "sync" => MountOption::Sync,
        "async" => MountOption::Async,
        "dirsync" => MountOption::DirSync,
        _ if KERNELS.iter().any(|beginning| option.starts_with(beginning)) => {
            MountOption::CUSTOM(option.to_owned())
        }
        _ => {
            let remedy = "mount(8) tells of the generic ones, and `tacita SYSTEM mount --help` which \
                          of them are taken here, and what a system has besides";
            return Err(refused(option, "no such mount option", remedy));
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn options(extra: &str) -> Result<Config> {
        let options = MountOptions { extra: vec![extra.to_owned()], ..MountOptions::default() };
        options.config()
    }

    #[test]
    fn extra_options_count() {
        let config = options("ro,noexec,,allow_other").unwrap();
        assert!(config.mount_options.contains(&MountOption::RO));
        assert!(config.mount_options.contains(&MountOption::NoExec));
        assert!(!config.mount_options.contains(&MountOption::RW));
        assert_eq!(config.acl, SessionACL::All);
        let plain = options("").unwrap();
        assert!(plain.mount_options.contains(&MountOption::DefaultPermissions));
        assert_eq!(plain.acl, SessionACL::Owner);
        assert_eq!(options("nonsense").unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn options_of_fstab_are_taken() {
        let of = |extra: &str| {
            MountOptions { extra: vec![extra.to_owned()], ..MountOptions::default() }.shown()
        };
        let line = "noauto,nofail,user,uhelper=fuse.tacita-hifs,x-systemd.automount,_netdev,uid=1000,gid=100,umask=027,ro";
        let config = options(line).unwrap();
        assert!(config.mount_options.contains(&MountOption::RO));
        let shown = Shown { uid: Some(1000), gid: Some(100), umask: Some(0o27) };
        assert_eq!(of(line).unwrap(), shown);
        assert_eq!(of("rw").unwrap(), Shown::default());
        let quoted = "iversion,context=\"u:r:tmp_t:s0:c127,c456\",noexec";
        let config = options(quoted).unwrap();
        let context = MountOption::CUSTOM("context=\"u:r:tmp_t:s0:c127,c456\"".to_owned());
        for wanted in [context, MountOption::NoExec] {
            assert!(config.mount_options.contains(&wanted), "{wanted:?}");
        }
        assert_eq!(of("uid=0,gid=4294967294,umask=0777").unwrap().gid, Some(u32::MAX - 1));
    }

    #[test]
    fn what_is_put_on_the_medium_at_once_is_what_the_last_option_says() {
        let of = |extra: &str| {
            MountOptions { extra: vec![extra.to_owned()], ..MountOptions::default() }.at_once()
        };
        assert_eq!(of("noexec,async"), AtOnce::Nothing);
        assert_eq!(of("noexec,dirsync"), AtOnce::Names);
        assert_eq!(of("dirsync,sync"), AtOnce::All);
        assert_eq!(of("sync,async"), AtOnce::Nothing);
    }

    #[test]
    fn values_that_make_no_sense_are_refused_with_a_remedy() {
        let ids = ["uid=me", "uid=", "uid=-1", "uid=+1", "uid=4294967295", "uid=99999999999"];
        let masks = ["umask=", "umask=9", "umask=-1", "umask=+7", "umask=1000", "umask=77777"];
        let ids = ids.iter().flat_map(|id| [id.to_string(), id.replace("uid", "gid")]);
        let lengths = ["max_read=", "max_read=x", "max_read=-1", "max_read=4294967296"];
        let others = masks.into_iter().chain(lengths).chain(["nonsense"]).map(str::to_owned);
        for wrong in ids.chain(others) {
            let extra = vec![format!("ro,{wrong},noexec")];
            let all = MountOptions { extra, ..MountOptions::default() };
            let refusals = [all.config().map(drop).and(all.shown().map(drop)), is_known(&wrong)];
            for refused in refusals.map(Result::unwrap_err) {
                assert_eq!(refused.kind(), Kind::Invalid, "{wrong}");
                let failure = std::error::Error::source(&refused).unwrap();
                let Failure { code, cause, remedy } = failure.downcast_ref().unwrap();
                assert_eq!(*code, tacita_daemon::exit::USAGE, "{wrong}");
                assert!(cause.contains(&wrong) && remedy.is_some(), "{wrong}: {failure:?}");
            }
        }
    }

    #[test]
    fn the_source_is_named_where_it_can_be() {
        let named = |name: &[u8]| MountOptions::source(Path::new(OsStr::from_bytes(name)), "x");
        assert_eq!(named(b"/srv/my images/a.img"), "/srv/my images/a.img");
        for odd in [&b"/srv/a,b"[..], b"/srv/a\\b", b"/srv/\xff", b""] {
            assert_eq!(named(odd), "x");
        }
    }

    #[test]
    fn names_cannot_smuggle_options() {
        let options =
            MountOptions { fs_name: "x,allow_other".to_owned(), ..MountOptions::default() };
        assert_eq!(options.config().unwrap_err().kind(), Kind::Invalid);
    }
}
