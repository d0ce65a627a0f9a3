/*
 * Profiles of XLA: what the reader of trace.json and that of XPlane make of small profiles. Real
 * ones are in tests/golden/xla.
 */
#include "import/xla.h"
#include "io/pb.h"
#include "tap.h"

/* ---- a sink that writes rows down as lines ------------------------------------------------- */

static struct pl_buf text;
static struct pl_err err;
static struct pl_import_stats st;
static uint64_t rows_seen;
static bool ordered;

static void note_value(const struct pl_segment *seg, const struct pl_col *c, uint32_t k)
{
	if (c->role == PL_R_ARG)
		return;
	(void)!pl_buf_printf(&text, &err, " %s=", pl_trace_role_name(c->role));
	if (c->type == PL_V_STR)
		(void)!pl_buf_printf(&text, &err, "%s", pl_intern_get(&seg->str, (pl_id)c->val[k]));
	else
		(void)!pl_buf_printf(&text, &err, "%lld", (long long)c->val[k]);
}

static int on_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b, struct pl_err *e)
{
	(void)s;
	(void)e;
	ordered &= b->first == rows_seen;
	rows_seen += b->n;
	for (uint32_t r = 0; r < b->n; r++) {
		const struct pl_track *t = &seg->track[b->track[r]];

		(void)!pl_buf_printf(&text, &err, "r%d %s %s %s %lld+%lld", t->rank,
				     pl_trace_track_type_name(t->type),
				     pl_trace_kind_name(b->kind[r]),
				     pl_intern_get(&seg->str, b->name[r]),
				     (long long)b->ts[r] / 1000, (long long)b->dur[r] / 1000);
		for (uint32_t i = 0; i < b->n_cols; i++)
			for (uint32_t k = 0; k < b->col[i].n; k++)
				if (b->col[i].row[k] == r)
					note_value(seg, &b->col[i], k);
		(void)!pl_buf_printf(&text, &err, "\n");
	}
	return 0;
}

static struct pl_import_opts o;

static int import(const void *p, size_t n, const char *format)
{
	struct pl_sink sink = { .batch = on_batch };

	text.n = 0;
	rows_seen = 0;
	ordered = true;
	memset(&err, 0, sizeof(err));
	return pl_import_run(pl_in_open_mem("p", p, n, &err),
			     format ? pl_import_find(format) : NULL, &o, &sink, &st, &err);
}

static bool has(const char *what)
{
	bool found = pl_buf_put(&text, "", 1, NULL) >= 0 && strstr((const char *)text.p, what);

	text.n--;
	if (!found)
		printf("# not found: %s\n# in: %s\n", what, (const char *)text.p);
	return found;
}

/* ---- trace.json ---------------------------------------------------------------------------- */

/* {"ph":"X"...} with single quotes, so that it can be read here. */
static int import_events(const char *events)
{
	char json[8192];
	int n = snprintf(json, sizeof(json), "{'displayTimeUnit':'ns','traceEvents':[%s{}]}",
			 events);

	for (int i = 0; i < n; i++)
		if (json[i] == '\'')
			json[i] = '"';
	return import(json, (size_t)n, NULL);
}

#define PROCESS(pid, name)                                                                         \
	"{'ph':'M','pid':" pid ",'name':'process_name','args':{'name':'" name "'}},"
#define THREAD(pid, tid, name)                                                                     \
	"{'ph':'M','pid':" pid ",'tid':" tid ",'name':'thread_name','args':{'name':'" name "'}},"
#define EVENT(pid, tid, ts, dur, name, args)                                                       \
	"{'ph':'X','pid':" pid ",'tid':" tid ",'ts':" ts ",'dur':" dur ",'name':'" name            \
	"','args':{" args "}},"
#define OP(device, run, op)                                                                        \
	"'hlo_op':'" op "','hlo_module':'jit','run_id':'" run "','device_ordinal':'" device "'"

static const char cpu[] = PROCESS("1", "/host:CPU") THREAD("1", "1", "python") THREAD(
	"1", "2", "pool") EVENT("1", "1", "100", "900", "train",
				"'step_num':'5'") EVENT("1", "1", "110", "200", "load_batch", "")
	EVENT("1", "1", "320", "50", "TfrtCpuExecutable::ExecuteHelper",
	      "") EVENT("1", "1", "400", "560", "block_until_ready",
			"") EVENT("1", "1", "410", "5", "PjRtBuffer::Await",
				  "") EVENT("1", "1", "1200", "900", "train", "'step_num':'6'")
		EVENT("1", "1", "1210", "50", "TfrtCpuExecutable::ExecuteHelper",
		      "") EVENT("1", "1", "2200", "50", "$builtins print", "")
			EVENT("1", "2", "350", "400", "while.3", OP("0", "77", "while.3")) EVENT(
				"1", "2", "360", "100", "dot.1", OP("0", "77", "dot.1"))
				EVENT("1", "2", "500", "250", "fusion", OP("0", "77", "fusion"))
					EVENT("1", "2", "800", "100", "tanh", OP("0", "77", "tanh"))
						EVENT("1", "2", "800", "0.001",
						      "ThreadpoolListener::Record", "")
							EVENT("1", "2", "1300", "700", "dot.1",
							      OP("0", "78", "dot.1"));

static void cpus(void)
{
	is_i64(import_events(cpu), 0, "a profile of a CPU is read");
	ok(ordered && st.events == rows_seen, "rows are counted, added ones too");
	ok(has("step train 100+900 step=5") && has("step train 1200+900 step=6"),
	   "annotated steps, with their numbers");
	ok(has("thread data load_batch 110+200"), "loading of data");
	ok(has("thread runtime TfrtCpuExecutable::ExecuteHelper 320+50 corr=1") &&
		   has("stream kernel dot.1 360+100 corr=1") &&
		   has("stream kernel tanh 800+100 corr=1"),
	   "operations belong to the call that started them");
	ok(has("stream kernel dot.1 1300+700 corr=2"), "the next execution to the next call");
	ok(has("gpu_annotation while.3 350+400"), "an operation that contains others is a range");
	ok(has("thread wait block_until_ready 400+560") &&
		   has("runtime XLA Synchronize 400+560 corr=3") &&
		   has("sync Context Sync 400+560 corr=3"),
	   "a recorded wait for the device");
	ok(!strstr((const char *)text.p, "Synchronize 410"),
	   "what is inside a wait is no further one");
	ok(has("runtime XLA Synchronize 1260+840 corr=4"),
	   "a pause that ends after the device did is a wait");
	ok(has("other ThreadpoolListener"), "bookkeeping is no work");
}

static const char two_cpus[] = PROCESS("1", "/host:CPU") THREAD("1", "1", "python") THREAD(
	"1", "2", "a") THREAD("1", "3", "b") EVENT("1", "1", "100", "900", "train",
						   "'step_num':'0'")
	EVENT("1", "1", "200", "100", "PjRtLoadedExecutable::Execute (jit)", "") EVENT(
		"1", "2", "210", "10", "[0] PjRtLoadedExecutable::Execute (jit)",
		"'global_device_id':'4'") EVENT("1", "2", "212", "2", "ExecutePrepare",
						"") EVENT("1", "3", "220", "10",
							  "[1] PjRtLoadedExecutable::Execute (jit)",
							  "'global_device_id':'5'")
		EVENT("1", "3", "222", "2", "Handle inputs", "") EVENT(
			"1", "1", "1200", "100", "PjRtLoadedExecutable::Execute (jit)",
			"") EVENT("1", "1", "1230", "60", "Wait for LaunchOnDevice completion", "")
			EVENT("1", "3", "1220", "60", "[1] PjRtLoadedExecutable::Execute (jit)",
			      "'global_device_id':'5'") EVENT("1", "2", "1300", "50", "dot",
							      OP("0", "10", "dot"))
				EVENT("1", "3", "1310", "50", "dot",
				      OP("1", "10", "dot")) EVENT("1", "2", "300", "200",
								  "psum.2", OP("0", "9", "psum.2"))
					EVENT("1", "2", "310", "100", "Rendezvous",
					      "'name':'all reduce RendezvousKey{run_id=RunId: 9, "
					      "global_devices=[4, 5], op_id=1}'")
						EVENT("1", "3", "320", "180", "psum.2",
						      OP("1", "9", "psum.2"))
							EVENT("1", "3", "330", "90", "Rendezvous",
							      "'name':'all reduce "
							      "RendezvousKey{run_id=RunId: 9, "
							      "global_devices=[4, 5], op_id=1}'");

static void two(void)
{
	is_i64(import_events(two_cpus), 0, "a profile of two devices");
	ok(has("r4 stream collective psum.2 300+200 corr=1 seq=0 group=[4, 5] ranks=[4, 5] "
	       "coll=allreduce") &&
		   has("r5 stream collective psum.2 320+180 corr=3 seq=0 group=[4, 5]"),
	   "a rank for each device; a collective with its kind, group and number");
	ok(has("r4 thread runtime PjRtLoadedExecutable::Execute (jit) 200+100 corr=1"),
	   "the call for all devices is that of the first");
	ok(has("r4 thread annotation [0] PjRt"), "... whose own launch is a range");
	ok(has("r4 thread host_op PjRtLoadedExecutable::Execute (jit) 1200+100\n") &&
		   has("r4 thread runtime XLA call 1200+30 corr=2") &&
		   has("r4 thread wait XLA wait for the launches 1230+60 corr=4") &&
		   has("r5 thread runtime [1] PjRtLoadedExecutable::Execute (jit) 1220+60 corr=4"),
	   "a call that waits for the launches on other devices");
	ok(has("r5 thread runtime [1] PjRtLoadedExecutable::Execute (jit) 220+10 corr=3") &&
		   has("r5 thread host_op Handle inputs 222+2"),
	   "the launch for another device belongs to its rank, and what is inside");
	ok(has("r5 thread wait XLA wait for the call 100+120 corr=1"),
	   "... and waits for the call");
	ok(has("r5 thread step train 220+780 step=0"),
	   "each rank has the steps, from its launch on");
}

static const char gpu[] = PROCESS("1", "/host:CPU") THREAD("1", "1", "python") PROCESS(
	"2", "/device:GPU:0") THREAD("2", "7", "Stream #7(Compute)")
	THREAD("2", "8", "Stream #8(NCCL)") THREAD("2", "9", "XLA Ops") THREAD(
		"2", "10", "Steps") EVENT("1", "1", "100", "900", "train", "'step_num':'3'")
		EVENT("1", "1", "110", "10", "cuLaunchKernel", "'correlation_id':'41'") EVENT(
			"1", "1", "150", "700", "cuStreamSynchronize", "'correlation_id':'43'")
			EVENT("2", "7", "200", "300", "gemm_fusion",
			      "'correlation_id':'41','hlo_op':'dot.3','hlo_module':'jit'")
				EVENT("2", "7", "600", "50", "MemcpyD2H",
				      "'correlation_id':'42','memcpy_details':'kind_src:device "
				      "size:4096 dest:0'")
					EVENT("2", "8", "510", "200",
					      "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
					      "'hlo_op':'all-reduce-start.1','hlo_module':'jit'")
						EVENT("2", "9", "200", "300", "dot.3",
						      "'hlo_module':'jit'")
							EVENT("2", "10", "200", "500", "3", "");

static void gpus(void)
{
	is_i64(import_events(gpu), 0, "a profile of a GPU");
	ok(has("thread runtime cuLaunchKernel 110+10 corr=41") &&
		   has("stream kernel gemm_fusion 200+300 corr=41"),
	   "calls and kernels by their correlation");
	ok(has("thread runtime cuStreamSynchronize 150+700 corr=43"), "calls that wait");
	ok(has("stream copy MemcpyD2H 600+50 corr=42 bytes=4096"), "a copy with its size");
	ok(has("stream collective ncclDevKernel_AllReduce_Sum_f32_RING_LL 510+200 coll=allreduce"),
	   "a collective");
	ok(has("gpu_annotation dot.3 200+300"), "lines that say again what streams do are ranges");
	ok(has("step train 100+900 step=3") && has("gpu_annotation 3 200+500"),
	   "steps of the program");
	o.process = 3;
	is_i64(import_events(gpu), 0, "the third of several processes");
	ok(has("r2 stream kernel gemm_fusion") && has("r2 thread runtime cuLaunchKernel"),
	   "its device has the third rank");
	is_i64(import_events(two_cpus), 0, "one of several processes with two devices of CPUs");
	ok(has("r0 stream collective psum.2") && has("r1 stream collective psum.2"),
	   "the numbers of devices say which, and ranks follow one another");
	o.process = 0;
}

static const char tpu[] = PROCESS("1", "/host:CPU") THREAD("1", "1", "python")
	PROCESS("2", "/device:TPU:0") THREAD("2", "1", "Steps") THREAD("2", "2", "XLA Modules")
		THREAD("2", "3", "XLA Ops") THREAD("2", "4", "Async XLA Ops")
			EVENT("2", "1", "200", "500", "12", "")
				EVENT("2", "2", "200", "500", "jit(1)", "'run_id':'8'")
					EVENT("2", "3", "200", "300", "fusion.3",
					      "'flops':'1000','bytes_accessed':'64'")
						EVENT("2", "3", "500", "100", "while.1", "")
							EVENT("2", "4", "300", "200",
							      "all-gather-start.1", "");

/* A call of a function of TensorFlow, which threads of a pool compute. */
static void functions(void)
{
	static const char call[] = PROCESS("1", "/host:CPU") THREAD("1", "1", "python") THREAD(
		"1", "2", "tf_Compute/1") EVENT("1", "1", "100", "900", "train", "'step_num':'5'")
		EVENT("1", "1", "110", "880", "train_step", "'tf_function_call':'notTraced-nonXla'")
			EVENT("1", "1", "120", "860", "EagerExecute", "") EVENT(
				"1", "1", "130", "840", "EagerLocalExecute: __inference_train_9",
				"") EVENT("1", "1", "140", "820", "KernelAndDeviceFunc::Run", "")
				EVENT("1", "1", "150", "30", "FunctionRun", "")
					EVENT("1", "2", "170", "700", "MatMul", "");

	ok(import_events(call) >= 0, "a function of TensorFlow (%s)", err.msg);
	ok(has("annotation train_step 110+880") && has("annotation EagerExecute") &&
		   has("annotation KernelAndDeviceFunc::Run"),
	   "... is a range, and all that waits for it");
	ok(has("host_op FunctionRun 150+30") && has("host_op MatMul 170+700"),
	   "... what is computed inside is not");
}

static void tpus(void)
{
	is_i64(import_events(tpu), 0, "a profile of a TPU");
	ok(has("step 12 200+500 step=12"), "steps of the device, where the program has none");
	ok(has("stream kernel fusion.3 200+300 flops=1000 moved=64"), "operations with their work");
	ok(has("gpu_annotation while.1") && has("gpu_annotation jit(1)"), "ranges");
	ok(has("stream collective all-gather-start.1 300+200 coll=allgather"),
	   "asynchronous collectives");
}

static void words(void)
{
	static const struct {
		const char *op, *coll;
	} known[] = {
		{ "all-reduce", "allreduce" },
		{ "all-reduce.7", "allreduce" },
		{ "psum_invariant.4", "allreduce" },
		{ "psum_scatter.1", "reduce_scatter" },
		{ "ppermute.3", "sendrecv" },
		{ "%all-gather-start.2", "allgather" },
		{ "all-gather-done.2", NULL },
		{ "all-reduce_fusion", NULL },
		{ "sender", NULL },
		{ "fusion.3", NULL },
	};
	bool good = true;

	for (size_t i = 0; i < PL_LEN(known); i++) {
		const char *c = pl_import_xla_coll(known[i].op, strlen(known[i].op));

		good &= known[i].coll ? c && !strcmp(c, known[i].coll) : !c;
	}
	ok(good, "names of collectives");
	is_i64(pl_import_xla_class("$array.py:631 block_until_ready"), PL_XC_SYNC,
	       "a wait, also as a function of the interpreter");
	is_i64(pl_import_xla_class("$train.py:3 step"), PL_XC_PYTHON,
	       "a function of the interpreter");
	is_i64(pl_import_xla_class("TransferFromDevice"), PL_XC_SYNC, "a copy that waits");
	is_i64(pl_import_xla_class("InfeedDequeue"), PL_XC_DATA, "infeed");
}

/* ---- XPlane -------------------------------------------------------------------------------- */

static void put_name(struct pl_writer *w, uint32_t field, int64_t id, const char *name)
{
	size_t entry = pl_pb_open(w, field), value;

	pl_pb_varint(w, 1, (uint64_t)id);
	value = pl_pb_open(w, 2);
	pl_pb_varint(w, 1, (uint64_t)id);
	pl_pb_bytes(w, 2, name, strlen(name));
	pl_pb_close(w, value);
	pl_pb_close(w, entry);
}

static void put_int(struct pl_writer *w, int64_t key, int64_t v)
{
	size_t stat = pl_pb_open(w, 4);

	pl_pb_varint(w, 1, (uint64_t)key);
	pl_pb_varint(w, 4, (uint64_t)v);
	pl_pb_close(w, stat);
}

static size_t open_event(struct pl_writer *w, int64_t name, int64_t offset_us, int64_t dur_us)
{
	size_t event = pl_pb_open(w, 4);

	pl_pb_varint(w, 1, (uint64_t)name);
	pl_pb_varint(w, 2, (uint64_t)offset_us * 1000000);
	pl_pb_varint(w, 3, (uint64_t)dur_us * 1000000);
	return event;
}

/* f32[n] as a field of this number */
static void put_array(struct pl_writer *w, uint32_t field, uint64_t n)
{
	size_t shape = pl_pb_open(w, field);

	pl_pb_varint(w, 2, 11);
	pl_pb_varint(w, 3, n);
	pl_pb_close(w, shape);
}

static size_t open_instruction(struct pl_writer *w, const char *name, const char *opcode,
			       uint64_t id)
{
	size_t i = pl_pb_open(w, 2);

	pl_pb_bytes(w, 1, name, strlen(name));
	pl_pb_bytes(w, 2, opcode, strlen(opcode));
	pl_pb_varint(w, 35, id);
	return i;
}

/* ((f32[128], f32[128]), (f32[1024], f32[1024])) all-gather-start, and a reduce-scatter to f32[4]
 * of two others */
static void put_instructions(struct pl_writer *w)
{
	size_t i = open_instruction(w, "gather.1", "all-gather-start", 8), shape, part;

	shape = pl_pb_open(w, 3);
	for (uint64_t n = 128; n <= 1024; n += 1024 - 128) {
		part = pl_pb_open(w, 4);
		put_array(w, 4, n);
		put_array(w, 4, n);
		pl_pb_close(w, part);
	}
	pl_pb_close(w, shape);
	pl_pb_close(w, i);
	i = open_instruction(w, "scatter.1", "reduce-scatter", 10);
	put_array(w, 3, 4);
	pl_pb_bytes(w, 36, "\x07\x09", 2);
	pl_pb_close(w, i);
	i = open_instruction(w, "p.1", "parameter", 9);
	put_array(w, 3, 100);
	pl_pb_close(w, i);
}

/* all-reduce of f32[16,4] in program "jit(PROGRAM)", and others */
static void put_program(struct pl_writer *w, uint64_t program)
{
	size_t entry = pl_pb_open(w, 4), value, stat, hlo, module, computation, i, shape;
	char name[40];
	int n = snprintf(name, sizeof(name), "jit(%llu)", (unsigned long long)program);

	pl_pb_varint(w, 1, 1);
	value = pl_pb_open(w, 2);
	pl_pb_bytes(w, 2, name, (size_t)n);
	stat = pl_pb_open(w, 5);
	pl_pb_varint(w, 1, 1);
	hlo = pl_pb_open(w, 6);
	module = pl_pb_open(w, 1);
	computation = pl_pb_open(w, 3);
	i = open_instruction(w, "sum.1", "all-reduce", 7);
	shape = pl_pb_open(w, 3);
	pl_pb_varint(w, 2, 11);
	pl_pb_bytes(w, 3, "\x10\x04", 2);
	pl_pb_close(w, shape);
	pl_pb_close(w, i);
	put_instructions(w);
	pl_pb_close(w, computation);
	pl_pb_close(w, module);
	pl_pb_close(w, hlo);
	pl_pb_close(w, stat);
	pl_pb_close(w, value);
	pl_pb_close(w, entry);
}

/* An operation of the program, of which the event says no more than the name. */
static void put_operation(struct pl_writer *w, int64_t id, int64_t offset_us, const char *name,
			  uint64_t program)
{
	size_t event = open_event(w, id, offset_us, 100), stat;

	put_int(w, 2, 8);
	put_int(w, 3, 0);
	stat = pl_pb_open(w, 4);
	pl_pb_varint(w, 1, 6);
	pl_pb_varint(w, 3, program);
	pl_pb_close(w, stat);
	stat = pl_pb_open(w, 4);
	pl_pb_varint(w, 1, 4);
	pl_pb_bytes(w, 5, name, strlen(name));
	pl_pb_close(w, stat);
	stat = pl_pb_open(w, 4);
	pl_pb_varint(w, 1, 5);
	pl_pb_bytes(w, 5, "jit", 3);
	pl_pb_close(w, stat);
	pl_pb_close(w, event);
}

static void put_planes(struct pl_writer *w, uint64_t program)
{
	static const char *const events[] = { "train", "jit::ExecuteHelper", "sum.1", "gather.1",
					      "scatter.1" };
	static const char *const stats[] = { "step_num", "run_id",     "device_ordinal",
					     "hlo_op",	 "hlo_module", "program_id" };
	size_t plane = pl_pb_open(w, 1), line, event;

	pl_pb_bytes(w, 2, "/host:metadata", 14);
	put_name(w, 5, 1, "Hlo Proto");
	put_program(w, program);
	pl_pb_close(w, plane);
	plane = pl_pb_open(w, 1);
	pl_pb_bytes(w, 2, "/host:CPU", 9);
	line = pl_pb_open(w, 3);
	pl_pb_bytes(w, 2, "python", 6);
	pl_pb_varint(w, 3, 5000000);
	event = open_event(w, 1, 100, 900);
	put_int(w, 1, 4);
	pl_pb_close(w, event);
	pl_pb_close(w, open_event(w, 2, 200, 50));
	put_operation(w, 3, 300, "sum.1", program);
	put_operation(w, 4, 500, "gather.1", program);
	put_operation(w, 5, 700, "scatter.1", program);
	pl_pb_close(w, line);
	for (size_t i = 0; i < PL_LEN(events); i++)
		put_name(w, 4, (int64_t)i + 1, events[i]);
	for (size_t i = 0; i < PL_LEN(stats); i++)
		put_name(w, 5, (int64_t)i + 1, stats[i]);
	pl_pb_close(w, plane);
}

static void planes(void)
{
	struct pl_writer w = { 0 };
	bool fine = true;

	put_planes(&w, 2);
	is_i64(import(w.b.p, w.b.n, NULL), 0, "XPlane is recognised and read");
	ok(has("thread step train 5100+900 step=4"), "a step");
	ok(has("runtime jit::ExecuteHelper 5200+50 corr=1"), "a call");
	ok(has("stream collective sum.1 5300+100 corr=1 bytes=256 coll=allreduce"),
	   "a collective that only the program's description tells, with its size");
	ok(has("collective gather.1 5500+100 corr=1 bytes=8192 coll=allgather"),
	   "several all-gathers in one are as large as all that comes out");
	ok(has("collective scatter.1 5700+100 corr=1 bytes=656 coll=reduce_scatter"),
	   "a reduce-scatter as large as all that it takes");
	for (size_t n = 0; n < w.b.n; n++)
		fine &= import(w.b.p, n, "xplane") == 0 || err.msg[0];
	ok(fine, "cut anywhere, what is whole is read");
	pl_buf_fini(&w.b);
}

static char said[256];

static void remember(void *arg, enum pl_level level, const char *what)
{
	(void)arg;
	(void)level;
	snprintf(said, sizeof(said), "%s", what);
}

/* Errors of the profiler stand beside the planes. */
static void errors(void)
{
	const struct pl_log log = { remember, NULL };
	struct pl_writer w = { 0 };

	put_planes(&w, 2);
	pl_pb_bytes(&w, 2, "no access\nto counters", 21);
	o.log = &log;
	is_i64(import(w.b.p, w.b.n, NULL), 0, "a profile with an error of the profiler");
	o.log = NULL;
	is_str(said, "p: the profiler says: no access to counters", "... which is said");
	pl_buf_fini(&w.b);
}

/* Numbers of programs may have 64 bits. */
static void great_number(void)
{
	struct pl_writer w = { 0 };

	put_planes(&w, UINT64_MAX - 1);
	is_i64(import(w.b.p, w.b.n, NULL), 0, "a program with a great number");
	ok(has("collective sum.1 5300+100 corr=1 bytes=256 coll=allreduce"), "... is found");
	pl_buf_fini(&w.b);
}

int main(void)
{
	words();
	cpus();
	two();
	gpus();
	functions();
	tpus();
	planes();
	errors();
	great_number();
	pl_buf_fini(&text);
	return done_testing();
}
