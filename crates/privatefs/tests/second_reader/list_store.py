#!/usr/bin/python3
"""A second reader of PrivateFS, written from docs/spec/privatefs.md alone.

    list_store.py BLOCKS KEY FOLDER   lists all paths as JSON, a line each; contents go to FOLDER

BLOCKS is a file with all blocks of a store, each its id and its content; KEY is the store's key, in hexadecimal.
Finishes a commit that was begun, in memory alone.
"""

import json
import sys
from pathlib import Path
from struct import pack, unpack_from

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "testkit" / "readers"))
from hash_by_blake3 import keyed  # noqa: E402

BLOCK = 4096
FILE, DIRECTORY, LINK = 1, 2, 3
NOBODY = 0xFFFFFFFF


def require(sound, what):
    if not sound:
        sys.exit(what)


def stamp(block):
    return unpack_from("<QQ", block, 8)


class Store:
    def __init__(self, path, key):
        self.key = keyed(key, bytes([64]))
        data = Path(path).read_bytes()
        records = range(0, len(data), 32 + BLOCK)
        self.blocks = {data[at:at + 32]: data[at + 32:at + 32 + BLOCK] for at in records}
        register = self.blocks.get(self.id(1))
        require(register and register[:8] == b"tacitaPF", "no register")
        require(unpack_from("<I", register, 8)[0] == 1, "another version")
        slots = unpack_from("<I", register, 80)[0]
        owner, count = unpack_from("<II", register, 56)
        require(slots <= 32 and (owner == NOBODY or owner < slots), "slots")
        if count:
            self.finish(register[64:80], count, unpack_from("<Q", register, 48)[0])
        self.root = self.id(2)

    def id(self, domain, *of):
        return keyed(self.key, bytes([domain]) + b"".join(of))

    def finish(self, mount, count, commit):
        first = commit % 2 << 31
        at, entries = first, []
        while len(entries) < count:
            header = self.blocks.get(self.id(7, mount, pack("<I", at)))
            require(header and header[:8] == b"tacitaPJ" and header[24:40] == mount, "no journal")
            numbers = stamp(header)[1], unpack_from("<I", header, 40)[0]
            require(numbers == (commit, at - first), "the journal of another commit")
            for n in range(unpack_from("<I", header, 44)[0]):
                entry = header[64 + 40 * n:104 + 40 * n]
                entries.append((entry[:32], unpack_from("<I", entry, 32)[0], stamp(header)))
            at += 1
        for block, kind, own in entries:
            if kind == 2:
                self.blocks.pop(block, None)
                continue
            image = self.blocks.get(self.id(7, mount, pack("<I", at)))
            at += 1
            there = self.blocks.get(block)
            require(image and stamp(image) == own, "a journal without an image")
            if not there or stamp(there) < own:
                self.blocks[block] = image

    def inode(self, number):
        block = self.blocks.get(self.id(4, number))
        require(block and block[:4] == b"TPFI" and block[96:128] == number, "an inode that is none")
        kind, form, mode = unpack_from("<BBH", block, 24)
        nlink, uid, gid, rdev, _ = unpack_from("<5I", block, 28)
        size, = unpack_from("<Q", block, 48)
        entries, buckets, attributes, body, ranges = unpack_from("<QQHHH", block, 192)
        return {
            "kind": kind, "form": form, "mode": mode, "nlink": nlink, "uid": uid, "gid": gid, "rdev": rdev,
            "size": size, "content": block[128:160], "entries": entries, "buckets": buckets,
            "attributes": block[768:768 + attributes], "body": block[1792:1792 + body],
            "ranges": [unpack_from("<QQ", block, 256 + 16 * n) for n in range(ranges)],
        }

    def content(self, inode):
        if inode["form"] == 0:
            return inode["body"]
        out = bytearray(inode["size"])
        for start, end in inode["ranges"]:
            for n in range(start, min(end, -(-inode["size"] // BLOCK))):
                block = self.blocks.get(self.id(5, inode["content"], pack("<Q", n)), bytes(BLOCK))
                out[n * BLOCK:(n + 1) * BLOCK] = block[:max(0, inode["size"] - n * BLOCK)]
        return bytes(out)

    def entries(self, inode):
        if inode["buckets"] == 0:
            parts = [inode["body"]]
        else:
            parts = [part for n in range(inode["buckets"]) for part in self.bucket(inode, n)]
        found = []
        for part in parts:
            while part:
                length, kind = part[0], part[1]
                found.append((part[34:34 + length], kind, part[2:34]))
                part = part[34 + length:]
        require(len(found) == inode["entries"], "another number of entries")
        return found

    def bucket(self, inode, number):
        part, more = 0, 1
        while more:
            block = self.blocks.get(self.id(6, inode["content"], pack("<QI", number, part)))
            if block is None:
                return
            require(block[:4] == b"TPFB" and block[24:56] == inode["content"], "a bucket that is none")
            bucket, where, length, more = unpack_from("<QIII", block, 56)
            require((bucket, where) == (number, part), "another bucket")
            entries = block[80:80 + length]
            self.belong(entries, number, inode["buckets"])
            yield entries
            part += 1

    def belong(self, entries, number, buckets):
        bits = buckets.bit_length() - 1
        while entries:
            length = entries[0]
            value = int.from_bytes(self.id(8, entries[34:34 + length])[:8], "little") >> 2
            low = value & (2 << bits) - 1
            where = low if low < buckets else value & (1 << bits) - 1
            require(where == number, "a name in another bucket")
            entries = entries[34 + length:]

    def walk(self):
        pending = [(b"", self.root)]
        while pending:
            path, number = pending.pop()
            inode = self.inode(number)
            yield path, number, inode
            if inode["kind"] == DIRECTORY:
                for name, kind, child in self.entries(inode):
                    require(self.inode(child)["kind"] == kind, "an entry of another kind")
                    pending.append((path + b"/" + name, child))


def attributes(data):
    found = {}
    while data:
        name, value = unpack_from("<BH", data)
        found[data[3:3 + name].hex()] = data[3 + name:3 + name + value].hex()
        data = data[3 + name + value:]
    return found


def main(blocks, key, folder):
    store = Store(blocks, bytes.fromhex(key))
    same_as, lines = {}, []
    for path, number, inode in store.walk():
        same_as[number] = min(path, same_as.get(number, path))
        if inode["kind"] in (FILE, LINK):
            Path(folder, number.hex()).write_bytes(store.content(inode))
        shown = {name: inode[name] for name in ("kind", "mode", "uid", "gid", "rdev", "size")}
        lines.append((path, number, {"id": number.hex(), **shown, "attributes": attributes(inode["attributes"])}))
    for path, number, line in sorted(lines, key=lambda line: line[0]):
        print(json.dumps({"path": path.hex(), "same_as": same_as[number].hex(), **line}))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
