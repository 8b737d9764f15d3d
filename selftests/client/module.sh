#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The module comes when it is needed, by any of its names, and goes when nothing uses it.
. "$(dirname "$0")/../lib/lib.sh"

loaded() {
	[ -d /sys/module/rpcrdma ]
}

# A transport's last reference is dropped by a worker, so the module may be busy for a moment.
unload() {
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		loaded || return 0
		modprobe -r rpcrdma 2>"$scratch/unload" && return
		sleep 0.5
	done
	cat "$scratch/unload"
	return 1
}

needs_unused_module() {
	awk '$1 == "xprt:" && $2 == "rdma" { found = 1 } END { exit found }' /proc/self/mountstats ||
		skip "another NFS/RDMA mount is using the module"
	# On a machine that is its own server the listener holds the module.
	! grep -q '^rdma' /proc/fs/nfsd/portlist 2>/dev/null || skip "an NFS server is using the module"
}

loads_by_its_aliases_and_unloads() {
	needs_unused_module
	for name in rpcrdma svcrdma xprtrdma rpcrdma6; do
		unload
		modprobe "$name"
		loaded || fail "modprobe $name has not loaded rpcrdma"
	done
	unload
	! loaded
}

tells_its_version() {
	needs_unused_module
	unload
	modprobe rpcrdma
	[ -e /sys/module/rpcrdma/version ] || skip "the kernel's own module has no version"
	version=$(cat /sys/module/rpcrdma/version)
	dmesg | grep -q "rpcrdma: version $version in Rust, with RPC-over-RDMA versions 1 and 2" ||
		fail "the log has no line with version $version"
	needs modinfo
	[ "$(modinfo -F version rpcrdma)" = "$version" ]
	modinfo -F description rpcrdma | grep -q "in Rust"
}

loads_and_unloads_many_times() {
	needs_unused_module
	for _ in $(seq "$1"); do
		modprobe rpcrdma
		unload
	done
}

has_the_sysctls() {
	modprobe rpcrdma
	for name in rdma_slot_table_entries rdma_max_inline_read rdma_max_inline_write \
		rdma_inline_write_padding rdma_memreg_strategy rdma_pad_optimize; do
		cat /proc/sys/sunrpc/$name >/dev/null
	done
	needs_unused_module
	unload
	! ls /proc/sys/sunrpc/rdma_* 2>/dev/null
}

is_loaded_by_a_mount() {
	needs_unused_module
	unload
	mount_export
	loaded
	transport connections
}

stays_while_a_mount_uses_it() {
	needs_unused_module
	mount_export
	echo before >"$dir/file"
	if modprobe -r rpcrdma 2>"$scratch/unload"; then
		fail "the module was unloaded under a mount"
	fi
	grep -i 'in use' "$scratch/unload"
	remount
	grep -x before "$dir/file"
	if rmmod rpcrdma 2>/dev/null; then
		fail "the module was unloaded under a mount"
	fi
	rm "$dir/file"
	leave
	unload
	! loaded
}

# stays_loaded [on_server]: modprobe and rmmod refuse to unload the module, ten times each.
stays_loaded() {
	"$@" sh -c 'for _ in 1 2 3 4 5 6 7 8 9 10; do
		! modprobe -r rpcrdma || exit
		! rmmod rpcrdma || exit
		sleep 0.1
	done' 2>>"$local/refused" || fail "the module was unloaded under I/O"
}

# Both sides refuse to unload the module again and again, and no RPC notices.
stays_under_io() {
	VERS=$1
	mount_export
	begin_io 4
	defer touch "$local/stop"
	stays_loaded
	! has_server_command || stays_loaded on_server
	alive $churn || fail "verified I/O has ended"
	[ "$(new_connections)" = 0 ] || fail "the connection was lost"
	end_io
	grep -i -m 1 "in use" "$local/refused"
}

comes_back_after_unloading() {
	needs_unused_module
	for _ in $(seq "$1"); do
		mount_export
		head -c 100001 /dev/urandom >"$local/file"
		cp "$local/file" "$dir/file"
		remount
		cmp "$local/file" "$dir/file"
		leave
		unload
	done
}

# Looking up a transport by name compares with every name that the module registers.
refuses_an_unknown_netid() {
	modprobe rpcrdma
	for netid in rdma7 rdm rdma66; do
		! mount -t nfs -o "proto=$netid,port=$PORT,vers=$VERS,retry=0" "$SERVER:$EXPORT" "$mnt" ||
			fail "mounted with proto=$netid"
	done
	mount_export
}

tests \
	"loads_by_its_aliases_and_unloads" \
	"tells_its_version" \
	"loads_and_unloads_many_times 10" \
	"has_the_sysctls" \
	"is_loaded_by_a_mount" \
	"stays_while_a_mount_uses_it" \
	"stays_under_io 4.2" \
	"comes_back_after_unloading 3" \
	"refuses_an_unknown_netid"
