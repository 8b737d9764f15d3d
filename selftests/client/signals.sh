#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Processes that are killed during their data transfer: the network must not reach their memory
# before it has another owner, and the mount continues to work.
. "$(dirname "$0")/../lib/lib.sh"

# killed WHO VERSION OPTIONS SIZE: SIZE is a power of two. A killed process ends the access to its memory, and
# the connection goes on: it may end by frames that are lost, but not with each round.
#= V2-184, V2-188
killed() {
	VERS=$2
	mount_export "$3"
	head -c $((1 << $4)) /dev/urandom >"$local/whole"
	cp "$local/whole" "$dir/whole"
	connections=$(transport connect_count)
	hit=0
	for delay in 0.01 0.03 0.05 0.08 0.1 0.15 0.2 0.25; do
		pids=
		for n in 1 2 3 4; do
			case $1 in
			readers) dd if="$dir/whole" of=/dev/null bs=1M iflag=direct 2>/dev/null & ;;
			writers) dd if=/dev/zero of="$dir/$n" bs=1M count=$((1 << ($4 - 20))) oflag=direct \
				2>/dev/null & ;;
			mixed) dd if="$dir/whole" of="$dir/$n" bs=300000 2>/dev/null & ;;
			esac
			pids="$pids $!"
		done
		sleep $delay
		kill -9 $pids 2>/dev/null || :
		for pid in $pids; do
			ended=0
			wait "$pid" || ended=$?
			[ $ended != 137 ] || hit=$((hit + 1))
		done
	done
	note "$hit of 32 processes were killed at work"
	[ $hit -ge 8 ] || fail "the others had ended before: that tests nothing"
	connections=$(($(transport connect_count) - connections))
	[ "$connections" -lt 4 ] || fail "$connections connections have ended"
	remount
	cmp "$local/whole" "$dir/whole"
	rm -f "$dir"/[1-4]
}

# Fails unless the directory has the names that `fileio.py populate` has made.
has_names() {
	"$here/fileio.py" list "$dir" >"$local/listed"
	diff "$local/made" "$local/listed" >"$local/diff" || {
		head -n 5 "$local/diff"
		fail "$(wc -l <"$local/listed") names are listed, $(wc -l <"$local/made") were made"
	}
}

killed_in_a_directory() {
	mount_export
	"$here/fileio.py" populate "$dir" 500 >"$local/made"
	for delay in 0.01 0.02 0.04 0.06 0.1; do
		# One process, so that nothing of it is left when it is killed.
		ls -lR "$dir" >"$local/seen" &
		sleep $delay
		# It may have ended by itself.
		if kill -9 $! 2>/dev/null; then :; fi
		wait
	done
	remount
	has_names
}

# The process that lists the directory is killed when its Call is on its way and no packet gets
# through any more, so that nothing can end the server's access to its memory.
kill_while_nothing_gets_through() {
	VERS=3
	mount_export "nolock,actimeo=600"
	"$here/fileio.py" populate "$dir" 200 >"$local/made"
	remount
	lossy_link
	"$here/fileio.py" list_when_told "$dir" "$local/ready" "$local/go" >"$local/seen" &
	process=$!
	until [ -e "$local/ready" ]; do sleep 0.1; done
	lose 100%
	sent=$(transport sends)
	: >"$local/go"
	until [ "$(transport sends)" -gt "$sent" ]; do sleep 0.1; done
	kill -9 $process
	sleep 2
	alive $process || fail "has not waited for its memory"
}

still_works() {
	lose 0%
	remount
	has_names
}

#= V1-090
killed_waits_for_its_memory() {
	kill_while_nothing_gets_through
	lose 0%
	was_killed $process
	still_works
}

# The device stops its retries, which must end the wait.
#= V1-090
killed_waits_for_the_end_of_the_connection() {
	kill_while_nothing_gets_through
	for _ in $(seq 90); do
		alive $process || break
		sleep 1
	done
	! alive $process || fail "waits for ever"
	was_killed $process
	still_works
}

# Killed processes free their memory while the connection that has registered it ends.
killed_while_connections_break() {
	VERS=$1
	mount_export
	head -c 4194304 /dev/urandom >"$local/whole"
	cp "$local/whole" "$dir/whole"
	before=$(transport connect_count)
	breaks_every 15
	for delay in 0.01 0.02 0.03 0.05 0.08 0.1 0.15 0.2 0.01 0.02 0.03 0.05 0.08 0.1 0.15 0.2; do
		pids=
		for n in 1 2 3; do
			dd if="$dir/whole" of=/dev/null bs=1M iflag=direct 2>/dev/null &
			pids="$pids $!"
			dd if=/dev/zero of="$dir/$n" bs=512k count=8 oflag=direct 2>/dev/null &
			pids="$pids $!"
		done
		sleep $delay
		kill -9 $pids 2>/dev/null || note "some had ended after $delay s"
		wait
	done
	echo 0 >$breaking/probability
	note "$(($(transport connect_count) - before)) breaks"
	[ "$(transport connect_count)" -gt "$before" ] || fail "no connection has broken"
	remount
	cmp "$local/whole" "$dir/whole"
}

tests \
	"killed readers 4.2 hard 24" \
	"killed writers 4.2 hard 24" \
	"killed mixed 4.2 hard 23" \
	"killed readers 3 hard 24" \
	"killed writers 3 hard 24" \
	"killed readers 4.2 soft 24" \
	"killed_in_a_directory" \
	"killed_while_connections_break 3" \
	"killed_while_connections_break 4.2" \
	"killed_waits_for_its_memory" \
	"killed_waits_for_the_end_of_the_connection"
