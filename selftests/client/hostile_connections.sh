#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Connection establishment with a server that announces anything, and the end of connections.
. "$(dirname "$0")/../lib/peer.sh"
. "$(dirname "$0")/../lib/events.sh"

# The private data are the format of RFC 8797 and the announcement of the version. The server may have several RDMA
# Reads outstanding. A message without a Receive ends the connection, because the client requests no RNR retries.
#= CM-001, CM-009, CM-014
#= VA-001, VA-004, V1-006
#= V1-032, V1-122
connection_request() {
	mount_through_the_peer
	strike tell
	good
	outcome >"$local/request"
	cat "$local/request"
	grep "^$(cat /proc/sys/sunrpc/rdma_slot_table_entries) credits" "$local/request"
	announcement=d8cc59e201010000
	# The kernel's own module has none.
	[ -e /proc/sys/sunrpc/rdma_max_version ] || announcement=
	grep "private data f6ab0e1801010303$announcement" "$local/request"
	grep 'RNR retries 0, retries [1-7]$' "$local/request"
	[ "$(sed 's/.*Reads \([0-9]*\).*/\1/' "$local/request")" -ge 8 ] || fail "so few Reads"
}

# The server announces an inline threshold of 4096 bytes instead of the default of 1024.
#= V1-047, CM-009
the_announced_threshold_is_used() {
	mount_through_the_peer
	cp "$local/file" "$dir/file"
	stays read_segments dd if="$local/file" of="$dir/file" bs=3000 count=1 oflag=direct conv=notrunc
	good
}

# connects_with FAULT...: the client uses the defaults of RFC 8797 after invalid private data. The peer ends if a Call is
# longer than they allow.
#= V1-019, V1-042, V1-047
#= CM-001, CM-009, CM-020
#= CM-023
connects_with() {
	mount_through_the_peer
	for way; do
		strike "$way"
		grows connect_count good
		outcome
		cp "$local/file" "$dir/another"
		remount
		cmp "$local/file" "$dir/another"
		ls "$dir"
	done
}

# Reads the file in several processes, and replaces its data.
reads_and_writes() {
	read_side_by_side
	head -c $SIZE /dev/urandom >"$local/file"
	dd if="$local/file" of="$dir/file" bs=$SIZE oflag=direct
	good
}

# begins_with FAULT...: the properties that the server announces on its next connection. They do not count on the
# connection after it.
begins_with() {
	mount_through_the_peer
	for way; do
		strike "$way"
		grows connect_count good
		outcome
		reads_and_writes
	done
}

# opens_with FAULT=VERSION...: the client opens each connection with the version that the announcement in the private data
# of the server allows. The server ends if the client sends another version. The last announcement is the usual one.
#= VA-005, VA-006, VA-007
#= VA-008
opens_with() {
	mount_through_the_peer
	[ "$(says version) $(says announced)" = "2 2" ] || fail "they speak version $(says version)"
	for way in "$@" announces_version_2=2; do
		strike "${way%=*}"
		grows connect_count good
		outcome
		[ "$(says version)" = "${way#*=}" ] || fail "version $(says version) after $way"
		reads_and_writes
	done
}

# The client notices the end of an idle connection at once, not by its next Call.
#= CM-030
notices_the_end_of_an_idle_connection() {
	mount_through_the_peer
	strike hang_up_afterwards
	good
	outcome
	sleep 0.5
	state=$(grep -l "^$address\$" /sys/kernel/sunrpc/xprt-switches/*/xprt-*rdma/dstaddr) ||
		skip "this kernel's sunrpc has no sysfs"
	cat "${state%dstaddr}xprt_state"
	! grep -w CONNECTED "${state%dstaddr}xprt_state" || fail "not noticed"
	good
}

# Servers from before RFC 8166 send no private data, and demand room for padding in a Write chunk. Other servers get no
# such room.
#= V1-070
has_room_for_pad() {
	mount_through_the_peer
	strike no_private_data
	good
	outcome
	on_side client
	expect xprtrdma_chunk_wp "$task && $region && length == 4 && is_last == 1"
	for size in 16381 16382 16383 16384; do
		strike demands_room_for_pad
		dd if="$dir/file" of="$local/got" bs=$size count=1 iflag=direct 2>"$local/dd"
		outcome | tee "$local/outcome"
		grep -q padded "$local/outcome"
		cmp -n $size "$local/got" "$local/file"
	done
	came
	[ "$(transport bad_reply)" = 0 ] || fail "a Reply was bad"
	strike hang_up
	good
	outcome
	strike demands_room_for_pad
	! dd if="$dir/file" of="$local/got" bs=16383 count=1 iflag=direct 2>"$local/dd" || fail "a Segment for padding"
	outcome
	good
}

# Reads the file while the peer hangs up, until the client has connected eight times.
connects_again_and_again() {
	before=$(transport connect_count)
	began=$(date +%s%N)
	get &
	reader=$!
	for _ in $(seq 300); do
		count=$(($(transport connect_count) - before))
		[ $count -lt 8 ] || break
		sleep 0.2
	done
	took=$((($(date +%s%N) - began) / 1000000))
}

# The client spares a server that ends each connection before it answers: it connects twice at once, and the pauses
# before the next connections double from 0.1 s to 1 s. One connection may take longer, because the connection manager
# sends a lost message again after seconds.
reconnects_with_pauses() {
	mount_through_the_peer
	strike hang_up 1000
	EVENTS=xprtrdma_op_connect
	trace connects_again_and_again
	strike hang_up
	outcome
	wait $reader
	cmp "$local/got" "$local/file"
	sed -n 's/^.* \([0-9.]*\): xprtrdma_op_connect: .* delay=/\1 /p' "$local/trace" >"$local/pauses"
	note "$count connections in $took ms, pauses of $(cut -d " " -f 2 "$local/pauses" | tr '\n' ' ')ticks"
	[ $count -ge 8 ] || fail "the client connects too seldom"
	[ $took -ge 3400 ] || fail "the client connects too often"
	awk '{ delay[NR] = $2 }
		END {
			wanted = first = delay[3]
			for (n = 4; n <= NR; n++) {
				wanted = wanted * 2 < first * 10 ? wanted * 2 : first * 10
				if (delay[n] != wanted) exit 1
			}
			exit NR < 8 || delay[1] != 0 || delay[2] != 0 || first == 0
		}' "$local/pauses" || fail "the pauses do not double"
	# The longest pause is a second.
	late=$(awk '{ time[NR] = $1; delay[NR] = $2 }
		END {
			for (n = 2; n <= NR; n++) late += time[n] - time[n - 1] > delay[n - 1] / (10 * delay[3]) + 1
			print late + 0
		}' "$local/pauses")
	[ "$late" -le 1 ] || fail "$late connections were made later than that"
}

# Prints the number of the client's resources of each kind on the device.
resources() {
	for kind in cq mr pd cm_id; do
		shown=$(rdma resource show $kind)
		echo "$shown" | awk '/\[rpcrdma\]/ { n++ } END { print n + 0 }'
	done
}

connections_leave_nothing() {
	needs rdma
	[ -z "$(resources | tr -d '0\n')" ] || skip "another NFS/RDMA mount is there"
	mount_through_the_peer
	resources >"$local/first"
	for _ in 1 2 3 4 5; do
		strike hang_up
		good
		outcome
	done
	resources >"$local/last"
	note "completion queues, registrations, protection domains, ids:" $(cat "$local/last")
	cmp "$local/first" "$local/last"
	unmount
	for _ in 1 2 3 4 5; do
		[ -n "$(resources | tr -d '0\n')" ] || return 0
		sleep 0.5
	done
	resources
	fail "something is left"
}

tests_with_faults \
	"connection_request" \
	"the_announced_threshold_is_used" \
	"notices_the_end_of_an_idle_connection" \
	"has_room_for_pad" \
	"reconnects_with_pauses" \
	"connections_leave_nothing" \
	"in_version_2 negotiated begins_with small_receives bad_properties"
