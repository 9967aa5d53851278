//! Who started a daemon in the foreground and waits until it serves (`sd_notify(3)`).

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Names the socket that it listens on: a path, or an abstract name behind an `@`.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Says that this process serves, where somebody has asked to be told. Who does not listen is not waited for.
pub(crate) fn tell_ready() {
    if let Some(name) = std::env::var_os(SOCKET) {
        let _ = send(&name, b"READY=1");
    }
}

fn send(name: &OsStr, state: &[u8]) -> std::io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_names_are_sent_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let name = format!("@{}", path.display());
        let at_path = UnixDatagram::bind(&path).unwrap();
        let address = SocketAddr::from_abstract_name(&name[1..]).unwrap();
        let at_name = UnixDatagram::bind_addr(&address).unwrap();
        for (socket, name) in [(at_path, path.as_os_str()), (at_name, OsStr::new(&name))] {
            send(name, b"READY=1").unwrap();
            let mut heard = [0; 16];
            let len = socket.recv(&mut heard).unwrap();
            assert_eq!(&heard[..len], b"READY=1", "{}", name.display());
        }
        send(&folder.path().join("nowhere").into_os_string(), b"READY=1").unwrap_err();
    }
}
