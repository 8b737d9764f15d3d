#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The times at which a client tries to connect, and its resources after a failed attempt.
. "$(dirname "$0")/../lib/lib.sh"

# Requests that the connection manager has sent since traced().
attempts() {
	awk '/ cm_send_req: / { n++ } END { print n + 0 }' "$tracing/trace"
}

# moves_to ADDRESS: the transport's server has this address, at once. A task that holds the transport's
# lock would delay that.
moves_to() {
	needs_dstaddr
	begun=$(date +%s%N)
	timeout 10 sh -c 'echo "$1" >"$2"' sh "$1" "$dstaddr" || fail "the lock was held for 10 s"
	took=$((($(date +%s%N) - begun) / 1000000))
	note "the address changed in $took ms"
	[ $took -lt 1000 ] || fail "the lock was held"
}

# The first attempt starts at once, the others after 1, 2, 4 and more seconds, for any number of
# waiting tasks. A message of the server resets the delay. The delay between attempts holds no lock.
#= V1-102
waits_longer_after_each_refusal() {
	needs_server_command
	VERS=3
	mount_export "nolock,noac"
	: >"$dir/file"
	traced rdma_cma/cm_send_req
	defer on_server rpc.nfsd
	on_server rpc.nfsd 0
	callers=
	for _ in 1 2 3 4 5 6; do
		stat "$dir/file" >/dev/null &
		callers="$callers $!"
	done
	# Attempts at 0, 4 and 9 s; sunrpc waits for 3 s, and the transport for 4 s more.
	sleep 12.5
	refused=$(attempts)
	moves_to "$SERVER"
	on_server rpc.nfsd
	all_succeed $callers
	note "$refused attempts in 12 s"
	[ "$refused" -ge 2 ] && [ "$refused" -le 4 ] || fail "1, 2, 4, and 8 s were to pass between them"
	# The first attempt of these is refused, too, so that there is a wait after it.
	on_server rpc.nfsd 0
	stat "$dir/file" >/dev/null &
	sleep 2
	on_server rpc.nfsd
	begun=$(date +%s)
	all_succeed $!
	note "connected again after $(($(date +%s) - begun)) s"
	[ $(($(date +%s) - begun)) -le 6 ] || fail "the server was there all the time"
}

# A server that answers nothing, which an attempt to connect finds out after a minute. The attempt holds
# neither the change of the server's address nor the end of the mount.
a_silent_server_holds_nothing() {
	needs_server_command
	software_device
	client=$interface
	software_device on_server
	case $SERVER in
	*:*) skip "needs an IPv4 address of the server" ;;
	esac
	other=${SERVER%.*}.77
	VERS=3
	mount_export nolock,noac
	: >"$dir/file"
	defer answers_again
	on_server ip address add "$other/24" dev "$interface"
	# A device that does not have the address yet cannot answer from it.
	# shellcheck disable=SC2183 # Four numbers.
	gid=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' $(echo "$other" | tr . ' '))
	on_server sh -c "for _ in \$(seq 50); do
		! grep -q $gid /sys/class/infiniband/*/ports/1/gids/* 2>/dev/null || exit 0
		sleep 0.1
	done
	exit 1" || fail "the server's device does not get the address"
	# The neighbour table knows the address. ib_addr may miss an update of the table that comes while it asks,
	# and then waits until its time-out of 5 s.
	ping -q -c 1 -W 5 "$other" >/dev/null || fail "the server does not answer at $other"
	# Frames to the server go to a hardware address that no interface has.
	ip neigh replace "$SERVER" lladdr 02:00:00:00:00:99 nud permanent dev "$client"
	moves_to "$SERVER"
	timeout -s KILL 20 stat "$dir/file" >/dev/null &
	sleep 2
	kill -0 $! || fail "the server answers"
	moves_to "$other"
	begun=$(date +%s)
	wait $! || fail "the attempt was not given up"
	note "connected to the other address after $(($(date +%s) - begun)) s"
	[ $(($(date +%s) - begun)) -le 4 ] || fail "the attempt was not given up"
	moves_to "$SERVER"
	stat "$dir/file" >/dev/null &
	sleep 2
	kill -KILL $!
	was_killed $!
	begun=$(date +%s)
	umount -i "$mnt"
	for _ in $(seq 300); do
		ls /sys/kernel/debug/rpcrdma/xprt-* >/dev/null 2>&1 || break
		sleep 0.2
	done
	note "the transport has gone after $(($(date +%s) - begun)) s"
	[ $(($(date +%s) - begun)) -le 4 ] || fail "the attempt was not given up"
	clean_up
	mount_export nolock
}

# The mount of a test that failed can end, too.
answers_again() {
	for dstaddr in /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/dstaddr; do
		[ ! -e "$dstaddr" ] || echo "$SERVER" >"$dstaddr"
	done
	ip neigh delete "$SERVER" dev "$client"
	on_server ip address delete "$other/24" dev "$interface"
	revive_device on_server
	ping -q -c 1 -W 5 "$SERVER" >/dev/null
}

# buffers [FLAG]: messages' buffers that workers have made, with this flag of the allocation.
buffers() {
	awk -v flag="${1:-}" '/ kworker.* kmalloc: / && $0 ~ flag { n++ } END { print n + 0 }' "$tracing/trace"
}

# A server that is not there yet is asked again and again. Registrations and buffers are made when it
# has accepted. Their allocations fail when memory is short: no other task may be able to free memory
# before there is a connection.
a_refusal_costs_no_memory() {
	needs_server_command
	VERS=3
	mount_export "nolock,noac"
	size=/proc/sys/sunrpc/rdma_max_inline_read
	[ -r $size ] || skip "this module has no setting for it"
	: >"$dir/file"
	registrations=$(transport allocated_mrs)
	traced rdma_cma/cm_send_req
	traced kmem/kmalloc "bytes_req == $(cat $size)"
	on_server rpc.nfsd 0
	stat "$dir/file" >/dev/null &
	sleep 5
	attempts=$(attempts)
	refused=$(buffers)
	[ "$(transport allocated_mrs)" = "$registrations" ] || fail "registrations were made"
	on_server rpc.nfsd
	all_succeed $!
	note "$refused buffers for $attempts attempts, $(buffers) when there is a connection"
	[ "$attempts" -ge 2 ] || fail "that tests nothing"
	[ "$refused" -lt 32 ] || fail "buffers were made"
	[ "$(buffers)" -ge 128 ] || fail "these are not all buffers"
	[ "$(buffers __GFP_NORETRY)" -ge 128 ] || fail "these wait until there is memory"
	[ "$(transport allocated_mrs)" -gt "$registrations" ]
}

# The removal of the device waits for all its users.
device_goes_and_comes() {
	needs rdma
	set -- $(rdma link show | sed -n 's,^link \([a-z]*\)\([0-9]*\)/1 .* netdev \([^ ]*\).*,\1 \1\2 \3,p')
	case ${1:-} in
	rxe | siw) ;;
	*) skip "needs a software device that can be removed" ;;
	esac
	mount_export
	head -c 300001 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	timeout 30 rdma link delete "$2" || fail "the device is held"
	dd if="$dir/file" of="$local/got" iflag=direct bs=64k 2>"$local/dd" &
	sleep 1
	rdma link add "$2" type "$1" netdev "$3"
	wait $! || fail "$(cat "$local/dd")"
	cmp "$local/got" "$local/file"
}

# route_goes OPTION: mounts the export with OPTION, takes the route to the server away, and starts to
# write a file, whose writer is $writer.
route_goes() {
	mount_export "$1"
	head -c 300001 /dev/urandom >"$local/file"
	: >"$dir/file"
	before=$(transport connect_count)
	needs_dstaddr
	ip route add throw "$SERVER/32"
	defer ip route delete throw "$SERVER/32"
	# The transport gives the connection up even if the address is the same.
	echo "$SERVER" >"$dstaddr"
	"$here/fileio.py" put "$local/file" "$dir/file" 300001 &
	writer=$!
}

# Without a route, an RPC of a mount that does not ask for fatal_neterrors waits.
waits_for_a_route() {
	VERS=$1
	route_goes fatal_neterrors=none
	sleep 8
	kill -0 $writer || fail "the writer did not wait"
	clean_up
	wait $writer
	[ "$(transport connect_count)" -gt "$before" ] || fail "the connection was not lost"
	remount
	cmp "$local/file" "$dir/file"
}

# Without a route, an RPC of a mount with fatal_neterrors ends, as in a container whose network is gone.
ends_without_a_route() {
	VERS=$1
	route_goes fatal_neterrors=ENETDOWN:ENETUNREACH
	for _ in $(seq 100); do
		kill -0 $writer 2>/dev/null || break
		sleep 0.2
	done
	! kill -0 $writer 2>/dev/null || fail "the writer waits"
	! wait $writer || fail "the writer has not met an error"
	clean_up
	# The mount itself goes on when there is a route again.
	cp "$local/file" "$dir/again"
	remount
	cmp "$local/file" "$dir/again"
}

# Over iWARP a connection has a TCP port of this side, and the one that is chosen may be taken.
ports_are_taken() {
	ports=/proc/sys/net/ipv4/ip_local_port_range
	before=$(cat $ports)
	defer set_to $ports "$before"
	# The ports are taken before they are the only ones, or another socket of this node may be first.
	python3 -c 'if True:
		import os, socket, sys, time

		def hold(first):
			try:
				return [socket.create_server(("", port)) for port in range(first, first + 8, 2)]
			except OSError:
				return None

		first, held = next((f, h) for f in range(40000, 48000, 8) if (h := hold(f)))
		with open(sys.argv[1] + ".new", "w") as file:
			file.write(f"{first} {first + 7}\n")
		os.rename(sys.argv[1] + ".new", sys.argv[1])
		time.sleep(600)' "$local/held" &
	holder=$!
	defer end_process $holder
	until [ -e "$local/held" ]; do
		kill -0 $holder
		sleep 0.1
	done
	cat "$local/held" >$ports
	VERS=4.2
	for _ in 1 2 3 4 5 6; do
		mount_export
		unmount
	done
}

tests \
	"waits_longer_after_each_refusal" \
	"a_silent_server_holds_nothing" \
	"ports_are_taken" \
	"a_refusal_costs_no_memory" \
	"device_goes_and_comes" \
	"waits_for_a_route 3" \
	"waits_for_a_route 4.2" \
	"ends_without_a_route 3" \
	"ends_without_a_route 4.2"
