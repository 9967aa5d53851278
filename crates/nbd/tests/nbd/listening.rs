//! Where the server listens, and where it does not.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use std::{fs, net};

use tacita_clock::Simulated;

use tacita_nbd::{Export, Kind, Limits, Listener, Server};

use crate::client::{Served, WAIT_MAX};
use crate::devices::memory;

fn export() -> Export {
    Export::new("disk", Arc::new(memory(1 << 16, 512)))
}

#[test]
fn the_socket_is_for_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = Listener::unix(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let server = Server::start(vec![export()], vec![listener]).unwrap();
    assert!(server.stop(WAIT_MAX));
    assert!(!path.exists(), "the socket file goes with the server");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing else is left");
}

#[test]
fn a_socket_is_taken_over_only_from_the_dead() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a socket file that was left behind");
    let first = Listener::unix(&path).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    let error = Listener::unix(&path).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy);
    assert!(error.to_string().contains("another server listens"), "{error}");
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    // A listener whose file is gone does not take away somebody else's.
    fs::remove_file(&path).unwrap();
    let second = Listener::unix(&path).unwrap();
    drop(first);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
}

#[test]
fn many_who_take_over_at_once_leave_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    let tries: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..8).map(|_| scope.spawn(|| Listener::unix(&path))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    assert_eq!(tries.iter().filter(|tried| tried.is_ok()).count(), 1);
    assert!(tries.iter().filter_map(|t| t.as_ref().err()).all(|e| e.kind() == Kind::Busy));
    assert!(path.exists());
}

/// Whoever may read a folder may lock it, and keep it locked.
#[test]
fn a_folder_that_stays_locked_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let open = || fs::File::open(folder.path()).unwrap();
    let (first, clock) = (open(), Simulated::at(UNIX_EPOCH));
    first.lock().unwrap();
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| Listener::unix_with(&path, &clock).unwrap_err());
        clock.advance_among(1, Duration::from_millis(4990));
        clock.advance(Duration::from_millis(10));
        let error = refused.join().unwrap();
        assert_eq!(error.kind(), Kind::Busy);
        assert!(error.to_string().contains("keeps the folder locked"), "{error}");
    });
    assert!(!path.exists());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| Listener::unix_with(&path, &clock).unwrap());
        clock.advance_among(1, Duration::from_secs(4));
        first.unlock().unwrap();
        clock.advance(Duration::from_secs(1));
        drop(waits.join().unwrap());
    });
}

#[test]
fn what_is_no_socket_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "precious").unwrap();
    assert_eq!(Listener::unix(&path).unwrap_err().kind(), Kind::Exists);
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    let missing = folder.path().join("none/s");
    assert_eq!(Listener::unix(missing).unwrap_err().kind(), Kind::Unavailable);
    let of_length = |len: usize| {
        let before = folder.path().as_os_str().len() + 1;
        folder.path().join("x".repeat(len - before))
    };
    for len in [108, 109, 255] {
        assert_eq!(Listener::unix(of_length(len)).unwrap_err().kind(), Kind::Invalid, "{len}");
    }
    let _longest = Listener::unix(of_length(107)).unwrap();
    std::os::unix::net::UnixStream::connect(of_length(107)).unwrap();
}

#[test]
fn only_this_machine_is_let_in() {
    for address in ["0.0.0.0:0", "192.0.2.1:0", "[::]:0"] {
        let error = Listener::tcp(address.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
    }
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.tcp_address().unwrap();
    assert_eq!(Listener::tcp(address).unwrap_err().kind(), Kind::Busy);
    let server = Server::start(vec![export()], vec![listener]).unwrap();
    let mut stream = net::TcpStream::connect(address).unwrap();
    let mut greeting = [0; 18];
    std::io::Read::read_exact(&mut stream, &mut greeting).unwrap();
    assert_eq!(greeting, tacita_nbd::negotiation::greeting());
    assert!(server.stop(WAIT_MAX));
}

#[test]
fn exports_must_make_sense() {
    let kind = |exports| Server::start(exports, Vec::new()).unwrap_err().kind();
    assert_eq!(kind(Vec::new()), Kind::Invalid);
    assert_eq!(kind(vec![export(), export()]), Kind::Invalid);
    let long = Export::new("x".repeat(5000), Arc::new(memory(1 << 16, 512)));
    assert_eq!(kind(vec![long]), Kind::Invalid);
}

#[test]
fn too_many_clients_are_turned_away() {
    let limits = Limits { connections: 3, ..Limits::default() };
    let served = Served::with_limits(vec![export()], limits);
    let silent: Vec<_> = (0..3).map(|_| served.greeted()).collect();
    assert!(served.connect().is_closed());
    drop(silent);
    while served.server.connections() > 0 {
        std::thread::yield_now();
    }
    let mut clients: Vec<_> = (0..3).map(|_| served.simple()).collect();
    assert!(served.simple().is_closed());
    assert_eq!(clients[2].read(0, 1), [0]);
    drop(clients.pop());
    while served.server.connections() > 2 {
        std::thread::yield_now();
    }
    assert_eq!(served.simple().read(0, 1), [0]);
}
