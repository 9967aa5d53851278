#!/bin/sh
# In the virtual machine: written.sh TYPE OPTIONS LOAD; says how much the load has written to /dev/vda.
# `mail` appends, reads, and deletes or replaces files, as Postmark does; `build` writes files that stay
# and deletes a short one for each. /k holds the module.
set -eu
type=$1
insmod "/k/$type.ko"
mkdir /m
mount -t "$type" ${2:+-o"$2"} /dev/vda /m

sectors() {
    awk '$3 == "vda" { print $10 }' /proc/diskstats
}

# bytes COUNT FILE: so many bytes.
bytes() {
    head -c "$1" /dev/zero | tr '\0' a > "$2"
}

sync
before=$(sectors)
case $3 in
    mail)
        for n in $(seq 0 59); do
            bytes $((n % 30 * 2048 + 512)) "/m/$n"
        done
        sync
        for n in $(seq 0 299); do
            file=/m/$((n * 7 % 60))
            case $((n % 4)) in
                0) rm -f "$file" && bytes $((n % 30 * 2048 + 512)) "$file" ;;
                1) [ ! -f "$file" ] || cat "$file" > /dev/null ;;
                2) echo more >> "$file" ;;
                3) rm -f "$file" ;;
            esac
            [ $((n % 50)) != 0 ] || sync
        done
        ;;
    build)
        for n in $(seq 0 59); do
            bytes 16384 "/m/$n"
            echo conftest > /m/conftest
            cat "/m/$n" > /dev/null
            rm /m/conftest
        done
        ;;
esac
sync
umount /m
echo "$type ${2:--} $3: $((($(sectors) - before) / 2)) KiB written"
