#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Events in the life of transports: devices that are removed and added under I/O, mounts and network
# namespaces that are removed beside others, swap over a mount. LONG=1 adds tests that take minutes.
. "$(dirname "$0")/../lib/lib.sh"

LONG=${LONG:-}

device_goes_and_comes_back() {
	software_device
	VERS=$1
	mount_export
	begin_io 3
	defer device_comes_back
	for _ in 1 2; do
		sleep 2
		rdma link delete "$device"
		sleep 2
		device_comes_back
		# Data that is written now uses a connection over the new device.
		"$here/fileio.py" put "$here/lib.sh" "$mnt/rpcrdma-test.$$-after" 1000
	done
	end_io
}

# A mount can be unmounted while its device is removed.
unmounts_without_a_device() {
	software_device
	VERS=3
	mount_export nolock
	head -c 300001 /dev/urandom >"$dir/file"
	defer device_comes_back
	rdma link delete "$device"
	umount "$mnt"
	device_comes_back
	mount_export
	[ "$(stat -c %s "$dir/file")" = 300001 ]
}

# Unmounts the mounts that a failed test has left.
unmount_all() {
	umount -l "$scratch"/v* 2>/dev/null || :
}

# Several mounts have a transport each. They are unmounted in turn while the others have I/O.
mounts_go_away_beside_others() {
	set -- 3 4.0 4.1 4.2
	defer unmount_all
	for version; do
		mkdir "$scratch/v$version"
		mount -t nfs -o "proto=rdma,port=$PORT,vers=$version" "$SERVER:$EXPORT" "$scratch/v$version"
		mkdir -p "$scratch/v$version/rpcrdma-test.v$version"
		"$here/fileio.py" churn "$scratch/v$version/rpcrdma-test.v$version" 2 "$local/stop$version" \
			>"$local/churn$version" 2>&1 &
		echo $! >"$local/pid$version"
	done
	for version; do
		sleep 2
		touch "$local/stop$version"
		wait "$(cat "$local/pid$version")" || {
			cat "$local/churn$version"
			exit 1
		}
		"$here/fileio.py" settled "$scratch/v$version/rpcrdma-test.v$version"
		rm -r "$scratch/v$version/rpcrdma-test.v$version"
		umount "$scratch/v$version"
	done
}

# The mount lives in the network namespace and in a mount namespace that ends with its process.
namespace_goes_away() {
	make_namespace
	ready=$local/ready
	mkdir "$local/mnt"
	inside unshare --mount sh -e -c '
		mount -t nfs -o "proto=rdma,port=$1,vers=$2,nolock" "$3" "$4"
		mkdir -p "$4/rpcrdma-test.ns"
		: >"$5"
		cd /
		exec "$6" churn "$4/rpcrdma-test.ns" 2 "$5.stop"
	' sh "$PORT" "$1" "$SERVER:$EXPORT" "$local/mnt" "$ready" "$here/fileio.py" >"$local/churn" 2>&1 &
	process=$!
	for _ in $(seq 100); do
		[ ! -e "$ready" ] || break
		kill -0 $process || break
		sleep 0.2
	done
	[ -e "$ready" ] || {
		cat "$local/churn"
		exit 1
	}
	sleep 2
	kill -0 $process
	case $2 in
	first) ip netns delete rpcrdma-test ;;
	esac
	pkill -9 -f "fileio.py churn $local/mnt" || fail "the processes have ended"
	was_killed $process
	[ "$2" = first ] || ip netns delete rpcrdma-test
	cat "$local/churn"
	# The last reference has gone when the device has, which goes with its interface.
	for _ in $(seq 60); do
		rdma link | grep -q rxe9 || break
		sleep 0.5
	done
	left=$(rdma link)
	case $left in
	*rxe9*) fail "the device of the namespace is still there: $left" ;;
	esac
	mount_export
	rm -rf "$mnt"/rpcrdma-test.ns
	head -c 300001 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	remount
	cmp "$local/file" "$dir/file"
}

# Memory that was swapped out and in is unchanged.
swapping() {
	needs mkswap
	VERS=$1
	mount_export
	dd if=/dev/zero of="$dir/swap" bs=1M count=32 2>/dev/null
	chmod 600 "$dir/swap"
	mkswap "$dir/swap"
	swapon "$dir/swap" || fail "the kernel does not swap to this file"
	defer swapoff "$dir/swap"
	"$here/fileio.py" swap 16
}

#= V1-102
idle_connections_are_closed() {
	[ -n "$LONG" ] || skip "takes six minutes: set LONG"
	needs rdma
	VERS=3
	mount_export
	head -c 300001 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	before=$(transport connect_count)
	pairs=$(queue_pairs)
	for _ in $(seq 40); do
		sleep 10
		now=$(queue_pairs)
		[ "$now" = "$pairs" ] || break
	done
	note "$pairs queue pairs, then $now"
	[ "$now" -lt "$pairs" ] || fail "the connection has not been closed"
	cmp "$local/file" "$dir/file"
	"$here/fileio.py" get "$local/file" "$dir/file" 300001
	[ "$(transport connect_count)" = $((before + 1)) ]
}

tests \
	"device_goes_and_comes_back 3" \
	"device_goes_and_comes_back 4.2" \
	"unmounts_without_a_device" \
	"mounts_go_away_beside_others" \
	"namespace_goes_away 3 last" \
	"namespace_goes_away 4.2 last" \
	"namespace_goes_away 4.2 first" \
	"swapping 3" \
	"swapping 4.2" \
	"idle_connections_are_closed"
