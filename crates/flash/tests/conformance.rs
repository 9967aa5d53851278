//! What every volume must do, for emulators of all kinds.

use tacita_flash::conformance::check;
use tacita_flash::{Behaviour, Emulator, EmulatorOptions, EraseMode};

/// Chips of odd shapes: the shortest and longest pages, few pages, an odd number of them, blocks that
/// are bad from the beginning, and the common one.
fn shapes() -> Vec<EmulatorOptions> {
    let usual = EmulatorOptions::default();
    let shape = |page_len_bytes, pages_per_block, blocks| EmulatorOptions {
        page_len_bytes,
        pages_per_block,
        blocks,
        ..usual
    };
    vec![
        shape(512, 4, 16),
        shape(512, 33, 40),
        shape(1024, 16, 24),
        shape(2048, 64, 20),
        EmulatorOptions { factory_bad_per_1024: 200, ..shape(4096, 7, 64) },
        shape(16_384, 5, 12),
    ]
}

fn modes() -> [Behaviour; 4] {
    let behaviour = Behaviour::default();
    [
        behaviour,
        Behaviour { erase_mode: EraseMode::Eager, ..behaviour },
        // Content moves all the time.
        Behaviour { wear_threshold: 1, ..behaviour },
        Behaviour { erase_mode: EraseMode::Eager, wear_threshold: 0, ..behaviour },
    ]
}

#[test]
fn in_memory() {
    for shape in shapes() {
        for behaviour in modes() {
            let options = EmulatorOptions { behaviour, ..shape };
            println!("{options:?}");
            check(&Emulator::in_memory(&options).unwrap());
        }
    }
}

#[test]
fn on_file() {
    let folder = tempfile::tempdir().unwrap();
    for (n, shape) in shapes().into_iter().enumerate() {
        let path = folder.path().join(format!("{n}"));
        println!("{shape:?}");
        drop(Emulator::create(&path, &shape).unwrap());
        check(&Emulator::open(&path, shape.behaviour).unwrap());
    }
    // Each erase waits for the disk in the other modes: the shortest blocks are enough.
    for behaviour in &modes()[1..3] {
        let path = folder.path().join("0");
        check(&Emulator::open(&path, *behaviour).unwrap());
    }
}

/// With room for all that piles up between flushes.
#[test]
fn erased_by_flushes_only() {
    let behaviour = Behaviour { erase_mode: EraseMode::Never, ..Behaviour::default() };
    let options = EmulatorOptions {
        page_len_bytes: 512,
        pages_per_block: 8,
        blocks: 1200,
        reserve_per_1024: 500,
        behaviour,
        ..EmulatorOptions::default()
    };
    check(&Emulator::in_memory(&options).unwrap());
}
