/* Importers of the formats of other tools: records that are none, and segments that end anywhere.
 */
#include "config.h"
#include "import_fixture.h"
#include "io/pb.h"
#include "trace/chakra.h"

static const struct pl_import_opts strict = { .strict = true };

/* What a record without its time says must not become a part of the next one. */
static void rocprof(void)
{
	static const char text[] =
		"{\"rocprofiler-sdk-tool\":[{\"metadata\":{\"pid\":1},\"buffer_records\":{"
		"\"kernel_dispatch\":[{\"start_timestamp\":20,\"end_timestamp\":10,"
		"\"correlation_id\":{\"internal\":7},\"dispatch_info\":{\"kernel_id\":41}},"
		"{\"start_timestamp\":20,\"end_timestamp\":30,\"correlation_id\":{\"internal\":8},"
		"\"dispatch_info\":{\"kernel_id\":41}}],"
		"\"memory_copy\":[{\"bytes\":5,\"start_timestamp\":40},"
		"{\"start_timestamp\":50,\"end_timestamp\":60}]}}]}";

	ok(import("r.json", text, NULL) == 0 && st.bad == 2, "records of rocprof without a time");
	is_str(rows(), "kernel 'kernel 41' t0 20 10 <corr>=8\ncopy 'unknown' t0 50 10\n",
	       "they leave nothing");
}

/* What is no object is left out alone. */
static void objects(void)
{
	ok(import("d.json",
		  "[{\"name\":\"FW.a\" 1,\"ph\":\"X\",\"ts\":1,\"dur\":1}, "
		  "{\"name\":\"FW.b\",\"ph\":\"X\",\"ts\":5,\"dur\":2}, "
		  "{\"name\":\"FW.c\",\"ph\":\"X\",\"ts\":9,\"dur\":2}]",
		  NULL) == 0 &&
		   st.bad == 1 && !st.truncated,
	   "an object that is none, in one line with others");
	is_str(rows(), "kernel 'FW.b' t0 5000 2000\nkernel 'FW.c' t0 9000 2000\n",
	       "those behind it are read");
	ok(import("d.json",
		  "[\n{\"name\":\"FW.a\",\"ph\":[,\"ts\":1},\n"
		  "{\"name\":\"FW.b\",\"ph\":\"X\",\"ts\":5,\"dur\":2},\n"
		  "{\"name\":\"FW.c\",\"ph\":\"X\",\"ts\":9,\"dur\":2}\n]",
		  NULL) == 0,
	   "a bracket too many in a line");
	is_str(rows(), "kernel 'FW.b' t0 5000 2000\nkernel 'FW.c' t0 9000 2000\n",
	       "the next lines are read");
}

static void ncclprof(void)
{
	static const char text[] =
		"[{\"name\":\"AllReduce\",\"cat\":\"COLL\",\"ph\":\"b\",\"ts\":5,\"args\":"
		"{\"CommHash\":1,\"Rank\":0,\"SeqNum\":0}},"
		"{\"name\":\"KernelCh\",\"cat\":\"GPU\",\"ph\":\"b\",\"ts\":6},"
		"{\"name\":\"KernelCh\",\"cat\":\"GPU\",\"ph\":\"e\",\"ts\":0},"
		"{\"name\":\"AllReduce\",\"cat\":\"COLL\",\"ph\":\"e\",\"ts\":9}]";

	ok(import("n.json", text, NULL) == 0 && st.bad == 1 && st.events == 1 &&
		   strstr(st.first, "an event without its begin or end"),
	   "an event without its end is counted and said: %s", st.first);
	ok(import("n.json", text, &strict) == PL_EDATA, "strict: %s", err.msg);
}

static int import_corpus(const char *name, const struct pl_import_opts *o)
{
	const char *src = getenv("SRC");
	struct pl_buf file = { 0 };
	char path[4096];
	struct pl_in *in;
	int rc;

	snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/%s", src ? src : ".", name);
	in = pl_in_open(path, &err);
	rc = in ? pl_in_read_all(in, (size_t)1 << 20, &file, &err) : err.code;
	pl_in_close(in);
	if (rc >= 0)
		rc = import_bytes(name, file.p, file.n, o);
	pl_buf_fini(&file);
	return rc;
}

static unsigned times(const char *what)
{
	unsigned n = 0;

	for (const char *s = rows(); s && (s = strstr(s, what)); s++)
		n++;
	return n;
}

/* A collective with a request is three rows, and a segment may end behind each of them. */
static void segments(void)
{
	static const struct pl_import_opts small = { .max_dictionary_bytes = 1 };
	uint64_t events;

	if (!HAVE_SQLITE) {
		ok(true, "skipped: no SQLite");
		return;
	}
	is_i64(import_corpus("nsys/mpi.sqlite", &(struct pl_import_opts){ 0 }), 0, "calls of MPI");
	events = st.events;
	is_i64(import_corpus("nsys/mpi.sqlite", &small), 0, "... in many segments");
	ok(st.events == events && notes.segments > 20 && notes.ordered,
	   "have the same events, on tracks of their segments");
	ok(times("host_op 'MPI_Iallreduce' ") == 4 && times("wait 'wait' ") == 4 &&
		   times("collective 'MPI_Iallreduce' ") == 4,
	   "and their names");
}

/* ---- execution traces of Chakra ------------------------------------------------------------ */

static void put_number(struct pl_writer *m, uint32_t field, const char *name, uint64_t v)
{
	size_t attr = pl_pb_open(m, field);

	pl_pb_bytes(m, PL_CK_A_NAME, name, strlen(name));
	pl_pb_varint(m, PL_CK_A_INT64, v);
	pl_pb_close(m, attr);
}

/* A message behind its length; it is emptied. */
static void put_message(struct pl_writer *w, struct pl_writer *m)
{
	pl_pb_put(w, m->b.n);
	pl_write(w, m->b.p, m->b.n);
	m->b.n = 0;
}

static void put_node(struct pl_writer *w, struct pl_writer *m, const char *name, uint64_t rf,
		     const char *values)
{
	size_t io;

	pl_pb_varint(m, PL_CK_ID, rf);
	pl_pb_bytes(m, PL_CK_NAME, name, strlen(name));
	io = pl_pb_open(m, PL_CK_INPUTS);
	pl_pb_bytes(m, PL_CK_IO_VALUES, values, strlen(values));
	pl_pb_close(m, io);
	put_number(m, PL_CK_ATTR, "rf_id", rf);
	put_message(w, m);
}

static void chakra(void)
{
	static const char profile[] =
		"{\"schemaVersion\":1,\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":"
		"\"record_param_comms\",\"pid\":10,\"tid\":10,\"ts\":10,\"dur\":5},{\"ph\":\"X\","
		"\"cat\":\"kernel\",\"name\":\"ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)\","
		"\"pid\":0,\"tid\":7,\"ts\":12,\"dur\":1,\"args\":{\"device\":0,\"stream\":7,"
		"\"correlation\":1}},{}]}";
	struct pl_writer w = { 0 }, m = { 0 };
	struct pl_import_stats s;
	struct pl_import_opts o = { .et = pl_import_et_new(&err) };
	bool fine = true;

	put_number(&m, PL_CK_META_ATTR, "pid", 10);
	put_message(&w, &m);
	put_node(&w, &m, "aten::add", 3, "[[1, 2, 0, 7, 4, 'cpu']]");
	put_node(&w, &m, "record_param_comms(0)", 9,
		 "[[[1, 2, 0, 1024, 4, 'cuda:0']], 3, 94, 0, 'allreduce', [], [], 8]");
	put_node(&w, &m, "record_param_comms(1)", 9, "[3, 0, 0, 'wait', [], [], 1]");
	ok(pl_import_et_load(o.et, pl_in_open_mem("et", w.b.p, w.b.n, &err), &o, &s, &err) == 0 &&
		   s.events == 1 && !s.bad && !s.truncated,
	   "an execution trace of Chakra, of which communication is read");
	ok(import("a.json", profile, &o) == 0 &&
		   strstr(rows(), "<coll>='allreduce' <bytes>=4096\n"),
	   "gives its sizes");
	for (size_t n = w.b.n - 40; n < w.b.n && fine; n++)
		fine = pl_import_et_load(o.et, pl_in_open_mem("et", w.b.p, n, &err), &o, &s,
					 &err) == 0 &&
		       s.truncated && s.events == 1;
	ok(fine, "cut in its last node, what is whole is read, and the cut is said");
	pl_import_et_free(o.et);
	pl_write_fini(&w);
	pl_write_fini(&m);
}

int main(void)
{
	rocprof();
	objects();
	ncclprof();
	segments();
	chakra();
	pl_buf_fini(&notes.text);
	return done_testing();
}
