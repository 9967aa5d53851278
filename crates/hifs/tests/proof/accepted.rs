//! A write is answered as soon as nothing can refuse it, before its bytes are where they belong: what
//! is refused is never answered so, and whoever asks after the answer finds all of it.

use std::cell::Cell;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tacita_clock::{Clock, System};
use tacita_hifs::faults::Fault;
use tacita_hifs::geometry::{Layout, Parameters};
use tacita_testkit::history::{read_all, tree};
use tacita_vfs::{FileSystem, FileType, Kind, Stamps};

use crate::images::{fresh, memory_device, new, open, parameters};
use crate::planted::catches;

/// How long somebody who asks too early is given to be answered.
const TOO_EARLY: Duration = Duration::from_secs(2);

/// Writes until the image is full, whole blocks and parts of them. Returns how many were refused.
fn filling() -> u32 {
    let parameters = Parameters { len_bytes: 1 << 20, groups: Some(2), ..parameters(Layout::D) };
    let hifs = open(fresh(&parameters));
    let mut refused = 0;
    for n in 0..60u32 {
        let name = format!("{n}");
        let Ok((file, _)) = hifs.create(hifs.root(), name.as_ref(), &new(FileType::File)) else {
            continue;
        };
        let data = vec![0x40 | (n % 16).to_le_bytes()[0]; [40_960, 12_345, 4096][n as usize % 3]];
        let told = Cell::new(0);
        let mut tell = || told.set(told.get() + 1);
        match hifs.write_and_tell(file, 0, &data, Stamps::NONE, &mut tell) {
            Ok(()) => {
                assert_eq!(told.get(), 1, "file {n} was accepted");
                assert_eq!(read_all(&hifs, file), data);
            }
            Err(error) => {
                assert_eq!((error.kind(), told.get()), (Kind::NoSpace, 0), "file {n}");
                refused += 1;
            }
        }
    }
    refused
}

/// Somebody reads the file and syncs it as soon as a write to it has been answered.
fn asking_at_once() {
    let device = fresh(&parameters(Layout::D));
    let hifs = Arc::new(open(device.clone()));
    let (file, _) = hifs.create(hifs.root(), "file".as_ref(), &new(FileType::File)).unwrap();
    hifs.write(file, 0, &vec![1; 300_000], Stamps::NONE).unwrap();
    let (answers, seen) = channel();
    let asking = Mutex::new(None);
    let mut ask = || {
        let (hifs, device, answers) = (Arc::clone(&hifs), device.clone(), answers.clone());
        let asks = thread::spawn(move || {
            let read = read_all(&*hifs, file);
            hifs.sync_node(file).unwrap();
            answers.send((read, device.snapshot())).unwrap();
        });
        *asking.lock().unwrap() = Some(asks);
        // Whoever has been answered has been answered too early, and is judged below.
        System.wait(TOO_EARLY);
    };
    let written = vec![2; 200 << 10];
    hifs.write_and_tell(file, 8192, &written, Stamps::NONE, &mut ask).unwrap();
    asking.into_inner().unwrap().expect("the answer has come").join().unwrap();
    let (read, image) = seen.recv().unwrap();
    let has_all = |bytes: &[u8]| bytes[8192..][..written.len()] == written;
    assert!(has_all(&read), "what was answered is not read");
    let again = open(memory_device(&image));
    assert_eq!(tree(&again).len(), 2);
    let (file, _) = again.lookup(again.root(), "file".as_ref()).unwrap();
    assert!(has_all(&read_all(&again, file)), "what was answered was not synced");
}

#[test]
fn what_is_refused_is_not_accepted() {
    assert!(!catches(None, || assert!(filling() > 0, "nothing was refused")));
    assert!(catches(Some(Fault::AcceptedEarly), || _ = filling()));
}

#[test]
fn what_is_accepted_is_there() {
    assert!(!catches(None, asking_at_once), "the game passes without a fault");
    assert!(catches(Some(Fault::AcceptedEarly), asking_at_once));
}
