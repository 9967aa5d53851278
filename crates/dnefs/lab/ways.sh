#!/bin/sh
# In the virtual machine: ways.sh TACITA DNEFS_LAB; /dev/mtd0 is a simulated chip of 64 blocks, dumps go to
# /dumps, where this machine judges them. Of each WAY: WAY.before, WAY.deleted (deleted, not purged) and
# WAY.purged.
set -eu
. /guest.sh
. /chip.sh "$1"
dir=/mnt/dnefs
mkdir -p "$dir"

# --- What the commands say of a device.
attach
fails 2 "$tacita" dnefs format /dev/ubi0_0 --size 8M
fails 4 "$tacita" dnefs format /dev/ubi0_1
fails 4 "$tacita" dnefs info /dev/ubi0
fails 4 "$tacita" dnefs check /dev/mtd0
"$tacita" dnefs format /dev/ubi0_0
fails 2 "$tacita" dnefs format /dev/ubi0_0
"$tacita" dnefs format /dev/ubi0_0 --force
"$tacita" dnefs check /dev/ubi0_0 > /tmp/said
grep -q "was unmounted *true" /tmp/said || fail "check says: $(cat /tmp/said)"
"$tacita" dnefs info /dev/ubi0_0 --json > /tmp/said
grep -q '"physical_blocks": *64' /tmp/said || fail "info says: $(cat /tmp/said)"
printf 'one\n' > /tmp/one
printf 'two\n' > /tmp/two
"$tacita" dnefs passwd /dev/ubi0_0 --new-password-file /tmp/one
fails 3 "$tacita" dnefs check /dev/ubi0_0 --password-file /tmp/two
"$tacita" dnefs check /dev/ubi0_0 --password-file /tmp/one > /dev/null
"$tacita" dnefs erase /dev/ubi0_0 --force
fails 4 "$tacita" dnefs check /dev/ubi0_0
"$tacita" dnefs format /dev/ubi0_0 --force
"$tacita" dnefs dump /dev/ubi0_0 /tmp/ours
raw_dump /tmp/linux
cmp /tmp/ours /tmp/linux
echo "the commands do with a volume of UBI what they do with a file; a dump is what nanddump reads"

# --- Each way to delete.
"$tacita" dnefs mount /dev/ubi0_0 "$dir" --purge-every 0
fails 5 "$tacita" dnefs info /dev/ubi0_0
fails 5 "$tacita" dnefs format /dev/ubi0_0 --force
content() {
    random of="$1" bs=1000 count="$2"
}
content "$dir/before" 30
for way in overwrite truncate punch unlink rename-over set-attribute remove-attribute remove-directory; do
    content "$dir/victim" 120
    setfattr -n user.secret -v "a secret value" "$dir/victim"
    mkdir "$dir/folder"
    content "$dir/other" 5
    "$tacita" dnefs purge "$dir" > /dev/null
    raw_dump "/dumps/$way.before"
    case $way in
    overwrite) random of="$dir/victim" bs=1000 seek=7 count=40 conv=notrunc ;;
    truncate) truncate -s 1000 "$dir/victim" ;;
    punch) /usr/bin/fallocate -p -o 1000 -l 90000 "$dir/victim" ;;
    unlink) rm "$dir/victim" ;;
    rename-over) mv "$dir/other" "$dir/victim" ;;
    set-attribute) setfattr -n user.secret -v other "$dir/victim" ;;
    remove-attribute) setfattr -x user.secret "$dir/victim" ;;
    remove-directory) rmdir "$dir/folder" ;;
    esac
    raw_dump "/dumps/$way.deleted"
    "$tacita" dnefs purge "$dir" > /tmp/said
    grep -q 'keys destroyed *[1-9]' /tmp/said || fail "$way: the purge says: $(cat /tmp/said)"
    raw_dump "/dumps/$way.purged"
    rm -rf "$dir/victim" "$dir/folder" "$dir/other"
done
fill "$dir/filled" 1
sums "$dir" > /dumps/sums
"$tacita" umount "$dir"
"$tacita" dnefs check /dev/ubi0_0 > /dev/null
"$tacita" dnefs dump /dev/ubi0_0 /dumps/whole
silently ubidetach -p /dev/mtd0
echo "eight ways to delete are in the dumps"

# --- The same without a mount, by a purge that erases and by one that does not.
for purge in erases keeps; do
    attach
    "$2" /dev/ubi0_0 "/dumps/$purge" "$purge"
    silently ubidetach -p /dev/mtd0
done
