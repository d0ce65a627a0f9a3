/*
 * Graphs from tables of layers: one step of synchronous data-parallel training.
 *
 * The schedule is that of wait-free backpropagation (Poseidon, USENIX ATC 2017, section 3): the
 * communication of the gradients of a layer overlaps with the backward pass of the layers before
 * it. Nothing is fused here; a plan may fuse gradients later.
 *
 * All ranks run one program (graph/program.h), so the nodes of an operation stand in a row, one of
 * each rank, and the distance to a predecessor is the same in the whole row, which compresses well.
 * The recorded starts are the simulated ones. O(ranks x layers), about 0.2 us for each of them.
 */
#include <string.h>

#include "derive/describe.h"
#include "derive/layers.h"
#include "graph/program.h"
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
	pl_id forward, backward, reduce; /* names of the operations of the layer */
	pl_id grad, param, activation;	 /* names of the tensors of the layer */
	pl_id type;
	pl_ns forward_ns, backward_ns;
	int64_t param_bytes, activation_bytes;
	uint32_t op_forward, op_backward, comm; /* operations of the program */
};

struct table {
	const struct pl_layers_opts *o;
	struct pl_graph *g;
	const char *file;
	struct pl_intern seen, tensors; /* names of layers, and of their parameters */
	struct layer *layer;
	size_t n, cap, n_comm; /* n_comm: layers with communication */
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

/* Checks limits before memory is allocated that grows with the number of ranks. */
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

/* ---- the program of a rank ---------------------------------------------------------------------
 */

enum { COMPUTE, COMM, PER_RANK };

static int put_string(struct pl_graph *g, const char *s, pl_id *id, struct pl_err *err)
{
	return pl_intern_add(&g->str, s, strlen(s), id, err);
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

static int put_mark(struct pl_program *p, pl_id name, unsigned flag, struct pl_err *err)
{
	const struct pl_graph_program_op op = { .role = PL_RO_MARK,
						.kind = PL_K_STEP,
						.flags = (uint8_t)flag,
						.resource = COMPUTE,
						.comm = PL_NONE,
						.name = name,
						.group = PL_NONE,
						.bytes = -1,
						.layer = -1 };
	uint32_t id;
	int rc = pl_graph_program_add(p, &op, &id, err);

	return rc < 0 || !id ? rc : pl_graph_program_after(p, id - 1, PL_E_SEQ, err);
}

/* Computation follows operation `after`, the last computation of the rank. */
static int put_compute(struct pl_program *p, pl_id name, int32_t layer, pl_ns dur, uint32_t after,
		       uint32_t *id, struct pl_err *err)
{
	const struct pl_graph_program_op op = { .role = PL_RO_COMPUTE,
						.kind = PL_K_KERNEL,
						.flags = PL_NF_IN_STEP,
						.resource = COMPUTE,
						.comm = PL_NONE,
						.name = name,
						.group = PL_NONE,
						.bytes = -1,
						.layer = layer,
						.dur = dur };
	int rc = pl_graph_program_add(p, &op, id, err);

	return rc < 0 ? rc : pl_graph_program_after(p, after, PL_E_SEQ, err);
}

/* The all-reduce of a layer starts when its gradients are ready and the communication before it
 * (operation `before`, PL_NONE: none) has ended. */
static int put_comm(struct pl_program *p, struct layer *l, size_t number, uint32_t comm,
		    uint32_t before, pl_ns dur, struct pl_err *err)
{
	const struct pl_graph_program_op op = { .role = PL_RO_TRANSFER,
						.kind = PL_K_COLLECTIVE,
						.flags = PL_NF_IN_STEP,
						.resource = COMM,
						.comm = comm,
						.name = l->reduce,
						.group = 0,
						.bytes = l->param_bytes,
						.layer = (int32_t)number,
						.dur = dur };
	int rc;

	PL_TRY(pl_graph_program_add(p, &op, &l->comm, err));
	PL_TRY(pl_graph_program_after(p, l->op_backward, PL_E_DATA, err));
	if (before != PL_NONE)
		PL_TRY(pl_graph_program_after(p, before, PL_E_SEQ, err));
out:
	return rc;
}

static int put_backward(const struct table *t, struct pl_program *p, uint32_t *at,
			struct pl_err *err)
{
	uint32_t before = PL_NONE, n = 0;
	pl_ns total = t->total_ns;
	int rc = 0;

	for (size_t i = t->n; i-- > 0;) {
		struct layer *l = &t->layer[i];
		pl_ns dur;

		PL_TRY(put_compute(p, l->backward, (int32_t)i, l->backward_ns, *at, at, err));
		l->op_backward = *at;
		l->comm = PL_NONE;
		if (!communicates(t, l))
			continue;
		dur = t->o->transfer(t->o->arg, l->param_bytes, t->o->n_ranks);
		total = pl_add_sat(total, dur);
		if (dur < 0 || total > TIME_MAX)
			return pl_fail(err, PL_ELIMIT, "%s: " TOO_LONG, t->file);
		PL_TRY(put_comm(p, l, i, n++, before, dur, err));
		before = l->comm;
	}
out:
	return rc;
}

/* The optimiser follows the backward pass and all communication, so that a plan may change the
 * order of the communication. */
static int make_program(const struct table *t, struct pl_program *p, uint32_t *optimizer,
			struct pl_err *err)
{
	pl_id begin, end, name;
	uint32_t at = 0;
	int rc;

	PL_TRY(put_string(t->g, "step begin", &begin, err));
	PL_TRY(put_string(t->g, "step end", &end, err));
	PL_TRY(put_string(t->g, "optimizer", &name, err));
	PL_TRY(put_mark(p, begin, PL_NF_STEP_BEGIN, err));
	for (size_t i = 0; i < t->n; i++) {
		struct layer *l = &t->layer[i];

		PL_TRY(put_compute(p, l->forward, (int32_t)i, l->forward_ns, at, &at, err));
		l->op_forward = at;
	}
	PL_TRY(put_backward(t, p, &at, err));
	PL_TRY(put_compute(p, name, -1, t->update_ns, at, optimizer, err));
	for (size_t i = t->n; i-- > 0;)
		if (t->layer[i].comm != PL_NONE)
			PL_TRY(pl_graph_program_after(p, t->layer[i].comm, PL_E_DATA, err));
	PL_TRY(put_mark(p, end, PL_NF_IN_STEP, err));
out:
	return rc;
}

/* ---- tensors -----------------------------------------------------------------------------------
 */

/* The array has enough capacity. */
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

static int make_tensors(const struct table *t, const struct pl_graph_program_nodes *nodes,
			uint32_t optimizer, struct pl_err *err)
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
			const uint32_t *node = nodes->first + nodes->at[r];

			d.producer = node[l->op_backward];
			a.producer = node[l->op_forward];
			if (p.bytes) {
				put_tensor(g, &p, a.producer, node[optimizer]);
				put_tensor(g, &d, node[l->comm == PL_NONE ? optimizer : l->comm],
					   PL_NONE);
			}
			if (a.bytes)
				put_tensor(g, &a, d.producer, PL_NONE);
		}
	}
out:
	return rc;
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

static int make_graph(const struct table *t, struct pl_err *err)
{
	static const char *const resource[PER_RANK] = { "compute", "comm" };
	struct pl_program p = { .n_ops = 0 };
	struct pl_graph_program_nodes nodes = { .at = NULL };
	struct pl_graph_program_job job = { .program = &p,
					    .n_ranks = t->o->n_ranks,
					    .per_host = t->o->per_host,
					    .resource = resource,
					    .n_resources = PER_RANK,
					    .n_comms = (uint32_t)t->n_comm };
	uint32_t optimizer;
	int rc;

	PL_TRY(make_group(t, err));
	PL_TRY(make_program(t, &p, &optimizer, err));
	PL_TRY(pl_graph_from_programs(&job, t->g, &nodes, err));
	rc = make_tensors(t, &nodes, optimizer, err);
out:
	pl_graph_program_fini(&p);
	pl_graph_program_nodes_fini(&nodes);
	return rc;
}

int pl_derive_layers(struct pl_in *in, const struct pl_layers_opts *o, struct pl_graph *g,
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
