#!/usr/bin/env python3
"""judge.py IMAGE lost|purged: what is left in an image of files that the guest has deleted.

`lost`: without purging; what was deleted is there. `purged`: nothing is. What was kept is there either way, or
finding nothing would prove nothing.
"""

import sys

image, wanted = sys.argv[1:]
data = open(image, "rb").read()
counts = {}
for marker in ("keep", "unlink", "over", "open", "cut", "zero", "sub", "short", "long"):
    counts[marker] = data.count(b"PURGEMARK-" + marker.encode())
# FAT has five letters of a long name in a row, and its own short one without the first letter.
counts["name"] = sum(
    data.count(text) for text in (b"secretname", "secre".encode("utf-16-le"), b"ECRET~")
)
kept = counts.pop("keep")
# The first hundred bytes of the file that was cut off are kept.
counts["cut"] -= 2
left = {name: count for name, count in counts.items() if count > 0}
print(f"kept {kept}, left of what was deleted: {left or 'nothing'}")
if kept != 400:
    sys.exit("judge: the file that was kept is not there")
if wanted == "purged" and left:
    sys.exit("judge: this should have been overwritten")
if wanted == "lost" and not all(left.get(name, 0) > 100 for name in ("unlink", "open", "zero", "sub")):
    sys.exit("judge: without purging it should be there")
if wanted == "lost" and "name" not in left:
    sys.exit("judge: without purging names should be there")
