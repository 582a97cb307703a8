// SPDX-License-Identifier: GPL-2.0
/*
 * fork and exit in bulk.
 *
 * A fork needs a vm_area_struct, a vma_lock and anon_vma_chains for each VMA, and the
 * child's exit frees them: one by one that is more work than linking them. Here they
 * are allocated and freed many at a time. The child's VMA takes its parent's place in
 * the copied maple tree without a search. Walks over all VMAs go from slot to slot of
 * the tree's leaves. Adjacent VMAs of one file are put into its tree in one hold of its
 * lock, and VMAs leave their anon_vmas many in one hold of the root's lock.
 *
 * Nothing here is a state: all objects are of the caches that Linux allocates them
 * from, so it does not matter whether a VMA was made before or after a switch, and
 * there is nothing to undo.
 *
 * Locking: the stocks belong to one fork or exit. Nothing is allocated under the root's
 * rwsem, since reclaim takes it, and the VMAs' and files' locks are never taken inside
 * it: VMAs are collected first and unlinked together, always before their page tables
 * are freed. Nor is anything allocated under a file's i_mmap_rwsem: the child's VMAs
 * that map nothing of their own are collected, too, and linked before the parent's
 * mmap_lock is released.
 *
 * Walks read the leaves under mmap_lock, or in a tree that is the caller's own, and
 * leave the rest to mas_find(). Fork stores vm_lock_seq without the VMA's rwsem if
 * nobody else has a reference to mm_users. If a task gets one meanwhile, either fork
 * sees the reference after a full barrier, or the task sees vm_lock_seq
 * (__quire_rmap_start_copy()).
 *
 * Lifetime: a stock's objects are unused; their first word links them. A VMA of an
 * exiting mm goes to a stock after its last use by Linux, where __vm_area_free() would
 * have freed it; the maple tree's pointer to it dangles as in vanilla.
 */
#include <linux/file.h>
#include <linux/init.h>
#include <linux/maple_tree.h>
#include <linux/mempolicy.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/quire/rmap_bulk.h>
#include <linux/rmap.h>
#include <linux/slab.h>
#include <linux/userfaultfd_k.h>

#include "../../internal.h"
#include "../../vma.h"
#include "rmap.h"

static struct kmem_cache *area_cache __ro_after_init;
static struct kmem_cache *lock_cache __ro_after_init;

/**
 * quire_rmap_init_areas - take note of the slab caches of kernel/fork.c
 * @vma_cachep: of struct vm_area_struct
 * @lock_cachep: of struct vma_lock
 *
 * Context: boot.
 */
void __init quire_rmap_init_areas(struct kmem_cache *vma_cachep, struct kmem_cache *lock_cachep)
{
	area_cache = vma_cachep;
	lock_cache = lock_cachep;
}

/**
 * quire_stock_fill - allocate objects
 * @stock: of @cache
 * @cache: their cache, without a constructor
 * @nr: the least number of objects to have
 * @expected: the most to have, if that is more
 *
 * Context: may sleep.
 * Return: 0, or -ENOMEM, maybe with some objects.
 */
int quire_stock_fill(struct quire_stock *stock, struct kmem_cache *cache, unsigned int nr,
		     int expected)
{
	void *objects[QUIRE_STOCK] __uninitialized;
	unsigned int i, n;

	while (stock->nr < nr) {
		n = min_t(unsigned int, max_t(int, nr, expected) - stock->nr, QUIRE_STOCK);
		if (!kmem_cache_alloc_bulk(cache, GFP_KERNEL, n, objects))
			return -ENOMEM;
		/* The lowest address first, for later walks over the objects. */
		for (i = n; i--;)
			quire_stock_put(stock, objects[i]);
	}
	return 0;
}

/**
 * quire_stock_free - free all objects of a stock
 * @stock: is empty then
 * @cache: their cache
 *
 * Context: as for kmem_cache_free_bulk().
 */
void quire_stock_free(struct quire_stock *stock, struct kmem_cache *cache)
{
	void *objects[QUIRE_STOCK] __uninitialized;
	unsigned int n;

	while (stock->nr) {
		for (n = 0; n < QUIRE_STOCK && stock->nr; n++)
			objects[n] = quire_stock_take(stock);
		kmem_cache_free_bulk(cache, n, objects);
	}
}

/**
 * __quire_rmap_batch_end - free what a fork did not use
 * @batch: its stocks are empty then
 *
 * Context: as for kmem_cache_free_bulk().
 */
void __quire_rmap_batch_end(struct quire_rmap_batch *batch)
{
	quire_stock_free(&batch->avcs, quire_avc_cache());
	quire_stock_free(&batch->vmas, area_cache);
	quire_stock_free(&batch->locks, lock_cache);
}

/**
 * __quire_rmap_start_copy - keep faults out of a VMA that fork copies
 * @vma: the parent's
 *
 * Does what vma_start_write() does. A task that locks a VMA for a fault, or for
 * userfaultfd, has a reference to mm_users. So if the forking thread has the only
 * reference, nobody holds the VMA lock, and a task that comes now finds vm_lock_seq and
 * backs off.
 *
 * Context: the parent's mmap_lock is held for writing; may sleep.
 */
void __quire_rmap_start_copy(struct vm_area_struct *vma)
{
	struct mm_struct *mm = vma->vm_mm;

	if (atomic_read(&mm->mm_users) != 1) {
		vma_start_write(vma);
		return;
	}
	WRITE_ONCE(vma->vm_lock_seq, mm->mm_lock_seq.sequence);
	/*
	 * Pairs with the increment of mm_users, a full barrier on x86: either the increment
	 * is seen here, or vm_lock_seq is seen there.
	 */
	smp_mb();
	if (likely(atomic_read(&mm->mm_users) == 1))
		return;
	/* vma_start_write() would find vm_lock_seq and not wait. */
	down_write(&vma->vm_lock->lock);
	up_write(&vma->vm_lock->lock);
}

/**
 * __quire_rmap_dup_area - copy a VMA for a child
 * @batch: of this fork
 * @orig: the parent's
 *
 * Makes what vm_area_dup() makes.
 *
 * Context: the parent's mmap_lock is held for writing; may sleep.
 * Return: the copy, or NULL if there is no memory.
 */
struct vm_area_struct *__quire_rmap_dup_area(struct quire_rmap_batch *batch,
					     struct vm_area_struct *orig)
{
	struct vm_area_struct *new;

	if (unlikely(!batch->vmas.nr &&
		     quire_stock_fill(&batch->vmas, area_cache, 1, batch->areas)))
		return NULL;
	if (unlikely(!batch->locks.nr &&
		     quire_stock_fill(&batch->locks, lock_cache, 1, batch->areas)))
		return NULL;
	batch->areas--;
	new = quire_stock_take(&batch->vmas);

	ASSERT_EXCLUSIVE_WRITER(orig->vm_flags);
	ASSERT_EXCLUSIVE_WRITER(orig->vm_file);
	/* Other VMAs of the file may rotate the tree that shared.rb is in. */
	data_race(memcpy(new, orig, sizeof(*new)));
	new->vm_lock = quire_stock_take(&batch->locks);
	init_rwsem(&new->vm_lock->lock);
	new->vm_lock_seq = UINT_MAX;
	INIT_LIST_HEAD(&new->anon_vma_chain);
	vma_numab_state_init(new);
	dup_anon_vma_name(orig, new);
	return new;
}

/* Does copy_page_range() look at the parent's tables? As in its vma_needs_copy(). */
static bool needs_copy(struct vm_area_struct *vma, struct vm_area_struct *orig)
{
	return userfaultfd_wp(vma) || (orig->vm_flags & (VM_PFNMAP | VM_MIXEDMAP)) ||
	       (orig->anon_vma && !quire_rmap_nothing(vma, orig));
}

/**
 * __quire_rmap_link_file - put a child's VMA into its file's tree, maybe later
 * @link: of this fork
 * @vma: the child's VMA, of a file
 * @orig: the parent's VMA
 *
 * A walk need not find a VMA that maps nothing: it waits for other VMAs of the same file
 * until __quire_rmap_link(). A VMA that fork copies pages into has to be in the tree
 * before that, behind its parent's, so that a truncation meets the pages in one of the
 * two; it takes along the VMAs that wait. If fork shares a table of several VMAs, one of
 * which is copied, a waiting VMA's entries are the parent's own: a walk meets them
 * through the parent's VMA, as its table is the same one until the parent's mmap_lock,
 * which fork holds, is released. Takes a reference to the file, as dup_mmap() does.
 *
 * Context: both mmap_locks are held for writing; may sleep.
 * Return: true, or false for a VMA that is best linked alone, and does nothing.
 */
bool __quire_rmap_link_file(struct quire_rmap_link *link, struct vm_area_struct *vma,
			    struct vm_area_struct *orig)
{
	struct address_space *mapping = vma->vm_file->f_mapping;
	bool others = link->nr && link->vmas[0]->vm_file->f_mapping == mapping;
	bool now = needs_copy(vma, orig);

	if (now && !others)
		return false;
	if (link->nr && !others)
		__quire_rmap_link(link);
	get_file(vma->vm_file);
	link->vmas[link->nr] = vma;
	link->origs[link->nr] = orig;
	link->nr++;
	if (now || link->nr == QUIRE_RMAP_LINK)
		__quire_rmap_link(link);
	return true;
}

/**
 * __quire_rmap_link - put VMAs into their file's tree
 * @link: has some VMAs; it is empty then
 *
 * Does what dup_mmap() does for each VMA, with one hold of the file's lock, under which
 * nothing is allocated.
 *
 * Context: both mmap_locks are held for writing; may sleep.
 */
void __quire_rmap_link(struct quire_rmap_link *link)
{
	struct address_space *mapping = link->vmas[0]->vm_file->f_mapping;
	unsigned int i;

	i_mmap_lock_write(mapping);
	for (i = 0; i < link->nr; i++) {
		struct vm_area_struct *vma = link->vmas[i];

		if (vma_is_shared_maywrite(vma))
			mapping_allow_writable(mapping);
		flush_dcache_mmap_lock(mapping);
		vma_interval_tree_insert_after(vma, link->origs[i], &mapping->i_mmap);
		flush_dcache_mmap_unlock(mapping);
	}
	i_mmap_unlock_write(mapping);
	quire_rmap_linked(link->nr - 1);
	link->nr = 0;
}

/*
 * Returns the leaf that an iterator is at. NULL if there is none, or if a store has
 * replaced the leaf, which marks it by making it its own parent.
 */
static struct maple_node *leaf_of(struct ma_state *mas)
{
	unsigned long enode = (unsigned long)mas->node;
	unsigned int type = (enode >> MAPLE_NODE_TYPE_SHIFT) & MAPLE_NODE_TYPE_MASK;
	struct maple_node *leaf = (struct maple_node *)(enode & ~MAPLE_NODE_MASK);

	if (unlikely(!mas_is_active(mas) || type != maple_leaf_64))
		return NULL;
	if (unlikely(((unsigned long)leaf->parent & ~MAPLE_NODE_MASK) == (unsigned long)leaf))
		return NULL;
	return leaf;
}

/**
 * __quire_rmap_next - find the next VMA of an mm
 * @mas: an iterator of its tree
 * @max: the highest address of interest
 *
 * Does what mas_find() does, for walks over many VMAs: most of the next VMAs are in the
 * leaf that the iterator is at. mas_find() does the rest: the first VMA, other leaves,
 * the end.
 *
 * Context: mmap_lock is held, at least for reading, or the tree is the caller's own: so
 * nobody else changes the leaf.
 * Return: the VMA or entry, or NULL.
 */
void *__quire_rmap_next(struct ma_state *mas, unsigned long max)
{
	struct maple_node *leaf = leaf_of(mas);
	unsigned char at = mas->offset;

	while (likely(leaf && at < mas->end)) {
		unsigned long first = leaf->mr64.pivot[at] + 1;
		void *entry;

		if (unlikely(first > max))
			break;
		/* mmap_lock protects the slot. */
		entry = rcu_dereference_raw(leaf->mr64.slot[++at]);
		if (!entry)
			continue;
		mas->index = first;
		mas->last = at < mas->end ? leaf->mr64.pivot[at] : mas->max;
		mas->offset = at;
		return entry;
	}
	return mas_find(mas, max);
}

/**
 * __quire_rmap_store_area - put a child's VMA where its parent's is
 * @vmi: of the child's tree, a copy of the parent's that nobody else sees yet;
 *	it found @orig last
 * @orig: the parent's VMA
 * @new: the child's VMA, which covers the same range
 *
 * The range does not change, so the tree's pivots and gaps do not change either: only the
 * leaf's slot has to be written. If the iterator is not at a leaf that holds @orig, stores
 * in the ordinary way.
 *
 * Context: both mmap_locks are held for writing.
 * Return: 0 or -ENOMEM.
 */
int __quire_rmap_store_area(struct vma_iterator *vmi, struct vm_area_struct *orig,
			    struct vm_area_struct *new)
{
	struct ma_state *mas = &vmi->mas;
	struct maple_node *leaf = leaf_of(mas);

	if (likely(leaf && mas->index == new->vm_start && mas->last == new->vm_end - 1 &&
		   rcu_access_pointer(leaf->mr64.slot[mas->offset]) == orig)) {
		rcu_assign_pointer(leaf->mr64.slot[mas->offset], new);
		return 0;
	}
	return vma_iter_bulk_store(vmi, new);
}

/*
 * Take a VMA out of its anon_vmas' trees. A link goes to @empty if it was the last link
 * of its anon_vma, else to @avcs. The root's rwsem is held for writing.
 */
static void unlink_area(struct vm_area_struct *vma, struct quire_stock *avcs,
			struct list_head *empty)
{
	struct anon_vma_chain *avc, *next;

	/* Newest first, so that the root follows its descendants in @empty. */
	list_for_each_entry_safe(avc, next, &vma->anon_vma_chain, same_vma) {
		struct anon_vma *anon_vma = avc->anon_vma;

		anon_vma_interval_tree_remove(avc, &anon_vma->rb_root);
		if (RB_EMPTY_ROOT(&anon_vma->rb_root.rb_root)) {
			anon_vma->parent->num_children--;
			list_add_tail(&avc->same_vma, empty);
		} else {
			quire_stock_put(avcs, avc);
		}
	}
	INIT_LIST_HEAD(&vma->anon_vma_chain);
	vma->anon_vma->num_active_vmas--;
	quire_rmap_released(vma);
	/* The VMA is still needed after this. */
	vma->anon_vma = NULL;
}

/**
 * __quire_rmap_unlink - unlink VMAs from their anon_vmas
 * @unlink: VMAs with an anon_vma; it is empty then
 *
 * Does what unlink_anon_vmas() does, with one hold of the lock for adjacent VMAs that
 * have the same root.
 *
 * Context: mmap_lock is held for writing, or for reading if munmap downgraded it: no fault
 * finds these VMAs any more. May sleep.
 */
void __quire_rmap_unlink(struct quire_rmap_unlink *unlink)
{
	struct anon_vma *unused[QUIRE_RMAP_UNLINK] __uninitialized;
	struct quire_stock avcs = {};
	struct anon_vma_chain *avc, *next;
	struct anon_vma *root = NULL;
	unsigned int i, nr = 0;
	LIST_HEAD(empty);

	for (i = 0; i < unlink->nr; i++) {
		struct vm_area_struct *vma = unlink->vmas[i];

		if (vma->anon_vma->root != root) {
			if (root)
				up_write(&root->rwsem);
			root = vma->anon_vma->root;
			down_write(&root->rwsem);
		}
		if (!quire_rmap_inside(vma)) {
			unlink_area(vma, &avcs, &empty);
			continue;
		}
		unused[nr] = quire_rmap_take_out(vma);
		nr += !!unused[nr];
	}
	up_write(&root->rwsem);
	unlink->nr = 0;

	/* These calls may take the root's lock. */
	while (nr)
		put_anon_vma(unused[--nr]);
	list_for_each_entry_safe(avc, next, &empty, same_vma) {
		VM_WARN_ON(avc->anon_vma->num_children);
		VM_WARN_ON(avc->anon_vma->num_active_vmas);
		put_anon_vma(avc->anon_vma);
		quire_stock_put(&avcs, avc);
	}
	quire_stock_free(&avcs, quire_avc_cache());
}

/**
 * __quire_rmap_remove - let go of a VMA of an exiting mm
 * @free: of this exit; the VMA is freed with it at the latest
 * @vma: unlinked and unmapped
 *
 * Does what remove_vma() does for a VMA that nobody can reach.
 *
 * Context: mmap_lock is held for writing; may sleep.
 */
void __quire_rmap_remove(struct quire_rmap_free *free, struct vm_area_struct *vma)
{
	vma_close(vma);
	if (vma->vm_file)
		fput(vma->vm_file);
	mpol_put(vma_policy(vma));
	quire_rmap_free_numab_state(vma);
	free_anon_vma_name(vma);
	quire_stock_put(&free->locks, vma->vm_lock);
	quire_stock_put(&free->vmas, vma);
	if (free->vmas.nr == QUIRE_STOCK)
		__quire_rmap_free_end(free);
}

/**
 * __quire_rmap_free_end - free the VMAs that an exit let go of
 * @free: is empty then
 *
 * Context: as for kmem_cache_free_bulk().
 */
void __quire_rmap_free_end(struct quire_rmap_free *free)
{
	quire_stock_free(&free->locks, lock_cache);
	quire_stock_free(&free->vmas, area_cache);
}
