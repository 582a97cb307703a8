/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What quire's features have in common: registration, switching, counters.
 *
 * A feature is one static struct quire_feature that is registered once at boot and never goes away.
 * Its hooks in Linux's own files test @key and nothing else. @lock serialises every change of
 * state. It is the outermost of quire's locks and is held across @start, @stop and @drain, which
 * may sleep.
 */
#ifndef _MM_QUIRE_QUIRE_H
#define _MM_QUIRE_QUIRE_H

#include <linux/jump_label.h>
#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/sysfs.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#define QUIRE_VERSION "0.1"

enum quire_state {
	QUIRE_OFF,
	QUIRE_ON,
	QUIRE_DRAINING,
	QUIRE_DISABLED_BY_WARNING,
};

struct mm_struct;
struct seq_file;

/**
 * struct quire_counters - a group of counters
 * @names: NULL-terminated, for stats/ and /proc/vmstat
 * @counts: per-CPU array, one element per name, in the same order
 */
struct quire_counters {
	const char * const *names;
	unsigned long __percpu *counts;
};

/* A feature's own, and those of the layer below. */
#define QUIRE_MAX_COUNTERS 2

/**
 * struct quire_feature - one switchable feature
 * @name: (C) its directory in /sys/kernel/mm/quire and its word in quire=
 * @key: (C) the gate that hooks test; enabled after @start, disabled before @stop
 * @start: (C) prepare; may sleep; an error keeps the feature off. May be NULL.
 * @stop: (C) nothing new is shared or pooled when it returns. May be NULL.
 * @drain: (C) undo all that is shared or pooled; may sleep; 0 or -errno, -EINTR if a signal is
 *	pending, after which a second attempt must be possible. May be NULL.
 * @knobs: (C) NULL-terminated attributes for the directory, or NULL
 * @counters: (C) what is in stats/ and /proc/vmstat, NULL-terminated; no name occurs twice
 * @show: (C) add lines to /proc/PID/quire; may sleep; the caller holds mm_users; 0 or -errno. May
 *	be NULL.
 * @lock: serialises the changes of @state
 * @state: (L) read without the lock for display
 * @broken: (A) an inconsistency was found; set once, never cleared
 * @kobj: (B) the directory
 * @stats: (B) the attributes made for @counters; never freed
 * @disable_work: (B) disables the feature after a warning
 * @list: (R) in the list of features
 *
 * Key: A atomic, B set at boot by quire_register(), C constant, L @lock, R quire_list_lock for
 * writing and RCU for reading
 */
struct quire_feature {
	const char *name;
	struct static_key_false *key;
	int (*start)(void);
	void (*stop)(void);
	int (*drain)(void);
	const struct attribute * const *knobs;
	const struct quire_counters *counters[QUIRE_MAX_COUNTERS + 1];
	int (*show)(struct seq_file *m, struct mm_struct *mm);

	struct mutex lock;
	enum quire_state state;
	bool broken;
	struct kobject kobj;
	struct quire_stat_attr *stats;
	struct work_struct disable_work;
	struct list_head list;
};

/* One counter's file; @index is its index in @counters. */
struct quire_stat_attr {
	struct kobj_attribute attr;
	const struct quire_counters *counters;
	unsigned int index;
};

/* A knob over an unsigned int with bounds; see QUIRE_UINT_KNOB(). */
struct quire_uint_attr {
	struct kobj_attribute attr;
	unsigned int *value;
	unsigned int min, max;
};

ssize_t quire_uint_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf);
ssize_t quire_uint_store(struct kobject *kobj, struct kobj_attribute *attr,
			 const char *buf, size_t len);

/**
 * QUIRE_UINT_KNOB - define a knob over an unsigned int
 * @_name: file name, with the unit in it
 * @_var: the variable; its users read it with READ_ONCE()
 * @_min: smallest value that is accepted
 * @_max: largest value that is accepted; others are -EINVAL and change nothing
 *
 * Put &@_name_knob.attr.attr into the feature's knobs.
 */
#define QUIRE_UINT_KNOB(_name, _var, _min, _max)				\
	static struct quire_uint_attr _name##_knob = {				\
		.attr = __ATTR(_name, 0644, quire_uint_show, quire_uint_store),	\
		.value = &(_var), .min = (_min), .max = (_max),			\
	}

/* For knobs with their own show and store functions. */
#define QUIRE_ATTR_RW(_name) \
	static struct kobj_attribute _name##_knob = __ATTR_RW(_name)
#define QUIRE_ATTR_RO(_name) \
	static struct kobj_attribute _name##_knob = __ATTR_RO(_name)
#define QUIRE_ATTR_WO(_name) \
	static struct kobj_attribute _name##_knob = __ATTR_WO(_name)

int quire_register(struct quire_feature *feature);
int quire_switch(struct quire_feature *feature, unsigned int to);
struct quire_feature *quire_find(const char *name);
unsigned long quire_counter(const struct quire_counters *counters, unsigned int index);
int quire_show_features(struct seq_file *m, struct mm_struct *mm);
bool quire_list_has(const char *list, const char *name);

/* sysfs.c */
int quire_sysfs_init(void);
int quire_sysfs_add(struct quire_feature *feature);

/* debug.c: the directory in debugfs, NULL if CONFIG_QUIRE_DEBUG is not set */
#ifdef CONFIG_QUIRE_DEBUG
struct dentry *quire_debugfs(void);
#else
static inline struct dentry *quire_debugfs(void) { return NULL; }
#endif

void quire_break(struct quire_feature *feature);

/**
 * quire_warn - report an inconsistency and disable the feature for good
 * @feature: pointer to the feature
 * @fmt: what is wrong
 *
 * Warns once per call site. A work item disables the key.
 * Context: any.
 */
#define quire_warn(feature, fmt, ...) do {				\
	WARN_ONCE(1, "quire: %s: " fmt, (feature)->name, ##__VA_ARGS__);	\
	quire_break(feature);						\
} while (0)

/**
 * struct quire_mm_walk - a walk over all address spaces
 * @next: the lowest process ID to look at
 * @seen: the address spaces that were visited
 */
struct quire_mm_walk {
	pid_t next;
	struct xarray seen;
};

void quire_mm_walk_begin(struct quire_mm_walk *walk);
struct mm_struct *quire_mm_walk_next(struct quire_mm_walk *walk);
void quire_mm_walk_end(struct quire_mm_walk *walk);
int quire_mm_lock(struct mm_struct *mm);
int quire_mm_drain(int flag, void (*undo)(struct mm_struct *mm), unsigned long (*left)(void));

#endif /* _MM_QUIRE_QUIRE_H */
