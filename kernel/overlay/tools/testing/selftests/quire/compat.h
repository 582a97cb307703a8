/* SPDX-License-Identifier: GPL-2.0 */
/* Definitions that the C library's headers may be too old to have. */
#ifndef COMPAT_H
#define COMPAT_H

#include <linux/userfaultfd.h>
#include <stdint.h>
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
/* Linux's headers have it from 6.8 on. */
#ifndef UFFDIO_MOVE
#define UFFD_FEATURE_MOVE	(1 << 16)
#define UFFDIO_MOVE		_IOWR(UFFDIO, 0x05, struct uffdio_move)
struct uffdio_move {
	uint64_t dst, src, len, mode;
	int64_t move;
};
#endif

#endif /* COMPAT_H */
