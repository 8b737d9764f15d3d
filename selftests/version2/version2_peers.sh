#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Version 2 of RPC-over-RDMA with a client and a server that were written from the document: caller2.py calls the server
# of this module, and peer2.py is between the client and the export.
. "$(dirname "$0")/../lib/lib.sh"

PEER_PORT=20051

# caller2 [NAME...]: runs all tests of caller2.py, or the named tests.
caller2() {
	"$here/caller2.py" "$SERVER" "$PORT" "$@" >"$local/caller.log" 2>&1 || {
		cat "$local/caller.log"
		fail "the server does not answer as it should"
	}
}

# All Calls in parts share one part of the server's memory.
all_calls_in_parts_share_memory() {
	with 2 2 65536
	needs_crowd
	make_files_to_call_for
	caller2 parts_of_more
	note "$(sed -n 's/^# //p' "$local/caller.log" | paste -sd ,)"
	[ "$(says last_close)" = none ]
}

# The announcement of a client decides only the length of the first Receives.
clients_announce_their_version() {
	with 2 2 16384
	needs_crowd
	caller2 announce
	note "$(grep -c '^ok' "$local/caller.log") ways"
}

# caller2.py, a client that was written from the document, opens connections in several ways and breaks rules.
others_speak_it() {
	with 2 2
	needs_crowd
	make_files_to_call_for
	caller2
	! grep SKIP "$local/caller.log" || fail "a test was skipped"
	ways=$(grep -c '^ok' "$local/caller.log")
	note "$ways ways"
	# A test that the program does not find any more is a failure.
	[ "$ways" -ge 59 ] || fail "there have been more"
	[ "$(says last_close)" = none ]
}

# mount_other_server WAY: mounts the export through peer2.py, a server that was written from the document.
mount_other_server() {
	start_peer peer2.py "$scratch/control" $$ "$1"
	defer other_server_goes $peer
	modprobe rpcrdma
	echo 2 >/proc/sys/sunrpc/rdma_max_version
	echo 4096 >/proc/sys/sunrpc/rdma_max_message
	# Servers that announce no version can be asked in-band only.
	case $* in silent | begins | called | version1 | *in_band) in_band 1 ;; esac
	PORT=$PEER_PORT VERS=3
	MOUNT_OPTIONS="mountproto=tcp,mountaddr=$SERVER,nolock,soft,timeo=100,retrans=2,noac"
	# Data goes in parts then, of which there are not more.
	[ "$1" != reads ] || MOUNT_OPTIONS=$MOUNT_OPTIONS,wsize=32768
	mount_export
	debugfs
}

# other_server_is WAY: peer2.py is between the client and the export.
#= V2-054, V2-062, V2-092
#= V2-101, V2-102, V2-105
#= V2-130, V2-151, V2-155
other_server_is() {
	mount_other_server "$@"
	expected=2
	case $1 in silent | version1) expected=1 ;; esac
	[ "$1" != version1 ] || [ "$(says connects)" = 1 ] || fail "it took $(says connects) connections"
	[ "$(says version)" = $expected ] || fail "they speak version $(says version)"
	moves_data
	# One refusal is enough: reads are refused since the last mount, or writes now.
	case $1 in reads | long | writes)
		head -c 8192 "$local/large" >"$dir/new"
		refused
		;;
	esac
	target=$(head -c 4000 /dev/zero | tr '\0' x)
	ln -s "$target" "$dir/link"
	remount
	[ "$(readlink "$dir/link")" = "$target" ]
	[ "$1" != replies ] || refused
	[ "$(transport bad_reply)" = 0 ] || fail "$(transport bad_reply) bad Replies"
	[ "$(says version)" = $expected ]
	kill -0 $peer || fail "the other server has found a fault"
}

# The client remembers the version of a server with the address of the connection, even if the transport has another
# address when the connection ends.
#= V2-062
other_server_moves() {
	mount_other_server called
	[ "$(cat $known)" = 1 ] || fail "$(cat $known) servers are known"
	needs_dstaddr
	# The connection is closed, and the next attempt finds no server.
	echo "$SERVER" >"$dstaddr"
	sleep 1
	echo "$address" >"$dstaddr"
	stat "$dir" >/dev/null
	debugfs
	note "$(cat $known) servers are known"
	[ "$(cat $known)" = 1 ] || fail "$(cat $known) servers are known after one"
}

# Fails unless the server has refused a Call, and the client has sent it in another form over the same connection.
refused() {
	grep -q "refuses a Call" "$scratch/peer2.py.log" || fail "no Call was refused"
	[ "$(says last_close)" = none ] || fail "the connection is over: $(says last_close)"
	[ "$(says connects)" = 1 ] || fail "it took $(says connects) connections"
}

# other_server_goes PROCESS
other_server_goes() {
	[ $status = 0 ] || tail -n 20 "$scratch/peer2.py.log"
	kill -0 "$1" 2>/dev/null || umount -f -l "$mnt"
	leave || :
	# The peer of the next test listens at the same port.
	end_process "$1"
	wait "$1" || :
	forget_servers
}

tests \
	"clients_announce_their_version" \
	"others_speak_it" \
	"all_calls_in_parts_share_memory" \
	"other_server_is plain" \
	"other_server_is plain in_band" \
	"other_server_is default" \
	"other_server_is unwilling" \
	"other_server_is late" \
	"other_server_is shrinks" \
	"other_server_is small" \
	"other_server_is one" \
	"other_server_is parts" \
	"other_server_is strange" \
	"other_server_is invalidates" \
	"other_server_is segments" \
	"other_server_is reads" \
	"other_server_is long" \
	"other_server_is inline" \
	"other_server_is writes" \
	"other_server_is replies" \
	"other_server_is silent" \
	"other_server_is begins" \
	"other_server_is called" \
	"other_server_moves" \
	"other_server_is version1"
