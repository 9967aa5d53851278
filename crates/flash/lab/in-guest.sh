#!/bin/sh
# In the virtual machine: in-guest.sh UBI_LAB; /dev/mtd0 is a simulated chip of 100 blocks, /dumps holds
# dumps of emulators.
set -eu
. /guest.sh
ubi_lab=$1

erase_chip() {
    silently flash_erase /dev/mtd0 0 0
}

count() {
    nanddump --bb=dumpbad -f /tmp/dump /dev/mtd0 2> /tmp/said || { cat /tmp/said >&2; exit 1; }
    "$ubi_lab" count /tmp/dump "$1"
}

cases=0
for dump in /dumps/*.dump; do
    content=${dump%.dump}.content
    erase_chip
    silently nandwrite -q /dev/mtd0 "$dump"
    silently ubiattach -p /dev/mtd0
    [ "$(cat /sys/class/ubi/ubi0_0/name)" = dnefs ]
    cmp "$content" /dev/ubi0_0 || { echo "$dump: the kernel reads something else" >&2; exit 1; }
    silently ubidetach -p /dev/mtd0
    cases=$((cases + 1))
done
[ $cases = 8 ]
echo "the kernel reads $cases dumps of the emulator as it does"

# The last one can be worked on as any other.
silently ubiattach -p /dev/mtd0
"$ubi_lab" conformance /dev/ubi0_0
silently ubidetach -p /dev/mtd0
echo "the suite holds for a volume that the emulator has made"

erase_chip
silently ubiattach -p /dev/mtd0
silently ubimkvol /dev/ubi0 -N lab -S 12
"$ubi_lab" conformance /dev/ubi0_0
echo "the suite holds for a volume that the kernel has made"

# Nothing is erased in the background from here on.
mount -t debugfs none /sys/kernel/debug
echo 1 > /sys/kernel/debug/ubi/ubi0/tst_disable_bgt
"$ubi_lab" change /dev/ubi0_0
old=$(count what-was-there-0)
new=$(count what-is-there-00)
[ "$old" -gt 0 ] && [ "$new" -gt 0 ] || { echo "without a flush: $old old, $new new" >&2; exit 1; }
echo "without a flush $old old pieces are on the chip, and $new new ones"
"$ubi_lab" flush /dev/ubi0_0
old=$(count what-was-there-0)
again=$(count what-is-there-00)
[ "$old" = 0 ] && [ "$again" = "$new" ] || { echo "after a flush: $old old, $again new" >&2; exit 1; }
echo "after a flush there are none, and $again new ones"
silently ubidetach -p /dev/mtd0
