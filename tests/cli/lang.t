# Statements: the help that follows from their schemas, and that the manual pages name all of them.
. "$SRC/tests/cli/tap.sh"

# statements LANGUAGE: the names of its statements, of program $p
statements() {
	"$BIN/$p" --help=statements | awk -v want="statements of a $1:" '
		/^statements of/ { on = $0 == want; next }
		on && /^  / { print $1 }'
}

# keys LANGUAGE STATEMENT: its keys, from the line of its usage
keys() {
	"$BIN/$p" --help="$1:$2" | head -n 1 | grep -oE '[ [][a-z0-9_-]+[]=]' | tr -d ' []='
}

# Statements that the page lacks, and keys that the page does not mark up.
lacks() {
	for s in $(statements "$1"); do
		grep -qE "^\.It (Ic|Cm) (.* , )?$s( |\$)" "$2" || echo "$s"
		for k in $(keys "$1" "$s"); do
			grep -qE "^\.It (Ic|Cm) .*|^\.Cm " "$2" &&
				grep -E "Cm |Ic " "$2" | grep -qE "[ ,]$k(=|,|:|\$|[^a-z_-])" || echo "$s $k="
		done
	done
}

for p in run plan replay graph; do
	"$BIN/$p" --help=statements >"$TMP/statements" 2>/dev/null || continue
	check "$p: --help=statements lists them" grep -q '^statements of a' "$TMP/statements"
	sed -n 's/^statements of a \(.*\):$/\1/p' "$TMP/statements" >"$TMP/languages"
	while read -r language <&3; do
		page=$SRC/man/paceline-$language.5
		[ "$language" = program ] && page=$SRC/man/paceline-graph.1
		lacks "$language" "$page" >"$TMP/lacks"
		check "$p: the manual page of a $language names every statement and key" \
			test ! -s "$TMP/lacks"
		sed 's/^/# /' "$TMP/lacks"
	done 3<"$TMP/languages"
done
p=run
check "the keys of a statement are found" test "$(keys job link | tr '\n' ' ')" = "rate latency from to shared "
status 0 "help of a statement" "$BIN/run" --help=batch
holds "$TMP/out" '^batch BATCH$' "begins with its usage"
holds "$TMP/out" 'at least 1 and at most 16777216; needed; default 32' "says limits and default"
status 2 "help of a misspelt statement" "$BIN/run" --help=bacth
says 'run: --help: there is no statement "bacth"; did you mean batch?' "names the nearest"
for p in replay plan; do
	status 0 "$p: help of a word with two meanings" "$BIN/$p" --help=workers
	check "... has the one of the what-if" test "$(grep -c '^language: ' "$TMP/out")/$(head -n 1 "$TMP/out")" = "1/loader-workers WORKERS [was=X]"
done
printf 'paceline-plan 1\nworkers 4\n' >"$TMP/older.plan"
status 0 "an older plan, whose replicas were called workers" "$BIN/plan" -O text --no-provenance "$TMP/older.plan"
check "... has replicas" grep -qx 'replicas 4' "$TMP/out"
printf 'paceline-plan 1\naccumulate=4\n' >"$TMP/equals.plan"
status 0 "NAME=VALUE for the one value that a statement needs" "$BIN/plan" -O text --no-provenance "$TMP/equals.plan"
check "... is that value" grep -qx 'accumulate 4' "$TMP/out"
printf 'paceline-plan 1\nbatch=4\n' >"$TMP/equals.plan"
status 3 "NAME=VALUE for one of two values" "$BIN/plan" -O text "$TMP/equals.plan"
says 'equals.plan: line 2, column 1: batch=4: write "batch 4" (samples of a rank in a step) or "batch by 4" (factor of' "names the right lines"
status 2 "help of a statement where there are none" "$BIN/merge" --help=batch
says 'merge: --help takes no value here' "is refused"
check "completion knows the statements" sh -c "
	'$BIN/run' --dump-options | awk -F '\t' '\$2 == \"help\"' | grep -q '|batch|'"
printf 'model mlp:4-2\nbacth 3\n' >"$TMP/a.job"
status 3 "a misspelt statement" "$BIN/run" "$TMP/a.job"
says 'a.job: line 2, column 1: there is no statement "bacth"; did you mean batch?' "file, line, column"
done_testing
