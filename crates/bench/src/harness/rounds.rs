//! Interleaved rounds: whatever else the machine does falls on all who are measured.

use anyhow::Result;

use super::runner;

/// Who is measured in a round, in turn, of so many: another one starts each round, so that none
/// always follows the same one.
///
/// # Errors
/// What `measure` says, and when a signal asks the run to end.
pub(crate) fn round(
    round: u32,
    count: usize,
    mut measure: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    for step in 0..count {
        runner::check_stop()?;
        measure((step + round as usize) % count)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_measured_and_another_one_begins() {
        let of = |number| {
            let mut order = Vec::new();
            let done = round(number, 3, |index| {
                order.push(index);
                Ok(())
            });
            done.map(|()| order).unwrap()
        };
        assert_eq!([of(0), of(1), of(5)], [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
    }
}
