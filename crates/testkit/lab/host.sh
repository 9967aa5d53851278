# What the scripts of the kernel lab share on this machine; sourced, with `lab` set to what is tested.
#
# TACITA_LAB names the folder of `vm`, which boots a kernel and runs a script in it; without it
# nothing is tested, and that is said; also in the file TACITA_SKIPPED, if that is named.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin
lab_folder=$(dirname "$(realpath "${BASH_SOURCE[0]}")")

skip() {
    echo "SKIPPED: $lab in the kernel lab: $*" | tee -a "${TACITA_SKIPPED:-/dev/null}" >&2
}

fail() {
    echo "$lab in the kernel lab: $*" >&2
    exit 1
}

# needs PROGRAM...: ends here without the lab, or one of them.
needs() {
    local program
    [ -n "${TACITA_LAB:-}" ] || { skip "TACITA_LAB does not name its folder"; exit 0; }
    [ -x "$TACITA_LAB/vm" ] || { skip "there is no $TACITA_LAB/vm"; exit 0; }
    for program in "$@"; do
        command -v "$program" > /dev/null || { skip "$program is not installed"; exit 0; }
    done
}

# built PROGRAM: the path of a program of ours.
built() {
    [ -x "$1" ] || fail "no $1; build it first"
    realpath "$1"
}

# guest OPTION... -- SCRIPT ARGUMENT...: runs a script in the guest, which finds guest.sh of this
# folder in its root.
guest() {
    "$TACITA_LAB/vm" --file "$lab_folder/guest.sh=/guest.sh" "$@"
}
