//! Real clients.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tacita_block::{Access, FileDevice};
use tacita_nbd::{Export, Listener, Server};

use tacita_testkit::skip_without;

use crate::client::{Served, WAIT_MAX};
use crate::devices::memory;

/// Longest run of a client in seconds.
const TIME_MAX_S: &str = "300";

/// Runs a program to its end and gives what it prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new("timeout").args([TIME_MAX_S, program]).args(arguments).output().unwrap();
    let (out, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{out}{errors}", output.status);
    out.into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Content with holes, and with places that are not.
fn content(len: usize) -> Vec<u8> {
    let byte = |at: usize| match at / 300_000 % 3 {
        1 => 0,
        _ => u8::try_from((at * 7 + at / 255) % 256).unwrap(),
    };
    (0..len).map(byte).collect()
}

#[test]
fn nbdinfo_is_told_what_is_served() {
    if skip_without("nbdinfo", &["nbdinfo"]) {
        return;
    }
    let served = Served::new(vec![
        Export::new("public", Arc::new(memory(64 << 20, 4096))),
        Export::new("other", Arc::new(memory(1 << 20, 512))).read_only(true),
    ]);
    let said = run("nbdinfo", &["--json", &served.uri("public")]);
    for fact in [
        r#""protocol": "newstyle-fixed""#,
        r#""structured": true"#,
        r#""export-name": "public""#,
        r#""export-size": 67108864"#,
        r#""can_flush": true"#,
        r#""can_fua": true"#,
        r#""can_multi_conn": true"#,
        r#""can_trim": true"#,
        r#""can_zero": true"#,
        r#""can_fast_zero": true"#,
        r#""can_df": true"#,
        r#""is_read_only": false"#,
        r#""block_size_minimum": 1,"#,
        r#""block_size_preferred": 4096,"#,
        r#""block_size_maximum": 33554432"#,
        "base:allocation",
    ] {
        assert!(said.contains(fact), "{fact} is not in {said}");
    }
    let said = run("nbdinfo", &["--list", "--json", &served.uri("")]);
    assert!(said.contains(r#""export-name": "public""#), "{said}");
    assert!(said.contains(r#""export-name": "other""#), "{said}");
    let said = run("nbdinfo", &["--map", &served.uri("public")]);
    assert!(said.contains("hole,zero"), "{said}");
    let said = run("nbdinfo", &["--size", &served.uri("other")]);
    assert_eq!(said.trim(), "1048576");
    let status = Command::new("nbdinfo").arg(served.uri("none")).output().unwrap().status;
    assert!(!status.success());
}

#[test]
fn nbdcopy_brings_everything_there_and_back() {
    if skip_without("nbdcopy", &["nbdcopy"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    let content = content(20_000_000);
    fs::write(&there, &content).unwrap();
    let served = Served::device(memory(20_000_256, 512));
    run("nbdcopy", &[text(&there), &served.uri("disk")]);
    run("nbdcopy", &["--connections=4", "--requests=32", &served.uri("disk"), text(&back)]);
    let copied = fs::read(&back).unwrap();
    assert_eq!(copied.len(), 20_000_256);
    assert!(copied[..content.len()] == content);
    run("nbdcopy", &["--synchronous", &served.uri("disk"), text(&back)]);
    assert!(fs::read(&back).unwrap() == copied);
}

#[test]
fn qemu_img_converts_and_compares() {
    if skip_without("qemu-img", &["qemu-img", "qemu-io"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    let content = content(16 << 20);
    fs::write(&raw, &content).unwrap();
    let served = Served::device(memory(16 << 20, 4096));
    let uri = served.uri("disk");
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-W", text(&raw), &uri]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&raw), &uri]);
    let said = run("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
    assert!(said.contains(r#""zero": true"#) && said.contains(r#""data": true"#), "{said}");
    let qcow2 = folder.path().join("qcow2");
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, text(&qcow2)]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &uri, text(&qcow2)]);
    let commands = [
        "write -P 0x5a 1000 5000",
        "write -f -P 0xa5 1M 1M",
        "write -z -u 5M 1M",
        "write -z 6M 1M",
        "discard 8M 64k",
        "flush",
        "read -P 0x5a 1000 5000",
        "read -P 0xa5 1M 1M",
        "read -P 0 5M 2M",
        "aio_write -P 1 9M 64k",
        "aio_write -P 2 10M 64k",
        "aio_flush",
        "read -P 1 9M 64k",
        "read -P 2 10M 64k",
    ];
    let mut arguments = vec!["-f", "raw"];
    for command in commands {
        arguments.extend(["-c", command]);
    }
    arguments.push(&uri);
    let said = run("qemu-io", &arguments);
    assert!(!said.contains("failed"), "{said}");
    // Two disks that differ must not compare as equal.
    let differs = ["compare", "-f", "raw", "-F", "raw", text(&raw), &uri];
    let status = Command::new("qemu-img").args(differs).output().unwrap().status;
    assert_eq!(status.code(), Some(1));
}

#[test]
fn fio_verifies_what_it_wrote() {
    let has_engine = Command::new("fio").arg("--enghelp").output();
    if !has_engine.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("nbd")) {
        eprintln!("SKIPPED: fio over nbd+unix: fio, or its engine nbd, is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = FileDevice::create(folder.path().join("disk"), 32 << 20, 512).unwrap();
    for (device, block) in [
        (Arc::new(memory(32 << 20, 4096)) as Arc<dyn tacita_block::BlockDevice>, "4k"),
        (Arc::new(file), "512-128k"),
    ] {
        let served = Served::new(vec![Export::new("disk", device)]);
        let uri = format!("--uri={}", served.uri("disk"));
        let range = format!("--bsrange={block}");
        let block = if block.contains('-') { range } else { format!("--bs={block}") };
        let said = run(
            "fio",
            &[
                "--name=verify",
                "--ioengine=nbd",
                &uri,
                "--rw=randwrite",
                &block,
                "--size=32m",
                "--iodepth=32",
                "--verify=crc32c",
                "--do_verify=1",
                "--verify_fatal=1",
                "--randseed=7",
                "--fsync=100",
                "--verify_state_save=0",
                "--output-format=terse",
            ],
        );
        // The fifth field is the error number.
        let fields: Vec<&str> = said.lines().last().unwrap().split(';').collect();
        assert_eq!(fields[4], "0", "{said}");
    }
}

#[test]
fn a_read_only_file_is_served_over_tcp() {
    if skip_without("nbdinfo over TCP", &["nbdinfo", "nbdcopy"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, back) = (folder.path().join("image"), folder.path().join("back"));
    let content = content(3 << 20);
    fs::write(&image, &content).unwrap();
    let device = FileDevice::open(&image, Access::ReadOnly, 512).unwrap();
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let uri = format!("nbd://{}", listener.tcp_address().unwrap());
    let export = Export::new("", Arc::new(device)).read_only(true);
    let server = Server::start(vec![export], vec![listener]).unwrap();
    assert!(run("nbdinfo", &["--json", &uri]).contains(r#""is_read_only": true"#));
    run("nbdcopy", &[&uri, text(&back)]);
    assert!(fs::read(&back).unwrap() == content);
    assert!(server.stop(WAIT_MAX));
}
