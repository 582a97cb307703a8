#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The init of a guest that syzkaller fuzzes (suites/fuzzing.py): the host's root is mounted read-only by 9p. It makes
# what the programs use, switches all features on, again and again, as programs switch them off, and becomes the daemon
# that syzkaller logs in by. The word of the kernel's command line after "quire.key=" is the key's file.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t debugfs debugfs /sys/kernel/debug
mount -t tmpfs tmpfs /run
root=/run/root
mkdir -p /run/upper /run/work $root
mount -t overlay -o lowerdir=/,upperdir=/run/upper,workdir=/run/work overlay $root
mount --rbind /proc $root/proc
mount --rbind /sys $root/sys
mount --rbind /dev $root/dev
mkdir -p $root/dev/pts $root/dev/shm $root/syz-inputs
mount -t devpts devpts $root/dev/pts
mount -t tmpfs tmpfs $root/tmp
mount -t tmpfs tmpfs $root/dev/shm

# Program text: a file of 8 MiB in ext4, which syzkaller mounts for its programs.
truncate -s 64M /run/text
mke2fs -q -t ext4 -O ^has_journal /run/text
mount -o loop /run/text $root/syz-inputs
head -c 8M /dev/zero | tr '\0' '\220' >$root/syz-inputs/program
chmod 777 $root/syz-inputs/program

# A process whose page tables programs can join. It runs from that filesystem, so text looks after its program.
cp "$(readlink -f /usr/bin/python3)" $root/syz-inputs/python
while sleep 1; do
	PYTHONHOME=/usr chroot $root /syz-inputs/python "${0%/*}/fuzz_user.py" /dev/shm/quire
done &>/dev/null &

echo 512M >/sys/block/zram0/disksize
mkswap -q /dev/zram0
swapon /dev/zram0
# There are none, and syzkaller would ask for hundreds before its first program.
echo >/proc/sys/kernel/modprobe
echo 16 >/proc/sys/vm/nr_hugepages
echo 1 >/sys/kernel/mm/ksm/run
# Tables are shared of areas as small as a program of syzkaller has.
quire=/sys/kernel/mm/quire
echo 1 >$quire/fork/min_tables
echo 1 >$quire/fork/mixed
echo 1 >$quire/shm/min_tables
while sleep 2; do
	for switch in $quire/*/enabled; do
		echo 1 >"$switch"
	done
done 2>/dev/null &

key=$(</proc/cmdline)
key=${key#*quire.key=}
key=${key%% *}
mkdir -p $root/root/.ssh $root/etc/dropbear
cp "$key.pub" $root/root/.ssh/authorized_keys
chmod 700 $root/root $root/root/.ssh
chmod 600 $root/root/.ssh/authorized_keys
exec chroot $root dropbear -R -F -E -s -p 22
