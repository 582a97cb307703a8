/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints of pre-zeroed free pages, quire:prezero_*. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM quire
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE quire_prezero

#if !defined(_TRACE_QUIRE_PREZERO_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_QUIRE_PREZERO_H

#include <linux/mm.h>
#include <linux/tracepoint.h>

DECLARE_EVENT_CLASS(prezero_block,

	TP_PROTO(struct page *page, unsigned int order),

	TP_ARGS(page, order),

	TP_STRUCT__entry(
		__field(unsigned long, pfn)
		__field(unsigned int, order)
		__field(int, nid)
	),

	TP_fast_assign(
		__entry->pfn = page_to_pfn(page);
		__entry->order = order;
		__entry->nid = page_to_nid(page);
	),

	TP_printk("pfn=0x%lx order=%u nid=%d", __entry->pfn, __entry->order, __entry->nid)
);

/* A block was zeroed and marked; and one stays out, for a device may write to it. */
DEFINE_EVENT(prezero_block, prezero_scrubbed,
	TP_PROTO(struct page *page, unsigned int order), TP_ARGS(page, order));
DEFINE_EVENT(prezero_block, prezero_quarantined,
	TP_PROTO(struct page *page, unsigned int order), TP_ARGS(page, order));

/* A request for zeroed memory got it without a clear; and one was cleared for. */
DEFINE_EVENT(prezero_block, prezero_hit,
	TP_PROTO(struct page *page, unsigned int order), TP_ARGS(page, order));
DEFINE_EVENT(prezero_block, prezero_miss,
	TP_PROTO(struct page *page, unsigned int order), TP_ARGS(page, order));

/* Zeroed memory went to somebody who did not ask for it. */
DEFINE_EVENT(prezero_block, prezero_wasted,
	TP_PROTO(struct page *page, unsigned int order), TP_ARGS(page, order));

DECLARE_EVENT_CLASS(prezero_engine,

	TP_PROTO(const char *engine, int error),

	TP_ARGS(engine, error),

	TP_STRUCT__entry(
		__string(engine, engine)
		__field(int, error)
	),

	TP_fast_assign(
		__assign_str(engine);
		__entry->error = error;
	),

	TP_printk("engine=%s error=%d", __get_str(engine), __entry->error)
);

/* A transfer failed and the CPU zeroed the block; and the engine is used no more. */
DEFINE_EVENT(prezero_engine, prezero_engine_failed,
	TP_PROTO(const char *engine, int error), TP_ARGS(engine, error));
DEFINE_EVENT(prezero_engine, prezero_engine_dropped,
	TP_PROTO(const char *engine, int error), TP_ARGS(engine, error));

#endif /* _TRACE_QUIRE_PREZERO_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
