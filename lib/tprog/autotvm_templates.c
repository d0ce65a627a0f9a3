/*
 * Which template of AutoTVM a line of a log is of, and which product.
 *
 * Templates are functions in Python that order a compiler to split, fuse and reorder loops. What
 * is written here, in autotvm_x86.c and autotvm_cuda.c, is what these orders lead to.
 */
#include "tprog/autotvm_internal.h"

static const struct template
{
	const char *task, *op;
	enum autotvm_is (*put)(struct autotvm_build * b);
}
templates[] = {
	{ "dense_nopack.x86", "dense", pl_autotvm_dense_nopack },
	{ "dense_pack.x86", "dense", pl_autotvm_dense_pack },
	{ "batch_matmul.x86", "bmm", pl_autotvm_batch_matmul },
	{ "dense_small_batch.gpu", "dense", pl_autotvm_dense_small_batch },
	{ "dense_small_batch.cuda", "dense", pl_autotvm_dense_small_batch },
	{ "dense_large_batch.gpu", "dense", pl_autotvm_dense_large_batch },
	{ "dense_large_batch.cuda", "dense", pl_autotvm_dense_large_batch },
	{ "batch_matmul.cuda", "bmm", pl_autotvm_batch_matmul_cuda },
};

/* The template of a task; in logs of TVM 0.6 the target and a key say which one of the task. */
static const char *template_of(const struct autotvm_record *r)
{
	bool cpu = !strncmp(r->target, "llvm", 4);

	if (!strcmp(r->task, "topi_nn_batch_matmul") && cpu)
		return "batch_matmul.x86";
	if (strcmp(r->task, "topi_nn_dense") != 0)
		return r->task;
	if (!cpu)
		return pl_autotvm_knob(r, "tile_x") ? "dense_large_batch.cuda"
						    : "dense_small_batch.cuda";
	if (!strcmp(r->key, "direct_nopack") ||
	    (!strcmp(r->key, "direct") && r->n_tensors && r->tensor[0].dim[0] <= 16))
		return "dense_nopack.x86";
	return "dense_pack.x86";
}

static enum autotvm_is dense_of(struct autotvm_record *r, struct autotvm_product *o)
{
	const struct autotvm_tensor *a = &r->tensor[0], *w = &r->tensor[1];

	if (a->n != 2 || (w->n != 2 && w->n != 3))
		return pl_autotvm_not(r, AUTOTVM_BAD, "dense is of two matrices");
	if (r->n_tensors > 2)
		return pl_autotvm_not(r, AUTOTVM_OTHER, "dense with a bias");
	*o = (struct autotvm_product){ .m = a->dim[0], .k = a->dim[1], .n = w->dim[0] };
	if (w->n == 3) {
		o->packed = w->dim[2];
		o->n *= w->dim[2];
	}
	if (w->dim[1] != o->k)
		return pl_autotvm_not(r, AUTOTVM_BAD,
				      "the matrices do not fit: %lld and %lld columns",
				      (long long)o->k, (long long)w->dim[1]);
	return AUTOTVM_FINE;
}

static enum autotvm_is bmm_of(struct autotvm_record *r, struct autotvm_product *o)
{
	const struct autotvm_tensor *a = &r->tensor[0], *w = &r->tensor[1];

	if (a->n != 3 || w->n != 3)
		return pl_autotvm_not(r, AUTOTVM_BAD, "batch_matmul is of two arrays of matrices");
	*o = (struct autotvm_product){ .turned_a = r->n_flags > 0 && r->flag[0],
				       .flat_b = r->n_flags > 1 && !r->flag[1] };
	o->batch = pl_max_i64(a->dim[0], w->dim[0]);
	o->one_a = a->dim[0] < o->batch;
	o->one_b = w->dim[0] < o->batch;
	o->m = a->dim[o->turned_a ? 2 : 1];
	o->k = a->dim[o->turned_a ? 1 : 2];
	o->n = w->dim[o->flat_b ? 2 : 1];
	if (w->dim[o->flat_b ? 1 : 2] != o->k || (o->one_a && a->dim[0] != 1) ||
	    (o->one_b && w->dim[0] != 1))
		return pl_autotvm_not(r, AUTOTVM_BAD, "the matrices do not fit");
	return AUTOTVM_FINE;
}

enum autotvm_is pl_autotvm_build(struct autotvm_record *r, struct autotvm_product *of,
				 const char **op, struct pl_buf *text, struct pl_err *err)
{
	struct autotvm_build b = { .at = { text, err, 0 }, .r = r, .of = of };
	const char *name = template_of(r);
	enum autotvm_is is;

	for (size_t i = 0; i < PL_LEN(templates); i++) {
		const struct template *t = &templates[i];

		if (strcmp(name, t->task) != 0)
			continue;
		if (r->n_tensors < 2)
			return pl_autotvm_not(r, AUTOTVM_BAD, "%s without its tensors", r->task);
		if (!r->tensor[0].float32 || !r->tensor[1].float32 || !r->float32)
			return pl_autotvm_not(r, AUTOTVM_OTHER, "%s of numbers that are no float32",
					      r->task);
		*op = t->op;
		is = t->op[0] == 'd' ? dense_of(r, of) : bmm_of(r, of);
		if (!is && of->packed && t->put != pl_autotvm_dense_pack)
			return pl_autotvm_not(r, AUTOTVM_BAD, "%s of packed weights", r->task);
		return is ? is : t->put(&b);
	}
	return pl_autotvm_not(r, AUTOTVM_OTHER, "the template \"%s\"", r->task);
}
