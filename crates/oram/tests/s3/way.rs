//! The way to a server of buckets, on which things go wrong as a test has them.
//!
//! Requests go through it one after the other, as they have come: moto looks whether an object is there and puts it in
//! two steps.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// The server does it, and the answer is lost.
    AnswerLost,
    /// The server does it, and the answer is this.
    DoneAnd(u16, &'static str),
    /// It does not come to the server, and the answer is this.
    Answered(u16, &'static str),
    /// It does not come to the server, and the bucket is said to be in another region.
    Elsewhere(&'static str),
    /// What the server refuses for a condition that does not hold is told as done.
    ConditionIgnored,
}

/// What goes wrong, by the method, the path and the headers of a request, and which request it is.
type Rule = Box<dyn FnMut(&str, usize) -> Option<Mishap> + Send>;

struct State {
    server: SocketAddr,
    rule: Rule,
    count: usize,
}

/// The order in which requests go through: whoever waits for a lock may get it last of all.
#[derive(Default)]
struct Turns {
    numbers: Mutex<Numbers>,
    ended: Condvar,
}

#[derive(Default)]
struct Numbers {
    given: u64,
    ended: u64,
}

/// The turn of one request, until it is dropped.
struct Turn<'t>(&'t Turns);

impl Turns {
    fn wait(&self) -> Turn<'_> {
        let mut numbers = self.numbers.lock().unwrap();
        let own = numbers.given;
        numbers.given += 1;
        drop(self.ended.wait_while(numbers, |numbers| numbers.ended < own).unwrap());
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.numbers.lock().unwrap().ended += 1;
        self.0.ended.notify_all();
    }
}

/// The way, as long as the test.
pub(crate) struct Way {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    turns: Arc<Turns>,
}

impl Way {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { server, rule: Box::new(|_, _| None), count: 0 };
        let state = Arc::new(Mutex::new(state));
        let turns = Arc::<Turns>::default();
        let (shared, own_turns) = (state.clone(), turns.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, turns) = (shared.clone(), own_turns.clone());
                // Whoever asks sees from the end of the stream that it went wrong.
                std::thread::spawn(move || carry(stream, &turns, &shared));
            }
        });
        Self { address, state, turns }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this goes wrong; requests are counted from 0 again.
    pub(crate) fn rule(&self, rule: impl FnMut(&str, usize) -> Option<Mishap> + Send + 'static) {
        let mut state = self.state.lock().unwrap();
        (state.rule, state.count) = (Box::new(rule), 0);
    }

    /// Requests that have come so far.
    pub(crate) fn came(&self) -> u64 {
        self.turns.numbers.lock().unwrap().given
    }

    /// Requests since the rule.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().unwrap().count
    }
}

fn carry(mut stream: TcpStream, turns: &Turns, state: &Mutex<State>) -> io::Result<()> {
    let (head, body) = message(&mut stream)?;
    let _turn = turns.wait();
    let mut state = state.lock().unwrap();
    let number = state.count;
    state.count += 1;
    let mishap = (state.rule)(&head, number);
    let forwarded = || -> io::Result<Vec<u8>> {
        let mut server = TcpStream::connect(state.server)?;
        let (first, rest) = head.split_once("\r\n").unwrap();
        server.write_all(format!("{first}\r\nConnection: close\r\n{rest}").as_bytes())?;
        // Who refuses may do so before it has read the body, and close.
        let _ = server.write_all(&body);
        let mut answer = Vec::new();
        let read = server.read_to_end(&mut answer);
        if answer.is_empty() {
            read?;
        }
        Ok(answer)
    };
    let answer = match mishap {
        None => forwarded()?,
        Some(Mishap::AnswerLost) => {
            forwarded()?;
            return Ok(());
        }
        Some(Mishap::DoneAnd(status, code)) => {
            forwarded()?;
            refusal(status, code, "")
        }
        Some(Mishap::Answered(status, code)) => refusal(status, code, ""),
        Some(Mishap::Elsewhere(region)) => {
            refusal(301, "PermanentRedirect", &format!("x-amz-bucket-region: {region}\r\n"))
        }
        Some(Mishap::ConditionIgnored) => {
            let answer = forwarded()?;
            if answer.starts_with(b"HTTP/1.1 412") {
                b"HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    .to_vec()
            } else {
                answer
            }
        }
    };
    stream.write_all(&answer)
}

/// Head and body of a request.
fn message(stream: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let (mut bytes, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => bytes.extend_from_slice(&piece[..len]),
        }
    };
    let body = bytes.split_off(end);
    let head = String::from_utf8(bytes).unwrap();
    let len = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    let mut body = body;
    let missing = len.unwrap_or(0_u64) - body.len() as u64;
    stream.take(missing).read_to_end(&mut body)?;
    Ok((head, body))
}

/// As servers refuse, with much in the text that is not to be shown.
fn refusal(status: u16, code: &str, headers: &str) -> Vec<u8> {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>No.</Message>\
         <AWSAccessKeyId>{0}</AWSAccessKeyId><StringToSign>{0} {1}</StringToSign></Error>",
        tacita_testkit::s3_server::KEY_ID,
        tacita_testkit::s3_server::SECRET,
    );
    let head = format!(
        "HTTP/1.1 {status} No\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n{headers}\
         Connection: close\r\n\r\n",
        body.len()
    );
    [head, body].concat().into_bytes()
}
