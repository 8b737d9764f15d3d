#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Where a server listens: ports and addresses side by side, added and removed while clients are
# connected, in network namespaces that go away; and that the module stays as long as it does.
. "$(dirname "$0")/../lib/lib.sh"

# A client on PORT of the server reads the data that it has written.
serves() {
	PORT=$1
	address=${2:-$SERVER}
	mount_export "${3:-}"
	head -c 300001 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	remount
	cmp "$local/file" "$dir/file"
	leave
}

# Starts the service with the settings of the node's start.
begin_again() {
	on_server rpc.nfsd 0
	on_server rpc.nfsd
}

# Ports of each family are added while a client has I/O.
#= NFS-016, NFS-031
ports_are_added() {
	needs_server_command
	needs_crowd
	defer begin_again
	first=$PORT
	mount_export
	begin_io 2
	for port in 20050 20051 20052; do
		refused $port
		on_server sh -c "echo rdma $port >/proc/fs/nfsd/portlist"
	done
	[ "$(on_server grep -c "^rdma $first" /proc/fs/nfsd/portlist)" -ge 1 ]
	[ "$(on_server grep -c '^rdma 2005[012]' /proc/fs/nfsd/portlist)" -ge 3 ]
	! on_server sh -c "echo rdma $first >/proc/fs/nfsd/portlist" 2>/dev/null ||
		fail "two listen at the same port"
	end_io
	leave
	serves 20050
	serves 20052
	if [ -n "${SERVER6:-}" ]; then
		serves 20051 "[$SERVER6]" proto=rdma6
	fi
	serves "$first"
}

# The message of a client of the crowd whose connection requests the server's connection manager has
# rejected repeatedly.
rejected='is refused'

# Fails if a service listens on this port.
refused() {
	! "$here/crowd.py" "$SERVER" "$1" 1 1 >"$local/refused" 2>&1 || fail "somebody listens at port $1"
	grep "$rejected" "$local/refused" || fail "not refused: $(cat "$local/refused")"
}

# listens ADDRESS:PORT...: the service begins again, and hears there.
listens() {
	on_server nfsdctl threads 0
	for place; do
		on_server nfsdctl listener "+rdma:$place"
	done
	on_server nfsdctl threads 8
}

# nfsdctl takes listeners by their address, when there are no threads.
listeners_have_addresses() {
	needs_server_command
	needs_crowd
	on_server sh -c 'command -v nfsdctl' >/dev/null || skip "the server needs nfsdctl"
	defer begin_again
	first=$PORT
	VERS=3
	mount_export
	begin_io 2
	for _ in 1 2; do
		listens "$SERVER:$first" "$SERVER:20055" ${SERVER6:+"[$SERVER6]:20056"}
		sleep 1
		on_server nfsdctl listener | grep -q 'rdma.*20055' || fail "there is no such listener"
		listens "$SERVER:$first"
		sleep 1
		! on_server nfsdctl listener | grep 'rdma.*20055' || fail "the listener is still there"
		refused 20055
	done
	listens "$SERVER:$first" "$SERVER:20055" ${SERVER6:+"[$SERVER6]:20056"}
	end_io
	leave
	serves 20055
	if [ -n "${SERVER6:-}" ]; then
		serves 20056 "[$SERVER6]" proto=rdma6
	fi
	# A listener with an address does not work without its device, and is made again.
	software_device on_server
	defer device_comes_back on_server
	on_server timeout 30 rdma link delete "$device"
	sleep 3
	device_comes_back on_server
	sleep 3
	serves 20055
	serves "$first"
}

# A number that is no port is refused, and a port that is in use.
bad_listeners_are_refused() {
	needs_server_command
	before=$(on_server cat /proc/fs/nfsd/portlist)
	! on_server sh -c 'echo rdma 70000 >/proc/fs/nfsd/portlist' 2>/dev/null || fail "port 70000"
	! on_server sh -c "echo rdma $PORT >/proc/fs/nfsd/portlist" 2>/dev/null || fail "port $PORT twice"
	[ "$before" = "$(on_server cat /proc/fs/nfsd/portlist)" ] || fail "the list has changed"
	serves "$PORT"
}

# Adds a listener at port 20057 of a server without threads, until the test ends.
listens_without_threads() {
	needs_server_command
	needs_crowd
	on_server sh -c 'command -v nfsdctl' >/dev/null || skip "the server needs nfsdctl"
	defer begin_again
	on_server nfsdctl threads 0
	on_server nfsdctl listener "+rdma:$SERVER:20057"
}

# A client that waits for a listener without threads is refused when the listener ends, instead of
# waiting for its time-out. The C module does not refuse these clients.
waiting_clients_are_refused() {
	listens_without_threads
	timeout 60 "$here/crowd.py" "$SERVER" 20057 4 4 >"$local/waiting" 2>&1 &
	crowd=$!
	sleep 3
	kill -0 $crowd || fail "no client waits: $(cat "$local/waiting")"
	on_server nfsdctl listener "-rdma:$SERVER:20057"
	begun=$(date +%s)
	wait $crowd || :
	[ $(($(date +%s) - begun)) -lt 15 ] || fail "told after $(($(date +%s) - begun)) s"
	grep "$rejected" "$local/waiting" || fail "not refused: $(tail -n 1 "$local/waiting")"
}

# Prints the number of connection manager ids of the server's module.
ids_of_server() {
	on_server rdma resource show cm_id | awk '/\[rpcrdma\]/ { n++ } END { print n + 0 }'
}

# Prints the number of messages in which the connection manager of the server has asked for patience (MRA).
asked_for_patience() {
	cat /sys/class/infiniband/*/ports/1/cm_rx_msgs/mra
}

# The request of a client that gives up leaves the listener, although no thread takes it. In the C module it waits
# for a thread. There is room for 1024 requests at a time.
#
# The kernel of a client repeats a request after 4 s, until the server asks for patience. A repetition that arrives
# behind the end of its client is a new request, which waits for a thread. So all clients are patient before they
# give up. The kernel has at most 128 requests of all clients on their way.
clients_that_give_up_leave() {
	listens_without_threads
	on_server sh -c 'command -v rdma' >/dev/null || skip "the server needs rdma"
	before=$(ids_of_server)
	for _ in 1 2 3 4 5 6 7 8 9; do
		patient=$(asked_for_patience)
		timeout 60 "$here/crowd.py" "$SERVER" 20057 120 120 >"$local/waiting" 2>&1 &
		for _ in $(seq 60); do
			[ "$(asked_for_patience)" -lt $((patient + 120)) ] || break
			sleep 0.5
		done
		[ "$(ids_of_server)" -eq $((before + 120)) ] ||
			fail "$(ids_of_server) clients wait: $(cat "$local/waiting")"
		pkill -KILL -f "crowd.py $SERVER 20057"
		wait
		for _ in $(seq 20); do
			[ "$(ids_of_server)" != "$before" ] || break
			sleep 0.5
		done
		[ "$(ids_of_server)" = "$before" ] || fail "$(($(ids_of_server) - before)) requests are left"
	done
}

# The result of clients that connect at any moment, a line for each time: all are served in the end,
# or a client is rejected. A client that does not notice that a listener has ended (todo.rst) delays
# the end of its crowd.
crowds() {
	while [ ! -e "$local/stop" ]; do
		if timeout 30 "$here/crowd.py" "$SERVER" "$PORT" 20 20 >"$local/crowd" 2>&1; then
			echo "served: $(cat "$local/crowd")"
		else
			echo "ended with $?: $(tail -n 1 "$local/crowd")"
		fi
	done
}

# Restarts the service until the crowd has met its end and its begin.
listeners_under_a_crowd() {
	needs_server_command
	needs_crowd
	defer begin_again
	crowds >"$local/crowds" &
	crowd=$!
	for round in $(seq 100); do
		on_server rpc.nfsd 0
		on_server rpc.nfsd
		[ "$round" -lt "$1" ] || ! grep -q '^served' "$local/crowds" || ! met_a_restart || break
	done
	touch "$local/stop"
	wait $crowd
	cat "$local/crowds"
	note "$round restarts, $(grep -c '^served' "$local/crowds") of $(wc -l <"$local/crowds") crowds were served"
	grep -q '^served' "$local/crowds" || fail "no client was served"
	met_a_restart || fail "no client met a restart"
	serves "$PORT"
}

# Returns whether a client was rejected or had to connect again.
met_a_restart() {
	grep -q "$rejected\| [1-9][0-9]* times again" "$local/crowds"
}

# The module is in use while it has a listener, and can be unloaded without a listener.
the_module_stays_while_it_listens() {
	needs_server_command
	defer begin_again
	! on_server rmmod rpcrdma 2>/dev/null || fail "unloaded under a listener"
	on_server sh -c '[ "$(cat /sys/module/rpcrdma/refcnt)" -ge 1 ]'
	mount_export
	echo word >"$dir/file"
	leave
	on_server rpc.nfsd 0
	for _ in 1 2 3; do
		# The last connections may still be on their way out.
		for _ in 1 2 3 4 5 6 7 8 9 10; do
			! on_server modprobe -r rpcrdma 2>/dev/null || break
			sleep 0.5
		done
		! on_server test -d /sys/module/rpcrdma || fail "something still uses the module"
		on_server rpc.nfsd
		on_server test -d /sys/module/rpcrdma
		serves "$PORT"
		on_server rpc.nfsd 0
	done
}

# A network namespace on the server with a network, a device and a service of its own, whose address is
# 198.51.100.2.
make_namespace() {
	case $(ip route get 198.51.100.2) in
	*" via $SERVER "*) ;;
	*) skip "the way to 198.51.100.2 has to be by the server" ;;
	esac
	said=$(on_server sh -c 'modprobe -q veth
		ip link add rpcrdma0 type veth peer name rpcrdma1 2>&1') || {
		case $said in
		*"Unknown device type"*) skip "the server needs veth" ;;
		esac
		fail "$said"
	}
	defer remove_namespace
	on_server sh -e -c '
		ip netns add rpcrdma-test
		ip link set rpcrdma1 netns rpcrdma-test
		ip link set rpcrdma0 up mtu 4200
		ip address add 198.51.100.1/24 dev rpcrdma0
		echo 1 >/proc/sys/net/ipv4/ip_forward
		ip netns exec rpcrdma-test sh -e -c "
			ip link set lo up
			ip link set rpcrdma1 up mtu 4200
			ip address add 198.51.100.2/24 dev rpcrdma1
			ip route add default via 198.51.100.1
			rdma link add rxe9 type rxe netdev rpcrdma1"'
	ping -q -c 1 -W 5 198.51.100.2 || fail "198.51.100.2 does not answer"
	# Its nfsd goes with this mount.
	on_server sh -c '
		ip netns exec rpcrdma-test unshare --mount sh -e -c "
			mount -t nfsd nfsd /proc/fs/nfsd
			echo rdma 20049 >/proc/fs/nfsd/portlist
			echo 2 >/proc/fs/nfsd/threads
			exec sleep 1000" >/dev/null 2>&1 &
		echo $! >/run/rpcrdma-test.pid
		sleep 2
		kill -0 $!' || fail "there is no service in the namespace"
}

remove_namespace() {
	on_server sh -c '
		[ ! -e /run/rpcrdma-test.pid ] || kill $(cat /run/rpcrdma-test.pid) 2>/dev/null
		rm -f /run/rpcrdma-test.pid
		ip netns delete rpcrdma-test 2>/dev/null
		ip link delete rpcrdma0 2>/dev/null
		true'
}

# A service of another network namespace, with connected clients, ends with its namespace, and the
# service of the first namespace continues.
namespace_goes_away() {
	needs_server_command
	needs_crowd
	make_namespace
	mount_export
	begin_io 2
	NULL=1 "$here/crowd.py" 198.51.100.2 20049 10 10 "$local/ready" "$local/never" >"$local/crowd" 2>&1 &
	crowd=$!
	until [ -e "$local/ready" ]; do
		kill -0 $crowd || {
			cat "$local/crowd"
			exit 1
		}
		sleep 0.2
	done
	case $1 in
	first) on_server ip netns delete rpcrdma-test ;;
	esac
	remove_namespace
	# The last reference has gone when the device has, which goes with its interface.
	for _ in $(seq 60); do
		on_server rdma link | grep -q rxe9 || break
		sleep 0.5
	done
	left=$(on_server rdma link)
	case $left in
	*rxe9*) fail "the device of the namespace is still there: $left" ;;
	esac
	kill -9 $crowd
	wait $crowd || :
	end_io
	leave
}

tests \
	"ports_are_added" \
	"listeners_have_addresses" \
	"bad_listeners_are_refused" \
	"waiting_clients_are_refused" \
	"clients_that_give_up_leave" \
	"listeners_under_a_crowd 10" \
	"the_module_stays_while_it_listens" \
	"namespace_goes_away last" \
	"namespace_goes_away first"
