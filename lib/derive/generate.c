/*
 * The generators of graphs: their statements, and the parts of programs that several of them have.
 */
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

const struct pl_lang_schema pl_derive_programs = {
	.name = "program", .version = 1, .row = rows, .n_rows = PL_LEN(rows)
};

pl_derive_generator *pl_derive_generator_of(const struct pl_lang_statement *st)
{
	return generators[st->row - rows];
}

pl_id pl_derive_name(const struct layer_table *t, const char *name)
{
	return pl_derive_intern_text(t->err, &t->g->str, name);
}

uint32_t pl_derive_put_op(const struct layer_table *t, struct pl_program *p,
			  const struct pl_graph_program_op *op)
{
	uint32_t id;

	return pl_graph_program_add(p, op, &id, t->err) < 0 ? 0 : id;
}

void pl_derive_put_after(const struct layer_table *t, struct pl_program *p, uint32_t op,
			 unsigned type)
{
	/* after a failure the last operation may be missing */
	if (op != PL_NONE && !t->err->code && pl_graph_program_after(p, op, type, t->err) < 0)
		return;
}

void pl_derive_put_mark(const struct layer_table *t, struct pl_program *p, bool begin)
{
	struct pl_graph_program_op op = pl_graph_program_op_unknown;
	pl_id name[2];
	uint32_t id;

	name[true] = pl_derive_name(t, "step begin");
	name[false] = pl_derive_name(t, "step end");
	op.role = PL_RO_MARK;
	op.kind = PL_K_STEP;
	op.flags = begin ? PL_NF_STEP_BEGIN : PL_NF_IN_STEP;
	op.resource = PL_GENERATE_COMPUTE;
	op.name = name[begin];
	id = pl_derive_put_op(t, p, &op);
	if (id)
		pl_derive_put_after(t, p, id - 1, PL_E_SEQ);
}

uint32_t pl_derive_put_compute(const struct layer_table *t, struct pl_program *p,
			       const struct pl_graph_program_op *what, uint32_t after)
{
	struct pl_graph_program_op op = *what;
	uint32_t id;

	op.role = PL_RO_COMPUTE;
	op.kind = PL_K_KERNEL;
	op.flags = PL_NF_IN_STEP;
	op.resource = PL_GENERATE_COMPUTE;
	id = pl_derive_put_op(t, p, &op);
	pl_derive_put_after(t, p, after, PL_E_SEQ);
	return id;
}

uint32_t pl_derive_put_pass(const struct layer_table *t, struct pl_program *p,
			    const struct layer_pass *x)
{
	const struct layer *l = &t->layer[x->layer];
	const struct layer_ops *ops = x->forward ? &l->forward : &l->backward;
	struct pl_graph_program_op op = pl_graph_program_op_unknown;
	uint32_t at = x->after;

	op.layer = (int32_t)x->layer;
	op.mb = x->mb;
	op.chunk = x->chunk;
	op.module = l->module;
	for (uint32_t i = ops->first; i < ops->first + ops->n; i++) {
		op.name = t->op[i].name;
		op.work = t->op[i].work;
		op.phase = t->op[i].phase;
		op.dur = t->op[i].ns;
		at = pl_derive_put_compute(t, p, &op, at);
		if (i == ops->first)
			pl_derive_put_after(t, p, x->data, PL_E_DATA);
	}
	return at;
}

uint32_t pl_derive_put_update(const struct layer_table *t, struct pl_program *p, pl_ns ns,
			      int64_t bytes, uint32_t after)
{
	struct pl_graph_program_op op = pl_graph_program_op_unknown;
	struct pl_gwork w = { .op = PL_OP_UPDATE, .flops = -1, .bytes = -1, .name = PL_NONE };
	char dims[32];

	op.name = t->update;
	op.dur = ns;
	if (t->work && t->n) {
		w.type = t->layer[0].type;
		if (t->update_numbers && bytes < INT64_MAX / t->update_numbers)
			w.bytes = bytes * t->update_numbers;
		snprintf(dims, sizeof(dims), "[[%lld]]",
			 (long long)(bytes / (int64_t)sizeof(float)));
		w.dims = pl_derive_name(t, dims);
		op.work = pl_derive_add_work(t->g, t->work, &w, t->err);
		op.phase = PL_PH_OPTIMIZER;
	}
	return pl_derive_put_compute(t, p, &op, after);
}

uint32_t pl_derive_put_reduce(const struct layer_table *t, struct pl_program *p,
			      const struct layer_reduce *r, pl_ns *total)
{
	struct pl_graph_program_op op = pl_graph_program_op_unknown;
	uint32_t id;

	op.role = PL_RO_TRANSFER;
	op.kind = PL_K_COLLECTIVE;
	op.flags = PL_NF_IN_STEP;
	op.resource = PL_GENERATE_COMM;
	op.comm = r->comm;
	op.name = r->name;
	op.group = r->group;
	op.bytes = r->bytes;
	op.layer = (int32_t)r->layer;
	op.dur = t->o->transfer(t->o->arg, op.bytes, r->ranks);
	pl_derive_add_length(t, op.dur, total);
	id = pl_derive_put_op(t, p, &op);
	pl_derive_put_after(t, p, r->after, PL_E_DATA);
	pl_derive_put_after(t, p, r->before, PL_E_SEQ);
	return id;
}

/* A tensor with one or two consumers, the second one PL_NONE; none of no bytes. */
static void put_tensor(const struct layer_table *t, const struct pl_tensor *tensor, uint32_t a,
		       uint32_t b)
{
	const uint32_t consumer[] = { a, b };

	if (tensor->bytes)
		pl_derive_put_tensor(t->g, tensor, consumer, b == PL_NONE ? 1 : 2, t->err);
}

void pl_derive_put_params(const struct layer_table *t, size_t layer, uint32_t forward,
			  uint32_t backward, uint32_t carrier, uint32_t optimizer)
{
	const struct layer *l = &t->layer[layer];
	struct pl_tensor x = { .name = l->param,
			       .type = l->type,
			       .role = PL_TR_PARAM,
			       .bytes = l->param_bytes,
			       .producer = PL_NONE };

	put_tensor(t, &x, forward, optimizer);
	x.name = l->grad;
	x.role = PL_TR_GRAD;
	x.producer = backward;
	put_tensor(t, &x, carrier, PL_NONE);
}

void pl_derive_put_activation(const struct layer_table *t, size_t layer, uint32_t forward,
			      uint32_t backward)
{
	const struct layer *l = &t->layer[layer];
	struct pl_tensor x = { .name = l->activation,
			       .type = l->type,
			       .role = PL_TR_ACTIVATION,
			       .bytes = l->activation_bytes - l->input_bytes,
			       .producer = forward };

	put_tensor(t, &x, backward, PL_NONE);
	x.name = l->input;
	x.flags = PL_TF_OUTPUT;
	x.bytes = l->input_bytes;
	put_tensor(t, &x, backward, PL_NONE);
}

void pl_derive_add_length(const struct layer_table *t, pl_ns dur, pl_ns *total)
{
	*total = dur < 0 ? dur : pl_add_sat(*total, dur);
	if (*total < 0 || *total > TIME_MAX)
		pl_fail(t->err, PL_ELIMIT, "%s: " TOO_LONG, t->file);
}
