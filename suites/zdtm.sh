# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Set up cases of zdtm; suites/cases.sh reads this. They may lock memory as they like, and map more than there is.
ulimit -l unlimited
echo 1 > /proc/sys/vm/overcommit_memory
