#!/usr/bin/env bash
# Purging on lower file systems that only another kernel has: FAT, NFS over loopback, and F2FS, which
# is refused. Each plainly first, which must show the loss in the raw image.
#
#   TACITA_LAB=FOLDER lower-file-systems.sh [TACITA]
#
# FOLDER holds `vm`, which boots a kernel with these modules and runs a script in it; TACITA is the
# program, target/release/tacita by default. Without TACITA_LAB it is skipped.
set -euo pipefail
cd "$(dirname "$0")"
export PATH=$PATH:/usr/sbin:/sbin

skip() {
    echo "SKIPPED: purge in the kernel lab: $*" >&2
}

[ -n "${TACITA_LAB:-}" ] || { skip "TACITA_LAB does not name the folder of the kernel lab"; exit 0; }
[ -x "$TACITA_LAB/vm" ] || { skip "there is no $TACITA_LAB/vm"; exit 0; }
tacita=$(realpath "${1:-../../../target/release/tacita}")
[ -x "$tacita" ] || { echo "lower-file-systems: no $tacita; build it first" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Content, and names as ASCII, as UTF-16 and as the short names of FAT.
content() {
    { grep -a -o -F 'LOST-in-the-lab' "$1" || true; } | wc -l
}
names() {
    local utf16
    utf16=$(printf 'secretname' | sed 's/./&\\x00/g')
    { LC_ALL=C grep -a -o -i -P "secretname|ECRET~|$utf16" "$1" || true; } | wc -l
}

# run FS MAKER... : fills an image in the guest and deletes from it, plainly and purged.
run() {
    local fs=$1 manner found
    shift
    command -v "$1" > /dev/null || { skip "$fs: $1 is not installed"; return 0; }
    for manner in plain --method=clear '--method=c --async' --method=h '--method=e --async'; do
        truncate -s 64M "$work/image"
        "$@" "$work/image" > /dev/null
        "$TACITA_LAB/vm" --disk "$work/image" --modules fuse \
            --bin "$tacita" --file "$tacita=/usr/bin/tacita" -- guest.sh "$fs" "$manner" > "$work/said" 2>&1 || { cat "$work/said" >&2; return 1; }
        found="$(content "$work/image") $(names "$work/image")"
        echo "$fs $manner: content and names in the image: $found"
        grep '^verdicts:\|^suits:' "$work/said" || true
        grep -a -q -F 'KEPT-in-the-lab' "$work/image" ||
            { echo "$fs $manner: what was kept is not found" >&2; return 1; }
        case $manner,$found in
            plain,0\ * | plain,*\ 0) echo "$fs: plainly deleted, and not found?" >&2; return 1 ;;
            plain,* | *,0\ 0) ;;
            *,0\ *) [ "$fs" = nfs ] || { echo "$fs $manner: names are left" >&2; return 1; } ;;
            *) echo "$fs $manner: content is left" >&2; return 1 ;;
        esac
        rm "$work/image"
    done
}

run vfat mkfs.vfat -F 16
run vfat mkfs.vfat -F 32 -s 1
run nfs mkfs.ext4 -q -F

if command -v mkfs.f2fs > /dev/null; then
    truncate -s 64M "$work/image"
    mkfs.f2fs -q "$work/image"
    "$TACITA_LAB/vm" --disk "$work/image" --modules fuse \
        --bin "$tacita" --file "$tacita=/usr/bin/tacita" -- guest.sh f2fs refused
else
    skip "f2fs: mkfs.f2fs is not installed"
fi
echo "purge in the kernel lab: ok"
