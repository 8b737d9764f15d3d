#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Every NFS version mounts, over IPv4 and IPv6, moves data, and mounts again.
. "$(dirname "$0")/../lib/lib.sh"

# used VERSION PROTO ADDRESS: the mount has the requested options.
used() {
	options=$(findmnt -no OPTIONS "$mnt")
	echo "$options"
	case ,$options, in
	*,vers="$1",*) ;;
	*) fail "not mounted with NFS version $1" ;;
	esac
	case ,$options, in
	*,proto="$2",*) ;;
	*) fail "not mounted with proto=$2" ;;
	esac
	[ "$(transport connect_count)" -ge 1 ]
}

#= V1-029, V1-115, V2-043
#= V2-177
mounts_and_moves_data() {
	VERS=$1
	case $2 in
	IPv4)
		proto=rdma
		address=$SERVER
		;;
	IPv6)
		[ -n "${SERVER6:-}" ] || skip "set SERVER6 to the server's IPv6 address"
		proto=rdma6
		address="[$SERVER6]"
		;;
	esac
	mount_export "proto=$proto"
	used "$1" $proto
	stat -f "$mnt"
	head -c 300001 /dev/urandom >"$local/data"
	cp "$local/data" "$dir/data"
	remount
	used "$1" $proto
	cmp "$local/data" "$dir/data"
	rm "$dir/data"
	unmount
	mount_export "proto=$proto"
	[ ! -e "$dir/data" ]
}

# The defaults: the first connection has the highest version that both sides know.
#= VA-007, VA-008, VA-009
mounts_and_agrees_on_a_version() {
	on_client=/proc/sys/sunrpc/rdma_max_version
	[ -e $on_client ] || skip "this module speaks version 1 only"
	needs_server_command
	defer speak_as_told
	speak_by_default
	[ "$(cat $on_client)" = 2 ]
	expected=1
	! on_server test -e /proc/sys/sunrpc/svc_rdma/max_version || expected=2
	VERS=$1
	trace mount_export
	[ $expected = 2 ] || no_version_2
	head -c 300001 /dev/urandom >"$local/data"
	cp "$local/data" "$dir/data"
	remount
	cmp "$local/data" "$dir/data"
	[ "$(says version)" = $expected ] || fail "they speak version $(says version)"
	[ "$(says announced)" = $((expected == 2 ? 2 : 0)) ] || fail "the server announces $(says announced)"
	[ "$(cat /proc/sys/sunrpc/rdma_known_servers)" = 0 ] || fail "the server is remembered"
	[ "$(says connects)" = 1 ] || fail "it took $(says connects) connections"
	[ "$(transport bad_reply)" = 0 ]
}

# The client asks the server for its port, and for the port of the mount protocol in version 3, with
# each transport.
#= V1-112, V1-114, V2-173
#= V2-174, V2-176, NFS-032
#= NFS-062
mounts_without_a_port() {
	mount -t nfs -o "rdma,vers=$VERS" "$SERVER:$EXPORT" "$mnt"
	findmnt -no OPTIONS "$mnt" | grep -w 'proto=rdma'
	findmnt -no OPTIONS "$mnt" | grep -w 'port=20049'
}

# Over IPv4 the kernel asks for a port by version 2 of rpcbind, which has no netids. The answer is the port of
# TCP, where nothing listens for RDMA, so the mount fails.
#= V1-114, V2-173, V2-176
asks_the_portmapper_for_port_0() {
	traced sunrpc/rpcb_getport
	! timeout -k 5 60 mount -i -t nfs -o "addr=$SERVER,vers=4.2,proto=rdma,port=0,soft,timeo=20,retrans=1" \
		"$SERVER:$EXPORT" "$mnt" || fail "mounted through port 0"
	cat $tracing/trace
	grep -q 'rpcb_getport: .* program=100003 ' $tracing/trace || fail "the portmapper was not asked"
}

is_refused_where_nobody_listens() {
	begun=$(date +%s)
	if mount -t nfs -o "proto=rdma,port=20050,vers=$VERS,soft,retry=0" "$SERVER:$EXPORT" "$mnt"; then
		fail "mounted through a port without a listener"
	fi
	note "refused after $(($(date +%s) - begun)) s"
	[ $(($(date +%s) - begun)) -lt 20 ] || fail "the refusal was not noticed"
}

# Nothing of the network is wrong, so it is not said to be.
is_refused_without_a_device() {
	begun=$(date +%s)
	if mount -t nfs -o "proto=rdma,port=$PORT,vers=$VERS,soft,retry=0" "127.0.0.1:$EXPORT" "$mnt" \
		2>"$local/refusal"; then
		skip "there is an RDMA device for 127.0.0.1"
	fi
	cat "$local/refusal"
	grep 'Protocol error' "$local/refusal"
	[ $(($(date +%s) - begun)) -lt 20 ]
}

several_connections() {
	mount_export "nconnect=$1"
	transport connections
	[ "$(transport connections)" = "$1" ]
	writers=
	for n in 1 2 3 4 5 6 7 8; do
		head -c 700001 /dev/urandom >"$local/$n"
		cp "$local/$n" "$dir/$n" &
		writers="$writers $!"
	done
	all_succeed $writers
	awk -v mount="$mnt" '$1 == "device" { here = $5 == mount } here && $1 == "xprt:" { print $3, $8 }' \
		/proc/self/mountstats >"$local/sends"
	remount
	for n in 1 2 3 4 5 6 7 8; do
		cmp "$local/$n" "$dir/$n"
	done
	[ "$(transport connections)" = "$1" ]
	[ "$(awk '$2 > 0' "$local/sends" | wc -l)" = "$1" ] || fail "a connection has carried nothing"
}

# An export without the option "insecure" asks for a privileged port. RDMA has no ports of that kind, so the
# transport of a server answers for them.
mounts_an_export_for_privileged_ports() {
	needs_server_command
	VERS=$1
	mount_export
	place=$EXPORT/${dir##*/}
	kept=$dir
	mkdir "$dir/inner"
	on_server exportfs -o rw,secure,no_root_squash,no_subtree_check,fsid=77 "*:$place" ||
		skip "needs exportfs on the server"
	defer on_server exportfs -u "*:$place"
	mkdir "$local/mnt"
	mount -t nfs -o "proto=rdma,port=$PORT,vers=$VERS${MOUNT_OPTIONS:+,$MOUNT_OPTIONS}" "$SERVER:$place" "$local/mnt"
	defer umount "$local/mnt"
	cp "$here/lib.sh" "$local/mnt/inner/file"
	clean_up
	cmp "$here/lib.sh" "$kept/inner/file"
}

tests \
	"mounts_and_moves_data 3 IPv4" \
	"mounts_and_moves_data 4.0 IPv4" \
	"mounts_and_moves_data 4.1 IPv4" \
	"mounts_and_moves_data 4.2 IPv4" \
	"mounts_and_moves_data 3 IPv6" \
	"mounts_and_moves_data 4.0 IPv6" \
	"mounts_and_moves_data 4.1 IPv6" \
	"mounts_and_moves_data 4.2 IPv6" \
	"mounts_and_agrees_on_a_version 3" \
	"mounts_and_agrees_on_a_version 4.2" \
	"mounts_without_a_port" \
	"asks_the_portmapper_for_port_0" \
	"is_refused_where_nobody_listens" \
	"is_refused_without_a_device" \
	"mounts_an_export_for_privileged_ports 3" \
	"mounts_an_export_for_privileged_ports 4.2" \
	"several_connections 4"
