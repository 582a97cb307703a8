/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM quire
#define TRACE_INCLUDE_FILE quire_core

#if !defined(_TRACE_QUIRE_CORE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_QUIRE_CORE_H

#include <linux/mm_types.h>
#include <linux/tracepoint.h>

/* A drain or a checker comes to an address space, by one of the processes that use it. */
TRACE_EVENT(mm_visit,

	TP_PROTO(struct mm_struct *mm, pid_t pid),

	TP_ARGS(mm, pid),

	TP_STRUCT__entry(
		__field(void *, mm)
		__field(pid_t, pid)
	),

	TP_fast_assign(
		__entry->mm = mm;
		__entry->pid = pid;
	),

	TP_printk("mm=%p process=%d", __entry->mm, __entry->pid)
);

#endif /* _TRACE_QUIRE_CORE_H */

#include <trace/define_trace.h>
