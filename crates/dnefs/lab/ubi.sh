#!/usr/bin/env bash
# DNEFS on UBI of Linux, on a simulated chip in a virtual machine, where UBI erases nothing in the
# background: commands, each way to delete, a daemon that is killed, a chip without power, swap, blocks
# that go bad. Raw dumps of the chip are judged here, by the audit: before a purge it finds keys of what
# was deleted, after it none; and it finds them after a purge that leaves out the erase.
#
#   TACITA_LAB=FOLDER ubi.sh [TACITA [DNEFS_LAB]]
#
# FOLDER is that of the lab (crates/testkit/lab/host.sh); TACITA is the program, DNEFS_LAB the example
# program of tacita-dnefs with the feature `faults`; both from target/release by default.
cd "$(dirname "$0")"
lab="DNEFS on UBI"
. ../../testkit/lab/host.sh
needs ubiattach ubidetach ubimkvol flash_erase nanddump setfattr fallocate fusermount3
tacita=$(built "${1:-../../../target/release/tacita}")
dnefs_lab=$(built "${2:-../../../target/release/examples/dnefs_lab}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/dumps"

# on_chip NANDSIM SCRIPT: runs a script on a chip of 64 blocks of 64 pages of 2 KiB.
on_chip() {
    local tools=$tacita,$dnefs_lab,ubiattach,ubidetach,ubimkvol,flash_erase,nanddump
    guest --module "nandsim id_bytes=0x20,0xa1,0x00,0x15 parts=64 $1" --modules ubi,fuse,loop \
        --timeout 1800 --file chip.sh=/chip.sh --share "$work/dumps=/dumps" \
        --bin "$tools,setfattr,fallocate,fusermount3" -- "$2" "$tacita" "$dnefs_lab"
}

# audit BEFORE AFTER: what the audit says, as JSON; its exit code.
audit() {
    "$tacita" dnefs audit --before "$1" --after "$2" --json 2> /dev/null
}

number() {
    sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p"
}

# judged NAME [kept]: NAME.before, NAME.deleted, NAME.purged; nothing that was deleted can be decrypted
# after the purge; or, if keys were kept, it can.
judged() {
    local dump=$work/dumps/$1 said found
    said=$(audit "$dump.before" "$dump.purged") && found=none || found=$(number recoverable_count <<< "$said")
    [ "$(number deleted <<< "$said")" -gt 0 ] || fail "$1: nothing was deleted: $said"
    [ "$found" = none ] || [ "${2:-}" = kept ] || fail "$1: after the purge: $said"
    [ "$found" != none ] || [ "${2:-}" != kept ] || fail "$1: the audit finds nothing: $said"
    # The same of a dump from before the purge; what is in use is known by the later one.
    cat "$dump.deleted" "$dump.purged" > "$work/both"
    said=$(audit "$dump.before" "$work/both") && fail "$1: the audit does not find what is there: $said"
    said=$(number recoverable_count <<< "$said")
    [ "$said" -gt 0 ] || fail "$1: no key is found before the purge"
    echo "$1: keys of deleted nodes found before the purge: $said, after it: $found"
}

# The second reader finds in a raw dump what the mount has shown: sums of files by their paths.
read_again() {
    local python=/usr/bin/python3 reader=../tests/second_reader/read_volume.py
    "$python" -c 'import argon2, cryptography, zstandard' 2> /dev/null ||
        { skip "the second reader: $python has no argon2, cryptography or zstandard"; return; }
    mkdir "$work/read"
    "$python" "$reader" "$work/dumps/whole" "$work/read" > "$work/listed"
    "$python" - "$work" <<'PROGRAM' | LC_ALL=C sort | diff - "$work/dumps/sums"
import json, sys
from hashlib import sha256
from pathlib import Path
work = Path(sys.argv[1])
for line in map(json.loads, (work / "listed").open()):
    if line["kind"] == 1:
        print(sha256((work / "read" / line["id"]).read_bytes()).hexdigest(), "", "." + bytes.fromhex(line["path"]).decode())
PROGRAM
    echo "the second reader finds in a raw dump the $(wc -l < "$work/dumps/sums") files of the mount"
}

on_chip "" ways.sh
for way in overwrite truncate punch unlink rename-over set-attribute remove-attribute remove-directory; do
    judged "$way"
done
judged erases
judged keeps kept
read_again

rm "$work"/dumps/*
on_chip "" ends.sh
judged killed
judged swap
! grep -q MARKER-OF-A-PROGRAM "$work"/dumps/swap.* || fail "memory of a program is on the chip in clear"

weak=$(seq -s, -f %g:12 8 5 60)
on_chip "badblocks=3,21 weakblocks=$weak" bad-blocks.sh
echo "DNEFS on UBI of the kernel: ok"
