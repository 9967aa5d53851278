//! Writes a corpus to begin with: `cargo run -p tacita-hostile --example seeds`.

fn main() -> std::io::Result<()> {
    std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"))?;
    for (n, page) in tacita_hostile::pages().into_iter().enumerate() {
        std::fs::create_dir_all("corpus/directory_page")?;
        std::fs::write(format!("corpus/directory_page/page-{n}"), page)?;
    }
    std::fs::create_dir_all("corpus/image_open")?;
    std::fs::create_dir_all("corpus/journal")?;
    // One bit of a superblock, a map and a page, under right checksums.
    std::fs::write("corpus/image_open/superblock", [0, 1, 24, 0, 1, 3])?;
    std::fs::write("corpus/image_open/map", [78, 1, 0, 0, 2, 1, 1])?;
    std::fs::write("corpus/image_open/page", [80, 1, 60, 0, 2, 1, 1])?;
    // A run of zeros in a group.
    let mut record = vec![1, 0, 3, 0, 0, 0, 1, 0, 0, 0, 94];
    record.resize(34, 0);
    std::fs::write("corpus/journal/zeros-in-a-group", record)?;
    let requests: [(&str, &[u8]); 6] = [
        ("status", b"{\"tacita\":1,\"request\":\"status\"}"),
        ("all-kinds-of-arguments", b"{\"tacita\":1,\"request\":\"sweep\",\"arguments\":{\"rate\":7,\"level\":\"x\",\"public_only\":true}}"),
        ("of-a-later-version", b"{\"tacita\":2,\"request\":\"status\"}"),
        ("arguments-are-no-object", b"{\"tacita\":1,\"request\":\"log\",\"arguments\":[1]}"),
        ("no-json", b"status"),
        ("nested-too-deep", &[b'['; 300]),
    ];
    write_all("control_request", &requests)?;
    let mut superblock = vec![0; 160];
    superblock[..8].copy_from_slice(b"\xff\xff\xff\xff\0\0\0\0");
    write_all("pddm_superblock", &[("empty", b""), ("noise-for-a-magic", &superblock)])?;
    let mut far = vec![0; 32];
    far[..16].fill(0xff);
    let mut two = vec![1; 64];
    two[12..24].fill(0xfe);
    write_all("pddm_units", &[("numbers-beyond-any-log", &far), ("slots-of-no-volume", &two)])?;
    let mut record = vec![0; 256];
    record[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    write_all("spool_record", &[("empty-slot", &[0; 256]), ("sequence-without-end", &record)])?;
    let rules: [(&str, &[u8]); 4] = [
        (
            "rules-with-bounds",
            b"# temporary\n*.tmp off\n/keys/**/*.pem h\n* 1M.. custom:55,AA,R,V\n",
        ),
        ("a-method", b"custom:00,R,v"),
        ("bounds-beyond-any-file", b"* 99999999999T..-1 zero"),
        ("a-pattern-that-does-not-end", b"[a-***/** clear"),
    ];
    write_all("purge_rules", &rules)?;
    let mut folders = vec![0xff; 64];
    folders[..9].copy_from_slice(b"PINT\x01\0\xff\xff\0");
    write_all("spool_intent", &[("empty-slot", &[0; 64]), ("more-folders-than-fit", &folders)])?;
    let names: [(&str, &[u8]); 2] =
        [("a-folder", b"folder-010000000c0000002a000000"), ("half-a-digit", b"folder-01020304050")];
    write_all("spool_folder", &names)?;
    for (target, seeds) in [
        ("nbd_options", tacita_hostile::nbd::option_seeds()),
        ("nbd_requests", tacita_hostile::nbd::request_seeds()),
        ("flash_image", tacita_hostile::flash::seeds()),
    ] {
        let seeds: Vec<_> = seeds.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
        write_all(target, &seeds)?;
    }
    for (target, name, bytes) in tacita_hostile::dnefs::seeds() {
        write_all(target, &[(name, &bytes)])?;
    }
    for (target, name, bytes) in tacita_hostile::privatefs::seeds() {
        write_all(target, &[(name, &bytes)])?;
    }
    for (target, name, bytes) in tacita_hostile::oram::seeds() {
        write_all(target, &[(name, &bytes)])?;
    }
    Ok(())
}

/// Inputs of a target, each called by what it is.
fn write_all(target: &str, inputs: &[(&str, &[u8])]) -> std::io::Result<()> {
    std::fs::create_dir_all(format!("corpus/{target}"))?;
    inputs
        .iter()
        .try_for_each(|(name, bytes)| std::fs::write(format!("corpus/{target}/{name}"), bytes))
}
