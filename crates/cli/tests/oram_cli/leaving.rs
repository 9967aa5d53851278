//! Who ends leaves nothing to be waited for by others that share its anchor.

use std::path::Path;
use std::time::Duration;

use tacita_clock::{Clock, System};
use tacita_oram::agreement::BUILDER;

use crate::Bench;

/// How long something is waited for that comes soon, on however slow a machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// Whether somebody builds, as the shared anchor says.
fn has_builder(anchor: &str) -> bool {
    let Ok(agreement) = std::fs::read(Path::new(anchor).join("root")) else { return false };
    agreement[BUILDER] != [0; 16]
}

/// Others would have to wait until they notice that nobody builds.
#[test]
fn an_export_and_an_engine_that_end_leave_the_building_to_others() {
    let bench = Bench::new();
    bench.serve();
    let (anchor, engine) = (bench.path("together"), bench.path("engine"));
    let shared = format!("SERVER --key KEY --shared-anchor {anchor}");
    for (begin, end) in [
        (format!("export {shared} --nbd DISK"), "close DISK".to_owned()),
        (format!("engine {shared} --listen unix:{engine}"), format!("close {engine}")),
    ] {
        bench.ends(&begin, 0);
        let begun = System.monotonic();
        while !has_builder(&anchor) {
            assert!(System.elapsed(begun) < PATIENCE, "{begin}: nobody builds");
            System.wait(Duration::from_millis(20));
        }
        bench.ends(&end, 0);
        assert!(!has_builder(&anchor), "{begin}: it is gone, and builds still");
    }
}
