/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM quire

#if !defined(_TRACE_QUIRE_SHM_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_QUIRE_SHM_H

#include <linux/mm_types.h>
#include <linux/tracepoint.h>

/* A process and a table; @users is how many PMDs point to it afterwards. */
DECLARE_EVENT_CLASS(shm_table,

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

/* A page fault found the table; users is 1 where it is new. */
DEFINE_EVENT(shm_table, shm_join,
	TP_PROTO(struct mm_struct *mm, unsigned long addr, unsigned int users),
	TP_ARGS(mm, addr, users));

/* A process uses it no longer; with the last one its entries went. */
DEFINE_EVENT(shm_table, shm_leave,
	TP_PROTO(struct mm_struct *mm, unsigned long addr, unsigned int users),
	TP_ARGS(mm, addr, users));

/* The last user goes on using it, as a private one. */
DEFINE_EVENT(shm_table, shm_adopt,
	TP_PROTO(struct mm_struct *mm, unsigned long addr, unsigned int users),
	TP_ARGS(mm, addr, users));

/* A fault goes on without, for the reason that has the counter of that name. */
TRACE_EVENT(shm_fallback,

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

#endif /* _TRACE_QUIRE_SHM_H */

#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE quire_shm
#include <trace/define_trace.h>
