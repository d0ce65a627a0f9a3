/*
 * The generator of data-parallel training: one synchronous step.
 *
 * The schedule is that of wait-free backpropagation (Poseidon, USENIX ATC 2017, section 3): the
 * communication of the gradients of a layer overlaps with the backward pass of the layers before
 * it. Gradients travel layer by layer, and a plan may fuse them later; or in buckets.
 *
 * All ranks run one program (graph/program.h), so the nodes of an operation stand in a row, one of
 * each rank, and the distance to a predecessor is the same in the whole row, which compresses well.
 * The recorded starts are the simulated ones. O(ranks x layers), about 0.2 us for each of them.
 */
#include "derive/generate_internal.h"
#include "plan/buckets.h"

#define RANKS_DEFAULT 8

struct pass { /* operations of a layer in the program; PL_NONE: there is none */
	uint32_t forward, backward, comm;
	uint32_t bucket; /* of its gradients, PL_NONE: it has none */
	bool closes;	 /* its gradients are the last of the bucket */
};
struct data_parallel {
	struct layer_table *t;
	struct pass *pass; /* by layer */
	struct pl_program program;
	size_t n_comm; /* buckets */
	uint32_t optimizer;
};

static bool communicates(const struct layer_table *t, const struct layer *l)
{
	return t->n_ranks > 1 && l->param_bytes > 0;
}

/* The buckets of all layers, in the order in which their gradients become ready. */
static void find_buckets(struct data_parallel *d)
{
	const struct layer_table *t = d->t;
	struct pl_bucket_filler f = { .rule = pl_plan_bucket_rule_ddp(t->o->bucket_bytes) };
	struct pass *before = NULL;

	for (size_t i = t->n; i-- > 0;) {
		struct pass *pass = &d->pass[i];

		pass->bucket = PL_NONE;
		if (!communicates(t, &t->layer[i]))
			continue;
		pass->bucket = t->o->bucket_bytes ? pl_plan_bucket_next(&f, t->layer[i].param_bytes)
						  : (uint32_t)d->n_comm;
		if (before)
			before->closes = before->bucket != pass->bucket;
		d->n_comm = pass->bucket + (size_t)1;
		before = pass;
	}
	if (before)
		before->closes = true;
}

static uint32_t passes_of(const struct layer_table *t)
{
	return t->o->passes ? t->o->passes : 1;
}

/* Checks limits before memory is allocated that grows with the number of ranks. */
static int check_size(const struct data_parallel *d, struct pl_err *err)
{
	const struct layer_table *t = d->t;
	uint64_t edges =
		(uint64_t)t->n_ranks * (t->n_ops * passes_of(t) + t->n + 6 * d->n_comm + 2);

	if (edges < PL_NONE / 2)
		return 0;
	return pl_fail(err, PL_ELIMIT,
		       "%s: %u ranks of %zu layers make %llu dependencies, more than a graph can "
		       "hold; take fewer --ranks",
		       t->file, t->n_ranks, t->n, (unsigned long long)edges);
}

static pl_id name_bucket(const struct layer_table *t, size_t layer, uint32_t bucket)
{
	char name[48];

	if (!t->o->bucket_bytes)
		return t->layer[layer].reduce;
	snprintf(name, sizeof(name), "allreduce bucket %u", bucket);
	return pl_derive_name(t, name);
}

/* The all-reduce of a bucket starts when its gradients are ready and the communication before it
 * has ended. Only the last pass of a step has any. Returns the last computation. */
static uint32_t put_backward(struct data_parallel *d, int32_t mb, bool last, uint32_t at)
{
	const struct layer_table *t = d->t;
	struct layer_reduce r = { .ranks = t->n_ranks, .before = PL_NONE };
	size_t begin = t->n; /* of the bucket: the first of its layers is before it */
	pl_ns total = t->total_ns;

	for (size_t i = t->n; i-- > 0;) {
		struct pass *pass = &d->pass[i];
		const struct layer_pass x = {
			.layer = i, .mb = mb, .chunk = -1, .after = at, .data = PL_NONE
		};

		at = pl_derive_put_pass(t, &d->program, &x);
		pass->backward = at;
		pass->comm = PL_NONE;
		if (!last || pass->bucket == PL_NONE)
			continue;
		r.bytes = pl_add_sat(r.bytes, t->layer[i].param_bytes);
		if (!pass->closes)
			continue;
		r.layer = i;
		r.name = name_bucket(t, i, pass->bucket);
		r.after = at;
		r.before = pl_derive_put_reduce(t, &d->program, &r, &total);
		r.comm++;
		r.bytes = 0;
		while (begin > i)
			if (d->pass[--begin].bucket == pass->bucket)
				d->pass[begin].comm = r.before;
	}
	return at;
}

static uint32_t put_forward(struct data_parallel *d, int32_t mb, uint32_t at)
{
	for (size_t i = 0; i < d->t->n; i++) {
		const struct layer_pass x = { .layer = i,
					      .forward = true,
					      .mb = mb,
					      .chunk = -1,
					      .after = at,
					      .data = PL_NONE };

		at = d->pass[i].forward = pl_derive_put_pass(d->t, &d->program, &x);
	}
	return at;
}

/* The optimiser follows the backward pass and all communication, so that a plan may change the
 * order of the communication. */
static void make_program(struct data_parallel *d)
{
	const struct layer_table *t = d->t;
	struct pl_program *p = &d->program;
	uint32_t at = 0, passes = passes_of(t);
	int64_t bytes = 0;

	pl_derive_put_mark(t, p, true);
	for (uint32_t k = 0; k < passes; k++) {
		int32_t mb = passes > 1 ? (int32_t)k : -1;

		at = put_forward(d, mb, at);
		at = put_backward(d, mb, k + 1 == passes, at);
	}
	for (size_t i = 0; i < t->n; i++)
		bytes = pl_add_sat(bytes, t->layer[i].param_bytes);
	d->optimizer = pl_derive_put_update(t, p, t->update_ns, bytes, at);
	for (size_t i = t->n; i-- > 0;)
		if (d->pass[i].closes)
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
	PL_TRY(pl_alloc(&d.pass, t->n, sizeof(*d.pass), t->err));
	find_buckets(&d);
	PL_TRY(check_size(&d, t->err));
	make_graph(&d);
out:
	pl_free(d.pass);
	pl_graph_program_fini(&d.program);
}
