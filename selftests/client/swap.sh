#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Swap over a mount. The last tests need a client with little memory, since their process uses twice
# the memory, and a kernel with sunrpc's fault injection. ROUNDS is the number of times that the
# process changes its memory.
. "$(dirname "$0")/../lib/lib.sh"

ROUNDS=${ROUNDS:-2}

# The most memory of a client that the tests exceed, in KiB.
MOST=400000

files=/sys/kernel/debug/rpcrdma

# number FILE NAME: a line of /proc/meminfo, in KiB, or of /proc/vmstat.
number() {
	awk -v name="$2" '$1 == name || $1 == name ":" { print $2 }' "/proc/$1"
}

# moved FIRST OTHER: KiB, of a line of /proc/vmstat that counts pages. Kernels without CONFIG_VM_EVENT_COUNTERS
# have the other one.
moved() {
	grep -q "^$1 " /proc/vmstat || shift
	pages=$(number vmstat "$1")
	echo $((pages * 4))
}

swapped_out() {
	moved pswpout nr_vmscan_write
}

swapped_in() {
	moved pswpin workingset_refault_anon
}

# swap_file NAME MIB: a file to swap to.
swap_file() {
	needs mkswap
	dd if=/dev/zero of="$dir/$1" bs=1M count="$2" 2>/dev/null
	chmod 600 "$dir/$1"
	mkswap "$dir/$1"
}

# swap_on NAME: swaps to that file, until the test ends.
swap_on() {
	defer no_swap
	swapon "$dir/$1" || fail "the kernel does not swap to this file"
}

no_swap() {
	[ ! -e $breaking ] || echo 0 >$breaking/probability
	# shellcheck source=/dev/null
	[ ! -e "$local/kept" ] || . "$local/kept"
	swapoff "$dir"/swap* 2>/dev/null || :
}

# keeps_reserves: as the guide for administrators says, until the test ends. Connecting takes memory beyond the
# module, too.
keeps_reserves() {
	for setting in min_free_kbytes=8192 watermark_boost_factor=0; do
		file=/proc/sys/vm/${setting%=*}
		echo "echo $(cat "$file") >$file" >>"$local/kept"
		echo "${setting#*=}" >"$file"
	done
}

# swapping WANTED: debugfs says so of the transports, the most first.
swapping() {
	said=$(sed -n 's/^swapping=//p' $files/* | sort -nr | tr '\n' ' ')
	[ "$said" = "$1" ] || fail "swapping=$said, not $1"
}

# Each transport of the mount counts its client, and not the client's files. The core does not count clients
# of a transport that is added meanwhile, but takes the count back.
transports_are_counted() {
	VERS=$1
	mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
	at_rest 0 eval 'ls $files/xprt-* 2>/dev/null | wc -l'
	mount_export nconnect=2
	swap_file swap1 8
	swap_file swap2 8
	swapping "0 0 "
	swap_on swap1
	swapping "1 1 "
	swap_on swap2
	swapping "1 1 "
	swapoff "$dir/swap1"
	set -- /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma
	echo 1 >"${1%/*}/add_xprt"
	swapping "1 1 0 "
	swapoff "$dir/swap2"
	swapping "0 0 0 "
}

# no_reserves: a thread of a work queue has no right to the reserves when its work has ended.
no_reserves() {
	for thread in $(pgrep '^kworker'); do
		# The name of the thread may have spaces.
		flags=$(sed -n 's/^.*) //p' "/proc/$thread/stat" 2>/dev/null | cut -d ' ' -f 7)
		# PF_MEMALLOC
		[ $((${flags:-0} & 0x800)) = 0 ] || fail "$(cat "/proc/$thread/comm") may use the reserves still"
	done
}

# reserved WORK: some work of that kind has been done that may use the reserves.
reserved() {
	grep -q "rpcrdma_reserves: work=\"$1\" memalloc=1" "$local/reserves" || {
		sort "$local/reserves" | uniq -c
		fail "no work=\"$1\" that may use the reserves"
	}
}

# The work that connects changes the state of the queue pair itself and ends the exchange with the server. A work of
# ib_cm may not use the reserves.
connecting_may_use_the_reserves() {
	awk '/ rpcrdma_reserves: work="connecting" memalloc=1/ { connects = $1 }
		/ cm_send_rtu: / && connects { sent++; if ($1 != connects) { print; bad = 1 } }
		END { exit bad || !sent }' $tracing/trace || {
		grep 'cm_send_rtu\|connecting' $tracing/trace
		fail "another work has connected the queue pair"
	}
}

# work COUNT: COUNT processes write and COUNT read, and then the connection is lost.
work() {
	"$here/together.py" "$dir" "$1" 2000000
	before=$(transport connect_count)
	needs_dstaddr
	address_now=$(cat "$dstaddr")
	# The connection is given up before the address changes.
	echo "$address_now" >"$dstaddr"
	"$here/fileio.py" put "$here/lib.sh" "$dir/small" 1000
	[ "$(transport connect_count)" -gt "$before" ] || fail "the connection was not lost"
}

# connected: waits for a connection, and notes the end of the connection before it. Without an RPC there may be
# no connection.
connected() {
	[ -n "$(says idle_sends)" ] || note "the connection was lost: $(says last_close)"
	for _ in $(seq 100); do
		[ -z "$(says idle_sends)" ] || return 0
		touch "$dir/small"
		sleep 0.1
	done
	debugfs
	fail "there is no connection"
}

# All work that memory may come free by may use the reserves while the kernel swaps over the mount, and
# no work does at other times. A connection that is made meanwhile takes little memory.
work_may_use_the_reserves() {
	VERS=$1
	mount_export
	swap_file swap 32
	traced rpcrdma/rpcrdma_reserves
	traced rdma_cma/cm_send_rtu
	work 1
	! grep 'rpcrdma_reserves: ' $tracing/trace || fail "there was no need of the reserves"
	buffers=$(says idle_sends)
	[ "$buffers" -gt 32 ] || fail "there are $buffers Send buffers already"
	swap_on swap
	# More than a connection has registrations for from the start.
	work 12
	"$here/fileio.py" swap 16
	connected
	buffers=$(says idle_sends)
	[ "$buffers" -le 32 ] || fail "a connection over which the kernel swaps has $buffers Send buffers"
	swapoff "$dir/swap"
	sed -n 's/^.*: \(rpcrdma_reserves: .*\)/\1/p' $tracing/trace >"$local/reserves"
	for name in buffers connecting closing registrations completion; do
		reserved $name
	done
	! grep memalloc=0 "$local/reserves" || fail "the task has no such flag"
	# A rescuer runs the work for which there is no memory for a worker.
	pgrep '^kworker/R-rpcrd' >/dev/null || fail "the queue of the module has no rescuer"
	# iWARP has no such message.
	grep -q RNIC /sys/class/infiniband/*/node_type || connecting_may_use_the_reserves
	no_reserves
}

# swaps VERSION CALLS: a process works on twice the memory of the client. One of CALLS RPCs breaks the
# connection; with 0, no RPC does.
swaps() {
	VERS=$1
	total=$(number meminfo MemTotal)
	[ "$total" -le $MOST ] || skip "needs a client with at most $MOST KiB of memory"
	mount_export
	size=$((total / 512))
	swap_file swap $((size + 64))
	connections=$(transport connect_count)
	keeps_reserves
	swap_on swap
	out=$(swapped_out)
	in=$(swapped_in)
	begun=$(date +%s)
	[ "$2" = 0 ] || breaks_every "$2"
	"$here/fileio.py" exceed $size "$ROUNDS"
	[ "$2" = 0 ] || echo 0 >$breaking/probability
	out=$(($(swapped_out) - out))
	in=$(($(swapped_in) - in))
	count=$(new_connections)
	note "$size MiB, of $total KiB of memory: $out KiB swapped out, $in KiB in, in" \
		"$(($(date +%s) - begun)) s, on $count new connections"
	[ $out -ge "$total" ] || fail "too little was swapped out"
	[ $in -ge "$total" ] || fail "too little was swapped in"
	[ "$2" = 0 ] || [ "$count" -ge 10 ] || fail "too few connections broke"
	no_swap
	[ "$(wc -l </proc/swaps)" = 1 ] || fail "the kernel still swaps"
}

tests \
	"transports_are_counted 4.2" \
	"work_may_use_the_reserves 3" \
	"work_may_use_the_reserves 4.2" \
	"swaps 4.2 0" \
	"swaps 4.2 300" \
	"swaps 3 0" \
	"swaps 3 300"
