#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The state of a connection that an administrator can see is right.
. "$(dirname "$0")/../lib/lib.sh"

# The content of the file $1 in sysfs for the mount's transport.
sysfs() {
	cat /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/"$1"
}

source_address_and_port() {
	mount_export
	[ "$(sysfs srcaddr)" = "$(source_of "$SERVER")" ] || fail "srcaddr is $(sysfs srcaddr)"
	port=$(sysfs xprt_info | sed -n 's/^src_port=//p')
	note "$(sysfs srcaddr) port $port"
	[ "$port" -gt 1023 ]
}

source_address_of_version_6() {
	[ -n "${SERVER6:-}" ] || skip "set SERVER6 to the server's IPv6 address"
	address=[$SERVER6]
	mount_export proto=rdma6
	[ "$(sysfs srcaddr)" = "$(source_of "$SERVER6")" ] || fail "srcaddr is $(sysfs srcaddr)"
}

# rpcctl prints the values of sysfs.
source_address_by_rpcctl() {
	needs rpcctl
	mount_export
	rpcctl xprt | tee "$local/xprt"
	grep -q "$(source_of "$SERVER")" "$local/xprt"
}

events_of_a_connection() {
	VERS=3
	trace mount_and_leave
	shows "xprtrdma_connect: cid=[0-9]* peer=\[$SERVER\]:$PORT rc=0 connection status=1$"
	shows "xprtrdma_inline_thresh: cid=[0-9]* $(source_of "$SERVER"):[0-9]* -> $SERVER:$PORT neg send/recv=4096/4096, own send/recv=4096/4096$"
	shows 'rpcrdma_close: cid=[0-9]* why="not needed any more"'
	shows "xprtrdma_disconnect: cid=[0-9]* peer=\[$SERVER\]:$PORT rc=0 connection status=1$"
}

events_of_a_lost_connection() {
	needs_server_command
	mount_export
	trace sh -c 'lab-server rpc.nfsd 0; sleep 1; lab-server rpc.nfsd; ls '"$mnt"' >/dev/null'
	shows 'rpcrdma_close: cid=[0-9]* why="disconnected"'
	shows "xprtrdma_disconnect: cid=[0-9]* peer=\[$SERVER\]:$PORT rc=[-0-9]* connection status=-107$"
	shows 'xprtrdma_connect: .* rc=0 connection status=1$'
}

events_of_a_connection_that_fails() {
	PORT=20999
	trace sh -c "! mount -t nfs -o proto=rdma,port=$PORT,vers=3,retry=0,soft,timeo=10,retrans=1 \
		'$SERVER:$EXPORT' '$mnt'"
	shows "xprtrdma_connect: cid=[0-9]* peer=\[$SERVER\]:$PORT rc=-111 connection status=-111$"
}

# Each form of a Call and its events.
events_of_calls() {
	VERS=3
	io=$here/fileio.py
	head -c 65536 /dev/urandom >"$local/65536"
	mount_export
	: >"$dir/file"
	trace "$io" put "$local/65536" "$dir/file" 65536
	task='task:[0-9a-f]*@[0-9a-f]*'
	shows "xprtrdma_marshal: cid=[0-9]* $task xid=0x[0-9a-f]* hdr=[0-9]* xdr=[0-9]*/65536/0 read list/inline segments=[1-9][0-9]*/0$"
	xid=$(sed -n 's/^xprtrdma_marshal: .* xid=\(0x[0-9a-f]*\) .* read list.*/\1/p' "$local/events" | head -n 1)
	work='cq_id=[1-9][0-9]* completion_id=[1-9][0-9]*'
	shows "xprtrdma_mr_map: cid=[0-9]* $task xid=$xid mr_id=[0-9]* nents=[1-9][0-9]* 65536@0x[0-9a-f]*:0x[0-9a-f]* (TO_DEVICE)$"
	shows "xprtrdma_post_send: cid=[0-9]* $task $work xid=$xid mrs=[1-9][0-9]* len=[1-9]"
	shows "xprtrdma_reply: cid=[0-9]* $task xid=$xid credits=[1-9]"
	shows "xprtrdma_mr_\(rem\|local\)inv: cid=[0-9]* $task xid=$xid mr_id=[0-9]* nents=[1-9][0-9]* 65536@0x"
	shows 'xprtrdma_credits: cid=[0-9]* limit=[1-9]'
	shows "xprtrdma_wc_receive: cid=[0-9]* $work status=SUCCESS (0/0x0) received=[1-9][0-9]* invalidated=0x"
	trace "$io" get "$local/65536" "$dir/file" 65536
	shows 'xprtrdma_marshal: .* pullup/write list segments=0/[1-9]'
	shows 'xprtrdma_mr_map: .* 65536@.* (FROM_DEVICE)$'
	trace ls "$dir"
	shows 'xprtrdma_marshal: .* pullup/\(reply chunk\|write list\) '
	trace touch "$dir/file"
	shows 'rpcrdma_protocol_send: cid=[0-9]* now=[0-9]* xid=0x[0-9a-f]* call=1 nomsg=0 more=0 result=0 header=[0-9a-f]* limit=[1-9]'
	shows 'rpcrdma_protocol_message: .* event=reply '
}

# The completion of a signaled Send has the number of that Send.
completions_name_their_sends() {
	VERS=3
	mount_export
	EVENTS='xprtrdma_post_send xprtrdma_wc_send' trace sh -c "seq -f '$dir/%g' 100 | xargs touch"
	ended=$(sed -n 's/^xprtrdma_wc_send: .* completion_id=\([0-9]*\) .*/\1/p' "$local/events")
	[ -n "$ended" ] || fail "no Send has ended"
	for id in $ended; do
		shows "xprtrdma_post_send: .* completion_id=$id xid=0x.* signaled$"
	done
	note "$(echo "$ended" | wc -l) completions of $(grep -c ^xprtrdma_post_send "$local/events") Sends"
}

debugfs_tells_of_the_connection() {
	VERS=3
	mount_export
	ls "$dir"
	debugfs
	[ "$(says peer)" = "$SERVER:$PORT" ]
	[ "$(says source)" = "$(sysfs srcaddr):$(sysfs xprt_info | sed -n 's/^src_port=//p')" ]
	[ "$(says version)" = 1 ]
	[ "$(says inline_send) $(says inline_recv)" = "4096 4096" ]
	[ "$(says requests)" = "$(sysfs xprt_info | sed -n 's/^max_num_slots=//p')" ]
	[ "$(says credits)" -ge 1 ]
	[ "$(says last_close)" = none ]
}

debugfs_tells_why_a_connection_was_closed() {
	needs_server_command
	mount_export
	first=$(says connection)
	on_server rpc.nfsd 0
	sleep 1
	on_server rpc.nfsd
	ls "$mnt" >/dev/null
	debugfs
	[ "$(says last_close)" = "disconnected" ]
	[ "$(says connection)" != "$first" ]
}

# A file that is open keeps the module, not the mount, and says nothing any more.
debugfs_file_survives_its_transport() {
	mount_export
	debugfs >/dev/null
	exec 3<"$(echo /sys/kernel/debug/rpcrdma/xprt-*)"
	leave
	for _ in $(seq 20); do
		ls /sys/kernel/debug/rpcrdma/xprt-* >/dev/null 2>&1 || break
		sleep 0.5
	done
	! cat <&3 || fail "the file goes on speaking"
	! modprobe -r rpcrdma 2>/dev/null || fail "the module went while a file of it is open"
	exec 3<&-
}

tests \
	"source_address_and_port" \
	"source_address_of_version_6" \
	"source_address_by_rpcctl" \
	"events_of_a_connection" \
	"events_of_a_lost_connection" \
	"events_of_a_connection_that_fails" \
	"events_of_calls" \
	"completions_name_their_sends" \
	"debugfs_tells_of_the_connection" \
	"debugfs_tells_why_a_connection_was_closed" \
	"debugfs_file_survives_its_transport"
