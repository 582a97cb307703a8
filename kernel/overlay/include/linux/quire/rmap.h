/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Borrowed anon_vmas: what fork's child needs of the reverse map before it has
 * written anything. The hooks in Linux's own files call what is declared here;
 * mm/quire/rmap/rmap.c has the design.
 *
 * vma->anon_borrowed says that vma->anon_vma is an ancestor's and still used by
 * it. It implies vma->anon_vma != NULL. Set under mmap_lock held for writing,
 * cleared under page_table_lock and mmap_lock held for reading.
 *
 * vma->anon_deferred is set in a borrower that was written to and went on borrowing: some
 * of its own folios may be attached to the borrowed anon_vma. mm->quire_deferred counts
 * these folios. mm/quire/rmap/defer.c has the rules of both.
 */
#ifndef _LINUX_QUIRE_RMAP_H
#define _LINUX_QUIRE_RMAP_H

#include <linux/jump_label.h>
#include <linux/mm_types.h>

struct kmem_cache;
struct seq_file;

#ifdef CONFIG_QUIRE_RMAP

/* The feature's gate: forks borrow. */
DECLARE_STATIC_KEY_FALSE(quire_rmap_key);
/* Borrowers may exist: set by the first start and never cleared. */
DECLARE_STATIC_KEY_FALSE(quire_rmap_used_key);

void quire_rmap_init(struct kmem_cache *anon_vma_cachep, struct kmem_cache *avc_cachep);
void quire_rmap_upgrade(struct vm_area_struct *vma);
void quire_rmap_write(struct vm_area_struct *vma);
void __quire_rmap_cloned(struct vm_area_struct *dst, struct vm_area_struct *src);
void __quire_rmap_released(struct vm_area_struct *vma);
bool quire_rmap_extends(struct vm_area_struct *longer, struct vm_area_struct *shorter);

/* mm/quire/rmap/link.c */
int __quire_rmap_clone_inside(struct vm_area_struct *dst, struct vm_area_struct *src);
void __quire_rmap_unlink_inside(struct vm_area_struct *vma);
void __quire_rmap_pre_update(struct vm_area_struct *vma);
void __quire_rmap_post_update(struct vm_area_struct *vma);
void __quire_rmap_verify(struct vm_area_struct *vma);

/* A new mm, whether exec or fork made it, has a budget of its own. */
static inline void quire_rmap_mm_init(struct mm_struct *mm)
{
	atomic_set(&mm->quire_deferred, 0);
}

/**
 * quire_rmap_borrowed - does a VMA use an anon_vma that is not its own
 * @vma: under mmap_lock or the VMA's lock
 *
 * Acquire: who sees false after an upgrade also sees the VMA's new anon_vma and
 * its longer chain.
 */
static inline bool quire_rmap_borrowed(const struct vm_area_struct *vma)
{
	if (!static_branch_unlikely(&quire_rmap_used_key))
		return false;
	/* Pairs with the end of an upgrade. */
	return smp_load_acquire(&vma->anon_borrowed);
}

/* An anon_vma of a VMA that may be upgraded meanwhile: the one that was read. */
static inline struct anon_vma *quire_rmap_read_once(struct vm_area_struct *vma,
						    struct anon_vma *read)
{
	return read;
}

/*
 * Is the only link of a VMA inside of it? Under mmap_lock for writing or the root's
 * rwsem; where mmap_lock is held for reading, that may end at any moment, not begin.
 */
static inline bool quire_rmap_inside(const struct vm_area_struct *vma)
{
	return quire_rmap_borrowed(vma) && READ_ONCE(vma->vm_private_data) == vma &&
	       !vma->vm_ops;
}

/* A copy of a VMA does not use its anon_vma any longer, and has none of its links. */
static inline void quire_rmap_reset(struct vm_area_struct *vma)
{
	if (!static_branch_unlikely(&quire_rmap_used_key) || !vma->anon_borrowed)
		return;
	vma->anon_borrowed = false;
	/* The pointer to the VMA that it was copied from, if that has its link inside. */
	if (!vma->vm_file && !vma->vm_ops)
		vma->vm_private_data = NULL;
}

/* Before an anonymous folio is made where Linux needs no anon_vma_prepare(). */
static inline void quire_rmap_prepare(struct vm_area_struct *vma)
{
	if (quire_rmap_borrowed(vma))
		quire_rmap_upgrade(vma);
}

/* Before any number of anonymous folios is made. There may be no VMA. */
static inline void quire_rmap_prepare_fill(struct vm_area_struct *vma)
{
	if (vma)
		quire_rmap_prepare(vma);
}

/**
 * quire_rmap_merge - page table entries of one area become another area's
 * @vma: one of them, the giver or the taker
 * @other: the other one, or NULL
 *
 * When the taker is upgraded, it has to look for the folios that the giver deferred.
 * Context: mmap_lock is held for writing.
 */
static inline void quire_rmap_merge(struct vm_area_struct *vma, struct vm_area_struct *other)
{
	if (other && (vma->anon_deferred || other->anon_deferred))
		vma->anon_deferred = other->anon_deferred = true;
}

static inline void quire_rmap_cloned(struct vm_area_struct *dst, struct vm_area_struct *src)
{
	if (static_branch_unlikely(&quire_rmap_used_key))
		__quire_rmap_cloned(dst, src);
}

static inline void quire_rmap_released(struct vm_area_struct *vma)
{
	if (quire_rmap_borrowed(vma))
		__quire_rmap_released(vma);
}

/* In place of unlink_anon_vmas(), where it returns true. */
static inline bool quire_rmap_unlink_inside(struct vm_area_struct *vma)
{
	if (!quire_rmap_inside(vma))
		return false;
	__quire_rmap_unlink_inside(vma);
	return true;
}

/* Around a change of a VMA's range, beside the links in its chain. */
static inline void quire_rmap_pre_update(struct vm_area_struct *vma)
{
	if (quire_rmap_inside(vma))
		__quire_rmap_pre_update(vma);
}

static inline void quire_rmap_post_update(struct vm_area_struct *vma)
{
	if (quire_rmap_inside(vma))
		__quire_rmap_post_update(vma);
}

/* CONFIG_DEBUG_VM_RB: has its range changed without its tree's knowing? */
static inline void quire_rmap_verify(struct vm_area_struct *vma)
{
	if (quire_rmap_inside(vma))
		__quire_rmap_verify(vma);
}

#else

static inline void quire_rmap_init(struct kmem_cache *anon_vma_cachep,
				   struct kmem_cache *avc_cachep) { }
static inline void quire_rmap_mm_init(struct mm_struct *mm) { }
static inline void quire_rmap_write(struct vm_area_struct *vma) { }
static inline bool quire_rmap_extends(struct vm_area_struct *longer,
				      struct vm_area_struct *shorter) { return false; }
static inline bool quire_rmap_borrowed(const struct vm_area_struct *vma) { return false; }
static inline bool quire_rmap_inside(const struct vm_area_struct *vma) { return false; }
static inline bool quire_rmap_unlink_inside(struct vm_area_struct *vma) { return false; }
static inline void quire_rmap_pre_update(struct vm_area_struct *vma) { }
static inline void quire_rmap_post_update(struct vm_area_struct *vma) { }
static inline void quire_rmap_verify(struct vm_area_struct *vma) { }
static inline void quire_rmap_reset(struct vm_area_struct *vma) { }

static inline int __quire_rmap_clone_inside(struct vm_area_struct *dst,
					    struct vm_area_struct *src)
{
	return 0;
}

static inline void quire_rmap_prepare(struct vm_area_struct *vma) { }
static inline void quire_rmap_prepare_fill(struct vm_area_struct *vma) { }
static inline void quire_rmap_merge(struct vm_area_struct *vma, struct vm_area_struct *other) { }
static inline void quire_rmap_cloned(struct vm_area_struct *dst, struct vm_area_struct *src) { }
static inline void quire_rmap_released(struct vm_area_struct *vma) { }

static inline struct anon_vma *quire_rmap_read_once(struct vm_area_struct *vma,
						    struct anon_vma *read)
{
	return vma->anon_vma;
}

#endif /* CONFIG_QUIRE_RMAP */
#endif /* _LINUX_QUIRE_RMAP_H */
