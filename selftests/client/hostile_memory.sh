#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A server accesses memory that it was not given, or no longer has, and invalidates handles.
. "$(dirname "$0")/../lib/peer.sh"

# is_refused FAULT...: the device refuses each access, which ends the connection. The data of the client do not change.
#= V1-088, V1-089, V1-140
#= V1-141, V2-081, V2-181
is_refused() {
	mount_through_the_peer
	for way; do
		strike "$way"
		grows connect_count good
		outcome | grep 'ended with status 10$' || fail "not refused"
		good
	done
}

# The same for the memory of a WRITE.
is_refused_when_writing() {
	mount_through_the_peer
	for way; do
		strike "$way"
		head -c $SIZE /dev/urandom >"$local/file"
		grows connect_count dd if="$local/file" of="$dir/file" bs=$SIZE oflag=direct
		outcome | grep 'ended with status 10$' || fail "not refused"
		good
	done
}

# A protection domain belongs to one connection. A peer that uses a handle of another connection loses its own
# connection. The RPC that provided the memory gets the data of its own server.
#= V1-139, V2-180
is_refused_on_another_connection() {
	mount_through_the_peer
	connections=$(transport connect_count)
	other=$control.other
	rm -f "$control.handle" "$other" "$other.done"
	"$here/peer.py" "$address" 20053 "$SERVER" "$other" $$ >"$scratch/other.log" 2>&1 &
	stranger=$!
	defer end_process $stranger
	mkdir -p "$scratch/other"
	for _ in $(seq 600); do
		! grep -q listening "$scratch/other.log" || break
		sleep 0.1
	done
	mount -t nfs -o "proto=rdma,port=20053,vers=3,$MOUNT_OPTIONS" "$address:$EXPORT" "$scratch/other"
	defer umount -f "$scratch/other"
	strike tells_its_handle
	read_in_the_background one
	one=$!
	for _ in $(seq 200); do
		[ ! -s "$control.handle" ] || break
		sleep 0.1
	done
	echo handle_of_another_connection 1 >"$other"
	dd if="$scratch/other/${dir##*/}/file" of="$local/two" bs=$SIZE count=1 iflag=direct
	cat "$other.done"
	grep 'ended with status 10$' "$other.done" || fail "not refused"
	: >"$control.go"
	wait $one
	outcome
	cmp "$local/one" "$local/file"
	cmp "$local/two" "$local/file"
	[ "$(transport connect_count)" = "$connections" ] || fail "the connection of the RPC has ended"
}

# The end of a killed RPC ends the access of the server to its memory.
#= V1-090, V2-184
is_refused_for_a_killed_process() {
	mount_through_the_peer
	for n in $(seq 100); do
		: >"$dir/$n"
	done
	connections=$(transport connect_count)
	strike write_for_the_dead
	ls "$dir" >"$local/names" &
	reader=$!
	asked_for
	kill -KILL $reader
	was_killed $reader
	outcome | grep 'ended with status 10$' || fail "not refused"
	good
	[ "$(ls "$dir" | wc -l)" = 101 ]
	[ "$(transport connect_count)" -gt "$connections" ]
}

# The server may read the Read chunk again until it sends the Reply.
#= V1-031
arguments_stay_until_the_reply() {
	mount_through_the_peer
	strike read_again
	cp "$local/file" "$dir/file"
	outcome | grep 'the same'
	good
}

# No two Segments of 170 have the same handle, or the same upper half of the offset.
#= V1-089, V1-140, V2-181
#= V2-182
no_two_segments_have_the_same_name() {
	mount_through_the_peer
	strike segments_of_reads 170
	for _ in $(seq 45); do
		dd if="$dir/file" bs=4096 iflag=direct 2>/dev/null | cmp - "$local/file"
	done
	outcome | tail -n 1 | grep '^170 handles, 170 upper halves'
	[ "$(transport connect_count)" = 1 ] || fail "a Receive is lost with each of them"
}

# Memory that the peer invalidates needs no LOCAL_INV.
#= CM-016
remote_invalidation_is_recognised() {
	mount_through_the_peer
	strike invalidate 3
	before=$(transport local_invalidates)
	good
	good
	good
	outcome
	[ "$(transport local_invalidates)" = "$before" ] || fail "invalidated again"
	grows local_invalidates good
}

# Each LOCAL_INV work request is counted, also where an RPC has several: this server invalidates nothing.
each_invalidation_is_counted() {
	mount_4_0_through_the_peer
	seq -f "$dir/a-name-long-enough-to-fill-a-reply-soon-%g" 100 | xargs touch
	remount
	set -- $(transport local_invalidates reply_segments read_segments write_segments)
	calls=$(transport sends)
	ls "$dir" >/dev/null
	calls=$(($(transport sends) - calls))
	set -- "$@" $(transport local_invalidates reply_segments read_segments write_segments)
	invalidated=$(($5 - $1)) segments=$(($6 + $7 + $8 - $2 - $3 - $4))
	note "$segments Segments of $calls Calls, $invalidated LOCAL_INV"
	[ $segments -gt 2 ] || fail "that tests nothing"
	[ $invalidated = $segments ] || fail "local_invalidates has grown by $invalidated"
}

# A message that invalidates the memory of another RPC ends the connection.
memory_of_another_rpc_is_invalidated() {
	mount_through_the_peer
	strike invalidate_memory_of_another
	connections=$(transport connect_count)
	dd if="$dir/file" of="$local/one" bs=$SIZE iflag=direct &
	dd if="$dir/file" of="$local/two" bs=$SIZE iflag=direct
	wait $!
	outcome | grep -x "done" || fail "the other RPC was not there"
	cmp "$local/one" "$local/file"
	cmp "$local/two" "$local/file"
	[ "$(transport connect_count)" -gt "$connections" ] || fail "the connection was kept"
	[ "$(transport bad_messages)" = 1 ] || fail "the message is not counted"
	good
}

# Devices differ in the second invalidation of a handle. Soft RDMA devices ignore it.
memory_is_invalidated_twice() {
	mount_through_the_peer
	strike invalidate_twice
	good
	outcome
	good
	good
}

tests_with_faults \
	"is_refused_on_another_connection" \
	"no_two_segments_have_the_same_name" \
	"arguments_stay_until_the_reply" \
	"is_refused_for_a_killed_process" \
	"remote_invalidation_is_recognised" \
	"each_invalidation_is_counted" \
	"memory_of_another_rpc_is_invalidated" \
	"memory_is_invalidated_twice"
