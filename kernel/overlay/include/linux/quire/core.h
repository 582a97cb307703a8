/* SPDX-License-Identifier: GPL-2.0 */
/* What Linux's own files use of quire as a whole; a feature's hooks have headers of their own. */
#ifndef _LINUX_QUIRE_H
#define _LINUX_QUIRE_H

struct seq_file;

#ifdef CONFIG_QUIRE
void quire_vmstat_show(struct seq_file *m);
#else
static inline void quire_vmstat_show(struct seq_file *m)
{
}
#endif

#endif /* _LINUX_QUIRE_H */
