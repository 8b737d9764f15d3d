# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Trace events whose fields must have certain values. A filter of the kernel reads a field by its name, so a test passes
# with this module and with the C module, if both have the event. Stands behind lib.sh.

instances=/sys/kernel/tracing/instances

# record INSTANCE EVENT FILTER: records the events for which the filter holds. $on selects the node.
record() {
	$on sh -ec "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
		[ -d $instances/$1 ] || mkdir $instances/$1
		cd $instances/$1/events/rpcrdma
		echo '$3' >$2/filter
		echo 1 >$2/enable"
}

# expect EVENT FILTER: an event with these fields must come before `came`.
expect() {
	record expected "$1" "$2"
	expected="$expected $1"
}

# never EVENT FILTER: no event with these fields may come before `came`.
never() {
	record refused "$1" "$2"
}

# Fails unless each expected event has come, and no refused one.
came() {
	for event in $expected; do
		soon "$event"
	done
	! $on test -d $instances/refused || ! $on grep ': [a-z]*rdma_[a-z_]*: ' $instances/refused/trace ||
		fail "an event has wrong fields"
}

# soon EVENT: waits at most ten seconds for an expected event.
soon() {
	for _ in $(seq 20); do
		! $on grep -q ": $1: " $instances/expected/trace || return 0
		sleep 0.5
	done
	fail "no event $1 for which this holds: $($on cat $instances/expected/events/rpcrdma/$1/filter)"
}

end_recording() {
	for instance in expected refused; do
		$on sh -c "[ ! -d $instances/$instance ] || rmdir $instances/$instance"
	done
}

# on_side client|server: the following events are of this side.
on_side() {
	on=
	[ "$1" = client ] || {
		needs_server_command
		on=on_server
	}
	$on modprobe rpcrdma
	expected=
	end_recording
	defer end_recording
}

# Conditions that several events have.
task='task_id > 0 && task_id < 65536 && client_id < 65536'
work='cq_id > 0 && completion_id > 0'
done='status == 0 && vendor_err == 0'
region='nents > 0 && handle != 0 && offset != 0'
