"""A second reader of HIFS images, written from docs/spec/hifs.md alone.

read_image.py IMAGE           every path as JSON, one a line
read_image.py IMAGE FOLDER    the same, and the content of all files into FOLDER, by id

Before it prints anything it recomputes from the files what every block of the image must be: shapes,
tries, ids, places, and zeros wherever nothing is stored. What differs ends it with code 1.
"""

import json
import os
import sys
from math import isqrt

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../testkit/readers"))
from hash_by_blake3 import digest, keyed

BLOCK, ENTRIES, PAYLOAD, INLINE = 4096, 170, 4048, 192
MASK = (1 << 64) - 1
FILE, DIRECTORY, SYMLINK, PIPE, SOCKET, CHARACTER, DEVICE = range(1, 8)


class Wrong(Exception):
    """The image is not what the document says."""


def expect(condition, what):
    if not condition:
        raise Wrong(what)


def number(data, at, width):
    return int.from_bytes(data[at:at + width], "little")


def up(a, b):
    return -(-a // b)


# Section 9.
def finish(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def mix(a, b):
    return finish(finish(a) ^ ((b * 0xD6E8FEB86659FD93) & MASK))


def fold(name):
    return mix(name & MASK, name >> 64)


# Section 1.
def shape(blocks, b, groups, layout):
    changed = min(max(blocks // 32, max(64, 8 * b)), 16384)
    cells = blocks // b + blocks // 32 + 5 * groups
    maps = up(cells, ENTRIES) + 2 * groups
    journal = 1 + up(cells + cells // 2 + maps + changed, 128) + maps + changed + b
    room = (blocks - 2 - journal) // groups

    def pages(buckets):
        return max(4, up(buckets * b, 32))

    buckets = room // b
    while True:
        size = 1 + up(buckets, ENTRIES) + up(pages(buckets), ENTRIES) + pages(buckets) + buckets * b
        if size <= room:
            break
        buckets -= up(size - room, b)
    order = 0
    if layout == "d":
        while order < (4 if b > 16 else 6) and buckets >> (order + 1) >= 8:
            order += 1
        buckets = buckets >> order << order
    return journal, buckets, pages(buckets), order


class Inode:
    def __init__(self, entry, at):
        self.id = number(entry, at, 16)
        self.kind, times = entry[at + 16], entry[at + 17]
        self.mode = number(entry, at + 18, 2)
        self.names, self.uid, self.gid, self.rdev = (number(entry, at + i, 4) for i in (20, 24, 28, 32))
        self.size, self.stored = number(entry, at + 36, 8), number(entry, at + 44, 4)
        inline, attributes = number(entry, at + 48, 2), number(entry, at + 50, 2)
        expect(self.id != 0 and 1 <= self.kind <= 7 and times < 8 and self.mode <= 0o7777, "inode")
        expect(number(entry, at + 52, 4) == 0, "zero bytes of an inode")
        end = at + 56
        self.times = [None] * 3
        for i in range(3):
            if times >> i & 1:
                seconds = int.from_bytes(entry[end:end + 8], "little", signed=True)
                self.times[i] = (seconds, number(entry, end + 8, 4))
                expect(self.times[i][1] < 10 ** 9, "nanoseconds")
                end += 12
        has_content = self.kind in (FILE, SYMLINK)
        short = has_content and self.size <= INLINE
        expect(inline == (self.size if short else 0), "inline content")
        expect(self.stored == 0 or (has_content and not short), "stored buckets of what has none")
        expect(self.size < 1 << 63 and (has_content or self.kind == DIRECTORY or self.size == 0), "size")
        expect(self.rdev == 0 or self.kind in (CHARACTER, DEVICE), "device number")
        self.inline = bytes(entry[end:end + inline])
        end += inline
        stop, self.attributes, last = end + attributes, {}, b""
        while end < stop:
            name_len, value_len = entry[end], number(entry, end + 1, 2)
            name = bytes(entry[end + 3:end + 3 + name_len])
            spaces = (b"user.", b"trusted.", b"security.")
            expect(any(name.startswith(s) and len(name) > len(s) for s in spaces), "attribute name")
            expect(name > last and 0 not in name, "order of attributes")
            self.attributes[name] = bytes(entry[end + 3 + name_len:end + 3 + name_len + value_len])
            end, last = end + 3 + name_len + value_len, name
        expect(end == stop <= len(entry), "truncated attributes")
        self.end = end
        self.paths = []


class Image:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.superblock()
        self.seen = set()
        self.constants()
        self.pages = self.table("pages")
        self.read_pages()
        self.link()
        self.buckets = self.table("buckets")
        self.contents()
        self.places()
        self.zeros()

    def block(self, number_, count=1):
        return self.data[number_ * BLOCK:(number_ + count) * BLOCK]

    def prf(self, domain, *parts):
        return keyed(self.seed, bytes([domain]) + b"".join(parts))

    def id_of(self, value):
        return number(value, 0, 16) or 1

    def name_of(self, directory, name):
        value = self.prf(3, directory.to_bytes(16, "little"), name)
        return self.id_of(value), number(value, 16, 8)

    # Section 2.
    def superblock(self):
        s = self.block(0)
        expect(s[:8] == b"TACITAHI" and number(s, 8, 4) in (2, 3, 4) and number(s, 12, 4) == BLOCK, "superblock")
        expect(digest(s[:0xfe0]) == s[0xfe0:], "checksum of the superblock")
        self.b, self.layout, self.order = number(s, 16, 4), chr(s[20]), s[21]
        self.ids, self.kept, self.groups = s[22], s[23], number(s, 24, 4)
        self.bn, self.pn, self.journal = number(s, 28, 4), number(s, 32, 4), number(s, 40, 8)
        self.blocks, self.seed = number(s, 48, 8), s[64:96]
        expect(self.layout in "abcd" and self.ids < 2 and self.kept < 3, "parameters")
        zero = s[36:40] + s[56:64] + s[96:0xfe0]
        expect(not any(zero), "bytes of the superblock that are zero")
        expect(self.b & (self.b - 1) == 0 and 1 <= self.b <= 256 and 1 <= self.groups <= 4096, "sizes")
        chosen = (self.journal, self.bn, self.pn, self.order)
        expect(chosen == shape(self.blocks, self.b, self.groups, self.layout), "shape")
        expect(self.blocks * BLOCK <= len(self.data), "a truncated image")
        self.cell_blocks = {"buckets": self.b, "pages": 1}
        self.count = {"buckets": self.bn, "pages": self.pn}

    def group(self, g):
        maps = up(self.bn, ENTRIES) + up(self.pn, ENTRIES)
        return 1 + self.journal + g * (1 + maps + self.pn + self.bn * self.b)

    def cell(self, table, c):
        g, index = divmod(c, self.count[table])
        first = self.group(g) + 1 + up(self.bn, ENTRIES) + up(self.pn, ENTRIES)
        return first + (index if table == "pages" else self.pn + index * self.b)

    # Section 3.
    def constants(self):
        expect(self.block(self.blocks - 1) == self.block(0), "copy of the superblock")
        self.seen |= {0, self.blocks - 1}
        for g in range(self.groups):
            want = b"TACITAGR" + b"".join(n.to_bytes(4, "little") for n in (g, self.bn, self.pn))
            want = want.ljust(0xfe0, b"\0")
            expect(self.block(self.group(g)) == want + digest(want), f"descriptor of group {g}")
            self.seen.add(self.group(g))

    # Section 4.
    def table(self, table):
        owners = {}
        for g in range(self.groups):
            start = self.group(g) + 1 + (up(self.bn, ENTRIES) if table == "pages" else 0)
            for m in range(up(self.count[table], ENTRIES)):
                data = self.block(start + m)
                if not any(data):
                    continue
                expect(digest(data[:0xff0])[:16] == data[0xff0:], f"checksum of map block {start + m}")
                self.seen.add(start + m)
                for i in range(ENTRIES):
                    entry = data[24 * i:24 * i + 24]
                    if any(entry):
                        index = m * ENTRIES + i
                        expect(index < self.count[table] and not any(entry[20:]), "map entry")
                        owner = number(entry, 0, 16), number(entry, 16, 4)
                        expect(owner[0] and owner not in owners, "owner of a cell")
                        owners[owner] = g * self.count[table] + index
        return owners

    # Sections 5 to 7.
    def read_pages(self):
        self.inodes, self.directories, self.leaves = {}, {}, {}
        self.table_id = self.id_of(self.prf(2))
        for (owner, bucket), c in self.pages.items():
            at = self.cell("pages", c)
            page = self.block(at)
            self.seen.add(at)
            trie, start, depth = number(page, 0, 16), number(page, 16, 8), page[24]
            entries, length = number(page, 26, 2), number(page, 28, 2)
            sealed = digest(page[:32] + bytes(16) + page[48:])[:16]
            expect(sealed == page[32:48], f"checksum of page {at}")
            expect(depth <= 64 and start & ((1 << (64 - depth)) - 1) == 0, "prefix of a page")
            name = (trie.to_bytes(16, "little"), start.to_bytes(8, "little"), bytes([depth]))
            expect(owner == self.id_of(self.prf(4, *name)) and bucket == 0, "id of a page")
            expect(1 <= length <= PAYLOAD and page[25] == 0 and page[30:32] == b"\0\0", "page header")
            expect(not any(page[48 + length:]), "bytes behind a page's entries")
            self.leaves.setdefault(trie, {})[(start, depth)] = length
            body, end, last = page[48:48 + length], 0, None
            for _ in range(entries):
                begin = end
                if trie == self.table_id:
                    inode = Inode(body, end)
                    end, key = inode.end, (inode.id >> 64, inode.id)
                    expect(inode.id not in self.inodes, "an inode twice")
                    self.inodes[inode.id] = inode
                    inode.hash, inode.length = key[0], end - begin
                else:
                    child, kind, length_ = number(body, end, 16), body[end + 16], body[end + 17]
                    name = bytes(body[end + 18:end + 18 + length_])
                    end += 18 + length_
                    bad = name in (b"", b".", b"..") or 0 in name or b"/" in name
                    expect(child and not bad and len(name) == length_, "directory entry")
                    key = (self.name_of(trie, name)[1], name)
                    entry = (child, kind, end - begin, key[0])
                    self.directories.setdefault(trie, {})[name] = entry
                expect(key[0] >> (64 - depth) == start >> (64 - depth) if depth else True, "hash of an entry")
                expect(last is None or last < key, "order of entries")
                last = key
            expect(end == length, "length of entries")

    # Section 10.
    def expect_trie(self, trie, entries):
        found, stack = {}, [(0, 0, sorted(entries))]
        while stack:
            start, depth, rest = stack.pop()
            total = sum(length for _, length in rest)
            if total > PAYLOAD:
                middle = start | 1 << (63 - depth)
                stack.append((start, depth + 1, [e for e in rest if e[0] < middle]))
                stack.append((middle, depth + 1, [e for e in rest if e[0] >= middle]))
            elif rest:
                found[(start, depth)] = total
        expect(found == self.leaves.get(trie, {}), f"shape of trie {trie:032x}")

    def link(self):
        self.expect_trie(self.table_id, [(i.hash, i.length) for i in self.inodes.values()])
        root = self.id_of(self.prf(1))
        expect(root in self.inodes and self.inodes[root].kind == DIRECTORY, "root")
        self.inodes[root].paths.append((b"", None))
        stack, met = [(root, b"")], 0
        while stack:
            directory, path = stack.pop()
            met += 1
            entries = self.directories.get(directory, {})
            self.expect_trie(directory, [(e[3], e[2]) for e in entries.values()])
            below = 0
            for name, (child, kind, _, _) in entries.items():
                expect(child in self.inodes and self.inodes[child].kind == kind, f"inode of {name}")
                self.inodes[child].paths.append((path + b"/" + name, (directory, name)))
                if kind == DIRECTORY:
                    expect(len(self.inodes[child].paths) == 1 and child != root, "a second name of a directory")
                    below += 1
                    stack.append((child, path + b"/" + name))
            inode = self.inodes[directory]
            expect((inode.size, inode.names) == (len(entries), 2 + below), f"counts of {path}")
        expect(met == sum(i.kind == DIRECTORY for i in self.inodes.values()), "directories without a name")
        expect(all(d in self.inodes for d in self.directories), "entries of no directory")
        for inode in self.inodes.values():
            expect(inode.paths, "a file without a name")
            inode.paths.sort()
            owner = inode.paths[0][1]
            kept = [time is not None for time in inode.times]
            allowed = [[False] * 3, kept[:2] + [False], kept[:1] + [True, True]][self.kept]
            expect(kept == allowed, "times")
            inode.home = 0
            if owner:
                expect(inode.kind == DIRECTORY or inode.names == len(inode.paths), "number of names")
                expect(self.ids == 1 or inode.id == self.name_of(*owner)[0], f"id of {inode.paths[0][0]}")
                inode.home = owner[0] & MASK
            if self.ids == 1:
                inode.home = inode.id & MASK

    # Section 11, what is stored.
    def contents(self):
        counted = {}
        size = self.b * BLOCK
        by_file = {}
        for (owner, bucket), c in self.buckets.items():
            expect(owner in self.inodes, "a bucket of no file")
            counted[owner] = counted.get(owner, 0) + 1
            data = self.block(self.cell("buckets", c), self.b)
            left = max(0, self.inodes[owner].size - bucket * size)
            expect(any(data[:left]) and not any(data[left:]), "content of a bucket")
            by_file.setdefault(owner, []).append((bucket, data))
            self.seen |= set(range(self.cell("buckets", c), self.cell("buckets", c) + self.b))
        for inode in self.inodes.values():
            expect(inode.stored == counted.get(inode.id, 0), "count of buckets")
            if inode.kind in (FILE, SYMLINK):
                content = bytearray(inode.size if inode.size > INLINE else 0) or bytearray(inode.inline)
                for bucket, data in by_file.get(inode.id, []):
                    part = data[:max(0, inode.size - bucket * size)]
                    content[bucket * size:bucket * size + len(part)] = part
                inode.content = bytes(content)
                if inode.kind == SYMLINK:
                    expect(0 < inode.size < BLOCK and 0 not in inode.content, "target")

    # Section 11.
    def pieces(self, owner, buckets):
        chunks = {}
        for bucket in buckets:
            chunks.setdefault(bucket >> self.order, set()).add(bucket & ((1 << self.order) - 1))
        for chunk, stored in chunks.items():
            envelope = max(stored).bit_length()
            at = 0
            while at < 1 << self.order:
                if at not in stored:
                    at += 1
                    continue
                o = 0
                while o < self.order and at % (2 << o) == 0 and all(at + i in stored for i in range(2 << o)):
                    o += 1
                yield chunk, (chunk << self.order) + at, o, envelope
                at += 1 << o

    def choices_d(self, cells, k, owner, home, chunk, bucket, o, envelope):
        h, mask, n = mix(fold(owner), chunk), (1 << k) - 1, cells
        supers = n >> k
        for t in range(1024):
            x = mix(h, t) if t < 4 else mix(mix(h, bucket << 8 | o), t)
            if t < 16:
                frame = (home % self.groups) * supers + (x >> 32) % supers
            else:
                frame = (x >> 32) % (supers * self.groups)
            low = x & mask
            if t < 4:
                within = (low >> envelope << envelope) + (bucket & mask)
            else:
                within = low >> o << o
            yield (frame << k) + within
        frames = (n * self.groups) >> o
        for t in range(frames):
            yield ((h % frames + t) % frames) << o

    def choices_abc(self, cells, layout, owner, uid, g):
        start = 0 if layout == "b" else mix(fold(owner), g) % cells
        group = (uid if layout == "c" else fold(owner)) % self.groups
        for t in range(cells * self.groups):
            yield (start + t % cells) % cells + cells * ((group + t // cells) % self.groups)

    def places(self):
        wanted = []
        by_owner = {}
        for owner, bucket in self.buckets:
            by_owner.setdefault(owner, []).append(bucket)
        for owner, buckets in by_owner.items():
            inode = self.inodes[owner]
            if self.layout == "d":
                for chunk, bucket, o, v in self.pieces(owner, buckets):
                    rank = (self.order - o, mix(fold(owner), chunk), owner, bucket)
                    choices = self.choices_d(self.bn, self.order, owner, inode.home, chunk, bucket, o, v)
                    wanted.append((rank, [(owner, bucket + i) for i in range(1 << o)], choices))
            else:
                for g in buckets:
                    key = fold(owner) if self.layout == "b" else mix(fold(owner), g)
                    choices = self.choices_abc(self.bn, self.layout, owner, inode.uid, g)
                    wanted.append(((MASK ^ key, owner, g), [(owner, g)], choices))
        self.expect_places("buckets", wanted, self.buckets)
        wanted = []
        for trie, leaves in self.leaves.items():
            for start, depth in leaves:
                name = (trie.to_bytes(16, "little"), start.to_bytes(8, "little"), bytes([depth]))
                page = self.id_of(self.prf(4, *name))
                home = (page if trie == self.table_id else trie) & MASK
                if self.layout == "d":
                    rank = (0, mix(fold(page), 0), page, 0)
                    choices = self.choices_d(self.pn, 0, page, home, 0, 0, 0, 0)
                else:
                    rank = (MASK ^ mix(fold(page), 0), page, 0)
                    choices = self.choices_abc(self.pn, "a", page, 0, 0)
                wanted.append((rank, [(page, 0)], choices))
        self.expect_places("pages", wanted, self.pages)
        pages = self.pn * self.groups
        expect(len(self.pages) <= pages, "too many pages")
        self.room = min(pages * 97 // 100, pages - isqrt(pages)) - len(self.pages)

    def expect_places(self, table, wanted, found):
        taken = {}
        for _, owners, choices in sorted(wanted, key=lambda one: one[0]):
            for first in choices:
                if all(first + i not in taken for i in range(len(owners))):
                    break
            else:
                raise Wrong(f"no place among the {table}")
            for i, owner in enumerate(owners):
                taken[first + i] = owner
        expect({owner: c for c, owner in taken.items()} == found, f"places of {table}")

    def zeros(self):
        for n in range(len(self.data) // BLOCK):
            if n not in self.seen:
                expect(not any(self.block(n)), f"block {n} is not zero")
        expect(not any(self.data[len(self.data) // BLOCK * BLOCK:]), "bytes behind the image")

    def paths(self):
        for inode in self.inodes.values():
            least = inode.paths[0][0]
            for path, _ in inode.paths:
                yield path, inode, least


def main(arguments):
    try:
        image = Image(arguments[1])
    except Wrong as wrong:
        print(f"wrong: {wrong}", file=sys.stderr)
        return 1
    for path, inode, least in sorted(image.paths(), key=lambda one: one[0]):
        content = getattr(inode, "content", b"")
        print(json.dumps({
            "path": path.hex(), "kind": inode.kind, "mode": inode.mode, "uid": inode.uid, "gid": inode.gid,
            "rdev": inode.rdev, "same_as": least.hex(), "id": f"{inode.id:032x}", "size": len(content),
            "attributes": {name.hex(): value.hex() for name, value in inode.attributes.items()},
        }))
        if len(arguments) > 2 and inode.kind in (FILE, SYMLINK):
            with open(os.path.join(arguments[2], f"{inode.id:032x}"), "wb") as out:
                out.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
