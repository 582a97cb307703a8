// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/quire/rmap_check: is the reverse map complete?
 *
 * Reading it visits every VMA of every process. For each page table entry that maps
 * an anonymous page it asks the reverse map for all VMAs that may map the folio. The
 * entry is missing if this VMA is not among them, or if the page's index is not the
 * index of the entry's address in the VMA: reclaim, migration and memory failure would
 * not find the entry. It also checks what the walk relies on, the chains, and the
 * invariants that mm/quire/rmap/rmap.c states. Folios of KSM are only counted: Linux
 * itself cannot find those of a child whose parent exited until its own scan comes to
 * them. A swap or migration entry of anonymous memory in a VMA without an anon_vma is
 * unlinked: the reverse map will not find its page either. A migration entry that does
 * not go away within the walk's patience is stale.
 *
 * For the pages that only the reader maps it also counts the VMAs that a walk visits.
 *
 * Reading rmap_check_files does the same for the pages of files, too, including shared
 * memory, which takes several times as long.
 *
 * Locking: mmap_lock for reading over a process, so VMAs and chains stay as they are
 * except for upgrades; page table locks while entries are collected, a batch at a time;
 * then the folio lock and what the walk takes. An entry that went away meanwhile is no
 * error, so a miss is looked up again under the folio lock, which is held to move a
 * folio to another anon_vma.
 *
 * The folios of a batch are referenced until the batch ends. Page tables that processes
 * share are read in place and stay shared.
 *
 * Writing "break" takes one link of the writer out of its tree, checks the VMA, puts the
 * link back and fails with EUCLEAN if the check noticed: a checker that finds nothing
 * must be able to find something. Meanwhile the pages of that VMA cannot be unmapped, and
 * stay; if one is being migrated at that moment it fails with EAGAIN. Writing "migrate"
 * does the same with one entry of the writer, which becomes a migration entry for a
 * while, with its folio locked as migration requires.
 */
#define pr_fmt(fmt) "quire: rmap: " fmt

#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/hugetlb.h>
#include <linux/init.h>
#include <linux/ksm.h>
#include <linux/mm.h>
#include <linux/mm_inline.h>
#include <linux/pagewalk.h>
#include <linux/quire/pt.h>
#include <linux/quire/rmap.h>
#include <linux/rmap.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/swapops.h>
#include <linux/uaccess.h>

#include "../core/quire.h"
#include "../../internal.h"
#include "rmap.h"

#define BATCH 128

/* How long a migration may take, and how often to look whether it has ended. */
#define PATIENCE	(20 * HZ)
#define LOOK_AGAIN_MS	20

/* A page that is mapped, or a page under migration: then @folio is NULL. */
struct entry {
	struct folio *folio;
	struct page *page;
	unsigned long address;
	swp_entry_t migration;
	bool shared;	/* the page table is, whatever the page says */
};

/* Entries that were found, and where to continue. */
struct batch {
	struct entry *entries;
	unsigned int nr, limit;
	unsigned long next, unlinked;
	bool files, shared;
};

struct check {
	bool files;
	unsigned long processes, vmas, borrowed, inside, chain_links, longest_chain;
	unsigned long pages, ksm_pages, file_pages, missing, chain_errors;
	unsigned long unlinked, stale, patience;
	unsigned long own_pages, own_visits;
	struct entry entries[BATCH];
};

/* The page table lock is held. Returns 1, to stop the walk, if the batch is full. */
static int collect(struct batch *batch, struct page *page, unsigned long address,
		   unsigned long size)
{
	struct folio *folio;

	if (page) {
		folio = page_folio(page);
		if (folio_test_anon(folio) ||
		    (batch->files && folio->mapping && !folio_test_hugetlb(folio))) {
			folio_get(folio);
			batch->entries[batch->nr++] = (struct entry) {
				.folio = folio, .page = page, .address = address,
				.shared = batch->shared,
			};
		}
	}
	batch->next = address + size;
	return batch->nr == batch->limit;
}

/*
 * For an entry that is neither empty nor present; its lock is held. Returns as collect().
 * Does not use pfn_swap_entry_folio(), because the folio of a stale migration entry is not
 * locked.
 */
static int collect_absent(struct batch *batch, struct vm_area_struct *vma, swp_entry_t entry,
			  unsigned long address, unsigned long size)
{
	bool migration = is_migration_entry(entry);
	bool anon = !non_swap_entry(entry) ||
		    (migration && folio_test_anon(pfn_folio(swp_offset_pfn(entry))));

	/* A VMA gets its anon_vma before its first anonymous page. */
	batch->unlinked += anon && !READ_ONCE(vma->anon_vma);
	if (migration)
		batch->entries[batch->nr++] = (struct entry) {
			.address = address, .migration = entry,
		};
	batch->next = address + size;
	return batch->nr == batch->limit;
}

/* Reads one table in place, shared with other processes or not. */
static int check_table(pmd_t *pmd, unsigned long addr, unsigned long end, struct mm_walk *walk)
{
	struct batch *batch = walk->private;
	spinlock_t *ptl;
	pte_t *pte, *first;
	int ret = 0;

	first = pte = quire_pte_offset_map_lock(walk->mm, pmd, addr, &ptl);
	if (!pte) {
		walk->action = ACTION_AGAIN;
		return 0;
	}
	batch->shared = quire_pt_marked(pmd);
	for (; addr < end && !ret; pte++, addr += PAGE_SIZE) {
		pte_t ptent = ptep_get(pte);

		if (pte_present(ptent))
			ret = collect(batch, vm_normal_page(walk->vma, addr, ptent), addr,
				      PAGE_SIZE);
		else if (!pte_none(ptent))
			ret = collect_absent(batch, walk->vma, pte_to_swp_entry(ptent), addr,
					     PAGE_SIZE);
	}
	batch->shared = false;
	pte_unmap_unlock(first, ptl);
	return ret;
}

static int check_pmd(pmd_t *pmd, unsigned long addr, unsigned long end, struct mm_walk *walk)
{
	spinlock_t *ptl = pmd_trans_huge_lock(pmd, walk->vma);
	int ret = 0;

	walk->action = ACTION_CONTINUE;
	if (!ptl)
		return check_table(pmd, addr, end, walk);
	if (pmd_present(*pmd))
		ret = collect(walk->private, vm_normal_page_pmd(walk->vma, addr, *pmd),
			      addr, PMD_SIZE - (addr & ~PMD_MASK));
	else if (is_pmd_migration_entry(*pmd))
		ret = collect_absent(walk->private, walk->vma, pmd_to_swp_entry(*pmd),
				     addr, PMD_SIZE - (addr & ~PMD_MASK));
	spin_unlock(ptl);
	return ret;
}

static int check_hugetlb(pte_t *pte, unsigned long hmask, unsigned long addr,
			 unsigned long next, struct mm_walk *walk)
{
	struct hstate *h = hstate_vma(walk->vma);
	spinlock_t *ptl = huge_pte_lock(h, walk->mm, pte);
	pte_t ptent = huge_ptep_get(walk->mm, addr, pte);
	int ret = 0;

	if (pte_present(ptent))
		ret = collect(walk->private, pte_page(ptent), addr, next - addr);
	spin_unlock(ptl);
	return ret;
}

static const struct mm_walk_ops check_ops = {
	QUIRE_READS_SHARED,
	.pmd_entry = check_pmd,
	.hugetlb_entry = check_hugetlb,
	.walk_lock = PGWALK_RDLOCK,
};

/* A walk's question. The walk stops where it finds @vma, unless it is to visit @all VMAs. */
struct question {
	struct vm_area_struct *vma;
	unsigned long visited;
	bool found, all;
};

static bool is_it_this(struct folio *folio, struct vm_area_struct *vma, unsigned long address,
		       void *arg)
{
	struct question *question = arg;

	question->visited++;
	question->found |= vma == question->vma;
	return !question->found || question->all;
}

/*
 * Does only the reader of the file map the page? A page in a shared table may still be
 * marked exclusive, although all users of the table map it.
 */
static bool is_own(struct vm_area_struct *vma, const struct entry *entry)
{
	return vma->vm_mm == current->mm && !entry->shared && PageAnon(entry->page) &&
	       PageAnonExclusive(entry->page);
}

/* Does the reverse map lead from the entry's folio to the VMA? The folio is locked. */
static bool leads_to(struct check *check, struct vm_area_struct *vma, const struct entry *entry)
{
	struct question question = { .vma = vma, .all = is_own(vma, entry) };
	struct rmap_walk_control rwc = {
		.rmap_one = is_it_this,
		.anon_lock = folio_lock_anon_vma_read,
		.arg = &question,
	};

	rmap_walk(entry->folio, &rwc);
	if (question.all) {
		check->own_pages++;
		check->own_visits += question.visited;
	}
	return question.found;
}

/* Look again: is the entry unchanged? */
static bool still_there(struct vm_area_struct *vma, const struct entry *entry)
{
	struct entry found = {};
	struct batch again = {
		.entries = &found, .limit = 1,
		.files = entry->folio && !folio_test_anon(entry->folio),
	};

	walk_page_range(vma->vm_mm, entry->address, entry->address + PAGE_SIZE, &check_ops,
			&again);
	if (found.folio)
		folio_put(found.folio);
	return again.nr && found.page == entry->page &&
	       found.migration.val == entry->migration.val;
}

/* A migration needs none of this walk's locks to finish. */
static void check_migration(struct check *check, struct vm_area_struct *vma,
			    struct entry *entry)
{
	unsigned long end = jiffies + check->patience;

	while (still_there(vma, entry)) {
		if (time_after(jiffies, end)) {
			if (!check->stale++)
				pr_err("stale: address %lx, migration entry %lx\n",
				       entry->address, entry->migration.val);
			/* If one entry stays, others may, too: a whole table of them. */
			check->patience = 0;
			return;
		}
		msleep(LOOK_AGAIN_MS);
	}
}

/* Does the folio's index give the entry's address in a walk? */
static bool index_fits(struct vm_area_struct *vma, const struct entry *entry)
{
	pgoff_t index;

	if (folio_test_hugetlb(entry->folio))
		return true;
	index = entry->folio->index + folio_page_idx(entry->folio, entry->page);
	return index == linear_page_index(vma, entry->address);
}

/* The folio is locked. A truncated folio, or a driver's, belongs to no file. */
static bool is_files(struct folio *folio, struct vm_area_struct *vma)
{
	return !folio_test_anon(folio) && vma->vm_file && folio->mapping &&
	       folio->mapping == vma->vm_file->f_mapping;
}

static void check_entry(struct check *check, struct vm_area_struct *vma, struct entry *entry)
{
	struct folio *folio = entry->folio;

	if (!folio) {
		check_migration(check, vma, entry);
		return;
	}
	folio_lock(folio);
	if (is_files(folio, vma))
		check->file_pages++;
	else
		check->pages += folio_test_anon(folio);
	if (folio_test_ksm(folio))
		check->ksm_pages++;
	else if ((folio_test_anon(folio) || is_files(folio, vma)) &&
		 !(leads_to(check, vma, entry) && index_fits(vma, entry)) &&
		 still_there(vma, entry)) {
		if (!check->missing++)
			pr_err("missing: address %lx, folio %px, mapping %px, anon_vma %px%s\n",
			       entry->address, folio, folio->mapping, vma->anon_vma,
			       quire_rmap_borrowed(vma) ? " (borrowed)" : "");
	}
	folio_unlock(folio);
	folio_put(folio);
}

static void check_pages(struct check *check, struct vm_area_struct *vma)
{
	struct batch batch = { .entries = check->entries, .limit = BATCH, .files = check->files };
	unsigned long addr = vma->vm_start;
	unsigned int i;
	int full;

	if (vma->vm_flags & (VM_PFNMAP | VM_IO))
		return;
	do {
		batch.nr = batch.unlinked = 0;
		full = walk_page_range(vma->vm_mm, addr, vma->vm_end, &check_ops, &batch);
		for (i = 0; i < batch.nr; i++)
			check_entry(check, vma, &batch.entries[i]);
		if (batch.unlinked && !check->unlinked)
			pr_err("unlinked: area %lx-%lx has no anon_vma\n", vma->vm_start,
			       vma->vm_end);
		check->unlinked += batch.unlinked;
		addr = batch.next;
		cond_resched();
	} while (full > 0 && addr < vma->vm_end);
}

static bool has_one_link(struct vm_area_struct *vma)
{
	return quire_rmap_inside(vma) || list_is_singular(&vma->anon_vma_chain);
}

/* Do two VMAs with the same anon_vma have the same anon_vmas in the same order? */
static bool same_chain(struct vm_area_struct *a, struct vm_area_struct *b)
{
	struct anon_vma_chain *i, *j;

	if (quire_rmap_inside(a) || quire_rmap_inside(b))
		return has_one_link(a) && has_one_link(b);
	j = list_first_entry(&b->anon_vma_chain, struct anon_vma_chain, same_vma);
	list_for_each_entry(i, &a->anon_vma_chain, same_vma) {
		if (list_entry_is_head(j, &b->anon_vma_chain, same_vma) ||
		    i->anon_vma != j->anon_vma)
			return false;
		j = list_next_entry(j, same_vma);
	}
	return list_entry_is_head(j, &b->anon_vma_chain, same_vma);
}

/* vm_private_data of a VMA without vm_file and vm_ops is only for its link. Locked as the link. */
static bool is_private_data_sound(struct vm_area_struct *vma)
{
	return vma->vm_file || vma->vm_ops || !vma->vm_private_data || quire_rmap_inside(vma);
}

/* The chain of a VMA with an anon_vma. The root's lock is held. */
static bool chain_is_sound(struct check *check, struct vm_area_struct *vma)
{
	struct anon_vma *root = vma->anon_vma->root;
	struct anon_vma_chain *avc;
	unsigned long nr = 0;
	bool own = false;

	if (quire_rmap_inside(vma)) {
		check->inside++;
		return quire_rmap_link_is_sound(vma) && vma->anon_vma->num_active_vmas > 0;
	}
	list_for_each_entry(avc, &vma->anon_vma_chain, same_vma) {
		nr++;
		own |= avc->anon_vma == vma->anon_vma;
		if (avc->vma != vma || avc->anon_vma->root != root || !quire_rmap_in_tree(avc))
			return false;
	}
	check->chain_links += nr;
	check->longest_chain = max(check->longest_chain, nr);
	return own && vma->anon_vma->num_active_vmas > 0;
}

static void check_chain(struct check *check, struct vm_area_struct *vma,
			struct vm_area_struct *prev)
{
	struct anon_vma *anon_vma = READ_ONCE(vma->anon_vma);
	bool sound;

	check->vmas++;
	if (!anon_vma) {
		spin_lock(&vma->vm_mm->page_table_lock);
		sound = vma->anon_vma ||
			(list_empty(&vma->anon_vma_chain) && !quire_rmap_borrowed(vma) &&
			 is_private_data_sound(vma));
		spin_unlock(&vma->vm_mm->page_table_lock);
	} else {
		anon_vma_lock_read(anon_vma);
		check->borrowed += quire_rmap_borrowed(vma);
		sound = chain_is_sound(check, vma) && is_private_data_sound(vma);
		if (prev && prev->anon_vma == vma->anon_vma)
			sound &= same_chain(prev, vma) &&
				 quire_rmap_borrowed(prev) == quire_rmap_borrowed(vma);
		anon_vma_unlock_read(anon_vma);
	}
	if (!sound && !check->chain_errors++)
		pr_err("chain: area %lx-%lx, anon_vma %px%s\n", vma->vm_start, vma->vm_end,
		       anon_vma, quire_rmap_borrowed(vma) ? " (borrowed)" : "");
}

static int check_mm(struct check *check, struct mm_struct *mm)
{
	struct vm_area_struct *vma, *prev = NULL;
	VMA_ITERATOR(vmi, mm, 0);

	if (mmap_read_lock_killable(mm))
		return -EINTR;
	check->processes++;
	for_each_vma(vmi, vma) {
		check_chain(check, vma, prev);
		check_pages(check, vma);
		prev = vma;
	}
	mmap_read_unlock(mm);
	return 0;
}

static int rmap_check_show(struct seq_file *m, void *v)
{
	struct check *check = kvzalloc(sizeof(*check), GFP_KERNEL);
	struct quire_mm_walk walk;
	struct mm_struct *mm;
	int err = 0;

	if (!check)
		return -ENOMEM;
	check->files = m->private;
	check->patience = PATIENCE;
	quire_mm_walk_begin(&walk);
	while (!err && (mm = quire_mm_walk_next(&walk))) {
		err = check_mm(check, mm);
		mmput(mm);
	}
	quire_mm_walk_end(&walk);
	seq_printf(m, "processes %lu\nvmas %lu\nborrowed %lu\nborrowers_counted %ld\n",
		   check->processes, check->vmas, check->borrowed, quire_rmap_borrowers());
	seq_printf(m, "linked_inside %lu\nchain_links %lu\nlongest_chain %lu\n",
		   check->inside, check->chain_links, check->longest_chain);
	seq_printf(m, "pages %lu\nksm_pages %lu\n", check->pages, check->ksm_pages);
	if (check->files)
		seq_printf(m, "file_pages %lu\n", check->file_pages);
	seq_printf(m, "own_pages %lu\nown_visits %lu\n", check->own_pages, check->own_visits);
	seq_printf(m, "missing %lu\nchain_errors %lu\n", check->missing, check->chain_errors);
	seq_printf(m, "unlinked %lu\nstale_migrations %lu\n", check->unlinked, check->stale);
	kvfree(check);
	return err;
}

/*
 * May its link be taken out of the tree for a while? Only if it is the only link: other
 * VMAs that left meanwhile would find the tree empty and free it.
 */
static bool is_alone(struct vm_area_struct *vma)
{
	struct anon_vma *anon_vma = vma->anon_vma;

	return anon_vma && anon_vma->root == anon_vma && anon_vma->num_children == 1 &&
	       anon_vma->num_active_vmas == 1 && list_is_singular(&vma->anon_vma_chain);
}

/* Returns a VMA of this process that maps anonymous pages and is alone, or NULL. */
static struct vm_area_struct *find_victim(struct check *check, struct mm_struct *mm)
{
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);

	for_each_vma(vmi, vma) {
		if (!is_alone(vma))
			continue;
		check->pages = check->ksm_pages = 0;
		check_pages(check, vma);
		if (check->pages > check->ksm_pages)
			return vma;
	}
	return NULL;
}

/* Is a page of a VMA being migrated? The root's lock is held: no migration begins or ends. */
static bool is_migrating(struct check *check, struct vm_area_struct *vma)
{
	struct batch batch = { .entries = check->entries, .limit = BATCH };
	unsigned long addr = vma->vm_start;
	bool found = false;
	int full;

	do {
		batch.nr = 0;
		full = walk_page_range(vma->vm_mm, addr, vma->vm_end, &check_ops, &batch);
		while (batch.nr) {
			struct folio *folio = batch.entries[--batch.nr].folio;

			if (folio)
				folio_put(folio);
			else
				found = true;
		}
		addr = batch.next;
	} while (full > 0 && addr < vma->vm_end);
	return found;
}

/*
 * mmap_lock is held for writing, so no other VMA is linked to the anon_vma. A migration that
 * has begun must find the VMA when it ends.
 */
static int break_and_check(struct check *check, struct vm_area_struct *vma)
{
	struct anon_vma *anon_vma = vma->anon_vma;
	struct anon_vma_chain *avc;

	avc = list_first_entry(&vma->anon_vma_chain, struct anon_vma_chain, same_vma);
	check->missing = 0;
	anon_vma_lock_write(anon_vma);
	if (is_migrating(check, vma)) {
		anon_vma_unlock_write(anon_vma);
		return -EAGAIN;
	}
	anon_vma_interval_tree_remove(avc, &anon_vma->rb_root);
	anon_vma_unlock_write(anon_vma);
	check_pages(check, vma);
	anon_vma_lock_write(anon_vma);
	anon_vma_interval_tree_insert(avc, &anon_vma->rb_root);
	anon_vma_unlock_write(anon_vma);
	return check->missing ? -EUCLEAN : 0;
}

/* Can the only entry of a page be made a migration entry? Locks the folio if so. */
static bool lock_victim(struct page *page)
{
	struct folio *folio = page ? page_folio(page) : NULL;

	return folio && folio_test_anon(folio) && !folio_test_ksm(folio) &&
	       !folio_test_large(folio) && folio_mapcount(folio) == 1 && folio_trylock(folio);
}

/*
 * Returns the entry of an anonymous page of a VMA, or NULL. If there is one, its lock is
 * held and the folio is locked.
 */
static pte_t *find_anon_entry(struct vm_area_struct *vma, unsigned long *addr, spinlock_t **ptl)
{
	for (*addr = vma->vm_start; *addr < vma->vm_end; *addr += PAGE_SIZE) {
		pmd_t *pmd = mm_find_pmd(vma->vm_mm, *addr);
		struct page *page = NULL;
		pte_t *pte = NULL;

		if (pmd)
			pte = quire_pte_offset_map_lock(vma->vm_mm, pmd, *addr, ptl);
		if (!pte)
			continue;
		if (pte_present(ptep_get(pte)) && !quire_pt_marked(pmd))
			page = vm_normal_page(vma, *addr, ptep_get(pte));
		if (lock_victim(page))
			return pte;
		pte_unmap_unlock(pte, *ptl);
	}
	return NULL;
}

/* mmap_lock and the VMA are held for writing: nobody fills the entry meanwhile. */
static int forget_migration_and_check(struct check *check, struct vm_area_struct *vma)
{
	unsigned long addr;
	spinlock_t *ptl;
	pte_t *pte, old;

	vma_start_write(vma);
	pte = find_anon_entry(vma, &addr, &ptl);
	if (!pte)
		return -ENOENT;
	old = ptep_clear_flush(vma, addr, pte);
	set_pte_at(vma->vm_mm, addr, pte,
		   swp_entry_to_pte(make_readable_migration_entry(pte_pfn(old))));
	pte_unmap_unlock(pte, ptl);

	check->stale = 0;
	check->patience = HZ / 10;
	check_pages(check, vma);

	pte = get_locked_pte(vma->vm_mm, addr, &ptl);
	set_pte_at(vma->vm_mm, addr, pte, old);
	pte_unmap_unlock(pte, ptl);
	folio_unlock(pfn_folio(pte_pfn(old)));
	return check->stale ? -EUCLEAN : 0;
}

static ssize_t rmap_check_write(struct file *file, const char __user *ubuf, size_t len,
				loff_t *pos)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	struct check *check;
	char word[12] = "";
	bool migrate;
	int ret = -EINTR;

	if (len >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, ubuf, len))
		return -EFAULT;
	migrate = sysfs_streq(word, "migrate");
	if (!migrate && !sysfs_streq(word, "break"))
		return -EINVAL;
	check = kvzalloc(sizeof(*check), GFP_KERNEL);
	if (!check)
		return -ENOMEM;
	check->patience = PATIENCE;
	if (!mmap_write_lock_killable(mm)) {
		vma = find_victim(check, mm);
		if (!vma)
			ret = -ENOENT;
		else if (migrate)
			ret = forget_migration_and_check(check, vma);
		else
			ret = break_and_check(check, vma);
		mmap_write_unlock(mm);
	}
	kvfree(check);
	return ret ?: len;
}

static int rmap_check_open(struct inode *inode, struct file *file)
{
	return single_open(file, rmap_check_show, inode->i_private);
}

static const struct file_operations rmap_check_fops = {
	.open = rmap_check_open,
	.read = seq_read,
	.write = rmap_check_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static const struct file_operations rmap_check_files_fops = {
	.open = rmap_check_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = single_release,
};

static int __init rmap_check_init(void)
{
	/* Only whether this is NULL matters. */
	void *files = (void *)&rmap_check_files_fops;

	debugfs_create_file("rmap_check", 0600, quire_debugfs(), NULL, &rmap_check_fops);
	debugfs_create_file("rmap_check_files", 0400, quire_debugfs(), files,
			    &rmap_check_files_fops);
	return 0;
}
late_initcall(rmap_check_init);
