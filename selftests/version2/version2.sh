#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Version 2 of RPC-over-RDMA: negotiation, forms of messages, credits, callbacks. The server must have the settings of
# this module.
. "$(dirname "$0")/../lib/lib.sh"

# grant COUNT: the server has COUNT credits for clients that connect during this test. Stands behind `with`.
grant() {
	setting=/proc/sys/sunrpc/svc_rdma/max_requests
	old=$(on_server cat $setting)
	defer on_server sh -c "echo $old >$setting"
	on_server sh -c "echo $1 >$setting"
}

# both_speak_it VERSION [in_band|IPv6]: the connection moves data in every form, and debugfs has the agreed properties.
#= V2-058, V2-059, V2-064
both_speak_it() {
	with 2 2
	VERS=$1
	case ${2:-} in
	in_band) in_band 1 ;;
	IPv6)
		[ -n "${SERVER6:-}" ] || skip "set SERVER6 to the server's IPv6 address"
		address="[$SERVER6]" MOUNT_OPTIONS=proto=rdma6
		;;
	esac
	mount_export
	debugfs
	[ "$(says version) $(says announced)" = "2 2" ] || fail "they speak version $(says version)"
	[ "$(says connects)" = 1 ] || fail "it took $(says connects) connections"
	moves_data
	debugfs
	[ "$(says version)" = 2 ]
	[ "$(says last_close)" = none ]
	[ "$(transport bad_reply)" = 0 ] || fail "$(transport bad_reply) bad Replies"
}

# at_once PROCESSES TIMES COMMAND...: PROCESSES processes run COMMAND TIMES times each.
at_once() {
	processes=$1 times=$2
	shift 2
	children=
	for _ in $(seq "$processes"); do
		for _ in $(seq "$times"); do
			"$@" >/dev/null || exit
		done &
		children="$children $!"
	done
	for child in $children; do
		wait "$child" || fail "$1 has failed"
	done
}

# A page of data and its headers are one message, and no memory is registered for it. The first message grants no
# Receives that are posted after the exchange of properties.
#= V2-054, V2-055, V2-056
#= V2-128, V2-200
messages_hold_a_page() {
	with 2 2 8192
	VERS=$1
	trace mount_export noac
	grep 'rpcrdma_protocol_transmit' "$local/events" | head -n 1 |
		grep '=[0-9a-f]\{8\}0000000200010001' ||
		fail "the first message speaks of more than one credit"
	debugfs
	agreed="$(says version) $(says inline_send) $(says inline_recv)"
	[ "$agreed" = "2 8192 8192" ] || fail "version and longest messages are $agreed"
	# From now on the server has Receives for more Calls.
	: >"$dir/file"
	at_once 16 20 stat "$dir/file"
	rm "$dir/file"
	moves_data
	at_once 16 4 dd if="$dir/file.4096" of=/dev/null bs=4096 iflag=direct status=none
	head -c 4096 /dev/urandom >"$local/page"
	for counter in read_segments write_segments reply_segments; do
		stays $counter "$here/fileio.py" put "$local/page" "$dir/file.4096" 4096
		stays $counter "$here/fileio.py" get "$local/page" "$dir/file.4096" 4096
	done
	debugfs
	[ "$(says server_may_send)" -gt 16 ] || fail "the server may send $(says server_may_send) messages"
	[ "$(says connects)" = 1 ]
	[ "$(says last_close)" = none ]
}

# The server invalidates the handle of each Call, so the client posts no LOCAL_INV.
#= V2-112, V2-114, V2-117
server_invalidates_memory() {
	with 2 2
	VERS=3
	mount_export
	head -c 65536 /dev/urandom >"$local/file"
	"$here/fileio.py" put "$local/file" "$dir/file" 65536
	stays local_invalidates "$here/fileio.py" get "$local/file" "$dir/file" 65536
}

many_names() {
	for n in $(seq 200); do
		: >"$dir/$n"
	done
}

# server_announced HIGHEST: the private data of the server are the format of RFC 8797 and the announcement of this
# version. Stands behind `trace`.
server_announced() {
	data=$(sed -n 's/^rpcrdma_protocol_connect: .*peer=\([0-9a-f]\{32\}\).*/\1/p' "$local/events")
	[ "$data" = "f6ab0e1801010303d8cc59e2010${1}0000" ] || fail "the server's private data are $data"
}

# The client sends no message of version 2 to a server that does not announce it, and remembers nothing.
#= VA-001, VA-004, VA-007
#= VA-008, VA-009
server_announces_version_1() {
	with 2 1 8192
	forget_servers
	VERS=3
	trace mount_export
	server_announced 1
	no_version_2
	debugfs
	[ "$(says version) $(says announced)" = "1 1" ]
	[ "$(says inline_send) $(says inline_recv)" = "4096 4096" ]
	[ "$(says connects)" = 1 ] || fail "it took $(says connects) connections"
	moves_data
	[ "$(cat $known)" = 0 ] || fail "the server is remembered"
	leave
	speak 2 2 8192
	trace mount_export
	server_announced 2
	[ "$(says version) $(says announced)" = "2 2" ] || fail "an upgraded server is not noticed"
	[ "$(says connects)" = 1 ]
}

# With in-band negotiation, a connection goes on in version 1 when the server refuses version 2. The next connection
# begins with version 1.
#= V2-060, V2-061, V2-062
server_is_asked_in_band() {
	with 2 1 8192
	in_band 1
	VERS=3
	trace mount_export
	debugfs
	[ "$(says version)" = 1 ]
	[ "$(says inline_send) $(says inline_recv)" = "4096 4096" ]
	[ "$(says connects)" = 1 ] || fail "it took $(says connects) connections"
	grep -q '^rpcrdma_protocol_message: .*event=version' "$local/events" ||
		fail "the server was not asked"
	EVENTS="rpcrdma_protocol_send xprtrdma_wc_send" trace many_names
	sent=$(grep -c '^rpcrdma_protocol_send: ' "$local/events")
	ended=$(grep -c '^xprtrdma_wc_send: ' "$local/events") || :
	note "$ended completions of $sent Sends"
	[ "$ended" -le $((sent / 4)) ] || fail "a completion was asked for too often"
	rm "$dir"/*
	moves_data
	# The knowledge holds for other mounts, too, until it is cleared.
	defer forget_servers
	[ "$(cat $known)" = 1 ] || fail "$(cat $known) servers are known"
	leave
	speak 2 2 8192
	trace mount_export
	! grep '^rpcrdma_protocol_message: .*event=version' "$local/events" ||
		fail "the server was asked again"
	[ "$(says version)" = 1 ]
	leave
	forget_servers
	mount_export
	[ "$(says version)" = 2 ] || fail "an upgraded server is not noticed"
	[ "$(cat $known)" = 0 ]
}

# A client of version 1 speaks version 1 to a server that announces version 2.
client_speaks_version_1_only() {
	with 1 2
	for setting in 0 1; do
		in_band $setting
		trace mount_export
		server_announced 2
		no_version_2
		[ "$(says version) $(says announced)" = "1 2" ]
		moves_data
		leave
	done
}

# A credit is for one message. Both sides grant credits, and no credit is lost.
#= V2-044, V2-047, V2-187
credits_are_for_messages() {
	with 2 2
	VERS=3
	mount_export "noac"
	debugfs
	ceiling=$(says server_ceiling)
	[ "$ceiling" -ge 8 ]
	[ "$(says may_send)" -le "$ceiling" ]
	[ "$(says server_may_send)" -le "$(says ceiling)" ]
	: >"$dir/file"
	at_once 8 100 stat "$dir/file"
	debugfs
	# Many times more RPCs than credits have been completed, and most credits are back.
	[ "$(transport sends)" -ge $((8 * ceiling)) ]
	[ "$(says may_send)" -ge $((ceiling / 4)) ]
	[ "$(says connects)" = 1 ]
}

# The smallest number of credits is enough for 40 processes.
#= V2-038, V2-049
few_credits_do() {
	with 2 2
	grant 4
	VERS=3
	mount_export "noac"
	debugfs
	[ "$(says server_ceiling)" -le 32 ]
	: >"$dir/file"
	at_once 40 20 stat "$dir/file"
	rm "$dir/file"
	moves_data
	[ "$(says connects)" = 1 ]
}

# While a Call waits, the client sends a grant to find out whether the server is alive. The Call waits because mountd
# is stopped and nfsd asks it about the export.
#= V2-051
silent_server_is_asked() {
	with 2 2
	on_server pidof rpc.mountd >/dev/null || skip "needs rpc.mountd on the server"
	VERS=3
	mount_export "noac"
	: >"$dir/file"
	defer on_server sh -c 'kill -CONT $(pidof rpc.mountd)'
	trace silence
	[ "$(says connects)" = 1 ]
	[ "$(says last_close)" = none ]
}

silence() {
	on_server sh -c 'kill -STOP $(pidof rpc.mountd); exportfs -f'
	stat "$dir/file" >/dev/null &
	process=$!
	traces_soon 'rpcrdma_protocol_transmit: .* waiting=1'
	on_server sh -c 'kill -CONT $(pidof rpc.mountd)'
	wait $process || fail "stat has failed"
}

# Each new connection speaks version 2 again.
connections_break() {
	with 2 2
	mount_export
	moves_data
	for _ in 1 2 3; do
		before=$(says connection)
		on_server rpc.nfsd 0
		sleep 0.5
		on_server rpc.nfsd
		ls "$dir" >/dev/null
		[ "$(says connection)" != "$before" ]
		[ "$(says version)" = 2 ]
	done
	rm "$dir"/*
	moves_data
}

# sides_speak CLIENT SERVER EXPECTED: restarts the service and checks the version of the new connection.
sides_speak() {
	speak "$1" "$2"
	before=$(says connection)
	on_server rpc.nfsd 0
	sleep 0.5
	on_server rpc.nfsd
	ls "$dir" >/dev/null
	[ "$(says connection)" != "$before" ] || fail "the connection goes on"
	[ "$(says version)" = "$3" ] || fail "sides of $1 and $2 speak version $(says version)"
}

# Each side changes its highest version while data are moved.
#= VA-007, VA-009
sides_change_under_load() {
	with 2 2
	VERS=4.2
	mount_export
	begin_io 4
	sides_speak 1 2 1
	sides_speak 2 2 2
	sides_speak 2 1 1
	sides_speak 2 2 2
	end_io
	[ "$(cat $known)" = 0 ] || fail "a server is remembered"
}

# With in-band negotiation, a server of version 1 is remembered.
#= V2-060, V2-062
sides_change_in_band() {
	with 2 2
	in_band 1
	VERS=4.2
	mount_export
	begin_io 4
	sides_speak 1 2 1
	sides_speak 2 2 2
	sides_speak 1 1 1
	sides_speak 2 2 2
	sides_speak 2 1 1
	defer forget_servers
	forget_servers
	sides_speak 2 2 2
	end_io
}

# mount_inside PORT: mounts the export in the namespace of make_namespace and in a mount namespace that ends with it.
mount_inside() {
	inside unshare --mount sh -e -c '
		mount -t nfs -o "proto=rdma,port=$1,vers=3,nolock" "$2" "$3"
		stat "$3"
		umount "$3"
	' sh "$1" "$SERVER:$EXPORT" "$local/mnt"
}

# With in-band negotiation, a network namespace asks a server that another network namespace remembers: the address may
# belong to another server there.
namespaces_remember_servers_apart() {
	with 2 1
	in_band 1
	VERS=3
	make_namespace
	defer forget_servers
	mount_export
	[ "$(cat $known)" = 1 ] || fail "$(cat $known) servers are known"
	mkdir "$local/mnt"
	for times in 1 0; do
		trace mount_inside "$PORT"
		asked=$(grep -c '^rpcrdma_protocol_message: .*event=version' "$local/events") || :
		note "the server was asked $asked times"
		[ "$asked" = "$times" ] || fail "the namespace must ask $times times"
	done
}

# parts_in EVENT RESPONSE: fails unless an event has a message that more parts follow, of a Call (0) or of a Reply (1).
parts_in() {
	header="[0-9a-f]\{8\}00000002[0-9a-f]\{8\}00000000"
	parts=$(grep -c "^rpcrdma_protocol_$1: .*=${header}0000000$(($2 + 2))" "$local/events") ||
		fail "nothing came in parts"
	note "$parts messages with more to follow"
}

ten_attributes() {
	for _ in $(seq 10); do
		"$here/fileio.py" setxattr "$dir/file" 16000
	done
}

# Prints the server's counter of received messages.
messages_received() {
	on_server cat /proc/sys/sunrpc/svc_rdma/rdma_stat_recv
}

# A long Call is sent in several messages, and no memory is registered for it. The data of WRITE and SYMLINK may have
# a Read chunk, but the data of SETXATTR may not.
#= V2-040, V2-103
calls_go_in_parts() {
	with 2 2
	VERS=4.2
	mount_export
	: >"$dir/file"
	counted=$(messages_received)
	trace stays read_segments ten_attributes
	parts_in send 0
	sent=$(grep -c '^rpcrdma_protocol_\(send\|transmit\): ' "$local/events")
	received=$(($(messages_received) - counted))
	[ "$received" -ge "$sent" ] || fail "the server has counted $received messages of $sent"
	remount
	"$here/fileio.py" checkxattr "$dir/file" 16000
	[ "$(says connects)" = 1 ]
}

# A long Reply arrives in several messages, and no memory is registered for it.
#= V2-032, V2-100
replies_come_in_parts() {
	with 2 2
	VERS=3
	mount_export
	target=$(head -c 4000 /dev/zero | tr '\0' x)
	ln -s "$target" "$dir/link"
	remount
	trace stays reply_segments readlink "$dir/link" >/dev/null
	parts_in message 1
	remount
	# Writeback may wait for a Reply, so the worker that joins its parts does not wait for writeback.
	traced kmem/kmalloc 'bytes_req >= 3000 && bytes_req <= 4096'
	[ "$(readlink "$dir/link")" = "$target" ] || fail "it is another link"
	grep ' kworker.*call_site=.*realloc' "$tracing/trace" >"$local/joined" || fail "no worker has joined parts"
	! grep -v __GFP_NORETRY "$local/joined" || fail "a worker may wait for this memory"
	[ "$(transport bad_reply)" = 0 ]
	[ "$(says connects)" = 1 ]
}

# Many Calls in parts share few credits.
parts_share_the_credits() {
	with 2 2
	grant 10
	VERS=4.2
	mount_export
	for n in $(seq 24); do
		: >"$dir/$n"
	done
	trace attributes setxattr 15000 9000 16000
	parts_in send 0
	remount
	attributes checkxattr 16000
	debugfs
	[ "$(says last_close)" = none ]
}

# A Reply in several messages takes one credit of the client, and must not grant a credit with each message. A credit
# without a Receive makes the device of the client repeat its message. Later messages, such as grants, wait meanwhile.
#= V2-045, V2-048, V2-052
replies_in_parts_leave_receives() {
	with 2 2 16384
	counts_messages_without_receive
	grant 16
	VERS=3
	mount_export rsize=32768
	name=$(head -c 200 /dev/zero | tr '\0' x)
	exported=$EXPORT/${dir#"$mnt"/}
	on_server sh -c "mkdir $exported/1 && cd $exported/1 && for n in \$(seq 400); do : >\$n-$name; done"
	on_server sh -c "cd $exported && for n in \$(seq 2 64); do cp -al 1 \$n; done"
	before=$(($(messages_without_receive) + $(messages_without_receive on_server)))
	trace "$here/fileio.py" list_at_once "$dir" 400
	parts_in message 1
	for _ in $(seq 8); do
		echo 3 >/proc/sys/vm/drop_caches
		"$here/fileio.py" list_at_once "$dir" 400
	done
	[ "$(says connects)" = 1 ] || fail "it took $(says connects) connections"
	without=$(($(messages_without_receive) + $(messages_without_receive on_server) - before))
	[ $without = 0 ] || fail "$without messages found no Receive"
}

# attributes COMMAND BYTES...: runs the command of fileio.py on 24 files at a time, with each number of bytes in turn.
attributes() {
	what=$1
	shift
	children=
	for n in $(seq 24); do
		for bytes; do
			"$here/fileio.py" "$what" "$dir/$n" "$bytes" || exit
		done &
		children="$children $!"
	done
	for child in $children; do
		wait "$child" || fail "$what has failed"
	done
}

# A callback of the server is a message of version 2.
#= V2-168
server_calls_the_client() {
	with 2 2
	VERS=4.2
	mount_export
	trace has_a_callback
	grep -q '^xprtrdma_cb_call: ' "$local/events" || fail "no Call has come"
	grep -q '^xprtrdma_cb_reply: ' "$local/events" || fail "no Reply was sent"
	[ "$(says version)" = 2 ]
}

# in_two_namespaces VERSION: two network namespaces have a mount each, with connections of its own. The first mount goes
# on after the second namespace has ended.
in_two_namespaces() {
	VERS=$1
	with 2 2
	make_namespace
	mount_export nconnect=3
	begin_io 3
	mkdir "$local/mnt"
	inside unshare --mount sh -e -c '
		# For the server, NFSv4 in another namespace is another client.
		echo rpcrdma-test >/sys/fs/nfs/net/nfs_client/identifier
		mount -t nfs -o "proto=rdma,port=$1,vers=$2,nolock,nconnect=2" "$3" "$4"
		mkdir -p "$4/rpcrdma-test.ns"
		: >"$5"
		"$6" churn "$4/rpcrdma-test.ns" 2 "$5.stop"
		"$6" settled "$4/rpcrdma-test.ns"
		rm -r "$4/rpcrdma-test.ns"
		umount "$4"
	' sh "$PORT" "$1" "$SERVER:$EXPORT" "$local/mnt" "$local/ready" "$here/fileio.py" >"$local/inside" 2>&1 &
	process=$!
	for _ in $(seq 100); do
		[ ! -e "$local/ready" ] && alive $process || break
		sleep 0.2
	done
	sleep 3
	versions=$(sed -n 's/^version=//p' /sys/kernel/debug/rpcrdma/* | tr '\n' ' ')
	touch "$local/ready.stop"
	wait $process || {
		cat "$local/inside"
		fail "the mount of the other namespace has failed"
	}
	note "versions of all connections: $versions"
	[ "$versions" = "2 2 2 2 2 " ] || fail "there are not five connections of version 2"
	before=$(transport connect_count)
	ip netns delete rpcrdma-test
	sleep 1
	after=$(transport connect_count)
	end_io
	[ "$after" = "$before" ] || fail "the first namespace has lost a connection"
}

tests \
	"both_speak_it 3" \
	"both_speak_it 4.2" \
	"both_speak_it 3 in_band" \
	"both_speak_it 4.2 IPv6" \
	"messages_hold_a_page 3" \
	"messages_hold_a_page 4.2" \
	"server_invalidates_memory" \
	"client_speaks_version_1_only" \
	"credits_are_for_messages" \
	"few_credits_do" \
	"calls_go_in_parts" \
	"replies_come_in_parts" \
	"parts_share_the_credits" \
	"replies_in_parts_leave_receives" \
	"silent_server_is_asked" \
	"connections_break" \
	"sides_change_under_load" \
	"sides_change_in_band" \
	"server_calls_the_client" \
	"server_announces_version_1" \
	"server_is_asked_in_band" \
	"namespaces_remember_servers_apart" \
	"in_two_namespaces 3" \
	"in_two_namespaces 4.2"
