#!/usr/bin/env bash
# File systems of Debian's kernel, instrumented, compiled without a warning, loaded into that kernel in
# a virtual machine, worked on, and their images searched for what was deleted.
#
#   TACITA_LAB=FOLDER run.sh [TACITA]
#
# FOLDER is that of the lab (crates/testkit/lab/host.sh); TACITA is target/release/tacita by default.
# Needs the packages linux-source-6.1 and linux-headers of the lab's kernel, and a compiler.
# FILE_SYSTEMS names those that are compiled with `trace`; ext2, fat and ramfs are run, too.
cd "$(dirname "$0")"
lab="file systems instrumented by FiST"
. ../../testkit/lab/host.sh
needs make gcc mkfs.ext2 e2fsck mkfs.vfat fsck.vfat python3
file_systems=${FILE_SYSTEMS:-ext2 fat ramfs minix sysv ufs udf exfat isofs jfs nfs}
release=$("$TACITA_LAB/vm" --print release)
headers=/lib/modules/$release/build
[ -d "$headers" ] || headers=/usr/src/linux-headers-$release
tarball=/usr/src/linux-source-6.1.tar.xz
[ -d "$headers" ] || { skip "linux-headers-$release is not installed"; exit 0; }
[ -f "$tarball" ] || { skip "linux-source-6.1 is not installed"; exit 0; }
tacita=$(built "${1:-../../../target/release/tacita}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
members=(linux-source-6.1/include/linux/fs.h)
for file_system in $file_systems; do
    members+=("linux-source-6.1/fs/$file_system")
done
tar -C "$work" -xf "$tarball" "${members[@]}"

# make_module FILE_SYSTEM EXTENSION: builds it in $work/EXTENSION/FILE_SYSTEM, without a warning.
make_module() {
    local out=$work/$2/$1 log=$work/make.log start end
    mkdir -p "$work/$2"
    start=$(date +%s%N)
    "$tacita" fist instrument "$work/linux-source-6.1/fs/$1" "$2" --out "$out" > /dev/null
    end=$(date +%s%N)
    local milliseconds=$(((end - start) / 1000000))
    start=$end
    make -s -C "$headers" "M=$out" modules > "$log" 2>&1 || { cat "$log" >&2; fail "$1 with $2 is not compiled"; }
    end=$(date +%s%N)
    ! grep -i warning "$log" >&2 || fail "$1 with $2 is compiled with warnings"
    echo "$1 with $2: instrumented in $milliseconds ms, compiled in $(((end - start) / 1000000)) ms"
}

# image FILE_SYSTEM: a new image.
image() {
    rm -f "$work/image"
    truncate -s 16M "$work/image"
    case $1 in
        ext2) mkfs.ext2 -q -F "$work/image" ;;
        vfat) mkfs.vfat "$work/image" > /dev/null ;;
    esac
}

# run FOLDER EXTENSION FILE_SYSTEM OPTIONS: plays in the guest, on the image if there is one.
run() {
    local disk=()
    [ "$3" = ramfs ] || disk=(--disk "$work/image")
    guest --share "$work/$2/$1=/k:ro" --modules mbcache,nls_cp437,nls_ascii,nls_iso8859-1,nls_utf8 \
        --append panic_on_warn=1 --timeout 900 "${disk[@]}" -- in-guest.sh "$2" "$3" "$4"
}

# whole FILE_SYSTEM: the image is without fault.
whole() {
    case $1 in
        ext2) e2fsck -fn "$work/image" > "$work/check" 2>&1 ;;
        vfat) fsck.vfat -n "$work/image" > "$work/check" 2>&1 ;;
    esac || { cat "$work/check" >&2; fail "$1: the image is damaged"; }
}

for file_system in $file_systems; do
    make_module "$file_system" trace
done
for file_system in ext2 fat ramfs; do
    [[ " $file_systems " == *" $file_system "* ]] || continue
    make_module "$file_system" purge
    case $file_system in fat) name=vfat ;; *) name=$file_system ;; esac
    echo "== $name"
    image "$name"
    run "$file_system" trace "$name" ""
    if [ "$name" = ramfs ]; then
        run ramfs purge ramfs purge_triple,purge_async
        continue
    fi
    whole "$name"
    python3 judge.py "$work/image" lost
    for options in "" purge_triple purge_async purge_triple,purge_async; do
        image "$name"
        run "$file_system" purge "$name" "$options"
        whole "$name"
        python3 judge.py "$work/image" purged
    done
done
if [[ " $file_systems " == *" ext2 "* ]]; then
    echo "== blocks written"
    for load in build mail; do
        for case in "trace " "purge " "purge purge_triple"; do
            image ext2
            guest --share "$work/${case%% *}/ext2=/k:ro" --modules mbcache --timeout 900 --disk "$work/image" \
                -- written.sh "${case%% *}_ext2" "${case#* }" "$load"
        done
    done
fi
echo "file systems instrumented by FiST: ok"
