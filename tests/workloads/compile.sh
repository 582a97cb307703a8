#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The compiler's output does not depend on the kernel's features: prints its checksum.
# compile.sh FILE.c [FLAGS...]; several at once, as a build does it.
set -e
dir=$(mktemp -d /dev/shm/compile.XXXXXX)
source=$1
shift
for i in 1 2 3; do
	gcc -O2 -frandom-seed=1 "$@" -S -o "$dir/$i.s" "$source" &
done
wait
cat "$dir"/?.s | sha256sum
[ "$(sha256sum < "$dir/1.s")" = "$(sha256sum < "$dir/3.s")" ]
rm -rf "$dir"
