#!/usr/bin/env bash
# How long programs wait on a hidden volume: a repository of 20 MB cloned by git into ext4 on it, with
# the defaults, while public writes of so much a second (4m) carry what is hidden.
#
#   hidden-clone.sh [TACITA [RATE]]          default: target/release/tacita, 4m
#
# Prints the times of the clone and of syncing it, and the longest system calls of git on the hidden
# volume. Needs root, FUSE, git, fio, strace, and 3 GB below TMPDIR.
set -euo pipefail

tacita=$(readlink -f "${1:-$(dirname "$0")/../../../target/release/tacita}")
[ -x "$tacita" ] || { echo "hidden-clone.sh: there is no program at $tacita" >&2; exit 2; }
rate=${2:-4m}
[ "$(id -u)" = 0 ] || { echo "hidden-clone.sh: needs root" >&2; exit 7; }
work=$(mktemp -d)
writer=
loops=()
finish() {
    [ -z "$writer" ] || { kill "$writer" && wait "$writer" || true; } 2> /dev/null
    local name
    for name in public hidden; do
        ! mountpoint -q "$work/$name" || umount "$work/$name"
    done
    [ ${#loops[@]} = 0 ] || losetup -d "${loops[@]}"
    ! mountpoint -q "$work/volumes" || "$tacita" pddm close "$work/volumes" --drop
    rm -rf "$work"
}
trap finish EXIT
cd "$work"

echo public > public.password
echo hidden > hidden.password
"$tacita" pddm init device --size 2G --password-file public.password --hidden-password-file hidden.password
mkdir volumes public hidden
"$tacita" pddm open device --fuse volumes --password-file hidden.password
for name in public hidden; do
    loops+=("$(losetup --show -f "volumes/$name")")
    mkfs.ext4 -q "${loops[-1]}"
    mount "${loops[-1]}" "$name"
done

git init -q repository
for folder in $(seq 40); do
    mkdir "repository/$folder"
    for file in $(seq 50); do
        head -c 10000 /dev/urandom > "repository/$folder/$file"
    done
done
git -C repository add -A
git -C repository -c user.name=ward -c user.email=ward@hospital.example commit -q -m records

fio --name=public --directory=public --rw=randwrite --bs=16k --size=64m --rate="$rate" --fsync=32 \
    --time_based --runtime=600 > /dev/null &
writer=$!
sleep 2

# timed WHAT COMMAND...
timed() {
    local what=$1 begin
    shift
    begin=$(date +%s%N)
    "$@"
    printf '%s: %d ms\n' "$what" $((($(date +%s%N) - begin) / 1000000))
}
# Everything that git can flush. A file of calls for each process, for in one file of all a call that
# waits is torn by those of others, and its end does not say what it was about.
mkdir calls
timed "the clone" strace -ff -T -y -o calls/of -e trace=%file,%desc \
    git -c core.fsync=all clone -q --no-local repository hidden/clone
timed "syncing it" sync -f hidden
cat calls/* | grep -F "$work/hidden" > there
! grep -q 'unfinished' there || echo "$(grep -c 'unfinished' there) calls did not end"
echo "the longest of $(wc -l < there) calls there, in seconds:"
sed -n 's/^\([a-z0-9_]*\)(.*<\([0-9.]*\)>$/\2 \1/p' there | sort -rn | sed -n 1,5p
"$tacita" pddm status volumes
