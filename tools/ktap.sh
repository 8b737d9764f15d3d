# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# Prints results as KTAP. To be read by a shell program with `.`; the selftests, which are installed
# without tools/, have a writer of their own (selftests/lib/ktap.sh).

ktap_number=0
ktap_failed=0

# ktap_begin [COUNT]: begins; without COUNT the plan is at the end.
ktap_begin() {
	ktap_plan=${1-}
	echo "KTAP version 1"
	[ -z "$ktap_plan" ] || echo "1..$ktap_plan"
}

# ktap_result STATUS NAME [LOG...]: prints a result; the LOGs explain a failure.
ktap_result() {
	ktap_number=$((ktap_number + 1))
	if [ "$1" = 0 ]; then
		echo "ok $ktap_number $2"
		return
	fi
	ktap_failed=$((ktap_failed + 1))
	ktap_name=$2
	shift 2
	[ $# = 0 ] || sed 's/^/# /' "$@"
	echo "not ok $ktap_number $ktap_name"
}

# ktap_end: the totals, the plan if it was not told, and the exit status.
ktap_end() {
	[ -n "$ktap_plan" ] || echo "1..$ktap_number"
	echo "# Totals: pass:$((ktap_number - ktap_failed)) fail:$ktap_failed"
	[ $ktap_failed = 0 ]
}
