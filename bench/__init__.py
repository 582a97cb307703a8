# SPDX-License-Identifier: GPL-2.0
"""Benchmarks of vanilla, quire with its features off, and quire with its features on."""
