# graph -f layers: a step that nobody has run, from a table of its layers.
# shellcheck disable=SC2016  # awk programs are quoted so
. "$SRC/tests/cli/tap.sh"

cat >"$TMP/net.csv" <<'END'
# two layers with parameters, one without
layer,forward_us,backward_us,param_bytes,activation_bytes,update_ns
conv,100,200,1200000,4096,1000
relu,10,10,0,4096,
fc,300,600,2400000,512,2000
END
g=$TMP/net.graph

# 6 messages of 300,000 and 600,000 bytes for 4 ranks, at 1,000,000,000 bytes/s: 1.8 ms and 3.6 ms;
# fc's begins at 410 + 600 us, conv's behind it; 3 us of updates
status 0 "a graph of a table" "$BIN/graph" -f layers --ranks 4 --bandwidth 1000000000 --latency 0s -o "$g" "$TMP/net.csv"
status 0 "its replay" "$BIN/replay" "$g"
check "the replay is the simulation: 6.413 ms, nothing unexplained" sh -c "head -1 '$TMP/out' | grep -q 'step 6.413 ms, replayed 6.413 ms (+0.00 %), 4 ranks, 0.0 % unexplained'"
status 0 "stat" "$BIN/graph" -O stat "$g"
check "stat: two collectives of four ranks" grep -q '^allreduce  *8 ' "$TMP/out"
check "stat: tensors" grep -q '^tensors  *28 in shapes, 0 estimated' "$TMP/out"
check "stat: gradients by role" grep -q '^gradient  *8 ' "$TMP/out"
status 0 "a table is known by its header" "$BIN/graph" --ranks 4 -O stat "$TMP/net.csv"
"$BIN/graph" -O text "$g" >"$TMP/text"
"$BIN/graph" --ranks 4 --bandwidth 1000000000 --latency 0s -O text - <"$TMP/net.csv" >"$TMP/text2"
check "... and read from a pipe it is the same" sh -c "grep -v ^provenance '$TMP/text' | diff - '$TMP/text2'"
status 0 "latency counts once a message" "$BIN/graph" --ranks 4 --bandwidth 1000000000 --latency 1us -o "$TMP/late" "$TMP/net.csv"
"$BIN/replay" "$TMP/late" >"$TMP/out"
check "... 12 us" sh -c "head -1 '$TMP/out' | grep -q 'step 6.425 ms'"
status 0 "the program by its name" "$BIN/graph" --program data-parallel --no-provenance -o "$TMP/named" "$TMP/net.csv"
"$BIN/graph" --no-provenance -o "$TMP/usual" "$TMP/net.csv"
check "... is the one without a name" cmp "$TMP/named" "$TMP/usual"

# 4 microbatches through 2 stages, with nothing to wait for but computation: 5 forward and 5 backward
# passes of the slower stage, less what the faster one saves once
cat >"$TMP/pipe.csv" <<'END'
layer,forward_us,backward_us,param_bytes,activation_bytes,output_bytes
a,100,200,1000,4096,0
b,100,200,1000,4096,0
END
status 0 "a pipeline" "$BIN/graph" --program 'pipeline schedule=1f1b stages=2 microbatches=4' --latency 0s -o "$TMP/pipe" "$TMP/pipe.csv"
status 0 "its replay" "$BIN/replay" "$TMP/pipe"
check "... (4 + 2 - 1) passes of 300 us" sh -c "head -1 '$TMP/out' | grep -q 'step 1.500 ms, replayed 1.500 ms (+0.00 %), 2 ranks, 0.0 % unexplained'"
check "... the rest is waiting" grep -qE '^ *0 +80.0 .* 20.0 ' "$TMP/out"
"$BIN/graph" --program 'pipeline schedule=1f1b stages=2 microbatches=4' --latency 10us -o "$TMP/pipe" "$TMP/pipe.csv"
"$BIN/replay" "$TMP/pipe" >"$TMP/out"
check "... messages of 10 us, there and back" sh -c "head -1 '$TMP/out' | grep -q 'step 1.5[2-9]. ms'"
"$BIN/graph" --program 'pipeline schedule=1f1b stages=2 microbatches=4' --ranks 4 --topology 2x2 -O json "$TMP/pipe.csv" >"$TMP/out"
check "... on four ranks: gradients are reduced over two" grep -q 'dp of stage 1' "$TMP/out"
status 2 "more stages than layers" "$BIN/graph" --program 'pipeline schedule=1f1b stages=3 microbatches=4' "$TMP/pipe.csv"
says 'need as many layers' "... says so"
status 2 "ranks that make no pipelines" "$BIN/graph" --program 'pipeline schedule=1f1b stages=2 microbatches=4' --ranks 3 "$TMP/pipe.csv"

# ---- the slowest ranks --------------------------------------------------------------------------
# slowest NAME TIMES STAGES SCHEDULE WANT: TIMES are what the layers, one of each stage, take for one microbatch of 8
slowest() {
	for us in $2; do
		echo "l$us-$((n = n + 1)),$us,$((2 * us)),1000,4096,4096"
	done | sed '1i layer,forward_us,backward_us,param_bytes,activation_bytes,output_bytes' >"$TMP/stages.csv"
	"$BIN/graph" -q --program "pipeline schedule=$4 stages=$3 microbatches=8" -o "$TMP/stages" "$TMP/stages.csv"
	"$BIN/replay" -O csv --table=slowest "$TMP/stages" >"$TMP/out"
	check "slowest ranks: $1, $4" test "$(sed 1d "$TMP/out" | cut -d , -f 1 | tr '\n' ' ')" = "$5"
}
for s in gpipe 1f1b; do
	slowest "none of four equal stages" "1000 1000 1000 1000" 4 $s ""
	slowest "the first stage" "1300 1000 1000 1000" 4 $s "0 "
	holds "$TMP/out" 'it computes 31.20 ms, 7.200 ms more than the median, most in backward l1300' "... with the reason"
	slowest "the last stage" "1000 1000 1000 1300" 4 $s "3 "
	slowest "one of two" "1000 1300" 2 $s "1 "
	holds "$TMP/out" 'it computes 31.20 ms, 7.200 ms more than the other, ' "... compared with the other"
done

# ---- microbatches of a step are the work that they are ------------------------------------------
for k in 4 16; do
	status 0 "accumulate $k" "$BIN/replay" -O csv --table=ranks --what-if "accumulate $k" "$TMP/net.graph"
	"$BIN/replay" -O csv --table=ranks "$TMP/net.graph" >"$TMP/whole"
	check "... computes as long, and launches nothing" awk -F , 'FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
		{ n = $at["compute_ns"] + $at["comm_overlapped_ns"] }
		NR == FNR { whole[$1] = n; next }
		n < 0.99 * whole[$1] || n > 1.01 * whole[$1] || $at["launch_ns"] > 0 { bad = 1 }
		END { exit bad || FNR != 5 }' "$TMP/whole" "$TMP/out"
done
# 3/4 of 410 us forward and 810 us backward
status 0 "its path" "$BIN/replay" -O csv --table=path --what-if "accumulate 4" "$TMP/net.graph"
check "... begins with three of four microbatches" grep -q '^[0-9.]*,915000,1,915000,kernel,[0-9]*,earlier microbatches$' "$TMP/out"
check "... and has no latency" no grep -q latency "$TMP/out"
status 0 "twice accumulated" "$BIN/replay" -O csv --table=path --what-if "accumulate 2" --what-if "accumulate 2" "$TMP/net.graph"
check "... is the same" grep -q '^[0-9.]*,915000,1,915000,kernel,[0-9]*,earlier microbatches$' "$TMP/out"
printf 'paceline-plan 1\naccumulate 4\n' >"$TMP/plan"
half="scale kind=kernel by 0.5"
"$BIN/replay" -O csv --table=steps -p "$TMP/plan" --what-if "$half" "$TMP/net.graph" >"$TMP/x"
"$BIN/replay" -O csv --table=steps --what-if "$half" --what-if "accumulate 4" "$TMP/net.graph" >"$TMP/y"
check "what is faster is so in all microbatches" cmp "$TMP/x" "$TMP/y"
for line in "batch by 4:3660000" "scale phase=backward by 2:1522500" "scale name=forward* by 3:1530000"; do
	change=${line%:*}
	status 0 "accumulate and $change" "$BIN/replay" -O csv --table=path --what-if "accumulate 4" --what-if "$change" "$TMP/net.graph"
	check "... is in all microbatches" grep -q "^[0-9.]*,${line#*:},1,${line#*:},kernel,[0-9]*,earlier microbatches$" "$TMP/out"
	mv "$TMP/out" "$TMP/x"
	"$BIN/replay" -q -O csv --table=path -p "$TMP/plan" --what-if "$change" "$TMP/net.graph" >"$TMP/y"
	check "... also if the plan accumulates" cmp "$TMP/x" "$TMP/y"
done
status 2 "a larger batch behind microbatches, message by message" "$BIN/replay" --expand=ring -p "$TMP/plan" --what-if "batch by 4" "$TMP/net.graph"
says "put the line into the plan" "... says what to do"

# ---- what is refused ----------------------------------------------------------------------------
status 2 "two inputs" "$BIN/graph" "$TMP/net.csv" "$TMP/net.csv"
status 2 "no ranks" "$BIN/graph" --ranks 0 "$TMP/net.csv"
says '--ranks' "... says so"
status 2 "a program that is not there" "$BIN/graph" --program data-paralel "$TMP/net.csv"
says 'did you mean data-parallel?' "... names the nearest"
status 2 "an empty program" "$BIN/graph" --program '' "$TMP/net.csv"
status 2 "no bandwidth" "$BIN/graph" --bandwidth 0 "$TMP/net.csv"
for option in --ranks=4 --program=data-parallel --topology=1x4 --algorithm=ring --bandwidth=12G --latency=5us; do
	status 2 "$option with a graph" "$BIN/graph" -O stat $option "$g"
	says "net.graph: no table of layers and no job; .*${option%=*}.* are for these" "... says why"
done
status 2 "more ranks than the topology has" "$BIN/graph" --topology 1x4 --ranks 8 "$TMP/net.csv"
says '--topology: 4 ranks for a job of 8; name hosts for all of them' "... says so"
status 2 "a topology and other links" "$BIN/graph" --topology 1x4 --bandwidth 12GB/s "$TMP/net.csv"
says '--topology has the bandwidth and latency of its links' "... says so"
status 2 "a latency without a unit" "$BIN/graph" --latency 5 "$TMP/net.csv"
says '^graph: --latency: "5" is not a time with its unit (write 5us or 5ms)' "... says so"
status 2 "no rate" "$BIN/graph" --bandwidth 12QB/s "$TMP/net.csv"
says '--bandwidth: "12QB/s" is no rate (like 12GB/s)' "... says what one is"
for rate in 1000000000 1GB/s 8Gbit/s; do
	"$BIN/graph" --no-provenance --ranks 4 --bandwidth $rate --latency 0 -o "$TMP/rate${rate%/s}" "$TMP/net.csv"
done
check "rates in bytes" cmp "$TMP/rate1000000000" "$TMP/rate1GB"
check "... and in bits" cmp "$TMP/rate1000000000" "$TMP/rate8Gbit"
status 3 "a topology of fewer ranks than the graph has" "$BIN/replay" --topology 1x2 --what-if 'bandwidth by 2' "$g"
says '--topology: 2 ranks for a job of 4; name hosts for all of them' "... says so"
status 2 "--salvage" "$BIN/graph" -f layers --salvage "$TMP/net.csv"
status 3 "-f trace" "$BIN/graph" -f trace "$TMP/net.csv"
status 3 "-f layers of a graph" "$BIN/graph" -f layers "$g"
printf 'layer,forward_ns,backward_ns,param_bytes,activation_bytes\na,1,2,3,4\nb,1,2,3\n' >"$TMP/short.csv"
status 3 "a short row" "$BIN/graph" "$TMP/short.csv"
says 'short.csv: line 3: column 5 (activation_bytes): nothing' "... says where and what"
check "... and leaves no output" sh -c "'$BIN/graph' -o '$TMP/none' '$TMP/short.csv' 2>/dev/null; test ! -e '$TMP/none'"

# ---- memory -------------------------------------------------------------------------------------
check "any call may fail" "$SRC/tests/fault/torture" -n 100 "$BIN/graph" -f layers --ranks 4 "$TMP/net.csv"
check "... of a pipeline" "$SRC/tests/fault/torture" -n 100 "$BIN/graph" --program 'pipeline schedule=gpipe stages=2 microbatches=3' --ranks 4 "$TMP/net.csv"

# ---- the samples --------------------------------------------------------------------------------
for t in "$SRC"/samples/layers/*.csv; do
	[ -e "$t" ] || continue
	name=$(basename "$t" .csv)
	status 0 "$name" "$BIN/graph" -o "$TMP/$name.graph" "$t"
	check "$name: no warning" test ! -s "$TMP/err"
	"$BIN/replay" "$TMP/$name.graph" >"$TMP/out"
	check "$name: replays exactly" sh -c "head -1 '$TMP/out' | grep -q '(+0.00 %), 8 ranks, 0.0 % unexplained'"
done
if command -v python3 >/dev/null; then
	mkdir -p "$TMP/made"
	check "the samples are what their script makes" sh -c \
		"'$SRC/samples/make-layer-tables' '$TMP/made' && diff -r '$SRC/samples/layers' '$TMP/made'"
else
	skip "the samples are what their script makes" "no python3"
fi
done_testing
