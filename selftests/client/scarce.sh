#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Memory runs out: allocations fail during connection establishment and data transfer. Mounts are
# made completely or refused, continue when memory is free again, and leave no resource behind.
# Needs a kernel with failslab. SHORTAGE is the minimal duration in seconds. While a transport is
# made, one in STRIDE allocations fails. CONNECTIONS is the number of connections that have to be
# replaced. ALLOCATIONS is the number of failures of each size, each in another attempt to connect.
. "$(dirname "$0")/../lib/lib.sh"

SHORTAGE=${SHORTAGE:-20}
STRIDE=${STRIDE:-7}
CONNECTIONS=${CONNECTIONS:-10}
ALLOCATIONS=${ALLOCATIONS:-2}

faults=/sys/kernel/debug/failslab
# A number above the failures of any test: the rest of it shows the failures.
TIMES=1000000

# fails NAME=VALUE...: how failslab is set until the test ends.
failslab() {
	[ -e $faults ] || skip "this kernel has no failslab in debugfs"
	defer enough
	for setting in verbose=0 times=-1 interval=1 ignore-gfp-wait=N cache-filter=N "$@"; do
		echo "${setting#*=}" >"$faults/${setting%%=*}"
	done
}

enough() {
	echo 0 >$faults/probability
	for cache in /sys/kernel/slab/kmalloc-[0-9]*; do
		echo 0 >"$cache/failslab"
	done
	[ ! -e $breaking ] || echo 0 >$breaking/probability
}

# Kernel threads that work for other tasks: connecting, and all asynchronous work.
mark_workers() {
	for worker in $(pgrep '^kworker'); do
		echo 1 2>/dev/null >"/proc/$worker/make-it-fail" || :
	done
}

transports_are_made_whole_or_not() {
	needs rdma
	failslab probability=0 task-filter=N
	rest=$(rdma_objects)
	mount_export
	set -- /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma
	[ -e "${1%/*}/add_xprt" ] || skip "this kernel adds no transports"
	"$here/scarce.py" "${1%/*}" 1 "$STRIDE"
	head -c 1000001 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	remount
	cmp "$local/file" "$dir/file"
	rm -rf "$dir"
	unmount
	at_rest "$rest" rdma_objects
}

# An allocation of each size fails once while a worker connects, each in its own attempt.
connections_are_made_whole_or_not() {
	needs rdma
	failslab probability=0 task-filter=Y cache-filter=Y
	VERS=3
	rest=$(rdma_objects)
	mount_export nolock,noac
	: >"$dir/file"
	needs_dstaddr
	address=$(cat "$dstaddr")
	before=$(transport connect_count)
	failed=0
	for cache in /sys/kernel/slab/kmalloc-[0-9]*; do
		echo 1 >"$cache/failslab"
		for number in $(seq "$ALLOCATIONS"); do
			connects_after_failure "$number" "$dstaddr" "$address" ||
				fail "no connection after allocation $number of ${cache##*/} has failed"
		done
		echo 0 >"$cache/failslab"
	done
	note "$(($(transport connect_count) - before)) connections, $failed allocations have failed"
	[ $failed -gt 0 ] || fail "no allocation has failed"
	rm -rf "$dir"
	unmount
	at_rest "$rest" rdma_objects
}

# connects_after_failure NUMBER DSTADDR ADDRESS: has a connection made, and one allocation fail.
connects_after_failure() {
	mark_workers
	echo "$1" >$faults/interval
	echo 1 >$faults/times
	echo 100 >$faults/probability
	# The connection is given up before its address changes.
	echo "$3" >"$2"
	stat "$dir/file" >/dev/null &
	stat=$!
	for _ in $(seq 300); do
		sleep 0.1
		if ! kill -0 $stat 2>/dev/null; then
			echo 0 >$faults/probability
			failed=$((failed + 1 - $(cat $faults/times)))
			wait $stat
			return
		fi
		revive_device
	done
	return 1
}

# memory_is_short VERSION ONE_IN CALLS: one in ONE_IN allocations fails, and one of CALLS RPCs
# breaks its connection, or no RPC does. Broken connections are still replaced.
memory_is_short() {
	VERS=$1
	least=0
	[ "$3" = 0 ] || least=$CONNECTIONS
	needs rdma
	failslab probability=0 task-filter=Y times=$TIMES
	rest=$(rdma_objects)
	mount_export
	begin_io 4
	echo "$2" >$faults/interval
	echo 100 >$faults/probability
	if [ "$3" != 0 ]; then
		echo Y >$breaking/ignore-cache-wait
		echo 0 >$breaking/verbose
		echo -1 >$breaking/times
		echo "$3" >$breaking/interval
		echo 100 >$breaking/probability
	fi
	breaks=0
	for second in $(seq "$((SHORTAGE + 120))"); do
		mark_workers
		sleep 1
		revive_device
		breaks=$(new_connections)
		[ "$second" -lt "$SHORTAGE" ] || [ $breaks -lt "$least" ] || break
	done
	failed=$((TIMES - $(cat $faults/times)))
	note "$failed allocations have failed"
	enough
	touch "$local/stop"
	# The last failure may have an effect only now.
	while kill -0 $churn 2>/dev/null; do
		revive_device
		sleep 1
	done
	end_io
	rm -rf "$dir"
	unmount
	at_rest "$rest" rdma_objects
	[ $failed -gt 0 ] || fail "memory was not short"
	[ $breaks -ge "$least" ] || fail "there have been only $breaks new connections"
}

tests \
	"transports_are_made_whole_or_not" \
	"connections_are_made_whole_or_not" \
	"memory_is_short 4.2 1700 0" \
	"memory_is_short 3 1700 200" \
	"memory_is_short 4.2 700 200"
