#!/usr/bin/python3
"""A second reader of PD-DM devices, written from docs/spec/pddm.md.

    read_device.py show DEVICE PASSWORD_FILE             what the password shows of all units, as JSON
    read_device.py read DEVICE PASSWORD_FILE CLASS       a volume to standard output; class 0 is the public one
    read_device.py compare DEVICE DEVICE PASSWORD_FILE   exit 1 if the password tells them apart

With TACITA_MACS=N only one of N MACs is computed, which takes time here. Needs python3-argon2 and
python3-cryptography.
"""

import json
import os
import sys
from hashlib import sha256
from pathlib import Path
from struct import unpack, unpack_from

from argon2.low_level import Type, hash_secret_raw
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "testkit" / "readers"))
from hash_by_blake3 import digest, keyed  # noqa: E402

BLOCK = 4096
CELL = 144
NO_ID, LOST, NOWHERE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF


def prf(key, domain, data):
    return keyed(key, bytes([domain]) + data)


def unseal(key, number, sealed, tag, context=b""):
    """What was sealed; None if it is not this."""
    try:
        return AESGCM(key).decrypt(bytes([number]) + bytes(11), bytes(sealed) + bytes(tag), context)
    except InvalidTag:
        return None


class Unit:
    """A unit that the public key opens."""


class Device:
    def __init__(self, path, password):
        self.bytes = Path(path).read_bytes()
        self.blocks = len(self.bytes) // BLOCK
        first, last = self.block(0), self.block(self.blocks - 1)
        self.superblock = first if self.is_superblock(first) else last
        if not self.is_superblock(self.superblock):
            sys.exit("no superblock")
        self.both = first == last
        s = self.superblock
        (self.version, self.p, self.h, self.m, self.public_spare, self.hidden_spare,
         self.heartbeat, self.device_blocks) = unpack_from("<4I2HIQ", s, 8)
        self.unit_blocks = 1 + self.p + self.h
        places = LOST // self.unit_blocks - 1
        self.units = min((self.device_blocks - 1 - self.unit_blocks) // self.unit_blocks, places)
        unit_bytes = self.unit_blocks * BLOCK
        self.gap = max(self.units // 100, min((64 << 20) // unit_bytes, self.units // 16), 8)
        # Where the hidden part begins.
        self.hidden_at = BLOCK - 24 * self.h - (16 + CELL) * self.m
        self.wrap = hash_secret_raw(password, s[48:80], 3, 256 << 10, 1, 32, Type.ID, 0x13)
        self.masters = {}
        public = unseal(prf(self.wrap, 4, s[80:112]), 0, s[112:144], s[144:160], s[:112])
        if public:
            self.masters[0] = public
        else:
            self.find_cell()
        if unseal(prf(self.masters[0], 5, s[80:112]), 0, s[160:192], s[192:208], s[:112]) is None:
            sys.exit("the superblock does not hold the public wrap key")
        self.open_units()

    def block(self, number):
        return self.bytes[number * BLOCK:(number + 1) * BLOCK]

    @staticmethod
    def is_superblock(block):
        sound = block[:12] == b"TACITAPD\x02\0\0\0" and digest(block[:4064]) == block[4064:]
        return sound and not any(block[40:48]) and not any(block[208:4064])

    def slots(self, level):
        """The slots of a level, as blocks of a unit."""
        if level == 0:
            return range(1, 1 + self.p)
        start, end = ((level + d) * self.h // self.m for d in (-1, 0))
        return range(1 + self.p + start, 1 + self.p + end)

    def header(self, unit):
        return self.block((unit + 1) * self.unit_blocks)

    def cell(self, header, level):
        start = BLOCK - CELL * (self.m + 1 - level)
        return header[start:start + CELL]

    def open_cell(self, header, level, master):
        """Wrap key, master below, replay from, epoch."""
        cell = self.cell(header, level)
        inside = unseal(prf(master, 1, header[:32]), 127, cell[48:128], cell[128:])
        return inside and (inside[:32], inside[32:64], *unpack("<2Q", inside[64:]))

    def find_cell(self):
        for unit in range(self.units):
            header = self.header(unit)
            for level in range(self.m, 0, -1):
                cell = self.cell(header, level)
                master = unseal(prf(self.wrap, 3, header[:32]), 0, cell[:32], cell[32:48])
                while master and level:
                    self.masters[level] = master
                    opened = self.open_cell(header, level, master)
                    master, level = opened and opened[1], level - 1
                if master:
                    self.masters[0] = master
                    return
        sys.exit("the password opens nothing")

    def open_units(self):
        self.unit = [self.open_unit(unit) for unit in range(self.units)]
        written = [unit for unit in self.unit if unit]
        newest = max(written, key=lambda unit: unit.seq)
        by_seq = {unit.seq: unit for unit in written}
        self.next = newest.durable
        while self.next in by_seq and by_seq[self.next].whole:
            before = by_seq.get(self.next - 1)
            if before and before.hash != by_seq[self.next].previous:
                break
            self.next += 1

    def open_unit(self, number):
        header = self.header(number)
        salt, tag, hidden = header[:32], header[32:48], header[self.hidden_at:]
        key = prf(self.masters[0], 1, salt)
        public = unseal(key, 0, header[48:self.hidden_at], tag, hidden)
        if public is None:
            return None
        unit = Unit()
        unit.number, unit.header, unit.hash = number, header, digest(header)
        unit.seq, unit.durable, unit.replay_from, unit.sweep_until = unpack_from("<4Q", public)
        unit.previous, unit.mac = public[32:64], public[64:96]
        unit.ids = list(unpack_from(f"<{self.p}I", public, 96))
        unit.ids_before = list(unpack_from(f"<{self.p}I", public, 96 + 4 * self.p))
        at = 96 + 8 * self.p
        unit.tags = [public[at + 16 * i:at + 16 * i + 16] for i in range(self.p)]
        unit.rest = public[at + 16 * self.p:]
        sound = unit.seq % self.units == number and unit.seq < 1 << 63
        sound = sound and all(0 <= unit.seq - n < self.units for n in (unit.durable, unit.replay_from))
        if not sound or unit.sweep_until > unit.seq + self.units:
            return None
        unit.contents = self.contents(unit, 0, unit.ids, unit.tags)
        unit.whole = None not in unit.contents
        return unit

    def mac_is_right(self, unit):
        start = (unit.number + 1) * self.unit_blocks + 1 + self.p
        hidden = self.bytes[start * BLOCK:(start + self.h) * BLOCK]
        return prf(prf(self.masters[0], 2, unit.header[:32]), 0, hidden) == unit.mac

    def contents(self, unit, level, ids, tags):
        key = prf(self.masters[level], 1, unit.header[:32])
        start = (unit.number + 1) * self.unit_blocks
        blocks = (self.block(start + slot) for slot in self.slots(level))
        sealed = zip(blocks, ids, tags)
        return [unseal(key, i + 1, block, tag, id.to_bytes(4, "little"))
                for i, (block, id, tag) in enumerate(sealed)]

    def told(self, unit, level):
        """Ids and tags of a level in a unit; None if it was not open."""
        if level == 0:
            return unit.ids, unit.tags
        slots = self.slots(level)
        count, before = len(slots), slots.start - 1 - self.p
        start = self.hidden_at + 8 * before + 16 * (level - 1)
        sealed = unit.header[start:start + 8 * count]
        key = prf(self.masters[level], 1, unit.header[:32])
        ids = unseal(key, 0, sealed, unit.header[start + 8 * count:start + 8 * count + 16])
        at = self.hidden_at + 8 * self.h + 16 * self.m + 16 * before
        tags = [unit.header[at + 16 * i:at + 16 * i + 16] for i in range(count)]
        return ids and (list(unpack_from(f"<{count}I", ids)), tags)

    def accepted(self):
        """The units that count: each is the one that its place must hold."""
        for seq in range(max(0, self.next - self.units), self.next):
            unit = self.unit[seq % self.units]
            yield seq, unit if unit and unit.seq == seq else None

    def read(self, level):
        """The content of a volume."""
        spare = self.hidden_spare if level else self.public_spare
        kept = (self.units - self.gap) * len(self.slots(level)) * (1000 - spare) // 1000
        blocks = kept * 1024 // 1025 - 1
        replay_from = self.unit[(self.next - 1) % self.units].replay_from
        if level:
            cells = (self.open_cell(unit.header, level, self.masters[level])
                     for _, unit in self.accepted() if unit)
            replay_from = [cell for cell in cells if cell][-1][2]
        places, pages, units = {}, {}, []
        for seq, unit in self.accepted():
            if seq >= replay_from and unit and self.told(unit, level):
                units.append((unit, *self.told(unit, level)))
        for unit, ids, tags in units:
            for index, id in enumerate(ids):
                if blocks <= id < blocks + (blocks + 1023) // 1024:
                    pages[id - blocks] = (unit.seq, index)
        for unit, ids, tags in units:
            found = [page for page, (seq, _) in pages.items() if seq == unit.seq]
            contents = self.contents(unit, level, ids, tags) if found else []
            for page in found:
                entries = unpack("<1024I", contents[pages[page][1]])
                places.update(zip(range(page * 1024, min(blocks, page * 1024 + 1024)), entries))
            for slot, id in zip(self.slots(level), ids):
                if id < blocks:
                    places[id] = unit.number * self.unit_blocks + slot
        return b"".join(self.read_block(level, id, places.get(id, NOWHERE)) for id in range(blocks))

    def read_block(self, level, id, place):
        if place == NOWHERE:
            return bytes(BLOCK)
        unit = place != LOST and dict(self.accepted())[self.seq_at(place // self.unit_blocks)]
        told = unit and self.told(unit, level)
        if not told:
            sys.exit(f"block {id} cannot be read")
        index = place % self.unit_blocks - self.slots(level).start
        start = (unit.number + 1) * self.unit_blocks + place % self.unit_blocks
        key = prf(self.masters[level], 1, unit.header[:32])
        content = unseal(key, index + 1, self.block(start), told[1][index], id.to_bytes(4, "little"))
        return content or sys.exit(f"block {id} is damaged")

    def seq_at(self, unit):
        return (self.next - 1 - unit) // self.units * self.units + unit

    def show(self, macs):
        """All that the password shows, but for what is random; of so many MACs one is computed."""
        log = range(self.unit_blocks, (self.units + 1) * self.unit_blocks)
        outside = [n for n in range(1, self.blocks - 1) if n not in log and any(self.block(n))]

        def unit(unit):
            if not unit:
                return None
            return {
                "seq": unit.seq, "durable": unit.durable, "replay_from": unit.replay_from,
                "sweep_until": unit.sweep_until, "ids": unit.ids, "ids_before": unit.ids_before,
                "contents": [content and sha256(content).hexdigest() for content in unit.contents],
                "rest": any(unit.rest), "mac": unit.number % macs or self.mac_is_right(unit),
                "hidden": [hidden(unit, level) for level in self.masters if level],
            }

        def hidden(unit, level):
            ids, tags = self.told(unit, level) or ([], [])
            cell = self.open_cell(unit.header, level, self.masters[level])
            contents = zip(ids, self.contents(unit, level, ids, tags))
            return {
                "level": level, "cell": cell and cell[2:], "ids": ids,
                # What is in a slot that nobody has filled is noise.
                "contents": [id != NO_ID and content and sha256(content).hexdigest()
                             for id, content in contents],
            }
        written = [n for n in range(self.units) if any(self.header(n))]
        return {
            "parameters": self.superblock[:40].hex(), "both_superblocks": self.both,
            "next": self.next, "written_outside": outside, "written_units": written,
            "units": [unit(u) for u in self.unit],
        }


def main(command, *rest):
    macs = int(os.environ.get("TACITA_MACS", 1))
    def password(path):
        return Path(path).read_bytes().split(b"\n")[0]
    if command == "show":
        print(json.dumps(Device(rest[0], password(rest[1])).show(macs)))
    elif command == "read":
        sys.stdout.buffer.write(Device(rest[0], password(rest[1])).read(int(rest[2])))
    elif command == "compare":
        a, b = (Device(path, password(rest[2])).show(macs) for path in rest[:2])
        for name in a:
            if a[name] != b[name] and name != "units":
                print(f"{name}: {a[name]} {b[name]}")
        for number, (x, y) in enumerate(zip(a["units"], b["units"])):
            if x != y:
                print(f"unit {number}:", {k: (x[k], y[k]) for k in x if x[k] != y[k]} if x and y else (x, y))
        sys.exit(a != b)
    else:
        sys.exit(__doc__)


main(*sys.argv[1:])
