#!/bin/bash
# In the virtual machine that counts instructions, with this machine's programs: counted.sh EXTENSION ext2 OPTIONS
# LOAD. Says how much the load has written to the disk, and how many instructions that took, those of the kernel's
# threads included, and not those of waiting. A nanosecond is an instruction there (`-icount shift=0`). /tools has
# the loads.
set -eu
. /t/guest.sh
. /g/modules.sh
load=$4

written() {
    awk '$3 == "vda" { print $10 / 2 }' /proc/diskstats
}
instructions() {
    awk '/^now at/ { now = $3 } /idle_sleeptime|iowait_sleeptime/ { idle += $3 }
        END { printf "%.0f\n", now - idle }' /proc/timer_list
}
# A build: of each object configure-like tests, as many as the paper's build deletes files for a new one, and a
# compiler, whose temporary file is deleted, too. A build that takes minutes has its files written meanwhile.
build() {
    local n
    for n in $(seq 8); do
        /tools/load tests "$1" 30
        printf '#include <stdio.h>\nint part%d(int x)\n{\n\treturn printf("%%d", x);\n}\n' "$n" > "$1/part$n.c"
        TMPDIR=$1 gcc -O1 -g3 -c "$1/part$n.c" -o "$1/part$n.o"
        sync
    done
    echo 'int main(void) { return 0; }' > "$1/main.c"
    TMPDIR=$1 gcc -O1 -g3 "$1/main.c" "$1"/part*.o -o "$1/program"
}
mail() {
    /tools/load mail "$1" 60 1200
}

mounted
# Programs are in memory before it begins.
mkdir /tmp/warm /m/load
"$load" /tmp/warm
sync
written_before=$(written)
before=$(instructions)
"$load" /m/load
sync
after=$(instructions)
umount /m
echo "counted $(($(written) - written_before)) KiB, $((after - before)) instructions"
