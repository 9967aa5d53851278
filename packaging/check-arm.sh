#!/usr/bin/env bash
# Runs unit tests for aarch64, and the program: an image that it packs must be the one that this
# machine's program packs, to the byte, and it must unpack what that has packed.
#
#   check-arm.sh PROGRAM-FOR-AARCH64 PROGRAM
#
# Needs gcc-aarch64-linux-gnu and qemu-user-static.
set -euo pipefail
usage="usage: check-arm.sh PROGRAM-FOR-AARCH64 PROGRAM"
arm=$(realpath "${1:?$usage}")
here=$(realpath "${2:?$usage}")
cd "$(dirname "$0")/.."
emulator=qemu-aarch64-static
command -v $emulator > /dev/null || { echo "check-arm: needs qemu-user-static" >&2; exit 1; }

# The emulator keeps no limit of addresses.
skipped=of_one_that_aborts_where_addresses_are_limited_memory_is_named
echo "SKIPPED: $skipped: no limit of addresses is kept by $emulator"
CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$emulator RUSTFLAGS="-C target-feature=+crt-static" \
    cargo test --locked --workspace --lib --exclude tacita-bench \
    --target aarch64-unknown-linux-gnu --target-dir target/static -- --skip "$skipped"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$here" hifs pack docs "$work/here.img" --seed 00
$emulator "$arm" hifs pack docs "$work/arm.img" --seed 00
cmp "$work/here.img" "$work/arm.img"
$emulator "$arm" hifs unpack "$work/here.img" "$work/docs"
diff -r docs "$work/docs"
$emulator "$arm" hifs check "$work/arm.img"
echo "packed here and there: one image; unpacked there: what was packed here"
