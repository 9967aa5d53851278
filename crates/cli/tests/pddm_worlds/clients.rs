//! Clients from outside: qemu-io over NBD, fio and ext4 on loop devices.

use std::process::{Command, Output, Stdio};

use tacita_testkit::history::Rng;

use crate::world::{Open, World};

impl World {
    /// A client of an export, not yet run.
    pub(crate) fn client(&self, export: &str, commands: &[String]) -> Command {
        let uri = format!("nbd+unix:///{export}?socket={}", self.endpoint());
        let mut client = Command::new("qemu-io");
        client.args(["-f", "raw"]);
        for command in commands {
            client.args(["-c", command]);
        }
        client.arg(uri).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        client
    }

    /// Public traffic, and at the same time hidden traffic where there is any.
    pub(crate) fn traffic(&self, open: &mut Open, seed: u64) {
        self.secret_traffic(open, seed);
        self.public_traffic(seed);
    }

    /// Begins hidden traffic where there is any.
    pub(crate) fn secret_traffic(&self, open: &mut Open, seed: u64) {
        for export in self.hidden.busy() {
            let mut rng = Rng::new(seed ^ 0x5eed);
            let write = |rng: &mut Rng| {
                let (at, len) = (rng.below(100) * 4, 4 + rng.below(15) * 4);
                format!("write -P {} {at}k {len}k", 1 + rng.below(200))
            };
            let mut commands: Vec<String> = (0..6).map(|_| write(&mut rng)).collect();
            commands.insert(3, "flush".to_owned());
            commands.push("discard 40k 64k".to_owned());
            commands.push("flush".to_owned());
            open.clients.push(self.client(export, &commands).spawn().unwrap());
        }
    }

    /// Public traffic, all of it flushed.
    pub(crate) fn public_traffic(&self, seed: u64) {
        let mut rng = Rng::new(seed);
        let mut commands = Vec::new();
        for _ in 0..8 {
            let (at, len) = (rng.below(500) * 4, 4 + rng.below(60) * 4);
            commands.push(match rng.below(6) {
                0 => "flush".to_owned(),
                1 => format!("discard {at}k {len}k"),
                _ => format!("write -P {} {at}k {len}k", 1 + rng.below(200)),
            });
        }
        commands.push("flush".to_owned());
        assert!(self.client("public", &commands).status().unwrap().success());
    }

    /// A file system on each hidden file that is used, and files on it, synced one by one. It ends
    /// when its device is cut off at the latest. Its mounts go with its namespace.
    pub(crate) fn hidden_file_systems(&self, open: &mut Open) {
        for name in self.hidden.busy() {
            let (file, dir) =
                (format!("{}/{name}", self.endpoint()), self.path(&format!("{name}.d")));
            std::fs::create_dir_all(&dir).unwrap();
            let script = format!(
                "mkfs.ext4 -q -F -b 4096 -O ^has_journal {file} && mount -o loop {file} {dir} &&
                 for n in 1 2 3 4; do head -c 100000 /dev/urandom > {dir}/$n; sync -f {dir}; done"
            );
            let mut client = Command::new("unshare");
            client.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
            client.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            open.clients.push(client.spawn().unwrap());
        }
    }
}

/// A loop device on a file, gone when dropped.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    pub(crate) fn new(file: &str) -> Self {
        let options = ["--find", "--show", "--direct-io=on", file];
        let output = Command::new("losetup").args(options).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Random writes with flushes, one after the other, verified in the end.
pub(crate) fn fio(device: &str, seed: u64) -> Output {
    let seed = format!("--randseed={}", 1 + seed);
    let mut fio = Command::new("fio");
    fio.args(["--name=public", "--rw=randwrite", "--bs=16k", "--size=3M", "--io_size=1M"]);
    fio.args(["--direct=1", "--ioengine=psync", "--fsync=7", "--verify=pattern", "--minimal"]);
    fio.args([
        "--verify_pattern=0x7a",
        "--verify_fatal=1",
        "--allow_file_create=0",
        "--verify_state_save=0",
        &seed,
    ]);
    fio.arg(format!("--filename={device}"));
    fio.stdin(Stdio::null()).output().unwrap()
}
