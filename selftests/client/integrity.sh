#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Data that is written is read back, in every way to write and read, around every threshold of the
# transport. A local copy is changed in the same way and compared byte for byte after the client has
# dropped its caches.
. "$(dirname "$0")/../lib/lib.sh"

# The pad of an XDR item is 0 to 3 bytes; inline limits are below 4 KiB; the rest are pages, the
# server's transfer size and the segment limits of memory registration.
small="0 1 2 3 4 5 511 512 1023 1024 1025 3500-3800 4095 4096 4097"
large="8191 8193 65535 65536 65537 262143 262144 262145 1048573 1048574 1048575 1048576 1048577"
if [ -n "${QUICK:-}" ]; then
	small="0 1 2 3 4 1024 3590 3667 3753 4095 4096 4097"
	large="8193 65536 262145 1048577"
fi

# compares HOW SIZE...: the data are written HOW on both sides and compared after a remount.
compares() {
	mount_export
	"$here/fileio.py" write "$local" "$dir" "$@"
	remount
	"$here/fileio.py" compare "$local" "$dir" "$@"
	"$here/fileio.py" compare "$local" "$dir" "$@" direct
}

#= V1-030, V1-063, V1-066
buffered() {
	compares buffered $small $large
}

#= V1-030, V1-063, V1-066
direct() {
	compares direct $small $large
}

# O_DIRECT from memory that does not start at a page, at odd places in the file.
unaligned_direct() {
	compares unaligned $small $large
	"$here/fileio.py" compare "$local" "$dir" unaligned $small $large skewed
}

mapped() {
	compares mapped $small $large
}

# NFS version 3, whose calls and replies have other sizes.
buffered_version_3() {
	VERS=3
	buffered
}

direct_version_3() {
	VERS=3
	direct
}

small_transfer_size() {
	MOUNT_OPTIONS=rsize=$1,wsize=$1
	compares buffered 0 1 4095 4096 4097 65537 262145
	leave
	compares direct 0 1 4095 4096 4097 65537 262145
}

sparse_files() {
	compares sparse 1048577 4194305
}

overwriting() {
	compares overwrite 4097 65537 1048577
}

appending() {
	compares append 1 100 4096 65537
}

truncating() {
	compares truncate 4097 65537 1048577
}

vectored() {
	compares vectored 65537 1048577
}

# Offsets that are not multiples of anything, a few bytes around each page's end.
offsets() {
	compares offsets 65537
}

writers_and_readers_at_once() {
	mount_export
	set -- "$dir" "$1" "$2"
	# Soft iWARP sends a page in several segments of TCP, without a copy.
	! rdma link 2>/dev/null | grep -q '^link siw' || set -- "$@" torn
	"$here/together.py" "$@"
}

tests \
	"buffered" \
	"direct" \
	"unaligned_direct" \
	"mapped" \
	"buffered_version_3" \
	"direct_version_3" \
	"small_transfer_size 4096" \
	"sparse_files" \
	"overwriting" \
	"appending" \
	"truncating" \
	"vectored" \
	"offsets" \
	"writers_and_readers_at_once 8 1048576"
