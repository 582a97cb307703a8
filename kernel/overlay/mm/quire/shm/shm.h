/* SPDX-License-Identifier: GPL-2.0 */
/* Declarations for the shm feature's own files. */
#ifndef _MM_QUIRE_SHM_H
#define _MM_QUIRE_SHM_H

#include <linux/mm.h>
#include <linux/quire/pt_state.h>
#include <linux/quire/shm.h>
#include <linux/rhashtable-types.h>
#include <linux/sched.h>
#include <linux/workqueue.h>

#include "../core/quire.h"
#include "../pt/pt.h"

extern struct quire_feature quire_shm_feature;

enum shm_count {
	SHM_PUBLISHED,		/* a table began to be shared */
	SHM_JOINED,		/* one more process uses a table */
	SHM_LEFT,		/* one process less uses a table */
	SHM_DROPPED,		/* the last user left and dropped the table */
	SHM_ADOPTED,		/* the last user kept the table for itself */
	SHM_UNLISTED,		/* a table was kept out of the registry because of a walk */
	SHM_MERGED,		/* an unlisted table was given up for the listed one */
	SHM_ZAPPED,		/* entries that truncation dropped for all users */
	SHM_WAITS,		/* a fault waited for unannounced walks */
	SHM_REFUSED_POLICY,
	SHM_REFUSED_FEW_TABLES,
	SHM_REFUSED_VMA,
	SHM_REFUSED_RANGE,
	SHM_REFUSED_HUGE,
	SHM_REFUSED_NOTIFIER,
	SHM_REFUSED_FOREIGN,
	SHM_REFUSED_USERS,
	SHM_REFUSED_NOMEM,
	SHM_NR_COUNTS,
};

extern const char * const quire_shm_count_names[];
DECLARE_PER_CPU(unsigned long [SHM_NR_COUNTS], quire_shm_counts);
#define shm_count(id)		this_cpu_inc(quire_shm_counts[id])
#define shm_count_add(id, n)	this_cpu_add(quire_shm_counts[id], n)

/* A VMA with fewer tables is mapped as in vanilla; sharing a few saves less than it costs. */
extern unsigned int quire_shm_min_tables;
/* May processes of different users share? One user could time the other's faults. */
extern unsigned int quire_shm_cross_user;

/* Compared as bytes: no padding. All zeroes stand for all users together. */
struct shm_user_key {
	struct user_namespace *ns;
	u64 uid;
};

/*
 * Key: A atomic, B bucket lock of the hash table, C constant, O without a lock, by READ_ONCE() and
 * WRITE_ONCE()
 */
struct shm_user {
	struct rhash_head node;		/* B */
	struct shm_user_key key;	/* C */
	struct mm_struct *mm;		/* C: charged for the entries; has no tasks and no VMAs */
	refcount_t refs;		/* A: of each table and each process that has tables */
	unsigned long stamp, pages;	/* O: when they were last summed, and the sum */
	struct rcu_work free;
};

/* The flags that determine the entries' protection, together with vm_page_prot. */
#define QUIRE_SHM_KEY_FLAGS \
	(VM_READ | VM_WRITE | VM_EXEC | VM_MAYREAD | VM_MAYWRITE | VM_MAYEXEC)

/* Compared as bytes: no padding. */
struct shm_key {
	struct address_space *mapping;
	pgoff_t pgoff;			/* of the first entry */
	u64 prot;			/* vm_page_prot */
	u64 flags;			/* the VM_* bits of QUIRE_SHM_KEY_FLAGS */
	struct shm_user_key user;	/* all zeroes if all users may share with each other */
};

/* Key: B the registry's bucket lock, C constant, L @lock, P the table's page table lock */
struct shm_table {
	struct rhash_head node;		/* B */
	struct shm_key key;		/* C */
	struct shm_user *user;		/* C */
	struct ptdesc *pt;		/* C until @gone; then NULL if it was adopted */
	spinlock_t lock;
	bool listed;			/* L: the table is in the registry */
	bool gone;			/* L: no PMD leads to the table, or it was adopted */
	unsigned long left;		/* P: RCU's state when the last but one user left */
	struct rcu_head rcu;
};

/* table.c */
struct shm_table *quire_shm_alloc_table(struct mm_struct *mm, const struct shm_key *key,
					struct shm_user *user);
void quire_shm_free_table(struct shm_table *table);
int quire_shm_join_table(struct vm_fault *vmf, const struct shm_key *key);
int quire_shm_publish_table(struct vm_fault *vmf, struct shm_table **tablep, bool listed);
bool quire_shm_merge_table(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr);
int quire_shm_tables_init(void);

/* join.c */
bool quire_shm_shareable(struct vm_area_struct *vma);
bool quire_shm_announced(struct address_space *mapping);

/* user.c */
void quire_shm_put_user(struct shm_user *user);
struct shm_user *quire_shm_count_pmd(struct mm_struct *mm, const struct shm_user_key *key);
void quire_shm_uncount_pmd(struct mm_struct *mm, struct shm_user *user);
bool quire_shm_user_of(struct shm_user_key *key, struct mm_struct *mm);
unsigned long quire_shm_pmds(struct mm_struct *mm);
long quire_shm_mapped(int type);
unsigned long quire_shm_reached(struct mm_struct *mm, unsigned long *tables);
int quire_shm_users_init(void);

/* Get another reference for a table; the caller has one already. */
static inline struct shm_user *quire_shm_get_user(struct shm_user *user)
{
	refcount_inc(&user->refs);
	return user;
}

/* The task that stands for a process, or NULL; the RCU read lock is held. */
static inline struct task_struct *quire_mm_task(struct mm_struct *mm)
{
#ifdef CONFIG_MEMCG
	return rcu_dereference(mm->owner);
#else
	/* Nothing leads from an mm to its process: only the process's own threads can tell. */
	return mm == current->mm && !(current->flags & (PF_KTHREAD | PF_USER_WORKER)) ?
		current : NULL;
#endif
}

/* mm_alloc() made the current task the owner of a pseudo process, which outlives the task. */
static inline void quire_mm_disown(struct mm_struct *mm)
{
#ifdef CONFIG_MEMCG
	RCU_INIT_POINTER(mm->owner, NULL);
#endif
}

unsigned long quire_shm_tables(void);
void quire_shm_leave_mm_now(struct mm_struct *mm);
const char *quire_shm_check(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr);

#endif /* _MM_QUIRE_SHM_H */
