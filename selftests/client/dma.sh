#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Memory that the device cannot map as it lies: behind swiotlb, and where pieces cannot be joined; and devices
# that take few work requests or few pieces of memory. They need modules that are built with BOUNCE=y.
. "$(dirname "$0")/../lib/lib.sh"

# Data in several pages that begin and end within a page. The copy of less than a page has another offset
# within its page, so the device cannot join it with whole pages.
swiotlb_moves_memory() {
	VERS=$1
	mount_export
	copies_lie 1
	for how in unaligned direct buffered; do
		"$here/fileio.py" write "$local" "$dir" $how 3753 4097 8193 65536 262145 1048577
	done
	remount
	for how in unaligned direct buffered; do
		"$here/fileio.py" compare "$local" "$dir" $how 3753 4097 8193 65536 262145 1048577
	done
	"$here/fileio.py" compare "$local" "$dir" unaligned 3753 4097 8193 65536 262145 1048577 skewed
	"$here/fileio.py" populate "$dir" 300 >/dev/null
	remount
	[ "$(ls "$dir" | wc -l)" -ge 300 ]
	[ "$(says unsendable)" = 0 ]
	says last_close | grep -q none
}

# goes_on FILE: small I/O, each by RPCs of its own, until there is $local/over.
goes_on() {
	while [ ! -e "$local/over" ]; do
		"$here/fileio.py" put "$local/small" "$1" 3000 || echo "put $1" >>"$local/failed"
		"$here/fileio.py" get "$local/small" "$1" 3000 || echo "get $1" >>"$local/failed"
		echo >>"$local/rounds"
	done
}

# ends_alone SIZE COMMAND...: after COMMAND each WRITE of SIZE bytes fails within seconds. Other RPCs of the
# connection go on.
ends_alone() {
	size=$1
	shift
	head -c 3000 /dev/urandom >"$local/small"
	head -c "$size" /dev/urandom >"$local/large"
	for number in 1 2 3 4; do
		: >"$dir/small$number"
	done
	for number in $(seq 24); do
		: >"$dir/large$number"
	done
	before=$(says unsendable)
	"$@"
	for number in 1 2 3 4; do
		goes_on "$dir/small$number" >"$local/log.$number" 2>&1 &
	done
	for number in $(seq 24); do
		status=0
		timeout -s KILL 20 "$here/fileio.py" put "$local/large" "$dir/large$number" "$size" \
			>"$local/log" 2>&1 || status=$?
		[ $status != 137 ] || fail "it does not end"
		[ $status != 0 ] || fail "a Call that cannot be sent has succeeded"
	done
	touch "$local/over"
	wait
	note "$(tail -n 1 "$local/log")"
	note "$(wc -l <"$local/rounds") rounds of other RPCs, $(($(says unsendable) - before)) could not be sent"
	[ ! -e "$local/failed" ] || {
		cat "$local/failed" "$local"/log.*
		fail "an RPC has ended that could be sent"
	}
	[ "$(says unsendable)" -ge $((before + 24)) ] || fail "unsendable has not grown"
}

# A WRITE of several pages cannot be mapped with any number of registrations.
what_cannot_be_joined_ends_its_rpc() {
	VERS=3
	mount_export
	traced rpcrdma/xprtrdma_frwr_maperr
	ends_alone 262144 copies_lie 2
	grep -q "xprtrdma_frwr_maperr: .* num_mapped=1" $tracing/trace
	says last_close | grep -q none
}

connections_break_and_no_piece_can_be_joined() {
	copies_lie 2
	breaks_every 5
}

# When a connection has been made, one task sends the Calls of all tasks that have waited for it. If a Call
# cannot be sent, its own RPC ends, and not the RPC of the sending task.
the_task_that_sends_goes_on() {
	VERS=3
	mount_export
	ends_alone 262144 connections_break_and_no_piece_can_be_joined
	note "$(transport connect_count) connections"
}

client_device_is_made_anew() {
	set_to "$limit" 0
	rdma link delete "$device"
	device_comes_back
}

# Connections of a mount are made when their first RPCs are sent. They find a device whose queues are too short. The
# tasks get no error, and their RPCs are sent after the device has been replaced.
tasks_wait_for_another_device() {
	limit=/sys/module/rpcrdma/parameters/$1
	[ -e "$limit" ] || skip "this module is not built with BOUNCE=y"
	software_device
	VERS=3
	mount_export nconnect=16,noac
	defer client_device_is_made_anew
	set_to "$limit" "$2"
	tasks=
	for number in $(seq 32); do
		stat "$dir" >/dev/null 2>>"$local/errors" &
		tasks="$tasks $!"
	done
	sleep 5
	waiting=0
	for task in $tasks; do
		! alive "$task" || waiting=$((waiting + 1))
	done
	note "$waiting tasks wait"
	cat "$local/errors"
	[ ! -s "$local/errors" ] || fail "a task has got an error"
	[ $waiting != 0 ] || fail "that tests nothing"
	dmesg | grep -q "the RDMA device $device cannot register memory" || fail "the log does not name the device"
	clean_up
	all_succeed $tasks
}

# sg_alloc_table() makes runs of 127 entries with a link, where an entry has 32 bytes, as on Debian's kernel. Of 255 entries,
# the last one is in the place of the second link.
a_registration_has_255_pages() {
	limit=/sys/module/rpcrdma/parameters/registration_pages
	[ -e $limit ] || skip "this module is not built with BOUNCE=y"
	software_device
	defer client_device_is_made_anew
	set_to $limit 255
	mount_export
	"$here/fileio.py" write "$local" "$dir" direct 1044480 1048577
	remount
	"$here/fileio.py" compare "$local" "$dir" direct 1044480 1048577
	leave
}

# A mount whose buffers find no room in swiotlb or an IOMMU tries again.
buffers_find_no_room() {
	modprobe rpcrdma
	errors=/sys/module/rpcrdma/parameters/buffer_errors
	[ -e $errors ] || skip "this module is not built with BOUNCE=y"
	VERS=3
	defer set_to $errors 0
	set_to $errors 1
	mount_export retry=0
	[ "$(cat $errors)" = 0 ] || fail "that tests nothing"
	: >"$dir/file"
	leave
}

# server_device NAME=VALUE...: limits of the server's device, until it is made anew.
server_device() {
	on_server sh -c 'cd /sys/module/rpcrdma/parameters && for limit; do
			echo "${limit#*=}" >"${limit%%=*}" || exit
		done' sh "$@"
}

server_device_is_made_anew() {
	! mountpoint -q "$mnt" || leave
	server_device sges=0 work_requests=0 queue_bytes=0
	on_server rdma link delete "$device"
	device_comes_back on_server
}

# Each piece of memory takes a work request. The send queue has room for the longest Reply, or the server
# refuses the client.
few_pieces_in_a_work_request() {
	needs_server_command
	on_server test -e $copies || skip "the server's module is not built with BOUNCE=y"
	software_device on_server
	defer server_device_is_made_anew
	server_device sges=1 work_requests=330
	mount_export
	"$here/fileio.py" write "$local" "$dir" direct 1048577
	remount
	"$here/fileio.py" compare "$local" "$dir" direct 1048577
	leave
	server_device work_requests=200
	mount_export retry=0 2>"$local/mount" || :
	! mountpoint -q "$mnt" || fail "a client is served by too short a queue"
	on_server dmesg | tail -n 5 | grep "queues are too short"
}

# The limit of work requests of mlx5 is for entries with one piece. Entries with more pieces do not fit all.
queues_of_many_calls_are_short_enough() {
	needs_server_command
	on_server test -e $copies || skip "the server's module is not built with BOUNCE=y"
	software_device on_server
	defer on_server sysctl -q sunrpc.svc_rdma.max_requests=128
	defer server_device_is_made_anew
	server_device work_requests=8192 queue_bytes=$((2 << 20))
	on_server sysctl -q sunrpc.svc_rdma.max_requests=4096
	mount_export
	"$here/fileio.py" write "$local" "$dir" direct 1048577
	remount
	"$here/fileio.py" compare "$local" "$dir" direct 1048577
	leave
}

# Ends the writers of a_long_write_has_its_turn.
end_writers() {
	kill $writers 2>/dev/null || :
	wait
}

# Many WRITEs that need little room in the send queue of the server do not keep a long WRITE from the room that it
# needs: nearly all of it, 256 work requests.
a_long_write_has_its_turn() {
	needs_server_command
	on_server test -e $copies || skip "the server's module is not built with BOUNCE=y"
	starved=/proc/sys/sunrpc/svc_rdma/rdma_stat_sq_starve
	software_device on_server
	defer server_device_is_made_anew
	server_device sges=1 work_requests=330
	VERS=3
	mount_export nolock
	head -c 1048576 /dev/urandom >"$local/long"
	lossy_link
	# The RDMA Reads of the short WRITEs fill the send queue all the time.
	tc qdisc change dev "$interface" root $NETEM delay 3ms
	writers=
	for number in $(seq 60); do
		dd if=/dev/zero of="$dir/short$number" bs=64K count=100000 oflag=direct conv=notrunc 2>/dev/null &
		writers="$writers $!"
	done
	defer end_writers
	sleep 2
	before=$(on_server cat $starved)
	longest=0
	for number in 1 2 3 4 5; do
		begun=$(date +%s%N)
		timeout -s KILL 20 dd if="$local/long" of="$dir/long$number" bs=1M oflag=direct 2>/dev/null
		took=$((($(date +%s%N) - begun) / 1000000))
		[ $took -lt $longest ] || longest=$took
	done
	after=$(on_server cat $starved)
	end_writers
	note "$longest ms at most; $((after - before)) messages have waited for room"
	remount
	for number in 1 2 3 4 5; do
		cmp "$local/long" "$dir/long$number"
	done
	[ "$after" -ge $((before + 5)) ] || fail "that tests nothing"
	[ "$longest" -lt 5000 ] || fail "a WRITE has waited for $longest ms"
}

# The bounce buffers of the server are full for a moment. The client sends the Call again, and its task gets no error.
no_room_to_bounce() {
	needs_server_command
	errors=/sys/module/rpcrdma/parameters/mapping_errors
	on_server test -e $errors || skip "the server's module is not built with BOUNCE=y"
	VERS=3
	mount_export nolock,noac
	head -c 300000 /dev/urandom >"$local/file"
	before=$(transport connect_count)
	on_server sh -c "echo 1 >$errors"
	"$here/fileio.py" put "$local/file" "$dir/file" 300000
	[ "$(on_server cat $errors)" = 0 ] || fail "no RDMA Read has failed"
	on_server sh -c "echo 1 >$errors"
	"$here/fileio.py" get "$local/file" "$dir/file" 300000
	[ "$(on_server cat $errors)" = 0 ] || fail "no RDMA Write has failed"
	count=$(($(transport connect_count) - before))
	note "$count new connections"
	[ $count -ge 2 ] || fail "a connection has survived"
	[ "$(transport bad_reply)" = 0 ] || fail "a Reply was bad"
}

# The server's device registers all memory, page by page. These READs and WRITEs need more registrations
# than the connection has. They wait for each other, and the connection stays.
registrations_run_out() {
	needs_server_command
	pages=/sys/module/rpcrdma/parameters/registration_pages
	[ "$(on_server sh -c "cat $pages 2>/dev/null")" = 1 ] ||
		skip "the server's device has registrations of more than a page"
	mount_export
	# All data differ, and a file is written once. So data that the server has not read are missing for good, and
	# the pages of another WRITE do not have them.
	for number in $(seq 16); do
		head -c 1048576 /dev/urandom >"$local/once$number"
	done
	writers=
	for number in $(seq 16); do
		dd if="$local/once$number" of="$dir/once$number" bs=1M oflag=direct 2>/dev/null &
		writers="$writers $!"
	done
	all_succeed $writers
	for number in $(seq 16); do
		cmp "$local/once$number" "$dir/once$number"
	done
	"$here/together.py" "$dir" 8 1048576
	[ "$(says last_close)" = none ]
}

tests \
	"swiotlb_moves_memory 3" \
	"swiotlb_moves_memory 4.2" \
	"what_cannot_be_joined_ends_its_rpc" \
	"the_task_that_sends_goes_on" \
	"tasks_wait_for_another_device work_requests 8" \
	"tasks_wait_for_another_device page_sizes 65536" \
	"a_registration_has_255_pages" \
	"buffers_find_no_room" \
	"few_pieces_in_a_work_request" \
	"queues_of_many_calls_are_short_enough" \
	"no_room_to_bounce" \
	"a_long_write_has_its_turn" \
	"registrations_run_out"
