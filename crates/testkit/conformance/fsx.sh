#!/bin/sh
# Runs fsx, random operations on one file checked against a model, on a mounted folder.
#
#   fsx.sh DIR OPS [SEED]
#
# fsx.toml has every operation that fsx knows. Many operations are played by several processes, one after
# the other, each on a file of its own with the next seed: fsx 0.3.2 leaves mappings behind, of which the
# kernel gives a process 65,530.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
version=0.3.2

dir=${1:?usage: fsx.sh DIR OPS [SEED]}
ops=${2:?usage: fsx.sh DIR OPS [SEED]}
seed=${3:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
slice_max=100000
# Only a mount that hangs takes this long: others do hundreds of operations a second.
time_max=$((900 + slice_max / 50))

tool=${CARGO_HOME:-$HOME/.cargo}/bin/fsx
[ -x "$tool" ] || cargo install --locked "fsx@$version"

echo "fsx: $ops operations, seed $seed"
while [ "$ops" -gt 0 ]; do
    slice=$((ops < slice_max ? ops : slice_max))
    artifacts=$(mktemp -d)
    file=$dir/fsx-$$-$seed
    status=0
    timeout "$time_max" "$tool" -q -f "$here/fsx.toml" -N "$slice" -S "$seed" -P "$artifacts" "$file" ||
        status=$?
    if [ $status != 0 ]; then
        echo "fsx.sh: failed with seed $seed; artifacts in $artifacts" >&2
        exit 1
    fi
    rm -rf "$artifacts" "$file"
    ops=$((ops - slice))
    seed=$((seed + 1))
done
echo "fsx: passed"
