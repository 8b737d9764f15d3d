#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# fio verifies its data, in blocks of mixed sizes, buffered and direct at once. RUNTIME and JOBS are
# its duration and its number of jobs.
. "$(dirname "$0")/../lib/lib.sh"

RUNTIME=${RUNTIME:-60}
JOBS=${JOBS:-8}

# Every 512 bytes carry a check sum of their own, as blocks of different sizes lie over each other.
verifies() {
	needs fio
	VERS=$1
	mount_export
	cat >"$local/job" <<-END
		[global]
		directory=$dir
		ioengine=$2
		iodepth=4
		rw=randwrite
		bssplit=512/10:1k/5:3584/10:4k/25:8k/10:12k/5:64k/15:256k/10:1m/10
		size=8m
		verify=crc32c
		verify_interval=512
		verify_backlog=32
		verify_fatal=1
		time_based
		runtime=$RUNTIME
		fallocate=none
		group_reporting
		[buffered]
		numjobs=$((JOBS - JOBS / 2))
		[direct]
		direct=1
		numjobs=$((JOBS / 2))
	END
	fio --output="$local/report" "$local/job" || {
		cat "$local/report"
		exit 1
	}
	grep -E 'READ:|WRITE:' "$local/report" | sed 's/^ */# /'
	grep -q "(groupid=0, jobs=$JOBS): err= 0" "$local/report" || fail "a job has not reported"
}

tests "verifies $VERS libaio"
