//! Files that stay because the lower file system, or the policy, does not let them go: the program
//! gets an error number, which says little, and the status gets the reason.

use rustix::fs::Statx;
use rustix::io::Errno;
use tacita_vfs::Kind;

use super::Overlay;
use super::conversions::refused;
use super::table::Node;
use crate::method::Method;
use crate::obstacle;
use crate::verdict::{Content, Verdict};

/// Why a part of a file with shared extents stays.
const SHARED: &str = "it shares blocks with another file and cannot be purged while it does; \
                      --on-failure warn truncates it anyway";

impl Overlay {
    /// The lower file system refuses to let a name go.
    pub(super) fn kept(
        &self,
        (dir, stat): (&Node, &Statx),
        method: &Method,
        errno: Errno,
    ) -> tacita_vfs::Error {
        if errno != Errno::PERM {
            return refused(errno);
        }
        let above = || dir.stat().ok().and_then(|above| obstacle::of_folder(&above));
        let Some(why) = obstacle::of_file(stat).or_else(above) else {
            return refused(errno);
        };
        self.tell_kept(stat, method, why);
        tacita_vfs::Error::new(Kind::NotPermitted, why)
    }

    /// The policy keeps what a truncation would take from a file that shares extents with another one.
    pub(super) fn kept_shared(&self, stat: &Statx, method: &Method) -> tacita_vfs::Error {
        self.tell_kept(stat, method, SHARED);
        tacita_vfs::Error::new(Kind::NotPermitted, SHARED)
    }

    fn tell_kept(&self, stat: &Statx, method: &Method, why: &str) {
        log::warn!("inode {}: kept: {why}", stat.stx_ino);
        let mut verdict = Verdict::new(None, stat.stx_ino, stat.stx_size, method.to_string());
        verdict.content = Content::Kept(why.to_owned());
        self.purger.statistics.count(&verdict);
        self.purger.statistics.tell(&verdict);
    }
}
