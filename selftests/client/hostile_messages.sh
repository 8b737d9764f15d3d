#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A server sends messages and Replies that break the rules. A bad message ends at most its own RPC or the connection,
# is counted, and changes no memory.
. "$(dirname "$0")/../lib/peer.sh"
. "$(dirname "$0")/../lib/events.sh"

# is_dropped COUNTER FAULT...: the client drops the message of each fault and counts it in COUNTER. The Reply that
# follows completes the RPC.
#= V1-092, V1-118
is_dropped() {
	counter=$1
	shift
	mount_through_the_peer
	connections=$(transport connect_count)
	for way; do
		strike "$way"
		grows "$counter" good
		outcome
		[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
		stays "$counter" good
	done
}

# takes_one_reply FAULT OTHERS: copies of a Reply are dropped before and after the end of the RPC.
#= V1-003, V1-089
takes_one_reply() {
	others=$2
	mount_through_the_peer
	connections=$(transport connect_count)
	strike "$1"
	good
	outcome
	# The copies come before this Reply.
	good
	set -- $(transport bad_messages bad_xids connect_count)
	note "bad_messages, bad_xids, connect_count: $*"
	[ $(($1 + $2)) = "$others" ] || fail "$others were too many"
	[ "$3" = "$connections" ] || fail "the connection was given up"
}

# fails_its_rpc FAULT...: each Reply ends its RPC with EIO. The connection stays.
#= V1-092, V1-098, NFS-005
#= NFS-006, NFS-046, NFS-055
#= V2-107, V2-141, V2-165
#= V2-178
fails_its_rpc() {
	mount_through_the_peer
	connections=$(transport connect_count)
	for way; do
		bad=$(transport bad_reply)
		strike "$way"
		! get || fail "the Reply was taken"
		cat "$local/dd"
		grep -q 'Input/output error' "$local/dd" || fail "ended otherwise"
		outcome
		[ "$(transport bad_reply)" = $((bad + 1)) ] || fail "not counted as a bad Reply"
		[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
		stays bad_reply good
	done
}

# fails_its_long_reply FAULT...: the same for a Reply in a Reply chunk.
#= V1-078
fails_its_long_reply() {
	mount_through_the_peer
	long_replies_fail "$@"
	good
}

# fails_its_reply_in_segments FAULT...: the same for a Reply chunk of several Segments.
#= V1-078
fails_its_reply_in_segments() {
	mount_4_0_through_the_peer
	long_replies_fail "$@"
}

long_replies_fail() {
	connections=$(transport connect_count)
	for way; do
		# Cached attributes of the directory are not valid any more.
		: >"$dir/$way"
		bad=$(transport bad_reply)
		strike "$way"
		! ls "$dir" || fail "the Reply was taken"
		outcome
		[ "$(transport bad_reply)" -gt "$bad" ] || fail "not counted as a bad Reply"
		[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
		stays bad_reply ls "$dir"
	done
}

# Bad Replies may arrive before the task that sent the Call waits for its Reply. The stack traces of the tracer delay
# the task.
fails_its_rpc_at_once() {
	mount_through_the_peer
	slower=/sys/kernel/tracing/events/sunrpc/rpc_task_run_action/trigger
	[ ! -e $slower ] || {
		defer set_to $slower '!stacktrace'
		set_to $slower stacktrace
	}
	set -- $(transport bad_reply bad_messages)
	connections=$(transport connect_count)
	exec 5<"$dir/file"
	strike bad_replies_to_the_next_calls
	"$here/fileio.py" ask 5 400
	outcome
	# A Reply that comes before its Call was sent fails no RPC.
	set -- "$@" $(transport bad_reply bad_messages)
	note "bad_reply, bad_messages: $1, $2 before, $3, $4 after"
	[ $(($3 + $4)) -ge $(($1 + $2 + 400)) ] || fail "the bad Replies are not counted"
	[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
	good
}

# costs_the_connection FAULT...: each fault ends the connection. The RPC is answered over the next connection.
#= CM-030, V2-065, V2-117
costs_the_connection() {
	mount_through_the_peer
	for way; do
		strike "$way"
		grows connect_count good
		outcome
		good
	done
}

# fails_with_its_connection FAULT...: each fault ends its RPC with EIO, and the connection.
#= V2-033
fails_with_its_connection() {
	mount_through_the_peer
	for way; do
		connections=$(transport connect_count)
		strike "$way"
		! get || fail "the Reply was taken"
		grep -q 'Input/output error' "$local/dd" || fail "ended otherwise: $(cat "$local/dd")"
		outcome
		good
		[ "$(transport connect_count)" -gt "$connections" ] || fail "the connection was kept"
	done
}

# is_answered FAULT=ERROR...: the client answers each message by this error of version 2. The connection stays.
#= V2-142, V2-171
is_answered() {
	mount_through_the_peer
	connections=$(transport connect_count)
	for way; do
		strike "${way%=*}"
		grows bad_messages good
		outcome | grep -x "error ${way#*=}" || fail "${way%=*}: $(outcome)"
		[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
	done
}

# does_no_harm FAULT...: all RPCs are answered over the same connection.
#= V2-107
does_no_harm() {
	mount_through_the_peer
	connections=$(transport connect_count)
	for way; do
		strike "$way"
		good
		outcome
		read_side_by_side
		good
		[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
	done
}

# A refused Call is sent again as a Long Call. The second refusal ends the RPC.
#= V2-152
ends_when_it_is_refused_twice() {
	mount_through_the_peer
	connections=$(transport connect_count)
	strike refuses_a_call_twice
	! dd if="$local/file" of="$dir/file" bs=$SIZE oflag=direct 2>"$local/dd" || fail "the write has succeeded"
	grep 'Input/output error' "$local/dd" || fail "ended otherwise: $(cat "$local/dd")"
	outcome | grep -x 'the same Call: True, Positions {0}' || fail "$(outcome)"
	[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
	good
}

# makes_no_difference FAULT...: the client accepts each Reply.
makes_no_difference() {
	mount_through_the_peer
	for way; do
		strike "$way"
		stays "bad_reply connect_count" good
		outcome
		read_side_by_side
		good
	done
}

#= V1-109
a_small_result_comes_inline() {
	mount_through_the_peer
	head -c 1001 "$local/file" >"$local/small"
	cp "$local/small" "$dir/small"
	strike result_inline
	dd if="$dir/small" of="$local/got" bs=$SIZE iflag=direct
	outcome
	cmp "$local/got" "$local/small"
}

#= V1-065
a_reply_chunk_without_unused_segments() {
	mount_4_0_through_the_peer
	: >"$dir/another"
	strike reply_chunk_cut_to_what_is_used
	stays bad_reply ls "$dir" >"$local/list"
	outcome
	grep -qx another "$local/list"
}

# comes_inline FAULT=BYTES...: the result of a READ of BYTES bytes from an unaligned offset comes in the message.
#= V1-045, V1-046, V1-078
comes_inline() {
	mount_through_the_peer
	for way; do
		bytes=${way#*=}
		strike "${way%=*}"
		stays "bad_reply connect_count" dd if="$dir/file" of="$local/got" bs="$bytes" skip=1 count=1 iflag=direct
		outcome
		dd if="$local/file" of="$local/wanted" bs="$bytes" skip=1 count=1
		cmp "$local/got" "$local/wanted"
		good
	done
}

# Bytes of the message that follow the results do not overwrite the results.
#= V1-068
a_pad_after_the_results_does_no_harm() {
	mount_through_the_peer
	strike pad_in_the_message
	stays "bad_reply connect_count" dd if="$dir/file" of="$local/got" bs=5001 count=1 iflag=direct
	outcome
	head -c 5001 "$local/file" | cmp - "$local/got"
	good
}

# A READ whose Write chunk is returned unused yields no data.
#= V1-068
an_unused_write_chunk_yields_no_data() {
	mount_through_the_peer
	strike nothing_written
	! get || [ ! -s "$local/got" ] || fail "took $(wc -c <"$local/got") octets"
	cat "$local/dd"
	outcome
	good
}

# mutations_do_no_harm COUNT: each READ ends, a READ that succeeds has the right data, and the mount goes on working.
mutations_do_no_harm() {
	mount_through_the_peer timeo=5,retrans=1
	strike mutations "$1"
	reads=0
	taken=0
	until [ -e "$control.done" ] && [ "$(wc -l <"$control.done")" -ge "$1" ]; do
		reads=$((reads + 1))
		[ $reads -le $((2 * $1)) ] || fail "the peer has not answered $1 of $reads READs"
		if get; then
			taken=$((taken + 1))
			cmp -n "$(wc -c <"$local/got")" "$local/got" "$local/file"
		fi
	done
	note "$taken of $reads READs were taken; bad_reply, bad_xids, connect_count:" \
		"$(transport bad_reply bad_xids connect_count)"
	good
}

events_of_bad_messages() {
	mount_through_the_peer
	on_side client
	peer="addr == \"$address\" && port == \"$PEER_PORT\""
	expect xprtrdma_err_vers "$task && xid != 0 && min == 2 && max == 3"
	expect xprtrdma_err_chunk "$task && xid != 0"
	expect xprtrdma_err_unrecognized "$task && procedure == 77"
	expect xprtrdma_reply_rqst_err "xid != 0 && version == 1 && proc == 0 && $peer"
	expect xprtrdma_reply_short_err "$peer"
	expect xprtrdma_reply_vers_err "xid != 0 && version == 2 && $peer"
	for way in error_version error_chunk error_unknown; do
		strike $way
		! get || fail "the Reply was taken"
		outcome
	done
	for way in twice flood other_version; do
		strike $way
		get || :
		outcome
	done
	came
}

tests_with_faults \
	"events_of_bad_messages" \
	"fails_its_rpc_at_once" \
	"takes_one_reply twice 1" \
	"takes_one_reply many_times_at_once 31" \
	"a_small_result_comes_inline" \
	"a_reply_chunk_without_unused_segments" \
	"a_pad_after_the_results_does_no_harm" \
	"an_unused_write_chunk_yields_no_data" \
	"mutations_do_no_harm ${MUTATIONS:-200}" \
	"in_version_2 takes_one_reply twice 1" \
	"in_version_2 a_small_result_comes_inline" \
	"in_version_2 ends_when_it_is_refused_twice"
