#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Host authentication with a shared key (version 2 of RPC-over-RDMA), on either side: a peer with the key is served, and
# a peer without it is refused. The server must be one of this module.
. "$(dirname "$0")/../lib/lib.sh"

RDMA_VERSION=2
KEY=0123456789abcdef
OTHER_KEY=fedcba9876543210
export KEY

REFUSED="has not proven\|has to prove"

needs_keyrings() {
	needs_server_command
	! on_server keyctl show %:.rpcrdma 2>&1 | grep -q "Can't find" || skip "the server has no keyring"
}

# demand CLIENT SERVER: sets the peers of which each side demands a proof.
demand() {
	echo "$1" >/proc/sys/sunrpc/rdma_host_auth
	on_server sh -c "echo $2 >/proc/sys/sunrpc/svc_rdma/host_auth"
}

# keys CLIENT SERVER: adds the key of each side for its peer, and demands a proof of the peer. - stands for no key and no
# demand. The keys are removed after the test.
keys() {
	needs_keyrings
	defer forget
	forget
	if [ "$1" != - ]; then
		keyctl add logon "rpcrdma:$SERVER" "$1" %:.rpcrdma >/dev/null
		echo any >/proc/sys/sunrpc/rdma_host_auth
	fi
	if [ "$2" != - ]; then
		on_server keyctl add logon rpcrdma:any "$2" %:.rpcrdma >/dev/null
		on_server sh -c 'echo any >/proc/sys/sunrpc/svc_rdma/host_auth'
	fi
}

forget() {
	demand none none
	keyctl clear %:.rpcrdma
	on_server keyctl clear %:.rpcrdma
}

# new_key NAME [on_server]: links a key with all rights for root and prints its serial number.
new_key() {
	${2:-} keyctl session - sh -c '
		key=$(keyctl add logon "$1" "$2" @s) && keyctl setperm "$key" 0x3f3f0000 &&
			keyctl link "$key" %:.rpcrdma && echo "$key"' - "$1" "$KEY" | tail -n 1
}

# logs_of_both TEXT: prints the lines of both kernels' logs that match.
logs_of_both() {
	dmesg | grep "$1" || :
	on_server dmesg | grep "$1" || :
}

# try_mount [ADDRESS [OPTIONS]]: waits PATIENCE tenths of a second for an answer.
try_mount() {
	mkdir -p "$mnt"
	timeout -k 5 15 mount -t nfs \
		-o "proto=rdma,port=$PORT,vers=$VERS,soft,timeo=${PATIENCE:-20},retrans=0,retry=0${2:+,$2}" \
		"${1:-$SERVER}:$EXPORT" "$mnt"
}

calls_of_nfsd() {
	on_server sed -n 's/^rpc \([0-9]*\).*/\1/p' /proc/net/rpc/nfsd
}

# refuses [ADDRESS [OPTIONS]]: fails if the export is mounted, if nfsd processes a Call, or if no log has the reason.
refuses() {
	before=$(logs_of_both "$REFUSED" | wc -l)
	calls=$(calls_of_nfsd)
	! try_mount "$@" || fail "it is mounted"
	[ "$(calls_of_nfsd)" = "$calls" ] || fail "the server has executed something"
	[ "$(logs_of_both "$REFUSED" | wc -l)" -gt "$before" ] || fail "no log says why"
}

# Mounts the export with the same key on both sides.
serves_again() {
	keys "$KEY" "$KEY"
	mount_export
}

# unload [on_server]: unloads the module. A closed connection may hold it for a moment.
unload() {
	for _ in $(seq 20); do
		! "$@" modprobe -r rpcrdma 2>/dev/null || return 0
		sleep 0.5
	done
	fail "the module is in use"
}

# reload [on_server]: loads the module anew, which forgets that there was a key.
reload() {
	if [ $# != 0 ]; then
		on_server rpc.nfsd 0
	fi
	unload "$@"
	"$@" modprobe rpcrdma
	if [ $# != 0 ]; then
		on_server rpc.nfsd
	fi
	speak 2 2
}

# Ends the connection of the mount: writing the address to sysfs does, even if the address is the same.
reconnect() {
	needs_dstaddr
	echo "$SERVER" >"$dstaddr"
}

is_proven() {
	debugfs
	[ "$(says version)" = 2 ] || fail "they speak version $(says version)"
	[ "$(says authenticated)" = 1 ] || fail "the server has not proven its identity"
}

data_is_as_written() {
	head -c "${1:-100000}" /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	remount
	cmp "$local/file" "$dir/file"
}

serves_with_the_key() {
	keys "$KEY" "$KEY"
	VERS=$1
	mount_export
	is_proven
	data_is_as_written 1000000
	[ "$(says connects)" = 1 ] || fail "it took $(says connects) connections"
}

serves_with_the_key_over_IPv6() {
	[ -n "${SERVER6:-}" ] || skip "set SERVER6 to the server's IPv6 address"
	keys - -
	demand any any
	MOUNT_OPTIONS=proto=rdma6
	address="[$SERVER6]"
	refuses "$address" proto=rdma6
	own=$(source_of "$SERVER6")
	# Other spellings of both addresses.
	keyctl add logon "rpcrdma:$(spelled "$SERVER6")" "$KEY" %:.rpcrdma >/dev/null
	on_server keyctl add logon "rpcrdma:$(spelled "$own")" "$KEY" %:.rpcrdma >/dev/null
	note "$(spelled "$own") for $own"
	mount_export
	is_proven
	data_is_as_written
}

# spelled ADDRESS: prints the IPv6 address in capitals, with all zeros.
spelled() {
	python3 -c 'import ipaddress, sys; print(ipaddress.ip_address(sys.argv[1]).exploded.upper())' "$1"
}

# The key of a link-local address names the interface of the link.
serves_on_one_link() {
	keys - -
	demand none any
	interface=$(ip -o route get "$SERVER" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
	address=$(on_server ip -6 -o address show scope link | sed -n 's/.* inet6 \([^/]*\).*/\1/p' | head -n 1)
	own=$(ip -6 -o address show dev "$interface" scope link | sed -n 's/.* inet6 \([^/]*\).*/\1/p')
	[ -n "$address" ] && [ -n "$own" ] || skip "there are no link-local addresses"
	MOUNT_OPTIONS=proto=rdma6
	demand any any
	on_server keyctl add logon "rpcrdma:$own" "$KEY" %:.rpcrdma >/dev/null
	keyctl add logon "rpcrdma:$address%lo" "$KEY" %:.rpcrdma >/dev/null
	refuses "[$address%$interface]" proto=rdma6
	keyctl add logon "rpcrdma:$address%$interface" "$KEY" %:.rpcrdma >/dev/null
	address="[$address%$interface]"
	mount_export
	is_proven
}

# The key of a host takes precedence over the key of any host. Its name may have the IPv4-mapped address.
the_name_of_the_peer_comes_first() {
	keys "$KEY" "$OTHER_KEY"
	on_server keyctl add logon "rpcrdma:$1$(source_of "$SERVER")" "$KEY" %:.rpcrdma >/dev/null
	mount_export
	is_proven
}

proves_nothing_without_keys() {
	keys - -
	mount_export
	[ "$(says version)" = 2 ]
	[ "$(says authenticated)" = 0 ]
}

# A server with a key proves its identity to a client that asks, even if the server demands no proof of clients.
a_server_need_not_demand_it() {
	keys "$KEY" "$KEY"
	demand any none
	mount_export
	is_proven
	leave
	demand none none
	mount_export
	[ "$(says authenticated)" = 0 ]
}

a_list_says_who_has_to() {
	keys - -
	own=$(source_of "$SERVER")
	for list in "198.51.100.0/24,$own" "0.0.0.0/0" "::ffff:$own 2001:db8::/32"; do
		on_server sh -c "echo '$list' >/proc/sys/sunrpc/svc_rdma/host_auth"
		[ "$(on_server cat /proc/sys/sunrpc/svc_rdma/host_auth)" = "$list" ]
		refuses
	done
	demand "$SERVER/32" none
	refuses
	demand 2001:db8::/32 198.51.100.0/24
	mount_export
	for wrong in all 192.0.2.256 any,none fe80::1%eth0 ""; do
		! (echo "$wrong" >/proc/sys/sunrpc/rdma_host_auth) 2>/dev/null || fail "$wrong was taken"
	done
	[ "$(cat /proc/sys/sunrpc/rdma_host_auth)" = 2001:db8::/32 ]
}

the_parameter_of_the_module_says_who_has_to() {
	keys - -
	unload
	modprobe rpcrdma "host_auth=198.51.100.0/24,$SERVER"
	speak 2 2
	defer reload
	[ "$(cat /proc/sys/sunrpc/rdma_host_auth)" = "198.51.100.0/24,$SERVER" ]
	refuses
	unload
	! modprobe rpcrdma host_auth=everyone 2>/dev/null || fail "it was taken"
	dmesg | tail -n 5 | grep "host_auth: has to be"
	modprobe rpcrdma
	[ "$(cat /proc/sys/sunrpc/rdma_host_auth)" = auto ]
}

# With the setting auto, the first key demands a proof of all peers, also over connections that stand. The demand stays
# when the key is removed.
the_first_key_demands_it() {
	needs_keyrings
	defer forget
	reload
	reload on_server
	[ "$(cat /proc/sys/sunrpc/rdma_host_auth)" = auto ]
	[ "$(on_server cat /proc/sys/sunrpc/svc_rdma/host_auth)" = auto ]
	speak "$1" 2
	VERS=3
	mount_export
	[ "$(says version)" = "$1" ]
	[ "$(says authenticated)" = 0 ]
	on_server keyctl add logon rpcrdma:any "$KEY" %:.rpcrdma >/dev/null
	head -c 100000 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file" &
	sleep 3
	kill -0 $! || fail "it did not wait"
	on_server dmesg | tail -n 20 | grep "has not proven"
	keyctl add logon rpcrdma:any "$KEY" %:.rpcrdma >/dev/null
	speak 2 2
	wait $!
	is_proven
	remount
	cmp "$local/file" "$dir/file"
	leave
	on_server keyctl clear %:.rpcrdma
	# The server refuses the client, whether the client demands a proof or not.
	refuses
	echo none >/proc/sys/sunrpc/rdma_host_auth
	refuses
	on_server keyctl add logon rpcrdma:any "$KEY" %:.rpcrdma >/dev/null
	echo auto >/proc/sys/sunrpc/rdma_host_auth
	mount_export
	is_proven
}

the_other_side_has() {
	case $1 in
	another_key) keys "$KEY" "$OTHER_KEY" ;;
	no_key)
		keys "$KEY" -
		# The client waits five seconds for an answer of the server.
		PATIENCE=70
		;;
	the_only_key) keys - "$KEY" ;;
	esac
	refuses
	serves_again
}

# A key that was taken away proves nothing, neither to this side nor of it. A proof is still demanded of a peer that
# demands nothing itself.
a_key_is() {
	keys - -
	if [ "$2" = on_server ]; then
		demand none any
		key=$(new_key rpcrdma:any on_server)
	else
		set -- "$1"
		demand any none
		key=$(new_key "rpcrdma:$SERVER")
	fi
	case $1 in
	revoked | invalidated) ${2:-} keyctl "${1%d}" "$key" ;;
	unlinked) ${2:-} keyctl unlink "$key" %:.rpcrdma ;;
	expired)
		${2:-} keyctl timeout "$key" 1
		sleep 2
		;;
	collected)
		delay=$(${2:-} sysctl -n kernel.keys.gc_delay)
		${2:-} sysctl -q kernel.keys.gc_delay=0
		defer ${2:-} sysctl -q "kernel.keys.gc_delay=$delay"
		${2:-} keyctl timeout "$key" 1
		at_rest "" keys_in_ring "${2:-}"
		;;
	esac
	# The log has the message about the key of an earlier test.
	mark="hostauth.sh: a key is $1"
	${2:-} sh -c "echo '$mark' >/dev/kmsg"
	refuses
	case $1 in
	revoked | expired) ${2:-} dmesg | sed "1,/$mark/d" | grep "the key rpcrdma:.* cannot be used" ;;
	esac
	serves_again
}

keys_in_ring() {
	$1 keyctl rlist %:.rpcrdma
}

# An unusable keyring refuses all peers until the module is loaded anew.
the_keyring_is() {
	needs_keyrings
	[ "$2" = on_server ] || set -- "$1"
	defer forget
	defer reload ${2:-}
	reload ${2:-}
	if [ $# = 2 ]; then
		demand none auto
	else
		demand auto none
	fi
	mount_export
	leave
	${2:-} keyctl "${1%d}" %:.rpcrdma
	refuses
}

# A client without a key connects in a loop while keys are added and removed.
keys_are_exchanged_under_a_connecting_loop() {
	needs_crowd
	keys - "$KEY"
	"$here/intruder.py" "$SERVER" "$PORT" $$ >"$scratch/intruder.log" 2>&1 &
	intruder=$!
	defer end_process $intruder
	for _ in $(seq 30); do
		on_server sh -c "for _ in \$(seq 10); do
			keyctl clear %:.rpcrdma
			sleep 0.0\$((\$(date +%N | cut -c 3) + 1))
			keyctl add logon rpcrdma:any $OTHER_KEY %:.rpcrdma >/dev/null
			keyctl session - sh -c 'keyctl link \$(keyctl add logon rpcrdma:any $KEY @s) %:.rpcrdma' 2>/dev/null
			done"
		[ "$(attempts)" -lt "$1" ] || break
	done
	kill $intruder
	wait $intruder || :
	! grep "^served" "$scratch/intruder.log" || fail "a client without a key was served"
	[ "$(attempts)" -ge "$1" ] || fail "it has connected only $(attempts) times"
	note "$(attempts) connections"
}

attempts() {
	grep -c "^tried" "$scratch/intruder.log" || :
}

# The command of Documentation/security.rst replaces a key without a moment at which it is missing.
# tools/docs/test_console.py compares the two.
a_key_is_replaced() {
	keys "$KEY" "$KEY"
	VERS=3
	mount_export
	echo "$OTHER_KEY" >"$local/new.key"
	cat >"$local/command" <<-'COMMAND'
		keyctl session - sh -c 'keyctl link $(keyctl padd logon rpcrdma:any @s) %:.rpcrdma' </etc/rpcrdma.key
	COMMAND
	sed "s,rpcrdma:any,rpcrdma:$SERVER,; s,/etc/rpcrdma.key,$local/new.key," "$local/command" >"$local/client"
	sh -e "$local/client"
	[ "$(keyctl rlist %:.rpcrdma | wc -w)" = 1 ] || fail "the key was not replaced"
	# The established connection continues. A new connection needs the new key.
	head -c 100000 /dev/urandom >"$local/file"
	cp "$local/file" "$mnt/rpcrdma-replaced"
	leave
	refuses
	on_server sh -c "printf '%s\n' $OTHER_KEY >/tmp/rpcrdma.key"
	on_server sh -c "$(sed 's,/etc/,/tmp/,' "$local/command"); rm /tmp/rpcrdma.key"
	[ "$(on_server keyctl rlist %:.rpcrdma | wc -w)" = 1 ] || fail "the key was not replaced"
	mount_export
	is_proven
	cmp "$local/file" "$dir/../rpcrdma-replaced"
	rm "$dir/../rpcrdma-replaced"
}

# A key that is too short is not added, and is not used after an update has made it too short.
short_keys_are_refused() {
	keys - -
	demand any none
	before=$(dmesg | wc -l)
	for short in a 0123456789abcde; do
		! keyctl add logon rpcrdma:any "$short" %:.rpcrdma >/dev/null 2>&1 || fail "$short was added"
	done
	! keyctl add user rpcrdma:any "$KEY" %:.rpcrdma >/dev/null 2>&1 || fail "a key of another type was added"
	! keyctl newring rpcrdma:any %:.rpcrdma >/dev/null 2>&1 || fail "a keyring was added"
	dmesg | tail -n +$((before + 1)) | grep "of the type logon and of 16 octets or more"
	[ "$(keyctl rlist %:.rpcrdma)" = "" ]
	keyctl update "$(new_key rpcrdma:any)" 0123456789abcde
	refuses
	dmesg | tail -n 20 | grep "the key rpcrdma:any cannot be used: .* fewer than 16 octets"
}

# Only an administrator may add keys, and no process can possess the keyring.
root_without_capabilities_adds_no_key() {
	keys - -
	needs capsh
	! capsh --drop=cap_sys_admin -- -c "keyctl add logon rpcrdma:any $KEY %:.rpcrdma" 2>/dev/null ||
		fail "a key was added"
	! keyctl session - keyctl link %:.rpcrdma @s 2>/dev/null || fail "the keyring was linked"
	keyctl add logon rpcrdma:any "$KEY" %:.rpcrdma >/dev/null
}

a_name_of_no_peer_is_reported() {
	keys - -
	for name in "rpcrdma:192.0.2.l" "rpcrdma:2001:db8::1%eth0" "nfs:any"; do
		keyctl add logon "$name" "$KEY" %:.rpcrdma >/dev/null
		for _ in $(seq 50); do
			! dmesg | grep -q "the key $name is for no peer" || continue 2
			sleep 0.1
		done
		fail "$name is not reported"
	done
}

# Version 1 has no proof, so a side with a key refuses it.
#= VA-012
version_1_does_not_do() {
	if [ "$1" = 1 ]; then
		keys "$KEY" -
	else
		keys - "$KEY"
	fi
	speak "$1" "$2"
	refuses
	speak 2 2
	serves_again
	[ "$(says version)" = 2 ]
}

# I/O that waits for a server without its key continues when the server has the key again.
io_waits_for_the_key() {
	keys "$KEY" "$KEY"
	VERS=3
	mount_export
	on_server keyctl clear %:.rpcrdma
	[ "$1" = no_key ] || on_server keyctl add logon rpcrdma:any "$OTHER_KEY" %:.rpcrdma >/dev/null
	reconnect
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

# hostauth.py, a client that was written from the document, proves its identity or fails to.
others_prove_it() {
	needs_crowd
	keys - "$KEY"
	if [ "${1:-}" = IPv6 ]; then
		[ -n "${SERVER6:-}" ] || skip "set SERVER6 to the server's IPv6 address"
		SERVER=$SERVER6
	fi
	"$here/hostauth.py" "$SERVER" "$PORT" >"$local/caller.log" 2>&1 || {
		cat "$local/caller.log"
		fail "the server does not answer as it should"
	}
	note "$(grep -c '^ok' "$local/caller.log") ways"
}

PEER_PORT=20053

# other_server_is WAY: peer2.py, a server that was written from the document, proves that it has the key or pretends to.
# It ends if the client sends other authentication material than it must.
other_server_is() {
	start_peer peer2.py "$scratch/control" $$ "$1"
	keys - -
	defer other_server_goes $peer
	keyctl add logon "rpcrdma:$address" "$KEY" %:.rpcrdma >/dev/null
	echo any >/proc/sys/sunrpc/rdma_host_auth
	PORT=$PEER_PORT VERS=3
	MOUNT_OPTIONS="mountproto=tcp,mountaddr=$SERVER,nolock,soft,timeo=100,retrans=2"
	case $1 in
	keyed | hesitates)
		mount_export
		[ "$(says authenticated)" = 1 ]
		data_is_as_written
		;;
	forger)
		! try_mount "$address" "$MOUNT_OPTIONS,timeo=20,retrans=0" || fail "it is mounted"
		dmesg | tail -n 20 | grep "$address:$PORT has not proven"
		;;
	esac
	kill -0 $peer || fail "the other server has found a fault"
}

# other_server_goes PROCESS
other_server_goes() {
	[ $status = 0 ] || tail -n 20 "$scratch/$program.log"
	forget
	leave || :
	end_process "$1"
	wait "$1" || :
}

# messages_are_passed_on_to another_server|the_client_itself: relay.py, which has no key, passes on all messages between a
# client and a server with the key. The server is another than the client asks for, or the server of the client's own host.
messages_are_passed_on_to() {
	start_peer relay.py "$PORT" $$
	keys - "$KEY"
	defer other_server_goes $peer
	VERS=3
	options="proto=rdma,port=$PEER_PORT,vers=3,mountproto=tcp,mountaddr=$SERVER,nolock,soft,timeo=20,retrans=0,retry=0"
	calls=$(calls_of_nfsd)
	if [ "$1" = another_server ]; then
		keyctl add logon "rpcrdma:$address" "$KEY" %:.rpcrdma >/dev/null
		echo any >/proc/sys/sunrpc/rdma_host_auth
		! timeout -k 5 15 mount -t nfs -o "$options" "$address:$EXPORT" "$mnt" || fail "it is mounted"
		dmesg | tail -n 20 | grep "$address:$PEER_PORT has not proven"
	else
		on_server sh -c "echo any >/proc/sys/sunrpc/rdma_host_auth; mkdir -p /tmp/relayed
			! timeout -k 5 15 mount -t nfs -o $options $address:$EXPORT /tmp/relayed
			status=\$?; umount /tmp/relayed 2>/dev/null
			echo none >/proc/sys/sunrpc/rdma_host_auth; exit \$status" || fail "it is mounted"
		on_server dmesg | tail -n 20 | grep "$address:$PEER_PORT has not proven"
	fi
	[ "$(calls_of_nfsd)" = "$calls" ] || fail "the server has executed something"
	grep "^the server has proven itself" "$said" || fail "the server was not asked"
	! grep "^the client has proven itself" "$said" || fail "the client has sent its proof"
	kill -0 $peer
}

tests \
	"serves_with_the_key 3" \
	"serves_with_the_key 4.2" \
	"serves_with_the_key_over_IPv6" \
	"serves_on_one_link" \
	"the_name_of_the_peer_comes_first" \
	"the_name_of_the_peer_comes_first ::ffff:" \
	"proves_nothing_without_keys" \
	"a_server_need_not_demand_it" \
	"a_list_says_who_has_to" \
	"the_parameter_of_the_module_says_who_has_to" \
	"the_first_key_demands_it 1" \
	"the_first_key_demands_it 2" \
	"the_other_side_has another_key" \
	"the_other_side_has no_key" \
	"the_other_side_has the_only_key" \
	"a_key_is revoked here" \
	"a_key_is revoked on_server" \
	"a_key_is expired here" \
	"a_key_is collected here" \
	"a_key_is collected on_server" \
	"a_key_is invalidated here" \
	"a_key_is invalidated on_server" \
	"a_key_is unlinked here" \
	"a_key_is unlinked on_server" \
	"the_keyring_is revoked here" \
	"the_keyring_is revoked on_server" \
	"the_keyring_is invalidated here" \
	"keys_are_exchanged_under_a_connecting_loop 20" \
	"a_key_is_replaced" \
	"short_keys_are_refused" \
	"root_without_capabilities_adds_no_key" \
	"a_name_of_no_peer_is_reported" \
	"version_1_does_not_do 1 2" \
	"version_1_does_not_do 2 1" \
	"io_waits_for_the_key another_key" \
	"io_waits_for_the_key no_key" \
	"others_prove_it" \
	"others_prove_it IPv6" \
	"other_server_is keyed" \
	"other_server_is forger" \
	"other_server_is hesitates" \
	"messages_are_passed_on_to another_server" \
	"messages_are_passed_on_to the_client_itself"
