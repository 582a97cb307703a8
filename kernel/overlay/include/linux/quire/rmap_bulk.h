/* SPDX-License-Identifier: GPL-2.0 */
/*
 * fork and exit in bulk: many VMAs are allocated, linked, unlinked and freed
 * together. dup_mmap(), free_pgtables() and exit_mmap() call what is declared here;
 * mm/quire/rmap/bulk.c has the rules.
 *
 * "Vanilla:" says what Linux does without the gate.
 */
#ifndef _LINUX_QUIRE_RMAP_BULK_H
#define _LINUX_QUIRE_RMAP_BULK_H

#include <linux/mm.h>
#include <linux/quire/rmap.h>

int anon_vma_fork(struct vm_area_struct *vma, struct vm_area_struct *pvma);
void unlink_anon_vmas(struct vm_area_struct *vma);
void remove_vma(struct vm_area_struct *vma, bool unreachable);

#ifdef CONFIG_QUIRE_RMAP

/**
 * struct quire_stock - unused objects of one slab cache
 * @first: the first object; each begins with a pointer to the next
 * @nr: how many
 */
struct quire_stock {
	void *first;
	unsigned int nr;
};

/* How many VMAs are put into their file's tree in one hold of its lock. */
#define QUIRE_RMAP_LINK		8

/**
 * struct quire_rmap_link - a child's VMAs that are not in their file's tree yet
 * @vmas: the VMAs, all of one file; they map nothing, or what the parent's table maps
 * @origs: the parent's VMAs, behind which they go
 * @nr: how many
 */
struct quire_rmap_link {
	struct vm_area_struct *vmas[QUIRE_RMAP_LINK], *origs[QUIRE_RMAP_LINK];
	unsigned int nr;
};

/**
 * struct quire_rmap_batch - what is done for many VMAs of one fork at a time
 * @avcs: anon_vma_chains, allocated
 * @vmas: vm_area_structs, allocated
 * @locks: their vma_locks, allocated
 * @areas: how many VMAs of the parent are still to come, at most
 * @link: VMAs to be linked
 */
struct quire_rmap_batch {
	struct quire_stock avcs, vmas, locks;
	int areas;
	struct quire_rmap_link link;
};

/* How many VMAs leave their anon_vmas in one hold of the root's lock. */
#define QUIRE_RMAP_UNLINK	16

/**
 * struct quire_rmap_unlink - VMAs that are about to leave their anon_vmas
 * @vmas: the VMAs; their page tables still exist
 * @nr: how many
 */
struct quire_rmap_unlink {
	struct vm_area_struct *vmas[QUIRE_RMAP_UNLINK];
	unsigned int nr;
};

/**
 * struct quire_rmap_free - VMAs of an exiting mm, to be freed
 * @vmas: vm_area_structs
 * @locks: their vma_locks
 */
struct quire_rmap_free {
	struct quire_stock vmas, locks;
};

void quire_rmap_init_areas(struct kmem_cache *vma_cachep, struct kmem_cache *lock_cachep);
void __quire_rmap_start_copy(struct vm_area_struct *vma);
struct vm_area_struct *__quire_rmap_dup_area(struct quire_rmap_batch *batch,
					     struct vm_area_struct *orig);
void *__quire_rmap_next(struct ma_state *mas, unsigned long max);
int __quire_rmap_store_area(struct vma_iterator *vmi, struct vm_area_struct *orig,
			    struct vm_area_struct *new);
int __quire_rmap_fork(struct quire_rmap_batch *batch, struct vm_area_struct *dst,
		      struct vm_area_struct *src);
bool __quire_rmap_link_file(struct quire_rmap_link *link, struct vm_area_struct *vma,
			    struct vm_area_struct *orig);
void __quire_rmap_link(struct quire_rmap_link *link);
void __quire_rmap_batch_end(struct quire_rmap_batch *batch);
void __quire_rmap_unlink(struct quire_rmap_unlink *unlink);
void __quire_rmap_remove(struct quire_rmap_free *free, struct vm_area_struct *vma);
void __quire_rmap_free_end(struct quire_rmap_free *free);

/* Before the feature was ever on, the ends of bulks have nothing to do. */
static inline bool quire_rmap_used(void)
{
	return static_branch_unlikely(&quire_rmap_used_key);
}

/**
 * quire_rmap_batch_begin - begin the bulk of one fork
 * @batch: of this fork
 * @mm: the parent's
 *
 * Vanilla: does nothing here.
 *
 * Context: @mm's mmap_lock is held for writing.
 */
static inline void quire_rmap_batch_begin(struct quire_rmap_batch *batch, struct mm_struct *mm)
{
	batch->avcs = batch->vmas = batch->locks = (struct quire_stock){};
	batch->areas = mm->map_count;
	batch->link.nr = 0;
}

/**
 * quire_rmap_batch_end - end the bulk of one fork
 * @batch: of this fork
 *
 * After this the child's VMAs are in all trees, also if fork fails.
 *
 * Vanilla: does nothing here.
 *
 * Context: both mmap_locks are held for writing; may sleep.
 */
static inline void quire_rmap_batch_end(struct quire_rmap_batch *batch)
{
	if (!quire_rmap_used())
		return;
	if (batch->link.nr)
		__quire_rmap_link(&batch->link);
	if (batch->avcs.nr || batch->vmas.nr || batch->locks.nr)
		__quire_rmap_batch_end(batch);
}

/**
 * quire_rmap_next - find the next VMA in a walk over all VMAs
 * @mas: an iterator of the mm's tree
 * @max: the highest address of interest
 *
 * Vanilla: mas_find(), which still does it for a walk that begins and has no leaf yet.
 *
 * Context: mmap_lock is held, or the tree is the caller's own.
 * Return: the VMA or entry, or NULL.
 */
static inline void *quire_rmap_next(struct ma_state *mas, unsigned long max)
{
	if (!static_branch_unlikely(&quire_rmap_key) || !mas_is_active(mas))
		return mas_find(mas, max);
	return __quire_rmap_next(mas, max);
}

/**
 * quire_rmap_start_copy - keep faults out of a VMA that fork copies
 * @vma: the parent's
 *
 * Vanilla: vma_start_write().
 *
 * Context: the parent's mmap_lock is held for writing; may sleep.
 */
static inline void quire_rmap_start_copy(struct vm_area_struct *vma)
{
	if (static_branch_unlikely(&quire_rmap_key))
		__quire_rmap_start_copy(vma);
	else
		vma_start_write(vma);
}

/**
 * quire_rmap_dup_area - copy a VMA for a child
 * @batch: of this fork
 * @orig: the parent's VMA
 *
 * Vanilla: vm_area_dup().
 *
 * Context: both mmap_locks are held for writing; may sleep.
 * Return: the copy, or NULL if there is no memory.
 */
static inline struct vm_area_struct *quire_rmap_dup_area(struct quire_rmap_batch *batch,
							 struct vm_area_struct *orig)
{
	if (!static_branch_unlikely(&quire_rmap_key))
		return vm_area_dup(orig);
	return __quire_rmap_dup_area(batch, orig);
}

/**
 * quire_rmap_fork - link a child's VMA to the anon_vmas of its parent's, and borrow
 * @batch: of this fork
 * @dst: the child's VMA
 * @src: the parent's VMA
 *
 * Vanilla: anon_vma_fork().
 *
 * Context: both mmap_locks are held for writing; may sleep.
 * Return: 0 or -ENOMEM.
 */
static inline int quire_rmap_fork(struct quire_rmap_batch *batch, struct vm_area_struct *dst,
				  struct vm_area_struct *src)
{
	if (!static_branch_unlikely(&quire_rmap_key))
		return anon_vma_fork(dst, src);
	return src->anon_vma ? __quire_rmap_fork(batch, dst, src) : 0;
}

/**
 * quire_rmap_nothing - has quire_rmap_fork() found nothing to copy
 * @dst: the child's VMA
 * @src: the parent's VMA
 *
 * Vanilla: copy_page_range() looks at every VMA.
 *
 * Context: both mmap_locks are held for writing.
 * Return: true if @src maps nothing.
 */
static inline bool quire_rmap_nothing(const struct vm_area_struct *dst,
				      const struct vm_area_struct *src)
{
	return static_branch_unlikely(&quire_rmap_key) && src->anon_vma && !dst->anon_vma;
}

/**
 * quire_rmap_link_file - put a child's VMA into its file's tree, maybe later
 * @batch: of this fork
 * @vma: the child's VMA, of a file
 * @orig: the parent's VMA
 *
 * Vanilla: puts each VMA into the tree on its own.
 *
 * Context: both mmap_locks are held for writing; may sleep.
 * Return: true if that is done, or will be at quire_rmap_batch_end().
 */
static inline bool quire_rmap_link_file(struct quire_rmap_batch *batch,
					struct vm_area_struct *vma, struct vm_area_struct *orig)
{
	return static_branch_unlikely(&quire_rmap_key) &&
	       __quire_rmap_link_file(&batch->link, vma, orig);
}

/**
 * quire_rmap_store_area - put a child's VMA into the child's tree
 * @vmi: an iterator of the child's tree, where @orig is
 * @orig: the parent's VMA
 * @new: the child's VMA
 *
 * Vanilla: vma_iter_bulk_store().
 *
 * Context: both mmap_locks are held for writing.
 * Return: 0 or -ENOMEM.
 */
static inline int quire_rmap_store_area(struct vma_iterator *vmi, struct vm_area_struct *orig,
					struct vm_area_struct *new)
{
	if (!static_branch_unlikely(&quire_rmap_key))
		return vma_iter_bulk_store(vmi, new);
	return __quire_rmap_store_area(vmi, orig, new);
}

/**
 * quire_rmap_start_write - keep faults out of a VMA before its page tables are freed
 * @vma: the VMA
 *
 * Does nothing for an mm without users: no fault holds the VMA lock there.
 *
 * Vanilla: vma_start_write(), which waits for faults that hold the VMA lock.
 *
 * Context: mmap_lock is held for writing; may sleep.
 */
static inline void quire_rmap_start_write(struct vm_area_struct *vma)
{
	if (!static_branch_unlikely(&quire_rmap_key) || atomic_read(&vma->vm_mm->mm_users))
		vma_start_write(vma);
}

/**
 * quire_rmap_unlink_begin - begin the bulk of one call of free_pgtables()
 * @unlink: is empty then
 *
 * Vanilla: does nothing here.
 *
 * Context: mmap_lock is held.
 */
static inline void quire_rmap_unlink_begin(struct quire_rmap_unlink *unlink)
{
	unlink->nr = 0;
}

/**
 * quire_rmap_unlink - unlink a VMA from its anon_vmas, now or at quire_rmap_unlink_end()
 * @unlink: of this call of free_pgtables()
 * @vma: the VMA
 *
 * Vanilla: unlink_anon_vmas().
 *
 * Context: mmap_lock is held; may sleep.
 */
static inline void quire_rmap_unlink(struct quire_rmap_unlink *unlink,
				     struct vm_area_struct *vma)
{
	if (!static_branch_unlikely(&quire_rmap_key)) {
		unlink_anon_vmas(vma);
		return;
	}
	if (!vma->anon_vma)
		return;
	unlink->vmas[unlink->nr++] = vma;
	if (unlink->nr == QUIRE_RMAP_UNLINK)
		__quire_rmap_unlink(unlink);
}

/**
 * quire_rmap_unlink_end - unlink the VMAs that are left
 * @unlink: of this call of free_pgtables()
 *
 * Called before the page tables are freed. A bulk of one VMA costs more than it saves.
 *
 * Vanilla: does nothing here.
 *
 * Context: mmap_lock is held; may sleep.
 */
static inline void quire_rmap_unlink_end(struct quire_rmap_unlink *unlink)
{
	if (!quire_rmap_used() || !unlink->nr)
		return;
	if (unlink->nr > 1) {
		__quire_rmap_unlink(unlink);
		return;
	}
	unlink_anon_vmas(unlink->vmas[0]);
	unlink->nr = 0;
}

/**
 * quire_rmap_free_begin - begin to free the VMAs of an exiting mm
 * @free: is empty then
 *
 * Vanilla: does nothing here.
 *
 * Context: mmap_lock is held for writing.
 */
static inline void quire_rmap_free_begin(struct quire_rmap_free *free)
{
	free->vmas.nr = free->locks.nr = 0;
}

/**
 * quire_rmap_remove - let go of a VMA of an exiting mm
 * @free: of this exit
 * @vma: unlinked and unmapped
 *
 * Vanilla: remove_vma(vma, true).
 *
 * Context: mmap_lock is held for writing; may sleep.
 */
static inline void quire_rmap_remove(struct quire_rmap_free *free, struct vm_area_struct *vma)
{
	if (static_branch_unlikely(&quire_rmap_key))
		__quire_rmap_remove(free, vma);
	else
		remove_vma(vma, true);
}

/**
 * quire_rmap_resched - reschedule when many VMAs have just been freed
 * @free: of this exit
 *
 * Vanilla: cond_resched() after each VMA.
 *
 * Context: mmap_lock is held for writing; may sleep.
 */
static inline void quire_rmap_resched(const struct quire_rmap_free *free)
{
	if (!static_branch_unlikely(&quire_rmap_key) || !free->vmas.nr)
		cond_resched();
}

/**
 * quire_rmap_free_end - free the VMAs that are left
 * @free: of this exit
 *
 * Vanilla: does nothing here.
 *
 * Context: mmap_lock is held for writing.
 */
static inline void quire_rmap_free_end(struct quire_rmap_free *free)
{
	if (quire_rmap_used() && free->vmas.nr)
		__quire_rmap_free_end(free);
}

#else

struct quire_rmap_batch { };
struct quire_rmap_unlink { };
struct quire_rmap_free { };

static inline void quire_rmap_init_areas(struct kmem_cache *vma_cachep,
					 struct kmem_cache *lock_cachep) { }
static inline void quire_rmap_batch_begin(struct quire_rmap_batch *batch,
					  struct mm_struct *mm) { }
static inline void quire_rmap_batch_end(struct quire_rmap_batch *batch) { }

static inline void *quire_rmap_next(struct ma_state *mas, unsigned long max)
{
	return mas_find(mas, max);
}

static inline void quire_rmap_start_copy(struct vm_area_struct *vma)
{
	vma_start_write(vma);
}

static inline struct vm_area_struct *quire_rmap_dup_area(struct quire_rmap_batch *batch,
							 struct vm_area_struct *orig)
{
	return vm_area_dup(orig);
}

static inline int quire_rmap_fork(struct quire_rmap_batch *batch, struct vm_area_struct *dst,
				  struct vm_area_struct *src)
{
	return anon_vma_fork(dst, src);
}

static inline bool quire_rmap_nothing(const struct vm_area_struct *dst,
				      const struct vm_area_struct *src)
{
	return false;
}

static inline bool quire_rmap_link_file(struct quire_rmap_batch *batch,
					struct vm_area_struct *vma, struct vm_area_struct *orig)
{
	return false;
}

static inline int quire_rmap_store_area(struct vma_iterator *vmi, struct vm_area_struct *orig,
					struct vm_area_struct *new)
{
	return vma_iter_bulk_store(vmi, new);
}

static inline void quire_rmap_start_write(struct vm_area_struct *vma)
{
	vma_start_write(vma);
}

static inline void quire_rmap_unlink_begin(struct quire_rmap_unlink *unlink) { }
static inline void quire_rmap_unlink(struct quire_rmap_unlink *unlink,
				     struct vm_area_struct *vma)
{
	unlink_anon_vmas(vma);
}

static inline void quire_rmap_unlink_end(struct quire_rmap_unlink *unlink) { }
static inline void quire_rmap_free_begin(struct quire_rmap_free *free) { }
static inline void quire_rmap_remove(struct quire_rmap_free *free, struct vm_area_struct *vma)
{
	remove_vma(vma, true);
}

static inline void quire_rmap_resched(const struct quire_rmap_free *free)
{
	cond_resched();
}

static inline void quire_rmap_free_end(struct quire_rmap_free *free) { }

#endif /* CONFIG_QUIRE_RMAP */
#endif /* _LINUX_QUIRE_RMAP_BULK_H */
