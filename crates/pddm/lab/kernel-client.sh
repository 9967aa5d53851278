#!/usr/bin/env bash
# The kernel's NBD client on the volumes of a PD-DM device, in a virtual machine: ext4 on the public
# one, XFS on the hidden one, filled side by side, unmounted, checked and read again; then found as
# they were through FUSE files on this machine.
#
#   TACITA_LAB=FOLDER kernel-client.sh [TACITA]
#
# FOLDER is that of the lab (crates/testkit/lab/host.sh); TACITA is the program,
# target/release/tacita by default. Needs root.
cd "$(dirname "$0")"
lab="kernel NBD client on PD-DM"
. ../../testkit/lab/host.sh
needs socat nbd-client mkfs.ext4 e2fsck mkfs.xfs xfs_repair
tacita=$(built "${1:-../../../target/release/tacita}")

work=$(mktemp -d)
bridge=
finish() {
    [ -z "$bridge" ] || kill "$bridge" 2> /dev/null || true
    "$tacita" pddm close --drop "$work/socket" 2> /dev/null || true
    ! mountpoint -q "$work/files" || "$tacita" pddm close --drop "$work/files" || true
    rm -rf "$work"
}
trap finish EXIT

echo public > "$work/public"
echo hidden > "$work/hidden"
"$tacita" pddm init "$work/device" --size 2G --heartbeat 1 \
    --password-file "$work/public" --hidden-password-file "$work/hidden"
"$tacita" pddm open "$work/device" --nbd "$work/socket" --password-file "$work/hidden"
# The guest reaches this machine's loopback only.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
socat "TCP-LISTEN:$port,bind=127.0.0.1,reuseaddr,fork" "UNIX-CONNECT:$work/socket" &
bridge=$!
guest --net --modules nbd,ext4,xfs \
    --bin nbd-client,mkfs.ext4,e2fsck,mkfs.xfs,xfs_repair -- in-guest.sh "$port" | tee "$work/log"
kill "$bridge"
bridge=
"$tacita" pddm close --sweep "$work/socket"

mkdir "$work/files"
"$tacita" pddm check "$work/device" --password-file "$work/hidden"
"$tacita" pddm open "$work/device" --fuse "$work/files" --password-file "$work/hidden"
e2fsck -fn "$work/files/public"
xfs_repair -n -f "$work/files/hidden" 2> "$work/repair" || { cat "$work/repair" >&2; exit 1; }
mkdir "$work/mnt"
for volume in public hidden; do
    mount -o loop,ro "$work/files/$volume" "$work/mnt"
    (cd "$work/mnt" && find . -type f -exec sha256sum {} +) | sort > "$work/here"
    umount "$work/mnt"
    sed -n "s/^$volume //p" "$work/log" | tr -d '\r' | sort > "$work/there"
    [ "$(wc -l < "$work/there")" = 40 ] || fail "no files in the guest"
    cmp "$work/here" "$work/there"
done
"$tacita" pddm close --drop "$work/files"
echo "kernel NBD client on PD-DM: ok"
