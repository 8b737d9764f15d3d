#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Processes killed while their data are on the way: their memory must be safe from the network
# before it is anybody else's, and the mount goes on.
. "$(dirname "$0")/lib.sh"

# killed WHO VERSION OPTIONS SIZE: SIZE is a power of two.
killed() {
	VERS=$2
	mount_export "$3"
	head -c $((1 << $4)) /dev/urandom >"$local/whole"
	cp "$local/whole" "$dir/whole"
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
		# shellcheck disable=SC2086 # A list of numbers.
		kill -9 $pids 2>/dev/null || note "all had ended after $delay s"
		wait
	done
	remount
	cmp "$local/whole" "$dir/whole"
	rm -f "$dir"/[1-4]
}

killed_in_a_directory() {
	mount_export
	"$here/io.py" populate "$dir" 500 >"$local/made"
	for delay in 0.01 0.02 0.04 0.06 0.1; do
		# One process, so that nothing of it is left when it is killed.
		ls -lR "$dir" >"$local/seen" &
		sleep $delay
		# It may have ended by itself.
		if kill -9 $! 2>/dev/null; then :; fi
		wait
	done
	remount
	"$here/io.py" list "$dir" | cmp "$local/made" -
}

tests \
	"killed readers 4.2 hard 24" \
	"killed writers 4.2 hard 24" \
	"killed mixed 4.2 hard 23" \
	"killed readers 3 hard 24" \
	"killed writers 3 hard 24" \
	"killed readers 4.2 soft 24" \
	"killed_in_a_directory"
