#!/usr/bin/env bash
# The kernel's NBD client on the volumes of a PD-DM device, in a virtual machine: ext4 on the public
# one, XFS on the hidden one, filled side by side, unmounted, checked and read again; then found as
# they were through FUSE files on this machine.
#
#   TACITA_LAB=FOLDER kernel-client.sh [TACITA]
#
# FOLDER holds `vm`, which boots a kernel with nbd.ko and runs a script in it; TACITA is the program,
# target/release/tacita by default. Without TACITA_LAB it is skipped. Needs root.
set -euo pipefail
cd "$(dirname "$0")"
export PATH=$PATH:/usr/sbin:/sbin

skip() {
    echo "SKIPPED: kernel NBD client on PD-DM: $*" >&2
    exit 0
}

tacita=$(realpath "${1:-../../../target/release/tacita}")
[ -n "${TACITA_LAB:-}" ] || skip "TACITA_LAB does not name the folder of the kernel lab"
[ -x "$TACITA_LAB/vm" ] || skip "there is no $TACITA_LAB/vm"
for program in socat nbd-client mkfs.ext4 e2fsck mkfs.xfs xfs_repair; do
    command -v $program > /dev/null || skip "$program is not installed"
done
[ -x "$tacita" ] || { echo "kernel-client: no $tacita; build it first" >&2; exit 2; }

work=$(mktemp -d)
bridge=
finish() {
    [ -z "$bridge" ] || kill "$bridge" 2> /dev/null || true
    "$tacita" pddm close "$work/socket" 2> /dev/null || true
    ! mountpoint -q "$work/files" || "$tacita" pddm close "$work/files" || true
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
"$TACITA_LAB/vm" --net --modules nbd,ext4,xfs \
    --bin nbd-client,mkfs.ext4,e2fsck,mkfs.xfs,xfs_repair -- guest.sh "$port" | tee "$work/log"
kill "$bridge"
bridge=
"$tacita" pddm close "$work/socket"

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
    [ "$(wc -l < "$work/there")" = 40 ] || { echo "kernel-client: no files in the guest" >&2; exit 1; }
    cmp "$work/here" "$work/there"
done
"$tacita" pddm close "$work/files"
echo "kernel NBD client on PD-DM: ok"
