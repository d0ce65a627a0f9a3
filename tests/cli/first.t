# First contact: files of a profiler go straight to replay, plan and graph, with the bytes and the messages of the pipe
# trace | merge | graph; and what --help shows first.
# runner: threads
. "$SRC/tests/cli/tap.sh"
. "$SRC/tests/cli/tiny.sh"
cd "$TMP" || exit 1
LC_ALL=C
export LC_ALL

# pipe GRAPH FILE...: the three stages one by one; what they said is in GRAPH.said
pipe() {
	g=$1
	shift
	"$BIN/trace" "$@" 2>said.trace | "$BIN/merge" 2>said.merge | "$BIN/graph" --no-provenance -o "$g" 2>said.graph
	cat said.trace said.merge said.graph >"$g.said"
}

# same NAME GRAPH FILE...: replay of the files is that of the graph, in all formats
same() {
	name=$1
	g=$2
	shift 2
	# a sanitizer gets all formats of one job; that of threads, which has nothing to find with one thread, one format
	formats='text json csv tsv jsonl html svg'
	[ "$name" = sample ] || ! sanitized any || formats='text html'
	! sanitized thread || formats=text
	for to in $formats; do
		"$BIN/replay" -O "$to" "$g" >want 2>said.replay
		"$BIN/replay" -O "$to" "$@" >got 2>said.got
		case $to in # pictures have the name of their input as title: the file, or the folder of several
		html | svg)
			title=${1%/*}
			[ $# -gt 1 ] || title=$1
			sed -i "s|${g##*/}|INPUT|" want && sed -i "s|\\(<[^>]*>\\)${title##*/}|\\1INPUT|" got
			;;
		esac
		check "$name: replay -O $to" cmp want got
		cat "$g.said" said.replay >said.want
		check "$name: ... with the same messages" diff said.want said.got
	done
	"$BIN/replay" --no-worth --fold=mean --what-if 'scale kind=comm by 0.5' --timeline want.timeline --no-provenance "$g" >want 2>/dev/null
	"$BIN/replay" --no-worth --fold=mean --what-if 'scale kind=comm by 0.5' --timeline got.timeline --no-provenance -@ 4 "$@" >got 2>/dev/null
	check "$name: replay of a change, with four threads" cmp want got
	check "$name: ... and its timeline" cmp want.timeline got.timeline
	"$BIN/graph" -q --no-provenance -@ 2 -o got.graph "$@"
	check "$name: graph" cmp "$g" got.graph
}

# ---- the bytes of the pipe ----------------------------------------------------------------------

set -- "$SRC"/samples/ddp-gloo/*.json.gz
pipe sample.graph "$@"
same sample sample.graph "$@"
"$BIN/replay" sample.graph >want
"$BIN/replay" "$SRC/samples/ddp-gloo" >got
check "replay of a folder" cmp want got
"$BIN/replay" -q - <"$SRC/samples/ddp-gloo/rank0.json.gz" >got
"$BIN/replay" -q "$SRC/samples/ddp-gloo/rank0.json.gz" >want
check "replay of a profiler's file as standard input" cmp want got
"$BIN/plan" -q -O text --no-provenance --evaluations=20 sample.graph | grep -v '^base' >want
"$BIN/plan" -q -O text --no-provenance --evaluations=20 "$@" | grep -v '^base' >got
check "plan" cmp want got
check "... finds something to write" test -s got

check "the streams of a tiny job" tiny_streams .
pipe tiny.graph rank0.json rank1.json
same tiny tiny.graph rank0.json rank1.json
"$BIN/replay" tiny.graph >want
for files in job.trace job.merged 'one.trace two.trace' 'one.trace rank1.json'; do
	[ -e one.trace ] || { "$BIN/trace" -o one.trace rank0.json && "$BIN/trace" -o two.trace rank1.json; }
	# shellcheck disable=SC2086  # several names
	"$BIN/replay" $files >got
	check "replay $files" cmp want got
done
"$BIN/replay" <job.trace >got
check "replay of a trace as standard input" cmp want got
"$BIN/replay" <job.merged >got
check "replay of a merged trace as standard input" cmp want got
"$BIN/replay" --stragglers rank0.json rank1.json >got
"$BIN/replay" --stragglers tiny.graph >want
check "replay --stragglers" cmp want got
"$BIN/replay" tiny.graph tiny.graph >want
check "two graphs are compared, also one with itself" grep -q . want
mkdir before after other empty
cp rank0.json rank1.json before && for r in 0 1; do
	sed 's/"name":"adam"\(.*\)"dur":60/"name":"adam"\1"dur":100/' "rank$r.json" >"after/rank$r.json"
done
sed 's/"name":"adam"/"name":"other"/' rank0.json >other/rank0.json
pipe after.graph after/rank0.json after/rank1.json
"$BIN/trace" -q after | "$BIN/merge" -q >after.merged
"$BIN/replay" tiny.graph after.graph | sed 's/tiny.graph/before/; s/after.graph/after/' >want
status 0 "two folders are two jobs" "$BIN/replay" before after
check "... compared as their graphs are" cmp "$TMP/out" want
check "... and named" grep -q '^B is after: 2 steps, 2 ranks, ' "$TMP/out"
status 0 "two merged traces are two jobs" "$BIN/replay" job.merged after.merged
check "... and named" grep -q '^B is after.merged: 2 steps, 2 ranks, ' "$TMP/out"
status 0 "the files of two folders are one job" "$BIN/replay" before/rank0.json after/rank1.json
check "... of two ranks" grep -q '^step .* 2 ranks' "$TMP/out"
status 3 "a folder without a trace as the second job" "$BIN/replay" before empty
says '^replay: empty: no file in this folder is a trace' "... is named"
status 2 "a table of two folders" "$BIN/replay" --table=steps before after
status 0 "a change in two jobs that only one of them can have" "$BIN/replay" --what-if 'scale name=other by 0.5' before other
says 'warning: the change "scale name=other by 0.5" selects no operation$' "... is warned of"

if [ -x "$GEN/kgen" ]; then
	"$GEN/kgen" -o four --ranks=4 --layers=3 --steps=2 --record-groups --seed=1 >log
	pipe four.graph four/rank?.json
	same "four ranks" four.graph four/rank?.json
	"$GEN/kgen" -o pipe2 --ranks=4 --tp=1 --pp=2 --layers=2 --microbatches=2 --steps=2 --seed=1 >log
	pipe pipe.graph pipe2/rank?.json
	same "a pipeline, groups inferred" pipe.graph pipe2/rank?.json
	# one rank only: all that the stages warn of
	pipe alone.graph four/rank1.json
	same "one rank of four" alone.graph four/rank1.json
	check "... of which merge warns by its name" grep -q '^merge: warning: ' said.got
	# more than a spool holds in memory
	"$GEN/kgen" -o big --ranks=2 --layers=40 --steps=8 --record-groups --seed=1 >log
	pipe big.graph big/rank?.json
	"$BIN/replay" --no-worth big.graph >want
	mkdir scratch
	TMPDIR=$TMP/scratch "$BIN/replay" --no-worth big/rank?.json >got
	check "a recording that needs a temporary file" cmp want got
	check "... which is not left behind" test -z "$(ls scratch)"
	check "... and was needed" test "$("$BIN/trace" -u big/rank?.json | wc -c)" -gt 2097152
	status 4 "a folder for it that is not there" env TMPDIR="$TMP/nowhere" "$BIN/replay" big/rank0.json big/rank1.json
	says "^replay: trace: .*$TMP/nowhere/paceline-[^ ]*: a temporary file: No such file" "... is named, with the stage"
else
	skip "generated jobs" "no kgen"
fi

# ---- faults -------------------------------------------------------------------------------------

gzip -c rank1.json >rank1.json.gz
head -c $(($(wc -c <rank1.json.gz) / 2)) rank1.json.gz >cut1.json.gz
pipe cut.graph rank0.json cut1.json.gz
same "a cut gzip" cut.graph rank0.json cut1.json.gz
check "... is warned of by the stage" grep -q '^trace: warning: cut1.json.gz.*what could be read is kept' said.got
status 4 "a file that is missing among several" "$BIN/replay" -o x rank0.json rank9.json rank1.json
says '^replay: rank9.json: cannot open: .*; did you mean rank[01].json?$' "... is named"
mkdir unreadable.json
status 3 "an empty folder among several" "$BIN/replay" -o x rank0.json unreadable.json
says '^replay: unreadable.json: no file in this folder is a trace; name the folder that the profiler' "... is named, with what to do"
: >empty.json
pipe empty.graph rank0.json rank1.json empty.json
"$BIN/graph" --no-provenance -o others.graph rank0.json rank1.json
check "an empty file among several is left out" cmp -s empty.graph others.graph
check "... and named, with the stage" grep -q '^trace: warning: empty.json: the file is empty.*left out$' empty.graph.said
same "an empty file among several" empty.graph rank0.json rank1.json empty.json
mkdir killed && cp rank0.json rank1.json empty.json killed/
gzip -c empty.json >killed/rank3.json.gz
status 0 "a folder with empty files, plain and compressed" "$BIN/replay" killed
says '^trace: warning: killed/rank3.json.gz: the file is empty' "... names the compressed one too"
rm killed/rank[01].json
status 3 "a folder with nothing but empty files" "$BIN/replay" -o x killed
says '^replay: trace: killed/empty.json: all 2 files are empty; nothing to import$' "... is refused"
status 3 "an empty file alone" "$BIN/replay" -o x empty.json
says '^replay: trace: empty.json: byte 0: the file is empty; nothing to import$' "... is refused"
status 3 "an empty file among several, strictly" "$BIN/trace" --strict -o x rank0.json empty.json
says '^trace: empty.json: byte 0: the file is empty' "... is refused"
"$BIN/trace" -q -o one.trace rank0.json
status 0 "merge of an empty file and another" "$BIN/merge" -o /dev/null one.trace empty.json
says '^merge: warning: empty.json: the file is empty' "... warns"
status 3 "merge of empty files" "$BIN/merge" -o /dev/null empty.json empty.json
says '^merge: empty.json: not a paceline trace: it is empty$' "... refuses them"
head -c $(($(wc -c <two.trace) - 60)) two.trace >cut.trace
status 3 "a cut trace among several" "$BIN/replay" -o x rank0.json cut.trace
says '^replay: trace: cut.trace: .*truncated' "... is named, with the stage"
check "no failure left a report" test ! -e x
status 0 "a file that is given twice" "$BIN/replay" rank0.json rank1.json ./rank0.json
says '^replay: warning: ./rank0.json is given twice: it is read once$' "... is read once"
status 3 "an execution trace alone" "$BIN/replay" "$SRC/samples/ddp-gloo/et_rank0.json.gz"
says "only execution traces; name the profiler's files too" "... says what is missing"
sanitized thread || check "replay of profiler files: any call may fail" "$SRC/tests/fault/torture" -n 60 "$BIN/replay" rank0.json rank1.json
check "... with four threads" "$SRC/tests/fault/torture" -n 10 "$BIN/replay" -@ 4 rank0.json rank1.json

# ---- help ---------------------------------------------------------------------------------------

mkdir help && cd help || exit 1
for r in 0 1; do gzip -c "../rank$r.json" >"h_$r.pt.trace.json.gz"; done
cp ../job.graph . && cp job.graph before.graph && cp job.graph after.graph && cp ../one.trace rank0.trace && cp ../two.trace rank1.trace
printf 'model mlp:4-8-2\ndata synthetic:samples=100,dims=4,classes=2\nsteps 2\n' >my.job
"$BIN/plan" -q -o job.plan job.graph
# shellcheck disable=SC2016  # of the script
printf '#!/bin/sh\ncp ../rank[01].json "$PACELINE_RECORD_DIR"\n' >torchrun
chmod +x torchrun
for p in trace merge graph replay plan run; do
	"$BIN/$p" --help >"$p.help"
	# shellcheck disable=SC2016  # fields of awk
	check "$p --help: the options used most are first, on one screen" \
		awk 'empty && /^[a-z].*:$/ { if (!n++) good = $0 == "used most:"; else if (n == 2) good = good && NR <= 25 }
			{ empty = !NF } END { exit !good || n < 3 }' "$p.help"
	check "$p --help: no line is too long" test 0 = "$(awk 'length($0) > 80' "$p.help" | wc -l)"
	sed -n '/^examples:/,$s/^  //p' "$p.help" >"$p.examples"
	check "$p --help: ends with examples" test "$(wc -l <"$p.examples")" -ge 2
	while read -r line; do
		status 0 "$p --help: $line" sh -c "PATH='$BIN:$PWD:$PATH'; $line >printed"
	done <"$p.examples"
done

# ---- the front ----------------------------------------------------------------------------------

if [ -x "$BIN/paceline" ]; then
	"$BIN/replay" job.graph >want
	"$BIN/paceline" replay job.graph >got
	check "bin/paceline runs the programs beside it" cmp want got
	ln -s "$BIN/paceline" front
	./front replay job.graph >got
	check "... also through a link" cmp want got
	mkdir with-plugin
	cp "$BIN/paceline" with-plugin/
	for p in graph merge plan predict replay run trace; do ln -s "$BIN/$p" with-plugin/; done
	printf 'no program' >with-plugin/paceline-cuda.so
	chmod +x with-plugin/paceline-cuda.so
	check "... also with a plug-in beside them" test "$(with-plugin/paceline --list | wc -l)" = 7
	check "... and lists them, without itself" test "$("$BIN/paceline" --list | awk '{ printf "%s ", $1 }')" = "graph merge plan predict replay run trace "
fi
done_testing
