//! `tacita hifs check` and `info`.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tacita_block::{Access, BlockDevice, FileDevice, size};
use tacita_daemon::control::path_to_json;
use tacita_hifs::geometry::{Ids, Layout, Times};
use tacita_hifs::{Hifs, Kind, Losses, OpenOptions, Superblock, Survey};

use crate::exit::{self, Failure, Outcome};
use crate::output::{self, shown_name};

pub(super) const fn layout_name(layout: Layout) -> &'static str {
    match layout {
        Layout::A => "a",
        Layout::B => "b",
        Layout::C => "c",
        Layout::D => "d",
    }
}

/// What is damaged of an image that was refused for one damage, or for a block that cannot be read, and what that
/// takes away; none if nothing else can be read, either.
fn all_damage(device: Arc<dyn BlockDevice>, refused: &tacita_hifs::Error) -> Option<Vec<String>> {
    let Ok(hifs) = Hifs::salvage(device, OpenOptions::default()) else {
        return (refused.kind() == Kind::Damaged).then(|| vec![refused.to_string()]);
    };
    let Losses { damage, lost, .. } = hifs.losses();
    let lost = lost.iter().map(|loss| format!("{}: lost: {}", shown_name(&loss.path), loss.what));
    let mut findings: Vec<String> = damage.iter().cloned().chain(lost).collect();
    // What is whole by itself may still disagree with the rest.
    if findings.is_empty() {
        findings.push(refused.to_string());
    }
    Some(findings)
}

pub(super) fn check(image: &Path, json: bool) -> Outcome<()> {
    let device =
        FileDevice::open(image, Access::ReadOnly, 4096).map_err(|e| exit::of_device(image, &e))?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let (blocks, count, mut findings) = match Hifs::open(device.clone(), options) {
        Ok(hifs) => {
            let total = hifs.superblock().geometry.image_blocks << 12;
            let bar = output::progress("checking", total);
            let report = hifs
                .check(&mut |done, _| bar.set_position(done << 12))
                .map_err(|e| exit::of_image(image, &e))?;
            bar.finish_and_clear();
            (report.blocks, report.count, report.findings)
        }
        Err(error) if error.kind() == Kind::Interrupted => (0, 1, vec![error.to_string()]),
        Err(error) => {
            let is_damage = matches!(error.kind(), Kind::Damaged | Kind::Device);
            let findings = if is_damage { all_damage(device, &error) } else { None };
            let findings = findings.ok_or_else(|| exit::of_image(image, &error))?;
            (0, findings.len() as u64, findings)
        }
    };
    let hidden = count - findings.len() as u64;
    let value = json!({
        "image": path_to_json(image),
        "canonical": count == 0,
        "blocks": blocks,
        "count": count,
        "findings": findings,
    });
    if count == 0 {
        let text = format!(
            "{}: canonical: all {blocks} blocks are what its files alone make them\n\
             (content has no checksum: a changed byte within a file is not seen)\n",
            shown_name(image)
        );
        return output::facts(json, &value, &text);
    }
    if hidden > 0 {
        findings.push(format!("... and {hidden} more"));
    }
    output::facts(json, &value, &(findings.join("\n") + "\n"))?;
    Err(Failure::new(
        exit::WRONG,
        format!("{}: not the canonical image of its files", shown_name(image)),
    )
    .with_remedy(
        "after a crash, mounting it once finishes or erases what was interrupted; \
             otherwise copy the files into a new image: of a damaged one `tacita hifs unpack --salvage` takes \
             what is left",
    ))
}

pub(super) fn info(image: &Path, json: bool) -> Outcome<()> {
    let hifs = super::open_to_read(image)?;
    let (superblock, survey) = (hifs.superblock(), hifs.survey());
    let value = if json { as_json(image, &superblock, &survey) } else { Value::Null };
    output::facts(json, &value, &as_text(image, &superblock, &survey))
}

const fn ids_name(ids: Ids) -> &'static str {
    match ids {
        Ids::Path => "path",
        Ids::Random => "random",
    }
}

const fn times_name(times: Times) -> &'static str {
    match times {
        Times::None => "none",
        Times::User => "user",
        Times::Full => "full",
    }
}

/// Exact to a thousandth; images have fewer cells than 2^32.
fn ratio(used: u64, all: u64) -> f64 {
    f64::from(u32::try_from(used * 1000 / all.max(1)).unwrap_or(u32::MAX)) / 1000.0
}

fn as_json(image: &Path, superblock: &Superblock, survey: &Survey) -> Value {
    let geometry = superblock.geometry;
    json!({
        "image": path_to_json(image),
        "size": geometry.image_blocks << 12,
        "layout": layout_name(superblock.layout),
        "ids": ids_name(superblock.ids),
        "times": times_name(superblock.times),
        "groups": geometry.buckets.groups,
        "bucket": geometry.bucket_len_bytes(),
        "buckets": survey.buckets,
        "buckets_used": survey.buckets_used,
        "load": ratio(survey.buckets_used, survey.buckets),
        "pages": survey.pages,
        "pages_used": survey.pages_used,
        "journal_bytes": geometry.journal_blocks << 12,
        "files": survey.files,
        "directories": survey.directories,
        "others": survey.others,
        "content_bytes": survey.content_bytes,
        "extents": survey.extents,
        "extents_per_file": ratio(survey.extents, survey.files_with_buckets),
        "extents_max": survey.extents_max,
    })
}

fn as_text(image: &Path, superblock: &Superblock, survey: &Survey) -> String {
    let geometry = superblock.geometry;
    let percent = |used, all| ratio(used, all) * 100.0;
    let rows = [
        ("image", format!("{}, {}", shown_name(image), size::show(geometry.image_blocks << 12))),
        (
            "layout",
            format!(
                "{}, ids={}, times={}",
                layout_name(superblock.layout),
                ids_name(superblock.ids),
                times_name(superblock.times)
            ),
        ),
        (
            "geometry",
            format!(
                "{} groups of {} buckets of {}",
                geometry.buckets.groups,
                geometry.buckets.cells_per_group,
                size::show(geometry.bucket_len_bytes())
            ),
        ),
        (
            "load",
            format!(
                "{:.1}%: {} of {} buckets",
                percent(survey.buckets_used, survey.buckets),
                survey.buckets_used,
                survey.buckets
            ),
        ),
        (
            "inode table",
            format!(
                "{:.1}%: {} of {} pages",
                percent(survey.pages_used, survey.pages),
                survey.pages_used,
                survey.pages
            ),
        ),
        ("journal", format!("{}, zero", size::show(geometry.journal_blocks << 12))),
        (
            "content",
            format!(
                "{} in {} files; {} directories, {} others",
                size::show(survey.content_bytes),
                survey.files,
                survey.directories,
                survey.others
            ),
        ),
        (
            "extents a file",
            format!(
                "{:.2} on average, {} at most",
                ratio(survey.extents, survey.files_with_buckets),
                survey.extents_max
            ),
        ),
    ];
    let mut text = String::new();
    for (name, value) in rows {
        text.extend([&format!("{name:<20}"), &value, "\n"]);
    }
    text
}
