# The archive for Perfetto: its members are what -O perfetto writes, its manifest names all of them.
. "$SRC/tests/cli/tap.sh"

# host RANK HOST TS PID
host() {
	printf '{"schemaVersion":1,"distributedInfo":{"rank":%s},"host_name":"%s","traceEvents":[
{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":%s,"tid":%s,"ts":%s,"dur":5},
{"ph":"X","cat":"cpu_op","name":"aten::add","pid":%s,"tid":%s,"ts":20,"dur":5}]}' "$1" "$2" "$4" "$4" "$3" "$4" "$4"
}
host 0 alpha 10 1 >"$TMP/rank0.json"
host 1 beta 11 1 >"$TMP/rank1.json"
host 2 alpha 12 3 >"$TMP/rank2.json"
cd "$TMP" || exit 1

check "an archive is written" "$BIN/trace" -O perfetto-tar -o job.tar rank0.json rank1.json rank2.json
tar tf job.tar >list
printf '00000.pftrace\n00001.pftrace\n00002.pftrace\nperfetto_manifest.json\n' >want
check "a member for each file, and the manifest" same list want
for r in 0 1 2; do
	"$BIN/trace" -O perfetto -o one rank$r.json
	tar xOf job.tar "0000$r.pftrace" >member
	check "member $r is the trace of its file" same member one
done
tar xOf job.tar perfetto_manifest.json >manifest
check "the manifest begins as Perfetto recognises it" grep -q '^{"perfetto_manifest":{"version":1,' manifest
holds manifest '"path":"00000.pftrace","machine":{"name":"alpha"}}' "a member with its machine"
holds manifest '"path":"00001.pftrace","machine":{"name":"beta"},"clocks":{"clock":"BOOTTIME","sync_to":{"file":"00000.pftrace","clock":"BOOTTIME"}}}' \
	"another machine: its clock is that of the first"
holds manifest '"path":"00002.pftrace","machine":{"name":"alpha"}}' "the same machine has one clock"

# bytes MEMBER: in hexadecimal numbers
bytes() {
	tar xOf job.tar "$1" | od -An -v -tx1 | tr -d ' \n'
}
# ranks that all see one GPU, or their own process 1: 5000000 is 08 c0 96 b1 02 as pid
host 3 alpha 13 1 >rank3.json
host 4 beta 14 3 >rank4.json
"$BIN/trace" -q -O perfetto-tar -o job.tar rank0.json rank1.json rank3.json rank4.json
bytes 00002.pftrace >member
check "a process of the same machine gets another number" grep -q 08c096b102 member
bytes 00003.pftrace >member
check "one of another machine keeps its own" no grep -q 08c096b1 member
# all traces are moved by the 20 us that the first one needs: 10 us are 30000 ns, 40 b0 ea 01
host 0 alpha -20 1 >rank0.json
host 1 beta 10 1 >rank1.json
status 0 "times below 0" "$BIN/trace" -O perfetto-tar -o job.tar rank0.json rank1.json
check "... no warning" no grep -q "before time 0" "$TMP/err"
bytes 00001.pftrace >member
check "... and the traces stay on one clock" grep -q 40b0ea01 member
host 1 beta -50 1 >rank1.json
status 0 "a later trace begins earlier" "$BIN/trace" -O perfetto -o one rank0.json rank1.json
says "rank1.json: it begins 30.0 us before time 0, which Perfetto cannot show" "... which is said"

if command -v python3 >/dev/null; then
	check "the manifest is JSON" python3 -c 'import json, sys; json.load(open("manifest"))'
else
	skip "the manifest is JSON" "no python3"
fi
done_testing
