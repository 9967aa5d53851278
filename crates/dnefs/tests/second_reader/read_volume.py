#!/usr/bin/python3
"""A second reader of DNEFS, written from docs/spec/dnefs.md and docs/spec/flash.md alone.

    read_volume.py IMAGE FOLDER [PASSWORD_FILE]   lists all paths as JSON, a line each; contents go to FOLDER

IMAGE is one of the emulator, or a raw dump of a chip with UBI. Reads what was not unmounted, too, and writes nothing
to it. Needs python3-cryptography, python3-argon2 and python3-zstandard.
"""

import json
import stat
import sys
from pathlib import Path
from struct import calcsize, iter_unpack, unpack, unpack_from
from zlib import crc32

from argon2.low_level import Type, hash_secret_raw
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from zstandard import ZstdDecompressor

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "testkit" / "readers"))
from hash_by_blake3 import digest, keyed  # noqa: E402

COUNTER, GCM_128, GCM_256 = 1, 2, 3
RECORD, CHECKPOINT, HEAD, PADDING, MOUNTED, UNMOUNTED = range(1, 7)
INODE, DATA, ENTRY, ATTRIBUTE, REMOVAL, TRUNCATION, RECEIPT = range(1, 8)
INDEX, MAP, TABLE, ORPHANS, ROOT = range(16, 21)
PARTS = {INODE: 0, DATA: 1, ENTRY: 2, ATTRIBUTE: 3, RECEIPT: 4}
PLACES_TRIED = 16
KINDS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK)
FILE, LINK = 1, 3


def require(sound, what):
    if not sound:
        sys.exit(what)


def gcm(key, sealed, context):
    """What was sealed; None if it is not this."""
    try:
        return AESGCM(key).decrypt(bytes(12), bytes(sealed), bytes(context))
    except InvalidTag:
        return None


def from_lz4(block):
    """The content of an LZ4 block."""
    out, at = bytearray(), 0

    def length(first, at):
        while first >= 15:
            first, at, more = first + block[at], at + 1, block[at]
            if more < 255:
                break
        return first, at
    while at < len(block):
        token = block[at]
        literals, at = length(token >> 4, at + 1)
        out += block[at:at + literals]
        at += literals
        if at == len(block):
            break
        back = block[at] | block[at + 1] << 8
        match, at = length(token & 15, at + 2)
        for _ in range(match + 4):
            out.append(out[-back])
    return bytes(out)


class Flash:
    """The logical blocks in an image of the emulator, or in a raw dump of a chip."""

    def __init__(self, path):
        content, found = Path(path).read_bytes(), {}
        for block in self.of_image(content) if content[:8] == b"TACITAFL" else self.of_dump(content):
            self.attach(block, found)
        table = self.newest(found.get((0x7FFFEFFF, 0), []) + found.get((0x7FFFEFFF, 1), []))
        self.lebs = unpack_from(">I", table)[0]
        self.content = {leb: self.newest(copies) for (volume, leb), copies in found.items() if volume == 0}

    def of_image(self, image):
        """Physical blocks that are good, as they are read."""
        header = image[:4096]
        require(header[8:12] == b"\1\0\0\0" and digest(header[:4064]) == header[4064:], "not an image")
        self.page, pages, blocks = unpack_from("<3I", header, 12)
        block_len, states = self.page * pages, 4096 + blocks * self.page * pages
        self.leb_len = block_len - self.page
        for number in range(blocks):
            programmed, mark = unpack_from("<IB", image, states + 8 * number)
            start = 4096 + number * block_len
            if mark == 0:
                yield image[start:start + programmed].ljust(block_len, b"\xff")

    def of_dump(self, dump):
        """Physical blocks of UBI, whose headers tell their length."""
        begins = [at for at in range(0, len(dump), 512) if dump[at:at + 5] == b"UBI#\1"]
        require(len(begins) > 1, "neither an image nor a dump of UBI")
        block_len = min(after - before for before, after in zip(begins, begins[1:]))
        self.page = unpack_from(">I", dump, begins[0] + 20)[0]
        self.leb_len = block_len - self.page
        for start in range(0, len(dump), block_len):
            yield dump[start:start + block_len]

    def attach(self, block, found):
        sub_page = max(self.page // 4, 256)
        vid = block[sub_page:sub_page + 64]
        if any(self.crc(header[:60]) != header[60:64] for header in (block[:64], vid)):
            return
        require(block[:4] == b"UBI#" and vid[:4] == b"UBI!", "headers of something else")
        volume, leb = unpack_from(">2I", vid, 8)
        copied, length, sequence = vid[6], unpack_from(">I", vid, 20)[0], unpack_from(">Q", vid, 40)[0]
        content = block[self.page:]
        whole = not copied or self.crc(content[:length]) == vid[32:36]
        found.setdefault((volume, leb), []).append((whole, sequence if whole else -sequence, content))

    @staticmethod
    def newest(copies):
        require(copies, "there is no volume")
        return max(copies, key=lambda copy: copy[:2])[2]

    @staticmethod
    def crc(data):
        return (crc32(data) ^ 0xFFFFFFFF).to_bytes(4, "big")

    def leb(self, number):
        return self.content.get(number) or b"\xff" * self.leb_len


class Node:
    """A node with a header that is whole."""

    def __init__(self, leb, at, block):
        self.leb, self.at = leb, at
        header = block[at:at + 48]
        (magic, self.header_crc, self.crc, self.len, self.number, key_leb, key, self.check, self.kind,
         self.flags, _) = unpack("<4s3IQII8sBB6s", header)
        self.key = key_leb, key
        end = at + self.len
        known = magic == b"TacN" and crc32(header[8:]) == self.header_crc and RECORD <= self.kind <= UNMOUNTED
        self.authenticated = header[12:]
        self.sealed = block[at + 48:end] if self.kind in (RECORD, CHECKPOINT) else b""
        self.whole = known and self.len >= 48 and end <= len(block) and self.crc == (
            crc32(self.sealed) if self.sealed else 0)

    @staticmethod
    def all_of(leb, block, at=0):
        """The nodes of a block from a place on, up to where no whole node follows."""
        while at + 48 <= len(block):
            node = Node(leb, at, block)
            if not node.whole:
                return
            yield node
            at += -(-node.len // 8) * 8


class Record:
    """A record, decrypted."""

    def __init__(self, plain):
        self.kind, compression, zero, length, self.inode, self.part = unpack_from("<BBHIQQ", plain)
        payload = plain[24:]
        if compression == 1:
            payload = from_lz4(payload)
        elif compression == 2:
            payload = ZstdDecompressor().decompress(payload, max_output_size=length)
        require(zero == 0 and compression <= 2 and len(payload) == length, "a record that cannot be")
        self.payload = payload

    def listed(self, form, at=0):
        """What a count of 4 bytes says follows, and where that ends."""
        (count,), at = unpack_from("<I", self.payload, at), at + 4
        end = at + count * calcsize(form)
        require(end <= len(self.payload), "a list that is cut short")
        return list(iter_unpack(form, self.payload[at:end])), end


class Volume:
    def __init__(self, flash, password):
        self.flash = flash
        self.open_superblock(password)
        self.pages = {}
        self.index, self.places, self.orphans = {}, {}, set()
        # Where blocks end that were written after their inodes.
        self.longer = {}
        self.load()
        if not self.unmounted:
            self.replay()
        self.check_receipts()

    def open_superblock(self, password):
        copies = [self.flash.leb(n)[:160] for n in (0, 1)]
        sound = [s for s in copies if s[:8] == b"TacDNEFS" and unpack_from("<2I", s, 8) == (
            crc32(s[:8] + bytes(4) + s[12:]), 1)]
        require(sound, "no superblock")
        s = max(sound, key=lambda s: s[16:24][::-1])
        (self.leb_len, self.lebs, self.page, self.key_lebs, self.block, self.cipher, _,
         protection) = unpack_from("<5I3B", s, 40)
        require((self.leb_len, self.page) == (self.flash.leb_len, self.flash.page), "another shape")
        self.master = s[112:144]
        if protection == 1:
            require(password is not None, "there is a password")
            hashed = hash_secret_raw(password, s[80:112], 3, 256 << 10, 1, 32, Type.ID, 0x13)
            self.master = gcm(keyed(hashed, b"\1"), s[112:160], s[24:80])
            require(self.master, "a wrong password")
        self.key_len = 32 if self.cipher == GCM_256 else 16
        self.keys_of_page = (self.page - 96) // self.key_len
        self.names_key = keyed(self.master, b"\2")

    def main(self, leb):
        return self.flash.leb(4 + self.key_lebs + leb)

    def key(self, position):
        leb, page, at = position[0], position[1] // self.keys_of_page, position[1] % self.keys_of_page
        if (leb, page) not in self.pages:
            content = self.flash.leb(4 + leb)[page * self.page:(page + 1) * self.page]
            require(content[:8] == b"TacKeyPg" and unpack_from("<2I", content, 8) == (leb, page), "no page of keys")
            seal = keyed(self.master, b"\1" + content[24:56])
            self.pages[leb, page] = gcm(seal, content[96:] + content[64:80], content[:64])
            require(self.pages[leb, page], f"page {page} of keys in {leb} is damaged")
        return self.pages[leb, page][at * self.key_len:(at + 1) * self.key_len]

    def record(self, node):
        """What a node holds; None if its key is gone."""
        key = self.key(node.key)
        if Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(b"\xff" * 16)[:8] != node.check:
            return None
        if self.cipher == COUNTER:
            return Record(Cipher(algorithms.AES(key), modes.CTR(bytes(16))).decryptor().update(node.sealed))
        plain = gcm(key, node.sealed, node.authenticated)
        require(plain is not None, f"a node that is not what was written, in {node.leb}")
        return Record(plain)

    def at(self, key_leb, key, leb, offset, _):
        """What a reference leads to."""
        node = Node(leb, offset, self.main(leb))
        record = node.whole and node.key == (key_leb, key) and self.record(node)
        require(record, f"no node at {offset} in {leb}")
        return record

    def load(self):
        roots = []
        for leb in (2, 3):
            block = self.flash.leb(leb)
            found = (Node(leb, at, block) for at in range(0, self.leb_len, self.page))
            roots += [node for node in found if node.whole]
        roots.sort(key=lambda node: node.number, reverse=True)
        self.unmounted = bool(roots) and roots[0].kind == UNMOUNTED
        root = next(filter(None, (self.record(node) for node in roots if node.kind == CHECKPOINT)), None)
        require(root and root.kind == ROOT, "no root")
        self.next, _, _, self.last_receipt = unpack_from("<3Q32s", root.payload)
        behind = [node for node in roots if node.kind == RECORD and node.number >= self.next]
        self.behind = self.record(behind[0]) if behind else None
        self.heads, at = root.listed("<II", 56)
        chunks, at = root.listed("<5I", at)
        maps, at = root.listed("<5I", at)
        orphans, _ = root.listed("<5I", at)
        for chunk in self.tables(chunks, INDEX):
            for inode, part, key_leb, key in chunk.listed("<QQII")[0]:
                self.index[inode, part] = key_leb, key
        for keys in self.tables(maps, MAP):
            key_leb, = unpack_from("<I", keys.payload)
            for key, leb, offset, _ in keys.listed("<4I", 4)[0]:
                self.places[key_leb, key] = leb, offset
        for reference in orphans:
            record = self.at(*reference)
            require(record.kind == ORPHANS, "no orphans")
            self.orphans.update(inode for inode, in record.listed("<Q")[0])

    def tables(self, references, kind):
        for reference in references:
            table = self.at(*reference)
            require(table.kind == TABLE, "no table")
            for inner in table.listed("<5I")[0]:
                record = self.at(*inner)
                require(record.kind == kind, "another kind of record")
                yield record

    def replay(self):
        fresh, used = {}, set(self.index.values())
        starts = dict(self.heads)
        for leb in range(self.lebs - 4 - self.key_lebs):
            block = self.main(leb)
            first = Node(leb, 0, block)
            if first.whole and first.kind == HEAD and first.number >= self.next:
                starts[leb] = 0
        for leb, start in starts.items():
            for node in Node.all_of(leb, self.main(leb), start):
                if node.kind == RECORD and node.number >= self.next:
                    fresh[node.number] = node
                elif node.kind == RECORD and node.key in used:
                    self.places[node.key] = node.leb, node.at
        group = []
        for number in sorted(fresh):
            if group and number != group[-1].number + 1:
                group = []
            group.append(fresh[number])
            if not group[-1].flags & 1:
                for node in group:
                    self.play(node)
                group = []
        self.settle()

    def play(self, node):
        record = self.record(node)
        if not record:
            return
        part = record.inode, record.part
        if record.kind == REMOVAL:
            parts, at = record.listed("<QQ")
            orphans, _ = record.listed("<Q", at)
            for one in parts:
                self.index.pop(one, None)
            self.orphans.update(inode for inode, in orphans)
        elif record.kind == TRUNCATION:
            size, = unpack("<Q", record.payload)
            first = -(-size // self.block)
            for one in [(inode, part) for inode, part in self.index
                        if inode == record.inode and part >> 60 == 1 and part & (1 << 60) - 1 >= first]:
                del self.index[one]
            self.longer.pop(record.inode, None)
        else:
            require(PARTS.get(record.kind) == record.part >> 60, "a part of another kind")
            self.index[part], self.places[node.key] = node.key, (node.leb, node.at)
            if record.kind == INODE:
                self.longer.pop(record.inode, None)
            elif record.kind == RECEIPT:
                self.last_receipt = digest(record.payload)
            elif record.kind == DATA:
                end = (record.part & (1 << 60) - 1) * self.block + len(record.payload)
                self.longer[record.inode] = max(end, self.longer.get(record.inode, 0))

    def settle(self):
        """Orphans, and blocks of nothing, do not count."""
        gone = {inode for inode, _ in self.index if inode in self.orphans or (inode, 0) not in self.index}
        self.index = {part: key for part, key in self.index.items() if part[0] not in gone - {0}}

    def check_receipts(self):
        """They are a chain that ends in the newest; that behind the root may not be in the index yet."""
        receipts = [self.part(*part) for part in sorted(self.index) if part[0] == 0 and part[1] >> 60 == 4]
        last = self.last_receipt
        if self.behind and (0, self.behind.part) not in self.index:
            receipts.append(self.behind.payload)
            last = digest(self.behind.payload)
        require(all(len(receipt) == 112 for receipt in receipts), "a receipt that cannot be")
        follows = [receipt[80:] for receipt in receipts[1:]] + [last]
        require(all(digest(r) == f for r, f in zip(receipts, follows)), "a receipt is missing")

    def part(self, inode, part):
        key = self.index[inode, part]
        leb, offset = self.places[key]
        record = self.at(*key, leb, offset, 0)
        require((record.inode, record.part) == (inode, part), "a node of something else")
        return record.payload

    def inode(self, number):
        payload = self.part(number, 0)
        mode, links, uid, gid, rdev, flags, size, parent = unpack_from("<6I2Q", payload)
        times = [unpack_from("<qI", payload, 40 + 12 * n) for n in range(3)]
        length, = unpack_from("<H", payload, 76)
        size = max(size, self.longer.get(number, 0))
        require(len(payload) == 78 + length and stat.S_IFMT(mode) in KINDS, "an inode that cannot be")
        return {"mode": mode & 0o7777, "kind": KINDS.index(stat.S_IFMT(mode)) + 1, "links": links, "uid": uid,
                "gid": gid, "rdev": rdev, "flags": flags, "size": size, "parent": parent, "times": times,
                "target": payload[78:78 + length]}

    def named(self, inode, kind, split):
        """Names of one kind of an inode, with what goes with them; each where its hash says."""
        found = {}
        for part in sorted(self.parts.get((inode, kind), ())):
            payload = self.part(inode, part)
            name, value = split(payload)
            place = unpack("<Q", keyed(self.names_key, b"\1" + inode.to_bytes(8, "little") + name)[:8])[0]
            first = place * 16 & (1 << 60) - 1
            require(0 <= (part & (1 << 60) - 1) - first < PLACES_TRIED, "a name where another belongs")
            found[name] = value
        return found

    def walk(self):
        """All paths with what they name."""
        self.parts = {}
        for inode, part in self.index:
            self.parts.setdefault((inode, part >> 60), []).append(part)
        pending = [(b"", 1)]
        while pending:
            path, number = pending.pop()
            inode = self.inode(number)
            yield path, number, inode
            entries = self.named(number, 2, lambda p: (p[12:], unpack_from("<QI", p)))
            for name, (child, kind) in entries.items():
                require(kind == KINDS[self.inode(child)["kind"] - 1], "an entry of another kind")
                pending.append((path + b"/" + name, child))

    def attributes(self, number):
        def split(payload):
            end = 2 + unpack_from("<H", payload)[0]
            return payload[2:end], payload[end:]
        return self.named(number, 3, split)

    def content(self, number, size):
        out = bytearray(size)
        for part in self.parts.get((number, 1), ()):
            at = (part & (1 << 60) - 1) * self.block
            block = self.part(number, part)[:max(0, size - at)]
            out[at:at + len(block)] = block
        return bytes(out)


def main(image, folder, password=None):
    secret = Path(password).read_bytes().split(b"\n")[0] if password else None
    volume = Volume(Flash(image), secret)
    same_as, lines = {}, []
    for path, number, inode in volume.walk():
        same_as[number] = min(path, same_as.get(number, path))
        target = inode.pop("target")
        if inode["kind"] in (FILE, LINK):
            content = target if inode["kind"] == LINK else volume.content(number, inode["size"])
            Path(folder, str(number)).write_bytes(content)
        attributes = {name.hex(): value.hex() for name, value in volume.attributes(number).items()}
        lines.append((path, number, {"id": str(number), **inode, "attributes": attributes}))
    for path, number, line in sorted(lines, key=lambda line: line[0]):
        print(json.dumps({"path": path.hex(), "same_as": same_as[number].hex(), **line}))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
