#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Keeps what a guest with the kernel gcov has counted: coverage.sh FOLDER, where it gets a folder of its own.
# The files of debugfs have no size that cp would believe.
[ -d /sys/kernel/debug/gcov ] || exit 0
cd /sys/kernel/debug/gcov || exit 1
kept=$(mktemp -d "$1/guest.XXXXXX") || exit 1
find . -name '*.gcda' | while read -r name; do
	mkdir -p "$kept/${name%/*}"
	cat "$name" > "$kept/$name"
done
