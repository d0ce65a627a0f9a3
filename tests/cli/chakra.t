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
check "operations are counted in the type in which Chakra's feeder reads them" grep -aq num_opsH "$TMP/data.0.et"
as_written pipe --ranks=4 --tp=1 --pp=2 --layers=2 --microbatches=2 --steps=2

# ranks 0 and 1 of four: all of one group, and half of two other groups of that size
"$GEN/kgen" -o "$TMP/groups" --seed=1 --record-groups --ranks=4 --tp=2 --layers=2 --steps=1 >/dev/null
# named FILE: how many attributes pg_name
named() {
	LC_ALL=C tr -c '[:alnum:]_' '\n' <"$1" | grep -c '^pg_name$'
}
status 0 "all ranks of four groups" "$BIN/graph" -O chakra -o "$TMP/four" "$TMP"/groups/rank?.json
check "... no warning" no grep -q "groups have ranks" "$TMP/err"
status 0 "two ranks of the four" "$BIN/graph" -O chakra -o "$TMP/half" "$TMP"/groups/rank[01].json
says "2 of 3 groups have ranks that are not written" "... a warning"
check "... only their own group is all ranks" test "$(named "$TMP/half.0.et")" -gt 1 \
	-a "$(named "$TMP/half.0.et")" -lt "$(named "$TMP/four.0.et")"
check "... the others keep their members" grep -aq '"ranks": \[0, 2\]}, {"pg_name": "[0-9]*", "ranks": \[1, 3\]}\]' "$TMP/half.0.et"

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

# host NAME NODE...: an execution trace NAME.0.et of operators of the host, each
# ID:NAME:START:DURATION:THREAD:CTRL_DEP:DATA_DEP
host() {
	python3 - "$TMP/$1.0.et" "$@" <<-'END'
		import sys
		def varint(v):
		    return bytes([v]) if v < 128 else bytes([v & 127 | 128]) + varint(v >> 7)
		def number(field, v):
		    return varint(field << 3) + varint(v)
		def text(field, v):
		    v = v.encode() if isinstance(v, str) else v
		    return varint(field << 3 | 2) + varint(len(v)) + v
		def message(v):
		    return varint(len(v)) + v
		out = message(b"")
		for node in sys.argv[3:]:
		    n, name, start, length, thread, ctrl, data = node.split(":")
		    m = number(1, int(n)) + text(2, name) + number(3, 4)
		    m += text(4, varint(int(ctrl))) if ctrl else b""
		    m += text(5, varint(int(data))) if data else b""
		    m += number(6, int(start)) + number(7, int(length))
		    m += text(10, text(1, "is_cpu_op") + number(27, 1))
		    m += text(10, text(1, "tid") + number(9, int(thread)))
		    out += message(m)
		open(sys.argv[1], "wb").write(out)
	END
}

# lasts NAME TIME WHAT: the step of NAME.0.et takes that time
lasts() {
	"$BIN/replay" -q "$TMP/$1.0.et" >"$TMP/out"
	check "$3" grep -q "^step $2" "$TMP/out"
}

if command -v python3 >/dev/null; then
	host both 1:a:0:100:1:: 2:x:100:50:2:1:1
	lasts both 150.0 "both kinds of dependency on one node: for its end"
	host inside 1:p:0:100:1:: 2:c:10:10:1:1: 3:q:100:50:1::
	lasts inside 150.0 "what comes behind an operator waits for it, not only for what is inside"
	host deep 1:p:0:100:1:: 2:c:10:90:1:1: 3:d:20:30:1:2: 4:e:60:80:1:1: 5:q:150:50:1::
	lasts deep 220.0 "... and for what is inside, one after the other"
	host apart 1:p:0:100:1:: 2:c:10:10:2:1: 3:q:100:50:2::
	lasts apart 100.0 "an operator around a node on another thread holds nothing up there"
else
	skip "operators inside others" "no python3"
fi
done_testing
