//! `tacita tour`.
use crate::arguments::Tour;
use crate::exit::Outcome;
pub(crate) fn run(_: &Tour) -> Outcome<()> {
    Ok(())
}
