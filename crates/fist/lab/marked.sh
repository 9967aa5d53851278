#!/bin/bash
# In the virtual machine, with this machine's programs: marked.sh purge ext2 purge_marked. Of two files in each way
# of deletion one is marked by `chattr +s`.
set -eu
. /t/guest.sh
. /g/modules.sh

mounted
for way in unlink cut over; do
    for kind in marked plain; do
        for n in $(seq 400); do
            echo "PURGEMARK-$kind line $n of what nobody is to read"
        done > "/m/$way-$kind"
    done
    chattr +s "/m/$way-marked"
done
sync
for kind in marked plain; do
    rm "/m/unlink-$kind"
    truncate -s 0 "/m/cut-$kind"
    echo new > /m/new
    mv /m/new "/m/over-$kind"
done
unmounted
echo "$type $options: ok"
