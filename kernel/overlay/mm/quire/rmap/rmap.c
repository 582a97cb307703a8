// SPDX-License-Identifier: GPL-2.0
/*
 * Borrowed anon_vmas: fork, exec and exit without an anon_vma that nobody needs.
 *
 * Linux gives every VMA of fork's child an anon_vma of its own, so that a walk
 * for a page that the child makes later does not have to visit the parent
 * (Rik van Riel's anon_vma_chain, 2010). A child that execs, exits or only reads
 * makes no such page. So here the child's VMA is linked to the anon_vmas of the
 * parent's VMA, as in vanilla, but uses the parent's anon_vma until it is written
 * to: it borrows. A child of a borrower clones the same chain, so chains grow with
 * the generations that write and not with the depth of forks.
 *
 * It is correct because of the invariant that Linux itself relies on:
 *
 *   (1) a VMA that maps an anonymous folio has an anon_vma_chain in the tree of
 *       the anon_vma that folio->mapping points to.
 *
 * A borrower has a link in the tree of the anon_vma it borrows, maybe inside the VMA
 * (link.c), and keeps it when it is upgraded, so a folio may be attached to either
 * anon_vma; the borrowed one makes walks broader, not wrong. That is why write-reuse
 * and swap-in, which cannot sleep or do not prepare, need no change.
 *
 *   (2) VMAs of one mm that use the same anon_vma have the same chain and the
 *       same anon_borrowed; merging keeps only one of the chains.
 *
 * Fork keeps (2) since it clones chains; an upgrade changes the anon_vma, and joins
 * a neighbour's only if the chains become the same; a copy inherits the flag; and
 * Linux does not merge a borrower with a VMA without anon_vma
 * (is_mergeable_anon_vma()). A borrower is upgraded before it is split or moved:
 * otherwise its parts would later not find each other's anon_vma and could never be
 * merged again.
 *
 * Accounting: num_active_vmas counts a borrower, so the anon_vma it uses is
 * never idle and the rule of 2015 (reuse of an idle anon_vma with less than two
 * children) does not take it. num_children counts upgrades, which make children.
 *
 * Locking: as in mm/rmap.c. The root's rwsem for writing covers the trees and
 * the two counts. mmap_lock, with page_table_lock if it is held for reading only,
 * covers vma->anon_vma, the chain and the flag. Order: mmap_lock, root rwsem,
 * page_table_lock. Nothing is allocated under the root's rwsem. Fork looks at the
 * parent's entries under mmap_lock and their page table lock only.
 *
 * Since an upgrade changes vma->anon_vma under mmap_lock held for reading, code
 * that reads the pointer twice there may see two values; both have the same root.
 *
 * Lifetime: an anon_vma lives at least as long as its tree has a link. A borrower has
 * a link in the tree of what it borrows, so the owner may go first. quire_rmap_used_key
 * stays on after the first start.
 *
 * Undo: an upgrade of every borrower in every mm (drain). If an allocation fails, a
 * borrower stays a borrower.
 */
#define pr_fmt(fmt) "quire: rmap: " fmt

#include <linux/init.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/quire/fork.h>
#include <linux/quire/rmap.h>
#include <linux/rmap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "../core/quire.h"
#include "../../internal.h"
#include "../../vma.h"
#include "rmap.h"

#define CREATE_TRACE_POINTS
#include <trace/events/quire_rmap.h>

DEFINE_STATIC_KEY_FALSE(quire_rmap_key);
DEFINE_STATIC_KEY_FALSE(quire_rmap_used_key);

enum rmap_count {
	RMAP_BORROWED,		/* forks that borrowed, per VMA */
	RMAP_INSIDE,		/* of these, whose link is inside the VMA */
	RMAP_FORK_REUSED,	/* forks that took an idle anon_vma instead */
	RMAP_FORK_EMPTY,	/* forks that had nothing to link */
	RMAP_FORK_NOMEM,	/* forks that failed */
	RMAP_LINKED,		/* VMAs linked under the lock that another VMA of their file took */
	RMAP_INHERITED,		/* copies and halves of a borrower */
	RMAP_UPGRADED,		/* borrowers that made their own anon_vma */
	RMAP_ADOPTED,		/* borrowers that adopted an anon_vma that nobody else uses */
	RMAP_JOINED,		/* borrowers that joined a neighbour's anon_vma */
	RMAP_UPGRADE_NOMEM,	/* upgrades that failed: still borrowers */
	RMAP_DEFERRED,		/* folios of borrowers that went on borrowing */
	RMAP_MOVED,		/* folios that moved to an upgraded VMA's own anon_vma */
	RMAP_RELEASED,		/* borrowers that were unmapped */
	NR_RMAP_COUNTS,
};

static const char * const rmap_count_names[] = {
	"borrowed", "linked_inside", "fork_reused", "fork_empty", "fork_nomem", "file_linked",
	"inherited", "upgraded", "adopted", "joined", "upgrade_nomem", "deferred", "folios_moved",
	"released",
	NULL,
};

static DEFINE_PER_CPU(unsigned long [NR_RMAP_COUNTS], rmap_counts);

static const struct quire_counters rmap_counters = {
	.names = rmap_count_names,
	.counts = (unsigned long __percpu *)rmap_counts,
};

#define count(what) this_cpu_inc(rmap_counts[RMAP_##what])

static struct kmem_cache *anon_vma_cache __ro_after_init;
static struct kmem_cache *avc_cache __ro_after_init;

/* The most pages a VMA may have for fork to check whether it maps any. */
#define EMPTY_PAGES 8

/* How often, and at which interval, a drain looks for borrowers that it did not see. */
#define DRAIN_PASSES 100
#define DRAIN_INTERVAL msecs_to_jiffies(50)

/**
 * quire_rmap_init - take note of the slab caches of mm/rmap.c
 * @anon_vma_cachep: of struct anon_vma
 * @avc_cachep: of struct anon_vma_chain
 *
 * The caches are never destroyed.
 *
 * Context: boot; called by anon_vma_init().
 */
void __init quire_rmap_init(struct kmem_cache *anon_vma_cachep, struct kmem_cache *avc_cachep)
{
	anon_vma_cache = anon_vma_cachep;
	avc_cache = avc_cachep;
}

/**
 * quire_rmap_linked - count VMAs that were linked under the lock that another VMA took
 * @nr: how many
 *
 * Context: any.
 */
void quire_rmap_linked(unsigned int nr)
{
	this_cpu_add(rmap_counts[RMAP_LINKED], nr);
}

/**
 * quire_avc_cache - the slab cache of anon_vma_chains
 *
 * It is known before there are VMAs, and never changes.
 *
 * Context: any; takes no lock.
 * Return: the cache.
 */
struct kmem_cache *quire_avc_cache(void)
{
	return avc_cache;
}

/* The rule of 2015, see anon_vma_clone(). The root's rwsem is held for writing. */
static bool is_idle(const struct anon_vma *anon_vma)
{
	return !anon_vma->num_active_vmas && anon_vma->num_children < 2;
}

/*
 * Link @dst to the anon_vmas of @src, oldest first as anon_vma_clone() does it.
 * The batch has enough links. Returns the oldest idle anon_vma, or NULL.
 */
static struct anon_vma *clone_chain(struct quire_rmap_batch *batch, struct vm_area_struct *dst,
				    struct vm_area_struct *src)
{
	struct anon_vma_chain *avc, *pavc;
	struct anon_vma *idle = NULL;

	list_for_each_entry_reverse(pavc, &src->anon_vma_chain, same_vma) {
		avc = quire_stock_take(&batch->avcs);
		avc->vma = dst;
		avc->anon_vma = pavc->anon_vma;
		list_add(&avc->same_vma, &dst->anon_vma_chain);
		quire_rmap_insert_after(avc, pavc, &pavc->anon_vma->rb_root);
		if (!idle && is_idle(pavc->anon_vma))
			idle = pavc->anon_vma;
	}
	return idle;
}

static bool all_none(pte_t *ptes, unsigned long nr)
{
	while (nr && pte_none(ptep_get(ptes)))
		ptes++, nr--;
	return !nr;
}

/*
 * Does a small VMA of the parent have no page table entry at all? No fault makes one,
 * because mmap_lock and the VMA are held for writing; the page table lock keeps out code
 * that clears an entry first and then puts a swap or migration entry in its place. The
 * look without that lock only spares VMAs that have a page from taking it. A table that
 * cannot be mapped, for example one that fork shares, counts as having entries. So do
 * VMAs that may be written to, which usually have pages, and VMAs that copy_page_range()
 * copies for other reasons.
 */
static bool maps_nothing(struct vm_area_struct *vma)
{
	unsigned long nr = vma_pages(vma), addr = vma->vm_start;
	struct mm_struct *mm = vma->vm_mm;
	spinlock_t *ptl;
	bool nothing;
	pte_t *ptes;
	pmd_t *pmd;

	mmap_assert_write_locked(mm);
	vma_assert_write_locked(vma);
	if (nr > EMPTY_PAGES || (addr ^ (vma->vm_end - 1)) & PMD_MASK ||
	    vma->vm_flags & (VM_WRITE | VM_PFNMAP | VM_MIXEDMAP | VM_HUGETLB))
		return false;
	/* A table is not shared if a VMA in it has no link: quire_pt_mixable(). */
	if (quire_fork_mixes())
		return false;
	pmd = mm_find_pmd(mm, addr);
	/* A table is never freed while a VMA shorter than a huge page reaches into it. */
	if (!pmd || pmd_none(pmdp_get_lockless(pmd)))
		return true;
	ptes = pte_offset_map(pmd, addr);
	if (!ptes)
		return false;
	nothing = all_none(ptes, nr);
	pte_unmap(ptes);
	if (!nothing)
		return false;
	/* This also checks that it is still the same table. */
	ptes = pte_offset_map_lock(mm, pmd, addr, &ptl);
	if (!ptes)
		return false;
	nothing = all_none(ptes, nr);
	pte_unmap_unlock(ptes, ptl);
	return nothing;
}

/* Like __quire_rmap_fork(), but allocates no link: @dst's is inside, behind the parent's @prev. */
static void fork_inside(struct vm_area_struct *dst, struct vm_area_struct *src,
			struct anon_vma_chain *prev)
{
	struct anon_vma *anon_vma = src->anon_vma;

	anon_vma_lock_write(anon_vma);
	dst->anon_vma = anon_vma;
	dst->anon_borrowed = true;
	anon_vma->num_active_vmas++;
	quire_rmap_fork_inside(dst, prev);
	count(BORROWED);
	count(INSIDE);
	trace_rmap_borrow(dst);
	anon_vma_unlock_write(anon_vma);
}

/**
 * __quire_rmap_fork - link a child's VMA to its parent's anon_vmas, and borrow
 * @batch: of this fork, from which the chain is taken
 * @dst: the child's VMA, a copy of @src that is in no tree yet
 * @src: the parent's VMA, with an anon_vma; borrowed or not
 *
 * Replaces anon_vma_fork(). Runs before the page tables are copied: a walk that races
 * with fork then finds an entry in the parent's tables or in the child's, which it visits
 * later. It takes the root's lock once instead of twice, and allocates nothing under it.
 *
 * If @src maps nothing, @dst will map none of its folios, so by invariant (1) it needs
 * no link: it starts without an anon_vma, as a new VMA does, and there is nothing to
 * copy (quire_rmap_nothing()).
 *
 * Context: both mmap_locks are held for writing; may sleep.
 * Return: 0, or -ENOMEM and @dst is linked nowhere.
 */
int __quire_rmap_fork(struct quire_rmap_batch *batch, struct vm_area_struct *dst,
		      struct vm_area_struct *src)
{
	struct anon_vma *root = src->anon_vma->root;
	struct anon_vma_chain *prev;
	struct anon_vma *anon_vma;
	unsigned int nr;
	int err;

	dst->anon_vma = NULL;
	/* Only the parent's folios are attached so: the child has none of its own yet. */
	dst->anon_deferred = false;
	quire_rmap_reset(dst);
	if (maps_nothing(src)) {
		count(FORK_EMPTY);
		return 0;
	}
	prev = quire_rmap_parent_link(src);
	if (prev) {
		fork_inside(dst, src, prev);
		return 0;
	}
	nr = list_count_nodes(&src->anon_vma_chain);
	if (batch->avcs.nr < nr) {
		/* For half of the VMAs to come: the rest have no anonymous memory. */
		err = quire_stock_fill(&batch->avcs, avc_cache, nr, nr + batch->areas / 2);
		if (err) {
			count(FORK_NOMEM);
			return err;
		}
	}

	down_write(&root->rwsem);
	anon_vma = clone_chain(batch, dst, src);
	if (anon_vma) {
		count(FORK_REUSED);
	} else {
		anon_vma = src->anon_vma;
		dst->anon_borrowed = true;
		count(BORROWED);
	}
	anon_vma->num_active_vmas++;
	dst->anon_vma = anon_vma;
	if (dst->anon_borrowed)
		trace_rmap_borrow(dst);
	up_write(&root->rwsem);
	return 0;
}

/* Returns a child of @parent that is in no tree and not yet counted, or NULL. */
static struct anon_vma *alloc_child(struct anon_vma *parent)
{
	struct anon_vma *child = kmem_cache_alloc(anon_vma_cache, GFP_KERNEL);

	if (!child)
		return NULL;
	child->num_children = 0;
	child->num_active_vmas = 0;
	child->parent = parent;
	child->root = parent->root;
	/* The root holds the lock. */
	get_anon_vma(child->root);
	atomic_set(&child->refcount, 1);
	return child;
}

/*
 * Make @vma use @anon_vma, which is in @vma's chain. Readers that see the flag cleared
 * see the pointer, and readers that see the pointer see the chain.
 */
static void use_anon_vma(struct vm_area_struct *vma, struct anon_vma *anon_vma)
{
	vma->anon_vma->num_active_vmas--;
	anon_vma->num_active_vmas++;
	/* Pairs with the address dependency of code that reads the pointer. */
	smp_store_release(&vma->anon_vma, anon_vma);
	/* Pairs with quire_rmap_borrowed(). */
	smp_store_release(&vma->anon_borrowed, false);
}

/*
 * An anon_vma in @vma's chain that only @vma would use: the borrowed anon_vma, if the
 * owner and other borrowers are gone, or an idle one.
 */
static struct anon_vma *find_adoptable(struct vm_area_struct *vma)
{
	struct anon_vma *borrowed = vma->anon_vma;
	struct anon_vma_chain *avc;

	if (borrowed->num_active_vmas == 1 && borrowed->num_children < 2)
		return borrowed;
	list_for_each_entry_reverse(avc, &vma->anon_vma_chain, same_vma)
		if (is_idle(avc->anon_vma))
			return avc->anon_vma;
	return NULL;
}

/*
 * End the borrowing of @vma with prepared objects: a link, or two if its own link is
 * inside, and *@child, which it sets to NULL if it uses it. The root's rwsem is held for
 * writing, and page_table_lock.
 */
static void upgrade_locked(struct vm_area_struct *vma, struct quire_stock *avcs,
			   struct anon_vma **child)
{
	struct anon_vma *anon_vma;

	if (quire_rmap_inside(vma))
		quire_rmap_move_out(vma, quire_stock_take(avcs));
	/* Try this first, so that the parts of a split VMA can be merged again. */
	anon_vma = find_mergeable_anon_vma(vma);
	if (anon_vma) {
		count(JOINED);
		quire_rmap_link_to(vma, quire_stock_take(avcs), anon_vma);
	} else {
		anon_vma = find_adoptable(vma);
		if (anon_vma) {
			count(ADOPTED);
		} else {
			anon_vma = *child;
			anon_vma->parent->num_children++;
			quire_rmap_link_to(vma, quire_stock_take(avcs), anon_vma);
			*child = NULL;
			count(UPGRADED);
		}
	}
	use_anon_vma(vma, anon_vma);
	trace_rmap_upgrade(vma);
}

/**
 * quire_rmap_upgrade - give a borrower an anon_vma of its own
 * @vma: with an anon_vma, borrowed when the caller looked
 *
 * Two faults may race: the second one finds the flag cleared. Fails silently, and counts
 * it: a borrower is a valid state.
 *
 * Context: mmap_lock is held, for reading or writing; may sleep.
 */
void quire_rmap_upgrade(struct vm_area_struct *vma)
{
	struct mm_struct *mm = vma->vm_mm;
	struct anon_vma *root = vma->anon_vma->root;	/* an upgrade does not change it */
	struct quire_stock avcs = {};
	struct anon_vma *child = NULL;

	mmap_assert_locked(mm);
	might_sleep();

	/* A link that is inside may move out, but none moves in. */
	if (!quire_stock_fill(&avcs, avc_cache, 1 + quire_rmap_inside(vma), 0))
		/* Never stale: this VMA's links pin whatever its pointer has pointed to. */
		child = alloc_child(READ_ONCE(vma->anon_vma));
	if (!child) {
		count(UPGRADE_NOMEM);
		trace_rmap_upgrade_nomem(vma);
		goto out;
	}
	down_write(&root->rwsem);
	spin_lock(&mm->page_table_lock);
	if (vma->anon_borrowed)
		upgrade_locked(vma, &avcs, &child);
	spin_unlock(&mm->page_table_lock);
	up_write(&root->rwsem);

	if (child)
		put_anon_vma(child);
	if (READ_ONCE(vma->anon_deferred))
		this_cpu_add(rmap_counts[RMAP_MOVED], quire_rmap_take_along(vma));
out:
	quire_stock_free(&avcs, avc_cache);
}

/**
 * quire_rmap_write - a borrower is about to get an anonymous folio
 * @vma: with an anon_vma, borrowed when the caller looked
 *
 * Upgrades it, or lets it go on borrowing: the folio is then attached to the borrowed
 * anon_vma, which is as valid (invariant 1).
 *
 * Context: mmap_lock is held, for reading or writing; may sleep.
 */
void quire_rmap_write(struct vm_area_struct *vma)
{
	if (quire_rmap_defer(vma))
		count(DEFERRED);
	else
		quire_rmap_upgrade(vma);
}

/**
 * quire_rmap_extends - is one VMA's chain another's plus its own anon_vma
 * @longer: a VMA that does not borrow
 * @shorter: a borrower in the same mm
 *
 * Context: the root's rwsem of @shorter and page_table_lock are held.
 * Return: true if so: then @shorter may use @longer's anon_vma without breaking
 * invariant (2).
 */
bool quire_rmap_extends(struct vm_area_struct *longer, struct vm_area_struct *shorter)
{
	struct anon_vma_chain *a, *b;

	/* Its link has moved out, so the chain below is complete. */
	VM_WARN_ON(quire_rmap_inside(shorter));
	if (list_empty(&longer->anon_vma_chain))
		return false;
	a = list_first_entry(&longer->anon_vma_chain, struct anon_vma_chain, same_vma);
	if (a->anon_vma != longer->anon_vma)
		return false;
	list_for_each_entry(b, &shorter->anon_vma_chain, same_vma) {
		a = list_next_entry(a, same_vma);
		if (list_entry_is_head(a, &longer->anon_vma_chain, same_vma) ||
		    a->anon_vma != b->anon_vma)
			return false;
	}
	return list_is_last(&a->same_vma, &longer->anon_vma_chain);
}

/**
 * __quire_rmap_cloned - a VMA was given the anon_vmas of another
 * @dst: its anon_vma is NULL, or another one if fork cloned
 * @src: maybe a borrower
 *
 * Called by anon_vma_clone() when nothing can fail any more.
 *
 * Context: the root's rwsem is held for writing.
 */
void __quire_rmap_cloned(struct vm_area_struct *dst, struct vm_area_struct *src)
{
	dst->anon_borrowed = src->anon_borrowed && dst->anon_vma == src->anon_vma;
	if (dst->anon_borrowed) {
		count(INHERITED);
		trace_rmap_borrow(dst);
	}
}

/**
 * __quire_rmap_released - a borrower leaves its anon_vmas
 * @vma: the borrower, whose anon_vma is not reset yet
 *
 * Called when it is unlinked.
 *
 * Context: the root's rwsem is held for writing.
 */
void __quire_rmap_released(struct vm_area_struct *vma)
{
	vma->anon_borrowed = false;
	count(RELEASED);
	trace_rmap_release(vma);
}

static int upgrade_mm(struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	int err = 0;
	VMA_ITERATOR(vmi, mm, 0);

	if (mmap_write_lock_killable(mm))
		return -EINTR;
	for_each_vma(vmi, vma) {
		if (!vma->anon_borrowed)
			continue;
		quire_rmap_upgrade(vma);
		if (vma->anon_borrowed)
			err = -ENOMEM;
		cond_resched();
	}
	mmap_write_unlock(mm);
	return err;
}

static int upgrade_all(void)
{
	struct quire_mm_walk walk;
	struct mm_struct *mm;
	int err = 0;

	quire_mm_walk_begin(&walk);
	while (!err && (mm = quire_mm_walk_next(&walk))) {
		err = upgrade_mm(mm);
		mmput(mm);
		cond_resched();
	}
	quire_mm_walk_end(&walk);
	return err;
}

/**
 * quire_rmap_borrowers - how many VMAs borrow
 *
 * Includes those of forks that are under way and of processes that exit.
 *
 * Context: any; takes no lock.
 * Return: the number, not a snapshot.
 */
long quire_rmap_borrowers(void)
{
	static const struct {
		enum rmap_count what;
		int sign;
	} terms[] = {
		/* Ends are summed first, so that a borrower that comes and goes is not missed. */
		{ RMAP_UPGRADED, -1 }, { RMAP_ADOPTED, -1 }, { RMAP_JOINED, -1 },
		{ RMAP_RELEASED, -1 }, { RMAP_BORROWED, 1 }, { RMAP_INHERITED, 1 },
	};
	long sum = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(terms); i++)
		sum += terms[i].sign * (long)quire_counter(&rmap_counters, terms[i].what);
	return sum;
}

static ssize_t borrowers_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%ld\n", max(quire_rmap_borrowers(), 0L));
}
QUIRE_ATTR_RO(borrowers);

static const struct attribute * const rmap_knobs[] = {
	&borrowers_knob.attr,
	&quire_defer_faults_knob.attr.attr,
	NULL
};

/* Chains of 1 or the link inside, 2, 3-4, 5-8, 9-16, 17-32 and more links. */
#define CHAIN_CLASSES 7

struct chain_count {
	unsigned long areas, borrowed, inside, links;
	unsigned long lengths[CHAIN_CLASSES];
};

static void count_chain(struct chain_count *counts, struct vm_area_struct *vma)
{
	struct anon_vma *anon_vma = READ_ONCE(vma->anon_vma);
	unsigned long links;
	int class;

	if (!anon_vma)
		return;
	/* An upgrade lengthens the chain. */
	anon_vma_lock_read(anon_vma);
	links = list_count_nodes(&vma->anon_vma_chain);
	counts->borrowed += quire_rmap_borrowed(vma);
	counts->inside += quire_rmap_inside(vma);
	anon_vma_unlock_read(anon_vma);
	counts->areas++;
	counts->links += links;
	class = order_base_2(max(links, 1UL));
	counts->lengths[min(class, CHAIN_CLASSES - 1)]++;
}

/* For /proc/PID/quire: the size of the reverse map of a process's anonymous memory. */
static int rmap_show(struct seq_file *m, struct mm_struct *mm)
{
	struct chain_count counts = {};
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);
	int i;

	if (mmap_read_lock_killable(mm))
		return -EINTR;
	for_each_vma(vmi, vma) {
		count_chain(&counts, vma);
		cond_resched();
	}
	mmap_read_unlock(mm);
	seq_printf(m, "rmap_areas: %lu\nrmap_borrowed: %lu\nrmap_inside: %lu\nrmap_links: %lu\n",
		   counts.areas, counts.borrowed, counts.inside, counts.links);
	seq_printf(m, "rmap_links_kb: %lu\nrmap_chain_lengths:",
		   counts.links * kmem_cache_size(avc_cache) / 1024);
	for (i = 0; i < CHAIN_CLASSES - 1; i++)
		seq_printf(m, " %u:%lu", 1U << i, counts.lengths[i]);
	seq_printf(m, " more:%lu\n", counts.lengths[i]);
	return 0;
}

static int rmap_start(void)
{
	static_branch_enable(&quire_rmap_used_key);
	return 0;
}

/*
 * A fork that passed the gate before it closed may still borrow, in an mm that no
 * process has yet. So repeat until the count says that there is no borrower.
 */
static int rmap_drain(void)
{
	int pass, err;

	for (pass = 0; pass < DRAIN_PASSES; pass++) {
		err = upgrade_all();
		if (!err && quire_rmap_borrowers() <= 0)
			return 0;
		if (err == -EINTR || fatal_signal_pending(current))
			return -EINTR;
		schedule_timeout_idle(DRAIN_INTERVAL);
	}
	return err ?: -EAGAIN;
}

static struct quire_feature rmap_feature = {
	.name = "rmap",
	.key = &quire_rmap_key,
	.start = rmap_start,
	.drain = rmap_drain,
	.knobs = rmap_knobs,
	.counters = { &rmap_counters },
	.show = rmap_show,
};

static int __init rmap_init(void)
{
	return quire_register(&rmap_feature);
}
late_initcall(rmap_init);
