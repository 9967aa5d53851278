//! `tacita oram trace`: what the server sees, recorded, drawn and compared.

mod picture;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tacita_block::NewFile;
use tacita_oram::link::Address;
use tacita_oram::trace::{Comparison, Event, Recorder, Tally, Totals, compare, text};

use super::failure;
use super::serve::{End, when_to_end};
use crate::arguments::OramTrace as Arguments;
use crate::exit::{self, Failure, Outcome};
use crate::output::shown_name;
use crate::output::{self, of_file};
use crate::recognise::Made;

pub(crate) use picture::{Trace, draw};

/// Events of a recording that are kept to be drawn: about 200 MB.
const DRAWN_MAX: usize = 1_000_000;

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    match (&arguments.from[..], &arguments.address, &arguments.listen) {
        ([], Some(address), Some(listen)) => record(address, listen, arguments),
        ([one], ..) => one_of(one, arguments),
        ([one, two], ..) => two_of((one, two), arguments),
        _ => Err(Failure::usage("more than two recordings are given")
            .with_remedy("give --from once, or twice to compare")),
    }
}

/// What is made of events while they come.
struct Recording {
    tally: Tally,
    file: Option<BufWriter<NewFileWriter>>,
    /// To be drawn; `None` if nothing is.
    kept: Option<Vec<Event>>,
    failed: Option<std::io::Error>,
}

/// A new file that can be written through a buffer.
struct NewFileWriter(NewFile);

impl Write for NewFileWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.file().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Recording {
    fn begin(out: Option<&Path>, is_drawn: bool) -> Outcome<Self> {
        let mut file = None;
        if let Some(out) = out {
            let new = output::beginning(out, Some(Made::TRACE))?;
            let mut new = BufWriter::new(NewFileWriter(new));
            new.write_all(text::HEAD.as_bytes()).map_err(|e| of_file(out, e))?;
            file = Some(new);
        }
        let kept = is_drawn.then(Vec::new);
        Ok(Self { tally: Tally::default(), file, kept, failed: None })
    }

    /// Takes an event; whether that could be written.
    fn take(&mut self, event: &Event) -> bool {
        self.tally.add(event);
        if let Some(kept) = self.kept.as_mut().filter(|kept| kept.len() < DRAWN_MAX) {
            kept.push(event.clone());
        }
        let Some(file) = self.file.as_mut().filter(|_| self.failed.is_none()) else { return true };
        self.failed = file.write_all(text::line(event).as_bytes()).err();
        self.failed.is_none()
    }

    /// The file is whole from now on.
    fn publish(&mut self) -> std::io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let Some(file) = self.file.take() else { return Ok(()) };
        file.into_inner().map_err(std::io::IntoInnerError::into_error)?.0.publish()
    }
}

fn record(address: &Address, listen: &Address, arguments: &Arguments) -> Outcome<()> {
    let (caller, ends) = when_to_end()?;
    let out = arguments.out.as_deref();
    let of_out = |e: std::io::Error| match out {
        Some(out) => of_file(out, e),
        None => Failure::from(e),
    };
    let recording = Recording::begin(out, arguments.svg.is_some())?;
    // What cannot be its name is no news after all that is to be recorded.
    let svg = arguments.svg.as_deref().map(|svg| output::beginning(svg, None)).transpose()?;
    let recording = Arc::new(Mutex::new(recording));
    let telling = Arc::clone(&recording);
    let recorder = Recorder::start(address, listen, move |event| {
        let is_written = telling.lock().unwrap_or_else(PoisonError::into_inner).take(event);
        if !is_written {
            let _ = caller.send(End::Silent);
        }
    });
    let recorder = recorder.map_err(|e| failure(&e))?;
    let [from, at] = [address, recorder.address()].map(|address| shown_name(address.to_string()));
    output::say(&format!("tacita: {from} is recorded at {at}"));
    let _ = ends.recv();
    drop(recorder);
    let mut recording = recording.lock().unwrap_or_else(PoisonError::into_inner);
    recording.publish().map_err(of_out)?;
    let totals = recording.tally.totals();
    if let (Some(path), Some(svg), Some(kept)) = (&arguments.svg, svg, &recording.kept) {
        let name = address.to_string();
        output::written(path, svg, &draw(&[Trace { name, events: kept, totals }], None))?;
    }
    let facts = of_totals(&totals);
    output::done(arguments.json, &facts, &output::lines(&facts))
}

fn one_of(path: &Path, arguments: &Arguments) -> Outcome<()> {
    let events = read(path)?;
    let totals = Totals::of(&events);
    if let Some(svg) = &arguments.svg {
        let name = shown_name(path);
        output::new_file(svg, &draw(&[Trace { name, events: &events, totals }], None))?;
    }
    let facts = of_totals(&totals);
    output::facts(arguments.json, &facts, &output::lines(&facts))
}

fn two_of((one, two): (&Path, &Path), arguments: &Arguments) -> Outcome<()> {
    let events = [read(one)?, read(two)?];
    let compared = compare(&events[0], &events[1]);
    let traces: Vec<Trace> = [one, two]
        .iter()
        .zip(&events)
        .map(|(path, events)| Trace { name: shown_name(path), events, totals: Totals::of(events) })
        .collect();
    if let Some(svg) = &arguments.svg {
        output::new_file(svg, &draw(&traces, Some(&compared)))?;
    }
    let facts = json!({
        "traces": traces.iter().map(|trace| of_totals(&trace.totals)).collect::<Vec<_>>(),
        "same_shape": compared.shape.is_none(),
        "difference": compared.shape,
        "same_order": compared.order.is_none(),
        "order_difference": compared.order,
    });
    output::facts(arguments.json, &facts, &side_by_side(&traces, &compared))?;
    match compared.shape {
        None => Ok(()),
        Some(_) => Err(Failure::new(exit::WRONG, "the traces have different shapes").with_remedy(
            "the first difference is told above; only recordings of as many queries, from the same \
             place of the log on, can have one shape",
        )),
    }
}

fn read(path: &Path) -> Outcome<Vec<Event>> {
    let bytes = output::read(path).map_err(|e| of_file(path, e))?;
    text::parse(&String::from_utf8_lossy(&bytes)).map_err(|e| {
        Failure::new(exit::DEVICE, format!("{}: {e}", shown_name(path)))
            .with_remedy("name a recording that `tacita oram trace --out` has made")
    })
}

fn of_totals(totals: &Totals) -> Value {
    json!({
        "connections": totals.connections,
        "frames": totals.frames,
        "queries": totals.queries,
        "client_bytes": totals.client_bytes,
        "server_bytes": totals.server_bytes,
        "labels": totals.labels,
        "labels_again": totals.labels_again,
        "undecoded_bytes": totals.undecoded_bytes,
    })
}

/// Both traces' totals in two columns, and what tells them apart.
fn side_by_side(traces: &[Trace], compared: &Comparison) -> String {
    let columns: Vec<Value> = traces.iter().map(|trace| of_totals(&trace.totals)).collect();
    let names = columns[0].as_object().into_iter().flatten().map(|(name, _)| name);
    let mut lines: Vec<String> = names
        .map(|name| {
            let [one, two] = [&columns[0][name], &columns[1][name]].map(Value::to_string);
            format!("{:18} {one:>14} {two:>14}\n", name.replace('_', " "))
        })
        .collect();
    let said = |difference: &Option<String>| match difference {
        None => "equal".to_owned(),
        Some(what) => format!("differs: {what}"),
    };
    lines.push(format!("{:18} {}\n", "shape", said(&compared.shape)));
    lines.push(format!("{:18} {}\n", "order", said(&compared.order)));
    lines.concat()
}
