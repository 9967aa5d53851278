#!/usr/bin/env python3
"""What no compiler looks at: licences, sources and bans of dependencies, the Rust that they need,
dependencies that nothing uses, files that no module names, modules and crates that ARCHITECTURE.md
does not name, imports against the order that it gives, planted faults that no test plants or that
docs/testing.md does not name, and variables that CONTRIBUTING.md does not name.

Reads `cargo metadata`, manifests, deny.toml, ARCHITECTURE.md and the sources. Prints what is wrong; exit 1 then.
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


def code_of(file):
    """What a file ships, and what in it is for tests alone; without comments."""
    text = re.sub(r"//[^\n]*", "", file.read_text())
    if file.stem == "tests" or "tests" in file.parent.parts:
        return "", text
    shipped, mark, tests = text.partition("#[cfg(test)]")
    return shipped, mark + tests


def is_used(dependency, code):
    name = re.escape(dependency.replace("-", "_"))
    return re.search(rf"(?<![\w:]){name}(\s*::|\s+as\b|\s*;)", code) is not None


# Asked for by crates/cli for their features alone, so that libraries are not built twice.
SHARED_BUILDS = {"num-traits", "serde_core", "tokio"}


def unused_dependencies():
    """Dependencies that no code names, or that tests alone name and all builds have."""
    asked = set()
    for folder in [*sorted((ROOT / "crates").iterdir()), ROOT / "fuzz"]:
        manifest = tomllib.loads((folder / "Cargo.toml").read_text())
        shipped, tests = "", ""
        for file in sorted(folder.rglob("*.rs")):
            if file.relative_to(folder).parts[0] in ("src", "fuzz_targets"):
                parts = code_of(file)
                shipped, tests = shipped + parts[0], tests + parts[1]
            else:
                tests += "".join(code_of(file))
        usual, of_tests = manifest.get("dependencies", {}), manifest.get("dev-dependencies", {})
        asked |= {*usual, *of_tests}
        place = f"{folder.relative_to(ROOT)}/Cargo.toml"
        if folder.name == "cli":
            usual = {name: how for name, how in usual.items() if name not in SHARED_BUILDS}
            of_tests = {name: how for name, how in of_tests.items() if name not in SHARED_BUILDS}
        for name in usual:
            if not is_used(name, shipped):
                where = "tests alone use" if is_used(name, tests) else "nothing uses"
                yield f"{place}: {where} {name}"
        for name in of_tests:
            if name in usual and isinstance(of_tests[name], dict) and "features" in of_tests[name]:
                continue  # tests ask for more of it
            if name in usual:
                yield f"{place}: {name} is there for tests and for all builds"
            elif not is_used(name, tests):
                yield f"{place}: no test uses {name}"
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["dependencies"]
    for name in workspace:
        if name not in asked:
            yield f"Cargo.toml: no crate asks for {name}"


def table_of(crate):
    """The modules of a crate by the rows of its table in ARCHITECTURE.md, in their order, and
    whether that order is the one of imports; None where it has no table."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    found = re.search(rf"In `crates/{crate.name}/src`([^|]*):\n\n((?:\|[^\n]*\n)+)", page)
    if not found:
        return None
    rows = [row.split("|")[1] for row in found[2].splitlines()[2:]]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)], "from below" in found[1]


def unnamed_modules():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    for crate in sorted((ROOT / "crates").iterdir()):
        if f"`crates/{crate.name}`" not in page:
            yield f"ARCHITECTURE.md does not name crates/{crate.name}"
        named, _ = table_of(crate) or (None, False)
        if named is None:
            continue
        there = {file.stem for file in (crate / "src").glob("*.rs")} - {"lib", "main"}
        for module in sorted(there - {"error"} - set(named)):
            yield f"ARCHITECTURE.md does not name the module {module} of crates/{crate.name}"
        for module in sorted(set(named) - there):
            yield f"ARCHITECTURE.md names a module {module} of crates/{crate.name}, which is not there"


def imports_of(crate, module):
    """Modules of the crate that a module names in what it ships; its unit tests may as they like."""
    own = crate / "src" / f"{module}.rs"
    for file in [own] * own.exists() + sorted(own.with_suffix("").rglob("*.rs")):
        shipped, _ = code_of(file)
        roots = "crate|super" if file == own else "crate"
        for group, name in re.findall(rf"\b(?:{roots})::(?:\{{([^;]*)\}}|(\w+))", shipped):
            yield from {name} if name else set(re.findall(r"(?:^|[{,])\s*(\w+)", group))


def upward_imports():
    """Imports of what stands behind a module, where a table says that it is the order of imports."""
    for crate in sorted((ROOT / "crates").iterdir()):
        floors, is_ordered = table_of(crate) or ([], False)
        for at, module in enumerate(floors if is_ordered else []):
            for name in sorted(set(imports_of(crate, module)) & set(floors[at + 1:])):
                text = f"{module} imports {name}, which comes after it in ARCHITECTURE.md"
                yield f"crates/{crate.name}: {text}"


def unknown_messages():
    """Messages that docs/troubleshooting.md quotes and no source prints."""
    page = (ROOT / "docs/troubleshooting.md").read_text()
    sources = [file.read_text() for file in sorted((ROOT / "crates").glob("*/src/**/*.rs"))]
    # In sources a string goes on behind a backslash at the end of a line.
    sources = [re.sub(r"\\\n\s*", "", text) for text in sources]
    for message in re.findall(r"\*\*`([^`]+)`\*\*", page):
        if not any(message in text for text in sources):
            yield f"docs/troubleshooting.md: nothing prints `{message}`"


def untested_faults():
    page = set(re.findall(r"\w+", (ROOT / "docs/testing.md").read_text()))
    for faults in sorted((ROOT / "crates").glob("*/src/faults.rs")):
        crate = faults.parent.parent
        body = re.search(r"enum Fault \{(.*?)\n\s*\}", code_of(faults)[0], re.DOTALL)[1]
        tests = "".join(code_of(file)[1] for file in (crate / "src").rglob("*.rs"))
        tests += "".join(file.read_text() for file in (crate / "tests").rglob("*.rs"))
        for name in re.findall(r"^\s*(\w+),$", body, re.MULTILINE):
            if not re.search(rf"\b{name}\b", tests):
                yield f"crates/{crate.name}: no test plants {name}"
            if name not in page:
                yield f"docs/testing.md does not name the planted fault {name} of crates/{crate.name}"


def unknown_variables():
    """Variables that somebody may set and that CONTRIBUTING.md does not name; not those that a test
    sets for a process of its own."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    for file in sorted((ROOT / "crates").rglob("*.rs")):
        for name in re.findall(r'(?:env_number|var_os|var)\("(TACITA_[A-Z_]+)"', file.read_text()):
            if f"`{name}=" not in page and f'.env("{name}"' not in file.read_text():
                yield f"CONTRIBUTING.md does not name the variable {name}"


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    found = [*dependencies(metadata(), rules), *unused_dependencies()]
    found += [*unnamed_files(), *unnamed_modules(), *upward_imports(), *unknown_messages()]
    found += [*untested_faults(), *unknown_variables()]
    for complaint in found:
        print(f"gates: {complaint}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
