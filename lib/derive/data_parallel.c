/*
 * The generator of data-parallel training: one synchronous step.
 *
 * The schedule is that of wait-free backpropagation (Poseidon, USENIX ATC 2017, section 3): the
 * communication of the gradients of a layer overlaps with the backward pass of the layers before
 * it. Nothing is fused here; a plan may fuse gradients later.
 *
 * All ranks run one program (graph/program.h), so the nodes of an operation stand in a row, one of
 * each rank, and the distance to a predecessor is the same in the whole row, which compresses well.
 * The recorded starts are the simulated ones. O(ranks x layers), about 0.2 us for each of them.
 */
#include "derive/generate_internal.h"

#define RANKS_DEFAULT 8

struct pass { /* operations of a layer in the program; PL_NONE: there is none */
	uint32_t forward, backward, comm;
};
struct data_parallel {
	struct layer_table *t;
	struct pass *pass; /* by layer */
	struct pl_program program;
	size_t n_comm; /* layers with communication */
	uint32_t optimizer;
};

static bool communicates(const struct layer_table *t, const struct layer *l)
{
	return t->n_ranks > 1 && l->param_bytes > 0;
}

/* Checks limits before memory is allocated that grows with the number of ranks. */
static int check_size(struct data_parallel *d, struct pl_err *err)
{
	const struct layer_table *t = d->t;
	uint64_t edges;

	for (size_t i = 0; i < t->n; i++)
		d->n_comm += communicates(t, &t->layer[i]);
	edges = (uint64_t)t->n_ranks * (2 * t->n + 6 * d->n_comm + 2);
	if (edges < PL_NONE / 2)
		return 0;
	return pl_fail(err, PL_ELIMIT,
		       "%s: %u ranks of %zu layers make %llu dependencies, more than a graph can "
		       "hold; take fewer --ranks",
		       t->file, t->n_ranks, t->n, (unsigned long long)edges);
}

static uint32_t put_compute(struct data_parallel *d, pl_id name, int32_t layer, pl_ns dur,
			    uint32_t after)
{
	struct pl_graph_program_op op = pl_graph_program_op_unknown;

	op.name = name;
	op.layer = layer;
	op.dur = dur;
	return pl_derive_put_compute(d->t, &d->program, &op, after);
}

/* The all-reduce of a layer starts when its gradients are ready and the communication before it has
 * ended. Returns the last computation. */
static uint32_t put_backward(struct data_parallel *d, uint32_t at)
{
	const struct layer_table *t = d->t;
	struct layer_reduce r = { .ranks = t->n_ranks, .before = PL_NONE };
	pl_ns total = t->total_ns;

	for (size_t i = t->n; i-- > 0;) {
		const struct layer *l = &t->layer[i];
		struct pass *pass = &d->pass[i];

		at = put_compute(d, l->backward, (int32_t)i, l->backward_ns, at);
		pass->backward = at;
		pass->comm = PL_NONE;
		if (!communicates(t, l))
			continue;
		r.layer = i;
		r.after = at;
		r.before = pass->comm = pl_derive_put_reduce(t, &d->program, &r, &total);
		r.comm++;
	}
	return at;
}

/* The optimiser follows the backward pass and all communication, so that a plan may change the
 * order of the communication. */
static void make_program(struct data_parallel *d)
{
	const struct layer_table *t = d->t;
	struct pl_program *p = &d->program;
	uint32_t at = 0;
	pl_id name;

	pl_derive_put_mark(t, p, true);
	name = pl_derive_name(t, "optimizer");
	for (size_t i = 0; i < t->n; i++) {
		const struct layer *l = &t->layer[i];

		at = put_compute(d, l->forward, (int32_t)i, l->forward_ns, at);
		d->pass[i].forward = at;
	}
	at = put_backward(d, at);
	d->optimizer = put_compute(d, name, -1, t->update_ns, at);
	for (size_t i = t->n; i-- > 0;)
		pl_derive_put_after(t, p, d->pass[i].comm, PL_E_DATA);
	pl_derive_put_mark(t, p, false);
}

/* Parameters, gradients and activations of a layer on a rank whose operations are these nodes. */
static void put_tensors(const struct data_parallel *d, size_t layer, const uint32_t *node)
{
	const struct pass *pass = &d->pass[layer];
	uint32_t forward = node[pass->forward], backward = node[pass->backward];
	uint32_t optimizer = node[d->optimizer];
	uint32_t carrier = pass->comm == PL_NONE ? optimizer : node[pass->comm];

	pl_derive_put_params(d->t, layer, forward, backward, carrier, optimizer);
	pl_derive_put_activation(d->t, layer, forward, backward);
}

static void make_graph(struct data_parallel *d)
{
	static const char *const resource[PL_GENERATE_RESOURCES] = { "compute", "comm" };
	struct layer_table *t = d->t;
	struct pl_graph_program_nodes nodes = { .at = NULL };
	struct pl_graph_program_job job = { .program = &d->program,
					    .n_ranks = t->n_ranks,
					    .per_host = t->o->per_host,
					    .resource = resource,
					    .n_resources = PL_GENERATE_RESOURCES,
					    .n_comms = (uint32_t)d->n_comm };
	int rc;

	pl_derive_put_group(t->g, "dp", 0, NULL, 0, t->n_ranks, t->err);
	make_program(d);
	PL_TRY(t->err->code);
	PL_TRY(pl_graph_from_programs(&job, t->g, &nodes, t->err));
	for (size_t i = 0; i < t->n; i++)
		for (uint32_t r = 0; r < t->n_ranks; r++)
			put_tensors(d, i, nodes.first + nodes.at[r]);
out:
	pl_graph_program_nodes_fini(&nodes);
}

void pl_derive_data_parallel(struct layer_table *t, const struct pl_lang_statement *st)
{
	struct data_parallel d = { .t = t };
	int rc;

	(void)st;
	if (t->n_ranks == PL_NONE)
		t->n_ranks = RANKS_DEFAULT;
	PL_TRY(check_size(&d, t->err));
	PL_TRY(pl_alloc(&d.pass, t->n, sizeof(*d.pass), t->err));
	make_graph(&d);
out:
	pl_free(d.pass);
	pl_graph_program_fini(&d.program);
}
