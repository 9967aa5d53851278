#!/usr/bin/env bash
# What instrumenting costs, and what purging costs, in lines for `tacita-bench fist`:
#
#   TACITA_LAB=FOLDER measure.sh KERNEL times|counts TACITA
#
# times: "FILE_SYSTEM instrumented|compiled SECONDS" (three instrumentings, one compiling, with `purge`).
# counts: "LOAD plain|single|triple KIB INSTRUCTIONS" of ext2 with blocks of 1 KiB, in a virtual machine that counts
# instructions (QEMU's -icount), so that a busy machine changes nothing.
cd "$(dirname "$0")"
lab="what FiST costs"
. ../../testkit/lab/host.sh
. ./kernel.sh
needs make gcc mkfs.ext2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
find_kernel "$1" "$work"
tacita=$(built "$3")
if [ "$2" = times ]; then
    sources=(ext2 fat ramfs nfs base0fs)
else
    sources=(ext2)
fi

# seconds COMMAND...: how long it takes.
seconds() {
    local start
    start=$(date +%s%N)
    "$@" > "$work/said" 2>&1 || { cat "$work/said" >&2; return 1; }
    awk -v ns=$(($(date +%s%N) - start)) 'BEGIN { printf "%.4f\n", ns / 1e9 }'
}

for name in "${sources[@]}"; do
    source=$(source_of "$name" "$1" "$work")
    for _ in 1 2 3; do
        rm -rf "$work/purge_$name"
        took=$(seconds "$tacita" fist instrument "$source" purge --out "$work/purge_$name" --headers "$common")
        [ "$2" != times ] || echo "$name instrumented $took"
    done
    took=$(seconds compile "$work/purge_$name")
    [ "$2" != times ] || echo "$name compiled $took"
done
[ "$2" = counts ] || exit 0

# The plain one is the file system itself under another name, which an extension without rules is.
printf '%%%%\n' > "$work/plain.fist"
"$tacita" fist instrument "$tree/fs/ext2" "$work/plain.fist" --name plain_ext2 --out "$work/plain_ext2" \
    --headers "$common" > "$work/said"
compile "$work/plain_ext2"
mkdir "$work/bin" "$work/tools"
gcc -O2 -static -o "$work/tools/load" load.c

# The lab calls QEMU by its name: this one counts.
cat > "$work/bin/qemu-system-x86_64" << END
#!/bin/bash
exec $(command -v qemu-system-x86_64) "\${@//thread=multi/thread=single}" -icount shift=0
END
chmod +x "$work/bin/qemu-system-x86_64"
for load in build mail; do
    for case in "plain plain " "single purge " "triple purge purge_triple"; do
        read -r label extension options <<< "$case"
        truncate -s 0 "$work/image"
        truncate -s 16M "$work/image"
        mkfs.ext2 -q -F "$work/image"
        PATH=$work/bin:$PATH guest --host-root --share "$work/${extension}_ext2=/k:ro" --share "$PWD=/g:ro" \
            --share "$lab_folder=/t:ro" --share "$work/tools=/tools:ro" --timeout 1800 --disk "$work/image" \
            -- counted.sh "$extension" ext2 "$options" "$load" > "$work/said" 2>&1 ||
            { cat "$work/said" >&2; fail "$load, $label"; }
        sed -n "s/^counted \([0-9]*\) KiB, \([0-9]*\) instructions/$load $label \1 \2/p" "$work/said"
    done
done
