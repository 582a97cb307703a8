// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/quire/shm_walk: writing the file descriptor of shared memory begins a walk
 * over the VMAs that map it, and closing the file ends the walk. The walk visits no VMA. For
 * tests: no walk by a system call lasts as long as the tests need.
 *
 * Lifetime: the walk holds the file, and with it the mapping.
 */
#include <linux/debugfs.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/init.h>
#include <linux/kstrtox.h>
#include <linux/mutex.h>
#include <linux/quire/shm.h>
#include <linux/slab.h>

#include "../core/quire.h"

struct test_walk {
	struct mutex lock;
	struct file *file;	/* NULL before the walk has begun */
	atomic_t *walks;
};

static int walk_open(struct inode *inode, struct file *file)
{
	struct test_walk *walk = kzalloc(sizeof(*walk), GFP_KERNEL);

	if (!walk)
		return -ENOMEM;
	mutex_init(&walk->lock);
	file->private_data = walk;
	return 0;
}

static ssize_t walk_write(struct file *file, const char __user *buf, size_t len, loff_t *pos)
{
	struct test_walk *walk = file->private_data;
	struct file *target;
	unsigned int fd;
	int ret;

	ret = kstrtouint_from_user(buf, len, 10, &fd);
	if (ret)
		return ret;
	target = fget(fd);
	if (!target)
		return -EBADF;
	guard(mutex)(&walk->lock);
	if (walk->file) {
		fput(target);
		return -EBUSY;
	}
	/* The i_mmap lock is not needed, because the walk visits no VMA. */
	walk->walks = quire_shm_walk_begin(&target->f_mapping->i_mmap);
	if (!walk->walks) {
		fput(target);
		return -EINVAL;
	}
	walk->file = target;
	return len;
}

static int walk_release(struct inode *inode, struct file *file)
{
	struct test_walk *walk = file->private_data;

	if (walk->file) {
		quire_shm_walk_end(walk->walks);
		fput(walk->file);
	}
	mutex_destroy(&walk->lock);
	kfree(walk);
	return 0;
}

static const struct file_operations walk_fops = {
	.open = walk_open,
	.write = walk_write,
	.release = walk_release,
};

static int __init test_walk_init(void)
{
	debugfs_create_file("shm_walk", 0200, quire_debugfs(), NULL, &walk_fops);
	return 0;
}
late_initcall(test_walk_init);
