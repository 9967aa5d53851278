use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::geometry::LABEL_LEN;
use crate::wire::{ItemAddress, PageAddress};

fn geometry() -> Geometry {
    Geometry::new(512, 16, 2, 100).unwrap()
}

fn codec() -> Codec {
    Codec::new(Some(geometry()))
}

fn filled(len: usize) -> impl Strategy<Value = Bytes> {
    any::<u8>().prop_map(move |byte| Bytes::from(vec![byte; len]))
}

fn up_to(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn generation() -> impl Strategy<Value = Generation> {
    (1..=24_u8, 1..=u64::MAX).prop_map(|(level, number)| Generation { level, number })
}

fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        any::<u64>().prop_map(|first| Object::Log { first }),
        any::<u64>().prop_map(|period| Object::Results { period }),
        any::<u64>().prop_map(|period| Object::Manifest { period }),
        (generation(), any::<u32>())
            .prop_map(|(generation, bucket)| Object::Items { generation, bucket }),
        (generation(), any::<u32>())
            .prop_map(|(generation, part)| Object::Filter { generation, part }),
    ]
}

fn fetch() -> impl Strategy<Value = Request> {
    let page = (generation(), any::<u32>())
        .prop_map(|(generation, page)| PageAddress { generation, page });
    let item = (generation(), any::<[u8; LABEL_LEN]>())
        .prop_map(|(generation, label)| ItemAddress { generation, label });
    (page, item, 0..3).prop_map(|(page, item, which)| Request::Fetch {
        page: (which != 0).then_some(page),
        item: (which != 1).then_some(item),
    })
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        any::<u16>().prop_map(|version| Request::Hello { version }),
        any::<(u64, u64)>().prop_map(|(record, result)| Request::Follow { record, result }),
        (any::<u64>(), filled(geometry().record_len()))
            .prop_map(|(fence, record)| Request::Append { fence, record }),
        fetch(),
        (any::<u64>(), filled(geometry().result_len()))
            .prop_map(|(sequence, result)| Request::Store { sequence, result }),
        (object(), any::<u64>(), 0..=1_u32 << 20).prop_map(|(object, offset, len)| Request::Get {
            object,
            offset,
            len
        }),
        (object(), 0..u64::MAX - 2000, 1..1000_usize, 0..1000_u64).prop_map(
            |(object, offset, len, more)| Request::Put {
                object,
                total: offset + len as u64 + more,
                offset,
                bytes: Bytes::from(vec![1; len]),
            }
        ),
        object().prop_map(|object| Request::Delete { object }),
        ("[a-z0-9/-]{0,64}", proptest::option::of(object()))
            .prop_map(|(prefix, after)| Request::List { prefix, after }),
        Just(Request::Root),
        (up_to(ROOT_LEN_MAX), up_to(ROOT_LEN_MAX))
            .prop_map(|(expected, new)| Request::SwapRoot { expected, new }),
    ]
}

fn refusal() -> impl Strategy<Value = Refusal> {
    (1..=7_u8).prop_map(|code| Refusal::from_code(code).unwrap())
}

fn answer() -> impl Strategy<Value = Answer> {
    let fetched = (filled(PAGE_LEN), filled(geometry().item_len()), 0..3);
    prop_oneof![
        (any::<(u16, u64, u64, u32)>(), up_to(ROOT_LEN_MAX)).prop_map(
            |((version, records, period, followers), root)| {
                Answer::Welcome { version, root, records, period, followers }
            }
        ),
        Just(Answer::Following),
        any::<u64>().prop_map(|sequence| Answer::Appended { sequence }),
        fetched.prop_map(|(page, item, which)| Answer::Fetched {
            page: (which != 0).then_some(page),
            item: (which != 1).then_some(item),
        }),
        any::<bool>().prop_map(|created| Answer::Kept { created }),
        up_to(5000).prop_map(Answer::Bytes),
        Just(Answer::Done),
        vec(object(), 0..20).prop_map(Answer::Names),
        up_to(ROOT_LEN_MAX).prop_map(Answer::Root),
        (any::<bool>(), up_to(ROOT_LEN_MAX))
            .prop_map(|(swapped, root)| Answer::Swapped { swapped, root }),
        refusal().prop_map(Answer::Refused),
    ]
}

fn push() -> impl Strategy<Value = Push> {
    prop_oneof![
        (any::<u64>(), filled(geometry().record_len()))
            .prop_map(|(sequence, record)| Push::Record { sequence, record }),
        (any::<u64>(), filled(geometry().result_len()))
            .prop_map(|(sequence, result)| Push::Result { sequence, result }),
    ]
}

fn split(frame: &Bytes) -> ([u8; HEADER_LEN], Bytes) {
    (frame[..HEADER_LEN].try_into().unwrap(), frame.slice(HEADER_LEN..))
}

proptest! {
    #[test]
    fn requests_come_back(number in 1..=u64::MAX, request in request()) {
        let (head, body) = split(&codec().encode_request(number, &request).unwrap());
        let head = codec().request_head(&head).unwrap();
        prop_assert_eq!(head.number, number);
        prop_assert_eq!(codec().request(head, body).unwrap(), request);
    }

    #[test]
    fn answers_come_back(number in 1..=u64::MAX, answer in answer()) {
        let (head, body) = split(&codec().encode_answer(number, &answer).unwrap());
        let head = codec().reply_head(&head).unwrap();
        prop_assert_eq!(codec().reply(head, body).unwrap(), Reply::Answer(number, answer));
    }

    #[test]
    fn pushes_come_back(push in push()) {
        let (head, body) = split(&codec().encode_push(&push).unwrap());
        let head = codec().reply_head(&head).unwrap();
        prop_assert_eq!(codec().reply(head, body).unwrap(), Reply::Push(push));
    }

    /// What is understood after a byte was altered is encoded as it came: no two frames mean the same.
    #[test]
    fn every_request_has_one_frame(request in request(), at in any::<usize>(), with in 1..=u8::MAX) {
        let mut frame = codec().encode_request(1, &request).unwrap().to_vec();
        let at = at % frame.len();
        frame[at] ^= with;
        let (head, body) = split(&frame.clone().into());
        if let Ok(head) = codec().request_head(&head)
            && let Ok(other) = codec().request(head, body)
        {
            prop_assert_eq!(codec().encode_request(head.number, &other).unwrap(), frame);
        }
    }

    #[test]
    fn every_reply_has_one_frame(answer in answer(), at in any::<usize>(), with in 1..=u8::MAX) {
        let mut frame = codec().encode_answer(1, &answer).unwrap().to_vec();
        let at = at % frame.len();
        frame[at] ^= with;
        let (head, body) = split(&frame.clone().into());
        if let Ok(head) = codec().reply_head(&head)
            && let Ok(Reply::Answer(number, other)) = codec().reply(head, body)
        {
            prop_assert_eq!(codec().encode_answer(number, &other).unwrap(), frame);
        }
    }

    #[test]
    fn anything_is_digested(head in any::<[u8; HEADER_LEN]>(), body in up_to(200)) {
        let mut right = head;
        right[..4].copy_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
        right[5..8].fill(0);
        for head in [head, right] {
            let _ = codec().request_head(&head).and_then(|head| codec().request(head, body.clone()));
            let _ = codec().reply_head(&head).and_then(|head| codec().reply(head, body.clone()));
        }
    }
}

/// No header makes anyone allocate more than a piece and its surroundings.
#[test]
fn lengths_are_bounded_for_every_kind() {
    for kind in 0..=u8::MAX {
        for len in [16 + 32 + PIECE_LEN_MAX + 1, u32::MAX as usize] {
            let mut head = [0; HEADER_LEN];
            head[..4].copy_from_slice(&u32::try_from(len).unwrap().to_le_bytes());
            head[4] = kind;
            assert!(codec().reply_head(&head).is_err());
            head[8] = 1;
            assert!(codec().request_head(&head).is_err() && codec().reply_head(&head).is_err());
        }
    }
}

/// Lengths say of a fetch what everybody sees, and nothing of what is found.
#[test]
fn fetches_have_one_length() {
    let generation = Generation { level: 1, number: 1 };
    let page = Some(PageAddress { generation, page: 3 });
    let item = Some(ItemAddress { generation, label: [7; LABEL_LEN] });
    for (page, item) in [(page, item), (page, None), (None, item)] {
        let frame = codec().encode_request(1, &Request::Fetch { page, item }).unwrap();
        assert_eq!(frame.len(), HEADER_LEN + FETCH_LEN);
    }
    let nothing = codec().encode_request(1, &Request::Fetch { page: None, item: None }).unwrap();
    let (head, body) = split(&nothing);
    let head = codec().request_head(&head).unwrap();
    assert_eq!(codec().request(head, body).unwrap_err().kind(), Kind::Protocol);
}

#[test]
fn wrong_lengths_are_not_sent() {
    let short = Request::Append { fence: 1, record: Bytes::from_static(b"short") };
    assert_eq!(codec().encode_request(1, &short).unwrap_err().kind(), Kind::Protocol);
    let record = Bytes::from(vec![0; geometry().record_len()]);
    let append = Request::Append { fence: 1, record };
    assert!(codec().encode_request(1, &append).is_ok());
    assert!(Codec::new(None).encode_request(1, &append).is_err());
    let long = Answer::Root(vec![0; ROOT_LEN_MAX + 1].into());
    assert!(codec().encode_answer(1, &long).is_err());
    let list = Request::List { prefix: "log/\n".into(), after: None };
    assert!(codec().encode_request(1, &list).is_err());
}
