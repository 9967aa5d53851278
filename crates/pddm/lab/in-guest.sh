#!/bin/sh -e
# In the virtual machine: in-guest.sh PORT; the server is on the host's loopback. Prints the sum of
# every file with the volume before it.
. /guest.sh

mkdir -p /mnt/public /mnt/hidden
connect() {
    nbd-client host "$1" /dev/nbd0 -N public -b 4096 > /dev/null
    nbd-client host "$1" /dev/nbd1 -N hidden -b 4096 > /dev/null
    # The kernel gives up on no request before the heartbeat has carried it.
    for n in 0 1; do echo 0 > /sys/block/nbd$n/queue/io_timeout 2> /dev/null || true; done
}

attach() {
    connect "$1"
    mount -t ext4 /dev/nbd0 /mnt/public
    mount -t xfs /dev/nbd1 /mnt/hidden
}

detach() {
    umount /mnt/hidden
    umount /mnt/public
    silently e2fsck -fn /dev/nbd0
    silently xfs_repair -n /dev/nbd1
    nbd-client -d /dev/nbd0
    nbd-client -d /dev/nbd1
}

connect "$1"
mkfs.ext4 -q -E nodiscard /dev/nbd0
mkfs.xfs -q /dev/nbd1
nbd-client -d /dev/nbd0
nbd-client -d /dev/nbd1

attach "$1"
# Public writes carry half as many hidden ones; what is more waits for the heartbeat.
fill /mnt/public 20
fill /mnt/hidden 5
sync
random of=/mnt/hidden/folder-1/file-1 bs=4096 count=20 conv=fsync
detach

attach "$1"
for volume in public hidden; do
    sums "/mnt/$volume" | sed "s/^/$volume /"
done
detach
