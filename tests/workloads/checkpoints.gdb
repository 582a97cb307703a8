# SPDX-License-Identifier: GPL-2.0
# Two checkpoints of a process are taken; then it, gdb, and one of the checkpoints write, and nobody else sees that.
set pagination off
set confirm off
break filled
run
checkpoint
checkpoint
print change(600, 20)
set var area[5 * 512] = 0
printf "process: %lu\n", changed()
restart 1
printf "first: %lu\n", changed()
# A write by ptrace, into a table that is shared until then.
set var area[1500 * 512] = 0
print change(1600, 10)
printf "first, changed: %lu\n", changed()
restart 2
printf "second: %lu\n", changed()
restart 0
printf "process again: %lu\n", changed()
delete checkpoint 1
printf "process alone with one: %lu\n", changed()
# The second goes on to its end, and then the process to its own.
restart 2
continue
continue
