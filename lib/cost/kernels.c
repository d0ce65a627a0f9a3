/* Operations of graphs as kernels of cost models. */
#include <math.h>

#include "cost/kernels.h"
#include "graph/dims.h"

#define INPUTS_MAX 4

/* The inputs of an operation that are more than one number. */
struct inputs {
	struct pl_dims v[INPUTS_MAX];
	int n;
	double most; /* elements of the largest */
};

static struct inputs read_inputs(const char *dims)
{
	struct inputs x = { .n = 0 };
	const char *s = dims ? dims : "";
	struct pl_dims t;

	while (pl_dims_next(&s, &t)) {
		if (t.n < 1 || t.n > PL_DIMS_MAX || t.elements < 2)
			continue;
		if (x.n == INPUTS_MAX) /* the last ones count */
			memmove(x.v, x.v + 1, --x.n * sizeof(x.v[0]));
		if ((double)t.elements > x.most)
			x.most = (double)t.elements;
		x.v[x.n++] = t;
	}
	return x;
}

uint8_t pl_cost_kernel_type(const char *word)
{
	int type = word ? pl_kernel_type_find(word) : -1;

	return (uint8_t)(type < 0 ? PL_KERNEL_FLOAT32 : type);
}

/* The two factors are the last inputs with two sizes or more: a bias may stand before them. */
static bool product(const struct inputs *x, struct pl_kernel *k)
{
	const struct pl_dims *f[2] = { NULL, NULL };
	int64_t sum, columns, batch = 1, other = 1;

	for (int i = 0; i < x->n; i++)
		if (x->v[i].n >= 2) {
			f[0] = f[1];
			f[1] = &x->v[i];
		}
	if (!f[0])
		return false;
	sum = f[0]->size[f[0]->n - 1];
	/* a weight may be stored transposed */
	if (f[1]->size[f[1]->n - 2] == sum)
		columns = f[1]->size[f[1]->n - 1];
	else if (f[1]->n == 2 && f[1]->size[1] == sum)
		columns = f[1]->size[0];
	else
		return false;
	for (int i = 0; f[1]->n > 2 && i < f[0]->n - 2; i++)
		batch *= f[0]->size[i];
	for (int i = 0; i < f[1]->n - 2; i++) /* the smaller one is used again and again */
		other *= f[1]->size[i];
	k->family = PL_KERNEL_GEMM;
	k->dim[0] = (double)(batch > other ? batch : other);
	k->dim[1] = (double)f[0]->elements / (double)(batch * sum);
	k->dim[2] = (double)columns;
	k->dim[3] = (double)sum;
	return true;
}

static void elementwise(const struct inputs *x, const struct pl_gwork *w, struct pl_kernel *k)
{
	const double size = pl_kernel_type_bytes(k->type);

	k->family = PL_KERNEL_ELEMENTWISE;
	k->dim[0] = x->most;
	k->dim[1] = x->n;
	k->dim[2] = 1;
	if (w->bytes > 0 && (double)w->bytes != size * x->most * (x->n + 1))
		k->dim[3] = (double)w->bytes;
}

/*
 * The image and the filter are the last inputs with four sizes. Before them stands the gradient of
 * the output in a backward pass; else the places of the output follow from the work. So do stride
 * and padding, which no column has: those that frameworks give for such sizes.
 */
static bool convolution(const struct inputs *x, const struct pl_gwork *w, struct pl_kernel *k)
{
	const struct pl_dims *of[3] = { NULL, NULL, NULL }; /* gradient, image, filter */
	double size, filter, out, stride, pad;

	for (int i = 0; i < x->n; i++)
		if (x->v[i].n == 4) {
			of[0] = of[1];
			of[1] = of[2];
			of[2] = &x->v[i];
		}
	if (!of[1] || of[2]->elements < 1)
		return false;
	size = sqrt((double)of[1]->size[2] * (double)of[1]->size[3]);
	filter = sqrt((double)of[2]->size[2] * (double)of[2]->size[3]);
	if (of[0])
		out = sqrt((double)of[0]->size[2] * (double)of[0]->size[3]);
	else
		out = sqrt((double)w->flops /
			   (2 * (double)of[1]->size[0] * (double)of[2]->elements));
	if (!(out >= 1))
		return false;
	stride = fmax(1, round(size / out));
	pad = fmax(0, ceil(((out - 1) * stride + filter - size) / 2));
	*k = (struct pl_kernel){ .family = PL_KERNEL_CONV,
				 .type = k->type,
				 .dim = { (double)of[1]->size[0], (double)of[1]->size[1],
					  (double)of[2]->size[0], size, filter, stride, pad,
					  (double)of[1]->size[1] / (double)of[2]->size[1] } };
	return true;
}

bool pl_cost_kernel(const struct pl_gwork *w, const char *dims, struct pl_kernel *k)
{
	const struct inputs x = read_inputs(dims);
	double columns;

	*k = (struct pl_kernel){ .type = k->type };
	if (!x.n)
		return false;
	columns = (double)x.v[0].size[x.v[0].n - 1];
	switch (w->op) {
	case PL_OP_MATMUL:
	case PL_OP_ATTENTION:
		return (w->op == PL_OP_MATMUL || x.n == 2) && product(&x, k);
	case PL_OP_CONVOLUTION:
		return convolution(&x, w, k);
	case PL_OP_NORMALIZATION:
	case PL_OP_SOFTMAX:
	case PL_OP_LOSS:
		k->family = w->op == PL_OP_NORMALIZATION ? PL_KERNEL_NORM : PL_KERNEL_SOFTMAX;
		k->dim[0] = (double)x.v[0].elements / columns;
		k->dim[1] = columns;
		return true;
	case PL_OP_ELEMENTWISE:
	case PL_OP_DROPOUT:
	case PL_OP_POOLING:
	case PL_OP_UPDATE:
		elementwise(&x, w, k);
		return true;
	case PL_OP_COPY:
		k->family = PL_KERNEL_MOVE;
		k->dim[0] = x.most;
		k->dim[1] = 1;
		if (w->bytes > 0)
			k->dim[2] = (double)w->bytes;
		return true;
	case PL_OP_EMBEDDING:
		k->family = PL_KERNEL_EMBEDDING;
		k->dim[0] = (double)x.v[0].elements;
		k->dim[1] = (double)w->bytes / (2 * pl_kernel_type_bytes(k->type) * k->dim[0]);
		return k->dim[1] >= 1;
	default: /* a layer of run(1), whose name says what it does */
		elementwise(&x, w, k);
		return w->name != PL_NONE && x.n == 1;
	}
}

double pl_cost_kernel_count(const struct pl_kernel *k, const struct pl_gwork *w)
{
	double flops = pl_kernel_work(k).flops;

	return pl_graph_is_product(w->op) && w->flops > 0 && flops > 0 ? (double)w->flops / flops
								       : 1;
}

bool pl_cost_kernel_bytes(const struct pl_gwork *w, struct pl_kernel *k)
{
	*k = (struct pl_kernel){ .type = k->type, .family = PL_KERNEL_ELEMENTWISE };
	if (w->bytes <= 0 || pl_graph_is_product(w->op))
		return false;
	k->dim[0] = (double)w->bytes / (2 * pl_kernel_type_bytes(k->type));
	k->dim[1] = k->dim[2] = 1;
	return true;
}

const char *pl_cost_kernel_name(const struct pl_kernel *k, const char *name)
{
	const char *part = strstr(name, "::");

	if (k->family == PL_KERNEL_GEMM)
		return k->dim[0] > 1 ? "bmm" : "linear";
	if (k->family == PL_KERNEL_CONV)
		return "conv";
	return part ? part + 2 : name;
}
