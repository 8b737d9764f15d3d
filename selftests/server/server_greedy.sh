#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Clients that prevent their Calls from ending do not hold the threads of the server: others are answered at once.
. "$(dirname "$0")/../lib/lib.sh"

# The seconds of the measurement of other clients.
WATCH=${WATCH:-8}

# hold VERSION HOW STOP COMMAND...: as greedy.py does, which COMMAND runs.
hold() {
	held=$local/held
	version=$1 how=$2 stop=$3
	shift 3
	"$@" "$here/greedy.py" "$SERVER" "$PORT" hold "$version" "$how" "$held" "$stop" >"$local/greedy" 2>&1 &
	greedy=$!
	defer end_process $greedy
}

# until_there FILE: greedy.py makes it.
until_there() {
	until [ -e "$1" ]; do
		kill -0 $greedy 2>/dev/null || {
			cat "$local/greedy"
			fail "the greedy clients have ended"
		}
		sleep 0.1
	done
}

ends_well() {
	wait $greedy || {
		cat "$local/greedy"
		fail "the greedy clients lack Replies"
	}
	note "$(tail -n 1 "$local/greedy")"
}

# others_are_answered: NULL, and the attributes of a file, within the limits of greedy.py.
others_are_answered() {
	threads=$(on_server cat /proc/fs/nfsd/threads)
	slow=
	"$here/greedy.py" "$SERVER" "$PORT" watch "$WATCH" "$dir/content" >"$local/watch" 2>&1 || slow=yes
	note "with $threads threads, $(cat "$local/watch")"
	[ -z "$slow" ] || fail "others have to wait"
}

# start VERSION: that is spoken, too, by clients that ask for it.
start() {
	with "$1" "$1"
	needs_crowd
	needs_server_command
	MOUNT_OPTIONS=noac
	make_files_to_call_for
}

# Prints the number of Replies that had to wait.
delayed() {
	on_server cat /proc/sys/sunrpc/svc_rdma/rdma_stat_sq_starve
}

# Waits until the server has processed all Calls. A slow kernel needs seconds for their Segments.
calls_are_processed() {
	for _ in $(seq 20); do
		count=$(delayed)
		sleep 2
		[ "$(delayed)" != "$count" ] || return 0
	done
	fail "Replies go on to be delayed"
}

#= V2-038, V2-047
clients_hold_no_threads() {
	start "$1"
	before=$(delayed)
	hold "$1" "$2" "$local/stop" exec
	until_there "$local/held"
	calls_are_processed
	count=$(($(delayed) - before))
	others_are_answered
	note "$count Replies have waited"
	case $2 in
	# Without a credit for its Reply, a Call is not processed.
	no_credits) [ $count = 0 ] ;;
	*) [ $count -gt 0 ] && [ $count -le $((threads * 16)) ] ;;
	esac || fail "that is another number than there should be"
	touch "$local/stop"
	ends_well
}

clients_over_a_slow_link_hold_no_threads() {
	start "$1"
	make_namespace
	hold "$1" slow_reads "$local/stop" inside
	until_there "$local/held.open"
	# A tenth of the time after which a device repeats a packet: soft RoCE ends a connection by a late response to an RDMA
	# Read that it has repeated.
	inside tc qdisc add dev rpcrdma1 root $NETEM delay 50ms || skip "needs the netem queueing discipline"
	touch "$local/held.slow"
	until_there "$local/held"
	# The Calls arrive, and the first data has been asked for. All of it takes 15 seconds.
	sleep 1
	WATCH=5
	others_are_answered
	touch "$local/stop"
	# Without the delay, later frames overtake the frames in the queue. Soft RoCE ends a connection by such a response to an
	# RDMA Read.
	ends_well
	inside tc qdisc del dev rpcrdma1 root
}

# The server closes a connection whose Replies wait for 30 seconds.
clients_are_given_up() {
	start "$1"
	hold "$1" "$2" never exec
	until_there "$local/held"
	calls_are_processed
	WATCH=40
	others_are_answered
	ends_well
}

# The server keeps a client that takes the messages of a Reply one by one, even if the Reply takes long.
a_slow_client_is_not_given_up() {
	start 2
	python3 -c 'import sys; sys.stdout.buffer.write(bytes(n % 251 for n in range(200000)))' >"$dir/large"
	chmod 644 "$dir/large"
	"$here/greedy.py" "$SERVER" "$PORT" take 4 >"$local/greedy" 2>&1 || {
		cat "$local/greedy"
		fail "it has not had its Reply"
	}
	note "$(cat "$local/greedy")"
}

tests \
	"clients_hold_no_threads 1 no_receives" \
	"clients_hold_no_threads 2 no_receives" \
	"clients_hold_no_threads 2 no_credits" \
	"clients_hold_no_threads 2 few_credits" \
	"clients_over_a_slow_link_hold_no_threads 1" \
	"clients_over_a_slow_link_hold_no_threads 2" \
	"clients_are_given_up 1 no_receives" \
	"clients_are_given_up 2 no_credits" \
	"a_slow_client_is_not_given_up"
