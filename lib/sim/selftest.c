/*
 * The self-test of a graph, see selftest.h.
 *
 * The tests are simulated side by side where that is possible (many.c): four tests cost about as
 * much as two replays. Selections by phase are simulated one by one, so only small graphs have
 * them. What the ranks and the path are judged by costs one pass over the roles of the nodes, and
 * in jobs that send messages one over the edges; the rest is about transfers and parts of the path.
 */
#include <math.h>

#include "sim/internal.h"
#include "sim/selftest.h"
#include "sim/straggler_typical.h"

#define LONG_GAP   1000000 /* ns */
#define SHORT_WAIT 100000
#define WORK	   "kernel|host_op"
#define MANY_NODES 200000     /* in all steps: more are not tested by phase */
#define EQUALS	   (1u << 17) /* nodes looked at, for equal operations */
#define FEW	   3	      /* of these have a usual duration */

/* ---- contradictions -------------------------------------------------------------------------- */

int pl_selftest_run(const struct pl_sim *s, struct pl_selftest_try *v, size_t n, struct pl_err *err)
{
	struct pl_graph_select select[PL_SIM_SIDE_BY_SIDE];
	struct pl_sim_scale scale[PL_SIM_SIDE_BY_SIDE];
	double mean[PL_SIM_SIDE_BY_SIDE];
	int rc = 0;

	for (size_t i = 0; i < n && rc >= 0;) {
		size_t some = pl_min_size(n - i, PL_SIM_SIDE_BY_SIDE);

		memset(select, 0, sizeof(select));
		for (size_t k = 0; k < some && rc >= 0; k++) {
			rc = pl_graph_select_init(&select[k], &v[i + k].keys, s->g, NULL, err);
			scale[k] = (struct pl_sim_scale){ &select[k], v[i + k].factor, NULL };
		}
		if (rc >= 0)
			rc = pl_sim_means(s, scale, some, mean, err);
		for (size_t k = 0; k < some; k++) {
			v[i + k].mean = mean[k];
			pl_graph_select_fini(&select[k]);
		}
		i += some;
	}
	return rc;
}

bool pl_selftest_contradicts(float factor, double before, double after)
{
	return factor < 1   ? after > before * (1 + PL_SELFTEST_MARGIN)
	       : factor > 1 ? after < before * (1 - PL_SELFTEST_MARGIN)
			    : false;
}

size_t pl_selftest_usual(const struct pl_graph *g, struct pl_selftest_try *v, size_t most)
{
	static const struct {
		enum pl_plan_key key;
		const char *word, *what;
		float factor;
	} usual[] = {
		{ PL_SEL_KIND, "comm", "remove kind=comm", 0 },
		{ PL_SEL_KIND, "comm", "scale kind=comm by 2", 2 },
		{ PL_SEL_KIND, WORK, "remove kind=" WORK, 0 },
		{ PL_SEL_KIND, "gap", "remove kind=gap", 0 },
		/* of small graphs */
		{ PL_SEL_KIND, "comm", "scale kind=comm by 0.5", 0.5F },
		{ PL_SEL_KIND, WORK, "scale kind=" WORK " by 0.5", 0.5F },
		{ PL_SEL_KIND, WORK, "scale kind=" WORK " by 2", 2 },
		{ PL_SEL_KIND, "gap", "scale kind=gap by 2", 2 },
		{ PL_SEL_PHASE, "forward", "remove phase=forward", 0 },
		{ PL_SEL_PHASE, "forward", "scale phase=forward by 2", 2 },
		{ PL_SEL_PHASE, "backward", "remove phase=backward", 0 },
		{ PL_SEL_PHASE, "backward", "scale phase=backward by 2", 2 },
		{ PL_SEL_PHASE, "optimizer", "remove phase=optimizer", 0 },
		{ PL_SEL_PHASE, "input", "remove phase=input", 0 },
	};
	size_t nodes = 0, n = 0;
	bool phases = false;

	for (size_t k = 0; k < g->n_steps; k++) {
		nodes += g->shape[g->step[k].shape].n_nodes;
		phases |= g->shape[g->step[k].shape].phase != NULL;
	}
	for (size_t i = 0; i < PL_LEN(usual) && n < most; i++) {
		if ((i >= PL_SIM_SIDE_BY_SIDE && nodes > MANY_NODES) ||
		    (usual[i].key == PL_SEL_PHASE && !phases))
			continue;
		v[n] = (struct pl_selftest_try){ .what = usual[i].what, .factor = usual[i].factor };
		v[n++].keys.key[usual[i].key] = usual[i].word;
	}
	return n;
}

/* ---- the communication of a graph ------------------------------------------------------------ */

struct transfer {
	uint32_t node;
	bool alone; /* it has no partner */
};
struct transfers { /* of a shape, by node */
	struct transfer *v;
	size_t n, cap;
};
struct message { /* a send or receive of a step */
	pl_id name;
	pl_ns ns;
};
struct on_thread { /* a transfer of a step that a thread carries out */
	uint32_t step;
	int32_t rank;
	pl_ns end, start;
	uint32_t res;
};

struct pl_selftest {
	const struct pl_graph *g;
	struct transfers *shape;
	bool *main_thread;	  /* [resource]: a step begins there: the thread of the program */
	struct message *message;  /* the shortest of each name first */
	struct on_thread *thread; /* by step, rank and end */
	size_t n_messages, cap_messages, n_threads, cap_threads;
};

static bool is_p2p(const struct pl_shape *sh, uint32_t i)
{
	return sh->kind[i] == PL_K_SEND || sh->kind[i] == PL_K_RECV;
}

static bool runs_on_thread(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	return sh->res[i] != PL_NONE && g->res[sh->res[i]].track_type == PL_T_THREAD;
}

static int list_transfers(struct pl_selftest *t, size_t shape, struct pl_err *err)
{
	const struct pl_shape *sh = &t->g->shape[shape];
	struct transfers *x = &t->shape[shape];

	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		if (sh->flags[i] & PL_NF_STEP_BEGIN && sh->res[i] != PL_NONE)
			t->main_thread[sh->res[i]] = true;
		if (sh->role[i] == PL_RO_TRANSFER)
			PL_CHECK(pl_append(&x->v, &x->n, &x->cap, &(struct transfer){ .node = i },
					   sizeof(*x->v), err));
	}
	return 0;
}

/* Is the edge from another rank, or from or to a rendezvous? */
static bool crosses(const struct pl_graph *g, const struct pl_shape *sh, uint32_t e, uint32_t to)
{
	return pl_node_rank(g, sh, sh->src[e]) != pl_node_rank(g, sh, to);
}

enum { WANTED = 1, LINKED = 2 };

/* Which of the wanted nodes does an edge link with another rank? */
static void find_links(const struct pl_graph *g, const struct pl_shape *sh, uint8_t *state)
{
	for (uint32_t i = 0; i < sh->n_nodes; i++)
		for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++)
			if (PL_UNLIKELY((state[i] | state[sh->src[e]]) & WANTED) &&
			    crosses(g, sh, e, i)) {
				state[i] |= LINKED;
				state[sh->src[e]] |= LINKED;
			}
}

/*
 * The transfers that have no partner. Not all members of the communication were recorded, or it is
 * a send or receive from which, and from whose arrival, no edge leads to another rank, nor one
 * back.
 */
static int find_alone(const struct pl_graph *g, const struct pl_shape *sh, struct transfers *x,
		      struct pl_err *err)
{
	uint8_t *state = NULL; /* [node] */

	for (size_t k = 0; k < x->n; k++) {
		uint32_t i = x->v[k].node, arrival;

		if (sh->type[i] != PL_N_OP || sh->flags[i] & PL_NF_MESSAGE)
			continue;
		x->v[k].alone = sh->flags[i] & PL_NF_MISSING || is_p2p(sh, i);
		if (!x->v[k].alone || sh->flags[i] & PL_NF_MISSING)
			continue;
		if (!state)
			PL_CHECK(pl_alloc(&state, sh->n_nodes, sizeof(*state), err));
		state[i] |= WANTED;
		arrival = pl_node_arrival(sh, i);
		if (arrival != PL_NONE)
			state[arrival] |= WANTED;
	}
	if (!state)
		return 0;
	find_links(g, sh, state);
	for (size_t k = 0; k < x->n; k++) {
		uint32_t i = x->v[k].node, arrival = pl_node_arrival(sh, i);

		if (state[i] & WANTED &&
		    (state[i] | (arrival == PL_NONE ? 0 : state[arrival])) & LINKED)
			x->v[k].alone = false;
	}
	pl_free(state);
	return 0;
}

PL_COMPARATOR(by_name, struct message, name, ns);
PL_COMPARATOR(by_end, struct on_thread, step, rank, end);

static int add_times(struct pl_selftest *t, size_t k, struct pl_err *err)
{
	const struct pl_graph *g = t->g;
	const struct pl_gstep *st = &g->step[k];
	const struct pl_shape *sh = &g->shape[st->shape];
	const struct transfers *x = &t->shape[st->shape];

	for (size_t j = 0; j < x->n; j++) {
		uint32_t i = x->v[j].node;
		struct message message = { sh->name[i], st->dur[i] };
		struct on_thread thread = { .step = (uint32_t)k,
					    .rank = pl_node_rank(g, sh, i),
					    .end = st->start[i] + st->dur[i],
					    .start = st->start[i],
					    .res = sh->res[i] };

		if (is_p2p(sh, i))
			PL_CHECK(pl_append(&t->message, &t->n_messages, &t->cap_messages, &message,
					   sizeof(message), err));
		if (runs_on_thread(g, sh, i))
			PL_CHECK(pl_append(&t->thread, &t->n_threads, &t->cap_threads, &thread,
					   sizeof(thread), err));
	}
	return 0;
}

int pl_selftest_new(const struct pl_graph *g, struct pl_selftest **out, struct pl_err *err)
{
	struct pl_selftest *t;
	int rc;

	PL_CHECK(pl_alloc(out, 1, sizeof(**out), err));
	t = *out;
	t->g = g;
	PL_TRY(pl_alloc(&t->main_thread, g->n_res, sizeof(*t->main_thread), err));
	PL_TRY(pl_alloc(&t->shape, g->n_shapes, sizeof(*t->shape), err));
	for (size_t k = 0; k < g->n_shapes; k++) {
		PL_TRY(list_transfers(t, k, err));
		PL_TRY(find_alone(g, &g->shape[k], &t->shape[k], err));
	}
	for (size_t k = 0; k < g->n_steps; k++)
		PL_TRY(add_times(t, k, err));
	pl_sort(t->message, t->n_messages, sizeof(*t->message), by_name);
	pl_sort(t->thread, t->n_threads, sizeof(*t->thread), by_end);
out:
	if (rc < 0) {
		pl_selftest_free(t);
		*out = NULL;
	}
	return rc;
}

void pl_selftest_free(struct pl_selftest *t)
{
	if (!t)
		return;
	for (size_t k = 0; t->shape && k < t->g->n_shapes; k++)
		pl_free(t->shape[k].v);
	pl_free(t->shape);
	pl_free(t->main_thread);
	pl_free(t->message);
	pl_free(t->thread);
	pl_free(t);
}

/* ---- the critical path ----------------------------------------------------------------------- */

static bool is_alone(const struct pl_selftest *t, const struct pl_gstep *st, uint32_t node)
{
	const struct transfers *x = &t->shape[st->shape];
	size_t i = 0;

	PL_LOWER_BOUND(i, x->n, x->v[i].node < node);
	return i < x->n && x->v[i].node == node && x->v[i].alone;
}

/* Is it work of a thread? */
static bool is_work(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	return (sh->role[i] == PL_RO_COMPUTE || sh->role[i] == PL_RO_HOST) &&
	       runs_on_thread(g, sh, i);
}

/*
 * Is the operation perhaps a wait for communication that another thread of its rank carries out?
 * Both end together, and most of the operation lies beside the communication. The graph does not
 * have a dependency then: else the operation would have ended as a wait. Parts of a path follow one
 * another, so all calls together look at each communication about once.
 */
static bool may_wait(const struct pl_selftest *t, uint32_t step, uint32_t i)
{
	const struct pl_gstep *st = &t->g->step[step];
	const struct pl_shape *sh = &t->g->shape[st->shape];
	pl_ns end = st->start[i] + st->dur[i];
	struct on_thread from = { .step = step,
				  .rank = pl_node_rank(t->g, sh, i),
				  .end = end - st->dur[i] / 20 };
	size_t k = 0;

	if (!is_work(t->g, sh, i) || st->dur[i] < SHORT_WAIT)
		return false;
	PL_LOWER_BOUND(k, t->n_threads, by_end(&t->thread[k], &from) < 0);
	for (; k < t->n_threads; k++) {
		const struct on_thread *x = &t->thread[k];

		if (x->step != step || x->rank != from.rank || x->end > end)
			break;
		if (x->res != sh->res[i] && x->start <= st->start[i] + st->dur[i] / 2)
			return true;
	}
	return false;
}

/* How much longer the send or receive takes than three times the first quartile of its name. */
static pl_ns beyond_others(const struct pl_selftest *t, pl_id name, pl_ns ns)
{
	const struct message *v = t->message;
	size_t first = 0, last = 0;

	PL_LOWER_BOUND(first, t->n_messages, v[first].name < name);
	PL_LOWER_BOUND(last, t->n_messages, v[last].name <= name);
	return first < last ? pl_max_i64(ns - 3 * v[first + (last - first) / 4].ns, 0) : 0;
}

/* Is it a launch of paceline-predict(1), with the interval of a host that is not known? */
static bool is_assumed(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	return sh->above && sh->above[i] > 0 && sh->role[i] == PL_RO_HOST &&
	       sh->name[i] != PL_NONE &&
	       !strcmp(pl_intern_get(&g->str, sh->name[i]), PL_GRAPH_LAUNCH);
}

/* The sum that the time of the node belongs to, NULL: it is not doubtful. */
static pl_ns *sum_of(const struct pl_selftest *t, const struct pl_path_item *x,
		     struct pl_selftest_path *out)
{
	const struct pl_gstep *st = &t->g->step[x->step];
	const struct pl_shape *sh = &t->g->shape[st->shape];
	uint32_t i = x->node;

	if (sh->role[i] == PL_RO_GAP && x->ns >= LONG_GAP && sh->res[i] != PL_NONE &&
	    !(sh->phase && sh->phase[i] > PL_PH_OTHER &&
	      pl_graph_phase_holds(sh->phase[i]))) /* a pause whose reason is recorded */
		return t->main_thread[sh->res[i]] ? &out->unrecorded : &out->idle;
	if (is_alone(t, st, i))
		return &out->alone;
	if (sh->flags[i] & PL_NF_INFERRED)
		return &out->inferred;
	if (is_assumed(t->g, sh, i))
		return &out->assumed;
	if (sh->role[i] == PL_RO_TRANSFER && is_p2p(sh, i) && st->dur[i] > 0)
		out->slow += (pl_ns)((double)beyond_others(t, sh->name[i], st->dur[i]) *
				     (double)x->ns / (double)st->dur[i]);
	return may_wait(t, x->step, i) ? &out->waiting : NULL;
}

void pl_selftest_path(const struct pl_selftest *t, const struct pl_path *p,
		      struct pl_selftest_path *out)
{
	*out = (struct pl_selftest_path){ .length = p->length, .unexplained = p->unexplained };
	for (size_t i = 0; i < p->n; i++) {
		const struct pl_path_item *x = &p->item[i];
		const struct pl_shape *sh = &t->g->shape[t->g->step[x->step].shape];
		pl_ns *sum = x->part == PL_PP_NODE ? sum_of(t, x, out) : NULL;

		if (sum)
			*sum += x->ns;
		if (x->part != PL_PP_NODE || !runs_on_thread(t->g, sh, x->node))
			continue;
		if (sh->role[x->node] == PL_RO_TRANSFER)
			out->host_comm += x->ns;
		if (is_work(t->g, sh, x->node))
			out->host_work += x->ns;
	}
}

double pl_selftest_half(double deviation, size_t n)
{
	return n < 2 ? 0 : pl_student_90((double)(n - 1)) * deviation / sqrt((double)n);
}

double pl_selftest_half_difference(double a, size_t n_a, double b, size_t n_b)
{
	double of_a = a * a / (double)n_a, of_b = b * b / (double)n_b, sum = of_a + of_b;

	if (n_a < 2 || n_b < 2)
		return NAN;
	if (!(sum > 0))
		return 0;
	return sqrt(sum) *
	       pl_student_90(sum * sum /
			     (of_a * of_a / (double)(n_a - 1) + of_b * of_b / (double)(n_b - 1)));
}

/* ---- equal operations ------------------------------------------------------------------------ */

struct equal { /* an operation of a thread that computes */
	uint32_t class, step, node;
	pl_ns ns, usual; /* usual: of equal operations; ns itself where these are few */
	double times;	 /* ns by usual */
};
struct equals {
	struct pl_intern keys;
	struct equal *v;
	size_t n, cap;
};

PL_COMPARATOR(by_class, struct equal, class, ns);
PL_COMPARATOR(by_step, struct equal, step, class, ns);
PL_COMPARATOR_FALLING(by_times, struct equal, times, ns);

/* Equal are operations at one place of steps that are alike; where these are few, operations of one
 * name and one set of recorded shapes. */
static int list_equals(const struct pl_graph *g, const size_t *steps, struct equals *x,
		       struct pl_err *err)
{
	struct {
		struct pl_sim_class class;
		uint32_t res, shape, place, unused;
		struct pl_sim_piece piece;
	} key;
	uint64_t all = 0;

	for (size_t k = 0; k < g->n_steps; k++)
		all += g->shape[g->step[k].shape].n_nodes;
	for (size_t k = 0; k < g->n_steps; k++) {
		uint32_t shape = g->step[k].shape;
		const struct pl_shape *sh = &g->shape[shape];

		for (uint64_t i = sh->n_entries; i < sh->n_nodes; i += all / EQUALS + 1) {
			uint32_t node = (uint32_t)i;
			struct equal e = { .step = (uint32_t)k,
					   .node = node,
					   .ns = g->step[k].dur[i] };

			memset(&key, 0, sizeof(key));
			if (sh->role[node] != PL_RO_COMPUTE || e.ns <= 0 ||
			    !runs_on_thread(g, sh, node) ||
			    !pl_sim_class_of(g, sh, node, &key.class))
				continue;
			key.res = sh->res[node];
			key.shape = key.place = PL_NONE;
			if (steps[shape] >= FEW) {
				key.shape = shape;
				key.place = node;
			} else if (key.class.work == PL_NONE) {
				continue;
			} else {
				key.piece = pl_sim_piece_of(sh, node);
			}
			PL_CHECK(pl_intern_add(&x->keys, (const char *)&key, sizeof(key), &e.class,
					       err));
			PL_CHECK(pl_append(&x->v, &x->n, &x->cap, &e, sizeof(e), err));
		}
	}
	return 0;
}

/* The equal operations of all steps, with their usual durations: a quarter of a class takes no
 * longer. The median would be slow where most of a class are. */
static int find_equals(const struct pl_graph *g, struct equals *x, struct pl_err *err)
{
	size_t *steps;
	int rc;

	PL_CHECK(pl_alloc(&steps, g->n_shapes + 1, sizeof(*steps), err));
	for (size_t i = 0; i < g->n_steps; i++)
		steps[g->step[i].shape]++;
	rc = list_equals(g, steps, x, err);
	pl_free(steps);
	pl_sort(x->v, x->n, sizeof(*x->v), by_class);
	for (size_t i = 0, n; i < x->n; i += n) {
		for (n = 1; i + n < x->n && x->v[i + n].class == x->v[i].class; n++)
			;
		for (size_t j = i; j < i + n; j++) {
			x->v[j].usual = x->v[n < FEW ? j : i + n / 4].ns;
			x->v[j].times = (double)x->v[j].ns / (double)x->v[j].usual;
		}
	}
	return rc;
}

/* Of the n operations of a step: so many times as long as usual takes a tenth of their time, or
 * longer. 0: there are few. */
static double times_of_step(struct equal *v, size_t n)
{
	double all = 0, most = 0;
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		all += (double)v[i].ns;
	pl_sort(v, n, sizeof(*v), by_times);
	while (k < n && most + (double)v[k].ns < PL_SELFTEST_SLOWEST * all)
		most += (double)v[k++].ns;
	return n ? v[k].times : 0;
}

int pl_selftest_scatter(const struct pl_graph *g, double *times, struct pl_node_time **v, size_t *n,
			struct pl_err *err)
{
	struct equals x = { 0 };
	size_t k = 0, cap = 0;
	double *of_step = NULL;
	int rc;

	*times = 1;
	*v = NULL;
	*n = 0;
	PL_TRY(pl_alloc(&of_step, g->n_steps, sizeof(*of_step), err));
	PL_TRY(find_equals(g, &x, err));
	for (size_t i = 0; i < x.n; i++) {
		const struct equal *e = &x.v[i];
		struct pl_node_time slow = { g->step[e->step].shape, e->node, e->usual };

		if (e->times >= PL_SELFTEST_UNLIKE)
			PL_TRY(pl_append(v, n, &cap, &slow, sizeof(slow), err));
	}
	pl_sort(x.v, x.n, sizeof(*x.v), by_step);
	for (size_t i = 0, some; i < x.n; i += some) {
		for (some = 1; i + some < x.n && x.v[i + some].step == x.v[i].step; some++)
			;
		of_step[k++] = times_of_step(&x.v[i], some);
	}
	if (k)
		*times = pl_median_double(of_step, k);
out:
	pl_intern_fini(&x.keys);
	pl_free(x.v);
	pl_free(of_step);
	return rc;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Does an edge into the node come from another rank? Those into a rendezvous come from its members.
 */
static bool joins(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	int32_t rank = pl_node_rank(g, sh, i);

	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++) {
		int32_t other = pl_node_rank(g, sh, sh->src[e]);

		if (other >= 0 && rank >= 0 && other != rank)
			return true;
		rank = rank < 0 ? other : rank;
	}
	return false;
}

/* Does any node of the shape join ranks? Most graphs have a rendezvous that does. */
static bool any_joins(const struct pl_graph *g, const struct pl_shape *sh)
{
	for (int all = 0; all < 2; all++)
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
			if ((all || sh->type[i] == PL_N_RENDEZVOUS) && joins(g, sh, i))
				return true;
	return false;
}

static void count(const struct pl_shape *sh, const struct transfers *x, uint64_t steps,
		  struct pl_selftest_ranks *out)
{
	for (size_t k = 0; k < x->n; k++) {
		uint32_t i = x->v[k].node;
		uint64_t without = x->v[k].alone ? steps : 0;

		if (sh->flags[i] & PL_NF_MESSAGE)
			continue;
		out->comms += steps;
		out->comms_alone += without;
		out->p2p += is_p2p(sh, i) ? steps : 0;
		out->p2p_alone += is_p2p(sh, i) ? without : 0;
	}
}

void pl_selftest_ranks(const struct pl_selftest *t, struct pl_selftest_ranks *out)
{
	const struct pl_graph *g = t->g;

	*out = (struct pl_selftest_ranks){ .joined = g->n_ranks < 2 };
	for (size_t k = 0; k < g->n_shapes; k++) {
		uint64_t steps = 0;

		for (size_t i = 0; i < g->n_steps; i++)
			steps += g->step[i].shape == k;
		count(&g->shape[k], &t->shape[k], steps, out);
		out->joined = out->joined || any_joins(g, &g->shape[k]);
	}
}
