#!/bin/sh
# In the virtual machine: bad-blocks.sh TACITA; two blocks of /dev/mtd0 are bad from the beginning, some
# others fail when they have been erased a few times.
set -eu
. /guest.sh
. /chip.sh "$1"
dir=/mnt/dnefs
mkdir -p "$dir"
attach
"$tacita" dnefs format /dev/ubi0_0
bad_blocks() {
    "$tacita" dnefs info /dev/ubi0_0 --json | sed -n 's/.*"bad_blocks": *\([0-9]*\).*/\1/p'
}
[ "$(bad_blocks)" = 2 ] || fail "$(bad_blocks) bad blocks"
"$tacita" dnefs dump /dev/ubi0_0 /tmp/ours
raw_dump /tmp/linux
cmp /tmp/ours /tmp/linux
rm /tmp/ours /tmp/linux
echo "bad blocks are in the dump"

"$tacita" dnefs mount /dev/ubi0_0 "$dir" --purge-every 0
fill "$dir/kept" 1
sums "$dir/kept" > /tmp/kept
rounds=0
code=0
while [ $code = 0 ]; do
    rounds=$((rounds + 1))
    [ $rounds -le 300 ] || fail "no block went bad in $rounds purges"
    random of="$dir/secret" bs=1000 count=100
    rm "$dir/secret"
    "$tacita" dnefs purge "$dir" > /tmp/said 2>&1 || code=$?
done
[ $code = 1 ] && grep -q 'went bad' /tmp/said || fail "purge ends with $code: $(cat /tmp/said)"
bad=$(cat /sys/class/ubi/ubi0/bad_peb_count)
[ "$bad" -gt 2 ] || fail "a purge says that a block went bad, and UBI has $bad"
sums "$dir/kept" | cmp - /tmp/kept
# Its last purge may meet another one.
"$tacita" umount "$dir" || [ $? = 1 ]
"$tacita" dnefs check /dev/ubi0_0 > /dev/null
[ "$(bad_blocks)" -ge "$bad" ] || fail "info tells of $(bad_blocks) bad blocks, UBI of $bad"
echo "purge number $rounds says that a block went bad, and ends with 1; all files are there"
