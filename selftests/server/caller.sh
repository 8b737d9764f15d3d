#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# A client that breaks the rules (caller.py), against a server of this module. A bad message costs at
# most its own RPC or its connection; another client's I/O goes on meanwhile, and nothing is left.
. "$(dirname "$0")/../lib/lib.sh"

# Makes the files that caller.py uses, in a mount without other traffic.
make_files() {
	make_files_to_call_for
	# Page by page, so that few of them follow each other in the server's memory.
	python3 -c 'import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_SYNC)
data = bytes(n % 251 for n in range(200000))
for first in 0, 4096:
	for at in range(first, len(data), 8192):
		os.pwrite(file, data[at:at + 4096], at)' "$dir/large"
	ln -s where/the/link/leads/to "$dir/link"
	chmod 644 "$dir/large"
}

# break_rules [NAME...]
break_rules() {
	"$here/caller.py" "$SERVER" "$PORT" "$@" >"$local/caller.log" 2>&1 || {
		grep -A 8 '^not ok' "$local/caller.log" || tail -n 20 "$local/caller.log"
		return 1
	}
	skipped=$(grep SKIP "$local/caller.log") || return 0
	note "$skipped"
	# The kernel's own server does not live through some.
	[ -n "${STOCK:-}" ] || ! has_server_command
}

# On a device that registers memory for RDMA Reads, a Call may have more Segments than the connection
# has registrations.
calls_are_read_in_rounds() {
	needs_crowd
	make_files
	break_rules a_call_in_as_many as_many_segments_to_read many_calls_in data_in_odd
}

# sunrpc takes the RPC header up to the end of the credential, which has 32 bytes at least, for one piece of memory. Its
# trace event has the lengths of the pieces.
headers_are_in_one_piece() {
	needs_server_command
	needs_crowd
	make_files
	on_server sh -ec "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
		[ ! -d $tracing ] || rmdir $tracing
		mkdir $tracing
		echo 1 >$tracing/events/sunrpc/svc_xdr_recvfrom/enable"
	break_rules a_read_chunk_in_the_header
	on_server sh -c "cat $tracing/trace; rmdir $tracing" >"$local/trace"
	sed -n 's/.* svc_xdr_recvfrom: .* head=\[[^,]*,\([0-9]*\)] page=\([0-9]*\).*/\1 \2/p' "$local/trace" >"$local/pieces"
	note "$(wc -l <"$local/pieces") Calls"
	[ "$(wc -l <"$local/pieces")" -ge 30 ] || fail "the events are missing"
	! awk '$1 < 32 && $2 != 0' "$local/pieces" | grep . || fail "a header is in two pieces"
}

# Starts the service with payloads of at most this number of bytes.
payloads_are() {
	on_server sh -c "rpc.nfsd 0 && echo $1 >/proc/fs/nfsd/max_block_size && rpc.nfsd"
	grace_ends
}

# Ends the grace period, which begins if nfsd remembers a client of NFSv4. It refuses WRITEs in this period.
grace_ends() {
	on_server sh -c 'for _ in $(seq 100); do
		[ "$(cat /proc/fs/nfsd/v4_end_grace)" != Y ] || exit 0
		echo Y >/proc/fs/nfsd/v4_end_grace || :
		sleep 0.1
	done 2>/dev/null
	exit 1' || fail "the grace period of nfsd does not end"
}

# nfsd moves 1 MiB in an RPC here, which is the most of the kernel's own clients. It can be told to move 4 MiB.
calls_are_as_long_as_nfsd_takes() {
	needs_crowd
	needs_server_command
	defer payloads_are "$(on_server cat /proc/fs/nfsd/max_block_size)"
	payloads_are 4194304
	make_files
	break_rules as_much
	[ "$(on_server cat /proc/fs/nfsd/max_block_size)" = 4194304 ] || fail "nfsd moves less"
	[ "$(grep -c '^ok' "$local/caller.log")" = 2 ] || fail "there have been other tests"
}

# As `make_files`, and leaves the server without a client: a mount without traffic for five minutes
# ends its connection, which would change the memory of the server at rest.
make_files_and_leave() {
	make_files
	unmount
	# So that the files go with the test.
	defer mount_export
	server_is_idle
}

each_rule_is_held() {
	needs_crowd
	rest=
	if has_server_command; then
		make_files_and_leave
		rest=$(rdma_objects on_server)
	else
		note "SERVER_COMMAND is not set: the objects of the server are not compared"
		make_files
	fi
	ALONE=1 break_rules || fail "the server does not answer as it should"
	ways=$(grep -c '^ok' "$local/caller.log")
	note "$ways ways to break them"
	# A test that the program does not find any more is a failure.
	[ "$ways" -ge 88 ] || fail "there have been more"
	[ -z "$rest" ] || at_rest "$rest" rdma_objects on_server
}

# With the first run, slabs and pools grow to their usual size. Later runs may add some MiB. Memory
# that each run loses is a leak.
no_page_is_lost() {
	needs_crowd
	needs_server_command
	make_files_and_leave
	rest=$(rdma_objects on_server)
	cases="memory_of memory_that leaves a_message_that"
	break_rules $cases
	at_rest "$rest" rdma_objects on_server
	for _ in 1 2 3; do
		! less_is_free_after break_rules $cases || continue
		return 0
	done
	fail "memory is lost each time"
}

# less_is_free_after COMMAND...: whether 6 MiB less are, and stay so, when it was run three times.
less_is_free_after() {
	before=$(server_free)
	[ -n "$before" ] || fail "the server does not tell its free memory"
	for _ in 1 2 3; do
		"$@" || fail "$1 has failed"
	done
	for _ in $(seq 20); do
		after=$(server_free)
		[ -n "$after" ] || fail "the server does not tell its free memory"
		[ "$after" -lt $((before - 6144)) ] || break
		sleep 1
	done
	note "$before KiB free before, $after after"
	[ "$after" -lt $((before - 6144)) ]
}

nobody_else_is_disturbed() {
	broken=
	needs_crowd
	make_files
	head -c 1000000 /dev/urandom >"$local/file"
	(
		while [ ! -e "$local/over" ]; do
			cp "$local/file" "$dir/file"
			echo 1 >/proc/sys/vm/drop_caches
			cmp "$local/file" "$dir/file" || echo wrong >"$local/wrong"
			echo >>"$local/rounds"
		done
	) &
	disturbed=$!
	QUICK=1 break_rules || broken=$?
	touch "$local/over"
	wait $disturbed
	[ -s "$local/rounds" ] || fail "the other client has moved no data"
	note "$(wc -l <"$local/rounds") rounds of I/O beside"
	[ ! -e "$local/wrong" ] && [ -z "$broken" ]
}

receives_are_of_the_version_that_is_spoken() {
	with 1 2 16384
	needs_crowd
	! on_server test -e /sys/kernel/debug/kmemleak || skip "KASAN keeps freed memory back"
	make_files
	break_rules receives_of
}

#= CM-011
memory_is_invalidated_with_the_reply() {
	mount_export
	head -c 100000 /dev/urandom >"$dir/file"
	remount
	stays local_invalidates cp "$dir/file" "$local/file"
}

listeners_are_made_whole_or_not() {
	broken=
	needs_server_command
	faults=/sys/kernel/debug/failslab
	on_server test -e $faults -a -e /proc/self/fail-nth ||
		skip "the server's kernel has no fault injection"
	on_server sh -c "echo N >$faults/ignore-gfp-wait && echo N >$faults/cache-filter"
	on_server python3 -c "$(cat "$here/listeners.py")" 1 "${STRIDE:-1}" || broken=$?
	# The only way to be rid of them.
	on_server sh -c "echo Y >$faults/ignore-gfp-wait; rpc.nfsd 0 && rpc.nfsd"
	[ -z "$broken" ] || fail "exit status $broken"
	mount_export
}

tests \
	"each_rule_is_held" \
	"headers_are_in_one_piece" \
	"calls_are_read_in_rounds" \
	"calls_are_as_long_as_nfsd_takes" \
	"nobody_else_is_disturbed" \
	"no_page_is_lost" \
	"receives_are_of_the_version_that_is_spoken" \
	"memory_is_invalidated_with_the_reply" \
	"listeners_are_made_whole_or_not"
