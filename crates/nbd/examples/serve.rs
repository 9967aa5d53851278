//! Serves a file over NBD: `serve SOCKET|PORT FILE [--read-only] [--direct] [--discard]
//! [--block BYTES] [--name NAME]`, until SIGINT or SIGTERM.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tacita_block::{Access, FileOptions};
use tacita_nbd::{Export, Listener, Server};

struct Arguments {
    place: String,
    file: String,
    name: String,
    access: Access,
    options: FileOptions,
}

fn arguments() -> Option<Arguments> {
    let mut places = Vec::new();
    let mut name = String::new();
    let mut access = Access::ReadWrite;
    let (mut direct, mut discard, mut block_len_bytes) = (false, false, 512);
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--read-only" => access = Access::ReadOnly,
            "--direct" => direct = true,
            "--discard" => discard = true,
            "--block" => block_len_bytes = given.next()?.parse().ok()?,
            "--name" => name = given.next()?,
            _ if !argument.starts_with('-') => places.push(argument),
            _ => return None,
        }
    }
    let [place, file] = <[String; 2]>::try_from(places).ok()?;
    let options = FileOptions::new(block_len_bytes).direct(direct).discard(discard);
    Some(Arguments { place, file, name, access, options })
}

fn serve(arguments: Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let device = arguments.options.open(&arguments.file, arguments.access)?;
    let listener = match arguments.place.parse() {
        Ok(port) => Listener::tcp(([127, 0, 0, 1], port).into())?,
        Err(_) => Listener::unix(&arguments.place)?,
    };
    match listener.tcp_address() {
        Some(address) => println!("nbd://{address}"),
        None => println!("nbd+unix:///?socket={}", arguments.place),
    }
    let export = Export::new(arguments.name, Arc::new(device))
        .read_only(arguments.access == Access::ReadOnly);
    let server = Server::start(vec![export], vec![listener])?;
    signals.forever().next();
    Ok(server.stop(Duration::from_secs(10)))
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!(
            "serve SOCKET|PORT FILE [--read-only] [--direct] [--discard] [--block N] [--name NAME]"
        );
        return ExitCode::from(2);
    };
    match serve(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("requests were still under way");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
