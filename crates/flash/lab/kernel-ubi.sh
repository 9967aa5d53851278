#!/usr/bin/env bash
# UBI of Linux on a simulated chip, in a virtual machine: it attaches dumps of the emulator and reads
# from them what the emulator reads; the conformance suite holds for its volumes; and what was
# changed stays on the chip until erases are flushed, and no longer.
#
#   TACITA_LAB=FOLDER kernel-ubi.sh [UBI_LAB]
#
# FOLDER is that of the lab (crates/testkit/lab/host.sh); UBI_LAB is the example program of that name,
# target/release/examples/ubi_lab by default.
cd "$(dirname "$0")"
lab="UBI of the kernel"
. ../../testkit/lab/host.sh
needs ubiattach ubidetach ubimkvol flash_erase nandwrite nanddump
ubi_lab=$(built "${1:-../../../target/release/examples/ubi_lab}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Chips of Linux's simulator (their identities), and their pages.
for chip in 0x20,0xa1,0x00,0x15/2048 0x20,0x35,0x00,0x00/512; do
    page=${chip#*/}
    echo "== nandsim, pages of $page bytes"
    rm -rf "$work/dumps"
    mkdir "$work/dumps"
    "$ubi_lab" dumps "$work/dumps" "$page"
    guest --module "nandsim id_bytes=${chip%/*} parts=100" --modules ubi --timeout 1800 \
        --share "$work/dumps=/dumps:ro" \
        --bin "$ubi_lab,ubiattach,ubidetach,ubimkvol,flash_erase,nandwrite,nanddump" \
        -- in-guest.sh "$ubi_lab"
done
echo "UBI of the kernel: ok"
