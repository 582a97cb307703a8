# SPDX-License-Identifier: GPL-2.0
"""What quirectl is made of: the kernel's surface, and the commands that show and change it."""
