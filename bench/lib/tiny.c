// SPDX-License-Identifier: GPL-2.0
/* The smallest program: it exits. */
void _start(void)
{
	asm volatile("syscall" : : "a"(60), "D"(0) : "rcx", "r11", "memory");
	__builtin_unreachable();
}
