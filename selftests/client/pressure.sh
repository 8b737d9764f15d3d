#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Memory that is full of dirty pages of a mount, while its connections break: only the next connection can
# write the pages out. It needs a client with little memory and a kernel with sunrpc's fault injection.
. "$(dirname "$0")/../lib/lib.sh"

# The most memory of a client that the test fills, in KiB.
MOST=400000

# meminfo NAME: a size of /proc/meminfo, in KiB.
meminfo() {
	awk -v name="$1:" '$1 == name { print $2 }' /proc/meminfo
}

# dirty_up_to PERCENT BACKGROUND: the shares of memory that may be dirty, and that begin writeback.
dirty_up_to() {
	echo "$1" >/proc/sys/vm/dirty_ratio
	echo "$2" >/proc/sys/vm/dirty_background_ratio
}

# memory_is_full VERSION: a process writes twice the size of the memory, and one RPC in 20 breaks
# its connection.
memory_is_full() {
	VERS=$1
	total=$(meminfo MemTotal)
	[ "$total" -le $MOST ] || skip "needs a client with at most $MOST KiB of memory"
	needs rdma
	rest=$(rdma_objects)
	mount_export
	size=$((total * 2 / 1024))
	connections=$(transport connect_count)
	breaks_every 20
	defer dirty_up_to 20 10
	dirty_up_to 80 70
	begun=$(date +%s)
	"$here/fileio.py" fill "$dir/file" $size &
	most=0
	while kill -0 $! 2>/dev/null; do
		dirty=$(($(meminfo Dirty) + $(meminfo Writeback)))
		[ $dirty -le $most ] || most=$dirty
		sleep 0.2
	done
	wait $!
	count=$(new_connections)
	note "written in $(($(date +%s) - begun)) s on $count new connections; $most of $total KiB were dirty"
	echo 0 >$breaking/probability
	[ $most -gt $((total / 2)) ] || fail "memory was not full"
	[ "$count" -ge 10 ] || fail "too few connections broke"
	remount
	"$here/fileio.py" filled "$dir/file" $size
	rm -rf "$dir"
	unmount
	at_rest "$rest" rdma_objects
}

tests \
	"memory_is_full 3" \
	"memory_is_full 4.2"
