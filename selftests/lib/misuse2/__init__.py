# SPDX-License-Identifier: GPL-2.0
"""The tests of caller2.py, by concern."""
