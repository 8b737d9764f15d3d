#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A server with many clients: clients that connect at once, that are idle, and that come and go
# under the I/O of another. CROWD is the number of clients at once (500), IDLE the number of idle
# clients (1000).
. "$(dirname "$0")/../lib/lib.sh"

CROWD=${CROWD:-500}
IDLE=${IDLE:-1000}

start() {
	needs_crowd
	needs_server_command
	server_is_idle
}

# gather COUNT: COUNT clients connect and stay until `scatter`.
gather() {
	"$here/crowd.py" "$SERVER" "$PORT" "$1" 50 "$local/ready" "$local/leave" >"$local/crowd" 2>&1 &
	crowd=$!
	until [ -e "$local/ready" ]; do
		kill -0 $crowd 2>/dev/null || {
			cat "$local/crowd"
			fail "not all have a connection"
		}
		sleep 0.2
	done
}

# Each client is answered once more before it disconnects.
scatter() {
	touch "$local/leave"
	wait $crowd || {
		cat "$local/crowd"
		exit 1
	}
	note "$(tr '\n' ';' <"$local/crowd")"
}

# All clients are answered, and their resources are freed.
many_come_at_once() {
	start
	"$here/crowd.py" "$SERVER" "$PORT" "$CROWD" "$CROWD" >"$local/crowd" 2>&1 || {
		cat "$local/crowd"
		exit 1
	}
	note "$(cat "$local/crowd")"
	server_is_idle
}

# A listener has room for the requests of 1024 clients that wait for a thread. A client that was accepted does not wait.
more_come_than_may_wait() {
	start
	for _ in 1 2 3 4 5 6; do
		"$here/crowd.py" "$SERVER" "$PORT" 200 200 >"$local/crowd" 2>&1 || {
			cat "$local/crowd"
			exit 1
		}
		note "$(cat "$local/crowd")"
	done
	server_is_idle
	on_server test -e /sys/kernel/debug/rpcrdma/memory || return 0
	for _ in $(seq 20); do
		[ "$(memory unproven_connections)" != 0 ] || return 0
		sleep 0.5
	done
	fail "$(memory unproven_connections) connections without a proof are left"
}

# The same while the server's frames get lost, including the messages that it has ended a
# connection.
many_come_over_a_lossy_link() {
	start
	software_device on_server
	netem on_server
	defer on_server tc qdisc del dev "$interface" root
	lose "$1" on_server
	"$here/crowd.py" "$SERVER" "$PORT" 100 100 >"$local/crowd" 2>&1 || {
		cat "$local/crowd"
		exit 1
	}
	note "$(cat "$local/crowd")"
	some_were_lost on_server
	server_is_idle
}

# Clients that connect and disconnect do not disturb a client with I/O.
many_come_and_go_beside_others() {
	start
	VERS=$1
	mount_export
	begin_io 3
	for _ in 1 2 3; do
		"$here/crowd.py" "$SERVER" "$PORT" 100 100 >"$local/crowd" 2>&1 || {
			cat "$local/crowd"
			exit 1
		}
	done
	# These do not say good-bye, or once.
	for _ in 1 2 3; do
		rm -f "$local/ready"
		gather 20
		kill -9 $crowd
		wait $crowd || :
	done
	end_io
	leave
	server_is_idle
}

# Prints the memory of a connection. Fails if it is MOST kB or more.
idle_clients_cost_little() {
	start
	# Makes the resources that the server makes only once.
	"$here/crowd.py" "$SERVER" "$PORT" 20 20 >/dev/null
	server_is_idle
	free=$(server_free)
	gather "$IDLE"
	with=$(server_free)
	pairs=$(queue_pairs on_server)
	[ "$pairs" -ge "$IDLE" ] || fail "there are only $pairs queue pairs"
	each=$(((free - with) / IDLE))
	note "$each kB each: $((free - with)) kB for $IDLE connections"
	scatter
	server_is_idle
	for _ in $(seq 20); do
		after=$(server_free)
		[ $((free - after)) -ge $((each * IDLE / 20)) ] || break
	done
	note "$((free - after)) kB less are free when they have gone"
	[ $each -lt "$1" ] || fail "that is not less than $1 kB"
	[ $((free - after)) -lt $((each * IDLE / 20)) ] || fail "memory is left"
}

# A busy client gets more credits than an idle client, as soon as it uses them.
credits_grow() {
	mount_export
	cp "$here/lib.sh" "$dir/file"
	dd if=/dev/zero of="$dir/large" bs=1M count=8 2>/dev/null
	sync "$dir/large"
	# The window is sunrpc's: 256 for each.
	most=0
	for _ in $(seq 20); do
		"$here/together.py" "$dir" 8 65536
		for window in /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/xprt_info; do
			cwnd=$(sed -n 's/^cong_win=//p' "$window")
			cwnd=$((${cwnd:-0} / 256))
			[ $cwnd -le $most ] || most=$cwnd
		done
		[ $most -lt 128 ] || break
	done
	note "$most credits"
	[ $most -ge 64 ]
}

# memory KEY: prints the value of KEY in the file of the shared memory in the server's debugfs.
memory() {
	on_server sed -n "s/^$1=//p" /sys/kernel/debug/rpcrdma/memory
}

# Pages wait for the next WRITE, not more than the budget, and are the kernel's when it needs memory.
pages_of_writes_are_given_back() {
	needs_server_command
	on_server test -e /sys/kernel/debug/rpcrdma/memory || skip "the server's module keeps no pages"
	# RDMA Reads of two Calls are under way on each connection. All together have more pages than the budget.
	most=$(memory most_pages)
	mount_export nconnect=8
	for number in $(seq 12); do
		dd if=/dev/urandom of="$local/data.$number" bs=1M count=8 2>/dev/null
	done
	for number in $(seq 12); do
		dd if="$local/data.$number" of="$dir/file.$number" bs=1M oflag=direct 2>/dev/null &
	done
	wait
	resting=$(memory pages)
	note "$resting pages of $most"
	[ "$resting" -gt 0 ] && [ "$resting" -le "$most" ]
	# All shrinkers are asked for all that they have.
	on_server sh -c 'echo 2 >/proc/sys/vm/drop_caches'
	[ "$(memory pages)" = 0 ]
	for number in $(seq 12); do
		dd if="$local/data.$number" of="$dir/file.$number" bs=1M oflag=direct 2>/dev/null
	done
	umount "$mnt"
	mount_export
	for number in $(seq 12); do
		cmp "$local/data.$number" "$dir/file.$number"
	done
}

tests \
	"many_come_at_once" \
	"more_come_than_may_wait" \
	"many_come_over_a_lossy_link 10%" \
	"many_come_and_go_beside_others 3" \
	"many_come_and_go_beside_others 4.2" \
	"idle_clients_cost_little 700" \
	"credits_grow" \
	"pages_of_writes_are_given_back"
