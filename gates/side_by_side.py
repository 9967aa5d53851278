#!/usr/bin/env python3
"""Runs the programs with tests that cargo has built, two at a time: those that mostly wait, for mounts, disks and
servers, beside those that compute, each in mounts of its own where that may be: whoever makes a mount namespace holds
what others mount. What one has printed comes as a whole when it ends. The first that fails ends all.

    cargo test --no-run --message-format json-render-diagnostics > built.json
    gates/side_by_side.py built.json...
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# By crate and program, or by crate. The longest are begun first.
WAIT = ["purge/proof", "cli/pddm_cli", "cli/pddm_worlds", "cli/privatefs_cli", "cli/stacks", "cli/oram_cli", "oram/s3",
        "cli", "purge"]
COMPUTE = ["oram/games", "hifs/proof", "dnefs/proof", "pddm/games", "oram"]

OWN_MOUNTS = ["unshare", "--mount", "--propagation", "slave"]


class Programs:
    """What is still to be run, what runs, and whether one has failed."""

    def __init__(self, programs):
        self.lock = threading.Lock()
        waiting = {name: place for name, place in programs.items() if rank(name, WAIT) < len(WAIT)}
        computing = {name: place for name, place in programs.items() if name not in waiting}
        self.queues = [sorted(waiting, key=lambda name: (rank(name, WAIT), name)),
                       sorted(computing, key=lambda name: (rank(name, COMPUTE), name))]
        self.programs, self.running, self.failed = programs, {}, False
        may = subprocess.run([*OWN_MOUNTS, "true"], stderr=subprocess.DEVNULL).returncode == 0
        self.around = OWN_MOUNTS if may else []

    def next(self, first):
        """The next one of a queue, or of the other one if it is empty."""
        with self.lock:
            queue = self.queues[first] or self.queues[1 - first]
            return queue.pop(0) if queue and not self.failed else None

    def run(self, name):
        executable, folder = self.programs[name]
        environment = dict(os.environ, CARGO_MANIFEST_DIR=folder)
        if name.startswith("cli/"):
            # Many of them wait for the end of daemons, and for the turn of mounts that were killed.
            environment.setdefault("RUST_TEST_THREADS", str(2 * os.cpu_count()))
        begin = time.monotonic()
        with tempfile.TemporaryFile() as output:
            with self.lock:
                if self.failed:
                    return
                child = subprocess.Popen([*self.around, executable, "--show-output"], cwd=folder, env=environment,
                                         stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                         start_new_session=True)
                self.running[name] = child
            status = child.wait()
            with self.lock:
                del self.running[name]
                if self.failed:
                    return
                output.seek(0)
                seconds = time.monotonic() - begin
                print(f"-- {name}, {seconds:.0f} s", output.read().decode(errors="replace"), sep="\n", flush=True)
                if status != 0:
                    print(f"-- {name} failed ({status})", flush=True)
                    self.end()

    def end(self):
        self.failed = True
        for child in self.running.values():
            os.killpg(child.pid, signal.SIGKILL)

    def work(self, first):
        while name := self.next(first):
            self.run(name)


def rank(name, names):
    places = [place for place, known in enumerate(names) if known in (name, name.split("/")[0])]
    return places[0] if places else len(names)


def read(files):
    """Executable and folder of each program with tests, by its crate and name."""
    programs = {}
    for file in files:
        for line in Path(file).read_text().splitlines():
            part = json.loads(line)
            if part.get("executable") and part["profile"]["test"]:
                folder = Path(part["manifest_path"]).parent
                programs[f"{folder.name}/{part['target']['name']}"] = (part["executable"], str(folder))
    return programs


def main():
    programs = Programs(read(sys.argv[1:]))
    missing = [name for names in (WAIT, COMPUTE) for name in names
               if not any(rank(known, [name]) == 0 for known in programs.programs)]
    if missing:
        sys.exit(f"side_by_side: there are no tests of {', '.join(missing)}")

    def stop(number, _frame):
        programs.end()
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    workers = [threading.Thread(target=programs.work, args=[first]) for first in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(1 if programs.failed else 0)


if __name__ == "__main__":
    main()
