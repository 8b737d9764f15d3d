#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# A server that breaks the rules (peer.py, faults.py; peer2.py, faults2.py in version 2) is between the
# client and the export. A bad message costs at most its own RPC or the connection, is counted, and
# reaches no memory.
. "$(dirname "$0")/lib.sh"

PEER=peer.py
PEER_PORT=20050
WAY=
SIZE=16384

# in_version_2 TEST ARGUMENT...: a test, with a server that speaks version 2.
in_version_2() {
	PEER=peer2.py PEER_PORT=20052 WAY=plain
	modprobe rpcrdma
	version=/proc/sys/sunrpc/rdma_max_version
	[ -e $version ] || skip "this module speaks version 1 only"
	trap 'echo 1 >$version' EXIT
	echo 2 >$version
	"$@"
}

# negotiated TEST ARGUMENT...: the client negotiates the version in-band, behind in_version_2.
negotiated() {
	in_band 1
	"$@"
}

start_the_peer() {
	control=$scratch/control.$PEER
	rm -f "$control" "$control.go"
	address=$(source_of "$SERVER")
	peer_runs || start_the_script
	trap 'leave_the_peer $?' EXIT
}

# Mounts through the peer, with a file that is known.
mount_through_the_peer() {
	mount_through_the_peer_with 3 \
		"mountproto=tcp,mountaddr=$SERVER,nolock,soft,timeo=100,retrans=2,noac${1:+,$1}"
	head -c $SIZE /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	good
}

peer_runs() {
	[ -e "$scratch/$PEER.pid" ] && kill -0 "$(cat "$scratch/$PEER.pid")" 2>/dev/null
}

# It serves all tests and ends after this program.
start_the_script() {
	start_peer $PEER "$control" $$ $WAY
	echo $peer >"$scratch/$PEER.pid"
}

# With a backchannel, which version 3 has not.
mount_4_1_through_the_peer() {
	mount_through_the_peer_with 4.1 soft,timeo=100,retrans=2,noac
}

# mount_through_the_peer_with VERSION OPTIONS
mount_through_the_peer_with() {
	peer_runs && [ -n "${control:-}" ] || start_the_peer
	PORT=$PEER_PORT VERS=$1 MOUNT_OPTIONS=$2
	mount_export
}

# leave_the_peer STATUS
leave_the_peer() {
	# Without a server nothing but this leaves the mount.
	peer_runs || umount -f -l "$mnt"
	[ $PEER = peer.py ] || echo 1 >$version
	[ "$1" = 0 ] || {
		tail -n 20 "$scratch/$PEER.log"
		grep -s "^\(connects\|last_\)" /sys/kernel/debug/rpcrdma/* || :
	}
	exit "$1"
}

# strike FAULT [TIMES]: the next Reply that suits the fault has it.
strike() {
	rm -f "$control.done"
	fault=$1
	struck=$(times_struck)
	echo "$1 ${2:-1}" >"$control.new"
	mv "$control.new" "$control"
}

times_struck() {
	grep -c "^$fault\$" "$scratch/$PEER.log" || :
}

# The peer has the Call whose Reply has the fault.
asked_for() {
	for _ in $(seq 200); do
		[ "$(times_struck)" = "$struck" ] || return 0
		sleep 0.1
	done
	fail "nothing was asked for"
}

# The outcome of the fault, which must have happened.
outcome() {
	for _ in $(seq 200); do
		[ ! -e "$control.done" ] || break
		sleep 0.1
	done
	[ -e "$control.done" ] || fail "the fault has not happened"
	cat "$control.done"
}

# One READ.
get() {
	dd if="$dir/file" of="$local/got" bs=$SIZE count=1 iflag=direct 2>"$local/dd"
}

good() {
	get && cmp "$local/got" "$local/file"
}

# is_dropped COUNTER FAULT...: each means nothing to any RPC, is counted and dropped, and the Reply after
# it is taken.
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

# Whether the RPC has ended yet or not.
#= V1-003, V1-089
takes_one_reply_of_many() {
	mount_through_the_peer
	strike many_times_at_once
	good
	outcome
	good
	set -- $(transport bad_messages bad_xids connect_count)
	note "bad_messages, bad_xids, connect_count: $*"
	[ $(($1 + $2)) = 31 ] || fail "31 were too many"
	[ "$3" = 1 ] || fail "the connection was given up"
}

# fails_its_rpc FAULT...: each ends its RPC with an error, and nothing but that.
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

#= V1-078
fails_its_long_reply() {
	mount_through_the_peer
	connections=$(transport connect_count)
	for way; do
		# Cached attributes of the directory are not valid any more.
		: >"$dir/$way"
		bad=$(transport bad_reply)
		strike "reply_chunk_$way"
		! ls "$dir" || fail "the Reply was taken"
		outcome
		[ "$(transport bad_reply)" -gt "$bad" ] || fail "not counted as a bad Reply"
		[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
		ls "$dir"
		stays bad_reply good
	done
}

# Bad Replies may arrive before the task that sent the Call waits for its Reply. Recording the state
# of a task makes it slower.
fails_its_rpc_at_once() {
	mount_through_the_peer
	slower=/sys/kernel/tracing/events/sunrpc/rpc_task_run_action/trigger
	trap 'status=$?; [ ! -e $slower ] || echo "!stacktrace" >$slower; leave_the_peer $status' EXIT
	[ ! -e $slower ] || echo stacktrace >$slower
	set -- $(transport bad_reply bad_messages)
	connections=$(transport connect_count)
	exec 5<"$dir/file"
	strike bad_replies_to_the_next_calls
	"$here/io.py" ask 5 400
	outcome
	# A Reply that comes before its Call was sent fails no RPC.
	set -- "$@" $(transport bad_reply bad_messages)
	note "bad_reply, bad_messages: $1, $2 before, $3, $4 after"
	[ $(($3 + $4)) -ge $(($1 + $2 + 400)) ] || fail "the bad Replies are not counted"
	[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
	good
}

# The connection ends, and the RPC is answered over the next one.
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

# fails_with_its_connection FAULT...: each ends its RPC with an error, and the connection.
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

# is_answered FAULT=ERROR...: each is refused with such an error of version 2, and that is all.
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

# does_no_harm FAULT...: no RPC and no connection suffers.
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

# begins_with FAULT...: the private data of the server on its next connection, which must not affect
# the following connection.
begins_with() {
	mount_through_the_peer
	for way; do
		strike "$way"
		grows connect_count good
		outcome
		read_side_by_side
		head -c $SIZE /dev/urandom >"$local/file"
		dd if="$local/file" of="$dir/file" bs=$SIZE oflag=direct
		good
	done
}

# opens_with ANNOUNCEMENT=VERSION...: each connection is opened with the version that the announcement in
# the private data of the server allows. The server ends if a client opens with another one.
#= VA-005, VA-006, VA-007
#= VA-008
opens_with() {
	mount_through_the_peer
	[ "$(says version) $(says announced)" = "2 2" ] || fail "they speak version $(says version)"
	for way; do
		strike "announces_${way%=*}"
		grows connect_count good
		outcome
		[ "$(says version)" = "${way#*=}" ] || fail "version $(says version) after $way"
		read_side_by_side
		head -c $SIZE /dev/urandom >"$local/file"
		dd if="$local/file" of="$dir/file" bs=$SIZE oflag=direct
		good
	done
}

# The device refuses the access, which ends the connection; nothing has changed.
#= V1-088, V1-089, V1-140
#= V1-141, V2-081, V2-181
is_refused() {
	mount_through_the_peer
	strike "$1"
	grows connect_count good
	outcome | grep 'ended with status 10$' || fail "not refused"
	good
}

# A protection domain belongs to one connection: a peer that uses a handle of another connection
# loses its own connection, and the RPC that has provided the memory gets the data of its own
# server.
#= V1-139, V2-180
is_refused_on_another_connection() {
	mount_through_the_peer
	connections=$(transport connect_count)
	other=$control.other
	rm -f "$control.handle" "$other" "$other.done"
	"$here/peer.py" "$address" 20053 "$SERVER" "$other" $$ >"$scratch/other.log" 2>&1 &
	stranger=$!
	trap 'status=$?; umount -f "$scratch/other"; kill $stranger; leave_the_peer $status' EXIT
	mkdir -p "$scratch/other"
	for _ in $(seq 600); do
		! grep -q listening "$scratch/other.log" || break
		sleep 0.1
	done
	mount -t nfs -o "proto=rdma,port=20053,vers=3,$MOUNT_OPTIONS" "$address:$EXPORT" "$scratch/other"
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

is_refused_when_writing() {
	mount_through_the_peer
	strike "$1"
	head -c $SIZE /dev/urandom >"$local/file"
	grows connect_count dd if="$local/file" of="$dir/file" bs=$SIZE oflag=direct
	outcome | grep 'ended with status 10$' || fail "not refused"
	good
}

# The data of a Call that is refused go again as a Long Call, and the second refusal ends the RPC.
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

makes_no_difference() {
	mount_through_the_peer
	strike "$1"
	stays "bad_reply connect_count" good
	outcome
	read_side_by_side
	good
}

# Eight readers, each with many READs.
read_side_by_side() {
	readers=
	for _ in 1 2 3 4 5 6 7 8; do
		dd if="$dir/file" bs=512 iflag=direct 2>/dev/null | cmp - "$local/file" &
		readers="$readers $!"
	done
	for reader in $readers; do
		wait "$reader"
	done
}

#= V1-035, V1-036, V1-037
calls_keep_to_the_grant() {
	mount_through_the_peer
	strike "grant_of_$1"
	good
	outcome
	strike count_calls
	read_side_by_side
	outcome | grep "^$2 Calls"
}

#= V1-042, V1-043
the_first_call_goes_alone() {
	mount_through_the_peer
	strike first_call 2
	read_side_by_side
	outcome | grep '^1 Calls'
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
a_long_reply_returns_what_it_used() {
	mount_through_the_peer
	: >"$dir/another"
	strike reply_chunk_cut_to_what_is_used
	stays bad_reply ls "$dir"
	outcome
	good
}

#= V1-065
a_link_returns_what_it_used() {
	mount_through_the_peer
	target=$(head -c 1500 /dev/zero | tr '\0' x)
	ln -s "$target" "$dir/link"
	remount
	strike link_cut_to_what_is_used
	stays bad_reply readlink "$dir/link" >"$local/link"
	outcome
	grep -qx "$target" "$local/link"
}

# comes_inline FAULT BYTES: a READ of BYTES at an odd place, with the result in the message.
#= V1-045, V1-046, V1-078
comes_inline() {
	mount_through_the_peer
	strike "$1"
	stays "bad_reply connect_count" dd if="$dir/file" of="$local/got" bs="$2" skip=1 count=1 iflag=direct
	outcome
	dd if="$local/file" of="$local/wanted" bs="$2" skip=1 count=1
	cmp "$local/got" "$local/wanted"
	good
}

# Bytes of the message behind the results are put behind them, not over them.
#= V1-068
what_follows_the_results_does_no_harm() {
	mount_through_the_peer
	strike pad_in_the_message
	stays "bad_reply connect_count" dd if="$dir/file" of="$local/got" bs=5001 count=1 iflag=direct
	outcome
	head -c 5001 "$local/file" | cmp - "$local/got"
	good
}

# Unused memory of a Write chunk is not a result.
#= V1-068
nothing_is_made_of_an_unused_chunk() {
	mount_through_the_peer
	strike nothing_written
	! get || [ ! -s "$local/got" ] || fail "took $(wc -c <"$local/got") octets"
	cat "$local/dd"
	outcome
	good
}

#= V1-031
arguments_stay_until_the_reply() {
	mount_through_the_peer
	strike read_again
	cp "$local/file" "$dir/file"
	outcome | grep 'the same'
	good
}

# The memory of an RPC that is given up is not the server's any more either.
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

# The process that has listed the directory, and waits for the Reply.
list_and_be_killed() {
	ls "$dir" >"$local/names" &
	reader=$!
	asked_for
	sleep 0.5
	kill -KILL $reader
	was_killed $reader
}

read_in_the_background() {
	dd if="$dir/file" of="$local/$1" bs=$SIZE count=1 iflag=direct &
}

# A Reply is valid only for a Call that was sent. This includes the slot of a Call whose process was
# killed, and whose own Reply may still arrive. The state "sent" must end with the process.
#= V1-003, V1-092
a_reply_to_an_unsent_call_is_dropped() {
	mount_through_the_peer
	strike grant_of_one
	good
	outcome
	bad=$(transport bad_messages)
	strike reply_before_its_call
	ls "$dir" >"$local/names" &
	reader=$!
	asked_for
	read_in_the_background one
	one=$!
	sleep 0.5
	kill -KILL $reader
	was_killed $reader
	read_in_the_background two
	two=$!
	sleep 0.5
	: >"$control.go"
	wait $one
	wait $two
	outcome >"$local/outcome"
	cat "$local/outcome"
	grep '^0 Calls' "$local/outcome" || fail "a Reply that is none gave the credit back"
	! grep ', 0 after' "$local/outcome" || fail "a Call was not sent"
	cmp "$local/one" "$local/file"
	cmp "$local/two" "$local/file"
	[ "$(transport bad_messages)" -gt "$bad" ] || fail "the Reply is not counted"
	good
}

# The peer may still process Calls whose tasks have ended.
#= V1-035, V1-036, V1-037
killed_calls_count_against_the_grant() {
	mount_through_the_peer
	strike grant_of_one
	good
	outcome
	strike reply_to_the_dead
	list_and_be_killed
	read_in_the_background one
	one=$!
	: >"$control.go"
	wait $one
	outcome | grep '^0 Calls' || fail "more Calls than granted"
	cmp "$local/one" "$local/file"
	stays "bad_reply connect_count" good
}

# The Reply comes when the task has taken its request off the receive queue and still has its credit. A
# module that was built with BOUNCE=y waits there (rust/standins/pause.c); with others the task mostly
# has gone. PAUSES=1 says that it is such a module.
#= V1-036, V1-037
a_reply_crosses_its_killed_call() {
	mount_through_the_peer
	strike grant_of_one
	good
	outcome
	connections=$(transport connect_count)
	strike reply_to_the_dying
	ls "$dir" >"$local/names" &
	reader=$!
	asked_for
	sleep 0.5
	strays=$(transport bad_xids)
	kill -KILL $reader
	sleep 0.2
	: >"$control.go"
	for _ in $(seq 200); do
		[ "$(transport bad_xids)" = "$strays" ] || break
		sleep 0.02
	done
	if alive $reader; then
		note "the Reply has come before the end of the task"
	else
		[ -z "${PAUSES:-}" ] || fail "the task has not waited"
	fi
	[ "$(transport bad_xids)" -gt "$strays" ] || fail "the Reply has not come"
	was_killed $reader
	outcome
	# The one credit that there is, and no other connection.
	timeout 5 "$here/io.py" get "$local/file" "$dir/file" $SIZE || fail "the credit is lost"
	[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
}

# Nothing of an old connection counts against the grant of a new one.
#= V1-037
a_new_connection_owes_nothing() {
	mount_through_the_peer
	strike grant_of_one
	good
	outcome
	strike silence_to_the_dead
	list_and_be_killed
	read_in_the_background one
	one=$!
	: >"$control.go"
	wait $one
	outcome
	cmp "$local/one" "$local/file"
	stays connect_count good
}

#= V1-024, V1-117, V1-119
#= V1-120, V1-123, V1-132
callbacks_are_answered() {
	mount_4_1_through_the_peer
	"$@"
	connections=$(transport connect_count)
	strike callbacks_one_by_one
	: >"$dir/file"
	outcome | grep -Fx 'all were answered, with credits and accepted: {(16, True)}'
	[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
}

# The next connection carries the same number of Calls and Replies as the first.
#= V1-124
lose_the_connection() {
	strike first_call 2
	grows connect_count ls "$dir"
	outcome
}

# Calls wait for the single credit; the Reply to a callback needs no credit.
#= V1-119
callbacks_need_no_credit() {
	mount_4_1_through_the_peer
	head -c 512 /dev/urandom >"$local/small"
	cp "$local/small" "$dir/small"
	strike session_with_one_credit
	get_a_small_one
	outcome
	strike callback_before_the_reply
	readers=
	for _ in 1 2 3 4; do
		get_a_small_one &
		readers="$readers $!"
	done
	for reader in $readers; do
		wait "$reader"
	done
	outcome | grep -x 'answered, with 0 Calls beyond the grant'
	strike callback_before_the_reply
	get_a_small_one
	outcome | grep '^answered'
}

# It ends the RPC, and the session gets over the slot that has seen no Reply.
#= NFS-055, NFS-060
a_session_outlives_an_error() {
	mount_4_1_through_the_peer
	head -c 512 /dev/urandom >"$local/small"
	cp "$local/small" "$dir/small"
	connections=$(transport connect_count)
	strike error_in_a_session
	! get_a_small_one || fail "the Reply was taken"
	outcome
	get_a_small_one
	[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
}

get_a_small_one() {
	dd if="$dir/small" bs=512 iflag=direct 2>/dev/null | cmp - "$local/small"
}

# Nothing of a callback stays: with the last mount the module can go.
callbacks_leave_nothing() {
	mount_4_1_through_the_peer
	strike callbacks_at_once
	ls "$dir"
	outcome
	leave
	module_goes
}

module_goes() {
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		! modprobe -r rpcrdma 2>"$local/unload" || return 0
		sleep 0.5
	done
	cat "$local/unload"
	fail "something holds the module"
}

# The longest callback of a server fits the client's Receives, including the header.
#= V1-129, V1-117
session_asks_for_callbacks_that_fit() {
	start_the_peer
	strike session
	mount_4_1_through_the_peer
	outcome >"$local/session"
	cat "$local/session"
	limit=$(sed 's/.* is //' "$local/session")
	request=$(sed 's/requests of \([0-9]*\).*/\1/' "$local/session")
	[ "$request" -le $((limit - 28)) ] || fail "callbacks of $request bytes are too long"
	[ "$request" -ge $((limit / 2)) ] || fail "callbacks of $request bytes are too short"
	grep ', 16 at once' "$local/session"
}

# RFC 8797's private data, with the announcement of the version behind them; any number of RDMA
# Reads of the server; a message without a Receive breaks the connection instead of being repeated.
#= CM-001, CM-009, CM-014
#= VA-001, VA-004, V1-006
#= V1-032, V1-122
connection_request() {
	mount_through_the_peer
	strike tell
	good
	outcome >"$local/request"
	cat "$local/request"
	grep "^$(cat /proc/sys/sunrpc/rdma_slot_table_entries) credits" "$local/request"
	announcement=d8cc59e201010000
	# The kernel's own module has none.
	[ -e /proc/sys/sunrpc/rdma_max_version ] || announcement=
	grep "private data f6ab0e1801010303$announcement" "$local/request"
	grep 'RNR retries 0, retries [1-7]$' "$local/request"
	[ "$(sed 's/.*Reads \([0-9]*\).*/\1/' "$local/request")" -ge 8 ] || fail "so few Reads"
}

# The server can take 4096 bytes, which is more than the default.
#= V1-047, CM-009
what_the_server_announces_is_used() {
	mount_through_the_peer
	cp "$local/file" "$dir/file"
	stays read_segments dd if="$local/file" of="$dir/file" bs=3000 count=1 oflag=direct conv=notrunc
	good
}

#= V1-089, V1-140, V2-181
#= V2-182
memory_never_has_the_same_name_again() {
	mount_through_the_peer
	strike segments_of_reads 170
	for _ in $(seq 45); do
		dd if="$dir/file" bs=4096 iflag=direct 2>/dev/null | cmp - "$local/file"
	done
	outcome | tail -n 1 | grep '^170 handles, 170 upper halves'
	[ "$(transport connect_count)" = 1 ] || fail "a Receive is lost with each of them"
}

# Each Receive is there for its Reply, and none is sent twice.
#= V1-123
takes_replies_at_once() {
	mount_through_the_peer
	"$@"
	connections=$(transport connect_count)
	strike replies_at_once
	readers=
	for n in $(seq 40); do
		dd if="$dir/file" of="$local/$n" bs=$SIZE count=1 iflag=direct &
		readers="$readers $!"
	done
	for reader in $readers; do
		wait "$reader"
	done
	outcome >"$local/outcome"
	cat "$local/outcome"
	[ "$(cut -d ' ' -f 1 "$local/outcome")" -gt 16 ] || fail "too few to test anything"
	for n in $(seq 40); do
		cmp "$local/$n" "$local/file"
	done
	[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
}

# The number of the client's resources of each kind on the device.
resources() {
	for kind in cq mr pd cm_id; do
		shown=$(rdma resource show $kind)
		echo "$shown" | awk '/\[rpcrdma\]/ { n++ } END { print n + 0 }'
	done
}

connections_leave_nothing() {
	needs rdma
	[ -z "$(resources | tr -d '0\n')" ] || skip "another NFS/RDMA mount is there"
	mount_through_the_peer
	resources >"$local/first"
	for _ in 1 2 3 4 5; do
		strike hang_up
		good
		outcome
	done
	resources >"$local/last"
	note "completion queues, registrations, protection domains, ids:" $(cat "$local/last")
	cmp "$local/first" "$local/last"
	unmount
	for _ in 1 2 3 4 5; do
		[ -n "$(resources | tr -d '0\n')" ] || return 0
		sleep 0.5
	done
	resources
	fail "something is left"
}

# A connection that ends is noticed when it does, and not by the next Call.
#= CM-030
notices_the_end_of_an_idle_connection() {
	mount_through_the_peer
	strike hang_up_afterwards
	good
	outcome
	sleep 0.5
	state=$(grep -l "^$address\$" /sys/kernel/sunrpc/xprt-switches/*/xprt-*rdma/dstaddr) ||
		skip "this kernel's sunrpc has no sysfs"
	cat "${state%dstaddr}xprt_state"
	! grep -w CONNECTED "${state%dstaddr}xprt_state" || fail "not noticed"
	good
}

# The session has 16 slots, but with no more than 16 places the connection would break here.
#= V1-117, NFS-050
more_callbacks_than_slots() {
	mount_4_1_through_the_peer
	connections=$(transport connect_count)
	strike callbacks_at_once
	ls "$dir"
	outcome | grep '^24 of 24.* 0\.[4-9] s'
	[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
}

# The service for callbacks ends before the transport does: a thread that takes callbacks at that
# time must not need a reference to the transport. The window is narrow: many rounds, or two
# processors, find more.
callbacks_while_the_mount_goes() {
	reports=$(dmesg | grep -c 'refcount_t' || true)
	for _ in $(seq "$1"); do
		mount_4_1_through_the_peer
		strike callbacks_after_the_end
		unmount
		outcome
	done
	[ "$(dmesg | grep -c 'refcount_t' || true)" = "$reports" ] || fail "a reference was dropped twice"
}

# RFC 8797: invalid private data mean the defaults. The peer ends if a Call is longer than the
# defaults.
#= V1-019, V1-042, V1-047
#= CM-001, CM-009, CM-020
#= CM-023
connects_with() {
	mount_through_the_peer
	strike "$1"
	grows connect_count good
	outcome
	cp "$local/file" "$dir/another"
	remount
	cmp "$local/file" "$dir/another"
	ls "$dir"
}

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

# Devices handle a second invalidation differently; soft RDMA devices ignore it.
memory_is_invalidated_twice() {
	mount_through_the_peer
	strike invalidate_twice
	good
	outcome
	good
	good
}

#= V1-102, NFS-059
a_lost_reply_is_asked_for_again() {
	mount_through_the_peer timeo=20
	strike silence
	grows connect_count good
	outcome
	set -- $(transport sends receives)
	[ "$1" = $(($2 + 1)) ] || fail "$1 sent and $2 received, when one has got lost"
	stays connect_count good
}

#= V1-102, NFS-061
the_same_call_comes_again() {
	mount_through_the_peer
	strike the_same_call 2
	grows connect_count good
	outcome | tail -n 1 | grep -x 'the same Call'
}

# With a single credit, the tasks that wait for it cannot detect a silent server. The Call that has
# the credit times out.
#= V1-102, NFS-059
a_silent_server_is_found_without_a_credit() {
	mount_through_the_peer timeo=20
	strike grant_of_one
	good
	outcome
	strike silence
	connections=$(transport connect_count)
	read_in_the_background one
	one=$!
	read_in_the_background two
	wait $one
	wait $!
	outcome
	[ "$(transport connect_count)" -gt "$connections" ] || fail "the connection was kept"
	[ "$(says last_close)" = "no Reply in time" ] || fail "it was closed for: $(says last_close)"
	cmp "$local/one" "$local/file"
	cmp "$local/two" "$local/file"
}

# The credit of a killed Call does not stay away for ever: a Reply may take a minute.
#= V1-102
a_killed_call_without_a_reply_costs_the_connection() {
	[ -n "${LONG:-}" ] || skip "takes more than a minute: set LONG"
	mount_through_the_peer
	strike grant_of_one
	good
	outcome
	connections=$(transport connect_count)
	strike no_reply_at_all
	list_and_be_killed
	sleep 50
	[ "$(says last_close)" = none ] || fail "too early"
	sleep 20
	[ "$(says last_close)" = "no Reply in time" ] || fail "it was closed for: $(says last_close)"
	good
	[ "$(transport connect_count)" = $((connections + 1)) ]
}

# Of a silent server many Calls are overdue at once. They cost the connection that they were sent on,
# and not the next.
#= V1-102, NFS-059
calls_overdue_together_cost_one_connection() {
	mount_through_the_peer timeo=20,rsize=1024
	connections=$(transport connect_count)
	strike silence 16
	good
	outcome
	[ "$(transport connect_count)" = $((connections + 1)) ] ||
		fail "$(($(transport connect_count) - connections)) connections were lost"
	# No Call is overdue.
	sleep 5
	good
	[ "$(transport connect_count)" = $((connections + 1)) ] || fail "the next connection was lost, too"
}

# For any Reply, every read ends, a read that succeeds has no wrong byte, and the mount continues to
# work.
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

set --
for fault in write_after_the_end write_behind_the_chunk write_before_the_chunk \
	read_from_a_write_chunk guessed_handle; do
	set -- "$@" "is_refused $fault"
done
for fault in read_after_the_end write_into_a_read_chunk; do
	set -- "$@" "is_refused_when_writing $fault"
done
for fault in invalidate_nothing other_version too_long hang_up; do
	set -- "$@" "costs_the_connection $fault"
done
tests \
	"is_dropped bad_messages runt empty server_call error_cut_short versions_reversed flood" \
	"is_dropped bad_xids foreign_xid twice flood_of_replies" \
	"fails_its_rpc error_version error_chunk error_unknown type_msgp type_done type_unknown" \
	"fails_its_rpc header_cut_short no_chunk_lists presence_of_two endless_list endless_chunk no_payload" \
	"fails_its_rpc longer_than_its_buffers payload_of_another nowhere read_list reply_chunk_not_offered" \
	"fails_its_rpc write_chunk_twice other_handle other_offset too_much_written one_octet_too_much" \
	"fails_its_rpc too_many_segments behind_the_end_of_addresses" \
	"fails_its_long_reply other_handle too_long unused and_payload with_a_gap one_segment_more" \
	"fails_its_rpc_at_once" \
	"$@" \
	"is_refused_on_another_connection" \
	"takes_one_reply_of_many" \
	"makes_no_difference no_credits" \
	"makes_no_difference endless_credits" \
	"makes_no_difference no_attributes" \
	"makes_no_difference reply_chunk_not_offered_and_unused" \
	"makes_no_difference write_chunk_more_than_offered_and_unused" \
	"connection_request" \
	"what_the_server_announces_is_used" \
	"memory_never_has_the_same_name_again" \
	"takes_replies_at_once" \
	"takes_replies_at_once lose_the_connection" \
	"notices_the_end_of_an_idle_connection" \
	"connections_leave_nothing" \
	"calls_keep_to_the_grant one 1" \
	"calls_keep_to_the_grant three 3" \
	"the_first_call_goes_alone" \
	"a_small_result_comes_inline" \
	"a_long_reply_returns_what_it_used" \
	"a_link_returns_what_it_used" \
	"comes_inline write_chunk_cut_to_nothing 500" \
	"comes_inline no_write_list 500" \
	"comes_inline pad_of_another_length 1" \
	"comes_inline pad_of_another_length 2" \
	"comes_inline pad_of_another_length 3" \
	"comes_inline pad_of_another_length 1023" \
	"what_follows_the_results_does_no_harm" \
	"nothing_is_made_of_an_unused_chunk" \
	"arguments_stay_until_the_reply" \
	"is_refused_for_a_killed_process" \
	"a_reply_to_an_unsent_call_is_dropped" \
	"killed_calls_count_against_the_grant" \
	"a_reply_crosses_its_killed_call" \
	"a_new_connection_owes_nothing" \
	"callbacks_are_answered" \
	"callbacks_are_answered lose_the_connection" \
	"callbacks_need_no_credit" \
	"a_session_outlives_an_error" \
	"callbacks_leave_nothing" \
	"session_asks_for_callbacks_that_fit" \
	"more_callbacks_than_slots" \
	"callbacks_while_the_mount_goes 5" \
	"connects_with no_private_data" \
	"connects_with private_data_of_others" \
	"connects_with private_data_of_another_version" \
	"connects_with private_data_cut_short" \
	"connects_with private_data_of_the_smallest" \
	"remote_invalidation_is_recognised" \
	"memory_of_another_rpc_is_invalidated" \
	"memory_is_invalidated_twice" \
	"a_lost_reply_is_asked_for_again" \
	"a_silent_server_is_found_without_a_credit" \
	"calls_overdue_together_cost_one_connection" \
	"a_killed_call_without_a_reply_costs_the_connection" \
	"the_same_call_comes_again" \
	"mutations_do_no_harm ${MUTATIONS:-200}" \
	"in_version_2 is_dropped bad_messages empty runt no_flags response_of_unknown_type error_cut_short" \
	"in_version_2 is_dropped bad_messages versions_reversed" \
	"in_version_2 is_dropped bad_xids foreign_xid twice error_for_nobody part_for_nobody" \
	"in_version_2 is_answered type_unknown=3 flag_unknown=4 nothing_conveyed=2 nomsg_with_more=4" \
	"in_version_2 is_answered call_without_lists=2 properties_cut_short=2 property_twice=2" \
	"in_version_2 is_answered call_that_reads=5,0 call_that_writes=9,0 call=10" \
	"in_version_2 does_no_harm no_credits no_ceiling endless_credits flood_of_grants flood other_properties" \
	"in_version_2 does_no_harm result_inline reply_chunk_not_offered_and_unused" \
	"in_version_2 fails_its_rpc error_unknown error_bad_xdr error_system error_that_is_no_response" \
	"in_version_2 fails_its_rpc error_of_a_chunk_that_is_not" \
	"in_version_2 fails_its_rpc header_cut_short no_chunk_lists presence_of_two endless_list endless_chunk" \
	"in_version_2 fails_its_rpc reply_of_another reply_that_is_a_call parts_with_chunks parts_without_end" \
	"in_version_2 fails_its_rpc no_payload longer_than_its_buffers payload_of_another nowhere" \
	"in_version_2 fails_its_rpc reply_chunk_not_offered write_chunk_twice other_handle other_offset" \
	"in_version_2 fails_its_rpc too_much_written one_octet_too_much too_many_segments" \
	"in_version_2 fails_with_its_connection parts_of_two nomsg_between_parts" \
	"in_version_2 costs_the_connection other_version too_long hang_up hang_up_between_parts" \
	"in_version_2 costs_the_connection invalidate_nothing invalidate_with_a_part" \
	"in_version_2 begins_with no_properties endless_receives properties_twice no_segments" \
	"in_version_2 begins_with small_receives bad_properties segments_of_nothing" \
	"in_version_2 opens_with nothing=1 only_that=2 version_1=1 version_3=2 rfc_8797=1 version_2=2" \
	"in_version_2 opens_with other_formats=1 it_first=2 version_0=1 it_between_others=2 version_2=2" \
	"in_version_2 opens_with half_of_it=1 most_of_it=1 reserved_octets=2 another_format=1 version_2=2" \
	"in_version_2 opens_with another_format_first=2 version_2=2" \
	"in_version_2 negotiated begins_with small_receives bad_properties" \
	"in_version_2 a_small_result_comes_inline" \
	"in_version_2 ends_when_it_is_refused_twice" \
	"in_version_2 a_lost_reply_is_asked_for_again"
