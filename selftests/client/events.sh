#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The fields of trace events have the right values, with this module and with the C module on either side.
. "$(dirname "$0")/../lib/lib.sh"
. "$(dirname "$0")/../lib/events.sh"

VERS=3

connection() {
	on_side client
	peer="addr == \"$SERVER\" && port == \"$PORT\""
	expect xprtrdma_op_connect "delay == 0 && $peer"
	expect xprtrdma_createmrs "count > 0 && $peer"
	expect xprtrdma_post_recvs "cq_id > 0 && count > 0 && posted > 0 && $peer"
	expect xprtrdma_post_recv "$work"
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
	if mount -t nfs -o "proto=rdma,port=$PORT,vers=3,retry=0,soft,timeo=10,retrans=1" "$SERVER:$EXPORT" "$mnt"; then
		fail "a server listens on the port $PORT"
	fi
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

calls_of_a_client() {
	on_side client
	mount_export
	: >"$dir/file"
	expect xprtrdma_marshal "$task && xid != 0 && hdrlen > 28 && headlen > 40 && pagelen == 65536 && rtype == 3 && wtype == 0"
	expect xprtrdma_post_send "$task && $work && num_sge > 0 && signaled == 2"
	expect xprtrdma_mr_map "$task && $region && length == 65536 && dir == 1"
	expect xprtrdma_mr_fastreg "$task && $region && length == 65536 && dir == 1"
	expect xprtrdma_chunk_read "$task && $region && length == 65536 && pos > 40 && is_last == 1"
	expect xprtrdma_chunk_write "$task && $region && length == 65536 && is_last == 1"
	expect xprtrdma_mr_reminv "$task && $region && length == 65536 && dir == 2"
	expect xprtrdma_mr_unmap "$region && length == 65536 && dir == 2"
	expect xprtrdma_wc_receive "$work && $done && received > 28"
	expect xprtrdma_wc_send "$work && $done"
	expect xprtrdma_reply "$task && xid != 0 && credits > 0"
	never xprtrdma_marshal "task_id == 0 || xid == 0 || hdrlen < 28 || rtype == 0 || rtype > 4 || wtype == 3 || wtype == 4"
	never xprtrdma_post_send "task_id == 0 || cq_id == 0 || completion_id <= 0 || num_sge == 0 || (signaled != 0 && signaled != 2)"
	never xprtrdma_mr_map 'nents == 0 || length == 0 || dir == 0 || dir > 2'
	never xprtrdma_chunk_read 'pos == 0 || length == 0'
	never xprtrdma_mr_unmap 'nents == 0 || length == 0 || dir == 0 || dir > 2'
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
	expect svcrdma_post_recv "$work"
	expect svcrdma_post_read_chunk "$work && sqecount > 0"
	expect svcrdma_post_write_chunk "$work && sqecount > 0"
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

# A Call and a Reply that are longer than a message.
long_messages() {
	"$here/fileio.py" setxattr "$dir/file" 16000
	remount
	"$here/fileio.py" checkxattr "$dir/file" 16000
}

long_calls_of_a_client() {
	VERS=4.2
	on_side client
	mount_export
	: >"$dir/file"
	expect xprtrdma_marshal "$task && rtype == 4 && wtype == 0"
	expect xprtrdma_chunk_read "$task && $region && length > 8000 && pos == 0"
	expect xprtrdma_chunk_reply "$task && $region && length > 8000"
	long_messages
	came
}

long_calls_of_a_server() {
	VERS=4.2
	on_side server
	mount_export
	: >"$dir/file"
	expect svcrdma_decode_rqst "$work && vers == 1 && proc == 1 && hdrlen > 28"
	expect svcrdma_post_reply_chunk "$work && sqecount > 0"
	long_messages
	came
}

# device_goes [on_server]: removes the RDMA device, and adds it again.
device_goes() {
	"$@" timeout 30 rdma link delete "$device"
	device_comes_back "$@"
}

device_of_a_client() {
	software_device
	on_side client
	mount_export
	defer device_comes_back
	expect xprtrdma_device_removal "name == \"$device\""
	device_goes
	came
	touch "$dir/file"
}

device_of_a_server() {
	needs_server_command
	software_device on_server
	on_side server
	mount_export
	defer device_comes_back on_server
	expect svcrdma_device_removal "name == \"$device\""
	device_goes on_server
	came
	touch "$dir/file"
}

# More I/O at a time than there are registrations.
registrations_run_out() {
	on_side client
	mount_export
	expect xprtrdma_nomrs_err "$task && addr == \"$SERVER\" && port == \"$PORT\""
	expect xprtrdma_createmrs "count > 0 && addr == \"$SERVER\" && port == \"$PORT\""
	for _ in 1 2 3 4 5; do
		"$here/together.py" "$dir" 64 262144
		! grep -q xprtrdma_nomrs_err $instances/expected/trace || break
	done
	came
}

# Calls of other versions and with a header that breaks a rule.
bad_calls() {
	needs_crowd
	on_side server
	expect svcrdma_decode_badvers_err "$work && xid != 0 && vers != 1 && credits > 0"
	expect svcrdma_err_vers 'xid != 0'
	expect svcrdma_decode_badproc_err "$work && xid != 0 && vers == 1 && proc > 1"
	expect svcrdma_decode_parse_err "$work && xid != 0 && vers == 1 && proc == 0"
	expect svcrdma_err_chunk 'xid != 0'
	expect svcrdma_decode_short_err "$work && hdrlen < 28"
	never svcrdma_decode_badvers_err 'vers == 1'
	make_files_to_call_for
	# The C module answers some of them otherwise.
	"$here/caller.py" "$SERVER" "$PORT" other_versions other_types presence_words short_messages \
		>"$local/caller.log" 2>&1 || cat "$local/caller.log"
	came
}

tests \
	"connection" \
	"connection_that_fails" \
	"calls_of_a_client" \
	"calls_of_a_server" \
	"long_calls_of_a_client" \
	"long_calls_of_a_server" \
	"device_of_a_client" \
	"device_of_a_server" \
	"registrations_run_out" \
	"bad_calls"
