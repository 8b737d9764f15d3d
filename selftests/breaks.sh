#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Connections break all the time under I/O of several processes; every byte is compared.
# BREAKS says how many times; it needs a kernel with sunrpc's fault injection.
. "$(dirname "$0")/lib.sh"

BREAKS=${BREAKS:-300}

# connections_break VERSION CONNECTIONS CALLS: one of CALLS breaks the connection that it uses.
connections_break() {
	VERS=$1
	mount_export "nconnect=$2"
	[ "$(transport connections)" = "$2" ]
	"$here/io.py" churn "$dir" 6 "$local/stop" >"$local/churn" 2>&1 &
	churn=$!
	breaks_every "$3"
	before=$(transport connect_count)
	broken=0
	# As long as connections break, however slowly.
	quiet=0
	while [ $broken -lt "$BREAKS" ] && [ $quiet -lt 120 ] && kill -0 $churn; do
		sleep 1
		quiet=$((quiet + 1))
		count=$(($(transport connect_count) - before))
		[ $count = $broken ] || quiet=0
		broken=$count
	done
	echo 0 >$breaking/probability
	touch "$local/stop"
	wait $churn || {
		cat "$local/churn"
		exit 1
	}
	note "$broken breaks; $(tr '\n' ';' <"$local/churn")"
	"$here/io.py" settled "$dir"
	remount
	"$here/io.py" settled "$dir"
	[ $broken -ge "$BREAKS" ] || fail "there have been only $broken breaks"
}

tests \
	"connections_break 4.2 1 100" \
	"connections_break 4.2 3 50" \
	"connections_break 3 1 100"
