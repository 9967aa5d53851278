#!/bin/sh
# In the virtual machine: deletions.sh EXTENSION FILE_SYSTEM OPTIONS. Storms, then every way in which content is
# deleted; the image is judged outside.
set -eu
. /t/guest.sh
. /g/modules.sh

# written MARKER FILE: 400 lines of it.
written() {
    n=0
    while [ $n -lt 400 ]; do
        echo "PURGEMARK-$1 line $n of what nobody is to read"
        n=$((n + 1))
    done > "$2"
}

# An option that cannot be is refused.
if [ "$extension" = purge ]; then
    ! mount -i -t "$type" -o "${options:+$options,}purge_method=x" "$device" /m 2> /tmp/said
fi

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
unmounted
echo "$type $options: ok"
