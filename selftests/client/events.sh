#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The fields of trace events have the right values, with this module and with the C module on either side. A filter of
# the kernel reads a field by its name.
. "$(dirname "$0")/../lib/lib.sh"

VERS=3
instances=/sys/kernel/tracing/instances

# record INSTANCE EVENT FILTER: records the events for which the filter holds. $on selects the node.
record() {
	$on sh -ec "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
		[ -d $instances/$1 ] || mkdir $instances/$1
		cd $instances/$1/events/rpcrdma
		echo '$3' >$2/filter
		echo 1 >$2/enable"
}

# expect EVENT FILTER: an event with these fields must come before `came`.
expect() {
	record expected "$1" "$2"
	expected="$expected $1"
}

# never EVENT FILTER: no event with these fields may come before `came`.
never() {
	record refused "$1" "$2"
}

# Fails unless each expected event has come, and no refused one.
came() {
	for event in $expected; do
		soon "$event"
	done
	! $on grep ': [a-z]*rdma_[a-z_]*: ' $instances/refused/trace || fail "an event has wrong fields"
}

# soon EVENT: waits at most ten seconds for an expected event.
soon() {
	for _ in $(seq 20); do
		! $on grep -q ": $1: " $instances/expected/trace || return 0
		sleep 0.5
	done
	fail "no event $1 for which this holds: $($on cat $instances/expected/events/rpcrdma/$1/filter)"
}

end_recording() {
	for instance in expected refused; do
		$on sh -c "[ ! -d $instances/$instance ] || rmdir $instances/$instance"
	done
}

# on_side client|server: the following events are of this side.
on_side() {
	on=
	[ "$1" = client ] || {
		needs_server_command
		on=on_server
	}
	$on modprobe rpcrdma
	expected=
	end_recording
	defer end_recording
}

connection() {
	on_side client
	peer="addr == \"$SERVER\" && port == \"$PORT\""
	expect xprtrdma_connect "rc == 0 && connect_status == 1 && $peer"
	expect xprtrdma_disconnect "rc == 0 && connect_status == 1 && $peer"
	expect xprtrdma_inline_thresh 'inline_send >= 1024 && inline_recv >= 1024 && max_send >= 1024 && max_recv >= 1024'
	never xprtrdma_connect "rc != 0 || addr != \"$SERVER\" || port != \"$PORT\""
	mount_export
	leave
	came
}

connection_that_fails() {
	on_side client
	PORT=20999
	expect xprtrdma_connect "rc == -111 && connect_status == -111 && addr == \"$SERVER\" && port == \"$PORT\""
	! mount -t nfs -o "proto=rdma,port=$PORT,vers=3,retry=0,soft,timeo=10,retrans=1" "$SERVER:$EXPORT" "$mnt"
	came
}

# Writes and reads 64 KiB, and makes enough RPCs for a signaled Send.
write_and_read() {
	head -c 65536 /dev/urandom >"$local/65536"
	"$here/fileio.py" put "$local/65536" "$dir/file" 65536
	seq -f "$dir/%g" 100 | xargs touch
	remount
	"$here/fileio.py" get "$local/65536" "$dir/file" 65536
}

task='task_id > 0 && task_id < 65536 && client_id < 65536'
work='cq_id > 0 && completion_id > 0'
done='status == 0 && vendor_err == 0'

calls_of_a_client() {
	on_side client
	mount_export
	: >"$dir/file"
	expect xprtrdma_marshal "$task && xid != 0 && hdrlen > 28 && headlen > 40 && pagelen == 65536 && rtype == 3 && wtype == 0"
	expect xprtrdma_post_send "$task && $work && num_sge > 0 && signaled == 2"
	expect xprtrdma_mr_map "$task && nents > 0 && handle != 0 && length == 65536 && offset != 0 && dir == 1"
	expect xprtrdma_mr_reminv "$task && nents > 0 && handle != 0 && length == 65536 && offset != 0 && dir == 2"
	expect xprtrdma_wc_receive "$work && $done && received > 28"
	expect xprtrdma_wc_send "$work && $done"
	expect xprtrdma_reply "$task && xid != 0 && credits > 0"
	never xprtrdma_marshal "task_id == 0 || xid == 0 || hdrlen < 28 || rtype == 0 || rtype > 4 || wtype == 3 || wtype == 4"
	never xprtrdma_post_send "task_id == 0 || cq_id == 0 || completion_id <= 0 || num_sge == 0 || (signaled != 0 && signaled != 2)"
	never xprtrdma_mr_map 'nents == 0 || length == 0 || dir == 0 || dir > 2'
	never xprtrdma_mr_reminv 'nents == 0 || length == 0 || dir == 0 || dir > 2'
	never xprtrdma_wc_send 'status != 0 && status != 5'
	write_and_read
	came
}

calls_of_a_server() {
	on_side server
	mount_export
	: >"$dir/file"
	expect svcrdma_wc_recv "$work && received > 28"
	expect svcrdma_decode_rqst "$work && xid != 0 && vers == 1 && proc == 0 && credits > 0 && hdrlen == 28"
	expect svcrdma_post_read_chunk "$work && sqecount > 0"
	expect svcrdma_wc_read "$work && totalbytes == 65536 && read_latency > 0"
	expect svcrdma_read_finished "$work"
	expect svcrdma_post_send "$work && num_sge > 0 && inv_rkey != 0"
	expect svcrdma_wc_send "$work"
	expect svcrdma_wc_recv_flush "$work && status == 5"
	never svcrdma_decode_rqst 'cq_id == 0 || completion_id <= 0 || xid == 0 || vers != 1 || proc > 4 || hdrlen < 28'
	never svcrdma_post_send 'cq_id == 0 || completion_id <= 0 || num_sge == 0'
	write_and_read
	leave
	came
}

tests \
	"connection" \
	"connection_that_fails" \
	"calls_of_a_client" \
	"calls_of_a_server"
