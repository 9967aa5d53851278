//! The work of the kernel lab (`crates/dnefs/lab`) that no shipped program does: a purge that leaves out
//! the erase of what it has replaced.
//!
//! ```text
//! dnefs_lab DEVICE NAME erases|keeps    makes a volume, deletes a file, purges; writes raw dumps to
//!                                       NAME.before, NAME.deleted and NAME.purged
//! ```

use std::error::Error;
use std::ffi::OsStr;
use std::fs::File;
use std::sync::Arc;

use tacita_dnefs::faults::{Fault, plant};
use tacita_dnefs::{Dnefs, FormatOptions, PurgeScope, format};
use tacita_flash::{UbiVolume, Volume};
use tacita_vfs::{FileSystem, FileType, Link, NewNode, Stamps, Timestamp};

const NOW: Timestamp = Timestamp { secs: 1, nanos: 0 };

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, name, how] = &arguments[..] else {
        return Err("see the head of crates/dnefs/examples/dnefs_lab.rs".into());
    };
    let chip = Arc::new(UbiVolume::open(device)?);
    let dump = |part: &str| -> Result<(), Box<dyn Error>> {
        let unread = chip.dump(&mut File::create(format!("{name}.{part}"))?)?;
        if unread.is_empty() { Ok(()) } else { Err(format!("not read: {unread:?}").into()) }
    };
    let volume: Arc<dyn Volume> = Arc::<UbiVolume>::clone(&chip);
    format(&volume, &FormatOptions::default(), None)?;
    let fs = Dnefs::open(volume, None, Arc::new(tacita_clock::System))?;
    let new = NewNode::new(FileType::File, 0o600, NOW);
    let victim = OsStr::new("victim");
    let (node, _) = fs.create(fs.root(), victim, &new)?;
    fs.write(node, 0, &vec![7; 50_000], Stamps::NONE)?;
    fs.purge(PurgeScope::Deleted)?;
    dump("before")?;
    fs.remove(Link { dir: fs.root(), name: victim, node }, NOW)?;
    fs.forget(node);
    fs.sync()?;
    dump("deleted")?;
    let _planted = (how == "keeps").then(|| plant(Fault::EraseSkipped));
    println!("{:?}", fs.purge(PurgeScope::Deleted)?);
    dump("purged")
}
