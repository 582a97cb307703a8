// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/PID/quire: what a process shares, and whether it may share page tables.
 *
 * Each feature adds its lines. The policy is two bits of mm->flags that fork and exec pass on. It
 * is tested before a table is shared, so writing it undoes nothing.
 */
#include <linux/fs.h>
#include <linux/pid.h>
#include <linux/proc_fs.h>
#include <linux/ptrace.h>
#include <linux/sched/coredump.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "../../../fs/proc/internal.h"
#include "quire.h"

static const char *policy_name(struct mm_struct *mm)
{
	switch (READ_ONCE(mm->flags) & MMF_QUIRE_POLICY_MASK) {
	case MMF_QUIRE_NEVER:
		return "0";
	case MMF_QUIRE_ALWAYS:
		return "1";
	default:
		return "default";
	}
}

static struct mm_struct *open_mm(struct inode *inode, unsigned int mode)
{
	struct task_struct *task = get_proc_task(inode);
	struct mm_struct *mm;

	if (!task)
		return ERR_PTR(-ESRCH);
	mm = mm_access(task, mode);
	put_task_struct(task);
	return mm ? mm : ERR_PTR(-ESRCH);
}

static int quire_show(struct seq_file *m, void *v)
{
	struct mm_struct *mm = open_mm(m->private, PTRACE_MODE_READ_FSCREDS);
	int ret;

	if (IS_ERR(mm))
		return PTR_ERR(mm);
	seq_printf(m, "sharing: %s\n", policy_name(mm));
	/* The name in 0.1; to be removed in the next release. */
	seq_printf(m, "fork_policy: %s\n", policy_name(mm));
	ret = quire_show_features(m, mm);
	mmput(mm);
	return ret;
}

static int quire_open(struct inode *inode, struct file *file)
{
	return single_open(file, quire_show, inode);
}

static ssize_t quire_write(struct file *file, const char __user *ubuf, size_t len,
			   loff_t *pos)
{
	unsigned long policy;
	struct mm_struct *mm;
	char word[16] = "";

	if (len >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, ubuf, len))
		return -EFAULT;
	if (sysfs_streq(word, "0"))
		policy = MMF_QUIRE_NEVER;
	else if (sysfs_streq(word, "1"))
		policy = MMF_QUIRE_ALWAYS;
	else if (sysfs_streq(word, "default"))
		policy = 0;
	else
		return -EINVAL;
	mm = open_mm(file_inode(file), PTRACE_MODE_ATTACH_FSCREDS);
	if (IS_ERR(mm))
		return PTR_ERR(mm);
	set_mask_bits(&mm->flags, MMF_QUIRE_POLICY_MASK, policy);
	mmput(mm);
	return len;
}

const struct file_operations proc_pid_quire_operations = {
	.open = quire_open,
	.read = seq_read,
	.write = quire_write,
	.llseek = seq_lseek,
	.release = single_release,
};
