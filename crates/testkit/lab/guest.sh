# What the scripts in guests of the kernel lab share; sourced from the root.

# random OPERAND...: dd of random bytes, silent unless it fails.
random() {
    dd if=/dev/urandom "$@" 2> /tmp/dd || { cat /tmp/dd >&2; exit 1; }
}

# fill FOLDER UNIT: 40 files in five folders, of UNIT times 1 to 40 bytes times 1000.
fill() {
    for n in $(seq 40); do
        mkdir -p "$1/folder-$((n % 5))"
        random of="$1/folder-$((n % 5))/file-$n" bs=1000 count="$((n * $2))"
    done
}

# sums FOLDER: the sum and the path of each file in it.
sums() {
    (cd "$1" && find . -type f -exec sha256sum {} +) | sort
}

# silently PROGRAM ARGUMENT...: shows what it says only if it fails.
silently() {
    "$@" > /tmp/said 2>&1 || { cat /tmp/said >&2; exit 1; }
}

# serve_nfs FOLDER: this kernel's own NFS server serves a mounted folder to this machine, as 127.0.0.1:/. The tables
# that other machines have daemons for are written by hand.
serve_nfs() {
    modprobe nfsd
    mount -t nfsd nfsd /proc/fs/nfsd
    ip link set lo up
    echo '-2 -3 +4 +4.1 +4.2' > /proc/fs/nfsd/versions
    mkdir -p /var/lib/nfs/v4recovery
    echo 'nfsd 127.0.0.1 2147483647 lab' > /proc/net/rpc/auth.unix.ip/channel
    # fsid 0, no_root_squash, insecure, sync, no_subtree_check.
    echo "lab $1 2147483647 9218 65534 65534 0" > /proc/net/rpc/nfsd.export/channel
    echo "lab 1 \\x00000000 2147483647 $1" > /proc/net/rpc/nfsd.fh/channel
    echo 'tcp 2049' > /proc/fs/nfsd/portlist
    echo 2 > /proc/fs/nfsd/threads
    echo Y > /proc/fs/nfsd/v4_end_grace
}

# stop_nfs FOLDER: ends it and unmounts the folder; both let go of it a while later.
stop_nfs() {
    echo 0 > /proc/fs/nfsd/threads
    for table in auth.unix.ip nfsd.fh nfsd.export; do
        echo 2147483647 > /proc/net/rpc/$table/flush
    done
    for _ in 1 2 3 4 5 6 7 8 9; do
        ! umount "$1" 2> /tmp/said || return 0
        sleep 1
    done
    cat /tmp/said >&2
    return 1
}
