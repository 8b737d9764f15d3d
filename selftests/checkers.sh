#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What the kernel's own checkers say after the other programs: run it last.
. "$(dirname "$0")/lib.sh"

lockdep_is_still_on() {
	[ -e /proc/lockdep_stats ] || skip "this kernel has no lockdep"
	grep debug_locks /proc/lockdep_stats
	[ "$(awk '$1 == "debug_locks:" { print $2 }' /proc/lockdep_stats)" = 1 ] ||
		fail "lockdep has switched itself off"
}

# Objects that nothing points to any more; two scans, because the first may be misled by a pointer
# on its way. Only those that this module has made count.
nothing_is_leaked() {
	leaks=/sys/kernel/debug/kmemleak
	[ -e $leaks ] && echo scan 2>/dev/null >$leaks || skip "this kernel has no kmemleak"
	sleep 6
	echo scan >$leaks
	cat $leaks >"$local/leaks"
	note "$(grep -c '^unreferenced object' "$local/leaks") unreferenced objects of others"
	awk 'BEGIN { RS = "unreferenced object" } /rpcrdma/ { print; found = 1 } END { exit found }' \
		"$local/leaks"
}

log_is_clean() {
	dmesg >"$local/log"
	! grep -E -A 30 'BUG: |WARNING: |Oops|KASAN: |UBSAN: |refcount_t: |blocked for more than' \
		"$local/log"
}

tests \
	"lockdep_is_still_on" \
	"nothing_is_leaked" \
	"log_is_clean"
