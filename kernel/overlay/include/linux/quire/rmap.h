/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Borrowed anon_vmas: what fork's child needs of the reverse map before it has
 * written anything. Linux's own files call what is declared here;
 * mm/quire/rmap/rmap.c has the design.
 *
 * vma->anon_borrowed says that vma->anon_vma is an ancestor's, which still uses it.
 * It implies vma->anon_vma != NULL. It is set under mmap_lock held for writing, and
 * cleared by an upgrade under page_table_lock and mmap_lock, held at least for reading.
 *
 * vma->anon_deferred is set in a borrower that was written to and went on borrowing:
 * some of its own folios may be attached to the borrowed anon_vma. mm->quire_deferred
 * counts these folios. mm/quire/rmap/defer.c has the rules of both.
 *
 * "Vanilla:" says what Linux does without the gate.
 */
#ifndef _LINUX_QUIRE_RMAP_H
#define _LINUX_QUIRE_RMAP_H

#include <linux/jump_label.h>
#include <linux/mm_types.h>

struct kmem_cache;
struct seq_file;

#ifdef CONFIG_QUIRE_RMAP

/* The feature's key: forks borrow. */
DECLARE_STATIC_KEY_FALSE(quire_rmap_key);
/* Borrowers may exist: enabled by the first start and never disabled. */
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

/**
 * quire_rmap_mm_init - start the budget of deferred folios of a new mm
 * @mm: made by exec or fork
 *
 * Vanilla: does nothing here.
 *
 * Context: nobody else knows the mm.
 */
static inline void quire_rmap_mm_init(struct mm_struct *mm)
{
	atomic_set(&mm->quire_deferred, 0);
}

/**
 * quire_rmap_borrowed - does a VMA use an anon_vma that is not its own
 * @vma: the VMA
 *
 * Acquire: a task that sees false after an upgrade also sees the VMA's new anon_vma and
 * its longer chain.
 *
 * Vanilla: there is nothing to borrow, so a VMA with an anon_vma is prepared.
 *
 * Context: mmap_lock or the VMA lock is held; does not sleep.
 * Return: true if the VMA borrows.
 */
static inline bool quire_rmap_borrowed(const struct vm_area_struct *vma)
{
	if (!static_branch_unlikely(&quire_rmap_used_key))
		return false;
	/* Pairs with use_anon_vma(). */
	return smp_load_acquire(&vma->anon_borrowed);
}

/**
 * quire_rmap_read_once - an anon_vma of a VMA that may be upgraded meanwhile
 * @vma: the VMA
 * @read: its anon_vma, as the caller has read it
 *
 * Vanilla: reads vma->anon_vma a second time, which cannot differ.
 *
 * Context: mmap_lock is held.
 * Return: @read.
 */
static inline struct anon_vma *quire_rmap_read_once(struct vm_area_struct *vma,
						    struct anon_vma *read)
{
	return read;
}

/**
 * quire_rmap_inside - is the only link of a VMA inside the VMA
 * @vma: the VMA
 *
 * Vanilla: all links are in the VMA's chain.
 *
 * Context: mmap_lock is held for writing, or the root's rwsem is held. With mmap_lock held
 * only for reading, the answer may change from true to false at any moment.
 * Return: true if it is.
 */
static inline bool quire_rmap_inside(const struct vm_area_struct *vma)
{
	return quire_rmap_borrowed(vma) && READ_ONCE(vma->vm_private_data) == vma &&
	       !vma->vm_ops;
}

/**
 * quire_rmap_reset - a copy of a VMA drops the anon_vma, and has none of its links
 * @vma: the copy
 *
 * Vanilla: only vma->anon_vma is set to NULL.
 *
 * Context: both mmap_locks are held for writing; @vma is in no tree.
 */
static inline void quire_rmap_reset(struct vm_area_struct *vma)
{
	if (!static_branch_unlikely(&quire_rmap_used_key) || !vma->anon_borrowed)
		return;
	vma->anon_borrowed = false;
	/* If the original's link is inside, this points to the original. */
	if (!vma->vm_file && !vma->vm_ops)
		vma->vm_private_data = NULL;
}

/**
 * quire_rmap_prepare - end a VMA's borrowing
 * @vma: about to get anonymous folios without anon_vma_prepare(), or to be split or moved
 *
 * Fails silently: a borrower is a valid state.
 *
 * Vanilla: does nothing here.
 *
 * Context: mmap_lock is held; may sleep.
 */
static inline void quire_rmap_prepare(struct vm_area_struct *vma)
{
	if (quire_rmap_borrowed(vma))
		quire_rmap_upgrade(vma);
}

/**
 * quire_rmap_prepare_fill - end a VMA's borrowing before it gets any number of folios
 * @vma: the VMA, or NULL
 *
 * Vanilla: does nothing here.
 *
 * Context: mmap_lock is held; may sleep.
 */
static inline void quire_rmap_prepare_fill(struct vm_area_struct *vma)
{
	if (vma)
		quire_rmap_prepare(vma);
}

/**
 * quire_rmap_merge - page table entries of one VMA become another VMA's
 * @vma: one of them, the giver or the taker
 * @other: the other one, or NULL
 *
 * When the taker is upgraded, it has to look for the folios that the giver deferred.
 *
 * Vanilla: does nothing here.
 *
 * Context: mmap_lock is held for writing.
 */
static inline void quire_rmap_merge(struct vm_area_struct *vma, struct vm_area_struct *other)
{
	if (other && (vma->anon_deferred || other->anon_deferred))
		vma->anon_deferred = other->anon_deferred = true;
}

/**
 * quire_rmap_cloned - a VMA was given the anon_vmas of another
 * @dst: the VMA
 * @src: the other one, maybe a borrower
 *
 * Vanilla: does nothing here.
 *
 * Context: the root's rwsem is held for writing, if @src has an anon_vma.
 */
static inline void quire_rmap_cloned(struct vm_area_struct *dst, struct vm_area_struct *src)
{
	if (static_branch_unlikely(&quire_rmap_used_key))
		__quire_rmap_cloned(dst, src);
}

/**
 * quire_rmap_released - a VMA leaves its anon_vmas
 * @vma: the VMA, whose anon_vma is not reset yet
 *
 * Vanilla: does nothing here.
 *
 * Context: the root's rwsem is held for writing.
 */
static inline void quire_rmap_released(struct vm_area_struct *vma)
{
	if (quire_rmap_borrowed(vma))
		__quire_rmap_released(vma);
}

/**
 * quire_rmap_unlink_inside - unlink a VMA whose link is inside it
 * @vma: the VMA
 *
 * Vanilla: unlink_anon_vmas() walks the VMA's chain.
 *
 * Context: mmap_lock is held; may sleep.
 * Return: true if it did all that unlink_anon_vmas() has to do.
 */
static inline bool quire_rmap_unlink_inside(struct vm_area_struct *vma)
{
	if (!quire_rmap_inside(vma))
		return false;
	__quire_rmap_unlink_inside(vma);
	return true;
}

/**
 * quire_rmap_pre_update - before a VMA's range changes: take out the link inside it
 * @vma: the VMA
 *
 * Vanilla: takes out the links in the VMA's chain.
 *
 * Context: mmap_lock and the root's rwsem are held for writing.
 */
static inline void quire_rmap_pre_update(struct vm_area_struct *vma)
{
	if (quire_rmap_inside(vma))
		__quire_rmap_pre_update(vma);
}

/**
 * quire_rmap_post_update - after a VMA's range has changed: put the link back
 * @vma: the VMA
 *
 * Vanilla: puts back the links in the VMA's chain.
 *
 * Context: in the same hold of the locks as quire_rmap_pre_update().
 */
static inline void quire_rmap_post_update(struct vm_area_struct *vma)
{
	if (quire_rmap_inside(vma))
		__quire_rmap_post_update(vma);
}

/**
 * quire_rmap_verify - check that the tree knows a VMA's range, with CONFIG_DEBUG_VM_RB
 * @vma: the VMA
 *
 * Vanilla: checks the links in the VMA's chain.
 *
 * Context: the root's rwsem is held.
 */
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
