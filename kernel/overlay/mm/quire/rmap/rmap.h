/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of the rmap feature share. */
#ifndef _MM_QUIRE_RMAP_H
#define _MM_QUIRE_RMAP_H

#include <linux/quire/rmap_bulk.h>
#include <linux/rmap.h>

struct mm_struct;

/* How many objects are allocated or freed at once. */
#define QUIRE_STOCK 32

int quire_stock_fill(struct quire_stock *stock, struct kmem_cache *cache, unsigned int nr,
		     int expected);
void quire_stock_free(struct quire_stock *stock, struct kmem_cache *cache);

static inline void quire_stock_put(struct quire_stock *stock, void *object)
{
	*(void **)object = stock->first;
	stock->first = object;
	stock->nr++;
}

/* The stock is not empty. */
static inline void *quire_stock_take(struct quire_stock *stock)
{
	void *object = stock->first;

	stock->first = *(void **)object;
	stock->nr--;
	return object;
}

/* Few VMAs have one. */
static inline void quire_rmap_free_numab_state(struct vm_area_struct *vma)
{
#ifdef CONFIG_NUMA_BALANCING
	if (vma->numab_state)
		vma_numab_state_free(vma);
#endif
}

void quire_rmap_insert_after(struct anon_vma_chain *avc, struct anon_vma_chain *prev,
			     struct rb_root_cached *root);
void quire_rmap_link_to(struct vm_area_struct *vma, struct anon_vma_chain *avc,
			struct anon_vma *anon_vma);
struct anon_vma_chain *quire_rmap_parent_link(struct vm_area_struct *vma);
void quire_rmap_fork_inside(struct vm_area_struct *dst, struct anon_vma_chain *prev);
void quire_rmap_move_out(struct vm_area_struct *vma, struct anon_vma_chain *avc);
struct anon_vma *quire_rmap_take_out(struct vm_area_struct *vma);
bool quire_rmap_in_tree(struct anon_vma_chain *link);
bool quire_rmap_link_is_sound(struct vm_area_struct *vma);
struct kmem_cache *quire_avc_cache(void);
void quire_rmap_linked(unsigned int nr);
long quire_rmap_borrowers(void);

/* defer.c */
extern struct quire_uint_attr quire_defer_faults_knob;
bool quire_rmap_defer(struct vm_area_struct *vma);
unsigned long quire_rmap_take_along(struct vm_area_struct *vma);

#endif /* _MM_QUIRE_RMAP_H */
