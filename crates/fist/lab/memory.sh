#!/bin/sh
# In the virtual machine: memory.sh EXTENSION ramfs OPTIONS. What is in memory of files of ramfs that are deleted:
# with `trace` their pages are there as they were, with `purge` none is.
set -eu
. /t/guest.sh
. /g/modules.sh
pages=512
mounted
n=0
for way in keep unlink over open cut zero replaced; do
    n=$((n + 1))
    /memory write "/m/$way" "$n" $pages
done
kept=$(/memory count 1 2 3 4 5 6 7)
echo "before: $kept"
for n in 1 2 3 4 5 6 7; do
    case " $kept" in *" $n=$pages "*) ;; *) echo "memory does not show what was written" >&2; exit 1 ;; esac
done
rm /m/unlink
echo new > /m/new
mv /m/new /m/over
exec 3< /m/open
rm /m/open
[ "$(/memory count 4 | cut -d' ' -f1)" = 4=$pages ]
exec 3<&-
truncate -s 4096 /m/cut
: > /m/zero
# Written by its last user after it has no name.
exec 4<> /m/replaced
rm /m/replaced
exec 4>&-
sync
after=$(/memory count 1 2 3 4 5 6 7)
echo "$type $options: $after"
case $after in "1=$pages "*) ;; *) echo "what was kept is not there" >&2; exit 1 ;; esac
for n in 2 3 4 5 6 7; do
    found=$(echo " $after" | sed "s/.* $n=\([0-9]*\) .*/\1/")
    allowed=0
    [ $n != 5 ] || allowed=1
    if [ "$extension" = purge ]; then
        [ "$found" -le $allowed ] || { echo "$found pages of $n are left" >&2; exit 1; }
    else
        # Some pages are given to others at once.
        [ "$found" -gt $((pages / 4)) ] || { echo "only $found pages of $n are there, without purging" >&2; exit 1; }
    fi
done
unmounted
