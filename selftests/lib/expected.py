#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Prints the tests that the faults of the folder `faults` declare, each as the words of a test of hostile_*.sh."""

from faults import FAULTS, version2

for prefix, tests in ((), FAULTS.tests()), (("in_version_2",), version2.FAULTS.tests()):
    for words in tests:
        print(*prefix, *words)
