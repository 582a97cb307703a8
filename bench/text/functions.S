/* SPDX-License-Identifier: GPL-2.0 */
/* TEXT_MB megabytes of small functions, one each 256 bytes. */
	.text
	.globl	functions, functions_end
	.type	functions, @function
	.balign	4096
functions:
	.rept	TEXT_MB * 4096
	lea	1(%rdi), %rax
	ret
	.balign	256, 0xcc
	.endr
functions_end:
	.section .note.GNU-stack, "", @progbits
