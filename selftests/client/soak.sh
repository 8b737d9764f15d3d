#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Faults of all kinds in random order, on either side, under verified I/O. After each fault, a file
# must be written through the mount. DURATION is the minimal duration of each test in seconds, SEED
# selects the order. Both modules have to be built with FAULTS=y, both kernels need failslab and
# sunrpc's fault injection.
. "$(dirname "$0")/../lib/lib.sh"

DURATION=${DURATION:-600}
SEED=${SEED:-$(date +%s)}

parameters=/sys/module/rpcrdma/parameters

# random LEAST MOST: the next number of the sequence that SEED selects.
random() {
	drawn=$((drawn + 1))
	number=$(awk -v seed="$SEED" -v drawn="$drawn" -v least="$1" -v most="$2" 'BEGIN {
		srand(seed * 100003 + drawn)
		rand()
		print least + int(rand() * (most - least + 1))
	}')
}

# Chooses the side of the next fault at random. `$on COMMAND` runs a command there.
choose_side() {
	random 0 1
	case $number in
	0) side=client on= ;;
	1) side=server on=on_server ;;
	esac
}

# inject NAME SETTING=VALUE...: writes the settings of this directory of the fault injection in debugfs.
inject() {
	$on sh -c 'cd "/sys/kernel/debug/$1" && shift && for setting; do
		echo "${setting#*=}" >"${setting%%=*}" || exit
	done' sh "$@" || fail "$side: $1 does not take its settings"
}

fault_parameter() {
	$on sh -c "echo $2 >$parameters/fault_$1"
}

# Loses some or all frames of a side.
fault_frames() {
	random 1 10
	share=$number
	[ "$share" -lt 9 ] || share=100
	random 2 12
	said="$share% of the frames are lost for $number s"
	lose "$share%" $on
	sleep "$number"
}

fault_breaks() {
	random 20 200
	said="one in $number RPCs ends its connection"
	case $side in
	client) ignored="ignore-client-disconnect=N ignore-server-disconnect=Y" ;;
	server) ignored="ignore-client-disconnect=Y ignore-server-disconnect=N" ;;
	esac
	inject fail_sunrpc verbose=0 times=-1 ignore-cache-wait=Y $ignored "interval=$number" probability=100
	sleep 5
}

fault_memory() {
	random 30 300
	said="one in $number allocations fails"
	inject failslab verbose=0 times=-1 ignore-gfp-wait=N cache-filter=N task-filter=Y "interval=$number" probability=100
	for _ in 1 2 3 4 5; do
		$on sh -c 'for worker in $(pgrep "^kworker|^nfsd"); do
			echo 1 2>/dev/null >/proc/$worker/make-it-fail || :
		done'
		sleep 1
	done
}

fault_restart() {
	said="the server restarts"
	on_server rpc.nfsd 0
	random 0 4
	sleep "$number"
	on_server rpc.nfsd
}

fault_device() {
	random 0 3
	said="the device goes away for $number s"
	$on timeout 60 rdma link delete "$device" || fail "$side: the removal of the device does not end"
	sleep "$number"
	device_comes_back $on
}

# Removes a device that ends no work requests, as a driver does that resets it.
fault_dead_device() {
	random 0 1
	said="the device ends no work"
	fault_parameter silent "$number"
	fault_parameter modify 1
	sleep 2
	$on timeout 60 rdma link delete "$device" || fail "$side: the removal of the dead device does not end"
	fault_parameter modify 0
	fault_parameter silent 0
	device_comes_back $on
}

fault_event() {
	random 1 8
	said="the device reports event $number"
	fault_parameter event "$number"
	sleep 2
}

fault_late() {
	random 50 300
	said="the device reads work requests $number us late"
	fault_parameter delay "$number"
	sleep 4
}

# Loses the completion of a Send or of an RDMA Read, and removes the device.
fault_swallow() {
	random 0 1
	set -- 2 4
	shift "$number"
	lost=$1
	fault_parameter swallow "$lost"
	sleep 1
	fault_device
	said="the completion of a work request with opcode $lost is lost, and $said"
}

# Refuses to connect queue pairs, after an event that ends a connection.
fault_connect() {
	random 1 3
	said="the device refuses to connect $number queue pairs"
	fault_parameter connect "$number"
	fault_parameter event 1
	sleep 3
}

# Breaks a queue pair between two work requests of a list: Sends, RDMA Reads, or Receives.
fault_broken() {
	random 0 2
	set -- 2 4 128
	shift "$number"
	said="a queue pair breaks behind a work request with opcode $1"
	fault_parameter break "$1"
	sleep 2
}

# Wakes the tasks that wait for a connection late.
fault_wake() {
	random 50 400
	said="the tasks that wait for a connection are woken $number ms late"
	fault_parameter wake "$number"
	fault_parameter event 1
	sleep 3
}

fault_kill() {
	random 1 20
	said="readers and writers are killed after $number hundredths of a second"
	killed=
	for n in 1 2 3; do
		dd if="$dir-whole" of=/dev/null bs=1M iflag=direct 2>/dev/null &
		killed="$killed $!"
		dd if=/dev/zero of="$dir-$n" bs=512k count=8 oflag=direct 2>/dev/null &
		killed="$killed $!"
	done
	sleep "$(printf 0.%02d "$number")"
	for process in $killed; do
		kill -9 "$process" 2>/dev/null || :
	done
	for process in $killed; do
		wait "$process" || :
	done
}

# The next connections have other sizes, and version 1 or 2 where both sides speak version 2.
fault_settings() {
	random 1 4
	bytes=$((1 << (9 + number * 2)))
	[ $bytes -le 65536 ] || bytes=65536
	random 1 "$RDMA_VERSION"
	said="the $side speaks version $number at most, with messages of $bytes bytes"
	case $side in
	client)
		echo "$bytes" >/proc/sys/sunrpc/rdma_max_inline_read
		echo "$bytes" >/proc/sys/sunrpc/rdma_max_inline_write
		echo "$number" >/proc/sys/sunrpc/rdma_max_version
		;;
	server)
		[ $bytes -ge 4096 ] || bytes=4096
		on_server sh -c "cd /proc/sys/sunrpc/svc_rdma && echo $bytes >max_req_size && echo $number >max_version"
		;;
	esac
	# A connection that begins now has them.
	inject fail_sunrpc verbose=0 times=2 ignore-cache-wait=Y ignore-client-disconnect=N ignore-server-disconnect=N \
		interval=1 probability=100
	sleep 2
}

fault_caches() {
	said="the page cache is dropped"
	echo 3 >/proc/sys/vm/drop_caches
}

# A file can be written. A queue pair of the connection manager may have been lost by frames that were under way
# when the fault ended.
writes_again() {
	"$here/fileio.py" put "$here/lib.sh" "$dir-after" 1000 &
	put=$!
	for second in $(seq 240); do
		kill -0 $put 2>/dev/null || break
		[ $((second % 20)) -ne 0 ] || { revive_device; revive_device on_server; }
		sleep 1
	done
	kill $put 2>/dev/null && fail "no file can be written any more"
	wait $put || fail "the file cannot be written"
}

# Ends the faults on both sides.
heal() {
	for side in client server; do
		case $side in
		client) on= ;;
		server) on=on_server ;;
		esac
		lose 0% $on
		$on sh -c 'for name in fail_sunrpc failslab; do echo 0 >/sys/kernel/debug/$name/probability; done'
		for setting in modify=0 silent=0 delay=0 swallow=-1 event=-1 connect=0 break=-1 wake=0; do
			fault_parameter "${setting%=*}" "${setting#*=}"
		done
		device_comes_back $on
		revive_device $on
	done
}

end_faults() {
	heal
	tc qdisc del dev "$interface" root
	on_server tc qdisc del dev "$interface" root
	echo "$old_read" >/proc/sys/sunrpc/rdma_max_inline_read
	echo "$old_write" >/proc/sys/sunrpc/rdma_max_inline_write
	on_server sh -c "echo $old_size >/proc/sys/sunrpc/svc_rdma/max_req_size"
	speak_as_told
}

# faults_in_random_order VERSION of NFS.
faults_in_random_order() {
	VERS=$1
	needs_server_command
	for on in "" on_server; do
		$on modprobe rpcrdma
		$on test -e $parameters/fault_modify || skip "both modules have to be built with FAULTS=y"
		$on test -e /sys/kernel/debug/failslab -a -e $breaking || skip "both kernels need fault injection"
	done
	old_read=$(cat /proc/sys/sunrpc/rdma_max_inline_read)
	old_write=$(cat /proc/sys/sunrpc/rdma_max_inline_write)
	old_size=$(on_server cat /proc/sys/sunrpc/svc_rdma/max_req_size)
	software_device
	software_device on_server
	rest=$(rdma_objects on_server)
	mount_export
	netem
	netem on_server
	defer end_faults
	head -c 4000001 /dev/urandom >"$local/whole"
	cp "$local/whole" "$dir-whole"
	begin_io 4
	drawn=0
	faults=0
	end=$(($(date +%s) + DURATION))
	note "SEED=$SEED"
	set -- fault_frames fault_breaks fault_memory fault_restart fault_device fault_dead_device fault_event fault_late \
		fault_swallow fault_connect fault_broken fault_wake fault_kill fault_settings fault_caches
	while [ "$(date +%s)" -lt $end ]; do
		choose_side
		random 1 $#
		fault=${!number}
		$fault
		# Shown if the test fails.
		echo "fault $faults, $side: $said"
		heal
		writes_again
		kill -0 $churn || fail "verified I/O has ended"
		faults=$((faults + 1))
	done
	heal
	note "$faults faults"
	end_io
	cmp "$local/whole" "$place-whole"
	clean_up
	leave
	at_rest "$rest" rdma_objects on_server
}

tests \
	"faults_in_random_order 4.2" \
	"faults_in_random_order 3"
