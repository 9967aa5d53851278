#!/usr/bin/env bash
# File systems of Debian's kernel, instrumented, compiled without a warning, loaded into that kernel in
# a virtual machine, worked on, and their images searched for what was deleted.
#
#   TACITA_LAB=FOLDER run.sh [--kernel 6.1|6.12] [TACITA]
#
# FOLDER is that of the lab (crates/testkit/lab/host.sh); TACITA is target/release/tacita by default.
# Needs the packages linux-source-VERSION and linux-headers-RELEASE of one version, a compiler and fsx.
# FILE_SYSTEMS names those that are compiled with `trace`; ext2, fat, ramfs, nfs and base0fs are run, too. NFS has the
# kernel's own server in the same machine; base0fs (targets/base0fs) is stacked on ext2.
# KERNEL_SOURCE=FOLDER is a source that need not be taken apart again.
cd "$(dirname "$0")"
lab="file systems instrumented by FiST"
. ../../testkit/lab/host.sh
. ./kernel.sh
kernel=6.1
if [ "${1:-}" = --kernel ]; then
    kernel=${2:?--kernel 6.1 or --kernel 6.12}
    shift 2
fi
needs make gcc mkfs.ext2 e2fsck mkfs.vfat fsck.vfat python3 chattr
fsx=$(command -v fsx || echo "${CARGO_HOME:-$HOME/.cargo}/bin/fsx")
[ -x "$fsx" ] || { skip "fsx is not installed (cargo install --locked fsx@0.3.2)"; exit 0; }
file_systems=${FILE_SYSTEMS:-ext2 fat ramfs minix sysv ufs udf exfat isofs jfs nfs base0fs}
tacita=$(built "${1:-../../../target/release/tacita}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
find_kernel "$kernel" "$work"
echo "== Linux $release"

# make_module FILE_SYSTEM EXTENSION: builds it in $work/EXTENSION/FILE_SYSTEM, without a warning.
make_module() {
    local source
    source=$(source_of "$1" "$kernel" "$work")
    mkdir -p "$work/$2"
    "$tacita" fist instrument "$source" "$2" --out "$work/$2/$1" --headers "$common" > /dev/null
    compile "$work/$2/$1"
    echo "$1 with $2: instrumented, compiled without a warning"
}

# image FILE_SYSTEM: a new image.
image() {
    rm -f "$work/image"
    truncate -s 16M "$work/image"
    case $1 in
        ext2 | nfs4 | base0fs) mkfs.ext2 -q -F "$work/image" ;;
        vfat) mkfs.vfat "$work/image" > /dev/null ;;
    esac
}

# play SCRIPT FOLDER EXTENSION FILE_SYSTEM OPTIONS [OPTION OF vm...]: runs a script of this folder in the guest,
# on the image if there is one, and looks at the image.
play() {
    local script=$1 folder=$2 extension=$3 name=$4 options=$5 disk=()
    shift 5
    [ "$name" = ramfs ] || disk=(--disk "$work/image")
    guest --share "$work/$extension/$folder=/k:ro" --share "$PWD=/g:ro" --share "$lab_folder=/t:ro" \
        --modules nls_cp437,nls_ascii,nls_iso8859-1,nls_utf8 \
        --append panic_on_warn=1 --timeout 900 "${disk[@]}" "$@" -- "$script" "$extension" "$name" "$options"
    case $name in
        ext2 | nfs4 | base0fs) e2fsck -fn "$work/image" > "$work/check" 2>&1 ;;
        vfat) fsck.vfat -n "$work/image" > "$work/check" 2>&1 ;;
    esac || { cat "$work/check" >&2; fail "$name: the image is damaged"; }
}

# judged WANTED: what is left in the image.
judged() {
    python3 judge.py "$work/image" "$1"
}

for file_system in $file_systems; do
    make_module "$file_system" trace
done
here=(--host-root --env "PATH=$(dirname "$fsx"):$PATH")
for file_system in ext2 fat ramfs nfs base0fs; do
    [[ " $file_systems " == *" $file_system "* ]] || continue
    make_module "$file_system" purge
    purged=purged
    case $file_system in
        fat) name=vfat ;;
        nfs) name=nfs4 purged=names-stay ;;
        base0fs) name=base0fs purged=names-stay ;;
        *) name=$file_system ;;
    esac
    echo "== $name"
    for extension in trace purge; do
        image "$name"
        play work.sh "$file_system" "$extension" "$name" "" "${here[@]}"
    done
    image "$name"
    play deletions.sh "$file_system" trace "$name" ""
    if [ "$name" = ramfs ]; then
        play deletions.sh ramfs purge ramfs purge_triple,purge_async
        gcc -O2 -static -o "$work/memory" memory.c
        memory=(--file "$work/memory=/memory" --memory 384)
        play memory.sh ramfs trace ramfs "" "${memory[@]}"
        for options in "" purge_triple purge_async purge_method=h; do
            play memory.sh ramfs purge ramfs "$options" "${memory[@]}"
        done
        continue
    fi
    judged lost
    for options in "" purge_triple purge_method=d purge_method=h purge_async purge_triple,purge_async; do
        image "$name"
        play deletions.sh "$file_system" purge "$name" "$options"
        judged "$purged"
    done
    [ "$purged" = purged ] || continue
    make_module "$file_system" readonly
    image "$name"
    play readonly.sh "$file_system" readonly "$name" thaw=warm
done
if [[ " $file_systems " == *" ext2 "* ]]; then
    echo "== only marked files"
    image ext2
    play marked.sh ext2 purge ext2 purge_marked "${here[@]}"
    judged marked
fi
echo "file systems instrumented by FiST, Linux $release: ok"
