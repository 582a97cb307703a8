# SPDX-License-Identifier: GPL-2.0
"""Other projects' test suites, run in guests on a base kernel and on quire, and compared."""
