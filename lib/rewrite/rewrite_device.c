/*
 * device: the job computes on another device.
 *
 * An operation that the cost model knows takes its recorded time, multiplied by the ratio of the
 * model's times on both devices. What the model does not know follows the ratio of all that it
 * knows, and is as uncertain as a rule. Threads of a host stay where a device computes, and so does
 * communication: other links are other lines.
 *
 * One pass over the nodes of each shape, and one over the steps.
 */
#include "rewrite/rewrite_predicted.h"

/* Classes: what the model does not know; the groups of the model. */
#define UNKNOWN 0
#define GROUPS	1

struct device {
	const struct pl_graph *g;
	struct pl_work_model work;
	struct pl_predictor_ratio *ratio; /* [group] */
	bool *device;			  /* [resource]: its rank computes on a device */
};

/* PL_NONE: it stays. A part of a call that does not compute has no group. */
static uint32_t class_of(const struct device *d, uint32_t shape, uint32_t i)
{
	const struct pl_shape *s = &d->g->shape[shape];
	uint32_t group = d->work.of_node[shape][i];
	bool host = s->kind[i] == PL_K_HOST_OP;

	if ((s->role[i] != PL_RO_COMPUTE && s->role[i] != PL_RO_COPY) ||
	    pl_trace_kind_is_comm(s->kind[i]) ||
	    (host && s->res[i] != PL_NONE && d->device[s->res[i]]))
		return PL_NONE;
	if (group == PL_NONE)
		return host ? PL_NONE : UNKNOWN;
	return isnan(d->ratio[group].factor) ? UNKNOWN : GROUPS + group;
}

static int classify(const struct device *d, struct rw_change *c, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&c->class, d->g->n_shapes, sizeof(*c->class), err));
	for (uint32_t k = 0; k < d->g->n_shapes; k++) {
		uint32_t n = d->g->shape[k].n_nodes;

		PL_CHECK(pl_alloc(&c->class[k], n, sizeof(**c->class), err));
		c->n_shapes++;
		for (uint32_t i = 0; i < n; i++)
			c->class[k][i] = i < d->g->shape[k].n_entries ? PL_NONE : class_of(d, k, i);
	}
	return 0;
}

/* The ratio of the time of all that the model knows. 0: it knows nothing. */
static double common_ratio(const struct device *d, const struct rw_change *c)
{
	double now = 0, then = 0;

	for (size_t k = 0; k < d->g->n_steps; k++) {
		const struct pl_gstep *st = &d->g->step[k];

		for (uint32_t i = 0; i < d->g->shape[st->shape].n_nodes; i++) {
			uint32_t class = c->class[st->shape][i];

			if (class == PL_NONE || class < GROUPS || !pl_graph_is_step(d->g, k))
				continue;
			now += (double)st->dur[i];
			then += (double)st->dur[i] * c->of_class[class];
		}
	}
	return now > 0 ? then / now : 0;
}

static int add_errors(const struct device *d, struct rw_change *c, struct pl_err *err)
{
	struct rw_errors e = { 0 };
	int rc = 0;

	for (size_t k = 0; k < d->g->n_steps; k++) {
		const struct pl_gstep *st = &d->g->step[k];

		for (uint32_t i = 0; i < d->g->shape[st->shape].n_nodes; i++) {
			uint32_t class = c->class[st->shape][i];
			bool rule = class < GROUPS;
			double ns = (double)st->dur[i];

			if (class == PL_NONE || !pl_graph_is_step(d->g, k))
				continue;
			PL_TRY(pl_rewrite_add_error(
				&e, rule ? PL_NONE : d->ratio[class - GROUPS].part, ns,
				ns * (rule ? PL_WORK_RULE_ERROR * c->of_class[UNKNOWN]
					   : d->ratio[class - GROUPS].error),
				err));
		}
	}
	c->basis.work_ns = pl_rewrite_error(&e) / (double)pl_rewrite_steps(d->g) /
			   (double)(d->g->n_ranks ? d->g->n_ranks : 1);
	c->basis.known_ns = e.known;
	c->basis.changed_ns = e.all;
out:
	pl_rewrite_errors_fini(&e);
	return rc;
}

static int find_target(const struct rw_facts *x, const struct pl_rewrite *rw, uint32_t *device,
		       struct pl_err *err)
{
	if (!x->predictor)
		return pl_fail(err, PL_EDATA,
			       "another device needs a cost model of its operations: -m FILE "
			       "(predict --train makes one)");
	return pl_predictor_find(x->predictor, rw->word, device, err);
}

static int change_device(struct rw_facts *x, const struct pl_rewrite *rw, struct rw_change *c,
			 struct pl_err *err)
{
	struct device d = { .g = x->g };
	struct rw_setting from = pl_rewrite_setting(x), to = from;
	int rc;

	PL_CHECK(find_target(x, rw, &to.device, err));
	PL_TRY(pl_work_fit(x->g, &d.work, err));
	PL_TRY(pl_rewrite_ratios(x, &d.work, from, to, &d.ratio, err));
	PL_TRY(pl_rewrite_devices(x->g, &d.device, err));
	PL_TRY(classify(&d, c, err));
	PL_TRY(pl_alloc(&c->of_class, GROUPS + d.work.n_groups, sizeof(*c->of_class), err));
	for (size_t i = 0; i < d.work.n_groups; i++)
		c->of_class[GROUPS + i] = d.ratio[i].factor;
	c->of_class[UNKNOWN] = common_ratio(&d, c);
	PL_TRY(c->of_class[UNKNOWN] > 0
		       ? 0
		       : pl_fail(err, PL_EDATA,
				 "the cost model knows none of the operations of this graph"));
	PL_TRY(add_errors(&d, c, err));
	x->network->device = to.device + 1;
out:
	pl_work_fini(&d.work);
	pl_free(d.ratio);
	pl_free(d.device);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_device = {
	.change = change_device,
	.explain = "all that computes takes the time that the cost model gives for {word}, by that "
		   "for the recorded device"
};
