// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/quire/pt_meet: takes the address of a table at which two processes meet that
 * leave their shared tables in ascending order. The first one waits there, with its locks held,
 * until both have left the table before that one. So neither has given up its count of the table
 * before when the other leaves it. For tests: otherwise this is a matter of chance, and rare on a
 * busy machine. Any process that leaves a table at these addresses counts.
 *
 * Locking: meet_lock excludes a second user of the file, and a second write. The probe takes no
 * lock; it runs under the lock of the process's own PMD and the page table lock of the table that is
 * left. A process that waits keeps those of the table at the address. The other one needs none of
 * them before it has left the table before that, which lets the first go on. Interrupts are on.
 *
 * Lifetime: closing the file lets go of a process that waits, and removes the probe.
 */
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/jiffies.h>
#include <linux/kstrtox.h>
#include <linux/mutex.h>
#include <linux/pgtable.h>
#include <linux/processor.h>
#include <trace/events/quire_pt.h>

#include "../core/quire.h"

#define LONGEST_WAIT	(5 * HZ)	/* then there is no second process; less than a lockup */

static DEFINE_MUTEX(meet_lock);
static bool meet_open;			/* meet_lock */
static unsigned long meet_at;		/* 0: nowhere */
static atomic_t left_before;		/* how many have left the table before meet_at */

static void meet(void *unused, struct mm_struct *mm, unsigned long addr, unsigned int users)
{
	unsigned long end = jiffies + LONGEST_WAIT;

	if (addr + PMD_SIZE == READ_ONCE(meet_at))
		atomic_inc(&left_before);
	while (addr == READ_ONCE(meet_at) && atomic_read(&left_before) < 2 &&
	       time_before(jiffies, end))
		cpu_relax();
}

static int meet_file_open(struct inode *inode, struct file *file)
{
	int ret;

	guard(mutex)(&meet_lock);
	if (meet_open)
		return -EBUSY;
	ret = register_trace_pt_leave(meet, NULL);
	meet_open = !ret;
	return ret;
}

static ssize_t meet_write(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	unsigned long at;
	int ret;

	ret = kstrtoul_from_user(buf, len, 0, &at);
	if (ret)
		return ret;
	guard(mutex)(&meet_lock);
	atomic_set(&left_before, 0);
	WRITE_ONCE(meet_at, at);
	return len;
}

static int meet_release(struct inode *inode, struct file *file)
{
	guard(mutex)(&meet_lock);
	WRITE_ONCE(meet_at, 0);
	unregister_trace_pt_leave(meet, NULL);
	tracepoint_synchronize_unregister();
	meet_open = false;
	return 0;
}

static const struct file_operations meet_fops = {
	.open = meet_file_open,
	.write = meet_write,
	.release = meet_release,
};

static int __init test_meet_init(void)
{
	debugfs_create_file("pt_meet", 0200, quire_debugfs(), NULL, &meet_fops);
	return 0;
}
late_initcall(test_meet_init);
