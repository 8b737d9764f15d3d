#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Each form of an RPC-over-RDMA message occurs where it should, by the transport's counters, and
# carries its data unharmed.
. "$(dirname "$0")/../lib/lib.sh"

# Version 3 is used where a call must come alone: an open of version 4 has a long reply of its own.

put() {
	"$io" put "$local/$1" "$dir/file" "$1"
}

get() {
	"$io" get "$local/$1" "$dir/file" "$1"
}

prepare() {
	io=$here/fileio.py
	head -c "$1" /dev/urandom >"$local/$1"
	mount_export
	: >"$dir/file"
}

# Each Receive of the server has a READLINK, and then a READ. The results of a link of 4 bytes end where the data of a
# READ begin.
reads_behind_links() {
	VERS=3
	mount_export noac
	mkdir "$dir/links"
	for number in $(seq 150); do
		ln -s abcd "$dir/links/$number"
	done
	head -c 614400 /dev/urandom >"$local/file"
	cp "$local/file" "$dir/file"
	remount
	[ "$(readlink "$dir"/links/* | sort | uniq -c)" = "    150 abcd" ]
	dd if="$dir/file" of="$local/read" bs=4096 iflag=direct 2>/dev/null
	cmp "$local/file" "$local/read"
}

#= V1-079, V2-092, NFS-034
short_messages() {
	VERS=3
	prepare 100
	for counter in read_segments write_segments bytes_replied nomsg_calls; do
		stays $counter put 100
		stays $counter get 100
	done
	grows sends get 100
}

#= V1-048, V1-080, V2-022
#= V2-068, NFS-009, NFS-020
read_chunk() {
	VERS=$1
	prepare 65536
	stays nomsg_calls put 65536
	grows read_segments put 65536
	get 65536
}

#= V1-048, V1-080, V2-022
#= V2-087, NFS-011, NFS-022
write_chunk() {
	VERS=$1
	prepare 65536
	put 65536
	[ "$1" != 3 ] || stays reply_segments get 65536
	grows write_segments get 65536
	grows bytes_replied get 65536
}

#= V2-082
read_and_write_chunks_with_padding() {
	for pad in 65533 65534 65535; do
		head -c $pad /dev/urandom >"$local/$pad"
	done
	prepare 65536
	for pad in 65533 65534 65535; do
		grows read_segments put $pad
		grows write_segments get $pad
	done
}

# takes COUNTER COMMAND...: in version 1 a chunk conveys data that is too long for a message, and in
# version 2 several messages do.
takes() {
	if [ "$RDMA_VERSION" = 2 ]; then
		stays "$@"
	else
		grows "$@"
	fi
}

# Position Zero: data that is not eligible for direct placement and does not fit inline.
#= V1-081, V1-084
long_call_by_an_attribute() {
	VERS=4.2
	prepare 16000
	"$io" setxattr "$dir/file" 16000 >"$local/probe" 2>&1 || skip "$(tail -n 1 "$local/probe")"
	takes nomsg_calls "$io" setxattr "$dir/file" 16000
	takes read_segments "$io" setxattr "$dir/file" 16000
	remount
	"$io" checkxattr "$dir/file" 16000
}

# The server takes less than a page of entries of each kind, and a directory has two kinds, which go
# in one call.
#= V1-081, V1-137, NFS-018
long_call_by_an_acl() {
	needs setfacl
	VERS=3
	prepare 1
	seq 1000 1319 | sed 's/.*/u:&:r--/' >"$local/acl"
	setfacl -M "$local/acl" "$dir" 2>/dev/null || skip "no ACLs on this export"
	takes nomsg_calls setfacl -d -M "$local/acl" "$dir"
	remount
	[ "$(getfacl -cnpa "$dir" | grep -c '^user:1[0-9]*:r--')" = 320 ]
	[ "$(getfacl -cnpd "$dir" | grep -c '^user:1[0-9]*:r--')" = 320 ]
}

#= V1-076, V1-081, NFS-027
long_reply_by_a_directory() {
	VERS=$1
	prepare 1
	for n in $(seq 300); do
		: >"$dir/a-name-long-enough-to-fill-a-reply-soon-$n"
	done
	remount
	grows reply_segments ls "$dir"
	remount
	grows bytes_replied ls "$dir"
}

# directory_calls: prints the number of READDIRPLUS Calls of the mount.
directory_calls() {
	awk -v mount="$mnt" '
		$1 == "device" { here = $5 == mount }
		here && $1 == "READDIRPLUS:" { print $2 }' /proc/self/mountstats
}

# A Reply chunk with whole pages is one Segment, so the server invalidates all of it.
a_directory_is_one_segment() {
	[ -e /sys/module/rpcrdma/version ] || skip "the kernel's own module has a Segment for each part"
	VERS=3
	prepare 1
	seq -f 'a-name-long-enough-to-fill-a-reply-soon-%g' 300 | sort >"$local/names"
	(cd "$dir" && xargs touch) <"$local/names"
	for counter in local_invalidates reply_segments; do
		remount
		before=$(transport $counter) calls=$(directory_calls)
		ls "$dir" >"$local/list"
		grep -v '^file$' "$local/list" | cmp - "$local/names"
		after=$(transport $counter) calls=$(($(directory_calls) - calls))
		note "$counter: $before before, $after after $calls Calls"
		[ "$calls" -ge 1 ]
		most=$before
		[ $counter = local_invalidates ] || most=$((before + calls))
		[ "$after" -le $most ] || fail "$counter has grown to more than $most"
	done
	[ "$after" -gt "$before" ]
}

#= V1-076, V1-081, NFS-010
#= NFS-021
long_reply_by_a_symbolic_link() {
	VERS=$1
	prepare 1
	target=$(head -c 4000 /dev/zero | tr '\0' x)
	stays nomsg_calls ln -s "$target" "$dir/another"
	grows read_segments ln -s "$target" "$dir/link"
	remount
	takes reply_segments readlink "$dir/link"
	remount
	[ "$(readlink "$dir/link")" = "$target" ]
	remount
	takes bytes_replied readlink "$dir/link"
}

#= V1-076, NFS-027
long_reply_by_an_attribute() {
	VERS=4.2
	prepare 16000
	"$io" setxattr "$dir/file" 16000 >"$local/probe" 2>&1 || skip "$(tail -n 1 "$local/probe")"
	remount
	grows bytes_replied "$io" checkxattr "$dir/file" 16000
}

# The largest data set that goes inline is found, and the sizes on both sides of it are moved.
#= V1-079, V1-081
inline_limit_of_calls() {
	VERS=$1
	prepare 8192
	"$io" limit "$mnt" "$dir/file" put >"$local/limit"
	cat "$local/limit"
}

inline_limit_of_replies() {
	VERS=$1
	prepare 8192
	put 8192
	"$io" limit "$mnt" "$dir/file" get >"$local/limit"
	cat "$local/limit"
}

no_reply_was_bad() {
	prepare 65536
	put 65536
	get 65536
	[ "$(transport bad_reply failed_marshal)" = "0 0" ]
}

tests \
	"short_messages" \
	"reads_behind_links" \
	"read_chunk 3" \
	"read_chunk 4.2" \
	"write_chunk 3" \
	"write_chunk 4.2" \
	"read_and_write_chunks_with_padding" \
	"long_call_by_an_attribute" \
	"long_call_by_an_acl" \
	"long_reply_by_a_directory 3" \
	"long_reply_by_a_directory 4.2" \
	"a_directory_is_one_segment" \
	"long_reply_by_a_symbolic_link 3" \
	"long_reply_by_a_symbolic_link 4.2" \
	"long_reply_by_an_attribute" \
	"inline_limit_of_calls 3" \
	"inline_limit_of_calls 4.2" \
	"inline_limit_of_replies 3" \
	"inline_limit_of_replies 4.2" \
	"no_reply_was_bad"
