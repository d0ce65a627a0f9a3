# Ranks that wait for one another although nobody recorded it: found with its members, used by what-ifs; and waits that end
# together for other reasons, which are not taken for it.
. "$SRC/tests/cli/tap.sh"
not_under thread "its programs have one thread each"

# job OPTION...: the graph of a generated job in $TMP/graph
job() {
	rm -rf "$TMP/job"
	mkdir "$TMP/job"
	awk -v dir="$TMP/job" "$@" -f "$SRC/tests/gen/unrecorded.awk"
	"$BIN/graph" -q --no-provenance "$TMP/job"/* -o "$TMP/graph"
}

# found: the rendezvous in $TMP/graph, a line for each set of ranks
found() {
	"$BIN/replay" -q --no-worth -O json "$TMP/graph" | tr -d '\n' | grep -o '"an unrecorded rendezvous[^"]*"' |
		sed 's/, [0-9.]* [a-z]*s a step (inferred)//' >"$TMP/found"
	cat "$TMP/found"
}
none() {
	[ -z "$(found)" ]
}
# steps N OPTION...: column N of the table of steps
steps() {
	n=$1
	shift
	"$BIN/replay" -q -O csv --table=steps "$@" "$TMP/graph" | awk -F , -v n="$n" 'NR > 1 { print $n }'
}

for seed in 11 222 3333; do
	for table in "" 1; do
		place="between aten::addmm and aten::mm"
		[ "$table" ] && place="between forward-compute and backward-compute"
		of="seed $seed${table:+, a table}"
		job -v seed=$seed -v steps=5 -v table=$table
		found >/dev/null
		check "two of four ranks wait for one another ($of)" sh -c \
			"[ \"\$(cat '$TMP/found')\" = '\"an unrecorded rendezvous of ranks 1, 3 $place\"' ]"
		check "... the replay is exact" sh -c "'$BIN/replay' --no-worth '$TMP/graph' | head -1 | grep -q '(+0.00 %), 4 ranks'"
		job -v seed=$seed -v steps=5 -v n=8 -v members=0,2,3,7 -v table=$table
		found >/dev/null
		check "four of eight ranks ($of)" grep -q 'ranks 0, 2, 3, 7 between' "$TMP/found"
		for wait in timer remote noise chance none; do
			job -v seed=$seed -v steps=5 -v wait=$wait -v table=$table
			check "$wait: no rendezvous ($of)" none
		done
	done
	job -v seed=$seed -v steps=5 -v skew=2500000
	check "clocks that differ (seed $seed)" grep -q 'ranks 1, 3 between' "$(found >/dev/null && echo "$TMP/found")"
	for change in "1 1.5" "3 0.5" "0 2"; do
		who=${change% *} by=${change#* }
		job -v seed=$seed -v steps=8
		steps 6 --what-if "scale rank=$who,kind=host_op by $by" >"$TMP/predicted"
		job -v seed=$seed -v steps=8 -v who="$who" -v by="$by"
		steps 4 >"$TMP/true"
		check "rank $who takes $by times as long: each step within 1 % (seed $seed)" alike 0.01 "$TMP/predicted" "$TMP/true"
	done
done

job -v steps=8
"$BIN/replay" -q --no-worth "$TMP/graph" >"$TMP/out"
holds "$TMP/out" '^waits: an unrecorded rendezvous of ranks 1, 3 between' "the report shows it"
holds "$TMP/out" '^trust: .*a rendezvous that was inferred' "the trust line counts it"
"$BIN/graph" -q -O text "$TMP/graph" >"$TMP/text"
holds "$TMP/text" 'rendezvous.*inferred.*unrecorded rendezvous' "the graph marks it as inferred"
"$BIN/graph" -q --no-infer "$TMP/job"/* -o "$TMP/graph"
check "--no-infer leaves it out" none

job -v wait=remote -v steps=8
"$BIN/replay" -q --no-worth "$TMP/graph" >"$TMP/out"
holds "$TMP/out" '^waits: ranks 1, 3 wait .* for something outside of the recording' "a service that nobody recorded is named as such"
job -v wait=remote -v steps=8 -v members=2
"$BIN/replay" -q --no-worth "$TMP/graph" >"$TMP/out"
holds "$TMP/out" '^waits: rank 2 records nothing for' "so is the wait of one rank"

done_testing
