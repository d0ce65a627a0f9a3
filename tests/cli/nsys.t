# Exports of Nsight Systems: what is read of the small job in tests/cli/nsys.sql, older schemas, damaged files.
. "$SRC/tests/cli/tap.sh"

cd "$TMP" || exit 1
trace=$BIN/trace
cp "$SRC/tests/fuzz/corpus/nsys/job.sqlite" job.sqlite
if "$trace" --version | grep -q sqlite3; then
	status 0 "an export is read" "$trace" -O jsonl -o job.jsonl job.sqlite
else
	status 6 "a build without libsqlite3 reads no export" "$trace" -O jsonl job.sqlite
	says "install libsqlite3-dev" "and says what to do"
	skip "exports" "this build has no libsqlite3"
	done_testing
	exit
fi

# event RANK CORRELATION KIND: the event of the device
event() {
	grep "\"rank\":$1,\"kind\":\"$3\"" job.jsonl | grep -m 1 "\"correlation\":$2,"
}

event 0 5 collective >nccl0
event 1 5 collective >nccl1
for f in nccl0 nccl1; do
	holds $f '"collective":"allreduce","group":"7777","bytes":4194304' "$f: size and group from its launch"
done
event 0 4 sync >wait0
holds wait0 '"Stream Wait Event"' "a wait, by the types that the export names"
holds wait0 '"wait_on_stream":7,"wait_on_cuda_event_record_corr_id":3' "and what it waits for"
event 1 9 sync >sync1
holds sync1 '"Stream Sync"' "the host waits for a stream"
event 1 10 copy >copy1
holds copy1 '"name":"Memcpy DtoH (Device -> Pageable)".*"bytes":65536' "a copy"
event 0 1 kernel >kernel0
holds kernel0 '"name":"void gemm<float>(float\*, float\*)","start_ns":1795917515001150000,"dur_ns":1850000' "a kernel, on the clock of the host"
holds kernel0 '"grid":\[8, 4, 1\],"block":\[256, 1, 1\]' "with its launch"
check "calls lose the version of their name" grep -q '"kind":"runtime","name":"cudaLaunchKernel",' job.jsonl
check "steps from ranges" test 4 = "$(grep -c '"kind":"step"' job.jsonl)"
check "ranks from NCCL" grep -q '"rank":1,"host":"node7","pid":"200","tid":"200","name":"python","process":"train.py"' job.jsonl
check "all waits are known" grep -q '"all_synchronization":true' job.jsonl

status 0 "the chain" sh -c "'$trace' job.sqlite | '$BIN/merge' | '$BIN/graph' -O stat"
holds out "^waits  *12 recorded, 0 inferred" "waits of the graph are recorded ones"
holds out "^allreduce  *4  *16.0 MiB  *0  *0" "the all-reduce of both ranks meets"
holds out "^   1      2 " "two steps"

status 0 "from a pipe" sh -c "cat job.sqlite | '$trace' -O jsonl | sed 1d"
sed 1d job.jsonl >want
check "it is the same" cmp -s out want
status 0 "compressed" sh -c "gzip -c job.sqlite >job.gz && TMPDIR=. '$trace' -O jsonl job.gz | sed 1d"
check "too" cmp -s out want
check "no copy is left" test -z "$(find . -name 'paceline-*')"
status 0 "--check" "$trace" --check job.sqlite
holds out "job.sqlite: ok: 95 events, 2 ranks" "says how many events"

head -c 9000 job.sqlite >cut.sqlite
status "0 3" "a cut export" "$trace" -O stat cut.sqlite
says "cut.sqlite: SQLite refuses it" "is named"
status 3 "--strict refuses it" "$trace" --strict -O stat cut.sqlite
cp "$SRC/tests/fuzz/corpus/nsys/wide.sqlite" part.sqlite
printf '\000' | dd of=part.sqlite bs=512 seek=45 conv=notrunc 2>/dev/null
status 0 "an export with a damaged page" "$trace" -O csv part.sqlite
says 'part.sqlite: table NVTX_EVENTS: page 46: is no page of a table; .* what could be read of table NVTX_EVENTS is kept' "says where"
check "the rows before are kept" test "$(wc -l <out)" -gt 100
status 3 "--strict refuses it" "$trace" --strict -O csv part.sqlite

# calls of MPI
cp "$SRC/tests/fuzz/corpus/nsys/mpi.sqlite" .
status 0 "calls of MPI" "$trace" -O csv mpi.sqlite
check "a send lasts until its wait, with its peer, size, tag and number" grep -q \
	'^0,[0-9]*,0,.*,send,MPI_Isend,1795917515003000000,600000,.*,comm 77,21474836480,1,65536,.*tag"":5' out
check "numbers follow the time of the calls" grep -q 'send,MPI_Isend,1795917515013000000,.*,comm 77,21474836481,1,' out
check "a collective, its communicator and its ranks" grep -q \
	'collective,MPI_Allreduce,.*,allreduce,comm 77,0,,4194304,.*Ranks"":""\[0, 1\]' out
check "one with a request has a track of its own" grep -q \
	'^0,[0-9]*,0,.*,16777216,.*collective,MPI_Iallreduce,1795917515005100000,2200000,.*,allreduce,comm 77,1,,1024,' out
check "parts of one rank are made the whole" grep -q 'MPI_Allgather,.*,allgather,comm 77,2,,8192,' out
check "another communicator" grep -q 'MPI_Bcast,.*,broadcast,comm 78,0,,64,.*root"":0' out
check "other calls" grep -q ',host_op,MPI_Init,' out
status 0 "ranks meet" sh -c "'$trace' -q mpi.sqlite | '$BIN/merge' -v -o mpi.merged"
says "8 collectives and 4 transfers matched, 0 incomplete" "all of them"

echo text >job.nsys-rep
status 3 "a report that was not exported" "$trace" job.nsys-rep
says "nsys export --type sqlite" "says how"

if ! command -v sqlite3 >/dev/null; then
	skip "other schemas" "there is no sqlite3"
	done_testing
	exit
fi
status 3 "another database" sh -c "sqlite3 x.db 'CREATE TABLE t (a)' && '$trace' x.db"
says "without the tables of an export of Nsight Systems" "is told apart"

# a library that uses the handle of a request again: the first of three ends by tests, which have no row
cp mpi.sqlite again.sqlite
sqlite3 again.sqlite "DELETE FROM MPI_P2P_EVENTS WHERE rowid > 3; DELETE FROM MPI_START_WAIT_EVENTS WHERE rowid > 2;
	UPDATE MPI_P2P_EVENTS SET start = 1000 * rowid, end = 1000 * rowid + 10, requestHandle = 5,
		globalTid = (SELECT globalTid FROM MPI_P2P_EVENTS WHERE rowid = 1), textId = (SELECT id FROM StringIds WHERE value = 'MPI_Isend');
	UPDATE MPI_START_WAIT_EVENTS SET start = 1000 * rowid + 1020, end = 1000 * rowid + 1100, requestHandle = 5,
		globalTid = (SELECT globalTid FROM MPI_P2P_EVENTS WHERE rowid = 1), textId = (SELECT id FROM StringIds WHERE value LIKE 'MPI_Wait%')"
"$trace" -q -O csv again.sqlite | awk -F , '$11 == "MPI_Isend" { printf "%d ", $13 }' >again
check "handles that are used again: each wait ends its own send" grep -qx '10 100 100 ' again

# what MPI's calls are: prepared ones, a handle of a communicator that is used again, rows without times
cp mpi.sqlite again.sqlite
sqlite3 again.sqlite "INSERT INTO MPI_COMMUNICATORS VALUES (0, 5, 1000, NULL, 0, 1, 5, 5, '0', 79);
	INSERT INTO MPI_COLLECTIVES_EVENTS VALUES (6, 7, (100 << 24) + 100, 10, 1000, 0, 64, 64, NULL);
	INSERT INTO StringIds VALUES (11, 'MPI_Send_init');
	INSERT INTO MPI_P2P_EVENTS VALUES (500, 600, (100 << 24) + 100, 11, 1000, 5, 1, 65536, 77)"
status 0 "a handle that an earlier communicator had, and a send that is prepared" \
	sh -c "'$trace' -q again.sqlite | '$BIN/merge' -v -o again.merged"
says "9 collectives and 4 transfers matched, 0 incomplete" "numbers are those of each communicator"
status 0 "calls of it" "$trace" -q -O csv again.sqlite
check "what prepares sends is a call" grep -q ',host_op,MPI_Send_init,1795917515000000500,100,' out
sqlite3 again.sqlite "CREATE TABLE t AS SELECT * FROM MPI_P2P_EVENTS; DROP TABLE MPI_P2P_EVENTS; ALTER TABLE t RENAME TO MPI_P2P_EVENTS;
	UPDATE MPI_P2P_EVENTS SET end = NULL WHERE textId = 11; UPDATE MPI_P2P_EVENTS SET start = NULL WHERE rowid = 1;
	UPDATE MPI_OTHER_EVENTS SET end = start - 5"
status 0 "calls without times" "$trace" -O csv again.sqlite
says "row 1: a call without a start; it is skipped and counted" "are counted"
says "row 1: an end before its start (0 stands for the duration)" "an impossible duration, too"
check "an end that is missing is unknown" grep -q ',host_op,MPI_Send_init,1795917515000000500,,' out

# damage NAME TABLE: the first page of the table in NAME is none
damage() {
	page=$(sqlite3 "$1" "SELECT rootpage FROM sqlite_master WHERE name = '$2'")
	printf '\000' | dd of="$1" bs=512 seek=$((page - 1)) conv=notrunc 2>/dev/null
}
for t in ThreadNames PROCESSES CUPTI_ACTIVITY_KIND_CUDA_EVENT TARGET_INFO_SYSTEM_ENV; do
	cp job.sqlite part.sqlite && damage part.sqlite $t
	status 0 "damage of $t" "$trace" -O csv part.sqlite
	says "part.sqlite: .*what could be read of table $t is kept" "... is said"
	check "... and events are kept" test "$(grep -c ',kernel,' out)" = 12
	status 3 "... but with --strict" "$trace" --strict -O csv part.sqlite
done
cp mpi.sqlite part.sqlite && damage part.sqlite MPI_COMMUNICATORS
status 0 "damage of the communicators" "$trace" -O csv part.sqlite
says "what could be read of table MPI_COMMUNICATORS is kept" "... is said"
check "... and calls are kept" grep -q ',collective,MPI_Allreduce,' out

# rows of a table are counted on where a segment ends
cp job.sqlite long.sqlite
sqlite3 long.sqlite "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
	INSERT INTO NVTX_EVENTS SELECT 30000000 + i, 30000001 + i, 59, printf('%d %.*c', i, 1000, 'x'), (100 << 24) + 100, NULL, 0, NULL, NULL FROM n;
	INSERT INTO NVTX_EVENTS VALUES (40000000, 39999999, 59, 'last', (100 << 24) + 100, NULL, 0, NULL, NULL)"
status 0 "a table with long texts" "$trace" -o none long.sqlite
says "row $(sqlite3 long.sqlite 'SELECT count(*) FROM NVTX_EVENTS'): an end before its start" "its rows have their numbers"
rm -f long.sqlite none

# steps of ranges keep their numbers in Chrome JSON
"$trace" -q -O chrome -o steps.json job.sqlite
for f in job.sqlite steps.json; do
	"$trace" -q -O csv --kind=step "$f" | awk -F , 'NR > 1 { printf "%s ", $16 }' >"steps.${f%.*}"
done
check "steps keep their numbers as Chrome JSON" sh -c "grep -q '[0-9]' steps.job && cmp -s steps.job steps.steps"

# an older schema: no number joins waits and records, types have CUPTI's numbers, one process, the launcher's variables
cp job.sqlite old.sqlite
sqlite3 old.sqlite "ALTER TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT DROP COLUMN eventSyncId; DROP TABLE PROCESSES;
	ALTER TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION DROP COLUMN eventSyncId; DROP TABLE ENUM_CUPTI_SYNC_TYPE;
	UPDATE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION SET syncType = 5 - syncType; DROP TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES;
	DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE globalPid >> 24 = 200; ALTER TABLE NVTX_EVENTS DROP COLUMN jsonText;
	INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('DeviceEnvironment', 'LOCAL_RANK=1
RANK=5
WORLD_SIZE=16');"
status 0 "an older schema" "$trace" -O jsonl -o job.jsonl old.sqlite
event 5 7 sync >wait0 || sed -n 1,3p job.jsonl
holds wait0 '"wait_on_stream":20,"wait_on_cuda_event_record_corr_id":6' "the record of an event is the last one before the wait"
check "rank and world from the environment" grep -q '"rank": 5, "world_size": 16' job.jsonl
sqlite3 old.sqlite "DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'DeviceEnvironment';
	ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY RENAME COLUMN start TO begin"
mv old.sqlite report.rank3.sqlite
status 0 "a column that is needed is missing" "$trace" -O jsonl -o job.jsonl report.rank3.sqlite
says "table CUPTI_ACTIVITY_KIND_MEMCPY has no column start (schema 3.24.14)" "it says which"
check "the rest is read, with the rank of the file's name" grep -q '"rank":3,"kind":"kernel"' job.jsonl
cp job.sqlite two.sqlite
sqlite3 two.sqlite "DROP TABLE NVTX_EVENTS; UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 5 WHERE correlationId = 1"
status 0 "two processes that say no rank" "$trace" -O jsonl -o job.jsonl two.sqlite
says "numbered by their devices" "a warning"
check "are numbered" grep -q '"rank":1,"kind":"kernel"' job.jsonl
says "row 1: an end before its start" "an impossible duration is counted"

# a job of which the export has communicators of parts alone
cp job.sqlite parts.sqlite
sqlite3 parts.sqlite "UPDATE NVTX_EVENTS SET jsonText = '{\"NCCL communicator ID\": 8888, \"No. of ranks\": 2, \"Rank\": 0}', binaryData = NULL
	WHERE textId = 7 AND globalTid >> 24 = 200"
status 0 "two communicators of parts of the job" "$trace" -O jsonl -o job.jsonl parts.sqlite
says "the largest communicators of NCCL, of 2 ranks, are parts of the job" "are told"
says "numbered by their devices" "... ranks do not come from them"
check "... which differ" grep -q '"rank":1,"kind":"kernel"' job.jsonl
check "... nor does the size of the job" no grep -q world_size job.jsonl
cp job.sqlite part.sqlite
sqlite3 part.sqlite "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE globalPid >> 24 = 200; DELETE FROM NVTX_EVENTS WHERE globalTid >> 24 = 200"
cp part.sqlite report.rank3.sqlite
status 0 "one process, in a communicator without its rank" "$trace" -O jsonl -o job.jsonl report.rank3.sqlite
says "its name says rank 3, and its largest communicator has 2 ranks" "is told by the file's name"
check "... which has the rank" grep -q '"rank":3,"kind":"kernel"' job.jsonl
check "... and no size of the job is known" no grep -q world_size job.jsonl
mv report.rank3.sqlite report.rank1.sqlite
status 0 "a name that says another rank of it" "$trace" -O jsonl -o job.jsonl report.rank1.sqlite
says "its name says rank 1, but it is rank 0 of its largest communicator, which counts" "is told"
check "... the communicator counts" grep -q '"rank": 0, "world_size": 2' job.jsonl
sqlite3 report.rank1.sqlite "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('DeviceEnvironment', 'RANK=5
WORLD_SIZE=16');"
status 0 "an environment that names more ranks" "$trace" -O jsonl -o job.jsonl report.rank1.sqlite
check "... has rank and size of the job" grep -q '"rank": 5, "world_size": 16' job.jsonl
done_testing
