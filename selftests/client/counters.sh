#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The numbers of the transport's line in /proc/self/mountstats have the meaning that they have in
# the C module. Each test passes with the C module, too, except for debugfs.
. "$(dirname "$0")/../lib/lib.sh"

# Version 3 sends one RPC for each operation and few others. Attributes are not cached, so that the
# same RPCs are sent each time.
mount_for_counting() {
	io=$here/fileio.py
	VERS=3
	mount_export noac
	head -c "$1" /dev/urandom >"$local/$1"
	: >"$dir/file"
	"$io" put "$local/$1" "$dir/file" "$1"
}

# adds COUNTER NUMBER COMMAND...: COMMAND adds NUMBER to the counter.
adds() {
	counter=$1
	number=$2
	shift 2
	before=$(transport "$counter")
	"$@"
	after=$(transport "$counter")
	note "$counter: $((after - before)) more: $*"
	[ $((after - before)) = "$number" ] || fail "$counter should have grown by $number"
}

# operation NAME COLUMN: a number of that operation's line.
operation() {
	awk -v mount="$mnt" -v name="$1:" -v column="$2" '
		$1 == "device" { here = $5 == mount }
		here && $1 == name { print $(column + 1) }' /proc/self/mountstats
}

# Columns of such a line.
operations=1 bytes_sent=4 bytes_received=5 round_trip=7 execution=8

# Memory that is offered for results counts as total_rdma_req, and results that were written as
# total_rdma_rep.
bytes_of_arguments_and_results() {
	mount_for_counting 65536
	adds bytes_called 65536 "$io" get "$local/65536" "$dir/file" 65536
	adds bytes_replied 65536 "$io" get "$local/65536" "$dir/file" 65536
	adds bytes_called 0 "$io" put "$local/65536" "$dir/file" 65536
}

# Arguments in Read chunks have no column.
bytes_that_the_server_reads() {
	mount_for_counting 65536
	before=$(says bytes_read)
	"$io" put "$local/65536" "$dir/file" 65536
	after=$(says bytes_read)
	[ $((after - before)) = 65536 ] || fail "bytes_read: $before before, $after after"
}

# A Reply chunk is longer than the Reply in it.
bytes_of_a_reply_chunk() {
	mount_for_counting 1
	ln -s "$(head -c 2000 /dev/zero | tr '\0' x)" "$dir/link"
	remount
	before=$(transport bytes_replied)
	received=$(operation READLINK $bytes_received)
	readlink "$dir/link" >/dev/null
	after=$(transport bytes_replied)
	received=$(($(operation READLINK $bytes_received) - received))
	note "$((after - before)) in the Reply chunk, $received of READLINK"
	[ $((after - before)) -ge 2000 ] && [ $((after - before)) -lt 2300 ] || fail "bytes_replied is wrong"
	[ $received = $((after - before)) ] || fail "the RPC has another length"
}

# A chunk counts by its Segments: a Long Call has at least its head and its pages.
segments() {
	mount_for_counting 65536
	adds read_segments 1 "$io" put "$local/65536" "$dir/file" 65536
	adds write_segments 1 "$io" get "$local/65536" "$dir/file" 65536
	leave
	VERS=4.2
	mount_export
	: >"$dir/file"
	"$io" setxattr "$dir/file" 16000 >"$local/probe" 2>&1 || skip "$(tail -n 1 "$local/probe")"
	calls=$(transport nomsg_calls)
	segments=$(transport read_segments)
	"$io" setxattr "$dir/file" 16000
	calls=$(($(transport nomsg_calls) - calls))
	segments=$(($(transport read_segments) - segments))
	note "$segments segments in $calls Long Calls"
	[ $calls = 1 ]
	[ $segments -ge 2 ]
}

# Inline data is copied between pages and messages.
copies() {
	mount_for_counting 1000
	adds pullup 1000 "$io" put "$local/1000" "$dir/file" 1000
	adds fixup 1000 "$io" get "$local/1000" "$dir/file" 1000
	head -c 65536 /dev/urandom >"$local/65536"
	adds pullup 0 "$io" put "$local/65536" "$dir/file" 65536
	adds fixup 0 "$io" get "$local/65536" "$dir/file" 65536
}

registrations_are_made_with_the_connection() {
	mount_for_counting 1000
	[ "$(transport allocated_mrs)" -gt 0 ]
	before=$(transport allocated_mrs)
	for _ in $(seq 50); do
		"$io" get "$local/1000" "$dir/file" 1000
	done
	[ "$(transport allocated_mrs)" = "$before" ] || fail "one READ after the other needs more of them"
}

# Only a message of more than 2 KiB needs a longer request buffer than usual, such as the Reply to
# EXCHANGE_ID.
long_buffers_of_requests() {
	mount_for_counting 1000
	[ "$(transport hardway)" = 0 ] || fail "hardway is $(transport hardway) after usual RPCs"
	leave
	VERS=4.2
	mount_export
	hardway=$(transport hardway)
	note "hardway of a mount of NFS 4.2: $hardway"
	[ "$hardway" -gt 2048 ] || fail "the Reply to EXCHANGE_ID is not counted"
	stays hardway stat "$mnt"
}

# A worker does not wait for memory that only the RPCs behind it set free: it asks for these buffers as
# sunrpc does for its own.
buffers_that_workers_make() {
	# Many WRITEs at once, in slots that have no buffers yet.
	MOUNT_OPTIONS=wsize=16384
	mount_for_counting 1
	traced kmem/kmalloc
	dd if=/dev/urandom of="$dir/file" bs=64k count=16 2>/dev/null
	sync "$dir/file"
	grep ' kworker.*call_site=.*\[rpcrdma\]' "$tracing/trace" >"$local/made" ||
		fail "nothing was allocated by this module in a worker"
	note "$(wc -l <"$local/made") buffers"
	! grep -m 1 -v __GFP_NORETRY "$local/made" || fail "a worker may wait for this memory"
}

# No message is in flight without a request: each Call has its Reply.
calls_and_replies() {
	mount_for_counting 1000
	set -- $(transport sends receives)
	for _ in $(seq 50); do
		stat "$dir/file" >/dev/null
	done
	set -- "$@" $(transport sends receives)
	note "sends $1 to $3, receives $2 to $4"
	[ $(($3 - $1)) -ge 50 ]
	[ $(($3 - $1)) = $(($4 - $2)) ]
	[ "$3" = "$4" ]
}

# Seconds since the last message; making the connection did not take any.
idle_seconds() {
	mount_for_counting 1000
	sleep 4
	set -- $(transport connect_count connect_time idle_time)
	note "connect_count, connect_time, idle_time: $*"
	[ "$1" = 1 ]
	[ "$3" -ge 3 ] && [ "$3" -le 30 ] || fail "idle_time is wrong"
	[ "$2" -lt "$3" ] || fail "connect_time is wrong"
}

# sunrpc counts them when the transport reports the bytes that it has sent and received.
each_operation() {
	mount_for_counting 1000
	set -- "$(operation WRITE $operations)" "$(operation WRITE $bytes_sent)" \
		"$(operation READ $bytes_received)" "$(operation READ $execution)"
	for _ in $(seq 20); do
		"$io" put "$local/1000" "$dir/file" 1000
		"$io" get "$local/1000" "$dir/file" 1000
	done
	count=$(($(operation WRITE $operations) - $1))
	sent=$(($(operation WRITE $bytes_sent) - $2))
	received=$(($(operation READ $bytes_received) - $3))
	note "$count WRITEs sent $sent bytes; READs received $received;" \
		"READs took $(operation READ $round_trip) ms of $(operation READ $execution) ms"
	[ $count = 20 ]
	[ $((sent / count)) -gt 1000 ] && [ $((sent / count)) -lt 1400 ] || fail "bytes sent are wrong"
	[ $((received / count)) -gt 1000 ] && [ $((received / count)) -lt 1400 ] ||
		fail "bytes received are wrong"
	[ "$(operation READ $round_trip)" -le "$(operation READ $execution)" ] ||
		fail "no time of sending was noted"
}

# The transport has four slots, until the test ends.
with_four_slots() {
	setting=/proc/sys/sunrpc/rdma_slot_table_entries
	modprobe -q rpcrdma || :
	[ -w $setting ] || skip "this module has no setting for it"
	before=$(cat $setting)
	defer set_to $setting "$before"
	set_to $setting 4
	mount_for_counting 65536
}

# A connection begins with buffers for a few Calls, and gets more when its Calls in flight use all of them.
#= V1-032, V1-122, V2-052
buffers_follow_the_calls() {
	mount_for_counting 1000
	first=$(says buffer_bytes)
	for _ in $(seq 20); do
		"$io" put "$local/1000" "$dir/file" 1000
	done
	[ "$(says buffer_bytes)" = "$first" ] || fail "an idle mount has got more buffers"
	"$here/together.py" "$dir" 32 65536
	note "$first bytes of buffers, and with many Calls $(says buffer_bytes)"
	[ "$(says buffer_bytes)" -gt "$first" ]
	# A server that finds no Receive ends the connection.
	[ "$(transport connect_count)" = 1 ]
}

# With four slots all other tasks wait for a slot, and the end of each RPC wakes the next task.
# While the link is down, all tasks are waiting, and no later task can wake them.
#= V1-035
few_slots() {
	lossy_link
	with_four_slots
	lose 100%
	readers=
	for _ in $(seq 24); do
		timeout -s KILL 60 stat "$dir/file" >/dev/null &
		readers="$readers $!"
	done
	sleep 1.5
	lose 0%
	for reader in $readers; do
		wait "$reader" || fail "a task has got no slot"
	done
	note "inflight, backlog: $(transport inflight backlog)"
	[ "$(transport backlog)" -gt 0 ] || fail "no RPC has waited"
}

# Slots are freed while tasks look for a slot: the later of the two steps must see the earlier.
nobody_waits_beside_a_free_slot() {
	with_four_slots
	for _ in $(seq 20); do
		readers=
		for _ in 1 2 3 4 5 6 7 8; do
			timeout -s KILL 10 stat "$dir/file" >/dev/null &
			readers="$readers $!"
		done
		for reader in $readers; do
			wait "$reader" || fail "a task sleeps though all slots are free"
		done
	done
	note "inflight, backlog: $(transport inflight backlog)"
}

nothing_went_wrong() {
	mount_for_counting 65536
	set -- $(transport failed_marshal bad_reply recovered_mrs orphaned_mrs reply_waits port)
	note "failed_marshal bad_reply recovered_mrs orphaned_mrs reply_waits port: $*"
	[ "$*" = "0 0 0 0 0 0" ]
}

tests \
	"bytes_of_arguments_and_results" \
	"bytes_that_the_server_reads" \
	"bytes_of_a_reply_chunk" \
	"segments" \
	"copies" \
	"registrations_are_made_with_the_connection" \
	"long_buffers_of_requests" \
	"buffers_that_workers_make" \
	"calls_and_replies" \
	"idle_seconds" \
	"each_operation" \
	"buffers_follow_the_calls" \
	"few_slots" \
	"nobody_waits_beside_a_free_slot" \
	"nothing_went_wrong"
