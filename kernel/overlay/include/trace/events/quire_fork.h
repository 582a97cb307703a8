/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM quire

#if !defined(_TRACE_QUIRE_FORK_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_QUIRE_FORK_H

#include <linux/mm_types.h>
#include <linux/tracepoint.h>

/* fork gave a table to the child, whose mm it is; @users is how many processes use it now. */
TRACE_EVENT(fork_share,

	TP_PROTO(struct mm_struct *mm, unsigned long addr, unsigned int users),

	TP_ARGS(mm, addr, users),

	TP_STRUCT__entry(
		__field(struct mm_struct *,	mm)
		__field(unsigned long,		addr)
		__field(unsigned int,		users)
	),

	TP_fast_assign(
		__entry->mm = mm;
		__entry->addr = addr;
		__entry->users = users;
	),

	TP_printk("mm=%p addr=%lx users=%u", __entry->mm, __entry->addr, __entry->users)
);

/* fork copies as ever, for the reason that has the counter of that name. */
TRACE_EVENT(fork_fallback,

	TP_PROTO(struct mm_struct *mm, unsigned long addr, const char *reason),

	TP_ARGS(mm, addr, reason),

	TP_STRUCT__entry(
		__field(struct mm_struct *,	mm)
		__field(unsigned long,		addr)
		__string(reason,		reason)
	),

	TP_fast_assign(
		__entry->mm = mm;
		__entry->addr = addr;
		__assign_str(reason);
	),

	TP_printk("mm=%p addr=%lx reason=%s", __entry->mm, __entry->addr,
		  __get_str(reason))
);

#endif /* _TRACE_QUIRE_FORK_H */

#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE quire_fork
#include <trace/define_trace.h>
