#!/usr/bin/env bash
# A C package of Debian is unpacked, configured, built, tested and deleted on ext4: plainly, and in a
# mount of purge. What its temporary files and objects held is in the plain image, and not in ours.
#
#   package-build.sh [TACITA [PACKAGE]]      default: target/release/tacita, gzip
#
# Needs root, FUSE, apt and a compiler; what is missing is said, and the rest skipped. The source is
# fetched once, to ${XDG_CACHE_HOME:-~/.cache}/tacita.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PATH=$PATH:/usr/sbin:/sbin

skip() {
    echo "SKIPPED: a package built under purge: $*" | tee -a "${TACITA_SKIPPED:-/dev/null}" >&2
    exit 0
}

tacita=$(realpath "${1:-$here/../../../target/release/tacita}")
package=${2:-gzip}
[ -x "$tacita" ] || { echo "package-build: no $tacita; build it first" >&2; exit 2; }
[ "$(id -u)" = 0 ] || skip "not root"
[ -e /dev/fuse ] || skip "there is no /dev/fuse"
for program in apt-get cc make mkfs.ext4 xz; do
    command -v $program > /dev/null || skip "$program is not installed"
done

# The list of sources is one of our own: the machine's stays as it is.
fetch() {
    local site suite options
    read -r site suite < <(apt-get indextargets --format '$(SITE) $(CODENAME) $(COMPONENT)' \
        'Created-By: Packages' | awk '/debian\.org.* main$|debian .* main$/ { print $1, $2; exit }')
    [ -n "${suite:-}" ] || return 1
    mkdir -p "$sources/lists/partial"
    echo "deb-src $site $suite main" > "$sources/sources.list"
    options=(-o "Dir::Etc::sourcelist=$sources/sources.list" -o Dir::Etc::sourceparts=-
        -o "Dir::State::lists=$sources/lists" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" -qq update &&
        (cd "$sources" && apt-get "${options[@]}" -qq source --download-only "$package")
}
sources=${XDG_CACHE_HOME:-$HOME/.cache}/tacita
mkdir -p "$sources"
archive() {
    find "$sources" -maxdepth 1 -name "${package}_*.orig.tar.*z*" ! -name '*.asc' | sort | tail -1
}
[ -n "$(archive)" ] || fetch > "$sources/log" 2>&1 || skip "the source of $package cannot be fetched"
archive=$(archive)
[ -n "$archive" ] || skip "$package has no source archive"

work=$(mktemp -d)
syncer=
finish() {
    [ -z "$syncer" ] || kill "$syncer" 2> /dev/null || true
    for dir in "$work/upper" "$work/lower"; do
        ! mountpoint -q "$dir" || umount -l "$dir"
    done
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/lower" "$work/upper"

# In the debugging information of every object, and in the text that the compiler hands the assembler
# in a temporary file.
mark=left_by_the_build_of_$package
count() {
    { LC_ALL=C grep -a -o -F "$1" "$work/image" || true; } | wc -l
}

build() {
    local dir=$1
    mkdir "$dir/secretname-tmp"
    tar -xf "$archive" -C "$dir"
    cd "$dir/$package"-*/
    export TMPDIR=$dir/secretname-tmp
    ./configure --quiet CFLAGS="-O1 -g3 -DTACITA_MARK=$mark" FORCE_UNSAFE_CONFIGURE=1
    make -s -j2
    make -s check
    sync -f .
    make -s distclean
    cd "$work"
    unset TMPDIR
    rm -r "$dir/$package"-* "$dir/secretname-tmp"
}

for manner in plain --epoch=10 --async; do
    truncate -s 512M "$work/image"
    mkfs.ext4 -q -F "$work/image"
    mount -o loop "$work/image" "$work/lower"
    dir=$work/lower
    if [ $manner != plain ]; then
        "$tacita" purge mount "$work/lower" "$work/upper" $manner -o suid,dev
        dir=$work/upper
    fi
    # What has never reached the medium cannot be found there: so everything gets there soon.
    (while sleep 1; do sync -f "$work/lower"; done) &
    syncer=$!
    begin=$SECONDS
    (build "$dir") > "$work/log" 2>&1 || { tail -50 "$work/log" >&2; exit 1; }
    took=$((SECONDS - begin))
    kill $syncer
    wait $syncer 2> /dev/null || true
    syncer=
    if [ $manner != plain ]; then
        "$tacita" purge status --finish "$work/upper" | grep '^purged:\|^bytes:\|^verdicts:'
        "$tacita" umount "$work/upper"
    fi
    umount "$work/lower"
    echo "$package $manner: $took s; $(grep -c '^PASS' "$work/log") tests passed; in the image:" \
        "content $(count "$mark"), names $(count secretname-tmp)"
    e2fsck -fn "$work/image" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    if [ $manner = plain ]; then
        [ "$(count "$mark")" != 0 ] && [ "$(count secretname-tmp)" != 0 ] ||
            { echo "package-build: plainly deleted, and not found?" >&2; exit 1; }
    elif [ "$(count "$mark")" != 0 ] || [ "$(count secretname-tmp)" != 0 ]; then
        echo "package-build: something is left" >&2
        exit 1
    fi
    rm "$work/image"
done
echo "a package built under purge: ok"
