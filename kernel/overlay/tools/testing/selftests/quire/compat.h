/* SPDX-License-Identifier: GPL-2.0 */
/* What the C library's headers may be too old to name. */
#ifndef COMPAT_H
#define COMPAT_H

#include <sys/mman.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif

#endif /* COMPAT_H */
