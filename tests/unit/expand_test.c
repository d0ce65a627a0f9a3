/* Collectives message by message: against analysis, a simulation step by step, and undone. */
#include <stdlib.h>

#include "cost/expand.h"
#include "tap.h"

#define MAX 80 /* ranks */

struct job {
	struct pl_graph g;
	struct pl_edit e;
	struct pl_topology t;
	struct pl_thost host[MAX];
	struct pl_tlink link[2];
	uint32_t n, meet, servers;
};

static void need(int rc)
{
	if (rc < 0)
		exit(1);
}

/* Ranks arrive at arrive[r] (NULL: all at 1000) and meet. */
static void make(struct job *j, uint32_t hosts, uint32_t m, pl_ns latency, double bandwidth,
		 const pl_ns *arrive, int64_t bytes)
{
	uint32_t n = hosts * m, cap = 2 * n + 1, edges = 3 * n;
	struct pl_err err = { 0 };
	struct pl_shape *s;
	struct pl_edit_delays none = { 0 };
	pl_id name;

	memset(j, 0, sizeof(*j));
	j->n = n;
	j->meet = n;
	for (uint32_t h = 0; h < hosts; h++)
		j->host[h] = (struct pl_thost){ "h", h * m, m };
	j->link[0] = (struct pl_tlink){ "nvlink", PL_SCOPE_HOST, false, bandwidth, latency };
	j->link[1] = (struct pl_tlink){ "nic", PL_SCOPE_NETWORK, false, bandwidth, latency };
	j->t = (struct pl_topology){
		.host = j->host, .n_hosts = hosts, .link = j->link, .n_links = 2, .n_ranks = n
	};
	pl_graph_init(&j->g);
	need(pl_intern_add(&j->g.str, "allreduce", 9, &name, &err));
	need(pl_alloc(&j->g.res, n, sizeof(*j->g.res), &err));
	need(pl_alloc(&j->g.rank, n, 4, &err));
	need(pl_alloc(&j->g.shape, 1, sizeof(*s), &err));
	need(pl_alloc(&j->g.step, 1, sizeof(*j->g.step), &err));
	j->g.n_res = n;
	j->g.n_ranks = (int32_t)n;
	j->g.n_shapes = j->g.n_steps = 1;
	s = &j->g.shape[0];
	need(pl_alloc(&s->type, cap, 1, &err));
	need(pl_alloc(&s->role, cap, 1, &err));
	need(pl_alloc(&s->kind, cap, 1, &err));
	need(pl_alloc(&s->flags, cap, 1, &err));
	need(pl_alloc(&s->res, cap, 4, &err));
	need(pl_alloc(&s->name, cap, 4, &err));
	need(pl_alloc(&s->group, cap, 4, &err));
	need(pl_alloc(&s->bytes, cap, 8, &err));
	need(pl_alloc(&s->off, cap + 1, 4, &err));
	need(pl_alloc(&s->src, edges, 4, &err));
	need(pl_alloc(&s->etype, edges, 1, &err));
	need(pl_alloc(&j->g.step[0].start, cap, 8, &err));
	need(pl_alloc(&j->g.step[0].dur, cap, 8, &err));
	need(pl_alloc(&none.w, edges, sizeof(*none.w), &err));
	need(pl_alloc(&none.lag, edges, sizeof(*none.lag), &err));
	for (uint32_t i = 0; i < cap; i++) {
		uint32_t r = i < n ? i : i - n - 1;

		s->type[i] = i == n ? PL_N_RENDEZVOUS : PL_N_OP;
		s->role[i] = i < n ? PL_RO_ARRIVE : i == n ? PL_RO_NONE : PL_RO_TRANSFER;
		s->kind[i] = PL_K_COLLECTIVE;
		s->flags[i] = PL_NF_IN_STEP | (i < n ? PL_NF_STEP_BEGIN : 0);
		s->res[i] = i == n ? PL_NONE : r;
		s->name[i] = name;
		s->group[i] = PL_NONE;
		s->bytes[i] = bytes;
		j->g.step[0].start[i] = arrive && i < n ? arrive[i] : 1000;
		j->g.step[0].dur[i] = i > n ? 77 : 0;
		for (uint32_t k = 0; i == n && k < n; k++) {
			s->src[s->n_edges] = k;
			s->etype[s->n_edges++] = PL_E_COMM;
		}
		if (i > n) {
			s->src[s->n_edges] = r;
			s->etype[s->n_edges++] = PL_E_SEQ;
			s->src[s->n_edges] = n;
			s->etype[s->n_edges++] = PL_E_COMM;
		}
		s->off[i + 1] = s->n_edges;
	}
	s->n_nodes = cap;
	for (uint32_t r = 0; r < n; r++) {
		j->g.res[r] =
			(struct pl_resource){ .rank = (int32_t)r, .host = PL_NONE, .capacity = 1 };
		j->g.rank[r] = (int32_t)r;
	}
	need(pl_edit_init(&j->e, &j->g, 0, 1, &none, &err));
	pl_free(none.w);
	pl_free(none.lag);
	need(pl_edit_settle(&j->e, &err));
}

static void done(struct job *j)
{
	pl_edit_fini(&j->e);
	pl_graph_fini(&j->g);
}

/* Latest end of a transfer, -1 if it cannot be taken apart. */
static pl_ns expand(struct job *j, unsigned coll, unsigned algo, uint32_t channels, uint32_t chunks)
{
	struct pl_expand x = { .topo = &j->t,
			       .comm = { .kind = PL_K_COLLECTIVE,
					 .coll = (uint8_t)coll,
					 .algo = (uint8_t)algo,
					 .group = PL_NONE,
					 .n = j->n,
					 .servers = j->servers,
					 .bytes = -1 },
			       .channels = channels,
			       .chunks = chunks };
	struct pl_err err = { 0 };
	pl_ns end = 0;

	if (pl_cost_expand(&j->e, j->meet, &x, &err) || pl_edit_settle(&j->e, &err)) {
		printf("# %s\n", err.msg);
		return -1;
	}
	for (uint32_t r = 0; r < j->n; r++)
		end = pl_max_i64(end, pl_edit_end(&j->e, j->n + 1 + r));
	return end;
}

static pl_ns analysed(const struct job *j, unsigned coll, unsigned algo, int64_t bytes)
{
	struct pl_cost_comm c = { .kind = PL_K_COLLECTIVE,
				  .coll = (uint8_t)coll,
				  .algo = (uint8_t)algo,
				  .group = PL_NONE,
				  .n = j->n,
				  .servers = j->servers,
				  .bytes = bytes };

	return pl_cost_analytic(&j->t, &c);
}

static const struct variant {
	uint8_t coll, algo;
	bool any; /* links may differ and be shared, hosts being alike */
} variants[] = {
	{ PL_COLL_ALLREDUCE, PL_ALGO_RING, false },
	{ PL_COLL_REDUCE_SCATTER, PL_ALGO_RING, false },
	{ PL_COLL_ALLGATHER, PL_ALGO_RING, false },
	{ PL_COLL_BROADCAST, PL_ALGO_RING, false },
	{ PL_COLL_REDUCE, PL_ALGO_RING, false },
	{ PL_COLL_ALLREDUCE, PL_ALGO_TREE, false },
	{ PL_COLL_REDUCE_SCATTER, PL_ALGO_TREE, false },
	{ PL_COLL_ALLGATHER, PL_ALGO_TREE, false },
	{ PL_COLL_BROADCAST, PL_ALGO_TREE, false },
	{ PL_COLL_REDUCE, PL_ALGO_HALVING, false },
	{ PL_COLL_GATHER, PL_ALGO_RING, false },
	{ PL_COLL_SCATTER, PL_ALGO_HIERARCHICAL, false },
	{ PL_COLL_BARRIER, PL_ALGO_RING, false },
	{ PL_COLL_ALLREDUCE, PL_ALGO_HALVING, false },
	{ PL_COLL_REDUCE_SCATTER, PL_ALGO_HALVING, false },
	{ PL_COLL_ALLGATHER, PL_ALGO_HALVING, true },
	{ PL_COLL_ALLREDUCE, PL_ALGO_HALVING, true },
	{ PL_COLL_ALLREDUCE, PL_ALGO_HIERARCHICAL, true },
	{ PL_COLL_REDUCE_SCATTER, PL_ALGO_HIERARCHICAL, true },
	{ PL_COLL_ALLGATHER, PL_ALGO_HIERARCHICAL, true },
	{ PL_COLL_OTHER, PL_ALGO_HIERARCHICAL, true },
	{ PL_COLL_ALLREDUCE, PL_ALGO_PS, true },
	{ PL_COLL_REDUCE_SCATTER, PL_ALGO_PS, true },
	{ PL_COLL_ALLGATHER, PL_ALGO_PS, true },
	{ PL_COLL_ALLTOALL, PL_ALGO_RING, true },
	{ PL_COLL_ALLTOALL, PL_ALGO_PS, true },
};

/* One job at random: the end is analysis, to the nanosecond, and undone it is as it was. */
static bool differs(const struct variant *w, uint64_t *rng)
{
	uint32_t hosts = 1 + (uint32_t)(pl_rng_next(rng) % 6), n = hosts;
	uint32_t m = 1 + (uint32_t)(pl_rng_next(rng) % 12);
	int64_t bytes = (int64_t)(pl_rng_next(rng) % 100000000);
	pl_ns latency = (pl_ns)(pl_rng_next(rng) % 30000), end, want;
	double bw = 0.01 + (double)(pl_rng_next(rng) % 100000) / 777;
	struct pl_err err = { 0 };
	struct job j;
	size_t mark, n_nodes;
	bool same = true;

	if (w->any && w->algo == PL_ALGO_HALVING) {
		hosts = 1u << hosts % 4;
		m = 1u << m % 4;
	}
	n = hosts * m;
	if (n < 2)
		return false;
	make(&j, hosts, m, latency, bw, NULL, bytes);
	for (int i = 0; w->any && i < 2; i++) {
		j.link[i].shared = pl_rng_next(rng) % 2;
		j.link[i].latency_ns = (pl_ns)(pl_rng_next(rng) % 30000);
		j.link[i].bytes_per_ns = 0.01 + (double)(pl_rng_next(rng) % 100000) / 777;
	}
	j.servers = (uint32_t)(pl_rng_next(rng) % 5);
	want = analysed(&j, w->coll, w->algo, bytes);
	mark = pl_edit_mark(&j.e);
	n_nodes = j.e.n_nodes;
	end = expand(&j, w->coll, w->algo, (uint32_t)(pl_rng_next(rng) % 3), 0) - 1000;
	if (end != want)
		printf("# %u hosts of %u, %lld bytes: %lld, analysis %lld\n", hosts, m,
		       (long long)bytes, (long long)end, (long long)want);
	pl_edit_undo(&j.e, mark);
	need(pl_edit_settle_full(&j.e, &err));
	for (uint32_t i = 0; i <= 2 * n; i++)
		same &= !j.e.node[i].dead && j.e.node[i].dur == (i > n ? 77 : 0) &&
			j.e.node[i].start == 1000;
	for (size_t i = n_nodes; i < j.e.n_nodes; i++)
		same &= j.e.node[i].dead;
	done(&j);
	return end != want || !same;
}

static void equal(void)
{
	uint64_t rng = 3;

	for (size_t k = 0; k < PL_LEN(variants); k++) {
		int wrong = 0;

		for (int trial = 0; trial < CASES(60); trial++)
			wrong += differs(&variants[k], &rng);
		ok(!wrong, "%s by %s over %s links: %d of %d differ from analysis",
		   pl_trace_coll_name(variants[k].coll), pl_plan_algorithm_name(variants[k].algo),
		   variants[k].any ? "any" : "equal", wrong, CASES(60));
	}
}

/* With links that differ, or hosts that do, no algorithm takes longer than analysis says: it counts
 * the slowest link in every step. */
static void bounded(void)
{

	uint64_t rng = 11;
	int longer = 0, shorter = 0;

	for (int trial = 0; trial < 80; trial++) {
		uint32_t hosts = 2 + (uint32_t)(pl_rng_next(&rng) % 4);
		uint32_t m = 2 + (uint32_t)(pl_rng_next(&rng) % 6);
		struct job j;
		pl_ns end, want;

		make(&j, hosts, m, 1000, 10, NULL, 4000000);
		j.link[1].latency_ns = 20000;
		j.link[1].bytes_per_ns = 1;
		want = analysed(&j, PL_COLL_ALLREDUCE, PL_ALGO_RING, 4000000);
		end = expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_RING, 1, 0) - 1000;
		longer += end > want;
		shorter += end < want;
		done(&j);
	}
	is_i64(longer, 0, "a ring over unlike links takes no longer than analysis says");
	ok(shorter > 0, "and sometimes less");
}

/* A ring whose members arrive when they like, step by step: in step i every member waits for its
 * own step before and for the left neighbour's. */
static pl_ns ring_by_hand(uint32_t n, const pl_ns *arrive, pl_ns latency, pl_ns x)
{
	pl_ns end[MAX], next[MAX], last = 0;

	for (uint32_t r = 0; r < n; r++)
		end[r] = arrive[r] + x;
	for (uint32_t s = 1; s < 2 * (n - 1); s++) {
		for (uint32_t r = 0; r < n; r++)
			next[r] = x + pl_max_i64(end[r], end[(r + n - 1) % n] + latency);
		memcpy(end, next, sizeof(end));
	}
	for (uint32_t r = 0; r < n; r++)
		last = pl_max_i64(last, end[r] + latency);
	return last;
}

static void late(void)
{
	int wrong = 0, never = 0, earlier = 0;
	uint64_t rng = 9;

	for (int trial = 0; trial < 60; trial++) {
		uint32_t n = 2 + (uint32_t)(pl_rng_next(&rng) % 15);
		pl_ns arrive[MAX], latency = 100, x = 1000, end, all = 0;
		struct job j;

		for (uint32_t r = 0; r < n; r++) {
			arrive[r] = (pl_ns)(pl_rng_next(&rng) % 20000);
			all = pl_max_i64(all, arrive[r]);
		}
		make(&j, 1, n, latency, 1, arrive, 1000 * n);
		end = expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_RING, 1, 1);
		wrong += end != ring_by_hand(n, arrive, latency, x);
		all += analysed(&j, PL_COLL_ALLREDUCE, PL_ALGO_RING, 1000 * n);
		never += end != all;
		for (uint32_t r = 0; r < n; r++)
			earlier += pl_edit_end(&j.e, n + 1 + r) < all;
		done(&j);
	}
	is_i64(wrong, 0, "members that arrive at different times: the ring counted step by step");
	is_i64(never, 0, "the last member ends as if all had waited for the last to arrive");
	ok(earlier > 0, "others are done before: the pipeline");
}

/* Servers take what is there: who comes late delays nobody's push. */
static void late_servers(void)
{
	pl_ns arrive[4] = { 90000, 0, 500, 1000 };
	struct job j;

	make(&j, 1, 4, 100, 1, arrive, 10000);
	j.servers = 4; /* S to push and 4 S / 4 to serve: as fast as a member sends */
	is_i64(expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_PS, 1, 0), 90000 + 2 * 10100,
	       "a member that comes late finds the servers free");
	done(&j);
	make(&j, 1, 4, 100, 1, arrive, 10000);
	j.servers = 1;
	is_i64(expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_PS, 1, 0), 90000 + 10100 + 40100,
	       "its own share is all that is left to push");
	done(&j);
}

static void chunks(void)
{
	pl_ns whole, pieces, fine;
	struct job j;

	make(&j, 1, 8, 1000, 1, NULL, 800000);
	whole = expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_TREE, 1, 1) - 1000;
	done(&j);
	is_i64(whole, 2 * (3 * (1000 + 800000)),
	       "a tree in one piece: each level waits for it all");
	make(&j, 1, 8, 1000, 1, NULL, 800000);
	pieces = expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_TREE, 1, 8) - 1000;
	done(&j);
	is_i64(pieces, 2 * (3 * 1000 + 800000 + 2 * 100000), "in eight pieces: a pipeline");
	make(&j, 1, 8, 1000, 1, NULL, 800000);
	fine = expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_TREE, 1, 0) - 1000;
	done(&j);
	ok(fine < pieces && pieces < whole, "finer is faster");
	make(&j, 1, 4, 1000, 1, NULL, 400000);
	is_i64(expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_RING, 1, 4) - 1000, 6 * 100000 + 1000,
	       "a ring in pieces hides all latencies but one");
	done(&j);
}

static void undone(void)
{
	struct pl_err err = { 0 };
	struct job j;
	pl_ns start[3 * MAX];
	struct pl_graph g;
	size_t mark, n, live = 0;
	bool same = true;

	make(&j, 2, 4, 1000, 1, NULL, 800000);
	n = j.e.n_nodes;
	for (size_t i = 0; i < n; i++)
		start[i] = j.e.node[i].start;
	mark = pl_edit_mark(&j.e);
	ok(expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_RING, 2, 3) > 0 &&
		   j.e.n_nodes >= n + 2 * 3 * 14 * 8,
	   "two channels, three chunks, 14 steps, 8 members");
	pl_graph_init(&g);
	ok(!pl_edit_graph(&j.e, &g, &err) && pl_graph_valid(&g, &err),
	   "as a graph of its own it is valid");
	pl_graph_fini(&g);
	pl_edit_undo(&j.e, mark);
	need(pl_edit_settle_full(&j.e, &err));
	for (size_t i = 0; i < j.e.n_nodes; i++)
		live += !j.e.node[i].dead;
	for (size_t i = 0; i < n; i++)
		same &= j.e.node[i].start == start[i] && !j.e.node[i].dead;
	ok(same && live == n, "folded back: everything as it was");
	is_i64(expand(&j, PL_COLL_SEND, PL_ALGO_RING, 1, 0), -1, "a send is refused");
	j.host[0].n = 3;
	j.host[1] = (struct pl_thost){ "h", 3, 5 };
	is_i64(expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_HIERARCHICAL, 1, 0), -1,
	       "so is hierarchical over hosts of different sizes");
	j.t.n_ranks = 7;
	is_i64(expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_RING, 1, 0), -1, "and too small a topology");
	j.t.n_ranks = 8;
	j.meet = 0;
	is_i64(expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_RING, 1, 0), -1, "and what is no rendezvous");
	done(&j);
	make(&j, 1, 6, 1000, 1, NULL, -1);
	is_i64(expand(&j, PL_COLL_ALLREDUCE, PL_ALGO_RING, 1, 0), -1, "and an unknown size");
	done(&j);
}

/* Where transfers share a link, what was recorded has waits, which messages must not have twice. */
static void waits(void)
{
	struct pl_fit fit = { .kind = PL_K_COLLECTIVE,
			      .coll = PL_COLL_OTHER,
			      .n = 4,
			      .b_ns_per_byte = 3,
			      .flight_ns = 6000 };
	struct pl_cost cost = { .fit = &fit, .n_fits = 1 };

	for (int how = 0; how < 4; how++) {
		struct pl_expand_all x = { .algo = how < 3 ? PL_ALGO_HALVING : PL_ALGO_RING,
					   .recorded = true };
		const pl_ns want = how ? 1000000 : 3 * 10000 + 6000;
		struct pl_err err = { 0 };
		struct pl_expanded n;
		struct job j;
		pl_ns end = 0;

		make(&j, 1, 4, 0, 1, NULL, 10000); /* both algorithms take as long */
		x.topo = &j.t;
		x.cost = how == 2 ? NULL : &cost;
		fit.flight_ns = how == 1 ? 0 : 6000;
		for (uint32_t r = 0; r < j.n; r++)
			need(pl_edit_set_dur(&j.e, j.n + 1 + r, 1000000, &err));
		need(pl_edit_settle(&j.e, &err));
		need(pl_cost_expand_all(&j.e, &x, &n, &err));
		for (uint32_t r = 0; r < j.n; r++)
			end = pl_max_i64(end, pl_edit_end(&j.e, j.n + 1 + r));
		ok(n.collectives == 1 && llabs(end - 1000 - want) < 10, "%s: %lld ns, not %lld",
		   how == 0   ? "transfers that share a link: without the recorded waits"
		   : how == 1 ? "transfers one after the other: as recorded"
		   : how == 2 ? "nothing known of them: as recorded"
			      : "by the recorded algorithm: as recorded",
		   (long long)(end - 1000), (long long)want);
		done(&j);
	}
}

/* A tree by messages over links that a graph says, as long as analysis has it. */
static void recorded_links(void)
{
	int right = 0;

	for (int pairs = 0; pairs < 2; pairs++) {
		struct pl_expand_all x = { .algo = PL_ALGO_TREE };
		struct pl_err err = { 0 };
		struct pl_expanded n;
		struct job j;
		pl_ns end = 0, plain;

		make(&j, 1, 4, 1000, 1, NULL, 10000);
		plain = analysed(&j, PL_COLL_ALLREDUCE, PL_ALGO_TREE, 10000);
		j.t.message_bytes = 1000;
		j.t.pairs = pairs;
		x.topo = &j.t;
		need(pl_cost_expand_all(&j.e, &x, &n, &err));
		for (uint32_t r = 0; r < j.n; r++)
			end = pl_max_i64(end, pl_edit_end(&j.e, j.n + 1 + r) - 1000);
		plain -= analysed(&j, PL_COLL_ALLREDUCE, PL_ALGO_TREE, 10000);
		right += plain != 0 &&
			 llabs(end - analysed(&j, PL_COLL_ALLREDUCE, PL_ALGO_TREE, 10000)) < 10;
		done(&j);
	}
	is_i64(right, 2, "a tree over recorded links: as long as analysis has it");
}

int main(void)
{
	waits();
	recorded_links();
	equal();
	bounded();
	late();
	late_servers();
	chunks();
	undone();
	return done_testing();
}
