//! Images by an adversary, for fuzzing; with the feature `faults` only.

use super::image::{self, HEADER_LEN};
use super::ubi;

/// Puts the digest of an image's header and the checksums of all headers of UBI right, so that what
/// lies behind them is reached.
pub fn mend(image: &mut [u8]) {
    let Some((header, blocks)) = image.split_first_chunk_mut::<HEADER_LEN>() else { return };
    image::mend_header(header);
    let Ok(shape) = image::decode_header(header) else { return };
    let blocks = blocks.chunks_exact_mut(shape.block_len_bytes() as usize);
    for block in blocks.take(shape.blocks as usize) {
        ubi::mend(block, shape);
    }
}
