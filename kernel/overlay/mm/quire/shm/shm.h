/* SPDX-License-Identifier: GPL-2.0 */
/* The shm feature's own files to each other, and to those of fork. */
#ifndef _MM_QUIRE_SHM_H
#define _MM_QUIRE_SHM_H

#include <linux/mm.h>
#include <linux/quire/pt.h>
#include <linux/quire/shm.h>
#include <linux/sched.h>

#include "../core/quire.h"

#ifdef CONFIG_QUIRE_SHM
extern struct quire_feature quire_shm_feature;
extern struct mm_struct *quire_shm_mm;

/* The task that stands for a process, or NULL; the RCU read lock is held. */
static inline struct task_struct *quire_mm_task(struct mm_struct *mm)
{
#ifdef CONFIG_MEMCG
	return rcu_dereference(mm->owner);
#else
	/* Nothing leads from an mm to its process: its own threads alone can tell. */
	return mm == current->mm && !(current->flags & (PF_KTHREAD | PF_USER_WORKER)) ?
		current : NULL;
#endif
}

unsigned long quire_shm_tables(void);
void quire_shm_leave_mm_now(struct mm_struct *mm);
const char *quire_shm_check(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr);

/* Pages that all tables together map, of which a process may reach all; 0 if it has none. */
static inline unsigned long quire_shm_reached(struct mm_struct *mm)
{
	return test_bit(MMF_QUIRE_SHM, &mm->flags) ?
	       get_mm_counter_sum(quire_shm_mm, MM_SHMEMPAGES) : 0;
}
#else
#define quire_shm_mm	((struct mm_struct *)NULL)

static inline unsigned long quire_shm_tables(void)
{
	return 0;
}

static inline unsigned long quire_shm_reached(struct mm_struct *mm)
{
	return 0;
}

static inline const char *quire_shm_check(struct vm_area_struct *vma, pmd_t *pmd,
					  unsigned long addr)
{
	return NULL;
}
#endif

#endif /* _MM_QUIRE_SHM_H */
