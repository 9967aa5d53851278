#!/usr/bin/env bash
# Installs a package in a guest of the kernel lab, and mounts from its /etc/fstab: what is written is
# there after the machine was switched off, and what was flushed after a power cut.
#
#   TACITA_LAB=FOLDER check-boot.sh PACKAGE.deb
#
# FOLDER is that of the lab (crates/testkit/lab/host.sh). Needs root.
set -euo pipefail
package=$(realpath "${1:?usage: check-boot.sh PACKAGE.deb}")
cd "$(dirname "$0")/.."
lab="mounts from /etc/fstab after a boot"
. crates/testkit/lab/host.sh
needs mkfs.ext4 dpkg-deb

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
truncate -s 256M "$work/disk"
mkfs.ext4 -q -F "$work/disk"
cat > "$work/boot" << 'BOOT'
set -eu
dpkg-deb -x "$PACKAGE" /
mkdir -p /srv /ward /chip
cat > /etc/fstab << 'FSTAB'
/dev/vda       /srv        ext4               defaults                                0 0
/srv/ward.img  /ward       fuse.tacita-hifs   uhelper=fuse.tacita-hifs,umask=077      0 0
/srv/chip.img  /chip       fuse.tacita-dnefs  uhelper=fuse.tacita-dnefs,nofail        0 0
/srv/files     /srv/files  fuse.tacita-purge  uhelper=fuse.tacita-purge,tacita.async  0 0
FSTAB
modprobe -a fuse ext4
if [ "$1" = first ]; then
    mount /srv
    tacita hifs format /srv/ward.img --size 32M
    tacita dnefs format /srv/chip.img --size 32M
    mkdir /srv/files
fi
mount -a
findmnt -n -o TARGET,FSTYPE -t fuse.tacita-hifs,fuse.tacita-dnefs,fuse.tacita-purge
case $1 in
    first) was= new=first ;;
    second) was=first new=second ;;
    third) was=second new= ;;
esac
for folder in /ward /chip /srv/files; do
    [ -z "$was" ] || [ "$(cat $folder/record)" = "$was" ] || { echo "$folder: $(cat $folder/record)"; exit 1; }
    [ -z "$new" ] || { echo $new > $folder/new; sync $folder/new; mv $folder/new $folder/record; sync $folder; }
done
if [ "$1" = second ]; then
    sync -f /srv
    power-cut 0
fi
# Each is gone when umount returns, so that what it lies on can be unmounted.
umount /srv/files /chip /ward /srv
BOOT
for boot in first second third; do
    echo "== $boot"
    guest --host-root --timeout 600 --disk "$work/disk" --share "$(dirname "$package")=/mnt/in:ro" \
        --env "PACKAGE=/mnt/in/$(basename "$package")" -- "$work/boot" $boot
done
echo "mounted from /etc/fstab after being switched off, and after a power cut"
