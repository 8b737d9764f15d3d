#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Host authentication by a shared key (version 2 of RPC-over-RDMA): who has the key is served, and who
# has not gets nothing, on either side. The server has to be one of this module.
. "$(dirname "$0")/lib.sh"

RDMA_VERSION=2
KEY=0123456789abcdef
export KEY

# keys CLIENT SERVER: the key for the other side, or - for none; both sides lose it after the test.
keys() {
	needs_server_command
	! on_server keyctl show %:.rpcrdma 2>&1 | grep -q "Can't find" || skip "the server has no keyring"
	trap forget EXIT
	# A key is not replaced by one of the same name.
	forget
	[ "$1" = - ] || keyctl add logon "rpcrdma:$SERVER" "$1" %:.rpcrdma >/dev/null
	[ "$2" = - ] || on_server keyctl add logon rpcrdma:any "$2" %:.rpcrdma >/dev/null
}

forget() {
	keyctl clear %:.rpcrdma
	on_server keyctl clear %:.rpcrdma
}

# logs_of_both TEXT: what the kernels say of it.
logs_of_both() {
	dmesg | grep "$1" || :
	on_server dmesg | grep "$1" || :
}

# Nothing is mounted, and no Call gets as far as nfsd; then it is mounted with the same keys on both
# sides.
is_kept_out() {
	before=$(logs_of_both "has not proven" | wc -l)
	calls=$(on_server sed -n 's/^rpc \([0-9]*\).*/\1/p' /proc/net/rpc/nfsd)
	mkdir -p "$mnt"
	! timeout -k 5 "${1:-15}" mount -t nfs \
		-o "proto=rdma,port=$PORT,vers=$VERS,soft,timeo=50,retrans=0,retry=0" "$SERVER:$EXPORT" "$mnt" ||
		fail "it is mounted"
	[ "$(on_server sed -n 's/^rpc \([0-9]*\).*/\1/p' /proc/net/rpc/nfsd)" = "$calls" ] ||
		fail "the server has executed something"
	[ "$(logs_of_both "has not proven" | wc -l)" -gt "$before" ] || fail "nobody is told why"
	keys "$KEY" "$KEY"
	mount_export
}

who_has_the_key_is_served() {
	keys "$KEY" "$KEY"
	VERS=$1
	mount_export
	debugfs
	[ "$(says version)" = 2 ] || fail "they speak version $(says version)"
	[ "$(says authenticated)" = 1 ] || fail "nobody has proven anything"
	head -c 1000000 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	remount
	cmp "$local/file" "$dir/file"
	[ "$(says connects)" = 1 ] || fail "it took $(says connects) connections"
}

# The key of one host comes before that of any.
the_name_of_the_peer_comes_first() {
	keys "$KEY" "not this one"
	on_server keyctl add logon "rpcrdma:$(source_of "$SERVER")" "$KEY" %:.rpcrdma >/dev/null
	mount_export
	[ "$(says authenticated)" = 1 ]
}

nobody_proves_anything_without_keys() {
	keys - -
	mount_export
	[ "$(says version)" = 2 ]
	[ "$(says authenticated)" = 0 ]
}

the_other_side_has() {
	case $1 in
	another_key) keys "$KEY" "another key" ;;
	no_key) keys "$KEY" - ;;
	the_only_key) keys - "$KEY" ;;
	esac
	is_kept_out 30
}

# A key that was taken away proves nothing, neither to nor of this side; it is still demanded, of a
# server that demands nothing itself.
a_key_is() {
	keys - -
	# Only who possesses a key may let root do with it what it likes.
	key=$(keyctl session - sh -c '
		key=$(keyctl add logon "$1" "$2" @s) && keyctl setperm "$key" 0x3f3f0000 &&
			keyctl link "$key" %:.rpcrdma && echo "$key"' - "rpcrdma:$SERVER" "$KEY" | tail -n 1)
	case $1 in
	revoked) keyctl revoke "$key" ;;
	expired) keyctl timeout "$key" 1 && sleep 2 ;;
	esac
	is_kept_out
	dmesg | tail -n 20 | grep "the key for $SERVER:$PORT cannot be used"
}

# Nor does it for the side that has a key when the other has none.
#= VA-012
version_1_does_not_do() {
	speak "$1" "$2"
	if [ "$1" = 1 ]; then
		keys "$KEY" -
	else
		keys - "$KEY"
	fi
	before=$(logs_of_both "has not proven" | wc -l)
	! timeout -k 5 15 mount -t nfs -o "proto=rdma,port=$PORT,vers=$VERS,soft,timeo=50,retrans=0,retry=0" \
		"$SERVER:$EXPORT" "$mnt" || fail "it is mounted"
	[ "$(logs_of_both "has not proven" | wc -l)" -gt "$before" ] || fail "nobody is told why"
	speak 2 2
	keys "$KEY" "$KEY"
	mount_export
	[ "$(says version)" = 2 ]
}

# What waits for a server that has lost its key goes on when it has it back.
io_waits_for_the_key() {
	keys "$KEY" "$KEY"
	VERS=3
	mount_export
	on_server keyctl clear %:.rpcrdma
	on_server keyctl add logon rpcrdma:any other %:.rpcrdma >/dev/null
	set -- /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/dstaddr
	[ -e "$1" ] || skip "this kernel's sunrpc has no sysfs"
	# Even if the address is the same, the connection is given up.
	echo "$SERVER" >"$1"
	head -c 100000 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file" &
	sleep 5
	kill -0 $! || fail "it did not wait"
	on_server keyctl clear %:.rpcrdma
	on_server keyctl add logon rpcrdma:any "$KEY" %:.rpcrdma >/dev/null
	wait $!
	remount
	cmp "$local/file" "$dir/file"
}

# A client that was written from the document proves who it is, or tries to look like one.
others_prove_it() {
	needs_crowd
	keys - "$KEY"
	"$here/hostauth.py" "$SERVER" "$PORT" >"$local/caller.log" 2>&1 || {
		cat "$local/caller.log"
		fail "the server does not answer as it should"
	}
	note "$(grep -c '^ok' "$local/caller.log") ways"
}

PEER_PORT=20053

# A server that was written from the document proves that it has the key, or pretends to; it ends if the
# client says too much or too little.
other_server_is() {
	start_peer peer2.py "$scratch/control" $$ "$1"
	keys - -
	trap 'other_server_goes $? '$peer EXIT
	keyctl add logon "rpcrdma:$address" "$KEY" %:.rpcrdma >/dev/null
	PORT=$PEER_PORT VERS=3
	MOUNT_OPTIONS="mountproto=tcp,mountaddr=$SERVER,nolock,soft,timeo=100,retrans=2"
	case $1 in
	keyed | hesitates)
		mount_export
		[ "$(says authenticated)" = 1 ]
		head -c 100000 /dev/urandom >"$local/file"
		cp "$local/file" "$dir/file"
		remount
		cmp "$local/file" "$dir/file"
		;;
	forger)
		! timeout -k 5 15 mount -t nfs -o "proto=rdma,port=$PORT,vers=3,$MOUNT_OPTIONS,retry=0" \
			"$address:$EXPORT" "$mnt" || fail "it is mounted"
		dmesg | tail -n 20 | grep "$address:$PORT has not proven"
		;;
	esac
	kill -0 $peer || fail "the other server has found a fault"
}

# other_server_goes STATUS PROCESS
other_server_goes() {
	[ "$1" = 0 ] || tail -n 20 "$scratch/peer2.py.log"
	forget
	leave || :
	kill "$2" 2>/dev/null && wait "$2" || :
	exit "$1"
}

tests \
	"who_has_the_key_is_served 3" \
	"who_has_the_key_is_served 4.2" \
	"the_name_of_the_peer_comes_first" \
	"nobody_proves_anything_without_keys" \
	"the_other_side_has another_key" \
	"the_other_side_has no_key" \
	"the_other_side_has the_only_key" \
	"a_key_is revoked" \
	"a_key_is expired" \
	"version_1_does_not_do 1 2" \
	"version_1_does_not_do 2 1" \
	"io_waits_for_the_key" \
	"others_prove_it" \
	"other_server_is keyed" \
	"other_server_is forger" \
	"other_server_is hesitates"
