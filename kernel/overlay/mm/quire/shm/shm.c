// SPDX-License-Identifier: GPL-2.0
/*
 * The shm feature: processes that map the same shared memory share the
 * last-level page tables that map it, as was first done for Linux in 2005/06.
 *
 * The object is that of pt/pt.c: the table itself, with a count of the PMDs that
 * point to it in its ptdesc. Nothing in it is copy-on-write. The PMDs are marked
 * and stay writable, and faults fill entries in place for all users.
 *
 * Rules
 *
 *  - A table is found by its key: the file's address_space, the offset in it
 *    that the first entry maps, what the entries' protection depends on, and who
 *    may share with whom. Only a page fault joins a process to a table.
 *  - Every entry maps the page of the file that belongs there. To drop one, for
 *    everybody, is always allowed: it faults in again. So a process that must
 *    not share leaves the table, which needs no memory and cannot fail, and its
 *    next fault joins again or fills a table of its own.
 *  - Page faults and the reverse map change entries, readers read them. All
 *    others leave first; __pte_offset_map() refuses a marked PMD, so that a
 *    walker that was forgotten sees no table.
 *  - folio references and mapcounts count the entries that exist. They are
 *    charged (RSS) to a pseudo process, never to one that uses them, see user.c.
 *  - The table lies within one VMA in each process, which has no flag of
 *    UNSHAREABLE. Who moves a boundary into it or sets such a flag leaves it
 *    while the VMA is locked for writing, so that no fault joins it again.
 *
 * Locks: the PMD's lock, then the table's page table lock (PTL), then the
 * registry's bucket. Before all of these, the first fault that is about to put a
 * table of a file into the registry takes the file's i_mmap lock for writing and
 * drops it, under the VMA's or the mmap lock: see wait_for_unannounced(). users,
 * the PMDs that point to the table, and the table's being in the registry change
 * under the PTL. A leaver clears its PMD, flushes its TLB and gives up its count
 * in one critical section. So no TLB knows a table without users, and the last
 * leaver drops the entries there and then: at no time is there an entry that no
 * PMD leads to.
 *
 * Lifetime: a table without users has left the registry and is freed by RCU,
 * which lookups, faults before they have the PTL, and GUP-fast rely on. The key's
 * address_space outlives the table: a user's VMA holds the file, and a VMA is
 * zapped, which leaves, before it lets go of its file.
 *
 * Truncation, hole punching and the reverse map visit each VMA in the file's
 * i_mmap; the first one that leads to a table has its entries changed for all
 * users. A user that joins behind such a walk while the last one ahead of it
 * leaves would keep the table from being met. Joining is therefore refused while
 * a walk is under way: a joiner sets its PMD and then looks whether a walk began,
 * both under the PTL; a walk announces itself and then looks at PMDs. Either the
 * joiner sees the walk and backs out, before anybody could leave the table, or
 * the walk sees the PMD. A folio that is locked, as truncation's last pass has
 * it, cannot get new entries meanwhile; that pass also waits for a last user
 * that has cleared its PMD and is dropping the entries, under the PMD's lock.
 *
 * Undo: "2" closes the gate and visits all processes until no table is left.
 */
#include <linux/hash.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/mman.h>
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>
#include <linux/rhashtable.h>
#include <linux/rmap.h>
#include <linux/sched/coredump.h>
#include <linux/sched/mm.h>
#include <linux/shmem_fs.h>
#include <linux/swapops.h>
#include <linux/user_namespace.h>
#include <linux/userfaultfd_k.h>

#include <asm/pgalloc.h>
#include <asm/tlb.h>
#include <asm/tlbflush.h>

#include "../../internal.h"
#include "../pt/pt.h"
#include "shm.h"

#define CREATE_TRACE_POINTS
#include <trace/events/quire_shm.h>

DEFINE_STATIC_KEY_FALSE(quire_shm_key);

/* Compared as bytes: no padding. */
struct shm_key {
	struct address_space *mapping;
	pgoff_t pgoff;			/* of the first entry */
	u64 prot;			/* vm_page_prot */
	u64 flags;			/* the VM_* bits of KEY_FLAGS */
	struct shm_user_key user;	/* all zeroes where users may share with each other */
};

struct shm_table {
	struct rhash_head node;
	struct shm_key key;
	struct shm_user *user;
	struct ptdesc *pt;
	struct rcu_head rcu;
};

static const struct rhashtable_params table_params = {
	.key_len = sizeof(struct shm_key),
	.key_offset = offsetof(struct shm_table, key),
	.head_offset = offsetof(struct shm_table, node),
	.automatic_shrinking = true,
};

static struct rhashtable tables;
static struct kmem_cache *table_cache __ro_after_init;

/* Walks over the VMAs of files whose address_space has the same hash. */
#define WALK_BITS 10
static atomic_t walks_of_files[1 << WALK_BITS];

/* How often a fault looks whether they have ended before it takes a private table. */
#define WALK_PATIENCE 1000

enum shm_count {
	SHM_PUBLISHED,		/* a table began to be shared */
	SHM_JOINED,		/* one more process uses it */
	SHM_LEFT,		/* ... one less */
	SHM_DROPPED,		/* the last one left */
	SHM_ZAPPED,		/* entries dropped for all by truncation */
	SHM_FLUSHES,		/* of all CPUs for it, as several processes use the table */
	SHM_REFUSED_POLICY,
	SHM_REFUSED_FEW_TABLES,
	SHM_REFUSED_VMA,
	SHM_REFUSED_RANGE,
	SHM_REFUSED_HUGE,
	SHM_REFUSED_NOTIFIER,
	SHM_REFUSED_FOREIGN,
	SHM_REFUSED_USERS,
	SHM_REFUSED_WALKED,
	SHM_REFUSED_NOMEM,
	SHM_NR_COUNTS,
};

static const char * const shm_count_names[] = {
	[SHM_PUBLISHED] = "tables_published",
	[SHM_JOINED] = "tables_joined",
	[SHM_LEFT] = "tables_left",
	[SHM_DROPPED] = "tables_dropped",
	[SHM_ZAPPED] = "pages_zapped",
	[SHM_FLUSHES] = "zap_flushes",
	[SHM_REFUSED_POLICY] = "refused_policy",
	[SHM_REFUSED_FEW_TABLES] = "refused_few_tables",
	[SHM_REFUSED_VMA] = "refused_vma",
	[SHM_REFUSED_RANGE] = "refused_range",
	[SHM_REFUSED_HUGE] = "refused_huge",
	[SHM_REFUSED_NOTIFIER] = "refused_notifier",
	[SHM_REFUSED_FOREIGN] = "refused_foreign",
	[SHM_REFUSED_USERS] = "refused_users",
	[SHM_REFUSED_WALKED] = "refused_walked",
	[SHM_REFUSED_NOMEM] = "refused_nomem",
	NULL
};

static DEFINE_PER_CPU(unsigned long [SHM_NR_COUNTS], shm_counts);
#define shm_count(id)		this_cpu_inc(shm_counts[id])
#define shm_count_add(id, n)	this_cpu_add(shm_counts[id], n)

/* A VMA of fewer tables is mapped as ever; a handful saves less than it costs. */
static unsigned int min_tables = 16;
/* May processes of different users share? One could time the other's faults. */
static unsigned int cross_user;
/* Place large shared mappings so that their tables can be shared. */
static unsigned int place = 1;
QUIRE_UINT_KNOB(min_tables, min_tables, 1, 1U << 30);
QUIRE_UINT_KNOB(cross_user, cross_user, 0, 1);
QUIRE_UINT_KNOB(place, place, 0, 1);

static ssize_t tables_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lu\n", quire_shm_tables());
}
QUIRE_ATTR_RO(tables);

static ssize_t mapped_kb_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	long pages = max(quire_shm_mapped(MM_SHMEMPAGES), 0L);

	return sysfs_emit(buf, "%ld\n", pages << (PAGE_SHIFT - 10));
}
QUIRE_ATTR_RO(mapped_kb);

static const struct attribute * const shm_knobs[] = {
	&min_tables_knob.attr.attr,
	&cross_user_knob.attr.attr,
	&place_knob.attr.attr,
	&tables_knob.attr,
	&mapped_kb_knob.attr,
	NULL
};

/**
 * quire_shm_tables - how many tables are shared now
 */
unsigned long quire_shm_tables(void)
{
	return atomic_read(&tables.nelems);
}

/* A shared table would break what these promise. */
#define UNSHAREABLE (VM_SPECIAL | VM_LOCKED_MASK | VM_HUGETLB | VM_UFFD_MISSING |	\
		     VM_UFFD_WP | VM_UFFD_MINOR | VM_SHADOW_STACK | VM_DROPPABLE |	\
		     VM_GROWSDOWN | VM_GROWSUP)

/* What the entries' protection is made of, vm_page_prot aside. */
#define KEY_FLAGS (VM_READ | VM_WRITE | VM_EXEC | VM_MAYREAD | VM_MAYWRITE | VM_MAYEXEC)

/*
 * MAP_SHARED of a file that was opened for reading has VM_MAYSHARE alone. It cannot be
 * made writable, so no page of it is ever copied, and its key is that of other readers:
 * those who mapped a file that is sealed against writing have VM_SHARED, and may no more.
 */
static bool vma_shareable(struct vm_area_struct *vma)
{
	const struct vm_operations_struct *ops = vma->vm_ops;

	if (!vma->vm_file || !shmem_mapping(vma->vm_file->f_mapping) ||
	    !(vma->vm_flags & VM_MAYSHARE) || (vma->vm_flags & UNSHAREABLE))
		return false;
	/* The file's pages at the file's offsets, and nobody wants to know of writes. */
	if (!ops || !ops->fault || ops->huge_fault || ops->page_mkwrite || ops->pfn_mkwrite)
		return false;
	if (IS_ENABLED(CONFIG_MEM_SOFT_DIRTY) && !(vma->vm_flags & VM_SOFTDIRTY))
		return false;
	return !vma->anon_vma && !userfaultfd_armed(vma);
}

/* A huge page is there, or may come: one PMD is better than any table. */
static bool huge_wanted(struct vm_area_struct *vma, pgoff_t pgoff)
{
	struct address_space *mapping = vma->vm_file->f_mapping;
	struct folio *folio;
	bool huge;

	if (!IS_ALIGNED(pgoff, PTRS_PER_PTE))
		return false;
	if (shmem_allowable_huge_orders(mapping->host, vma, pgoff, 0, false) & BIT(PMD_ORDER))
		return true;
	folio = filemap_get_folio(mapping, pgoff);
	if (IS_ERR(folio))
		return false;
	huge = folio_test_pmd_mappable(folio);
	folio_put(folio);
	return huge;
}

/* Returns the counter of the reason not to share, or -1. */
static int refusal(struct vm_area_struct *vma, unsigned long addr)
{
	struct mm_struct *mm = vma->vm_mm;
	unsigned long policy = READ_ONCE(mm->flags) & MMF_QUIRE_POLICY_MASK;

	if (policy == MMF_QUIRE_NEVER)
		return SHM_REFUSED_POLICY;
	if (!vma_shareable(vma))
		return SHM_REFUSED_VMA;
	if (addr < vma->vm_start || vma->vm_end - addr < PMD_SIZE)
		return SHM_REFUSED_RANGE;
	if (policy != MMF_QUIRE_ALWAYS &&
	    (vma->vm_end - vma->vm_start) / PMD_SIZE < READ_ONCE(min_tables))
		return SHM_REFUSED_FEW_TABLES;
	if (mm_has_notifiers(mm))
		return SHM_REFUSED_NOTIFIER;
	if (huge_wanted(vma, linear_page_index(vma, addr)))
		return SHM_REFUSED_HUGE;
	return -1;
}

/* False if nobody owns the mm. The key holds its user's namespace. */
static bool make_key(struct shm_key *key, struct vm_area_struct *vma, unsigned long addr)
{
	memset(key, 0, sizeof(*key));
	key->mapping = vma->vm_file->f_mapping;
	key->pgoff = linear_page_index(vma, addr);
	key->prot = pgprot_val(vma->vm_page_prot);
	key->flags = vma->vm_flags & KEY_FLAGS;
	return READ_ONCE(cross_user) || quire_shm_user_of(&key->user, vma->vm_mm);
}

static atomic_t *walks_of(struct address_space *mapping)
{
	return &walks_of_files[hash_ptr(mapping, WALK_BITS)];
}

/* In the flags of an address_space; beyond the bits that Linux has names for. */
#define AS_QUIRE_ANNOUNCED	40

/*
 * Walks over a file's VMAs that began before the feature was ever on have not
 * announced themselves, and may sleep, so that shm_start() does not wait for them.
 * They hold the file's i_mmap lock from before their first PMD until after their
 * last.
 *
 * To wait for that lock once is enough for all the file's tables: quire_pt_used_key
 * was enabled before any fault came here, and is never disabled. Who takes the lock
 * after we had it sees the key and announces his walk; who had it before us has let
 * go of it. So once the flag is set there is no such walk of the file and there will
 * be none. An inode that is used again begins without flags. Who finds the flag set
 * sees all that happened before, by the acquire here and the lock's.
 */
static void wait_for_unannounced(struct address_space *mapping)
{
	BUILD_BUG_ON(BIT(AS_QUIRE_ANNOUNCED) & AS_FOLIO_ORDER_MASK);
	if (test_bit_acquire(AS_QUIRE_ANNOUNCED, &mapping->flags))
		return;
	i_mmap_lock_write(mapping);
	/* Not after the unlock: who sees the flag must see that we had the lock. */
	set_bit(AS_QUIRE_ANNOUNCED, &mapping->flags);
	i_mmap_unlock_write(mapping);
}

static struct shm_table *alloc_table(struct mm_struct *mm, const struct shm_key *key,
				     struct shm_user *user)
{
	struct shm_table *table = kmem_cache_alloc(table_cache, GFP_KERNEL_ACCOUNT);
	pgtable_t page;

	if (!table)
		return NULL;
	page = pte_alloc_one(mm);
	if (!page) {
		kmem_cache_free(table_cache, table);
		return NULL;
	}
	table->key = *key;
	table->pt = page_ptdesc(page);
	table->user = quire_shm_get_user(user);
	*quire_pt_owner(table->pt) = user->mm;
	*quire_pt_entry(table->pt) = table;
	*quire_pt_state(table->pt) = (struct quire_pt_state){ .users = 1 };
	return table;
}

static void free_table(struct shm_table *table)
{
	pte_free(NULL, ptdesc_page(table->pt));
	quire_shm_put_user(table->user);
	kmem_cache_free(table_cache, table);
}

static void free_table_rcu(struct rcu_head *head)
{
	free_table(container_of(head, struct shm_table, rcu));
}

/* The PMD's lock and the PTL are held. */
static void attach(struct mm_struct *mm, pmd_t *pmd, struct ptdesc *pt)
{
	mm_inc_nr_ptes(mm);
	/* A table that is new is cleared before others walk it, see pmd_install(). */
	smp_wmb();
	set_pmd(pmd, __pmd(((pmdval_t)page_to_pfn(ptdesc_page(pt)) << PAGE_SHIFT) |
			   _PAGE_TABLE | _PAGE_PT_SHARED));
}

/*
 * Likewise. None of the mm's TLBs knows the table afterwards. In an exit only the first
 * costs a flush: a CPU that has the mm loaded lazily then lets go of it.
 */
static void detach(struct mm_struct *mm, pmd_t *pmd, unsigned long addr)
{
	pmd_clear(pmd);
	mm_dec_nr_ptes(mm);
	flush_tlb_mm_range(mm, addr, addr + PMD_SIZE, PAGE_SHIFT, true);
}

/*
 * Use a table that the registry had; an RCU read-side critical section keeps it.
 * 1: the PMD is set; 0: by somebody else; -EAGAIN: the table is gone, look again;
 * -EBUSY: not now.
 */
static int join(struct vm_fault *vmf, struct shm_table *table)
{
	struct quire_pt_state *state = quire_pt_state(table->pt);
	spinlock_t *ptl = ptlock_ptr(table->pt), *pml;
	struct mm_struct *mm = vmf->vma->vm_mm;
	int ret = 0;

	pml = pmd_lock(mm, vmf->pmd);
	if (!pmd_none(*vmf->pmd)) {
		spin_unlock(pml);
		return 0;
	}
	spin_lock_nested(ptl, SINGLE_DEPTH_NESTING);
	if (!state->users) {
		ret = -EAGAIN;
	} else {
		state->users++;
		attach(mm, vmf->pmd, table->pt);
		/* Pairs with __quire_shm_walk_begin(). */
		smp_mb();
		if (atomic_read(walks_of(table->key.mapping))) {
			detach(mm, vmf->pmd, vmf->address & PMD_MASK);
			state->users--;
			ret = -EBUSY;
		} else {
			ret = 1;
			shm_count(SHM_JOINED);
			trace_shm_join(mm, vmf->address & PMD_MASK, state->users);
		}
	}
	spin_unlock(ptl);
	spin_unlock(pml);
	return ret;
}

/*
 * Offer a new, empty table and use it; *tablep is NULL if that was done.
 * 1: the PMD is set; 0: by somebody else; -EEXIST: there is a table already; -ENOMEM.
 */
static int publish(struct vm_fault *vmf, struct shm_table **tablep)
{
	struct shm_table *table = *tablep, *other;
	struct mm_struct *mm = vmf->vma->vm_mm;
	spinlock_t *ptl = ptlock_ptr(table->pt), *pml;
	int ret = 0;

	pml = pmd_lock(mm, vmf->pmd);
	if (!pmd_none(*vmf->pmd)) {
		spin_unlock(pml);
		return 0;
	}
	/* Who finds it now waits until the PMD is set. */
	spin_lock_nested(ptl, SINGLE_DEPTH_NESTING);
	other = rhashtable_lookup_get_insert_fast(&tables, &table->node, table_params);
	if (IS_ERR(other)) {
		ret = -ENOMEM;
	} else if (other) {
		ret = -EEXIST;
	} else {
		attach(mm, vmf->pmd, table->pt);
		*tablep = NULL;
		ret = 1;
		shm_count(SHM_PUBLISHED);
		trace_shm_join(mm, vmf->address & PMD_MASK, 1);
	}
	spin_unlock(ptl);
	spin_unlock(pml);
	return ret;
}

static int join_or_publish(struct vm_fault *vmf, const struct shm_key *key,
			   struct shm_user *user)
{
	struct shm_table *table, *new = NULL;
	int ret;

	for (;;) {
		rcu_read_lock();
		table = rhashtable_lookup(&tables, key, table_params);
		ret = table ? join(vmf, table) : -ENOENT;
		rcu_read_unlock();
		if (ret == -EAGAIN)
			continue;
		if (ret != -ENOENT)
			break;
		if (!new)
			new = alloc_table(vmf->vma->vm_mm, key, user);
		if (!new) {
			ret = -ENOMEM;
			break;
		}
		wait_for_unannounced(key->mapping);
		ret = publish(vmf, &new);
		if (ret != -EEXIST)
			break;
	}
	if (new)
		free_table(new);
	return ret;
}

/* As join_or_publish(), but waits a little for walks over the file's VMAs to end. */
static int join_patiently(struct vm_fault *vmf, const struct shm_key *key,
			  struct shm_user *user)
{
	unsigned int patience = WALK_PATIENCE;
	int ret;

	while ((ret = join_or_publish(vmf, key, user)) == -EBUSY && patience) {
		do {
			cond_resched();
			cpu_relax();
		} while (--patience && atomic_read(walks_of(key->mapping)));
	}
	return ret;
}

/* As join_patiently(), and count the PMD for the process's user. */
static int join_as_user(struct vm_fault *vmf, const struct shm_key *key)
{
	struct mm_struct *mm = vmf->vma->vm_mm;
	struct shm_user *user = quire_shm_count_pmd(mm, &key->user);
	int ret;

	if (IS_ERR(user))
		return PTR_ERR(user);
	ret = join_patiently(vmf, key, user);
	if (ret <= 0)
		quire_shm_uncount_pmd(mm, user);
	return ret;
}

/*
 * As join_as_user(). The memory cgroup of the process pays for what is new, and not
 * that of whoever looks at its memory.
 */
static int join_for_process(struct vm_fault *vmf, const struct shm_key *key)
{
	struct mm_struct *mm = vmf->vma->vm_mm;
	struct mem_cgroup *memcg, *old;
	int ret;

	if (mm == current->mm && !(current->flags & PF_KTHREAD))
		return join_as_user(vmf, key);
	memcg = get_mem_cgroup_from_mm(mm);
	old = set_active_memcg(memcg);
	ret = join_as_user(vmf, key);
	set_active_memcg(old);
	mem_cgroup_put(memcg);
	return ret;
}

static void fall_back(struct vm_area_struct *vma, unsigned long addr,
		      enum shm_count reason)
{
	shm_count(reason);
	trace_shm_fallback(vma->vm_mm, addr, shm_count_names[reason]);
}

/**
 * __quire_shm_join - have a page fault use a shared table, where it may
 * @vmf: the fault's; its PMD was none
 *
 * Whatever the outcome, the fault goes on as ever: with the shared table, or with
 * no table yet. Context: may sleep; mmap_lock or the VMA's lock is held.
 */
void __quire_shm_join(struct vm_fault *vmf)
{
	unsigned long addr = vmf->address & PMD_MASK;
	struct vm_area_struct *vma = vmf->vma;
	int reason = refusal(vma, addr);
	struct shm_key key;

	if (reason < 0 && !make_key(&key, vma, addr))
		reason = SHM_REFUSED_FOREIGN;
	if (reason >= 0) {
		fall_back(vma, addr, reason);
		return;
	}
	/* Seen by who has a VMA's lock for writing after us. */
	if (!test_bit(MMF_QUIRE_SHARED, &vma->vm_mm->flags))
		set_bit(MMF_QUIRE_SHARED, &vma->vm_mm->flags);
	if (!test_bit(MMF_QUIRE_SHM, &vma->vm_mm->flags))
		set_bit(MMF_QUIRE_SHM, &vma->vm_mm->flags);
	switch (join_for_process(vmf, &key)) {
	case -EBUSY:
		fall_back(vma, addr, SHM_REFUSED_WALKED);
		break;
	case -EUSERS:
		fall_back(vma, addr, SHM_REFUSED_USERS);
		break;
	case -ENOMEM:
		fall_back(vma, addr, SHM_REFUSED_NOMEM);
		break;
	}
	put_user_ns(key.user.ns);
}

/*
 * Take one entry out of a table. Returns how many pages it was charged as; a page
 * to let go of is in *page then.
 */
static int take_slot(struct vm_area_struct *vma, unsigned long addr, pte_t *ptep,
		     struct page **page)
{
	pte_t pte = ptep_get(ptep);
	struct folio *folio;

	*page = NULL;
	if (pte_none(pte))
		return 0;
	pte = ptep_get_and_clear(vma->vm_mm, addr, ptep);
	if (!pte_present(pte))
		return is_migration_entry(pte_to_swp_entry(pte));
	*page = vm_normal_page(vma, addr, pte);
	if (!*page)
		return 0;
	folio = page_folio(*page);
	if (pte_dirty(pte))
		folio_mark_dirty(folio);
	if (pte_young(pte) && vma_has_recency(vma))
		folio_mark_accessed(folio);
	folio_remove_rmap_pte(folio, *page, vma);
	return 1;
}

/* No PMD leads to the table and no TLB knows it; the PTL is held. */
static void drop_table(struct ptdesc *pt, struct vm_area_struct *vma, unsigned long addr)
{
	struct shm_table *table = *quire_pt_entry(pt);
	pte_t *pte = (pte_t *)ptdesc_address(pt);
	struct page *page;
	int i, taken = 0;

	rhashtable_remove_fast(&tables, &table->node, table_params);
	for (i = 0; i < PTRS_PER_PTE; i++, pte++, addr += PAGE_SIZE) {
		taken += take_slot(vma, addr, pte, &page);
		if (page)
			put_page(page);
	}
	if (taken)
		add_mm_counter(table->user->mm, MM_SHMEMPAGES, -taken);
	shm_count(SHM_DROPPED);
}

/**
 * quire_shm_leave - stop using a shared table
 * @vma: covers the table
 * @pmd: of the table
 * @addr: the first address that the table maps
 *
 * Cannot fail and does not sleep. Context: mmap_lock, the VMA's lock or the lock of
 * its reverse map is held. Returns false if the PMD led to no table of ours.
 */
bool quire_shm_leave(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	struct mm_struct *mm = vma->vm_mm;
	struct shm_table *table;
	struct shm_user *user;
	spinlock_t *pml, *ptl;
	struct ptdesc *pt;
	bool last;

	pml = pmd_lock(mm, pmd);
	if (!pmd_pt_file(*pmd)) {
		spin_unlock(pml);
		return false;
	}
	pt = quire_pmd_ptdesc(*pmd);
	table = *quire_pt_entry(pt);
	user = table->user;
	ptl = ptlock_ptr(pt);
	spin_lock_nested(ptl, SINGLE_DEPTH_NESTING);
	detach(mm, pmd, addr);
	last = !--quire_pt_state(pt)->users;
	trace_shm_leave(mm, addr, quire_pt_state(pt)->users);
	if (last)
		drop_table(pt, vma, addr);
	spin_unlock(ptl);
	spin_unlock(pml);
	quire_shm_uncount_pmd(mm, user);
	shm_count(SHM_LEFT);
	/* Joiners and lockless walkers may be looking at it. */
	if (last)
		call_rcu(&table->rcu, free_table_rcu);
	return true;
}

/*
 * Drop entries for all users. Returns where it stopped, for the gather is full;
 * *addr if the PMD leads to no table of ours any more.
 */
static unsigned long zap_in_place(struct mmu_gather *tlb, struct vm_area_struct *vma,
				  pmd_t *pmd, unsigned long addr, unsigned long end)
{
	pte_t *pte, *start;
	struct page *page;
	bool full = false;
	spinlock_t *ptl;
	int taken = 0;

	start = pte = pte_offset_map_lock_shared(vma->vm_mm, pmd, addr, &ptl);
	if (!pte)
		return addr;
	if (!pmd_pt_file(*pmd)) {
		pte_unmap_unlock(start, ptl);
		return addr;
	}
	for (; addr != end && !full; pte++, addr += PAGE_SIZE) {
		taken += take_slot(vma, addr, pte, &page);
		if (!page)
			continue;
		/* The gather wants to know of a range before it takes a page. */
		tlb_flush_pte_range(tlb, addr, PAGE_SIZE);
		full = __tlb_remove_page_size(tlb, page, false, PAGE_SIZE);
	}
	if (taken) {
		add_mm_counter(__quire_shm_charged(pmd), MM_SHMEMPAGES, -taken);
		shm_count_add(SHM_ZAPPED, taken);
	}
	if (quire_pt_flush_zapped(vma, pmd, addr - 1, taken))
		shm_count(SHM_FLUSHES);
	pte_unmap_unlock(start, ptl);
	if (full)
		tlb_flush_mmu(tlb);
	return addr;
}

/**
 * __quire_shm_zap - zap a range that a shared table maps
 * @tlb: gathers the pages
 * @vma: the range is in it
 * @pmd: led to a shared table when the caller looked
 * @addr: start of the range; set to @end if that was dealt with
 * @end: end of the range, within the table
 * @everybody: the file goes away there, not the process's mapping
 *
 * Context: as for zap_page_range_single(); for @everybody the lock of the
 * file's i_mmap is held. Returns false if the caller must do it as ever.
 */
bool __quire_shm_zap(struct mmu_gather *tlb, struct vm_area_struct *vma, pmd_t *pmd,
		     unsigned long *addr, unsigned long end, bool everybody)
{
	unsigned long next;

	if (!everybody) {
		if (!quire_shm_leave(vma, pmd, *addr & PMD_MASK))
			return false;
		*addr = end;
		return true;
	}
	tlb_change_page_size(tlb, PAGE_SIZE);
	while (*addr != end) {
		next = zap_in_place(tlb, vma, pmd, *addr, end);
		if (next == *addr)
			return false;
		*addr = next;
	}
	return true;
}

/**
 * __quire_shm_walk_begin - a walk over the VMAs of a file begins
 * @i_mmap: the file's tree of VMAs, locked
 *
 * Returns what __quire_shm_walk_end() wants, NULL if nothing.
 */
atomic_t *__quire_shm_walk_begin(struct rb_root_cached *i_mmap)
{
	struct address_space *mapping = container_of(i_mmap, struct address_space, i_mmap);
	atomic_t *walks = walks_of(mapping);

	if (!shmem_mapping(mapping))
		return NULL;
	atomic_inc(walks);
	/* Before any PMD is read; pairs with join(). */
	smp_mb__after_atomic();
	return walks;
}

/**
 * __quire_shm_walk_end - it has ended
 * @walks: what its begin returned
 */
void __quire_shm_walk_end(atomic_t *walks)
{
	/* After the last PMD was read. */
	smp_mb__before_atomic();
	atomic_dec(walks);
}

/**
 * __quire_shm_map - map a shared table without its lock
 * @pmd: a copy of the PMD; leads to a shared table
 * @addr: the address
 *
 * The caller must make sure that the PMD still leads there, now that it cannot
 * be freed any more. pte_unmap() undoes this.
 */
pte_t *__quire_shm_map(pmd_t *pmd, unsigned long addr)
{
	rcu_read_lock();
	return pte_offset_kernel(pmd, addr);
}

/**
 * __quire_shm_charged - the mm that a table's entries are charged to
 * @pmd: leads to a shared table, whose PTL is held
 */
struct mm_struct *__quire_shm_charged(pmd_t *pmd)
{
	return *quire_pt_owner(quire_pmd_ptdesc(*pmd));
}

/**
 * __quire_shm_place - is a mapping to be aligned as its file is
 * @len: its length
 * @flags: MAP_*
 *
 * Only tables that begin at the same offset can be shared. The alignment costs 9
 * of the address's random bits.
 */
bool __quire_shm_place(unsigned long len, unsigned long flags)
{
	return READ_ONCE(place) && (flags & MAP_TYPE) != MAP_PRIVATE &&
	       len / PMD_SIZE >= READ_ONCE(min_tables);
}

/**
 * quire_shm_check - is a table what its PMD takes it for
 * @vma: covers the table
 * @pmd: leads to a shared table, whose PTL is held
 * @addr: the first address that it maps
 *
 * Returns NULL, or what is wrong.
 */
const char *quire_shm_check(struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr)
{
	struct ptdesc *pt = quire_pmd_ptdesc(*pmd);
	struct shm_table *table = *quire_pt_entry(pt);

	if (*quire_pt_owner(pt) != table->user->mm)
		return "its charge is not its user's";
	if (table->pt != pt)
		return "its entry in the registry is another's";
	if (rhashtable_lookup_fast(&tables, &table->key, table_params) != table)
		return "it is not in the registry";
	if (!vma_shareable(vma) || mm_has_notifiers(vma->vm_mm))
		return "its VMA must not share";
	if (table->key.mapping != vma->vm_file->f_mapping ||
	    table->key.pgoff != linear_page_index(vma, addr))
		return "it maps something else";
	if (table->key.prot != pgprot_val(vma->vm_page_prot) ||
	    table->key.flags != (vma->vm_flags & KEY_FLAGS))
		return "its protection is not the VMA's";
	return NULL;
}

/*
 * Walkers without the lock, from before the first table is shared, must be gone.
 * They do not sleep. Walks over a file's VMAs may; wait_for_unannounced() is for those.
 */
static int shm_start(void)
{
	static_branch_enable(&quire_pt_used_key);
	synchronize_rcu();
	synchronize_rcu_tasks();
	return 0;
}

static void drain_once(void)
{
	struct quire_mm_walk walk;
	struct mm_struct *mm;

	quire_mm_walk_begin(&walk);
	while ((mm = quire_mm_walk_next(&walk))) {
		quire_shm_leave_mm_now(mm);
		mmput(mm);
		cond_resched();
	}
	quire_mm_walk_end(&walk);
}

/* A fault that began before the gate closed may join until it ends. */
#define DRAIN_PASSES 20

static int shm_drain(void)
{
	int i;

	for (i = 0; i < DRAIN_PASSES && quire_shm_tables(); i++) {
		if (i)
			schedule_timeout_uninterruptible(HZ / 20);
		drain_once();
	}
	return quire_shm_tables() ? -EBUSY : 0;
}

struct quire_feature quire_shm_feature = {
	.name = "shm",
	.key = &quire_shm_key,
	.start = shm_start,
	.drain = shm_drain,
	.knobs = shm_knobs,
	.counter_names = shm_count_names,
	.counters = (unsigned long __percpu *)shm_counts,
};

static int __init quire_shm_init(void)
{
	int ret;

	table_cache = KMEM_CACHE(shm_table, 0);
	if (!table_cache)
		return -ENOMEM;
	ret = rhashtable_init(&tables, &table_params) ?: quire_shm_users_init();
	return ret ? ret : quire_register(&quire_shm_feature);
}
late_initcall(quire_shm_init);
