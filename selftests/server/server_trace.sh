#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The trace events of a server of this module for its clients and their Calls are right.
. "$(dirname "$0")/../lib/lib.sh"

# Without the events of the protocol core.
TRACED=on_server
EVENTS='svcrdma_* xprtrdma_* rpcrdma_wc_err rpcrdma_close'
work='cq_id=[1-9][0-9]* completion_id=[1-9][0-9]*'

# server_trace COMMAND...: as `trace`.
server_trace() {
	needs_our_server
	trace "$@"
}

needs_our_server() {
	needs_server_command
	on_server test -e /proc/sys/sunrpc/svc_rdma/max_version || skip "the server's module has other events"
}

# xid_of PATTERN: the XID of the first such event.
xid_of() {
	grep "^$1" "$local/events" | sed -n '1s/.* xid=\(0x[0-9a-f]*\) .*/\1/p'
}

events_of_a_connection() {
	VERS=3
	server_trace mount_and_leave
	shows "svcrdma_accept: cid=[0-9]* $SERVER:$PORT -> $(source_of "$SERVER"):[0-9]* neg send/recv=4096/4096 credits=[1-9][0-9]* of [1-9][0-9]* reads=[1-9][0-9]*$"
	cid=$(sed -n 's/^svcrdma_accept: cid=\([0-9]*\) .*/\1/p' "$local/events" | head -n 1)
	shows "svcrdma_wc_recv: cid=$cid $work received=[1-9]"
	shows "svcrdma_wc_send: cid=$cid $work"
	# The Receives that were posted when the connection ended.
	shows "svcrdma_wc_recv_flush: cid=$cid $work status=WR_FLUSH_ERR (5/0x[0-9a-f]*)$"
	! grep "^xprtrdma_wc_\|^svcrdma_wc_.*_err: cid=$cid " "$local/events" || fail "an event of the client, or of a failure"
	shows "svcrdma_decode_rqst: cid=$cid "
	shows "svcrdma_reply: cid=$cid "
	shows "svcrdma_post_send: cid=$cid $work "
	shows "rpcrdma_close: cid=$cid why=\"disconnected\"$"
}

# shown KEY: prints the value of KEY in the file of the connection in the server's debugfs.
shown() {
	on_server sh -c "cat /sys/kernel/debug/rpcrdma/svc-*" | sed -n "s/^$1=//p"
}

debugfs_tells_of_a_client() {
	needs_our_server
	server_is_idle
	VERS=3
	mount_export
	ls "$dir"
	on_server sh -c "cat /sys/kernel/debug/rpcrdma/svc-*"
	[ "$(shown peer)" = "$(says source)" ]
	[ "$(shown source)" = "$(says peer)" ]
	[ "$(shown version)" = "$(says version)" ]
	[ "$(shown inline_send) $(shown inline_recv)" = "$(says inline_recv) $(says inline_send)" ]
	[ "$(shown device_port)" = 1 ]
	[ "$(shown grants)" -ge 1 ]
	# At least a Receive for each Call.
	[ "$(shown buffer_bytes)" -ge $((4096 * $(shown grants))) ]
	[ "$(shown waits_for_client)" = 0 ]
	leave
	server_is_idle
	! on_server sh -c "ls /sys/kernel/debug/rpcrdma/svc-*" 2>/dev/null || fail "the file is left"
}

ended_by_the_server() {
	mount_export
	on_server rpc.nfsd 0
	sleep 1
	on_server rpc.nfsd
}

events_of_a_connection_that_the_server_ends() {
	server_trace ended_by_the_server
	shows 'rpcrdma_close: cid=[0-9]* why="not needed any more"$'
}

# The Calls of this client have no Read chunks.
refused() {
	! READS=0 "$here/crowd.py" "$SERVER" "$PORT" 1 1 || fail "it is accepted"
}

# accepted READS: a client that permits so few RDMA Reads at a time.
accepted() {
	READS=$1 "$here/crowd.py" "$SERVER" "$PORT" 1 1
}

events_of_a_refusal() {
	needs_crowd
	server_trace accepted 3
	shows 'svcrdma_accept: .* reads=3$'
	server_trace refused
	shows "svcrdma_refuse: peer=$(source_of "$SERVER"):[0-9]* why=\"the limits of the device do not suffice\" rc=-95$"
	! grep '^svcrdma_accept' "$local/events" || fail "accepted all the same"
}

# Each form of a Call and of a Reply, with the numbers of the very bytes that were moved.
events_of_calls() {
	VERS=3
	io=$here/fileio.py
	head -c 65536 /dev/urandom >"$local/65536"
	mount_export
	: >"$dir/file"

	server_trace "$io" put "$local/65536" "$dir/file" 65536
	shows "svcrdma_decode_rqst: cid=[0-9]* $work xid=0x[0-9a-f]* vers=1 proc=0 credits=[1-9][0-9]* hdrlen=[1-9][0-9]* len=65[6-9][0-9][0-9] read list segments=[1-9][0-9]*/0/0$"
	xid=$(xid_of 'svcrdma_decode_rqst: .* read list')
	shows "svcrdma_post_read_chunk: cid=[0-9]* $work xid=$xid len=65536 segments=[1-9][0-9]* sqecount=[1-9]"
	shows "svcrdma_read_finished: cid=[0-9]* $work xid=$xid rc=0$"
	shows "svcrdma_wc_read: cid=[0-9]* $work totalbytes=65536 latency-us=[1-9][0-9]*$"
	shows "svcrdma_reply: cid=[0-9]* xid=$xid len=[1-9][0-9]* inline segments=0 written=0 sqecount=1 invalidates=0x[0-9a-f]*$"
	shows "svcrdma_post_send: cid=[0-9]* $work xid=$xid len=[1-9][0-9]* num_sge=1 inv_rkey=0x[0-9a-f]*$"
	! grep "^svcrdma_\(reply\|post_send\): .* xid=$xid .*=0x00000000$" "$local/events" ||
		fail "nothing is invalidated"

	server_trace "$io" get "$local/65536" "$dir/file" 65536
	shows 'svcrdma_decode_rqst: .* inline segments=0/[1-9][0-9]*/0$'
	xid=$(xid_of 'svcrdma_decode_rqst: .* inline segments=0/[1-9]')
	shows "svcrdma_reply: cid=[0-9]* xid=$xid len=[1-9][0-9]* write list segments=[1-9][0-9]* written=65536 sqecount=[2-9]"

	server_trace touch "$dir/file"
	shows 'svcrdma_decode_rqst: .* inline segments=0/0/0$'
	xid=$(xid_of 'svcrdma_decode_rqst: .* inline segments=0/0/0')
	shows "svcrdma_reply: cid=[0-9]* xid=$xid len=[1-9][0-9]* inline segments=0 written=0 sqecount=1 invalidates=0x00000000$"
	! grep '^svcrdma_\(post_read_chunk\|read_finished\|error\)' "$local/events" ||
		fail "nothing of that has happened"
}

# 48 pieces of memory for 47 pages of data: three RDMA Writes of at most 16 pieces, and the Send. The client of the C module
# has two Segments for it, which takes one RDMA Write more. Pages that are neighbours in memory would be one piece. tmpfs
# reads each page of a hole as the same page of zeros, so none of these pages has its neighbour next to it.
events_of_a_read_in_pieces() {
	needs_our_server
	[ "$(on_server stat -f -c %T "$EXPORT")" = tmpfs ] || skip "the export is not a tmpfs"
	VERS=3
	mount_export
	truncate -s 196608 "$dir/hole"
	server_trace dd if="$dir/hole" of="$local/hole" bs=192512 count=1 skip=100 iflag=direct,skip_bytes
	[ "$(stat -c %s "$local/hole")" = 192512 ]
	cmp -n 192512 "$local/hole" /dev/zero
	shows 'svcrdma_reply: .* write list segments=\(1 written=192512 sqecount=4\|2 written=192512 sqecount=5\) '
}

# Arguments and results that are longer than a message.
events_of_long_calls() {
	VERS=4.2
	io=$here/fileio.py
	mount_export
	: >"$dir/file"
	server_trace "$io" setxattr "$dir/file" 16000
	shows "svcrdma_decode_rqst: cid=[0-9]* $work xid=0x[0-9a-f]* vers=1 proc=1 credits=[1-9][0-9]* hdrlen=[1-9][0-9]* len=16[0-9][0-9][0-9] \\*read list segments=[1-9][0-9]*/0/0$"
	xid=$(xid_of 'svcrdma_decode_rqst: .* \*read list')
	shows "svcrdma_post_read_chunk: cid=[0-9]* $work xid=$xid len=16[0-9][0-9][0-9] "
	shows "svcrdma_read_finished: cid=[0-9]* $work xid=$xid rc=0$"
	remount
	server_trace "$io" checkxattr "$dir/file" 16000
	shows 'svcrdma_decode_rqst: .* inline segments=0/0/[1-9][0-9]*$'
	shows 'svcrdma_reply: .* reply chunk segments=[1-9][0-9]* written=16[0-9][0-9][0-9] sqecount=[2-9]'
}

breaks_rules() {
	"$here/caller.py" "$SERVER" "$PORT" other_versions presence_words memory_of_nobody \
		>"$local/caller.log" 2>&1 || {
		cat "$local/caller.log"
		exit 1
	}
}

events_of_errors() {
	needs_crowd
	VERS=3
	mount_export
	head -c 10000 /dev/zero >"$dir/content"
	touch "$dir/written"
	chmod 755 "$dir"
	chmod 644 "$dir/content"
	chmod 666 "$dir/written"
	FILE=$EXPORT/${dir##*/}
	export FILE
	server_trace breaks_rules
	shows 'svcrdma_error: cid=[0-9]* xid=0x[0-9a-f]* why="version"$'
	shows 'svcrdma_error: cid=[0-9]* xid=0x[0-9a-f]* why="presence word"$'
	shows "svcrdma_read_finished: cid=[0-9]* $work xid=0x[0-9a-f]* rc=-5$"
	shows 'rpcrdma_wc_err: cid=[0-9]* status="'
	shows "svcrdma_wc_read_err: cid=[0-9]* $work status=REM_[A-Z_]* ([1-9][0-9]*/0x[0-9a-f]*)$"
	xid=$(xid_of 'svcrdma_error: .*"version"')
	! grep "^svcrdma_decode_rqst: .* xid=$xid " "$local/events" || fail "refused, and taken"
}

# A client that uses its credits gets more: each grant is said once, and none is more than there may be.
works() {
	for _ in $(seq 10); do
		"$here/together.py" "$dir" 8 65536
	done
}

events_of_credits() {
	mount_export
	server_trace works
	shows 'svcrdma_credits: cid=[0-9]* limit=[1-9]'
	sed -n 's/^svcrdma_credits: .* limit=//p' "$local/events" >"$local/limits"
	note "$(tr '\n' ' ' <"$local/limits")credits"
	sort -nuc "$local/limits" || fail "one is not more than that before"
}

events_of_callbacks() {
	VERS=4.2
	mount_export
	server_trace has_a_callback
	shows 'svcrdma_cb_call: cid=[0-9]* xid=0x[0-9a-f]* len=[1-9]'
	xid=$(xid_of svcrdma_cb_call)
	shows "svcrdma_cb_reply: cid=[0-9]* xid=$xid len=[1-9]"
}

# why_unsent PROGRAM NAME...: the reasons in the events for Calls to clients that are not sent.
why_unsent() {
	needs_crowd
	program=$1
	shift
	make_files_to_call_for
	server_trace sh -c '"$@" >"$0" 2>&1 || { cat "$0"; exit 1; }' "$local/caller.log" \
		"$here/$program" "$SERVER" "$PORT" "$@"
	! grep SKIP "$local/caller.log" || skip "$program does not do that here"
}

events_of_calls_that_are_not_sent() {
	with 1 2
	why_unsent caller2.py a_client_that_takes_no_calls a_call_waits_for_a_credit
	shows 'svcrdma_cb_unsent: cid=[0-9]* xid=0x[0-9a-f]* why="the client takes no Calls"$'
	shows 'svcrdma_cb_unsent: cid=[0-9]* xid=0x[0-9a-f]* why="no credit"$'
}

events_of_calls_to_who_answers_nothing() {
	export QUICK=
	why_unsent caller.py callbacks_without_answers
	shows 'svcrdma_cb_unsent: cid=[0-9]* xid=0x[0-9a-f]* why="another Call is not answered"$'
	shows 'svcrdma_cb_unsent: cid=[0-9]* xid=0x[0-9a-f]* why="the connection ends"$'
}

tests \
	"events_of_a_connection" \
	"debugfs_tells_of_a_client" \
	"events_of_a_connection_that_the_server_ends" \
	"events_of_a_refusal" \
	"events_of_calls" \
	"events_of_a_read_in_pieces" \
	"events_of_long_calls" \
	"events_of_errors" \
	"events_of_credits" \
	"events_of_callbacks" \
	"events_of_calls_that_are_not_sent" \
	"events_of_calls_to_who_answers_nothing"
