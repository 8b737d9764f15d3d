#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The reports of the kernel's checkers (lockdep, kmemleak, KASAN) after the other programs: run it last,
# on a kernel that has them.
. "$(dirname "$0")/../lib/lib.sh"

lockdep_is_still_on() {
	[ -e /proc/lockdep_stats ] || skip "this kernel has no lockdep"
	grep debug_locks /proc/lockdep_stats
	[ "$(awk '$1 == "debug_locks:" { print $2 }' /proc/lockdep_stats)" = 1 ] ||
		fail "lockdep has switched itself off"
}

nothing_is_leaked() {
	status=0
	"$here/leaks" >"$local/leaks" || status=$?
	[ $status != 4 ] || skip "this kernel has no kmemleak"
	cat "$local/leaks"
	return $status
}

log_is_clean() {
	grep -v '^#' "$here/explained" >"$local/explained"
	dmesg | grep -v -E -f "$local/explained" >"$local/log"
	! grep -E -A 30 'BUG: |WARNING: |Oops|KASAN: |UBSAN: |refcount_t: |blocked for more than' \
		"$local/log"
}

tests \
	"lockdep_is_still_on" \
	"nothing_is_leaked" \
	"log_is_clean"
