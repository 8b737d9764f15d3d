#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# RPCSEC_GSS: Calls that are signed (krb5), Calls whose arguments and results are signed (krb5i) or
# encrypted (krb5p). Protected data is one piece, so no part of it is moved directly.
. "$(dirname "$0")/../lib/lib.sh"

BREAKS=${BREAKS:-20}

# The lab makes a KDC; elsewhere there has to be one.
mount_protected() {
	if command -v lab-krb5 >/dev/null; then
		lab-krb5
	else
		[ -e /etc/krb5.keytab ] && pgrep -x rpc.gssd >/dev/null ||
			skip "needs Kerberos: /etc/krb5.keytab and a running rpc.gssd"
	fi
	VERS=$2
	mount_export "sec=$1${3:+,$3}" 2>"$local/mount" || {
		cat "$local/mount"
		command -v lab-krb5 >/dev/null || skip "the server does not take sec=$1"
		exit 1
	}
	grep " $mnt " /proc/mounts | grep -q "\<sec=$1\>" || fail "it is mounted otherwise"
}

# Reads and compares the file that is open as descriptor 4. The Reply to an OPEN of 4.2 may need a Reply chunk.
read_the_open_file() {
	dd bs=1M iflag=direct status=none <&4 | cmp -n 300001 - "$local/file"
}

# moves COUNTER EXPECTED COMMAND...: whether the counter grows.
moves() {
	name=$1
	way=stays
	[ "$2" != yes ] || way=grows
	shift 2
	$way "$name" "$@"
}

# Only krb5 leaves arguments and results unchanged, so that chunks can move them. Signed or
# encrypted data that is too long for a message is conveyed completely, in a Long Call or in a Reply
# chunk.
#= V1-142, V2-189, V2-191
#= V2-192, V2-193, V2-194
data_are_the_same() {
	# Attributes are cached for longer than a slow machine needs between two commands: a GETATTR is counted, too.
	mount_protected "$1" "$2" actimeo=600
	io=$here/fileio.py
	head -c 1000003 /dev/urandom >"$local/file"
	: >"$dir/file"
	whole=yes
	[ "$1" != krb5 ] || whole=no
	parts=yes
	[ $whole = no ] || parts=no
	moves nomsg_calls $whole "$io" put "$local/file" "$dir/file" 300001
	moves write_segments $parts "$io" get "$local/file" "$dir/file" 300001
	exec 4<"$dir/file"
	moves reply_segments $whole read_the_open_file
	exec 4<&-
	# Credentials and verifiers are longer than without Kerberos, and a message has room for that much less.
	if [ "$1" = krb5 ]; then
		"$io" limit "$mnt" "$dir/file" put
		"$io" limit "$mnt" "$dir/file" get
	fi
	for size in 1 500 3000 3500 4000 4096 5000 65536 1000003; do
		"$io" put "$local/file" "$dir/$size" $size
		"$io" get "$local/file" "$dir/$size" $size
	done
	cp "$local/file" "$dir/file"
	"$io" populate "$dir" 300 >"$local/made"
	remount
	cmp "$local/file" "$dir/file"
	"$io" get "$local/file" "$dir/1000003" 1000003
	[ "$(ls "$dir" | wc -l)" = 310 ]
	stays bad_reply cmp "$local/file" "$dir/file"
}

# The results of long READs of short files fit a message. The server does not move them by a Write chunk.
#= V2-193
short_results_stay_in_the_message() {
	mount_protected "$1" "$2"
	head -c 3000 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	for bytes in 65536 1048576; do
		dd if="$dir/file" bs=$bytes count=1 iflag=direct 2>/dev/null | cmp - "$local/file"
	done
}

# A protected Call or Reply is mapped as a whole: head, pages and tail. The copies of less than a page have
# other offsets within their pages.
swiotlb_moves_memory() {
	copies_lie 1
	data_are_the_same "$@"
	"$here/fileio.py" write "$local" "$dir" unaligned 3753 65536 1048577
	remount
	"$here/fileio.py" compare "$local" "$dir" unaligned 3753 65536 1048577 skewed
}

connections_break() {
	mount_protected "$1" "$2"
	break_under_load 4 50 "$BREAKS"
}

# Writes the file while the link is down, until the Call is overdue. Prints the first event for the
# memory of the file: `taken` from the server, the connection `closed`, or another Call `encoded`.
#
# Only the background process opens the file, because close(2) waits for the data to reach the server.
send_again_without_a_link() {
	[ -p "$local/data" ] || mkfifo "$local/data"
	cat >"$dir/file" <"$local/data" &
	exec 5>"$local/data"
	lose 100%
	: >$trace/trace
	cat "$local/file" >&5
	exec 5>&-
	first=
	for _ in $(seq 50); do
		sleep 0.1
		first=$(awk '
			/xprtrdma_marshal.*read list/ { exposed = 1 }
			exposed && /xprtrdma_mr_localinv/ { print "taken"; exit }
			exposed && /cq_free/ { print "closed"; exit }
			exposed && /rpc_xdr_sendto/ { print "encoded"; exit }' $trace/trace)
		[ -z "$first" ] || break
	done
	lose 0%
	wait $!
	echo "${first:-nothing}"
}

# When the Reply is overdue, the Call is encrypted anew into other pages, and the first ones are
# freed: the server must not be able to read them any more by then. The connection is closed at the
# same time, by a worker; when that comes first, nothing is left to be taken. With all unbound workers on
# one processor, that worker has to wait for the task.
pages_are_taken_from_the_server_first() {
	mount_protected krb5p 3 timeo=10
	events=/sys/kernel/tracing/events
	for event in rpcrdma/xprtrdma_mr_localinv sunrpc/rpc_xdr_sendto rdma_core/cq_free; do
		[ -e $events/$event ] || skip "nothing traces $event here"
	done
	lossy_link
	trace=/sys/kernel/tracing/instances/rpcrdma-test
	mkdir $trace
	defer rmdir $trace
	workers=/sys/devices/virtual/workqueue/cpumask
	before=$(cat $workers)
	defer set_to $workers "$before"
	set_to $workers 1
	# The order of events of several processors.
	echo counter >$trace/trace_clock
	echo 1 >$trace/events/rpcrdma/enable
	echo 1 >$trace/events/sunrpc/rpc_xdr_sendto/enable
	echo 1 >$trace/events/rdma_core/cq_free/enable
	head -c 65536 /dev/urandom >"$local/file"
	for _ in 1 2 3 4 5; do
		first=$(send_again_without_a_link)
		[ "$first" = closed ] || break
	done
	[ "$first" = taken ] || {
		note "first: $first"
		grep "rpc_xdr_sendto\|cq_free\|\(xprtrdma_\(marshal\|post_send\)\|rpcrdma_close\)" $trace/trace |
			cut -c 1-150 | tail -n 20
		fail "the server could read them until the connection ended"
	}
	remount
	cmp "$local/file" "$dir/file"
}

set --
for sec in krb5 krb5i krb5p; do
	set -- "$@" "data_are_the_same $sec 3" "data_are_the_same $sec 4.2"
done
tests "$@" \
	"short_results_stay_in_the_message krb5i 3" \
	"swiotlb_moves_memory krb5i 3" \
	"connections_break krb5p 3" \
	"connections_break krb5p 4.2" \
	"pages_are_taken_from_the_server_first"
