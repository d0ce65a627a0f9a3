/*
 * The generators of graphs: their statements, and the parts of programs that several of them have.
 */
#include <string.h>

#include "derive/generate_internal.h"

static const struct pl_lang_row rows[] = {
	{ .name = "data-parallel",
	  .effect = PL_LANG_STRUCTURE,
	  .doc = "every rank computes all layers, each on its part of the batch" },
	{ PL_LANG_ROW("pipeline", STRUCTURE,
		      "every stage computes some layers, for one microbatch after another",
		      PL_LANG_FIELD("schedule", CHOICE, PL_LANG_KEY | PL_LANG_NEED,
				    "order of the passes of a stage",
				    .choices = "gpipe|1f1b|interleaved"),
		      PL_LANG_FIELD("stages", INT, PL_LANG_KEY | PL_LANG_NEED,
				    "ranks of a pipeline", .min = 1, .max = 4096),
		      PL_LANG_FIELD("microbatches", INT, PL_LANG_KEY | PL_LANG_NEED,
				    "parts of the batch that pass one after another", .min = 1,
				    .max = 65536),
		      PL_LANG_FIELD("chunks", INT, PL_LANG_KEY,
				    "parts of the layers that each stage has", .min = 1,
				    .max = 4096, .value = "1")) },
};
static pl_derive_generator *const generators[] = { pl_derive_data_parallel, pl_derive_pipeline };
_Static_assert(PL_LEN(rows) == PL_LEN(generators), "each statement has a generator");

const struct pl_lang_schema pl_program_schema = {
	.name = "program", .version = 1, .row = rows, .n_rows = PL_LEN(rows)
};

pl_derive_generator *pl_derive_generator_of(const struct pl_lang_statement *st)
{
	return generators[st->row - rows];
}

int pl_derive_put_string(struct pl_graph *g, const char *s, pl_id *id, struct pl_err *err)
{
	return pl_intern_add(&g->str, s, strlen(s), id, err);
}

int pl_derive_put_mark(struct pl_graph *g, struct pl_program *p, bool begin, struct pl_err *err)
{
	struct pl_graph_program_op op = pl_graph_program_op_unknown;
	pl_id name[2];
	uint32_t id;
	int rc;

	PL_TRY(pl_derive_put_string(g, "step begin", &name[true], err));
	PL_TRY(pl_derive_put_string(g, "step end", &name[false], err));
	op.role = PL_RO_MARK;
	op.kind = PL_K_STEP;
	op.flags = begin ? PL_NF_STEP_BEGIN : PL_NF_IN_STEP;
	op.resource = PL_GENERATE_COMPUTE;
	op.name = name[begin];
	PL_TRY(pl_graph_program_add(p, &op, &id, err));
	if (id)
		PL_TRY(pl_graph_program_after(p, id - 1, PL_E_SEQ, err));
out:
	return rc;
}

int pl_derive_put_compute(struct pl_program *p, const struct pl_graph_program_op *what,
			  uint32_t after, uint32_t *id, struct pl_err *err)
{
	struct pl_graph_program_op op = *what;
	int rc;

	op.role = PL_RO_COMPUTE;
	op.kind = PL_K_KERNEL;
	op.flags = PL_NF_IN_STEP;
	op.resource = PL_GENERATE_COMPUTE;
	rc = pl_graph_program_add(p, &op, id, err);
	return rc < 0 ? rc : pl_graph_program_after(p, after, PL_E_SEQ, err);
}

int pl_derive_put_group(struct pl_graph *g, const char *name, uint32_t first, uint32_t n,
			uint32_t *id, struct pl_err *err)
{
	struct pl_ggroup *group;
	int rc;

	PL_TRY(pl_grow(&g->group, &g->cap_groups, g->n_groups + 1, sizeof(*g->group), err));
	PL_TRY(pl_grow(&g->group_rank, &g->cap_group_ranks, g->n_group_ranks + n,
		       sizeof(*g->group_rank), err));
	group = &g->group[g->n_groups];
	*group = (struct pl_ggroup){ .rank = (uint32_t)g->n_group_ranks, .n = n };
	PL_TRY(pl_derive_put_string(g, name, &group->name, err));
	for (uint32_t i = 0; i < n; i++)
		g->group_rank[g->n_group_ranks++] = first + i;
	*id = (uint32_t)g->n_groups++;
out:
	return rc;
}

int pl_derive_put_reduce(const struct layer_table *t, struct pl_program *p,
			 const struct layer_reduce *r, pl_ns *total, uint32_t *id,
			 struct pl_err *err)
{
	struct pl_graph_program_op op = pl_graph_program_op_unknown;
	int rc;

	op.role = PL_RO_TRANSFER;
	op.kind = PL_K_COLLECTIVE;
	op.flags = PL_NF_IN_STEP;
	op.resource = PL_GENERATE_COMM;
	op.comm = r->comm;
	op.name = t->layer[r->layer].reduce;
	op.group = r->group;
	op.bytes = t->layer[r->layer].param_bytes;
	op.layer = (int32_t)r->layer;
	op.dur = t->o->transfer(t->o->arg, op.bytes, r->ranks);
	*total = op.dur < 0 ? op.dur : pl_add_sat(*total, op.dur);
	PL_TRY(pl_derive_check_length(t, *total, err));
	PL_TRY(pl_graph_program_add(p, &op, id, err));
	PL_TRY(pl_graph_program_after(p, r->after, PL_E_DATA, err));
	if (r->before != PL_NONE)
		PL_TRY(pl_graph_program_after(p, r->before, PL_E_SEQ, err));
out:
	return rc;
}

/* A tensor with one or two consumers; PL_NONE: one. None of no bytes. */
static int put_tensor(const struct layer_table *t, const struct pl_tensor *tensor, uint32_t a,
		      uint32_t b, struct pl_err *err)
{
	struct pl_graph *g = t->g;
	struct pl_tensor *x;
	int rc = 0;

	if (!tensor->bytes)
		return 0;
	PL_TRY(pl_grow(&g->tensor, &g->cap_tensors, g->n_tensors + 1, sizeof(*g->tensor), err));
	PL_TRY(pl_grow(&g->consumer, &g->cap_consumers, g->n_consumers + 2, sizeof(*g->consumer),
		       err));
	x = &g->tensor[g->n_tensors++];
	*x = *tensor;
	x->consumer = (uint32_t)g->n_consumers;
	g->consumer[g->n_consumers++] = a;
	if (b != PL_NONE)
		g->consumer[g->n_consumers++] = b;
	x->n_consumers = (uint32_t)g->n_consumers - x->consumer;
out:
	return rc;
}

int pl_derive_put_params(const struct layer_table *t, size_t layer, uint32_t forward,
			 uint32_t backward, uint32_t carrier, uint32_t optimizer,
			 struct pl_err *err)
{
	const struct layer *l = &t->layer[layer];
	struct pl_tensor x = { .name = l->param,
			       .type = l->type,
			       .role = PL_TR_PARAM,
			       .bytes = l->param_bytes,
			       .producer = PL_NONE };
	int rc = put_tensor(t, &x, forward, optimizer, err);

	x.name = l->grad;
	x.role = PL_TR_GRAD;
	x.producer = backward;
	return rc < 0 ? rc : put_tensor(t, &x, carrier, PL_NONE, err);
}

int pl_derive_put_activation(const struct layer_table *t, size_t layer, uint32_t forward,
			     uint32_t backward, struct pl_err *err)
{
	const struct layer *l = &t->layer[layer];
	const struct pl_tensor x = { .name = l->activation,
				     .type = l->type,
				     .role = PL_TR_ACTIVATION,
				     .bytes = l->activation_bytes,
				     .producer = forward };

	return put_tensor(t, &x, backward, PL_NONE, err);
}

int pl_derive_check_length(const struct layer_table *t, pl_ns total, struct pl_err *err)
{
	if (total >= 0 && total <= TIME_MAX)
		return 0;
	return pl_fail(err, PL_ELIMIT, "%s: " TOO_LONG, t->file);
}
