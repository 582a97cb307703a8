// SPDX-License-Identifier: GPL-2.0
/*
 * Shared page tables: last-level page tables that several processes use at once. This file is about
 * tables of private memory, which fork shares. shm/shm.c has the rules for tables of shared memory,
 * which are not write-protected.
 *
 * A shared table is the table itself, with its state in its ptdesc (see linux/quire/pt_state.h).
 * Each PMD that points to it is write-protected and marked. The entries are as they were when the
 * table was first shared, writable ones included: only the PMD protects them.
 *
 * Rules
 *
 *  - Folio mapcounts, folio references and swap counts count the entries that exist in memory. An
 *    entry of a shared table counts once.
 *  - PageAnonExclusive and a writable entry mean "this table's alone". They mean "this process's
 *    alone" only if the PMD is not marked.
 *  - A process never changes a shared table. It gets a private one first, by copying the table or,
 *    as its last user, by adopting it, or it leaves the table. __pte_offset_map() refuses a marked
 *    PMD, so a walker that was forgotten sees no table, and the debug kernel warns; see
 *    quire_pt_forgotten(). The reverse map changes entries in place: it flushes the TLBs of all
 *    users (flush.c) and charges the table's owner.
 *  - In each process a shared table lies within one VMA, or is mixed; see mixed.c. Code that moves
 *    a VMA boundary into it, or changes a VMA's flags, unshares it first.
 *  - The entries are charged (RSS) to one mm, the owner. That is the process that shared the table
 *    first, and after it has left, the orphans' mm, a pseudo process.
 *  - A table that maps a pinned page is not shared. No pin (FOLL_PIN) and no reference for writing
 *    is ever taken through a marked PMD. A reference for reading (FOLL_GET) is taken under the PTL
 *    and sets a flag of the table, since it may be anybody's: a process that adopts the table later
 *    sanitizes it. The last user adopts the table before it takes a reference, which is then its
 *    own. References from before the sharing can only be the owner's: the owner may adopt a table
 *    without that flag as it is, and other users sanitize it first.
 *
 * Locks: a PMD begins and ceases to be marked under the table's page table lock (PTL), which nests
 * in the PMD's lock. In fork the two mmap_locks, held for writing, stand in for the PMD's lock. If
 * the table's PTL is held and a PMD points to the table, the PMD tells whether the table is shared.
 * A table may be accessed through a marked PMD only while that PMD's lock or the table's PTL is
 * held; __quire_pte_offset_map_lock() gets from the first to the second.
 *
 * Lifetime: users counts the PMDs that point to the table, and its leavers. A leaver clears its
 * PMD, flushes its TLB and only then drops its count, all before its VMA leaves the reverse map. A
 * process that copies the table points its PMD to the copy, flushes what caches the PMD and drops
 * its count, all before it drops both locks: until then nobody can make an entry of the old table
 * present, which a CPU might still walk. The user that drops the count to 0 drops the entries and
 * frees the table by RCU. An adopted table is an ordinary table again and is freed as any other.
 * That is safe: lockless walkers do not enter through marked PMDs, and the walkers of the reverse
 * map hold a lock that unlinking the adopter's VMA waits for, because the adopter has a link
 * wherever the sharer has one (quire_pt_mixable()).
 *
 * Undo: __quire_pt_unshare() gives a process its own table; the drain in fork/fork.c unshares all
 * tables.
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
 * Charged for the entries of tables whose owner has left. As the source of copies it stands for the
 * table itself, which is no single process's. Its write_protect_seq counts as raised for ever,
 * because nothing can be pinned through a shared table.
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
 * @vma: a VMA of any user
 * @addr: the entry's address
 * @pte: the entry
 * @mixed: the table is mixed
 *
 * All of a table that is not mixed is anonymous, so this needs no look at a struct page.
 * Context: the PTL is held.
 * Return: an RSS counter, or -1 if the entry is not charged.
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

/* A swap entry, made non-exclusive and read-only. Looks at nothing but the entry. */
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
 * Change all entries so that their next writer takes a fault. No TLB holds a writable translation,
 * because all PMDs are write-protected: nothing needs a flush.
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
 * Returns the table that @src_pmd points to, with its PTL held, or NULL if there is none any more.
 * Fork's locks keep faults out, but not retract_page_tables(), which removes an empty table of a
 * file under the file's i_mmap lock, the PMD's lock and the PTL. RCU frees that table.
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

/* Mark a private table's PMD, which gives the table a second user. Returns 0 or -EBUSY. */
static int begin_to_share(struct ptdesc *pt, struct vm_area_struct *vma, unsigned long addr,
			  pmd_t *pmd, bool mixed)
{
	struct quire_pt_state *state = quire_pt_state(pt);
	struct mm_struct *mm = vma->vm_mm;

	/*
	 * A pin that the search misses does not last: GUP-fast drops it when it finds that
	 * write_protect_seq was raised. The barrier pairs with gup_fast()'s atomic set_bit() for
	 * the first pin, and for every pin with the atomic that takes it, after GUP-fast has
	 * cleared the table's flag (pins.c) and before it rereads the sequence. No pin is taken
	 * through a marked PMD.
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
 * @vma: the parent's VMA; it, or all VMAs that reach into the table, are locked for writing
 * @addr: the first address that the table maps
 * @dst_mm: the child's mm, with mmap_lock held for writing
 * @src_pmd: points to the table, marked or not
 * @dst_pmd: none
 * @mixed: the table does not lie within one anonymous VMA
 *
 * Changes no entry, and reads none unless the parent has ever pinned memory. The parent's TLB must
 * be flushed before the child runs and before the parent's mmap_lock is dropped.
 * Context: may sleep; the parent's mmap_lock is held for writing and its write_protect_seq is
 * raised.
 * Return: how many users the table has now; -EBUSY if it maps a pinned page, -ENOENT if it is gone,
 * -EXDEV if users in another memory cgroup share it, -ENOMEM if this memory cgroup has no room.
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
	/*
	 * A process that has ended does not write through its tables, so it need not sanitize them.
	 */
	if ((owner != vma->vm_mm || state->flags & QUIRE_PT_REFERENCED) &&
	    !(state->flags & QUIRE_PT_SANITIZED) && atomic_read(&vma->vm_mm->mm_users))
		sanitize(pt, vma, addr);
	if (owner != vma->vm_mm) {
		if (unlikely(owner != quire_pt_orphans))
			quire_warn(quire_pt_classes[QUIRE_PT_COW]->feature,
				   "last user of a table of another's\n");
		recharge(pt, vma, addr, vma->vm_mm);
	}
	/* Flush under the locks: a cleared entry must not be filled again before. */
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
 * quire_pt_drop_entry - release what a cleared entry that was not present referred to
 * @vma: a VMA of any user
 * @pte: the entry
 *
 * Context: the PTL is held, or the PTL of the table of which this was a copy.
 */
void quire_pt_drop_entry(struct vm_area_struct *vma, pte_t pte)
{
	swp_entry_t entry = pte_to_swp_entry(pte);
	struct page *page;

	if (!non_swap_entry(entry)) {
		free_swap_and_cache(entry);
	} else if (is_device_private_entry(entry) || is_device_exclusive_entry(entry)) {
		page = pfn_swap_entry_to_page(entry);
		if (is_device_private_entry(entry))
			folio_remove_rmap_pte(page_folio(page), page, vma);
		folio_put(page_folio(page));
	}
}

/* Release pages that no entry of ours maps any more, as mmu_gather does. */
static void release(struct folio_batch *batch)
{
	unsigned int i;

	for (i = 0; i < folio_batch_count(batch); i++)
		free_swap_cache(batch->folios[i]);
	folios_put(batch);
}

/*
 * Empty a table that no PMD points to: a copy that was given up, or a table that all users have
 * left, which is not mixed. No TLB holds a translation for its pages, except from a copy that maps
 * them, too. @rss gets, as negative numbers, how many pages of each kind such a table is charged as.
 * A copy was not charged, and its caller ignores @rss.
 */
static void drop_slots(struct ptdesc *pt, struct vm_area_struct *vma, unsigned long addr, int *rss)
{
	pte_t *slot = first_slot(pt);
	struct folio_batch batch;
	int i, type;

	folio_batch_init(&batch);
	for (i = 0; i < PTRS_PER_PTE; i++, slot++, addr += PAGE_SIZE) {
		struct page *page;
		pte_t pte;

		if (pte_none(ptep_get(slot)))
			continue;
		pte = ptep_get_and_clear(vma->vm_mm, addr, slot);
		if (!pte_present(pte)) {
			type = quire_pt_charged_as(vma, addr, pte, false);
			if (type >= 0)
				rss[type]--;
			quire_pt_drop_entry(vma, pte);
			continue;
		}
		page = vm_normal_page(vma, addr, pte);
		if (!page)
			continue;
		rss[MM_ANONPAGES]--;
		folio_remove_rmap_pte(page_folio(page), page, vma);
		if (!folio_batch_add(&batch, page_folio(page)))
			release(&batch);
	}
	release(&batch);
}

static void free_table_rcu(struct rcu_head *head)
{
	struct ptdesc *pt = container_of(head, struct ptdesc, pt_rcu_head);

	pte_free(NULL, ptdesc_page(pt));
}

/*
 * Drop this mm's count of a table that its PMD does not point to any more and that its TLBs do not
 * hold. The VMA is still in the reverse map. Returns whether it was the last, which released up to
 * 512 pages.
 */
static bool put_table(struct ptdesc *pt, struct vm_area_struct *vma, unsigned long addr)
{
	struct quire_pt_state *state = quire_pt_state(pt);
	spinlock_t *ptl = ptlock_ptr(pt);
	bool last;

	spin_lock(ptl);
	state->leaving--;
	last = !--state->users;
	if (last) {
		int rss[NR_MM_COUNTERS] = {}, i;

		drop_slots(pt, vma, addr, rss);
		for (i = 0; i < NR_MM_COUNTERS; i++)
			if (rss[i])
				add_mm_counter(*quire_pt_owner(pt), i, rss[i]);
	} else {
		quire_pt_uncharge(pt);
	}
	spin_unlock(ptl);
	if (!last)
		return false;
	/* RCU frees it, because a walker of the reverse map may be waiting for the PTL. */
	pt_count(PT_TABLES_DROPPED);
	call_rcu(&pt->pt_rcu_head, free_table_rcu);
	return true;
}

/*
 * Copy the entries into an empty table. For a mixed table leave out the pages of files, which a
 * fault maps again, sixteen at once. The PMD's lock and the PTL are both held: migration entries
 * must not end up where the reverse map cannot find them. Returns 0, or -EIO with *entry set to a
 * swap entry that needs a continuation, or to one for a device's page that is locked.
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
		/* The copy was not used, so no VMA of the user is involved. */
		drop_slots(copy, &quire_pt_orphans_area, addr, rss);
		pt_count(PT_COPY_RETRIED);
		return -EIO;
	}
	quire_pt_state(pt)->flags |= QUIRE_PT_SANITIZED;
	if (*quire_pt_owner(pt) == mm && is_mixed(pt)) {
		update_hiwater_rss(mm);
		recharge(pt, vma, addr, quire_pt_orphans);
	} else if (*quire_pt_owner(pt) == mm) {
		/* The user stays charged, now for the copy, and the table becomes an orphan. */
		*quire_pt_owner(pt) = quire_pt_orphans;
		mm = quire_pt_orphans;
	}
	for (i = 0; i < NR_MM_COUNTERS; i++)
		if (rss[i])
			add_mm_counter(mm, i, rss[i]);
	return 0;
}

/* May TLBs hold pages that a copy of the table does not map? */
static bool knows_more(struct ptdesc *pt)
{
	return quire_pt_state(pt)->flags & (QUIRE_PT_MIXED | QUIRE_PT_STALE);
}

/* copy_table(), and switch to the copy; *new is consumed then. The same locks are held. */
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
	 * The TLB entries may stay if the copy maps the same pages, all of them read-only. The copy
	 * of a mixed table lacks some pages, and so does the copy of a table in which the reverse
	 * map has cleared entries; nobody would flush these pages later. A flush of any page also
	 * drops what caches the PMD, as for pte_free_tlb() (Intel SDM volume 3A, 4.10.4.1). The
	 * flush needs both locks. The end of a migration makes an entry of the old table present. A
	 * walk through the old PMD must not load that entry into a TLB, because the copy does not
	 * have it, and a process that changes the copy does not flush.
	 */
	flush_tlb_mm_range(mm, addr, addr + (knows_more(pt) ? PMD_SIZE : PAGE_SIZE), PAGE_SHIFT,
			   true);
	quire_pt_count_flush(QUIRE_PT_COW, QUIRE_FLUSH_LEAVE);
	/* Not 0 afterwards: other users or leavers remain. */
	quire_pt_state(pt)->users--;
	pt_count(PT_PMDS_UNMARKED);
	pt_count(PT_TABLES_COPIED);
	trace_pt_break(mm, addr, quire_pt_state(pt)->users);
	return 0;
}

/*
 * One attempt. Returns 0 if the PMD is private now, -EAGAIN if a new table is needed, or -EIO as
 * copy_table(). Consumes *new if it was needed.
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
 * For a table and for the swap map. Not charged: the copy takes over a charge of the table (see
 * charge.c). Unsharing ahead of need must not make others wait for memory; only Linux's own lock of
 * a table, where lock debugging makes that an object of its own, may.
 */
static gfp_t unshare_gfp(enum quire_pt_cause cause)
{
	return cause == QUIRE_PT_BACKGROUND ? GFP_NOWAIT : GFP_KERNEL;
}

/**
 * quire_pt_cow_unshare - give a process its own page table
 * @vma: covers the table, or reaches into it if the table is mixed
 * @pmd: marked when the caller looked
 * @addr: the first address that the table maps
 * @cause: who asks
 * @gfp: 0, or __GFP_NOFAIL
 *
 * Context: as __quire_pt_unshare().
 * Return: as __quire_pt_unshare().
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
				new = __pte_alloc_one(mm, unshare_gfp(cause) | __GFP_ZERO | gfp);
			} while (!new && gfp);
			ret = new ? 0 : -ENOMEM;
		} else if (non_swap_entry(entry)) {
			/* A device's page was locked. */
			cond_resched();
			continue;
		} else {
			do {
				ret = add_swap_count_continuation(entry, unshare_gfp(cause));
			} while (ret && gfp);
		}
		if (ret)
			break;
	}
	if (new)
		pte_free(mm, new);
	return ret;
}

/* Wait until the page is migrated. Returns false if the entry is not a migration entry. */
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
 * __quire_pt_fault - handle a page fault that meets a shared copy-on-write table
 * @vma: the fault's VMA
 * @pmd: marked when the caller looked
 * @addr: the fault's address
 * @flags: FAULT_FLAG_*
 *
 * A read fault on a page that is being migrated waits for the page, so that compaction does not
 * make readers copy the table.
 * Context: as __quire_pt_unshare().
 * Return: 1 to repeat the access, 0 if the table is private now, or -ENOMEM.
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
	struct ptdesc *pt;	/* NULL if nothing is left to do */
	unsigned long addr;
};

/*
 * Clear the PMD. Returns false if there is none to clear, or the table is private now. For a mixed
 * table this completes the leaving: its entries of files must never be without a PMD that points to
 * them (see mixed.c), so the last user adopts and no leaver ever drops them.
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

/* Leave up to a batch of whole tables from *@addr, which is set to the end of the last one. */
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
	/* Until a table is put, reclaim flushes all CPUs for it: yield only after long work. */
	for (i = 0; i < nr; i++)
		if (left[i].pt && put_table(left[i].pt, vma, left[i].addr))
			cond_resched();
	return nr;
}

/**
 * quire_pt_leave - leave a shared table
 * @vma: reaches into the table
 * @pmd: the PMD
 * @addr: the first address that the table maps
 *
 * Context: mmap_lock is held, or the mm is exiting; may sleep.
 * Return: true, or false if the table is private (now).
 */
bool quire_pt_leave(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	return leave_run(vma, pmd, &addr, addr + PMD_SIZE);
}

/* Does the mm lose all its private memory, and not only the range that is zapped now? */
static bool all_goes(struct mm_struct *mm)
{
	return !atomic_read(&mm->mm_users) || test_bit(MMF_UNSTABLE, &mm->flags);
}

/**
 * __quire_pt_zap - zap the shared copy-on-write tables at the start of a range
 * @tlb: gathers the pages
 * @vma: contains the range
 * @pmd: the PMD of *@addr; set to the last PMD that was handled
 * @addr: start of the range; set to the end of what was handled
 * @end: end of the range, within one PMD page
 * @details: as for zap_pte_range()
 *
 * If whole tables are unmapped, this touches no entry and allocates nothing.
 * Context: may sleep; mmap_lock or the file's i_mmap lock is held, or the mm is exiting.
 * Return: true, or false if the first table is private (now) and the caller must zap it.
 */
bool __quire_pt_zap(struct mmu_gather *tlb, struct vm_area_struct *vma, pmd_t **pmd,
		    unsigned long *addr, unsigned long end, struct zap_details *details)
{
	unsigned long start = *addr, next = pmd_addr_end(start, end);
	int nr;

	/* The file's pages go away, for all users. */
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
 * quire_pt_note_reference - note that a page is about to be referenced for reading
 * @pmd: marked
 *
 * Context: the table's PTL is held until the reference is taken.
 */
void quire_pt_note_reference(pmd_t *pmd)
{
	lockdep_assert_held(ptlock_ptr(quire_pmd_ptdesc(*pmd)));
	quire_pt_state(quire_pmd_ptdesc(*pmd))->flags |= QUIRE_PT_REFERENCED;
	pt_count(PT_REFERENCES);
}

/**
 * quire_pt_cow_still_shared - does a copy-on-write table have another user?
 * @vma: covers the whole table
 * @pmd: marked when the caller looked
 * @addr: the first address that the table maps
 *
 * Context: as __quire_pt_still_shared().
 * Return: as __quire_pt_still_shared().
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
 * @mm: will use a shared table, from which the reverse map may swap out pages for all users at once
 *	without knowing them
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
 * quire_pt_init - make the orphans' mm, which is never freed
 *
 * Context: boot, before any table is shared.
 * Return: 0 or -ENOMEM.
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
