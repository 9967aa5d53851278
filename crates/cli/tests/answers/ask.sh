# Asks every command that answers in JSON, in an empty folder and a mount namespace of its own.
# Behind each answer stands, on a line that begins with @@, the command and its exit code.
#
#   ask.sh TACITA CRATES
set -u
tacita=$1
crates=$2

# ask COMMAND... -- REST...: the words that name the command, and the others.
ask() {
    local words=()
    while [ "$1" != -- ]; do
        words+=("$1")
        shift
    done
    shift
    "$tacita" "${words[@]}" "$@" --json 2> failure < /dev/null
    echo "@@ ${words[*]} $?"
}

# As ask, of a command that fails.
ask_in_vain() {
    "$tacita" "$@" --json 2>&1 > answer < /dev/null
    echo "@@ failure $?"
}

# Without an answer.
run() {
    "$tacita" "$@" < /dev/null > said 2>&1 || { echo "tacita $*: $(cat said)" >&2; exit 1; }
}

echo public > public
echo hidden > hidden
mkdir folder mnt lower $'odd-\377'
echo text > folder/file

ask tour -- hifs
ask hifs format -- image --size 16M
ask hifs format -- $'odd-\377/image' --size 16M
ask hifs pack -- folder packed
ask hifs unpack -- packed unpacked
ask hifs check -- packed
ask hifs info -- packed
ask hifs map -- packed
ask check -- packed
ask info -- packed
ask_in_vain info public
ask doctor -- folder
run hifs mount image mnt
ask status -- mnt
ask status --
ask_in_vain hifs check image
run umount mnt
cp packed damaged
printf x | dd of=damaged bs=1 seek=2000000 conv=notrunc status=none
ask hifs check -- damaged

truncate -s 64M disk
mkfs.ext4 -q -F disk
mount -o loop disk lower
ask purge probe -- lower
echo text > lower/one
ask purge file -- lower/one
echo text > $'lower/\377'
ask purge file -- $'lower/\377'
run purge mount lower mnt
echo text > mnt/two
rm mnt/two
ask purge status -- mnt
ask status -- mnt
run umount mnt
umount lower
ask_in_vain purge probe nowhere

ask pddm plan -- --size 1G
ask pddm plan -- --size 1G --spare 0.4 --classes 2
ask pddm init -- device --size 64M --password-file public --hidden-password-file hidden
ask info -- device
ask pddm check -- device --password-file public
run pddm open device --nbd socket --password-file hidden
ask pddm status -- socket
ask pddm status -- socket --hidden
ask status -- socket
ask pddm close -- socket --drop
ask_in_vain pddm check device --password-file folder/file

ask dnefs format -- chip --size 16M
run dnefs dump chip before
run dnefs mount chip mnt
echo text > mnt/file
ask dnefs purge -- mnt
ask dnefs receipt -- mnt
ask status -- mnt
run umount mnt
run dnefs dump chip after
ask dnefs check -- chip
ask dnefs info -- chip
ask dnefs map -- chip
ask dnefs plan -- --size 64M
ask dnefs audit -- --before before --after after

ask oram init -- store --key key --blocks 4096
ask oram plan -- --blocks 4096
run oram serve store --listen unix:server
"$tacita" oram trace unix:server --listen unix:seen --out trace < /dev/null > said 2>&1 &
recorder=$!
while [ ! -S seen ] && kill -0 $recorder; do sleep 0.1; done
run oram check unix:seen --key key
kill $recorder
wait $recorder
ask oram trace -- --from trace
ask oram trace -- --from trace --from trace
ask oram status -- unix:server --key key
ask oram bench -- unix:server --key key --queries 20
run privatefs format unix:server --key key
run privatefs mount unix:server mnt --key key
echo text > mnt/file
ask status -- mnt
run umount mnt
ask privatefs info -- unix:server --key key
ask privatefs check -- unix:server --key key
ask oram check -- unix:server --key key
run oram close store
ask_in_vain oram status unix:server --key key

ask fist vectors -- "$crates/fist/example/sample.c"
ask fist instrument -- "$crates/fist/example/sample.c" "$crates/fist/extensions/trace.fist" \
    --headers "$crates/fist/example" --out made
