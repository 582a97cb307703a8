/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of the rmap feature share. */
#ifndef _MM_QUIRE_RMAP_H
#define _MM_QUIRE_RMAP_H

#include <linux/quire_rmap_bulk.h>
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

/* What CONFIG_DEBUG_VM_RB compares with when the link leaves its tree. */
static inline void quire_rmap_cache_range(struct anon_vma_chain *avc)
{
#ifdef CONFIG_DEBUG_VM_RB
	avc->cached_vma_start = avc->vma->vm_pgoff;
	avc->cached_vma_last = avc->vma->vm_pgoff + vma_pages(avc->vma) - 1;
#endif
}

/* Few areas have one. */
static inline void quire_rmap_free_numab_state(struct vm_area_struct *vma)
{
#ifdef CONFIG_NUMA_BALANCING
	if (vma->numab_state)
		vma_numab_state_free(vma);
#endif
}

struct kmem_cache *quire_avc_cache(void);
struct mm_struct *quire_rmap_next_mm(int *nr);
void quire_rmap_linked(unsigned int nr);
long quire_rmap_borrowers(void);

#endif /* _MM_QUIRE_RMAP_H */
