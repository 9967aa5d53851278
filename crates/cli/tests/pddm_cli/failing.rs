//! A device that fails under an open session: its owner hears of it, alike in both worlds.

use std::process::{Command, Stdio};

use serde_json::Value;
use tacita_testkit::skip_without;

use crate::bench::{Bench, expect, run, tacita};

/// Exit success of a client's request.
fn served(socket: &str, name: &str, request: &str) -> bool {
    let uri = format!("nbd+unix:///{name}?socket={socket}");
    let mut client = Command::new("qemu-io");
    client.args(["-f", "raw", "-c", request, "-c", "flush", &uri]);
    client.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    client.status().unwrap().success()
}

/// When nothing can be written any more, `status` says so and why. Requests that fail on a hidden
/// volume are told to whoever made them, and to nobody else.
#[test]
fn a_device_that_cannot_be_written_is_told_of() {
    let test = "a_device_that_cannot_be_written_is_told_of";
    if skip_without(test, &["qemu-io", "prlimit"]) {
        return;
    }
    let seen = [false, true].map(|hides| {
        let bench = Bench::new(test);
        let (own, hidden) = if hides { ("hidden", &["hidden"][..]) } else { ("public", &[][..]) };
        bench.init("16M", hidden, &["--heartbeat", "0"]);
        let socket = bench.path("socket");
        expect(0, &bench.open(own, &["--nbd", &socket]));
        assert!(served(&socket, "public", "write -P 7 0 1M"));
        let status = || -> Value {
            let said = tacita(&["status", &socket, "--json"]);
            serde_json::from_slice(&said.stdout).unwrap()
        };
        assert_eq!(status()["messages"], serde_json::json!([]));
        // From here on no file of the daemon's can be written.
        let daemon = status()["pid"].to_string();
        run("prlimit", &["--fsize=0", "--pid", &daemon]);
        assert!(!served(&socket, "public", "write -P 8 0 1M"));
        let before = status()["messages"].clone();
        if hides {
            assert!(!served(&socket, "hidden", "write -P 9 0 1M"));
        }
        assert_eq!(status()["messages"], before, "of hidden volumes nothing is said");
        let messages = before.as_array().unwrap().iter();
        // Whether the write fails or the flush is a matter of time.
        let (requests, told): (Vec<String>, Vec<String>) = messages
            .map(|message| message["text"].as_str().unwrap().to_owned())
            .partition(|text| text.starts_with("NBD "));
        assert!(!requests.is_empty(), "{before}");
        assert!(told[0].contains("nothing is written any more (File too large"), "{before}");
        let closed = tacita(&["pddm", "close", "--drop", &socket]);
        (told, expect(4, &closed).replace(&bench.path(""), ""))
    });
    assert_eq!(seen[0], seen[1]);
}
