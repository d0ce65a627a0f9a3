/*
 * Measuring operations.
 *
 * The definitions are those of nccl-tests (PERFORMANCE.md): time of one operation, algorithm
 * bandwidth = bytes / time, bus bandwidth = that times the least share of bytes that the busiest
 * link carries. Inputs are small integers, so every sum is exact in any order and each element is
 * checked. Ranks leave a barrier at slightly different times. So the time of a rank begins when it
 * leaves the barrier, and that of an iteration is the time of the slowest rank.
 */
#include "comm/internal.h"
#include "tensor/backend.h"

struct bench {
	struct pl_world *w;
	struct pl_coll_args a;
	float *src, *dst;
	float *host;	     /* with memory of a device: the data written to it, or read from it */
	size_t n_src, n_dst; /* floats */
	int rank, size;
	bool idle; /* only other ranks send and receive */
};

static float value(int rank, size_t i, unsigned turn)
{
	return (float)((i + (size_t)rank * 31 + turn * 17) & 127);
}

static int fill(struct bench *b, unsigned turn, struct pl_err *err)
{
	float *p = b->host ? b->host : (float *)(uintptr_t)b->a.src;
	float one[128];

	for (size_t i = 0; i < 128; i++)
		one[i] = value(b->rank, i, turn);
	for (size_t i = 0; i < b->n_src; i += 128)
		memcpy(p + i, one, pl_min_size(128, b->n_src - i) * sizeof(float));
	if (!b->host)
		return 0;
	b->w->device.b->put(b->w->device.ctx, (float *)(uintptr_t)b->a.src, p,
			    b->n_src * sizeof(float));
	return b->w->device.b->sync(b->w->device.ctx, err);
}

/* The right value of element i of the output, which has the period of the inputs. */
static float expected(const struct bench *b, size_t part, size_t i, unsigned turn)
{
	float sum = 0;

	switch (b->a.op) {
	case PL_OP_BROADCAST:
	case PL_OP_SEND:
	case PL_OP_RECV:
		return value(b->a.root, i, turn);
	case PL_OP_ALLGATHER:
		return value((int)part, i, turn);
	case PL_OP_ALLTOALL:
		return value((int)part, (size_t)b->rank * b->a.count + i, turn);
	case PL_OP_REDUCE_SCATTER:
		i += (size_t)b->rank * b->a.count;
		break;
	default:
		break;
	}
	for (int r = 0; r < b->size; r++)
		sum += value(r, i, turn);
	return sum;
}

static int64_t check(const struct bench *b, unsigned turn)
{
	size_t parts = b->a.count ? b->n_dst / b->a.count : 0;
	const float *all = b->host ? b->host : b->a.dst;
	int64_t wrong = 0;

	if (b->host)
		b->w->device.b->get(b->w->device.ctx, b->host, b->a.dst, b->n_dst * sizeof(float));
	for (size_t p = 0; p < parts; p++) {
		const float *d = all + p * b->a.count;
		float one[128];

		for (size_t i = 0; i < 128; i++)
			one[i] = expected(b, p, i, turn);
		for (size_t i = 0; i < b->a.count; i += 128) {
			size_t n = pl_min_size(128, b->a.count - i);

			if (memcmp(d + i, one, n * sizeof(float)) == 0)
				continue;
			for (size_t k = 0; k < n; k++)
				wrong += d[i + k] != one[k];
		}
	}
	return wrong;
}

/* The floats that each rank sends and receives; a message goes from rank 0 to rank 1. */
static void set_sizes(struct bench *b, size_t floats)
{
	size_t n = (size_t)b->size;
	bool many = b->a.op == PL_OP_REDUCE_SCATTER || b->a.op == PL_OP_ALLTOALL ||
		    b->a.op == PL_OP_ALLGATHER;
	struct pl_coll_extent x;

	if (b->a.op == PL_OP_SEND && b->rank == 1)
		b->a.op = PL_OP_RECV;
	b->a.root = b->a.op == PL_OP_SEND;
	b->idle = b->a.op == PL_OP_SEND && b->rank > 1;
	b->a.count = b->a.op == PL_OP_BARRIER ? 0 : many ? floats / n : floats;
	x = pl_comm_coll_extent(b->w, &b->a);
	b->n_src = x.src_n;
	b->n_dst = x.dst_n;
}

static float *get_memory(struct bench *b, bool of_world, size_t bytes, struct pl_err *err)
{
	const struct pl_world *w = b->w;
	void *p;

	if (of_world)
		return pl_comm_world_alloc(b->w, bytes, err);
	p = w->device.b ? w->device.b->alloc(w->device.ctx, bytes) : pl_malloc(bytes);
	if (!p)
		pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", bytes);
	return p;
}

static int prepare(struct bench *b, const struct pl_comm_bench_opts *o, struct pl_err *err)
{
	size_t room;

	if (o->op >= PL_OP_COUNT_ || o->op == PL_OP_RECV || o->iterations < 1 || o->warmup < 0 ||
	    (o->op == PL_OP_SEND && b->size < 2))
		return pl_fail(err, PL_EUSAGE, "nothing to measure: %d times %s of %d ranks",
			       o->iterations, pl_comm_operation_name(o->op), b->size);
	b->a = (struct pl_coll_args){ .op = o->op, .algo = o->algo };
	set_sizes(b, o->bytes / sizeof(float));
	room = ((b->n_src > b->n_dst ? b->n_src : b->n_dst) + 16) * sizeof(float);
	b->src = get_memory(b, !o->private_memory, room, err);
	if (b->src)
		b->dst = o->in_place ? b->src : get_memory(b, !o->private_memory, room, err);
	if (!b->dst)
		return err->code;
	b->host = b->w->device.b ? pl_malloc(room) : NULL;
	if (b->w->device.b && !b->host)
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", room);
	b->a.src = b->src;
	b->a.dst = b->dst;
	if (o->in_place && o->op == PL_OP_REDUCE_SCATTER)
		b->a.dst = b->src + (size_t)b->rank * b->a.count;
	if (o->in_place && o->op == PL_OP_ALLGATHER)
		b->a.src = b->src + (size_t)b->rank * b->a.count;
	return 0;
}

static void release(struct bench *b, const struct pl_comm_bench_opts *o)
{
	const struct pl_world *w = b->w;
	float *p[2] = { b->src, b->dst == b->src ? NULL : b->dst };

	for (int i = 0; i < 2; i++) {
		if (!o->private_memory)
			pl_comm_world_free(b->w, p[i]);
		else if (w->device.b && p[i])
			w->device.b->free(w->device.ctx, p[i]);
		else
			pl_free(p[i]);
	}
	pl_free(b->host);
}

static double bus_factor(uint8_t op, double n)
{
	switch (op) {
	case PL_OP_ALLREDUCE:
		return 2 * (n - 1) / n;
	case PL_OP_REDUCE_SCATTER:
	case PL_OP_ALLGATHER:
	case PL_OP_ALLTOALL:
		return (n - 1) / n;
	default:
		return 1;
	}
}

/* t: microseconds of this rank's n iterations; r: of the slowest rank's, the same on all ranks. */
static int summarise(struct bench *b, const float *t, size_t n, int64_t wrong,
		     struct pl_comm_bench_result *r, struct pl_err *err)
{
	struct pl_coll_args all = { .op = PL_OP_ALLGATHER, .src = t, .count = n, .on_host = true };
	float bad = (float)wrong, *of = NULL; /* (ranks, n) */
	int64_t *ns = NULL;
	double total = 0;
	int rc;

	PL_TRY(pl_alloc(&ns, n, sizeof(*ns), err));
	PL_TRY(pl_alloc(&of, n * (size_t)b->size, sizeof(*of), err));
	all.dst = of;
	PL_TRY(pl_comm_world_do(b->w, &all, err));
	PL_TRY(pl_comm_add_up(b->w, &bad, 1, err));
	for (size_t i = 0; i < n * (size_t)b->size; i++)
		ns[i % n] = pl_max_i64(ns[i % n], (int64_t)((double)of[i] * 1e3));
	for (size_t i = 0; i < n; i++)
		total += (double)ns[i];
	r->mean = (pl_ns)(total / (double)n);
	r->median = pl_median_i64(ns, n);
	r->p99 = pl_percentile_i64(ns, n, 99);
	r->min = pl_percentile_i64(ns, n, 0);
	r->wrong = (int64_t)bad;
	r->algbw = r->mean ? (double)r->bytes / (double)r->mean : 0;
	r->busbw = r->algbw * bus_factor(b->a.op, b->size);
out:
	pl_free(of);
	pl_free(ns);
	return rc;
}

int pl_comm_bench(struct pl_world *w, const struct pl_comm_bench_opts *o,
		  struct pl_comm_bench_result *r, struct pl_err *err)
{
	struct bench b = { .w = w, .rank = w->rank, .size = w->size };
	struct pl_coll_args barrier = { .op = PL_OP_BARRIER };
	int64_t wrong = 0;
	float *t = NULL;
	int rc;

	PL_TRY(prepare(&b, o, err));
	PL_TRY(pl_alloc(&t, (size_t)o->iterations, sizeof(*t), err));
	memset(r, 0, sizeof(*r));
	r->count = b.a.count;
	r->bytes = pl_comm_coll_bytes(w, &b.a);
	r->algo = pl_comm_algo(w, o->op, o->algo, r->bytes);
	for (int i = -o->warmup; i < o->iterations; i++) {
		pl_ns from;

		PL_TRY(fill(&b, (unsigned)(i + o->warmup), err));
		PL_TRY(pl_comm_world_do(w, &barrier, err));
		if (b.idle)
			continue;
		from = pl_now_ns();
		PL_TRY(pl_comm_world_do(w, &b.a, err));
		PL_TRY(pl_comm_world_settle(w, err));
		if (i >= 0)
			t[i] = (float)(pl_now_ns() - from) / 1e3f;
		wrong += check(&b, (unsigned)(i + o->warmup));
	}
	PL_TRY(summarise(&b, t, (size_t)o->iterations, wrong, r, err));
out:
	pl_free(t);
	release(&b, o);
	return rc;
}
