// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/PID/quire: what a process shares, and whether its forks may share.
 *
 * Reading walks the PMDs under mmap_lock; a table counts as shared while its
 * page table lock is held and its PMD is marked. The policy is two bits of
 * mm->flags that fork and exec pass on; writing it changes only later forks.
 */
#include <linux/fs.h>
#include <linux/pagewalk.h>
#include <linux/pid.h>
#include <linux/proc_fs.h>
#include <linux/ptrace.h>
#include <linux/quire/fork.h>
#include <linux/quire/rmap.h>
#include <linux/sched/coredump.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "../../../fs/proc/internal.h"

struct table_count {
	pmd_t *last;		/* several areas may reach into a table */
	unsigned long shared;
	unsigned long owned;
	unsigned long file;
};

static int count_pmd(pmd_t *pmd, unsigned long addr, unsigned long next,
		     struct mm_walk *walk)
{
	struct table_count *count = walk->private;
	spinlock_t *ptl;
	pte_t *pte;

	walk->action = ACTION_CONTINUE;
	if (pmd == count->last || !pmd_pt_marked(pmdp_get_lockless(pmd)))
		return 0;
	count->last = pmd;
	pte = __quire_pte_offset_map_lock(walk->mm, pmd, addr, &ptl);
	if (!pte)
		return 0;
	if (pmd_pt_file(*pmd)) {
		count->file++;
	} else if (pmd_pt_cow(*pmd)) {
		count->shared++;
		count->owned += quire_pt_charged(pmd) == walk->mm;
	}
	pte_unmap_unlock(pte, ptl);
	cond_resched();
	return 0;
}

static const struct mm_walk_ops count_ops = {
	.pmd_entry = count_pmd,
	.walk_lock = PGWALK_RDLOCK,
	QUIRE_READS_SHARED
};

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
	struct table_count count = {};
	int ret = 0;

	if (IS_ERR(mm))
		return PTR_ERR(mm);
	if (test_bit(MMF_QUIRE_SHARED, &mm->flags)) {
		ret = mmap_read_lock_killable(mm);
		if (ret)
			goto out;
		walk_page_range(mm, 0, TASK_SIZE_MAX, &count_ops, &count);
		mmap_read_unlock(mm);
	}
	seq_printf(m, "fork_policy: %s\n", policy_name(mm));
	seq_printf(m, "fork_shared_tables: %lu\n", count.shared);
	seq_printf(m, "fork_shared_kb: %lu\n", count.shared * (PMD_SIZE / 1024));
	seq_printf(m, "fork_charged_tables: %lu\n", count.owned);
	seq_printf(m, "shm_shared_tables: %lu\n", count.file);
	seq_printf(m, "shm_shared_kb: %lu\n", count.file * (PMD_SIZE / 1024));
	ret = quire_rmap_show(m, mm);
out:
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
