// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/quire/mmu_notifier: opening it registers an MMU notifier on
 * the opener's mm, closing it unregisters the notifier. For tests: no ordinary
 * system call registers one.
 *
 * Lifetime: the notifier holds mm_count. If the mm ends first, it has dropped the
 * notifier from its list, and closing the file only frees the notifier.
 */
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "../core/quire.h"

static const struct mmu_notifier_ops silent_ops = {};

static int notifier_open(struct inode *inode, struct file *file)
{
	struct mmu_notifier *notifier = kzalloc(sizeof(*notifier), GFP_KERNEL);
	int ret;

	if (!notifier)
		return -ENOMEM;
	notifier->ops = &silent_ops;
	ret = mmu_notifier_register(notifier, current->mm);
	if (ret) {
		kfree(notifier);
		return ret;
	}
	file->private_data = notifier;
	return 0;
}

static int notifier_release(struct inode *inode, struct file *file)
{
	struct mmu_notifier *notifier = file->private_data;

	mmu_notifier_unregister(notifier, notifier->mm);
	kfree(notifier);
	return 0;
}

static const struct file_operations notifier_fops = {
	.open = notifier_open,
	.release = notifier_release,
};

static int __init fork_notifier_init(void)
{
	debugfs_create_file("mmu_notifier", 0400, quire_debugfs(), NULL, &notifier_fops);
	return 0;
}
late_initcall(fork_notifier_init);
