//! How a daemon is heard without a terminal: what is logged goes to standard error while there is
//! one, and to the system's log afterwards; the last messages are kept for `tacita status`.
//!
//! What is logged never holds a file's name, a password or an offset, and is alike with and without
//! hidden volumes. That is the duty of whoever logs; a panic, whose words nobody has weighed, is
//! told by its place in the source alone.

mod messages;
mod system_log;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};
use tacita_clock::{Clock, System};

pub use messages::Message;
use messages::Messages;

/// Where messages go beside the kept ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sink {
    Terminal,
    SystemLog,
}

#[derive(Debug)]
struct State {
    sink: Sink,
    messages: Messages,
    /// What is said once it serves.
    serving: Vec<String>,
}

/// The one voice of a process.
struct Voice {
    state: Mutex<State>,
}

static VOICE: Voice = Voice {
    state: Mutex::new(State {
        sink: Sink::Terminal,
        messages: Messages::new(),
        serving: Vec::new(),
    }),
};

/// Speaks from now on, on standard error, from warnings upwards.
pub fn start() {
    if log::set_logger(&VOICE).is_ok() {
        log::set_max_level(LevelFilter::Warn);
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(|place| format!("{}:{}", place.file(), place.line()));
            log::error!("a thread panicked at {}", place.unwrap_or_default());
        }));
    }
}

/// Text in which a terminal obeys nothing, for names and damaged files may hold anything: a control
/// character that ends no line and is no tab is shown as `\u{1b}`.
pub fn shown(text: &str) -> Cow<'_, str> {
    let is_obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for c in text.chars() {
        if is_obeyed(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// A name, as it is shown in all text: it stays within its line, and means nothing else to a terminal. A
/// control character or another end of a line is `\u{a}`, a byte that is not UTF-8 `\xff`.
///
/// Nor has it what XML does not allow (1.0, section 2.2): characters below U+0020, U+FFFE and U+FFFF.
pub fn shown_name(name: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for chunk in name.as_ref().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}') {
                text.extend(c.escape_unicode());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Says a line on standard error. A reader that has gone is no error, and no reason to end: whoever
/// serves something would take with it what is not yet on the medium.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{}", shown(text));
}

/// Says a line as [`say`] when what is being started by [`crate::serve`] serves, and never if it does not
/// come to that.
pub fn say_when_serving(text: &str) {
    lock().serving.push(text.to_owned());
}

/// What is to be said when it serves, which it is asked once.
pub(crate) fn what_serves() -> Vec<String> {
    std::mem::take(&mut lock().serving)
}

/// Speaks to the system's log from now on.
pub(crate) fn leave_terminal() {
    lock().sink = Sink::SystemLog;
}

/// The last messages, the oldest first.
pub fn last() -> Vec<Message> {
    lock().messages.last()
}

/// How much is said from now on.
pub fn set_level(level: LevelFilter) {
    log::set_max_level(level);
}

fn lock() -> MutexGuard<'static, State> {
    // Each change is whole before anything can fail.
    VOICE.state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log for Voice {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries that this one knows nothing of may name what they like.
        metadata.target().starts_with("tacita") && metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // One line of its own, whatever names an error brings along.
        let text = shown_name(record.args().to_string());
        let mut state = lock();
        let is_new = state.messages.add(System.unix_seconds(), record.level(), &text);
        let sink = state.sink;
        drop(state);
        match sink {
            Sink::Terminal => say(&format!("tacita: {text}")),
            // A disk that fails says so a thousand times a second: the kept message counts them.
            Sink::SystemLog if is_new => system_log::send(record.level(), &text),
            Sink::SystemLog => {}
        }
    }

    fn flush(&self) {}
}

/// The word for a level.
pub(crate) fn word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_line_and_a_terminal_obeys_nothing_of_it() {
        let shown = |bytes: &[u8]| shown_name(OsStr::from_bytes(bytes));
        assert_eq!(shown("/a/\u{e4} b".as_bytes()), "/a/\u{e4} b");
        assert_eq!(shown(b"/\x1b[2J\n\t\x7f"), "/\\u{1b}[2J\\u{a}\\u{9}\\u{7f}");
        assert_eq!(shown("/\u{9b}\u{2028}\u{ffff}".as_bytes()), "/\\u{9b}\\u{2028}\\u{ffff}");
        assert_eq!(shown(b"/\xff\xc3\xa4\xc3"), "/\\xff\u{e4}\\xc3");
    }

    #[test]
    fn what_is_logged_stays_in_its_line() {
        set_level(LevelFilter::Warn);
        let mut record = Record::builder();
        record.target("tacita").level(Level::Warn);
        VOICE.log(&record.args(format_args!("/a\n/etc/\u{1b}[2J: kept")).build());
        let kept = last().into_iter().any(|kept| kept.text == "/a\\u{a}/etc/\\u{1b}[2J: kept");
        assert!(kept, "{:?}", last());
    }

    #[test]
    fn a_terminal_obeys_nothing_that_is_shown() {
        assert_eq!(shown("a \u{e4}\tb\n"), "a \u{e4}\tb\n");
        assert_eq!(shown("\u{1b}[2J\r\u{7f}\u{9b}"), "\\u{1b}[2J\\u{d}\\u{7f}\\u{9b}");
    }
}
