//! Erase blocks of which pages cannot be read.

use tacita_flash::{Kind, Leb, Volume};

use crate::error::{Error, Result};

/// Pages of an erase block that cannot be read.
#[derive(Debug)]
pub(crate) struct Unread {
    /// Which ones, ascending.
    pub(crate) pages: Vec<u32>,
    /// Why the last one cannot be.
    pub(crate) why: Error,
}

/// Reads an erase block, page by page if it cannot be read at once. What cannot be read is zero, which is
/// nothing that is ever written.
///
/// # Errors
/// [`crate::Kind::Device`] of all but the medium.
pub(crate) fn read_block(
    volume: &dyn Volume,
    leb: Leb,
    block: &mut [u8],
) -> Result<Option<Unread>> {
    match volume.read(leb, 0, block) {
        Ok(()) => return Ok(None),
        Err(e) if e.kind() == Kind::Io => {}
        Err(e) => return Err(e.into()),
    }
    let page_len = volume.geometry().page_len_bytes;
    let mut unread: Option<Unread> = None;
    for (page, content) in (0..).zip(block.chunks_exact_mut(page_len as usize)) {
        match volume.read(leb, page * page_len, content) {
            Ok(()) => {}
            Err(e) if e.kind() == Kind::Io => {
                content.fill(0);
                let mut pages = unread.map_or_else(Vec::new, |unread| unread.pages);
                pages.push(page);
                unread = Some(Unread { pages, why: e.into() });
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(unread)
}
