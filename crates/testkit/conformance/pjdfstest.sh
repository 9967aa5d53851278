#!/bin/sh
# Runs the Rust pjdfstest on a mounted folder and compares what did not pass with expected.txt.
#
#   pjdfstest.sh [--renumbers] DIR [PATTERN...]
#
# DIR is on the file system under test, mounted with allow_other, dev and suid. --renumbers says
# that a rename may change inode numbers. Needs root, because cases switch users.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
version=0.2.2
time_max=900

scheme=all
if [ "${1:-}" = --renumbers ]; then
    scheme=renumbers
    shift
fi
dir=${1:?usage: pjdfstest.sh [--renumbers] DIR [PATTERN...]}
shift
[ "$(id -u)" = 0 ] || { echo "pjdfstest.sh: needs root" >&2; exit 2; }

tool=${CARGO_HOME:-$HOME/.cargo}/bin/pjdfstest
[ -x "$tool" ] || cargo install --locked "pjdfstest@$version"

work=$(mktemp -d)
other=$(mktemp -d)
trap 'rm -rf "$work" "$other"' EXIT

# Cases about read-only file systems call mount(8), which would start a helper for FUSE that knows
# nothing of remounting; -i asks the kernel itself. Newer versions then use a call that refuses
# options which do not change, so the older one is forced.
mkdir "$work/bin"
# While a file that was deleted is being released, which servers do behind the call, nothing becomes read-only.
cat > "$work/bin/mount" <<EOF
#!/bin/sh
export LIBMOUNT_FORCE_MOUNT2=always
for wait in 0.1 0.1 0.3 0.5 1 2 4 8; do
    said=\$($(command -v mount) -i "\$@" 2>&1) && exit
    case \$said in
        *busy*) sleep \$wait ;;
        *) break ;;
    esac
done
echo "\$said" >&2
exit 1
EOF
chmod 755 "$work/bin/mount"

# Cases about the longest path divide its length by 127 and panic where nothing remains, which is
# so for one length of this folder's name in 127.
run=$dir/pjdfstest
[ $((${#run} % 127)) -ne 9 ] || run=$dir/pjdfstest-run
mkdir -p "$run"
chmod 777 "$run"

# pjdfstest CONFIGURATION PATTERN...: output in $work/last.
suite() {
    config=$1
    shift
    status=0
    PATH=$work/bin:$PATH RUST_BACKTRACE=0 timeout "$time_max" "$tool" \
        -c "$config" -p "$run" -s "$other" -- "$@" > "$work/last" 2>&1 || status=$?
    if ! grep -q '^Summary:' "$work/last"; then
        cat "$work/last"
        echo "pjdfstest.sh: did not come to an end (code $status)" >&2
        exit 1
    fi
    grep '^Summary:' "$work/last"
}

# Cases about read-only file systems come in a run of their own: others leave files open for
# writing, and then no file system can be made read-only.
suite "$here/pjdfstest.toml" "$@"
grep -v '::erofs_' "$work/last" > "$work/out" || true
if [ $# = 0 ]; then
    sed 's/^allow_remount = false/allow_remount = true/' "$here/pjdfstest.toml" > "$work/remount.toml"
    suite "$work/remount.toml" erofs
    cat "$work/last" >> "$work/out"
fi

awk '$2 == "FAILED" || $2 == "skipped" { print $1, tolower($2) }' "$work/out" | sort > "$work/seen"
awk -v scheme="$scheme" '
    /^#/ || NF == 0 { next }
    $1 == "all" || $1 == scheme { print $2, $3 }
' "$here/expected.txt" | sort > "$work/expected"

comm -23 "$work/seen" "$work/expected" > "$work/new"
comm -13 "$work/seen" "$work/expected" > "$work/gone"
result=0
if [ -s "$work/new" ]; then
    echo "not passed and not expected:"
    sed 's/^/    /' "$work/new"
    grep -A1 FAILED "$work/out" || true
    result=1
fi
if [ -s "$work/gone" ] && [ $# = 0 ]; then
    echo "expected not to pass, but passed (take them out of expected.txt):"
    sed 's/^/    /' "$work/gone"
    result=1
fi
[ $result != 0 ] || echo "as expected: $(wc -l < "$work/seen") of the cases do not pass, each for a reason in expected.txt"
rm -rf "$run"
exit $result
