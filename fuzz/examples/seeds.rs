//! Writes a corpus to begin with: `cargo run --example seeds`.

fn main() -> std::io::Result<()> {
    for (n, page) in tacita_fuzz::pages().into_iter().enumerate() {
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
    std::fs::write("corpus/journal/zero", record)?;
    for (target, seeds) in [
        ("nbd_options", tacita_fuzz::nbd::option_seeds()),
        ("nbd_requests", tacita_fuzz::nbd::request_seeds()),
    ] {
        std::fs::create_dir_all(format!("corpus/{target}"))?;
        for (n, seed) in seeds.into_iter().enumerate() {
            std::fs::write(format!("corpus/{target}/seed-{n}"), seed)?;
        }
    }
    Ok(())
}
