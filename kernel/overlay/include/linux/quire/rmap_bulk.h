/* SPDX-License-Identifier: GPL-2.0 */
/*
 * fork and exit in bulk: many areas are allocated, linked, unlinked and freed
 * together. The hooks in dup_mmap(), free_pgtables() and
 * exit_mmap() call what is declared here; mm/quire/rmap/bulk.c has the rules.
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
 * struct quire_stock - objects of one slab cache that nobody uses
 * @first: the first; each begins with a pointer to the next
 * @nr: how many
 */
struct quire_stock {
	void *first;
	unsigned int nr;
};

/* How many areas are put into their file's tree under one hold of its lock. */
#define QUIRE_RMAP_LINK		8

/**
 * struct quire_rmap_link - a child's areas that are not in their file's tree yet
 * @vmas: which, all of one file; they map nothing, or what the parent's table maps
 * @origs: the parent's, which they go behind
 * @nr: how many
 */
struct quire_rmap_link {
	struct vm_area_struct *vmas[QUIRE_RMAP_LINK], *origs[QUIRE_RMAP_LINK];
	unsigned int nr;
};

/**
 * struct quire_rmap_batch - what is done for many areas of one fork at a time
 * @avcs: anon_vma_chains, allocated
 * @vmas: vm_area_structs, allocated
 * @locks: their vma_locks, allocated
 * @areas: how many areas of the parent are still to come, at most
 * @link: areas to be linked
 */
struct quire_rmap_batch {
	struct quire_stock avcs, vmas, locks;
	int areas;
	struct quire_rmap_link link;
};

/* How many areas leave their anon_vmas under one hold of the root's lock. */
#define QUIRE_RMAP_UNLINK	16

/**
 * struct quire_rmap_unlink - areas that are to leave their anon_vmas
 * @vmas: which; their page tables still exist
 * @nr: how many
 */
struct quire_rmap_unlink {
	struct vm_area_struct *vmas[QUIRE_RMAP_UNLINK];
	unsigned int nr;
};

/**
 * struct quire_rmap_free - areas of an mm that exits, to be freed
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

/* Before the feature was ever on there is nothing to look for at the ends. */
static inline bool quire_rmap_used(void)
{
	return static_branch_unlikely(&quire_rmap_used_key);
}

/* Around the areas of one fork, which copies those of @mm. */
static inline void quire_rmap_batch_begin(struct quire_rmap_batch *batch, struct mm_struct *mm)
{
	batch->avcs = batch->vmas = batch->locks = (struct quire_stock){};
	batch->areas = mm->map_count;
	batch->link.nr = 0;
}

/* After this the child's areas are in all trees, also where fork fails. */
static inline void quire_rmap_batch_end(struct quire_rmap_batch *batch)
{
	if (!quire_rmap_used())
		return;
	if (batch->link.nr)
		__quire_rmap_link(&batch->link);
	if (batch->avcs.nr || batch->vmas.nr || batch->locks.nr)
		__quire_rmap_batch_end(batch);
}

/* In place of mas_find(), in walks over all areas; one that begins has no leaf yet. */
static inline void *quire_rmap_next(struct ma_state *mas, unsigned long max)
{
	if (!static_branch_unlikely(&quire_rmap_key) || !mas_is_active(mas))
		return mas_find(mas, max);
	return __quire_rmap_next(mas, max);
}

/* In place of vma_start_write(), in fork. */
static inline void quire_rmap_start_copy(struct vm_area_struct *vma)
{
	if (static_branch_unlikely(&quire_rmap_key))
		__quire_rmap_start_copy(vma);
	else
		vma_start_write(vma);
}

/* In place of vm_area_dup(). */
static inline struct vm_area_struct *quire_rmap_dup_area(struct quire_rmap_batch *batch,
							 struct vm_area_struct *orig)
{
	if (!static_branch_unlikely(&quire_rmap_key))
		return vm_area_dup(orig);
	return __quire_rmap_dup_area(batch, orig);
}

/* In place of anon_vma_fork(): borrow where the feature is on. */
static inline int quire_rmap_fork(struct quire_rmap_batch *batch, struct vm_area_struct *dst,
				  struct vm_area_struct *src)
{
	if (!static_branch_unlikely(&quire_rmap_key))
		return anon_vma_fork(dst, src);
	return src->anon_vma ? __quire_rmap_fork(batch, dst, src) : 0;
}

/* After quire_rmap_fork(): @src maps nothing, so there is nothing to copy. */
static inline bool quire_rmap_nothing(const struct vm_area_struct *dst,
				      const struct vm_area_struct *src)
{
	return static_branch_unlikely(&quire_rmap_key) && src->anon_vma && !dst->anon_vma;
}

/*
 * Before an area is put into its file's tree: true if that has been done, or will be
 * at quire_rmap_batch_end().
 */
static inline bool quire_rmap_link_file(struct quire_rmap_batch *batch,
					struct vm_area_struct *vma, struct vm_area_struct *orig)
{
	return static_branch_unlikely(&quire_rmap_key) &&
	       __quire_rmap_link_file(&batch->link, vma, orig);
}

/* In place of vma_iter_bulk_store(): the iterator is where @orig is. */
static inline int quire_rmap_store_area(struct vma_iterator *vmi, struct vm_area_struct *orig,
					struct vm_area_struct *new)
{
	if (!static_branch_unlikely(&quire_rmap_key))
		return vma_iter_bulk_store(vmi, new);
	return __quire_rmap_store_area(vmi, orig, new);
}

/*
 * In place of vma_start_write() before page tables are freed: it waits for faults
 * that hold the area's lock. An mm without users has none.
 */
static inline void quire_rmap_start_write(struct vm_area_struct *vma)
{
	if (!static_branch_unlikely(&quire_rmap_key) || atomic_read(&vma->vm_mm->mm_users))
		vma_start_write(vma);
}

static inline void quire_rmap_unlink_begin(struct quire_rmap_unlink *unlink)
{
	unlink->nr = 0;
}

/* In place of unlink_anon_vmas(): now, or at quire_rmap_unlink_end(). */
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

/* Before the page tables are freed. A bulk of one costs more than it saves. */
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

static inline void quire_rmap_free_begin(struct quire_rmap_free *free)
{
	free->vmas.nr = free->locks.nr = 0;
}

/* In place of remove_vma(vma, true). */
static inline void quire_rmap_remove(struct quire_rmap_free *free, struct vm_area_struct *vma)
{
	if (static_branch_unlikely(&quire_rmap_key))
		__quire_rmap_remove(free, vma);
	else
		remove_vma(vma, true);
}

/* In place of cond_resched() after each: where many have just been freed. */
static inline void quire_rmap_resched(const struct quire_rmap_free *free)
{
	if (!static_branch_unlikely(&quire_rmap_key) || !free->vmas.nr)
		cond_resched();
}

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
