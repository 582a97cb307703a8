// SPDX-License-Identifier: GPL-2.0
/*
 * Links between VMAs and anon_vmas, and links that are inside a VMA.
 *
 * A borrower has a link (anon_vma_chain) in the tree of the anon_vma it borrows. A VMA
 * without a file has room for one link: shared.rb is for the tree of its file, and the
 * head of its chain is unused if it has no other link. struct vm_area_struct has these
 * two fields, anon_vma and vm_private_data, which VMAs without a file and without vm_ops
 * do not use either, in the order of struct anon_vma_chain. So the VMA is its own link:
 *
 *	anon_vma_chain		vm_area_struct
 *	vma			vm_private_data, the VMA itself
 *	anon_vma		anon_vma
 *	same_vma		anon_vma_chain, an empty list
 *	rb, rb_subtree_last	shared.rb, shared.rb_subtree_last
 *
 * Walks of a tree find the VMA by this link as by any other. A child's link is behind
 * its parent's, as fork needs it, until the parent's link moves out: only a walk that
 * races with that same fork depends on the order.
 *
 * Invariant: a VMA whose vm_private_data points to itself borrows, and its link is
 * inside it (quire_rmap_inside()); then its chain is empty. A copy's pointer is another
 * VMA's until the copy is linked. Code that needs a chain that is a list, an upgrade and
 * a fork without the feature, makes a link outside first; all other code that walks the
 * chain asks for a link inside.
 *
 * Locking: as for any link. The tree is under the root's rwsem for writing. Whether the
 * link is inside is under mmap_lock held for writing, or, since an upgrade moves the link
 * out so, mmap_lock held for reading with page_table_lock and the root's rwsem.
 *
 * Lifetime: the VMA's. It leaves the tree before it is freed, as every link does.
 *
 * Undo: an upgrade (rmap.c), which ends all borrowing.
 */
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/quire/rmap.h>
#include <linux/rbtree_augmented.h>
#include <linux/rmap.h>
#include <linux/slab.h>

#include "rmap.h"

/* Is the VMA's field where the link's field is, counted from the tree's node? */
#define SAME_PLACE(field, links)							\
	((long)offsetof(struct vm_area_struct, field) -				\
	 (long)offsetof(struct vm_area_struct, shared) ==			\
	 (long)offsetof(struct anon_vma_chain, links) -				\
	 (long)offsetof(struct anon_vma_chain, rb))

/*
 * Not if the compiler orders the fields at random (CONFIG_RANDSTRUCT), nor if a driver uses
 * vm_private_data of any VMA that an address leads to (privcmd_ioeventfd_assign()).
 */
#define LINK_FITS (!IS_ENABLED(CONFIG_XEN_PRIVCMD_EVENTFD) &&					\
		   SAME_PLACE(vm_private_data, vma) && SAME_PLACE(anon_vma, anon_vma) &&	\
		   SAME_PLACE(anon_vma_chain, same_vma) && SAME_PLACE(shared.rb, rb) &&		\
		   SAME_PLACE(shared.rb_subtree_last, rb_subtree_last) &&			\
		   sizeof_field(struct vm_area_struct, shared) >=				\
		   sizeof(struct anon_vma_chain) - offsetof(struct anon_vma_chain, rb))

static_assert(LINK_FITS || IS_ENABLED(CONFIG_RANDSTRUCT) ||
	      IS_ENABLED(CONFIG_XEN_PRIVCMD_EVENTFD));

static struct anon_vma_chain *link_of(struct vm_area_struct *vma)
{
	return (void *)&vma->shared - offsetof(struct anon_vma_chain, rb);
}

static unsigned long avc_last_pgoff(struct anon_vma_chain *avc)
{
	return avc->vma->vm_pgoff + vma_pages(avc->vma) - 1;
}

RB_DECLARE_CALLBACKS_MAX(static, avc_augment, struct anon_vma_chain, rb, unsigned long,
			 rb_subtree_last, avc_last_pgoff)

/* What CONFIG_DEBUG_VM_RB compares with when the link leaves its tree. */
static void cache_range(struct anon_vma_chain *avc)
{
#ifdef CONFIG_DEBUG_VM_RB
	avc->cached_vma_start = avc->vma->vm_pgoff;
	avc->cached_vma_last = avc_last_pgoff(avc);
#endif
}

/**
 * quire_rmap_insert_after - put a link into the tree that another link is in
 * @avc: of a VMA with the same range as that of @prev
 * @prev: in the tree
 * @root: the tree
 *
 * Puts @avc right behind @prev, without a search, so that a child is visited after its
 * parent. Nodes above @prev already know a range that ends as late; only nodes between
 * @prev and @avc may have to be updated.
 *
 * Context: the root's rwsem is held for writing.
 */
void quire_rmap_insert_after(struct anon_vma_chain *avc, struct anon_vma_chain *prev,
			     struct rb_root_cached *root)
{
	struct rb_node *parent = &prev->rb, **link = &prev->rb.rb_right;
	unsigned long last = avc_last_pgoff(avc);

	while (*link) {
		struct anon_vma_chain *above;

		parent = *link;
		link = &parent->rb_left;
		above = rb_entry(parent, struct anon_vma_chain, rb);
		above->rb_subtree_last = max(above->rb_subtree_last, last);
	}
	cache_range(avc);
	avc->rb_subtree_last = last;
	rb_link_node(&avc->rb, parent, link);
	rb_insert_augmented(&avc->rb, &root->rb_root, &avc_augment);
}

/**
 * quire_rmap_link_to - link a VMA to an anon_vma
 * @vma: the VMA, whose links are all in its chain
 * @avc: the link
 * @anon_vma: the anon_vma
 *
 * Context: the root's rwsem is held for writing, and mmap_lock for writing, or for reading
 * with page_table_lock.
 */
void quire_rmap_link_to(struct vm_area_struct *vma, struct anon_vma_chain *avc,
			struct anon_vma *anon_vma)
{
	avc->vma = vma;
	avc->anon_vma = anon_vma;
	list_add(&avc->same_vma, &vma->anon_vma_chain);
	anon_vma_interval_tree_insert(avc, &anon_vma->rb_root);
}

/**
 * quire_rmap_parent_link - the link behind which a link inside the child's VMA may go
 * @vma: the parent's VMA, with an anon_vma
 *
 * Context: mmap_lock is held for writing.
 * Return: the link, or NULL if the child's VMA has no room for a link, or needs several.
 */
struct anon_vma_chain *quire_rmap_parent_link(struct vm_area_struct *vma)
{
	struct anon_vma_chain *avc;

	if (!LINK_FITS || vma->vm_file || !vma_is_anonymous(vma))
		return NULL;
	if (quire_rmap_inside(vma))
		return link_of(vma);
	if (!list_is_singular(&vma->anon_vma_chain))
		return NULL;
	avc = list_first_entry(&vma->anon_vma_chain, struct anon_vma_chain, same_vma);
	return avc->anon_vma == vma->anon_vma ? avc : NULL;
}

/* @vma is a borrower with an anon_vma; its chain is empty. */
static struct anon_vma_chain *prepare_inside(struct vm_area_struct *vma)
{
	vma->vm_private_data = vma;
	return link_of(vma);
}

/**
 * quire_rmap_fork_inside - link a child's VMA by a link inside it
 * @dst: the child's VMA, with its parent's anon_vma, which it borrows
 * @prev: the parent's link, see quire_rmap_parent_link()
 *
 * Context: both mmap_locks and the root's rwsem are held for writing.
 */
void quire_rmap_fork_inside(struct vm_area_struct *dst, struct anon_vma_chain *prev)
{
	quire_rmap_insert_after(prepare_inside(dst), prev, &dst->anon_vma->rb_root);
}

static void remove_inside(struct vm_area_struct *vma)
{
	anon_vma_interval_tree_remove(link_of(vma), &vma->anon_vma->rb_root);
	/* An upgrade that looks without the locks may see either value. */
	WRITE_ONCE(vma->vm_private_data, NULL);
}

/**
 * quire_rmap_move_out - replace the link inside a VMA by a link in its chain
 * @vma: the VMA
 * @avc: the new link
 *
 * Context: mmap_lock and page_table_lock are held, and the root's rwsem for writing.
 */
void quire_rmap_move_out(struct vm_area_struct *vma, struct anon_vma_chain *avc)
{
	remove_inside(vma);
	quire_rmap_link_to(vma, avc, vma->anon_vma);
}

/**
 * quire_rmap_take_out - unlink a VMA whose link is inside it
 * @vma: the VMA; its anon_vma is reset
 *
 * Context: mmap_lock is held, and the root's rwsem for writing.
 * Return: the anon_vma if that was the last link to it, else NULL. Give it to
 * put_anon_vma(), which may take the root's lock.
 */
struct anon_vma *quire_rmap_take_out(struct vm_area_struct *vma)
{
	struct anon_vma *anon_vma = vma->anon_vma;

	remove_inside(vma);
	anon_vma->num_active_vmas--;
	__quire_rmap_released(vma);
	/* The VMA is still needed after this. */
	vma->anon_vma = NULL;
	if (!RB_EMPTY_ROOT(&anon_vma->rb_root.rb_root))
		return NULL;
	anon_vma->parent->num_children--;
	VM_WARN_ON(anon_vma->num_children);
	VM_WARN_ON(anon_vma->num_active_vmas);
	return anon_vma;
}

/**
 * __quire_rmap_unlink_inside - unlink one VMA whose link is inside it
 * @vma: the VMA
 *
 * Replaces unlink_anon_vmas().
 *
 * Context: mmap_lock is held; may sleep.
 */
void __quire_rmap_unlink_inside(struct vm_area_struct *vma)
{
	struct anon_vma *root = vma->anon_vma->root;
	struct anon_vma *unused;

	/* Its own link keeps the anon_vma, and so the root. */
	down_write(&root->rwsem);
	unused = quire_rmap_take_out(vma);
	up_write(&root->rwsem);
	if (unused)
		put_anon_vma(unused);
}

/**
 * __quire_rmap_clone_inside - give a VMA the link of another one that has it inside
 * @dst: a copy of @src, or of a part of it, in no tree yet; or a child's, without an
 *	anon_vma, if fork does not borrow any more
 * @src: the other VMA
 *
 * Replaces anon_vma_clone(). A copy has room for a link, too. A child gets a link in its
 * chain, because a link to its own anon_vma will follow.
 *
 * Context: mmap_lock is held for writing; may sleep.
 * Return: 0 or -ENOMEM.
 */
int __quire_rmap_clone_inside(struct vm_area_struct *dst, struct vm_area_struct *src)
{
	struct anon_vma *anon_vma = src->anon_vma;
	struct anon_vma_chain *avc = NULL;

	if (!dst->anon_vma) {
		avc = kmem_cache_alloc(quire_avc_cache(), GFP_KERNEL);
		if (!avc)
			return -ENOMEM;
	}
	anon_vma_lock_write(anon_vma);
	if (avc) {
		quire_rmap_link_to(dst, avc, anon_vma);
	} else {
		anon_vma_interval_tree_insert(prepare_inside(dst), &anon_vma->rb_root);
		anon_vma->num_active_vmas++;
	}
	__quire_rmap_cloned(dst, src);
	anon_vma_unlock_write(anon_vma);
	return 0;
}

/**
 * __quire_rmap_pre_update - take a VMA's link out of its tree for a while
 * @vma: its range is about to change; its link is inside
 *
 * Context: mmap_lock and the root's rwsem are held for writing, until after
 * __quire_rmap_post_update().
 */
void __quire_rmap_pre_update(struct vm_area_struct *vma)
{
	anon_vma_interval_tree_remove(link_of(vma), &vma->anon_vma->rb_root);
}

/**
 * __quire_rmap_post_update - put the link back
 * @vma: its range has changed
 *
 * Context: as for __quire_rmap_pre_update().
 */
void __quire_rmap_post_update(struct vm_area_struct *vma)
{
	anon_vma_interval_tree_insert(link_of(vma), &vma->anon_vma->rb_root);
}

/**
 * __quire_rmap_verify - compare a VMA's range with what its tree knows
 * @vma: its link is inside
 *
 * Called by validate_mm(), with CONFIG_DEBUG_VM_RB.
 *
 * Context: the root's rwsem is held.
 */
void __quire_rmap_verify(struct vm_area_struct *vma)
{
#ifdef CONFIG_DEBUG_VM_RB
	anon_vma_interval_tree_verify(link_of(vma));
#endif
}

/**
 * quire_rmap_in_tree - does a walk for the first and the last page of a VMA find it?
 * @link: the VMA's
 *
 * For the checker.
 *
 * Context: the root's rwsem is held.
 * Return: true if both walks find it, once each.
 */
bool quire_rmap_in_tree(struct anon_vma_chain *link)
{
	unsigned long pages[] = { link->vma->vm_pgoff, avc_last_pgoff(link) };
	int i, found = 0;

	for (i = 0; i < ARRAY_SIZE(pages); i++) {
		struct anon_vma_chain *avc;

		anon_vma_interval_tree_foreach(avc, &link->anon_vma->rb_root, pages[i], pages[i])
			found += avc == link;
	}
	return found == ARRAY_SIZE(pages);
}

/**
 * quire_rmap_link_is_sound - is the link inside a VMA what it should be?
 * @vma: the VMA
 *
 * For the checker.
 *
 * Context: the root's rwsem is held.
 * Return: true if it is.
 */
bool quire_rmap_link_is_sound(struct vm_area_struct *vma)
{
	return list_empty(&vma->anon_vma_chain) && !vma->vm_file &&
	       quire_rmap_in_tree(link_of(vma));
}
