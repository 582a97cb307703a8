// SPDX-License-Identifier: GPL-2.0
/*
 * A page fault of shared memory finds a table that other processes use, or offers one. shm.c
 * has the rules.
 */
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>
#include <linux/sched/coredump.h>
#include <linux/sched/mm.h>
#include <linux/shmem_fs.h>
#include <linux/user_namespace.h>
#include <linux/userfaultfd_k.h>

#include "../../internal.h"
#include "../pt/pt.h"
#include "shm.h"

#include <trace/events/quire_shm.h>

/* A shared table would break what these promise. */
#define UNSHAREABLE (VM_SPECIAL | VM_LOCKED_MASK | VM_HUGETLB | VM_UFFD_MISSING |	\
		     VM_UFFD_WP | VM_UFFD_MINOR | VM_SHADOW_STACK | VM_DROPPABLE |	\
		     VM_GROWSDOWN | VM_GROWSUP)

/**
 * quire_shm_shareable - may tables of a VMA be shared
 * @vma: the VMA
 *
 * MAP_SHARED of a file that was opened for reading has VM_MAYSHARE alone. It cannot be
 * made writable, so no page of it is ever copied, and its key is that of other readers:
 * those who mapped a file that is sealed against writing have VM_SHARED, and may no more.
 * Context: the VMA's lock or mmap_lock is held.
 */
bool quire_shm_shareable(struct vm_area_struct *vma)
{
	const struct vm_operations_struct *ops = vma->vm_ops;

	if (!vma->vm_file || !shmem_mapping(vma->vm_file->f_mapping) ||
	    !(vma->vm_flags & VM_MAYSHARE) || (vma->vm_flags & UNSHAREABLE))
		return false;
	/* The file's pages at the file's offsets, and nobody wants to know of writes. */
	if (!ops || !ops->fault || ops->huge_fault || ops->page_mkwrite || ops->pfn_mkwrite)
		return false;
	if (IS_ENABLED(CONFIG_MEM_SOFT_DIRTY) && !(vma->vm_flags & VM_SOFTDIRTY))
		return false;
	return !vma->anon_vma && !userfaultfd_armed(vma);
}

/* A huge page is there, or may come: one PMD is better than any table. */
static bool huge_wanted(struct vm_area_struct *vma, pgoff_t pgoff)
{
	struct address_space *mapping = vma->vm_file->f_mapping;
	struct folio *folio;
	bool huge;

	if (!IS_ALIGNED(pgoff, PTRS_PER_PTE))
		return false;
	if (shmem_allowable_huge_orders(mapping->host, vma, pgoff, 0, false) & BIT(PMD_ORDER))
		return true;
	folio = filemap_get_folio(mapping, pgoff);
	if (IS_ERR(folio))
		return false;
	huge = folio_test_pmd_mappable(folio) && !vma_thp_disabled(vma, vma->vm_flags);
	folio_put(folio);
	return huge;
}

/* Returns the counter of the reason not to share, or -1. */
static int refusal(struct vm_area_struct *vma, unsigned long addr)
{
	struct mm_struct *mm = vma->vm_mm;
	unsigned long policy = READ_ONCE(mm->flags) & MMF_QUIRE_POLICY_MASK;

	if (policy == MMF_QUIRE_NEVER)
		return SHM_REFUSED_POLICY;
	if (!quire_shm_shareable(vma))
		return SHM_REFUSED_VMA;
	if (addr < vma->vm_start || vma->vm_end - addr < PMD_SIZE)
		return SHM_REFUSED_RANGE;
	if (policy != MMF_QUIRE_ALWAYS &&
	    (vma->vm_end - vma->vm_start) / PMD_SIZE < READ_ONCE(quire_shm_min_tables))
		return SHM_REFUSED_FEW_TABLES;
	if (mm_has_notifiers(mm))
		return SHM_REFUSED_NOTIFIER;
	if (huge_wanted(vma, linear_page_index(vma, addr)))
		return SHM_REFUSED_HUGE;
	return -1;
}

/* False if nobody owns the mm. The key holds its user's namespace. */
static bool make_key(struct shm_key *key, struct vm_area_struct *vma, unsigned long addr)
{
	memset(key, 0, sizeof(*key));
	key->mapping = vma->vm_file->f_mapping;
	key->pgoff = linear_page_index(vma, addr);
	key->prot = pgprot_val(vma->vm_page_prot);
	key->flags = vma->vm_flags & QUIRE_SHM_KEY_FLAGS;
	return READ_ONCE(quire_shm_cross_user) || quire_shm_user_of(&key->user, vma->vm_mm);
}

/* In the flags of an address_space; beyond the bits that Linux has names for. */
#define AS_QUIRE_ANNOUNCED	40

/**
 * quire_shm_announced - has every walk over a file's VMAs announced itself
 * @mapping: the file's
 */
bool quire_shm_announced(struct address_space *mapping)
{
	BUILD_BUG_ON(BIT(AS_QUIRE_ANNOUNCED) & AS_FOLIO_ORDER_MASK);
	return test_bit_acquire(AS_QUIRE_ANNOUNCED, &mapping->flags);
}

/*
 * Walks over a file's VMAs that began before the feature was ever on have not
 * announced themselves, and may sleep, so that shm_start() does not wait for them.
 * They hold the file's i_mmap lock from before their first PMD until after their
 * last.
 *
 * To wait for that lock once is enough for all the file's tables: quire_pt_used_key
 * was enabled before any fault came here, and is never disabled. Who takes the lock
 * after we had it sees the key and announces his walk; who had it before us has let
 * go of it. So once the flag is set there is no such walk of the file and there will
 * be none. An inode that is used again begins without flags. Who finds the flag set
 * sees all that happened before, by the acquire here and the lock's.
 */
static void wait_for_unannounced(struct address_space *mapping)
{
	if (quire_shm_announced(mapping))
		return;
	shm_count(SHM_WAITS);
	i_mmap_lock_write(mapping);
	/* Not after the unlock: who sees the flag must see that we had the lock. */
	set_bit(AS_QUIRE_ANNOUNCED, &mapping->flags);
	i_mmap_unlock_write(mapping);
}

/*
 * 1: the PMD is set; 0: by somebody else; -ENOMEM. While a walk is under way the process has
 * a table that others cannot find, and its next fault there tries again.
 */
static int join_or_publish(struct vm_fault *vmf, const struct shm_key *key,
			   struct shm_user *user)
{
	struct shm_table *new = NULL;
	int ret;

	do {
		ret = quire_shm_join_table(vmf, key);
		if (ret >= 0)
			break;
		if (!new)
			new = quire_shm_alloc_table(vmf->vma->vm_mm, key, user);
		if (!new) {
			ret = -ENOMEM;
			break;
		}
		if (ret != -EBUSY)
			wait_for_unannounced(key->mapping);
		ret = quire_shm_publish_table(vmf, &new, ret != -EBUSY);
	} while (ret == -EEXIST);
	if (new)
		quire_shm_free_table(new);
	return ret;
}

/* As join_or_publish(), and count the PMD for the process's user. */
static int join_as_user(struct vm_fault *vmf, const struct shm_key *key)
{
	struct mm_struct *mm = vmf->vma->vm_mm;
	struct shm_user *user = quire_shm_count_pmd(mm, &key->user);
	int ret;

	if (IS_ERR(user))
		return PTR_ERR(user);
	ret = join_or_publish(vmf, key, user);
	if (ret <= 0)
		quire_shm_uncount_pmd(mm, user);
	return ret;
}

/*
 * As join_as_user(). The memory cgroup of the process pays for what is new, and not
 * that of whoever looks at its memory.
 */
static int join_for_process(struct vm_fault *vmf, const struct shm_key *key)
{
	struct mm_struct *mm = vmf->vma->vm_mm;
	struct mem_cgroup *memcg, *old;
	int ret;

	if (mm == current->mm && !(current->flags & PF_KTHREAD))
		return join_as_user(vmf, key);
	memcg = get_mem_cgroup_from_mm(mm);
	old = set_active_memcg(memcg);
	ret = join_as_user(vmf, key);
	set_active_memcg(old);
	mem_cgroup_put(memcg);
	return ret;
}

static void fall_back(struct vm_area_struct *vma, unsigned long addr,
		      enum shm_count reason)
{
	shm_count(reason);
	trace_shm_fallback(vma->vm_mm, addr, quire_shm_count_names[reason]);
}

/**
 * __quire_shm_join - have a page fault use a shared table, where it may
 * @vmf: the fault's; its PMD was none, or led to a table that others cannot find
 *
 * Whatever the outcome, the fault goes on as ever: with the shared table, or with
 * no table yet. Context: may sleep; mmap_lock or the VMA's lock is held.
 */
void __quire_shm_join(struct vm_fault *vmf)
{
	unsigned long addr = vmf->address & PMD_MASK;
	struct vm_area_struct *vma = vmf->vma;
	struct shm_key key;
	int reason;

	reason = refusal(vma, addr);
	if (!pmd_none(pmdp_get_lockless(vmf->pmd)) &&
	    (reason >= 0 || !quire_shm_merge_table(vma, vmf->pmd, addr)))
		return;
	if (reason < 0 && !make_key(&key, vma, addr))
		reason = SHM_REFUSED_FOREIGN;
	if (reason >= 0) {
		fall_back(vma, addr, reason);
		return;
	}
	/* Seen by who has a VMA's lock for writing after us. */
	if (!test_bit(MMF_QUIRE_PT, &vma->vm_mm->flags))
		set_bit(MMF_QUIRE_PT, &vma->vm_mm->flags);
	if (!test_bit(MMF_QUIRE_SHM, &vma->vm_mm->flags))
		set_bit(MMF_QUIRE_SHM, &vma->vm_mm->flags);
	switch (join_for_process(vmf, &key)) {
	case -EUSERS:
		fall_back(vma, addr, SHM_REFUSED_USERS);
		break;
	case -ENOMEM:
		fall_back(vma, addr, SHM_REFUSED_NOMEM);
		break;
	}
	put_user_ns(key.user.ns);
}
