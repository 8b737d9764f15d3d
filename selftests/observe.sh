#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# What an administrator can see of a connection is true.
. "$(dirname "$0")/lib.sh"

# What sysfs says of the mount's transport in the file $1.
sysfs() {
	cat /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/"$1"
}

# source_of SERVER: the address that the kernel reaches it from.
source_of() {
	ip -o route get "$1" | sed -n 's/.* src \([^ ]*\).*/\1/p'
}

source_address_and_port() {
	mount_export
	[ "$(sysfs srcaddr)" = "$(source_of "$SERVER")" ] || fail "srcaddr is $(sysfs srcaddr)"
	port=$(sysfs xprt_info | sed -n 's/^src_port=//p')
	note "$(sysfs srcaddr) port $port"
	[ "$port" -gt 1023 ]
}

source_address_of_version_6() {
	[ -n "${SERVER6:-}" ] || skip "set SERVER6 to the server's IPv6 address"
	address=[$SERVER6]
	mount_export proto=rdma6
	[ "$(sysfs srcaddr)" = "$(source_of "$SERVER6")" ] || fail "srcaddr is $(sysfs srcaddr)"
}

# rpcctl prints what sysfs has.
source_address_by_rpcctl() {
	needs rpcctl
	mount_export
	rpcctl xprt | tee "$local/xprt"
	grep -q "$(source_of "$SERVER")" "$local/xprt"
}

tests \
	"source_address_and_port" \
	"source_address_of_version_6" \
	"source_address_by_rpcctl"
