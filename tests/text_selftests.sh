#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Run the kernel's own selftests of huge pages, of exec and of tracing in a guest:
# text_selftests.sh FOLDER TEST... where FOLDER holds the programs, and a NAME.tc is ftrace's.
# Prints each one's output between "== TEST" and "== TEST status N".
# SLOWDOWN multiplies the limit of each.
# khugepaged wants swap, and an ext4 folder for its files.
set -u
programs=$1
shift
ftrace=$(cd "$(dirname "$0")/../build/base/tools/testing/selftests/ftrace" && pwd)
work=/tmp/text_selftests
mkdir -p $work/mnt
cp -a "$programs" $work/programs
cd $work/programs || exit 1
touch Makefile
mkdir -p subdir
printf '#!/bin/bash\nexit $*\n' > script
chmod +x script
ln -sf execveat execveat.symlink
cp execveat execveat.denatured
chmod -x execveat.denatured
echo 512M > /sys/block/zram0/disksize
mkswap /dev/zram0 > /dev/null && swapon /dev/zram0
truncate -s 256M $work/image
mkfs.ext4 -q -F -b 4096 $work/image && mount -o loop $work/image $work/mnt
for test; do
	echo "== $test"
	case $test in
	khugepaged) timeout $((900 * ${SLOWDOWN:-1})) ./khugepaged all:all $work/mnt 2>&1 ;;
	*.tc) timeout $((300 * ${SLOWDOWN:-1})) "$ftrace/ftracetest" -K -l $work/logs "$ftrace/test.d/$test" 2>&1 ;;
	*) timeout $((300 * ${SLOWDOWN:-1})) "./$test" 2>&1 ;;
	esac
	echo "== $test status $?"
done
