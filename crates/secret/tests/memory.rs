//! What uses of a key leave behind: the key and its round keys lie in one place while they are used,
//! and nowhere after. Each planted fault is found.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::hint::black_box;

#[cfg(feature = "faults")]
use tacita_secret::faults::{Fault, plant};
use tacita_secret::{
    Counted, FreshKey, Key, MessageKey, Noise, OneTimeCipher, Opening, Openings, Sealing, Traces,
};
use tacita_testkit::own_memory::{Finding, deep, is_key_schedule, search};

/// The key that is used, byte by byte; it stands nowhere in memory but where keys do.
const KEY_BYTE: u8 = 0xb6;

fn keys() -> Vec<Finding> {
    search(|bytes: &[u8; 32]| bytes.iter().all(|byte| *byte == KEY_BYTE))
}

fn key() -> Key {
    Key::take(&mut [black_box(KEY_BYTE); 32])
}

/// All that is done with keys.
fn use_it(key: &Key) {
    let mut block = vec![1; 4096];
    let tag = Sealing::new(key).seal(1, b"context", &mut block);
    Opening::new(key).open(1, b"context", &mut block, &tag).unwrap();
    Counted::new(key, 7).seal(b"context", &mut block);
    Noise::new(key).fill(&mut block);
    // Something to be sealed at once, too.
    Sealing::new(key).seal(2, &[], &mut block[..16]);
    drop(key.clone());
    black_box(key.value(3, &[b"part", &block]));
    drop(Sealing::new(&key.derive(1, &[b"part", &block])));
    drop(Opening::new(&key.derive(2, &[])));
    Sealing::under(key, 4, &[b"part"]).seal(2, &[], &mut block[..16]);
    drop(Opening::under(key, 4, &[&block]));
    let mut openings = Openings::under(key, 4);
    for part in [b"part", b"next"] {
        // Some calls further down than what they leave is overwritten.
        let opened = further_down(|| openings.of(&[part]).open(2, &[], &mut block, &tag));
        assert!(opened.is_err());
    }
    drop(openings);
    for cipher in [OneTimeCipher::Aes128Ctr, OneTimeCipher::Aes128Gcm, OneTimeCipher::Aes256Gcm] {
        // Read anew each time, so that no copy is kept for the next.
        let bytes = || black_box(&key.expose()[..cipher.key_len()]);
        black_box(MessageKey::take(cipher, bytes()).check_value(&mut Traces::new()));
        let (fresh, context) = (FreshKey::take(cipher, bytes()), &b"context"[..]);
        let tag = fresh.seal(&mut Traces::new(), |_| context, &mut block);
        MessageKey::take(cipher, bytes())
            .open(&mut Traces::new(), context, &mut block, &tag)
            .unwrap();
        // Some calls further down than they are overwritten.
        let mut traces = Traces::new();
        for _ in 0..2 {
            let fresh = FreshKey::take(cipher, bytes());
            let tag = further_down(|| fresh.seal(&mut traces, |_| context, &mut block));
            let key = MessageKey::take(cipher, bytes());
            further_down(|| key.open(&mut traces, context, &mut block, &tag)).unwrap();
            further_down(|| key.check_value(&mut traces));
        }
    }
}

/// As far as a few calls.
#[inline(never)]
fn further_down<T>(act: impl FnOnce() -> T) -> T {
    let mut between = [0u8; 2 << 10];
    black_box(&mut between);
    let done = act();
    black_box(&mut between);
    done
}

fn is_one_mapping(findings: &[Finding]) -> bool {
    findings.windows(2).all(|pair| pair[0].mapping == pair[1].mapping)
}

/// One test, for all of it is about the memory of the one process.
#[test]
fn keys_and_round_keys_lie_in_one_place_and_are_gone_after() {
    let secret = key();
    deep(|| use_it(&secret));
    let found = keys();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(search(is_key_schedule), []);
    // Short keys are its first half, and their first round keys are what they are.
    let found = search(|bytes: &[u8; 16]| bytes.iter().all(|byte| *byte == KEY_BYTE));
    assert_eq!(found.len(), 17, "within the key, and nowhere else: {found:#?}");

    // While ciphers live, they lie where the key does.
    let ciphers = (Sealing::new(&secret), Opening::new(&secret), Noise::new(&secret));
    assert_eq!(keys().len(), 4, "the key, and the first round keys of three ciphers");
    let schedules = search(is_key_schedule);
    if schedules.is_empty() {
        eprintln!(
            "SKIPPED: keys_and_round_keys: this processor's round keys have no standard form"
        );
    }
    assert!(is_one_mapping(&[keys(), schedules].concat()));
    drop((ciphers, secret));
    assert_eq!([keys(), search(is_key_schedule)].concat(), []);

    #[cfg(feature = "faults")]
    for (fault, use_one) in LEAKS {
        // What comes after would be left instead. Who only derives a key does not wipe the stack.
        if !matches!(fault, Fault::HashState) {
            deep(use_one);
            assert_eq!([keys(), search(is_key_schedule)].concat(), []);
        }
        let planted = plant(fault);
        deep(use_one);
        drop(planted);
        let found = [keys(), search(is_key_schedule)].concat();
        assert!(!found.is_empty(), "{fault:?} is not found");
        // What a leak has left on the stack goes with the next use; places are as they are.
        deep(|| use_it(&key()));
        deep(|| deep(|| ()));
    }
}

/// What each fault leaves behind is found after these.
#[cfg(feature = "faults")]
const LEAKS: [(Fault, fn()); 4] = [
    (Fault::HashState, || drop(key().derive(1, &[b"part"]))),
    (Fault::UsedStack, || {
        let key = FreshKey::take(OneTimeCipher::Aes256Gcm, key().expose());
        key.seal(&mut Traces::new(), |_| b"context", &mut [1; 16]);
    }),
    (Fault::UsedStack, || {
        let key = key();
        let mut openings = Openings::under(&key, 4);
        let mut open = |part: &[u8]| openings.of(&[part]).open(2, &[], &mut [1; 16], &[0; 16]);
        assert!(further_down(|| open(b"part").and(open(b"next"))).is_err());
    }),
    (Fault::UsedPlaces, || use_it(&key())),
];
