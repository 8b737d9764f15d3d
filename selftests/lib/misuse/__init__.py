# SPDX-License-Identifier: GPL-2.0
"""The tests of caller.py, by concern."""
