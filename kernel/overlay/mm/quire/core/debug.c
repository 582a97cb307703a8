// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/quire: the directory for the features' checkers, and a trigger that provokes
 * the failures that a test rig must be able to tell apart.
 *
 * Locking: quire_dir is written once, before anybody reads it. A write to trigger keeps its state
 * on the stack, and quire_find() and quire_warn() do their own locking. Only cross_locks() and
 * damage() take locks, each its own.
 *
 * Lifetime: the directory and the trigger are made at boot and stay, so no checker's file can
 * outlast its directory.
 *
 * Undo: none; a trigger does the harm that its name says. What leak(), damage() and a bug leave
 * behind stays until the next boot, and a feature that was named stays disabled. hang() ends when
 * its task is killed. dead() and a panic end with the machine.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/processor.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "../../internal.h"
#include "quire.h"

static struct dentry *quire_dir;

/**
 * quire_debugfs - the directory in debugfs
 *
 * Context: any, from late_initcall on.
 * Return: the directory; NULL or an error pointer, which debugfs accepts, if there is none.
 */
struct dentry *quire_debugfs(void)
{
	return quire_dir;
}

/* Write past the end of an object. Only KASAN reports it. */
static noinline void overrun(void)
{
	char *object = kmalloc(24, GFP_KERNEL);

	if (!object)
		return;
	OPTIMIZER_HIDE_VAR(object);
	object[24] = 1;
	kfree(object);
}

/* Interrupts stay on: the machine lives, but this command never ends. */
static void hang(void)
{
	while (!fatal_signal_pending(current))
		msleep_interruptible(100);
}

/* Never returns. Runs in an interrupt or with interrupts off. */
static void spin(void *unused)
{
	for (;;)
		cpu_relax();
}

/*
 * Occupy all CPUs, so that none is left to report a stall or a lockup, to answer, or to end this
 * command: the machine must be ended from outside.
 */
static void dead(void)
{
	on_each_cpu(spin, NULL, 1);
}

/* Lose an object. kmemleak finds it. */
static noinline void leak(void)
{
	void *object = kmalloc(200, GFP_KERNEL);

	OPTIMIZER_HIDE_VAR(object);
}

/* Take two locks in both orders, which lockdep reports as a possible deadlock. */
static void cross_locks(void)
{
	static DEFINE_MUTEX(one);
	static DEFINE_MUTEX(other);

	mutex_lock(&one);
	mutex_lock(&other);
	mutex_unlock(&other);
	mutex_unlock(&one);

	mutex_lock(&other);
	mutex_lock(&one);
	mutex_unlock(&one);
	mutex_unlock(&other);
}

/* Long enough for several watchpoints on each CPU. */
static noinline void count_together(void *count)
{
	int i;

	for (i = 0; i < 200000; i++) {
		(*(unsigned int *)count)++;
		barrier();
	}
}

/* Change a variable on all CPUs at once. Only KCSAN reports it. */
static void race(void)
{
	unsigned int count = 0;

	on_each_cpu(count_together, &count, 1);
}

/*
 * Set a bit of the PMD that maps @addr, as broken memory may. It then looks like one that points to
 * a shared table.
 */
static void damage(unsigned long addr)
{
	struct mm_struct *mm = current->mm;
	spinlock_t *pml;
	pmd_t *pmd;

	mmap_write_lock(mm);
	pmd = mm_find_pmd(mm, addr);
	if (pmd) {
		pml = pmd_lock(mm, pmd);
		if (pmd_present(*pmd) && !pmd_leaf(*pmd))
			set_pmd(pmd, __pmd(pmd_val(*pmd) | _PAGE_SOFTW1));
		spin_unlock(pml);
	}
	mmap_write_unlock(mm);
}

static ssize_t trigger_write(struct file *file, const char __user *ubuf,
			     size_t len, loff_t *pos)
{
	char word[16] = "";
	struct quire_feature *feature;

	if (len >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, ubuf, len))
		return -EFAULT;
	strim(word);
	feature = quire_find(word);
	if (!strcmp(word, "warn"))
		WARN(1, "quire: deliberate warning\n");
	else if (!strcmp(word, "bug"))
		BUG();
	else if (!strcmp(word, "kasan"))
		overrun();
	else if (!strcmp(word, "leak"))
		leak();
	else if (!strcmp(word, "lockdep"))
		cross_locks();
	else if (!strcmp(word, "race"))
		race();
	else if (!strcmp(word, "pmd"))
		damage((unsigned long)ubuf);
	else if (!strcmp(word, "panic"))
		panic("quire: deliberate panic\n");
	else if (!strcmp(word, "hang"))
		hang();
	else if (!strcmp(word, "dead"))
		dead();
	else if (feature)
		quire_warn(feature, "deliberate inconsistency\n");
	else
		return -EINVAL;
	return len;
}

static const struct file_operations trigger_fops = {
	.open = simple_open,
	.write = trigger_write,
	.llseek = noop_llseek,
};

static int __init quire_debug_init(void)
{
	quire_dir = debugfs_create_dir("quire", NULL);
	debugfs_create_file("trigger", 0200, quire_dir, NULL, &trigger_fops);
	return 0;
}
fs_initcall(quire_debug_init);
