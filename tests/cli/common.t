# What every program must do, whatever it is for: options, exit status, pipes, full disks, damage.
# runner: threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"

programs=$(find "$BIN" -maxdepth 1 -type f -perm -100 ! -name "*.so" ! -name paceline | sed 's|.*/||' | sort)
if [ -z "$programs" ]; then
	echo "1..0 # SKIP no programs in $BIN"
	exit 0
fi
check "the streams of a tiny job" tiny_streams "$TMP"
mkfifo "$TMP/fifo"

# to_nobody SIGNALS COMMAND...: runs it with a standard output whose reader is gone for certain
to_nobody() (
	[ "$1" = default ] || trap '' PIPE
	shift
	: <"$TMP/fifo" &
	exec 3>"$TMP/fifo"
	wait $!
	"$@" >&3
)

closed() (
	exec >&-
	"$@"
)

# Options of a manual page, one a line, without dashes: letters and names of the .It lines.
page_options() {
	awk '/^\.It / {
		for (i = 2; i <= NF; i++) {
			if ($i != "Fl") continue
			o = $(i + 1)
			if (o == "Fl") { i++; o = $(i + 1) }
			gsub(/\\-/, "-", o); sub(/^-+/, "", o); sub(/=.*/, "", o); gsub(/\\&/, "", o)
			if (o !~ /^no-/) print o
		}
	}' "$1" | sort -u
}

table_options() {
	"$1" --dump-options | awk -F '\t' '$1 != "-" { print $1 } { print $2 }' | sort -u
}

# sweep PROGRAM FILE: cut at every byte (by default at a sample of them): damage is status 3
sweep() {
	size=$(wc -c <"$2")
	step=$((size / 60 + 1))
	[ "$LONG" = 1 ] && step=1
	i=0
	bad=0
	while [ $i -lt "$size" ] && [ $bad -lt 5 ]; do
		head -c $i "$2" >"$TMP/cut"
		"$BIN/$1" -q -o "$TMP/cut.out" "$TMP/cut" >/dev/null 2>"$TMP/err"
		s=$?
		# several streams in a row: where one ends, what is before it is whole
		if [ $s = 0 ] && [ $i -gt 0 ] && cmp -s -n 28 -i 0:$i "$2" "$2"; then
			rm -f "$TMP/cut.out"
			i=$((i + step))
			continue
		fi
		if [ $s != 3 ] || ! grep -q "^$1: .*cut" "$TMP/err" || [ -e "$TMP/cut.out" ]; then
			echo "# $1, cut at byte $i of $size: status $s"
			sed 's/^/# /' "$TMP/err"
			rm -f "$TMP/cut.out"
			bad=$((bad + 1))
		fi
		i=$((i + step))
	done
	[ $bad = 0 ]
}

for p in $programs; do
	prog=$BIN/$p
	status 2 "$p: unknown option" "$prog" --no-such-option
	says "^$p: .*no-such-option" "$p: ... is named"
	status 2 "$p: bad value" "$prog" --color=purple
	says "^$p: .*purple" "$p: ... is shown"
	status 2 "$p: bad number" "$prog" --seed=12x
	status 4 "$p: missing file" "$prog" "$TMP/missing/file"
	says "^$p: .*missing/file" "$p: ... is named"
	status 0 "$p: --help" "$prog" --help
	check "$p: --help says nothing on standard error" test ! -s "$TMP/err"
	check "$p: --help speaks on standard output" grep -q "^usage: $p " "$TMP/out"
	check "$p: --help fits on 80 columns" no grep -qE '^.{81}' "$TMP/out"
	status 0 "$p: --version" "$prog" --version
	check "$p: --version names the toolkit and its version" \
		grep -q "paceline.* $(cat "$SRC/VERSION")" "$TMP/out"
	status 4 "$p: --help to a full disk" sh -c "'$prog' --help >/dev/full"
	status 141 "$p: a reader that left" to_nobody default "$prog" --help
	status 141 "$p: a reader that left, SIGPIPE ignored by the parent" to_nobody ignored "$prog" --help
	status 4 "$p: closed standard output" closed "$prog" --help

	page=$SRC/man/paceline-$p.1
	table_options "$prog" >"$TMP/table"
	if [ -f "$page" ]; then
		page_options "$page" >"$TMP/page"
		check "$p: the manual page and the program have the same options" \
			diff "$TMP/page" "$TMP/table"
	else
		check "$p: has a manual page" test -f "$page"
	fi

	# programs that write streams can leave the command line out of them
	plain=
	grep -qx provenance "$TMP/table" && plain=--no-provenance

	# what it prints tells times, and its input is text: tests/cli/run.t
	[ "$p" = run ] && continue
	input=
	if ! one_run "$p" "$TMP"; then
		check "$p: has an input in tests/cli/tiny.sh" false
		continue
	fi
	status 0 "$p: reads its input" "$prog" -q "$input"
	check "$p: a silent success with -q" test ! -s "$TMP/err"
	status 0 "$p: reads standard input" sh -c "'$prog' -q $plain - <'$input' >'$TMP/a'"
	sh -c "cat '$input' | '$prog' -q $plain >'$TMP/b'"
	check "$p: and a pipe, to the same bytes" cmp "$TMP/a" "$TMP/b"
	status 4 "$p: output to a full disk" sh -c "'$prog' -q '$input' >/dev/full"
	says "^$p: " "$p: ... and says so"
	status 4 "$p: -o to a full disk" "$prog" -q -o /dev/full "$input"
	status 4 "$p: -o into a folder that is not there" "$prog" -q -o "$TMP/nowhere/x" "$input"
	status 141 "$p: data to a reader that left" to_nobody default "$prog" -q "$input"
	status 4 "$p: data to a closed standard output" closed "$prog" -q "$input"
	status 3 "$p: an empty file" "$prog" -q /dev/null
	says "^$p: " "$p: ... and says so"
	mkdir -p "$TMP/empty"
	status "3 4" "$p: an empty folder" "$prog" -q "$TMP/empty"

	# the bytes do not depend on the number of threads, nor on the run
	for run in 1 2; do
		for t in 1 4; do
			# shellcheck disable=SC2086  # plain is one word or none
			"$prog" -q $plain -@ $t -o "$TMP/same.$run.$t" "$input"
		done
	done
	check "$p: -@1 and -@4 give the same bytes, twice" test 1 = "$(sha256sum "$TMP"/same.* |
		cut -d ' ' -f 1 | sort -u | wc -l)"
	rm -f "$TMP"/same.*

	# a file that was there stays as it was when the program fails
	echo precious >"$TMP/kept"
	stream=$input
	[ "$p" = trace ] && stream=$TMP/job.trace # of a foreign file it keeps what it can
	head -c 200 "$stream" >"$TMP/cut"
	status 3 "$p: a cut stream" "$prog" -q -o "$TMP/kept" "$TMP/cut"
	check "$p: leaves the old output file alone" grep -q '^precious$' "$TMP/kept"
	check "$p: and nothing beside it" test "$(find "$TMP" -name '*kept*' | wc -l)" = 1

	check "$p: a stream cut anywhere is status 3" sweep "$p" "$stream"
	if [ "$p" != replay ] && [ "$p" != predict ]; then # these two write text
		if script -qec true /dev/null >/dev/null 2>&1; then
			status 2 "$p: binary is refused to a terminal" \
				script -qec "'$prog' -q '$input'" /dev/null
		else
			skip "$p: binary is refused to a terminal" "no script(1), or no terminal to be had"
		fi
	fi
done

status 3 "a program in a pipe reports a cut input" sh -c "
	head -c 700 '$TMP/job.merged' | '$BIN/graph' -q -o '$TMP/g2'"
check "and leaves no output" test ! -e "$TMP/g2"
status 0 "the whole pipeline works in pipes" sh -c "
	set -e; '$BIN/trace' -u '$TMP/rank0.json' '$TMP/rank1.json' | '$BIN/merge' -u | '$BIN/graph' -u |
	'$BIN/replay' >'$TMP/report'"
check "and ends in a report" test -s "$TMP/report"
done_testing
