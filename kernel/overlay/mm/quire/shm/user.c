// SPDX-License-Identifier: GPL-2.0
/*
 * The users whose processes share page tables of shared memory with each other, and what the OOM
 * killer is told of these processes.
 *
 * A user has a pseudo process, which is charged (RSS) for the entries of all its tables. A process
 * that uses such tables has a record, which says how many of its PMDs point to tables of which
 * user. For each of these users the process counts with as many of the user's pages as these PMDs
 * can reach. That is what the process maps or more, at most 2 MiB for each PMD, and nothing of what
 * is mapped by processes with which it does not share.
 *
 * A process joins a table as one user, and that user counts. A process that has changed its user or
 * its user namespace keeps the tables that it has, at the old user's expense, and joins others as
 * the new one. MAX_USERS is the limit, so that the OOM killer has little to add up: beyond it a
 * process has its own tables, for which it is charged. A user is freed with the last PMD that
 * points to one of its tables.
 *
 * Locking: a record's lock covers its counts, its users and whether the record can be found. Only a
 * bucket lock nests in it. The PTL of a user's table covers what is charged to the user for that
 * table. The OOM killer's reads take none of these locks.
 *
 * Lifetime: each table and each record of a process hold a reference to the user. The user holds
 * its namespace, so no other namespace gets the same address meanwhile. A record is freed with the
 * last PMD that it counts, so a process has none when its mm is freed. Both are freed after a grace
 * period, a user by a work item, since freeing it may sleep. A task that finds a user or a record
 * that is about to be freed looks again.
 */
#include <linux/cred.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/rhashtable.h>
#include <linux/sched/mm.h>
#include <linux/user_namespace.h>
#include <linux/workqueue.h>

#include "shm.h"

/* For so many users a process may have tables at the same time. */
#define MAX_USERS 4

/*
 * How many PMDs of a process point to tables of a user, or will when a fault has ended.
 *
 * Key: L the lock of struct shm_process, without which the OOM killer reads
 */
struct shm_account {
	struct shm_user *user;		/* L: NULL if there are no such tables */
	unsigned long pmds;		/* L */
};

/*
 * Key: B bucket lock of the hash table, C constant, L @lock, without which the OOM killer and
 * pt_check read
 */
struct shm_process {
	struct rhash_head node;		/* B */
	struct mm_struct *mm;		/* C */
	spinlock_t lock;
	unsigned long pmds;		/* L: of all users; 0 if it cannot be found any more */
	struct shm_account accounts[MAX_USERS];	/* L */
	struct rcu_head rcu;
};

static const struct rhashtable_params user_params = {
	.key_len = sizeof(struct shm_user_key),
	.key_offset = offsetof(struct shm_user, key),
	.head_offset = offsetof(struct shm_user, node),
	.automatic_shrinking = true,
};

static const struct rhashtable_params process_params = {
	.key_len = sizeof(struct mm_struct *),
	.key_offset = offsetof(struct shm_process, mm),
	.head_offset = offsetof(struct shm_process, node),
	.automatic_shrinking = true,
};

static struct rhashtable users, processes;

static void destroy_user(struct shm_user *user)
{
	mmdrop(user->mm);
	put_user_ns(user->key.ns);
	kfree(user);
}

static void free_user(struct work_struct *work)
{
	destroy_user(container_of(to_rcu_work(work), struct shm_user, free));
}

static struct shm_user *alloc_user(const struct shm_user_key *key)
{
	struct shm_user *user = kzalloc(sizeof(*user), GFP_KERNEL_ACCOUNT);

	if (!user)
		return NULL;
	user->mm = mm_alloc();
	if (!user->mm) {
		kfree(user);
		return NULL;
	}
	quire_mm_disown(user->mm);
	user->key = *key;
	get_user_ns(key->ns);
	user->stamp = jiffies - 1;
	refcount_set(&user->refs, 1);
	INIT_RCU_WORK(&user->free, free_user);
	return user;
}

static struct shm_user *find_and_get(const struct shm_user_key *key)
{
	struct shm_user *user;

	guard(rcu)();
	user = rhashtable_lookup(&users, key, user_params);
	if (!user || refcount_inc_not_zero(&user->refs))
		return user;
	/*
	 * Remove it here: the task that dropped the last reference may be preempted, and must not
	 * be waited for.
	 */
	rhashtable_remove_fast(&users, &user->node, user_params);
	return NULL;
}

/* The caller holds the key's namespace. Returns NULL if there is no memory. */
static struct shm_user *find_or_make(const struct shm_user_key *key)
{
	struct shm_user *user, *other;

	for (;;) {
		user = find_and_get(key);
		if (user)
			return user;
		user = alloc_user(key);
		if (!user)
			return NULL;
		other = rhashtable_lookup_get_insert_fast(&users, &user->node, user_params);
		if (!other)
			return user;
		destroy_user(user);
		if (IS_ERR(other))
			return NULL;
		/* Another task was first, or the user that was found is about to be freed. */
	}
}

/**
 * quire_shm_put_user - drop a reference to a user
 * @user: the user
 *
 * For a table that is freed, or a process that has no more of the user's tables.
 * Context: any but hard interrupts.
 */
void quire_shm_put_user(struct shm_user *user)
{
	if (!refcount_dec_and_test(&user->refs))
		return;
	/* Unless find_and_get() has removed it. */
	rhashtable_remove_fast(&users, &user->node, user_params);
	queue_rcu_work(system_unbound_wq, &user->free);
}

/* The RCU read lock is held. */
static struct shm_process *find_process(struct mm_struct *mm)
{
	return rhashtable_lookup(&processes, &mm, process_params);
}

/* Returns the user's account, else an unused one, or NULL. The record's lock is held. */
static struct shm_account *find_account(struct shm_process *process,
					const struct shm_user_key *key)
{
	struct shm_account *account, *unused = NULL;

	for (account = process->accounts; account < process->accounts + MAX_USERS; account++) {
		if (!account->user)
			unused = account;
		else if (!memcmp(&account->user->key, key, sizeof(*key)))
			return account;
	}
	return unused;
}

/* Count for a user of which the process has tables already; returns NULL otherwise. */
static struct shm_user *count_again(struct mm_struct *mm, const struct shm_user_key *key)
{
	struct shm_process *process;
	struct shm_account *account;

	guard(rcu)();
	process = find_process(mm);
	if (!process)
		return NULL;
	guard(spinlock)(&process->lock);
	account = find_account(process, key);
	if (!account || !account->user)
		return NULL;
	WRITE_ONCE(account->pmds, account->pmds + 1);
	WRITE_ONCE(process->pmds, process->pmds + 1);
	return account->user;
}

/*
 * Count in a record of the process that another thread has made. Returns 0 if the record has the
 * caller's reference to the user now, -EEXIST if it has one already, -EAGAIN if the record is about
 * to be freed, or -EUSERS if it has no room for the user.
 */
static int count_first(struct shm_process *process, struct shm_user *user)
{
	struct shm_account *account;
	int ret;

	guard(spinlock)(&process->lock);
	if (!process->pmds)
		return -EAGAIN;
	account = find_account(process, &user->key);
	if (!account)
		return -EUSERS;
	ret = account->user ? -EEXIST : 0;
	/* A reader without the lock finds a complete user. */
	smp_store_release(&account->user, user);
	WRITE_ONCE(account->pmds, account->pmds + 1);
	WRITE_ONCE(process->pmds, process->pmds + 1);
	return ret;
}

/* count_first(), with a new record unless there is one. May also return -ENOMEM. */
static int make_record(struct mm_struct *mm, struct shm_user *user)
{
	struct shm_process *other, *process = kzalloc(sizeof(*process), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!process)
		return -ENOMEM;
	process->mm = mm;
	spin_lock_init(&process->lock);
	process->pmds = 1;
	process->accounts[0] = (struct shm_account){ .user = user, .pmds = 1 };
	do {
		guard(rcu)();
		other = rhashtable_lookup_get_insert_fast(&processes, &process->node,
							  process_params);
		if (!other)
			return 0;
		ret = IS_ERR(other) ? -ENOMEM : count_first(other, user);
	} while (ret == -EAGAIN);
	kfree(process);
	return ret;
}

/**
 * quire_shm_count_pmd - count a PMD that is about to point to a table of a user
 * @mm: the process's mm
 * @key: the user; the caller holds its namespace
 *
 * Must come before the PMD is set, so that the PMD is never missed.
 * Context: may sleep.
 * Return: the user, which exists as long as the PMD is counted; -ENOMEM, or -EUSERS if the process
 * has tables of too many users.
 */
struct shm_user *quire_shm_count_pmd(struct mm_struct *mm, const struct shm_user_key *key)
{
	struct shm_user *user = count_again(mm, key);
	int ret;

	if (user)
		return user;
	user = find_or_make(key);
	if (!user)
		return ERR_PTR(-ENOMEM);
	ret = make_record(mm, user);
	if (ret)
		quire_shm_put_user(user);
	return ret && ret != -EEXIST ? ERR_PTR(ret) : user;
}

/**
 * quire_shm_uncount_pmd - uncount a PMD that points to no table of a user any more
 * @mm: the process's mm
 * @user: what quire_shm_count_pmd() returned
 *
 * Also for a PMD that was not set. Comes after the PMD was cleared or unmarked.
 * Context: any but interrupts.
 */
void quire_shm_uncount_pmd(struct mm_struct *mm, struct shm_user *user)
{
	struct shm_process *process;
	struct shm_account *account;
	bool last, last_of_all;

	guard(rcu)();
	process = find_process(mm);
	if (!process) {
		quire_warn(&quire_shm_feature, "a table of a process that has none\n");
		return;
	}
	spin_lock(&process->lock);
	account = find_account(process, &user->key);
	if (!account || account->user != user) {
		spin_unlock(&process->lock);
		quire_warn(&quire_shm_feature, "a table of a user of whom the process has none\n");
		return;
	}
	WRITE_ONCE(account->pmds, account->pmds - 1);
	last = !account->pmds;
	if (last)
		WRITE_ONCE(account->user, NULL);
	WRITE_ONCE(process->pmds, process->pmds - 1);
	last_of_all = !process->pmds;
	if (last_of_all)
		rhashtable_remove_fast(&processes, &process->node, process_params);
	spin_unlock(&process->lock);
	if (last)
		quire_shm_put_user(user);
	if (last_of_all)
		kfree_rcu(process, rcu);
}

/**
 * quire_shm_pmds - how many PMDs of a process are counted
 * @mm: the process's mm
 *
 * Context: any.
 * Return: the number.
 */
unsigned long quire_shm_pmds(struct mm_struct *mm)
{
	struct shm_process *process;

	guard(rcu)();
	process = find_process(mm);
	return process ? READ_ONCE(process->pmds) : 0;
}

/**
 * quire_shm_mapped - what all tables together map
 * @type: an RSS counter
 *
 * Context: may sleep.
 * Return: pages; what changes meanwhile may or may not count.
 */
long quire_shm_mapped(int type)
{
	struct rhashtable_iter iter;
	struct shm_user *user;
	long pages = 0;

	rhashtable_walk_enter(&users, &iter);
	rhashtable_walk_start(&iter);
	while ((user = rhashtable_walk_next(&iter))) {
		if (!IS_ERR(user))
			pages += percpu_counter_sum(&user->mm->rss_stat[type]);
		else if (PTR_ERR(user) == -EAGAIN)
			pages = 0;
	}
	rhashtable_walk_stop(&iter);
	rhashtable_walk_exit(&iter);
	return pages;
}

/*
 * The per-CPU counters are summed at most once per tick, because all processes are asked in a row.
 */
static unsigned long pages_of(struct shm_user *user)
{
	if (READ_ONCE(user->stamp) != jiffies) {
		WRITE_ONCE(user->pages, get_mm_counter_sum(user->mm, MM_SHMEMPAGES));
		WRITE_ONCE(user->stamp, jiffies);
	}
	return READ_ONCE(user->pages);
}

/**
 * quire_shm_reached - what a process reaches through tables of shared memory
 * @mm: the process's mm
 * @tables: set to the number of these tables
 *
 * Context: any.
 * Return: pages, as the head of this file says.
 */
unsigned long quire_shm_reached(struct mm_struct *mm, unsigned long *tables)
{
	struct shm_account *account;
	struct shm_process *process;
	unsigned long pages = 0, pmds;
	struct shm_user *user;

	*tables = 0;
	if (!test_bit(MMF_QUIRE_SHM, &mm->flags))
		return 0;
	guard(rcu)();
	process = find_process(mm);
	if (!process)
		return 0;
	for (account = process->accounts; account < process->accounts + MAX_USERS; account++) {
		user = READ_ONCE(account->user);
		if (!user)
			continue;
		pmds = READ_ONCE(account->pmds);
		*tables += pmds;
		pages += min(pages_of(user), pmds * PTRS_PER_PTE);
	}
	return pages;
}

/**
 * quire_shm_user_of - the user of a process
 * @key: set to the user
 * @mm: the process's mm
 *
 * The mm's owner tells, no matter which task runs the fault: a debugger, a kernel thread or a
 * worker may have other credentials, and so may one of the process's threads for a while.
 * Context: any.
 * Return: true if the key is set, and the caller must put_user_ns() the namespace in it; false if
 * nobody owns the mm, because its process is about to end.
 */
bool quire_shm_user_of(struct shm_user_key *key, struct mm_struct *mm)
{
	struct task_struct *task;
	const struct cred *cred;

	guard(rcu)();
	task = quire_mm_task(mm);
	if (!task)
		return false;
	cred = __task_cred(task);
	key->ns = get_user_ns(cred->user_ns);
	key->uid = __kuid_val(cred->euid);
	return true;
}

/**
 * quire_shm_users_init - set up the hash tables
 *
 * Context: boot; may sleep.
 * Return: 0 or -ENOMEM.
 */
int __init quire_shm_users_init(void)
{
	return rhashtable_init(&users, &user_params) ?:
	       rhashtable_init(&processes, &process_params);
}
