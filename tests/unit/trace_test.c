/*
 * trace(5): what is written is what is read, whatever the batches; merges, the loader, names.
 *
 * runner: long, threads
 */
#include "trace_fixture.h"

/* ---- tests: round trips ---------------------------------------------------------------------- */

static void test_round_trip(struct recipe how, const char *what)
{
	struct pl_err err = { 0 };
	struct pl_buf one = write_stream(&how, NULL, 1), four = write_stream(&how, NULL, 4);
	struct printer want = printer(), got = printer();
	int rc;

	ok(same_text(&one, &four) && one.n, "%s: same bytes with 1 and 4 threads", what);
	if (produce(&how, &want.sink, &err) < 0)
		abort();
	rc = read_stream(&one, NULL, &got.sink, &err);
	is_i64(rc, 0, "it is read");
	if (rc < 0)
		printf("# %s\n", err.msg);
	ok(same_text(&want.text, &got.text), "%s: what is written is read", what);
	pl_buf_fini(&want.text);
	pl_buf_fini(&got.text);
	pl_buf_fini(&one);
	pl_buf_fini(&four);
}

static void test_wanted(struct recipe how)
{
	for (uint32_t i = 0; i < CASES(40); i++) {
		struct pl_err err = { 0 };
		struct pl_buf bytes = write_stream(&how, NULL, 1);
		struct printer want = printer(), got = printer();
		struct pl_trace_reader_opts o = { .roles = 0x9e3779b9u * (i + 1) | 1u << i % 20 };

		want.roles = o.roles;
		if (produce(&how, &want.sink, &err) < 0)
			abort();
		is_i64(read_stream(&bytes, &o, &got.sink, &err), 0, "read some roles");
		ok(same_text(&want.text, &got.text), "columns of other roles are left out");
		pl_buf_fini(&want.text);
		pl_buf_fini(&got.text);
		pl_buf_fini(&bytes);
	}
}

/* More columns than a block may have: every row has arguments of its own. */
static int many_columns(struct pl_sink *sink, struct pl_err *err)
{
	struct pl_segment seg;
	struct pl_batch b;
	struct pl_track t;
	pl_id id, key;
	uint32_t index;
	int rc = 0;

	if (pl_trace_segment_init(&seg, err) < 0 || pl_trace_batch_init(&b, err) < 0)
		abort();
	pl_trace_track_init(&t);
	PL_TRY(pl_trace_segment_track(&seg, &t, &id, err));
	PL_TRY(sink->begin(sink, &seg, err));
	seg.n_events = b.n = 9000;
	for (uint32_t r = 0; r < b.n; r++) {
		char name[32];

		PL_TRY(pl_intern_add(&seg.str, "x", 1, &b.name[r], err));
		for (int k = 0; k < 9; k++) {
			int n = snprintf(name, sizeof(name), "arg %u.%d", r, k);

			PL_TRY(pl_intern_add(&seg.str, name, (size_t)n, &key, err));
			PL_TRY(pl_trace_batch_col(&b, PL_R_ARG, PL_V_DEC, key, &index, err));
			PL_TRY(pl_trace_col_put(&b.col[index], r, k, 2, err));
		}
	}
	PL_TRY(sink->batch(sink, &seg, &b, err));
	PL_TRY(sink->end(sink, &seg, err));
out:
	pl_trace_batch_fini(&b);
	pl_trace_segment_fini(&seg);
	return rc;
}

static void test_many_columns(void)
{
	struct pl_err err = { 0 };
	struct pl_buf bytes = { 0 };
	struct pl_out *out = pl_out_open_buf(&bytes, &err);
	struct pl_trace_writer_opts o = { .level = 1, .provenance = "test 1: a\nb" };
	struct pl_sink *w = pl_trace_writer_open(out, &o, &err);
	struct counter c = { .sink = { .batch = count_batch } };
	struct printer p = printer();

	is_i64(many_columns(w, &err), 0, "81000 columns are written");
	is_i64(pl_trace_writer_close(w, &err), 0, "closed");
	is_i64(pl_out_close(out, &err), 0, "flushed");
	is_i64(read_stream(&bytes, NULL, &c.sink, &err), 0, "and read");
	is_i64((long long)c.events, 9000, "all events");
	is_i64((long long)c.values, 81000, "all values");
	is_i64((long long)c.batches, 2, "in two blocks that number their events");
	p.sink.batch = NULL;
	is_i64(read_stream(&bytes, NULL, &p.sink, &err), 0, "read again");
	ok(p.text.n > 15 && memmem(p.text.p, p.text.n, "test 1: a\\x0ab\n", 15),
	   "the line of history stays one line");
	pl_buf_fini(&p.text);
	pl_buf_fini(&bytes);
}

/* ---- tests: raw members ---------------------------------------------------------------------- */

struct members {
	struct pl_buf bytes;
	uint32_t merge, trace, last;
};

static int take_member(void *arg, uint32_t segment, bool merge, const void *member, size_t n,
		       struct pl_err *err)
{
	struct members *m = arg;

	m->last = segment;
	*(merge ? &m->merge : &m->trace) += 1;
	return pl_buf_put(&m->bytes, member, n, err);
}

static void test_raw(struct recipe how, const struct pl_merge *merge)
{
	struct pl_err err = { 0 };
	struct pl_buf bytes = write_stream(&how, merge, 2);
	struct members m = { .merge = 0 };
	struct pl_trace_reader_opts o = { .raw = take_member, .arg = &m };
	struct pl_sink nothing = { 0 };

	is_i64(read_stream(&bytes, &o, &nothing, &err), 0, "read with raw()");
	ok(same_text(&bytes, &m.bytes), "the members are the stream");
	ok(m.merge >= 4 && m.trace >= 4, "%u members of merges, %u of traces", m.merge, m.trace);
	is_i64(m.last, how.segments, "segments of all sorts are counted");
	pl_buf_fini(&m.bytes);
	pl_buf_fini(&bytes);
}

/* ---- tests: merge ---------------------------------------------------------------------------- */

static void test_merge(struct recipe how, bool alike)
{
	struct pl_err err = { 0 };
	struct pl_merge m;
	struct pl_buf bytes;
	struct printer want = printer(), got = printer();
	struct pl_trace t;
	int rc;

	make_merge(&m, how.segments, 150000, 1, alike);
	bytes = write_stream(&how, &m, 1);
	print_merge(&want.sink, &m, &err);
	if (produce(&how, &want.sink, &err) < 0)
		abort();
	rc = read_stream(&bytes, NULL, &got.sink, &err);
	is_i64(rc, 0, alike ? "a merge of rows that are all alike" : "a merge");
	if (rc < 0)
		printf("# %s\n", err.msg);
	ok(same_text(&want.text, &got.text), "tables and traces are the same");
	is_i64(got.merges, 1, "one merge");
	memset(&err, 0, sizeof(err));
	rc = load_stream(&bytes, NULL, &t, &err);
	if (alike) {
		is_i64(rc, 0, "it can be loaded");
		is_i64(t.n_segs, how.segments, "with all its segments");
	}
	if (rc >= 0)
		pl_trace_fini(&t);
	pl_trace_merge_fini(&m);
	pl_buf_fini(&want.text);
	pl_buf_fini(&got.text);
	pl_buf_fini(&bytes);
}

static void test_joined(void)
{
	struct recipe how = { .seed = 5, .segments = 2, .batches = 2, .rows = 90 };
	struct pl_err err = { 0 };
	struct pl_merge m;
	struct pl_buf bytes;
	struct pl_trace t;
	size_t n;

	make_merge(&m, 2, 4, 1, false);
	bytes = write_stream(&how, &m, 1);
	n = bytes.n;
	if (pl_buf_need(&bytes, n, &err) < 0 || pl_buf_put(&bytes, bytes.p, n, &err) < 0)
		abort();
	/* events 0 and 1 of each of the two segments */
	is_i64(load_stream(&bytes, NULL, &t, &err), 0, "two merged streams in a row");
	ok(t.merged && t.n_segs == 4, "four segments");
	ok(t.merge.n_clocks == 4 && t.merge.n_uses == 4 && t.merge.n_groups == 6 &&
		   t.merge.n_matches == 4 && t.merge.n_members == 8,
	   "the tables are joined");
	ok(t.merge.use[3].segment == 3 && t.merge.use[3].clock == 3, "uses count on");
	ok(t.merge.match[2].first == 4 && t.merge.match[2].group == 3, "matches count on");
	ok(t.merge.member[5].segment == 3 && t.merge.member[1].segment == 1, "members count on");
	is_i64((long long)t.seg[0]->n, (long long)t.seg[2]->n, "the halves are the same");
	pl_trace_fini(&t);
	pl_trace_merge_fini(&m);
	pl_buf_fini(&bytes);
}

static void test_absent_member(void)
{
	struct recipe how = { .seed = 6, .segments = 2, .batches = 1, .rows = 50 };
	struct pl_trace_reader_opts salvage = { .salvage = true };
	struct pl_err err = { 0 };
	struct pl_merge m;
	struct pl_buf bytes;
	struct pl_trace t;

	make_merge(&m, 2, 4, 1, false);
	m.match[0].flags = 0;
	m.member[1].event = 999999;
	bytes = write_stream(&how, &m, 1);
	is_i64(load_stream(&bytes, NULL, &t, &err), PL_EDATA, "an event that is not there");
	ok(strstr(err.msg, "mem: the merge speaks of segment 1") != NULL, "says: %s", err.msg);
	memset(&err, 0, sizeof(err));
	is_i64(load_stream(&bytes, &salvage, &t, &err), 0, "salvage leaves it out");
	ok(t.merge.n_members == 3 && t.merge.match[0].n == 1 &&
		   (t.merge.match[0].flags & PL_MATCH_MISSING) && t.merge.match[1].first == 1,
	   "and its match says so");
	pl_trace_fini(&t);
	pl_trace_merge_fini(&m);
	pl_buf_fini(&bytes);
}

/* ---- tests: the loader ----------------------------------------------------------------------- */

static int put_named(struct pl_segment *seg, struct pl_batch *b, uint8_t role, uint8_t type,
		     const char *key, uint32_t row, int64_t v, unsigned scale, struct pl_err *err)
{
	uint32_t index;
	pl_id id = PL_NONE;
	int rc = key ? pl_intern_add(&seg->str, key, strlen(key), &id, err) : 0;

	if (rc >= 0)
		rc = pl_trace_batch_col(b, role, type, id, &index, err);
	return rc < 0 ? rc : pl_trace_col_put(&b->col[index], row, v, scale, err);
}

static int64_t str(struct pl_segment *seg, const char *s)
{
	struct pl_err err = { 0 };
	pl_id id;

	return pl_intern_add(&seg->str, s, strlen(s), &id, &err) < 0 ? -1 : (int64_t)id;
}

static int small_trace(struct pl_sink *sink, struct pl_err *err)
{
	struct pl_segment s;
	struct pl_batch b;
	struct pl_track t;
	pl_id id;
	int rc = 0;

	if (pl_trace_segment_init(&s, err) < 0 || pl_trace_batch_init(&b, err) < 0)
		abort();
	pl_trace_track_init(&t);
	PL_TRY(pl_trace_segment_track(&s, &t, &id, err));
	PL_TRY(sink->begin(sink, &s, err));
	for (uint32_t k = 0; k < 3; k++) {
		pl_trace_batch_clear(&b);
		b.n = 4;
		for (uint32_t r = 0; r < b.n; r++) {
			b.kind[r] = (uint8_t)(r & 1 ? PL_K_KERNEL : PL_K_COLLECTIVE);
			b.track[r] = 0;
			b.name[r] = (pl_id)str(&s, "op");
			b.ts[r] = k * 100 + r;
			b.dur[r] = r;
		}
		s.n_events += b.n;
		if (k == 1) { /* roles that come late */
			PL_TRY(put_named(&s, &b, PL_R_STEP, PL_V_DEC, "step", 1, 30, 1, err));
			PL_TRY(put_named(&s, &b, PL_R_STEP, PL_V_DEC, "step", 2, 35, 1, err));
			PL_TRY(put_named(&s, &b, PL_R_CORR, PL_V_STR, NULL, 0, str(&s, "0x1F"), 0,
					 err));
			PL_TRY(put_named(&s, &b, PL_R_CORR, PL_V_STR, NULL, 1, str(&s, "word"), 0,
					 err));
			PL_TRY(put_named(&s, &b, PL_R_BYTES, PL_V_STR, "n", 3, str(&s, "word"), 0,
					 err));
			PL_TRY(put_named(&s, &b, PL_R_BYTES, PL_V_JSON, "n", 2, str(&s, "\"12\""),
					 0, err));
		}
		PL_TRY(put_named(&s, &b, PL_R_GROUP, PL_V_STR, "pg", 2, str(&s, "tp0"), 0, err));
		PL_TRY(put_named(&s, &b, PL_R_ARG, PL_V_INT, "stream", 3, 5, 0, err));
		PL_TRY(put_named(&s, &b, PL_R_ARG, PL_V_BOOL, "async", 0, 1, 0, err));
		PL_TRY(sink->batch(sink, &s, &b, err));
	}
	PL_TRY(sink->end(sink, &s, err));
out:
	pl_trace_batch_fini(&b);
	pl_trace_segment_fini(&s);
	return rc;
}

static struct pl_buf write_small(void)
{
	struct pl_err err = { 0 };
	struct pl_buf bytes = { 0 };
	struct pl_out *out = pl_out_open_buf(&bytes, &err);
	struct pl_trace_writer_opts o = { .level = 1 };
	struct pl_sink *w = pl_trace_writer_open(out, &o, &err);

	if (small_trace(w, &err) < 0 || pl_trace_writer_close(w, &err) < 0 ||
	    pl_out_close(out, &err) < 0)
		printf("# writing failed: %s\n", err.msg);
	return bytes;
}

static void test_load(void)
{
	struct pl_err err = { 0 };
	struct pl_buf bytes = write_small();
	struct pl_trace t;
	const struct pl_events *e;

	is_i64(load_stream(&bytes, NULL, &t, &err), 0, "a small trace is loaded");
	e = t.seg[0];
	ok(e->n == 12 && e->ts[6] == 102 && e->dur[11] == 3 && !t.merged, "plain columns");
	ok(e->step && e->step[5] == 3 && e->step[6] == INT64_MIN && e->step[0] == INT64_MIN,
	   "a step that is written 3.0; none that is 3.5");
	ok(e->corr && e->corr[4] == 31 && e->corr[5] < 0 && e->corr[5] != INT64_MIN &&
		   e->corr[11] == INT64_MIN,
	   "correlations in hexadecimal and by name");
	ok(e->bytes && e->bytes[6] == 12 && e->bytes[7] == INT64_MIN, "bytes as text");
	ok(e->group && e->group[0] == PL_NONE &&
		   !strcmp(pl_intern_get(&e->seg.str, e->group[10]), "tp0"),
	   "groups");
	ok(!e->peer && !e->coll && !e->wait_stream, "what nobody has is not there");
	ok(e->stream && e->stream[3] == 5 && e->stream[4] == INT64_MIN,
	   "an argument of a stream of version 1.0 has the role of its key");
	pl_trace_fini(&t);
	pl_buf_fini(&bytes);
}

/* A segment with the events of small_trace(), and metadata that tells of a large job. */
static int trace_with_metadata(struct pl_sink *sink, struct pl_err *err)
{
	static char groups[100000];
	struct pl_segment s;
	struct pl_batch b;
	struct pl_track t;
	pl_id id;
	int rc = 0;

	memset(groups, '7', sizeof(groups));
	if (pl_trace_segment_init(&s, err) < 0 || pl_trace_batch_init(&b, err) < 0)
		abort();
	pl_trace_track_init(&t);
	t.pid = (pl_id)str(&s, "process");
	t.tid = (pl_id)str(&s, "thread");
	PL_TRY(pl_trace_segment_track(&s, &t, &id, err));
	PL_TRY(pl_trace_segment_meta(&s, "groups", 6, groups, sizeof(groups), err));
	PL_TRY(pl_trace_segment_meta(&s, "wanted", 6, "true", 4, err));
	PL_TRY(pl_buf_put(&s.provenance, "one\ntwo\n", 8, err));
	PL_TRY(sink->begin(sink, &s, err));
	b.n = 1;
	b.kind[0] = PL_K_COLLECTIVE;
	b.track[0] = 0;
	b.name[0] = (pl_id)str(&s, "op");
	b.ts[0] = b.dur[0] = 1;
	PL_TRY(put_named(&s, &b, PL_R_GROUP, PL_V_STR, "pg", 0, str(&s, "tp0"), 0, err));
	PL_TRY(put_named(&s, &b, PL_R_ARG, PL_V_STR, "args", 0, str(&s, "word"), 0, err));
	s.n_events = 1;
	PL_TRY(sink->batch(sink, &s, &b, err));
	PL_TRY(sink->end(sink, &s, err));
out:
	pl_trace_batch_fini(&b);
	pl_trace_segment_fini(&s);
	return rc;
}

/* What a large job does not need of a segment takes no memory. */
static void test_load_less(void)
{
	const struct pl_trace_reader_opts wanted = { .metadata = (const char *const[]){ "wanted",
											NULL } };
	struct pl_err err = { 0 };
	struct pl_trace_writer_opts o = { .level = 1 };
	struct pl_buf bytes = { 0 };
	struct pl_out *out = pl_out_open_buf(&bytes, &err);
	struct pl_sink *w = pl_trace_writer_open(out, &o, &err);
	const struct pl_events *e;
	struct pl_trace t;

	if (trace_with_metadata(w, &err) < 0 || trace_with_metadata(w, &err) < 0 ||
	    pl_trace_writer_close(w, &err) < 0 || pl_out_close(out, &err) < 0)
		printf("# writing failed: %s\n", err.msg);
	is_i64(load_stream(&bytes, NULL, &t, &err), 0, "two segments with metadata are loaded");
	ok(strlen(pl_trace_segment_meta_get(&t.seg[1]->seg, "groups")) == 100000, "all of it");
	ok(t.provenance.n == 2 && !strcmp(t.provenance.str[1], "two") &&
		   !t.seg[0]->seg.provenance.n && !t.seg[1]->seg.provenance.n,
	   "equal lines of their provenance once");
	pl_trace_fini(&t);
	is_i64(load_stream(&bytes, &wanted, &t, &err), 0, "the same without most metadata");
	e = t.seg[1];
	is_str(pl_trace_segment_meta_get(&e->seg, "wanted"), "true", "what is wanted is there");
	is_str(pl_trace_segment_meta_get(&e->seg, "groups"), NULL, "the rest is not");
	ok(e->seg.str.arena.total < 200, "nor its memory");
	is_str(pl_intern_get(&e->seg.str, e->name[0]), "op", "names stay");
	is_str(pl_intern_get(&e->seg.str, e->group[0]), "tp0", "texts of columns stay");
	is_str(pl_intern_get(&e->seg.str, e->seg.track[0].tid), "thread", "so do tracks");
	is_i64(pl_intern_find(&e->seg.str, "word", 4), PL_NONE, "texts of no column do not");
	pl_trace_fini(&t);
	pl_buf_fini(&bytes);
}

static int stop_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		      struct pl_err *err)
{
	(void)s;
	(void)seg;
	(void)b;
	(void)err;
	return PL_ESTOP;
}

static void test_odds(void)
{
	struct recipe how = { .seed = 1, .segments = 1, .batches = 1, .rows = 9 };
	struct recipe none = { .seed = 1 }, plain = { .seed = 2, .segments = 2 };
	struct pl_err err = { 0 };
	struct pl_sink stop = { .batch = stop_batch };
	struct pl_buf bytes = write_stream(&how, NULL, 1);
	struct printer p = printer();

	is_i64(read_stream(&bytes, NULL, &stop, &err), PL_ESTOP, "a sink may stop");
	pl_buf_fini(&bytes);
	bytes = write_stream(&none, NULL, 1);
	is_i64(read_stream(&bytes, NULL, &p.sink, &err), 0, "a stream of nothing");
	is_i64(p.begun, 0, "has no segment");
	pl_buf_fini(&bytes);
	bytes = write_stream(&plain, NULL, 1);
	is_i64(read_stream(&bytes, NULL, &p.sink, &err), 0, "segments without events");
	is_i64(p.begun, 2, "are still segments");
	pl_buf_fini(&bytes);
	pl_buf_fini(&p.text);
}

/* ---- tests: names ---------------------------------------------------------------------------- */

static void test_collectives(void)
{
	static const char *const cases[][2] = {
		{ "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "allreduce" },
		{ "ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce" },
		{ "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
		  "allreduce" },
		{ "void AllReduceKernel<256, 8, FuncSum<float>, float>(KernelArgs<float>)",
		  "allreduce" },
		{ "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "sendrecv" },
		{ "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
		  "reduce_scatter" },
		{ "ncclDevKernel_AllGather_RING_LL", "allgather" },
		{ "ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce" },
		{ "ncclDevKernel_Broadcast_RING_LL", "broadcast" },
		{ "ncclSymkDevKernel_AllGather_LL", "allgather" },
		{ "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "collective" },
		{ "NCCLAllReduce", "allreduce" },
		{ "nccl:all_reduce", "allreduce" },
		{ "nccl:_all_gather_base", "allgather" },
		{ "nccl:reduce_scatter_tensor_coalesced", "reduce_scatter" },
		{ "nccl:all_to_all", "alltoall" },
		{ "nccl:send 0->1", "send" },
		{ "nccl:recv 1<-0", "recv" },
		{ "nccl:coalesced", "collective" },
		{ "gloo:all_reduce", "allreduce" },
		{ "gloo:broadcast", "broadcast" },
		{ "gloo:barrier", "barrier" },
		{ "c10d::allreduce_", "allreduce" },
		{ "c10d::_reduce_scatter_base_", "reduce_scatter" },
		{ "c10d::alltoall_base_", "alltoall" },
		{ "c10d::recv_any_source_", "recv" },
		{ "c10d::monitored_barrier_", "barrier" },
		{ "c10d::gather_", "gather" },
		{ "c10d::scatter_", "scatter" },
		{ "_c10d_functional::all_gather_into_tensor", "allgather" },
		{ "MPI_Iallreduce", "allreduce" },
		{ "MPI_Isend", "send" },
		{ "MPI_Sendrecv", "sendrecv" },
		{ "MPI_Bcast", "broadcast" },
		{ "MPI_Alltoallv", "alltoall" },
		{ "MPI_Reduce_scatter_block", "reduce_scatter" },
		{ "HcclAllGather", "allgather" },
		{ "grads-reduce-scatter", "reduce_scatter" },
		{ "params-all-gather", "allgather" },
		{ "embedding-grads-all-reduce", "allreduce" },
		{ "forward-send", "send" },
		{ "backward-recv", "recv" },
		{ "all-reduce-start.1", "allreduce" },
		{ "psum_invariant.42", "allreduce" },
		{ "psum_scatter.1", "reduce_scatter" },
		{ "ppermute.3", "sendrecv" },
		{ "void vllm::cross_device_reduce_2stage<__half, 8>(RankData*)", "allreduce" },
		{ "aten::gather", NULL },
		{ "aten::scatter_add_", NULL },
		{ "aten::broadcast_to", NULL },
		{ "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >", NULL },
		{ "void at::native::vectorized_gather_kernel<16, long>(char*, char*)", NULL },
		{ "void block_all_reduce_sum_f32<256>(float*, float*)", NULL },
		{ "torch.distributed.ddp.reducer::copy_bucket_to_view", NULL },
		{ "_c10d_functional::wait_tensor", NULL },
		{ "fsdp::all_gather_copy_in", NULL },
		{ "record_param_comms", NULL },
		{ "ncclGroupEnd", NULL },
		{ "forward-compute", NULL },
		{ "optimizer-clip-main-grad", NULL },
		{ "scatter-plot", NULL },
		{ "Memcpy HtoD (Pageable -> Device)", NULL },
		{ "cudaLaunchKernel", NULL },
		{ "reduce.5", NULL },
		{ "", NULL },
	};

	for (size_t i = 0; i < PL_LEN(cases); i++)
		is_str(pl_trace_coll_from_name(cases[i][0], strlen(cases[i][0])), cases[i][1],
		       cases[i][0]);
}

static void test_dims(void)
{
	char text[16];

	is_i64((int64_t)pl_trace_dims_text("[[800], [7]]", false, text, sizeof(text)), 11, "sizes");
	is_str(text, "[[800],[7]]", "without blanks");
	pl_trace_dims_text("[[[800], [7]], [], []]", true, text, sizeof(text));
	is_str(text, "[[800],[7]]", "the first argument, a list");
	pl_trace_dims_text("[[800, 7], [3]]", true, text, sizeof(text));
	is_str(text, "[800,7]", "the first argument, a tensor");
	pl_trace_dims_text("[[], [3]]", true, text, sizeof(text));
	is_str(text, "[]", "the first argument, a number");
	pl_trace_dims_text("[[[1000000], [1000000]]]", true, text, sizeof(text));
	is_str(text, "[[1000000],[100", "cut");
	is_i64((int64_t)pl_trace_dims_text("]", true, text, sizeof(text)), 0, "no list at all");
}

static void test_registries(void)
{
	bool all = true;

	for (unsigned k = 0; k < PL_K_COUNT_; k++)
		all &= pl_trace_kind_find(pl_trace_kind_name(k), strlen(pl_trace_kind_name(k))) ==
		       (int)k;
	ok(all, "every kind is found by its name");
	is_i64(pl_trace_kind_find("kind-37", 7), 37, "one that is not listed by its number");
	is_i64(pl_trace_kind_find("kind-256", 8), -1, "but none above 255");
	is_i64(pl_trace_kind_find("kernels", 7), -1, "or of another name");
	is_str(pl_trace_kind_name(37), "unknown", "kind 37 has no name");
	is_str(pl_trace_track_type_name(PL_T_STREAM), "stream", "type of a track");
	is_str(pl_trace_role_name(PL_R_CHANNEL), "channel", "role");
}

static void test_segment_helpers(void)
{
	struct pl_err err = { 0 };
	struct pl_segment s;
	struct pl_batch b;
	uint32_t i = 0, k = 0;
	int rc = pl_trace_segment_init(&s, &err);

	if (rc >= 0)
		rc = pl_trace_segment_meta(&s, "a", 1, "1", 1, &err);
	if (rc >= 0)
		rc = pl_trace_segment_meta(&s, "a", 1, "\"2\"", 3, &err);
	is_i64(rc, 0, "metadata");
	is_str(pl_trace_segment_meta_get(&s, "a"), "\"2\"", "the last value of a key holds");
	is_str(pl_trace_segment_meta_get(&s, "b"), NULL, "no such key");
	pl_trace_segment_fini(&s);
	rc = pl_trace_batch_init(&b, &err);
	for (pl_id key = 0; key < 5000 && rc >= 0; key++) {
		rc = pl_trace_batch_col(&b, PL_R_ARG, (uint8_t)(key % PL_V_COUNT_), key, &i, &err);
		if (rc >= 0)
			rc = pl_trace_col_put(&b.col[i], 0, key, 3, &err);
	}
	is_i64(rc, 0, "5000 columns");
	rc = pl_trace_batch_col(&b, PL_R_ARG, 4321 % PL_V_COUNT_, 4321, &k, &err);
	ok(rc == 0 && k == 4321 && b.col[k].val[0] == 4321, "an old one is found again");
	pl_trace_batch_fini(&b);
}

int main(void)
{
	struct recipe small = { .segments = 2, .batches = 3, .rows = 40 };
	struct recipe mid = { .seed = 11, .segments = 3, .batches = 6, .rows = 2000 };
	struct recipe full = { .seed = 12, .segments = 1, .batches = 2, .rows = PL_BATCH_ROWS };
	struct pl_merge m;

	test_dims();
	test_registries();
	test_collectives();
	test_segment_helpers();
	for (small.seed = 20; small.seed < 28; small.seed++)
		test_round_trip(small, "small");
	test_round_trip(mid, "middle");
	test_round_trip(full, "full batches");
	mid.rows = 300;
	ALONE(test_wanted(mid));
	ALONE(test_many_columns());
	make_merge(&m, 2, 8, 1, false);
	test_raw(small, &m);
	pl_trace_merge_fini(&m);
	test_merge(small, false);
	test_merge(small, true);
	test_joined();
	test_absent_member();
	test_load();
	test_load_less();
	test_odds();
	return done_testing();
}
