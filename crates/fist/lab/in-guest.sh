#!/bin/sh
# In the virtual machine: in-guest.sh EXTENSION FILE_SYSTEM OPTIONS; /k holds the modules.
set -eu
. /guest.sh
extension=$1
type=${1}_$2
options=${3:+-o$3}
case $2 in vfat) modules="fat vfat" ;; *) modules=$2 ;; esac
for module in $modules; do
    insmod "/k/${extension}_$module.ko"
done
device=/dev/vda
[ "$2" != ramfs ] || device=none
mkdir /m

mounted() {
    mount -t "$type" $options "$device" /m
}

# written MARKER FILE: 400 lines of it.
written() {
    n=0
    while [ $n -lt 400 ]; do
        echo "PURGEMARK-$1 line $n of what nobody is to read"
        n=$((n + 1))
    done > "$2"
}

# Log lines are as many as operations.
mounted
dmesg -c > /dev/null
for n in $(seq 17); do
    echo "$n" > "/m/counted-$n"
done
rm /m/counted-*
if [ "$extension" = trace ]; then
    count=$(dmesg | grep -c 'OP_unlink: 0 ')
    [ "$count" = 17 ] || { echo "17 files were unlinked, and $count told" >&2; exit 1; }
fi

# Storms: the file system does what it did.
mkdir /m/storm
for round in 1 2 3; do
    for n in $(seq 40); do
        random of="/m/storm/a-$n" bs=700 count=$((n * round))
        mv "/m/storm/a-$n" "/m/storm/a-rather-long-name-so-that-there-are-slots-$((n % 7))"
        truncate -s $((n * 100)) "/m/storm/a-rather-long-name-so-that-there-are-slots-$((n % 7))"
    done
done
cp -r /m/storm /m/again
diff -r /m/storm /m/again
rm -r /m/storm /m/again

mkdir /m/dir /m/sub
for marker in keep unlink over open cut zero; do
    written $marker /m/dir/secretname-$marker.txt
done
mv /m/dir/secretname-keep.txt /m/dir/kept.txt
mv /m/dir/secretname-cut.txt /m/dir/cut.txt
mv /m/dir/secretname-zero.txt /m/dir/zero.txt
written sub /m/sub/secretname-sub.txt
if [ "$2" != vfat ]; then
    ln -s PURGEMARK-short /m/dir/secretname-link
    ln -s "PURGEMARK-long-$(head -c 200 /dev/zero | tr '\0' x)" /m/dir/secretname-long
fi
if [ "$2" != ramfs ]; then
    sync
    umount /m
    mounted
fi
rm /m/dir/secretname-unlink.txt
echo new > /m/dir/new
mv /m/dir/new /m/dir/secretname-over.txt
rm /m/dir/secretname-over.txt
exec 3< /m/dir/secretname-open.txt
rm /m/dir/secretname-open.txt
read -r line <&3
[ "$line" = "PURGEMARK-open line 0 of what nobody is to read" ]
exec 3<&-
truncate -s 100 /m/dir/cut.txt
: > /m/dir/zero.txt
rm -rf /m/sub
rm -f /m/dir/secretname-link /m/dir/secretname-long
[ "$(grep -c PURGEMARK-keep /m/dir/kept.txt)" = 400 ]
[ "$(wc -c < /m/dir/cut.txt)" = 100 ]
sync
umount /m
if dmesg | grep -E 'Busy inodes|was not overwritten|BUG:|WARNING:'; then
    exit 1
fi
if [ "$2" != ramfs ]; then
    # Whatever was forgotten in a cache would be told now, as a warning, which is a panic here.
    for module in $modules; do
        last="$module ${last:-}"
    done
    for module in $last; do
        rmmod "${extension}_$module"
    done
fi
echo "$type $options: ok"
