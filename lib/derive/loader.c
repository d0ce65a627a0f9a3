/*
 * Workers of a loader: processes that read batches while the job computes.
 *
 * The recording shows only how long the job waits for the next batch. Where it waits in two steps
 * that follow one another, the workers are too slow: they hand a batch over at the end of each
 * wait, and begin with the next one there. So the time between these two ends is what a batch
 * takes, from all workers together. It becomes an operation on a resource of its own, for which the
 * end of the wait waits. If the workers get faster, the wait becomes shorter by all of the time
 * that they gain, down to nothing, and not in proportion.
 *
 * A wait may also be what it costs to take a batch that is there. Workers that are too slow let
 * the job wait less where the rest of the step takes longer; such a cost stays the same. So where
 * the rest varies, the slope of the waits decides: -1 or 0. Where it does not, and for waits of
 * half the time, only their length does.
 *
 * A step may read from several loaders, one right behind the other, as jobs with labelled and
 * unlabelled samples do. The waits for a fast one then hide that those for another are long. So
 * where the waits together say nothing, and all steps read as often, the k-th batches of the steps
 * count as those of one loader.
 *
 * The batch of the first wait takes as long as the mean of the others. Shorter waits than
 * WAIT_SHARE of the time between their ends say nothing about the workers: the batch was there, or
 * nearly so. O(n) in the operations of a thread, O(n log n) in its batches.
 */
#include "derive/internal.h"

#define WAIT_SHARE 20	/* a wait counts if it is at least that part of the time between two */
#define LONG_SHARE 5	/* the same, if the rest of the steps does not vary */
#define VARIES	   0.01 /* standard deviation of the rest, of the time between two */

static const char workers[] = "enumerate(DataLoader)#_MultiProcessing";

/* A wait for a batch. */
struct fetch {
	uint32_t first, node; /* pieces of its operation: the longest, and what touches it where
			       * steps end inside the wait */
	pl_ns dur, end;
	int32_t step;
	uint32_t nth; /* of its step */
	bool waits;   /* for workers that are too slow */
};

PL_COMPARATOR(by_place, struct fetch, nth, end);

static uint32_t longest_piece(const struct builder *b, const struct op *op)
{
	uint32_t best = op->node;

	for (uint32_t i = op->node; i <= op->last; i++)
		if (b->node[i].name == b->node[op->node].name && b->node[i].dur > b->node[best].dur)
			best = i;
	return best;
}

/* Is node i a piece of the operation of x that ends where its first piece begins, or begins where
 * its last one ends? Only marks of steps are between them. */
static bool touches(const struct builder *b, const struct fetch *x, uint32_t i)
{
	return b->node[i].name == b->node[x->node].name &&
	       (pl_derive_end(b, i) == b->node[x->first].start ||
		b->node[i].start == pl_derive_end(b, x->node));
}

static struct fetch fetch_of(const struct builder *b, const struct op *op)
{
	uint32_t piece = longest_piece(b, op);
	struct fetch x = { .first = piece, .node = piece };

	for (uint32_t i = piece; i-- > op->node;)
		if (touches(b, &x, i))
			x.first = i;
	for (uint32_t i = piece + 1; i <= op->last; i++)
		if (touches(b, &x, i))
			x.node = i;
	x.end = pl_derive_end(b, x.node);
	x.dur = x.end - b->node[x.first].start;
	return x;
}

static void list_fetches(struct builder *b, const struct resource *resource, struct fetch **v,
			 size_t *n)
{
	size_t cap = 0;

	for (uint32_t i = 0; i < resource->n; i++) {
		const struct op *op = &resource->op[i];
		const struct pl_events *e = b->t->seg[op->seg];

		if (op->kind != PL_K_DATA || op->node == PL_NONE ||
		    strncmp(pl_intern_get(&e->seg.str, e->name[op->ev]), workers,
			    sizeof(workers) - 1) != 0)
			continue;
		PL_DERIVE_ADD(b->err, *v, *n, cap, fetch_of(b, op));
	}
}

/* Do the n waits w[] of the times t[] between two show that the workers set the pace? */
static bool set_pace(const double *w, const double *t, size_t n)
{
	double sum_w = 0, sum_t = 0, squares = 0, products = 0, rest;

	for (size_t i = 0; i < n; i++) {
		sum_w += w[i];
		sum_t += t[i];
	}
	rest = (sum_t - sum_w) / (double)n;
	for (size_t i = 0; i < n; i++) {
		double x = t[i] - w[i] - rest;

		squares += x * x;
		products += x * (w[i] - sum_w / (double)n);
	}
	if (2 * sum_w >= sum_t)
		return true;
	if (squares < VARIES * VARIES * sum_t * sum_t / (double)n)
		return LONG_SHARE * sum_w >= sum_t;
	return 2 * products <= -squares;
}

/* Finds the fetches that wait, and how long a batch takes on average; 0: none waits. */
static pl_ns find_slow(const struct builder *b, struct fetch *v, size_t n)
{
	double *wait = NULL, *time = NULL, sum = 0;
	size_t batches = 0;
	bool slow;
	int rc;

	PL_TRY(pl_alloc(&wait, n, sizeof(*wait), b->err));
	PL_TRY(pl_alloc(&time, n, sizeof(*time), b->err));
	for (size_t i = 0; i < n && n > 1; i++) {
		pl_ns between = i ? v[i].end - v[i - 1].end : v[1].end - v[0].end;

		v[i].waits = v[i].dur > between / WAIT_SHARE;
		if (!i || !v[i].waits || !v[i - 1].waits)
			continue;
		wait[batches] = (double)v[i].dur;
		time[batches++] = (double)between;
		sum += (double)between;
	}
out:
	slow = batches && set_pace(wait, time, batches);
	pl_free(wait);
	pl_free(time);
	return slow ? (pl_ns)(sum / (double)batches) : 0;
}

/* A batch that takes `dur` and is there at the end of the wait. Each piece of the wait waits for
 * its part of the batch. Returns its last node. */
static uint32_t add_batch(struct builder *b, uint32_t res, const struct resource *thread,
			  const struct fetch *x, pl_ns dur, uint32_t before)
{
	pl_ns from = x->end - dur;
	uint32_t id;

	for (uint32_t i = x->first; i <= x->node; i++) {
		struct node n = b->node[i];
		pl_ns end = n.start + n.dur;

		if (n.name != b->node[x->node].name)
			continue;
		n.res = res;
		n.role = PL_RO_HOST;
		n.flags = PL_NF_INFERRED;
		n.start = pl_min_i64(from, end);
		n.dur = end - n.start;
		from = end;
		id = pl_derive_node(b, &n);
		pl_derive_edge(b, before, id, PL_E_SEQ);
		pl_derive_split(b, thread, i, 0, end, id);
		before = id;
	}
	return before;
}

static uint32_t new_resource(struct builder *b, uint32_t thread)
{
	struct pl_resource r = b->g->res[thread];

	r.name = pl_derive_intern_text(b->err, &b->g->str, PL_GRAPH_LOADER_WORKERS);
	return pl_derive_resource(b, &r, b->resource[thread].rank_index);
}

/* Makes the operations of the workers that read the batches v[0] .. v[n - 1]. False: they are not
 * too slow. */
static bool one_loader(struct builder *b, uint32_t thread, struct fetch *v, size_t n)
{
	uint32_t res, before = PL_NONE;
	pl_ns mean, end = INT64_MIN;

	mean = find_slow(b, v, n);
	res = mean ? new_resource(b, thread) : PL_NONE;
	for (size_t i = 0; i < n && res != PL_NONE && !b->err->code; i++) {
		pl_ns dur = mean;

		if (!v[i].waits)
			continue;
		if (end != INT64_MIN && (v[i - 1].waits || v[i].end - end < dur))
			dur = v[i].end - end;
		before = add_batch(b, res, &b->resource[thread], &v[i], dur, before);
		end = v[i].end;
	}
	return mean > 0;
}

/* How many batches each step reads, 0: steps differ; only the first and the last may have been cut
 * off. *n becomes the number of batches of whole steps, which have their places then. */
static size_t batches_of_step(const struct builder *b, const struct rank *rank, struct fetch *v,
			      size_t *n)
{
	size_t each = 0, kept = 0;

	for (size_t i = 0; i < *n; i++) {
		v[i].step = pl_derive_step_at(b, rank, v[i].end, NULL);
		v[i].nth = i && v[i].step == v[i - 1].step ? v[i - 1].nth + 1 : 0;
		each = v[i].nth < each ? each : v[i].nth + (size_t)1;
	}
	for (size_t i = 0, k; i < *n; i = k) {
		for (k = i + 1; k < *n && v[k].nth; k++)
			;
		if (k - i != each && i && k < *n)
			return 0;
		for (size_t j = i; k - i == each && j < k; j++)
			v[kept++] = v[j];
	}
	*n = kept;
	return each;
}

static void one_thread(struct builder *b, const struct rank *rank, uint32_t thread)
{
	struct fetch *v = NULL;
	size_t n = 0, each;

	list_fetches(b, &b->resource[thread], &v, &n);
	if (n && !one_loader(b, thread, v, n)) {
		each = batches_of_step(b, rank, v, &n);
		pl_sort(v, n, sizeof(*v), by_place);
		for (size_t k = 0; each > 1 && k < each; k++)
			one_loader(b, thread, v + k * (n / each), n / each);
	}
	pl_free(v);
}

void pl_derive_loader(struct builder *b, struct rank *rank)
{
	for (size_t k = 0; k < rank->n_res && !b->err->code; k++)
		if (b->resource[rank->res[k]].thread)
			one_thread(b, rank, rank->res[k]);
}
