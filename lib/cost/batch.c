/*
 * Which sizes follow the batch, and what of an operation's work is of samples.
 *
 * In the forward pass the first input of an element-wise operation, a normalisation, a loss, a
 * convolution or a product holds samples, whose number is its first size: that of a pass, or a
 * multiple (samples times words, samples times heads). Where the samples come second (recurrent
 * networks), the second size says so. The size that explains most of these inputs is the number of
 * samples of a pass; the first sizes that are multiples of it follow the batch. A layer of matrices
 * makes one matrix of an input with three dimensions or more: its rows are the product of all sizes
 * but the last one.
 *
 * Other tensors are parameters or, without a batch that was found, samples if they have two
 * dimensions and no sizes with which the optimiser and the accumulation of gradients work. A
 * product of two matrices has three sizes, of which one follows the batch: the other two make the
 * bytes of the parameters or of their gradient.
 *
 * A matrix whose rows follow the batch can have the sizes of parameters (16 samples of 16 words,
 * and a width of 256). Then sizes do not tell whether an operation that only moves data works on
 * samples.
 *
 * A loss that each pass computes once says how many passes a step has.
 *
 * Linear in nodes; quadratic in the different sizes of first inputs, of which MOST are looked at.
 */
#include <math.h>

#include "cost/internal.h"
#include "graph/dims.h"

#define MOST	  256
#define TEXT	  128 /* bytes of text of one tensor's sizes */
#define MULTIPLE  0.9 /* an input says so much for a size of which its first size is a multiple, */
#define SECOND	  0.5 /* and for its second size */
#define EXPLAINED 0.6 /* the size must explain that much */
/* What a processor keeps of the parameters between two steps of a sequence, in bytes: recurrent
 * layers of 2 and 8 MB took as long as their floating-point operations, one of 33 MB did not. */
#define CACHE (8 << 20)

struct first_input {
	int64_t size[2]; /* 0: the tensor has one dimension only */
	int64_t flat;	 /* rows of the matrix that a layer makes of it; the first size: none */
	double n;
};
struct finder {
	const struct pl_graph *g;
	struct pl_work_batch *b;
	uint32_t *forward; /* [row of work]: nodes of forward passes */
	struct first_input *first;
	size_t n, cap;
};

PL_COMPARATOR(by_sizes, struct first_input, size[0], size[1], flat);
PL_COMPARATOR_FALLING(by_number, struct first_input, n, size[0], size[1], flat);

static const char *dims_of(const struct pl_graph *g, uint32_t row)
{
	pl_id dims = row == PL_NONE ? PL_NONE : g->work[row].dims;

	return dims == PL_NONE ? NULL : pl_intern_get(&g->str, dims);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static size_t sizes_text(const struct pl_dims *t, bool turned, char *text)
{
	size_t n = 0;

	for (int i = 0; i < t->n && i < PL_DIMS_MAX; i++)
		n += (size_t)snprintf(text + n, TEXT - n, "%lld,",
				      (long long)t->size[turned ? t->n - 1 - i : i]);
	return n;
}

static int add_param(struct pl_work_batch *b, const struct pl_dims *t, struct pl_err *err)
{
	char text[TEXT];
	pl_id id;

	if (t->n < 2 || t->n > PL_DIMS_MAX)
		return 0;
	PL_CHECK(pl_intern_add(&b->params, text, sizes_text(t, false, text), &id, err));
	return t->n > 2 ? 0 : pl_intern_add(&b->params, text, sizes_text(t, true, text), &id, err);
}

static bool is_param(const struct pl_work_batch *b, const struct pl_dims *t)
{
	char text[TEXT];

	return t->n <= PL_DIMS_MAX &&
	       pl_intern_find(&b->params, text, sizes_text(t, false, text)) != PL_NONE;
}

bool pl_work_shows_params(unsigned phase, unsigned op)
{
	return phase == PL_PH_OPTIMIZER ||
	       (phase == PL_PH_WEIGHT_GRAD && op != PL_OP_MATMUL && op != PL_OP_CONVOLUTION);
}

/* The sizes with which the optimiser works or, without them, the accumulation of gradients, which
 * a pipeline also has for what one stage sends to another. */
static int find_params(struct finder *f, const struct pl_shape *s, bool optimizer,
		       struct pl_err *err)
{
	struct pl_dims t;

	for (uint32_t i = s->n_entries; i < s->n_nodes && s->phase; i++) {
		uint32_t row = s->work ? s->work[i] : PL_NONE;
		const char *dims = dims_of(f->g, row);

		if (!dims || (s->phase[i] == PL_PH_OPTIMIZER) != optimizer ||
		    !pl_work_shows_params(s->phase[i], f->g->work[row].op))
			continue;
		while (pl_dims_next(&dims, &t))
			PL_CHECK(add_param(f->b, &t, err));
	}
	return 0;
}

static void look_at_nodes(struct finder *f, const struct pl_shape *s)
{
	for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
		uint32_t row = s->work ? s->work[i] : PL_NONE;

		if (!dims_of(f->g, row))
			continue;
		f->b->any = true;
		f->forward[row] += s->phase && s->phase[i] == PL_PH_FORWARD;
	}
}

/* ---- the batch ------------------------------------------------------------------------------- */

/* The two factors of a product: what is added stands before them or, of one dimension, behind. */
static bool factors_of(const char *dims, struct pl_dims *a, struct pl_dims *b)
{
	struct pl_dims t;
	int n = 0;

	while (pl_dims_next(&dims, &t)) {
		if (t.n < 2)
			continue;
		*a = *b;
		*b = t;
		n++;
	}
	return n >= 2;
}

/* The input that holds samples in a forward pass; false: this operation does not tell. */
static bool first_input_of(const char *dims, unsigned op, struct pl_dims *t)
{
	const unsigned plain = 1u << PL_OP_ELEMENTWISE | 1u << PL_OP_NORMALIZATION |
			       1u << PL_OP_SOFTMAX | 1u << PL_OP_DROPOUT | 1u << PL_OP_POOLING |
			       1u << PL_OP_LOSS;
	int least = op == PL_OP_CONVOLUTION ? 3 : 2;
	struct pl_dims b;

	if (op == PL_OP_MATMUL)
		return factors_of(dims, t, &b);
	if (!(plain >> op & 1) && op != PL_OP_CONVOLUTION)
		return false;
	while (pl_dims_next(&dims, t))
		if (t->n >= least)
			return true;
	return false;
}

static int64_t flat_rows(const struct pl_dims *t)
{
	int64_t last = t->n <= PL_DIMS_MAX ? t->size[t->n - 1] : 0;

	return t->n > 2 && last > 0 && t->elements > 0 ? t->elements / last : t->size[0];
}

static bool same_sizes(const struct first_input *a, const struct first_input *b)
{
	return a->size[0] == b->size[0] && a->size[1] == b->size[1] && a->flat == b->flat;
}

static int list_first_inputs(struct finder *f, struct pl_err *err)
{
	size_t kept = 0;
	struct pl_dims t;

	for (size_t row = 0; row < f->g->n_work; row++) {
		unsigned op = f->g->work[row].op;

		if (!f->forward[row] || !first_input_of(dims_of(f->g, (uint32_t)row), op, &t) ||
		    (op == PL_OP_MATMUL && is_param(f->b, &t)))
			continue;
		PL_CHECK(pl_grow(&f->first, &f->cap, f->n + 1, sizeof(*f->first), err));
		f->first[f->n++] =
			(struct first_input){ .size = { t.size[0], t.n > 1 ? t.size[1] : 0 },
					      .flat = op == PL_OP_CONVOLUTION ? t.size[0]
									      : flat_rows(&t),
					      .n = f->forward[row] };
	}
	pl_sort(f->first, f->n, sizeof(*f->first), by_sizes);
	for (size_t i = 0; i < f->n; i++) {
		if (kept && same_sizes(&f->first[kept - 1], &f->first[i]))
			f->first[kept - 1].n += f->first[i].n;
		else
			f->first[kept++] = f->first[i];
	}
	pl_sort(f->first, kept, sizeof(*f->first), by_number);
	f->n = pl_min_size(kept, MOST);
	return 0;
}

/* How much of the first inputs a number of samples explains. */
static double explains(const struct finder *f, int64_t samples)
{
	double sum = 0, exact = 0, all = 0;

	for (size_t i = 0; i < f->n; i++) {
		const struct first_input *x = &f->first[i];
		bool multiple = x->size[0] % samples == 0, same = x->size[0] == samples;
		bool second = !multiple && x->size[1] == samples;

		sum += x->n * (same ? 1 : multiple ? MULTIPLE : second ? SECOND : 0);
		exact += same || second ? x->n : 0;
		all += x->n;
	}
	/* 1 is a divisor of all, so it needs more */
	return samples > 1 || exact * 5 > all ? sum / all : 0;
}

static bool has_rows(const struct pl_work_batch *b, int64_t rows)
{
	for (size_t i = 0; i < b->n_rows; i++)
		if (b->rows[i] == rows)
			return true;
	return false;
}

static int add_rows(struct pl_work_batch *b, int64_t rows, struct pl_err *err)
{
	if (rows <= 0 || rows % b->pass != 0 || has_rows(b, rows))
		return 0;
	PL_CHECK(pl_grow(&b->rows, &b->cap_rows, b->n_rows + 1, sizeof(*b->rows), err));
	b->rows[b->n_rows++] = rows;
	return 0;
}

static int find_batch(struct finder *f, struct pl_err *err)
{
	struct pl_work_batch *b = f->b;
	double best = EXPLAINED;

	for (size_t i = 0; i < 2 * f->n; i++) {
		int64_t samples = f->first[i / 2].size[i % 2];
		double share = samples > 0 ? explains(f, samples) : 0;

		if (share <= best)
			continue;
		best = share;
		b->pass = samples;
	}
	if (b->pass)
		PL_CHECK(add_rows(b, b->pass, err));
	for (size_t i = 0; i < f->n && b->pass; i++) {
		if (f->first[i].size[0] % b->pass != 0)
			continue;
		PL_CHECK(add_rows(b, f->first[i].size[0], err));
		PL_CHECK(add_rows(b, f->first[i].flat, err));
	}
	pl_sort(b->rows, b->n_rows, sizeof(*b->rows), pl_compare_i64);
	return 0;
}

struct inputs { /* of a rank, in forward passes */
	size_t n;
	bool as_found; /* some have the samples of a pass */
	int64_t least; /* multiple of them, 0: none */
};

/* Has each rank inputs of so many samples? Multiples of them are words or heads elsewhere; but a
 * rank that has no others, and as many inputs as a rank that has, takes more samples. O(nodes). */
static int find_other_rank(struct finder *f, struct pl_err *err)
{
	const struct pl_graph *g = f->g;
	struct pl_work_batch *b = f->b;
	struct inputs *v;
	struct pl_dims t;

	PL_CHECK(pl_alloc(&v, (size_t)g->n_ranks + 1, sizeof(*v), err));
	for (size_t k = 0; k < g->n_shapes; k++) {
		const struct pl_shape *s = &g->shape[k];

		for (uint32_t i = s->n_entries; i < s->n_nodes && s->phase && s->work; i++) {
			const char *dims = dims_of(g, s->work[i]);
			uint32_t r = pl_graph_rank_index(g, pl_node_rank(g, s, i));
			bool multiple;

			if (!dims || r == PL_NONE || s->phase[i] != PL_PH_FORWARD ||
			    !first_input_of(dims, g->work[s->work[i]].op, &t))
				continue;
			v[r].n++;
			multiple = t.size[0] > 0 && t.size[0] % b->pass == 0;
			v[r].as_found |= t.size[0] == b->pass || (t.n > 1 && t.size[1] == b->pass);
			if (multiple && (!v[r].least || t.size[0] < v[r].least))
				v[r].least = t.size[0];
		}
	}
	for (int32_t r = 0; r < g->n_ranks && !b->other_pass; r++)
		for (int32_t q = 0; q < g->n_ranks && v[r].least && !v[r].as_found; q++)
			if (v[q].as_found && v[q].n == v[r].n) {
				b->other_rank = g->rank[r];
				b->other_pass = v[r].least;
				break;
			}
	pl_free(v);
	return 0;
}

struct losses { /* of a resource */
	int64_t passes, most;
	bool other;   /* something else was computed since the last one */
	bool updates; /* an optimizer has used what it led to */
};

/* Losses without anything between them that computes on the layers of the model belong to one pass.
 * Operations around one another count as one so, and so do the pieces into which operations inside
 * an operation cut it. Behind an update of parameters another model may have its turn, with the
 * same samples: passes are those before one update. Where functions compute the losses, a recording
 * of modules has only their backward passes. */
static int count_passes(struct finder *f, const struct pl_shape *s, bool backward,
			struct pl_err *err)
{
	struct losses *v;
	int64_t least = 0;

	PL_CHECK(pl_alloc(&v, f->g->n_res + 1, sizeof(*v), err));
	for (uint32_t i = s->n_entries; i < s->n_nodes && s->phase; i++) {
		unsigned phase = s->phase[i], op = pl_node_operator(f->g, s, i);
		struct losses *x = &v[s->res[i] == PL_NONE ? f->g->n_res : s->res[i]];

		bool loss = op == PL_OP_LOSS &&
			    (backward ? pl_graph_is_backward(phase)
				      : phase == PL_PH_FORWARD && dims_of(f->g, s->work[i]));

		if (loss) {
			x->passes = x->updates ? 0 : x->passes;
			x->updates = false;
			x->passes += !x->passes || x->other;
			x->other = false;
			x->most = pl_max_i64(x->most, x->passes);
		} else if (phase == PL_PH_FORWARD || backward) {
			x->other |= pl_graph_is_product(op);
		} else {
			x->other |= pl_graph_is_backward(phase);
		}
		x->updates |= phase == PL_PH_OPTIMIZER && s->role[i] == PL_RO_COMPUTE;
	}
	for (size_t i = 0; i <= f->g->n_res; i++)
		if (v[i].most && (!least || v[i].most < least))
			least = v[i].most;
	f->b->passes = pl_max_i64(f->b->passes, least);
	pl_free(v);
	return 0;
}

int pl_work_batch_find(const struct pl_graph *g, struct pl_work_batch *b, struct pl_err *err)
{
	struct finder f = { .g = g, .b = b };
	int rc;

	PL_TRY(pl_alloc(&f.forward, g->n_work + 1, sizeof(*f.forward), err));
	for (size_t k = 0; k < g->n_shapes; k++)
		look_at_nodes(&f, &g->shape[k]);
	for (int optimizer = 1; optimizer >= 0 && !b->params.n; optimizer--)
		for (size_t k = 0; k < g->n_shapes; k++)
			PL_TRY(find_params(&f, &g->shape[k], optimizer, err));
	PL_TRY(list_first_inputs(&f, err));
	PL_TRY(find_batch(&f, err));
	if (b->pass)
		PL_TRY(find_other_rank(&f, err));
	for (int backward = 0; backward < 2 && !b->passes; backward++)
		for (size_t k = 0; k < g->n_steps && b->pass; k++)
			if (pl_graph_is_step(g, k))
				PL_TRY(count_passes(&f, &g->shape[g->step[k].shape], backward,
						    err));
out:
	pl_free(f.forward);
	pl_free(f.first);
	return rc;
}

void pl_work_batch_fini(struct pl_work_batch *b)
{
	pl_intern_fini(&b->params);
	pl_free(b->rows);
}

/* ---- the work of an operation ---------------------------------------------------------------- */

static bool follows(const struct pl_work_batch *b, int64_t size)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, b->n_rows, b->rows[i] < size);
	return i < b->n_rows && b->rows[i] == size;
}

/* Attention by heads has sequences of one sample one behind the other, each as long: "[16,32,32]"
 * where 8 samples of 32 words have two heads and 256 rows are a pass. */
static bool holds_sequences(const struct pl_work_batch *b, unsigned op, const struct pl_dims *t)
{
	int64_t rows = t->n > 2 && t->n <= PL_DIMS_MAX && t->size[t->n - 1] > 0
			       ? t->elements / t->size[t->n - 1]
			       : 0;

	return op == PL_OP_ATTENTION && rows > 0 && rows % b->pass == 0;
}

static bool holds_samples(const struct pl_work_batch *b, unsigned op, const struct pl_dims *t)
{
	const unsigned never_params = 1u << PL_OP_NORMALIZATION | 1u << PL_OP_SOFTMAX |
				      1u << PL_OP_DROPOUT | 1u << PL_OP_POOLING | 1u << PL_OP_LOSS |
				      1u << PL_OP_ATTENTION;

	if (!(never_params >> op & 1) && is_param(b, t))
		return false;
	if (!b->pass)
		return t->n >= 2;
	return t->n && (follows(b, t->size[0]) || (t->n == 2 && follows(b, t->size[1])) ||
			(t->n > 2 && t->size[1] == b->pass) || holds_sequences(b, op, t));
}

/* Do sizes not tell whether the tensor holds samples or parameters? */
static bool is_unsure(const struct pl_work_batch *b, const struct pl_dims *t)
{
	return b->pass && t->n >= 2 && follows(b, t->size[0]) && is_param(b, t);
}

static double element_bytes(const struct pl_graph *g, const struct pl_gwork *w)
{
	const char *type = w->type == PL_NONE ? "" : pl_intern_get(&g->str, w->type);
	int64_t bytes = pl_trace_dtype(type, strlen(type), NULL);

	return bytes > 0 ? (double)bytes : 4;
}

/* A product of matrices p x q and q x r, one of whose sizes follows the batch; without a batch that
 * was found the rows do, or in a gradient of parameters what is summed up. */
static void work_of_matrices(const struct pl_work_batch *b, const struct pl_dims *a, double element,
			     struct pl_work *w)
{
	double p = (double)a->size[0], q = (double)a->size[1], r = w->flops / 2 / fmax(p * q, 1);
	bool rows = b->pass ? follows(b, a->size[0]) : !is_param(b, a);
	bool inner = b->pass && follows(b, a->size[1]);

	w->of_samples = rows || inner || (b->pass && follows(b, llround(r)));
	w->other_bytes = element * (!w->of_samples ? p * q + q * r + p * r
				    : rows	   ? q * r
				    : inner	   ? p * r
						   : p * q);
	w->sample_bytes = element * (p * q + q * r + p * r) - w->other_bytes;
	if (w->of_samples && !rows && inner) {
		w->gradient_bytes = w->other_bytes;
		w->other_bytes = 0;
	}
}

/* The backward pass of a layer as one operation on the gradient of its output, its input and its
 * parameters: two products. */
static bool work_of_layer(const char *dims, double element, struct pl_work *w)
{
	struct pl_dims t[3], more;
	double rows, in, out;
	int n = 0;

	while (n < 3 && pl_dims_next(&dims, &t[n]))
		n++;
	if (n < 3 || pl_dims_next(&dims, &more) || t[0].n != 2 || t[1].n != 2 || t[2].n != 2)
		return false;
	rows = (double)t[1].size[0];
	in = (double)t[2].size[0];
	out = (double)t[2].size[1];
	if (w->flops != 4 * rows * in * out)
		return false;
	w->of_samples = true;
	w->sample_bytes = 2 * element * rows * (in + out);
	w->other_bytes = w->gradient_bytes = element * in * out;
	return true;
}

/* An operation that nobody knows, on samples and on matrices of parameters, multiplies each row of
 * samples with them. If the samples come second, it takes step after step of a sequence, as
 * recurrent networks do, and reads in each what no cache has kept of the parameters. */
static void guess_products(const struct pl_work_batch *b, const struct pl_dims *first,
			   double matrices, double element, struct pl_work *w)
{
	if (!w->of_samples || !(matrices > 0) || first->n < 2 || first->n > PL_DIMS_MAX)
		return;
	w->product = true;
	w->sample_bytes +=
		w->other_bytes - matrices * element; /* what is left to work in grows, too */
	w->other_bytes = matrices * element;
	w->flops = 2 * matrices * (double)first->elements / (double)first->size[first->n - 1];
	if (first->n == 3 && !follows(b, first->size[0]))
		w->other_bytes += (double)(first->size[0] - 1) * fmax(w->other_bytes - CACHE, 0);
}

void pl_work_describe(const struct pl_graph *g, const struct pl_work_batch *b, uint32_t row,
		      struct pl_work *w)
{
	const struct pl_gwork *from = &g->work[row];
	const char *dims = dims_of(g, row), *all = dims;
	double element = element_bytes(g, from), most = 0, out;
	struct pl_dims t, a = { .n = 0 }, f = { .n = 0 };
	double matrices = 0;
	int wide = 0;

	*w = (struct pl_work){ .flops = from->flops > 0 ? (double)from->flops : 0 };
	w->product = w->flops > 0;
	if (!dims)
		return;
	if (from->op == PL_OP_MATMUL && w->product && work_of_layer(dims, element, w))
		return;
	if (from->op == PL_OP_MATMUL && w->product && factors_of(dims, &a, &f) && a.n == 2 &&
	    f.n == 2) {
		work_of_matrices(b, &a, element, w);
		return;
	}
	while (pl_dims_next(&all, &t)) {
		double bytes = t.elements > 0 ? (double)t.elements * element : 0;

		wide += t.n >= 3;
		w->unsure |= is_unsure(b, &t);
		if (holds_samples(b, from->op, &t)) {
			a = w->of_samples ? a : t;
			most = fmax(w->of_samples ? most : 0, bytes); /* as much out as in */
			w->of_samples = true;
			w->sample_bytes += bytes;
		} else if (from->op != PL_OP_EMBEDDING) { /* which reads few rows of its table */
			w->other_bytes += bytes;
			most = w->of_samples ? most : fmax(most, bytes);
			matrices += t.n == 2 ? bytes / element : 0;
		}
	}
	if (from->op == PL_OP_UNKNOWN && b->pass)
		guess_products(b, &a, matrices, element, w);
	out = from->bytes > 0 ? fmax((double)from->bytes - w->sample_bytes - w->other_bytes, 0)
			      : most;
	if (!w->of_samples) {
		w->other_bytes += out;
		return;
	}
	if (from->op == PL_OP_CONVOLUTION &&
	    wide > 2) /* it also makes the gradient of the filter */
		w->gradient_bytes = fmin(out, w->other_bytes);
	w->sample_bytes += out - w->gradient_bytes;
}

/* ---- other sizes ----------------------------------------------------------------------------- */

/* A product of two matrices: bit i of a size that follows the batch, in the first and the second
 * factor. As work_of_matrices(). */
static void matrices_follow(const struct pl_work_batch *b, const struct pl_dims *a,
			    const struct pl_dims *f, unsigned bits[2])
{
	bool turned = f->size[0] != a->size[1]; /* a weight may be stored transposed */

	bits[0] = bits[1] = 0;
	if (b->pass ? follows(b, a->size[0]) : !is_param(b, a))
		bits[0] = 1;
	else if (b->pass && follows(b, a->size[1]))
		bits[0] = 2, bits[1] = turned ? 2 : 1;
	else if (b->pass && follows(b, f->size[turned ? 0 : 1]))
		bits[1] = turned ? 1 : 2;
}

/* Bit i of the sizes of another tensor that follow the batch. As holds_samples(). */
static unsigned tensor_follows(const struct pl_work_batch *b, unsigned op, const struct pl_dims *t)
{
	if (t->n < 1 || !holds_samples(b, op, t))
		return 0;
	return !b->pass || follows(b, t->size[0]) || holds_sequences(b, op, t) ? 1 : 2;
}

/* The sizes of tensor `number` of the inputs with `by` times the samples; false: none changes. */
static bool follow(const struct pl_work_batch *b, const char *dims, const struct pl_gwork *w,
		   int number, double by, struct pl_dims *t)
{
	const char *all = dims;
	struct pl_dims x, a = { .n = 0 }, f = { .n = 0 };
	struct pl_work layer = { .flops = (double)w->flops };
	unsigned bits[2] = { 0, 0 };
	int n = 0, matrices[2] = { -1, -1 };

	while (pl_dims_next(&all, &x)) {
		if (n++ == number)
			*t = x;
		if (x.n >= 2) {
			matrices[0] = matrices[1];
			matrices[1] = n - 1;
		}
	}
	if (w->op == PL_OP_MATMUL && w->flops > 0 && work_of_layer(dims, 4, &layer)) {
		bits[0] = number < 2;
	} else if (w->op == PL_OP_MATMUL && w->flops > 0 && factors_of(dims, &a, &f) && a.n == 2 &&
		   f.n == 2) {
		matrices_follow(b, &a, &f, bits);
		bits[0] = number == matrices[0] ? bits[0] : number == matrices[1] ? bits[1] : 0;
	} else {
		bits[0] = tensor_follows(b, w->op, t);
	}
	for (int i = 0; i < t->n && i < PL_DIMS_MAX; i++)
		if (bits[0] >> i & 1)
			t->size[i] = pl_max_i64(llround((double)t->size[i] * by), 1);
	return bits[0];
}

static int64_t times(int64_t n, double x)
{
	return n < 0 ? n : (int64_t)fmin((double)n * x, 0x1p60);
}

bool pl_work_scale(const struct pl_work_model *m, uint32_t row, double by, struct pl_gwork *to,
		   char *text, size_t size)
{
	const struct pl_work *w = &m->work[row];
	const char *dims = row < m->g->n_work ? dims_of(m->g, row) : NULL, *all = dims;
	bool changes = false, fits = true;
	struct pl_dims t;
	size_t at = 0;

	if (!dims || !w->of_samples)
		return false;
	for (int i = 0; fits && pl_dims_next(&all, &t); i++) {
		fits = t.n <= PL_DIMS_MAX;
		changes |= follow(&m->batch, dims, &m->g->work[row], i, by, &t);
		at += (size_t)snprintf(text + at, size - at, "%s[", i ? "," : "[");
		for (int k = 0; fits && k < t.n; k++) {
			at += (size_t)snprintf(text + at, size - at, "%s%lld", k ? "," : "",
					       (long long)t.size[k]);
			fits = at + TEXT < size;
		}
		at += (size_t)snprintf(text + at, size - at, "]");
		fits &= at + TEXT < size;
	}
	snprintf(text + at, size - at, "]");
	*to = m->g->work[row];
	to->flops = times(to->flops, by);
	if (to->bytes > 0)
		to->bytes += times((int64_t)w->sample_bytes, by) - (int64_t)w->sample_bytes;
	to->bytes = to->bytes < -1 ? -1 : to->bytes;
	return changes && fits;
}
