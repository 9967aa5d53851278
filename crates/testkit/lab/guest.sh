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
