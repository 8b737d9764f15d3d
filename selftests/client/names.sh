#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Symbolic links, extended attributes and ACLs of every length that the file system takes.
. "$(dirname "$0")/../lib/lib.sh"

symbolic_links() {
	VERS=$1
	mount_export
	for length in 1 2 3 4 5 6 7 8 9 100 1000 1023 1024 1025 2047 2048 3599 3600 3601 3700 3780 3781 3800 \
		3900 4000 4093 4094 4095; do
		head -c $length /dev/zero | tr '\0' x >"$local/$length"
		ln -s "$(cat "$local/$length")" "$dir/$length"
	done
	remount
	for link in "$dir"/*; do
		readlink -n "$link" | cmp "$local/${link##*/}" -
	done
}

too_long_a_symbolic_link() {
	mount_export
	! ln -s "$(head -c 4096 /dev/zero | tr '\0' a)" "$dir/link" ||
		fail "a target of 4096 bytes was taken"
	[ -z "$(ls -A "$dir")" ]
}

extended_attributes() {
	VERS=4.2
	mount_export
	: >"$dir/file"
	"$here/fileio.py" setxattr "$dir/file" 1 >"$local/probe" 2>&1 || skip "$(tail -n 1 "$local/probe")"
	for size in 0 1 2 3 4 1000 3500 3600 3700 3800 3900 4000 4095 4096 4097 8192 16383 32768 65535 \
		65536; do
		: >"$dir/$size"
		"$here/fileio.py" setxattr "$dir/$size" $size
	done
	remount
	for size in 0 1 2 3 4 1000 3500 3600 3700 3800 3900 4000 4095 4096 4097 8192 16383 32768 65535 \
		65536; do
		"$here/fileio.py" checkxattr "$dir/$size" $size
	done
	setfattr -x user.test "$dir/65536"
	remount
	! getfattr -n user.test "$dir/65536" 2>/dev/null
}

many_extended_attributes() {
	VERS=4.2
	mount_export
	: >"$dir/file"
	"$here/fileio.py" setxattr "$dir/file" 1 >"$local/probe" 2>&1 || skip "$(tail -n 1 "$local/probe")"
	for n in $(seq "$1"); do
		setfattr -n "user.an-attribute-with-a-long-name-$n" -v "$n" "$dir/file"
	done
	remount
	[ "$(getfattr -d "$dir/file" | grep -c '^user.an-attribute-with-a-long-name-')" = "$1" ]
}

posix_acls() {
	needs setfacl
	VERS=3
	mount_export
	: >"$dir/file"
	setfacl -m u:1000:r "$dir/file" 2>/dev/null || skip "no ACLs on this export"
	for entries in 1 10 100 200 300 310 320; do
		: >"$dir/$entries"
		seq 1000 $((999 + entries)) | sed 's/.*/u:&:r--/' >"$local/$entries"
		setfacl -M "$local/$entries" "$dir/$entries"
		mkdir "$dir/d$entries"
		setfacl -d -M "$local/$entries" "$dir/d$entries"
	done
	remount
	for entries in 1 10 100 200 300 310 320; do
		sed 's/^u:/user:/' "$local/$entries" >"$local/wanted"
		getfacl -cnp "$dir/$entries" | grep '^user:1' | cmp "$local/wanted" -
		getfacl -cnpd "$dir/d$entries" | grep '^user:1' | cmp "$local/wanted" -
	done
}

nfs4_acls() {
	needs nfs4_getfacl
	needs nfs4_setfacl
	mount_export
	: >"$dir/file"
	nfs4_getfacl "$dir/file" | grep -q '::OWNER@:' || skip "no ACLs on this export"
	for entries in 10 100 150; do
		seq 1000 $((999 + entries)) | sed 's/.*/A::&:r/' >"$local/$entries"
		{
			cat "$local/$entries"
			echo A::OWNER@:rw
			echo A::GROUP@:r
			echo A::EVERYONE@:r
		} >"$local/acl"
		: >"$dir/$entries"
		nfs4_setfacl -S "$local/acl" "$dir/$entries"
	done
	remount
	for entries in 10 100 150; do
		[ "$(nfs4_getfacl "$dir/$entries" | grep -c '^A::1[0-9]*:')" = $entries ]
	done
}

tests \
	"symbolic_links 3" \
	"symbolic_links 4.2" \
	"too_long_a_symbolic_link" \
	"extended_attributes" \
	"many_extended_attributes 200" \
	"posix_acls" \
	"nfs4_acls"
