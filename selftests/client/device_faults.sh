#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# RDMA devices that fail: they do not end the work of a queue pair, refuse to connect it, lose completions, report
# events, read work requests late, or go away while all threads of the server are stuck in a file system. Most of it
# needs a module that was built with FAULTS=y (rust/standins/faults.c) on the side whose device is to fail.
. "$(dirname "$0")/../lib/peer.sh"

parameters=/sys/module/rpcrdma/parameters

ENETDOWN=100

# runs_on SIDE: `$on COMMAND` runs a command on that side.
runs_on() {
	case $1 in
	client) on= ;;
	server)
		needs_server_command
		on=on_server
		;;
	esac
}

# fails_on SIDE: the device of that side can be made to fail, until the test ends.
fails_on() {
	runs_on "$1"
	$on modprobe rpcrdma
	$on test -e $parameters/fault_modify || skip "the $1's module is not built with FAULTS=y"
	software_device $on
	defer heal
}

# fault NAME VALUE: the device has that fault from now on.
fault() {
	$on sh -c "echo $2 >$parameters/fault_$1"
}

# Ends the failure of the device, or adds a new device.
heal() {
	fault modify 0
	fault connect 0
	fault resolve 0
	fault silent 0
	fault delay 0
	fault swallow -1
	fault break -1
	fault event -1
	fault wake 0
	device_comes_back $on
}

# Fails unless the removal of the device ends in time, with the module's part in it.
device_goes() {
	begun=$(date +%s)
	$on timeout 40 rdma link delete "$device" || fail "the removal of the device does not end"
	note "the device was removed in $(($(date +%s) - begun)) s"
}

# The device does not end the work of a queue pair, and then does not report anything either; then it is
# removed, as drivers do that reset it. Tasks that wait for the device go on.
device_is_dead() {
	fails_on "$1"
	VERS=$2
	mount_export
	head -c 300000 /dev/urandom >"$local/file"
	cp "$local/file" "$dir-file"
	begin_io 3
	sleep 1
	fault modify 1
	device_goes
	heal
	sleep 2
	fault silent 1
	fault modify 1
	# Tasks that give up their RPCs have the memory of these invalidated, which does not happen.
	timeout -s KILL 2 "$here/fileio.py" get "$local/file" "$dir-file" 300000 >/dev/null 2>&1 &
	given_up=$!
	sleep 3
	device_goes
	heal
	wait $given_up || :
	end_io
	cmp "$local/file" "$dir-file"
	leave
	has_no_resources
}

# Fails unless the resources of ended connections are freed.
has_no_resources() {
	for _ in $(seq 60); do
		left=$(queue_pairs $on)
		[ "$left" != 0 ] || return 0
		sleep 0.5
	done
	fail "$left queue pairs are left"
}

# The device refuses to connect queue pairs whose connections the server has accepted. The client tries again.
queue_pairs_are_not_connected() {
	fails_on client
	[ "$type" != siw ] || skip "iWARP connects the queue pair before the server accepts"
	VERS=$1
	fault connect 1
	mount_export
	begin_io 2
	files=$dir
	dir=$dir-more
	mkdir "$dir"
	for _ in 1 2 3; do
		count=$(new_connections)
		fault connect 2
		event_happens 1
		for _ in $(seq 60); do
			[ "$(new_connections)" = "$count" ] || break
			sleep 0.5
		done
		[ "$(new_connections)" -gt "$count" ] || fail "there is no connection"
		left=$(cat $parameters/fault_connect)
		[ "$left" = 0 ] || fail "the device has not been asked to connect $left queue pairs"
	done
	dir=$files
	end_io
	leave
	has_no_resources
}

# While the network is down, an RPC of a mount with fatal_neterrors ends, and an RPC of another mount waits.
the_network_is_down() {
	fails_on client
	VERS=3
	head -c 300001 /dev/urandom >"$local/file"
	for errors in none ENETDOWN:ENETUNREACH; do
		mount_export fatal_neterrors=$errors
		: >"$dir/file"
		needs_dstaddr
		fault resolve $ENETDOWN
		# The transport gives the connection up even if the address is the same.
		echo "$SERVER" >"$dstaddr"
		"$here/fileio.py" put "$local/file" "$dir/file" 300001 >/dev/null 2>&1 &
		writer=$!
		for _ in $(seq 40); do
			kill -0 $writer 2>/dev/null || break
			sleep 0.2
		done
		case $errors in
		none) kill -0 $writer || fail "the writer did not wait" ;;
		*)
			! kill -0 $writer 2>/dev/null || fail "the writer waits"
			! wait $writer || fail "the writer has not met an error"
			;;
		esac
		fault resolve 0
		wait $writer || [ $errors != none ]
		cp "$local/file" "$dir/again"
		remount
		cmp "$local/file" "$dir/again"
		leave
	done
}

# opcode_of WORK: the number that `enum ib_wr_opcode` has for it, or `enum ib_wc_opcode` for a Receive. iWARP reads and
# invalidates at once.
opcode_of() {
	case $1-$type in
	send-*) echo 2 ;;
	receive-*) echo 128 ;;
	read-siw) echo 11 ;;
	read-*) echo 4 ;;
	esac
}

# Loses completions of this kind of work request while connections break.
completions_get_lost() {
	fails_on "$1"
	VERS=3
	mount_export
	begin_io 2
	shift
	for work; do
		fault swallow "$(opcode_of "$work")"
		for _ in $(seq 60); do
			[ "$($on cat $parameters/fault_swallow)" != -1 ] || break
			sleep 0.5
		done
		[ "$($on cat $parameters/fault_swallow)" = -1 ] || fail "there was no $work"
		device_goes
		device_comes_back $on
		sleep 1
	done
	end_io
	leave
	has_no_resources
}

# The numbers of `enum ib_event_type`. The last thing that is heard of a queue pair may be such an event.
serious=${QUICK:+1 8}
serious=${serious:-1 2 3 7 8}
harmless=${QUICK:+4}
harmless=${harmless:-4 5 6}

# A serious event of its queue pair ends a connection. A harmless event does not.
events_end_connections() {
	fails_on "$1"
	VERS=3
	mount_export
	for event in $serious; do
		before=$(transport connect_count)
		TRACED=$on EVENTS='rpcrdma_qp_event svcrdma_qp_error' trace event_and_connection "$event"
		shows 'rpcrdma_qp_event: cid=[0-9]* event="[a-zA-Z ]*"'
		[ "$1" = client ] ||
			shows "svcrdma_qp_error: cid=[0-9]* peer=$(source_of "$SERVER"):[0-9]* device=[a-z0-9]* event=[A-Z_]* ($event)$"
		[ "$1" != client ] || says last_close | grep -q '[a-z]' || fail "no reason is shown"
		note "$event: $(cat "$local/events")"
	done
	[ "$1" != client ] || note "last_close: $(says last_close)"
	for event in $harmless; do
		stays connect_count harmless_event "$event"
	done
}

event_and_connection() {
	event_happens "$1"
	for _ in $(seq 60); do
		[ "$(transport connect_count)" = "$before" ] || return 0
		sleep 0.5
		touch "$dir/again"
	done
	fail "the connection goes on after event $1"
}

# The next RPC replaces an ended connection.
harmless_event() {
	event_happens "$1"
	sleep 1
	touch "$dir/behind"
}

# Each Receive that is posted brings an event, and Receives are posted many at a time.
event_happens() {
	fault event "$1"
	for number in $(seq 200); do
		touch "$dir/$number"
		[ "$($on cat $parameters/fault_event)" != -1 ] || break
	done
	[ "$($on cat $parameters/fault_event)" = -1 ] || fail "no Receive was posted"
}

# work_requests_are_read_late SIDE VERSION WORK...: a device looks for the next work request a while after it has taken
# one. Meanwhile the first may complete, and, if it is one of WORK, is flushed.
work_requests_are_read_late() {
	fails_on "$1"
	VERS=$2
	shift 2
	mount_export nconnect=2
	fault delay 300
	begin_io 1
	for work in "$@"; do
		sleep 1
		count=$(new_connections)
		fault break "$(opcode_of "$work")"
		for _ in $(seq 60); do
			[ "$(new_connections)" = "$count" ] || break
			sleep 0.2
		done
	done
	end_io
	[ "$count" -ge $# ] || fail "$count of $# connections have broken"
}

# The tasks that wait for a connection are woken late. A task that comes meanwhile must not use the connection before
# that: a task that is woken while it waits for a Reply sends its Call again, which ends the connection.
tasks_are_woken_late() {
	fails_on client
	VERS=3
	mount_export
	begin_io 2
	files=$dir
	dir=$dir-more
	mkdir "$dir"
	fault wake 400
	for time in 1 2 3; do
		count=$(new_connections)
		event_happens 1
		for _ in $(seq 60); do
			touch "$dir/$time" &
			sleep 0.05
		done
		wait $(jobs -p | grep -vx $churn)
		[ "$(new_connections)" -gt "$count" ] || fail "the connection goes on"
	done
	fault wake 0
	dir=$files
	end_io
	[ "$count" = 3 ] || fail "$count new connections instead of 3"
}

# A server sends a client that posts its Receives slowly many messages at once, which take no credit. The device of the
# server repeats a message that finds no Receive after 0.96 ms. The connection manager's default is 655 ms. In version 1,
# such a message ends the connection.
#
# The last test, because the server is a process that keeps the device until the end of the program.
messages_without_a_receive_are_repeated_soon() {
	fails_on client
	in_version_2 many_grants_come
}

many_grants_come() {
	counts_messages_without_receive
	mount_through_the_peer
	fault delay 1000
	for _ in 1 2 3 4; do
		before=$(messages_without_receive)
		strike more_grants_than_receives
		good
		ms=$(outcome)
		without=$(($(messages_without_receive) - before))
		note "$without messages without a Receive, $ms ms"
		[ $without = 0 ] || [ "$ms" -ge 600 ] || return 0
	done
	fail "each message found a Receive, or waited for it for long"
}

# All threads of the server wait for a file system that is frozen, for clients over TRANSPORT, while the RDMA
# device goes away.
device_goes_while_threads_are_stuck() {
	runs_on server
	software_device on_server
	VERS=3
	mount_export
	make_frozen
	defer device_comes_back on_server
	case $1 in
	rdma) options=proto=rdma,port=$PORT ;;
	tcp) options=proto=tcp ;;
	esac
	mount -t nfs -o "$options,vers=3,nolock" "$SERVER:$frozen" "$local/frozen"
	for number in $(seq 16); do
		echo before >"$local/frozen/$number"
	done
	sync
	on_server fsfreeze -f $frozen
	for number in $(seq 16); do
		echo "after $number" | dd of="$local/frozen/$number" conv=fsync 2>/dev/null &
	done
	threads=$(on_server cat /proc/fs/nfsd/threads)
	for _ in $(seq 60); do
		[ "$(stuck_threads)" -lt "$threads" ] || break
		sleep 0.5
	done
	note "$(stuck_threads) of $threads threads are stuck"
	[ "$(stuck_threads)" -ge "$threads" ] || fail "some threads are free"
	# The RDMA connection of the mount is idle, or has a Call that waits for a thread.
	timeout -s KILL 2 touch "$dir/file" &
	sleep 3
	device_goes
	! on_server rmmod rpcrdma 2>/dev/null || fail "unloaded while threads use it"
	device_comes_back on_server
	on_server fsfreeze -u $frozen
	wait
	umount "$local/frozen"
	mount -t nfs -o "$options,vers=3,nolock" "$SERVER:$frozen" "$local/frozen"
	for number in $(seq 16); do
		[ "$(cat "$local/frozen/$number")" = "after $number" ] || fail "$number was not written"
	done
	umount "$local/frozen"
	touch "$dir/file"
}

# Clients wait for a listener without threads while the device of their connections is removed.
device_goes_while_clients_wait() {
	needs_server_command
	needs_crowd
	on_server sh -c 'command -v nfsdctl' >/dev/null || skip "the server needs nfsdctl"
	runs_on server
	software_device on_server
	defer on_server sh -c 'rpc.nfsd 0 && rpc.nfsd'
	defer device_comes_back on_server
	on_server nfsdctl threads 0
	# A listener for all addresses stays when a device goes, so only its clients hold the device.
	place=0.0.0.0
	[ "$1" = all_addresses ] || place=$SERVER
	on_server nfsdctl listener "+rdma:$place:20057"
	timeout 60 "$here/crowd.py" "$SERVER" 20057 4 4 >"$local/waiting" 2>&1 &
	crowd=$!
	sleep 3
	kill -0 $crowd || fail "the clients have gone: $(cat "$local/waiting")"
	device_goes
	device_comes_back on_server
	kill $crowd 2>/dev/null || :
	wait $crowd || :
	# The listener listens anew, and goes away when it is told to.
	sleep 3
	on_server nfsdctl listener "-rdma:$place:20057"
	on_server rpc.nfsd 0
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		! on_server modprobe -r rpcrdma 2>/dev/null || break
		sleep 0.5
	done
	! on_server test -d /sys/module/rpcrdma || fail "something still uses the module"
}

# Prints the number of objects that the module has leaked, because a device may still use them.
leaked() {
	dmesg | grep -c 'rpcrdma: .* cannot be given back to the RDMA device' || :
}

# the_module_unloads END: a connection that has ended in this way keeps no reference to the module. A leaked object, which
# only a fault of the module can cause, does.
the_module_unloads() {
	fails_on client
	VERS=3
	mount_export
	head -c 100000 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	"$1"
	leave
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		! modprobe -r rpcrdma 2>/dev/null || break
		sleep 0.5
	done
	if [ "$(leaked)" = 0 ]; then
		! [ -d /sys/module/rpcrdma ] || fail "something still uses the module"
	else
		[ -d /sys/module/rpcrdma ] || fail "the module is gone, and $(leaked) objects may call it"
	fi
	modprobe rpcrdma
}

# The device ends no work, and its queue pair is destroyed.
by_a_dead_device() {
	fault silent 1
	fault modify 1
	timeout -s KILL 2 dd if="$dir/file" of=/dev/null bs=100000 iflag=direct &
	sleep 3
	device_goes
	heal
	wait
}

# The connection is given up while memory is registered for a Reply.
with_registered_memory() {
	needs_dstaddr
	lossy_link
	exec 8<"$dir/file"
	lose 100%
	timeout 60 dd of="$local/got" bs=100000 iflag=direct <&8 &
	reader=$!
	exec 8<&-
	sleep 1
	echo "$SERVER" >"$dstaddr"
	lose 0%
	wait $reader
	cmp "$local/file" "$local/got"
}

# Few slots have few registrations. A signed WRITE is a Long Call, of which head, data and tail are registered apart, so
# registrations of one size make room for registrations of the other.
registrations_make_room() {
	fails_on client
	needs lab-krb5
	with 1 1
	slots=/proc/sys/sunrpc/rdma_slot_table_entries
	defer set_to $slots "$(cat $slots)"
	set_to $slots 4
	lab-krb5
	VERS=3
	mount_export sec=krb5i
	mkdir "$dir/small" "$dir/large"
	# The server copies the data of a Long Call in pieces that end within a group of bytes.
	# Only a WRITE that finds no registration of its size while the two sizes have all twelve replaces a registration.
	for round in 1 2 3 4 5; do
		"$here/together.py" "$dir/small" 8 61440 torn &
		small=$!
		"$here/together.py" "$dir/large" 8 983040 torn &
		all_succeed $small $!
		made=$(transport allocated_mrs)
		note "round $round: $made registrations"
		[ "$made" -le 12 ] || break
	done
	[ "$made" -gt 12 ] || fail "no registration made room for another"
	leave
}

tests \
	"device_is_dead client 3" \
	"device_is_dead client 4.2" \
	"device_is_dead server 3" \
	"queue_pairs_are_not_connected 3" \
	"queue_pairs_are_not_connected 4.2" \
	"the_network_is_down" \
	"completions_get_lost client send" \
	"completions_get_lost server read send" \
	"events_end_connections client" \
	"events_end_connections server" \
	"work_requests_are_read_late client 4.2 send send" \
	"work_requests_are_read_late server 3 receive read receive read send" \
	"tasks_are_woken_late" \
	"device_goes_while_threads_are_stuck rdma" \
	"device_goes_while_threads_are_stuck tcp" \
	"device_goes_while_clients_wait all_addresses" \
	"device_goes_while_clients_wait one_address" \
	"the_module_unloads by_a_dead_device" \
	"the_module_unloads with_registered_memory" \
	"messages_without_a_receive_are_repeated_soon" \
	"registrations_make_room"
