#!/bin/sh
# In the virtual machine: ends.sh TACITA. A daemon that is killed, a chip that loses its power, swap on a
# file. Dumps as in ways.sh.
set -eu
. /guest.sh
. /chip.sh "$1"
dir=/mnt/dnefs
mkdir -p "$dir"
attach
"$tacita" dnefs format /dev/ubi0_0

# --- Killed, and the power is gone: UBI forgets what it was to erase.
"$tacita" dnefs mount /dev/ubi0_0 "$dir" --purge-every 0
fill "$dir/kept" 1
random of="$dir/secret" bs=1000 count=60
sums "$dir/kept" > /tmp/kept
"$tacita" dnefs purge "$dir" > /dev/null
raw_dump /dumps/killed.before
rm "$dir/secret"
# Everything is on the medium after five seconds.
sleep 8
pid=$("$tacita" status "$dir" --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
kill -9 "$pid"
umount -l "$dir"
raw_dump /dumps/killed.deleted
silently ubidetach -p /dev/mtd0
silently ubiattach -p /dev/mtd0
no_background
code=0
"$tacita" dnefs check /dev/ubi0_0 > /tmp/said || code=$?
[ $code = 0 ] && grep -q 'was unmounted *false' /tmp/said || fail "check says: $(cat /tmp/said)"
"$tacita" dnefs mount /dev/ubi0_0 "$dir" --purge-every 0
sums "$dir/kept" | cmp - /tmp/kept
[ ! -e "$dir/secret" ] || fail "what was deleted has come back"
raw_dump /dumps/killed.purged
echo "killed and without power: what was synced is there, and the mount has purged"
rm -r "$dir/kept"

# --- Memory of a program, pushed to swap.
dd if=/dev/zero of="$dir/swap" bs=1000 count=1200 2> /dev/null
losetup /dev/loop0 "$dir/swap"
mkswap /dev/loop0 > /dev/null
swapon /dev/loop0
mkdir /tmp/groups /tmp/memory
mount -t cgroup2 none /tmp/groups
echo +memory > /tmp/groups/cgroup.subtree_control
mkdir /tmp/groups/program
mount -t tmpfs none /tmp/memory
sh -c 'echo $$ > /tmp/groups/program/cgroup.procs
    yes MARKER-OF-A-PROGRAM | head -c 600000 > /tmp/memory/content'
sha256sum /tmp/memory/content > /tmp/sum
# It says EAGAIN when there is not so much.
echo 800000 > /tmp/groups/program/memory.reclaim 2> /dev/null || true
used=$(awk '/loop0/ { print $4 }' /proc/swaps)
[ "$used" -gt 300 ] || fail "only $used KiB are in swap"
"$tacita" dnefs purge "$dir" > /dev/null
raw_dump /dumps/swap.before
sha256sum -c -s /tmp/sum
swapoff /dev/loop0
sha256sum -c -s /tmp/sum
rm /tmp/memory/content
losetup -d /dev/loop0
rm "$dir/swap"
raw_dump /dumps/swap.deleted
"$tacita" dnefs purge "$dir" > /dev/null
raw_dump /dumps/swap.purged
"$tacita" umount "$dir"
"$tacita" dnefs check /dev/ubi0_0 > /dev/null
echo "$used KiB of a program were in swap and came back"
