// SPDX-License-Identifier: GPL-2.0
/*
 * The page tables of shared memory: their registry, and the operations on one table. shm.c has the
 * rules.
 */
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>
#include <linux/rhashtable.h>
#include <linux/rmap.h>
#include <linux/shmem_fs.h>
#include <linux/swapops.h>

#include <asm/pgalloc.h>
#include <asm/tlb.h>
#include <asm/tlbflush.h>

#include "../../internal.h"
#include "../pt/pt.h"
#include "shm.h"

#include <trace/events/quire_shm.h>

static const struct rhashtable_params table_params = {
	.key_len = sizeof(struct shm_key),
	.key_offset = offsetof(struct shm_table, key),
	.head_offset = offsetof(struct shm_table, node),
	.automatic_shrinking = true,
};

static struct rhashtable tables;
/* All tables that PMDs point to, including those that are not in the registry. */
static atomic_long_t nr_tables;
static struct kmem_cache *table_cache __ro_after_init;

/* Walks over the VMAs of files, by a hash of the file's address_space. */
#define WALK_BITS 10
static atomic_t walks_of_files[1 << WALK_BITS];

/**
 * quire_shm_tables - how many tables are shared now
 *
 * Context: any.
 * Return: the number.
 */
unsigned long quire_shm_tables(void)
{
	return atomic_long_read(&nr_tables);
}

static atomic_t *walks_of(struct address_space *mapping)
{
	return &walks_of_files[hash_ptr(mapping, WALK_BITS)];
}

/**
 * quire_shm_alloc_table - make an empty table that nobody uses yet
 * @mm: the mm that will use it
 * @key: what it maps
 * @user: whose processes may share it; the caller has a reference
 *
 * Context: may sleep.
 * Return: the table, or NULL if there is no memory.
 */
struct shm_table *quire_shm_alloc_table(struct mm_struct *mm, const struct shm_key *key,
					struct shm_user *user)
{
	struct shm_table *table = kmem_cache_alloc(table_cache, GFP_KERNEL_ACCOUNT);
	pgtable_t page;

	if (!table)
		return NULL;
	page = pte_alloc_one(mm);
	if (!page) {
		kmem_cache_free(table_cache, table);
		return NULL;
	}
	table->key = *key;
	table->pt = page_ptdesc(page);
	table->user = quire_shm_get_user(user);
	spin_lock_init(&table->lock);
	table->listed = false;
	table->gone = false;
	table->left = get_completed_synchronize_rcu();
	*quire_pt_owner(table->pt) = user->mm;
	*quire_pt_entry(table->pt) = table;
	*quire_pt_state(table->pt) = (struct quire_pt_state){ .users = 1 };
	return table;
}

/**
 * quire_shm_free_table - free a table that nobody can find
 * @table: has no users and no entries, or was adopted
 *
 * Context: any but hard interrupts.
 */
void quire_shm_free_table(struct shm_table *table)
{
	if (table->pt)
		pte_free(NULL, ptdesc_page(table->pt));
	quire_shm_put_user(table->user);
	kmem_cache_free(table_cache, table);
}

static void free_table_rcu(struct rcu_head *head)
{
	quire_shm_free_table(container_of(head, struct shm_table, rcu));
}

static void attach(struct mm_struct *mm, pmd_t *pmd, struct ptdesc *pt)
{
	lockdep_assert_held(pmd_lockptr(mm, pmd));
	lockdep_assert_held(ptlock_ptr(pt));
	mm_inc_nr_ptes(mm);
	/* Others must see a new table cleared before they walk it; see pmd_install(). */
	smp_wmb();
	set_pmd(pmd, __pmd(((pmdval_t)page_to_pfn(ptdesc_page(pt)) << PAGE_SHIFT) |
			   _PAGE_TABLE | _PAGE_PT_MARKED));
}

/*
 * Afterwards no TLB of the mm holds the table. During an exit only the first table costs a flush: a
 * CPU that has the mm loaded lazily drops it then.
 */
static void detach(struct mm_struct *mm, pmd_t *pmd, unsigned long addr)
{
	lockdep_assert_held(pmd_lockptr(mm, pmd));
	lockdep_assert_held(ptlock_ptr(quire_pmd_ptdesc(*pmd)));
	pmd_clear(pmd);
	mm_dec_nr_ptes(mm);
	flush_tlb_mm_range(mm, addr, addr + PMD_SIZE, PAGE_SHIFT, true);
	quire_pt_count_flush(QUIRE_PT_FILE, QUIRE_FLUSH_LEAVE);
}

/*
 * Lock the table that a PMD points to: its own lock and its PTL. The PMD's lock is held, so the
 * table has a user until that is dropped.
 */
static struct shm_table *lock_table(pmd_t *pmd)
{
	struct ptdesc *pt = quire_pmd_ptdesc(*pmd);
	struct shm_table *table = *quire_pt_entry(pt);

	spin_lock(&table->lock);
	spin_lock_nested(ptlock_ptr(pt), SINGLE_DEPTH_NESTING);
	return table;
}

/* @pt is the table's page. If the table was adopted, table->pt is NULL. */
static void unlock_table(struct shm_table *table, struct ptdesc *pt)
{
	spin_unlock(ptlock_ptr(pt));
	spin_unlock(&table->lock);
}

static void assert_locked(struct shm_table *table)
{
	lockdep_assert_held(&table->lock);
	lockdep_assert_held(ptlock_ptr(table->pt));
}

/*
 * A user's PMD was cleared, and other users remain. The leaver's threads may still look at the
 * table in RCU read-side critical sections. The last user waits for these before it adopts.
 */
static void note_leaver(struct shm_table *table)
{
	static unsigned long started;
	unsigned long state;

	assert_locked(table);
	if (--quire_pt_state(table->pt)->users > 1)
		return;
	state = get_state_synchronize_rcu();
	table->left = state;
	/* Once for all the tables that a process leaves when it ends. */
	if (READ_ONCE(started) != state) {
		start_poll_synchronize_rcu();
		WRITE_ONCE(started, state);
	}
}

/*
 * Join a table that was found in the registry; an RCU read-side critical section keeps it. Returns
 * 1 if the PMD is set, 0 if somebody else has set it, -EAGAIN if the table is gone and the caller
 * must look again, or -EBUSY if a walk is under way.
 */
static int join(struct vm_fault *vmf, struct shm_table *table)
{
	atomic_t *walks = walks_of(table->key.mapping);
	struct mm_struct *mm = vmf->vma->vm_mm;
	struct quire_pt_state *state;
	spinlock_t *pml;
	int ret = 0;

	pml = pmd_lock(mm, vmf->pmd);
	if (!pmd_none(*vmf->pmd))
		goto unlock_pmd;
	spin_lock(&table->lock);
	ret = table->gone ? -EAGAIN : atomic_read(walks) ? -EBUSY : 0;
	if (ret)
		goto unlock;
	spin_lock_nested(ptlock_ptr(table->pt), SINGLE_DEPTH_NESTING);
	state = quire_pt_state(table->pt);
	state->users++;
	attach(mm, vmf->pmd, table->pt);
	/* Pairs with __quire_shm_walk_begin(). */
	smp_mb();
	if (atomic_read(walks)) {
		detach(mm, vmf->pmd, vmf->address & PMD_MASK);
		note_leaver(table);
		ret = -EBUSY;
	} else {
		ret = 1;
		shm_count(SHM_JOINED);
		trace_shm_join(mm, vmf->address & PMD_MASK, state->users);
	}
	spin_unlock(ptlock_ptr(table->pt));
unlock:
	spin_unlock(&table->lock);
unlock_pmd:
	spin_unlock(pml);
	return ret;
}

/**
 * quire_shm_join_table - join the table that other processes use
 * @vmf: the fault, whose PMD was none
 * @key: the table's key
 *
 * Context: the VMA's lock or mmap_lock is held; does not sleep.
 * Return: 1 if the PMD is set, 0 if somebody else has set it, -ENOENT if there is no table, or
 * -EBUSY if a walk is under way.
 */
int quire_shm_join_table(struct vm_fault *vmf, const struct shm_key *key)
{
	struct shm_table *table;
	int ret;

	guard(rcu)();
	do {
		table = rhashtable_lookup(&tables, key, table_params);
		ret = table ? join(vmf, table) : -ENOENT;
	} while (ret == -EAGAIN);
	return ret;
}

/* Put a table into the registry. Returns 0, -EEXIST if there is another, or -ENOMEM. */
static int list_table(struct shm_table *table)
{
	struct shm_table *other;

	assert_locked(table);
	/* A table is kept out of the registry only if the file has had a table in it. */
	VM_WARN_ON_ONCE(!quire_shm_announced(table->key.mapping));
	other = rhashtable_lookup_get_insert_fast(&tables, &table->node, table_params);
	if (other)
		return IS_ERR(other) ? -ENOMEM : -EEXIST;
	table->listed = true;
	quire_pt_state(table->pt)->flags &= ~QUIRE_PT_UNLISTED;
	shm_count(SHM_PUBLISHED);
	return 0;
}

/**
 * quire_shm_publish_table - use a new, empty table
 * @vmf: the fault, whose PMD was none
 * @tablep: the table; set to NULL if it is used
 * @listed: put it into the registry
 *
 * Context: the VMA's lock or mmap_lock is held; does not sleep.
 * Return: 1 if the PMD is set, 0 if somebody else has set it, -EEXIST if there is a table already,
 * or -ENOMEM.
 */
int quire_shm_publish_table(struct vm_fault *vmf, struct shm_table **tablep, bool listed)
{
	struct mm_struct *mm = vmf->vma->vm_mm;
	struct shm_table *table = *tablep;
	struct ptdesc *pt = table->pt;
	spinlock_t *pml;
	int ret = 0;

	pml = pmd_lock(mm, vmf->pmd);
	if (!pmd_none(*vmf->pmd)) {
		spin_unlock(pml);
		return 0;
	}
	/* A fault that finds the table now waits until the PMD is set. */
	spin_lock(&table->lock);
	spin_lock_nested(ptlock_ptr(pt), SINGLE_DEPTH_NESTING);
	if (listed) {
		ret = list_table(table);
	} else {
		quire_pt_state(pt)->flags |= QUIRE_PT_UNLISTED;
		shm_count(SHM_UNLISTED);
	}
	if (!ret) {
		attach(mm, vmf->pmd, pt);
		atomic_long_inc(&nr_tables);
		*tablep = NULL;
		ret = 1;
		trace_shm_join(mm, vmf->address & PMD_MASK, 1);
	}
	unlock_table(table, pt);
	spin_unlock(pml);
	return ret;
}

/*
 * Is this the entry of a failed page? It stays when a hole is punched, but not when the file is
 * truncated.
 */
static bool is_poisoned(pte_t pte)
{
	return !pte_present(pte) && (is_hwpoison_entry(pte_to_swp_entry(pte)) ||
				     is_poisoned_swp_entry(pte_to_swp_entry(pte)));
}

/*
 * Take one entry out of a table. Returns how many pages it was charged as, with *page set to the
 * page to release, or NULL.
 */
static int take_slot(struct vm_area_struct *vma, unsigned long addr, pte_t *ptep,
		     bool poisoned, struct page **page)
{
	pte_t pte = ptep_get(ptep);
	struct folio *folio;

	*page = NULL;
	if (pte_none(pte) || (!poisoned && is_poisoned(pte)))
		return 0;
	pte = ptep_get_and_clear(vma->vm_mm, addr, ptep);
	if (!pte_present(pte))
		return is_migration_entry(pte_to_swp_entry(pte));
	*page = vm_normal_page(vma, addr, pte);
	if (!*page)
		return 0;
	folio = page_folio(*page);
	if (pte_dirty(pte))
		folio_mark_dirty(folio);
	if (pte_young(pte) && vma_has_recency(vma))
		folio_mark_accessed(folio);
	folio_remove_rmap_pte(folio, *page, vma);
	return 1;
}

/* From now on nobody can find the table. */
static void retire(struct shm_table *table)
{
	assert_locked(table);
	if (table->listed)
		rhashtable_remove_fast(&tables, &table->node, table_params);
	table->listed = false;
	table->gone = true;
	atomic_long_dec(&nr_tables);
}

/* No PMD points to the table, and no TLB holds it. */
static void drop_table(struct shm_table *table, struct vm_area_struct *vma, unsigned long addr)
{
	pte_t *pte = (pte_t *)ptdesc_address(table->pt);
	struct page *page;
	int i, taken = 0;

	retire(table);
	for (i = 0; i < PTRS_PER_PTE; i++, pte++, addr += PAGE_SIZE) {
		taken += take_slot(vma, addr, pte, true, &page);
		if (page)
			put_page(page);
	}
	if (taken)
		add_mm_counter(table->user->mm, MM_SHMEMPAGES, -taken);
	shm_count(SHM_DROPPED);
}

/* Clear a user's PMD. If it was the last user, empty the table. */
static void leave(struct shm_table *table, struct vm_area_struct *vma, pmd_t *pmd,
		  unsigned long addr)
{
	struct quire_pt_state *state = quire_pt_state(table->pt);

	assert_locked(table);
	detach(vma->vm_mm, pmd, addr);
	if (state->users > 1) {
		note_leaver(table);
	} else {
		state->users = 0;
		drop_table(table, vma, addr);
	}
	shm_count(SHM_LEFT);
	trace_shm_leave(vma->vm_mm, addr, state->users);
}

/* Is the caller the only user, and can no thread of another process still look at the table? */
static bool may_adopt(struct shm_table *table)
{
	return quire_pt_state(table->pt)->users == 1 && poll_state_synchronize_rcu(table->left);
}

/*
 * How many entries of a table are charged: those of pages, also while migration has replaced them.
 * No look at struct pages is needed: shared memory has no other present entries.
 */
static int count_charged(struct ptdesc *pt)
{
	pte_t *ptes = (pte_t *)ptdesc_address(pt);
	int i, charged = 0;

	lockdep_assert_held(ptlock_ptr(pt));
	for (i = 0; i < PTRS_PER_PTE; i++) {
		pte_t pte = ptep_get(ptes + i);

		charged += pte_present(pte) ||
			   (!pte_none(pte) && is_migration_entry(pte_to_swp_entry(pte)));
	}
	return charged;
}

/* The last user keeps the table, as an ordinary table of its own. */
static void adopt(struct shm_table *table, struct vm_area_struct *vma, pmd_t *pmd,
		  unsigned long addr)
{
	struct ptdesc *pt = table->pt;
	struct quire_pt_state *state = quire_pt_state(pt);
	int charged = count_charged(pt);

	lockdep_assert_held(pmd_lockptr(vma->vm_mm, pmd));
	VM_WARN_ON_ONCE(state->users != 1);
	retire(table);
	table->pt = NULL;
	add_mm_counter(table->user->mm, MM_SHMEMPAGES, -charged);
	add_mm_counter(vma->vm_mm, MM_SHMEMPAGES, charged);
	/*
	 * Flush under the locks: an entry that reclaim has cleared must not be filled again before.
	 */
	if (state->flags & QUIRE_PT_STALE) {
		flush_tlb_mm_range(vma->vm_mm, addr, addr + PMD_SIZE, PAGE_SHIFT, false);
		quire_pt_count_flush(QUIRE_PT_FILE, QUIRE_FLUSH_LEAVE);
	}
	*state = (struct quire_pt_state){};
	*quire_pt_entry(pt) = NULL;
	*quire_pt_owner(pt) = NULL;
	set_pmd(pmd, quire_pmd_unmark(*pmd));
	shm_count(SHM_ADOPTED);
	trace_shm_adopt(vma->vm_mm, addr, 1);
}

/* What end_sharing() shall do, and what the PMD points to afterwards. */
enum shm_end {
	SHM_KEEP,		/* the last user adopts the table, other users go on sharing */
	SHM_KEEP_OR_LEAVE,	/* the last user adopts the table, other users leave */
	SHM_MERGE,		/* leave the table if it is not listed, and another one is */
};

enum shm_leads_to {
	SHM_SHARED,
	SHM_PRIVATE,		/* or a table that shm does not share, as before */
	SHM_NOTHING,
};

static enum shm_leads_to end_sharing(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
				     enum shm_end how)
{
	struct mm_struct *mm = vma->vm_mm;
	bool adopted = false, left = false, gone;
	struct shm_table *table;
	struct shm_user *user;
	struct ptdesc *pt;
	spinlock_t *pml;

	pml = pmd_lock(mm, pmd);
	if (!pmd_pt_file(*pmd)) {
		spin_unlock(pml);
		return SHM_PRIVATE;
	}
	table = lock_table(pmd);
	pt = table->pt;
	user = table->user;
	if (how == SHM_MERGE) {
		left = !table->listed && list_table(table) == -EEXIST;
	} else {
		adopted = may_adopt(table);
		left = !adopted && how == SHM_KEEP_OR_LEAVE;
	}
	if (adopted)
		adopt(table, vma, pmd, addr);
	else if (left)
		leave(table, vma, pmd, addr);
	gone = table->gone;
	unlock_table(table, pt);
	spin_unlock(pml);
	/* Joiners may still look at the table, and lockless walkers at what was dropped. */
	if (gone)
		call_rcu(&table->rcu, free_table_rcu);
	if (adopted || left)
		quire_shm_uncount_pmd(mm, user);
	return adopted ? SHM_PRIVATE : left ? SHM_NOTHING : SHM_SHARED;
}

/**
 * quire_shm_leave - stop sharing a table
 * @vma: covers the table
 * @pmd: the PMD
 * @addr: the first address that the table maps
 *
 * The last user keeps the table as a private one, if it may adopt. Cannot fail.
 * Context: mmap_lock, the VMA's lock or the lock of its reverse map is held; does not sleep.
 * Return: true if there is no table any more; false if there is a private one, or the PMD pointed
 * to no shared table.
 */
bool quire_shm_leave(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	return end_sharing(vma, pmd, addr, SHM_KEEP_OR_LEAVE) == SHM_NOTHING;
}

/**
 * quire_shm_still_shared - does a table have another user?
 * @vma: covers the table
 * @pmd: pointed to a shared table when the caller looked
 * @addr: the first address that the table maps
 *
 * For callers that skip shared tables. The last user adopts the table, if it may.
 * Context: as quire_shm_leave().
 * Return: true if the table must be skipped.
 */
bool quire_shm_still_shared(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	return quire_pt_has_other_users(pmd) || end_sharing(vma, pmd, addr, SHM_KEEP) == SHM_SHARED;
}

/* Is this the only VMA that maps the file? A lockless check. */
static bool is_only_area(struct vm_area_struct *vma)
{
	const struct rb_root *areas = &vma->vm_file->f_mapping->i_mmap.rb_root;

	return READ_ONCE(areas->rb_node) == &vma->shared.rb &&
	       !READ_ONCE(vma->shared.rb.rb_left) && !READ_ONCE(vma->shared.rb.rb_right);
}

/**
 * quire_shm_skip_hints - must NUMA hints skip a table?
 * @vma: covers the table
 * @pmd: pointed to a shared table when the caller looked
 * @addr: the first address that the table maps
 *
 * NUMA hints come again and again without being asked for. They must not make one process after
 * another adopt the tables that they would share, so a process adopts only if nobody else maps the
 * file.
 * Context: as quire_shm_leave().
 * Return: whether they must.
 */
bool quire_shm_skip_hints(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	return !is_only_area(vma) || quire_shm_still_shared(vma, pmd, addr);
}

/**
 * quire_shm_merge_table - register an unlisted table, or give it up for the registered one
 * @vma: covers the table
 * @pmd: pointed to the table when the caller looked
 * @addr: the first address that the table maps
 *
 * Context: a page fault; the VMA's lock or mmap_lock is held; does not sleep.
 * Return: true if there is no table any more, so that the fault must join.
 */
bool quire_shm_merge_table(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	/* The registered table cannot be joined yet. */
	if (atomic_read(walks_of(vma->vm_file->f_mapping)) ||
	    end_sharing(vma, pmd, addr, SHM_MERGE) != SHM_NOTHING)
		return false;
	shm_count(SHM_MERGED);
	return true;
}

/*
 * Drop entries for all users. Returns where it stopped because the gather is full, or @addr if the
 * PMD does not point to a shared table any more.
 *
 * A dirty page leaves the reverse map before any TLB is flushed, which Linux delays where pages are
 * written back (tlb_delay_rmap()). Who unmaps pages of shmem also removes them from the file.
 */
static unsigned long zap_in_place(struct mmu_gather *tlb, struct vm_area_struct *vma,
				  pmd_t *pmd, unsigned long addr, unsigned long end,
				  bool poisoned)
{
	unsigned long first = addr;
	pte_t *pte, *start;
	struct page *page;
	bool full = false;
	spinlock_t *ptl;
	int taken = 0;

	start = pte = quire_pte_offset_map_lock(vma->vm_mm, pmd, addr, &ptl);
	if (!pte)
		return addr;
	if (!pmd_pt_file(*pmd)) {
		pte_unmap_unlock(start, ptl);
		return addr;
	}
	for (; addr != end && !full; pte++, addr += PAGE_SIZE) {
		taken += take_slot(vma, addr, pte, poisoned, &page);
		if (!page)
			continue;
		/* The gather must know of a range before it takes a page. */
		tlb_flush_pte_range(tlb, addr, PAGE_SIZE);
		full = __tlb_remove_page_size(tlb, page, false, PAGE_SIZE);
	}
	if (taken) {
		add_mm_counter(__quire_shm_charged(pmd), MM_SHMEMPAGES, -taken);
		shm_count_add(SHM_ZAPPED, taken);
	}
	quire_pt_flush_zapped(vma, pmd, first, addr, taken);
	pte_unmap_unlock(start, ptl);
	if (full)
		tlb_flush_mmu(tlb);
	return addr;
}

/**
 * __quire_shm_zap - zap a range that a shared table maps
 * @tlb: gathers the pages
 * @vma: contains the range
 * @pmd: pointed to a shared table when the caller looked
 * @addr: start of the range; set to @end if the range was handled
 * @end: end of the range, within the table
 * @details: as for zap_pte_range(); tells whether the process's mapping goes away, or the file's
 *	pages
 *
 * Context: as for zap_page_range_single(); if the file's pages go away, the file's i_mmap lock is
 * held.
 * Return: true, or false if the caller must zap the range.
 */
bool __quire_shm_zap(struct mmu_gather *tlb, struct vm_area_struct *vma, pmd_t *pmd,
		     unsigned long *addr, unsigned long end, struct zap_details *details)
{
	unsigned long next;

	if (!details || (details->zap_flags & ZAP_FLAG_UNMAP)) {
		if (!quire_shm_leave(vma, pmd, *addr & PMD_MASK))
			return false;
		*addr = end;
		return true;
	}
	tlb_change_page_size(tlb, PAGE_SIZE);
	while (*addr != end) {
		next = zap_in_place(tlb, vma, pmd, *addr, end, details->even_cows);
		if (next == *addr)
			return false;
		*addr = next;
	}
	return true;
}

/**
 * __quire_shm_walk_begin - begin a walk over the VMAs that map a file
 * @i_mmap: the file's tree of VMAs, locked
 *
 * Context: does not sleep.
 * Return: what __quire_shm_walk_end() needs; NULL if the file is not shared memory.
 */
atomic_t *__quire_shm_walk_begin(struct rb_root_cached *i_mmap)
{
	struct address_space *mapping = container_of(i_mmap, struct address_space, i_mmap);
	atomic_t *walks = walks_of(mapping);

	if (!shmem_mapping(mapping))
		return NULL;
	atomic_inc(walks);
	/* Before any PMD is read; pairs with join(). */
	smp_mb__after_atomic();
	return walks;
}

/**
 * __quire_shm_walk_end - end a walk over the VMAs that map a file
 * @walks: what __quire_shm_walk_begin() returned
 *
 * Context: does not sleep.
 */
void __quire_shm_walk_end(atomic_t *walks)
{
	/* After the last PMD was read. */
	smp_mb__before_atomic();
	atomic_dec(walks);
}

/**
 * __quire_shm_map - map a shared table without its PTL
 * @pmd: a copy of the PMD; points to a shared table
 * @addr: the address
 *
 * From here on the table cannot be freed. The caller must check that the PMD still points to it.
 * Context: any.
 * Return: the PTE, for pte_unmap().
 */
pte_t *__quire_shm_map(pmd_t *pmd, unsigned long addr)
{
	rcu_read_lock();
	return pte_offset_kernel(pmd, addr);
}

/**
 * __quire_shm_charged - the mm that a table's entries are charged to
 * @pmd: points to a shared table
 *
 * Context: the table's PTL is held.
 * Return: the mm.
 */
struct mm_struct *__quire_shm_charged(pmd_t *pmd)
{
	return *quire_pt_owner(quire_pmd_ptdesc(*pmd));
}

/**
 * quire_shm_check - check a table against the PMD that points to it
 * @vma: covers the table
 * @pmd: points to a shared table
 * @addr: the first address that the table maps
 *
 * Context: the table's PTL is held.
 * Return: NULL, or what is wrong.
 */
const char *quire_shm_check(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	struct ptdesc *pt = quire_pmd_ptdesc(*pmd);
	struct shm_table *table = *quire_pt_entry(pt);

	if (*quire_pt_owner(pt) != table->user->mm)
		return "its charge is not its user's";
	if (table->pt != pt)
		return "its entry in the registry is another's";
	if (table->gone)
		return "it is nobody's any more";
	if (table->listed != !(quire_pt_state(pt)->flags & QUIRE_PT_UNLISTED))
		return "its mark does not tell whether it is in the registry";
	if ((rhashtable_lookup_fast(&tables, &table->key, table_params) == table) != table->listed)
		return "it is not in the registry, or should not be";
	if (!quire_shm_shareable(vma) || mm_has_notifiers(vma->vm_mm))
		return "its VMA must not share";
	if (table->key.mapping != vma->vm_file->f_mapping ||
	    table->key.pgoff != linear_page_index(vma, addr))
		return "it maps something else";
	if (table->key.prot != pgprot_val(vma->vm_page_prot) ||
	    table->key.flags != (vma->vm_flags & QUIRE_SHM_KEY_FLAGS))
		return "its protection is not the VMA's";
	return NULL;
}

/**
 * quire_shm_tables_init - set up the registry
 *
 * Context: boot; may sleep.
 * Return: 0 or -ENOMEM.
 */
int __init quire_shm_tables_init(void)
{
	table_cache = KMEM_CACHE(shm_table, 0);
	return table_cache ? rhashtable_init(&tables, &table_params) : -ENOMEM;
}
