/* Peak memory: small edits by hand whose peaks are known, random ones against counting. */
#include <stdlib.h>

#include "cost/cost.h"
#include "tap.h"

#define MAX 400

struct world {
	struct pl_graph g;
	struct pl_edit e;
	struct pl_resource res[4];
	int32_t rank[2];
	struct pl_tensor tensor[MAX];
	uint32_t consumer[MAX];
	struct pl_enode node[MAX];
	struct pl_eedge edge[MAX];
	struct pl_etensor et[MAX];
	uint64_t rng;
};

static void init(struct world *w)
{
	memset(w, 0, sizeof(*w));
	for (int i = 0; i < 4; i++)
		w->res[i] = (struct pl_resource){ .rank = 3 * (i / 2) };
	w->rank[1] = 3;
	w->g.res = w->res;
	w->g.n_res = 4;
	w->g.rank = w->rank;
	w->g.n_ranks = 2;
	w->g.tensor = w->tensor;
	w->g.consumer = w->consumer;
	w->e.g = &w->g;
	w->e.node = w->node;
	w->e.edge = w->edge;
	w->e.tensor = w->et;
	w->e.n_steps = 1;
	w->e.res = w->res;
	w->e.n_res = 4;
}

static uint32_t node(struct world *w, uint32_t res, uint8_t role, pl_ns start, pl_ns dur)
{
	uint32_t i = (uint32_t)w->e.n_nodes++;

	w->node[i] = (struct pl_enode){ .start = start,
					.dur = dur,
					.res = res,
					.role = role,
					.type = PL_N_OP,
					.origin = i,
					.in = PL_NONE,
					.out = PL_NONE,
					.layer = -1,
					.mb = -1,
					.bytes = -1,
					.name = 100 + i };
	return i;
}

static void tensor(struct world *w, unsigned role, int64_t bytes, int32_t rank, uint32_t producer,
		   uint32_t consumer, uint32_t arrive)
{
	uint32_t i = (uint32_t)w->g.n_tensors++;

	w->tensor[i].role = (uint8_t)role;
	w->tensor[i].bytes = bytes;
	w->tensor[i].producer = producer;
	w->tensor[i].consumer = i;
	w->tensor[i].n_consumers = consumer != PL_NONE;
	w->consumer[i] = consumer;
	w->et[w->e.n_tensors++] =
		(struct pl_etensor){ i, producer, arrive, 0, rank, bytes, false, false };
}

static void edge(struct world *w, uint32_t src, uint32_t dst)
{
	uint32_t i = (uint32_t)w->e.n_edges++;

	w->edge[i] = (struct pl_eedge){
		.src = src, .dst = dst, .in_next = w->node[dst].in, .out_next = w->node[src].out
	};
	w->node[dst].in = w->node[src].out = i;
}

/* Three layers forward, three backward; activations of 100, 200, 300; gradients of 10 each. */
static void layers(struct world *w)
{
	uint32_t f[3], b[3];

	init(w);
	for (int i = 0; i < 3; i++) {
		f[i] = node(w, 0, PL_RO_COMPUTE, 10 * i, 10);
		w->node[f[i]].layer = i;
	}
	for (int i = 2; i >= 0; i--)
		b[i] = node(w, 0, PL_RO_COMPUTE, 30 + 10 * (2 - i), 10);
	for (int i = 0; i < 3; i++) {
		tensor(w, PL_TR_PARAM, 10, 0, PL_NONE, f[i], PL_NONE);
		tensor(w, PL_TR_ACTIVATION, 100 * (i + 1), 0, f[i], b[i], PL_NONE);
		tensor(w, PL_TR_GRAD, 10, 0, b[i], PL_NONE, PL_NONE);
	}
}

static int64_t seen[16][2]; /* of rank 0: time, bytes */
static size_t n_seen;

static int note(void *arg, int32_t rank, pl_ns at, int64_t bytes, struct pl_err *err)
{
	(void)arg;
	(void)err;
	if (rank == 0 && n_seen < PL_LEN(seen)) {
		seen[n_seen][0] = at;
		seen[n_seen++][1] = bytes;
	}
	return 0;
}

static void over_time(void)
{
	static const int64_t want[][2] = { { 0, 190 },	{ 10, 390 }, { 20, 690 }, { 30, 700 },
					   { 40, 410 }, { 50, 220 }, { 60, 90 } };
	struct pl_memory_opts adam = { .optimizer_bytes = 2, .changed = note };
	struct pl_memory_rank *r = NULL;
	struct pl_err err = { 0 };
	struct world w;
	size_t n;

	layers(&w);
	ok(!pl_memory_peak(&w.e, &adam, &r, &n, &err), "memory over time %s", err.msg);
	ok(n_seen == PL_LEN(want) && !memcmp(seen, want, sizeof(want)), "... each change once");
	pl_free(r);
}

static void by_hand(void)
{
	struct pl_memory_opts adam = { .optimizer_bytes = 2 }, part = { .activation_share = 0.25 };
	struct pl_memory_rank *r = NULL;
	struct pl_err err = { 0 };
	struct world w;
	uint32_t a, meet, t;
	size_t n;

	layers(&w);
	ok(!pl_memory_peak(&w.e, &adam, &r, &n, &err) && n == 2, "two ranks");
	is_i64(r[0].peak_bytes, 600 + 10 + 30 + 60, "all activations and the first gradient");
	ok(r[0].params_bytes == 30 && r[0].optimizer_bytes == 60 && r[0].activations_bytes == 600 &&
		   r[0].grads_bytes == 10 && r[0].node == 3 && !r[0].estimated,
	   "parts of the peak, and where it is");
	ok(r[1].rank == 3 && r[1].peak_bytes == 0 && r[1].node == PL_NONE,
	   "a rank without tensors");
	pl_free(r);
	w.tensor[1].flags = PL_TF_ESTIMATED;
	ok(!pl_memory_peak(&w.e, &part, &r, &n, &err) && r[0].estimated, "a quarter of the batch");
	is_i64(r[0].peak_bytes, 150 + 30 + 10 + 30,
	       "a quarter of the activations; gradients of before, and a new one beside its own");
	pl_free(r);

	/* layer 1 is made again by its backward operation */
	w.et[4].remade = true;
	ok(!pl_memory_peak(&w.e, NULL, &r, &n, &err), "with recomputation");
	is_i64(r[0].peak_bytes, 100 + 300 + 10 + 30, "what is made again is gone in between");
	pl_free(r);

	/* two tensors in one communication need a buffer */
	layers(&w);
	a = node(&w, 1, PL_RO_ARRIVE, 30, 0);
	meet = node(&w, PL_NONE, 0, 30, 0);
	t = node(&w, 1, PL_RO_TRANSFER, 30, 5);
	w.node[meet].type = PL_N_RENDEZVOUS;
	w.node[a].bytes = 20;
	edge(&w, a, meet);
	edge(&w, meet, t);
	w.et[2].arrive = w.et[5].arrive = a;
	ok(!pl_memory_peak(&w.e, NULL, &r, &n, &err), "with communication");
	ok(r[0].peak_bytes == 600 + 10 + 20 + 30 && r[0].buffers_bytes == 20,
	   "a communication of several tensors has a buffer");
	pl_free(r);
	w.et[5].arrive = PL_NONE;
	ok(!pl_memory_peak(&w.e, NULL, &r, &n, &err) && r[0].buffers_bytes == 0,
	   "of a single one it has none");
	pl_free(r);

	init(&w);
	a = node(&w, 2, PL_RO_COMPUTE, 0, 10);
	tensor(&w, PL_TR_GRAD, 40, 3, a, PL_NONE, PL_NONE);
	tensor(&w, PL_TR_TEMP, -1, 3, a, PL_NONE, PL_NONE);
	ok(!pl_memory_peak(&w.e, NULL, &r, &n, &err) && r[1].estimated && r[1].params_bytes == 40 &&
		   r[1].peak_bytes == 80,
	   "parameters that nobody knows are as many as gradients, and said to be estimated");
	pl_free(r);
}

/* What is alive at each instant, counted. */
static int64_t counted(const struct world *w, int32_t rank, pl_ns end)
{
	int64_t best = 0;

	for (pl_ns t = 0; t <= end; t++) {
		int64_t sum = 0;

		for (size_t i = 0; i < w->e.n_tensors; i++) {
			const struct pl_tensor *x = &w->tensor[i];
			const struct pl_enode *p = &w->node[x->producer], *q;
			pl_ns to = end;

			if (w->et[i].rank != rank)
				continue;
			q = x->n_consumers ? &w->node[w->consumer[i]] : p;
			if (x->role != PL_TR_GRAD && (x->n_consumers || x->role == PL_TR_TEMP))
				to = q->start + q->dur;
			sum += t >= p->start && t < to ? x->bytes : 0;
		}
		best = sum > best ? sum : best;
	}
	return best;
}

static void at_random(void)
{
	static const unsigned roles[] = { PL_TR_GRAD, PL_TR_ACTIVATION, PL_TR_TEMP };
	struct pl_err err = { 0 };
	int wrong = 0;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct pl_memory_rank *r = NULL;
		struct world w;
		size_t n;

		init(&w);
		w.rng = seed;
		for (int i = 0; i < 40; i++)
			node(&w, 0, PL_RO_HOST, i * 7, 1 + (pl_ns)(pl_rng_next(&w.rng) % 7));
		for (int i = 0; i < 60; i++) {
			uint32_t a = (uint32_t)(pl_rng_next(&w.rng) % 40);
			uint32_t b = a + (uint32_t)(pl_rng_next(&w.rng) % (40 - a));

			tensor(&w, roles[i % 3], (int64_t)(pl_rng_next(&w.rng) % 1000), 0, a,
			       pl_rng_next(&w.rng) % 4 ? b : PL_NONE, PL_NONE);
		}
		if (pl_memory_peak(&w.e, NULL, &r, &n, &err) ||
		    r[0].peak_bytes - r[0].params_bytes !=
			    counted(&w, 0, w.node[39].start + w.node[39].dur))
			wrong++;
		pl_free(r);
	}
	is_i64(wrong, 0, "200 random jobs: the peak is the most that is alive at any instant");
}

/* What recorded allocations add: no producer, memory elsewhere, a layer of several activations. */
static void recorded(void)
{
	struct pl_memory_opts half = { .activation_share = 0.5 };
	struct pl_memory_rank *r = NULL;
	struct pl_err err = { 0 };
	struct world w;
	uint32_t v[6];
	size_t n;

	init(&w);
	for (int i = 0; i < 6; i++)
		v[i] = node(&w, 0, PL_RO_COMPUTE, 10 * i, 10);
	tensor(&w, PL_TR_TEMP, 50, 0, PL_NONE, v[0], PL_NONE); /* gone after the first */
	tensor(&w, PL_TR_PARAM, 8, 0, PL_NONE, v[5], PL_NONE);
	tensor(&w, PL_TR_TEMP, 100, 0, v[0], PL_NONE, PL_NONE);
	tensor(&w, PL_TR_TEMP, 20, 0, v[1], v[4], PL_NONE);
	ok(!pl_memory_peak(&w.e, NULL, &r, &n, &err), "what was there before");
	ok(r[0].peak_bytes == 158 && r[0].temporaries_bytes == 150 && r[0].node == v[0],
	   "... is there until its last use");
	pl_free(r);
	tensor(&w, PL_TR_GRAD, 30, 0, v[2], PL_NONE, PL_NONE);
	w.tensor[4].flags = PL_TF_ELSEWHERE;
	tensor(&w, PL_TR_GRAD, 32, 0, v[2], PL_NONE, PL_NONE);
	tensor(&w, PL_TR_TEMP, 300, 0, v[3], PL_NONE, PL_NONE); /* the optimiser's */
	ok(!pl_memory_peak(&w.e, NULL, &r, &n, &err) && r[0].grads_bytes == 32 &&
		   r[0].peak_bytes == 8 + 32 + 20 + 300,
	   "a gradient whose memory is elsewhere takes none");
	pl_free(r);
	ok(!pl_memory_peak(&w.e, &half, &r, &n, &err) && r[0].peak_bytes == 8 + 32 + 10 + 300,
	   "half of a batch: temporaries shrink, but for those after the gradients");
	pl_free(r);

	/* the last use of an activation is forward too: there is no gradient yet */
	init(&w);
	for (int i = 0; i < 4; i++)
		v[i] = node(&w, 0, PL_RO_COMPUTE, 10 * i, 10);
	for (int i = 0; i < 4; i++) {
		w.node[v[i]].layer = 3;
		w.node[v[i]].phase = i < 2 ? PL_PH_FORWARD : PL_PH_BACKWARD;
	}
	tensor(&w, PL_TR_PARAM, 8, 0, PL_NONE, v[0], PL_NONE);
	tensor(&w, PL_TR_ACTIVATION, 100, 0, v[0], v[1], PL_NONE);
	tensor(&w, PL_TR_GRAD, 40, 0, v[3], PL_NONE, PL_NONE);
	ok(!pl_memory_peak(&w.e, NULL, &r, &n, &err), "operations of a layer whose phase is known");
	is_i64(r[0].peak_bytes, 8 + 100, "... a forward operation makes no gradient");
	pl_free(r);
	w.consumer[1] = v[2];
	ok(!pl_memory_peak(&w.e, NULL, &r, &n, &err), "... a backward operation");
	is_i64(r[0].peak_bytes, 8 + 100 + 40, "... begins it");
	pl_free(r);
	w.node[v[2]].phase = PL_PH_INPUT_GRAD;
	ok(!pl_memory_peak(&w.e, NULL, &r, &n, &err), "... that of the input");
	is_i64(r[0].peak_bytes, 8 + 100, "... does not");
	pl_free(r);

	/* two activations of one layer, used last first: both are there from the first use on */
	init(&w);
	for (int i = 0; i < 6; i++)
		v[i] = node(&w, 0, PL_RO_COMPUTE, 10 * i, 10);
	w.node[v[0]].layer = w.node[v[1]].layer = 3;
	tensor(&w, PL_TR_ACTIVATION, 100, 0, v[0], v[5], PL_NONE);
	tensor(&w, PL_TR_ACTIVATION, 10, 0, v[1], v[4], PL_NONE);
	tensor(&w, PL_TR_TEMP, 40, 0, v[2], PL_NONE, PL_NONE);
	tensor(&w, PL_TR_TEMP, 5, 0, v[4], PL_NONE, PL_NONE);
	w.et[0].remade = w.et[1].remade = true;
	ok(!pl_memory_peak(&w.e, NULL, &r, &n, &err) && r[0].peak_bytes == 115 &&
		   r[0].activations_bytes == 110 && r[0].temporaries_bytes == 5,
	   "a layer is made again as a whole");
	pl_free(r);
	w.node[v[1]].layer = 4;
	ok(!pl_memory_peak(&w.e, NULL, &r, &n, &err) && r[0].peak_bytes == 100,
	   "... and two layers each by itself");
	pl_free(r);
}

int main(void)
{
	by_hand();
	over_time();
	recorded();
	at_random();
	return done_testing();
}
