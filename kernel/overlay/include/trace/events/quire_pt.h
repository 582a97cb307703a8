/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM quire

#if !defined(_TRACE_QUIRE_PT_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_QUIRE_PT_H

#include <linux/mm_types.h>
#include <linux/tracepoint.h>

/* What happened to one copy-on-write table; @users is how many processes use it afterwards. */
DECLARE_EVENT_CLASS(pt_table,

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

/* A user broke away with a copy for itself. */
DEFINE_EVENT(pt_table, pt_break,
	TP_PROTO(struct mm_struct *mm, unsigned long addr, unsigned int users),
	TP_ARGS(mm, addr, users));

/* The last user took the table as its own. */
DEFINE_EVENT(pt_table, pt_adopt,
	TP_PROTO(struct mm_struct *mm, unsigned long addr, unsigned int users),
	TP_ARGS(mm, addr, users));

/* A user unmapped the table while others stay. */
DEFINE_EVENT(pt_table, pt_leave,
	TP_PROTO(struct mm_struct *mm, unsigned long addr, unsigned int users),
	TP_ARGS(mm, addr, users));

#endif /* _TRACE_QUIRE_PT_H */

#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE quire_pt
#include <trace/define_trace.h>
