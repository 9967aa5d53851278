#!/usr/bin/env python3
"""judge.py IMAGE lost|purged|names-stay|marked: what is left in an image of files that the guest has deleted.

`lost`: without purging; what was deleted is there. `purged`: nothing is; `names-stay`: no content of files, though
names and what links name, where these are another file system's. `marked`: what
was marked is not there, and the rest is. What was kept is there either way, or finding nothing would prove nothing.
The raw bytes are searched, and where they are installed sleuthkit, photorec and scalpel look, too.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

MARK = b"PURGEMARK-"
GONE = ("unlink", "over", "open", "cut", "zero", "sub", "short", "long")

image, wanted = sys.argv[1:]
if wanted == "names-stay":
    GONE = tuple(name for name in GONE if name not in ("short", "long"))


def output(*command):
    """What a program prints; its own messages go to nobody."""
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout


def markers(data, names=GONE):
    found = {name: data.count(MARK + name.encode()) for name in names}
    if "cut" in found:
        # Its first hundred bytes are kept, which are two lines.
        found["cut"] -= sum(data.count(MARK + b"cut line %d " % line) for line in (0, 1))
    return {name: count for name, count in found.items() if count > 0}


def carved(*command):
    """All that a program brings back into a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        output(*(part.replace("FOLDER", folder) for part in command))
        found = b""
        for place, _, files in os.walk(folder):
            for name in files:
                with open(os.path.join(place, name), "rb") as file:
                    found += file.read()
        return found


def by_tools():
    """What tools of others find: the name of the tool, and what."""
    if shutil.which("blkls"):
        yield "blkls", output("blkls", image)
        yield "tsk_recover", carved("tsk_recover", "-e", image, "FOLDER")
        inodes = output("ils", "-r", image).decode("ascii", "replace").splitlines()
        numbers = [line.split("|")[0] for line in inodes if line.split("|")[0].isdigit()]
        yield "icat", b"".join(output("icat", "-r", image, number) for number in numbers[:200])
    if shutil.which("photorec"):
        ways = "partition_none,options,paranoid,fileopt,everything,disable,txt,enable,freespace,search"
        yield "photorec", carved("photorec", "/log", "/logname", "/dev/null", "/d", "FOLDER/out", "/cmd", image, ways)
    if shutil.which("scalpel"):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as rules:
            # A rule of our own: those that it comes with are for pictures and the like.
            rules.write("txt y 4096 PURGEMARK-\n")
            rules.flush()
            yield "scalpel", carved("scalpel", "-c", rules.name, "-o", "FOLDER/out", image)


def names_by_tools():
    return output("fls", "-d", "-r", "-p", image) if shutil.which("fls") else b""


def fail(text):
    sys.exit(f"judge: {text}")


with open(image, "rb") as file:
    data = file.read()

if wanted == "marked":
    found = markers(data, ("marked", "plain"))
    print(f"left of what was deleted: {found}")
    if found.get("marked"):
        fail("what was marked should have been overwritten")
    if found.get("plain", 0) < 1000:
        fail("what was not marked should be there")
    sys.exit()

kept = data.count(MARK + b"keep")
left = markers(data)
# FAT has five letters of a long name in a row, and its own short one without the first letter.
names = len(re.findall(rb"secretname|s\0e\0c\0r\0e\0|ECRET~[0-9](?:TXT|   )", data))
if names and wanted != "names-stay":
    left["name"] = names
print(f"kept {kept}, left of what was deleted: {left or 'nothing'}")
if kept != 400:
    fail("the file that was kept is not there")

seen = []
for tool, text in by_tools():
    found = markers(text)
    seen.append(f"{tool} {sum(found.values()) or 'nothing'}")
    if wanted != "lost" and found:
        fail(f"{tool} finds {found}")
    if wanted == "lost" and not found and tool in ("blkls", "photorec", "scalpel"):
        fail(f"{tool} should find something without purging")
listed = names_by_tools()
if wanted == "purged" and (b"ecret" in listed or b"ECRET" in listed):
    fail(f"fls finds names: {listed.decode('ascii', 'replace')}")
seen.append(f"fls {len([line for line in listed.splitlines() if b'ecret' in line.lower()])} names")
print("tools: " + ", ".join(seen))

if wanted != "lost" and left:
    fail("this should have been overwritten")
if wanted == "lost" and not all(left.get(name, 0) > 100 for name in ("unlink", "open", "zero", "sub")):
    fail("without purging it should be there")
if wanted == "lost" and "name" not in left:
    fail("without purging names should be there")
