use super::*;

fn exports() -> Vec<Facts> {
    let facts = |name: &str, read_only| Facts { name: name.into(), len_bytes: 1 << 20, read_only };
    vec![facts("public", false), facts("other", true)]
}

fn string(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat()
}

fn contexts(export: &str, queries: &[&str]) -> Vec<u8> {
    let count = u32::try_from(queries.len()).unwrap().to_be_bytes();
    let queries: Vec<u8> = queries.iter().flat_map(|query| string(query)).collect();
    [string(export), count.to_vec(), queries].concat()
}

fn info(export: &str, wanted: &[u16]) -> Vec<u8> {
    let count = u16::try_from(wanted.len()).unwrap().to_be_bytes();
    let wanted: Vec<u8> = wanted.iter().flat_map(|number| number.to_be_bytes()).collect();
    [string(export), count.to_vec(), wanted].concat()
}

/// The numbers and data of all replies.
fn replies(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        let number = u32::from_be_bytes(bytes[12..16].try_into().unwrap());
        let len = u32::from_be_bytes(bytes[16..20].try_into().unwrap()) as usize;
        found.push((number, bytes[20..20 + len].to_vec()));
        bytes = &bytes[20 + len..];
    }
    found
}

fn numbers(bytes: &[u8]) -> Vec<u32> {
    replies(bytes).into_iter().map(|(number, _)| number).collect()
}

struct Client<'e>(Negotiation<'e>);

impl<'e> Client<'e> {
    fn new(exports: &'e [Facts]) -> Self {
        Self(Negotiation::new(exports, [0, 0, 0, 3]).unwrap())
    }

    fn send(&mut self, option: u32, data: &[u8]) -> (Next, Vec<u8>) {
        let mut out = Vec::new();
        let next = self.0.answer(option, data, &mut out);
        (next, out)
    }

    fn numbers(&mut self, option: u32, data: &[u8]) -> Vec<u32> {
        let (next, out) = self.send(option, data);
        assert_eq!(next, Next::Option);
        numbers(&out)
    }
}

#[test]
fn unknown_client_flags_end_it() {
    let exports = exports();
    assert!(Negotiation::new(&exports, [0, 0, 0, 4]).is_none());
    assert!(Negotiation::new(&exports, [1, 0, 0, 3]).is_none());
    assert!(Negotiation::new(&[], [0, 0, 0, 3]).is_none());
}

#[test]
fn exports_are_listed() {
    let exports = exports();
    let mut client = Client::new(&exports);
    let (_, out) = client.send(OPT_LIST, &[]);
    let expected =
        vec![(REP_SERVER, string("public")), (REP_SERVER, string("other")), (REP_ACK, Vec::new())];
    assert_eq!(replies(&out), expected);
    assert_eq!(client.numbers(OPT_LIST, &[0]), [REP_ERR_INVALID]);
}

#[test]
fn go_tells_and_begins() {
    let exports = exports();
    let mut client = Client::new(&exports);
    let (next, out) = client.send(OPT_GO, &info("other", &[INFO_NAME]));
    let terms = Terms { len_bytes: 1 << 20, read_only: true, structured: false, extents: false };
    assert_eq!(next, Next::Requests(1, terms));
    let replies = replies(&out);
    let kinds: Vec<u16> =
        replies[..3].iter().map(|(_, d)| u16::from(d[0]) << 8 | u16::from(d[1])).collect();
    assert_eq!(kinds, [INFO_EXPORT, INFO_NAME, INFO_BLOCK_SIZE]);
    let flags = u16::from_be_bytes(replies[0].1[10..12].try_into().unwrap());
    assert_eq!(
        flags,
        FLAG_HAS_FLAGS | FLAG_READ_ONLY | FLAG_SEND_FLUSH | FLAG_SEND_FUA | FLAG_CAN_MULTI_CONN
    );
    assert_eq!(replies[1].1[2..], *b"other");
    assert_eq!(replies[3], (REP_ACK, Vec::new()));
}

#[test]
fn what_does_not_exist_is_unknown() {
    let exports = exports();
    let mut client = Client::new(&exports);
    for option in [OPT_INFO, OPT_GO] {
        assert_eq!(client.numbers(option, &info("none", &[])), [REP_ERR_UNKNOWN]);
        assert_eq!(client.numbers(option, &[0, 0, 0, 9, 1]), [REP_ERR_INVALID]);
        assert_eq!(client.numbers(option, &[]), [REP_ERR_INVALID]);
        let mut long = info("public", &[]);
        long.push(0);
        assert_eq!(client.numbers(option, &long), [REP_ERR_INVALID]);
    }
    assert_eq!(client.numbers(5, &[]), [REP_ERR_UNSUP]);
    assert_eq!(client.numbers(u32::MAX, &[1; 100]), [REP_ERR_UNSUP]);
    assert_eq!(client.send(OPT_EXPORT_NAME, b"none"), (Next::End, Vec::new()));
}

#[test]
fn the_empty_name_is_the_first_export() {
    let exports = exports();
    let mut client = Client::new(&exports);
    let (next, out) = client.send(OPT_GO, &info("", &[INFO_NAME]));
    assert!(matches!(next, Next::Requests(0, _)));
    assert_eq!(replies(&out)[1].1[2..], *b"public");
    let (next, out) = client.send(OPT_EXPORT_NAME, b"");
    assert!(matches!(next, Next::Requests(0, _)));
    assert_eq!(out.len(), 10);
}

#[test]
fn extents_take_chunks_and_the_right_export() {
    let exports = exports();
    let mut client = Client::new(&exports);
    let all = contexts("public", &[]);
    let chosen = contexts("public", &["base:allocation", "qemu:x"]);
    assert_eq!(client.numbers(OPT_LIST_META_CONTEXT, &all), [REP_ERR_INVALID]);
    assert_eq!(client.numbers(OPT_SET_META_CONTEXT, &chosen), [REP_ERR_INVALID]);
    assert_eq!(client.numbers(OPT_STRUCTURED_REPLY, &[1]), [REP_ERR_INVALID]);
    assert_eq!(client.numbers(OPT_STRUCTURED_REPLY, &[]), [REP_ACK]);
    assert_eq!(client.numbers(OPT_LIST_META_CONTEXT, &all), [REP_META_CONTEXT, REP_ACK]);
    let space = contexts("public", &["base:"]);
    assert_eq!(client.numbers(OPT_LIST_META_CONTEXT, &space), [REP_META_CONTEXT, REP_ACK]);
    assert_eq!(client.numbers(OPT_SET_META_CONTEXT, &space), [REP_ACK]);
    let (_, out) = client.send(OPT_SET_META_CONTEXT, &chosen);
    let context = [&BASE_ALLOCATION_ID.to_be_bytes(), BASE_ALLOCATION.as_bytes()].concat();
    assert_eq!(replies(&out), [(REP_META_CONTEXT, context), (REP_ACK, Vec::new())]);
    let extents = |client: &mut Client<'_>, name| match client.send(OPT_GO, &info(name, &[])).0 {
        Next::Requests(_, terms) => terms.extents,
        next => panic!("{next:?}"),
    };
    assert!(extents(&mut client, "public"));
    assert!(!extents(&mut client, "other"), "chosen for another export");
    // A failed choice voids the one before.
    client.numbers(OPT_SET_META_CONTEXT, &contexts("none", &["base:allocation"]));
    assert!(!extents(&mut client, "public"));
}

#[test]
fn counts_that_lie_cost_nothing() {
    let exports = exports();
    let mut client = Client::new(&exports);
    client.numbers(OPT_STRUCTURED_REPLY, &[]);
    let mut data = string("public");
    data.extend(u32::MAX.to_be_bytes());
    assert_eq!(client.numbers(OPT_SET_META_CONTEXT, &data), [REP_ERR_INVALID]);
    let long = string(&"x".repeat(5000));
    assert_eq!(client.numbers(OPT_SET_META_CONTEXT, &long), [REP_ERR_INVALID]);
}

#[test]
fn old_clients_can_only_name_an_export() {
    let exports = exports();
    let mut client = Client(Negotiation::new(&exports, [0; 4]).unwrap());
    assert_eq!(client.send(OPT_LIST, &[]), (Next::End, Vec::new()));
    let (next, out) = client.send(OPT_EXPORT_NAME, b"other");
    assert!(matches!(next, Next::Requests(1, _)));
    assert_eq!(out.len(), 134);
    assert_eq!(client.0.answer_too_long(OPT_LIST, &mut Vec::new()), Next::End);
}

#[test]
fn what_is_too_long_is_refused() {
    let exports = exports();
    let client = Client::new(&exports);
    let mut out = Vec::new();
    assert_eq!(client.0.answer_too_long(OPT_GO, &mut out), Next::Option);
    assert_eq!(numbers(&out), [REP_ERR_TOO_BIG]);
    assert_eq!(client.0.answer_too_long(OPT_EXPORT_NAME, &mut out), Next::End);
}
