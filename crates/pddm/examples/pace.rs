//! How fast a volume is without any front end, and what processor time its blocks take: `pace FILE GIB`.

#![allow(clippy::disallowed_methods, reason = "it measures on the clock of the machine")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use std::sync::Arc;
use std::time::Instant;

use tacita_block::{BlockDevice, BlockNo, FileDevice};
use tacita_pddm::{Entropy, Level, Options, Parameters, Session, Unlock, init};
use tacita_secret::Key;

/// Processor time of this process in hundredths of a second.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("pace FILE GIB")?;
    let len = arguments.next().ok_or("pace FILE GIB")?.parse::<u64>()? << 30;
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::create(&path, len, 4096)?);
    let keys = [Key::take(&mut [1; 32]), Key::take(&mut [2; 32])];
    init(
        &device,
        &Parameters::default(),
        Unlock::Wrap(&keys[0]),
        &[Unlock::Wrap(&keys[1])],
        Entropy::default(),
    )?;
    let session = Session::open(&device, Unlock::Wrap(&keys[1]), Options::default())?;
    let public = session.volume(Level::PUBLIC).ok_or("public")?;
    let blocks = public.geometry().blocks;
    let data = vec![0x5a; 1 << 20];
    let time = |what: &str, bytes: u64, work: &mut dyn FnMut() -> tacita_block::Result<()>| {
        let (begin, ticks, units) = (Instant::now(), ticks(), session.written_units());
        work()?;
        let seconds = begin.elapsed().as_secs_f64();
        let micros = (self::ticks() - ticks) as f64 * 1e4 / (bytes / 4096) as f64;
        let units = (session.written_units() - units) as f64 * 131_072.0;
        let mib = bytes as f64 / f64::from(1 << 20);
        let (speed, amplification) = (mib / seconds, units / bytes as f64);
        println!(
            "{what}: {speed:.0} MiB/s, amplification {amplification:.2}, {micros:.2} us a block"
        );
        tacita_block::Result::Ok(())
    };
    let span = blocks / 256 * 256;
    for sweep in 0..3 {
        time(&format!("sequential write {sweep}"), span * 4096, &mut || {
            (0..span).step_by(256).try_for_each(|at| public.write(BlockNo(at), &data))?;
            public.flush()
        })?;
    }
    let mut state = 1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for sweep in 0..3 {
        time(&format!("random write {sweep}"), span * 4096, &mut || {
            (0..span).try_for_each(|_| public.write(BlockNo(random() % blocks), &data[..4096]))?;
            public.flush()
        })?;
    }
    let mut buf = vec![0; 1 << 20];
    time("sequential read", span * 4096, &mut || {
        (0..span).step_by(256).try_for_each(|at| public.read(BlockNo(at), &mut buf))
    })?;
    time("random read", span / 4 * 4096, &mut || {
        (0..span / 4).try_for_each(|_| public.read(BlockNo(random() % blocks), &mut buf[..4096]))
    })?;
    Ok(())
}
