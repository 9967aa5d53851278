#!/bin/sh -e
# In the virtual machine: in-guest.sh FS MANNER; the disk is /dev/vda, MANNER is "plain", "refused", or
# options of `tacita purge mount`.
. /guest.sh
lower=/tmp/lower upper=/tmp/upper server=/tmp/server
mkdir -p $lower $upper $server
filler=$(yes 'LOST-in-the-lab, a line like any other' | head -2000)

mount_lower() {
    case $1 in
        nfs)
            [ -e /proc/fs/nfsd/threads ] || { modprobe nfsv4; mount -t ext4 /dev/vda $server; serve_nfs $server; }
            mount -t nfs4 -o vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1 127.0.0.1:/ $lower
            ;;
        *) mount -t "$1" /dev/vda $lower ;;
    esac
}

fill_lower() {
    mkdir $1/secretname-folder
    for n in 1 2 3 4 5 6 7; do
        echo "$filler" > "$1/secretname-$n.txt"
        echo "$filler" > "$1/secretname-folder/secretname-$n.txt"
    done
    yes 'KEPT-in-the-lab, a line like any other' | head -500 > $1/letter.txt
}

# As ordinary programs do. What is renamed over or truncated is removed by its new name, too.
delete() {
    cd $1
    exec 3< secretname-1.txt
    rm secretname-1.txt
    [ "$(head -c 4 <&3)" = LOST ]
    exec 3<&-
    echo calm > calm
    mv calm secretname-2.txt
    mv secretname-2.txt quiet
    : > secretname-3.txt
    truncate -s 10 secretname-4.txt
    rm secretname-3.txt secretname-4.txt secretname-5.txt
    echo short > secretname-6.txt
    rm secretname-6.txt
    rm -r secretname-folder
    rm secretname-7.txt
    cd /
}

modprobe fuse
mount_lower "$1"
if [ "$2" = refused ]; then
    for command in "probe $lower" "mount $lower $upper"; do
        status=0
        tacita purge $command > /tmp/said 2>&1 || status=$?
        cat /tmp/said
        [ $status = 7 ]
        grep -q "$1" /tmp/said
    done
    umount $lower
    exit 0
fi
fill_lower $lower
umount $lower
mount_lower "$1"
echo x > $lower/touched
if [ "$2" = plain ]; then
    delete $lower
else
    anyway=
    if [ "$1" = nfs ]; then
        status=0
        tacita purge mount $lower $upper > /tmp/said 2>&1 || status=$?
        [ $status = 7 ]
        grep -q 'purge on the server' /tmp/said
        anyway=--anyway
    else
        echo "suits: $(tacita purge probe $lower | tail -1)" || true
    fi
    tacita purge mount $lower $upper $2 $anyway
    delete $upper
    tacita purge status --finish $upper > /tmp/status || { cat /tmp/status; exit 1; }
    grep '^verdicts:' /tmp/status
    tacita umount $upper
    # An NFS client keeps the name of the open file of records until it is closed.
    [ "$1" = nfs ] || [ ! -e $lower/.tacita-purge ]
fi
umount $lower
[ "$1" != nfs ] || stop_nfs $server
