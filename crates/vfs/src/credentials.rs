//! On whose account a thread of root takes room: some blocks of a file system are kept for root, and
//! quotas do not bind it, so what it does for others must not be done as root.
//!
//! A thread that acts for a user has its user id, and root's capabilities without the one that
//! disregards such limits. Permissions are checked elsewhere, by the kernel.

use std::marker::PhantomData;

use rustix::io::Errno;
use rustix::process::{Uid, geteuid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_res_uid,
};

use crate::{Kind, Result};

/// A user whom nothing is kept for: what the kernel itself shows for users that it has no number of.
pub(crate) const NOBODY: u32 = 65534;

/// What a thread acts as; it is again what it was before when this is dropped.
#[derive(Debug)]
#[must_use = "it holds as long as this lives"]
pub struct Acting {
    before: Option<(Uid, CapabilitySets)>,
    /// It is undone by the thread that it was done by.
    here: PhantomData<*const ()>,
}

impl Acting {
    /// As it was.
    const fn unchanged() -> Self {
        Self { before: None, here: PhantomData }
    }
}

/// The thread takes room on a user's account. Only root can; others have no more than is theirs.
///
/// # Errors
/// That the kernel refuses; nothing has changed then.
pub fn act_for(user: u32) -> Result<Acting> {
    if user == 0 || !getuid().is_root() {
        return Ok(Acting::unchanged());
    }
    let own = capabilities(None).map_err(refused)?;
    let effective = own.effective - CapabilitySet::SYS_RESOURCE;
    become_user(Uid::from_raw(user), own, effective)
}

/// The thread takes room on its own account again, as long as what this returns lives.
///
/// # Errors
/// As [`act_for`].
pub fn act_for_oneself() -> Result<Acting> {
    if geteuid() == getuid() {
        return Ok(Acting::unchanged());
    }
    let own = capabilities(None).map_err(refused)?;
    become_user(getuid(), own, own.permitted)
}

fn become_user(user: Uid, own: CapabilitySets, effective: CapabilitySet) -> Result<Acting> {
    let before = geteuid();
    // From here on dropping it undoes what has been done.
    let acting = Acting { before: Some((before, own)), here: PhantomData };
    set_thread_res_uid(None::<Uid>, Some(user), None::<Uid>).map_err(refused)?;
    // Changing the user has taken the capabilities away, or given all.
    set_capabilities(None, CapabilitySets { effective, ..own }).map_err(refused)?;
    Ok(acting)
}

/// The supplementary groups of a thread that waits for us; none where it is not in our view.
pub(crate) fn groups(pid: u32) -> Vec<u32> {
    if pid == 0 {
        return Vec::new();
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect()
}

fn refused(errno: Errno) -> crate::Error {
    Kind::from_errno(errno.raw_os_error()).into()
}

impl Drop for Acting {
    fn drop(&mut self) {
        if let Some((user, own)) = self.before {
            // The kernel grants both: the real user stays root, and so does what it may have.
            let back = set_thread_res_uid(None::<Uid>, Some(user), None::<Uid>);
            let back = back.and_then(|()| set_capabilities(None, own));
            debug_assert_eq!(back, Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failure is a finding")]

    use super::*;

    fn has_resource() -> bool {
        capabilities(None).unwrap().effective.contains(CapabilitySet::SYS_RESOURCE)
    }

    #[test]
    fn a_thread_is_again_what_it_was() {
        if !geteuid().is_root() {
            eprintln!("SKIPPED: a_thread_is_again_what_it_was: not root");
            return;
        }
        let before = capabilities(None).unwrap();
        // Not every root has it.
        let had_resource = has_resource();
        {
            let _user = act_for(NOBODY).unwrap();
            assert_eq!((geteuid().as_raw(), has_resource()), (NOBODY, false));
            let now = capabilities(None).unwrap().effective;
            assert_eq!(now, before.effective - CapabilitySet::SYS_RESOURCE);
            {
                let _own = act_for_oneself().unwrap();
                assert_eq!((geteuid().is_root(), has_resource()), (true, had_resource));
            }
            assert_eq!((geteuid().as_raw(), has_resource()), (NOBODY, false));
        }
        assert!(geteuid().is_root());
        assert_eq!(capabilities(None).unwrap(), before);
        let _root = act_for(0).unwrap();
        assert_eq!((geteuid().is_root(), has_resource()), (true, had_resource));
    }
}
