# Finds a kernel of Debian for the lab: image, headers and source of one version. Sourced after host.sh.

# find_kernel VERSION FOLDER: of Linux VERSION, which is 6.1 or 6.12, what linux-source-VERSION and the headers
# of the same version have installed. Sets `release`, `headers`, `common` and `tree`, a source that holds include
# and fs and is taken apart in FOLDER unless KERNEL_SOURCE names one; and the guest boots that kernel.
find_kernel() {
    local version tarball=/usr/src/linux-source-$1.tar.xz
    version=$(dpkg-query -W -f '${Version}' "linux-source-$1" 2> /dev/null) ||
        { skip "linux-source-$1 is not installed"; exit 0; }
    release=$(dpkg-query -W -f '${Package} ${Version}\n' 'linux-headers-*-amd64' |
        awk -v version="$version" '$2 == version && !/-(rt|cloud)-/ { sub("linux-headers-", ""); print $1 }')
    [ -n "$release" ] || { skip "linux-headers of $version, as of linux-source-$1, are not installed"; exit 0; }
    headers=/usr/src/linux-headers-$release
    common=${headers%-amd64}-common
    export KERNEL_LAB_KERNEL=linux-image-$release
    tree=${KERNEL_SOURCE:-$2/linux-source-$1}
    [ -d "$tree" ] || tar -C "$2" -xf "$tarball" "linux-source-$1/include/linux" "linux-source-$1/fs"
    grep -q "UTS_RELEASE \"$release\"" "$headers/include/generated/utsrelease.h" ||
        fail "$headers are not of $release"
}

# source_of NAME VERSION FOLDER: the source of a file system of the kernel, or of base0fs, which is put into FOLDER.
source_of() {
    if [ "$1" = base0fs ]; then
        [ -d "$3/base0fs" ] || cp -r ../targets/base0fs "$3/base0fs"
        [ "$2" != 6.1 ] || sed -i -f ../targets/base0fs/for-6.1.sed "$3"/base0fs/*.[ch]
        rm -f "$3/base0fs/for-6.1.sed"
        echo "$3/base0fs"
    else
        echo "$tree/fs/$1"
    fi
}

# compile FOLDER: makes the modules of an instrumented file system, without a warning.
compile() {
    local log=$1.log
    make -s -C "$headers" "M=$1" modules > "$log" 2>&1 || { cat "$log" >&2; fail "$1 is not compiled"; }
    ! grep -i warning "$log" >&2 || fail "$1 is compiled with warnings"
}
