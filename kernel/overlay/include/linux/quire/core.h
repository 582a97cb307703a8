/* SPDX-License-Identifier: GPL-2.0 */
/* Hooks of quire as a whole, for Linux's own files. Each feature's hooks have their own header. */
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
