// SPDX-License-Identifier: GPL-2.0
/*
 * A DMA engine for tests, on QEMU's educational device (-device edu, 1234:11e8),
 * that fails, lies or hangs on request. Not for real use.
 *
 * The device moves memory to and from a buffer of its own, 4 KiB at 0x40000, a
 * tenth of a second after the command, one move at a time. A move is 2 KiB here,
 * because some versions of QEMU refuse a move that ends at the buffer's end. Its
 * addresses have 28 bits unless QEMU's property dma_mask says otherwise: then
 * edu_dma.dma_bits must be set accordingly.
 *
 * Parameters, in /sys/module/edu_dma/parameters or on the command line:
 * @fill: offer to fill memory, and not only to copy it. Set at boot.
 * @dma_bits: width of the device's addresses. Set at boot.
 * @fail_in, @lie_in, @hang_in: the Nth transfer from now on reports an error;
 *	does nothing and reports that it is done; never ends. 0 is none.
 * @late_write: a hung transfer writes nonzero bytes after the channel was told
 *	to stop and has reported that it did.
 *
 * Locking: edu.lock protects the lists and the cookies. Only the work moves memory, and
 * it stops once a transfer hangs; from then on edu_late() may move memory.
 *
 * Lifetime: that of the device, which is bound at boot and must not be removed. A transfer
 * is freed when its callback has returned; a hung transfer, and those behind it, never.
 *
 * Undo: none. A hang lasts until the next boot; terminating a channel cancels nothing.
 */
#define pr_fmt(fmt) "edu_dma: " fmt

#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/io.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "../../../drivers/dma/dmaengine.h"

#define EDU_BUFFER	0x40000
#define EDU_STEP	SZ_2K
#define EDU_SRC		0x80
#define EDU_DST		0x88
#define EDU_COUNT	0x90
#define EDU_COMMAND	0x98
#define EDU_RUN		BIT(0)
#define EDU_TO_RAM	BIT(1)
#define EDU_STEP_MS	100

static bool fill = true;
module_param(fill, bool, 0444);
static unsigned int dma_bits = 28;
module_param(dma_bits, uint, 0444);
static unsigned int fail_in;
module_param(fail_in, uint, 0644);
static unsigned int lie_in;
module_param(lie_in, uint, 0644);
static unsigned int hang_in;
module_param(hang_in, uint, 0644);
static bool late_write;
module_param(late_write, bool, 0644);

struct edu_transfer {
	struct dma_async_tx_descriptor tx;
	struct list_head list;
	dma_addr_t dst, src;
	size_t len;
	int value;
	bool fills;
};

/* Key: C constant after probe; L @lock; H @lock, and set once; W the work, or edu_late(). */
struct edu {
	struct device *dev;			/* (C) */
	void __iomem *regs;			/* (C) */
	struct dma_device dma;
	struct dma_chan chan;
	spinlock_t lock;
	struct list_head submitted, issued;	/* (L) */
	struct edu_transfer *hung;		/* (H) */
	struct work_struct work;
	struct delayed_work late;
	u8 *pattern;				/* (C), its bytes (W) */
	dma_addr_t pattern_addr;		/* (C) */
};

static void edu_move(struct edu *edu, u64 src, u64 dst, u32 command)
{
	writeq(src, edu->regs + EDU_SRC);
	writeq(dst, edu->regs + EDU_DST);
	writeq(EDU_STEP, edu->regs + EDU_COUNT);
	writeq(command | EDU_RUN, edu->regs + EDU_COMMAND);
	do {
		msleep(EDU_STEP_MS);
	} while (readq(edu->regs + EDU_COMMAND) & EDU_RUN);
}

/* The pattern stays in the device's buffer, so a fill is one move per step. */
static void edu_fill(struct edu *edu, dma_addr_t dst, size_t len, int value)
{
	size_t at;

	memset(edu->pattern, value, EDU_STEP);
	edu_move(edu, edu->pattern_addr, EDU_BUFFER, 0);
	for (at = 0; at < len; at += EDU_STEP)
		edu_move(edu, EDU_BUFFER, dst + at, EDU_TO_RAM);
}

static void edu_copy(struct edu *edu, dma_addr_t dst, dma_addr_t src, size_t len)
{
	size_t at;

	for (at = 0; at < len; at += EDU_STEP) {
		edu_move(edu, src + at, EDU_BUFFER, 0);
		edu_move(edu, EDU_BUFFER, dst + at, EDU_TO_RAM);
	}
}

static void edu_run(struct edu *edu, struct edu_transfer *t)
{
	if (t->fills)
		edu_fill(edu, t->dst, t->len, t->value);
	else
		edu_copy(edu, t->dst, t->src, t->len);
}

static bool due(unsigned int *in)
{
	return *in && !--*in;
}

static void edu_finish(struct edu *edu, struct edu_transfer *t, enum dmaengine_tx_result how)
{
	struct dmaengine_result result = { .result = how };

	spin_lock_irq(&edu->lock);
	dma_cookie_complete(&t->tx);
	spin_unlock_irq(&edu->lock);
	dmaengine_desc_get_callback_invoke(&t->tx, &result);
	kfree(t);
}

static struct edu_transfer *edu_next(struct edu *edu)
{
	struct edu_transfer *t = NULL;

	spin_lock_irq(&edu->lock);
	if (!edu->hung)
		t = list_first_entry_or_null(&edu->issued, struct edu_transfer, list);
	if (t)
		list_del(&t->list);
	if (t && due(&hang_in)) {
		edu->hung = t;
		t = NULL;
	}
	spin_unlock_irq(&edu->lock);
	return t;
}

static void edu_work(struct work_struct *work)
{
	struct edu *edu = container_of(work, struct edu, work);
	struct edu_transfer *t;

	while ((t = edu_next(edu))) {
		if (due(&lie_in)) {
			edu_finish(edu, t, DMA_TRANS_NOERROR);
		} else if (due(&fail_in)) {
			edu_fill(edu, t->dst, EDU_STEP, 0x5a);
			edu_finish(edu, t, DMA_TRANS_WRITE_FAILED);
		} else {
			edu_run(edu, t);
			edu_finish(edu, t, DMA_TRANS_NOERROR);
		}
	}
}

/* A channel that was told to stop and ignores it writes to memory later. */
static void edu_late(struct work_struct *work)
{
	struct edu *edu = container_of(to_delayed_work(work), struct edu, late);

	edu_fill(edu, edu->hung->dst, SZ_8K, 0x5a);
	late_write = false;
}

static dma_cookie_t edu_submit(struct dma_async_tx_descriptor *tx)
{
	struct edu_transfer *t = container_of(tx, struct edu_transfer, tx);
	struct edu *edu = container_of(tx->chan, struct edu, chan);
	dma_cookie_t cookie;
	unsigned long flags;

	spin_lock_irqsave(&edu->lock, flags);
	cookie = dma_cookie_assign(tx);
	list_add_tail(&t->list, &edu->submitted);
	spin_unlock_irqrestore(&edu->lock, flags);
	return cookie;
}

static struct edu_transfer *edu_prep(struct dma_chan *chan, dma_addr_t dst, size_t len,
				     unsigned long flags)
{
	struct edu_transfer *t;

	if (!len || len % EDU_STEP)
		return NULL;
	t = kzalloc(sizeof(*t), GFP_NOWAIT);
	if (!t)
		return NULL;
	dma_async_tx_descriptor_init(&t->tx, chan);
	t->tx.tx_submit = edu_submit;
	t->tx.flags = flags;
	t->dst = dst;
	t->len = len;
	return t;
}

static struct dma_async_tx_descriptor *edu_prep_copy(struct dma_chan *chan, dma_addr_t dst,
						     dma_addr_t src, size_t len,
						     unsigned long flags)
{
	struct edu_transfer *t = edu_prep(chan, dst, len, flags);

	if (!t)
		return NULL;
	t->src = src;
	return &t->tx;
}

static struct dma_async_tx_descriptor *edu_prep_fill(struct dma_chan *chan, dma_addr_t dst,
						     int value, size_t len,
						     unsigned long flags)
{
	struct edu_transfer *t = edu_prep(chan, dst, len, flags);

	if (!t)
		return NULL;
	t->fills = true;
	t->value = value;
	return &t->tx;
}

static void edu_issue(struct dma_chan *chan)
{
	struct edu *edu = container_of(chan, struct edu, chan);
	unsigned long flags;

	spin_lock_irqsave(&edu->lock, flags);
	list_splice_tail_init(&edu->submitted, &edu->issued);
	spin_unlock_irqrestore(&edu->lock, flags);
	schedule_work(&edu->work);
}

static int edu_terminate(struct dma_chan *chan)
{
	struct edu *edu = container_of(chan, struct edu, chan);

	if (edu->hung && late_write)
		schedule_delayed_work(&edu->late, HZ);
	return 0;
}

static int edu_alloc(struct dma_chan *chan)
{
	dma_cookie_init(chan);
	return 1;
}

static void edu_free(struct dma_chan *chan)
{
	struct edu *edu = container_of(chan, struct edu, chan);

	flush_work(&edu->work);
}

static int edu_register(struct edu *edu)
{
	struct dma_device *dma = &edu->dma;

	dma->dev = edu->dev;
	INIT_LIST_HEAD(&dma->channels);
	edu->chan.device = dma;
	list_add_tail(&edu->chan.device_node, &dma->channels);
	dma_cap_set(DMA_PRIVATE, dma->cap_mask);
	dma_cap_set(DMA_MEMCPY, dma->cap_mask);
	dma->device_prep_dma_memcpy = edu_prep_copy;
	if (fill) {
		dma_cap_set(DMA_MEMSET, dma->cap_mask);
		dma->device_prep_dma_memset = edu_prep_fill;
	}
	dma->device_issue_pending = edu_issue;
	dma->device_tx_status = dma_cookie_status;
	dma->device_terminate_all = edu_terminate;
	dma->device_alloc_chan_resources = edu_alloc;
	dma->device_free_chan_resources = edu_free;
	return dmaenginem_async_device_register(dma);
}

static int edu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct edu *edu = devm_kzalloc(&pdev->dev, sizeof(*edu), GFP_KERNEL);
	int ret;

	if (!edu)
		return -ENOMEM;
	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	pci_set_master(pdev);
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(dma_bits));
	if (ret)
		return ret;
	dma_set_max_seg_size(&pdev->dev, SZ_64K);
	edu->dev = &pdev->dev;
	edu->regs = pcim_iomap(pdev, 0, 0);
	edu->pattern = dmam_alloc_coherent(&pdev->dev, EDU_STEP, &edu->pattern_addr, GFP_KERNEL);
	if (!edu->regs || !edu->pattern)
		return -ENOMEM;
	spin_lock_init(&edu->lock);
	INIT_LIST_HEAD(&edu->submitted);
	INIT_LIST_HEAD(&edu->issued);
	INIT_WORK(&edu->work, edu_work);
	INIT_DELAYED_WORK(&edu->late, edu_late);
	return edu_register(edu);
}

static const struct pci_device_id edu_ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{}
};

static struct pci_driver edu_driver = {
	.name = "edu_dma",
	.id_table = edu_ids,
	.probe = edu_probe,
	/* A transfer that is under way cannot be cancelled. */
	.driver.suppress_bind_attrs = true,
};
builtin_pci_driver(edu_driver);
