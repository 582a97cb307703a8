# SPDX-License-Identifier: GPL-2.0
# Completion of quirectl's command line for bash.

# Print the knobs of a feature; quirectl knows them on any kernel.
_quirectl_knobs() {
	quirectl knobs explain "$1" 2>/dev/null | while read -r feature knob _; do
		[[ $feature == FEATURE ]] || printf '%s\n' "$knob"
	done
}

# Print the options of a command.
_quirectl_options() {
	case $1 in
	'') echo --help --root ;;
	status | rmap | ps | text | gauges | 'knobs list') echo --help --json ;;
	stats | stat) echo --help --json --nonzero --watch --count ;;
	save | metrics | bugreport) echo --help --output ;;
	apply) echo --help --strict ;;
	top) echo --help --sort --lines --interval --count --json ;;
	*) echo --help ;;
	esac
}

_quirectl() {
	local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
	local commands='status enable disable drain stats stat knobs gauges save apply metrics bugreport ps rmap text top boot'
	local features='fork shm prezero text rmap' word i
	local -a said=()
	COMPREPLY=()
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		case $word in
		--root | --output | --count | --sort | --lines | --interval) ((i++)) ;;
		-*) ;;
		*) said+=("$word") ;;
		esac
	done
	case $before in
	--root) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
	--output) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
	--sort) mapfile -t COMPREPLY < <(compgen -W 'all fork shm charged borrowed' -- "$current"); return ;;
	--count | --lines | --interval) return ;;
	esac
	local command=${said[0]-} words=
	[[ $command == knobs && ${said[1]-} ]] && command="knobs ${said[1]}"
	if [[ $current == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_quirectl_options "$command")" -- "$current")
		return
	fi
	case $command:${#said[@]} in
	:0) words=$commands ;;
	enable:1 | disable:1 | drain:1 | stats:1 | stat:1 | gauges:1) words="$features all" ;;
	boot:*) words="$features all" ;;
	knobs:1) words='list explain get set' ;;
	'knobs list:2' | 'knobs explain:2') words="$features all" ;;
	'knobs get:2' | 'knobs set:2') words=$features ;;
	'knobs get:3' | 'knobs set:3') words=$(_quirectl_knobs "${said[2]}") ;;
	apply:1) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
	ps:* | rmap:* | text:*) words=$(cd /proc && echo [0-9]*) ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o filenames -F _quirectl quirectl
