/*
 * tensor-parallel on graphs of a transformer: what the rewrite makes of the whole model is the
 * graph whose layers were divided by hand. Undoing, what is refused, other lines afterwards.
 */
#include <math.h>

#include "cost/work.h"
#include "derive/layers.h"
#include "rewrite/rewrite.h"
#include "sim/sim.h"
#include "tap.h"

#define BATCH  3
#define SEQ    32
#define WIDTH  64
#define HEADS  4
#define VOCAB  200
#define LAYERS 2
#define RANKS  2
#define ROWS   (BATCH * SEQ)
#define OPS    256

/* A model as rank 0 of a group of `degree` has it. */
struct model {
	int degree;
	bool separate; /* queries, keys and values are three products */
	bool odd;      /* a normalisation between the two products of the second pair */
	struct pl_layers_op op[OPS];
	char dims[OPS][64];
	char name[OPS][16];
	struct pl_layers_row row[OPS];
	size_t n_ops, n_rows;
};

static void put(struct model *m, const char *name, unsigned op, unsigned phase, double flops,
		double bytes, const char *dims, ...) PL_PRINTF(7, 8);
static void put(struct model *m, const char *name, unsigned op, unsigned phase, double flops,
		double bytes, const char *dims, ...)
{
	size_t i = m->n_ops++;
	va_list ap;

	va_start(ap, dims);
	vsnprintf(m->dims[i], sizeof(m->dims[i]), dims, ap);
	va_end(ap);
	m->op[i] = (struct pl_layers_op){ name,	      (uint8_t)op,    (uint8_t)phase,
					  m->dims[i], (int64_t)flops, (int64_t)bytes };
}

static void product(struct model *m, unsigned phase, int rows, int sum, int columns)
{
	put(m, "linear", PL_OP_MATMUL, phase, 2.0 * rows * sum * columns,
	    4.0 * (rows * sum + sum * columns + rows * columns), "[[%d,%d],[%d,%d]]", rows, sum,
	    sum, columns);
}

static void batched(struct model *m, unsigned phase, int rows, int sum, int columns)
{
	int b = BATCH * HEADS / m->degree;

	put(m, "bmm", PL_OP_MATMUL, phase, 2.0 * b * rows * sum * columns,
	    4.0 * b * (rows * sum + sum * columns + rows * columns), "[[%d,%d,%d],[%d,%d,%d]]", b,
	    rows, sum, b, sum, columns);
}

static void rows(struct model *m, const char *name, unsigned op, unsigned phase, int n, int columns)
{
	put(m, name, op, phase, (double)n * columns, 8.0 * n * columns, "[[%d,%d]]", n, columns);
}

static void end_row(struct model *m, size_t forward, size_t first, double params)
{
	struct pl_layers_row *r = &m->row[m->n_rows];

	snprintf(m->name[m->n_rows], sizeof(m->name[0]), "L%zu", m->n_rows);
	*r = (struct pl_layers_row){ .name = m->name[m->n_rows],
				     .tensor = m->name[m->n_rows],
				     .param_bytes = (int64_t)(4 * params),
				     .activation_bytes = 1000,
				     .op = &m->op[first],
				     .n_forward = (uint32_t)(forward - first),
				     .n_backward = (uint32_t)(m->n_ops - forward) };
	m->n_rows++;
}

static void linear(struct model *m, int sum, int columns, double params)
{
	size_t first = m->n_ops;

	product(m, PL_PH_FORWARD, ROWS, sum, columns);
	product(m, PL_PH_INPUT_GRAD, ROWS, columns, sum);
	product(m, PL_PH_WEIGHT_GRAD, sum, ROWS, columns);
	end_row(m, first + 1, first, params);
}

static void simple(struct model *m, const char *name, unsigned op, int n, int columns,
		   double params)
{
	size_t first = m->n_ops;

	rows(m, name, op, PL_PH_FORWARD, n, columns);
	rows(m, name, op, PL_PH_BACKWARD, n, columns);
	end_row(m, first + 1, first, params);
}

static void attention(struct model *m)
{
	int d = WIDTH / HEADS, pairs = BATCH * HEADS / m->degree * SEQ;
	size_t first = m->n_ops, forward;

	batched(m, PL_PH_FORWARD, SEQ, d, SEQ);
	rows(m, "softmax", PL_OP_SOFTMAX, PL_PH_FORWARD, pairs, SEQ);
	batched(m, PL_PH_FORWARD, SEQ, SEQ, d);
	forward = m->n_ops;
	batched(m, PL_PH_BACKWARD, SEQ, d, SEQ);
	batched(m, PL_PH_BACKWARD, SEQ, SEQ, d);
	rows(m, "softmax", PL_OP_SOFTMAX, PL_PH_BACKWARD, pairs, SEQ);
	batched(m, PL_PH_BACKWARD, SEQ, SEQ, d);
	batched(m, PL_PH_BACKWARD, SEQ, SEQ, d);
	end_row(m, forward, first, 0);
}

static void make(struct model *m, int degree)
{
	int t = degree, w = WIDTH, each = m->separate ? 3 : 1;
	size_t first;

	m->degree = degree;
	m->n_ops = m->n_rows = 0;
	first = m->n_ops;
	put(m, "embedding", PL_OP_EMBEDDING, PL_PH_FORWARD, 0, 8.0 * ROWS * w, "[[%d]]", ROWS);
	put(m, "embedding", PL_OP_EMBEDDING, PL_PH_BACKWARD, 0, 8.0 * ROWS * w, "[[%d]]", ROWS);
	end_row(m, first + 1, first, (double)VOCAB / t * w);
	for (int i = 0; i < LAYERS; i++) {
		simple(m, "ln", PL_OP_NORMALIZATION, ROWS, w, 2 * w);
		for (int k = 0; k < each; k++) /* with a bias of each column */
			linear(m, w, 3 * w / each / t, (w + 1) * 3.0 * w / each / t);
		attention(m);
		linear(m, w / t, w, (double)w * w / t + w);
		simple(m, "add", PL_OP_ELEMENTWISE, ROWS, w, 0);
		simple(m, "ln", PL_OP_NORMALIZATION, ROWS, w, 2 * w);
		linear(m, w, 4 * w / t, (w + 1) * 4.0 * w / t);
		simple(m, "gelu", m->odd ? PL_OP_NORMALIZATION : PL_OP_ELEMENTWISE, ROWS, 4 * w / t,
		       0);
		linear(m, 4 * w / t, w, 4.0 * w * w / t + w);
		simple(m, "add", PL_OP_ELEMENTWISE, ROWS, w, 0);
	}
	simple(m, "ln", PL_OP_NORMALIZATION, ROWS, w, 2 * w);
	linear(m, w, VOCAB / t, 0);
	simple(m, "loss", PL_OP_LOSS, ROWS, VOCAB / t, 0);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

#define NS_PER_BYTE 0.1
#define NS_PER_FLOP 0.25

static pl_ns transfer(void *arg, int64_t bytes, uint32_t n)
{
	(void)arg;
	(void)n;
	return 1000 + bytes / 4;
}

/* Each operation takes a time by its work. */
static bool make_graph(const struct model *m, struct pl_graph *g, bool timed, struct pl_err *err)
{
	const struct pl_layers_opts o = { .n_ranks = RANKS,
					  .transfer = transfer,
					  .bucket_bytes = 100000 };
	const struct pl_layers_table t = { "model", m->row, m->n_rows, "float", "update.sgd", 0 };

	if (pl_derive_layers_table(&t, &o, g, err) < 0)
		return false;
	for (uint32_t i = 0; timed && i < g->shape->n_nodes; i++) {
		const struct pl_gwork *w = g->shape->work && g->shape->work[i] != PL_NONE
						   ? &g->work[g->shape->work[i]]
						   : NULL;

		if (w && g->shape->role[i] == PL_RO_COMPUTE)
			g->step->dur[i] =
				500 + llround(NS_PER_FLOP * (double)pl_max_i64(w->flops, 0) +
					      NS_PER_BYTE * (double)pl_max_i64(w->bytes, 0));
	}
	return true;
}

struct job {
	struct pl_graph g;
	struct pl_sim *s;
	struct pl_edit e;
	struct pl_cost cost;
	struct pl_rewriter *r;
};

static bool start(struct job *j, const struct model *m, bool timed, struct pl_err *err)
{
	*j = (struct job){ .s = NULL };
	return make_graph(m, &j->g, timed, err) && (j->s = pl_sim_new(&j->g, err)) &&
	       pl_cost_fit(&j->g, NULL, &j->cost, err) == 0 &&
	       pl_sim_edit(j->s, 0, 1, &j->e, err) == 0 &&
	       (j->r = pl_rewrite_new(&j->e, &j->cost, err));
}

static void end(struct job *j)
{
	pl_rewrite_free(j->r);
	pl_edit_fini(&j->e);
	pl_sim_free(j->s);
	pl_cost_fini(&j->cost);
	pl_graph_fini(&j->g);
}

static int divide(struct job *j, int degree, struct pl_err *err)
{
	const struct pl_rewrite rw = { .op = PL_RW_TENSOR_PARALLEL, .k = degree, .to = -1 };

	return pl_rewrite(j->r, &rw, err);
}

/* ---- by hand ----------------------------------------------------------------------------------
 */

static const struct pl_gwork *work_of(const struct pl_graph *g, uint32_t i)
{
	return g->shape->work && g->shape->work[i] != PL_NONE ? &g->work[g->shape->work[i]] : NULL;
}

static bool equal_work(const struct pl_graph *a, const struct pl_gwork *x, const struct pl_graph *b,
		       const struct pl_gwork *y)
{
	return x && y && x->op == y->op && x->flops == y->flops && x->bytes == y->bytes &&
	       !strcmp(pl_intern_get(&a->str, x->dims), pl_intern_get(&b->str, y->dims));
}

/* The next node that computes, from i on. */
static uint32_t computing(const struct pl_graph *g, uint32_t i)
{
	while (i < g->shape->n_nodes && (g->shape->role[i] != PL_RO_COMPUTE || !work_of(g, i)))
		i++;
	return i;
}

/* Operations in the order of each rank: the divided graph's are those of the graph by hand. */
static bool compare(const struct pl_graph *a, const struct pl_graph *b, double within)
{
	bool good = true;

	for (int32_t rank = 0; rank < RANKS; rank++) {
		uint32_t x = 0, y = 0;

		for (;; x++, y++) {
			double now, then;

			for (x = computing(a, x);
			     x < a->shape->n_nodes && pl_node_rank(a, a->shape, x) != rank;)
				x = computing(a, x + 1);
			for (y = computing(b, y);
			     y < b->shape->n_nodes && pl_node_rank(b, b->shape, y) != rank;)
				y = computing(b, y + 1);
			if (x >= a->shape->n_nodes || y >= b->shape->n_nodes)
				break;
			now = (double)a->step->dur[x];
			then = (double)b->step->dur[y];
			if (equal_work(a, work_of(a, x), b, work_of(b, y)) &&
			    (!pl_graph_is_product(work_of(a, x)->op) ||
			     fabs(now - then) <= within * then))
				continue;
			good = false;
			printf("# %s: %s %.0f ns, by hand %s %.0f ns\n",
			       pl_intern_get(&a->str, a->shape->name[x]),
			       pl_intern_get(&a->str, work_of(a, x)->dims), now,
			       pl_intern_get(&b->str, work_of(b, y)->dims), then);
		}
		good &= x >= a->shape->n_nodes && y >= b->shape->n_nodes;
	}
	return good;
}

/* Bytes of parameters and gradients, by name, in all ranks. */
static bool compare_tensors(const struct pl_graph *a, const struct pl_graph *b)
{
	bool good = a->n_tensors == b->n_tensors;

	for (size_t i = 0; good && i < a->n_tensors; i++) {
		const struct pl_tensor *x = &a->tensor[i], *y = &b->tensor[i];

		if (x->role != PL_TR_PARAM && x->role != PL_TR_GRAD)
			continue;
		good &= x->bytes == y->bytes;
		if (x->bytes != y->bytes)
			printf("# %s: %lld bytes, by hand %lld\n", pl_intern_get(&a->str, x->name),
			       (long long)x->bytes, (long long)y->bytes);
	}
	return good;
}

/* Transfers of a rank within the group, and their bytes. */
static uint32_t count_reductions(const struct pl_graph *g, int degree, bool *sized)
{
	uint32_t n = 0;

	*sized = true;
	for (uint32_t i = 0; i < g->shape->n_nodes; i++) {
		const struct pl_gcomm *c = pl_node_comm(g->shape, i);

		if (g->shape->role[i] != PL_RO_TRANSFER ||
		    strcmp(pl_intern_get(&g->str, g->res[g->shape->res[i]].name),
			   "tensor-parallel") != 0)
			continue;
		n++;
		*sized &= c && c->kind == PL_COLL_ALLREDUCE && c->bytes == 4 * ROWS * WIDTH &&
			  c->members == (uint32_t)degree && g->group[c->group].n == c->members &&
			  g->step->dur[i] > 0;
	}
	return n / RANKS;
}

static int64_t sum_of_gradients(const struct pl_graph *g)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < g->shape->n_nodes; i++)
		if (g->shape->role[i] == PL_RO_TRANSFER &&
		    !strncmp(pl_intern_get(&g->str, g->shape->name[i]), "allreduce bucket", 16))
			sum += g->shape->bytes[i];
	return sum;
}

static void against_hand(bool separate, int degree)
{
	struct model whole = { .separate = separate }, part = { .separate = separate };
	struct pl_graph hand, out;
	struct pl_err err = { 0 };
	struct job j;
	bool good, sized;
	double before;
	uint32_t n;

	make(&whole, 1);
	make(&part, degree);
	good = start(&j, &whole, true, &err) && make_graph(&part, &hand, true, &err);
	before = good ? pl_edit_mean_step(&j.e) : 0;
	good = good && divide(&j, degree, &err) == 0 && pl_sim_settle(&j.e, &err) == 0 &&
	       pl_edit_graph(&j.e, &out, &err) == 0;
	ok(good, "%s, %d parts: applied %s", separate ? "three products" : "one product", degree,
	   err.msg);
	if (!good) {
		end(&j);
		return;
	}
	ok(pl_graph_valid(&out, &err), "the graph is valid %s", err.msg);
	ok(compare(&out, &hand, 0.1),
	   "operations have the sizes of the graph by hand, and its times");
	ok(compare_tensors(&out, &hand), "so have parameters and gradients");
	n = count_reductions(&out, degree, &sized);
	/* the input of the first layer, and that of the logits */
	is_i64(n, 4 * LAYERS + 2, "all-reduces of a rank");
	ok(sized, "they carry the width of all rows, among %d ranks", degree);
	is_i64(sum_of_gradients(&out), sum_of_gradients(&hand), "bytes of all gradients");
	pl_rewrite_undo(j.r, 1);
	good = pl_sim_settle(&j.e, &err) == 0 && fabs(pl_edit_mean_step(&j.e) - before) < 1;
	pl_graph_fini(&out);
	good = good && pl_edit_graph(&j.e, &out, &err) == 0 && compare(&out, &j.g, 0) &&
	       compare_tensors(&out, &j.g) && count_reductions(&out, degree, &sized) == 0;
	ok(good, "undone");
	pl_graph_fini(&out);
	pl_graph_fini(&hand);
	end(&j);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(struct model *m, int degree, bool timed, const char *why)
{
	struct pl_err err = { 0 };
	struct job j;
	double before;

	make(m, 1);
	if (!ok(start(&j, m, timed, &err), "a job %s", err.msg))
		return;
	before = pl_edit_mean_step(&j.e);
	ok(divide(&j, degree, &err) == PL_EDATA && strstr(err.msg, why), "refused: %s", err.msg);
	err = (struct pl_err){ 0 };
	ok(pl_sim_settle(&j.e, &err) == 0 && fabs(pl_edit_mean_step(&j.e) - before) < 1,
	   "nothing has changed");
	end(&j);
}

/* A product without its partner. */
static void alone(void)
{
	struct model m = { 0 };
	struct pl_err err = { 0 };
	struct job j;

	simple(&m, "ln", PL_OP_NORMALIZATION, ROWS, WIDTH, 0);
	linear(&m, WIDTH, 2 * WIDTH, 2 * WIDTH * WIDTH);
	if (ok(start(&j, &m, true, &err), "a job %s", err.msg))
		ok(divide(&j, 2, &err) == PL_EDATA && strstr(err.msg, "no layers of a transformer"),
		   "refused: %s", err.msg);
	end(&j);
}

/* Nothing else changes the same edit. */
static void not_with_others(void)
{
	const struct pl_rewrite batch = { .op = PL_RW_BATCH, .x = 2, .to = -1 };
	struct model m = { 0 };
	struct pl_err err = { 0 };
	struct job j;

	make(&m, 1);
	if (ok(start(&j, &m, true, &err) && divide(&j, 2, &err) == 0, "applied %s", err.msg))
		ok(pl_rewrite(j.r, &batch, &err) == PL_EDATA && strstr(err.msg, "tensor-parallel"),
		   "another line afterwards: %s", err.msg);
	end(&j);
}

int main(void)
{
	struct model m = { 0 };

	against_hand(false, 2);
	against_hand(true, 4);
	refused(&m, 8, true, "4 heads cannot be divided into 8 parts");
	refused(&m, 3, true, "cannot be divided");
	refused(&m, 2, false, "no durations");
	m.odd = true;
	refused(&m, 2, true, "has no partner");
	alone();
	not_with_others();
	return done_testing();
}
