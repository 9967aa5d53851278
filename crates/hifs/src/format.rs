//! A new image: every block is written, so that nothing tells which have been used.

use std::sync::Arc;

use tacita_block::{BlockDevice, BlockNo};
use tacita_vfs::{FileType, Timestamp};

use crate::commit;
use crate::error::{Error, Kind, Result, damaged};
use crate::geometry::{BLOCK_LEN, Parameters};
use crate::medium::Medium;
use crate::names::Names;
use crate::record::{Inode, Xattrs};
use crate::superblock::{Superblock, is_superblock};
use crate::tree::{Node, ROOT, State};

/// Who owns the root directory of a new image.
#[derive(Debug, Clone, Copy, Default)]
pub struct RootOwner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Makes an image on `device`, which loses all it held, behind the image, too. `progress` is told the
/// blocks written so far and their total.
///
/// # Errors
/// [`Kind::Geometry`] if the parameters make no image or the device is smaller than they say (then
/// nothing has been written); [`Kind::Device`].
pub fn format(
    device: Arc<dyn BlockDevice>,
    parameters: &Parameters,
    owner: RootOwner,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let superblock = Superblock::new(parameters)?;
    let medium = Medium::new(device)?;
    let total = medium.blocks();
    if total < superblock.geometry.image_blocks {
        return Err(Error::new(Kind::Geometry, "the device is smaller than the image"));
    }
    // The old superblocks go first: an interrupted format leaves no image. One that cannot be read may be one.
    for at in [BlockNo(0), BlockNo(total - 1)] {
        if at.0 == 0 || medium.read_block(at).map_or(true, |block| is_superblock(&block)) {
            medium.zero(at, 1)?;
        }
    }
    medium.flush()?;
    let mut done = 1;
    while done < total {
        let now = (total - done).min(1024);
        medium.zero(BlockNo(done), now)?;
        done += now;
        progress(done, total);
    }
    medium.zero_rest()?;
    for group in 0..superblock.geometry.buckets.groups {
        let at = superblock.geometry.descriptor(group);
        medium.write(at, &superblock.descriptor(group))?;
    }
    write_root(&superblock, &medium, owner)?;
    medium.flush()?;
    let block: [u8; BLOCK_LEN] = superblock.encode();
    medium.write(superblock.geometry.superblock_copy(), &block)?;
    medium.write(BlockNo(0), &block)?;
    medium.flush()
}

fn write_root(superblock: &Superblock, medium: &Medium, owner: RootOwner) -> Result<()> {
    let names = Names::new(superblock.seed);
    let mut state = State::empty(superblock.clone(), medium.clone(), names, Box::new(|| 1));
    let full = superblock.times == crate::geometry::Times::Full;
    let time = full.then(Timestamp::default);
    let root = Node::from_record(Inode {
        id: state.root_id,
        kind: FileType::Directory,
        perm: 0o755,
        nlink: 2,
        uid: owner.uid,
        gid: owner.gid,
        rdev: 0,
        size: 0,
        buckets: 0,
        times: [None, time, time],
        inline: Vec::new(),
        xattrs: Xattrs::new(),
    });
    let (id, node) = (root.id, state.nodes.insert(root));
    debug_assert_eq!(node, ROOT);
    state.dirs.insert(id, node);
    state.index_inode(node).map_err(|_| damaged("the root does not fit in a page"))?;
    let geometry = superblock.geometry;
    if let Some((plan, _)) = commit::freeze(&mut state)? {
        let sealed = plan.seal(medium, superblock)?;
        sealed.write(medium, &geometry, &mut |_| {})?;
        sealed.apply(medium, &mut |_| {})?;
        sealed.finish(medium, &geometry)?;
    }
    Ok(())
}
