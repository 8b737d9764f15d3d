# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# KTAP for the programs here. A program defines a function for each test and ends with `tests "function argument..." ...`.
# The words of a test are its name. A test runs in a shell of its own with -e and finds nothing mounted. It passes if it
# ends with 0, and is skipped by `skip REASON`. The report of a failure has the source line of the command that failed,
# and of each caller. `defer` registers the clean-up of a test. The arguments of the program, if any, are beginnings of
# names, with _ for each space: only these tests run. lib.sh defines the set-up and the clean-up of all tests.
shopt -s inherit_errexit

KSFT_SKIP=4
only=$*

# skip REASON: ends the test, which counts as skipped.
skip() {
	echo "SKIP $*"
	exit $KSFT_SKIP
}

# fail REASON: ends the test, which counts as failed.
fail() {
	echo "$*"
	callers
	exit 1
}

# Prints the source lines of the callers of `fail` or of the command that failed, up to the test.
callers() {
	local frame=2 source line
	until [ "${FUNCNAME[frame]}" = test_in_shell ]; do
		source=${BASH_SOURCE[frame]##*/}
		line=${BASH_LINENO[frame - 1]}
		echo "  $source:$line: ${FUNCNAME[frame]}: $(sed -n "${line}s/^[[:blank:]]*//p" "${BASH_SOURCE[frame]}")"
		frame=$((frame + 1))
	done
}

# Reports the command that ends the test.
command_failed() {
	echo "failed with status $?: $BASH_COMMAND"
	callers
}

# defer COMMAND...: runs the command at the end of the test, also after a failure. The commands run in reverse order.
# They find the status of the test in $status.
defer() {
	local quoted
	printf -v quoted '%q ' "$@"
	deferred=("$quoted" "${deferred[@]}")
}

# Runs the deferred commands now. Returns whether all have succeeded.
clean_up() {
	local cleaned=0 command
	while [ ${#deferred[@]} != 0 ]; do
		command=${deferred[0]}
		deferred=("${deferred[@]:1}")
		eval "$command" || {
			echo "failed to clean up, with status $?: $command"
			cleaned=1
		}
	done
	return $cleaned
}

# test_ends STATUS: cleans up after the test.
test_ends() {
	trap - ERR
	set +e
	status=$1
	clean_up || [ "$status" != 0 ] || status=1
	exit "$status"
}

# tests TEST...: runs the selected tests and exits with the status of kselftest.
tests() {
	scratch=$(mktemp -d /tmp/rpcrdma-test.XXXXXX) || exit 1
	mnt=$scratch/mnt
	local=$scratch/local
	trap 'leave; speak_by_default >/dev/null; rm -rf "$scratch"' EXIT
	trap interrupted INT TERM HUP
	mkdir "$mnt"

	echo "TAP version 13"
	missing=$(requirements)
	if [ -z "$missing" ]; then
		said=$(speak_as_told)
		status=$?
		case $status in
		0) ;;
		"$KSFT_SKIP") missing=${said#SKIP } ;;
		*)
			echo "$said" | sed 's/^/# /'
			echo "1..1"
			echo "not ok 1 both sides can be told to speak version $RDMA_VERSION"
			exit 1
			;;
		esac
	fi
	if [ -n "$missing" ]; then
		echo "1..0 # SKIP $missing"
		exit $KSFT_SKIP
	fi
	for beginning in $only; do
		begins "$beginning" "$@" || {
			echo "1..1"
			echo "not ok 1 no test begins with $beginning"
			exit 1
		}
	done
	for words; do
		shift
		! selected "$words" || set -- "$@" "$words"
	done
	echo "1..$#"
	test_number=0
	failed=0
	for words; do
		test_number=$((test_number + 1))
		name=$(echo "$words" | tr '_' ' ')
		run_test $words
		status=$?
		# Cleaning up may hang, too, after a failure.
		[ $status = 0 ] || [ $status = "$KSFT_SKIP" ] || not_ok "exit status $status"
		if ! leave >"$scratch/left" 2>&1; then
			cat "$scratch/left" >>"$scratch/log"
			case $status in
			0 | "$KSFT_SKIP")
				status=1
				not_ok "$mnt is still busy"
				;;
			*) sed 's/^/# /' "$scratch/left" ;;
			esac
		fi
		rm -rf "$local"
		case $status in
		0)
			grep '^# ' "$scratch/log"
			echo "ok $test_number $name"
			;;
		"$KSFT_SKIP") echo "ok $test_number $name # SKIP $(sed -n 's/^SKIP //p' "$scratch/log")" ;;
		esac
	done
	[ $failed = 0 ]
	exit
}

# not_ok REASON: reports the failure of a test.
not_ok() {
	sed 's/^/# /' "$scratch/log"
	echo "# $1"
	echo "not ok $test_number $name"
	failed=$((failed + 1))
}

# run_test TEST...: runs a test in a shell of its own. After TEST_LIMIT seconds its processes are killed.
run_test() {
	: >"$scratch/log"
	if [ -z "${TEST_LIMIT:-}" ]; then
		(test_in_shell "$@")
		return
	fi
	(test_in_shell "$@") &
	running=$!
	(
		sleep "$TEST_LIMIT"
		echo "the test has not ended after $TEST_LIMIT s" >>"$scratch/log"
		kill_tree $running
	) &
	limit=$!
	# The shell does not report its end.
	disown $limit
	wait $running
	ended=$?
	kill_tree $limit
	return $ended
}

test_in_shell() {
	exec >>"$scratch/log" 2>&1
	deferred=()
	trap 'test_ends $?' EXIT
	trap 'command_failed >&2' ERR
	set -eE
	mkdir "$local"
	# A test before may have loaded the module anew.
	client_speaks "$RDMA_VERSION" 4096
	in_band 0
	"$@"
}

# kill_tree PROCESS: kills the process and its descendants.
kill_tree() {
	kill -STOP "$1" 2>/dev/null
	for child in $(pgrep -P "$1"); do
		(kill_tree "$child")
	done
	kill -KILL "$1" 2>/dev/null
}

# Prints the output of the test. The clean-up after it may hang, too.
interrupted() {
	echo "# interrupted: $name"
	sed 's/^/# /' "$scratch/log"
	exit 130
}

# begins BEGINNING TEST...: returns whether a test has this beginning. _ stands for a space.
begins() {
	beginning=$1
	shift
	for test; do
		case $(echo "$test" | tr ' ' '_') in
		"$beginning"*) return 0 ;;
		esac
	done
	return 1
}

selected() {
	[ -n "$only" ] || return 0
	for beginning in $only; do
		! begins "$beginning" "$1" || return 0
	done
	return 1
}

# note TEXT: prints TEXT with the result of the test, even if the test passes.
note() {
	echo "# $*"
}
