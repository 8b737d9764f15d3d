#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The connection ends and is established again under I/O. No data are lost.
. "$(dirname "$0")/../lib/lib.sh"

# Writes and compares files in the background until it is stopped.
start_work() {
	for n in 1 2 3 4; do
		(
			round=0
			while [ ! -e "$local/stop" ]; do
				round=$((round + 1))
				head -c 500001 /dev/urandom >"$local/$n"
				cp "$local/$n" "$dir/$n" || exit 1
				dd if="$dir/$n" bs=64k iflag=direct 2>/dev/null | cmp "$local/$n" - || exit 1
			done
			echo $round >"$local/rounds$n"
		) &
	done
}

stop_work() {
	touch "$local/stop"
	wait
	for n in 1 2 3 4; do
		[ -e "$local/rounds$n" ] || fail "worker $n has failed"
	done
	note "rounds: $(cat "$local"/rounds? | tr '\n' ' ')"
	remount
	for n in 1 2 3 4; do
		cmp "$local/$n" "$dir/$n"
	done
}

#= V1-102
server_restarts() {
	needs_server_command
	VERS=$1
	mount_export
	before=$(transport connect_count)
	start_work
	for _ in $(seq "$2"); do
		sleep 1
		on_server rpc.nfsd 0
		sleep 0.5
		on_server rpc.nfsd
	done
	# A worker that goes on has a new connection.
	"$here/fileio.py" put "$here/lib.sh" "$dir/after" 1000
	after=$(transport connect_count)
	stop_work
	note "$after connections after $before"
	[ "$after" -gt "$before" ]
}

# No data are lost with frames. Soft RoCE ends connections over which frames are lost, of the kernel's own module too:
# 4 with 34 frames, and 4 to 5 with 24 to 36 frames here.
#= V1-102
frames_are_lost() {
	mount_export
	lossy_link
	before=$(transport connect_count)
	lose "$1"
	start_work
	sleep 3
	lose 0%
	after=$(transport connect_count)
	stop_work
	some_were_lost
	note "$((after - before)) connections have ended"
}

link_goes_away() {
	VERS=$1
	mount_export
	lossy_link
	before=$(transport connect_count)
	start_work
	sleep 1
	lose 100%
	sleep "$2"
	lose 0%
	"$here/fileio.py" put "$here/lib.sh" "$dir/after" 1000
	after=$(transport connect_count)
	note "$after connections after $before"
	[ "$after" -gt "$before" ] || fail "the connection has not ended"
	stop_work
	some_were_lost
}

# Enough Calls to fill the send queue, each with several registrations, without an acknowledgement
# of the server's device. A sender that waits for room sleeps until the room suffices. In version 4, the page list of
# the first READDIR of a directory begins within a page, so each part of the Reply has a registration.
senders_wait_for_room() {
	VERS=4.0
	mount_export actimeo=600
	mkdir "$dir/each"
	for n in $(seq 130); do
		mkdir "$dir/each/$n"
		: >"$dir/each/$n/name$n"
	done
	remount
	lossy_link
	"$here/fileio.py" list_each_when_told "$dir/each" "$local/ready" "$local/go" >"$local/names" &
	until [ -e "$local/ready" ]; do sleep 0.1; done
	before=$(transport empty_sendctx_q)
	failed=$(transport failed_marshal)
	lose 100%
	: >"$local/go"
	sleep 2
	waits=$(($(transport empty_sendctx_q) - before))
	lose 0%
	wait $!
	failed=$(($(transport failed_marshal) - failed))
	note "senders have waited for room $waits times, $failed messages were composed in vain"
	[ $waits -ge 1 ] || fail "the send queue was not full: that tests nothing"
	[ $waits -le 20 ] || fail "senders have tried again and again"
	[ $failed -ge 1 ] || fail "failed_marshal does not count them"
	seq -f name%g 130 | sort | cmp - "$local/names"
	some_were_lost
}

# No host answers for the address during this time. An attempt to connect needs its whole timeout to
# notice it.
address_goes_and_comes() {
	command -v lab-server >/dev/null || skip "would cut the server off from others"
	VERS=$1
	set -- $(on_server ip -o -4 address show to "$SERVER")
	interface=$2
	prefix=$4
	default=$(on_server ip route show default)
	mount_export timeo=30
	before=$(transport connect_count)
	start_work
	sleep 1
	defer address_comes
	on_server ip address delete "$prefix" dev "$interface"
	sleep 15
	clean_up
	revive_device on_server
	"$here/fileio.py" put "$here/lib.sh" "$dir/after" 1000
	note "$(transport connect_count) connections after $before"
	[ "$(transport connect_count)" -gt "$before" ] || fail "the connection was not lost"
	stop_work
}

address_comes() {
	on_server ip address add "$prefix" dev "$interface"
	[ -z "$default" ] || on_server ip route replace $default
}

# A server whose frames get lost is given up after a minute; the next attempt finds it.
connecting_takes_too_long() {
	[ -n "${LONG:-}" ] || skip "takes two minutes: set LONG"
	mount_export timeo=30
	lossy_link
	cp "$here/lib.sh" "$dir/file"
	lose 100%
	"$here/fileio.py" put "$here/lib.sh" "$dir/after" 1000 &
	sleep 100
	lose 0%
	wait $!
	cmp "$here/lib.sh" "$dir/file"
	some_were_lost
}

# The server must hear of the end of a session, so unmounting waits until it is back.
unmounts_when_the_server_is_back() {
	needs_server_command
	VERS=$1
	mount_export
	on_server rpc.nfsd 0
	umount "$mnt" &
	umount=$!
	sleep 3
	case $VERS in
	4*) alive $umount || fail "unmounting has not waited for the server" ;;
	esac
	on_server rpc.nfsd
	all_succeed $umount
	mount_export
}

tests \
	"server_restarts 3 2" \
	"server_restarts 4.2 2" \
	"frames_are_lost 2%" \
	"link_goes_away 3 20" \
	"link_goes_away 4.2 20" \
	"senders_wait_for_room" \
	"address_goes_and_comes 3" \
	"address_goes_and_comes 4.2" \
	"connecting_takes_too_long" \
	"unmounts_when_the_server_is_back 3" \
	"unmounts_when_the_server_is_back 4.2"
