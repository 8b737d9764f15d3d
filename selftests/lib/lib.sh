# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Shared by the programs here: an NFS/RDMA mount, the versions that both sides speak, the counters of the transport, and
# commands on the server. ktap.sh runs the tests.
. "$(dirname "$0")/../lib/ktap.sh"

PORT=${PORT:-20049}
VERS=${VERS:-4.2}
# The version of RPC-over-RDMA that a program's tests run with, on both sides.
RDMA_VERSION=${RDMA_VERSION:-1}
MOUNT_OPTIONS=${MOUNT_OPTIONS:-}

here=$(cd "$(dirname "$0")/../lib" && pwd)

# start_peer PROGRAM ARGUMENT...: starts a server that is a script, and sets peer to its process and address to its
# address. It ends with this program.
start_peer() {
	needs_crowd
	program=$1
	shift
	address=$(source_of "$SERVER")
	said=$scratch/$program.log
	"$here/$program" "$address" $PEER_PORT "$SERVER" "$@" >"$said" 2>&1 &
	peer=$!
	for _ in $(seq 600); do
		! grep -q listening "$said" || return 0
		kill -0 $peer 2>/dev/null || break
		sleep 0.1
	done
	cat "$said"
	fail "the peer does not listen"
}

# client_speaks VERSION BYTES: sets the client's highest version and longest messages.
client_speaks() {
	[ -e /proc/sys/sunrpc/rdma_slot_table_entries ] || modprobe rpcrdma
	if [ -e /proc/sys/sunrpc/rdma_max_version ]; then
		echo "$1" >/proc/sys/sunrpc/rdma_max_version
		echo "$2" >/proc/sys/sunrpc/rdma_max_message
	elif [ "$1" != 1 ]; then
		skip "this module speaks version 1 only"
	fi
}

# in_band 0|1: switches in-band negotiation of the version off or on for the next connections.
in_band() {
	[ ! -e /proc/sys/sunrpc/rdma_negotiate ] || echo "$1" >/proc/sys/sunrpc/rdma_negotiate
}

# speak CLIENT SERVER [BYTES]: sets the highest versions of both sides for the next connections, and the longest
# messages of version 2. The default is the shortest length, which makes more messages go in parts.
speak() {
	client_speaks "$1" "${3:-4096}"
	if [ "$2" = 1 ] && ! has_server_command; then
		return 0
	fi
	needs_server_command
	# A module without these settings speaks version 1.
	on_server sh -c "modprobe rpcrdma; cd /proc/sys/sunrpc/svc_rdma
		[ -e max_version ] || exit $(($2 - 1))
		echo $2 >max_version && echo ${3:-4096} >max_message" ||
		skip "the server speaks version 1 only"
}

# Sets the versions to RDMA_VERSION.
speak_as_told() {
	speak "$RDMA_VERSION" "$RDMA_VERSION"
}

# with CLIENT SERVER [BYTES]: does the same as `speak` for this test.
with() {
	needs_server_command
	defer speak_as_told
	speak "$@"
}

# Sets the default versions and lengths of messages of the modules.
speak_by_default() {
	in_band 0
	(speak 2 2 16384) || :
}

# Prints the missing requirements of all tests.
requirements() {
	[ "$(id -u)" = 0 ] || echo "must be run as root"
	[ -n "$SERVER" ] && [ -n "$EXPORT" ] ||
		echo "set SERVER and EXPORT to the address and the path of an NFS/RDMA export"
}

# mount_export [OPTIONS]: mounts the export. OPTIONS override the defaults.
mount_export() {
	mount -t nfs -o "proto=rdma,port=$PORT,vers=$VERS${MOUNT_OPTIONS:+,$MOUNT_OPTIONS}${1:+,$1}" \
		"${address:-$SERVER}:$EXPORT" "$mnt" || return
	mounted_options=${1:-}
	# A file that is removed while it is open stays in its directory for a while.
	dir=$mnt/rpcrdma-test.$$.$test_number
	mkdir -p "$dir"
}

unmount() {
	umount "$mnt"
}

# Mounts the export again, without the client's caches.
remount() {
	unmount
	mount_export "$mounted_options"
}

# Removes the files of a test on the server and unmounts. Fails if a process uses the mount.
leave() {
	mountpoint -q "$mnt" || return 0
	rm -rf "$mnt"/rpcrdma-test.*
	for _ in 1 2 3 4 5; do
		umount "$mnt" && return
		sleep 1
	done
	umount -l "$mnt"
	return 1
}

# transport NAME...: prints the counters of the mount's transport, summed over its connections. bad_messages is from
# debugfs.
transport() {
	dropped=0
	case " $* " in
	*" bad_messages "*) dropped=$(says bad_messages) ;;
	esac
	awk -v mount="$mnt" -v names="$*" -v dropped="$dropped" '
		BEGIN {
			all = "port bind_count connect_count connect_time idle_time sends receives bad_xids" \
			      " inflight backlog read_segments write_segments reply_segments" \
			      " bytes_called bytes_replied pullup fixup hardway failed_marshal bad_reply" \
			      " nomsg_calls recovered_mrs orphaned_mrs allocated_mrs local_invalidates" \
			      " empty_sendctx_q reply_waits"
			n = split(all, column)
			for (i = 1; i <= n; i++)
				position[column[i]] = i + 2
		}
		$1 == "device" { here = $5 == mount }
		here && $1 == "xprt:" && $2 == "rdma" {
			found++
			for (name in position)
				sum[name] += $position[name]
		}
		END {
			if (!found) {
				print "no RDMA transport serves " mount >"/dev/stderr"
				exit 1
			}
			sum["connections"] = found
			sum["bad_messages"] = dropped
			n = split(names, wanted)
			for (i = 1; i <= n; i++)
				printf "%d%s", sum[wanted[i]], (i < n ? " " : "\n")
		}' /proc/self/mountstats
}

# grows COUNTER COMMAND...: runs COMMAND and fails unless the counter of the transport has grown.
grows() {
	counter=$1
	shift
	before=$(transport "$counter")
	"$@"
	after=$(transport "$counter")
	note "$counter: $before before, $after after: $*"
	[ "$after" -gt "$before" ] || fail "$counter has not grown"
}

# stays COUNTER COMMAND...: runs COMMAND and fails if the counter of the transport has changed.
stays() {
	counter=$1
	shift
	before=$(transport "$counter")
	"$@"
	after=$(transport "$counter")
	note "$counter: $before before, $after after: $*"
	[ "$after" = "$before" ] || fail "$counter has changed"
}

# on_server COMMAND...: runs a command on the server.
on_server() {
	${SERVER_COMMAND:-lab-server} "$@"
}

has_server_command() {
	[ ! -e "$scratch/server_command" ] || return 0
	[ -n "${SERVER_COMMAND:-}" ] || command -v lab-server >/dev/null || return
	# As ssh does not.
	[ "$(on_server printf '<%s>' 'two  spaces' '$HOME')" = '<two  spaces><$HOME>' ] ||
		fail "SERVER_COMMAND does not hand arguments over as they are: README.rst has one that does"
	: >"$scratch/server_command"
}

needs_server_command() {
	has_server_command ||
		skip "set SERVER_COMMAND to a command that runs a command on the server as root: README.rst has one"
}

# Waits until the server has no connection. Earlier connections may still be closing.
server_is_idle() {
	for _ in $(seq 120); do
		there=$(queue_pairs on_server)
		[ "$there" != 0 ] || return 0
		sleep 0.5
	done
	# A test that cuts the link loses the DREQ of its client, and nfsd ends the connection after 6 to 12 minutes
	# without traffic.
	fail "the server still has $there queue pairs. A client that has lost its link leaves one for 12 minutes"
}

# begin_io COUNT: starts COUNT processes which change, read and compare files until `end_io`.
begin_io() {
	"$here/fileio.py" churn "$dir" "$1" "$local/stop" >"$local/churn" 2>&1 &
	churn=$!
	connections=$(transport connect_count)
}

# Prints the number of connections since `begin_io`.
new_connections() {
	now=$(transport connect_count)
	echo $((now - connections))
}

# Ends the processes of `begin_io`. Fails if a byte was wrong, or if the server lacks the last data.
end_io() {
	touch "$local/stop"
	wait $churn || {
		cat "$local/churn"
		exit 1
	}
	count=$(new_connections)
	note "$count new connections; $(tr '\n' ';' <"$local/churn")"
	"$here/fileio.py" settled "$dir"
	# The files may be further down than where a mount begins.
	place=$dir
	remount
	"$here/fileio.py" settled "$place"
}

# wait_for_breaks COUNT: waits until COUNT connections have broken, as long as the number grows.
wait_for_breaks() {
	broken=0
	quiet=0
	while [ $broken -lt "$1" ] && [ $quiet -lt 120 ] && kill -0 $churn; do
		sleep 1
		quiet=$((quiet + 1))
		count=$(new_connections)
		[ "$count" = $broken ] || quiet=0
		broken=$count
	done
}

# rdma_objects [on_server]: prints the number of RDMA objects of each kind.
rdma_objects() {
	shown=$("$@" rdma resource show) || fail "rdma resource show has failed" >&2
	[ -n "$shown" ] || fail "there is no RDMA device" >&2
	echo "$shown" | sed 's/^[0-9]*: //; s/ ctx.*//'
}

# at_rest WANTED COMMAND...: waits until COMMAND prints WANTED. Resources are freed with a delay.
at_rest() {
	wanted=$1
	shift
	for _ in $(seq 60); do
		found=$("$@")
		[ "$found" != "$wanted" ] || return 0
		sleep 0.5
	done
	echo "before: $wanted"
	fail "after: $found"
}

# all_succeed PROCESS...: waits for these processes of the shell. Fails if a process has failed.
all_succeed() {
	for process; do
		wait "$process" || fail "process $process has failed with status $?"
	done
}

needs() {
	command -v "$1" >/dev/null || skip "needs $1"
}

# set_to FILE VALUE: writes the value to the file.
set_to() {
	echo "$2" >"$1"
}

# end_process PROCESS: ends the process if it has not ended.
end_process() {
	kill "$1" 2>/dev/null || :
}

# alive PROCESS: returns whether the process has not ended. A process that ended stays a zombie until it is waited for.
alive() {
	grep -q '^State:.[^Z]' "/proc/$1/status"
}

# was_killed PROCESS: waits for the process. Fails unless a signal has ended it.
was_killed() {
	ended=0
	wait "$1" || ended=$?
	[ $ended -gt 128 ] || fail "the process has ended by itself, with $ended"
}

# Trace events of a ring buffer of its own, which goes with the test.
tracing=/sys/kernel/tracing/instances/rpcrdma-test

# traced EVENT [FILTER]: records the events from now on in $tracing/trace.
traced() {
	[ -d "/sys/kernel/tracing/events/$1" ] || skip "this kernel does not trace $1"
	[ -d $tracing ] || {
		mkdir $tracing
		defer rmdir $tracing
	}
	[ -z "${2:-}" ] || echo "$2" >"$tracing/events/$1/filter"
	echo 1 >"$tracing/events/$1/enable"
}

# trace COMMAND...: runs COMMAND with events of the module enabled, and keeps them for `shows`. TRACED=on_server selects
# events of the server, EVENTS is a pattern of their names.
trace() {
	${TRACED:-} sh -ec "modprobe rpcrdma
		mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
		# Removes the instance of an earlier test that failed.
		[ ! -d $tracing ] || rmdir $tracing
		mkdir $tracing
		echo 16384 >$tracing/buffer_size_kb
		cd $tracing/events/rpcrdma
		for event in ${EVENTS:-*_*}; do
			echo 1 >\$event/enable
		done"
	"$@"
	${TRACED:-} sh -c "echo 0 >$tracing/events/rpcrdma/enable; cat $tracing/trace" >"$local/trace"
	${TRACED:-} rmdir $tracing
	sed -n 's/^.*: \([a-z]*rdma_[a-z_]*: .*\)/\1/p' "$local/trace" >"$local/events"
}

# Fails if either side has sent a message of version 2, or if the client has delayed its first Call. Stands behind
# `trace`.
no_version_2() {
	grep -q '^rpcrdma_protocol_send: .*header=[0-9a-f]\{8\}00000001' "$local/events" ||
		fail "no message of version 1 was sent"
	! grep '^rpcrdma_protocol_.*\(header\|bytes\)=[0-9a-f]\{8\}00000002' "$local/events" ||
		fail "there is a message of version 2"
	began=$(sed -n 's/^rpcrdma_protocol_connect: .* now=\([0-9]*\).*/\1/p' "$local/events" | head -n 1)
	sent=$(sed -n 's/^rpcrdma_protocol_send: .* now=\([0-9]*\).*/\1/p' "$local/events" | head -n 1)
	note "the first Call was sent $((sent - began)) ms after the server had accepted"
	# The time for an answer to the first message of version 2 is 5 seconds.
	[ $((sent - began)) -lt 4000 ] || fail "the client has waited for an answer"
}

# shows PATTERN: fails unless an event begins with PATTERN.
shows() {
	grep -q "^$1" "$local/events" || {
		cut -c 1-150 "$local/events" | grep -v 'xprtrdma_wc' | tail -n 50
		fail "no event $1"
	}
}

# Makes a mount and removes it. A worker closes the connection on each side. Stands behind `trace`.
mount_and_leave() {
	mount_export
	leave
	traces_soon rpcrdma_close
}

# traces_soon PATTERN: waits at most a minute for an event with PATTERN.
traces_soon() {
	for _ in $(seq 120); do
		! ${TRACED:-} grep -q "$1" $tracing/trace || return 0
		sleep 0.5
	done
	fail "no event $1 for a minute"
}

# source_of SERVER: prints the address from which this kernel reaches the server.
source_of() {
	ip -o route get "$1" | sed -n 's/.* src \([^ ]*\).*/\1/p'
}

# Has the server recall a delegation: this client opens a file to read it, and the file is written at the server.
has_a_callback() {
	shared=$EXPORT/${dir##*/}/shared
	# nfsd grants no delegation during the grace period of lockd.
	on_server sh -c 'echo Y >/proc/fs/lockd/nlm_end_grace'
	on_server sh -c "echo before >$shared"
	exec 3<"$dir/shared"
	on_server sh -c "echo after >>$shared"
	exec 3<&-
	rm "$dir/shared"
}

# Mounts the export with the files that caller.py and caller2.py use, and sets the variables that name them.
make_files_to_call_for() {
	VERS=3
	mount_export
	python3 -c 'import sys; sys.stdout.buffer.write(bytes(n % 251 for n in range(10000)))' \
		>"$dir/content"
	touch "$dir/written" $(seq -f "$dir/lent%g" 40)
	chmod 755 "$dir"
	chmod 644 "$dir"/content "$dir"/lent*
	chmod 666 "$dir/written"
	FILE=$EXPORT/${dir##*/}
	SERVER_COMMAND=${SERVER_COMMAND:-$(command -v lab-server)} || :
	export FILE SERVER_COMMAND
}

# Writes files of all sizes and a long directory, and reads them after a remount.
moves_data() {
	head -c 1048576 /dev/urandom >"$local/large"
	"$here/fileio.py" sizes "$local/large" "$dir" 1 1000 3900 4000 4096 65533 1048576
	for n in $(seq 60); do
		: >"$dir/a-name-long-enough-to-fill-a-reply-soon-$n"
	done
	remount
	[ "$(ls "$dir" | wc -l)" = 67 ] || fail "$(ls "$dir" | wc -l) names instead of 67"
	for bytes in 1 1000 3900 4000 4096 65533 1048576; do
		head -c $bytes "$local/large" | cmp - "$dir/file.$bytes"
	done
}

known=/proc/sys/sunrpc/rdma_known_servers

# Clears the client's memory of the versions of servers.
forget_servers() {
	echo 0 >$known
	[ "$(cat $known)" = 0 ] || fail "$(cat $known) servers are still known"
}

# Prints the file of the mount's transport in debugfs. The file of an earlier mount is removed when its connection is
# closed.
debugfs() {
	[ -d /sys/kernel/debug/rpcrdma ] || mount -t debugfs debugfs /sys/kernel/debug
	for _ in {1..100}; do
		set -- /sys/kernel/debug/rpcrdma/xprt*
		[ $# -gt 1 ] || break
		sleep 0.1
	done
	cat /sys/kernel/debug/rpcrdma/xprt-*
}

# says KEY: prints the value of KEY in the connection's file in debugfs.
says() {
	debugfs | sed -n "s/^$1=//p"
}

# Lets the interface of a soft RDMA device lose frames. The queueing discipline is added before the traffic begins and
# removed after its end: when it was exchanged under traffic, the interface of User Mode Linux sometimes stopped
# sending.
lossy_link() {
	software_device
	netem
	defer tc qdisc del dev "$interface" root
}

# Soft RoCE ends a connection if the queue drops one of its requests, so the queue holds the frames of many connections.
NETEM="netem limit 20000"

# netem [on_server]: adds the queueing discipline that loses frames to the interface.
netem() {
	"$@" sh -c 'command -v tc' >/dev/null || skip "needs tc"
	said=$("$@" tc qdisc add dev "$interface" root $NETEM 2>&1) && return
	case $said in
	*"qdisc kind is unknown"* | *"qdisc not found"*) skip "needs the netem queueing discipline" ;;
	esac
	fail "$said"
}

# frames_lost [on_server]: prints the number of frames that were lost since `netem`.
frames_lost() {
	"$@" tc -s qdisc show dev "$interface" |
		sed -n '/^qdisc netem/ { n; s/.*(dropped \([0-9]*\),.*/\1/p; }'
}

# some_were_lost [on_server]: fails if no frame was lost.
some_were_lost() {
	lost=$(frames_lost "$@")
	note "$lost frames have been lost"
	[ "$lost" -gt 0 ] || fail "that tests nothing"
}

# messages_without_receive [on_server]: prints the number of messages that found no Receive of the device of that side.
messages_without_receive() {
	"$@" sh -c 'cat /sys/class/infiniband/*/ports/1/hw_counters/send_rnr_err' | awk '{ sum += $1 } END { print sum }'
}

# Skips the test unless the device of this side counts these messages.
counts_messages_without_receive() {
	ls /sys/class/infiniband/*/ports/1/hw_counters/send_rnr_err >/dev/null 2>&1 ||
		skip "the device does not count messages without a Receive"
}

# lose SHARE [on_server]: loses this share of the frames that the interface sends from now on.
lose() {
	${2:-} tc qdisc change dev "$interface" root $NETEM loss "$1"
}

# Where a module that is built with BOUNCE=y puts the copies of the memory that is mapped for DMA.
copies=/sys/module/rpcrdma/parameters/copies

# copies_lie HOW: places the copies of DMA memory for this test as rust/standins/bounce.c describes.
copies_lie() {
	[ -e $copies ] || skip "this module is not built with BOUNCE=y"
	defer set_to $copies 0
	set_to $copies "$1"
}

breaking=/sys/kernel/debug/fail_sunrpc

# breaks_every CALLS: lets about one RPC in CALLS break its connection.
breaks_every() {
	[ -e $breaking ] || skip "this kernel has no sunrpc fault injection in debugfs"
	defer set_to $breaking/probability 0
	echo 0 >$breaking/verbose
	echo Y >$breaking/ignore-cache-wait
	echo Y >$breaking/ignore-server-disconnect
	echo N >$breaking/ignore-client-disconnect
	echo -1 >$breaking/times
	echo "$1" >$breaking/interval
	echo 100 >$breaking/probability
}

# break_under_load JOBS CALLS BREAKS: JOBS processes work at the mount and compare every byte until BREAKS connections
# have broken. About one RPC in CALLS breaks its connection.
break_under_load() {
	begin_io "$1"
	breaks_every "$2"
	wait_for_breaks "$3"
	echo 0 >$breaking/probability
	end_io
	[ $broken -ge "$3" ] || fail "there have been only $broken breaks"
}

# software_device [on_server]: sets interface, device and type of the soft RDMA device between client and server.
software_device() {
	if [ $# = 0 ]; then
		needs rdma
		interface=$(ip -o route get "$SERVER" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
	else
		interface=$("$@" ip -o address show to "$SERVER" | sed -n 's/^[0-9]*: \([^ ]*\).*/\1/p')
	fi
	[ -n "$interface" ] || fail "nothing leads to $SERVER"
	links=$("$@" rdma link) || fail "rdma link has failed"
	device=$(echo "$links" | sed -n "s,^link \([^/]*\)/.* netdev $interface *$,\1,p")
	type=${device%%[0-9]*}
	case $type in
	rxe | siw) ;;
	*) skip "needs a software RDMA device (rxe or siw)" ;;
	esac
}

# device_comes_back [on_server]
device_comes_back() {
	"$@" sh -c "rdma link show $device/1 >/dev/null 2>&1 ||
		rdma link add $device type $type netdev $interface"
}

# revive_device [on_server]: deletes and adds the device. A queue pair of soft RoCE that could not send a packet, because
# memory or its address was missing, stays in the error state. If it is the queue pair of the connection manager, no
# connection can be established until then.
revive_device() {
	pairs=$("$@" rdma resource show qp)
	case $pairs in
	*"type GSI state ERR"*) ;;
	*) return 0 ;;
	esac
	note "the connection manager's queue pair is in error: making the device anew"
	software_device "$@"
	"$@" rdma link delete "$device"
	device_comes_back "$@"
}

# Sets $dstaddr to the file with the address of the transport's server. To write the same address ends the connection.
needs_dstaddr() {
	for dstaddr in /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/dstaddr; do
		[ ! -e "$dstaddr" ] || return 0
	done
	skip "this kernel's sunrpc has no sysfs"
}

# queue_pairs [on_server]: prints the number of queue pairs of connections.
queue_pairs() {
	shown=$("$@" rdma resource show qp) || fail "rdma resource show has failed" >&2
	echo "$shown" | awk '/type RC/ { count++ } END { print count + 0 }'
}

# Prints the free memory of the server, in KiB, including the pages that each processor keeps for its next allocation.
# Has its kernel free the memory of caches, and the freed memory that KASAN keeps back.
server_free() {
	on_server sh -c 'echo 3 >/proc/sys/vm/drop_caches
		for cache in /sys/kernel/slab/*/shrink; do
			[ ! -e "$cache" ] || echo 1 >"$cache"
		done
		sleep 1
		echo "page_size: $(getconf PAGESIZE)"
		cat /proc/zoneinfo' | awk '
		$1 == "page_size:" { octets = $2 }
		$1 == "nr_free_pages" || $1 == "count:" { pages += $2 }
		END { print pages * octets / 1024 }'
}

frozen=/run/rpcrdma-test-frozen

# Makes a file system of the server that can be frozen, with an export. Its mount is to be at $local/frozen.
make_frozen() {
	mkdir "$local/frozen"
	defer remove_frozen
	on_server sh -ec "modprobe -q loop || :
		command -v mkfs.ext2 fsfreeze >/dev/null || exit 4
		mkdir -p $frozen
		dd if=/dev/zero of=$frozen.image bs=1M count=16 2>/dev/null
		mkfs.ext2 -q $frozen.image
		mount -o loop $frozen.image $frozen || exit 4
		exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=77 '*:$frozen'" || {
		[ $? = 4 ] || fail "there is no file system to freeze"
		skip "the server needs loop devices, ext2, and fsfreeze"
	}
}

remove_frozen() {
	on_server fsfreeze -u $frozen 2>/dev/null || :
	umount -l "$local/frozen" 2>/dev/null || :
	for _ in $(seq 60); do
		on_server sh -c "exportfs -u '*:$frozen'; exportfs -f; umount $frozen" 2>/dev/null && break
		sleep 1
	done
	on_server rm -rf $frozen.image $frozen
}

# Prints the number of threads of the server that wait for the frozen file system.
stuck_threads() {
	on_server sh -c 'ps -eo stat,comm | grep -c "^D.*nfsd"' || :
}

# Makes a network namespace with a device of its own, which is routed through this namespace.
make_namespace() {
	software_device
	[ "$type" = rxe ] || skip "siw stays in the first network namespace"
	forward=$(cat /proc/sys/net/ipv4/ip_forward)
	defer remove_namespace
	ip netns add rpcrdma-test || skip "needs network namespaces"
	ip link add rpcrdma0 type veth peer name rpcrdma1 netns rpcrdma-test || skip "needs veth"
	mtu=$(cat "/sys/class/net/$interface/mtu")
	ip link set rpcrdma0 up mtu "$mtu"
	ip address add 198.51.100.1/24 dev rpcrdma0
	inside ip link set lo up
	inside ip link set rpcrdma1 up mtu "$mtu"
	inside ip address add 198.51.100.2/24 dev rpcrdma1
	inside ip route add default via 198.51.100.1
	echo 1 >/proc/sys/net/ipv4/ip_forward
	inside ping -q -c 1 -W 5 "$SERVER" || skip "the server does not answer to 198.51.100.2"
	inside rdma link add rxe9 type rxe netdev rpcrdma1
}

remove_namespace() {
	echo "$forward" >/proc/sys/net/ipv4/ip_forward
	ip netns delete rpcrdma-test 2>/dev/null || :
	ip link delete rpcrdma0 2>/dev/null || :
}

inside() {
	ip netns exec rpcrdma-test "$@"
}

needs_crowd() {
	python3 -c 'import pyverbs.cmid' 2>/dev/null || skip "needs python3-pyverbs"
	[ -e /dev/infiniband/rdma_cm ] || modprobe -q rdma_ucm ||
		skip "needs the kernel's rdma_ucm, which user space connects by"
}
