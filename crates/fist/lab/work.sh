#!/bin/bash
# In the virtual machine, with this machine's programs: work.sh EXTENSION FILE_SYSTEM OPTIONS. fsx, and a
# program that is compiled, run and deleted; then the module is unloaded, which tells of inodes that were lost.
# /g is this folder, /t that of the lab's scripts.
set -eu
. /t/guest.sh
. /g/modules.sh

mounted
(cd /tmp && silently fsx -q -f /g/fsx.toml -N 3000 -S 16 -P /tmp /m/fsx)
rm /m/fsx

mkdir /m/build
cd /m/build
for n in $(seq 12); do
    printf 'int part%d(int x)\n{\n\treturn x + %d;\n}\n' "$n" "$n" > "part$n.c"
    echo "int part$n(int x);" >> parts.h
    echo "    sum = part$n(sum);" >> calls.h
done
cat > main.c << 'C'
#include <stdio.h>
#include "parts.h"
int main(void)
{
    int sum = 0;
#include "calls.h"
    printf("%d\n", sum);
    return 0;
}
C
printf 'program: $(patsubst %%.c,%%.o,$(wildcard *.c))\n\t$(CC) -o $@ $^\nclean:\n\trm -f *.o program\n' > Makefile
for round in 1 2; do
    silently make -s CC="gcc -pipe"
    [ "$(./program)" = 78 ]
    silently make -s clean
done
cd /
rm -r /m/build
left=$(ls -A /m)
[ "${left:-lost+found}" = lost+found ] || { echo "left: $left" >&2; exit 1; }
unmounted
echo "$type $options, fsx and a build: ok"
