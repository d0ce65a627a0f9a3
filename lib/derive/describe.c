/*
 * Phases, operators and communications of the nodes of a graph.
 *
 * The source of a graph recorded some of them. This file finds the others from names (names.c) and
 * from the structure, so that no user of the graph has to read a name again:
 *
 * A communication is a rendezvous with the arrivals that lead to it and their transfers. An arrival
 * without a rendezvous is a communication too, with its transfer. A message belongs to the latest
 * communication of its group whose arrivals or messages lead to it. The root of a broadcast or
 * scatter is the member whose arrival most transfers follow directly. A device operation has the
 * phase of the call that launched it. On a rank with a backward phase, other work is forward
 * if backward work follows, in the first step of the shape.
 *
 * No profiler records how long a thread waits for samples, unless PyTorch's DataLoader reads them.
 * A long gap is taken for such a wait if it lies between the optimiser, or the begin of the step,
 * and the next forward pass.
 *
 * Linear in nodes and edges, O(n log n) in gaps.
 */
#include "derive/describe.h"
#include "derive/names.h"
#include "derive/put.h"

/* The result of describe_work() for one row and name. Many nodes have the same row and name. */
struct work_found {
	bool known;
	pl_id name;
	uint32_t row;
};

struct describe {
	struct pl_graph *g;
	struct pl_err *err;	     /* the first failure: see put.h */
	struct pl_names_read *names; /* that were read before, or NULL */
	struct pl_name_says *says;   /* by string */
	bool *read;		     /* by string: says is there */
	size_t n_names;
	bool layers;	/* a name was read that is a pass of a layer */
	uint32_t *node; /* of the shape: list_nodes() */
	size_t n_list, cap_list;
	bool counts; /* of the shape: it has messages or roots, which count by node */
	struct work_found *of_name; /* by string: where the source said no work */
	struct work_found *of_row;  /* by row of the source: of the last name */
	uint32_t *rank;		    /* by resource: place in g->rank, PL_NONE */
	struct pl_derive_work rows;
	struct input *input;
	size_t n_input, cap_input;
};

static const struct pl_name_says *read_name(struct describe *d, pl_id name)
{
	static const struct pl_name_says nothing;

	if (name >= d->n_names)
		return &nothing;
	d->read[name] = true;
	if (d->names)
		d->says[name] = *pl_derive_name_once(d->names, d->g->str.str[name],
						     d->g->str.len[name], d->err);
	else
		pl_derive_name_read(d->g->str.str[name], d->g->str.len[name], &d->says[name]);
	d->layers |= d->says[name].module != NULL;
	return &d->says[name];
}

static inline const struct pl_name_says *says_of(struct describe *d, pl_id name)
{
	return name < d->n_names && d->read[name] ? &d->says[name] : read_name(d, name);
}

static pl_id put_string(struct describe *d, const char *s)
{
	return s ? pl_derive_intern_text(d->err, &d->g->str, s) : PL_NONE;
}

/* A column that the shape has not yet: nothing is known. */
static void add_column(struct describe *d, struct pl_shape *s, void *column, size_t size,
		       int unknown)
{
	void **p = column;

	if (!*p && pl_alloc(p, (size_t)s->n_nodes + 1, size, d->err) >= 0)
		memset(*p, unknown, s->n_nodes * size);
}

/* ---- communications -------------------------------------------------------------------------- */

static bool is_meeting(const struct pl_shape *s, uint32_t i)
{
	return s->type[i] == PL_N_RENDEZVOUS && s->role[i] != PL_RO_MARK;
}

static void new_comm(struct describe *d, struct pl_shape *s, size_t *cap, uint32_t node)
{
	s->comm[node] = s->n_comms;
	PL_DERIVE_ADD(d->err, s->comms, s->n_comms, *cap,
		      (struct pl_gcomm){ .algorithm = PL_NONE,
					 .type = PL_NONE,
					 .group = s->group[node],
					 .root = -1,
					 .bytes = -1 });
}

/* The communication that leads to a transfer or message, PL_NONE if none does. */
static uint32_t comm_before(const struct pl_shape *s, uint32_t i)
{
	bool message = s->flags[i] & PL_NF_MESSAGE;
	uint32_t best = PL_NONE;

	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
		uint32_t src = s->src[e], c = s->comm[src];
		bool own = s->role[src] == PL_RO_ARRIVE && s->res[src] == s->res[i];

		if (c == PL_NONE || s->group[src] != s->group[i])
			continue;
		if (!message &&
		    (own || (is_meeting(s, src) && PL_E_TYPE(s->etype[e]) == PL_E_COMM)))
			return c;
		if (message && (best == PL_NONE || c > best) &&
		    (s->role[src] == PL_RO_ARRIVE || s->flags[src] & PL_NF_MESSAGE))
			best = c;
	}
	return best;
}

/* The nodes that are or can become part of a communication: few, so the rest is skipped later. */
static void list_nodes(struct describe *d, struct pl_shape *s)
{
	d->n_list = 0;
	for (uint32_t i = 0; i < s->n_nodes; i++)
		if (is_meeting(s, i) || s->role[i] == PL_RO_ARRIVE ||
		    s->role[i] == PL_RO_TRANSFER || s->flags[i] & PL_NF_MESSAGE ||
		    s->comm[i] != PL_NONE)
			PL_DERIVE_ADD(d->err, d->node, d->n_list, d->cap_list, i);
}

/* Which nodes are one communication. */
static void find_comms(struct describe *d, struct pl_shape *s)
{
	size_t cap = 0;

	for (size_t k = 0; k < d->n_list; k++) {
		uint32_t i = d->node[k];

		if (!is_meeting(s, i))
			continue;
		new_comm(d, s, &cap, i);
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			if (s->role[s->src[e]] == PL_RO_ARRIVE)
				s->comm[s->src[e]] = s->comm[i];
	}
	for (size_t k = 0; k < d->n_list; k++) {
		uint32_t i = d->node[k];

		if (s->comm[i] != PL_NONE)
			continue;
		if (s->role[i] == PL_RO_TRANSFER || s->flags[i] & PL_NF_MESSAGE)
			s->comm[i] = comm_before(s, i);
		if (s->comm[i] == PL_NONE &&
		    (s->role[i] == PL_RO_ARRIVE || s->role[i] == PL_RO_TRANSFER))
			new_comm(d, s, &cap, i);
	}
}

/* Adds to a communication what the name and the values of one of its nodes say. */
static void add_to_comm(struct describe *d, struct pl_shape *s, uint32_t i)
{
	struct pl_gcomm *c = &s->comms[s->comm[i]];
	const struct pl_name_says *says = says_of(d, s->name[i]);

	d->counts |= s->flags[i] & PL_NF_MESSAGE;
	if (s->flags[i] & PL_NF_MESSAGE)
		return;
	if (c->kind == PL_COLL_OTHER)
		c->kind = says->coll;
	d->counts |= c->kind == PL_COLL_BROADCAST || c->kind == PL_COLL_SCATTER;
	c->members += s->role[i] == PL_RO_ARRIVE;
	if (s->bytes)
		c->bytes = pl_max_i64(c->bytes, s->bytes[i]);
	if (c->type == PL_NONE)
		c->type = put_string(d, says->type);
	if (c->algorithm == PL_NONE)
		c->algorithm = put_string(d, says->algorithm);
}

/* How many transfers of others follow each arrival directly makes the root; `n` is by node. */
static void find_root(const struct pl_graph *g, struct pl_shape *s, uint32_t i, uint32_t *n,
		      uint32_t *most)
{
	struct pl_gcomm *c = &s->comms[s->comm[i]];

	if (s->role[i] != PL_RO_TRANSFER || s->flags[i] & PL_NF_MESSAGE ||
	    (c->kind != PL_COLL_BROADCAST && c->kind != PL_COLL_SCATTER))
		return;
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
		uint32_t src = s->src[e];

		if (s->role[src] != PL_RO_ARRIVE || PL_E_TYPE(s->etype[e]) != PL_E_COMM ||
		    ++n[src] <= most[s->comm[i]])
			continue;
		most[s->comm[i]] = n[src];
		c->root = pl_node_rank(g, s, src);
	}
}

/* Messages that follow one another: `depth` is by node, how many are sent up to there. `forwards`
 * is by communication: does a rank send after it received? */
static void count_rounds(const struct pl_graph *g, struct pl_shape *s, uint32_t i, uint32_t *depth,
			 bool *forwards)
{
	struct pl_gcomm *c = &s->comms[s->comm[i]];

	depth[i] = 0;
	if (!(s->flags[i] & PL_NF_MESSAGE))
		return;
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
		uint32_t src = s->src[e];

		if (s->comm[src] != s->comm[i])
			continue;
		depth[i] = depth[src] > depth[i] ? depth[src] : depth[i];
		forwards[s->comm[i]] |= s->kind[src] == PL_K_RECV && s->kind[i] == PL_K_SEND &&
					pl_node_rank(g, s, src) == pl_node_rank(g, s, i);
	}
	depth[i] += s->kind[i] == PL_K_SEND;
	if (depth[i] > c->rounds)
		c->rounds = depth[i];
}

static void describe_comms(struct describe *d, struct pl_shape *s)
{
	uint32_t *count = NULL, *most = NULL;
	bool *forwards = NULL;
	size_t n = 0;
	int rc;

	d->counts = false;
	list_nodes(d, s);
	find_comms(d, s);
	if (!s->n_comms || d->err->code)
		return;
	for (size_t k = 0; k < d->n_list; k++) /* a message may belong to none */
		if (s->comm[d->node[k]] != PL_NONE)
			d->node[n++] = d->node[k];
	PL_TRY(pl_alloc(&most, s->n_comms, sizeof(*most), d->err));
	PL_TRY(pl_alloc(&forwards, s->n_comms, sizeof(*forwards), d->err));
	for (size_t k = 0; k < n; k++)
		add_to_comm(d, s, d->node[k]);
	if (d->counts) /* a large job mostly does not: the array has an element for each node */
		PL_TRY(pl_alloc(&count, s->n_nodes, sizeof(*count), d->err));
	for (size_t k = 0; count && k < n; k++)
		find_root(d->g, s, d->node[k], count, most);
	for (size_t k = 0; count && k < n; k++)
		count_rounds(d->g, s, d->node[k], count, forwards);
	for (uint32_t k = 0; k < s->n_comms; k++) {
		struct pl_gcomm *c = &s->comms[k];

		if (c->group != PL_NONE)
			c->members = d->g->group[c->group].n;
		/* where nobody forwards, each rank sends what it has to each other rank */
		if (c->kind == PL_COLL_ALLREDUCE && c->algorithm == PL_NONE && c->rounds > 0 &&
		    !forwards[k])
			c->algorithm = put_string(d, "direct");
	}
out:
	pl_free(forwards);
	pl_free(count);
	pl_free(most);
}

/* ---- phases ---------------------------------------------------------------------------------- */

static bool is_work(const struct pl_shape *s, uint32_t i)
{
	const unsigned roles =
		1u << PL_RO_COMPUTE | 1u << PL_RO_HOST | 1u << PL_RO_COPY | 1u << PL_RO_SYNC;

	return roles >> s->role[i] & 1;
}

/* The phase of the call that launched it. */
static uint8_t phase_of_launch(const struct pl_shape *s, uint32_t i)
{
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
		if (PL_E_TYPE(s->etype[e]) == PL_E_LAUNCH || PL_E_TYPE(s->etype[e]) == PL_E_EARLY)
			return s->phase[s->src[e]];
	return PL_PH_UNKNOWN;
}

/* `says`: of the name; NULL: the node is no work. */
static uint8_t phase_of_node(const struct pl_shape *s, uint32_t i, const struct pl_name_says *says)
{
	uint8_t phase;

	if (s->comm[i] != PL_NONE)
		return PL_PH_COMM;
	if (s->kind[i] == PL_K_DATA)
		return PL_PH_INPUT;
	if (!says)
		return pl_graph_phase_holds(s->phase[i]) ? s->phase[i] : (uint8_t)PL_PH_OTHER;
	if (s->phase[i] != PL_PH_UNKNOWN)
		return s->phase[i];
	if (says->communicates)
		return PL_PH_COMM;
	phase = phase_of_launch(s, i);
	return phase != PL_PH_UNKNOWN ? phase : says->phase;
}

/* ---- work ------------------------------------------------------------------------------------ */

/* The row with the content of w; it is `number` if there was none. */
static uint32_t find_row(struct pl_derive_work *rows, const struct pl_gwork *w, size_t number,
			 struct pl_err *err)
{
	const int64_t key[6] = { w->op, w->type, w->dims, w->flops, w->bytes, w->name };
	size_t n = rows->content.n;
	pl_id k = rows->most && n >= rows->most
			  ? pl_intern_find(&rows->content, (const char *)key, sizeof(key))
			  : pl_derive_intern(err, &rows->content, key, sizeof(key));

	if (k == n)
		PL_DERIVE_ADD(err, rows->row, n, rows->cap, (uint32_t)number);
	return k == PL_NONE || err->code ? PL_NONE : rows->row[k];
}

uint32_t pl_derive_add_work(struct pl_graph *g, struct pl_derive_work *rows,
			    const struct pl_gwork *w, struct pl_err *err)
{
	uint32_t row = find_row(rows, w, g->n_work, err);

	if (row == g->n_work)
		PL_DERIVE_ADD(err, g->work, g->n_work, g->cap_work, *w);
	return row;
}

void pl_derive_work_fini(struct pl_derive_work *rows)
{
	pl_intern_fini(&rows->content);
	pl_free(rows->row);
}

/* The row `row` or, if that is PL_NONE, a new one with operator and type by the name, where the
 * source did not say them. */
static uint32_t complete_row(struct describe *d, const struct pl_name_says *says, uint32_t row)
{
	struct pl_gwork w = {
		.type = PL_NONE, .dims = PL_NONE, .flops = -1, .bytes = -1, .name = PL_NONE
	};

	if (row != PL_NONE)
		w = d->g->work[row];
	if (!w.op)
		w.op = says->op;
	if (w.type == PL_NONE)
		w.type = put_string(d, says->type);
	return w.op || w.type != PL_NONE || w.dims != PL_NONE
		       ? pl_derive_add_work(d->g, &d->rows, &w, d->err)
		       : row;
}

/* Operator and type of an operation, where its source did not say them. */
static void describe_work(struct describe *d, const struct pl_shape *s, uint32_t i,
			  const struct pl_name_says *says)
{
	uint32_t row = s->work[i];
	pl_id name = s->name[i];
	struct work_found *f;

	if (s->kind[i] == PL_K_RUNTIME || (name >= d->n_names && row == PL_NONE) ||
	    (row != PL_NONE && d->g->work[row].op && d->g->work[row].type != PL_NONE))
		return;
	f = row == PL_NONE ? &d->of_name[name] : &d->of_row[row];
	if (!f->known || f->name != name)
		*f = (struct work_found){ true, name, complete_row(d, says, row) };
	s->work[i] = f->row;
}

/* A whole layer's pass says of which layer it is. */
static void describe_layers(struct describe *d, struct pl_shape *s)
{
	for (uint32_t i = 0; d->layers && i < s->n_nodes && !d->err->code; i++) {
		const char *module = says_of(d, s->name[i])->module;

		if (!module || !is_work(s, i))
			continue;
		s->flags[i] |= PL_NF_LAYER;
		add_column(d, s, &s->module, sizeof(*s->module), 0xff);
		if (s->module && s->module[i] == PL_NONE)
			s->module[i] = put_string(d, module);
	}
}

/* ---- input ----------------------------------------------------------------------------------- */

#define INPUT_SHARE 33 /* a wait for samples is at least that part of the step, */
#define INPUT_TIMES 4  /* and so many times as long as nine of ten other gaps */

struct gap {
	uint32_t res;
	bool input; /* it may be a wait for samples */
	pl_ns ns;
	uint32_t node;
};

struct input { /* a gap that is perhaps a wait for samples */
	uint32_t res, shape, node;
	size_t steps; /* in which it is long */
};

struct input_thread { /* by resource */
	bool open;    /* nothing of the next forward pass has run since the optimiser */
	size_t since; /* the first gap since then */
	pl_ns first, last;
};

PL_COMPARATOR(by_length, struct gap, res, input, ns, node);

/* Mean duration of the node in the steps of the shape. *longer: how many of them take at least
 * `least`. */
static pl_ns mean_of_steps(const struct pl_graph *g, const struct pl_shape *shape, uint32_t node,
			   pl_ns least, size_t *longer)
{
	pl_ns sum = 0, n = 0;

	*longer = 0;
	for (size_t k = 0; k < g->n_steps; k++) {
		if (&g->shape[g->step[k].shape] != shape || !pl_graph_is_step(g, k))
			continue;
		sum = pl_add_sat(sum, g->step[k].dur[node]);
		*longer += g->step[k].dur[node] >= least;
		n++;
	}
	return n ? sum / n : 0;
}

/* The gaps of one thread, by length; those that may be waits for samples are the last. */
static void find_waits(struct describe *d, size_t shape, const struct gap *v, size_t n,
		       const struct input_thread *thread)
{
	pl_ns least = (thread->last - thread->first) / INPUT_SHARE;
	size_t others = 0;

	while (others < n && !v[others].input)
		others++;
	if (others)
		least = pl_max_i64(least, INPUT_TIMES * v[others * 9 / 10].ns);
	for (size_t i = others; i < n; i++) {
		struct input x = { .res = v[i].res, .shape = (uint32_t)shape, .node = v[i].node };

		if (mean_of_steps(d->g, &d->g->shape[shape], x.node, least, &x.steps) >= least)
			PL_DERIVE_ADD(d->err, d->input, d->n_input, d->cap_input, x);
	}
}

/* A wait comes in nearly all steps: of n, in all but 1 + n / 8, of two in both. What stops some
 * steps may be anything, such as a collection of garbage, a checkpoint, or another process. The
 * gaps of a shape follow one another. */
static void name_input(struct describe *d)
{
	size_t *steps; /* [resource]: with a wait */
	size_t all = pl_graph_count_steps(d->g),
	       least = all < 4 ? all - (all > 2) : all - 1 - all / 8;

	if (pl_alloc(&steps, d->g->n_res, sizeof(*steps), d->err) < 0)
		return;
	for (size_t i = 0, n; i < d->n_input; i += n) {
		const struct input *x = &d->input[i];
		size_t most = 0;

		for (n = 0; i + n < d->n_input && x[n].res == x->res && x[n].shape == x->shape; n++)
			most = x[n].steps > most ? x[n].steps : most;
		steps[x->res] += most;
	}
	for (size_t i = 0; i < d->n_input; i++) {
		const struct input *x = &d->input[i];
		struct pl_shape *s = &d->g->shape[x->shape];

		if (steps[x->res] < least)
			continue;
		s->phase[x->node] = PL_PH_INPUT;
		s->flags[x->node] |= PL_NF_INFERRED;
		s->name[x->node] = put_string(d, "waiting for input");
	}
	pl_free(steps);
}

/* Does the node show that its thread has its samples? On a rank without a backward pass (`trains`
 * is false) all work does. */
static bool has_samples(const struct pl_shape *s, uint32_t i, bool trains)
{
	unsigned phase = s->phase[i];

	return phase == PL_PH_FORWARD || phase == PL_PH_COMM || pl_graph_is_backward(phase) ||
	       (!trains && phase != PL_PH_OPTIMIZER && is_work(s, i));
}

/* No rank needs samples for a barrier, nor to receive what the stage before it sends: what comes
 * before is something else. */
static bool needs_no_samples(const struct describe *d, const struct pl_shape *s, uint32_t i)
{
	return s->phase[i] == PL_PH_COMM && s->role[i] != PL_RO_GAP &&
	       pl_glob("*barrier*|*recv*", pl_intern_get(&d->g->str, s->name[i]));
}

/* `last`: see describe_nodes(). Ranks whose input was recorded need no guess. */
static void find_input(struct describe *d, const struct pl_shape *s, const struct pl_gstep *st,
		       const pl_ns *last)
{
	struct input_thread *thread = NULL;
	bool *recorded = NULL;
	struct gap *v = NULL;
	size_t n = 0, cap = 0;
	int rc;

	PL_TRY(pl_alloc(&thread, d->g->n_res, sizeof(*thread), d->err));
	PL_TRY(pl_alloc(&recorded, (size_t)d->g->n_ranks, sizeof(*recorded), d->err));
	for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
		uint32_t r = s->res[i] == PL_NONE ? PL_NONE : d->rank[s->res[i]];
		struct input_thread *x;

		if (r == PL_NONE)
			continue;
		x = &thread[s->res[i]];
		if (s->phase[i] == PL_PH_INPUT)
			recorded[r] = true;
		if (!x->last)
			x->first = st->start[i];
		x->last = pl_max_i64(x->last, st->start[i] + st->dur[i]);
		if (s->phase[i] == PL_PH_OPTIMIZER ||
		    (s->role[i] == PL_RO_MARK && s->flags[i] & PL_NF_STEP_BEGIN))
			x->open = true, x->since = n;
		else if (x->open && needs_no_samples(d, s, i))
			for (; x->since < n; x->since++)
				v[x->since].input &= v[x->since].res != s->res[i];
		else if (has_samples(s, i, last[r] != INT64_MIN))
			x->open = false;
		if (s->role[i] == PL_RO_GAP && s->kind[i] != PL_K_DATA &&
		    s->phase[i] <= PL_PH_OTHER)
			PL_DERIVE_ADD(d->err, v, n, cap,
				      (struct gap){ s->res[i], x->open, st->dur[i], i });
	}
	pl_sort(v, n, sizeof(*v), by_length);
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i; k < n && v[k].res == v[i].res; k++)
			;
		if (!recorded[d->rank[v[i].res]])
			find_waits(d, st->shape, v + i, k - i, &thread[v[i].res]);
	}
out:
	pl_free(thread);
	pl_free(recorded);
	pl_free(v);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* The layers of a model behind the backward pass and the optimizer of a rank are an evaluation,
 * whose phase need not be recorded. `last`: as in describe_nodes(); changes. */
static void find_evaluation(const struct describe *d, const struct pl_shape *s,
			    const struct pl_gstep *st, pl_ns *last)
{
	bool *found; /* [rank] */

	if (pl_alloc(&found, (size_t)d->g->n_ranks, sizeof(*found), d->err) < 0)
		return;
	for (unsigned pass = 0; pass < 3; pass++)
		for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
			uint32_t r = s->res[i] == PL_NONE ? PL_NONE : d->rank[s->res[i]];

			if (r == PL_NONE || last[r] == INT64_MIN || st->start[i] <= last[r])
				continue;
			if (pass == 0 && s->phase[i] == PL_PH_OPTIMIZER)
				last[r] = st->start[i];
			if (s->phase[i] != PL_PH_OTHER || s->role[i] == PL_RO_MARK)
				continue;
			if (pass == 1 && pl_graph_is_product(pl_node_operator(d->g, s, i)))
				found[r] = true;
			if (pass == 2 && found[r]) {
				s->phase[i] = PL_PH_EVALUATION;
				s->flags[i] |= PL_NF_PHASE;
			}
		}
	pl_free(found);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The phase of a forward operation on a rank whose last backward operation begins at `last`. */
static uint8_t after_training(const struct pl_shape *s, uint32_t i, const struct pl_gstep *st,
			      pl_ns last)
{
	uint8_t call = phase_of_launch(s, i);

	if (call != PL_PH_UNKNOWN)
		return call;
	return is_work(s, i) && st->start[i] > last ? PL_PH_OTHER : PL_PH_FORWARD;
}

/* Phase and work of each node. Work whose phase nothing tells has the phase of its launch.
 * Otherwise it is forward if a backward operation of its rank begins later, and has none of these
 * phases if none does: a step can have several passes, such as a batch in parts. What a range calls
 * forward, but no backward operation follows, is not forward. `st`: a step of the shape. */
static void describe_nodes(struct describe *d, const struct pl_shape *shape,
			   const struct pl_gstep *st)
{
	const struct pl_shape columns = *shape, *s = &columns; /* no store below changes them */
	size_t n = (size_t)d->g->n_ranks;
	pl_ns *last; /* begin of the last backward operation, by rank */

	if (pl_alloc(&last, n, sizeof(*last), d->err) < 0)
		return;
	for (size_t k = 0; k < n; k++)
		last[k] = INT64_MIN;
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		const struct pl_name_says *says = is_work(s, i) ? says_of(d, s->name[i]) : NULL;
		uint8_t phase = s->phase[i] = phase_of_node(s, i, says);
		uint32_t r;

		if (!says)
			continue;
		describe_work(d, s, i, says);
		if (!st || !pl_graph_is_backward(phase) || s->res[i] == PL_NONE)
			continue;
		r = d->rank[s->res[i]];
		if (r != PL_NONE && phase_of_launch(s, i) == PL_PH_UNKNOWN)
			last[r] = pl_max_i64(last[r], st->start[i]);
	}
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		uint32_t r;

		if (s->res[i] == PL_NONE)
			continue;
		r = d->rank[s->res[i]];
		if (s->phase[i] == PL_PH_FORWARD && r != PL_NONE && last[r] != INT64_MIN)
			s->phase[i] = after_training(s, i, st, last[r]);
		if (s->phase[i] != PL_PH_UNKNOWN)
			continue;
		s->phase[i] = phase_of_launch(s, i);
		if (s->phase[i] == PL_PH_UNKNOWN && r != PL_NONE && last[r] != INT64_MIN)
			s->phase[i] = st->start[i] < last[r] ? PL_PH_FORWARD : PL_PH_OTHER;
	}
	if (st) {
		find_input(d, shape, st, last);
		find_evaluation(d, s, st, last);
	}
	pl_free(last);
}

int pl_derive_describe(struct pl_graph *g, struct pl_names_read *names, struct pl_err *err)
{
	struct describe d = { .g = g, .err = err, .names = names, .n_names = g->str.n };
	int rc = 0;

	if (g->described)
		return 0;
	PL_TRY(pl_alloc(&d.says, g->str.n, sizeof(*d.says), err));
	PL_TRY(pl_alloc(&d.rank, g->n_res, sizeof(*d.rank), err));
	PL_TRY(pl_alloc(&d.read, g->str.n, sizeof(*d.read), err));
	PL_TRY(pl_alloc(&d.of_name, g->str.n, sizeof(*d.of_name), err));
	PL_TRY(pl_alloc(&d.of_row, g->n_work, sizeof(*d.of_row), err));
	for (size_t i = 0; i < g->n_res; i++)
		d.rank[i] = pl_graph_rank_index(g, g->res[i].rank);
	for (size_t i = 0; i < g->n_work; i++) /* the rows there are keep their numbers */
		find_row(&d.rows, &g->work[i], i, err);
	for (size_t i = 0; i < g->n_shapes; i++) {
		struct pl_shape *s = &g->shape[i];
		const struct pl_gstep *st = NULL;

		for (size_t k = 0; k < g->n_steps && !st; k++)
			st = g->step[k].shape == i ? &g->step[k] : NULL;
		add_column(&d, s, &s->comm, sizeof(*s->comm), 0xff);
		add_column(&d, s, &s->phase, sizeof(*s->phase), PL_PH_UNKNOWN);
		add_column(&d, s, &s->work, sizeof(*s->work), 0xff);
		PL_TRY(err->code);
		describe_comms(&d, s);
		PL_TRY(err->code);
		describe_nodes(&d, s, st);
		describe_layers(&d, s);
		PL_TRY(err->code);
	}
	PL_TRY(pl_derive_evaluation(g, d.rank, err));
	name_input(&d);
	PL_TRY(err->code);
	g->described = true;
out:
	pl_free(d.says);
	pl_free(d.read);
	pl_free(d.node);
	pl_free(d.of_name);
	pl_free(d.of_row);
	pl_free(d.rank);
	pl_free(d.input);
	pl_derive_work_fini(&d.rows);
	return rc;
}

int pl_derive_read(struct pl_in *in, struct pl_pool *pool, struct pl_graph *g, struct pl_err *err)
{
	int rc;

	PL_CHECK(pl_graph_read(in, pool, g, err));
	rc = pl_derive_describe(g, NULL, err);
	if (rc < 0)
		pl_graph_fini(g);
	return rc;
}
