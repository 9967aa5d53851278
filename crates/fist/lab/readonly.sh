#!/bin/sh
# In the virtual machine: readonly.sh readonly FILE_SYSTEM thaw=NAME. Nothing can be changed but the files of that
# name, as root, on a file system that is mounted for writing; the kernel's own driver has filled it before.
set -eu
. /t/guest.sh
mkdir -p /m
mount -t "$2" /dev/vda /m
seq 5000 > /m/file
mkdir /m/folder
touch "/m/${3#thaw=}"
umount /m
. /g/modules.sh
thawed=${options#thaw=}

refused() {
    if "$@" > /tmp/said 2>&1; then
        echo "allowed: $*" >&2
        exit 1
    fi
    grep -q 'Read-only file system' /tmp/said || { cat /tmp/said >&2; exit 1; }
}

mounted
before=$(cat /m/file | sha256sum)
! grep -q ' /m .*[ ,]ro[ ,]' /proc/mounts
refused rm /m/file
refused mv /m/file /m/other
refused mv /m/file /m/folder/file
[ "$2" != ext2 ] || refused ln /m/file /m/other
refused truncate -s 1 /m/file
refused chmod 600 /m/file
refused touch -d 2001-01-01 /m/file
refused mkdir /m/new
refused rmdir /m/folder
refused sh -c 'echo more >> /m/file'
refused sh -c ': > /m/file'
refused touch /m/new
[ "$2" != ext2 ] || refused ln -s file /m/link
echo thawed > "/m/$thawed"
[ "$(cat "/m/$thawed")" = thawed ]
[ "$(sha256sum < /m/file)" = "$before" ]
[ "$(ls -A /m | grep -v lost+found | tr '\n' ' ')" = "file folder $thawed " ]
unmounted
echo "$type $options: ok"
