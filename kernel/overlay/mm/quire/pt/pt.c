// SPDX-License-Identifier: GPL-2.0
/*
 * Shared page tables: last-level tables that several processes use at once.
 * What follows is about those of private memory, shared by fork; shm/shm.c has the
 * rules for tables that map shared memory, which are not write-protected.
 *
 * A shared table is the table itself, with its state in its ptdesc (see linux/quire/pt_state.h).
 * Each PMD that points to it is write-protected and marked. The entries are as they were
 * when it was first shared, writable ones included: the PMD alone protects them.
 *
 * Rules
 *
 *  - folio mapcounts, folio references and swap counts count the entries that
 *    exist in memory. An entry of a shared table counts once.
 *  - PageAnonExclusive and a writable entry mean "this table's alone". They
 *    mean "this process's alone" only if the PMD is not marked.
 *  - Processes change a shared table never: they get a private one first (by copying it, or
 *    by adopting it when they are its last user), or leave it. __pte_offset_map() refuses a
 *    marked PMD, so a walker that was forgotten sees no table, and the debug kernel warns,
 *    see quire_pt_forgotten(). The reverse map changes entries in place: it flushes the
 *    TLBs of all users (flush.c) and charges the table's owner.
 *  - A table that is shared lies within one VMA in each process, or is mixed, see
 *    mixed.c. Whoever moves a boundary into it, or changes a VMA's flags,
 *    unshares it first.
 *  - The entries are charged (RSS) to one mm, the owner: the process that
 *    shared it first, and when that leaves, the orphans' mm, a pseudo process.
 *  - A table that maps a pinned page is not shared, and no pin (FOLL_PIN) and nothing for
 *    writing is ever taken through a marked PMD. A reference for reading (FOLL_GET) is,
 *    under the PTL: it marks the table, since it may be anybody's, and who adopts it then
 *    sanitizes it. The last user adopts it first: what it refers to then is its own.
 *    References from before the sharing can only be the owner's doing: it may adopt a
 *    table without that mark as it is, others sanitize it first.
 *
 * Locks: a PMD begins and ceases to be marked under the table's page table lock
 * (PTL), nested in the PMD's lock; in fork the two mmap_locks, held for writing,
 * stand for the PMD's lock. Who holds the table's PTL and sees a PMD that points
 * to it knows that it is shared, or is not. A table may be touched through a
 * marked PMD only while that PMD's lock or the table's PTL is held: to get from
 * one to the other is what __quire_pte_offset_map_lock() is for.
 *
 * Lifetime: users counts the PMDs that point to the table. A leaver clears its PMD, flushes
 * its TLB and only then lets go of its count, all before its VMA leaves the reverse map. Who
 * copies the table points its PMD to the copy, flushes what caches the PMD and gives up its
 * count before it lets go of both locks: until then nobody can make an entry of the old
 * table present, which a CPU might still walk. The one that brings it to 0 drops the entries
 * and frees the table by RCU. A table that was adopted is an ordinary one again, and freed
 * in the ordinary way, which is safe: lockless walkers do not enter by marked PMDs, and the
 * reverse map's walkers hold a lock that unlinking the adopter's VMA waits for, as the
 * adopter has a link wherever the sharer has one (quire_pt_mixable()).
 *
 * Undo: __quire_pt_unshare() gives a process a table of its own, and fork/fork.c's drain all.
 */
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mmu_notifier.h>
#include <linux/rmap.h>
#include <linux/sched/coredump.h>
#include <linux/sched/mm.h>
#include <linux/swap.h>
#include <linux/swapops.h>

#include <asm/pgalloc.h>
#include <asm/tlbflush.h>

#include "../../internal.h"
#include "../../swap.h"
#include "pt.h"

#define CREATE_TRACE_POINTS
#include <trace/events/quire_pt.h>

/*
 * Charged for the entries of tables whose owner left. As the source of copies it stands for
 * the table itself, which is no single process's: its write_protect_seq counts as raised for
 * ever, for nothing can be pinned through a shared table.
 */
struct mm_struct *quire_pt_orphans __ro_after_init;

static pte_t *first_slot(struct ptdesc *pt)
{
	return (pte_t *)ptdesc_address(pt);
}

static spinlock_t *lock_table(struct mm_struct *mm, pmd_t *pmd)
{
	spinlock_t *ptl = pte_lockptr(mm, pmd);

	spin_lock_nested(ptl, SINGLE_DEPTH_NESTING);
	return ptl;
}

/**
 * quire_pt_charged_as - what one entry of a shared table is charged as
 * @vma: any user's
 * @addr: the entry's
 * @pte: the entry
 * @mixed: is the table
 *
 * All of a table that is not mixed is anonymous: no need to look at a struct page.
 * Context: the PTL is held. Returns an RSS counter, or -1 for what is not charged.
 */
int quire_pt_charged_as(struct vm_area_struct *vma, unsigned long addr, pte_t pte,
			bool mixed)
{
	swp_entry_t entry;
	struct page *page;

	if (pte_none(pte))
		return -1;
	if (pte_present(pte)) {
		page = vm_normal_page(vma, addr, pte);
		if (!page)
			return -1;
		return mixed ? mm_counter(page_folio(page)) : MM_ANONPAGES;
	}
	entry = pte_to_swp_entry(pte);
	if (!non_swap_entry(entry))
		return MM_SWAPENTS;
	if (is_migration_entry(entry))
		return mixed ? mm_counter(pfn_swap_entry_folio(entry)) : MM_ANONPAGES;
	if (is_device_private_entry(entry) || is_device_exclusive_entry(entry))
		return MM_ANONPAGES;
	return -1;
}

static bool is_mixed(struct ptdesc *pt)
{
	return quire_pt_state(pt)->flags & QUIRE_PT_MIXED;
}

/* Move the charge for all entries. @vma is any user's, @addr the first slot's address. */
static void recharge(struct ptdesc *pt, struct vm_area_struct *vma,
		     unsigned long addr, struct mm_struct *to)
{
	struct mm_struct *from = *quire_pt_owner(pt);
	int rss[NR_MM_COUNTERS] = {};
	pte_t *pte = first_slot(pt);
	int i;

	lockdep_assert_held(ptlock_ptr(pt));
	for (i = 0; i < PTRS_PER_PTE; i++, pte++, addr += PAGE_SIZE) {
		int type = quire_pt_charged_as(vma, addr, ptep_get(pte), is_mixed(pt));

		if (type >= 0)
			rss[type]++;
	}
	for (i = 0; i < NR_MM_COUNTERS; i++) {
		if (!rss[i])
			continue;
		add_mm_counter(from, i, -rss[i]);
		add_mm_counter(to, i, rss[i]);
	}
	*quire_pt_owner(pt) = to;
}

/* A swap entry as one that is not exclusive and not for writing. Looks at nothing else. */
VISIBLE_IF_KUNIT pte_t quire_pt_sanitized(pte_t pte)
{
	swp_entry_t entry = pte_to_swp_entry(pte);
	pte_t clean;

	if (!non_swap_entry(entry))
		return pte_swp_clear_exclusive(pte);
	if (!is_migration_entry(entry) || is_readable_migration_entry(entry))
		return pte;
	clean = swp_entry_to_pte(make_readable_migration_entry(swp_offset(entry)));
	if (pte_swp_soft_dirty(pte))
		clean = pte_swp_mksoft_dirty(clean);
	if (pte_swp_uffd_wp(pte))
		clean = pte_swp_mkuffd_wp(clean);
	return clean;
}

/*
 * Make every entry one that its next writer must look at. No TLB holds a
 * writable translation, for all PMDs are write-protected: nothing to flush.
 */
static void sanitize(struct ptdesc *pt, struct vm_area_struct *vma, unsigned long addr)
{
	struct mm_struct *mm = vma->vm_mm;
	pte_t *pte = first_slot(pt);
	int i;

	lockdep_assert_held(ptlock_ptr(pt));
	for (i = 0; i < PTRS_PER_PTE; i++, pte++, addr += PAGE_SIZE) {
		pte_t ptent = ptep_get(pte);
		struct page *page;

		if (pte_none(ptent))
			continue;
		if (!pte_present(ptent)) {
			pte_t clean = quire_pt_sanitized(ptent);

			if (!pte_same(clean, ptent))
				set_pte_at(mm, addr, pte, clean);
			continue;
		}
		page = vm_normal_page(vma, addr, ptent);
		if (page && PageAnon(page) && PageAnonExclusive(page))
			ClearPageAnonExclusive(page);
		if (pte_write(ptent))
			ptep_set_wrprotect(mm, addr, pte);
	}
	quire_pt_state(pt)->flags |= QUIRE_PT_SANITIZED;
	pt_count(PT_TABLES_SANITIZED);
}

/*
 * The table that @src_pmd points to, with its PTL held, or NULL if there is none any more.
 * Fork's locks keep faults out, but not retract_page_tables(): it takes an empty table of a
 * file away under the file's i_mmap lock, the PMD's and the PTL, and RCU frees it.
 */
static struct ptdesc *lock_source(pmd_t *src_pmd)
{
	struct ptdesc *pt;
	pmd_t seen;

	guard(rcu)();
	seen = pmdp_get_lockless(src_pmd);
	if (unlikely(pmd_none(seen)))
		return NULL;
	pt = quire_pmd_ptdesc(seen);
	spin_lock(ptlock_ptr(pt));
	if (likely(!pmd_none(pmdp_get_lockless(src_pmd))))
		return pt;
	spin_unlock(ptlock_ptr(pt));
	return NULL;
}

/* Mark a private table's PMD; it has a second user from now on. 0, or -EBUSY. */
static int begin_to_share(struct ptdesc *pt, struct vm_area_struct *vma, unsigned long addr,
			  pmd_t *pmd, bool mixed)
{
	struct quire_pt_state *state = quire_pt_state(pt);
	struct mm_struct *mm = vma->vm_mm;

	/*
	 * A pin that is not seen here will not be: GUP-fast takes it back when it finds that
	 * write_protect_seq was raised. The barrier pairs with gup_fast()'s atomic set_bit()
	 * for the first pin, and for all with the atomic that takes the pin, after the table's
	 * flag was cleared (pins.c) and before it looks there. None goes through a marked PMD.
	 */
	smp_mb();
	if (test_bit(MMF_HAS_PINNED, &mm->flags) && quire_pt_maps_pinned(pt, vma, addr))
		return -EBUSY;
	state->users = 2;
	state->leaving = 0;
	state->flags = mixed ? QUIRE_PT_MIXED : 0;
	*quire_pt_owner(pt) = mm;
	set_pmd(pmd, quire_pmd_mark(*pmd));
	pt_count(PT_PMDS_MARKED);
	return 0;
}

/**
 * quire_pt_share - let a new process use a table
 * @vma: the parent's; it, or all that reach into the table, are locked for writing
 * @addr: what the table maps first
 * @dst_mm: the child, mmap_lock held for writing
 * @src_pmd: points to the table, marked or not
 * @dst_pmd: none
 * @mixed: more than one anonymous area reaches into the table
 *
 * Changes no entry, and reads none unless the parent has ever pinned memory. The parent's
 * TLB must be flushed before the child runs and before the parent's mmap_lock is let go.
 * Context: may sleep. The parent's mmap_lock is held for writing and its write_protect_seq
 * is raised.
 * Return: how many use the table now; -EBUSY if it maps a pinned page, -ENOENT if it is gone,
 * -EXDEV if users in another memory cgroup share it, -ENOMEM if this group has no room.
 */
int quire_pt_share(struct vm_area_struct *vma, unsigned long addr, struct mm_struct *dst_mm,
		   pmd_t *src_pmd, pmd_t *dst_pmd, bool mixed)
{
	struct obj_cgroup *objcg;
	struct ptdesc *pt;
	int ret;

	mmap_assert_write_locked(vma->vm_mm);
	mmap_assert_write_locked(dst_mm);
	vma_assert_write_locked(vma);
	ret = quire_pt_charge(&objcg);
	if (ret)
		return ret;
	ret = -ENOENT;
	pt = lock_source(src_pmd);
	if (!pt)
		goto out;
	ret = quire_pt_claim(pt, objcg, pmd_pt_cow(*src_pmd));
	if (ret)
		goto unlock;
	if (pmd_pt_cow(*src_pmd))
		quire_pt_state(pt)->users++;
	else
		ret = begin_to_share(pt, vma, addr, src_pmd, mixed);
	if (ret)
		goto unlock;
	set_pmd(dst_pmd, *src_pmd);
	ret = quire_pt_state(pt)->users;
	mm_inc_nr_ptes(dst_mm);
	pt_count(PT_PMDS_MARKED);
	pt_count(PT_TABLES_SHARED);
unlock:
	spin_unlock(ptlock_ptr(pt));
out:
	quire_pt_end_charge(objcg, ret > 0);
	return ret;
}

/* The last user takes the table as its own. */
static void adopt(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	struct ptdesc *pt = quire_pmd_ptdesc(*pmd);
	struct quire_pt_state *state = quire_pt_state(pt);
	struct mm_struct *owner = *quire_pt_owner(pt);

	lockdep_assert_held(pmd_lockptr(vma->vm_mm, pmd));
	lockdep_assert_held(ptlock_ptr(pt));
	VM_WARN_ON_ONCE(state->users != 1 || state->leaving);
	/* Nobody writes through the table of a process that has ended. */
	if ((owner != vma->vm_mm || state->flags & QUIRE_PT_REFERENCED) &&
	    !(state->flags & QUIRE_PT_SANITIZED) && atomic_read(&vma->vm_mm->mm_users))
		sanitize(pt, vma, addr);
	if (owner != vma->vm_mm) {
		if (unlikely(owner != quire_pt_orphans))
			quire_warn(quire_pt_classes[QUIRE_PT_COW]->feature,
				   "last user of a table of another's\n");
		recharge(pt, vma, addr, vma->vm_mm);
	}
	/* Under the locks: what was cleared is not filled again before. */
	if (state->flags & QUIRE_PT_STALE) {
		flush_tlb_mm_range(vma->vm_mm, addr, addr + PMD_SIZE, PAGE_SHIFT, false);
		quire_pt_count_flush(QUIRE_PT_COW, QUIRE_FLUSH_LEAVE);
	}
	*quire_pt_owner(pt) = NULL;
	state->users = 0;
	quire_pt_note_no_pins(pt);
	set_pmd(pmd, quire_pmd_unmark(*pmd));
	pt_count(PT_PMDS_UNMARKED);
	pt_count(PT_TABLES_ADOPTED);
	trace_pt_adopt(vma->vm_mm, addr, 1);
}

/**
 * quire_pt_drop_slot - let go of what an entry that was cleared stood for
 * @vma: any user's
 * @addr: the entry's
 * @pte: the entry; if it is present no TLB knows it
 *
 * Context: the PTL is held, or that of the table of which this was a copy.
 */
void quire_pt_drop_slot(struct vm_area_struct *vma, unsigned long addr, pte_t pte)
{
	struct page *page;
	swp_entry_t entry;

	if (pte_present(pte)) {
		page = vm_normal_page(vma, addr, pte);
		if (!page)
			return;
		folio_remove_rmap_pte(page_folio(page), page, vma);
		free_page_and_swap_cache(page);
		return;
	}
	entry = pte_to_swp_entry(pte);
	if (!non_swap_entry(entry)) {
		free_swap_and_cache(entry);
	} else if (is_device_private_entry(entry) || is_device_exclusive_entry(entry)) {
		page = pfn_swap_entry_to_page(entry);
		if (is_device_private_entry(entry))
			folio_remove_rmap_pte(page_folio(page), page, vma);
		folio_put(page_folio(page));
	}
}

/*
 * Empty a table that no PMD points to: the entries of a copy that was given up, or
 * those that the last of all users left. A TLB knows none of their pages, but through
 * a copy that maps them, too. Their charge is the caller's.
 */
static void drop_slots(struct ptdesc *pt, struct vm_area_struct *vma, unsigned long addr)
{
	pte_t *pte = first_slot(pt);
	int i;

	for (i = 0; i < PTRS_PER_PTE; i++, pte++, addr += PAGE_SIZE)
		if (!pte_none(ptep_get(pte)))
			quire_pt_drop_slot(vma, addr, ptep_get_and_clear(vma->vm_mm, addr, pte));
}

static void free_table_rcu(struct rcu_head *head)
{
	struct ptdesc *pt = container_of(head, struct ptdesc, pt_rcu_head);

	pte_free(NULL, ptdesc_page(pt));
}

/*
 * Let go of a table that this mm does not point to any more and that its TLBs
 * have forgotten. The VMA is still in the reverse map.
 */
static void put_table(struct ptdesc *pt, struct vm_area_struct *vma, unsigned long addr)
{
	struct quire_pt_state *state = quire_pt_state(pt);
	spinlock_t *ptl = ptlock_ptr(pt);
	bool last;

	spin_lock(ptl);
	state->leaving--;
	last = !--state->users;
	if (last) {
		int rss[NR_MM_COUNTERS] = {}, i;
		unsigned long a = addr;
		pte_t *pte = first_slot(pt);

		for (i = 0; i < PTRS_PER_PTE; i++, a += PAGE_SIZE) {
			int type = quire_pt_charged_as(vma, a, ptep_get(pte + i), false);

			if (type >= 0)
				rss[type]--;
		}
		drop_slots(pt, vma, addr);
		for (i = 0; i < NR_MM_COUNTERS; i++)
			if (rss[i])
				add_mm_counter(*quire_pt_owner(pt), i, rss[i]);
	} else {
		quire_pt_uncharge(pt);
	}
	spin_unlock(ptl);
	if (!last)
		return;
	/* A reverse map walker may be waiting for the lock. */
	pt_count(PT_TABLES_DROPPED);
	call_rcu(&pt->pt_rcu_head, free_table_rcu);
}

/*
 * Copy the entries into an empty table, of a mixed one all but the pages of files, which
 * one fault maps again, sixteen at once. Under the locks of the PMD and of the
 * table at once: migration entries must not end up where the reverse map cannot
 * find them. 0, or -EIO with *entry a swap entry that needs a continuation.
 */
static int copy_table(struct vm_area_struct *vma, struct ptdesc *pt,
		      struct ptdesc *copy, unsigned long addr, swp_entry_t *entry)
{
	struct mm_struct *mm = vma->vm_mm;
	int rss[NR_MM_COUNTERS] = {};
	int done, i;

	done = quire_pt_copy_slots(vma, copy, pt, addr, rss, is_mixed(pt));
	if (done < PTRS_PER_PTE) {
		*entry = pte_to_swp_entry(ptep_get(first_slot(pt) + done));
		/* No area of the user has to do with what was not used. */
		drop_slots(copy, &quire_pt_orphans_area, addr);
		pt_count(PT_COPY_RETRIED);
		return -EIO;
	}
	quire_pt_state(pt)->flags |= QUIRE_PT_SANITIZED;
	if (*quire_pt_owner(pt) == mm && is_mixed(pt)) {
		update_hiwater_rss(mm);
		recharge(pt, vma, addr, quire_pt_orphans);
	} else if (*quire_pt_owner(pt) == mm) {
		/* It stays charged, for the copy now, and the table is an orphan. */
		*quire_pt_owner(pt) = quire_pt_orphans;
		mm = quire_pt_orphans;
	}
	for (i = 0; i < NR_MM_COUNTERS; i++)
		if (rss[i])
			add_mm_counter(mm, i, rss[i]);
	return 0;
}

/* May TLBs know pages that a copy of the table does not map? */
static bool knows_more(struct ptdesc *pt)
{
	return quire_pt_state(pt)->flags & (QUIRE_PT_MIXED | QUIRE_PT_STALE);
}

/* copy_table(), and use of the copy; *new is used up then. The same locks are held. */
static int switch_to_copy(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
			  struct ptdesc *pt, pgtable_t *new, swp_entry_t *entry)
{
	struct mm_struct *mm = vma->vm_mm;
	int ret = copy_table(vma, pt, page_ptdesc(*new), addr, entry);

	if (ret)
		return ret;
	quire_pt_hand_charge(pt, page_ptdesc(*new));
	quire_pt_note_no_pins(page_ptdesc(*new));
	pmd_populate(mm, pmd, *new);
	*new = NULL;
	/*
	 * The TLB's entries may stay if the copy maps the same pages, none for writing. That of
	 * a mixed table has not all of them, nor has one of a table of which the reverse map has
	 * cleared entries, and nobody will flush for those it has not.
	 * What caches the PMD goes with any page of it, as for pte_free_tlb() (Intel SDM
	 * volume 3A, 4.10.4.1). The locks are held for it: the end of a migration makes
	 * an entry present, which no walk by the old PMD may put into a TLB, for the copy
	 * has it not, and who changes the copy then does not flush.
	 */
	flush_tlb_mm_range(mm, addr, addr + (knows_more(pt) ? PMD_SIZE : PAGE_SIZE), PAGE_SHIFT,
			   true);
	quire_pt_count_flush(QUIRE_PT_COW, QUIRE_FLUSH_LEAVE);
	/* Others use it, or are leaving it: it is not 0. */
	quire_pt_state(pt)->users--;
	pt_count(PT_PMDS_UNMARKED);
	pt_count(PT_TABLES_COPIED);
	trace_pt_break(mm, addr, quire_pt_state(pt)->users);
	return 0;
}

/*
 * One attempt. 0: the PMD is private now; -EAGAIN: a new table is needed;
 * -EIO: as copy_table(). Uses up *new if it was needed.
 */
static int unshare_once(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
			pgtable_t *new, swp_entry_t *entry)
{
	struct mm_struct *mm = vma->vm_mm;
	spinlock_t *pml, *ptl;
	struct ptdesc *pt;
	int ret = 0;

	pml = pmd_lock(mm, pmd);
	if (!pmd_pt_cow(*pmd)) {
		spin_unlock(pml);
		return 0;
	}
	pt = quire_pmd_ptdesc(*pmd);
	ptl = lock_table(mm, pmd);
	if (quire_pt_state(pt)->users == 1)
		adopt(vma, pmd, addr);
	else
		ret = *new ? switch_to_copy(vma, pmd, addr, pt, new, entry) : -EAGAIN;
	spin_unlock(ptl);
	spin_unlock(pml);
	return ret;
}

/*
 * Not charged: the copy takes over a charge of the table (see charge.c). What is done ahead
 * of need must not have others wait for memory.
 */
static gfp_t table_gfp(enum quire_pt_cause cause)
{
	if (cause == QUIRE_PT_BACKGROUND)
		return (GFP_PGTABLE_KERNEL & ~__GFP_DIRECT_RECLAIM) | __GFP_NOWARN;
	return GFP_PGTABLE_KERNEL;
}

/**
 * quire_pt_cow_unshare - give a process a table of its own
 * @vma: covers the table, or reaches into it if that is mixed
 * @pmd: marked when the caller looked
 * @addr: the first address that the table maps
 * @cause: who asks
 * @gfp: 0, or __GFP_NOFAIL
 *
 * Context: as __quire_pt_unshare(). Return: likewise.
 */
int quire_pt_cow_unshare(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
		       enum quire_pt_cause cause, gfp_t gfp)
{
	struct mm_struct *mm = vma->vm_mm;
	swp_entry_t entry = {};
	pgtable_t new = NULL;
	int ret;

	pt_count(PT_CAUSE_FIRST + cause);
	while ((ret = unshare_once(vma, pmd, addr, &new, &entry))) {
		if (ret == -EAGAIN) {
			do {
				new = __pte_alloc_one(mm, table_gfp(cause) | gfp);
			} while (!new && gfp);
			ret = new ? 0 : -ENOMEM;
		} else if (non_swap_entry(entry)) {
			/* A device's page that was locked. */
			cond_resched();
			continue;
		} else {
			do {
				ret = add_swap_count_continuation(entry, GFP_KERNEL);
			} while (ret && gfp);
		}
		if (ret)
			break;
	}
	if (new)
		pte_free(mm, new);
	return ret;
}

/* Wait for a page that is being migrated; false if that is not what is there. */
static bool wait_for_migration(struct mm_struct *mm, pmd_t *pmd, unsigned long addr)
{
	swp_entry_t entry;
	spinlock_t *ptl;
	pte_t *pte, ptent;

	pte = __quire_pte_offset_map_lock(mm, pmd, addr, &ptl);
	if (!pte)
		return false;
	ptent = ptep_get(pte);
	if (pmd_pt_cow(*pmd) && is_swap_pte(ptent)) {
		entry = pte_to_swp_entry(ptent);
		if (is_migration_entry(entry)) {
			pte_unmap(pte);
			migration_entry_wait_on_locked(entry, ptl);
			return true;
		}
	}
	pte_unmap_unlock(pte, ptl);
	return false;
}

/**
 * __quire_pt_fault - a page fault met a shared table
 * @vma: the fault's
 * @pmd: marked when the caller looked
 * @addr: the fault's
 * @flags: FAULT_FLAG_*
 *
 * Compaction must not make its readers copy, so they wait for the page. Context: as
 * __quire_pt_unshare(). Returns 1 to repeat the access, 0 if the table is private now, -ENOMEM.
 */
int __quire_pt_fault(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
		     unsigned int flags)
{
	if (!(flags & (FAULT_FLAG_WRITE | FAULT_FLAG_UNSHARE)) &&
	    wait_for_migration(vma->vm_mm, pmd, addr))
		return 1;
	return __quire_pt_unshare(vma, pmd, addr, QUIRE_PT_FAULT, 0);
}

#define LEAVE_BATCH 32
struct left_table {
	struct ptdesc *pt;	/* NULL if there is nothing left to do */
	unsigned long addr;
};

/*
 * Clear the PMD; false if there is none to clear, or it is private now. For a mixed table
 * that is all: the entries of files must not be without a PMD that leads to them for a
 * moment, see mixed.c, so the last user adopts and no leaver ever drops them.
 */
static bool leave(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
		  struct left_table *left)
{
	struct mm_struct *mm = vma->vm_mm;
	spinlock_t *pml, *ptl;
	struct ptdesc *pt;
	bool stays = false;

	pml = pmd_lock(mm, pmd);
	if (!pmd_pt_cow(*pmd)) {
		spin_unlock(pml);
		return false;
	}
	pt = quire_pmd_ptdesc(*pmd);
	ptl = lock_table(mm, pmd);
	if (quire_pt_state(pt)->users == 1) {
		adopt(vma, pmd, addr);
	} else {
		if (*quire_pt_owner(pt) == mm)
			recharge(pt, vma, addr, quire_pt_orphans);
		pmd_clear(pmd);
		mm_dec_nr_ptes(mm);
		left->pt = is_mixed(pt) ? NULL : pt;
		quire_pt_state(pt)->leaving += !is_mixed(pt);
		left->addr = addr;
		stays = true;
		pt_count(PT_PMDS_UNMARKED);
		pt_count(PT_TABLES_LEFT);
		trace_pt_leave(mm, addr, quire_pt_state(pt)->users - 1);
		if (is_mixed(pt)) {
			flush_tlb_mm_range(mm, addr, addr + PMD_SIZE, PAGE_SHIFT, true);
			quire_pt_state(pt)->users--;
			quire_pt_uncharge(pt);
		}
	}
	spin_unlock(ptl);
	spin_unlock(pml);
	return stays;
}

/* Up to a batch of whole tables from *@addr, which is set to the end of the last. */
static int leave_run(struct vm_area_struct *vma, pmd_t *pmd, unsigned long *addr,
		     unsigned long end)
{
	struct left_table left[LEAVE_BATCH];
	unsigned long start = *addr;
	int i, nr = 0;

	while (nr < LEAVE_BATCH && end - *addr >= PMD_SIZE &&
	       leave(vma, pmd + nr, *addr, &left[nr])) {
		nr++;
		*addr += PMD_SIZE;
	}
	if (!nr)
		return 0;
	flush_tlb_mm_range(vma->vm_mm, start, *addr, PAGE_SHIFT, true);
	quire_pt_count_flush(QUIRE_PT_COW, QUIRE_FLUSH_LEAVE);
	for (i = 0; i < nr; i++)
		if (left[i].pt)
			put_table(left[i].pt, vma, left[i].addr);
	return nr;
}

/**
 * quire_pt_leave - leave a shared table
 * @vma: reaches into the table
 * @pmd: of the table
 * @addr: the first address that the table maps
 *
 * Context: mmap_lock held, or the mm is exiting. Returns false if it is private (now).
 */
bool quire_pt_leave(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	return leave_run(vma, pmd, &addr, addr + PMD_SIZE);
}

/* Does everything that is private go, and not what is zapped now alone? */
static bool all_goes(struct mm_struct *mm)
{
	return !atomic_read(&mm->mm_users) || test_bit(MMF_UNSTABLE, &mm->flags);
}

/**
 * __quire_pt_zap - leave the shared tables at the start of a range
 * @tlb: gathers the pages
 * @vma: the range is in it
 * @pmd: of *@addr; set to the last table's that was left
 * @addr: start of the range; set to the end of what was dealt with
 * @end: end of the range, within one PMD page
 * @details: as for zap_pte_range()
 *
 * Touches no entry, allocates nothing where whole tables are unmapped.
 * Context: may sleep; mmap_lock held, or the mm is exiting, or the file's i_mmap lock.
 * Returns false if the first table is private (now) and to be zapped as ever.
 */
bool __quire_pt_zap(struct mmu_gather *tlb, struct vm_area_struct *vma, pmd_t **pmd,
		    unsigned long *addr, unsigned long end, struct zap_details *details)
{
	unsigned long start = *addr, next = pmd_addr_end(start, end);
	int nr;

	/* The file goes away there, for all. */
	if (details && !(details->zap_flags & ZAP_FLAG_UNMAP))
		return quire_pt_zap_in_place(tlb, vma, *pmd, addr, next, details);
	if (!IS_ALIGNED(start, PMD_SIZE) || end - start < PMD_SIZE) {
		if (all_goes(vma->vm_mm) && quire_pt_leave(vma, *pmd, start & PMD_MASK)) {
			*addr = next;
			return true;
		}
		quire_pt_unshare_nofail(vma, *pmd, start, QUIRE_PT_SYSCALL);
		return false;
	}
	nr = leave_run(vma, *pmd, addr, end);
	if (!nr)
		return false;
	*pmd += nr - 1;
	return true;
}

/**
 * quire_pt_note_reference - a page is about to be referenced for reading
 * @pmd: marked; the table's PTL is held until the reference is taken
 */
void quire_pt_note_reference(pmd_t *pmd)
{
	lockdep_assert_held(ptlock_ptr(quire_pmd_ptdesc(*pmd)));
	quire_pt_state(quire_pmd_ptdesc(*pmd))->flags |= QUIRE_PT_REFERENCED;
	pt_count(PT_REFERENCES);
}

/**
 * quire_pt_cow_still_shared - has a copy-on-write table another user?
 * @vma: covers the whole table
 * @pmd: marked when the caller looked
 * @addr: the first address that the table maps
 *
 * Context: as __quire_pt_still_shared(). Return: likewise.
 */
bool quire_pt_cow_still_shared(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	spinlock_t *pml, *ptl;
	bool shared;

	if (quire_pt_has_other_users(pmd))
		return true;
	pml = pmd_lock(vma->vm_mm, pmd);
	shared = pmd_pt_cow(*pmd);
	if (shared) {
		ptl = lock_table(vma->vm_mm, pmd);
		if (quire_pt_state(quire_pmd_ptdesc(*pmd))->users == 1) {
			adopt(vma, pmd, addr);
			shared = false;
		}
		spin_unlock(ptl);
	}
	spin_unlock(pml);
	return shared;
}

/**
 * quire_pt_on_mmlist - have swapoff visit an mm
 * @mm: will use a shared table, in which the reverse map may swap out pages
 *	for all users at once without knowing them
 *
 * Context: does not sleep; takes mmlist_lock.
 */
void quire_pt_on_mmlist(struct mm_struct *mm)
{
	if (!list_empty(&mm->mmlist))
		return;
	spin_lock(&mmlist_lock);
	if (list_empty(&mm->mmlist))
		list_add(&mm->mmlist, &init_mm.mmlist);
	spin_unlock(&mmlist_lock);
}

/**
 * quire_pt_init - make the orphans' mm, which lives for ever
 *
 * Context: boot, before any table is shared. Returns 0 or -ENOMEM.
 */
int __init quire_pt_init(void)
{
	quire_pt_orphans = mm_alloc();
	if (!quire_pt_orphans)
		return -ENOMEM;
	raw_write_seqcount_begin(&quire_pt_orphans->write_protect_seq);
	quire_pt_on_mmlist(quire_pt_orphans);
	quire_pt_init_copy();
	return 0;
}
