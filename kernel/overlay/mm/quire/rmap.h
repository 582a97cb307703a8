/* SPDX-License-Identifier: GPL-2.0 */
/* What the rmap feature and its checker share. */
#ifndef _MM_QUIRE_RMAP_H
#define _MM_QUIRE_RMAP_H

struct mm_struct;

struct mm_struct *quire_rmap_next_mm(int *nr);
long quire_rmap_borrowers(void);

#endif /* _MM_QUIRE_RMAP_H */
