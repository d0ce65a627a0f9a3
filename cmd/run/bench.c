/*
 * How fast the ranks communicate: latency and bandwidth by operation and size.
 *
 * Columns are those of nccl-tests. The size of an all-reduce, a broadcast, a send is that of the
 * buffer; of the others the sum over the ranks' parts. algbw is size by time, busbw what each link
 * carries: algbw times 2(n-1)/n for all-reduce, (n-1)/n for reduce-scatter, all-gather and
 * all-to-all, 1 for the rest. The time is the mean over the iterations of the slowest rank, after
 * one round to warm up, each begun by all ranks together. Each element is checked in every size:
 * small integers, so that sums are exact. Every rank writes its whole input before each round and
 * reads its whole output behind it, but outside of the time.
 */
#include <math.h>
#include <string.h>

#include "io/table.h"
#include "program.h"

static const uint8_t all_ops[] = { PL_OP_ALLREDUCE, PL_OP_REDUCE_SCATTER, PL_OP_ALLGATHER,
				   PL_OP_BROADCAST, PL_OP_ALLTOALL,	  PL_OP_SEND };

struct bench {
	const struct config *c;
	struct pl_world *w;
	int rank, n;
	float *buf, *other;	/* (max_size / 4) each */
	struct pl_table *table; /* of rank 0 */
};

/* What rank r holds at place i before an operation. */
static float before(int r, size_t i)
{
	return (float)((i * 7 + (size_t)r * 3) % 61);
}

static float sum_of(int n, size_t i)
{
	float s = 0;

	for (int r = 0; r < n; r++)
		s += before(r, i);
	return s;
}

static void fill(const struct bench *b, size_t total)
{
	for (size_t i = 0; i < total; i++)
		b->buf[i] = before(b->rank, i);
}

/* How many elements are not what they should be. */
static int64_t wrong(const struct bench *b, uint8_t op, size_t total)
{
	size_t part = total / (size_t)b->n;
	int64_t bad = 0;

	for (size_t i = 0; i < total; i++) {
		size_t r = pl_min_size(i / (part ? part : 1), (size_t)b->n - 1),
		       own = (size_t)b->rank;
		float want = b->buf[i];

		switch (op) {
		case PL_OP_ALLREDUCE:
			want = sum_of(b->n, i);
			break;
		case PL_OP_REDUCE_SCATTER: /* the own part of the sum stands in `other` */
			if (i >= part)
				return bad;
			bad += b->other[i] != sum_of(b->n, own * part + i);
			continue;
		case PL_OP_ALLGATHER: /* parts of all, as each had its own */
			want = before((int)r, i);
			break;
		case PL_OP_ALLTOALL: /* part r of `other` is our part of rank r */
			bad += b->other[i] != before((int)r, own * part + i % part);
			continue;
		default:
			want = before(op == PL_OP_SEND && b->rank != 1 ? b->rank : 0, i);
		}
		bad += b->buf[i] != want;
	}
	return bad;
}

static int once(struct bench *b, uint8_t op, size_t total, struct pl_err *err)
{
	size_t part = total / (size_t)b->n;
	struct pl_coll_args a = { .op = op, .src = b->buf, .dst = b->buf, .count = total };

	switch (op) {
	case PL_OP_REDUCE_SCATTER:
		a.dst = b->other;
		a.count = part;
		break;
	case PL_OP_ALLGATHER:
		a.src = b->buf + (size_t)b->rank * part;
		a.count = part;
		break;
	case PL_OP_ALLTOALL:
		a.dst = b->other;
		a.count = part;
		break;
	case PL_OP_SEND:
		if (b->rank > 1)
			return 0;
		a.op = b->rank ? PL_OP_RECV : PL_OP_SEND;
		a.root = 1 - b->rank;
		break;
	default:
		break;
	}
	return pl_world_do(b->w, &a, err);
}

static double bus_factor(uint8_t op, int n)
{
	switch (op) {
	case PL_OP_ALLREDUCE:
		return 2.0 * (n - 1) / n;
	case PL_OP_REDUCE_SCATTER:
	case PL_OP_ALLGATHER:
	case PL_OP_ALLTOALL:
		return (double)(n - 1) / n;
	default:
		return 1;
	}
}

static int max_of_all(struct bench *b, double *ns, int64_t *bad, struct pl_err *err)
{
	float v[2 * 1024] = { 0 };
	struct pl_coll_args a = {
		.op = PL_OP_ALLREDUCE, .src = v, .dst = v, .count = 2 * (size_t)b->n
	};
	int rc;

	v[2 * b->rank] = (float)*ns;
	v[2 * b->rank + 1] = (float)*bad;
	rc = pl_world_do(b->w, &a, err);
	for (int r = 0; r < b->n; r++) {
		*ns = fmax(*ns, (double)v[2 * r]);
		*bad = r ? *bad + (int64_t)v[2 * r + 1] : (int64_t)v[2 * r + 1];
	}
	return rc;
}

static int one_size(struct bench *b, uint8_t op, size_t bytes, struct pl_err *err)
{
	struct pl_coll_args barrier = { .op = PL_OP_BARRIER };
	bool split = op == PL_OP_REDUCE_SCATTER || op == PL_OP_ALLGATHER || op == PL_OP_ALLTOALL;
	size_t total = bytes / sizeof(float);
	double ns = 0;
	int64_t bad = 0;
	int rc = 0;

	if (split)
		total -= total % (size_t)b->n;
	if (!total)
		return 0;
	for (int64_t i = -1; i < b->c->iterations; i++) {
		pl_ns begin;

		fill(b, total);
		PL_TRY(pl_world_do(b->w, &barrier, err));
		begin = pl_now_ns();
		PL_TRY(once(b, op, total, err));
		if (i >= 0)
			ns += (double)(pl_now_ns() - begin) / (double)b->c->iterations;
		if (i == 0 || i == b->c->iterations - 1)
			bad += wrong(b, op, total);
	}
	PL_TRY(max_of_all(b, &ns, &bad, err));
	if (b->table)
		rc = pl_table_row(b->table, err, pl_op_name(op), (int64_t)(total * sizeof(float)),
				  (int64_t)total, "float",
				  op == PL_OP_ALLREDUCE || op == PL_OP_REDUCE_SCATTER ? "sum"
										      : "none",
				  ns / 1e3, (double)total * sizeof(float) / ns,
				  (double)total * sizeof(float) / ns * bus_factor(op, b->n), bad);
	if (rc >= 0 && bad)
		rc = pl_fail(err, PL_EINTERNAL, "%s of %zu bytes: %lld elements are wrong",
			     pl_op_name(op), total * sizeof(float), (long long)bad);
out:
	return rc;
}

/* "allreduce", "all_reduce" and "all-reduce" are one. */
static bool same_op(const char *a, const char *b)
{
	for (;; a++, b++) {
		a += *a == '-' || *a == '_';
		b += *b == '-' || *b == '_';
		if (*a != *b)
			return false;
		if (!*a)
			return true;
	}
}

static bool wanted(const struct config *c, uint8_t op)
{
	for (size_t i = 0; i < c->op.n; i++)
		if (same_op(c->op.v[i], pl_op_name(op)))
			return true;
	return !c->op.n;
}

static int check_ops(const struct config *c, struct pl_err *err)
{
	for (size_t i = 0; i < c->op.n; i++) {
		bool known = false;

		for (size_t k = 0; k < PL_LEN(all_ops); k++)
			known |= same_op(c->op.v[i], pl_op_name(all_ops[k]));
		if (!known)
			return pl_fail(err, PL_EUSAGE,
				       "--op: no \"%.100s\"; these are: %s, %s, %s, %s, %s, %s",
				       c->op.v[i], pl_op_name(all_ops[0]), pl_op_name(all_ops[1]),
				       pl_op_name(all_ops[2]), pl_op_name(all_ops[3]),
				       pl_op_name(all_ops[4]), pl_op_name(all_ops[5]));
	}
	return 0;
}

static int print(const struct bench *b, struct pl_err *err)
{
	struct pl_out *out = pl_out_open(b->c->c.output, false, err);
	struct pl_jsonw w;
	int rc;

	if (!out)
		return err->code;
	if (b->c->to != AS_JSON) {
		rc = pl_table_print(b->table, out,
				    b->c->to == AS_CSV ? PL_TABLE_CSV : PL_TABLE_TEXT, NULL, err);
		goto out;
	}
	pl_jsonw_init(&w, out, 2);
	PL_TRY(pl_jsonw_open(&w, '{', err));
	PL_TRY(pl_jsonw_kstr(&w, "schema", "paceline.comm/1", err));
	PL_TRY(pl_jsonw_ki64(&w, "ranks", b->n, err));
	PL_TRY(pl_jsonw_kstr(&w, "transport", b->c->transport ? b->c->transport : "auto", err));
	PL_TRY(pl_jsonw_key(&w, "rows", err));
	PL_TRY(pl_table_json(b->table, &w, err));
	PL_TRY(pl_jsonw_close(&w, err));
	rc = pl_out_write(out, "\n", 1, err);
out:
	if (rc < 0) {
		pl_out_abort(out);
		return rc;
	}
	return pl_out_close(out, err);
}

static int make_table(struct bench *b, struct pl_err *err)
{
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

	b->table = pl_table_new(columns, PL_LEN(columns), err);
	return b->table ? 0 : err->code;
}

static int sizes(struct bench *b, struct pl_err *err)
{
	int rc = 0;

	for (size_t k = 0; k < PL_LEN(all_ops); k++) {
		if (!wanted(b->c, all_ops[k]))
			continue;
		for (int64_t size = b->c->min_size; size <= b->c->max_size; size *= 2)
			PL_TRY(one_size(b, all_ops[k], (size_t)size, err));
	}
out:
	return rc;
}

int bench_comm(void *config, const struct place *p, struct pl_err *err)
{
	struct config *c = config;
	struct bench b = { .c = c, .rank = p->rank, .n = p->size };
	struct pl_job links;
	int rc;

	pl_job_init(&links);
	if (p->size < 2)
		return pl_fail(err, PL_EUSAGE, "--bench comm: needs two ranks or more: -n 2");
	PL_TRY(check_ops(c, err));
	PL_TRY(options_of_links(c, &links, err));
	PL_TRY(meet_others(c, p, &links, NULL, &b.w, err));
	b.buf = pl_world_alloc(b.w, (size_t)c->max_size);
	b.other = pl_world_alloc(b.w, (size_t)c->max_size);
	if (!b.buf || !b.other) {
		rc = pl_fail(err, PL_ENOMEM, "out of memory (messages of %lld bytes)",
			     (long long)c->max_size);
		goto out;
	}
	if (!p->rank)
		PL_TRY(make_table(&b, err));
	PL_TRY(sizes(&b, err));
	if (!p->rank)
		rc = print(&b, err);
out:
	if (b.w && rc < 0) {
		pl_world_abort(b.w, err->msg);
	} else if (b.w) {
		pl_world_free(b.w, b.other);
		pl_world_free(b.w, b.buf);
		rc = pl_world_close(b.w, err);
	}
	pl_table_free(b.table);
	pl_job_fini(&links);
	return rc;
}
