// SPDX-License-Identifier: GPL-2.0
/*
 * A page fault on shared memory joins a page table that other processes use, or offers one. shm.c
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

/* Flags of VMAs that a shared table would break. */
#define UNSHAREABLE (VM_SPECIAL | VM_LOCKED_MASK | VM_HUGETLB | VM_UFFD_MISSING |	\
		     VM_UFFD_WP | VM_UFFD_MINOR | VM_SHADOW_STACK | VM_DROPPABLE |	\
		     VM_GROWSDOWN | VM_GROWSUP)

/**
 * quire_shm_shareable - may page tables of a VMA be shared?
 * @vma: the VMA
 *
 * A MAP_SHARED mapping of a file that was opened for reading has VM_MAYSHARE alone. It cannot be
 * made writable, so no page of it is ever copied, and its key is that of other readers: a mapping
 * of a file that is sealed against writing has VM_SHARED, and permits no more.
 * Context: the VMA's lock or mmap_lock is held.
 * Return: whether they may.
 */
bool quire_shm_shareable(struct vm_area_struct *vma)
{
	const struct vm_operations_struct *ops = vma->vm_ops;

	if (!vma->vm_file || !shmem_mapping(vma->vm_file->f_mapping) ||
	    !(vma->vm_flags & VM_MAYSHARE) || (vma->vm_flags & UNSHAREABLE))
		return false;
	/*
	 * The VMA must map the file's pages at the file's offsets, and no driver may track writes.
	 */
	if (!ops || !ops->fault || ops->huge_fault || ops->page_mkwrite || ops->pfn_mkwrite)
		return false;
	if (IS_ENABLED(CONFIG_MEM_SOFT_DIRTY) && !(vma->vm_flags & VM_SOFTDIRTY))
		return false;
	return !vma->anon_vma && !userfaultfd_armed(vma);
}

/* Is there a huge page, or may one come? One PMD is better than any page table. */
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

/* Returns false if nobody owns the mm. The key holds a reference to its user's namespace. */
static bool make_key(struct shm_key *key, struct vm_area_struct *vma, unsigned long addr)
{
	memset(key, 0, sizeof(*key));
	key->mapping = vma->vm_file->f_mapping;
	key->pgoff = linear_page_index(vma, addr);
	key->prot = pgprot_val(vma->vm_page_prot);
	key->flags = vma->vm_flags & QUIRE_SHM_KEY_FLAGS;
	return READ_ONCE(quire_shm_cross_user) || quire_shm_user_of(&key->user, vma->vm_mm);
}

/* A bit of the flags of an address_space, above the bits for which Linux has names. */
#define AS_QUIRE_ANNOUNCED	40

/**
 * quire_shm_announced - has every walk over a file's VMAs announced itself?
 * @mapping: the file's address_space
 *
 * Context: any.
 * Return: whether all such walks have, and will.
 */
bool quire_shm_announced(struct address_space *mapping)
{
	BUILD_BUG_ON(BIT(AS_QUIRE_ANNOUNCED) & AS_FOLIO_ORDER_MASK);
	return test_bit_acquire(AS_QUIRE_ANNOUNCED, &mapping->flags);
}

/*
 * Walks over a file's VMAs that began before the feature was first switched on have not announced
 * themselves. They may sleep, so quire_pt_start() does not wait for them. They hold the file's
 * i_mmap lock from before their first PMD until after their last.
 *
 * Waiting for that lock once is enough for all tables of the file: quire_pt_used_key was enabled
 * before any fault came here, and is never disabled. A task that takes the lock after us sees the
 * key and announces its walk, and a task that held the lock before us has dropped it. So once the
 * flag is set, the file has no unannounced walk and never will. A reused inode begins with the flag
 * clear. A task that sees the flag set sees all that happened before, through the acquire here and
 * that of the lock.
 */
static void wait_for_unannounced(struct address_space *mapping)
{
	if (quire_shm_announced(mapping))
		return;
	shm_count(SHM_WAITS);
	i_mmap_lock_write(mapping);
	/* Not after the unlock: a task that sees the flag must see that we held the lock. */
	set_bit(AS_QUIRE_ANNOUNCED, &mapping->flags);
	i_mmap_unlock_write(mapping);
}

/*
 * Returns 1 if the PMD is set, 0 if somebody else has set it, or -ENOMEM. While a walk is under way
 * the process gets a table that others cannot find, and its next fault there tries again.
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

/* join_or_publish(), and count the PMD for the process's user. */
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
 * join_as_user(). Charges what is new to the memory cgroup of the process, and not to that of a
 * task that accesses its memory.
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
 * __quire_shm_join - join a shared page table in a page fault, if allowed
 * @vmf: the fault; its PMD was none, or pointed to a table that others cannot find
 *
 * In any case the fault goes on as in vanilla, with the shared table or with no table yet.
 * Context: mmap_lock or the VMA's lock is held; may sleep.
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
	/* A task that locks the VMA for writing after us sees these flags. */
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
