# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Completion of rpcrdma-status(8) for bash. bash-completion loads the file by the name of the program.

_rpcrdma_status() {
	local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command='' words i
	COMPREPLY=()

	# The command is the first word that is neither an option nor the argument of an option.
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-o | --output | --watch | --root) ((i++)) ;;
		-*) ;;
		*)
			command=${COMP_WORDS[i]}
			break
			;;
		esac
	done

	case $command:$before in
	:-o | :--output) words='text json' ;;
	:--watch | collect:--seconds | trace:--slow) return ;;
	:--root)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -d -- "$word")
		return
		;;
	:*) words='-o --output --watch --root -h --help doctor collect trace prometheus swap-module' ;;
	doctor:*) words='-h --help' ;;
	collect:*) words='--seconds -h --help' ;;
	trace:*) words='--all --slow -h --help' ;;
	prometheus:*) words='-h --help' ;;
	swap-module:*) words='rust c --restart-server -h --help' ;;
	*) return ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")

	# The argument of these commands is a file.
	if [[ $command =~ ^(collect|prometheus)$ && $word != -* ]]; then
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
	fi
}

complete -F _rpcrdma_status rpcrdma-status
