#!/usr/bin/env bash
# The kernel's NBD client against our server, in a virtual machine: ext4 made, filled, trimmed and
# checked over two connections, at 512 and 4096 bytes a block.
#
#   TACITA_LAB=FOLDER kernel-client.sh [SERVE]
#
# FOLDER holds `vm`, which boots a kernel with nbd.ko and runs a script in it; SERVE is the example
# program of that name, target/release/examples/serve by default. Without TACITA_LAB it is skipped.
set -euo pipefail
cd "$(dirname "$0")"
export PATH=$PATH:/usr/sbin:/sbin

skip() {
    echo "SKIPPED: kernel NBD client: $*" >&2
    exit 0
}

serve=${1:-../../../target/release/examples/serve}
[ -n "${TACITA_LAB:-}" ] || skip "TACITA_LAB does not name the folder of the kernel lab"
[ -x "$TACITA_LAB/vm" ] || skip "there is no $TACITA_LAB/vm"
for program in nbd-client mkfs.ext4 e2fsck; do
    command -v $program > /dev/null || skip "$program is not installed"
done
[ -x "$serve" ] || { echo "kernel-client: no $serve; build it first" >&2; exit 2; }

work=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2> /dev/null || true
    rm -rf "$work"
}
trap finish EXIT

for block in 512 4096; do
    rm -f "$work/image" "$work/uri"
    truncate -s 64M "$work/image"
    "$serve" 0 "$work/image" --name public --discard --block $block > "$work/uri" &
    server=$!
    for _ in $(seq 100); do
        [ ! -s "$work/uri" ] || break
        sleep 0.1
    done
    port=$(sed -n 's/.*:\([0-9]*\)$/\1/p' "$work/uri")
    [ -n "$port" ] || { echo "kernel-client: the server does not start" >&2; exit 1; }
    echo "== nbd.ko, blocks of $block bytes"
    "$TACITA_LAB/vm" --net --modules nbd,ext4 --bin nbd-client,mkfs.ext4,e2fsck \
        -- guest.sh "$port" $block
    # Nothing of the server may be left to do: it ends cleanly, and the image is whole by itself.
    kill "$server"
    wait "$server"
    server=
    e2fsck -fn "$work/image" > "$work/e2fsck" || { cat "$work/e2fsck" >&2; exit 1; }
done
echo "kernel NBD client: ok"
