#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A server sends callbacks of a session: many at once, without credits, and during the unmount.
. "$(dirname "$0")/../lib/peer.sh"

# callbacks_are_answered [FUNCTION]
#= V1-024, V1-117, V1-119
#= V1-120, V1-123, V1-124
#= V1-132
callbacks_are_answered() {
	mount_4_1_through_the_peer
	"$@"
	connections=$(transport connect_count)
	strike callbacks_one_by_one
	: >"$dir/file"
	outcome | grep -Fx 'all were answered, with credits and accepted: {(16, True)}'
	[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
}

# The Reply to a callback takes no credit, and is sent while Calls wait for the single credit.
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

get_a_small_one() {
	dd if="$dir/small" bs=512 iflag=direct 2>/dev/null | cmp - "$local/small"
}

# The error ends the RPC. The session goes on after the slot whose request has had no Reply.
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

# The module can be unloaded after the last mount of a session with callbacks.
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

# session_asks_for_callbacks_that_fit READ WRITE: the longest callback that the client allows fits its Receives of READ
# bytes, and the answer its Send buffers of WRITE bytes, including the header.
#= V1-129, V1-117
session_asks_for_callbacks_that_fit() {
	sizes=/proc/sys/sunrpc/rdma_max_inline
	defer set_to ${sizes}_read 4096
	defer set_to ${sizes}_write 4096
	set_to ${sizes}_read "$1"
	set_to ${sizes}_write "$2"
	start_the_peer
	strike session
	mount_4_1_through_the_peer
	outcome >"$local/session"
	cat "$local/session"
	limit=$(($1 < $2 ? $1 : $2))
	request=$(sed 's/requests of \([0-9]*\).*/\1/' "$local/session")
	[ "$request" -le $((limit - 28)) ] || fail "callbacks of $request bytes are too long"
	[ "$request" -ge $((limit / 2)) ] || fail "callbacks of $request bytes are too short"
	grep ', 16 at once' "$local/session"
}

# The session has 16 slots. The peer sends 24 callbacks at once, and the connection has Receives for all of them.
#= V1-117, NFS-050
more_callbacks_than_slots() {
	mount_4_1_through_the_peer
	connections=$(transport connect_count)
	strike callbacks_at_once
	ls "$dir"
	outcome | grep '^24 of 24.* 0\.[4-9] s'
	[ "$(transport connect_count)" = "$connections" ] || fail "the connection was given up"
}

# callbacks_while_the_mount_goes COUNT: the service for callbacks ends before the transport. A thread that takes a
# callback at that time must not need a reference to the transport. The window is narrow, so more rounds or a second
# processor find more.
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

tests \
	"callbacks_are_answered" \
	"callbacks_are_answered lose_the_connection" \
	"callbacks_need_no_credit" \
	"a_session_outlives_an_error" \
	"callbacks_leave_nothing" \
	"session_asks_for_callbacks_that_fit 4096 4096" \
	"session_asks_for_callbacks_that_fit 1024 4096" \
	"session_asks_for_callbacks_that_fit 4096 1024" \
	"more_callbacks_than_slots" \
	"callbacks_while_the_mount_goes 5"
