/*
 * device_fixture.h - what worlds do with memory of a device, whatever device it is: every
 * operation, several under way, ordered by fork and join alone; operations on memory of the host
 * between them; messages that cross.
 */
#ifndef PL_DEVICE_FIXTURE_H
#define PL_DEVICE_FIXTURE_H

#include "comm_fixture.h"
#include "tensor/backend.h"

/* ---- what should come out ---- */

static float input(int rank, size_t i, unsigned turn)
{
	return (float)((i * 7 + (size_t)rank * 13 + turn * 5) % 101) - 50.0f;
}

static bool many_src(uint8_t op)
{
	return op == PL_OP_REDUCE_SCATTER || op == PL_OP_ALLTOALL;
}

static bool many_dst(uint8_t op)
{
	return op == PL_OP_ALLGATHER || op == PL_OP_ALLTOALL;
}

static float expected(const struct pl_coll_args *a, int rank, int n, size_t i, unsigned turn)
{
	float sum = 0;
	size_t c = a->count;

	if (a->op == PL_OP_BROADCAST)
		return input(a->root, i, turn);
	if (a->op == PL_OP_ALLGATHER)
		return input((int)(i / c), i % c, turn);
	if (a->op == PL_OP_ALLTOALL)
		return input((int)(i / c), (size_t)rank * c + i % c, turn);
	if (a->op == PL_OP_REDUCE_SCATTER)
		i += (size_t)rank * c;
	for (int r = 0; r < n; r++)
		sum += input(r, i, turn);
	return sum;
}

/* ---- a rank ---- */

struct rank {
	struct pl_world *w;
	const struct pl_backend *b;
	void *ctx;
	float *host; /* of the host */
	size_t room; /* floats in it */
	int n, me;
};

static int open_rank(struct pl_world_opts *o, const struct pl_backend *b, struct rank *r,
		     struct pl_err *err)
{
	struct pl_backend_opts d = { .threads = 1, .device = -1, .local_rank = o->rank };
	char text[16];
	int rc;

	snprintf(text, sizeof(text), "%d", o->rank);
	setenv("PACELINE_TEST_RANK", text, 1);
	*r = (struct rank){ .b = b, .n = o->size, .me = o->rank, .room = 400000 };
	r->host = malloc(r->room * sizeof(float));
	rc = r->b->open(&d, &r->ctx, err);
	o->backend = r->b;
	o->backend_ctx = r->ctx;
	if (rc == 0)
		rc = pl_comm_world_open(o, &r->w, err);
	return rc;
}

static int close_rank(struct rank *r, struct pl_err *err)
{
	int rc = pl_comm_world_close(r->w, err);

	r->b->close(r->ctx);
	free(r->host);
	return rc;
}

/* An operation on its way, and a copy of its result made behind it. */
struct trip {
	struct pl_coll_args a;
	struct pl_work *work;
	float *src, *dst, *copy;
	size_t n_src, n_dst;
	unsigned turn;
};

/* Writes the input in the first queue, with a few things before it that take their time. */
static void load(struct rank *r, struct trip *t)
{
	for (size_t i = 0; i < t->n_dst; i++)
		r->host[i] = -12345;
	r->b->put(r->ctx, t->dst, r->host, t->n_dst * sizeof(float));
	for (int i = 0; i < 3; i++)
		r->b->copy(r->ctx, t->copy, t->dst, t->n_dst * sizeof(float));
	for (size_t i = 0; i < t->n_src; i++)
		r->host[i] = input(r->me, i, t->turn);
	r->b->put(r->ctx, t->src, r->host, t->n_src * sizeof(float));
	t->a.src = t->a.op == PL_OP_BROADCAST && r->me != t->a.root ? NULL : t->src;
	t->a.dst = t->dst;
}

static bool prepare(struct rank *r, struct trip *t, uint8_t op, size_t count, bool in_place,
		    unsigned turn)
{
	size_t n = (size_t)r->n;

	*t = (struct trip){ .a = { .op = op, .count = count }, .turn = turn };
	t->a.parts = turn % 3 == 2 ? 3 : 0;
	t->a.root = (int)turn % r->n;
	t->n_src = count * (many_src(op) ? n : 1);
	t->n_dst = count * (many_dst(op) ? n : 1);
	t->copy = r->b->alloc(r->ctx, t->n_dst * sizeof(float));
	t->src = r->b->alloc(r->ctx, t->n_src * sizeof(float));
	t->dst = t->src;
	if (!in_place)
		t->dst = r->b->alloc(r->ctx, t->n_dst * sizeof(float));
	else if (op == PL_OP_REDUCE_SCATTER && t->src)
		t->dst = t->src + (size_t)r->me * count;
	else if (op == PL_OP_ALLGATHER)
		t->dst = r->b->alloc(r->ctx, t->n_dst * sizeof(float)),
		t->src = t->dst ? t->dst + (size_t)r->me * count : NULL;
	return t->copy && t->src && t->dst && t->n_src <= r->room && t->n_dst <= r->room;
}

static bool check(struct rank *r, const struct trip *t)
{
	r->b->get(r->ctx, r->host, t->copy, t->n_dst * sizeof(float));
	for (size_t i = 0; i < t->n_dst; i++)
		if (r->host[i] != expected(&t->a, r->me, r->n, i, t->turn)) {
			printf("# rank %d of %d: %s of %zu: [%zu] is %g, not %g\n", r->me, r->n,
			       pl_comm_operation_name(t->a.op), t->a.count, i, (double)r->host[i],
			       (double)expected(&t->a, r->me, r->n, i, t->turn));
			return false;
		}
	return true;
}

/* Several of several kinds under way; each result is copied, then spoilt, in the first queue. */
static int overlap(struct pl_world_opts *o, struct rank *r, size_t count)
{
	static const uint8_t op[] = { PL_OP_ALLREDUCE, PL_OP_REDUCE_SCATTER, PL_OP_ALLGATHER,
				      PL_OP_BROADCAST, PL_OP_ALLTOALL };
	enum { N = 10 };
	struct trip t[N];
	struct pl_err e = { 0 };

	for (unsigned i = 0; i < N; i++) {
		NEED(prepare(r, &t[i], op[i % 5], count + i, i >= 5, i));
		load(r, &t[i]);
		NEED(pl_comm_world_begin(r->w, &t[i].a, &t[i].work, &e) == 0);
	}
	for (int i = 0; i < N; i++) {
		NEED(pl_comm_work_wait(t[i].work, &e) == 0);
		r->b->copy(r->ctx, t[i].copy, t[i].dst, t[i].n_dst * sizeof(float));
		r->b->zero(r->ctx, t[i].dst, t[i].n_dst * sizeof(float));
	}
	NEED(pl_comm_world_settle(r->w, &e) == 0);
	for (int i = 0; i < N; i++)
		NEED(check(r, &t[i]));
	return 0;
}

/* On memory of the host, with some of the device's under way. */
static int on_host(struct pl_world_opts *o, struct rank *r)
{
	static const uint8_t op[] = { PL_OP_ALLREDUCE, PL_OP_ALLGATHER, PL_OP_BROADCAST,
				      PL_OP_ALLTOALL };
	struct pl_err e = { 0 };
	struct trip t;

	for (unsigned turn = 0; turn < 8; turn++) {
		struct pl_coll_args a = { .op = op[turn % 4], .count = 5 + 3000 * (turn / 4) };
		float *p = r->host + 100000;

		NEED(prepare(r, &t, PL_OP_ALLREDUCE, 777, true, turn));
		load(r, &t);
		NEED(pl_comm_world_begin(r->w, &t.a, &t.work, &e) == 0);
		for (size_t i = 0; i < a.count * (many_src(a.op) ? (size_t)o->size : 1); i++)
			p[i] = input(o->rank, i, turn);
		a.src = p;
		a.dst = a.op == PL_OP_ALLGATHER ? p + 50000 : p;
		a.on_host = true;
		NEED(pl_comm_world_do(r->w, &a, &e) == 0);
		for (size_t i = 0; i < a.count * (many_dst(a.op) ? (size_t)o->size : 1); i++)
			NEED(((float *)a.dst)[i] == expected(&a, o->rank, o->size, i, turn));
		NEED(pl_comm_world_do(r->w, &(struct pl_coll_args){ .op = PL_OP_BARRIER }, &e) ==
		     0);
		NEED(pl_comm_work_wait(t.work, &e) == 0);
		r->b->copy(r->ctx, t.copy, t.dst, t.n_dst * sizeof(float));
		NEED(check(r, &t));
	}
	return 0;
}

/* To the next and from the one before, all at once, more than any buffer holds. */
static int messages(struct pl_world_opts *o, struct rank *r, size_t count)
{
	int n = o->size, to = (o->rank + 1) % n, from = (o->rank + n - 1) % n;
	struct pl_err e = { 0 };
	struct trip s, d;

	for (unsigned turn = 0; n > 1 && turn < 3; turn++) {
		NEED(prepare(r, &s, PL_OP_BROADCAST, count, false, turn));
		NEED(prepare(r, &d, PL_OP_BROADCAST, count, false, turn));
		load(r, &s);
		load(r, &d);
		s.a = (struct pl_coll_args){
			.op = PL_OP_SEND, .count = count, .root = to, .src = s.src
		};
		d.a = (struct pl_coll_args){
			.op = PL_OP_RECV, .count = count, .root = from, .dst = d.dst
		};
		NEED(pl_comm_world_begin(r->w, &s.a, &s.work, &e) == 0);
		NEED(pl_comm_world_begin(r->w, &d.a, &d.work, &e) == 0);
		NEED(pl_comm_work_wait(d.work, &e) == 0 && pl_comm_work_wait(s.work, &e) == 0);
		r->b->copy(r->ctx, d.copy, d.dst, count * sizeof(float));
		d.a.op = PL_OP_BROADCAST;
		NEED(pl_comm_world_settle(r->w, &e) == 0);
		NEED(check(r, &d));
	}
	return 0;
}

__attribute__((unused)) static int everything(struct pl_world_opts *o, const struct pl_backend *b)
{
	bool nccl = !strcmp(o->transport, "nccl");
	struct pl_err e = { 0 };
	struct rank r;
	float *p;

	NEED(open_rank(o, b, &r, &e) == 0);
	NEED(!nccl || !strcmp(pl_comm_world_transport(r.w), "nccl"));
	p = pl_comm_world_alloc(r.w, 1000 * sizeof(float), &e);
	NEED(p);
	r.b->get(r.ctx, r.host, p, 1000 * sizeof(float));
	NEED(r.host[0] == 0 && r.host[999] == 0);
	pl_comm_world_free(r.w, p);
	for (size_t count = 1; count <= 50000; count = count * 30 + 1)
		NEED(overlap(o, &r, count) == 0);
	NEED(on_host(o, &r) == 0);
	NEED(messages(o, &r, 3) == 0 && messages(o, &r, 40000) == 0);
	NEED(overlap(o, &r, 100) == 0);
	NEED(close_rank(&r, &e) == 0);
	return 0;
}

#endif
