# The archive for Perfetto: its members are what -O perfetto writes, its manifest names all of them.
. "$SRC/tests/cli/tap.sh"

host() {
	printf '{"schemaVersion":1,"distributedInfo":{"rank":%s},"host_name":"%s","traceEvents":[
{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":%s,"dur":5},
{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":20,"dur":5}]}' "$1" "$2" "$3"
}
host 0 alpha 10 >"$TMP/rank0.json"
host 1 beta 11 >"$TMP/rank1.json"
host 2 alpha 12 >"$TMP/rank2.json"
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
if command -v python3 >/dev/null; then
	check "the manifest is JSON" python3 -c 'import json, sys; json.load(open("manifest"))'
else
	skip "the manifest is JSON" "no python3"
fi
done_testing
