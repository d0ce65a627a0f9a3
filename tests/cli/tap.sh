# shellcheck shell=sh
# The few lines that a command-line test needs; use: . "$SRC/tests/cli/tap.sh"
#
# check NAME COMMAND...           passes if the command succeeds
# status WANT NAME COMMAND...     passes if its exit status is one of WANT ("4" or "0 4"); its output
#                                 goes to $TMP/out and $TMP/err, which a failure shows
# says TEXT NAME                  passes if $TMP/err of the last `status` holds TEXT
# holds FILE TEXT NAME            passes if FILE holds TEXT; a failure shows the file
# skip NAME WHY
# no COMMAND...                   succeeds if the command fails, functions of the test included
# alike LIMIT FILE FILE           succeeds if the numbers of both, line by line, differ by no more than
#                                 LIMIT of the second
# same FILE FILE                  succeeds if both are equal and not empty; a failure shows where they differ
# done_testing                    the plan; the status of the test
# sanitized SANITIZER             succeeds in a build with the sanitizer, "thread" or "any"
# not_under SANITIZER WHY         ends the test here in such a build, with a word
tap_n=0
tap_failed=0

check() {
	# COMMAND may be a function that checks other things: the name of this check stays in $1
	if without_first "$@"; then
		tap_n=$((tap_n + 1))
		echo "ok $tap_n - $1"
	else
		tap_n=$((tap_n + 1))
		tap_failed=$((tap_failed + 1))
		echo "not ok $tap_n - $1"
	fi
}

without_first() {
	shift
	"$@"
}

status() {
	tap_want=$1
	tap_name=$2
	shift 2
	"$@" >"$TMP/out" 2>"$TMP/err"
	tap_got=$?
	tap_n=$((tap_n + 1))
	for tap_w in $tap_want; do
		if [ "$tap_w" = "$tap_got" ]; then
			echo "ok $tap_n - $tap_name"
			return
		fi
	done
	tap_failed=$((tap_failed + 1))
	echo "not ok $tap_n - $tap_name"
	echo "# exit status $tap_got, want $tap_want: $*"
	head -c 2000 "$TMP/err" | sed 's/^/# /'
}

says() {
	check "$2" grep -q -e "$1" "$TMP/err" || true
}

holds() {
	check "$3" grep -q -e "$2" "$1"
	grep -q -e "$2" "$1" || head -c 2000 "$1" | sed 's/^/# /'
}

skip() {
	tap_n=$((tap_n + 1))
	echo "ok $tap_n - $1 # SKIP $2"
}

no() {
	! "$@"
}

alike() {
	paste "$2" "$3" | awk -v limit="$1" '{ e = $1 / $2 - 1; if (e < 0) e = -e; if (NF != 2 || e > limit) bad = 1 }
		END { exit bad || !NR }'
}

same() {
	[ -s "$1" ] && diff "$1" "$2" >"$TMP/differs" && return
	sed 's/^/# /' "$TMP/differs"
	return 1
}

done_testing() {
	echo "1..$tap_n"
	[ "$tap_failed" = 0 ]
}

sanitized() {
	case "$1 ${BUILD##*/}" in
	any\ build-*address* | any\ build-*thread* | any\ build-*undefined* | thread\ build-*thread*) ;;
	*) return 1 ;;
	esac
}

not_under() {
	sanitized "$1" || return 0
	if [ "$tap_n" != 0 ]; then
		done_testing
		exit
	fi
	echo "1..0 # SKIP $2"
	exit 0
}
