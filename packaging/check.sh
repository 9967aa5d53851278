#!/usr/bin/env bash
# Installs a package in a clean root of Debian, and mounts from its /etc/fstab.
#
#   check.sh PACKAGE.deb
#
# Needs root, debootstrap and a mirror of Debian. Nothing stays behind but a cached root in
# target/package.
set -euo pipefail
package=$(realpath "${1:?usage: check.sh PACKAGE.deb}")
cd "$(dirname "$0")/.."
cache=$PWD/target/package/root.tar
[ "$(id -u)" = 0 ] || { echo "check: needs root" >&2; exit 7; }

root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
if [ ! -f "$cache" ]; then
    mkdir -p "$(dirname "$cache")"
    debootstrap --variant=minbase --include=man-db bookworm "$root" > "$cache.log"
    tar -C "$root" -cf "$cache.new" .
    mv "$cache.new" "$cache"
else
    tar -C "$root" -xf "$cache"
fi
cp "$package" "$root/root/tacita.deb"
cp /etc/resolv.conf "$root/etc/"
[ ! -d /etc/apt/apt.conf.d ] || cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"

cat > "$root/root/play" << 'PLAY'
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends /root/tacita.deb > /dev/null
tacita --version
man -w tacita tacita-hifs-mount tacita-formats > /dev/null
for helper in /usr/sbin/*mount.fuse.tacita-*; do
    man "$(basename "$helper")" | grep -q 'umount\|/etc/fstab' || echo "no page says how $helper is called"
done
version=$(dpkg-query -f '${Version}' -W tacita)
zgrep -q "^tacita ($version)" /usr/share/doc/tacita/changelog.Debian.gz || echo "no changelog"
zgrep -q '^# Changelog' /usr/share/doc/tacita/changelog.gz || echo "no changes of the program"
# What is referred to is there: by the program, its pages, and the documents themselves.
docs=/usr/share/doc/tacita
{
    grep -a -o -h 'docs/[a-z/-]*\.md' /usr/bin/tacita
    zcat /usr/share/man/man*/tacita*.gz | grep -o 'docs/[a-z/-]*\.md'
    grep -r -h -o 'docs/[a-z/-]*\.md' $docs/README.md $docs/docs/*.md
} | sort -u | while read -r page; do [ -f "$docs/$page" ] || echo "no $page"; done
umask 022
mkdir -p /srv /ward
tacita hifs format /srv/ward.img --size 16M > /dev/null
echo "/srv/ward.img /ward fuse.tacita-hifs nofail,user,x-systemd.automount,uid=1000,umask=077 0 0" > /etc/fstab
mount -a
findmnt -n -o SOURCE,FSTYPE /ward
echo patient > /ward/record
stat -c '%u %a' /ward/record
umount /ward
# The helper has waited: the image is free, and canonical.
tacita hifs check /srv/ward.img > /dev/null
mount /ward
cat /ward/record
umount /ward
# Also where root names it by its absolute path, and no other option is kept.
echo "/srv/ward.img /ward fuse.tacita-hifs uhelper=fuse.tacita-hifs 0 0" > /etc/fstab
mount -a
echo doctor > /ward/record
umount /ward
tacita hifs check /srv/ward.img > /dev/null
# What is mounted goes on when the package is upgraded, and when it is removed.
mount -a
echo before > /ward/upgraded
dpkg -i /root/tacita.deb > /dev/null
echo after >> /ward/upgraded
umount /ward
tacita hifs check /srv/ward.img > /dev/null
mount -a
cat /ward/upgraded
# As `systemctl enable` does it.
wants=/etc/systemd/system/multi-user.target.wants
mkdir -p $wants
ln -s /lib/systemd/system/tacita-oram.service $wants
tacita oram init /var/lib/tacita-oram/store --key /root/key --blocks 16 > /dev/null
cp /usr/bin/tacita /root/tacita
apt-get purge -y -qq tacita > /dev/null
echo removed >> /ward/upgraded
umount /ward
until /root/tacita hifs check /srv/ward.img > /dev/null 2>&1; do sleep 0.1; done
find /usr /etc /var/lib/systemd -name '*tacita*' 2> /dev/null
ls -d /var/lib/tacita-oram/store/root
PLAY

wanted='/srv/ward.img fuse.tacita-hifs
1000 700
patient
before
after
/var/lib/tacita-oram/store/root'
printed=$(unshare --mount --pid --fork --kill-child --propagation private sh -ec '
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    chroot "$1" sh /root/play' sh "$root")
if [ "$(tail -n +2 <<< "$printed")" != "$wanted" ]; then
    printf 'check: this is not what should be printed:\n%s\n' "$printed" >&2
    exit 1
fi
echo "$printed"
echo "installed, mounted from /etc/fstab, and removed"
