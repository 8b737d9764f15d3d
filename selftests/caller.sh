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

each_rule_is_held() {
	start
	make_file
	"$here/caller.py" "$SERVER" "$PORT" >"$local/caller.log" 2>&1 || {
		grep -A 1 '^not ok' "$local/caller.log"
		tail -n 5 "$local/caller.log"
		fail "the server does not answer as it should"
	}
	note "$(grep -c '^ok' "$local/caller.log") ways to break them"
}

nobody_else_is_disturbed() {
	start
	mount_export
	head -c 1000000 /dev/urandom >"$local/file"
	(
		while [ ! -e "$local/over" ]; do
			cp "$local/file" "$dir/file"
			echo 1 >/proc/sys/vm/drop_caches
			cmp "$local/file" "$dir/file" || echo wrong >"$local/wrong"
		done
	) &
	disturbed=$!
	"$here/caller.py" "$SERVER" "$PORT" >"$local/caller.log" 2>&1 || true
	touch "$local/over"
	wait $disturbed
	[ ! -e "$local/wrong" ]
}

nothing_is_left() {
	start
	needs_server_command
	sleep 2
	before=$(queue_pairs)
	"$here/caller.py" "$SERVER" "$PORT" >"$local/caller.log" 2>&1 || true
	for _ in $(seq 30); do
		sleep 1
		[ "$(queue_pairs)" -gt "$before" ] || return 0
	done
	fail "$before queue pairs before, $(queue_pairs) after"
}

tests each_rule_is_held nobody_else_is_disturbed nothing_is_left
