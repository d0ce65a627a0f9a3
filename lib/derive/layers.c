/*
 * Graphs from tables of layers: one step of synchronous data-parallel training.
 *
 * The schedule is that of wait-free backpropagation (Poseidon, USENIX ATC 2017, section 3): the
 * gradients of a layer travel while the layers below it are still computed. Nothing is fused here;
 * what may travel together is for a plan to say.
 *
 * All ranks do the same at the same time, so nodes come in rows: node r of a row is that of rank r,
 * and the distance to a predecessor is the same in the whole row, which compresses well. A node
 * starts when its last predecessor has ended: put_edge() keeps that as edges are added, hence the
 * recorded starts are the simulated ones. O(ranks x layers), about 0.2 us for each of them.
 */
#include <string.h>

#include "derive/describe.h"
#include "derive/layers.h"
#include "io/csv.h"
#include "io/json.h"

#define LAYERS_MAX (1u << 20)
#define TIME_MAX   (((pl_ns)1 << 60) - 1) /* of a graph: see valid.c */
#define TOO_LONG   "the step would last more than 36 years; are the units right?"

enum column { C_LAYER, C_FORWARD, C_BACKWARD, C_PARAM, C_ACT, C_UPDATE, C_TENSOR, C_TYPE, C_KIND };
#define N_COLUMNS (C_KIND + 1)

static const struct {
	const char *name; /* of a time: without its unit */
	bool needed, time;
} columns[N_COLUMNS] = {
	[C_LAYER] = { "layer", true, false },	       [C_FORWARD] = { "forward", true, true },
	[C_BACKWARD] = { "backward", true, true },     [C_PARAM] = { "param_bytes", true, false },
	[C_ACT] = { "activation_bytes", true, false }, [C_UPDATE] = { "update", false, true },
	[C_TENSOR] = { "tensor", false, false },       [C_TYPE] = { "type", false, false },
	[C_KIND] = { "kind", false, false },
};

struct layer {
	pl_id forward, backward, reduce; /* names of its operations */
	pl_id grad, param, activation;	 /* names of its tensors */
	pl_id type;
	pl_ns forward_ns, backward_ns;
	int64_t param_bytes, activation_bytes;
	uint32_t row_forward, row_backward, row_arrive, row_transfer; /* first nodes; PL_NONE */
};

struct table {
	const struct pl_layers_opts *o;
	struct pl_graph *g;
	const char *file;
	struct pl_intern seen, tensors; /* names of layers, and of their parameters */
	struct layer *layer;
	size_t n, cap, n_comm; /* n_comm: of those that communicate */
	pl_ns update_ns, total_ns;
	bool header;
	size_t at[N_COLUMNS]; /* column of the file, SIZE_MAX if it has none */
	int64_t unit_ns[N_COLUMNS];
};

/* ---- reading -----------------------------------------------------------------------------------
 */

/* Which column does the header cell name? -1: none. */
static int column_of(const char *cell, int64_t *unit_ns)
{
	static const struct {
		const char *suffix;
		int64_t ns;
	} unit[] = { { "_ns", 1 }, { "_us", 1000 }, { "_ms", 1000000 }, { "_s", 1000000000 } };

	for (int c = 0; c < N_COLUMNS; c++) {
		size_t n = strlen(columns[c].name);

		if (strncmp(cell, columns[c].name, n) != 0)
			continue;
		if (!columns[c].time && !cell[n])
			return c;
		for (size_t i = 0; columns[c].time && i < PL_LEN(unit); i++) {
			*unit_ns = unit[i].ns;
			if (!strcmp(cell + n, unit[i].suffix))
				return c;
		}
	}
	return -1;
}

static int read_header(struct table *t, const struct pl_csv_row *r, struct pl_err *err)
{
	for (size_t c = 0; c < N_COLUMNS; c++)
		t->at[c] = SIZE_MAX;
	for (size_t i = 0; i < r->n; i++) {
		int64_t unit = 1;
		int c = column_of(r->field[i], &unit);

		if (c < 0) {
			pl_say(t->o->log, PL_LOG_WARN,
			       "%s: line %lld: column \"%.64s\" is not known and not used", t->file,
			       (long long)r->line, r->field[i]);
			continue;
		}
		if (t->at[c] != SIZE_MAX)
			return pl_fail(err, PL_EDATA,
				       "%s: line %lld: two columns for the same thing, the second "
				       "is \"%.64s\"",
				       t->file, (long long)r->line, r->field[i]);
		t->at[c] = i;
		t->unit_ns[c] = unit;
	}
	for (size_t c = 0; c < N_COLUMNS; c++)
		if (columns[c].needed && t->at[c] == SIZE_MAX)
			return pl_fail(err, PL_EDATA,
				       "%s: line %lld: no column \"%s%s\"; a table of layers "
				       "begins with layer,forward_ns,backward_ns,param_bytes,"
				       "activation_bytes",
				       t->file, (long long)r->line, columns[c].name,
				       columns[c].time ? "_ns" : "");
	t->header = true;
	return 0;
}

/* The cell, NULL if the row has none or an empty one. */
static const char *cell(const struct table *t, const struct pl_csv_row *r, size_t c, size_t *n)
{
	if (t->at[c] >= r->n || !r->len[t->at[c]])
		return NULL;
	*n = r->len[t->at[c]];
	return r->field[t->at[c]];
}

static int bad_cell(const struct table *t, const struct pl_csv_row *r, size_t c, const char *want,
		    struct pl_err *err)
{
	size_t n;
	const char *s = cell(t, r, c, &n);

	return pl_fail(err, PL_EDATA, "%s: line %lld: column %zu (%s): %s%.64s%s, should be %s",
		       t->file, (long long)r->line, t->at[c] + 1, columns[c].name, s ? "\"" : "",
		       s ? s : "nothing", s ? "\"" : "", want);
}

/* A number of bytes, or a time in ns; 0 for an optional cell that is not there. */
static int cell_number(const struct table *t, const struct pl_csv_row *r, size_t c, int64_t *v,
		       struct pl_err *err)
{
	size_t n;
	const char *s = cell(t, r, c, &n);
	bool good = s && (columns[c].time ? pl_json_time_ns(s, n, t->unit_ns[c], v)
					  : pl_json_i64(s, n, v));

	if (!s && !columns[c].needed) {
		*v = 0;
		return 0;
	}
	if (good && *v >= 0 && *v <= TIME_MAX)
		return 0;
	return bad_cell(t, r, c,
			columns[c].time ? "a time of 0 or more" : "a whole number of 0 or more",
			err);
}

static int put_name(struct table *t, const char *before, const char *name, pl_id *id,
		    struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int rc;

	PL_TRY(pl_buf_printf(&b, err, "%s%s", before, name));
	PL_TRY(pl_intern_add(&t->g->str, (const char *)b.p, strlen((const char *)b.p), id, err));
out:
	pl_buf_fini(&b);
	return rc;
}

static int read_names(struct table *t, const struct pl_csv_row *r, struct layer *x,
		      struct pl_err *err)
{
	size_t n, before = t->seen.n;
	const char *name = cell(t, r, C_LAYER, &n), *tensor, *type;
	pl_id id;
	int rc;

	if (!name)
		return bad_cell(t, r, C_LAYER, "the name of the layer", err);
	PL_TRY(pl_intern_add(&t->seen, name, n, &id, err));
	if (id != before)
		return pl_fail(err, PL_EDATA,
			       "%s: line %lld: a second layer \"%.64s\"; each needs a name of its "
			       "own",
			       t->file, (long long)r->line, name);
	tensor = cell(t, r, C_TENSOR, &n);
	tensor = tensor ? tensor : name;
	before = t->tensors.n;
	PL_TRY(pl_intern_add(&t->tensors, tensor, strlen(tensor), &id, err));
	if (id != before)
		return pl_fail(err, PL_EDATA,
			       "%s: line %lld: a second tensor \"%.64s\"; parameters that layers "
			       "share belong to one of them, the others have 0 bytes and no name",
			       t->file, (long long)r->line, tensor);
	PL_TRY(put_name(t, "forward ", name, &x->forward, err));
	PL_TRY(put_name(t, "backward ", name, &x->backward, err));
	PL_TRY(put_name(t, "allreduce ", name, &x->reduce, err));
	PL_TRY(put_name(t, "grad ", tensor, &x->grad, err));
	PL_TRY(put_name(t, "", tensor, &x->param, err));
	PL_TRY(put_name(t, "activation ", name, &x->activation, err));
	x->type = PL_NONE;
	type = cell(t, r, C_TYPE, &n);
	if (type)
		PL_TRY(pl_intern_add(&t->g->str, type, n, &x->type, err));
out:
	return rc < 0 ? rc : 0;
}

static int read_layer(struct table *t, const struct pl_csv_row *r, struct pl_err *err)
{
	struct layer x = { 0 };
	pl_ns update;
	int rc;

	if (t->n >= LAYERS_MAX)
		return pl_fail(err, PL_ELIMIT, "%s: line %lld: more than %u layers", t->file,
			       (long long)r->line, LAYERS_MAX);
	PL_TRY(read_names(t, r, &x, err));
	PL_TRY(cell_number(t, r, C_FORWARD, &x.forward_ns, err));
	PL_TRY(cell_number(t, r, C_BACKWARD, &x.backward_ns, err));
	PL_TRY(cell_number(t, r, C_PARAM, &x.param_bytes, err));
	PL_TRY(cell_number(t, r, C_ACT, &x.activation_bytes, err));
	PL_TRY(cell_number(t, r, C_UPDATE, &update, err));
	t->update_ns = pl_add_sat(t->update_ns, update);
	t->total_ns = pl_add_sat(t->total_ns, x.forward_ns);
	t->total_ns = pl_add_sat(t->total_ns, pl_add_sat(x.backward_ns, update));
	if (t->total_ns > TIME_MAX)
		return pl_fail(err, PL_ELIMIT, "%s: line %lld: " TOO_LONG, t->file,
			       (long long)r->line);
	PL_TRY(pl_grow(&t->layer, &t->cap, t->n + 1, sizeof(x), err));
	t->layer[t->n++] = x;
out:
	return rc;
}

static int on_row(void *arg, const struct pl_csv_row *r, struct pl_err *err)
{
	struct table *t = arg;

	if (r->n && r->field[0][0] == '#')
		return 0;
	return t->header ? read_layer(t, r, err) : read_header(t, r, err);
}

static int read_table(struct table *t, struct pl_in *in, struct pl_err *err)
{
	int rc = pl_csv_read(in, on_row, t, err);

	if (rc < 0)
		return rc;
	if (!t->n)
		return pl_fail(err, PL_EDATA, "%s: no layers in this table", t->file);
	return 0;
}

static bool communicates(const struct table *t, const struct layer *l)
{
	return t->o->n_ranks > 1 && l->param_bytes > 0;
}

static uint64_t n_edges(const struct table *t)
{
	return (uint64_t)t->o->n_ranks * (2 * t->n + 6 * t->n_comm + 2);
}

/* Before anything is taken that grows with the ranks. */
static int check_size(struct table *t, struct pl_err *err)
{
	for (size_t i = 0; i < t->n; i++)
		t->n_comm += communicates(t, &t->layer[i]);
	if (n_edges(t) < PL_NONE / 2)
		return 0;
	return pl_fail(err, PL_ELIMIT,
		       "%s: %u ranks of %zu layers make %llu dependencies, more than a graph can "
		       "hold; take fewer --ranks",
		       t->file, t->o->n_ranks, t->n, (unsigned long long)n_edges(t));
}

/* ---- resources ---------------------------------------------------------------------------------
 */

enum { COMPUTE, COMM, PER_RANK };

static int put_string(struct pl_graph *g, const char *s, pl_id *id, struct pl_err *err)
{
	return pl_intern_add(&g->str, s, strlen(s), id, err);
}

static int make_resources(const struct table *t, struct pl_err *err)
{
	static const char *const name[PER_RANK] = { "compute", "comm" };
	struct pl_graph *g = t->g;
	uint32_t n = t->o->n_ranks, per_host = t->o->per_host ? t->o->per_host : n;
	char text[32];
	int rc;

	PL_TRY(pl_alloc(&g->rank, n, sizeof(*g->rank), err));
	g->n_ranks = (int32_t)n;
	PL_TRY(pl_grow(&g->res, &g->cap_res, (size_t)n * PER_RANK, sizeof(*g->res), err));
	for (uint32_t i = 0; i < n * PER_RANK; i++) {
		uint32_t rank = i / PER_RANK;
		struct pl_resource r = { .track_type = PL_T_STREAM,
					 .rank = (int32_t)rank,
					 .device = (int32_t)(rank % per_host),
					 .capacity = 1,
					 .coord = { (int32_t)rank, -1, -1, -1 } };

		g->rank[rank] = (int32_t)rank;
		snprintf(text, sizeof(text), "host %u", rank / per_host);
		PL_TRY(put_string(g, text, &r.host, err));
		PL_TRY(put_string(g, name[i % PER_RANK], &r.name, err));
		g->res[g->n_res++] = r;
	}
out:
	return rc;
}

static int make_group(const struct table *t, struct pl_err *err)
{
	struct pl_graph *g = t->g;
	uint32_t n = t->o->n_ranks;
	int rc;

	PL_TRY(pl_grow(&g->group, &g->cap_groups, 1, sizeof(*g->group), err));
	PL_TRY(pl_grow(&g->group_rank, &g->cap_group_ranks, n, sizeof(*g->group_rank), err));
	g->group[0] = (struct pl_ggroup){ .n = n };
	PL_TRY(put_string(g, "dp", &g->group[0].name, err));
	for (uint32_t i = 0; i < n; i++)
		g->group_rank[g->n_group_ranks++] = i;
	g->n_groups = 1;
out:
	return rc;
}

/* ---- nodes -------------------------------------------------------------------------------------
 */

/* What the nodes of a row have in common. */
struct proto {
	uint8_t type, role, kind, flags;
	pl_id name;
	uint32_t which; /* COMPUTE, COMM */
	uint32_t group;
	int64_t bytes;
	int32_t layer;
	pl_ns dur;
};

struct step {
	const struct table *t;
	struct pl_shape *s;
	pl_ns *start, *dur;
};

/* Room for everything: with C of L layers that communicate, rows of begin, forward, backward,
 * arrivals, transfers, optimiser and end; a rendezvous each. */
static int make_room(struct step *x, struct pl_err *err)
{
	uint64_t ranks = x->t->o->n_ranks, layers = x->t->n, comm = x->t->n_comm;
	uint64_t nodes = ranks * (2 * layers + 2 * comm + 3) + comm, edges = n_edges(x->t);
	struct pl_shape *s = x->s;
	int rc;

	PL_TRY(pl_shape_room(s, PL_HAS_bytes | PL_HAS_layer, nodes, edges, err));
	PL_TRY(pl_alloc(&x->start, nodes, sizeof(*x->start), err));
	PL_TRY(pl_alloc(&x->dur, nodes, sizeof(*x->dur), err));
out:
	return rc;
}

static uint32_t put_node(struct step *x, const struct proto *p, uint32_t res)
{
	struct pl_shape *s = x->s;
	uint32_t i = s->n_nodes++;

	s->type[i] = p->type;
	s->role[i] = p->role;
	s->kind[i] = p->kind;
	s->flags[i] = p->flags;
	s->res[i] = res;
	s->name[i] = p->name;
	s->group[i] = p->group;
	s->bytes[i] = p->bytes;
	s->layer[i] = p->layer;
	s->off[i + 1] = s->n_edges;
	x->dur[i] = p->dur;
	return i;
}

/* A predecessor of the node that was put last. */
static void put_edge(struct step *x, uint32_t src, unsigned type)
{
	struct pl_shape *s = x->s;
	uint32_t i = s->n_nodes - 1;

	s->src[s->n_edges] = src;
	s->etype[s->n_edges++] = (uint8_t)type;
	s->off[i + 1] = s->n_edges;
	x->start[i] = pl_max_i64(x->start[i], pl_add_sat(x->start[src], x->dur[src]));
}

/* A row after up to two others; returns its first node. */
static uint32_t put_row(struct step *x, const struct proto *p, uint32_t after, unsigned type,
			uint32_t also, unsigned also_type)
{
	uint32_t first = x->s->n_nodes;

	for (uint32_t r = 0; r < x->t->o->n_ranks; r++) {
		put_node(x, p, r * PER_RANK + p->which);
		if (after != PL_NONE)
			put_edge(x, after + r, type);
		if (also != PL_NONE)
			put_edge(x, also + r, also_type);
	}
	return first;
}

static uint32_t put_compute(struct step *x, pl_id name, size_t layer, pl_ns dur, uint32_t after)
{
	struct proto p = { .type = PL_N_OP,
			   .role = PL_RO_COMPUTE,
			   .kind = PL_K_KERNEL,
			   .flags = PL_NF_IN_STEP,
			   .name = name,
			   .which = COMPUTE,
			   .group = PL_NONE,
			   .bytes = -1,
			   .layer = (int32_t)layer,
			   .dur = dur };

	return put_row(x, &p, after, PL_E_SEQ, PL_NONE, 0);
}

static uint32_t put_mark(struct step *x, pl_id name, unsigned flag, uint32_t after)
{
	struct proto p = { .type = PL_N_OP,
			   .role = PL_RO_MARK,
			   .kind = PL_K_STEP,
			   .flags = (uint8_t)flag,
			   .name = name,
			   .which = COMPUTE,
			   .group = PL_NONE,
			   .bytes = -1,
			   .layer = -1 };

	return put_row(x, &p, after, PL_E_SEQ, PL_NONE, 0);
}

/* Arrivals, the rendezvous of all, transfers; `before` is the row of transfers before, PL_NONE. */
static void put_comm(struct step *x, struct layer *l, size_t number, uint32_t before, pl_ns dur)
{
	const struct pl_layers_opts *o = x->t->o;
	struct proto p = { .type = PL_N_OP,
			   .role = PL_RO_ARRIVE,
			   .kind = PL_K_COLLECTIVE,
			   .flags = PL_NF_IN_STEP,
			   .name = l->reduce,
			   .which = COMM,
			   .group = 0,
			   .bytes = l->param_bytes,
			   .layer = (int32_t)number };
	struct proto meet = p;
	uint32_t at;

	l->row_arrive = put_row(x, &p, l->row_backward, PL_E_DATA, before, PL_E_SEQ);
	meet.type = PL_N_RENDEZVOUS;
	meet.role = PL_RO_NONE;
	meet.flags = 0;
	at = put_node(x, &meet, PL_NONE);
	for (uint32_t r = 0; r < o->n_ranks; r++)
		put_edge(x, l->row_arrive + r, PL_E_COMM);
	p.role = PL_RO_TRANSFER;
	p.dur = dur;
	l->row_transfer = x->s->n_nodes;
	for (uint32_t r = 0; r < o->n_ranks; r++) {
		put_node(x, &p, r * PER_RANK + COMM);
		put_edge(x, l->row_arrive + r, PL_E_SEQ);
		put_edge(x, at, PL_E_COMM);
	}
}

/* After the backward pass, and after all communication: whatever order a plan gives it. */
static uint32_t put_optimizer(struct step *x, pl_id name, uint32_t after)
{
	const struct table *t = x->t;
	struct proto p = { .type = PL_N_OP,
			   .role = PL_RO_COMPUTE,
			   .kind = PL_K_KERNEL,
			   .flags = PL_NF_IN_STEP,
			   .name = name,
			   .group = PL_NONE,
			   .bytes = -1,
			   .layer = -1,
			   .dur = t->update_ns };
	uint32_t first = x->s->n_nodes;

	for (uint32_t r = 0; r < t->o->n_ranks; r++) {
		put_node(x, &p, r * PER_RANK + COMPUTE);
		put_edge(x, after + r, PL_E_SEQ);
		for (size_t i = t->n; i-- > 0;)
			if (t->layer[i].row_transfer != PL_NONE)
				put_edge(x, t->layer[i].row_transfer + r, PL_E_DATA);
	}
	return first;
}

static int put_backward(struct step *x, uint32_t *at, struct pl_err *err)
{
	const struct table *t = x->t;
	uint32_t before = PL_NONE;
	pl_ns total = t->total_ns;

	for (size_t i = t->n; i-- > 0;) {
		struct layer *l = &t->layer[i];
		pl_ns dur;

		*at = l->row_backward = put_compute(x, l->backward, i, l->backward_ns, *at);
		l->row_arrive = l->row_transfer = PL_NONE;
		if (!communicates(t, l))
			continue;
		dur = t->o->transfer(t->o->arg, l->param_bytes, t->o->n_ranks);
		total = pl_add_sat(total, dur);
		if (dur < 0 || total > TIME_MAX)
			return pl_fail(err, PL_ELIMIT, "%s: " TOO_LONG, t->file);
		put_comm(x, l, i, before, dur);
		before = l->row_transfer;
	}
	return 0;
}

static int make_nodes(struct step *x, uint32_t *optimizer, struct pl_err *err)
{
	const struct table *t = x->t;
	pl_id begin, end, name;
	uint32_t at;
	int rc;

	PL_TRY(make_room(x, err));
	PL_TRY(put_string(t->g, "step begin", &begin, err));
	PL_TRY(put_string(t->g, "step end", &end, err));
	PL_TRY(put_string(t->g, "optimizer", &name, err));
	at = put_mark(x, begin, PL_NF_STEP_BEGIN, PL_NONE);
	for (size_t i = 0; i < t->n; i++)
		at = t->layer[i].row_forward =
			put_compute(x, t->layer[i].forward, i, t->layer[i].forward_ns, at);
	PL_TRY(put_backward(x, &at, err));
	*optimizer = put_optimizer(x, name, at);
	put_mark(x, end, PL_NF_IN_STEP, *optimizer);
out:
	return rc;
}

/* ---- tensors -----------------------------------------------------------------------------------
 */

/* Room was made before. */
static void put_tensor(struct pl_graph *g, const struct pl_tensor *p, uint32_t a, uint32_t b)
{
	struct pl_tensor *t = &g->tensor[g->n_tensors++];

	*t = *p;
	t->consumer = (uint32_t)g->n_consumers;
	g->consumer[g->n_consumers++] = a;
	if (b != PL_NONE)
		g->consumer[g->n_consumers++] = b;
	t->n_consumers = (uint32_t)g->n_consumers - t->consumer;
}

static int make_tensors(const struct table *t, uint32_t optimizer, struct pl_err *err)
{
	struct pl_graph *g = t->g;
	size_t n = t->n * t->o->n_ranks;
	int rc;

	PL_TRY(pl_grow(&g->tensor, &g->cap_tensors, 3 * n, sizeof(*g->tensor), err));
	PL_TRY(pl_grow(&g->consumer, &g->cap_consumers, 4 * n, sizeof(*g->consumer), err));
	for (size_t i = 0; i < t->n; i++) {
		const struct layer *l = &t->layer[i];
		struct pl_tensor p = { .name = l->param,
				       .type = l->type,
				       .role = PL_TR_PARAM,
				       .bytes = l->param_bytes,
				       .producer = PL_NONE };
		struct pl_tensor d = p, a = { .name = l->activation,
					      .type = l->type,
					      .role = PL_TR_ACTIVATION,
					      .bytes = l->activation_bytes };

		d.name = l->grad;
		d.role = PL_TR_GRAD;
		for (uint32_t r = 0; r < t->o->n_ranks; r++) {
			d.producer = l->row_backward + r;
			a.producer = l->row_forward + r;
			if (p.bytes) {
				put_tensor(g, &p, l->row_forward + r, optimizer + r);
				put_tensor(g, &d,
					   l->row_arrive == PL_NONE ? optimizer + r
								    : l->row_arrive + r,
					   PL_NONE);
			}
			if (a.bytes)
				put_tensor(g, &a, l->row_backward + r, PL_NONE);
		}
	}
out:
	return rc;
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

static int make_graph(const struct table *t, struct pl_err *err)
{
	struct pl_graph *g = t->g;
	struct step x = { .t = t };
	uint32_t optimizer;
	int rc;

	PL_TRY(make_resources(t, err));
	PL_TRY(make_group(t, err));
	PL_TRY(pl_grow(&g->shape, &g->cap_shapes, 1, sizeof(*g->shape), err));
	PL_TRY(pl_grow(&g->step, &g->cap_steps, 1, sizeof(*g->step), err));
	x.s = &g->shape[0];
	memset(x.s, 0, sizeof(*x.s));
	g->n_shapes = 1;
	rc = make_nodes(&x, &optimizer, err);
	g->step[0] = (struct pl_gstep){ .start = x.start, .dur = x.dur };
	g->n_steps = 1;
	if (rc >= 0)
		rc = make_tensors(t, optimizer, err);
out:
	return rc;
}

int pl_graph_layers(struct pl_in *in, const struct pl_layers_opts *o, struct pl_graph *g,
		    struct pl_err *err)
{
	struct table t = { .o = o, .g = g, .file = pl_in_name(in) };
	int rc;

	pl_graph_init(g);
	if (!o->n_ranks || o->n_ranks > INT32_MAX / PER_RANK)
		return pl_fail(err, PL_EUSAGE, "%u ranks: there must be 1 to %d", o->n_ranks,
			       INT32_MAX / PER_RANK);
	PL_TRY(read_table(&t, in, err));
	PL_TRY(check_size(&t, err));
	PL_TRY(make_graph(&t, err));
	PL_TRY(pl_derive_describe(g, err));
out:
	pl_intern_fini(&t.seen);
	pl_intern_fini(&t.tensors);
	pl_free(t.layer);
	if (rc < 0)
		pl_graph_fini(g);
	return rc;
}
