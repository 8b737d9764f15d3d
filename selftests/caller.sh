#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# A client that breaks the rules (caller.py), against a server of this module. A bad message costs at
# most its own RPC or its connection; another client's I/O goes on meanwhile, and nothing is left.
. "$(dirname "$0")/lib.sh"

start() {
	python3 -c 'import pyverbs.cmid' 2>/dev/null || skip "needs python3-pyverbs"
	[ -e /dev/infiniband/rdma_cm ] || modprobe -q rdma_ucm ||
		skip "needs the kernel's rdma_ucm, which user space connects by"
}

# A file that caller.py knows.
make_file() {
	VERS=3
	mount_export
	python3 -c 'import sys; sys.stdout.buffer.write(bytes(n % 251 for n in range(10000)))' \
		>"$dir/file"
	chmod 755 "$dir"
	chmod 644 "$dir/file"
	FILE=$EXPORT/${dir##*/}/file
	export FILE
}

# The server's queue pairs, if it can be asked.
queue_pairs() {
	on_server rdma resource show qp 2>/dev/null | grep -c 'type RC' || true
}

# One run shows it all: the messages, what another client sees meanwhile, and what is left behind.
the_rules_are_held() {
	start
	make_file
	before=$(queue_pairs)
	head -c 1000000 /dev/urandom >"$local/data"
	(
		while [ ! -e "$local/over" ]; do
			cp "$local/data" "$dir/data"
			echo 1 >/proc/sys/vm/drop_caches
			cmp "$local/data" "$dir/data" || echo wrong >"$local/wrong"
		done
	) &
	disturbed=$!
	broken=
	"$here/caller.py" "$SERVER" "$PORT" >"$local/caller.log" 2>&1 || broken=1
	touch "$local/over"
	wait $disturbed || broken=1
	if [ "$broken" ]; then
		grep -A 1 '^not ok' "$local/caller.log"
		tail -n 5 "$local/caller.log"
		fail "the server does not answer as it should"
	fi
	note "$(grep -c '^ok' "$local/caller.log") ways to break them"
	[ ! -e "$local/wrong" ] || fail "another client has read what it did not write"
	for _ in $(seq 30); do
		[ "$(queue_pairs)" -gt "$before" ] || return 0
		sleep 1
	done
	fail "$before queue pairs before, $(queue_pairs) after"
}

# Takes half a minute, for which the server is patient.
a_client_that_takes_nothing() {
	[ "${LONG:-}" ] || skip "needs LONG=1"
	start
	"$here/caller.py" "$SERVER" "$PORT" takes_no_reply_for_ever >"$local/caller.log" 2>&1 || {
		cat "$local/caller.log"
		fail "threads of the server wait for it"
	}
}

tests the_rules_are_held a_client_that_takes_nothing
