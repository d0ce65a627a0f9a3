/*
 * Every operation by every algorithm over every transport with 1 to 5 ranks and many sizes, against
 * plain sums; several at a time; in place; the same bits everywhere; events.
 *
 * runner: long, threads
 */
#include "comm_fixture.h"

#include "comm/internal.h"

#include <math.h>
#include <stdatomic.h>
#include <sys/mman.h>

struct what {
	const char *transport;
	bool shared; /* buffers from pl_comm_world_alloc() */
	bool tcp_meeting;
	int hosts;	    /* make so many out of this one */
	size_t most;	    /* elements a rank's part has at most */
	uint32_t *checksum; /* per rank, in memory of all */
};

#define PERIOD 101 /* of inputs, and so of their sums */

/* Small integers: sums are exact in any order. */
static float input(int rank, size_t i, unsigned turn)
{
	return (float)((i * 7 + (size_t)rank * 13 + turn * 5) % PERIOD) - 50.0f;
}

/* Everywhere a value that no sum gives, so that what was not written shows. */
static void spoil(float *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = 12345678.0f;
}

struct buffers {
	float *src, *dst;
	size_t room; /* floats each */
};

static size_t src_len(const struct pl_coll_args *a, int n)
{
	return a->op == PL_OP_REDUCE_SCATTER || a->op == PL_OP_ALLTOALL ? a->count * (size_t)n
									: a->count;
}

static size_t dst_len(const struct pl_coll_args *a, int n)
{
	return a->op == PL_OP_ALLGATHER || a->op == PL_OP_ALLTOALL ? a->count * (size_t)n
								   : a->count;
}

static float expected(const struct pl_coll_args *a, int rank, int n, size_t i, unsigned turn)
{
	float sum = 0;
	size_t c = a->count;

	switch (a->op) {
	case PL_OP_BROADCAST:
		return input(a->root, i, turn);
	case PL_OP_ALLGATHER:
		return input((int)(i / c), i % c, turn);
	case PL_OP_ALLTOALL:
		return input((int)(i / c), (size_t)rank * c + i % c, turn);
	case PL_OP_REDUCE_SCATTER:
		i += (size_t)rank * c;
		break;
	default:
		break;
	}
	for (int r = 0; r < n; r++)
		sum += input(r, i, turn);
	return sum;
}

static bool prepare(struct pl_coll_args *a, struct buffers *b, bool in_place, size_t shift,
		    int rank, int n, unsigned turn)
{
	float *src = b->src + shift, *dst = b->dst + shift;
	size_t ns = src_len(a, n), nd = dst_len(a, n);

	if ((ns > nd ? ns : nd) + shift + 1 > b->room)
		return false;
	spoil(b->src, ns + shift + 1);
	spoil(b->dst, nd + shift + 1);
	if (in_place && a->op == PL_OP_REDUCE_SCATTER)
		dst = src + (size_t)rank * a->count;
	else if (in_place && a->op == PL_OP_ALLGATHER)
		src = dst + (size_t)rank * a->count;
	else if (in_place)
		dst = src;
	for (size_t i = 0; i < ns; i++)
		src[i] = i < PERIOD ? input(rank, i, turn) : src[i - PERIOD];
	a->src = a->op == PL_OP_BROADCAST && rank != a->root && !in_place ? NULL : src;
	a->dst = dst;
	return true;
}

/* Is element i what it must be, if the one a period before it is? In each rank's part. */
static bool repeats(const struct pl_coll_args *a, size_t i)
{
	const float *d = a->dst;
	size_t in_part = a->op == PL_OP_ALLGATHER || a->op == PL_OP_ALLTOALL ? i % a->count : i;

	return in_part >= PERIOD && d[i] == d[i - PERIOD];
}

static bool check(const struct pl_coll_args *a, int rank, int n, unsigned turn)
{
	const float *d = a->dst;

	for (size_t i = 0; i < dst_len(a, n); i++)
		if (!repeats(a, i) && d[i] != expected(a, rank, n, i, turn)) {
			printf("# rank %d of %d: %s %s %zu: [%zu] is %g, not %g\n", rank, n,
			       pl_comm_operation_name(a->op), pl_comm_algorithm_name(a->algo),
			       a->count, i, (double)d[i], (double)expected(a, rank, n, i, turn));
			return false;
		}
	return true;
}

static int all_sizes(struct pl_world_opts *o, struct pl_world *w, struct buffers *b, uint8_t op,
		     uint8_t algo, size_t most)
{
	static const size_t count[] = { 0, 1, 2, 3, 5, 17, 1000, 1023, 4097, 20011, 70001, 262147 };
	struct pl_err e = { 0 };
	unsigned turn = 0;

	for (size_t i = 0; i < PL_LEN(count) && count[i] <= most; i++)
		for (int form = 0; form < 3; form++) {
			struct pl_coll_args a = { .op = op, .algo = algo, .count = count[i] };

			if (op == PL_OP_BROADCAST)
				a.root = (int)turn % o->size;
			a.parts = form == 2 ? 3 : 0;
			if (op == PL_OP_ALLTOALL && form == 1 && count[i] > 4097)
				continue;
			if (!prepare(&a, b, form == 1, form == 2 ? 1 : 0, o->rank, o->size, ++turn))
				continue;
			NEED(pl_comm_world_do(w, &a, &e) == 0);
			NEED(check(&a, o->rank, o->size, turn));
		}
	return 0;
}

static int pairs(struct pl_world_opts *o, struct pl_world *w, struct buffers *b)
{
	static const size_t count[] = { 0, 1, 999, 70001 };
	struct pl_err e = { 0 };
	int n = o->size, to = (o->rank + 1) % n, from = (o->rank + n - 1) % n;

	for (size_t i = 0; n > 1 && i < PL_LEN(count); i++) {
		struct pl_coll_args s = { .op = PL_OP_SEND, .root = to, .src = b->src };
		struct pl_coll_args r = { .op = PL_OP_RECV, .root = from, .dst = b->dst };
		struct pl_work *ks, *kr;

		s.count = r.count = count[i];
		for (size_t j = 0; j < count[i]; j++)
			b->src[j] = input(o->rank, j, 3);
		spoil(b->dst, count[i]);
		NEED(pl_comm_world_begin(w, &s, &ks, &e) == 0);
		NEED(pl_comm_world_begin(w, &r, &kr, &e) == 0);
		NEED(pl_comm_work_wait(kr, &e) == 0 && pl_comm_work_wait(ks, &e) == 0);
		for (size_t j = 0; j < count[i]; j++)
			NEED(b->dst[j] == input(from, j, 3));
	}
	return 0;
}

/* Several at a time, of several kinds, waited for in another order, with messages between. */
static int overlap(struct pl_world_opts *o, struct pl_world *w, struct buffers *b)
{
	enum { N = 12 };
	static const uint8_t op[4] = { PL_OP_ALLREDUCE, PL_OP_ALLGATHER, PL_OP_BROADCAST,
				       PL_OP_REDUCE_SCATTER };
	struct pl_coll_args a[N];
	struct pl_work *k[N];
	struct pl_err e = { 0 };
	size_t room = (b->room - 70100) / N;

	for (int i = 0; i < N; i++) {
		struct buffers part = { b->src + (size_t)i * room, b->dst + (size_t)i * room,
					room };
		size_t c = (size_t)(i * i * 149 + 1);

		a[i] = (struct pl_coll_args){ .op = op[i % 4],
					      .algo = (uint8_t)(i % 3 ? i % PL_CA_COUNT_ : 0),
					      .count = c < room / 6 ? c : room / 6 };
		NEED(prepare(&a[i], &part, i % 2, 0, o->rank, o->size, (unsigned)i));
		NEED(pl_comm_world_begin(w, &a[i], &k[i], &e) == 0);
		if (i == 5)
			NEED(pairs(o, w,
				   &(struct buffers){ b->src + N * room, b->dst + N * room, 0 }) ==
			     0);
	}
	for (int i = 0; i < N; i++) {
		int j = (i * 5 + o->rank) % N;

		NEED(pl_comm_work_wait(k[j], &e) == 0);
		NEED(check(&a[j], o->rank, o->size, (unsigned)j));
	}
	return 0;
}

/* Sums of anything but integers depend on their order: all ranks must have used the same. */
static int same_bits(struct pl_world_opts *o, struct pl_world *w, struct buffers *b, uint32_t *sum)
{
	struct pl_err e = { 0 };
	uint64_t seed = 77 + (uint64_t)o->rank;
	uint32_t h = 0;

	for (uint8_t algo = 0; algo < PL_CA_COUNT_; algo++)
		for (size_t c = 3; c < 30000; c = c * 10 + 7) {
			struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .algo = algo, .count = c };

			for (size_t i = 0; i < c; i++)
				b->src[i] = ldexpf((float)(pl_rng_next(&seed) >> 40),
						   (int)(pl_rng_next(&seed) % 40) - 20);
			b->src[1] = o->rank % 2 ? NAN : INFINITY;
			a.src = b->src;
			a.dst = c % 2 ? b->src : b->dst;
			NEED(pl_comm_world_do(w, &a, &e) == 0);
			h = h * 31 + (uint32_t)pl_hash(a.dst, c * sizeof(float));
		}
	sum[o->rank] = h;
	return 0;
}

static int everything(struct pl_world_opts *o, void *arg)
{
	static const uint8_t op[] = { PL_OP_ALLREDUCE, PL_OP_REDUCE_SCATTER, PL_OP_ALLGATHER,
				      PL_OP_BROADCAST, PL_OP_ALLTOALL };
	const struct what *t = arg;
	struct pl_err e = { 0 };
	struct buffers b = { .room = (t->most + 2) * 5 + 200000 };
	struct pl_world *w;
	char host[16];

	snprintf(host, sizeof(host), "host%d", t->hosts ? o->rank * t->hosts / o->size : 0);
	o->host = t->hosts ? host : NULL;
	o->transport = t->transport;
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	b.src = t->shared ? pl_comm_world_alloc(w, b.room * sizeof(float), &e)
			  : malloc(b.room * sizeof(float));
	b.dst = t->shared ? pl_comm_world_alloc(w, b.room * sizeof(float), &e)
			  : malloc(b.room * sizeof(float));
	NEED(b.src && b.dst);
	for (size_t i = 0; i < PL_LEN(op); i++)
		for (uint8_t algo = 0; algo < PL_CA_COUNT_; algo++)
			if (algo != PL_CA_AUTO || i < 5)
				NEED(all_sizes(o, w, &b, op[i], algo, t->most) == 0);
	for (int i = 0; i < 100; i++)
		NEED(pl_comm_world_do(w, &(struct pl_coll_args){ .op = PL_OP_BARRIER }, &e) == 0);
	NEED(pairs(o, w, &b) == 0);
	NEED(overlap(o, w, &b) == 0);
	NEED(same_bits(o, w, &b, t->checksum) == 0);
	if (t->shared) {
		pl_comm_world_free(w, b.src);
		pl_comm_world_free(w, b.dst);
	} else {
		free(b.src);
		free(b.dst);
	}
	NEED(pl_comm_world_close(w, &e) == 0);
	return 0;
}

static void test_everything(uint32_t *checksum)
{
	static const struct what kind[] = {
		{ .transport = "tcp", .tcp_meeting = true, .most = 262147 },
		{ .transport = "shm", .most = 70001 },
		{ .transport = "shm", .shared = true, .most = 262147 },
		{ .transport = "auto", .hosts = 2, .most = 70001 },
	};

	for (size_t i = 0; i < PL_LEN(kind); i++)
		for (int n = 1; n <= 5; n++) {
			struct what t = kind[i];
			struct pl_world_opts o = { .segment = n == 3 ? 65536 : 0,
						   .timeout_ns = 20000000000 };
			bool same = true, fine;
			double from = now_s();

			if (t.hosts && n < 3)
				continue;
			if (n > 3) /* each algorithm has its rounds; the largest sizes have been
				      there */
				t.most = 20011;
#ifdef __SANITIZE_THREAD__ /* twenty times as slow */
			t.most = 4097;
#elif defined(__SANITIZE_ADDRESS__) /* still more than one segment each (those of three ranks are  \
				       smaller) */
			t.most = n <= 2 ? 70001 : 20011;
#endif
			t.checksum = checksum;
			memset(checksum, 0, 64);
			o.meet = meeting(t.tcp_meeting);
			fine = run_ranks(n, &o, everything, &t, 40);
			ok(fine, "all operations, algorithms and sizes: %s%s, %d rank%s (%.1f s)",
			   t.transport,
			   t.shared  ? ", memory of the world"
			   : t.hosts ? ", two hosts"
				     : "",
			   n, n > 1 ? "s" : "", now_s() - from);
			for (int r = 1; r < n; r++)
				same &= checksum[r] == checksum[0];
			ok(same && checksum[0], "sums are the same bits on all ranks");
		}
}

/* ---- events ---- */

struct log {
	size_t n, sends, recvs, whole, bytes_out;
	bool fine;
	pl_ns last_send, last_recv; /* their ends */
	pl_ns over[32];		    /* end of each message so far */
};

/* Does it begin when another one was over? */
static bool follows(const struct log *l, pl_ns begin)
{
	for (size_t i = 0; i < l->sends + l->recvs && i < PL_LEN(l->over); i++)
		if (l->over[i] == begin)
			return true;
	return false;
}

static void on_event(void *arg, const struct pl_comm_event *e)
{
	struct log *l = arg;

	l->n++;
	l->fine &= e->begin > 0 && e->end >= e->begin && e->tag == 42;
	if (e->op == PL_OP_ALLREDUCE) {
		l->whole++;
		return;
	}
	l->fine &= e->collective == PL_OP_ALLREDUCE && e->peer >= 0 && e->channel == 0;
	l->over[(l->sends + l->recvs) % PL_LEN(l->over)] = e->end;
	if (e->op == PL_OP_SEND) {
		l->fine &= e->begin >= l->last_send && (!l->sends || follows(l, e->begin));
		l->sends++;
		l->bytes_out += e->bytes;
		l->last_send = e->end;
	} else {
		l->fine &= e->begin >= l->last_recv && (!l->recvs || follows(l, e->begin));
		l->recvs++;
		l->last_recv = e->end;
	}
}

static int events(struct pl_world_opts *o, void *arg)
{
	struct log l = { .fine = true };
	struct pl_err e = { 0 };
	struct pl_world *w;
	static float p[300000];
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE,
				  .algo = PL_CA_RING,
				  .count = 300000,
				  .src = p,
				  .dst = p,
				  .tag = 42 };

	(void)arg;
	o->event = on_event;
	o->event_arg = &l;
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	NEED(pl_comm_world_do(w, &a, &e) == 0);
	NEED(pl_comm_world_sent(w) == 300000 / 3 * 4 * 4);
	NEED(pl_comm_world_close(w, &e) == 0);
	/* parts of 400 kB are two pieces; two rounds each way */
	NEED(l.fine && l.whole == 1 && l.sends == 8 && l.recvs == 8 &&
	     l.bytes_out == 300000 / 3 * 4 * 4);
	return 0;
}

/* ---- what is refused ---- */

static int odd_size(struct pl_world_opts *o, void *arg)
{
	struct pl_err e = { 0 };
	struct pl_world *w;
	static float p[100000];
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .count = 5, .src = p, .dst = p };

	NEED(pl_comm_world_open(o, &w, &e) == 0);
	a.count = (o->rank ? 1 : 2) * *(const size_t *)arg;
	NEED(pl_comm_world_do(w, &a, &e) == PL_EIO && strstr(e.msg, "the same operations"));
	pl_comm_world_abort(w, "test");
	return 0;
}

/* Where the own part of another rank is. */
static int odd_place(struct pl_world_opts *o, void *arg)
{
	static const uint8_t op[] = { PL_OP_REDUCE_SCATTER, PL_OP_ALLGATHER };
	static float p[20];
	struct pl_coll_args a = { .count = 5, .src = p, .dst = p };
	struct pl_coll_args barrier = { .op = PL_OP_BARRIER };
	struct pl_err e = { 0 };
	struct pl_world *w;

	(void)arg;
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	for (int i = 0; i < 2 && o->rank; i++) {
		a.op = op[i];
		e = (struct pl_err){ 0 };
		NEED(pl_comm_world_do(w, &a, &e) == PL_EINTERNAL &&
		     strstr(e.msg, "part of rank 1"));
	}
	e = (struct pl_err){ 0 };
	NEED(pl_comm_world_do(w, &barrier, &e) == 0);
	NEED(pl_comm_world_close(w, &e) == 0);
	return 0;
}

static void test_args(void)
{
	struct pl_world_opts o = {
		.rank = 0, .size = 2, .meet = "tcp:127.0.0.1:1", .token = TOKEN
	};
	struct pl_world *w;
	struct pl_err e = { 0 };
	char deep[600] = "";
	size_t count;

	o.token = "short";
	ok(pl_comm_world_open(&o, &w, &e) == PL_EUSAGE && strstr(e.msg, "16"),
	   "short tokens are refused");
	e.code = 0;
	o.token = TOKEN;
	o.meet = "udp:x";
	ok(pl_comm_world_open(&o, &w, &e) == PL_EUSAGE && strstr(e.msg, "dir:PATH"),
	   "so are unknown meetings");
	e.code = 0;
	memset(deep, 'x', sizeof(deep) - 1);
	memcpy(deep, "dir:", 4);
	o.meet = deep;
	ok(pl_comm_world_open(&o, &w, &e) == PL_EUSAGE && strstr(e.msg, "longer than"),
	   "and names of folders that would be cut off");
	o.meet = "udp:x";
	e.code = 0;
	o.transport = "pigeon";
	ok(pl_comm_world_open(&o, &w, &e) == PL_EUSAGE && strstr(e.msg, "shm"), "and transports");
	e.code = 0;
	o.rank = 2;
	ok(pl_comm_world_open(&o, &w, &e) == PL_EUSAGE, "and ranks");
	is_i64(pl_comm_algorithm_find("halving-doubling"), PL_CA_HALVING, "names of algorithms");
	is_i64(pl_comm_operation_find("all_reduce"), PL_OP_ALLREDUCE, "names of operations");
	for (int i = 0; i < 4; i++) {
		o = (struct pl_world_opts){ .transport = i % 2 ? "shm" : "tcp" };
		o.meet = meeting(false);
		count = i < 2 ? 3 : 40000;
		ok(run_ranks(2, &o, odd_size, &count, 10),
		   "%s: ranks that disagree about %zu elements", o.transport, count);
	}
	o.meet = meeting(false);
	ok(run_ranks(2, &o, odd_place, NULL, 10), "in place, but not in the own part: refused");
}

/* Memory of the world may begin where another piece of it ends. */
static void test_neighbours(void)
{
	static uint8_t memory[3 * 4096];
	struct pl_world *w = pl_calloc(1, sizeof(*w));
	uint64_t at = 1;

	w->region[1] = (struct pl_region){ .base = memory, .stride = 4096, .bytes = 4096 };
	w->region[2] = (struct pl_region){ .base = memory + 4096, .stride = 4096, .bytes = 4096 };
	ok(pl_comm_shared_find(w, memory + 4096, 0, &at) == 2 && at == 0,
	   "a piece of memory is not the one that ends there");
	ok(pl_comm_shared_find(w, memory + 8192, 0, &at) == PL_NONE,
	   "what begins behind all of them is none");
	ok(pl_comm_shared_find(w, memory + 4095, 1, &at) == 1 && at == 4095 &&
		   pl_comm_shared_find(w, memory + 4095, 2, &at) == PL_NONE,
	   "all of it must lie in one");
	pl_free(w);
}

static int bench(struct pl_world_opts *o, void *arg)
{
	struct pl_err e = { 0 };
	struct pl_world *w;
	struct pl_comm_bench_result r;
	struct pl_comm_bench_opts b = { .bytes = 100000, .iterations = 5, .warmup = 1 };

	(void)arg;
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	for (b.op = PL_OP_SEND; b.op < PL_OP_COUNT_; b.op++) {
		if (b.op == PL_OP_RECV)
			continue; /* the other end of the send */
		NEED(pl_comm_bench(w, &b, &r, &e) == 0);
		NEED(r.wrong == 0 && r.min > 0 && r.mean >= r.min && r.p99 >= r.median);
		NEED(b.op == PL_OP_BARRIER || (r.bytes > 99000 && r.busbw > 0));
	}
	NEED(pl_comm_algo(w, PL_OP_ALLREDUCE, PL_CA_AUTO, 1 << 20) != PL_CA_AUTO);
	NEED(pl_comm_world_close(w, &e) == 0);
	return 0;
}

int main(void)
{
	void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct pl_world_opts o = { .transport = "tcp", .connections = 1 };

	test_args();
	test_neighbours();
	test_everything(shared);
	o.meet = meeting(false);
	ok(run_ranks(3, &o, events, NULL, 10), "events of pieces, and bytes sent");
	o = (struct pl_world_opts){ .transport = "shm" };
	o.meet = meeting(false);
	ok(run_ranks(3, &o, bench, NULL, 20), "the benchmark checks what it measures");
	return done_testing();
}
