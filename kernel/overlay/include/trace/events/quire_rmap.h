/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM quire
#define TRACE_INCLUDE_FILE quire_rmap

#if !defined(_TRACE_QUIRE_RMAP_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_QUIRE_RMAP_H

#include <linux/mm_types.h>
#include <linux/tracepoint.h>

/* An area begins or ceases to use an anon_vma that is not its own. */
DECLARE_EVENT_CLASS(quire_rmap_area,

	TP_PROTO(struct vm_area_struct *vma),

	TP_ARGS(vma),

	TP_STRUCT__entry(
		__field(void *, mm)
		__field(void *, anon_vma)
		__field(unsigned long, start)
		__field(unsigned long, end)
	),

	TP_fast_assign(
		__entry->mm = vma->vm_mm;
		__entry->anon_vma = vma->anon_vma;
		__entry->start = vma->vm_start;
		__entry->end = vma->vm_end;
	),

	TP_printk("mm=%p area=%lx-%lx anon_vma=%p", __entry->mm, __entry->start,
		  __entry->end, __entry->anon_vma)
);

DEFINE_EVENT(quire_rmap_area, rmap_borrow,
	TP_PROTO(struct vm_area_struct *vma),
	TP_ARGS(vma)
);

DEFINE_EVENT(quire_rmap_area, rmap_release,
	TP_PROTO(struct vm_area_struct *vma),
	TP_ARGS(vma)
);

DEFINE_EVENT(quire_rmap_area, rmap_upgrade,
	TP_PROTO(struct vm_area_struct *vma),
	TP_ARGS(vma)
);

DEFINE_EVENT(quire_rmap_area, rmap_upgrade_nomem,
	TP_PROTO(struct vm_area_struct *vma),
	TP_ARGS(vma)
);

#endif /* _TRACE_QUIRE_RMAP_H */

#include <trace/define_trace.h>
