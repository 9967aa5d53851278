#!/bin/sh -e
# In the virtual machine: guest.sh PORT BLOCK; the server is on the host's loopback.
connect() {
    nbd-client host "$1" /dev/nbd0 -N public -b "$2" -C 2
}

random() {
    dd if=/dev/urandom "$@" 2> /tmp/dd || { cat /tmp/dd >&2; exit 1; }
}

connect "$1" "$2"
[ "$(cat /sys/block/nbd0/size)" = 131072 ]
[ "$(cat /sys/block/nbd0/ro)" = 0 ]
mkfs.ext4 -q /dev/nbd0
mount /dev/nbd0 /mnt
for n in $(seq 40); do
    mkdir -p "/mnt/folder-$((n % 5))"
    random of="/mnt/folder-$((n % 5))/file-$n" bs=1000 count="$((n * 20))"
done
sync
random of=/mnt/synchronous bs=4096 count=50 conv=fsync
rm -r /mnt/folder-3
fstrim /mnt
(cd /mnt && find . -type f -exec sha256sum {} +) | sort > /tmp/before
umount /mnt
e2fsck -fn /dev/nbd0
nbd-client -d /dev/nbd0

connect "$1" "$2"
mount /dev/nbd0 /mnt
(cd /mnt && find . -type f -exec sha256sum {} +) | sort > /tmp/after
[ "$(wc -l < /tmp/before)" = 33 ]
cmp /tmp/before /tmp/after
umount /mnt
nbd-client -d /dev/nbd0
