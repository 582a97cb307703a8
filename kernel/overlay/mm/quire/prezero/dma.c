// SPDX-License-Identifier: GPL-2.0
/*
 * The engine "dma": any channel of the DMA engine core that fills memory, or else
 * one that copies from a block of zeroes.
 *
 * Locking: dma.lock is held over a block, so one block at a time is under way.
 * The callbacks run in the provider's context and touch only what outlives
 * every channel: the struct is static, and is not used again after a hang.
 *
 * Lifetime: the channel is ours from start to stop. A channel that hangs is kept
 * forever, with its mappings and the block of zeroes, because it may use them at
 * any time. It is asked to stop, although some providers say yes and go on. Only a
 * trusted provider is waited for, and that may take forever.
 */
#define pr_fmt(fmt) "quire: prezero: " fmt

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/gfp.h>
#include <linux/jiffies.h>
#include <linux/log2.h>
#include <linux/mutex.h>
#include <linux/sizes.h>

#include "prezero.h"

#define MAX_IN_FLIGHT	8
#define ZEROES		SZ_64K

/*
 * Key: S set by start, constant until stop; H @lock, and start and stop read it while
 * no block is under way; A no lock, shared with the callbacks.
 */
static struct {
	struct mutex lock;
	struct dma_chan *chan;		/* (S) */
	struct device *dev;		/* (S) */
	bool fills;			/* (S) or copies */
	bool hung;			/* (H) never use the channel again */
	void *zeroes;			/* (S) */
	dma_addr_t zeroes_addr;		/* (S) */
	atomic_t left;			/* (A) transfers not done, and one while submitting */
	bool failed;			/* (A) */
	struct completion done;		/* (A) */
} dma = {
	.lock = __MUTEX_INITIALIZER(dma.lock),
	.done = COMPLETION_INITIALIZER(dma.done),
};

static void one_less(void)
{
	if (atomic_dec_and_test(&dma.left))
		complete(&dma.done);
}

static void transfer_done(void *data, const struct dmaengine_result *result)
{
	if (result && result->result != DMA_TRANS_NOERROR)
		WRITE_ONCE(dma.failed, true);
	one_less();
}

/* For providers that report no results. */
static void transfer_ended(void *data)
{
	one_less();
}

static bool submit(dma_addr_t addr, size_t len)
{
	struct dma_async_tx_descriptor *tx;

	if (dma.fills)
		tx = dmaengine_prep_dma_memset(dma.chan, addr, 0, len, DMA_PREP_INTERRUPT);
	else
		tx = dmaengine_prep_dma_memcpy(dma.chan, addr, dma.zeroes_addr, len,
					       DMA_PREP_INTERRUPT);
	if (!tx)
		return false;
	tx->callback_result = transfer_done;
	tx->callback = transfer_ended;
	atomic_inc(&dma.left);
	if (!dma_submit_error(dmaengine_submit(tx)))
		return true;
	atomic_dec(&dma.left);
	return false;
}

static int hang(void)
{
	bool trust = READ_ONCE(quire_prezero_trust_stop);
	int ret;

	dma.hung = true;
	ret = trust ? dmaengine_terminate_sync(dma.chan) : dmaengine_terminate_async(dma.chan);
	pr_warn("DMA channel %s hangs; asked to stop, it says %d\n",
		dma_chan_name(dma.chan), ret);
	return !ret && trust ? -ETIMEDOUT : -EINPROGRESS;
}

/* Zeroes as much as the channel takes at once. Returns the number of bytes, or -errno. */
static ssize_t run_transfers(dma_addr_t addr, size_t len, size_t transfer)
{
	unsigned long limit = msecs_to_jiffies(READ_ONCE(quire_prezero_engine_timeout_ms));
	unsigned int nr = 0;
	size_t at = 0;

	reinit_completion(&dma.done);
	dma.failed = false;
	/* One more than the transfers, so that it reaches 0 only when all are submitted. */
	atomic_set(&dma.left, 1);
	for (; at < len && nr < MAX_IN_FLIGHT; at += transfer, nr++)
		if (!submit(addr + at, transfer))
			break;
	if (!nr)
		return -EIO;
	dma_async_issue_pending(dma.chan);
	one_less();
	if (!wait_for_completion_timeout(&dma.done, limit))
		return hang();
	return READ_ONCE(dma.failed) ? -EIO : at;
}

static int zero_mapped(dma_addr_t addr, size_t len, size_t transfer)
{
	ssize_t done;

	for (; len; addr += done, len -= done) {
		done = run_transfers(addr, len, transfer);
		if (done < 0)
			return done;
	}
	return 0;
}

static int dma_zero(struct quire_zero_engine *engine, struct page *page, unsigned int order)
{
	size_t len = PAGE_SIZE << order;
	dma_addr_t addr;
	int ret = -EIO;

	mutex_lock(&dma.lock);
	if (dma.hung)
		goto unlock;
	addr = dma_map_page(dma.dev, page, 0, len, DMA_FROM_DEVICE);
	if (dma_mapping_error(dma.dev, addr))
		goto unlock;
	ret = zero_mapped(addr, len, min(len, engine->transfer));
	if (ret != -EINPROGRESS)
		dma_unmap_page(dma.dev, addr, len, DMA_FROM_DEVICE);
unlock:
	mutex_unlock(&dma.lock);
	return ret;
}

/* Treated as a hang: its transfers may still be under way, and may read the zeroes. */
static void dma_distrust(struct quire_zero_engine *engine)
{
	mutex_lock(&dma.lock);
	dma.hung = true;
	mutex_unlock(&dma.lock);
}

static struct dma_chan *request_channel(enum dma_transaction_type type)
{
	dma_cap_mask_t mask;

	dma_cap_zero(mask);
	dma_cap_set(type, mask);
	return dma_request_chan_by_mask(&mask);
}

static int make_zeroes(size_t len)
{
	dma.zeroes = (void *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, get_order(len));
	if (!dma.zeroes)
		return -ENOMEM;
	dma.zeroes_addr = dma_map_single(dma.dev, dma.zeroes, len, DMA_TO_DEVICE);
	if (!dma_mapping_error(dma.dev, dma.zeroes_addr))
		return 0;
	free_pages((unsigned long)dma.zeroes, get_order(len));
	dma.zeroes = NULL;
	return -ENOMEM;
}

/* Rejects bounce buffers: they are copies by the CPU and would cost more than they save. */
static int set_up(struct quire_zero_engine *engine)
{
	struct dma_device *device = dma.chan->device;
	size_t most = dma_get_max_seg_size(dma.dev);

	if (dma_addressing_limited(dma.dev) || most < PAGE_SIZE ||
	    (dma.fills ? device->fill_align : device->copy_align) > PAGE_SHIFT)
		return -EOPNOTSUPP;
	if (!dma.fills)
		most = min_t(size_t, most, ZEROES);
	engine->transfer = rounddown_pow_of_two(most);
	return dma.fills ? 0 : make_zeroes(engine->transfer);
}

static int dma_start(struct quire_zero_engine *engine)
{
	int ret;

	if (dma.hung)
		return -EBUSY;
	dma.fills = true;
	dma.chan = request_channel(DMA_MEMSET);
	if (IS_ERR(dma.chan)) {
		dma.fills = false;
		dma.chan = request_channel(DMA_MEMCPY);
	}
	/* Not -EPROBE_DEFER, which means nothing to user space. */
	if (IS_ERR(dma.chan))
		return -ENODEV;
	dma.dev = dmaengine_get_dma_device(dma.chan);
	ret = set_up(engine);
	if (ret) {
		dma_release_channel(dma.chan);
		return ret;
	}
	pr_info("engine dma: channel %s %s, %zu bytes at once\n", dma_chan_name(dma.chan),
		dma.fills ? "fills" : "copies", engine->transfer);
	return 0;
}

static void dma_stop(struct quire_zero_engine *engine)
{
	if (dma.hung)
		return;
	dmaengine_terminate_sync(dma.chan);
	if (dma.zeroes) {
		dma_unmap_single(dma.dev, dma.zeroes_addr, engine->transfer, DMA_TO_DEVICE);
		free_pages((unsigned long)dma.zeroes, get_order(engine->transfer));
		dma.zeroes = NULL;
	}
	dma_release_channel(dma.chan);
}

struct quire_zero_engine quire_prezero_dma_engine = {
	.name = "dma",
	.start = dma_start,
	.stop = dma_stop,
	.zero = dma_zero,
	.distrust = dma_distrust,
};
