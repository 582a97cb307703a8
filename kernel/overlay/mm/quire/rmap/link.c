// SPDX-License-Identifier: GPL-2.0
/*
 * Links between areas and anon_vmas, and links that are inside of an area.
 *
 * A borrower has a link (anon_vma_chain) in the tree of what it borrows. An area
 * without a file has room for one: shared.rb is for the tree of its file, and
 * the head of its chain is unused where it has no other link. struct
 * vm_area_struct has these fields, anon_vma and vm_private_data, which areas
 * without a file and without vm_ops do not use either, in the order of struct
 * anon_vma_chain. So the area is its own link:
 *
 *	anon_vma_chain		vm_area_struct
 *	vma			vm_private_data, the area itself
 *	anon_vma		anon_vma
 *	same_vma		anon_vma_chain, an empty list
 *	rb, rb_subtree_last	shared.rb, shared.rb_subtree_last
 *
 * Walks of a tree find the area by its link as they find any other. A child's is behind
 * its parent's, as fork needs it, until the parent's moves out: no walk but one that
 * races with that same fork depends on the order.
 *
 * Invariant: an area whose vm_private_data points to itself borrows, and its link
 * is inside of it (quire_rmap_inside()); then its chain is empty. A copy's pointer
 * is another area's until the copy is linked. Whoever needs a chain that is a list,
 * an upgrade and a fork without the feature, makes a link outside first; all others
 * that walk the chain ask for a link inside.
 *
 * Locking: as of any link. The tree is under the root's rwsem for writing;
 * whether the link is inside, under mmap_lock for writing, or for reading with
 * page_table_lock and the root's rwsem: an upgrade moves it out so.
 *
 * Lifetime: the area's. It leaves the tree before it is freed, as every link does.
 *
 * Undo: an upgrade (rmap.c), which is what ends all borrowing.
 */
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/quire/rmap.h>
#include <linux/rbtree_augmented.h>
#include <linux/rmap.h>
#include <linux/slab.h>

#include "rmap.h"

/* Is the area's field where the link's is, counted from the tree's node? */
#define SAME_PLACE(field, links)							\
	((long)offsetof(struct vm_area_struct, field) -				\
	 (long)offsetof(struct vm_area_struct, shared) ==			\
	 (long)offsetof(struct anon_vma_chain, links) -				\
	 (long)offsetof(struct anon_vma_chain, rb))

/*
 * Not where the compiler orders the fields at random (CONFIG_RANDSTRUCT), nor where a
 * driver uses vm_private_data of any area that an address leads to (privcmd_ioeventfd_assign()).
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
 * quire_rmap_insert_after - put a link into the tree that another one is in
 * @avc: of an area with the same range as that of @prev
 * @prev: in the tree
 * @root: the tree
 *
 * Makes @avc the next after @prev: what is above @prev in the tree knows of a range
 * that ends as late, only what is between the two may not. No search, and a child
 * is visited after its parent. The root's rwsem is held for writing.
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
 * quire_rmap_link_to - link an area to an anon_vma
 * @vma: the area, whose links are all in its chain
 * @avc: the link
 * @anon_vma: what it leads to
 *
 * mmap_lock and the root's rwsem are held for writing, or mmap_lock for reading and
 * page_table_lock, too.
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
 * quire_rmap_parent_link - the link beside which a child's may be inside the child's area
 * @vma: the parent's area, with an anon_vma
 *
 * Returns NULL where the child's area has no room for a link, or needs several.
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

/* The area is a borrower with an anon_vma; its chain is empty. */
static struct anon_vma_chain *prepare_inside(struct vm_area_struct *vma)
{
	vma->vm_private_data = vma;
	return link_of(vma);
}

/**
 * quire_rmap_fork_inside - link a child's area by what is inside of it
 * @dst: the child's, with its parent's anon_vma, which it borrows
 * @prev: the parent's link, see quire_rmap_parent_link()
 *
 * Both mmap_locks and the root's rwsem are held for writing.
 */
void quire_rmap_fork_inside(struct vm_area_struct *dst, struct anon_vma_chain *prev)
{
	quire_rmap_insert_after(prepare_inside(dst), prev, &dst->anon_vma->rb_root);
}

static void remove_inside(struct vm_area_struct *vma)
{
	anon_vma_interval_tree_remove(link_of(vma), &vma->anon_vma->rb_root);
	/* An upgrade that looks without the locks may see either. */
	WRITE_ONCE(vma->vm_private_data, NULL);
}

/**
 * quire_rmap_move_out - replace the link inside of an area by one in its chain
 * @vma: the area
 * @avc: the link to be
 *
 * mmap_lock, page_table_lock and the root's rwsem for writing are held.
 */
void quire_rmap_move_out(struct vm_area_struct *vma, struct anon_vma_chain *avc)
{
	remove_inside(vma);
	quire_rmap_link_to(vma, avc, vma->anon_vma);
}

/**
 * quire_rmap_take_out - unlink an area whose link is inside of it
 * @vma: the area, which forgets its anon_vma
 *
 * The root's rwsem is held for writing, and mmap_lock. Returns the anon_vma if that was
 * the last link to it: to be given to put_anon_vma(), which may take the root's lock.
 */
struct anon_vma *quire_rmap_take_out(struct vm_area_struct *vma)
{
	struct anon_vma *anon_vma = vma->anon_vma;

	remove_inside(vma);
	anon_vma->num_active_vmas--;
	__quire_rmap_released(vma);
	/* The area is still needed after this. */
	vma->anon_vma = NULL;
	if (!RB_EMPTY_ROOT(&anon_vma->rb_root.rb_root))
		return NULL;
	anon_vma->parent->num_children--;
	VM_WARN_ON(anon_vma->num_children);
	VM_WARN_ON(anon_vma->num_active_vmas);
	return anon_vma;
}

/**
 * __quire_rmap_unlink_inside - the same, for one area
 * @vma: the area
 *
 * In place of unlink_anon_vmas(). mmap_lock is held. May sleep.
 */
void __quire_rmap_unlink_inside(struct vm_area_struct *vma)
{
	struct anon_vma *root = vma->anon_vma->root;
	struct anon_vma *unused;

	/* Its own link is what keeps the anon_vma, and so the root. */
	down_write(&root->rwsem);
	unused = quire_rmap_take_out(vma);
	up_write(&root->rwsem);
	if (unused)
		put_anon_vma(unused);
}

/**
 * __quire_rmap_clone_inside - give an area the link of another one that has it inside
 * @dst: a copy of @src, or of a part of it, in no tree yet; or a child's, without an
 *	anon_vma, where fork does not borrow any more
 * @src: the other one
 *
 * In place of anon_vma_clone(), under mmap_lock held for writing. The copy has room for a
 * link, too; a child will have one of its own anon_vma beside it. May sleep. Returns 0
 * or -ENOMEM.
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
 * __quire_rmap_pre_update - take an area's link out of its tree for a while
 * @vma: its range is about to change; its link is inside
 *
 * mmap_lock and the root's rwsem are held for writing, until after
 * __quire_rmap_post_update().
 */
void __quire_rmap_pre_update(struct vm_area_struct *vma)
{
	anon_vma_interval_tree_remove(link_of(vma), &vma->anon_vma->rb_root);
}

/**
 * __quire_rmap_post_update - put it back
 * @vma: its range has changed
 */
void __quire_rmap_post_update(struct vm_area_struct *vma)
{
	anon_vma_interval_tree_insert(link_of(vma), &vma->anon_vma->rb_root);
}

/**
 * __quire_rmap_verify - compare an area's range with what its tree knows
 * @vma: its link is inside
 *
 * From validate_mm(), with CONFIG_DEBUG_VM_RB. The root's rwsem is held.
 */
void __quire_rmap_verify(struct vm_area_struct *vma)
{
#ifdef CONFIG_DEBUG_VM_RB
	anon_vma_interval_tree_verify(link_of(vma));
#endif
}

/**
 * quire_rmap_in_tree - does a walk for the first and the last page of an area find it?
 * @link: the area's
 *
 * For the checker. The root's rwsem is held.
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
 * quire_rmap_link_is_sound - is the link inside of an area what it should be?
 * @vma: the area
 *
 * For the checker. The root's rwsem is held.
 */
bool quire_rmap_link_is_sound(struct vm_area_struct *vma)
{
	return list_empty(&vma->anon_vma_chain) && !vma->vm_file &&
	       quire_rmap_in_tree(link_of(vma));
}
