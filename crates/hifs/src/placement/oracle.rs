//! The definition of a canonical layout, in as few lines as possible.

use std::collections::HashMap;

use super::piece::{Cell, Piece};
use super::procedures::Procedures;

/// Takes `pieces` from the most to the least preferred and gives each its first free frame.
///
/// Returns the occupied cells with `(owner, logical bucket)`. This is what every layout means;
/// whatever [`super::Engine`] computes must equal it.
///
/// Source: design note, decision 2 and section 2.3 (`canon`).
pub fn oracle(
    procedures: &dyn Procedures,
    pieces: impl IntoIterator<Item = Piece>,
) -> HashMap<Cell, (u128, u32)> {
    let mut pieces: Vec<Piece> = pieces.into_iter().collect();
    pieces.sort_by_key(|piece| procedures.rank(piece));
    let mut cells = HashMap::new();
    for piece in pieces {
        let is_free = |first: u32| {
            (first..first + piece.buckets()).all(|cell| !cells.contains_key(&Cell(cell)))
        };
        let frame = (0..u32::MAX)
            .map(|t| procedures.choice(&piece, t).0)
            .find(|&first| is_free(first))
            .expect("the pieces fit");
        for i in 0..piece.buckets() {
            cells.insert(Cell(frame + i), (piece.owner, piece.bucket + i));
        }
    }
    cells
}
