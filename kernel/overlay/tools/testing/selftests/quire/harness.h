/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's test harness, with time for guests that are emulated on a busy host: with the
 * default of 30 seconds, a test would judge the machine and not the kernel.
 */
#ifndef _QUIRE_HARNESS_H
#define _QUIRE_HARNESS_H

#include "kselftest_harness.h"

#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	600

#endif /* _QUIRE_HARNESS_H */
