#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Connections break all the time under I/O of several processes; every byte is compared. BREAKS is
# the number of broken connections; needs a kernel with sunrpc's fault injection.
. "$(dirname "$0")/../lib/lib.sh"

BREAKS=${BREAKS:-300}

# connections_break VERSION CONNECTIONS CALLS: one of CALLS breaks the connection that it uses.
connections_break() {
	VERS=$1
	mount_export "nconnect=$2"
	[ "$(transport connections)" = "$2" ]
	break_under_load 6 "$3" "$BREAKS"
}

tests \
	"connections_break 4.2 1 100" \
	"connections_break 4.2 3 50" \
	"connections_break 3 1 100"
