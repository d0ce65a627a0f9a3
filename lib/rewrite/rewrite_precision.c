/*
 * precision: operations compute in another precision.
 *
 * With a cost model of kernels that knows an operation in both precisions, its recorded time is
 * multiplied by the ratio of the model's times. Else costs have a factor for each kind of
 * operation. The work of the operation has the new type from then on, so that a later line of the
 * plan begins there.
 *
 * It comes before lines that give an operation the time of others (fuse-ops, recompute): each of
 * these has a factor of its own.
 */
#include "cost/kernels.h"
#include "rewrite/rewrite_predicted.h"

/* What the model says, once for operations that are alike. */
struct precise {
	struct pl_intern seen; /* name and row of work */
	struct pl_predictor_op *now, *then;
	struct pl_predictor_ratio *ratio;
	size_t n, cap_now, cap_then;
	struct pl_intern rows; /* of work before */
	uint32_t *row;	       /* of work afterwards */
	size_t n_rows, cap_rows;
};

static bool is_wanted(const struct pl_edit *e, const struct pl_rewrite *rw, uint32_t node)
{
	const struct pl_enode *n = &e->node[node];
	const char *name = pl_edit_name(e, n->name);
	bool wanted = !rw->n_args;

	if (!rw_computes(n) || n->role != PL_RO_COMPUTE)
		return false;
	for (uint32_t k = 0; k < rw->n_args && !wanted; k++)
		wanted = !strcmp(rw->arg[k], name);
	return wanted;
}

/* What costs say of kernels is said of units for it, which processors of hosts do not have. A host
 * also issues communication, which computes nothing. */
static double factor_by_rule(const struct pl_edit *e, uint32_t node, const char *precision)
{
	const struct pl_gwork *work = pl_edit_work(e, node);
	const struct pl_enode *n = &e->node[node];

	if (n->kind == PL_K_HOST_OP || pl_trace_kind_is_comm(n->kind))
		return 1;
	return pl_cost_precision(work ? work->op : PL_OP_UNKNOWN,
				 work && work->type != PL_NONE ? pl_edit_name(e, work->type) : NULL,
				 precision);
}

static int ask_once(struct precise *x, struct pl_rewriter *r, uint32_t node, uint8_t type,
		    struct pl_err *err)
{
	const struct pl_enode *n = &r->e->node[node];
	const uint32_t key[2] = { n->name, n->work };
	struct pl_predictor_op op;
	pl_id id;

	if (n->work == PL_NONE || n->name >= r->e->g->str.n)
		return 0;
	PL_CHECK(pl_intern_add(&x->seen, (const char *)key, sizeof(key), &id, err));
	if (id < x->n)
		return 0;
	op = pl_predictor_edit_op(r->facts.predictor, r->e, node);
	PL_CHECK(pl_grow(&x->now, &x->cap_now, x->n + 1, sizeof(op), err));
	PL_CHECK(pl_grow(&x->then, &x->cap_then, x->n + 1, sizeof(op), err));
	x->now[x->n] = x->then[x->n] = op;
	x->then[x->n++].type = type;
	return 0;
}

static int ask_model(struct precise *x, struct pl_rewriter *r, const struct pl_rewrite *rw,
		     struct pl_err *err)
{
	int type = pl_kernel_type_find(rw->word);

	if (!r->facts.predictor || rw->x > 0)
		return 0;
	for (uint32_t i = 0; i < r->e->n_nodes; i++)
		if (is_wanted(r->e, rw, i))
			PL_CHECK(ask_once(x, r, i, (uint8_t)type, err));
	PL_CHECK(pl_alloc(&x->ratio, x->n + 1, sizeof(*x->ratio), err));
	return pl_predictor_ratios(r->facts.predictor, x->now, x->then, x->n, INFINITY, x->ratio,
				   err);
}

/* NULL: the model does not know it. */
static const struct pl_predictor_ratio *ratio_of(const struct precise *x, const struct pl_enode *n)
{
	const uint32_t key[2] = { n->name, n->work };
	pl_id id = x->n ? pl_intern_find(&x->seen, (const char *)key, sizeof(key)) : PL_NONE;

	return id != PL_NONE && x->ratio[id].known ? &x->ratio[id] : NULL;
}

/* From now on the operation has elements of that type; the row is made once for alike operations.
 */
static int set_type(struct precise *x, struct pl_rewriter *r, uint32_t node, unsigned type,
		    pl_id word, struct pl_err *err)
{
	const uint32_t now = r->e->node[node].work;
	const struct pl_gwork *was = pl_edit_work(r->e, node);
	struct pl_gwork w = { .dims = PL_NONE, .flops = -1, .bytes = -1, .name = PL_NONE };
	uint32_t row;
	pl_id id;

	PL_CHECK(pl_intern_add(&x->rows, (const char *)&now, sizeof(now), &id, err));
	if (id == x->n_rows) {
		unsigned from = PL_KERNEL_FLOAT32;

		if (was) {
			w = *was;
			from = pl_cost_kernel_type(w.type == PL_NONE ? NULL
								     : pl_edit_name(r->e, w.type));
		}
		if (w.bytes > 0)
			w.bytes = llround((double)w.bytes * pl_kernel_type_bytes(type) /
					  pl_kernel_type_bytes(from));
		w.type = word;
		PL_CHECK(pl_edit_add_work(r->e, &w, &row, err));
		PL_CHECK(pl_append(&x->row, &x->n_rows, &x->cap_rows, &row, sizeof(row), err));
	}
	rw_set_work(r, node, x->row[id]);
	return 0;
}

static int change_all(struct pl_rewriter *r, const struct pl_rewrite *rw, struct precise *x,
		      struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	struct rw_errors errors = { 0 };
	int type = pl_kernel_type_find(rw->word);
	uint64_t hits = 0;
	pl_id word;
	int rc;

	PL_TRY(pl_edit_add_name(r->e, pl_kernel_type_word((unsigned)type), &word, err));
	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_predictor_ratio *known;
		double ns = (double)e->node[i].dur, factor, error;

		if (!is_wanted(e, rw, i))
			continue;
		hits++;
		known = rw->x > 0 ? NULL : ratio_of(x, &e->node[i]);
		factor = rw->x > 0 ? rw->x : known ? known->factor : factor_by_rule(e, i, rw->word);
		error = rw->x > 0 ? 0
			: known	  ? known->error
				  : PL_WORK_RULE_ERROR * fabs(1 - factor);
		PL_TRY(pl_rewrite_add_error(&errors, known ? known->part : PL_NONE, ns, ns * error,
					    err));
		rw_set_dur(r, i, rw_times(e->node[i].dur, factor));
		PL_TRY(set_type(x, r, i, (unsigned)type, word, err));
	}
	rw_now(r)->basis.work_ns += pl_rewrite_error(&errors) / (double)pl_rewrite_steps(e->g) /
				    (double)(e->g->n_ranks ? e->g->n_ranks : 1);
	if (!hits)
		rc = pl_fail(err, PL_EDATA, "no such operation in the graph");
out:
	pl_rewrite_errors_fini(&errors);
	return rc;
}

static int apply_precision(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct precise x = { .n = 0 };
	int rc;

	PL_TRY(ask_model(&x, r, rw, err));
	rc = change_all(r, rw, &x, err);
out:
	pl_intern_fini(&x.seen);
	pl_free(x.now);
	pl_free(x.then);
	pl_free(x.ratio);
	pl_intern_fini(&x.rows);
	pl_free(x.row);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_precision = {
	.before = true,
	.apply = apply_precision,
	.explain = "{names} kinds of operations compute in {word}, for which devices have faster "
		   "units",
	.explain_less =
		"all operations of devices compute in {word}, for which these have faster units"
};
