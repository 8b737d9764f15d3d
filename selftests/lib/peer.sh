# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# A mount through a server that breaks the rules on request: peer.py with the faults of the folder faults, or peer2.py in
# version 2. For the programs hostile_*.sh. A fault that needs no test of its own declares the test that causes it.
. "$(dirname "$0")/../lib/lib.sh"

PEER=peer.py
PEER_PORT=20050
WAY=
SIZE=16384

# in_version_2 TEST ARGUMENT...: runs a test with a server that speaks version 2.
in_version_2() {
	PEER=peer2.py PEER_PORT=20052 WAY=plain
	modprobe rpcrdma
	version=/proc/sys/sunrpc/rdma_max_version
	[ -e $version ] || skip "this module speaks version 1 only"
	defer set_to $version 1
	set_to $version 2
	"$@"
}

# negotiated TEST ARGUMENT...: has the client negotiate the version in-band; stands behind in_version_2.
negotiated() {
	in_band 1
	"$@"
}

# tests_with_faults TEST...: runs the tests of this program that the folder faults declares, and these tests.
tests_with_faults() {
	local declared words
	declared=$("$here/expected.py") || exit
	while read -r words; do
		tests_function "$words" || continue
		set -- "$@" "$words"
	done <<<"$declared"
	tests "$@"
}

# tests_function TEST: returns whether the function of the test is in this program.
tests_function() {
	local test=${1#in_version_2 }
	[ "$(type -t "${test%% *}")" = function ]
}

start_the_peer() {
	control=$scratch/control.$PEER
	rm -f "$control" "$control.go"
	address=$(source_of "$SERVER")
	peer_runs || start_the_script
	defer leave_the_peer
}

peer_runs() {
	[ -e "$scratch/$PEER.pid" ] && kill -0 "$(cat "$scratch/$PEER.pid")" 2>/dev/null
}

# Starts the peer, which serves all tests of the program and ends with it.
start_the_script() {
	start_peer $PEER "$control" $$ $WAY
	echo $peer >"$scratch/$PEER.pid"
}

# Prints the log of the peer and the state of the connection after a failure.
leave_the_peer() {
	# Without a server nothing but this leaves the mount.
	peer_runs || umount -f -l "$mnt"
	[ $status = 0 ] || {
		tail -n 20 "$scratch/$PEER.log"
		grep -s "^\(connects\|last_\)" /sys/kernel/debug/rpcrdma/* || :
	}
}

# mount_through_the_peer [OPTIONS]: mounts version 3 through the peer and writes a file of $SIZE bytes.
mount_through_the_peer() {
	mount_through_the_peer_with 3 \
		"mountproto=tcp,mountaddr=$SERVER,nolock,soft,timeo=100,retrans=2,noac${1:+,$1}"
	head -c $SIZE /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	good
}

# Mounts version 4.0. The page list of the first READDIR of a directory begins within a page, so its Reply chunk has
# several Segments.
mount_4_0_through_the_peer() {
	mount_through_the_peer_with 4.0 soft,timeo=100,retrans=2,noac
}

# Mounts version 4.1, which has a backchannel.
mount_4_1_through_the_peer() {
	mount_through_the_peer_with 4.1 soft,timeo=100,retrans=2,noac
}

# mount_through_the_peer_with VERSION OPTIONS
mount_through_the_peer_with() {
	peer_runs && [ -n "${control:-}" ] || start_the_peer
	PORT=$PEER_PORT VERS=$1 MOUNT_OPTIONS=$2
	mount_export
}

# strike FAULT [TIMES]: the peer applies the fault to the next Reply, or the next TIMES Replies, that suit it.
strike() {
	rm -f "$control.done"
	fault=$1
	struck=$(times_struck)
	echo "$1 ${2:-1}" >"$control.new"
	mv "$control.new" "$control"
}

# Prints how often the peer has applied the fault.
times_struck() {
	grep -c "^$fault\$" "$scratch/$PEER.log" || :
}

# Waits until the peer has the Call to whose Reply it applies the fault.
asked_for() {
	for _ in $(seq 200); do
		[ "$(times_struck)" = "$struck" ] || return 0
		sleep 0.1
	done
	fail "nothing was asked for"
}

# Prints the outcome of the fault. Fails if the peer has not applied it.
outcome() {
	for _ in $(seq 200); do
		[ ! -e "$control.done" ] || break
		sleep 0.1
	done
	[ -e "$control.done" ] || fail "the fault has not happened"
	cat "$control.done"
}

# Reads the file by a READ.
get() {
	dd if="$dir/file" of="$local/got" bs=$SIZE count=1 iflag=direct 2>"$local/dd"
}

# Reads the file by a READ and compares the data.
good() {
	get && cmp "$local/got" "$local/file"
}

# Runs eight readers, each of which sends many READs.
read_side_by_side() {
	readers=
	for _ in 1 2 3 4 5 6 7 8; do
		dd if="$dir/file" bs=512 iflag=direct 2>/dev/null | cmp - "$local/file" &
		readers="$readers $!"
	done
	for reader in $readers; do
		wait "$reader"
	done
}

# read_in_the_background NAME: reads the file to $local/NAME.
read_in_the_background() {
	dd if="$dir/file" of="$local/$1" bs=$SIZE count=1 iflag=direct &
}

# Ends the connection. The next carries the same number of Calls and Replies.
lose_the_connection() {
	strike first_call 2
	grows connect_count ls "$dir"
	outcome
}
