//! The system's log: the journal where there is one, or another syslog daemon, through the socket
//! that both listen on (RFC 3164, as `logger` sends it).

use std::os::unix::net::UnixDatagram;

use log::Level;

/// Where it listens.
const SOCKET: &str = "/dev/log";

/// The facility "daemon".
const FACILITY: u8 = 3 << 3;

/// Sends a message. Where nobody listens, it is lost: the last ones are kept elsewhere.
pub(super) fn send(level: Level, text: &str) {
    let Ok(socket) = UnixDatagram::unbound() else { return };
    // A log that does not read must not hold up whoever writes.
    let _ = socket.set_nonblocking(true);
    let _ = socket.send_to(line(level, text).as_bytes(), SOCKET);
}

fn line(level: Level, text: &str) -> String {
    let severity = match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    format!("<{}>tacita[{}]: {text}", FACILITY | severity, std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_priority_and_process() {
        let line = line(Level::Warn, "x");
        assert_eq!(line, format!("<28>tacita[{}]: x", std::process::id()));
    }
}
