# SPDX-License-Identifier: GPL-2.0
"""Build the kernel tree, boot it, run a command in it and judge what the kernel said."""
