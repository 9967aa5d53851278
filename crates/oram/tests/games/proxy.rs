//! What stands between clients and the server and writes down all that passes: what the server's owner
//! sees.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tacita_oram::geometry::{Generation, Geometry};
use tacita_oram::keys::Label;
use tacita_oram::link::Stream;
use tacita_oram::wire::codec::Codec;
use tacita_oram::wire::{HEADER_LEN, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::time::Instant;

use super::world::Lie;

/// Everything but what has to look random.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Frame {
    /// When it passed, in microseconds.
    pub(crate) at: u128,
    pub(crate) connection: usize,
    pub(crate) from_client: bool,
    pub(crate) kind: u8,
    pub(crate) len: usize,
    /// What a request names, but for labels, pages and what is sealed.
    pub(crate) names: String,
}

/// What passed.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) frames: Vec<Frame>,
    pub(crate) labels: Vec<(Generation, Label)>,
    pub(crate) pages: Vec<(Generation, u32)>,
    /// All that clients sent, for searches.
    pub(crate) bytes: Vec<u8>,
    connections: usize,
}

/// Writes down what passes between `near`, which is returned, and `far`.
pub(crate) fn watch(
    trace: Arc<Mutex<Trace>>,
    lie: Option<Lie>,
    geometry: Geometry,
    begin: Instant,
    far: impl Stream + 'static,
) -> DuplexStream {
    let (near, ours) = tokio::io::duplex(1 << 16);
    let connection = {
        let mut trace = trace.lock().unwrap();
        trace.connections += 1;
        trace.connections
    };
    let (from_near, to_near) = tokio::io::split(ours);
    let (from_far, to_far) = tokio::io::split(far);
    let watch = Watch { trace, lie, geometry, begin, connection };
    tokio::spawn(watch.clone().carry(true, from_near, to_far));
    tokio::spawn(watch.carry(false, from_far, to_near));
    near
}

#[derive(Clone)]
struct Watch {
    trace: Arc<Mutex<Trace>>,
    lie: Option<Lie>,
    geometry: Geometry,
    begin: Instant,
    connection: usize,
}

impl Watch {
    async fn carry<A: Stream, B: Stream>(
        self,
        from_client: bool,
        mut reader: ReadHalf<A>,
        mut writer: WriteHalf<B>,
    ) {
        let mut head = [0; HEADER_LEN];
        while reader.read_exact(&mut head).await.is_ok() {
            let len = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
            let mut body = vec![0; len];
            if reader.read_exact(&mut body).await.is_err() {
                break;
            }
            self.write_down(from_client, &head, &body);
            if let (false, Some(lie)) = (from_client, &self.lie) {
                lie(&head, &mut body);
            }
            if writer.write_all(&head).await.is_err() || writer.write_all(&body).await.is_err() {
                break;
            }
        }
        let _ = writer.shutdown().await;
    }

    fn write_down(&self, from_client: bool, head: &[u8; HEADER_LEN], body: &[u8]) {
        let mut trace = self.trace.lock().unwrap();
        let mut names = String::new();
        if from_client {
            let codec = Codec::new(Some(self.geometry));
            let request = codec
                .request_head(head)
                .and_then(|head| codec.request(head, body.to_vec().into()))
                .expect("clients keep to the protocol");
            names = public(&request);
            if let Request::Fetch { page, item } = request {
                trace.pages.extend(page.map(|page| (page.generation, page.page)));
                trace.labels.extend(item.map(|item| (item.generation, item.label)));
            }
            trace.bytes.extend_from_slice(body);
        }
        trace.frames.push(Frame {
            at: self.begin.elapsed().as_micros(),
            connection: self.connection,
            from_client,
            kind: head[4],
            len: body.len(),
            names,
        });
    }
}

fn public(request: &Request) -> String {
    match request {
        Request::Hello { .. } | Request::Root | Request::SwapRoot { .. } => String::new(),
        Request::Follow { record, result } => format!("{record} {result}"),
        Request::Append { fence, .. } => format!("{fence}"),
        Request::Fetch { page, item } => {
            format!("{:?} {:?}", page.map(|page| page.generation), item.map(|item| item.generation))
        }
        Request::Store { sequence, .. } => format!("{sequence}"),
        Request::Get { object, offset, len } => format!("{object} {offset} {len}"),
        Request::Put { object, total, offset, .. } => format!("{object} {total} {offset}"),
        Request::Delete { object } => format!("{object}"),
        Request::List { prefix, after } => format!("{prefix} {after:?}"),
    }
}

impl Trace {
    /// How often the label is asked that is asked most often.
    pub(crate) fn most_of_one_label(&self) -> usize {
        let mut counts = HashMap::new();
        for label in &self.labels {
            *counts.entry(label).or_insert(0) += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }

    /// The same label in more than one generation.
    pub(crate) fn labels_of_two_generations(&self) -> usize {
        let mut generations = HashMap::new();
        let mut twice = 0;
        for (generation, label) in &self.labels {
            let first = generations.entry(label).or_insert(generation);
            twice += usize::from(*first != generation);
        }
        twice
    }
}
