// SPDX-License-Identifier: GPL-2.0
/*
 * Registration and switching of quire's features.
 *
 * Locking: a feature's lock covers its state. It is taken before any other lock and held across
 * start, stop and drain. Each feature has its own lock, so a feature that waits for long does not
 * keep the others from being switched. quire_list_lock serialises writers of the list of features.
 * The list only grows, so readers need RCU alone. The boot option is parsed before there are other
 * threads and is read-only afterwards.
 *
 * Undo: "0" closes the gate and stops the feature; "2" also drains it. quire_break() closes a
 * feature that found an inconsistency, and it cannot be opened again.
 */
#define pr_fmt(fmt) "quire: " fmt

#include <linux/init.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/quire/core.h>
#include <linux/rculist.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "quire.h"

static DEFINE_SPINLOCK(quire_list_lock);
static LIST_HEAD(quire_features);
static char quire_boot_list[64] __ro_after_init;

static int __init quire_setup(char *arg)
{
	if (arg && strscpy(quire_boot_list, arg, sizeof(quire_boot_list)) >= 0)
		return 0;
	/* Do not keep the part that fits. */
	quire_boot_list[0] = 0;
	return -EINVAL;
}
early_param("quire", quire_setup);

/**
 * quire_list_has - does the value of quire= switch a feature on?
 * @list: "on", "off", or names separated by commas
 * @name: the feature's name
 *
 * Context: any.
 * Return: whether it does.
 */
bool quire_list_has(const char *list, const char *name)
{
	size_t len = strlen(name);

	if (!strcmp(list, "on"))
		return true;
	while (*list) {
		size_t word = strcspn(list, ",");

		if (word == len && !strncmp(list, name, len))
			return true;
		list += word;
		list += *list == ',';
	}
	return false;
}

/**
 * quire_counter - sum of one counter over all CPUs
 * @counters: the group that contains the counter
 * @index: its index, in the order of the names
 *
 * Not a snapshot: the CPUs may increment it meanwhile.
 * Context: any.
 * Return: the sum.
 */
unsigned long quire_counter(const struct quire_counters *counters, unsigned int index)
{
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(counters->counts, cpu)[index]);
	return sum;
}

static void show_counters(struct seq_file *m, const char *feature,
			  const struct quire_counters *counters)
{
	unsigned int i;

	for (i = 0; counters->names[i]; i++)
		seq_printf(m, "quire_%s_%s %lu\n", feature, counters->names[i],
			   quire_counter(counters, i));
}

/**
 * quire_vmstat_show - append all features' counters to /proc/vmstat
 * @m: the file
 *
 * Does not wait for a feature that is being switched or drained.
 * Context: any.
 */
void quire_vmstat_show(struct seq_file *m)
{
	const struct quire_counters **counters;
	struct quire_feature *f;

	rcu_read_lock();
	list_for_each_entry_rcu(f, &quire_features, list)
		for (counters = f->counters; *counters; counters++)
			show_counters(m, f->name, *counters);
	rcu_read_unlock();
}

/**
 * quire_show_features - show what each feature says of a process
 * @m: the file
 * @mm: the process's mm; the caller holds mm_users
 *
 * Features are never unregistered, so the walk over the list needs no RCU.
 * Context: may sleep.
 * Return: 0, or the first error of a feature.
 */
int quire_show_features(struct seq_file *m, struct mm_struct *mm)
{
	struct quire_feature *f;
	int ret = 0;

	list_for_each_entry_rcu(f, &quire_features, list, true) {
		if (f->show)
			ret = f->show(m, mm);
		if (ret)
			break;
	}
	return ret;
}

static void quire_close(struct quire_feature *f)
{
	lockdep_assert_held(&f->lock);
	if (f->state != QUIRE_ON)
		return;
	static_branch_disable(f->key);
	if (f->stop)
		f->stop();
	WRITE_ONCE(f->state, QUIRE_OFF);
}

static int quire_open(struct quire_feature *f)
{
	int ret = 0;

	lockdep_assert_held(&f->lock);
	if (f->state == QUIRE_ON)
		return 0;
	if (f->start)
		ret = f->start();
	if (ret)
		return ret;
	static_branch_enable(f->key);
	WRITE_ONCE(f->state, QUIRE_ON);
	return 0;
}

/*
 * A drain that fails leaves the feature off with something still shared. That is a valid state: the
 * next "2" tries again.
 */
static int quire_close_and_drain(struct quire_feature *f)
{
	int ret = 0;

	quire_close(f);
	WRITE_ONCE(f->state, QUIRE_DRAINING);
	if (f->drain)
		ret = f->drain();
	WRITE_ONCE(f->state, QUIRE_OFF);
	return ret;
}

/**
 * quire_switch - change a feature's state
 * @feature: the feature
 * @to: 0 off, 1 on, 2 off and undo what is shared or pooled
 *
 * A feature that a warning has disabled cannot be switched on, but 2 still drains it.
 * Context: may sleep.
 * Return: 0, -EINVAL for another @to, -EPERM if a warning has disabled the feature, or the
 * feature's own error.
 */
int quire_switch(struct quire_feature *feature, unsigned int to)
{
	int ret = 0;

	if (to > 2)
		return -EINVAL;
	mutex_lock(&feature->lock);
	if (to == 0)
		quire_close(feature);
	else if (to == 2)
		ret = quire_close_and_drain(feature);
	else if (READ_ONCE(feature->broken))
		ret = -EPERM;
	else
		ret = quire_open(feature);
	if (READ_ONCE(feature->broken)) {
		quire_close(feature);
		WRITE_ONCE(feature->state, QUIRE_DISABLED_BY_WARNING);
	}
	mutex_unlock(&feature->lock);
	return ret;
}

/*
 * Close the gate before taking the lock, whose holder may wait for long. If the holder opens the
 * gate meanwhile, quire_switch() sees the feature on and closes it again.
 */
static void quire_disable_work(struct work_struct *work)
{
	struct quire_feature *f = container_of(work, struct quire_feature, disable_work);

	static_branch_disable(f->key);
	quire_switch(f, 0);
}

/**
 * quire_break - disable a feature for good
 * @feature: the feature
 *
 * A work item closes the gate soon afterwards. Use quire_warn().
 * Context: any.
 */
void quire_break(struct quire_feature *feature)
{
	if (!xchg(&feature->broken, true))
		schedule_work(&feature->disable_work);
}

/**
 * quire_find - find a registered feature by name
 * @name: the name in the boot option
 *
 * Features are never unregistered.
 * Context: any.
 * Return: the feature, or NULL.
 */
struct quire_feature *quire_find(const char *name)
{
	struct quire_feature *f, *found = NULL;

	rcu_read_lock();
	list_for_each_entry_rcu(f, &quire_features, list)
		if (!strcmp(f->name, name))
			found = f;
	rcu_read_unlock();
	return found;
}

/**
 * quire_register - register a feature, and start it if the boot option says so
 * @feature: static storage; name, key and counters are set
 *
 * Called once per feature. A feature that fails to start is reported and stays off.
 * Context: late_initcall; may sleep.
 * Return: 0 or the error of sysfs.
 */
int quire_register(struct quire_feature *feature)
{
	int ret;

	mutex_init(&feature->lock);
	INIT_WORK(&feature->disable_work, quire_disable_work);
	ret = quire_sysfs_add(feature);
	if (ret) {
		pr_err("%s: no folder in sysfs (%d), the feature stays off\n",
		       feature->name, ret);
		return ret;
	}
	spin_lock(&quire_list_lock);
	list_add_tail_rcu(&feature->list, &quire_features);
	spin_unlock(&quire_list_lock);

	if (quire_list_has(quire_boot_list, feature->name)) {
		ret = quire_switch(feature, 1);
		if (ret)
			pr_err("%s: cannot be switched on (%d)\n", feature->name, ret);
	}
	return 0;
}

/* Runs after all late_initcalls, when every feature is known. */
static int __init quire_check_boot_list(void)
{
	char words[sizeof(quire_boot_list)], *rest = words, *word;

	/* In a list, these are names that no feature has. */
	if (!strcmp(quire_boot_list, "on") || !strcmp(quire_boot_list, "off"))
		return 0;
	strscpy(words, quire_boot_list, sizeof(words));
	while ((word = strsep(&rest, ",")))
		if (*word && !quire_find(word))
			pr_warn("boot option quire=: no feature is named '%s'\n", word);
	return 0;
}
late_initcall_sync(quire_check_boot_list);

static int __init quire_init(void)
{
	return quire_sysfs_init();
}
subsys_initcall(quire_init);
