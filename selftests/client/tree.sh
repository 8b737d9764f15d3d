#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Directories with many entries: made, read back, compared, and removed.
. "$(dirname "$0")/../lib/lib.sh"

ENTRIES=${ENTRIES:-10000}

# Names of many lengths, so that entries end at many places in a reply.
one_directory_of_many_entries() {
	VERS=$1
	mount_export
	"$here/fileio.py" populate "$dir" "$ENTRIES" >"$local/made"
	remount
	"$here/fileio.py" list "$dir" >"$local/found"
	cmp "$local/made" "$local/found"
	[ "$(wc -l <"$local/found")" = "$ENTRIES" ]
	rm -rf "${dir:?}"/*
	[ -z "$(ls -A "$dir")" ]
	remount
	[ -z "$(ls -A "$dir")" ]
}

# Replies of one page and of several, with a last page that is filled to different degrees.
directories_of_few_entries() {
	VERS=$1
	mount_export
	for count in 1 2 3 5 10 20 40 60 100 200 400; do
		mkdir "$dir/$count"
		"$here/fileio.py" populate "$dir/$count" $count >"$local/$count"
	done
	remount
	for count in 1 2 3 5 10 20 40 60 100 200 400; do
		"$here/fileio.py" list "$dir/$count" | cmp "$local/$count" -
	done
	[ "$(ls "$dir" | wc -l)" = 11 ]
}

a_tree() {
	mount_export
	cp -r "$1" "$local/tree"
	cp -r "$local/tree" "$dir/tree"
	remount
	diff -r --no-dereference "$local/tree" "$dir/tree"
	note "$(find "$dir/tree" | wc -l) entries"
	rm -r "$dir/tree"
	[ ! -e "$dir/tree" ]
}

reading_while_it_changes() {
	mount_export
	"$here/fileio.py" populate "$dir" 500 >"$local/made"
	(for n in $(seq 200); do
		: >"$dir/new$n"
		rm "$dir/new$n"
	done) &
	for _ in 1 2 3 4 5; do
		"$here/fileio.py" list "$dir" | grep -v '^new' | cmp "$local/made" -
	done
	wait
}

tests \
	"one_directory_of_many_entries 4.2" \
	"one_directory_of_many_entries 3" \
	"directories_of_few_entries 4.2" \
	"directories_of_few_entries 3" \
	"a_tree /etc" \
	"reading_while_it_changes"
