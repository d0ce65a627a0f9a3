# shellcheck shell=sh
# What the measurements of this folder share; use: . "$(dirname -- "$0")/lib.sh"
#
# Sets SRC, BIN (the programs), GEN (kgen, ggen), HELPERS (programs made from bench/*.c), DATA (other
# people's traces, or empty), QUICK (1 with the option -q: small inputs, for trying the script; its
# figures claim nothing) and tmp, a folder that goes away.
#
# heading                 the heading of a table
# row WHAT ON FIGURE DEMANDED PEER VERDICT
# note TEXT...            a remark below the row
# judge VALUE OP LIMIT    "ok" or "MISSED" (when quick: "(missed)", which does not count); "failed" where
#                         there is no value
# cost COMMAND            what a shell command costs: "WALL CPU RSS" in s, s and MiB
# alternate N A B         N times A and B by turns; what they cost goes to $tmp/cost.a and $tmp/cost.b
# median, greatest        of numbers, one a line
# field N FILE            the N-th word of each line
# ratio N                 the median over the turns of the N-th word of A divided by that of B
# of_replay ON LIMIT FILE rows of what replay(1) says as JSON: the worst step's identity error (LIMIT, in %), and
#                         unexplained time
# find_torch              PYTHON: an interpreter with torch; else that of PEERS, a virtual environment, made there
#                         if absent. Fails where there is neither
# plan_tensors FILE       of a plan as text: the bytes and, behind a tab, the name of each tensor, as it is written there
# finish                  the end of a script: 1 if a demand was missed
#
# Times that are to be compared are taken by turns, and the median of the turns counts, so that
# what else the machine does hits both alike.
SRC=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
BIN=${BIN:-$SRC/bin}
GEN=${GEN:-$SRC/build/gen}
HELPERS=${HELPERS:-$SRC/build/bench}
DATA=${DATA:-}
QUICK=${QUICK:-}
[ "${1:-}" != -q ] || QUICK=1
missed=0
LC_ALL=C
export LC_ALL
tmp=$(mktemp -d) || exit 4
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
# lib_need FOLDER PROGRAM...
lib_need() {
	lib_folder=$1
	shift
	for lib_program; do
		[ -x "$lib_folder/$lib_program" ] || {
			echo "${0##*/}: $lib_folder/$lib_program is missing: run this through make bench or make check-data, or first make all helpers" >&2
			exit 6
		}
	done
}
if [ -n "${lib_programs:-}" ]; then
	# shellcheck disable=SC2086 # several words
	lib_need "$BIN" $lib_programs
else
	lib_need "$GEN" kgen ggen
	lib_need "$HELPERS" timeit skew simspeed
	lib_need "$BIN" replay
fi

heading() {
	row what on figure demanded peer ""
}

row() {
	printf '%-40s %-26s %16s   %-14s %-20s %s\n' "$1" "$2" "$3" "$4" "$5" "$6"
	case $6 in MISSED* | failed*) missed=$((missed + 1)) ;; esac
}

note() {
	printf '  %s\n' "$*"
}

of_replay() {
	worst=$(tr '{' '\n' <"$3" | sed -n 's/.*"recorded_ns".*"error":-*\([0-9.e+-]*\).*/\1/p' | sort -g | tail -n 1)
	v=$(awk -v v="$worst" 'BEGIN { if (v != "") printf "%.4f", 100 * v }')
	row "replay: identity, worst step" "$1" "$v %" "<= $2 %" "" "$(judge "$v" '<=' "$2")"
	v=$(grep -o '"unexplained_share":[-0-9.e+]*' "$3" | awk -F : 'NR == 1 { printf "%.2f", 100 * $2 }')
	row "unexplained, critical path" "$1" "$v %" "<= 3 %" "" "$(judge "$v" '<=' 3)"
}

judge() {
	awk -v v="$1" -v op="$2" -v limit="$3" -v miss="${QUICK:+(missed)}" 'BEGIN {
		if (miss == "")
			miss = "MISSED"
		if (v !~ /^-?[0-9]/)
			print "failed"
		else
			print (op == "<=" ? v + 0 <= limit + 0 : v + 0 >= limit + 0) ? "ok" : miss
	}'
}

cost() {
	"$HELPERS/timeit" sh -c "$1" 3>"$tmp/cost" >/dev/null 2>"$tmp/cost.err" || {
		sed 's/^/# /' "$tmp/cost.err" >&2
		return 1
	}
	awk '{ print $1, $2 + $3, $4 / 1024 }' "$tmp/cost"
}

alternate() {
	: >"$tmp/cost.a"
	: >"$tmp/cost.b"
	alternate_n=0
	while [ $alternate_n -lt "$1" ]; do
		cost "$2" >>"$tmp/cost.a" && cost "$3" >>"$tmp/cost.b" || return 1
		alternate_n=$((alternate_n + 1))
	done
}

median() {
	sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'
}

greatest() {
	sort -n | tail -n 1
}

field() {
	awk -v n="$1" '{ print $n }' "$2"
}

ratio() {
	paste -d ' ' "$tmp/cost.a" "$tmp/cost.b" | awk -v n="$1" '{ print $n / $(NF / 2 + n) }' | median
}

find_torch() {
	PYTHON=${PYTHON:-python3}
	"$PYTHON" -c 'import torch' 2>/dev/null && return
	[ -n "${PEERS:-}" ] || return 1
	PYTHON=$PEERS/bin/python
	[ -x "$PYTHON" ] || python3 -m venv "$PEERS" >"$tmp/log" 2>&1 || return 1
	"$PYTHON" -c 'import torch' 2>/dev/null || "$PEERS/bin/pip" -q install torch numpy >"$tmp/log" 2>&1
}

plan_tensors() {
	awk '/^tensor / {
		match($0, /^tensor ("([^"\\]|\\.)*"|[^ ]+) /)
		split(substr($0, RLENGTH + 1), words, " ")
		print words[1] "\t" substr($0, 8, RLENGTH - 8)
	}' "$1"
}

finish() {
	[ "$missed" = 0 ] || echo "$missed missed"
	[ "$missed" = 0 ]
	exit
}
