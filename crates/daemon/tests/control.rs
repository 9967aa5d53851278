//! The control channel, from both ends.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

use std::fs;
use std::io::{PipeReader, Read, Write, pipe};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tacita_daemon::control::{Client, Control, Identity, Reply, Request, Service};
use tacita_daemon::{Failure, FuseDevice, Kind, exit, voice};

/// Says what it is asked, and holds some answers back. Its status waits for `quiet`.
#[derive(Default)]
struct Echo {
    held: Mutex<Vec<Reply>>,
    entered: Mutex<Option<Sender<()>>>,
    quiet: Mutex<()>,
}

impl Echo {
    fn enter(&self) {
        if let Some(entered) = &*self.entered.lock().unwrap() {
            entered.send(()).ok();
        }
    }
}

impl Service for Echo {
    fn status(&self) -> Value {
        self.enter();
        let _quiet = self.quiet.lock().unwrap();
        json!({ "blocks": 7 })
    }

    fn serve(&self, request: &Request, mut reply: Reply) {
        match request.word.as_str() {
            "echo" => reply.answer(Ok(Value::Object(request.arguments.clone()))),
            "refuse" => {
                let busy = Failure::new(exit::BUSY, "in use").with_remedy("wait");
                reply.end(&json!({ "left": 3 }), Some(&busy));
            }
            "count" => {
                assert!((0..3).all(|n| reply.progress(&json!(n))));
                reply.answer(Ok(json!("counted")));
            }
            "hold" => {
                self.held.lock().unwrap().push(reply);
                self.enter();
            }
            _ => reply.unknown(request),
        }
    }
}

/// A daemon of this process, at a path of its own.
struct Bench {
    folder: tempfile::TempDir,
    echo: Arc<Echo>,
    control: Option<Control>,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("image"), b"").unwrap();
        let mut bench = Self { folder, echo: Arc::default(), control: None };
        bench.start();
        bench
    }

    fn start(&mut self) {
        self.start_as(None);
    }

    fn start_as(&mut self, device: Option<FuseDevice>) {
        let identity = Identity {
            system: "echo",
            at: self.at(),
            device,
            source: Some(self.folder.path().canonicalize().unwrap().join("image")),
        };
        let service: Arc<dyn Service> = Arc::clone(&self.echo) as _;
        self.control = Some(Control::start(identity, service).unwrap());
    }

    fn at(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("endpoint")
    }

    fn ask(&self, word: &str, arguments: Value) -> Result<Value, Failure> {
        let client = Client::find(&self.at()).unwrap();
        client.ask(&Request::new(word, arguments), &mut |_| ()).unwrap().result()
    }

    /// The socket, which a client finds by itself.
    fn socket(&self) -> PathBuf {
        let uid = rustix::process::geteuid().as_raw();
        let folders =
            ["/run/tacita".into(), format!("/run/user/{uid}/tacita"), format!("/tmp/tacita-{uid}")];
        let entries =
            folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let sockets = entries.map(|entry| entry.path());
        let (send, found) = channel();
        // All at once: another daemon of this machine may not answer at all.
        for socket in sockets.filter(|path| path.extension().is_some_and(|e| e == "control")) {
            let (send, at) = (send.clone(), self.at().to_str().unwrap().to_owned());
            std::thread::spawn(move || {
                let said = raw(&socket, b"{\"tacita\":1,\"request\":\"status\"}\n");
                if said.is_some_and(|said| said.contains(&at)) {
                    send.send(socket).ok();
                }
            });
        }
        drop(send);
        found.recv().unwrap()
    }

    fn hear_entries(&self) -> Receiver<()> {
        let (send, receive) = channel();
        *self.echo.entered.lock().unwrap() = Some(send);
        receive
    }
}

/// What is answered to these bytes.
fn raw(socket: &Path, bytes: &[u8]) -> Option<String> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.write_all(bytes).ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    Some(said)
}

/// What a search ends with that finds nothing, when all daemons of this machine answer: those of other
/// tests, too.
fn not_found(search: impl Fn() -> tacita_daemon::Result<Client>) -> tacita_daemon::Error {
    let mut ends = std::iter::repeat_with(|| search().unwrap_err());
    ends.find(|error| error.kind() != Kind::NoAnswer).unwrap()
}

/// A number that no mount has, and no other run of these tests; the kernel lets go of it when what comes with
/// it is dropped.
fn device(major: u32) -> (String, FuseDevice, PipeReader) {
    let number = format!("{major}:{}", std::process::id());
    let (kernel, channel) = pipe().unwrap();
    (number.clone(), FuseDevice::new(number, channel.into()), kernel)
}

/// Whoever has lost the place where it was served, and lives on, is neither forgotten nor in the way.
#[test]
fn who_has_lost_its_place_is_found_behind_whoever_has_it() {
    let bench = Bench::new();
    let socket = bench.socket();
    let beside = || -> Vec<PathBuf> {
        let stem = socket.file_stem().unwrap().to_str().unwrap();
        let entries = fs::read_dir(socket.parent().unwrap()).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(stem)).map(PathBuf::from).collect()
    };
    let another = |system| {
        let identity = Identity { system, at: bench.at(), device: None, source: None };
        Control::start(identity, Arc::new(Echo::default())).unwrap()
    };
    let who = || Client::find(&bench.at()).ok()?.status().ok().map(|said| said["system"].clone());
    let all = || {
        let said = Client::all().filter_map(|client| client.status().ok());
        let own = said.filter(|said| said["at"] == json!(bench.at().to_str().unwrap()));
        own.map(|said| said["system"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let second = another("second");
    let third = another("third");
    let mut found = all();
    found.sort_unstable();
    assert_eq!(found, ["echo", "second", "third"]);
    assert_eq!(who(), Some(json!("third")));
    drop(second);
    assert_eq!(who(), Some(json!("third")));
    assert_eq!(beside().len(), 2);
    drop(third);
    assert_eq!(who(), Some(json!("echo")));
    drop(bench.control);
    assert_eq!(beside(), Vec::<PathBuf>::new());
}

/// Who is slow is neither passed over nor taken for something else.
#[test]
fn who_does_not_say_what_it_serves_is_there() {
    let (number, device, _kernel) = device(4094);
    let mut bench = Bench::new();
    bench.control = None;
    bench.start_as(Some(device));
    let image = bench.folder.path().join("image");
    let _open = fs::File::open(&image).unwrap();
    let quiet = bench.echo.quiet.lock().unwrap();
    // What its process has open can be seen.
    let found = Client::find(&image).expect("it has it open");
    assert_eq!(found.process(), Some(std::process::id().cast_signed()));
    assert_eq!(Client::find(&bench.at()).unwrap().status().unwrap_err().code, exit::BUSY);
    // And that it has mounted nothing. What it has mounted cannot be seen everywhere.
    let seen = not_found(|| Client::of_mount(&number));
    assert_eq!(seen.kind(), Kind::NotServed, "{seen}");
    if let Ok(_channel) = fs::File::open("/dev/fuse") {
        let unknown = Client::of_mount(&number).unwrap_err();
        assert_eq!(unknown.kind(), Kind::NoAnswer, "{unknown}");
        assert_eq!(Failure::from(unknown).code, exit::BUSY);
    } else {
        eprintln!(
            "SKIPPED: who_does_not_say_what_it_serves_is_there, what it may have mounted: no /dev/fuse"
        );
    }
    let other = bench.folder.path().join("other");
    fs::write(&other, b"").unwrap();
    assert_eq!(not_found(|| Client::find(&other)).kind(), Kind::NotServed);
    drop(quiet);
    // Others who look for something have been there meanwhile, and may be too many.
    let ask = || Client::find(&bench.at()).unwrap().ask(&Request::plain("status"), &mut |_| ());
    let mut answers = std::iter::repeat_with(|| ask().unwrap());
    let answer = answers.find(|answer| answer.failure.is_none()).unwrap();
    assert_eq!(answer.facts["device"], json!(number));
}

/// Nor who has too much to do to say anything.
#[test]
fn who_has_too_many_clients_is_there() {
    let bench = Bench::new();
    let image = bench.folder.path().join("image");
    let _open = fs::File::open(&image).unwrap();
    let entered = bench.hear_entries();
    let quiet = bench.echo.quiet.lock().unwrap();
    // More at once it does not answer.
    let clients = [(); 16].map(|()| {
        let client = Client::find(&bench.at()).unwrap();
        std::thread::spawn(move || client.ask(&Request::plain("status"), &mut |_| ()))
    });
    for _ in &clients {
        entered.recv().unwrap();
    }
    assert!(Client::find(&image).is_ok(), "its process has it open");
    assert_eq!(Client::find(&bench.at()).unwrap().status().unwrap_err().code, exit::BUSY);
    drop(quiet);
    for client in clients {
        client.join().unwrap().unwrap();
    }
}

/// Another mount may have its number while a daemon is still at its final sync, or does not even know that
/// it is not mounted any more.
#[test]
fn what_the_kernel_has_let_go_of_is_not_found_by_its_number() {
    let (number, device, kernel) = device(4095);
    let mut bench = Bench::new();
    bench.control = None;
    bench.start_as(Some(device));
    let found = Client::of_mount(&number).unwrap().ask(&Request::plain("status"), &mut |_| ());
    assert_eq!(found.unwrap().facts["at"], json!(bench.at()));
    drop(kernel);
    let error = not_found(|| Client::of_mount(&number));
    assert_eq!(error.kind(), Kind::NotServed, "{error}");
    assert_eq!(
        bench.ask("echo", json!({})).unwrap(),
        json!({}),
        "where it serves it still answers"
    );
}

#[test]
fn it_answers_and_says_why_not() {
    let bench = Bench::new();
    assert_eq!(bench.ask("echo", json!({ "a": 1 })).unwrap(), json!({ "a": 1 }));
    let unknown = bench.ask("dance", Value::Null).unwrap_err();
    assert_eq!(unknown.code, exit::USAGE);
    assert!(unknown.cause.contains("dance"), "{unknown:?}");
    let client = Client::find(&bench.at()).unwrap();
    let refused = client.ask(&Request::new("refuse", Value::Null), &mut |_| ()).unwrap();
    assert_eq!(refused.facts, json!({ "left": 3 }));
    let busy = Failure::new(exit::BUSY, "in use").with_remedy("wait");
    assert_eq!(refused.failure, Some(busy), "as it was said, with its remedy");
}

#[test]
fn progress_is_heard_in_order() {
    let bench = Bench::new();
    let client = Client::find(&bench.at()).unwrap();
    let mut heard = Vec::new();
    let answer = client.ask(&Request::new("count", Value::Null), &mut |n| heard.push(n.clone()));
    assert_eq!(heard, [json!(0), json!(1), json!(2)]);
    assert_eq!(answer.unwrap().result().unwrap(), "counted");
}

#[test]
fn status_tells_what_is_served_and_what_was_said() {
    voice::start();
    let bench = Bench::new();
    log::warn!(target: "tacita-test", "the disk is slow");
    log::warn!(target: "somebody-else", "a secret");
    let status = bench.ask("status", Value::Null).unwrap();
    assert_eq!((&status["system"], &status["facts"]["blocks"]), (&json!("echo"), &json!(7)));
    assert_eq!(status["pid"], json!(std::process::id()));
    let messages = status["messages"].to_string();
    assert!(messages.contains("the disk is slow") && !messages.contains("a secret"), "{messages}");
    let info = || log::info!(target: "tacita-test", "an hour has passed");
    info();
    assert_eq!(bench.ask("log", json!({ "level": "loud" })).unwrap_err().code, exit::USAGE);
    bench.ask("log", json!({ "level": "info" })).unwrap();
    info();
    let messages = bench.ask("status", Value::Null).unwrap()["messages"].clone();
    let heard = messages.as_array().unwrap().iter().filter(|m| m["text"] == "an hour has passed");
    assert_eq!(heard.map(|m| m["count"].as_u64().unwrap()).sum::<u64>(), 1);
}

#[test]
fn it_is_found_by_what_it_serves_and_not_by_anything_else() {
    let bench = Bench::new();
    let image = bench.folder.path().join("image");
    let status = Request::new("status", Value::Null);
    let found = Client::find(&image).unwrap().ask(&status, &mut |_| ()).unwrap();
    assert_eq!(found.facts["at"], json!(bench.at().to_str().unwrap()));
    let other = bench.folder.path().join("other");
    fs::write(&other, b"").unwrap();
    assert_eq!(not_found(|| Client::find(&other)).kind(), Kind::NotServed);
    assert_eq!(not_found(|| Client::find(bench.folder.path())).kind(), Kind::NotServed);
}

#[test]
fn only_its_user_may_reach_it() {
    let bench = Bench::new();
    let socket = bench.socket();
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let folder = fs::metadata(socket.parent().unwrap()).unwrap();
    assert_eq!(
        (folder.permissions().mode() & 0o022, folder.uid()),
        (0, rustix::process::geteuid().as_raw())
    );
}

#[test]
fn what_the_dead_have_left_is_taken_over() {
    let mut bench = Bench::new();
    let socket = bench.socket();
    // A socket that nobody listens on, as of a daemon that was killed.
    bench.control = None;
    assert!(!socket.exists(), "who ends in order leaves nothing");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert_eq!(not_found(|| Client::find(&bench.at())).kind(), Kind::NotServed);
    bench.start();
    bench.ask("echo", Value::Null).unwrap();
}

/// Whoever serves there next may begin while one before is still at its end.
#[test]
fn who_ends_leaves_the_channel_of_who_came_after() {
    let mut bench = Bench::new();
    let before = bench.control.take();
    bench.start();
    drop(before);
    bench.ask("echo", Value::Null).unwrap();
}

#[test]
fn nonsense_is_refused_and_others_are_served() {
    let bench = Bench::new();
    let socket = bench.socket();
    let endless = vec![b'x'; 1 << 20];
    for bytes in [
        &b"\n"[..],
        b"status\n",
        b"{}\n",
        b"\xff\xfe\n",
        b"{\"tacita\":99,\"request\":\"echo\"}\n",
        &endless,
    ] {
        // Whoever sends on after having been refused is cut off.
        if let Some(said) = raw(&socket, bytes) {
            let answer: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(answer["failure"]["code"], json!(exit::USAGE), "{said}");
        }
    }
    let silent = UnixStream::connect(&socket).unwrap();
    bench.ask("echo", Value::Null).unwrap();
    drop(silent);
}

#[test]
fn as_many_are_answered_as_there_is_room_for() {
    let bench = Bench::new();
    let entered = bench.hear_entries();
    let socket = bench.socket();
    let hold = b"{\"tacita\":1,\"request\":\"hold\"}\n";
    let mut kept = Vec::new();
    for _ in 0..100 {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(hold).unwrap();
        entered.recv().unwrap();
        kept.push(stream);
    }
    // Answers that are held back keep nobody out: they hold no thread.
    bench.ask("echo", Value::Null).unwrap();
    let mut first = kept.swap_remove(0);
    for reply in std::mem::take(&mut *bench.echo.held.lock().unwrap()) {
        reply.answer(Ok(json!("late")));
    }
    let mut said = String::new();
    first.read_to_string(&mut said).unwrap();
    assert!(said.contains("late"), "{said}");
}
