/*
 * The step of a job that run(1) would train, without a trace: layers and their operations follow
 * from the model. Nobody measured them, so they have no durations; paceline-predict(1) gives them
 * theirs.
 *
 * One operation is a pass of a layer, as run(1) computes and measures it (--bench kernels). With
 * --operators it is a kernel of a library for GPUs, by the names of NeuSight's tables: a dense
 * layer has one product in the forward pass and two in the backward pass.
 */
#include <math.h>

#include "plan/job.h"
#include "program.h"
#include "tensor/net.h"

#define OPS_MAX	 12 /* of a layer, in both passes */
#define WORK_MAX 0x1p62

struct maker {
	struct pl_net *net;
	struct pl_net_view v;
	double element; /* bytes of one */
	struct pl_layers_op *op;
	char (*name)[64], (*dims)[160]; /* of each operation */
	struct pl_layers_row *row;
	size_t n, n_rows;
};

/* ---- operations ------------------------------------------------------------------------------ */

static void put(struct maker *m, const char *name, unsigned op, unsigned phase, double flops,
		double bytes, const char *dims, ...) PL_PRINTF(7, 8);

static void put(struct maker *m, const char *name, unsigned op, unsigned phase, double flops,
		double bytes, const char *dims, ...)
{
	size_t i = m->n++;
	va_list ap;

	va_start(ap, dims);
	vsnprintf(m->dims[i], sizeof(m->dims[i]), dims, ap);
	va_end(ap);
	snprintf(m->name[i], sizeof(m->name[i]), "%s", name);
	m->op[i] = (struct pl_layers_op){ .name = m->name[i],
					  .op = (uint8_t)op,
					  .phase = (uint8_t)phase,
					  .dims = m->dims[i],
					  .flops = (int64_t)fmin(flops, WORK_MAX),
					  .bytes = (int64_t)fmin(bytes, WORK_MAX) };
}

/* `batch` products of (rows x sum) and (sum x columns). */
static void put_product(struct maker *m, const char *name, unsigned phase, double batch,
			double rows, double sum, double columns)
{
	double flops = 2 * batch * rows * sum * columns,
	       bytes = m->element * batch * (rows * sum + sum * columns + rows * columns);

	if (batch > 1)
		put(m, name, PL_OP_MATMUL, phase, flops, bytes,
		    "[[%.0f,%.0f,%.0f],[%.0f,%.0f,%.0f]]", batch, rows, sum, batch, sum, columns);
	else
		put(m, name, PL_OP_MATMUL, phase, flops, bytes, "[[%.0f,%.0f],[%.0f,%.0f]]", rows,
		    sum, sum, columns);
}

/* From one or two tensors of rows x columns, another one. */
static void put_rows(struct maker *m, const char *name, unsigned op, unsigned phase, double rows,
		     double columns, int inputs)
{
	double n = rows * columns, bytes = m->element * n * (inputs + 1);

	if (inputs == 2)
		put(m, name, op, phase, n, bytes, "[[%.0f,%.0f],[%.0f,%.0f]]", rows, columns, rows,
		    columns);
	else
		put(m, name, op, phase, n, bytes, "[[%.0f,%.0f]]", rows, columns);
}

static void put_gather(struct maker *m, const char *name, unsigned phase, double rows,
		       double columns)
{
	put(m, name, PL_OP_EMBEDDING, phase, 0, 2 * m->element * rows * columns, "[[%.0f]]", rows);
}

/* In the backward pass the gradient of the output comes first, as in PyTorch. */
static void put_conv(struct maker *m, const char *name, unsigned phase,
		     const struct pl_net_sizes *s, double flops)
{
	double places = s->m / s->batch, out = sqrt(places);
	double bytes =
		m->element * (s->batch * (s->in * s->size * s->size + s->n * places) + s->n * s->k);
	char gradient[80] = "";

	if (phase != PL_PH_FORWARD)
		snprintf(gradient, sizeof(gradient), "[%.0f,%.0f,%.0f,%.0f],", s->batch, s->n, out,
			 out);
	put(m, name, PL_OP_CONVOLUTION, phase, flops, bytes,
	    "[%s[%.0f,%.0f,%.0f,%.0f],[%.0f,%.0f,%.0f,%.0f]]", gradient, s->batch, s->in, s->size,
	    s->size, s->n, s->in, s->kernel, s->kernel);
}

/* ---- passes of layers ------------------------------------------------------------------------ */

/* The types of layers: what they compute, and the name of their kernel in tables of GPUs. */
static const struct kind {
	const char *layer;
	uint8_t op;
	bool fused; /* dense layers and convolutions of run(1) may compute it */
	const char *kernel;
} kinds[] = {
	{ "dense", PL_OP_MATMUL, false, "linear" },
	{ "conv", PL_OP_CONVOLUTION, false, "conv" },
	{ "attention", PL_OP_ATTENTION, false, "bmm" },
	{ "maxpool", PL_OP_POOLING, false, "maxpool" },
	{ "avgpool", PL_OP_POOLING, false, "avgpool" },
	{ "batchnorm", PL_OP_NORMALIZATION, false, "batchnorm" },
	{ "layernorm", PL_OP_NORMALIZATION, false, "ln" },
	{ "embedding", PL_OP_EMBEDDING, false, "embedding" },
	{ "position", PL_OP_EMBEDDING, false, "add" },
	{ "dropout", PL_OP_DROPOUT, false, "mul" },
	{ "loss", PL_OP_LOSS, false, "softmax" },
	{ "relu", PL_OP_ELEMENTWISE, true, "relu" },
	{ "gelu", PL_OP_ELEMENTWISE, true, "gelu" },
	{ "tanh", PL_OP_ELEMENTWISE, true, "tanh" },
	{ "sigmoid", PL_OP_ELEMENTWISE, true, "sigmoid" },
	{ "", PL_OP_ELEMENTWISE, false, "add" }, /* sums of residual blocks */
};

static const struct kind *kind_of(const char *layer)
{
	const struct kind *k = kinds;

	while (*k->layer && strcmp(k->layer, layer) != 0)
		k++;
	return k;
}

/* A pass of a layer as one operation. */
static void put_whole(struct maker *m, uint32_t layer, enum pl_net_phase pass)
{
	const struct pl_net_op op = pl_net_op(m->net, layer, pass, m->element);

	put(m, op.name, kind_of(m->v.layer[layer].op)->op,
	    pass == PL_PHASE_FORWARD ? PL_PH_FORWARD : PL_PH_BACKWARD, op.flops, op.bytes, "%s",
	    op.dims);
}

static void put_attention(struct maker *m, const struct pl_net_sizes *s, bool forward)
{
	double rows = s->batch * s->m;

	if (forward) {
		put_product(m, "bmm", PL_PH_FORWARD, s->batch, s->m, s->k, s->n);
		put_rows(m, "div", PL_OP_ELEMENTWISE, PL_PH_FORWARD, rows, s->n, 1);
		put_rows(m, "softmax", PL_OP_SOFTMAX, PL_PH_FORWARD, rows, s->n, 1);
		put_product(m, "bmm", PL_PH_FORWARD, s->batch, s->m, s->n, s->k);
		return;
	}
	put_product(m, "bmm", PL_PH_BACKWARD, s->batch, s->m, s->k, s->n); /* of the shares */
	put_product(m, "bmm", PL_PH_BACKWARD, s->batch, s->n, s->m, s->k); /* values */
	put_rows(m, "softmax", PL_OP_SOFTMAX, PL_PH_BACKWARD, rows, s->n, 2);
	put_rows(m, "div", PL_OP_ELEMENTWISE, PL_PH_BACKWARD, rows, s->n, 1);
	put_product(m, "bmm", PL_PH_BACKWARD, s->batch, s->m, s->n, s->k); /* queries */
	put_product(m, "bmm", PL_PH_BACKWARD, s->batch, s->n, s->m, s->k); /* keys */
}

/* A pass of a layer, kernel by kernel. */
static void put_operators(struct maker *m, uint32_t layer, enum pl_net_phase pass)
{
	const struct kind *kind = kind_of(m->v.layer[layer].op);
	const struct pl_net_sizes s = pl_net_sizes(m->net, layer);
	bool forward = pass == PL_PHASE_FORWARD;
	unsigned phase = forward ? PL_PH_FORWARD : PL_PH_BACKWARD;

	if (kind->op == PL_OP_CONVOLUTION) {
		double flops = 2 * s.m * s.n * s.k;

		if (forward || !s.ends)
			put_conv(m, kind->kernel, forward ? phase : PL_PH_INPUT_GRAD, &s, flops);
		if (!forward)
			put_conv(m, kind->kernel, PL_PH_WEIGHT_GRAD, &s, flops);
	} else if (kind->op == PL_OP_ATTENTION) {
		put_attention(m, &s, forward);
	} else if (forward && s.k > 0) {
		put_product(m, kind->kernel, phase, 1, s.m, s.k, s.n);
	} else if (s.k > 0) {
		if (!s.ends)
			put_product(m, kind->kernel, PL_PH_INPUT_GRAD, 1, s.m, s.n, s.k);
		put_product(m, kind->kernel, PL_PH_WEIGHT_GRAD, 1, s.k, s.m, s.n);
	} else if (kind->op == PL_OP_EMBEDDING && strcmp(kind->kernel, "add") != 0) {
		put_gather(m, kind->kernel, phase, s.rows, s.columns);
	} else if (kind->op == PL_OP_LOSS) {
		/* the backward pass reads the shares, and makes the gradient of the logits */
		put_rows(m, kind->kernel, PL_OP_SOFTMAX, phase, s.rows, s.columns, 1);
	} else if (kind->op == PL_OP_EMBEDDING) { /* positions: added; back, summed over samples */
		put_rows(m, kind->kernel, PL_OP_ELEMENTWISE, phase, s.rows, s.columns,
			 forward ? 2 : 1);
	} else {
		bool one = kind->op == PL_OP_NORMALIZATION || (forward && kind->fused);

		put_rows(m, kind->kernel, kind->op, phase, s.rows, s.columns, one ? 1 : 2);
	}
}

/* Does the layer compute anything in this pass? For libraries, what run(1) fuses does, too: it
 * makes activations while it computes the layer before, positions while it looks up tokens, and the
 * gradient of the loss while it computes the loss. */
static bool runs(const struct maker *m, uint32_t layer, enum pl_net_phase pass, bool operators)
{
	const struct pl_net_layer *l = &m->v.layer[layer];

	if (operators && (!strcmp(l->op, "loss") || !strcmp(l->op, "position")))
		return true;
	if (operators && l->fused && kind_of(l->op)->fused)
		layer--;
	return pl_net_sizes(m->net, layer).runs[pass];
}

/* The operations of a pass; a pass without any has one of no time, so that it has a place. */
static uint32_t put_pass(struct maker *m, uint32_t layer, enum pl_net_phase pass, bool operators)
{
	size_t before = m->n;

	if (runs(m, layer, pass, operators)) {
		(operators ? put_operators : put_whole)(m, layer, pass);
	} else {
		put(m, "nothing", PL_OP_UNKNOWN,
		    pass == PL_PHASE_FORWARD ? PL_PH_FORWARD : PL_PH_BACKWARD, -1, -1, "[]");
		m->op[m->n - 1].dims = NULL;
	}
	return (uint32_t)(m->n - before);
}

static void put_layer(struct maker *m, uint32_t layer, bool operators)
{
	const struct pl_net_layer *l = &m->v.layer[layer];
	const struct pl_net_sizes s = pl_net_sizes(m->net, layer);
	struct pl_layers_row *row = &m->row[m->n_rows];
	double params = 0;

	for (uint32_t t = l->first_tensor; t < l->first_tensor + l->n_tensors; t++)
		params += (double)m->v.tensor[t].n;
	/* what computes nothing by itself may have parameters all the same */
	if (params <= 0 && !runs(m, layer, PL_PHASE_FORWARD, operators) &&
	    !runs(m, layer, PL_PHASE_BACKWARD, operators))
		return;
	*row = (struct pl_layers_row){ .name = l->name,
				       .tensor = l->name,
				       .param_bytes = (int64_t)(sizeof(float) * params),
				       .activation_bytes = (int64_t)l->act_bytes,
				       .output_bytes = (int64_t)(m->element * s.rows * s.columns),
				       .op = m->op + m->n };
	row->n_forward = put_pass(m, layer, PL_PHASE_FORWARD, operators);
	row->n_backward = put_pass(m, layer, PL_PHASE_BACKWARD, operators);
	m->n_rows++;
}

/* ---- the job --------------------------------------------------------------------------------- */

static int make_layers(struct maker *m, const struct pl_job *j, const char *name,
		       const struct pl_model *model, bool operators, struct pl_err *err)
{
	int batch;

	if (pl_job_microbatch(j, j->accumulate, &batch, err) < 0)
		return pl_wrap(err, "%s", name);
	PL_CHECK(pl_net_outline(model->layer, model->n_layers, batch, &m->net, err));
	m->v = pl_net_view(m->net);
	PL_CHECK(pl_alloc(&m->op, m->v.n_layers * (size_t)OPS_MAX, sizeof(*m->op), err));
	PL_CHECK(pl_alloc(&m->name, m->v.n_layers * (size_t)OPS_MAX, sizeof(*m->name), err));
	PL_CHECK(pl_alloc(&m->dims, m->v.n_layers * (size_t)OPS_MAX, sizeof(*m->dims), err));
	PL_CHECK(pl_alloc(&m->row, m->v.n_layers, sizeof(*m->row), err));
	for (uint32_t i = 0; i < m->v.n_layers; i++)
		put_layer(m, i, operators);
	return 0;
}

static int read_job(struct pl_in *in, struct pl_job *j, struct pl_model *model, struct pl_err *err)
{
	PL_CHECK(pl_job_read(in, pl_in_name(in), j, err));
	if (!j->model)
		return pl_fail(err, PL_EDATA, "%s: no statement \"model\": it says which network",
			       pl_in_name(in));
	return pl_job_model(j, pl_in_name(in), model, err);
}

int load_step(const struct config *c, struct pl_in *in, struct pl_graph *g, struct pl_err *err)
{
	struct config own = *c;
	struct pl_layers_opts o = { .log = &c->c.log };
	struct layers_cost cost = { .topo = { .n_hosts = 0 } };
	struct maker m = { .element = sizeof(float) };
	struct pl_layers_table t = { .name = pl_in_name(in), .type = "float32" };
	struct pl_model model = { .name = NULL };
	struct pl_job j;
	char update[64];
	int rc;

	pl_job_init(&j);
	PL_TRY(read_job(in, &j, &model, err));
	if (strcmp(j.policy, "bsp") != 0)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "%s: the graph has the step of policy bsp, not of %s", t.name, j.policy);
	/* a program may need more ranks than the one that jobs have by default */
	if (c->ranks == -1 && (j.ranks > 1 || !c->program))
		own.ranks = j.ranks;
	PL_TRY(layers_cost(&own, &cost, &o, err));
	o.bucket_bytes = (int64_t)(j.bucket_mb * 0x1p20);
	o.passes = (uint32_t)j.accumulate;
	if (!strcmp(j.precision, "bf16")) {
		t.type = "bfloat16";
		m.element = 2;
	} else if (!strcmp(j.precision, "tf32")) {
		t.type = "tf32";
	}
	PL_TRY(make_layers(&m, &j, t.name, &model, c->operators, err));
	snprintf(update, sizeof(update), "update.%s", j.optimizer);
	t.row = m.row;
	t.n = m.n_rows;
	t.update = update;
	t.update_numbers = pl_job_update_numbers(&j);
	rc = pl_derive_layers_table(&t, &o, g, err);
out:
	pl_net_free(m.net);
	pl_free(m.op);
	pl_free(m.name);
	pl_free(m.dims);
	pl_free(m.row);
	pl_topology_fini(&cost.topo);
	pl_model_fini(&model);
	pl_job_fini(&j);
	return rc;
}
