/* lib/export and lib/io/pb.c: what the exporters write is read back, by importers or by hand. */
#include "tap.h"

#include "export/export.h"
#include "import/import.h"
#include "io/csv.h"
#include "io/json.h"
#include "io/pb.h"
#include "trace/filter.h"

static struct pl_err err;

/* ---- a small trace, made by hand ---------------------------------------------------------------
 */

struct maker {
	struct pl_segment seg;
	struct pl_batch b;
	struct pl_sink *sink;
	pl_id thread, stream;
};

static pl_id str(struct maker *m, const char *s)
{
	pl_id id = 0;

	if (pl_intern_add(&m->seg.str, s, strlen(s), &id, &err) < 0)
		return PL_NONE;
	return id;
}

static pl_id track(struct maker *m, unsigned type, int rank, const char *pid, const char *tid)
{
	struct pl_track k;
	pl_id id = 0;

	pl_trace_track_init(&k);
	k.type = (uint8_t)type;
	k.rank = rank;
	k.pid = str(m, pid);
	k.tid = str(m, tid);
	if (type == PL_T_STREAM) {
		k.stream = 7;
		k.device = 0;
	}
	return pl_trace_segment_track(&m->seg, &k, &id, &err) < 0 ? PL_NONE : id;
}

static void begin(struct maker *m, struct pl_sink *sink, int rank)
{
	memset(m, 0, sizeof(*m));
	m->sink = sink;
	if (pl_trace_segment_init(&m->seg, &err) < 0 || pl_trace_batch_init(&m->b, &err) < 0)
		return;
	m->thread = track(m, PL_T_THREAD, rank, "100", "100");
	m->stream = track(m, PL_T_STREAM, rank, "0", "7");
	if (sink->begin)
		sink->begin(sink, &m->seg, &err);
}

static void event(struct maker *m, unsigned kind, pl_id where, const char *name, pl_ns ts,
		  pl_ns dur)
{
	uint32_t n = m->b.n++;

	m->b.kind[n] = (uint8_t)kind;
	m->b.track[n] = where;
	m->b.name[n] = str(m, name);
	m->b.ts[n] = ts;
	m->b.dur[n] = dur;
}

/* Of the last event. */
static void value(struct maker *m, unsigned role, unsigned type, const char *key, int64_t v)
{
	uint32_t at;

	if (pl_trace_batch_col(&m->b, (uint8_t)role, (uint8_t)type, key ? str(m, key) : PL_NONE,
			       &at, &err) == 0 &&
	    pl_trace_col_put(&m->b.col[at], m->b.n - 1, v, 0, &err) < 0)
		printf("# %s\n", err.msg);
}

static int end(struct maker *m)
{
	int rc = m->b.n ? m->sink->batch(m->sink, &m->seg, &m->b, &err) : 0;

	m->seg.n_events += m->b.n;
	if (rc >= 0 && m->sink->end)
		rc = m->sink->end(m->sink, &m->seg, &err);
	pl_trace_segment_fini(&m->seg);
	pl_trace_batch_fini(&m->b);
	return rc;
}

/* ---- exporters into memory ---------------------------------------------------------------------
 */

struct export
{
	const struct pl_exporter *e;
	struct pl_buf b;
	struct pl_out *out;
	struct pl_sink *sink;
};

static struct pl_sink *open_export(struct export *x, const char *format)
{
	const struct pl_export_opts o = { .level = 1 };

	memset(x, 0, sizeof(*x));
	memset(&err, 0, sizeof(err));
	x->e = pl_export_find(format);
	x->out = pl_out_open_buf(&x->b, &err);
	x->sink = pl_export_open(x->e, x->out, &o, &err);
	return x->sink;
}

/* NUL-terminated. */
static const char *close_export(struct export *x)
{
	if (pl_export_close(x->e, x->sink, &err) < 0 || pl_out_close(x->out, &err) < 0 ||
	    pl_buf_put(&x->b, "", 1, &err) < 0)
		return err.msg;
	x->b.n--;
	return (const char *)x->b.p;
}

/* A source text through an importer and an exporter. */
static const char *convert(struct export *x, const char *text, size_t n, const char *format)
{
	const struct pl_import_opts o = { 0 };
	struct pl_import_stats st = { 0 };
	struct pl_in *in;

	open_export(x, format);
	in = pl_in_open_mem("x.json", text, n, &err);
	if (!in || pl_import_run(in, NULL, &o, x->sink, &st, &err) < 0)
		printf("# %s\n", err.msg);
	return close_export(x);
}

static bool has(const char *text, const char *part)
{
	bool yes = text && strstr(text, part);

	if (!yes)
		printf("# no %s in\n# %.2000s\n", part, text ? text : "(null)");
	return yes;
}

/* ---- protobuf ----------------------------------------------------------------------------------
 */

static void test_pb(void)
{
	struct pl_writer w = { 0 };
	size_t outer, inner;
	static const uint8_t want[] = { 0x08, 0x96, 0x01, 0x12, 0x86, 0x80, 0x80, 0x00,
					0x1a, 0x81, 0x80, 0x80, 0x00, 'x',  0x21, 0,
					0,    0,    0,	  0,	0,    0xf0, 0x3f };

	pl_pb_varint(&w, 1, 150);
	outer = pl_pb_open(&w, 2);
	inner = pl_pb_open(&w, 3);
	pl_write_char(&w, 'x');
	pl_pb_close(&w, inner);
	pl_pb_close(&w, outer);
	pl_pb_double(&w, 4, 1.0);
	ok(!w.fail.code && w.b.n == sizeof(want) && !memcmp(w.b.p, want, w.b.n),
	   "protobuf: varint, nested messages, double");
	w.b.n = 0;
	pl_pb_varint(&w, 16, UINT64_MAX);
	ok(!w.fail.code && w.b.n == 12 && w.b.p[0] == 0x80 && w.b.p[1] == 1 && w.b.p[11] == 1,
	   "protobuf: two-byte tag, ten-byte varint");
	pl_write_fini(&w);
}

/* ---- Chrome ------------------------------------------------------------------------------------
 */

static const char source[] =
	"{\"schemaVersion\":1,\"distributedInfo\":{\"backend\":\"nccl\",\"rank\":2,\"world_size\":"
	"4},\n"
	"\"traceEvents\":[\n"
	"{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::a \\\"q\\\" "
	"\\u00e9\",\"pid\":5,\"tid\":6,"
	"\"ts\":1000.001,\"dur\":10,\"args\":{\"External id\":1,\"list\":[1, 2.50, "
	"\"x\"],\"z\":1.50,"
	"\"odd\":inf,\"t\":true,\"n\":null,\"big\":123456789012345678901234567890}},\n"
	"{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":5,\"tid\":6,"
	"\"ts\":1002,\"dur\":3.25,\"args\":{\"correlation\":9}},\n"
	"{\"ph\":\"s\",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"id\":9,\"pid\":5,\"tid\":6,\"ts\":1002}"
	",\n"
	"{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":1010,\"dur\":5,"
	"\"args\":{\"correlation\":9,\"stream\":7,\"device\":0,\"inner\":{\"a\":[nan,-1]}}},\n"
	"{\"ph\":\"f\",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"id\":9,\"pid\":0,\"tid\":7,\"ts\":1010,"
	"\"bp\":\"e\"},\n"
	"{\"ph\":\"C\",\"name\":\"load\",\"pid\":5,\"ts\":1011,\"args\":{\"a\":1,\"b\":2.5}},\n"
	"{\"ph\":\"i\",\"s\":\"g\",\"name\":\"mark\",\"pid\":\"Spans\",\"tid\":\"x\",\"ts\":1012},"
	"\n"
	"{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":5,\"tid\":6,\"args\":{\"name\":\"main\"}},"
	"\n"
	"{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":5,\"tid\":0,\"args\":{\"name\":\"python\"}"
	"}\n"
	"],\"traceName\":\"x\",\"baseTimeNanoseconds\":1700000000000000000}";

static void test_chrome(void)
{
	struct export a, b, ta, tb;
	const char *one, *two;
	struct pl_json j;
	enum pl_json_type k;
	int events = 0;

	one = convert(&a, source, strlen(source), "chrome");
	two = convert(&b, one, a.b.n, "chrome");
	is_str(two, one, "chrome: what was exported is imported and exported the same");
	one = convert(&ta, source, strlen(source), "text");
	two = convert(&tb, (const char *)a.b.p, a.b.n, "text");
	ok(has(one, "ts=1000001 dur=10000"), "text: exact times less the base");
	ok(has(one, "base=1700000000000000000"), "text: base");
	ok(has(one, "\"z\"=1.50") && has(one, "\"t\"=true") && has(one, "\"n\"=null"),
	   "text: decimals as written, booleans, null");
	ok(has(one, "123456789012345678901234567890"), "text: numbers beyond 64 bits");
	ok(has(one, "corr:\"correlation\"=9"), "text: roles with their keys");
	(void)two;
	pl_json_init(&j, (const char *)a.b.p, a.b.n);
	while ((k = pl_json_next(&j)) != PL_JSON_END && k != PL_JSON_ERROR)
		events += k == PL_JSON_KEY && j.len == 2 && !memcmp(j.text, "ph", 2);
	ok(k == PL_JSON_END && !j.lenient, "chrome: valid JSON although the source was not");
	is_i64(events, 9, "chrome: seven events and two names");
	ok(has((const char *)a.b.p, "\"bp\":\"e\"") && has((const char *)a.b.p, "\"s\":\"g\""),
	   "chrome: other members of events");
	ok(has((const char *)a.b.p, "\"pid\":\"Spans\"") && has((const char *)a.b.p, "\"pid\":5"),
	   "chrome: numbers and texts as process ids");
	pl_buf_fini(&a.b);
	pl_buf_fini(&b.b);
	pl_buf_fini(&ta.b);
	pl_buf_fini(&tb.b);
}

/* Asynchronous pairs overlap, and one is inside of another with its id. */
static void test_chrome_pairs(void)
{
	static const char pairs[] =
		"{\"traceEvents\":["
		"{\"ph\":\"b\",\"cat\":\"c\",\"id\":\"0x7\",\"name\":\"in\",\"pid\":1,\"tid\":2,"
		"\"ts\":12,\"args\":{\"k\":1}},"
		"{\"ph\":\"e\",\"cat\":\"c\",\"id\":\"0x7\",\"name\":\"in\",\"pid\":1,\"tid\":2,"
		"\"ts\":13.5},"
		"{\"ph\":\"b\",\"cat\":\"c\",\"id2\":{\"local\":\"0x8\"},\"scope\":\"s\",\"name\":"
		"\"y\",\"pid\":1,\"tid\":2,\"ts\":11},"
		"{\"ph\":\"e\",\"cat\":\"c\",\"id2\":{\"local\":\"0x8\"},\"scope\":\"s\",\"name\":"
		"\"y\",\"pid\":1,\"tid\":2,\"ts\":14},"
		"{\"ph\":\"i\",\"s\":\"t\",\"name\":\"mark\",\"pid\":1,\"tid\":2,\"ts\":15,\"dur\":"
		"2.5}]}";
	struct export a, b, ta, tb;
	const char *one = convert(&a, pairs, strlen(pairs), "chrome"), *two;

	ok(has(one, "{\"ph\":\"b\",\"cat\":\"c\",\"name\":\"in\",\"pid\":1,\"tid\":2,\"ts\":12,"
		    "\"id\":\"0x7\",\"args\":{\"k\":1}},\n"
		    "{\"ph\":\"e\",\"cat\":\"c\",\"name\":\"in\",\"pid\":1,\"tid\":2,\"ts\":13.5,"
		    "\"id\":\"0x7\"}"),
	   "chrome: an asynchronous pair is two events again");
	ok(has(one, "\"ph\":\"e\",\"cat\":\"c\",\"name\":\"y\",\"pid\":1,\"tid\":2,\"ts\":14,"
		    "\"id2\":{\"local\":\"0x8\"},\"scope\":\"s\"}"),
	   "chrome: its end has all that tells ids apart");
	ok(has(one, "\"dur\":2.500}"), "chrome: a duration of an instant is in microseconds");
	two = convert(&b, one, a.b.n, "chrome");
	is_str(two, one, "chrome: pairs are read and written the same");
	one = convert(&ta, pairs, strlen(pairs), "jsonl");
	two = convert(&tb, (const char *)a.b.p, a.b.n, "jsonl");
	ok(has(one, "\"name\":\"in\",\"start_ns\":12000,\"dur_ns\":1500") &&
		   has(two, "\"name\":\"in\",\"start_ns\":12000,\"dur_ns\":1500"),
	   "chrome: and keep their durations");
	pl_buf_fini(&a.b);
	pl_buf_fini(&b.b);
	pl_buf_fini(&ta.b);
	pl_buf_fini(&tb.b);
}

static void test_chrome_segments(void)
{
	struct export x;
	struct maker m;
	struct pl_sink *s = open_export(&x, "chrome");
	const char *t;

	for (int rank = 0; rank < 2; rank++) {
		begin(&m, s, rank);
		m.seg.base_ns = 1000000 + 500000 * rank;
		event(&m, PL_K_HOST_OP, m.thread, "op", 1000, 2000);
		event(&m, PL_K_FLOW_OUT, m.thread, "arrow", 1000, -1);
		value(&m, PL_R_FLOW, PL_V_STR, NULL, str(&m, "0x1f"));
		event(&m, PL_K_FLOW_OUT, m.thread, "arrow", 1500, -1);
		value(&m, PL_R_FLOW, PL_V_INT, NULL, 9);
		event(&m, PL_K_ANNOTATION, m.thread, "wait", 1000, 1000);
		value(&m, PL_R_PH, PL_V_STR, NULL, str(&m, "b"));
		value(&m, PL_R_TOP, PL_V_STR, "id", str(&m, "0x2"));
		ok(end(&m) >= 0, "chrome: segment %d", rank);
	}
	t = close_export(&x);
	ok(has(t, "\"name\":\"op\",\"pid\":100,\"tid\":100,\"ts\":1,\"dur\":2"),
	   "chrome: the first segment as it is");
	ok(has(t, "\"name\":\"op\",\"pid\":5000000,\"tid\":100,\"ts\":501,\"dur\":2"),
	   "chrome: the second has a process of its own and the first one's base");
	ok(has(t, "rank 0") && has(t, "rank 1"), "chrome: ranks have names");
	ok(has(t, "\"baseTimeNanoseconds\":1000000"), "chrome: common base");
	ok(has(t, "\"ts\":1,\"id\":\"0x1f\"}") && has(t, "\"ts\":501,\"id\":\"1.0x1f\"}") &&
		   has(t, "\"ts\":1.5,\"id\":9}") && has(t, "\"ts\":501.5,\"id\":\"1.9\"}"),
	   "chrome: arrows of two segments have no common ids, texts neither");
	ok(has(t, "\"ts\":502,\"id\":\"1.0x2\"}"), "chrome: nor have asynchronous pairs");
	pl_buf_fini(&x.b);
}

/* A trace that was exported before, and then another: numbers and names are not given twice. */
static void test_chrome_again(void)
{
	struct export x;
	struct maker m;
	struct pl_sink *s = open_export(&x, "chrome");
	const char *t;

	for (int rank = 0; rank < 2; rank++) {
		begin(&m, s, rank);
		m.seg.track[m.thread].process = str(&m, rank ? "rank 1 python (CPU)" : "python");
		m.seg.track[m.thread].labels = str(&m, "CPU");
		m.seg.track[m.stream].pid = str(&m, "5000000");
		event(&m, PL_K_HOST_OP, m.thread, "host", 1000, 2000);
		event(&m, PL_K_KERNEL, m.stream, "device", 1000, 2000);
		ok(end(&m) >= 0, "chrome: segment %d", rank);
	}
	t = close_export(&x);
	ok(has(t, "\"name\":\"host\",\"pid\":100,") &&
		   has(t, "\"name\":\"device\",\"pid\":5000000,") &&
		   has(t, "\"name\":\"host\",\"pid\":5000001,") &&
		   has(t, "\"name\":\"device\",\"pid\":5000002,"),
	   "chrome: no process gets the number of another");
	ok(has(t, "{\"name\":\"rank 0 python (CPU)\"}") &&
		   has(t, "{\"name\":\"rank 1 python (CPU)\"}"),
	   "chrome: rank and labels are in the name of a process once");
	pl_buf_fini(&x.b);
}

/* ---- statistics --------------------------------------------------------------------------------
 */

/* Two ranks: a thread with nested operations, kernels, an all-reduce that rank 1 reaches late. */
static int two_ranks(struct pl_sink *s, const struct pl_merge *merge)
{
	struct maker m;
	int rc = merge ? s->merge(s, merge, &err) : 0;

	for (int rank = 0; rc >= 0 && rank < 2; rank++) {
		pl_ns late = rank ? 400 : 0;

		begin(&m, s, rank);
		event(&m, PL_K_STEP, m.thread, "ProfilerStep#7", 0, 5000);
		event(&m, PL_K_HOST_OP, m.thread, "outer", 100, 100);
		event(&m, PL_K_HOST_OP, m.thread, "inner", 110, 30);
		event(&m, PL_K_RUNTIME, m.thread, "launch", 150, 20);
		value(&m, PL_R_CORR, PL_V_INT, "correlation", 1);
		event(&m, PL_K_KERNEL, m.stream, "gemm", 1000, 1000);
		value(&m, PL_R_CORR, PL_V_INT, "correlation", 1);
		event(&m, PL_K_COLLECTIVE, m.stream, "ncclAllReduce", 1500 + late, 2000 - late);
		value(&m, PL_R_COLL, PL_V_STR, NULL, str(&m, "allreduce"));
		value(&m, PL_R_BYTES, PL_V_INT, "bytes", 1600000);
		event(&m, PL_K_COPY, m.stream, "Memcpy HtoD", 4000, 500);
		value(&m, PL_R_BYTES, PL_V_INT, "bytes", 1000);
		event(&m, PL_K_STEP, m.thread, "ProfilerStep#8", 6000, 1000);
		event(&m, PL_K_KERNEL, m.stream, "tail", 6500, 100);
		rc = end(&m);
	}
	return rc;
}

static void test_stat(void)
{
	struct export x;
	const char *t;

	ok(two_ranks(open_export(&x, "stat-json"), NULL) >= 0, "stat-json: two ranks");
	t = close_export(&x);
	ok(has(t, "\"schema\":\"paceline.stat/1\"") && has(t, "\"events\":18"),
	   "stat-json: schema");
	ok(has(t, "{\"name\":\"outer\",\"kind\":\"host_op\",\"count\":2,\"self_ns\":100,"),
	   "stat: self time is less the children's");
	ok(has(t, "{\"name\":\"inner\",\"kind\":\"host_op\",\"count\":2,\"self_ns\":60,"),
	   "stat: self time of a leaf");
	ok(has(t, "{\"name\":\"launch\",\"count\":2,\"total_ns\":40,"), "stat: runtime calls");
	ok(has(t, "{\"rank\":0,\"on\":\"device\",\"span_ns\":7000,\"busy_ns\":3100,"),
	   "stat: the union of overlapping spans is busy");
	ok(has(t, "\"compute_ns\":1100,\"comm_ns\":2000,\"comm_exposed_ns\":1500,"
		  "\"comm_overlapped_ns\":500,\"copy_ns\":500}"),
	   "stat: exposed and overlapped communication");
	ok(has(t, "{\"step\":7,\"count\":2,\"mean_ns\":5000,"), "stat: steps by their names");
	ok(has(t, "\"bytes\":2000,\"gb_per_s\":2,"), "stat: bandwidth of copies");
	ok(has(t, "{\"collective\":\"allreduce\",\"size_bytes\":1600000,\"group_size\":2,\"count\":"
		  "2,") &&
		   has(t, "\"time\":\"recorded\""),
	   "stat: without a merge the recorded durations");
	pl_buf_fini(&x.b);
	ok(two_ranks(open_export(&x, "stat"), NULL) >= 0 && has(close_export(&x), "allreduce"),
	   "stat: as text");
	pl_buf_fini(&x.b);
}

static struct pl_clock clocks[2] = { { .ref_ns = 0 }, { .offset_ns = 100 } };
static struct pl_clock_use uses[2] = { { 0, 0, 0 }, { 1, 1, 1 } };
static uint32_t members_of[2] = { 0, 1 };
static struct pl_group group = { (char *)(uintptr_t) "all", members_of, 2, 0 };
static struct pl_match match = { 0, 0, 2, 0 };
static struct pl_member member[2] = { { 0, 5 }, { 1, 5 } };
static const struct pl_merge merge = { .clock = clocks,
				       .use = uses,
				       .group = &group,
				       .match = &match,
				       .member = member,
				       .n_clocks = 2,
				       .n_uses = 2,
				       .n_groups = 1,
				       .n_matches = 1,
				       .n_members = 2 };

static void test_merged(void)
{
	struct export x;
	const char *t;

	ok(two_ranks(open_export(&x, "stat-json"), &merge) >= 0, "merged stat-json");
	t = close_export(&x);
	/* rank 1's clock is 100 ahead: it arrives at 1800, the last end is rank 0's at 3500 */
	ok(has(t,
	       "\"count\":1,\"total_ns\":1700,\"min_ns\":1700,\"median_ns\":1700,\"max_ns\":1700,"),
	   "merged: the transfer is the last end less the last start");
	ok(has(t, "\"time\":\"transfer\"") && has(t, "\"merged\":true"), "merged: marked");
	/* 1600000 / 1700 = 941.176 GB/s, times 2 (2 - 1) / 2 */
	ok(has(t, "\"algbw_gb_per_s\":941.17647") && has(t, "\"busbw_gb_per_s\":941.17647"),
	   "merged: bandwidth of nccl-tests");
	pl_buf_fini(&x.b);
	ok(two_ranks(open_export(&x, "jsonl"), &merge) >= 0, "merged jsonl");
	t = close_export(&x);
	ok(has(t, "\"segment\":1,\"event\":4,\"track\":1,\"rank\":1,\"kind\":\"kernel\",\"name\":"
		  "\"gemm\","
		  "\"start_ns\":900,\"dur_ns\":1000"),
	   "jsonl: corrected times");
	ok(has(t, "{\"type\":\"clock\",\"clock\":1,\"offset_ns\":100"), "jsonl: clocks");
	pl_buf_fini(&x.b);
}

/* ---- filters -----------------------------------------------------------------------------------
 */

static const char *filtered(struct export *x, const struct pl_filter *f, const struct pl_merge *mg)
{
	struct pl_sink *s = pl_trace_filter_open(f, open_export(x, "jsonl"), &err);
	int rc = two_ranks(s, mg);

	if (rc >= 0)
		rc = pl_trace_filter_finish(s, &err);
	pl_trace_filter_close(s);
	if (rc < 0)
		printf("# %s\n", err.msg);
	return close_export(x);
}

static int count(const char *t, const char *part)
{
	int n = 0;

	for (; (t = strstr(t, part)); t += strlen(part))
		n++;
	return n;
}

static void test_filter(void)
{
	static const int64_t rank[] = { 1, 1 };
	static const int64_t step[] = { 7, 7 };
	struct pl_filter f = { .rank = rank, .n_ranks = 1 };
	struct export x;
	const char *t = filtered(&x, &f, NULL);

	ok(count(t, "\"event\"") == 18 && !strstr(t, "\"rank\":0") && count(t, "\"segment\",") == 1,
	   "filter: one rank, and no empty segment for the other");
	pl_buf_fini(&x.b);
	f = (struct pl_filter){ .step = step, .n_steps = 1 };
	t = filtered(&x, &f, NULL);
	ok(count(t, "\"type\":\"event\"") == 14 && !strstr(t, "\"tail\"") && strstr(t, "\"gemm\""),
	   "filter: one step");
	pl_buf_fini(&x.b);
	f = (struct pl_filter){ .kind = "comm|copy" };
	t = filtered(&x, &f, NULL);
	ok(count(t, "\"type\":\"event\"") == 4 && !strstr(t, "\"100\""),
	   "filter: kinds and classes; tracks without events are left out");
	pl_buf_fini(&x.b);
	f = (struct pl_filter){ .name = "?nner" };
	t = filtered(&x, &f, NULL);
	is_i64(count(t, "\"type\":\"event\""), 2, "filter: names");
	pl_buf_fini(&x.b);
	f = (struct pl_filter){ .has_time = true, .t0 = 5500, .t1 = 6200 };
	t = filtered(&x, &f, NULL);
	ok(count(t, "\"type\":\"event\"") == 2 && strstr(t, "ProfilerStep#8"), "filter: a window");
	pl_buf_fini(&x.b);
	t = filtered(&x, &f, &merge);
	/* rank 1 begins the common time at -100: 5500..6200 of it is 5400..6100 */
	ok(count(t, "\"type\":\"event\"") == 2 && strstr(t, "\"type\":\"clock\""),
	   "filter: a window on the common clock, clocks kept");
	pl_buf_fini(&x.b);
	f = (struct pl_filter){ .name = "inner" };
	t = filtered(&x, &f, &merge);
	ok(count(t, "\"type\":\"segment\"") == 2, "filter: a merged stream keeps its segments");
	pl_buf_fini(&x.b);
}

/* ---- CSV ---------------------------------------------------------------------------------------
 */

struct csv {
	int rows;
	size_t cols;
	bool ragged;
};

static int csv_row(void *arg, const struct pl_csv_row *r, struct pl_err *e)
{
	struct csv *c = arg;

	(void)e;
	c->ragged |= c->rows++ && r->n != c->cols;
	c->cols = r->n;
	return 0;
}

static void test_csv(void)
{
	struct csv c = { 0 };
	struct export x;
	struct pl_in *in;

	convert(&x, source, strlen(source), "csv");
	in = pl_in_open_mem("x.csv", x.b.p, x.b.n, &err);
	ok(in && pl_csv_read(in, csv_row, &c, &err) == 0 && c.rows == 8 && !c.ragged &&
		   c.cols == 30,
	   "csv: a head, seven rows, 30 columns each");
	pl_in_close(in);
	pl_buf_fini(&x.b);
}

/* ---- Perfetto: read back by hand ---------------------------------------------------------------
 */

struct pb {
	const uint8_t *p, *end;
};

static uint64_t varint(struct pb *c)
{
	uint64_t v = 0;

	for (unsigned shift = 0; c->p < c->end && shift < 64; shift += 7) {
		v |= (uint64_t)(*c->p & 127) << shift;
		if (*c->p++ < 128)
			break;
	}
	return v;
}

/* The next field; its number or 0 at the end. Bytes in *sub, numbers in *v. */
static uint32_t field(struct pb *c, uint64_t *v, struct pb *sub)
{
	uint64_t tag;

	if (c->p >= c->end)
		return 0;
	tag = varint(c);
	*v = 0;
	if ((tag & 7) == 0) {
		*v = varint(c);
	} else if ((tag & 7) == 1) {
		memcpy(v, c->p, 8);
		c->p += 8;
	} else {
		uint64_t n = varint(c);

		*sub = (struct pb){ c->p, c->p + n };
		c->p += n;
	}
	return (uint32_t)(tag >> 3);
}

struct seen {
	int begins, ends, tracks, first, depth[64], unbalanced, unknown_name;
	uint64_t out[16], in[16];
	int n_out, n_in;
	bool name[64];
	uint64_t least; /* time */
};

static void read_event(struct pb c, struct seen *s)
{
	struct pb sub;
	uint64_t v, type = 0, uuid = 0, name = 0;

	for (uint32_t f; (f = field(&c, &v, &sub));) {
		if (f == 9)
			type = v;
		else if (f == 11)
			uuid = v & 63;
		else if (f == 10)
			name = v & 63;
		else if (f == 47)
			s->out[s->n_out++ & 15] = v;
		else if (f == 48)
			s->in[s->n_in++ & 15] = v;
	}
	s->begins += type == 1;
	s->ends += type == 2;
	s->unknown_name += type == 1 && !s->name[name];
	s->depth[uuid] += type == 1 ? 1 : type == 2 ? -1 : 0;
	s->unbalanced += s->depth[uuid] < 0;
}

static void read_track(struct pb c, struct seen *s)
{
	struct pb sub;
	uint64_t v;

	s->tracks++;
	for (uint32_t f; (f = field(&c, &v, &sub));)
		s->first += f == 12 && (int64_t)v < 0;
}

static void read_packet(struct pb c, struct seen *s)
{
	struct pb sub, entry;
	uint64_t v;

	for (uint32_t f; (f = field(&c, &v, &sub));) {
		if (f == 8 && v < s->least)
			s->least = v;
		if (f == 60)
			read_track(sub, s);
		if (f == 11)
			read_event(sub, s);
		if (f == 12)
			for (uint32_t g; (g = field(&sub, &v, &entry));)
				if (g == 2 && field(&entry, &v, &(struct pb){ 0 }) == 1)
					s->name[v & 63] = true;
	}
}

static struct seen read_all(const struct export *x)
{
	struct seen s = { .least = UINT64_MAX };
	struct pb c = { x->b.p, x->b.p + x->b.n }, packet;
	uint64_t v;

	while (field(&c, &v, &packet) == 1)
		read_packet(packet, &s);
	return s;
}

static void test_perfetto(void)
{
	struct export x;
	struct seen s;
	int depth = 0;

	ok(two_ranks(open_export(&x, "perfetto"), &merge) >= 0, "perfetto: two ranks");
	close_export(&x);
	s = read_all(&x);
	for (int i = 0; i < 64; i++)
		depth += s.depth[i];
	ok(s.begins == 18 && s.ends == 18 && depth == 0 && !s.unbalanced,
	   "perfetto: every slice begins and ends on its track");
	/* a rank: process of the host and its thread; process of the device, stream, second lane */
	is_i64(s.tracks, 10, "perfetto: tracks and lanes");
	is_i64(s.unknown_name, 0, "perfetto: names are known before they are used");
	ok(s.n_out == 4 && s.n_in == 2, "perfetto: launches and matched communication have arrows");
	ok(s.out[0] == s.in[0] || s.out[1] == s.in[0], "perfetto: an arrow from launch to kernel");
	pl_buf_fini(&x.b);
}

static char said[512];

static void say(void *arg, enum pl_level level, const char *text)
{
	(void)arg;
	(void)level;
	snprintf(said, sizeof(said), "%s", text);
}

/* One event at this time on the first thread, which a viewer is to draw first. */
static int one_event(struct pl_sink *s, int rank, unsigned kind, pl_ns ts)
{
	struct maker m;

	begin(&m, s, rank);
	m.seg.track[m.thread].sort = -1;
	event(&m, kind, m.thread, "x", ts, 10);
	value(&m, PL_R_VALUE, PL_V_INT, "v", 1);
	return end(&m);
}

/* Times of Perfetto are not negative, so all segments are moved by as much as the first needs. */
static void test_perfetto_times(void)
{
	static struct pl_clock ahead[2] = { { .ref_ns = 0 }, { .offset_ns = 5000000000 } };
	static const struct pl_log log = { .say = say };
	const struct pl_export_opts o = { .level = 1, .log = &log };
	struct pl_merge early = merge;
	struct export x;
	struct seen s;

	early.clock = ahead;
	ok(two_ranks(open_export(&x, "perfetto"), &early) >= 0, "perfetto: rank 1 begins earlier");
	close_export(&x);
	s = read_all(&x);
	ok(s.least == 3595000000000, "perfetto: by 5 s, in the hour before the first");
	ok(!s.first, "perfetto: no track before the others");
	pl_buf_fini(&x.b);
	for (int late = 0; late < 2; late++) {
		struct pl_sink *sink;

		open_export(&x, "perfetto");
		pl_export_abort(x.e, x.sink);
		x.sink = sink = pl_export_open(x.e, x.out, &o, &err);
		*said = '\0';
		ok(one_event(sink, 0, late ? PL_K_HOST_OP : PL_K_COUNTER, late ? 100 : -100) >= 0 &&
			   one_event(sink, 1, PL_K_HOST_OP, late ? -1000 : -40) >= 0,
		   "perfetto: a time below 0");
		close_export(&x);
		s = read_all(&x);
		ok(s.least == 0 && s.first == 1 + late, "perfetto: the first time is 0");
		ok(late ? has(said, "it begins 1.00 us before time 0") : !*said,
		   late ? "perfetto: what is still below 0 is said"
			: "perfetto: counters count for the first time");
		pl_buf_fini(&x.b);
	}
}

int main(void)
{
	test_pb();
	test_chrome();
	test_chrome_pairs();
	test_chrome_segments();
	test_chrome_again();
	test_stat();
	test_merged();
	test_filter();
	test_csv();
	test_perfetto();
	test_perfetto_times();
	return done_testing();
}
