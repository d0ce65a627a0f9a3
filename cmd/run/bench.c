/*
 * Table of pl_comm_bench(): latency and bandwidth between the ranks, by operation and size.
 *
 * Columns are those of nccl-tests. In place, as training does it, but for reduce-scatter and
 * all-to-all, whose inputs stay what they were.
 */
#include "io/table.h"
#include "program.h"

static const uint8_t all_ops[] = { PL_OP_ALLREDUCE, PL_OP_REDUCE_SCATTER, PL_OP_ALLGATHER,
				   PL_OP_BROADCAST, PL_OP_ALLTOALL,	  PL_OP_SEND };

static const struct pl_column columns[] = {
	{ "op", "op", PL_CELL_STR, 0 },
	{ "size_bytes", "size", PL_CELL_I64, 0 },
	{ "count", "count", PL_CELL_I64, 0 },
	{ "type", "type", PL_CELL_STR, 0 },
	{ "redop", "redop", PL_CELL_STR, 0 },
	{ "time_us", "time(us)", PL_CELL_REAL, 0 },
	{ "algbw_gbps", "algbw", PL_CELL_REAL, 0 },
	{ "busbw_gbps", "busbw", PL_CELL_REAL, 0 },
	{ "wrong", "#wrong", PL_CELL_I64, 0 },
};
struct bench {
	const struct config *c;
	struct pl_world *w;
	const char *asked; /* transport of the job */
	int rank, n;
	unsigned ops;	       /* bits of enum pl_coll_op */
	struct pl_table table; /* of rank 0 */
};

/* Operations before the measurement. Small operations take microseconds, so there are many of them:
 * processors must reach their full clock, and memory must be mapped. */
#define WARM_SMALL  100
#define WARM	    1
#define SMALL_BYTES (64 << 10)

static int one_size(struct bench *b, uint8_t op, size_t bytes, struct pl_err *err)
{
	bool sums = op == PL_OP_ALLREDUCE || op == PL_OP_REDUCE_SCATTER;
	struct pl_comm_bench_opts o = {
		.op = op,
		.bytes = bytes,
		.warmup = bytes <= SMALL_BYTES ? WARM_SMALL : WARM,
		.iterations = (int)b->c->iterations,
		.in_place = op != PL_OP_REDUCE_SCATTER && op != PL_OP_ALLTOALL,
	};
	struct pl_comm_bench_result r;
	int rc = pl_comm_bench(b->w, &o, &r, err);

	if (rc >= 0 && r.bytes && !b->rank)
		pl_table_row(&b->table, pl_comm_operation_name(op), (int64_t)r.bytes,
			     (int64_t)(r.bytes / sizeof(float)), "float", sums ? "sum" : "none",
			     (double)r.mean / 1e3, r.algbw, r.busbw, r.wrong);
	if (rc >= 0 && r.wrong)
		rc = pl_fail(err, PL_EINTERNAL, "%s of %zu bytes: %lld elements are wrong",
			     pl_comm_operation_name(op), r.bytes, (long long)r.wrong);
	return rc;
}

int bench_operations(const struct config *c, unsigned *ops, struct pl_err *err)
{
	unsigned known = 0;

	*ops = 0;
	for (size_t k = 0; k < PL_LEN(all_ops); k++)
		known |= 1U << all_ops[k];
	for (size_t i = 0; i < c->op.n; i++) {
		int op = pl_comm_operation_find(c->op.v[i]);

		if (op < 0 || !(known >> op & 1))
			return pl_fail(
				err, PL_EUSAGE,
				"--op: no \"%.100s\"; these are: all-reduce, reduce-scatter, "
				"all-gather, broadcast, all-to-all, send",
				c->op.v[i]);
		*ops |= 1U << op;
	}
	*ops = c->op.n ? *ops : known;
	return 0;
}

static int print(const struct bench *b, struct pl_err *err)
{
	struct pl_out *out = pl_out_open(b->c->c.output, false, err);
	struct pl_writer w;
	int rc;

	if (!out)
		return err->code;
	if (b->c->to != AS_JSON) {
		rc = pl_table_print(&b->table, out,
				    b->c->to == AS_CSV ? PL_TABLE_CSV : PL_TABLE_TEXT, NULL, err);
		goto out;
	}
	pl_write_init(&w, out, 2);
	pl_json_open(&w, '{');
	pl_json_str(&w, "schema", "paceline.comm/1");
	pl_json_int(&w, "ranks", b->n);
	pl_json_str(&w, "transport", pl_comm_world_transport(b->w));
	pl_json_str(&w, "transport_asked", b->asked);
	pl_json_key(&w, "rows");
	pl_table_json(&b->table, &w);
	pl_json_close(&w);
	rc = pl_json_end(&w, err);
out:
	return pl_out_finish(out, rc, err);
}

static int sizes(struct bench *b, struct pl_err *err)
{
	for (size_t k = 0; k < PL_LEN(all_ops); k++) {
		if (!(b->ops >> all_ops[k] & 1))
			continue;
		for (int64_t size = b->c->min_size; size <= b->c->max_size; size *= 2)
			PL_CHECK(one_size(b, all_ops[k], (size_t)size, err));
	}
	return 0;
}

int bench_comm(void *work, const struct pl_launch *p, struct pl_err *err)
{
	const struct work *k = work;
	const struct config *c = k->c;
	struct bench b = { .c = c,
			   .asked = k->job.transport,
			   .rank = p->rank,
			   .n = p->size,
			   .table = PL_TABLE(columns) };
	struct device device = { 0 };
	int rc;

	if (p->size < 2)
		return pl_fail(err, PL_EUSAGE, "--bench comm: needs two ranks or more: -n 2");
	PL_TRY(bench_operations(c, &b.ops, err));
	PL_TRY(device_open(&k->job, p, 0, &device, err));
	PL_TRY(open_world(c, p, &k->job, &device, NULL, &b.w, err));
	PL_TRY(sizes(&b, err));
	if (!p->rank)
		rc = print(&b, err);
out:
	if (rc < 0)
		pl_comm_world_abort(b.w, err->msg);
	else
		rc = pl_comm_world_close(b.w, err);
	device_close(&device);
	pl_table_fini(&b.table);
	return rc;
}
