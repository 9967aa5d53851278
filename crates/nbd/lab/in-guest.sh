#!/bin/sh -e
# In the virtual machine: in-guest.sh PORT BLOCK; the server is on the host's loopback.
. /guest.sh

connect() {
    nbd-client host "$1" /dev/nbd0 -N public -b "$2" -C 2
}

connect "$1" "$2"
[ "$(cat /sys/block/nbd0/size)" = 131072 ]
[ "$(cat /sys/block/nbd0/ro)" = 0 ]
mkfs.ext4 -q /dev/nbd0
mount /dev/nbd0 /mnt
fill /mnt 20
sync
random of=/mnt/synchronous bs=4096 count=50 conv=fsync
rm -r /mnt/folder-3
fstrim /mnt
sums /mnt > /tmp/before
umount /mnt
e2fsck -fn /dev/nbd0
nbd-client -d /dev/nbd0

connect "$1" "$2"
mount /dev/nbd0 /mnt
sums /mnt > /tmp/after
[ "$(wc -l < /tmp/before)" = 33 ]
cmp /tmp/before /tmp/after
umount /mnt
nbd-client -d /dev/nbd0
