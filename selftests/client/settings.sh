#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The settings in /proc/sys/sunrpc have the names, defaults and ranges of the kernel's own module,
# and connections follow them.
. "$(dirname "$0")/../lib/lib.sh"

settings=/proc/sys/sunrpc
server_inline=$settings/svc_rdma/max_req_size

# The values that a test changes are restored at its end.
change() {
	defer set_to "$settings/$1" "$(cat "$settings/$1")"
	echo "$2" >"$settings/$1"
	[ "$(cat "$settings/$1")" = "$2" ]
}

change_server_inline() {
	old=$(on_server cat "$server_inline") || skip "the server is not a Linux one with svcrdma"
	defer on_server sh -c "echo $old >$server_inline"
	on_server sh -c "echo $1 >$server_inline"
}

# refuses NAME VALUE: VALUE is not taken, and changes nothing.
refuses() {
	before=$(cat "$settings/$1")
	! echo "$2" 2>/dev/null >"$settings/$1" || fail "$1 has taken $2"
	[ "$(cat "$settings/$1")" = "$before" ] || fail "$1 has changed"
}

# The attribute $1 of the mount's transport in sysfs.
attribute() {
	sed -n "s/^$1=//p" /sys/kernel/sunrpc/xprt-switches/*/xprt-*-rdma/xprt_info
}

have_the_defaults() {
	modprobe rpcrdma
	while read -r name value; do
		found=$(cat "$settings/$name")
		[ "$found" = "$value" ] || fail "$name is $found, not $value"
		[ "$(stat -c %a "$settings/$name")" = 644 ]
	done <<-END
		rdma_slot_table_entries 128
		rdma_max_inline_read 4096
		rdma_max_inline_write 4096
		rdma_inline_write_padding 0
		rdma_memreg_strategy 5
		rdma_pad_optimize 0
		svc_rdma/max_requests 128
		svc_rdma/max_req_size 4096
		svc_rdma/max_outbound_read_requests 16
		svc_rdma/rdma_stat_rq_starve 0
		svc_rdma/rdma_stat_rq_poll 0
		svc_rdma/rdma_stat_rq_prod 0
		svc_rdma/rdma_stat_sq_poll 0
		svc_rdma/rdma_stat_sq_prod 0
	END
	for name in recv read write sq_starve; do
		grep -qx '[0-9]*' "$settings/svc_rdma/rdma_stat_$name"
	done
}

refuse_what_is_out_of_range() {
	modprobe rpcrdma
	page=$(getconf PAGESIZE)
	while read -r name least most; do
		change "$name" "$least"
		change "$name" "$most"
		refuses "$name" $((least - 1))
		refuses "$name" $((most + 1))
		refuses "$name" none
	done <<-END
		rdma_slot_table_entries 4 16384
		rdma_max_inline_read 1024 65536
		rdma_max_inline_write 1024 65536
		rdma_inline_write_padding 0 $page
		rdma_memreg_strategy 0 6
		svc_rdma/max_requests 4 16384
		svc_rdma/max_req_size 4096 65536
		svc_rdma/max_outbound_read_requests 1 255
	END
	change rdma_pad_optimize -5
	change rdma_pad_optimize 12345
}

# So is the length of version 2's messages.
the_version_is_a_setting() {
	modprobe rpcrdma
	for name in rdma_max_version svc_rdma/max_version; do
		[ -e $settings/$name ] || skip "this module speaks version 1 only"
		change $name 2
		change $name 1
		refuses $name 0
		refuses $name 3
		refuses $name none
	done
	change rdma_negotiate 1
	change rdma_negotiate 0
	refuses rdma_negotiate -1
	refuses rdma_negotiate 2
	for name in rdma_max_message svc_rdma/max_message; do
		change $name 4096
		change $name 65536
		refuses $name 4095
		refuses $name 65537
	done
}

# load [PARAMETER...]: loads the module again, and prints the versions.
load() {
	modprobe -r rpcrdma
	modprobe rpcrdma "$@"
	(cd $settings && cat rdma_max_version svc_rdma/max_version rdma_negotiate) | tr '\n' ' '
}

# Parameters of the module are the initial values of the settings.
the_versions_are_parameters() {
	modinfo -F parm rpcrdma | grep -q "^max_version:" || skip "this module has no parameters"
	modprobe -r rpcrdma || skip "something is using the module"
	defer load
	[ "$(load max_version=1)" = "1 2 0 " ]
	[ "$(load svc_max_version=1)" = "2 1 0 " ]
	[ "$(load negotiate=1)" = "2 2 1 " ]
	[ "$(load)" = "2 2 0 " ]
	[ "$(cd $settings && cat rdma_max_message svc_rdma/max_message | tr '\n' ' ')" = "16384 16384 " ]
	modprobe -r rpcrdma
	for wrong in max_version=0 max_version=3 svc_max_version=-1 max_version=none negotiate=2; do
		! modprobe rpcrdma $wrong || fail "it takes $wrong"
	done
	dmesg | tail -n 20 | grep "max_version=3: has to be 1 to 2"
}

# counters NAME...: counters of the server.
counters() {
	for name; do
		on_server cat "$settings/svc_rdma/rdma_stat_$name"
	done
}

# Messages and Segments are counted, and writing anything begins anew.
counters_of_the_server() {
	needs_server_command
	VERS=3
	set -- recv read write
	mount_export
	first=$(counters "$@" | tr '\n' ' ')
	head -c 300001 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	remount
	cmp "$local/file" "$dir/file"
	leave
	second=$(counters "$@" | tr '\n' ' ')
	note "received, read, written: $first, then $second"
	for name; do
		before=${first%% *}
		first=${first#* }
		after=${second%% *}
		second=${second#* }
		[ "$after" -gt "$before" ] || fail "rdma_stat_$name has not grown"
	done
	for word in 0 5 nothing; do
		for name in "$@" sq_starve; do
			on_server sh -c "echo $word >$settings/svc_rdma/rdma_stat_$name"
		done
		[ -z "$(counters "$@" sq_starve | tr -d '0\n')" ] || fail "not 0 after $word"
		mount_export
		: >"$dir/file"
		leave
	done
}

# parallel_reads COUNT: COUNT readers at a time.
parallel_reads() {
	for _ in $(seq 5); do
		readers=
		for n in $(seq "$1"); do
			dd if="$dir/file" of=/dev/null iflag=direct bs=4k status=none &
			readers="$readers $!"
		done
		all_succeed $readers
	done
}

slots_are_those_of_a_new_mount() {
	modprobe rpcrdma
	change rdma_slot_table_entries "$1"
	mount_export
	[ "$(attribute max_num_slots)" = "$1" ] || fail "$(attribute max_num_slots) slots"
	head -c 262144 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	remount
	cmp "$local/file" "$dir/file"
	# An older mount keeps its value.
	change rdma_slot_table_entries 64
	[ "$(attribute max_num_slots)" = "$1" ]
}

#= V1-006, NFS-054
few_slots_are_all_that_is_used() {
	modprobe rpcrdma
	change rdma_slot_table_entries 4
	mount_export
	# SEQUENCE and the operations behind it have nothing to be placed.
	stays "read_segments write_segments" touch "$dir/another"
	head -c 262144 /dev/urandom >"$dir/file"
	set -- $(transport inflight sends)
	grows backlog parallel_reads 12
	set -- $(transport inflight sends) "$@"
	note "$(($1 - $3)) in flight, summed over $(($2 - $4)) Calls"
	[ $(($1 - $3)) -le $((4 * ($2 - $4))) ]
}

# inline_up_to CALL REPLY: data that fit in a Call of CALL bytes and in a Reply of REPLY bytes go without chunks.
inline_up_to() {
	io=$here/fileio.py
	VERS=3
	mount_export
	: >"$dir/file"
	for bytes in $(($1 - 512)) $(($2 - 512)) $(($1 + 4)) $(($2 + 4)); do
		head -c $bytes /dev/urandom >"$local/$bytes"
	done
	stays read_segments "$io" put "$local/$(($1 - 512))" "$dir/file" $(($1 - 512))
	grows read_segments "$io" put "$local/$(($1 + 4))" "$dir/file" $(($1 + 4))
	cp "$local/$(($2 - 512))" "$dir/file"
	remount
	stays write_segments "$io" get "$local/$(($2 - 512))" "$dir/file" $(($2 - 512))
	cp "$local/$(($2 + 4))" "$dir/file"
	remount
	grows write_segments "$io" get "$local/$(($2 + 4))" "$dir/file" $(($2 + 4))
}

# messages_are_as_large_as_both_sides_allow WRITE READ SERVER CALL REPLY: the smaller size of both sides holds for
# each direction.
messages_are_as_large_as_both_sides_allow() {
	needs_server_command
	modprobe rpcrdma
	change_server_inline "$3"
	change rdma_max_inline_write "$1"
	change rdma_max_inline_read "$2"
	inline_up_to "$4" "$5"
}

# A peer is told of whole units of 1,024 bytes, so no message may count on more.
sizes_between_units_are_rounded_down() {
	modprobe rpcrdma
	change rdma_max_inline_write 2900
	change rdma_max_inline_read 2900
	inline_up_to 2048 2048
}

# A connection that stands keeps its sizes; the next one has the new ones.
sizes_change_with_the_next_connection() {
	needs_server_command
	modprobe rpcrdma
	change_server_inline 65536
	inline_up_to 4096 4096
	change rdma_max_inline_write 16384
	change rdma_max_inline_read 16384
	head -c 12000 /dev/urandom >"$local/12000"
	grows read_segments "$io" put "$local/12000" "$dir/file" 12000
	grows write_segments "$io" get "$local/12000" "$dir/file" 12000
	remount
	stays read_segments "$io" put "$local/12000" "$dir/file" 12000
	stays write_segments "$io" get "$local/12000" "$dir/file" 12000
}

# reads_under_way LIMIT LEAST: the server has no more than LIMIT RDMA Reads under way on a connection, and at least
# LEAST at some time.
#= V1-041, V2-050
reads_under_way() {
	needs_server_command
	software_device
	[ "$type" = rxe ] || skip "the frames of siw say nothing of RDMA Reads"
	limit=$settings/svc_rdma/max_outbound_read_requests
	old=$(on_server cat "$limit") || skip "the server is not a Linux one with svcrdma"
	defer on_server sh -c "echo $old >$limit"
	on_server sh -c "echo $1 >$limit"
	VERS=3
	mount_export nolock
	head -c 2097152 /dev/urandom >"$local/file"
	# The writers may follow each other on a machine with other work.
	for _ in $(seq 5); do
		count_reads
		[ "$most" -le "$1" ] || fail "$most RDMA Reads were under way"
		[ "$most" -lt "$2" ] || break
	done
	remount
	for n in $(seq 16); do
		cmp "$local/file" "$dir/$n"
	done
	[ "$most" -ge "$2" ] || fail "only $most RDMA Reads were under way"
}

# Writes 16 files at the same time. Sets `most` to the largest number of RDMA Reads that were under way.
count_reads() {
	"$here/reads.py" "$interface" "$SERVER" >"$local/reads" &
	reader=$!
	until grep -q listening "$local/reads"; do
		alive $reader
		sleep 0.1
	done
	writers=
	for n in $(seq 16); do
		dd if="$local/file" of="$dir/$n" bs=256k oflag=direct status=none &
		writers="$writers $!"
	done
	all_succeed $writers
	kill $reader
	all_succeed $reader
	found=$(tail -n 1 "$local/reads")
	note "RDMA Reads: $found"
	most=${found#most=}
	most=${most% total=*}
}

tests \
	"have_the_defaults" \
	"refuse_what_is_out_of_range" \
	"the_version_is_a_setting" \
	"the_versions_are_parameters" \
	"counters_of_the_server" \
	"slots_are_those_of_a_new_mount 4" \
	"slots_are_those_of_a_new_mount 333" \
	"slots_are_those_of_a_new_mount 2000" \
	"few_slots_are_all_that_is_used" \
	"messages_are_as_large_as_both_sides_allow 1024 1024 65536 1024 1024" \
	"messages_are_as_large_as_both_sides_allow 16384 4096 65536 16384 4096" \
	"messages_are_as_large_as_both_sides_allow 4096 16384 65536 4096 16384" \
	"messages_are_as_large_as_both_sides_allow 65536 65536 65536 65536 65536" \
	"messages_are_as_large_as_both_sides_allow 65536 65536 16384 16384 16384" \
	"messages_are_as_large_as_both_sides_allow 65536 65536 4096 4096 4096" \
	"sizes_between_units_are_rounded_down" \
	"sizes_change_with_the_next_connection" \
	"reads_under_way 1 1" \
	"reads_under_way 4 2" \
	"reads_under_way 16 5"
