#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Records the inputs and results of the protocol core of a client or a server, in a run with
# messages of every form, callbacks of the server and connections that break. tools/check/replay
# repeats the calls. RECORD names the output file, SIDE is client or server.
. "$(dirname "$0")/../lib/lib.sh"

RECORD=${RECORD:-/out/protocol.trace}
SIDE=${SIDE:-client}
tracing=/sys/kernel/tracing
instance=$tracing/instances/rpcrdma-record

# recorder SCRIPT: where the module is that is recorded.
recorder() {
	case $SIDE in
	client) sh -ec "$1" ;;
	server) on_server sh -ec "$1" ;;
	esac
}

start_recording() {
	defer stop_recording
	# The events exist while the module is loaded. The trace clock is a counter: the order of the
	# events is the order of the calls on all processors.
	recorder "modprobe rpcrdma
		mountpoint -q $tracing || mount -t tracefs tracefs $tracing
		mkdir $instance
		echo 32768 >$instance/buffer_size_kb
		echo counter >$instance/trace_clock
		for event in $instance/events/rpcrdma/rpcrdma_protocol_*/enable; do
			echo 1 >\$event
		done"
}

stop_recording() {
	recorder "! [ -d $instance ] || rmdir $instance"
}

# has SIGN...: the record must have all these signs.
has() {
	for sign; do
		count=$(grep -c "rpcrdma_$sign" "$RECORD") || fail "nothing of $sign was recorded"
		note "$count times $sign"
	done
}

# The results of the last test are the input of the replay.
save() {
	recorder "cat $instance/trace" >"$RECORD"
	stats=$(recorder "cat $instance/per_cpu/*/stats")
	echo "$stats" | grep -q '^overrun: 0' || fail "the ring buffer has no statistics"
	! echo "$stats" | grep '^\(overrun\|dropped events\): [1-9]' || fail "events were lost"
	has protocol_config 'protocol_connect: .* recv=' 'protocol_send: .* nomsg=0' \
		'protocol_message: .* event=reply' 'protocol_message: .* event=call' \
		'protocol_send: .* call=0 nomsg=0 more=0 result=0' protocol_ended protocol_lost
	case $RDMA_VERSION in
	1)
		has 'protocol_send: .* nomsg=1'
		[ $SIDE = client ] || has protocol_refuse
		;;
	2) has protocol_transmit protocol_sent protocol_posted ;;
	esac
	[ "$RDMA_VERSION" = 1 ] || [ $SIDE = server ] || has 'protocol_send: .* more=1' protocol_timeout
	[ $SIDE = client ] || has 'protocol_connect: .* first=0' 'protocol_send: .* call=1 nomsg=0' \
		'protocol_message: .* event=refused' protocol_grants protocol_ceiling protocol_transmit
}

breaks_the_connection() {
	before=$(transport connect_count)
	on_server rpc.nfsd 0
	sleep 0.5
	on_server rpc.nfsd
	"$here/fileio.py" put "$here/lib.sh" "$dir/after" 1000
	[ "$(transport connect_count)" -gt "$before" ]
}

# breaks PROGRAM NAME...
breaks() {
	program=$1
	shift
	"$here/$program" "$SERVER" "$PORT" "$@" >"$local/caller" 2>&1 || {
		cat "$local/caller"
		exit 1
	}
}

# Headers that are no good, and Calls that a server has to refuse (caller.py, caller2.py).
breaks_rules() {
	needs_crowd
	case $RDMA_VERSION in
	1)
		breaks caller.py other_ presence_words two_payloads positions short_messages \
			errors_of_the_client replies_to_nothing
		;;
	*)
		breaks caller2.py opens_ grants_without_payload properties_that_are_malformed \
			more_messages_than_credits
		;;
	esac
}

everything() {
	needs_server_command
	start_recording
	head -c 1048576 /dev/urandom >"$local/large"
	for version in 4.2 3; do
		VERS=$version
		mount_export
		[ $version = 3 ] || has_a_callback
		for bytes in 10 4000 65533 1048576; do
			head -c $bytes "$local/large" >"$local/file"
			"$here/fileio.py" put "$local/file" "$dir/file" $bytes
			"$here/fileio.py" get "$local/file" "$dir/file" $bytes
		done
		for n in $(seq 100); do
			: >"$dir/a-name-long-enough-to-fill-a-reply-soon-$n"
		done
		remount
		[ "$(ls "$dir" | wc -l)" = 101 ]
		[ $version = 3 ] || {
			"$here/fileio.py" setxattr "$dir/file" 16000
			"$here/fileio.py" checkxattr "$dir/file" 16000
		}
		breaks_the_connection
		leave
	done
	[ $SIDE = client ] || breaks_rules
	sleep 1
	save
}

tests "everything"
