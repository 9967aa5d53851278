#!/usr/bin/env bash
# Purging on lower file systems that only another kernel has: FAT, NFS over loopback, and F2FS, which
# is refused. Each plainly first, which must show the loss in the raw image.
#
#   TACITA_LAB=FOLDER lower-file-systems.sh [TACITA]
#
# FOLDER is that of the lab (crates/testkit/lab/host.sh); TACITA is the program,
# target/release/tacita by default.
cd "$(dirname "$0")"
lab=purge
. ../../testkit/lab/host.sh
needs
tacita=$(built "${1:-../../../target/release/tacita}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Content, and names as ASCII, as the short names of FAT, and as the first piece of its long ones, which
# is UTF-16: all so long that no image has them by chance.
content() {
    { grep -a -o -F 'LOST-in-the-lab' "$1" || true; } | wc -l
}
names() {
    local utf16
    utf16=$(printf 'secre' | sed 's/./&\\x00/g')
    { LC_ALL=C grep -a -o -i -P "secretname|ECRET~[0-9](TXT|   )|$utf16" "$1" || true; } | wc -l
}

# run FS MAKER... : fills an image in the guest and deletes from it, plainly and purged.
run() {
    local fs=$1 manner found
    shift
    command -v "$1" > /dev/null || { skip "$fs: $1 is not installed"; return 0; }
    for manner in plain --method=clear '--method=c --async' --method=h '--method=e --async'; do
        truncate -s 64M "$work/image"
        "$@" "$work/image" > /dev/null
        guest --disk "$work/image" --modules fuse --bin "$tacita" \
            --file "$tacita=/usr/bin/tacita" -- in-guest.sh "$fs" "$manner" > "$work/said" 2>&1 ||
            { cat "$work/said" >&2; return 1; }
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
    guest --disk "$work/image" --modules fuse --bin "$tacita" \
        --file "$tacita=/usr/bin/tacita" -- in-guest.sh f2fs refused
else
    skip "f2fs: mkfs.f2fs is not installed"
fi
echo "purge in the kernel lab: ok"
