#!/bin/sh
# Runs fsx, random operations on one file checked against a model, on a mounted folder.
#
#   fsx.sh DIR OPS [SEED]
#
# fsx.toml has every operation that fsx knows.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
version=0.3.2

dir=${1:?usage: fsx.sh DIR OPS [SEED]}
ops=${2:?usage: fsx.sh DIR OPS [SEED]}
seed=${3:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
# Only a mount that hangs takes this long: others do hundreds of operations a second.
time_max=$((900 + ops / 50))

tool=${CARGO_HOME:-$HOME/.cargo}/bin/fsx
[ -x "$tool" ] || cargo install --locked "fsx@$version"

artifacts=$(mktemp -d)
file=$dir/fsx-$$
echo "fsx: $ops operations, seed $seed"
status=0
timeout "$time_max" "$tool" -q -f "$here/fsx.toml" -N "$ops" -S "$seed" -P "$artifacts" "$file" ||
    status=$?
if [ $status != 0 ]; then
    echo "fsx.sh: failed with seed $seed; artifacts in $artifacts" >&2
    exit 1
fi
rm -rf "$artifacts" "$file"
echo "fsx: passed"
