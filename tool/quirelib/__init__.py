# SPDX-License-Identifier: GPL-2.0
"""The modules of quirectl: the kernel's interface, and the commands that show and change it."""
