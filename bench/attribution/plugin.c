// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A QEMU plugin that counts a guest kernel's instructions by place.
 *
 * Counting is on between two marks. A guest program makes a mark with a no-op that
 * carries a number (workload.c). The plugin counts how often each translated block
 * runs, and writes out the kernel's blocks at the second mark. bench/attribute adds
 * them up by function, to show what each function itself spends.
 *
 * The plugin also counts what some calls spend, with everything below them:
 * sites=FILE has lines "ADDRESS INDEX", the places that call one of the functions
 * in question. Only the outermost such call counts. A call ends when the address
 * after it is reached, so its count includes interrupts and what other tasks do
 * while the caller sleeps.
 *
 * For one CPU. QEMU's plugin header is in no package of Debian's, so the parts that
 * are used of version 1 of the interface (QEMU 4.2 to 8.2) are declared here.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*vcpu_udata_cb)(unsigned int vcpu, void *udata);

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id,
					   void (*cb)(plugin_id id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int op, void *ptr,
					      uint64_t imm);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, vcpu_udata_cb cb,
					    int flags, void *udata);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t idx);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);

#define EXPORT __attribute__((visibility("default")))
#define INLINE_ADD 0
#define NO_REGISTERS 0
#define KERNEL 0xffffffff80000000ULL

EXPORT int qemu_plugin_version = 1;

struct block {
	struct block *next;
	uint64_t addr, insns, runs, before;
};

struct site {
	uint64_t addr;
	unsigned int index;
	uint64_t calls, insns;
};

/* The end of a call, and how many instructions the block has that begins there. */
struct end {
	uint64_t addr, insns;
};

static struct block *blocks;
static struct site *sites, *inside;
static size_t nr_sites;
static uint64_t total, total_before, entered_at;
static const char *output;
static bool on;

static void mark(unsigned int vcpu, void *start)
{
	struct block *b;
	FILE *f;

	on = start != NULL;
	inside = NULL;
	if (on) {
		for (b = blocks; b; b = b->next)
			b->before = b->runs;
		for (size_t i = 0; i < nr_sites; i++)
			sites[i].calls = sites[i].insns = 0;
		total_before = total;
		return;
	}
	f = fopen(output, "w");
	if (!f)
		return;
	fprintf(f, "total %" PRIu64 "\n", total - total_before);
	for (b = blocks; b; b = b->next)
		if (b->addr >= KERNEL && b->runs != b->before)
			fprintf(f, "block %" PRIx64 " %" PRIu64 "\n", b->addr,
				(b->runs - b->before) * b->insns);
	for (size_t i = 0; i < nr_sites; i++)
		if (sites[i].calls)
			fprintf(f, "site %u %" PRIu64 " %" PRIu64 "\n", sites[i].index,
				sites[i].calls, sites[i].insns);
	fclose(f);
	(void)vcpu;
}

static void enter(unsigned int vcpu, void *data)
{
	(void)vcpu;
	if (!on || inside)
		return;
	inside = data;
	inside->calls++;
	entered_at = total;
}

static void leave(unsigned int vcpu, void *data)
{
	struct end *end = data;

	(void)vcpu;
	if (!inside || inside->addr + 5 != end->addr)
		return;
	/* The total already includes the block that begins here. */
	inside->insns += total - end->insns - entered_at;
	inside = NULL;
}

static struct site *find(uint64_t addr)
{
	size_t low = 0, high = nr_sites;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (sites[mid].addr < addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low < nr_sites && sites[low].addr == addr ? &sites[low] : NULL;
}

/* nopl NUMBER(%rax) */
static void look_for_mark(struct qemu_plugin_insn *insn)
{
	static const uint8_t nop[] = { 0x0f, 0x1f, 0x80, 0x71, 0x75, 0x69 };
	const uint8_t *code = qemu_plugin_insn_data(insn);

	if (qemu_plugin_insn_size(insn) == 7 && !memcmp(code, nop, sizeof(nop)))
		qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, NO_REGISTERS,
						       code[6] ? &on : NULL);
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
	struct block *b = calloc(1, sizeof(*b));
	size_t n = qemu_plugin_tb_n_insns(tb);

	(void)id;
	b->addr = qemu_plugin_tb_vaddr(tb);
	b->insns = n;
	b->next = blocks;
	blocks = b;
	qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD, &b->runs, 1);
	qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD, &total, n);
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t addr = qemu_plugin_insn_vaddr(insn);
		struct site *site;

		if (addr < KERNEL) {
			look_for_mark(insn);
			continue;
		}
		if (find(addr - 5)) {
			struct end *end = malloc(sizeof(*end));

			end->addr = addr;
			end->insns = n - i;
			qemu_plugin_register_vcpu_insn_exec_cb(insn, leave, NO_REGISTERS, end);
		}
		site = find(addr);
		if (site)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, enter, NO_REGISTERS, site);
	}
}

static int by_addr(const void *a, const void *b)
{
	uint64_t x = ((const struct site *)a)->addr, y = ((const struct site *)b)->addr;

	return (x > y) - (x < y);
}

static void read_sites(const char *path)
{
	FILE *f = fopen(path, "r");
	struct site site = { 0 };

	if (!f)
		return;
	while (fscanf(f, "%" SCNx64 " %u", &site.addr, &site.index) == 2) {
		sites = realloc(sites, (nr_sites + 1) * sizeof(*sites));
		sites[nr_sites++] = site;
	}
	fclose(f);
	qsort(sites, nr_sites, sizeof(*sites), by_addr);
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
	(void)info;
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "output=", 7))
			output = strdup(argv[i] + 7);
		else if (!strncmp(argv[i], "sites=", 6))
			read_sites(argv[i] + 6);
	}
	if (!output)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
