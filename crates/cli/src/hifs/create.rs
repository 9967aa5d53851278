//! `tacita hifs format` and `pack`: new images.

use std::fmt::Write;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use tacita_block::{Access, BlockDevice, FileDevice, FileOptions, size};
use tacita_daemon::control::path_to_json;
use tacita_hifs::geometry::{
    IMAGE_LEN_MIN, Ids, Layout, Parameters, Times, default_bucket_len_bytes,
};
use tacita_hifs::pack::{Carried, Measured, PackError};
use tacita_hifs::{Hifs, OpenOptions, RootOwner, Superblock};

use crate::arguments::{IdsName, LayoutName, ProfileName, Shape, TimesName};
use crate::exit::{self, Failure, Outcome};
use crate::output::{self, shown_name};

/// What a name and an inode are counted as when an image is made for them: more than they take, for
/// a sixteenth of an image, at most, holds them.
const NODE_LEN: u64 = 18 << 10;

/// Bytes of an image for each byte of its inode table.
const TABLE_SHARE: u64 = 36;

/// How much of an existing file is looked at before it is taken for empty.
const PROBE_LEN: usize = 64 << 10;

pub(super) fn format(image: &Path, size: Option<u64>, shape: &Shape, json: bool) -> Outcome<()> {
    let (parameters, device) = make(image, size, shape)?;
    publish(&device, image, shape)?;
    let superblock = Superblock::new(&parameters).map_err(|e| exit::of_image(image, &e))?;
    let geometry = superblock.geometry;
    let data = u64::from(geometry.buckets.cells()) * geometry.bucket_len_bytes();
    let facts = json!({
        "image": path_to_json(image),
        "size": parameters.len_bytes,
        "layout": super::facts::layout_name(parameters.layout),
        "groups": geometry.buckets.groups,
        "bucket": geometry.bucket_len_bytes(),
        "buckets": geometry.buckets.cells(),
        "data_bytes": data,
    });
    let text = format!(
        "{}: {} image, layout {}, {} groups, {} buckets of {}\n",
        shown_name(image),
        size::show(parameters.len_bytes),
        super::facts::layout_name(parameters.layout),
        geometry.buckets.groups,
        geometry.buckets.cells(),
        size::show(geometry.bucket_len_bytes()),
    );
    output::done(json, &facts, &text)
}

pub(super) fn pack(
    folder: &Path,
    image: &Path,
    size: Option<u64>,
    shape: &Shape,
    json: bool,
) -> Outcome<()> {
    refuse_within(folder, image)?;
    let (content, roomy) = measure(folder, shape).map_err(|e| of_pack(&e))?;
    let size = size.unwrap_or(roomy);
    let (_, device) = make(image, Some(size), shape)?;
    let failed = |e: tacita_hifs::Error| exit::of_image(image, &e);
    let hifs = Hifs::open(device.clone(), OpenOptions::default()).map_err(failed)?;
    // On a raw device nothing else keeps half an image from passing for one.
    hifs.withhold().map_err(failed)?;
    let bar = output::progress("packing", content.bytes);
    let carried = tacita_hifs::pack::pack(&hifs, folder, &mut |bytes| bar.set_position(bytes))
        .map_err(|e| of_pack(&e))?;
    hifs.publish().map_err(failed)?;
    bar.finish_and_clear();
    publish(&device, image, shape)?;
    if !carried.changed.is_empty() {
        return Err(tell_changed(image, &carried.changed));
    }
    report_carried(json, &carried, &format!("packed into {}", shown_name(image)))
}

/// Tells of which files there are several moments in an image.
fn tell_changed(image: &Path, changed: &[PathBuf]) -> Failure {
    for path in changed {
        output::say(&format!("{}: written to while it was read", shown_name(path)));
    }
    let text = format!(
        "{}: {} files were written to while they were packed",
        shown_name(image),
        changed.len()
    );
    Failure::new(exit::WRONG, text)
        .with_remedy("it holds all others as they are; pack again when nothing writes to these")
}

/// An image within the folder would hold what it held before, deleted files among it.
fn refuse_within(folder: &Path, image: &Path) -> Outcome<()> {
    let above = |image: &Path| image.parent().map(Path::to_owned);
    // A link may lead to it.
    let parent = image.canonicalize().ok().as_deref().and_then(above).or_else(|| above(image));
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| ".".into());
    // What is missing is told by whoever needs it. A folder may be mounted in several places.
    let which = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    let (Some(packed), Ok(parent)) = (which(folder), parent.canonicalize()) else {
        return Ok(());
    };
    if !parent.ancestors().any(|above| which(above) == Some(packed)) {
        return Ok(());
    }
    let text = format!("{}: lies in the folder that is to be packed", shown_name(image));
    Err(Failure::usage(text).with_remedy("name a place outside of it"))
}

/// What there is to pack, and the length of an image with room for it and as much again.
fn measure(folder: &Path, shape: &Shape) -> Result<(Measured, u64), PackError> {
    let asked = bucket_len(shape);
    // A length that no bucket can have is refused when the image is made.
    let bucket =
        asked.unwrap_or_else(|| default_bucket_len_bytes(0).into()).clamp(4 << 10, 1 << 20);
    let content = tacita_hifs::pack::measure(folder, bucket)?;
    let size = roomy_size(content, bucket);
    let larger = u64::from(default_bucket_len_bytes(size));
    if asked.is_some() || larger == bucket {
        return Ok((content, size));
    }
    let content = tacita_hifs::pack::measure(folder, larger)?;
    Ok((content, roomy_size(content, larger)))
}

/// Room for content, names and attributes, and as much again; and for a file to have so many names.
fn roomy_size(content: Measured, bucket_len: u64) -> u64 {
    let needed = content
        .buckets
        .saturating_mul(bucket_len)
        .saturating_add(content.names.saturating_mul(NODE_LEN))
        .saturating_add(content.attributes.saturating_mul(TABLE_SHARE));
    let least = content.len_for_names_of_one().max(16 * IMAGE_LEN_MIN);
    needed.saturating_mul(2).max(least).next_multiple_of(1 << 20)
}

pub(super) fn report_carried(json: bool, carried: &Carried, what: &str) -> Outcome<()> {
    let left_out = carried.attributes_left_out;
    let facts = json!({
        "nodes": carried.nodes,
        "bytes": carried.bytes,
        "attributes_left_out": left_out,
    });
    let mut text = format!("{} nodes, {} {what}\n", carried.nodes, size::show(carried.bytes));
    if left_out > 0 {
        let _ = writeln!(
            text,
            "{left_out} extended attributes left out: only root carries `trusted.` and `security.`, \
             `system.` has no place, and nobody can read a `security.capability` that is none"
        );
    }
    output::done(json, &facts, &text)
}

pub(super) fn of_pack(error: &PackError) -> Failure {
    let why = tacita_daemon::with_causes(&*error.source);
    let text = shown_name(format!("{}: {why}", error.path.display()));
    let in_image = error.source.downcast_ref::<tacita_vfs::Error>().map(tacita_vfs::Error::kind);
    let outside = error.source.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    let is_full = matches!(in_image, Some(tacita_vfs::Kind::NoSpace | tacita_vfs::Kind::Quota));
    let too_large = in_image.and_then(remedy_for_too_large);
    if let Some(remedy) = too_large {
        return Failure::new(exit::NO_SPACE, text).with_remedy(remedy);
    }
    match outside {
        _ if is_full => {}
        Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {}
        Some(ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Failure::usage(text).with_remedy("is the path right?");
        }
        Some(ErrorKind::DirectoryNotEmpty) => {
            return Failure::usage(text).with_remedy("name a new or empty folder");
        }
        _ => {
            let failure = exit::refused(exit::DEVICE, text, &*error.source);
            return failure.or_remedy(exit::MEDIUM);
        }
    }
    Failure::new(exit::NO_SPACE, text).with_remedy("choose a larger --size, or make room")
}

/// What can be done where something has no place in an image, though there is room.
fn remedy_for_too_large(kind: tacita_vfs::Kind) -> Option<&'static str> {
    match kind {
        tacita_vfs::Kind::TooManyLinks => Some(
            "choose a larger --size: a file has up to 16,344 names in an image of 2 GiB and more, and fewer in \
             smaller ones",
        ),
        tacita_vfs::Kind::FileTooBig => Some(
            "choose a larger --bucket: a file is as long as 2^32 buckets at most, 64 TiB with 16K",
        ),
        tacita_vfs::Kind::TooLarge => {
            Some("take some away (`setfattr -x NAME FILE`), or leave the file out")
        }
        _ => None,
    }
}

/// Makes an empty image, which has no name yet if it is a file.
fn make(image: &Path, size: Option<u64>, shape: &Shape) -> Outcome<(Parameters, Arc<FileDevice>)> {
    let raw = is_raw(image);
    let refuse = |e: &tacita_block::Error| exit::of_new_file(image, e);
    if !shape.force {
        refuse_what_is_in_use(image)?;
    }
    let device = if raw {
        FileDevice::open(image, Access::ReadWrite, 4096).map_err(|e| refuse(&e))?
    } else {
        let size = size.ok_or_else(|| {
            Failure::usage(format!("{}: an image file needs a size", shown_name(image)))
                .with_remedy("give --size, as --size 256M")
        })?;
        let parameters = parameters(size, shape)?;
        Superblock::new(&parameters).map_err(|e| exit::of_image(image, &e))?;
        let options = FileOptions::new(4096).replace(shape.force);
        options.create_unpublished(image, size).map_err(|e| refuse(&e))?
    };
    let size = size.unwrap_or_else(|| device.geometry().len_bytes());
    let parameters = parameters(size, shape)?;
    let device = Arc::new(device);
    let owner = RootOwner {
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
    };
    let bar = output::progress("formatting", device.geometry().len_bytes());
    let mut progress = |done: u64, _: u64| bar.set_position(done << 12);
    tacita_hifs::format(device.clone(), &parameters, owner, &mut progress)
        .map_err(|e| exit::of_image(image, &e))?;
    bar.finish_and_clear();
    Ok((parameters, device))
}

/// Gives a finished image its name. What has come there since it was begun is looked at as what was
/// there before.
fn publish(device: &FileDevice, image: &Path, shape: &Shape) -> Outcome<()> {
    if !shape.force && !is_raw(image) {
        refuse_what_is_in_use(image)?;
    }
    output::publish(device).map_err(|e| exit::of_device(image, &e))
}

fn is_raw(image: &Path) -> bool {
    fs::metadata(image).is_ok_and(|meta| meta.file_type().is_block_device())
}

/// Something other than zeros is not overwritten without being told to.
fn refuse_what_is_in_use(image: &Path) -> Outcome<()> {
    let mut head = Vec::new();
    let meta = fs::metadata(image).map(|meta| meta.file_type());
    if meta.is_ok_and(|kind| !kind.is_file() && !kind.is_block_device()) {
        let text = format!("{}: neither a file nor a block device", shown_name(image));
        return Err(Failure::usage(text).with_remedy("name a new file"));
    }
    match File::open(image) {
        Ok(file) => {
            tacita_block::keep_access_time(&file);
            let read = file.take(PROBE_LEN as u64).read_to_end(&mut head);
            read.map_err(|e| output::of_file(image, e))?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(output::of_file(image, error)),
    }
    if head.iter().any(|&byte| byte != 0) {
        return Err(Failure::usage(format!("{}: holds data already", shown_name(image)))
            .with_remedy("--force overwrites it"));
    }
    Ok(())
}

/// The length of a bucket, if it is asked for.
fn bucket_len(shape: &Shape) -> Option<u64> {
    let profile = shape.profile.map(|profile| match profile {
        ProfileName::Db => 64 << 10,
        ProfileName::Web => 16 << 10,
        ProfileName::Small => 4 << 10,
    });
    shape.bucket.or(profile)
}

fn parameters(len_bytes: u64, shape: &Shape) -> Outcome<Parameters> {
    let profile_groups = match shape.profile {
        Some(ProfileName::Db) => Some(8),
        Some(ProfileName::Web) => Some(24),
        Some(ProfileName::Small) | None => None,
    };
    let bucket = bucket_len(shape).map(|bucket| {
        u32::try_from(bucket).map_err(|_| {
            Failure::usage("no bucket is so long").with_remedy("give --bucket 1M at most")
        })
    });
    Ok(Parameters {
        len_bytes,
        layout: match shape.layout {
            LayoutName::A => Layout::A,
            LayoutName::B => Layout::B,
            LayoutName::C => Layout::C,
            LayoutName::D => Layout::D,
        },
        ids: match shape.ids {
            IdsName::Path => Ids::Path,
            IdsName::Random => Ids::Random,
        },
        times: match shape.times {
            TimesName::None => Times::None,
            TimesName::User => Times::User,
            TimesName::Full => Times::Full,
        },
        bucket_len_bytes: bucket.transpose()?,
        groups: shape.groups.or(profile_groups),
        seed: match &shape.seed {
            Some(seed) => seed_from_hex(seed)?,
            None => tacita_secret::random()?,
        },
    })
}

/// Up to 64 hexadecimal digits; what is missing is zero.
fn seed_from_hex(text: &str) -> Outcome<[u8; 32]> {
    let usage = || {
        Failure::usage("--seed: not understood")
            .with_remedy("an even number of hexadecimal digits, 64 at most")
    };
    let digits = text.as_bytes();
    if digits.is_empty() || digits.len() > 64 || !digits.len().is_multiple_of(2) {
        return Err(usage());
    }
    let mut seed = [0; 32];
    for (byte, pair) in seed.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16).ok_or_else(usage);
        let value = digit(pair[0])? * 16 + digit(pair[1])?;
        *byte = u8::try_from(value).map_err(|_| usage())?;
    }
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_an_image_cannot_be_packed_is_told() {
        let source = tacita_vfs::Error::new(tacita_vfs::Kind::Io, "cannot flush image")
            .because(std::io::Error::from_raw_os_error(5));
        let failure = of_pack(&PackError { path: "files".into(), source: source.into() });
        assert_eq!(failure.code, exit::DEVICE);
        assert_eq!(failure.cause, "files: cannot flush image: Input/output error (os error 5)");
    }

    #[test]
    fn what_is_too_large_for_an_image_is_not_its_medium() {
        for (kind, remedy) in [
            (tacita_vfs::Kind::FileTooBig, "a larger --bucket"),
            (tacita_vfs::Kind::TooManyLinks, "a larger --size"),
        ] {
            let source: tacita_vfs::Error = kind.into();
            let failure = of_pack(&PackError { path: "file".into(), source: source.into() });
            assert_eq!(failure.code, exit::NO_SPACE);
            assert!(failure.remedy.unwrap().contains(remedy), "{remedy}");
        }
    }

    #[test]
    fn seeds() {
        assert_eq!(seed_from_hex("00ff10").unwrap()[..4], [0, 255, 16, 0]);
        assert!(seed_from_hex("").is_err());
        assert!(seed_from_hex("abc").is_err());
        assert!(seed_from_hex("zz").is_err());
        assert!(seed_from_hex(&"0".repeat(66)).is_err());
    }
}
