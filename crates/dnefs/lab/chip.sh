# What the scripts of this lab share in the virtual machine; sourced, with the path of tacita.
tacita=$1

fail() {
    echo "$*" >&2
    exit 1
}

# fails CODE COMMAND...: it must end with this exit code.
fails() {
    code=0
    expected=$1
    shift
    "$@" > /tmp/said 2>&1 || code=$?
    [ "$code" = "$expected" ] || fail "$* ends with $code, not $expected: $(cat /tmp/said)"
}

# attach [LEBS]: UBI on the chip, with a new volume of so many erase blocks, 36 by default; from then on
# nothing is erased in the background.
attach() {
    silently flash_erase /dev/mtd0 0 0
    silently ubiattach -p /dev/mtd0
    silently ubimkvol /dev/ubi0 -N lab -S "${1:-36}"
    no_background
}

no_background() {
    [ -d /sys/kernel/debug/ubi ] || mount -t debugfs none /sys/kernel/debug
    echo 1 > /sys/kernel/debug/ubi/ubi0/tst_disable_bgt
}

# raw_dump FILE: every physical block, past UBI.
raw_dump() {
    nanddump --bb=dumpbad -f "$1" /dev/mtd0 2> /tmp/said || fail "$(cat /tmp/said)"
}
