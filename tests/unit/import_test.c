/* The importers of profiles and execution traces, from text in memory to rows. */
#include <zlib.h>

#include "import_fixture.h"

static bool has(const char *what)
{
	bool found = strstr(rows(), what) != NULL;

	if (!found)
		printf("# not found: %s\n# in: %s\n", what, rows());
	return found;
}

/* ---- profiles ------------------------------------------------------------------------------ */

static const char good[] =
	"{\n  \"schemaVersion\": 1,\n  \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 3},\n"
	"  \"host_name\": \"node7\",\n  \"baseTimeNanoseconds\": 1712195495000000000,\n"
	"  \"traceEvents\": [\n"
	"  {\n    \"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#7\", "
	"\"pid\": 10, "
	"\"tid\": 10,\n    \"ts\": 1000.001, \"dur\": 900.5,\n    \"args\": {\n      \"External "
	"id\": 1\n    "
	"}\n  },\n"
	"  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"record_param_comms\", \"pid\": "
	"10, "
	"\"tid\": 10,\n    \"ts\": 1010, \"dur\": 30,\n    \"args\": {\n      \"Collective name\": "
	"\"_allgather_base\", \"In msg nelems\": 128, \"Out msg nelems\": 1024, \"dtype\": "
	"\"Float\", "
	"\"Process Group Name\": \"5\", \"Seq\": 4\n    }\n  },\n"
	"  {\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernelExC\", "
	"\"pid\": 10, "
	"\"tid\": 10,\n    \"ts\": 1015, \"dur\": 5,\n    \"args\": {\n      \"correlation\": 77\n "
	"   }\n  "
	"},\n"
	"  {\n    \"ph\": \"s\", \"id\": 77, \"pid\": 10, \"tid\": 10, \"ts\": 1015,\n    \"cat\": "
	"\"ac2g\", \"name\": \"ac2g\"\n  },\n"
	"  {\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": "
	"\"ncclDevKernel_AllGather_RING_LL()\", "
	"\"pid\": 0, \"tid\": 20,\n    \"ts\": 1100.125, \"dur\": 50.25,\n    \"args\": {\n      "
	"\"device\": "
	"0, \"stream\": 20, \"correlation\": 77, \"blocks per SM\": 0.50, \"grid\": [24, 1, 1]\n   "
	" }\n  },\n"
	"  {\n    \"ph\": \"f\", \"id\": 77, \"pid\": 0, \"tid\": 20, \"ts\": 1100.125,\n    "
	"\"cat\": "
	"\"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"\n  },\n"
	"  {\n    \"ph\": \"X\", \"cat\": \"gpu_memcpy\", \"name\": \"Memcpy DtoD\", \"pid\": 0, "
	"\"tid\": "
	"7,\n    \"ts\": 1200, \"dur\": 1,\n    \"args\": {\n      \"device\": 0, \"stream\": 7, "
	"\"bytes\": "
	"64\n    }\n  },\n"
	"  {\n    \"name\": \"End\", \"ph\": \"i\", \"s\": \"g\",\n    \"pid\": \"\", \"tid\": "
	"\"\", \"ts\": "
	"2000\n  }\n  ],\n  \"traceName\": \"x.json\"\n}\n";

static void test_kineto(void)
{
	ok(import("a.json", good, NULL) == 0 && st.bad == 0 && st.tolerated == 0 && !st.truncated,
	   "a profile is imported clean");
	is_i64((long long)st.events, 8, "with all its events");
	is_str(rows(),
	       "step 'ProfilerStep#7' t0 1000001 900500 External id<external>=1 <step>=7 "
	       "<cat>='user_annotation'\n"
	       "host_op 'record_param_comms' t0 1010000 30000 <cat>='cpu_op' Collective "
	       "name='_allgather_base' In msg nelems<elements>=128 Out msg "
	       "nelems<elements_out>=1024 dtype<dtype>='Float' Process "
	       "Group "
	       "Name<group>='5' Seq<seq>=4\n"
	       "runtime 'cudaLaunchKernelExC' t0 1015000 5000 <cat>='cuda_runtime' "
	       "correlation<corr>=77\n"
	       "flow_out 'ac2g' t0 1015000 -1 <cat>='ac2g' <flow>=77\n"
	       "collective 'ncclDevKernel_AllGather_RING_LL()' t1 1100125 50250 <cat>='kernel' "
	       "correlation<corr>=77 device=0 stream<stream>=20 blocks per SM=50e-2 grid=[24, 1, "
	       "1] "
	       "<coll>='allgather' <bytes>=4096 <group>='5' <seq>=4\n"
	       "flow_in 'ac2g' t1 1100125 -1 <cat>='ac2g' <flow>=77 .bp='e'\n"
	       "copy 'Memcpy DtoD' t2 1200000 1000 <cat>='gpu_memcpy' device=0 stream<stream>=7 "
	       "bytes<bytes>=64\n"
	       "instant 'End' t3 2000000 -1 .s='g'\n",
	       "rows say what the events said, and the kernel what its launch said");
	is_i64(notes.base_ns, 1712195495000000000, "base time");
	is_i64(notes.rank, 3, "rank from distributedInfo");
	is_str(notes.host, "node7", "host from host_name");
	ok(notes.type[0] == PL_T_THREAD && notes.type[1] == PL_T_STREAM && notes.stream[1] == 20 &&
		   notes.device[1] == 0 && notes.stream[2] == 7 && notes.type[3] == PL_T_OTHER,
	   "threads, streams and the profiler's own rows are told apart");
	ok(notes.ordered, "columns are in order");
}

/* One event between two good ones, damaged in many ways: it costs itself and nothing else. */
static void test_bad_events(void)
{
	static const char *const lost[] = {
		"{\"ph\": \"X\", \"name\": \"a \"quoted\" b\", \"pid\": 1, \"tid\": 1, \"ts\": 2, "
		"\"dur\": 1}",
		"{\"ph\": \"X\", \"name\": \"open, \"pid\": 1, \"tid\": 1, \"ts\": 2, \"dur\": 1}",
		"{\"ph\": \"X\", \"name\": \"no colon\", \"pid\" 1, \"tid\": 1, \"ts\": 2, "
		"\"dur\": 1}",
		"{\"ph\": \"X\", \"name\": \"no ts\", \"pid\": 1, \"tid\": 1, \"dur\": 1}",
		"{\"ph\": \"X\", \"name\": \"ts\", \"pid\": 1, \"tid\": 1, \"ts\": nan, \"dur\": "
		"1}",
		"{\"name\": \"no ph\", \"pid\": 1, \"tid\": 1, \"ts\": 2, \"dur\": 1}",
		"{\"ph\": \"X\", \"name\": \"x\", \"pid\": 1, \"tid\": 1, \"ts\": 2, \"dur\": 1, "
		"\"args\": {\"a\": "
		"[1, 2}}}",
		"{\"ph\": \"X\", \"name\": \"x\", \"pid\": 1, \"tid\": 1, \"ts\": 2, \"dur\": 1, "
		"\"args\": {\"a\": "
		"1 \"b\": 2}}",
		"{\"ph\": \"X\", \"name\": \"x\", \"pid\": 1, \"tid\": 1, \"ts\": , \"dur\": 1}",
		"17",
		"{\"ph\": \"X\", \"name\": \"x\", \"args\": {\"k\": [\"a]}}",
	};
	static const struct {
		const char *event, *row;
		bool bad; /* counted as bad, else as tolerated */
	} kept[] = {
		{ "{\"ph\":\"X\",\"name\":\"x\",\"pid\":1,\"tid\":1,\"ts\":2,\"dur\":1,\"args\":{"
		  "\"v\":inf}}",
		  "'x' t0 2000 1000 v='inf'", false },
		{ "{\"ph\":\"X\",\"name\":\"x\",\"pid\":1,\"tid\":1,\"ts\":2,\"dur\":1,\"args\":{"
		  "\"v\":[1,nan]}}",
		  "'x' t0 2000 1000 v=[1,\"nan\"]", false },
		{ "{\"ph\":\"X\",\"name\":\"x\x01y\",\"pid\":1,\"tid\":1,\"ts\":2,\"dur\":1}",
		  "'x\x01y' t0 2000 1000", false },
		{ "{\"ph\":\"X\",\"name\":\"x\\qy\",\"pid\":1,\"tid\":1,\"ts\":2,\"dur\":1}",
		  "'x\\qy' t0 2000 1000", false },
		{ "{\"ph\":\"X\",\"name\":\"x\xff\",\"pid\":1,\"tid\":1,\"ts\":2,\"dur\":1}",
		  "'x\xff' t0 2000 1000", false },
		{ "{\"ph\":\"X\",\"name\":\"x\",\"pid\":1,\"tid\":1,\"ts\":2,\"dur\":-3.5}",
		  "'x' t0 2000 0 dur=-35e-1", true },
		{ "{\"ph\":\"X\",\"name\":\"x\",\"pid\":1,\"tid\":1,\"ts\":2,\"dur\":inf}",
		  "'x' t0 2000 0 dur='inf'", true },
		{ "{\"ph\":\"X\",\"name\":\"x\",\"pid\":1,\"tid\":1,\"ts\":9300000000000000,"
		  "\"dur\":1}",
		  "'x' t0 9223372036854775807 1000", true },
	};
	const struct pl_import_opts strict = { .strict = true };
	char doc[2048];
	bool fine;

	for (size_t i = 0; i < PL_LEN(lost); i++) {
		for (int lines = 0; lines < 2; lines++) {
			const char *sep = lines ? ",\n  " : ",";

			snprintf(
				doc, sizeof(doc),
				"{\"traceEvents\": [{\"ph\": \"X\", \"name\": \"first\", \"pid\": "
				"1, "
				"\"tid\": 1, \"ts\": 1, \"dur\": 1}%s%s%s{\"ph\": \"X\", \"name\": "
				"\"last\", \"pid\": 1, \"tid\": 1, \"ts\": 3, \"dur\": 1}], \"m\": "
				"1}",
				sep, lost[i], sep);
			fine = import("a.json", doc, NULL) == 0;
			ok(fine && st.bad == 1 && st.events == 2 && !st.truncated &&
				   has("'first' t0 1000 1000\n") && has("'last' t0 3000 1000\n"),
			   "%s costs one event%s (bad %llu, events %llu)", lost[i],
			   lines ? " (a line each)" : "", (unsigned long long)st.bad,
			   (unsigned long long)st.events);
			ok(import("a.json", doc, &strict) == PL_EDATA &&
				   strstr(err.msg, "a.json: byte "),
			   "strict refuses: %s", err.msg);
		}
	}
	for (size_t i = 0; i < PL_LEN(kept); i++) {
		snprintf(doc, sizeof(doc),
			 "[%s,{\"ph\":\"X\",\"name\":\"last\",\"pid\":1,\"tid\":1,\"ts\":3}]",
			 kept[i].event);
		ok(import("a.json", doc, NULL) == 0 && st.bad == kept[i].bad &&
			   st.tolerated == !kept[i].bad && st.events == 2 && has(kept[i].row),
		   "%s is kept", kept[i].row);
		ok(import("a.json", doc, &strict) == PL_EDATA, "strict refuses: %s", err.msg);
	}
}

static void test_values(void)
{
	ok(import("a.json",
		  "[{\"ph\":\"X\",\"name\":\"v\",\"pid\":\"p\",\"tid\":1.5,\"ts\":"
		  "\"1712195495519689.123\","
		  "\"dur\":\"1\",\"args\":{\"i\":-5,\"d\":1.50,\"e\":1e5,\"b\":true,\"f\":false,"
		  "\"n\":null,"
		  "\"big\":18446744073709551616,\"s\":\"\\u00e9\\n\",\"a\":[[4, 2], "
		  "{}],\"o\":{\"x\":1},"
		  "\"z\":-0,\"\":\"\"},\"tts\":9}]",
		  NULL) == 0,
	   "values of every type");
	is_str(rows(),
	       "host_op 'v' t0 1712195495519689123 1000 i=-5 d=150e-2 e=1e5 b=1 f=0 n=null "
	       "big=18446744073709551616 s='\xc3\xa9\n' a=[[4, 2], {}] o={\"x\":1} z=-0 ='' "
	       ".tts=9\n",
	       "are kept exactly");
	ok(import("a.json",
		  "[{\"args\":{\"a\":1},\"dur\":2,\"name\":\"late "
		  "ph\",\"tid\":1,\"pid\":1,\"ts\":1,\"ph\":\"X\"},"
		  "{\"args\":{\"u\":1,\"v\":2.5},\"name\":\"c\",\"pid\":1,\"ts\":2,\"ph\":\"C\"}]",
		  NULL) == 0,
	   "ph may come last");
	is_str(rows(),
	       "host_op 'late ph' t0 1000 2000 a=1\ncounter 'c' t1 2000 -1 u<value>=1 "
	       "v<value>=25e-1\n",
	       "also for counters");
	ok(import("a.json", "[{\"ph\":\"X\",\"ts\":1,\"dur\":1,\"args\":{\"a\":1,\"a\":2}}]",
		  NULL) == 0 &&
		   st.tolerated == 1 && has(" a=1\n"),
	   "a key twice: the first counts");
}

/* A NUL parts pid and tid in the keys of tracks; one that the input has must not. */
static void test_nul(void)
{
	ok(import("a.json",
		  "{\"traceEvents\":[{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":\"\\u0000\","
		  "\"args\":{\"name\":\"x\"}},"
		  "{\"ph\":\"X\",\"name\":\"v\",\"pid\":\"a\\u0000b\",\"tid\":\"c\",\"ts\":1,"
		  "\"dur\":1},"
		  "{\"ph\":\"X\",\"name\":\"w\",\"pid\":\"a\",\"tid\":\"c\",\"ts\":1,\"dur\":1}]}",
		  NULL) == 0,
	   "a NUL in a pid");
	is_i64(notes.tracks, 3, "and what follows it tells tracks apart");
}

static void test_pairs(void)
{
	ok(import("a.json",
		  "\xef\xbb\xbf[{\"name\":\"a\",\"ph\":\"B\",\"pid\":1,\"tid\":1,\"ts\":1},"
		  "{\"name\":\"b\",\"ph\":\"B\",\"pid\":1,\"tid\":1,\"ts\":2,\"args\":{\"k\":1}},"
		  "{\"name\":\"other\",\"ph\":\"B\",\"pid\":1,\"tid\":2,\"ts\":2},"
		  "{\"ph\":\"E\",\"pid\":1,\"tid\":1,\"ts\":3,\"args\":{\"k\":2,\"r\":3}},"
		  "{\"ph\":\"E\",\"pid\":1,\"tid\":1,\"ts\":5},{\"ph\":\"E\",\"pid\":1,\"tid\":1,"
		  "\"ts\":6},"
		  "{\"ph\":\"b\",\"cat\":\"c\",\"id\":\"0x1\",\"name\":\"as\",\"pid\":1,\"tid\":1,"
		  "\"ts\":7},"
		  "{\"ph\":\"b\",\"cat\":\"c\",\"id\":\"0x2\",\"name\":\"as\",\"pid\":1,\"tid\":1,"
		  "\"ts\":8},"
		  "{\"ph\":\"e\",\"cat\":\"c\",\"id\":\"0x1\",\"name\":\"as\",\"pid\":1,\"tid\":1,"
		  "\"ts\":9},"
		  "{\"ph\":\"e\",\"cat\":\"c\",\"id\":\"0x2\",\"name\":\"as\",\"pid\":1,\"tid\":1,"
		  "\"ts\":11},{}]",
		  NULL) == 0,
	   "begins and ends");
	is_str(rows(),
	       "host_op 'b' t0 2000 1000 k=1 r=3\nhost_op 'a' t0 1000 4000\n"
	       "annotation 'as' t0 7000 2000 <ph>='b' .id='0x1' <cat>='c'\n"
	       "annotation 'as' t0 8000 3000 <ph>='b' .id='0x2' <cat>='c'\n"
	       "other 'other' t1 2000 -1 <ph>='B'\n",
	       "become events with a duration");
	is_i64((long long)st.bad, 2,
	       "an end without its begin and a begin without its end are counted");
}

static void test_tails(void)
{
	static const char *const docs[] = {
		"[{\"ph\":\"X\",\"name\":\"x\",\"ts\":1,\"dur\":1}",
		"[{\"ph\":\"X\",\"name\":\"x\",\"ts\":1,\"dur\":1},",
		"{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"x\",\"ts\":1,\"dur\":1}",
		"{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"x\",\"ts\":1,\"dur\":1}]",
	};
	static const char *const whole[] = {
		"[{\"ph\":\"X\",\"name\":\"x\",\"ts\":1,\"dur\":1},{}]",
		"[{\"ph\":\"X\",\"name\":\"x\",\"ts\":1,\"dur\":1},]\n\n",
		" \n{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"x\",\"ts\":1,\"dur\":1}]}\n",
	};

	for (size_t i = 0; i < PL_LEN(docs); i++)
		ok(import("a.json", docs[i], NULL) == 0 && st.events == 1 && st.truncated &&
			   !st.bad,
		   "a missing end: %s", docs[i]);
	for (size_t i = 0; i < PL_LEN(whole); i++)
		ok(import("a.json", whole[i], NULL) == 0 && st.events == 1 && !st.truncated &&
			   !st.bad,
		   "a proper end: %s", whole[i]);
	ok(import("a.json", "", NULL) == PL_EDATA && strstr(err.msg, "empty"), "empty: %s",
	   err.msg);
	ok(import("a.json", "[]", NULL) == 0 && st.events == 0 && notes.segments == 1, "no events");
	ok(import("a.json", "hello\n", NULL) == PL_EDATA, "no trace: %s", err.msg);
}

static void test_prefixes(void)
{
	static const struct pl_import_opts o;
	bool fine = true;
	uint64_t last = 0;

	for (size_t i = 0; i < sizeof(good); i++) {
		int rc = import_bytes("a.json", good, i, &o);

		fine &= rc == 0 ? st.events >= last && notes.ordered &&
					  (st.truncated || i + 2 >= sizeof(good))
				: rc == PL_EDATA && err.msg[0];
		last = rc == 0 ? st.events : last;
	}
	ok(fine && last == 8, "every prefix gives the events it holds, and says that it is cut");
}

/* More than a window, with one event bigger than it. */
static void test_windows(void)
{
	struct pl_buf b = { 0 };
	bool fine;
	int n = 9000;

	fine = pl_buf_printf(&b, &err, "{\"traceEvents\": [\n") == 0;
	for (int i = 0; fine && i < n; i++)
		fine = pl_buf_printf(&b, &err,
				     "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"op%d\", "
				     "\"pid\": %d, "
				     "\"tid\": 1, \"ts\": %d.25, \"dur\": 1, \"args\": {\"text\": "
				     "\"%*d\"}},\n",
				     i % 50, i % 3, i, i == 5000 ? 700000 : 1 + i % 91, i) == 0;
	fine = fine && pl_buf_printf(&b, &err, "{}], \"end\": 1}") == 0;
	ok(fine && import_bytes("a.json", b.p, b.n, &(struct pl_import_opts){ 0 }) == 0 &&
		   st.bad == 0 && !st.truncated && notes.ordered,
	   "%zu bytes through a small window", b.n);
	is_i64((long long)st.events, n, "no event is lost at its edges");
	ok(import_bytes("a.json", b.p, b.n,
			&(struct pl_import_opts){ .max_dictionary_bytes = 100000 }) == 0 &&
		   st.events == (uint64_t)n && notes.ordered && notes.segments > 1,
	   "little room for strings makes segments (%u)", notes.segments);
	ok(notes.part + 1 == notes.segments, "... which are numbered as parts");
	pl_buf_fini(&b);
}

/*
 * Shapes of their own for every operator: a segment ends before its dictionary outgrows the limit,
 * so that memory does not grow with the number of different strings.
 */
static void test_many_strings(void)
{
	struct pl_buf b = { 0 };
	bool fine = pl_buf_printf(&b, &err, "{\"schemaVersion\": 1, \"traceEvents\": [") == 0;
	uint32_t n = 400000;

	for (uint32_t i = 0; fine && i < n; i++)
		fine = pl_buf_printf(&b, &err,
				     "{\"ph\":\"X\",\"name\":\"x\",\"ts\":%u,\"dur\":1,\"args\":{"
				     "\"Input Dims\":[[%u, 64], [64, 128, 256], []]}},\n",
				     i, i) == 0;
	fine = fine && pl_buf_printf(&b, &err, "{}]}") == 0;
	fine = fine && import_bytes("a.json", b.p, b.n, &(struct pl_import_opts){ 0 }) == 0;
	ok(fine && st.events == n && notes.ordered && notes.segments > 1,
	   "400,000 different shapes fill several dictionaries (%u)", notes.segments);
	/* a row can add a few strings, and tables grow by doubling */
	ok(notes.dictionary > 8 << 20 && notes.dictionary < 24 << 20,
	   "a dictionary ends at 16 MiB (%zu)", notes.dictionary);
	pl_buf_fini(&b);
}

static unsigned log_lines;

static void count_lines(void *arg, enum pl_level level, const char *text)
{
	(void)arg;
	(void)level;
	(void)text;
	log_lines++;
}

/* What the host says about communication is held up to a limit, which is said. */
static void test_many_comm_ops(void)
{
	const struct pl_log log = { count_lines, NULL };
	struct pl_comm *c = pl_import_comm_new("a.json", &log, &err);
	struct pl_comm_op op = { .coll = "allreduce", .group = PL_NONE };
	int rc = c ? 0 : err.code;

	log_lines = 0;
	for (uint32_t i = 0; rc >= 0 && i < 1100000; i++) {
		op.t0 = 10 * (pl_ns)i;
		op.t1 = op.t0 + 5;
		rc = pl_import_comm_add_op(c, 1, 1, &op, &err);
		if (rc >= 0)
			rc = pl_import_comm_add_launch(c, 0, 1, 1, op.t0 + 1, i, &err);
	}
	ok(rc == 0 && log_lines == 1,
	   "1,100,000 collectives: one line says that some are left out");
	pl_import_comm_free(c);
}

/* A key of its own for every event: the columns are begun anew. */
static void test_many_keys(void)
{
	struct pl_buf b = { 0 };
	bool fine = pl_buf_printf(&b, &err, "[") == 0;

	for (int i = 0; fine && i < 5000; i++)
		fine = pl_buf_printf(&b, &err,
				     "{\"ph\":\"X\",\"name\":\"x\",\"ts\":%d,\"dur\":1,\"args\":{"
				     "\"k%d\":%d}},",
				     i, i, i) == 0;
	fine = fine && pl_buf_printf(&b, &err, "{}]") == 0;
	ok(fine && import_bytes("a.json", b.p, b.n, &(struct pl_import_opts){ 0 }) == 0 &&
		   st.events == 5000 && notes.ordered && has("t0 999000 1000 k999=999\n"),
	   "5000 different keys");
	pl_buf_fini(&b);
}

/* A profiler's document whose processes are named after ranks, as the export of several writes. */
static void test_named(void)
{
#define EVENT "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"ts\":1,\"dur\":1,\"pid\":7}"
#define NAMED(name)                                                                                \
	",\"traceEvents\":[" EVENT ",{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":7,\"args\":"  \
	"{\"name\":\"" name "\"}}]}"
	static const struct {
		const char *doc;
		int32_t rank;
	} t[] = { { "{\"schemaVersion\":1" NAMED("rank 5 python (CPU)"), 5 },
		  { "{\"schemaVersion\":1" NAMED("python"), 3 },
		  { "{\"schemaVersion\":1" NAMED("serve rank 5"), 3 },
		  { "{\"distributedInfo\":{\"rank\":4}" NAMED("rank 5 python (CPU)"), 4 } };
#undef NAMED
#undef EVENT

	for (size_t i = 0; i < PL_LEN(t); i++) {
		ok(import("rank3.json", t[i].doc, &(struct pl_import_opts){ 0 }) == 0 &&
			   notes.rank == t[i].rank,
		   "named processes %zu: rank %d", i, (int)notes.rank);
	}
}

static void test_names(void)
{
	static const struct {
		const char *file, *from;
		int32_t rank;
		const char *host;
	} t[] = {
		{ "dir/rank_3.json.gz", NULL, 3, "-" },
		{ "rank12.json", NULL, 12, "-" },
		{ "megatron_kineto_5.json", NULL, 5, "-" },
		{ "worker3.1706850122.pt.trace.json", NULL, 3, "-" },
		{ "node7_2590092.1706850122845.pt.trace.json.gz", NULL, -1, "node7" },
		{ "n7_rank2_2590092.1706850122845.pt.trace.json", NULL, 2, "-" },
		{ "run/rank9/trace.json", NULL, 9, "-" },
		{ "trace.json", NULL, -1, "-" },
		{ "frank3.json", NULL, -1, "-" },
		{ "x-gpu14-y.json", "x-gpu%d-", 14, "-" },
		{ "rank_3.json", "order", 42, "-" },
		{ "rank_3.json", "info", -1, "-" },
	};
	const char *doc = "{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"ts\":1,\"dur\":1,"
			  "\"pid\":1}]}";

	for (size_t i = 0; i < PL_LEN(t); i++) {
		const struct pl_import_opts o = { .rank_from = t[i].from, .order = 42 };

		ok(import(t[i].file, doc, &o) == 0 && notes.rank == t[i].rank &&
			   !strcmp(notes.host, t[i].host),
		   "%s: rank %d, host %s", t[i].file, (int)notes.rank, notes.host);
	}
	ok(import("a.json", doc, &(struct pl_import_opts){ .rank_from = "luck" }) == PL_EUSAGE,
	   "%s", err.msg);
}

/* ---- gzip ---------------------------------------------------------------------------------- */

static size_t compress_gzip(const char *s, size_t n, uint8_t *out, size_t cap)
{
	z_stream z = { 0 };
	size_t done;

	if (deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return 0;
	z.next_in = (Bytef *)(uintptr_t)s;
	z.avail_in = (uInt)n;
	z.next_out = out;
	z.avail_out = (uInt)cap;
	done = deflate(&z, Z_FINISH) == Z_STREAM_END ? cap - z.avail_out : 0;
	deflateEnd(&z);
	return done;
}

static void test_gzip(void)
{
	static uint8_t z[8192];
	static const struct pl_import_opts o, strict = { .strict = true };
	size_t n = compress_gzip(good, strlen(good), z, sizeof(z));
	bool fine = true;

	ok(n && import_bytes("a.json.gz", z, n, &o) == 0 && st.events == 8 && !st.truncated,
	   "gzip");
	for (size_t i = 20; i < n; i += 7) {
		int rc = import_bytes("a.json.gz", z, i, &o);

		fine &= rc == 0 ? st.truncated : rc == PL_EDATA && err.msg[0];
	}
	ok(fine, "a cut gzip gives what there is and says so");
	ok(import_bytes("a.json.gz", z, n - 30, &strict) == PL_EDATA, "strict refuses it: %s",
	   err.msg);
}

/* ---- execution traces ---------------------------------------------------------------------- */

#define GATHER(out)                                                                                \
	"{\"name\": \"record_param_comms\", \"id\": 6, \"rf_id\": 13, \"inputs\": "                \
	"[[[1,2,0,16,2,\"cuda:0\"]],4,94,0,\"_allgather_base\",[],[],8], \"outputs\": " out "}"
static const char et_doc[] =
	"{ \"schema\": \"1.0.1\", \"pid\": 10, \"nodes\": [\n"
	"{\"name\": \"record_param_comms\", \"id\": 4, \"rf_id\": 9, \"inputs\": "
	"[[[1,2,0,1024,4,\"cuda:0\"]],3,94,0,\"allreduce\",[],[],8], \"outputs\": "
	"[[[1,2,0,1024,4,\"cuda:0\"]]]},\n"
	"{\"name\": \"record_param_comms\", \"id\": 5, \"rf_id\": 11, \"inputs\": "
	"[3,0,0,\"wait\",[],[],1], \"outputs\": []},\n" GATHER(
		"[[[1,2,0,128,2,\"cuda:0\"]]]") ",\n"
						"{\"name\": \"aten::add\", \"id\": 7, \"rf_id\": "
						"14, \"inputs\": [], \"outputs\": []}\n"
						"], \"finish_ts\": 2}";

static const char part_doc[] =
	"{ \"schema\": \"1.0.1\", \"pid\": 10, \"nodes\": [" GATHER("[]") "]}";

#define OP(ts)                                                                                     \
	"{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"record_param_comms\",\"pid\":10,\"tid\":10,"  \
	"\"ts\":" #ts ",\"dur\":5},"
#define LAUNCH(ts, corr)                                                                           \
	"{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"launch\",\"pid\":10,\"tid\":10,"        \
	"\"ts\":" #ts ",\"dur\":1,\"args\":{\"correlation\":" #corr "}},"
#define KERNEL(name, ts, corr)                                                                     \
	"{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"" name "\",\"pid\":0,\"tid\":7,\"ts\":" #ts   \
	",\"dur\":1,\"args\":{\"device\":0,\"stream\":7,\"correlation\":" #corr "}},"

static void test_et(void)
{
	/* kernels before what launched them: rows wait for the end */
	static const char profile[] = "{\"schemaVersion\":1,\"traceEvents\":[" KERNEL(
		"ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 12, 1)
		KERNEL("ncclDevKernel_AllGather_RING_LL(x)", 32, 2) OP(10) OP(20) OP(30)
			LAUNCH(11, 1) LAUNCH(31, 2) "{}]}";
	static const char by_order[] = "{\"schemaVersion\":1,\"traceEvents\":[" OP(10) OP(20) OP(30)
		KERNEL("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 12, 1)
			KERNEL("ncclDevKernel_AllGather_RING_LL(x)", 32, 2) "{}]}";
	static const char gather[] = "{\"schemaVersion\":1,\"traceEvents\":[" OP(10)
		KERNEL("ncclDevKernel_AllGather_RING_LL(x)", 12, 1) "{}]}";
	struct pl_import_opts o = { 0 };
	struct pl_import_stats s;
	struct pl_et *et = pl_import_et_new(&err);
	struct pl_in *in = pl_in_open_mem("et.json", et_doc, strlen(et_doc), &err);

	ok(pl_import_et_probe((const uint8_t *)et_doc, strlen(et_doc)),
	   "an execution trace is recognised");
	ok(!pl_import_et_probe((const uint8_t *)good, strlen(good)), "a profile is none");
	ok(pl_import_et_load(et, in, &o, &s, &err) == 0 && s.events == 3 && s.bad == 0,
	   "its collectives are read");
	o.et = et;
	ok(import("a.json", profile, &o) == 0 && has("<coll>='allreduce' <bytes>=4096\n") &&
		   has("<coll>='allgather' <bytes>=256\n"),
	   "kernels get the sizes of the operations that launched them");
	ok(import("a.json", by_order, &o) == 0 && has("<coll>='allreduce' <bytes>=4096\n") &&
		   has("<coll>='allgather' <bytes>=256\n"),
	   "without launches, by order and name");
	pl_import_et_free(et);
	et = pl_import_et_new(&err);
	in = pl_in_open_mem("et.json", part_doc, strlen(part_doc), &err);
	ok(pl_import_et_load(et, in, &o, &s, &err) == 0 && s.events == 1, "a part of a gather");
	o.et = et;
	ok(import("a.json", gather, &o) == 0 && has("<coll>='allgather'\n"), "... is not its size");
	ok(import("et.json", et_doc, NULL) == PL_EDATA && strstr(err.msg, "execution trace"), "%s",
	   err.msg);
	pl_import_et_free(et);
}

/* ---- registry ------------------------------------------------------------------------------ */

static void test_registry(void)
{
	for (size_t i = 0; pl_import_formats[i]; i++)
		ok(pl_import_find(pl_import_formats[i]->name) == pl_import_formats[i] &&
			   pl_import_formats[i]->summary[0],
		   "importer %s", pl_import_formats[i]->name);
	ok(!pl_import_find("no such"), "an unknown importer is not found");
}

/* As some shells' redirections write it: the file is fine once it is converted. */
static void test_wide(void)
{
	static const char little[] = "\xff\xfe{\0\"\0a\0\"\0:\0[\0]\0}", big[] = "\xfe\xff\0[\0]",
			  four[] = "\xff\xfe\0\0[\0\0\0]\0\0";
	static const struct {
		const char *p;
		size_t n;
		const char *coding;
	} text[] = { { little, sizeof(little), "UTF-16" },
		     { big, sizeof(big), "UTF-16" },
		     { four, sizeof(four), "UTF-32" } };

	static const char *const forced[] = { "none", "chrome", "kineto", "optable" };

	for (size_t i = 0; i < PL_LEN(text); i++)
		for (size_t f = 0; f < PL_LEN(forced); f++) {
			struct pl_err why = { 0 };
			struct pl_sink sink = { 0 };
			struct pl_in *in = pl_in_open_mem("w.json", text[i].p, text[i].n, &why);
			const struct pl_import_opts o = { 0 };

			ok(in &&
				   pl_import_run(in, pl_import_find(forced[f]), &o, &sink, &st,
						 &why) == PL_EDATA &&
				   strstr(why.msg, text[i].coding) && strstr(why.msg, "iconv -f"),
			   "the coding and the remedy are named: %s", why.msg);
		}
}

int main(void)
{
	test_registry();
	test_wide();
	test_kineto();
	test_bad_events();
	test_values();
	test_nul();
	test_pairs();
	test_tails();
	test_prefixes();
	test_windows();
	test_many_keys();
	test_many_strings();
	test_many_comm_ops();
	test_names();
	test_named();
	test_gzip();
	test_et();
	pl_buf_fini(&notes.text);
	return done_testing();
}
