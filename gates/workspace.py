#!/usr/bin/env python3
"""What no compiler looks at: licences, sources and bans of dependencies, the Rust that they need,
files that no module names, and modules and crates that ARCHITECTURE.md does not name.

Reads `cargo metadata`, deny.toml, ARCHITECTURE.md and the sources. Prints what is wrong; exit 1 then.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def metadata():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"]
    command += ["--filter-platform", "x86_64-unknown-linux-gnu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def is_allowed(expression, allowed):
    """Whether a licence expression (SPDX) can be met; `/` is the old way to write OR."""
    tokens = re.findall(r"\(|\)|[^\s()]+(?: WITH \S+(?<!\)))?", expression.replace("/", " OR "))
    tokens = ["and" if t == "AND" else "or" if t == "OR" else t for t in tokens]
    words = [t if t in ("(", ")", "and", "or") else str(t in allowed) for t in tokens]
    return eval(" ".join(words))  # made of True, False, and, or and parentheses alone


def version(text):
    return tuple(int(part) for part in (text.split(".") + ["0", "0"])[:3])


def dependencies(found, rules):
    allowed = set(rules["licenses"]["allow"])
    banned = {entry["crate"] for entry in rules["bans"].get("deny", [])}
    members = set(found["workspace_members"])
    ours = version(next(p for p in found["packages"] if p["id"] in members)["rust_version"])
    for package in found["packages"]:
        name = f"{package['name']} {package['version']}"
        if not package["license"] or not is_allowed(package["license"], allowed):
            yield f"{name}: licence {package['license']} is not among those of deny.toml"
        if package["id"] in members:
            continue
        if package["source"] != CRATES_IO:
            yield f"{name}: comes from {package['source']}"
        if package["name"] in banned:
            yield f"{name}: banned by deny.toml"
        if package["rust_version"] and version(package["rust_version"]) > ours:
            yield f"{name}: needs Rust {package['rust_version']}, Cargo.toml promises less"


def modules_of(file):
    """Files that the modules of this file lie in."""
    text = re.sub(r"//[^\n]*", "", file.read_text())
    folder = file.parent if file.stem in ("lib", "main") else file.parent / file.stem
    if file.parent.parent.name == "tests" or file.parent.name in ("tests", "fuzz_targets"):
        folder = file.parent if file.stem == "main" or file.parent.name == "tests" else folder
    pattern = r'(?:#\[path = "([^"]+)"\]\s*)?(?:pub(?:\([^)]*\))?\s+)?\bmod\s+(\w+)\s*;'
    for path, name in re.findall(pattern, text):
        yield (file.parent / path if path else folder / f"{name}.rs").resolve()


def unnamed_files():
    for crate in sorted((ROOT / "crates").iterdir()):
        every = {file.resolve() for file in crate.rglob("*.rs")}
        roots = [crate / "src/lib.rs", crate / "src/main.rs"]
        roots += [*crate.glob("examples/*.rs"), *crate.glob("tests/*.rs"), *crate.glob("tests/*/main.rs")]
        reached, todo = set(), [root.resolve() for root in roots if root.exists()]
        while todo:
            file = todo.pop()
            if file in reached or not file.exists():
                continue
            reached.add(file)
            todo += modules_of(file)
        for file in sorted(every - reached):
            yield f"{file.relative_to(ROOT)}: no module names it"


def unnamed_modules():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    for crate in sorted((ROOT / "crates").iterdir()):
        if f"`crates/{crate.name}`" not in page:
            yield f"ARCHITECTURE.md does not name crates/{crate.name}"
        _, _, section = page.partition(f"In `crates/{crate.name}/src`:")
        if not section:
            continue
        rows = section.split("\n\n")[1]
        named = set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in rows.splitlines())))
        there = {file.stem for file in (crate / "src").glob("*.rs")} - {"lib", "main", "error"}
        for module in sorted(there - named):
            yield f"ARCHITECTURE.md does not name the module {module} of crates/{crate.name}"
        for module in sorted(named - there - {"module"}):
            yield f"ARCHITECTURE.md names a module {module} of crates/{crate.name}, which is not there"


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    found = [*dependencies(metadata(), rules), *unnamed_files(), *unnamed_modules()]
    for complaint in found:
        print(f"gates: {complaint}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
