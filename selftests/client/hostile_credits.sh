#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A server grants few credits, answers late or not at all, while processes are killed and connections end.
. "$(dirname "$0")/../lib/peer.sh"

# calls_keep_to_the_grant GRANT COUNT
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

# takes_replies_at_once [FUNCTION]: a Receive is posted for each Reply, and no Receive is posted twice.
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

# Lists the directory and kills the process while it waits for the Reply.
list_and_be_killed() {
	ls "$dir" >"$local/names" &
	reader=$!
	asked_for
	sleep 0.5
	kill -KILL $reader
	was_killed $reader
}

# A Reply is valid only for a Call that was sent. A process is killed and its slot is reused by a Call that waits for
# a credit. A Reply with the XID of that Call is dropped.
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

# The Call of a killed process keeps its credit until its Reply arrives.
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
	# The Call of the read waits for the credit.
	while [ "$(says tasks)" = 0 ]; do
		alive $one
		sleep 0.1
	done
	sleep 0.5
	[ "$(says owed_replies)" = 1 ]
	: >"$control.go"
	wait $one
	outcome | grep '^0 Calls' || fail "more Calls than granted"
	cmp "$local/one" "$local/file"
	[ "$(says owed_replies)" = 0 ] || fail "the Reply is not accounted"
	stays "bad_reply connect_count" good
}

# The Reply arrives when the killed task has left the receive queue and still has its credit. A module that was built
# with BOUNCE=y waits there (rust/standins/pause.c), and PAUSES=1 announces such a module. With other modules the task
# has usually ended.
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
	timeout 5 "$here/fileio.py" get "$local/file" "$dir/file" $SIZE || fail "the credit is lost"
	[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
	# An owed Reply that does not come ends the connection after a minute.
	[ "$(says owed_replies)" = 0 ] || fail "the Reply that has come is owed"
}

# Calls of the previous connection do not count against the grant of the new connection.
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

# Tasks that wait for the single credit cannot detect a silent server. The Call that has the credit times out.
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

# Calls that time out together end the connection that they were sent on, but not the next connection.
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

# A Call waits for the credit until the time-out of its task is over. The server answers it in time.
#= V1-102, NFS-059
a_call_that_waited_for_the_credit_has_its_time() {
	mount_through_the_peer hard,timeo=20,rsize=1024
	strike grant_of_one
	good
	outcome
	connections=$(transport connect_count)
	# The last of them wait for longer than the three times 2 s of a task.
	strike slow_reply 10
	good
	outcome
	[ "$(transport connect_count)" = "$connections" ] || fail "a connection that works was given up"
}

# The connection ends if the Reply to a killed Call does not arrive within a minute, because the Call keeps its credit.
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

# The connection stays if most of the credits are left.
#= V1-102
a_killed_call_without_a_reply_costs_a_credit() {
	[ -n "${LONG:-}" ] || skip "takes more than a minute: set LONG"
	mount_through_the_peer
	strike grant_of_three
	good
	outcome
	connections=$(transport connect_count)
	strike no_reply_at_all
	list_and_be_killed
	sleep 70
	good
	[ "$(says owed_replies)" = 1 ] || fail "the Reply is not owed any more"
	[ "$(transport connect_count)" = "$connections" ] || fail "a connection that works was given up"
}

tests \
	"takes_replies_at_once" \
	"takes_replies_at_once lose_the_connection" \
	"calls_keep_to_the_grant one 1" \
	"calls_keep_to_the_grant three 3" \
	"the_first_call_goes_alone" \
	"a_reply_to_an_unsent_call_is_dropped" \
	"killed_calls_count_against_the_grant" \
	"a_reply_crosses_its_killed_call" \
	"a_new_connection_owes_nothing" \
	"a_lost_reply_is_asked_for_again" \
	"a_silent_server_is_found_without_a_credit" \
	"calls_overdue_together_cost_one_connection" \
	"a_call_that_waited_for_the_credit_has_its_time" \
	"a_killed_call_without_a_reply_costs_the_connection" \
	"a_killed_call_without_a_reply_costs_a_credit" \
	"the_same_call_comes_again" \
	"in_version_2 a_lost_reply_is_asked_for_again"
