"""BLAKE3, plain and keyed, in nothing but Python: for second readers of formats."""

from struct import pack, unpack

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
CHUNK_START, CHUNK_END, PARENT, ROOT, KEYED = 1, 2, 4, 8, 16
COLUMNS_AND_DIAGONALS = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)
BLOCK, CHUNK = 64, 1024


def schedules():
    order = tuple(range(16))
    for _ in range(7):
        yield order
        order = tuple(order[place] for place in PERMUTATION)


SCHEDULES = tuple(schedules())


def compress(value, words, counter, length, flags):
    """The 16 words of one compression."""
    state = list(value) + list(IV[:4]) + [counter & 0xFFFFFFFF, counter >> 32, length, flags]
    for schedule in SCHEDULES:
        for step, (a, b, c, d) in enumerate(COLUMNS_AND_DIAGONALS):
            va, vb, vc, vd = state[a], state[b], state[c], state[d]
            va = (va + vb + words[schedule[2 * step]]) & 0xFFFFFFFF
            vd ^= va
            vd = (vd >> 16 | vd << 16) & 0xFFFFFFFF
            vc = (vc + vd) & 0xFFFFFFFF
            vb ^= vc
            vb = (vb >> 12 | vb << 20) & 0xFFFFFFFF
            va = (va + vb + words[schedule[2 * step + 1]]) & 0xFFFFFFFF
            vd ^= va
            vd = (vd >> 8 | vd << 24) & 0xFFFFFFFF
            vc = (vc + vd) & 0xFFFFFFFF
            vb ^= vc
            vb = (vb >> 7 | vb << 25) & 0xFFFFFFFF
            state[a], state[b], state[c], state[d] = va, vb, vc, vd
    return [state[i] ^ state[i + 8] for i in range(8)] + [state[i + 8] ^ value[i] for i in range(8)]


def last_of_chunk(key, chunk, counter, flags):
    """What the last compression of a chunk takes."""
    value = key
    blocks = [chunk[at:at + BLOCK] for at in range(0, len(chunk), BLOCK)] or [b""]
    for index, block in enumerate(blocks):
        words = unpack("<16I", block.ljust(BLOCK, b"\0"))
        now = flags | (CHUNK_START if index == 0 else 0)
        if index == len(blocks) - 1:
            return value, words, counter, len(block), now | CHUNK_END
        value = compress(value, words, counter, BLOCK, now)[:8]


def node(key, data, counter, flags):
    """What the compression at the root of a subtree takes."""
    if len(data) <= CHUNK:
        return last_of_chunk(key, data, counter, flags)
    left = CHUNK
    while left * 2 < len(data):
        left *= 2
    halves = node(key, data[:left], counter, flags), node(key, data[left:], counter + left // CHUNK, flags)
    words = sum((compress(*half)[:8] for half in halves), [])
    return key, tuple(words), 0, BLOCK, flags | PARENT


def finish(key, data, flags):
    value, words, counter, length, last = node(key, bytes(data), 0, flags)
    return pack("<8I", *compress(value, words, counter, length, last | ROOT)[:8])


def digest(data):
    """32 bytes of BLAKE3."""
    return finish(IV, data, 0)


def keyed(key, data):
    """32 bytes of BLAKE3 in keyed mode."""
    return finish(unpack("<8I", key), data, KEYED)


assert digest(b"").hex().startswith("af1349b9f5f9a1a6")
assert keyed(b"whats the Elvish word for friend", b"").hex().startswith("92b2b75604ed3c76")
assert keyed(b"whats the Elvish word for friend", b"\0").hex().startswith("6d7878dfff2f4856")
