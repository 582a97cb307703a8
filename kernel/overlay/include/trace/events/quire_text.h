/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM quire

#if !defined(_TRACE_QUIRE_TEXT_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_QUIRE_TEXT_H

#include <linux/fs.h>
#include <linux/kdev_t.h>
#include <linux/tracepoint.h>

/* A mapping of text; its whole blocks are those from @start to before @end. */
DECLARE_EVENT_CLASS(text_range,
	TP_PROTO(const struct inode *inode, pgoff_t start, pgoff_t end),
	TP_ARGS(inode, start, end),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, ino)
		__field(pgoff_t, start)
		__field(pgoff_t, end)
	),

	TP_fast_assign(
		__entry->dev = inode->i_sb->s_dev;
		__entry->ino = inode->i_ino;
		__entry->start = start;
		__entry->end = end;
	),

	TP_printk("dev=%d:%d ino=%llu pages=%lu-%lu", MAJOR(__entry->dev),
		  MINOR(__entry->dev), __entry->ino, __entry->start, __entry->end)
);

/* Some block is not huge: the file was queued, or was found queued. */
DEFINE_EVENT(text_range, text_queue,
	TP_PROTO(const struct inode *inode, pgoff_t start, pgoff_t end),
	TP_ARGS(inode, start, end)
);

/* All blocks are huge already, so that faults map them by PMD. */
DEFINE_EVENT(text_range, text_map,
	TP_PROTO(const struct inode *inode, pgoff_t start, pgoff_t end),
	TP_ARGS(inode, start, end)
);

/* The worker collapsed a block of which so many pages were resident. */
TRACE_EVENT(text_collapse,
	TP_PROTO(const struct inode *inode, pgoff_t start, unsigned int resident),
	TP_ARGS(inode, start, resident),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, ino)
		__field(pgoff_t, start)
		__field(unsigned int, resident)
	),

	TP_fast_assign(
		__entry->dev = inode->i_sb->s_dev;
		__entry->ino = inode->i_ino;
		__entry->start = start;
		__entry->resident = resident;
	),

	TP_printk("dev=%d:%d ino=%llu page=%lu resident=%u", MAJOR(__entry->dev),
		  MINOR(__entry->dev), __entry->ino, __entry->start, __entry->resident)
);

/* It left a block, or the whole file, as it was; the reason is a counter's name. */
TRACE_EVENT(text_fallback,
	TP_PROTO(const struct inode *inode, pgoff_t start, const char *why),
	TP_ARGS(inode, start, why),

	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, ino)
		__field(pgoff_t, start)
		__string(why, why)
	),

	TP_fast_assign(
		__entry->dev = inode->i_sb->s_dev;
		__entry->ino = inode->i_ino;
		__entry->start = start;
		__assign_str(why);
	),

	TP_printk("dev=%d:%d ino=%llu page=%lu %s", MAJOR(__entry->dev),
		  MINOR(__entry->dev), __entry->ino, __entry->start, __get_str(why))
);

#endif /* _TRACE_QUIRE_TEXT_H */

/* This part must be outside the protection. */
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE quire_text
#include <trace/define_trace.h>
