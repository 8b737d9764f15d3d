#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Faults of a server under verified I/O of its clients: restarts, connections that break, links that
# lose frames, devices and addresses that are removed and added, memory that is short. Afterwards
# the server has the same resources as before. BREAKS and SHORTAGE as for breaks.sh and scarce.sh;
# RESTARTS is the number of restarts.
. "$(dirname "$0")/../lib/lib.sh"

BREAKS=${BREAKS:-300}
SHORTAGE=${SHORTAGE:-20}
RESTARTS=${RESTARTS:-5}

# Records the resources of the server without a client, and mounts.
begin() {
	needs_server_command
	VERS=$1
	server_is_idle
	rest=$(rdma_objects on_server)
	mount_export "${2:-}"
	connections=$(transport connect_count)
}

# Waits until the resources for clients are freed.
end() {
	leave
	at_rest "$rest" rdma_objects on_server
}

restarts_under_io() {
	begin "$1"
	begin_io 4
	for _ in $(seq "$2"); do
		sleep 1
		on_server rpc.nfsd 0
		on_server rpc.nfsd
		# A client is served before the next fault.
		"$here/fileio.py" put "$here/lib.sh" "$mnt/rpcrdma-test.$$-after" 1000
	done
	[ "$(new_connections)" -ge "$2" ] || fail "a restart has not ended the connection"
	end_io
	end
}

# The module goes as soon as nfsd has ended, while clients connect again and again, and comes back with nfsd.
unloads_between_restarts() {
	begin "$1" nconnect=2
	begin_io 4
	for _ in $(seq "$RESTARTS"); do
		sleep 1
		on_server sh -c '
			! modprobe -r rpcrdma 2>/dev/null || exit
			rpc.nfsd 0
			for _ in $(seq 200); do
				! modprobe -r rpcrdma 2>/dev/null || break
				sleep 0.1
			done
			unloaded=1
			[ ! -d /sys/module/rpcrdma ] || unloaded=0
			rpc.nfsd
			[ $unloaded = 1 ]' || fail "the module was unloaded under nfsd, or could not be unloaded without"
		"$here/fileio.py" put "$here/lib.sh" "$mnt/rpcrdma-test.$$-after" 1000
	done
	end_io
	# A new module has settings and no device's objects of the old one.
	speak_as_told
	end
}

# server_fault NAME SETTING=VALUE...: sets fault injection on the server, until the test ends.
server_fault() {
	name=$1
	shift
	on_server test -d "/sys/kernel/debug/$name" || skip "the server has no $name in debugfs"
	settings="verbose=0 times=-1 $*"
	on_server sh -c '
		cd "/sys/kernel/debug/$1" || exit
		for setting in $2; do
			echo "${setting#*=}" >"${setting%%=*}" || exit
		done' sh "$name" "$settings" || fail "$name does not take $settings"
}

no_server_faults() {
	on_server sh -c 'for name in fail_sunrpc failslab; do
		[ ! -e /sys/kernel/debug/$name ] || echo 0 >/sys/kernel/debug/$name/probability
	done'
}

# connections_break VERSION CONNECTIONS CALLS: the server ends the connection of one of CALLS that
# arrive, while it works on others.
connections_break() {
	begin "$1" "nconnect=$2"
	defer no_server_faults
	server_fault fail_sunrpc ignore-server-disconnect=N ignore-client-disconnect=Y \
		ignore-cache-wait=Y "interval=$3" probability=100
	begin_io 6
	wait_for_breaks "$BREAKS"
	clean_up
	end_io
	[ $broken -ge "$BREAKS" ] || fail "there have been only $broken breaks"
	end
}

# The frames of the server's side get lost: of Replies, of RDMA Reads and Writes, of acknowledgements.
frames_are_lost() {
	begin "$1"
	software_device on_server
	netem on_server
	defer on_server tc qdisc del dev "$interface" root
	lose "$2" on_server
	begin_io 4
	sleep 3
	lose 0% on_server
	end_io
	some_were_lost on_server
	end
}

# The device is removed with all connections and with the CM id of the listener. Clients connect
# again when the device is back.
device_goes_and_comes_back() {
	begin "$1"
	software_device on_server
	defer device_comes_back on_server
	begin_io 3
	for _ in 1 2; do
		sleep 2
		on_server timeout 30 rdma link delete "$device"
		on_server grep -q "^rdma $PORT" /proc/fs/nfsd/portlist
		sleep "$2"
		device_comes_back on_server
		"$here/fileio.py" put "$here/lib.sh" "$mnt/rpcrdma-test.$$-after" 1000
	done
	end_io
	end
}

# The service ends without a client, while the device is removed.
stops_without_a_device() {
	needs_server_command
	software_device on_server
	defer on_server rpc.nfsd
	defer device_comes_back on_server
	on_server rdma link delete "$device"
	sleep 2
	on_server timeout 30 rpc.nfsd 0
	clean_up
	mount_export
}

# memory_is_short VERSION ONE_IN: one in ONE_IN allocations of the server's threads, and of the
# workers for its connections, fails. A client may get an error, but never reads data that was not
# written. Failed operations are repeated until the shortage ends.
memory_is_short() {
	begin "$1" "nconnect=2"
	software_device on_server
	defer no_server_faults
	# The limit of failures; the rest of it shows the number of failures.
	times=1000000
	server_fault failslab ignore-gfp-wait=N cache-filter=N task-filter=Y "interval=$2" times=$times \
		probability=100
	for n in 1 2 3 4; do
		write_and_read $n &
	done
	for _ in $(seq "$SHORTAGE"); do
		on_server sh -c 'for task in $(pgrep "^nfsd|^kworker"); do
			echo 1 2>/dev/null >/proc/$task/make-it-fail || :
		done'
		sleep 1
		revive_device on_server
	done
	failed=$((times - $(on_server cat /sys/kernel/debug/failslab/times)))
	clean_up
	revive_device on_server
	touch "$local/stop"
	wait
	note "$failed allocations have failed, $(($(transport connect_count) - connections)) new connections"
	[ $failed -gt 0 ] || fail "memory was not short"
	for n in 1 2 3 4; do
		[ -e "$local/rounds$n" ] || fail "process $n read data that it has not written"
		note "process $n: $(cat "$local/rounds$n") complete rounds"
		[ "$(cat "$local/rounds$n")" -gt 0 ] || fail "that tests nothing"
	done
	remount
	for n in 1 2 3 4; do
		cp "$local/data$n" "$dir/$n"
		cmp "$local/data$n" "$dir/$n"
	done
	end
}

# reads_while_each_allocation_fails DSTADDR: the first allocations of each size fail in the threads of the server, each
# while a client reads over a new connection.
reads_while_each_allocation_fails() {
	for cache in $(on_server sh -c 'cd /sys/kernel/slab && ls -d kmalloc-[0-9]*'); do
		for number in 1 2 3 4; do
			# The connection is given up before its address changes.
			echo "$SERVER" >"$1"
			stat "$dir/file" >"$local/stat"
			on_server sh -c "echo 1 >/sys/kernel/slab/$cache/failslab"
			server_fault failslab "interval=$number" times=1 probability=100
			dd if="$dir/file" of="$local/read" bs=64k iflag=direct 2>"$local/dd" || {
				cat "$local/dd"
				fail "allocation $number of $cache has failed the READ"
			}
			no_server_faults
			left=$(on_server cat /sys/kernel/debug/failslab/times)
			on_server sh -c "echo 0 >/sys/kernel/slab/$cache/failslab"
			cmp "$local/file" "$local/read"
			failed=$((failed + 1 - left))
			# There is no further allocation of this size.
			[ "$left" = 0 ] || break
		done
	done
}

# The client gets the data, maybe over another connection, and no error message.
each_allocation_fails() {
	begin 3 nolock,noac
	needs_dstaddr
	defer no_server_faults
	server_fault failslab probability=0 ignore-gfp-wait=N cache-filter=Y task-filter=Y interval=1
	on_server sh -c 'for task in $(pgrep "^nfsd"); do echo 1 >/proc/$task/make-it-fail; done'
	head -c 65536 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	failed=0
	TRACED=on_server EVENTS=svcrdma_error trace reads_while_each_allocation_fails "$dstaddr"
	note "$failed allocations have failed, $(($(transport connect_count) - connections)) new connections"
	[ "$failed" -gt 0 ] || fail "memory was not short"
	[ ! -s "$local/events" ] || {
		cat "$local/events"
		fail "the server has refused a Call"
	}
	[ "$(transport bad_reply)" = 0 ] || fail "a Reply was bad"
	clean_up
	end
}

write_and_read() {
	rounds=0
	while [ ! -e "$local/stop" ]; do
		head -c $(($1 * 200001)) /dev/urandom >"$local/data$1"
		cp "$local/data$1" "$dir/$1" 2>/dev/null || continue
		dd if="$dir/$1" of="$local/read$1" bs=256k iflag=direct 2>/dev/null || continue
		cmp "$local/data$1" "$local/read$1" || return
		rounds=$((rounds + 1))
	done
	echo $rounds >"$local/rounds$1"
}

# Has a lock of FILE as soon as it can be had, makes HELD then, and ends when LET_GO is there.
holds_a_lock='import fcntl, os, sys, time
file, held, let_go = sys.argv[1:]
lock = open(file, "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
open(held, "w").close()
while not os.path.exists(let_go):
    time.sleep(0.05)'

# A task that waits for a lock is called when the lock is free (CB_NOTIFY_LOCK). Without the call it
# would ask again after half a minute.
locks_are_notified() {
	begin 4.2
	on_server sh -c "echo Y >/proc/fs/lockd/nlm_end_grace" 2>/dev/null || :
	: >"$dir/locked"
	sync "$dir/locked"
	place=$EXPORT/${dir##*/}
	# The server runs one command at a time.
	on_server sh -c 'python3 -c "$1" "$2/locked" "$2/held" "$2/let-go" >/dev/null 2>&1 &
		until [ -e "$2/held" ]; do sleep 0.1; done' sh "$holds_a_lock" "$place"
	python3 -c "$holds_a_lock" "$dir/locked" "$local/held" "$local/let-go" &
	waiter=$!
	sleep 3
	[ ! -e "$local/held" ] || fail "two have the same lock"
	on_server touch "$place/let-go"
	begun=$(date +%s)
	until [ -e "$local/held" ]; do
		[ $(($(date +%s) - begun)) -lt 10 ] || fail "no callback has said that the lock is free"
		sleep 0.1
	done
	touch "$local/let-go"
	wait $waiter
	end
}

# Files with a delegation of the client are changed on the server, under the client's I/O: the
# server recalls each delegation over the connection, and then the client reads the new data.
delegations_are_recalled() {
	begin 4.2
	on_server sh -c 'echo Y >/proc/fs/lockd/nlm_end_grace' 2>/dev/null || :
	files=40
	for n in $(seq $files); do
		echo "old $n" >"$dir/delegated$n"
	done
	remount
	mkdir "$dir/io"
	holds_them "$dir" $files &
	holder=$!
	until [ -e "$local/held" ]; do
		kill -0 $holder
		sleep 0.1
	done
	given=$(on_server sh -c 'cat /proc/fs/nfsd/clients/*/states' | grep -c 'type: deleg') || :
	[ "$given" -ge $((files / 2)) ] || fail "only $given delegations"
	at=$dir
	dir=$at/io
	begin_io 4
	sleep 1
	begun=$(date +%s)
	on_server sh -c "cd $EXPORT/${at##*/} && for n in \$(seq $files); do echo new \$n >>delegated\$n; done"
	took=$(($(date +%s) - begun))
	note "$given delegations recalled in $took s"
	# Without a callback the server waits for as long as a lease.
	[ $took -lt 30 ]
	dir=$at
	touch "$local/let-go"
	wait $holder
	dir=$at/io
	end_io
	end
}

# threads COUNT: the server has COUNT threads during this test.
threads() {
	threads=$(on_server cat /proc/fs/nfsd/threads)
	defer on_server rpc.nfsd "$threads"
	on_server rpc.nfsd "$1"
}

# writes_to_frozen NUMBER: a process opens a file of the frozen file system, and writes to it when there is another file.
writes_to_frozen() {
	(
		exec 9<>"$local/frozen/$1"
		until [ -e "$local/write.$1" ]; do
			sleep 0.1
		done
		echo "after $1" >&9
	) &
}

writers_go_on() {
	for number in $(seq 16); do
		: >"$local/write.$number"
	done
}

# writers_wait_for_frozen [OPTIONS]: mounts the export and the file system to be frozen by NFS version 3. For each of
# 16 files of the latter, a process waits to write to it.
writers_wait_for_frozen() {
	VERS=3
	make_frozen
	on_server sh -c "for number in \$(seq 16); do echo before >$frozen/\$number; done"
	mount_export "nolock,noac${1:+,$1}"
	: >"$dir/file"
	mount -t nfs -o "proto=rdma,port=$PORT,vers=3,nolock,noac${1:+,$1}" "$SERVER:$frozen" "$local/frozen"
	defer writers_go_on
	for number in $(seq 16); do
		writes_to_frozen "$number"
	done
	sleep 1
}

# an_export_that_hangs_leaves_credits RPCRDMA-VERSION WHEN: Calls wait for a file system, and the client has credits for
# Calls to another export over the same connection. The server has more threads than Calls wait: when the client connects
# (at_first), or afterwards.
an_export_that_hangs_leaves_credits() {
	with "$1" "$1"
	writers_wait_for_frozen
	# Another connection begins with few credits.
	needs_dstaddr
	[ "$2" != at_first ] || threads 32
	echo "$SERVER" >"$dstaddr"
	stat "$dir/file" >/dev/null
	[ "$2" = at_first ] || threads 32
	on_server fsfreeze -f $frozen
	for number in $(seq 16); do
		: >"$local/write.$number"
		# In version 1 only a Reply grants more.
		[ "$1-$2" != 1-afterwards ] || {
			timeout -s KILL 10 stat "$dir/file" >/dev/null || fail "$number Calls use all credits"
			sleep 0.5
		}
	done
	for _ in $(seq 20); do
		[ "$(stuck_threads)" -lt 16 ] || break
		sleep 0.5
	done
	note "$(stuck_threads) threads are stuck"
	timeout -s KILL 10 stat "$dir/file" >/dev/null || fail "the stuck Calls use all credits"
	timeout -s KILL 10 sh -c 'echo text >"$1"' sh "$dir/file" || fail "the stuck Calls use all credits"
	[ "$(stuck_threads)" = 16 ] || fail "a Call of the frozen file system waits for a credit"
	[ "$(says version)" = "$1" ] || fail "the mounts have other connections"
	on_server fsfreeze -u $frozen
	wait
	for number in $(seq 16); do
		[ "$(on_server cat "$frozen/$number")" = "after $number" ] || fail "$number was not written"
	done
	umount "$local/frozen"
	leave
}

# An export hangs beyond the time-out of its Calls. They end the connection in version 1, and are sent again first, with the
# only credit of the new connection. A mount of another export continues.
an_export_that_hangs_ends_no_other_mount() {
	with 1 1
	writers_wait_for_frozen timeo=20
	threads 32
	count=$(transport connect_count)
	on_server fsfreeze -f $frozen
	writers_go_on
	longest=0
	for _ in $(seq 40); do
		sleep 0.5
		begun=$(date +%s%N)
		timeout -s KILL 20 stat "$dir/file" >/dev/null || fail "the mount of the other export hangs"
		took=$((($(date +%s%N) - begun) / 1000000))
		[ $took -le $longest ] || longest=$took
	done
	count=$(($(transport connect_count) - count))
	note "a Reply took $longest ms at most, over $count connections"
	[ $count -ge 2 ] || fail "the Calls of the frozen file system did not end a connection"
	[ $longest -lt 2000 ] || fail "a Call waited behind the Calls of the frozen file system"
	on_server fsfreeze -u $frozen
	wait
	umount "$local/frozen"
	leave
}

# Reads the open files, and reads them again after the change.
holds_them() {
	python3 - "$1" "$2" "$local" <<-'EOF'
		import os, sys, time
		path, count, local = sys.argv[1], int(sys.argv[2]), sys.argv[3]
		names = [f"{path}/delegated{n}" for n in range(1, count + 1)]
		files = [open(name) for name in names]
		for n, file in enumerate(files, 1):
		    assert file.read() == f"old {n}\n"
		open(local + "/held", "w").close()
		while not os.path.exists(local + "/let-go"):
		    time.sleep(0.1)
		for n, name in enumerate(names, 1):
		    assert open(name).read() == f"old {n}\nnew {n}\n", name
	EOF
}

tests \
	"restarts_under_io 3 $RESTARTS" \
	"restarts_under_io 4.2 2" \
	"unloads_between_restarts 3" \
	"unloads_between_restarts 4.2" \
	"connections_break 4.2 1 100" \
	"connections_break 3 3 50" \
	"frames_are_lost 3 2%" \
	"frames_are_lost 4.2 5%" \
	"device_goes_and_comes_back 3 1" \
	"device_goes_and_comes_back 4.2 4" \
	"stops_without_a_device" \
	"each_allocation_fails" \
	"memory_is_short 3 700" \
	"memory_is_short 4.2 300" \
	"an_export_that_hangs_leaves_credits 1 at_first" \
	"an_export_that_hangs_leaves_credits 1 afterwards" \
	"an_export_that_hangs_leaves_credits 2 afterwards" \
	"an_export_that_hangs_ends_no_other_mount" \
	"locks_are_notified" \
	"delegations_are_recalled"
