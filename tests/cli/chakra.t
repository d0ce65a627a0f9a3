# Execution traces of Chakra: written by graph -O chakra, read by the code that protoc makes of the
# published schema, and by graph itself.
. "$SRC/tests/cli/tap.sh"

if [ ! -x "$GEN/kgen" ]; then
	skip "execution traces" "kgen is not built"
	done_testing
fi

# counts FILE...: the numbers of nodes and edges
counts() {
	"$BIN/graph" -O stat "$@" | sed -n 's/^nodes  *\([0-9]*\).*/\1/p; s/^edges  *\([0-9]*\).*/\1/p'
}

python=${PYTHON:-python3}
mkdir "$TMP/pb"
if ! "$python" -c 'import google.protobuf' 2>/dev/null; then
	reader=
elif protoc -I "$SRC/tests/cli" --python_out="$TMP/pb" et_def.proto 2>/dev/null ||
	"$python" -m grpc_tools.protoc -I "$SRC/tests/cli" --python_out="$TMP/pb" et_def.proto 2>/dev/null; then
	reader=1
fi

# as_written NAME OPTION...: a job of kgen, read by protoc's reader
as_written() {
	name=$1
	shift
	"$GEN/kgen" -o "$TMP/$name" --seed=1 --record-groups "$@" >/dev/null
	"$BIN/graph" -q -o "$TMP/$name.graph" "$TMP/$name"/rank*.json* || return 1
	check "$name: one file for each rank" "$BIN/graph" -q -O chakra -o "$TMP/$name" "$TMP/$name.graph"
	"$BIN/graph" -O text "$TMP/$name.graph" >"$TMP/$name.txt"
	if [ "$reader" ]; then
		check "$name: protoc's reader finds the same nodes and dependencies" \
			"$python" "$SRC/tests/cli/chakra_check.py" "$TMP/pb" "$TMP/$name" "$TMP/$name.txt"
	else
		skip "$name: protoc's reader" "no protoc or no protobuf for Python"
	fi
	check "$name: graph reads them" "$BIN/graph" -o "$TMP/$name.again" "$TMP/$name".[0-9].et
	check "$name: and replay" sh -c "'$BIN/replay' '$TMP/$name'.[0-9].et | grep -q '^step'"
}

as_written data --ranks=2 --layers=2 --steps=2
as_written pipe --ranks=4 --tp=1 --pp=2 --layers=2 --microbatches=2 --steps=2

# what was written and read has the nodes and edges of what was read first
"$BIN/graph" -q -O chakra -o "$TMP/again" "$TMP/data.again"
counts "$TMP/data.again" >"$TMP/first"
counts "$TMP"/again.?.et >"$TMP/second"
check "written again, nothing changes" same "$TMP/first" "$TMP/second"

status 2 "several ranks need a name" "$BIN/graph" -O chakra "$TMP/data.graph"
says "type: graph -O chakra -o PREFIX" "... which the message says"
check "one rank goes to standard output" \
	sh -c "'$BIN/graph' -q -O chakra --rank=1 '$TMP/data.graph' | '$BIN/graph' -q -O stat | grep -q '^ranks  *1'"

# two nodes that wait for each other, and one that waits for itself
printf '\000\013\010\001\022\001a\030\004\050\002\070\005\013\010\002\022\001b\030\004\050\001\070\007\013\010\003\022\001c\030\004\050\003\070\001' \
	>"$TMP/cycle.0.et"
status 0 "cycles are cut" "$BIN/graph" -O stat "$TMP/cycle.0.et"
says "2 dependencies are left out" "... and counted"
check "the time is that of the nodes in a row" \
	sh -c "'$BIN/replay' -q '$TMP/cycle.0.et' | grep -q '^step 13.00 us'"
head -c 20 "$TMP/cycle.0.et" >"$TMP/cut.0.et"
status 3 "a file that is cut" "$BIN/graph" -O stat "$TMP/cut.0.et"
says "a message that is cut off" "... is named with its place"
cp "$TMP/cycle.0.et" "$TMP/other.0.et"
status 3 "two files of one rank" "$BIN/graph" -O stat "$TMP/cycle.0.et" "$TMP/other.0.et"
status 2 "a graph among them" "$BIN/graph" -O stat "$TMP/cycle.0.et" "$TMP/data.graph"
status 3 "trace does not read them" "$BIN/trace" -O stat "$TMP/cycle.0.et"
says "type: graph " "... and says what does"
done_testing
