//! `tacita oram ...`.

mod serve;

use tacita_oram::{Error, Kind};

use crate::arguments::Oram as Command;
use crate::exit::{self, Failure, Outcome};

pub(crate) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::Serve { store, listen, metrics, foreground } => {
            serve::run(store, listen, *metrics, *foreground)
        }
    }
}

/// A failure of a store or of the way to it.
fn failure(error: &Error) -> Failure {
    let code = match error.kind() {
        Kind::Parameters => exit::USAGE,
        Kind::WrongKey => exit::NO_VOLUME,
        Kind::Busy | Kind::Unreachable => exit::BUSY,
        Kind::NoSpace => exit::NO_SPACE,
        _ => exit::DEVICE,
    };
    Failure::new(code, error.to_string())
}
