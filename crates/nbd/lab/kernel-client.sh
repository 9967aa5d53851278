#!/usr/bin/env bash
# The kernel's NBD client against our server, in a virtual machine: ext4 made, filled, trimmed and
# checked over two connections, at 512 and 4096 bytes a block.
#
#   TACITA_LAB=FOLDER kernel-client.sh [SERVE]
#
# FOLDER is that of the lab (crates/testkit/lab/host.sh); SERVE is the example program of that name,
# target/release/examples/serve by default.
cd "$(dirname "$0")"
lab="kernel NBD client"
. ../../testkit/lab/host.sh
needs nbd-client mkfs.ext4 e2fsck
serve=$(built "${1:-../../../target/release/examples/serve}")

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
    [ -n "$port" ] || fail "the server does not start"
    echo "== nbd.ko, blocks of $block bytes"
    guest --net --modules nbd,ext4 --bin nbd-client,mkfs.ext4,e2fsck -- in-guest.sh "$port" $block
    # Nothing of the server may be left to do: it ends cleanly, and the image is whole by itself.
    kill "$server"
    wait "$server"
    server=
    e2fsck -fn "$work/image" > "$work/e2fsck" || { cat "$work/e2fsck" >&2; exit 1; }
done
echo "kernel NBD client: ok"
