// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/mm/quire: version, and a directory per feature with enabled, state, its knobs and
 * stats/.
 *
 * Locking: none here. quire_switch() takes the feature's lock; state, knobs and counters are words
 * that are read and written without a lock.
 *
 * Lifetime: everything here is made at boot and is never freed, so no file can outlast what it
 * shows.
 *
 * Undo: a directory that cannot be completed is removed; otherwise none.
 */
#include <linux/init.h>
#include <linux/kstrtox.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "quire.h"

static struct kobject *quire_kobj;

static const char * const state_names[] = {
	[QUIRE_OFF] = "off",
	[QUIRE_ON] = "on",
	[QUIRE_DRAINING] = "draining",
	[QUIRE_DISABLED_BY_WARNING] = "disabled_by_warning",
};

static struct quire_feature *to_feature(struct kobject *kobj)
{
	return container_of(kobj, struct quire_feature, kobj);
}

static ssize_t version_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", QUIRE_VERSION);
}
static struct kobj_attribute version_attr = __ATTR_RO(version);

static ssize_t enabled_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", READ_ONCE(to_feature(kobj)->state) == QUIRE_ON);
}

static ssize_t enabled_store(struct kobject *kobj, struct kobj_attribute *attr,
			     const char *buf, size_t len)
{
	unsigned int to;
	int ret;

	ret = kstrtouint(buf, 10, &to);
	if (ret)
		return -EINVAL;
	ret = quire_switch(to_feature(kobj), to);
	return ret ? ret : len;
}
static struct kobj_attribute enabled_attr = __ATTR_RW(enabled);

static ssize_t state_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", state_names[READ_ONCE(to_feature(kobj)->state)]);
}
static struct kobj_attribute state_attr = __ATTR_RO(state);

static struct attribute *feature_attrs[] = {
	&enabled_attr.attr,
	&state_attr.attr,
	NULL
};
ATTRIBUTE_GROUPS(feature);

/* Never called: the features are static and stay registered. */
static void feature_release(struct kobject *kobj)
{
}

static const struct kobj_type feature_ktype = {
	.release = feature_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = feature_groups,
};

/**
 * quire_uint_show - show a knob over an unsigned int
 * @kobj: the feature's directory
 * @attr: the attribute in a struct quire_uint_attr
 * @buf: a page
 *
 * Context: sysfs; takes no lock.
 * Return: the length of the output.
 */
ssize_t quire_uint_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	struct quire_uint_attr *knob = container_of(attr, struct quire_uint_attr, attr);

	return sysfs_emit(buf, "%u\n", READ_ONCE(*knob->value));
}

/**
 * quire_uint_store - set a knob over an unsigned int
 * @kobj: the feature's directory
 * @attr: the attribute in a struct quire_uint_attr
 * @buf: a decimal number
 * @len: length of @buf
 *
 * The last of two writers wins.
 * Context: sysfs, and store functions of knobs that have their own; takes no lock.
 * Return: @len, or -EINVAL, with nothing changed, if @buf is not a number within the knob's bounds.
 */
ssize_t quire_uint_store(struct kobject *kobj, struct kobj_attribute *attr,
			 const char *buf, size_t len)
{
	struct quire_uint_attr *knob = container_of(attr, struct quire_uint_attr, attr);
	unsigned int value;

	if (kstrtouint(buf, 10, &value) || value < knob->min || value > knob->max)
		return -EINVAL;
	WRITE_ONCE(*knob->value, value);
	return len;
}

static ssize_t stat_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	struct quire_stat_attr *stat = container_of(attr, struct quire_stat_attr, attr);

	return sysfs_emit(buf, "%lu\n", quire_counter(stat->counters, stat->index));
}

static unsigned int nr_stats(const struct quire_feature *f)
{
	const struct quire_counters * const *counters;
	unsigned int i, nr = 0;

	for (counters = f->counters; *counters; counters++)
		for (i = 0; (*counters)->names[i]; i++)
			nr++;
	return nr;
}

static void init_stat(struct quire_stat_attr *stat, const struct quire_counters *counters,
		      unsigned int index)
{
	sysfs_attr_init(&stat->attr.attr);
	stat->attr.attr.name = counters->names[index];
	stat->attr.attr.mode = 0444;
	stat->attr.show = stat_show;
	stat->counters = counters;
	stat->index = index;
}

static int add_stats(struct quire_feature *f)
{
	const struct quire_counters **counters;
	struct attribute_group group = { .name = "stats" };
	const struct attribute **list;
	unsigned int i, nr = nr_stats(f);
	int ret;

	if (!nr)
		return 0;
	f->stats = kcalloc(nr, sizeof(*f->stats), GFP_KERNEL);
	list = kcalloc(nr + 1, sizeof(*list), GFP_KERNEL);
	if (!f->stats || !list) {
		kfree(list);
		return -ENOMEM;
	}
	nr = 0;
	for (counters = f->counters; *counters; counters++) {
		for (i = 0; (*counters)->names[i]; i++, nr++) {
			init_stat(&f->stats[nr], *counters, i);
			list[nr] = &f->stats[nr].attr.attr;
		}
	}
	group.attrs = (struct attribute **)list;
	ret = sysfs_create_group(&f->kobj, &group);
	kfree(list);
	return ret;
}

/**
 * quire_sysfs_add - make a feature's directory
 * @feature: not registered before
 *
 * Context: boot; may sleep.
 * Return: 0, or -errno without a directory.
 */
int quire_sysfs_add(struct quire_feature *feature)
{
	int ret;

	if (!quire_kobj)
		return -ENODEV;
	ret = kobject_init_and_add(&feature->kobj, &feature_ktype, quire_kobj,
				   "%s", feature->name);
	if (ret)
		return ret;
	if (feature->knobs)
		ret = sysfs_create_files(&feature->kobj, feature->knobs);
	if (!ret)
		ret = add_stats(feature);
	if (ret)
		kobject_del(&feature->kobj);
	return ret;
}

/**
 * quire_sysfs_init - make the directory for the features' directories
 *
 * Called once, before quire_sysfs_add(). The directory is used even if the file "version" could not
 * be made.
 * Context: boot; may sleep.
 * Return: 0, -ENOMEM, or the error of the file "version".
 */
int __init quire_sysfs_init(void)
{
	quire_kobj = kobject_create_and_add("quire", mm_kobj);
	if (!quire_kobj)
		return -ENOMEM;
	return sysfs_create_file(quire_kobj, &version_attr.attr);
}
