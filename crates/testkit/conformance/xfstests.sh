#!/bin/bash
# Runs the generic quick group of xfstests on mounts of one system, compares what fails with
# xfstests.txt, and looks whether what lies below the mounts is whole afterwards.
#
#   xfstests.sh FOLDER SYSTEM [TEST...]
#
# FOLDER has xfstests, built. SYSTEM is hifs, purge, dnefs or privatefs, or fuse2fs to compare with.
# TEST is generic/NNN; without any it is the whole group. TACITA is the program, else the release build.
# A test that takes longer than TIME_MAX seconds (90) is ended, and has failed. Needs root.
#
# Everything happens in namespaces of its own: mounts, processes, and the files of /sbin and /etc that
# mount(8) and the tests look at. What is written for all file systems of a machine (sync) is written
# for the mounts under test only.
set -eu

usage="usage: xfstests.sh FOLDER hifs|purge|dnefs|privatefs|fuse2fs [TEST...]"
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${XFSTESTS_INSIDE:-}" ]; then
    folder=${1:?$usage}
    [ "$(id -u)" = 0 ] || { echo "xfstests.sh: needs root" >&2; exit 2; }
    [ -x "$folder/check" ] && [ -x "$folder/ltp/fsx" ] ||
        { echo "xfstests.sh: $folder has no xfstests that are built" >&2; exit 2; }
    XFSTESTS_INSIDE=$(mktemp -d)
    export XFSTESTS_INSIDE
    trap 'rm -rf "$XFSTESTS_INSIDE"' EXIT
    unshare --mount --pid --fork --kill-child --mount-proc bash "$0" "$@" < /dev/null
    exit
fi

work=$XFSTESTS_INSIDE
folder=$(cd "$1" && pwd)
system=${2:?$usage}
shift 2
tests=("$@")
tacita=$(readlink -f "${TACITA:-$here/../../../target/release/tacita}")
time_max=${TIME_MAX:-90}
chmod 755 "$work"
mkdir "$work/test" "$work/scratch" "$work/results" "$work/bin"

# Links that mount(8) calls, and users that tests become.
cp -a "$(readlink -f /sbin)" "$work/sbin"
for name in hifs purge dnefs privatefs; do
    ln -s "$tacita" "$work/sbin/mount.fuse.tacita-$name"
    ln -s "$tacita" "$work/sbin/umount.fuse.tacita-$name"
done
mount --bind "$work/sbin" "$(readlink -f /sbin)"
cp -p /etc/passwd /etc/group /etc/shadow "$work/"
id=61000
for name in fsgqa fsgqa2 123456-fsgqa; do
    id=$((id + 1))
    grep -q "^$name:" "$work/passwd" || echo "$name:x:$id:$id::$work:/bin/bash" >> "$work/passwd"
    grep -q "^$name:" "$work/group" || echo "$name:x:$id:" >> "$work/group"
    # su(1) lets nobody in who is not there.
    grep -q "^$name:" "$work/shadow" || echo "$name:*:20000:0:99999:7:::" >> "$work/shadow"
done
for name in passwd group shadow; do
    mount --bind "$work/$name" "/etc/$name"
done

cat > "$work/bin/sync" <<EOF
#!/bin/sh
[ \$# = 0 ] || exec $(command -v sync) "\$@"
exec $(command -v sync) -f "$work/test" "$work/scratch"
EOF
# xfstests knows the type "fuse" only.
cat > "$work/bin/df" <<EOF
#!/bin/sh
exec $(command -v df) "\$@" | sed 's/ fuse\.[a-z0-9-]*/ fuse/'
EOF
chmod 755 "$work/bin/sync" "$work/bin/df"
export PATH=$work/bin:$PATH

# made NAME: what one of the two mounts is made on; its source for mount(8).
type=fuse.tacita-$system
options=allow_other,dev,suid
case $system in
    hifs)
        made() {
            "$tacita" hifs format "$work/$1.img" --size 1G --ids random --times full > /dev/null
            echo "$work/$1.img"
        }
        whole() { "$tacita" hifs check "$1"; }
        ;;
    purge)
        made() {
            truncate -s 1G "$work/$1.img"
            mkfs.ext4 -q "$work/$1.img"
            mkdir "$work/$1.lower"
            mount -o loop "$work/$1.img" "$work/$1.lower"
            mkdir "$work/$1.lower/folder"
            echo "$work/$1.lower/folder"
        }
        whole() {
            umount "${1%/folder}"
            e2fsck -fn "${1%.lower/folder}.img" > "$work/fsck" 2>&1 || { cat "$work/fsck"; return 1; }
        }
        ;;
    dnefs)
        made() {
            "$tacita" dnefs format "$work/$1.img" --size 1G > /dev/null
            echo "$work/$1.img"
        }
        whole() { "$tacita" dnefs check "$1"; }
        ;;
    privatefs)
        made() {
            "$tacita" oram init "$work/$1.store" --key "$work/$1.key" --blocks 262144 > /dev/null
            "$tacita" oram serve "$work/$1.store" --listen "unix:$work/$1.socket"
            "$tacita" privatefs format "unix:$work/$1.socket" --key "$work/$1.key" > /dev/null
            echo "unix:$work/$1.socket"
        }
        whole() {
            local name=${1#unix:}
            "$tacita" privatefs check "$1" --key "${name%.socket}.key"
        }
        ;;
    fuse2fs)
        type=fuse.fuse2fs
        made() {
            truncate -s 1G "$work/$1.img"
            mkfs.ext4 -q "$work/$1.img"
            echo "$work/$1.img"
        }
        whole() { e2fsck -fn "$1" > "$work/fsck" 2>&1 || { cat "$work/fsck"; return 1; }; }
        ;;
    *)
        echo "$usage" >&2
        exit 2
        ;;
esac
test_source=$(made test)
scratch_source=$(made scratch)
test_options=$options scratch_options=$options
if [ "$system" = privatefs ]; then
    test_options=$options,tacita.key=$work/test.key
    scratch_options=$options,tacita.key=$work/scratch.key
fi

# xfstests unmounts by the source, which umount(8) does not look for if it is a folder, and called by
# root with an absolute path it does not call the helper that waits until the daemon is gone.
cat > "$work/bin/umount" <<EOF
#!/bin/sh
for word; do
    shift
    case \$word in
        "$test_source" | "$work/test") word=./test; cd "$work" ;;
        "$scratch_source" | "$work/scratch") word=./scratch; cd "$work" ;;
    esac
    set -- "\$@" "\$word"
done
exec $(command -v umount) "\$@"
EOF
chmod 755 "$work/bin/umount"

cat > "$work/config" <<EOF
export FSTYP=fuse
export FUSE_SUBTYP=${type#fuse}
export TEST_DEV=$test_source
export TEST_DIR=$work/test
export SCRATCH_DEV=$scratch_source
export SCRATCH_MNT=$work/scratch
export RESULT_BASE=$work/results
export TEST_FS_MOUNT_OPTS=-o$test_options
export MOUNT_OPTIONS=-o$scratch_options
EOF

# ended PID: a process and all that it has started.
ended() {
    local child
    for child in $(pgrep -P "$1"); do
        ended "$child"
    done
    kill -KILL "$1" 2> /dev/null || true
}
watch() {
    local pid seconds rest
    while sleep 5; do
        while read -r pid seconds rest; do
            case $rest in
                *tests/generic/[0-9]*)
                    [ "$seconds" -le "$time_max" ] || { echo "ended: $rest"; ended "$pid"; } ;;
            esac
        done < <(ps -eo pid=,etimes=,args=)
    done
}

[ ${#tests[@]} != 0 ] || tests=(-g generic/quick)
watch &
watcher=$!
cd "$folder"
HOST_OPTIONS=$work/config ./check "${tests[@]}" 2>&1 | tee "$work/out" || true
kill "$watcher" 2> /dev/null || true

result=0
for dir in "$work/test" "$work/scratch"; do
    # What was ended may be busy there for a moment.
    for try in 1 2 3 4 5 6; do
        mountpoint -q "$dir" || break
        "$work/bin/umount" "$dir" && break
        sleep 5
    done
    ! mountpoint -q "$dir" || { echo "xfstests.sh: $dir cannot be unmounted"; result=1; }
done
for source in "$test_source" "$scratch_source"; do
    whole "$source" > "$work/whole" 2>&1 ||
        { cat "$work/whole"; echo "xfstests.sh: $source is not whole"; result=1; }
done
if ! grep -q '^Ran:' "$work/out"; then
    echo "xfstests.sh: did not come to an end"
    exit 1
fi
if [ -n "${XFSTESTS_KEEP:-}" ]; then
    mkdir -p "$XFSTESTS_KEEP"
    cp -r "$work/results/." "$XFSTESTS_KEEP/"
fi

of() {
    sed -n "s/^$1: //p" "$work/out" | tr ' ' '\n' | grep generic/ | sort -u || true
}
of Ran > "$work/ran"
of 'Not run' > "$work/not-run"
of Failures > "$work/failed"
awk -v name="$system" '
    /^#/ || NF == 0 { next }
    { n = split($1, names, ","); for (i = 1; i <= n; i++) if (names[i] == name) print $2 }
' "$here/xfstests.txt" | sort -u > "$work/all"
comm -12 "$work/all" "$work/ran" > "$work/expected"
new=$(comm -23 "$work/failed" "$work/expected")
gone=$(comm -13 "$work/failed" "$work/expected")
[ -z "$new" ] || { echo "failed and not expected:" $new; result=1; }
[ -z "$gone" ] || { echo "expected to fail, but passed:" $gone; result=1; }
echo "$system: $(comm -23 "$work/ran" "$work/not-run" | wc -l) ran, of which $(wc -l < "$work/failed") failed;" \
    "$(wc -l < "$work/not-run") need what is not there"
exit $result
