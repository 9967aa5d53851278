# In the virtual machine, sourced by a script of EXTENSION FILE_SYSTEM OPTIONS: loads the modules of /k. A warning of
# the kernel is a panic here (`panic_on_warn`). The image is /dev/vda; of nfs4 a server has it, of base0fs an ext4.
extension=$1
type=${1}_$2
options=${3:-}
device=/dev/vda
below=
modules=$2
case $2 in
    ramfs) device=none ;;
    vfat) modules="fat vfat" ;;
    nfs4)
        modules="nfs nfsv4"
        device=127.0.0.1:/
        options=vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1${options:+,$options}
        below=/below
        ;;
    base0fs)
        device=/below
        below=/below
        ;;
esac

# inodes: those that somebody still holds when the caches are dropped.
inodes() {
    sync
    echo 3 > /proc/sys/vm/drop_caches
    awk '{ print $1 }' /proc/sys/fs/inode-nr
}

for module in $modules; do
    for needed in $(modinfo -F depends "/k/${extension}_$module.ko" | tr , ' '); do
        case $needed in "${extension}_"*) ;; *) modprobe "$needed" ;; esac
    done
    insmod "/k/${extension}_$module.ko"
done
mkdir -p /m
if [ -n "$below" ]; then
    mkdir -p $below
    mount -t ext4 /dev/vda $below
    [ "$2" != nfs4 ] || serve_nfs $below
fi
inodes_before=$(inodes)

# mounted: mounts it at /m.
mounted() {
    mount -i -t "$type" ${options:+-o "$options"} "$device" /m
}

# unmounted: and no inode is left. What a cache of a module still held would be a warning when it is unloaded;
# ramfs, which cannot be unloaded, has the kernel's own cache.
unmounted() {
    local module last= left
    sync
    umount -i /m
    left=$(($(inodes) - inodes_before))
    case $type in
        *_nfs4) stop_nfs $below ;;
        *_base0fs) umount $below ;;
    esac
    if dmesg | grep -E 'Busy inodes|was not overwritten|BUG:|WARNING:'; then
        exit 1
    fi
    [ $left -lt 20 ] || { echo "$left inodes are left" >&2; exit 1; }
    [ "${type#*_}" != ramfs ] || return 0
    for module in $modules; do
        last="$module $last"
    done
    for module in $last; do
        rmmod "${extension}_$module"
    done
}
