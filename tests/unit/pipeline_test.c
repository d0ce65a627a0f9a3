/*
 * The generator of pipelines: steps of equal stages, whose length is known exactly; unequal ones
 * against a slow simulation; how the layers are cut; how many microbatches a stage keeps.
 */
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "derive/layers.h"
#include "rewrite/rewrite.h"
#include "sim/sim.h"
#include "tap.h"

#define MAX_LAYERS 64
#define MAX_PASSES 512

static struct pl_err err;

/* got == want, with both and a description that is a format. */
#define IS(got, want, ...)                                                                         \
	do {                                                                                       \
		long long is_got = (got), is_want = (want);                                        \
		if (!ok(is_got == is_want, __VA_ARGS__))                                           \
			printf("# got %lld, want %lld\n", is_got, is_want);                        \
	} while (0)

/* A job: what the generator gets, and what the slow simulation needs. */
struct job {
	const char *schedule;
	unsigned stages, chunks, microbatches, replicas;
	unsigned n; /* layers */
	pl_ns forward[MAX_LAYERS], backward[MAX_LAYERS], message;
	int64_t params, activation, output; /* output 0: the table does not say it */
};

static pl_ns message_time;
static pl_ns message(void *arg, int64_t bytes, uint32_t from, uint32_t to)
{
	(void)arg;
	(void)bytes;
	return from == to ? -1 : message_time;
}
static pl_ns transfer(void *arg, int64_t bytes, uint32_t n)
{
	(void)arg;
	return bytes * n;
}

static int make(const struct job *j, struct pl_graph *g)
{
	struct pl_layers_opts o = { .n_ranks = j->replicas ? j->stages * j->replicas : PL_NONE,
				    .transfer = transfer,
				    .message = message };
	char program[128], csv[8192];
	size_t at = (size_t)snprintf(csv, sizeof(csv),
				     "layer,forward_ns,backward_ns,param_bytes,"
				     "activation_bytes%s\n",
				     j->output ? ",output_bytes" : "");
	struct pl_in *in;
	int rc;

	for (unsigned i = 0; i < j->n; i++)
		at += (size_t)snprintf(
			csv + at, sizeof(csv) - at,
			j->output ? "l%u,%lld,%lld,%lld,%lld,%lld\n" : "l%u,%lld,%lld,%lld,%lld\n",
			i, (long long)j->forward[i], (long long)j->backward[i],
			(long long)j->params, (long long)j->activation, (long long)j->output);
	snprintf(program, sizeof(program),
		 "pipeline schedule=%s stages=%u microbatches=%u chunks=%u", j->schedule, j->stages,
		 j->microbatches, j->chunks);
	o.program = program;
	message_time = j->message;
	memset(&err, 0, sizeof(err));
	in = pl_in_open_mem("net.csv", csv, at, &err);
	rc = in ? pl_derive_layers(in, &o, g, &err) : PL_ENOMEM;
	pl_in_close(in);
	return rc;
}

static pl_ns length_of(const struct pl_graph *g)
{
	const struct pl_gstep *st = &g->step[0];
	pl_ns end = 0;

	for (uint32_t i = 0; i < g->shape[0].n_nodes; i++)
		end = pl_max_i64(end, st->start[i] + st->dur[i]);
	return end;
}

static bool computes(const struct pl_graph *g, uint32_t i, unsigned phase)
{
	const struct pl_shape *s = &g->shape[0];

	return s->role[i] == PL_RO_COMPUTE && s->phase[i] == phase && s->layer[i] >= 0;
}

/* ---- equal stages ------------------------------------------------------------------------------
 */

static struct job equal(const char *schedule, unsigned stages, unsigned chunks,
			unsigned microbatches, pl_ns forward, pl_ns backward)
{
	struct job j = { .schedule = schedule,
			 .stages = stages,
			 .chunks = chunks,
			 .microbatches = microbatches,
			 .n = stages * chunks,
			 .activation = 1 };

	for (unsigned i = 0; i < j.n; i++) {
		j.forward[i] = forward / chunks;
		j.backward[i] = backward / chunks;
	}
	return j;
}

static pl_ns made(const struct job *j)
{
	struct pl_graph g;
	pl_ns ns = -1;

	if (make(j, &g) < 0) {
		ok(false, "%s: %s", j->schedule, err.msg);
		return -1;
	}
	if (ok(pl_graph_valid(&g, &err), "%s: a valid graph %s", j->schedule, err.msg))
		ns = length_of(&g);
	pl_graph_fini(&g);
	return ns;
}

/* Free communication: the bubble is (p - 1) / (m + p - 1) of the step, and 1 / v of it in v chunks,
 * whatever the schedule. */
static void test_bubble(void)
{
	for (unsigned p = 1; p <= 6; p++)
		for (unsigned m = 1; m <= 13; m += 3)
			for (unsigned i = 0; i < 2; i++) {
				struct job j = equal(i ? "1f1b" : "gpipe", p, 1, m, 12, 24);
				pl_ns ns = made(&j), busy = m * (pl_ns)36;

				IS((ns - busy) * (m + p - 1), ns * (p - 1),
				   "%s of %u stages, %u microbatches: its bubble", j.schedule, p,
				   m);
			}
	for (unsigned p = 2; p <= 5; p++)
		for (unsigned v = 2; v <= 4; v++)
			for (unsigned i = 0; i < 2; i++) {
				struct job j =
					equal(i ? "interleaved" : "gpipe", p, v, 3 * p, 12, 24);

				IS(made(&j), 3 * p * (pl_ns)36 + (p - 1) * (pl_ns)36 / v,
				   "%s of %u stages in %u chunks", j.schedule, p, v);
			}
}

/* Steps that a simulation of others gave, of passes that take 1 and 2 and messages that take 0.05
 * (in hundredths). */
static void test_known_steps(void)
{
	static const struct {
		unsigned p, m;
		pl_ns message, gpipe, one_f_one_b, two_chunks, four_chunks;
	} known[] = {
		{ 4, 8, 0, 3300, 3300, 2850, 2625 },	  { 4, 8, 5, 3330, 3380, 2920, 2775 },
		{ 8, 16, 0, 6900, 6900, 5850, 5325 },	  { 8, 16, 5, 6970, 7100, 6000, 5635 },
		{ 8, 32, 5, 11770, 12040, 10800, 10435 },
	};

	for (size_t i = 0; i < PL_LEN(known); i++) {
		struct job j[] = {
			equal("gpipe", known[i].p, 1, known[i].m, 100, 200),
			equal("1f1b", known[i].p, 1, known[i].m, 100, 200),
			equal("interleaved", known[i].p, 2, known[i].m, 100, 200),
			equal("interleaved", known[i].p, 4, known[i].m, 100, 200),
		};
		const pl_ns want[] = { known[i].gpipe, known[i].one_f_one_b, known[i].two_chunks,
				       known[i].four_chunks };

		for (size_t k = 0; k < PL_LEN(j); k++) {
			j[k].message = known[i].message;
			IS(made(&j[k]), want[k], "%s: %u stages, %u chunks, %u microbatches",
			   j[k].schedule, j[k].stages, j[k].chunks, j[k].microbatches);
		}
	}
}

/* The most microbatches whose forward pass has begun and whose backward pass has not ended, in
 * passes of one chunk. */
static unsigned most_kept(const struct pl_graph *g, int32_t rank)
{
	const struct pl_shape *s = &g->shape[0];
	const struct pl_gstep *st = &g->step[0];
	unsigned most = 0;

	for (uint32_t i = 0; i < s->n_nodes; i++) {
		unsigned kept = 0;

		if (!computes(g, i, PL_PH_FORWARD) || pl_node_rank(g, s, i) != rank)
			continue;
		for (uint32_t k = 0; k < s->n_nodes; k++) {
			if (pl_node_rank(g, s, k) != rank)
				continue;
			kept += computes(g, k, PL_PH_FORWARD) && st->start[k] <= st->start[i];
			kept -= computes(g, k, PL_PH_BACKWARD) &&
				st->start[k] + st->dur[k] <= st->start[i];
		}
		most = kept > most ? kept : most;
	}
	return most;
}

static void test_kept(void)
{
	const char *schedule[] = { "gpipe", "1f1b", "interleaved" };

	for (unsigned i = 0; i < 3; i++) {
		struct job j = equal(schedule[i], 4, i == 2 ? 2 : 1, 8, 10, 20);
		struct pl_graph g;

		if (!ok(make(&j, &g) == 0, "%s %s", j.schedule, err.msg))
			continue;
		for (unsigned s = 0; s < 4; s++)
			IS(most_kept(&g, (int32_t)s),
			   i == 0   ? 8
			   : i == 1 ? 4 - s
				    : 11 - 2 * s,
			   "%s: microbatches that stage %u keeps, in passes", j.schedule, s);
		pl_graph_fini(&g);
	}
}

/* ---- unequal stages, simulated instant by instant ---------------------------------------------
 */

struct sim_pass {
	bool forward;
	unsigned mb, part;
};
struct sim_rank {
	struct sim_pass todo[MAX_PASSES];
	unsigned n, next;
	pl_ns left; /* of the pass that runs */
	bool runs;
};
/* Messages of one direction from one rank, first in first out. */
struct sim_link {
	struct sim_pass todo[MAX_PASSES];
	unsigned n, next;
	pl_ns left;
};
struct simulation {
	const struct job *j;
	unsigned cut[MAX_LAYERS + 1], parts;
	bool there[2][MAX_LAYERS][MAX_PASSES]; /* data of a pass, by direction, part, microbatch */
	struct sim_rank rank[8];
	struct sim_link link[2][8];
};

static void add_pass(struct sim_rank *r, bool forward, unsigned mb, unsigned part)
{
	r->todo[r->n++] = (struct sim_pass){ forward, mb, part };
}

/* The order of a stage, written down as the papers do: lists of both kinds of passes, and how many
 * forward passes come first. */
static void list_passes(struct simulation *m, unsigned stage)
{
	const struct job *j = m->j;
	struct sim_pass f[MAX_PASSES], b[MAX_PASSES];
	unsigned n = 0, p = j->stages, v = j->chunks, first;
	bool chunkwise = !strcmp(j->schedule, "gpipe");

	for (unsigned from = 0; from < j->microbatches; from += chunkwise ? j->microbatches : p)
		for (unsigned c = 0; c < v; c++)
			for (unsigned i = 0; i < (chunkwise ? j->microbatches : p); i++) {
				if (from + i >= j->microbatches)
					continue;
				f[n] = (struct sim_pass){ true, from + i, c * p + stage };
				b[n++] = (struct sim_pass){ false, from + i,
							    (v - 1 - c) * p + stage };
			}
	first = chunkwise ? n : v == 1 ? p - 1 - stage : 2 * (p - 1 - stage) + (v - 1) * p;
	for (unsigned k = 0, back = 0; back < n;) {
		if (k < n)
			add_pass(&m->rank[stage], true, f[k].mb, f[k].part);
		k++;
		if (k > first) {
			add_pass(&m->rank[stage], false, b[back].mb, b[back].part);
			back++;
		}
	}
}

static pl_ns time_of(const struct simulation *m, struct sim_pass p)
{
	pl_ns ns = 0;

	for (unsigned i = m->cut[p.part]; i < m->cut[p.part + 1]; i++)
		ns += p.forward ? m->j->forward[i] : m->j->backward[i];
	return ns;
}

/* A pass has ended: its data goes to the next part, if there is one. */
static void send(struct simulation *m, unsigned stage, struct sim_pass p)
{
	struct sim_link *l = &m->link[p.forward][stage];

	if (p.forward && p.part == m->parts - 1)
		m->there[false][p.part][p.mb] = true;
	else if (p.forward || p.part > 0) {
		p.part = p.forward ? p.part + 1 : p.part - 1;
		if (l->next == l->n)
			l->left = m->j->message;
		l->todo[l->n++] = p;
	}
}

/* All that ends at this instant. */
static bool settle(struct simulation *m)
{
	bool any = false;

	for (unsigned s = 0; s < m->j->stages; s++) {
		struct sim_rank *r = &m->rank[s];

		if (r->runs && !r->left) {
			r->runs = false;
			any = true;
			send(m, s, r->todo[r->next++]);
		}
		for (unsigned d = 0; d < 2; d++) {
			struct sim_link *l = &m->link[d][s];

			if (l->next == l->n || l->left)
				continue;
			m->there[d][l->todo[l->next].part][l->todo[l->next].mb] = true;
			l->next++;
			l->left = m->j->message;
			any = true;
		}
		if (!r->runs && r->next < r->n) {
			struct sim_pass p = r->todo[r->next];

			if (!(p.forward && !p.part) && !m->there[p.forward][p.part][p.mb])
				continue;
			r->runs = true;
			r->left = time_of(m, p);
			any = true;
		}
	}
	return any;
}

static pl_ns simulate(struct simulation *m)
{
	pl_ns now = 0;

	for (unsigned s = 0; s < m->j->stages; s++)
		list_passes(m, s);
	for (;; now++) {
		bool busy = false;

		while (settle(m))
			;
		for (unsigned s = 0; s < m->j->stages; s++) {
			busy |= m->rank[s].next < m->rank[s].n;
			m->rank[s].left -= m->rank[s].runs;
			for (unsigned d = 0; d < 2; d++)
				m->link[d][s].left -= m->link[d][s].next < m->link[d][s].n;
		}
		if (!busy || now > 1000000)
			return now;
	}
}

/* The time of the slowest part if the layers from `first` on are cut into `parts` as well as can
 * be. */
static pl_ns best_cut(const struct job *j, unsigned first, unsigned parts)
{
	pl_ns sum = 0, best = INT64_MAX;

	for (unsigned i = first; i + parts <= j->n; i++) {
		sum += j->forward[i] + j->backward[i];
		if (parts == 1 && i + 1 < j->n)
			continue;
		best = parts == 1
			       ? sum
			       : pl_min_i64(best, pl_max_i64(sum, best_cut(j, i + 1, parts - 1)));
	}
	return best;
}

/* Where the generator cut, and whether it cut well. */
static bool read_cut(const struct pl_graph *g, struct simulation *m)
{
	const struct pl_shape *s = &g->shape[0];
	unsigned part_of[MAX_LAYERS] = { 0 };
	pl_ns slowest = 0;

	for (uint32_t i = 0; i < s->n_nodes; i++)
		if (computes(g, i, PL_PH_FORWARD))
			part_of[s->layer[i]] =
				(unsigned)pl_node_rank(g, s, i) +
				(s->chunk ? (unsigned)s->chunk[i] : 0) * m->j->stages;
	m->parts = m->j->stages * m->j->chunks;
	m->cut[m->parts] = m->j->n;
	for (unsigned i = m->j->n; i-- > 0;)
		m->cut[part_of[i]] = i;
	for (unsigned k = 0; k < m->parts; k++) {
		slowest = pl_max_i64(slowest, time_of(m, (struct sim_pass){ true, 0, k }) +
						      time_of(m, (struct sim_pass){ false, 0, k }));
		if (m->cut[k] >= m->cut[k + 1])
			return false;
	}
	return slowest == best_cut(m->j, 0, m->parts);
}

static void test_random(void)
{
	static struct simulation m;
	static const char *const schedule[] = { "gpipe", "1f1b", "interleaved" };
	int wrong = 0, bad_cut = 0, runs = 300;

	srand(7);
	for (int run = 0; run < runs; run++) {
		struct job j = { .schedule = schedule[run % 3] };
		struct pl_graph g;
		pl_ns want;

		j.stages = 2 + (unsigned)rand() % 3;
		j.chunks = run % 3 == 2 ? 2 : run % 3 ? 1 : 1 + (unsigned)rand() % 2;
		j.microbatches = j.stages * (1 + (unsigned)rand() % 3);
		if (run % 3 != 2)
			j.microbatches += (unsigned)rand() % 4;
		j.n = j.stages * j.chunks + (unsigned)rand() % 6;
		j.message = rand() % 6;
		for (unsigned i = 0; i < j.n; i++) {
			j.forward[i] = 1 + rand() % 9;
			j.backward[i] = 1 + rand() % 9;
		}
		memset(&m, 0, sizeof(m));
		m.j = &j;
		if (make(&j, &g) < 0) {
			ok(false, "run %d: %s", run, err.msg);
			return;
		}
		bad_cut += !read_cut(&g, &m);
		want = simulate(&m);
		if (length_of(&g) != want && !wrong++)
			IS(length_of(&g), want,
			   "run %d: %s, %u stages of %u chunks, %u "
			   "microbatches, messages of %lld",
			   run, j.schedule, j.stages, j.chunks, j.microbatches,
			   (long long)j.message);
		pl_graph_fini(&g);
	}
	IS(bad_cut, 0, "the slowest of the parts is as fast as it can be");
	IS(wrong, 0, "%d pipelines of random stages take as long as the simulation says", runs);
}

/* ---- memory ------------------------------------------------------------------------------------
 */

/* What a rank holds at the start of each of its operations, counted layer by layer. */
static int64_t slow_peak(const struct job *j, const struct pl_edit *e, int32_t rank, bool again)
{
	static const struct pl_enode *pass[2][MAX_LAYERS][64];
	int64_t peak = 0;

	memset(pass, 0, sizeof(pass));
	for (size_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];

		if (n->role == PL_RO_COMPUTE && n->layer >= 0 && e->res[n->res].rank == rank)
			pass[n->phase == PL_PH_BACKWARD][n->layer][n->mb] = n;
	}
	for (size_t i = 0; i < e->n_nodes; i++) {
		pl_ns t = e->node[i].start;
		int64_t sum = 0;

		if (e->node[i].res >= e->n_res || e->res[e->node[i].res].rank != rank)
			continue;
		for (unsigned l = 0; l < j->n; l++) {
			bool here = pass[0][l][0] != NULL, gradient = false;

			sum += here ? j->params : 0;
			for (unsigned mb = 0; here && mb < j->microbatches; mb++) {
				const struct pl_enode *f = pass[0][l][mb], *b = pass[1][l][mb];

				gradient |= t >= b->start;
				if (t < f->start || t >= b->start + b->dur)
					continue;
				if (again && t >= f->start + f->dur && t < b->start)
					sum += l ? j->output : 0; /* the input alone */
				else
					sum += j->activation;
			}
			sum += gradient ? j->params : 0;
		}
		peak = pl_max_i64(peak, sum);
	}
	return peak;
}

/* The peaks of a job, with all layers recomputed if `again`, and what they must be. */
static void compare_memory(const struct job *j, bool again, int64_t *activations)
{
	struct pl_graph g;
	struct pl_cost cost = { 0 };
	struct pl_edit e = { 0 };
	struct pl_memory_rank *r = NULL;
	struct pl_rewriter *rw = NULL;
	struct pl_sim *sim = NULL;
	size_t n = 0;
	int wrong = 0;

	memset(activations, 0, 8 * sizeof(*activations));
	if (!ok(make(j, &g) == 0 && (sim = pl_sim_new(&g, &err)) &&
			pl_sim_edit(sim, 0, g.n_steps, &e, &err) == 0 &&
			pl_cost_fit(&g, NULL, &cost, &err) == 0 &&
			(rw = pl_rewrite_new(&e, &cost, &err)),
		"%s: an edit %s", j->schedule, err.msg))
		return;
	for (unsigned l = 0; again && l < j->n; l++) {
		char name[16];
		const char *arg = name;
		const struct pl_rewrite x = { .op = PL_RW_RECOMPUTE, .arg = &arg, .n_args = 1 };

		snprintf(name, sizeof(name), "l%u", l);
		if (pl_rewrite(rw, &x, &err) < 0)
			ok(false, "%s", err.msg);
	}
	if (pl_edit_settle(&e, &err) < 0 || pl_memory_peak(&e, NULL, &r, &n, &err) < 0)
		ok(false, "%s", err.msg);
	for (size_t i = 0; i < n; i++) {
		activations[i] = r[i].activations_bytes;
		if (r[i].peak_bytes != slow_peak(j, &e, r[i].rank, again) && !wrong++)
			IS(r[i].peak_bytes, slow_peak(j, &e, r[i].rank, again), "rank %d",
			   r[i].rank);
	}
	ok(!wrong && n == j->stages, "%s, %u stages, %u microbatches%s: peaks as counted",
	   j->schedule, j->stages, j->microbatches, again ? ", recomputed" : "");
	pl_free(r);
	pl_rewrite_free(rw);
	pl_cost_fini(&cost);
	pl_edit_fini(&e);
	pl_sim_free(sim);
	pl_graph_fini(&g);
}

/* 1F1B keeps the activations of p - s microbatches on stage s of p, GPipe those of all. With all
 * layers recomputed only their inputs stay, and the whole of the one that is recomputed. */
static void test_memory(void)
{
	static const char *const schedule[] = { "gpipe", "1f1b" };

	for (unsigned run = 0; run < 24; run++) {
		unsigned p = 2 + run % 3, i = run / 3 % 2, layers = 1 + run / 6 % 2;
		struct job j = equal(schedule[i], p, 1, p + 2 + run % 5, 12, 24);
		int64_t kept[8], again[8];

		j.n = p * layers;
		for (unsigned l = 0; l < j.n; l++) {
			j.forward[l] = 12;
			j.backward[l] = 24;
		}
		j.params = 10;
		j.activation = 1000;
		j.output = run % 4 ? 100 : 0;
		compare_memory(&j, false, kept);
		compare_memory(&j, true, again);
		for (unsigned s = 0; s < p; s++) {
			unsigned n = i ? p - s : j.microbatches;
			int64_t inputs = j.output * (n * layers - 1);

			/* the first layer of all has no input that the table knows */
			inputs = s ? inputs : layers == 1 ? 0 : j.output * (n * (layers - 1) - 1);
			IS(kept[s], (int64_t)n * layers * j.activation,
			   "%s: stage %u of %u keeps %u microbatches", j.schedule, s, p, n);
			ok(again[s] >= inputs + j.activation &&
				   again[s] <= inputs + j.activation + j.output,
			   "... and an input of each when all is recomputed: %lld",
			   (long long)again[s]);
		}
	}
	for (unsigned v = 2; v <= 3; v++) {
		struct job j = equal("interleaved", 3, v, 6, 12 * v, 24 * v);
		int64_t kept[8];

		j.params = 10;
		j.activation = 1000;
		j.output = 100;
		compare_memory(&j, false, kept);
		compare_memory(&j, true, kept);
	}
}

/* ---- replicas, limits --------------------------------------------------------------------------
 */

/* Two pipelines of two stages: the gradients of a layer are reduced by its two ranks when the last
 * microbatch has passed, and the optimiser waits for that. */
static void test_replicas(void)
{
	struct job j = equal("1f1b", 2, 1, 3, 10, 20);
	struct pl_graph g;
	uint32_t reduced = 0;

	j.replicas = 2;
	j.params = 100;
	if (!ok(make(&j, &g) == 0, "replicas %s", err.msg))
		return;
	ok(pl_graph_valid(&g, &err), "replicas: a valid graph %s", err.msg);
	IS(g.n_ranks, 4, "two replicas of two stages");
	IS((long long)g.n_groups, 2, "a group for each stage");
	IS(g.group[1].n, 2, "of two ranks");
	IS(g.group_rank[g.group[1].rank], 2, "which are neighbours");
	for (uint32_t i = 0; i < g.shape[0].n_comms; i++)
		reduced += g.shape[0].comms[i].kind == PL_COLL_ALLREDUCE;
	IS(reduced, 2, "an all-reduce for each layer");
	IS(length_of(&g), 4 * 30 + 200, "it follows the last backward pass");
	IS(g.res[0].coord[1], 0, "the first rank is of the first stage");
	IS(g.res[g.n_res - 1].coord[1], 1, "the last rank is of the last stage");
	IS(g.res[g.n_res - 1].coord[0], 1, "of the second replica");
	pl_graph_fini(&g);
}

static void refused(struct job j, const char *text)
{
	struct pl_graph g;

	ok(make(&j, &g) == PL_EUSAGE && strstr(err.msg, text), "refused: %s", err.msg);
}

static void test_refused(void)
{
	struct job j = equal("1f1b", 4, 1, 8, 10, 20);

	j.n = 3;
	refused(j, "need as many layers; net.csv has 3");
	refused(equal("1f1b", 2, 2, 8, 10, 20), "1f1b takes one");
	refused(equal("interleaved", 2, 1, 8, 10, 20), "two or more chunks");
	refused(equal("interleaved", 4, 2, 6, 10, 20), "no multiple of 4 stages");
	refused(equal("1b1f", 4, 1, 6, 10, 20), "did you mean 1f1b?");
	j = equal("gpipe", 1, 1, 0, 10, 20);
	refused(j, "microbatches");
}

int main(void)
{
	test_bubble();
	test_known_steps();
	test_kept();
	test_random();
	test_memory();
	test_replicas();
	test_refused();
	return done_testing();
}
