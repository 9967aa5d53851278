//! One client, from greeting to end.

use std::io;

use tacita_clock::Cancellation;

use crate::export::Exports;
use crate::input::{Input, Timeout};
use crate::limits::Limits;
use crate::negotiation::{
    CLIENT_FLAGS_LEN_BYTES, Negotiation, Next, OPTION_HEAD_LEN_BYTES, OPTION_LEN_MAX_BYTES,
    greeting, parse_option_head,
};
use crate::request::Terms;
use crate::server::Registered;
use crate::socket::Socket;

use requests::Served;

mod latency;
mod requests;
mod workers;

/// Options of one client; the thirstiest ask twice for each export.
const OPTIONS_MAX: u32 = 1024;

/// Serves a client until it leaves, breaks the protocol or the server stops.
///
/// # Errors
/// Whatever broke the connection; there is nobody to tell.
pub(crate) fn serve(
    socket: &Socket,
    registered: &Registered,
    exports: &Exports,
    limits: &Limits,
    stopping: &Cancellation,
) -> io::Result<()> {
    let mut input = Input::new(socket, Timeout::Until(socket.time() + limits.negotiation));
    let negotiated = negotiate(socket, &mut input, registered, exports, stopping)?;
    let Some((index, terms)) = negotiated else {
        return Ok(());
    };
    input.set_timeout(Timeout::Each(limits.request));
    let served = Served {
        device: &exports.devices[index],
        memory: &exports.memory[index],
        is_private: exports.is_private[index],
        terms,
    };
    requests::serve(socket, input, served, stopping, || registered.has_left())
}

/// Settles what is served; `None` if the client leaves or breaks the protocol, or if there are too
/// many of that export.
fn negotiate(
    socket: &Socket,
    input: &mut Input<'_>,
    registered: &Registered,
    exports: &Exports,
    stopping: &Cancellation,
) -> io::Result<Option<(usize, Terms)>> {
    socket.send(&greeting(), &[])?;
    if !input.need(CLIENT_FLAGS_LEN_BYTES)? {
        return Ok(None);
    }
    let begun = Negotiation::new(&exports.facts, *input.front_array());
    input.consume(CLIENT_FLAGS_LEN_BYTES);
    let Some(mut negotiation) = begun else { return Ok(None) };
    let mut out = Vec::new();
    for _ in 0..OPTIONS_MAX {
        if stopping.is_cancelled() || !input.need(OPTION_HEAD_LEN_BYTES)? {
            return Ok(None);
        }
        let Some((option, len)) = parse_option_head(input.front_array()) else { return Ok(None) };
        input.consume(OPTION_HEAD_LEN_BYTES);
        out.clear();
        let next = if len > OPTION_LEN_MAX_BYTES {
            if !input.skip(len)? {
                return Ok(None);
            }
            negotiation.answer_too_long(option, &mut out)
        } else {
            let len = usize::try_from(len).expect("short options");
            if !input.need(len)? {
                return Ok(None);
            }
            let next = negotiation.answer(option, input.front(len), &mut out);
            input.consume(len);
            next
        };
        // Before the client hears of it: it may be the reason why the next one connects.
        let has_room = match &next {
            Next::Requests(index, _) => registered.serves(*index),
            Next::Option | Next::End => true,
        };
        socket.send(&out, &[])?;
        match next {
            Next::Option => {}
            Next::Requests(index, terms) => return Ok(has_room.then_some((index, terms))),
            Next::End => return Ok(None),
        }
    }
    Ok(None)
}
