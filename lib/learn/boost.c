/*
 * Boosting: bins, trees, the model.
 *
 * Each feature is divided into at most 255 bins with about as many samples each; equal values share
 * a bin. A tree is grown from its root: the leaf whose best split reduces the loss most is split
 * next. The sums of gradients of a leaf by bin (its histogram) give all its splits. Of two new
 * leaves the smaller one gets its histogram from its samples, the larger one by subtraction.
 *
 * A split of a monotone feature whose values would go the wrong way is left out, and the values of
 * the leaves below a split are limited by the mean of both sides, so that later splits cannot undo
 * the order.
 *
 * Sums are double and in the order of the samples, feature by feature; threads share features, so
 * their number changes nothing. O(rounds * samples * features * log leaves).
 */
#include <float.h>
#include <math.h>

#include "learn/internal.h"

#define MISSING	   PL_BOOST_BINS /* the bin of values that are not known */
#define SLOTS	   (PL_BOOST_BINS + 1)
#define LEAVES_MAX 1024
#define FEW	   4096 /* samples times features that are not worth a thread */

struct sums {
	double gradient, weight;
};
struct split {
	double gain;
	uint32_t feature;
	uint32_t bin; /* the last one of the left side */
	bool missing_right;
	struct sums left, right;
};
struct leaf {
	uint32_t node;	    /* of the model */
	uint32_t first, n;  /* its samples, in `order` */
	uint32_t histogram; /* slot */
	uint32_t depth;
	double low, high; /* limits of its value */
	struct sums all;
	struct split best;
};
struct grower {
	const struct pl_boost_data *d;
	struct pl_boost_opts o;
	struct pl_boost *m;
	size_t cap_nodes;
	uint8_t **bin;	  /* [feature][sample] */
	float **edge;	  /* [feature][bin]: values of the bin are not above it */
	uint32_t *n_bins; /* [feature] */
	bool *constant;	  /* [feature]: one value, or none, so nothing can be split by it */
	double *gradient; /* [sample] */
	double *now;	  /* [sample]: the prediction so far */
	uint32_t *order, *room;
	struct sums *histogram; /* [slot][feature][bin] */
	struct leaf *leaf;
	uint32_t n_leaves;
	uint32_t *use; /* the features of the tree */
	uint32_t n_use;
	uint64_t rng;
	struct pl_queue *queue;
	struct task *task; /* [feature of the tree] */
};
struct task { /* a feature of a leaf, for a thread */
	struct grower *g;
	const struct leaf *leaf;
	uint32_t feature;
	uint32_t from; /* histogram to subtract from, PL_NONE: build from samples */
	struct split best;
};

/* ---- bins ------------------------------------------------------------------------------------ */

static int compare_float(const void *pa, const void *pb)
{
	const float *a = pa, *b = pb;

	return PL_COMPARE(*a, *b);
}

/* Half way from a to b, below b. */
static float between(float a, float b)
{
	float x = a / 2 + b / 2;

	return x >= a && x < b ? x : a;
}

/* Ends of bins in the sorted values v. */
static uint32_t choose_edges(const float *v, size_t n, float *edge)
{
	uint32_t bins = 0;
	size_t different = n ? 1 : 0, taken = 0;

	for (size_t i = 1; i < n; i++)
		different += v[i] != v[i - 1];
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && v[k] == v[i]; k++)
			;
		/* a bin for each value if there are few, else when its share of the samples is full
		 */
		if (different <= PL_BOOST_BINS || k == n ||
		    (k - taken) * (PL_BOOST_BINS - bins) >= n - taken) {
			if (bins == PL_BOOST_BINS)
				bins--;
			edge[bins++] = k < n ? between(v[k - 1], v[k]) : v[k - 1];
			taken = k;
		}
	}
	return bins;
}

static uint8_t bin_of(const float *edge, uint32_t n, float v)
{
	size_t i = 0;

	if (isnan(v))
		return MISSING;
	PL_LOWER_BOUND(i, n, edge[i] < v);
	return (uint8_t)(i < n ? i : n - 1);
}

static int make_bins(struct grower *g, struct pl_err *err)
{
	const struct pl_boost_data *d = g->d;
	float *sorted;
	int rc;

	PL_CHECK(pl_alloc(&sorted, d->n, sizeof(*sorted), err));
	for (uint32_t f = 0; f < d->n_features; f++) {
		size_t n = 0;

		for (size_t i = 0; i < d->n; i++) {
			if (isinf(d->x[f][i])) {
				rc = pl_fail(err, PL_EDATA,
					     "feature %u of sample %zu is not finite", f, i);
				goto out;
			}
			if (!isnan(d->x[f][i]))
				sorted[n++] = d->x[f][i];
		}
		pl_sort(sorted, n, sizeof(*sorted), compare_float);
		PL_TRY(pl_alloc(&g->edge[f], PL_BOOST_BINS, sizeof(**g->edge), err));
		PL_TRY(pl_alloc(&g->bin[f], d->n, 1, err));
		g->n_bins[f] = choose_edges(sorted, n, g->edge[f]);
		g->constant[f] = g->n_bins[f] + (n > 0 && n < d->n) < 2;
		for (size_t i = 0; i < d->n; i++)
			g->bin[f][i] = bin_of(g->edge[f], g->n_bins[f], d->x[f][i]);
	}
	rc = 0;
out:
	pl_free(sorted);
	return rc;
}

/* ---- splits ---------------------------------------------------------------------------------- */

static struct sums *histogram_of(const struct grower *g, uint32_t slot, uint32_t feature)
{
	return g->histogram + ((size_t)slot * g->d->n_features + feature) * SLOTS;
}

static double value_of(const struct grower *g, const struct leaf *l, struct sums s)
{
	double v = s.weight + g->o.lambda > 0 ? -s.gradient / (s.weight + g->o.lambda) : 0;

	return fmin(fmax(v, l->low), l->high);
}

/* The reduction of the loss by this value, times 2. */
static double worth(const struct grower *g, struct sums s, double v)
{
	return -(2 * s.gradient * v + (s.weight + g->o.lambda) * v * v);
}

static void try_split(const struct grower *g, const struct leaf *l, uint32_t feature, uint32_t bin,
		      bool missing_right, struct sums left, double alone, struct split *best)
{
	struct sums right = { l->all.gradient - left.gradient, l->all.weight - left.weight };
	int direction = g->o.monotone ? g->o.monotone[feature] : 0;
	double a, b, gain;

	if (left.weight < g->o.least || right.weight < g->o.least)
		return;
	a = value_of(g, l, left);
	b = value_of(g, l, right);
	if ((direction > 0 && a > b) || (direction < 0 && a < b))
		return;
	gain = worth(g, left, a) + worth(g, right, b) - alone;
	if (gain > best->gain)
		*best = (struct split){ gain, feature, bin, missing_right, left, right };
}

/* All splits of a feature; unknown values are tried on both sides. */
static void find_split(const struct grower *g, const struct leaf *l, uint32_t feature,
		       struct split *best)
{
	const struct sums *h = histogram_of(g, l->histogram, feature);
	double alone = worth(g, l->all, value_of(g, l, l->all));
	struct sums left = { 0, 0 }, missing = h[MISSING];

	*best = (struct split){ .gain = 1e-12 };
	for (uint32_t b = 0;
	     b + 1 < g->n_bins[feature] || (b < g->n_bins[feature] && missing.weight > 0); b++) {
		left.gradient += h[b].gradient;
		left.weight += h[b].weight;
		try_split(g, l, feature, b, true, left, alone, best);
		if (missing.weight > 0)
			try_split(g, l, feature, b, false,
				  (struct sums){ left.gradient + missing.gradient,
						 left.weight + missing.weight },
				  alone, best);
	}
}

static void fill_histogram(const struct grower *g, const struct leaf *l, uint32_t feature)
{
	struct sums *h = histogram_of(g, l->histogram, feature);
	const uint8_t *bin = g->bin[feature];
	const float *weight = g->d->weight;

	memset(h, 0, g->n_bins[feature] * sizeof(*h));
	h[MISSING] = (struct sums){ 0, 0 };
	for (uint32_t i = l->first; i < l->first + l->n; i++) {
		uint32_t s = g->order[i];
		struct sums *x = &h[bin[s]];

		x->gradient += g->gradient[s];
		x->weight += weight ? weight[s] : 1;
	}
}

/* One feature of a leaf: its histogram, then its best split. */
static void run_task(void *arg)
{
	struct task *t = arg;
	struct grower *g = t->g;

	if (t->from == PL_NONE) {
		fill_histogram(g, t->leaf, t->feature);
	} else { /* the slot holds the parent's, and the sibling has its own */
		struct sums *h = histogram_of(g, t->leaf->histogram, t->feature);
		const struct sums *less = histogram_of(g, t->from, t->feature);

		for (uint32_t b = 0; b < g->n_bins[t->feature]; b++) {
			h[b].gradient -= less[b].gradient;
			h[b].weight -= less[b].weight;
		}
		h[MISSING].gradient -= less[MISSING].gradient;
		h[MISSING].weight -= less[MISSING].weight;
	}
	find_split(g, t->leaf, t->feature, &t->best);
}

/* The histogram and the best split of a leaf. Equal gains: the first feature. */
static void look_at(struct grower *g, struct leaf *l, uint32_t from)
{
	bool alone = (uint64_t)(from == PL_NONE ? l->n : SLOTS) * g->n_use < FEW;
	struct task *t;

	for (uint32_t i = 0; i < g->n_use; i++) {
		g->task[i] = (struct task){ g, l, g->use[i], from, { .gain = 0 } };
		if (alone)
			run_task(&g->task[i]);
		else
			pl_queue_put(g->queue, run_task, &g->task[i]);
	}
	l->best = (struct split){ .gain = 0 };
	for (uint32_t i = 0; i < g->n_use; i++) {
		t = alone ? &g->task[i] : pl_queue_get(g->queue);
		if (t->best.gain > l->best.gain && t->best.gain > 1e-12)
			l->best = t->best;
	}
}

/* Can the leaf be divided, by its depth and its weight? */
static bool may_split(const struct grower *g, const struct leaf *l)
{
	return l->n > 1 && l->all.weight >= 2 * g->o.least &&
	       !(g->o.depth && l->depth >= g->o.depth);
}

/* ---- trees ----------------------------------------------------------------------------------- */

static int add_nodes(struct grower *g, uint32_t n, uint32_t *first, struct pl_err *err)
{
	struct pl_boost *m = g->m;
	size_t cap = g->cap_nodes;

	if (m->n_nodes + n > UINT32_MAX / 2)
		return pl_fail(err, PL_ELIMIT, "the trees have too many nodes");
	PL_CHECK(pl_grow(&m->node, &cap, m->n_nodes + n, sizeof(*m->node), err));
	PL_CHECK(pl_grow(&m->mean, &g->cap_nodes, m->n_nodes + n, sizeof(*m->mean), err));
	memset(m->node + m->n_nodes, 0, n * sizeof(*m->node));
	*first = (uint32_t)m->n_nodes;
	m->n_nodes += n;
	return 0;
}

static bool goes_right(const struct grower *g, const struct split *s, uint32_t sample)
{
	uint8_t bin = g->bin[s->feature][sample];

	return bin == MISSING ? s->missing_right : bin > s->bin;
}

/* Samples of the leaf that go left first; returns how many. The order within a side stays. */
static uint32_t partition(struct grower *g, const struct leaf *l)
{
	uint32_t n = 0, right = 0;

	for (uint32_t i = l->first; i < l->first + l->n; i++) {
		uint32_t s = g->order[i];

		if (goes_right(g, &l->best, s))
			g->room[right++] = s;
		else
			g->order[l->first + n++] = s;
	}
	memcpy(g->order + l->first + n, g->room, right * sizeof(*g->room));
	return n;
}

/* The leaf becomes the left one of two; the right one is new. */
static int split_leaf(struct grower *g, struct leaf *l, struct pl_err *err)
{
	const struct split s = l->best;
	struct pl_boost *m = g->m;
	struct leaf *r = &g->leaf[g->n_leaves], *small, *large;
	double a = value_of(g, l, s.left), b = value_of(g, l, s.right), middle = (a + b) / 2;
	int direction = g->o.monotone ? g->o.monotone[s.feature] : 0;
	/* what divides the known from the unknown has no upper end */
	bool all_known = s.missing_right && s.bin + 1 == g->n_bins[s.feature];
	uint32_t child, n_left = partition(g, l);

	PL_CHECK(add_nodes(g, 2, &child, err));
	m->node[l->node] =
		(struct pl_boost_node){ .value = all_known ? FLT_MAX : g->edge[s.feature][s.bin],
					.feature = (uint16_t)s.feature,
					.missing_right = s.missing_right,
					.left = child };
	m->gain[s.feature] += s.gain;
	*r = *l;
	r->node = child + 1;
	r->first += n_left;
	r->n -= n_left;
	r->all = s.right;
	r->depth = ++l->depth;
	l->node = child;
	l->n = n_left;
	l->all = s.left;
	if (direction > 0) {
		l->high = fmin(l->high, middle);
		r->low = fmax(r->low, middle);
	} else if (direction < 0) {
		l->low = fmax(l->low, middle);
		r->high = fmin(r->high, middle);
	}
	/* the larger one keeps the slot of the parent's histogram */
	small = l->n < r->n ? l : r;
	large = small == l ? r : l;
	large->histogram = l->histogram;
	small->histogram = g->n_leaves++;
	for (int i = 0; i < 2; i++) {
		const struct leaf *x = i ? r : l;

		m->mean[x->node] = (float)(g->o.rate * value_of(g, x, x->all));
		m->node[x->node].value = m->mean[x->node];
	}
	small->best = large->best = (struct split){ .gain = 0 };
	if (g->n_leaves == g->o.leaves || !(may_split(g, small) || may_split(g, large)))
		return 0; /* nobody needs their histograms */
	look_at(g, small, PL_NONE);
	if (may_split(g, large))
		look_at(g, large, small->histogram);
	if (!may_split(g, small))
		small->best.gain = 0;
	return 0;
}

static struct leaf *best_leaf(const struct grower *g)
{
	struct leaf *best = NULL;

	for (uint32_t i = 0; i < g->n_leaves; i++)
		if (g->leaf[i].best.gain > 0 && (!best || g->leaf[i].best.gain > best->best.gain))
			best = &g->leaf[i];
	return best;
}

static double share(struct grower *g)
{
	return (double)(pl_rng_next(&g->rng) >> 11) * 0x1p-53;
}

/* The samples and the features of a tree. */
static uint32_t draw(struct grower *g)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < g->d->n; i++)
		if (g->o.samples >= 1 || share(g) < g->o.samples)
			g->order[n++] = i;
	g->n_use = 0;
	for (uint32_t f = 0; f < g->d->n_features; f++)
		if ((g->o.features >= 1 || share(g) < g->o.features) && !g->constant[f])
			g->use[g->n_use++] = f;
	if (!g->n_use)
		g->use[g->n_use++] = (uint32_t)(share(g) * g->d->n_features);
	return n;
}

static void find_gradients(struct grower *g)
{
	for (size_t i = 0; i < g->d->n; i++) {
		double x = g->now[i] - (double)g->d->y[i];

		if (g->o.loss == PL_BOOST_ABSOLUTE)
			x = fmin(fmax(x, -g->o.delta), g->o.delta);
		g->gradient[i] = g->d->weight ? x * (double)g->d->weight[i] : x;
	}
}

static double tree_value(const struct pl_boost_node *node, const struct pl_boost_node *n,
			 const float *const *x, size_t i)
{
	while (n->left) {
		float v = x[n->feature][i];

		n = node + n->left + (isnan(v) ? n->missing_right : v > n->value);
	}
	return (double)n->value;
}

static int grow_tree(struct grower *g, struct pl_err *err)
{
	struct pl_boost *m = g->m;
	struct leaf *l = g->leaf;
	uint32_t root;

	find_gradients(g);
	PL_CHECK(add_nodes(g, 1, &root, err));
	m->root[m->n_trees++] = root;
	*l = (struct leaf){ .node = root, .n = draw(g), .low = -INFINITY, .high = INFINITY };
	for (uint32_t i = 0; i < l->n; i++) {
		l->all.gradient += g->gradient[g->order[i]];
		l->all.weight += g->d->weight ? (double)g->d->weight[g->order[i]] : 1;
	}
	m->mean[root] = m->node[root].value = (float)(g->o.rate * value_of(g, l, l->all));
	g->n_leaves = 1;
	look_at(g, l, PL_NONE);
	while (g->n_leaves < g->o.leaves && (l = best_leaf(g)))
		PL_CHECK(split_leaf(g, l, err));
	for (size_t i = 0; i < g->d->n; i++)
		g->now[i] += tree_value(m->node, m->node + root, g->d->x, i);
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int check(const struct pl_boost_data *d, const struct pl_boost_opts *o, struct pl_err *err)
{
	double weight = 0;

	if (d->n_features < 1 || d->n_features > PL_BOOST_FEATURES)
		return pl_fail(err, PL_EUSAGE, "boosting takes 1 to %d features, not %u",
			       PL_BOOST_FEATURES, d->n_features);
	if (o->leaves < 2 || o->leaves > LEAVES_MAX || !(o->rate > 0) || !(o->lambda >= 0) ||
	    !(o->least >= 0) || !(o->samples > 0) || !(o->features > 0) || !(o->delta > 0))
		return pl_fail(err, PL_EUSAGE, "an option of boosting is out of range");
	if (!d->n || d->n > UINT32_MAX / 2)
		return pl_fail(err, PL_EDATA, "boosting needs samples, fewer than 2^31");
	for (size_t i = 0; i < d->n; i++) {
		if (!isfinite(d->y[i]) || (o->start && !isfinite(o->start[i])) ||
		    (d->weight && !(d->weight[i] >= 0 && isfinite(d->weight[i]))))
			return pl_fail(err, PL_EDATA, "sample %zu of boosting is not finite", i);
		weight += d->weight ? (double)d->weight[i] : 1;
	}
	return weight > 0 ? 0 : pl_fail(err, PL_EDATA, "all samples of boosting have weight 0");
}

/* The sum of limited distances from x, which falls with x. */
static double pull(const struct pl_boost_data *d, double delta, double x)
{
	double sum = 0;

	for (size_t i = 0; i < d->n; i++)
		sum += (d->weight ? (double)d->weight[i] : 1) *
		       fmin(fmax((double)d->y[i] - x, -delta), delta);
	return sum;
}

/* The first prediction: the weighted mean, or near the median, where nothing pulls. */
static double first_guess(const struct pl_boost_data *d, const struct pl_boost_opts *o)
{
	double sum = 0, weight = 0, low = INFINITY, high = -INFINITY;

	for (size_t i = 0; i < d->n; i++) {
		double w = d->weight ? (double)d->weight[i] : 1;

		sum += w * (double)d->y[i];
		weight += w;
		low = fmin(low, (double)d->y[i]);
		high = fmax(high, (double)d->y[i]);
	}
	if (o->loss != PL_BOOST_ABSOLUTE)
		return sum / weight;
	for (int turn = 0; turn < 50; turn++) {
		double middle = low / 2 + high / 2;

		if (pull(d, o->delta, middle) > 0)
			low = middle;
		else
			high = middle;
	}
	return low / 2 + high / 2;
}

static void grower_fini(struct grower *g)
{
	for (uint32_t f = 0; f < g->d->n_features; f++) {
		pl_free(g->bin ? g->bin[f] : NULL);
		pl_free(g->edge ? g->edge[f] : NULL);
	}
	pl_free(g->bin);
	pl_free(g->edge);
	pl_free(g->n_bins);
	pl_free(g->constant);
	pl_free(g->gradient);
	pl_free(g->now);
	pl_free(g->order);
	pl_free(g->room);
	pl_free(g->histogram);
	pl_free(g->leaf);
	pl_free(g->use);
	pl_free(g->task);
	pl_queue_free(g->queue);
}

static int grower_init(struct grower *g, struct pl_err *err)
{
	const struct pl_boost_data *d = g->d;
	size_t slots = (size_t)g->o.leaves * d->n_features;

	PL_CHECK(pl_alloc(&g->bin, d->n_features, sizeof(*g->bin), err));
	PL_CHECK(pl_alloc(&g->edge, d->n_features, sizeof(*g->edge), err));
	PL_CHECK(pl_alloc(&g->n_bins, d->n_features, sizeof(*g->n_bins), err));
	PL_CHECK(pl_alloc(&g->constant, d->n_features, sizeof(*g->constant), err));
	PL_CHECK(pl_alloc(&g->gradient, d->n, sizeof(*g->gradient), err));
	PL_CHECK(pl_alloc(&g->now, d->n, sizeof(*g->now), err));
	PL_CHECK(pl_alloc(&g->order, d->n, sizeof(*g->order), err));
	PL_CHECK(pl_alloc(&g->room, d->n, sizeof(*g->room), err));
	PL_CHECK(pl_alloc(&g->histogram, slots * SLOTS, sizeof(*g->histogram), err));
	PL_CHECK(pl_alloc(&g->leaf, g->o.leaves, sizeof(*g->leaf), err));
	PL_CHECK(pl_alloc(&g->use, d->n_features, sizeof(*g->use), err));
	PL_CHECK(pl_alloc(&g->task, d->n_features, sizeof(*g->task), err));
	PL_CHECK(pl_alloc(&g->m->root, g->o.rounds, sizeof(*g->m->root), err));
	PL_CHECK(pl_alloc(&g->m->gain, d->n_features, sizeof(*g->m->gain), err));
	g->queue = pl_queue_new(g->o.pool, (int)d->n_features + 1, err);
	return g->queue ? 0 : err->code;
}

static void set_defaults(struct pl_boost_opts *o)
{
	o->rounds = o->rounds ? o->rounds : 200;
	o->leaves = o->leaves ? o->leaves : 16;
	o->rate = o->rate != 0 ? o->rate : 0.1;
	o->lambda = o->lambda != 0 ? o->lambda : 1;
	o->least = o->least != 0 ? o->least : 20;
	o->samples = o->samples != 0 ? o->samples : 1;
	o->features = o->features != 0 ? o->features : 1;
	o->delta = o->delta != 0 ? o->delta : 0.1;
}

int pl_boost_fit(const struct pl_boost_data *d, const struct pl_boost_opts *o, struct pl_boost *m,
		 struct pl_err *err)
{
	struct grower g = { .d = d, .o = *o, .m = m, .rng = o->seed };
	int rc;

	*m = (struct pl_boost){ .n_features = d->n_features };
	set_defaults(&g.o);
	PL_CHECK(check(d, &g.o, err));
	PL_TRY(grower_init(&g, err));
	PL_TRY(make_bins(&g, err));
	m->base = o->start ? 0 : first_guess(d, &g.o);
	for (size_t i = 0; i < d->n; i++)
		g.now[i] = o->start ? (double)o->start[i] : m->base;
	for (uint32_t i = 0; i < g.o.rounds; i++)
		PL_TRY(grow_tree(&g, err));
	pl_boost_round(m);
	rc = pl_boost_flatten(m, 1, &m->flat, err);
out:
	grower_fini(&g);
	if (rc < 0)
		pl_boost_fini(m);
	return rc;
}

void pl_boost_fini(struct pl_boost *m)
{
	pl_free(m->root);
	pl_free(m->node);
	pl_free(m->mean);
	pl_free(m->gain);
	pl_boost_flat_free(m->flat);
	*m = (struct pl_boost){ 0 };
}

/* Twice gives the same: the step is a power of two, and the greatest prediction stays above half of
 * what it can hold. */
void pl_boost_round(struct pl_boost *m)
{
	double most = 0, limit = (1 << (PL_BOOST_DIGITS - 1)) - 1;
	int exponent;

	for (size_t i = 0; i < m->n_nodes; i++)
		if (!m->node[i].left)
			most = fmax(most, fabs((double)m->node[i].value));
	frexp(fmax(most, FLT_MIN) / limit, &exponent);
	m->step = ldexp(1, exponent);
	limit = floor((double)FLT_MAX / m->step);
	for (size_t i = 0; i < m->n_nodes; i++) {
		double v = nearbyint((double)m->node[i].value / m->step);

		if (!m->node[i].left)
			m->node[i].value = m->mean[i] =
				(float)(fmax(-limit, fmin(limit, v)) * m->step);
	}
}

/* ---- application ------------------------------------------------------------------------------
 */

static const struct pl_boost_node *next(const struct pl_boost *m, const struct pl_boost_node *n,
					const float *x)
{
	float v = x[n->feature];

	return m->node + n->left + (isnan(v) ? n->missing_right : v > n->value);
}

double pl_boost_apply(const struct pl_boost *m, const float *x)
{
	double sum = 0;

	for (uint32_t t = 0; t < m->n_trees; t++) {
		const struct pl_boost_node *n = &m->node[m->root[t]];

		while (n->left)
			n = next(m, n, x);
		sum += (double)n->value;
	}
	return m->base + sum;
}

double pl_boost_explain(const struct pl_boost *m, const float *x, double *part)
{
	double none = m->base;

	for (uint32_t t = 0; t < m->n_trees; t++) {
		const struct pl_boost_node *n = &m->node[m->root[t]];

		none += (double)m->mean[n - m->node];
		while (n->left) {
			const struct pl_boost_node *to = next(m, n, x);

			part[n->feature] +=
				(double)m->mean[to - m->node] - (double)m->mean[n - m->node];
			n = to;
		}
	}
	return none;
}

/* ---- as bytes ---------------------------------------------------------------------------------
 */

void pl_boost_put(const struct pl_boost *m, struct pl_buf *b)
{
	pl_io_put_varint(b, m->n_features);
	pl_io_put_varint(b, m->n_trees);
	pl_io_put_varint(b, m->n_nodes);
	pl_io_put_f64(b, m->base);
	for (uint32_t t = 0; t < m->n_trees; t++)
		pl_io_put_varint(b, m->root[t]);
	for (size_t i = 0; i < m->n_nodes; i++) {
		const struct pl_boost_node *n = &m->node[i];

		pl_io_put_varint(b, n->left ? n->left - i : 0);
		pl_io_put_varint(b, (uint64_t)n->feature << 1 | n->missing_right);
		pl_io_put_f32(b, n->value);
		pl_io_put_f32(b, m->mean[i]);
	}
	for (uint32_t f = 0; f < m->n_features; f++)
		pl_io_put_f64(b, m->gain[f]);
}

static int get_arrays(struct pl_cur *c, struct pl_boost *m, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&m->root, m->n_trees, sizeof(*m->root), err));
	PL_CHECK(pl_alloc(&m->node, m->n_nodes, sizeof(*m->node), err));
	PL_CHECK(pl_alloc(&m->mean, m->n_nodes, sizeof(*m->mean), err));
	PL_CHECK(pl_alloc(&m->gain, m->n_features, sizeof(*m->gain), err));
	for (uint32_t t = 0; t < m->n_trees; t++)
		if ((m->root[t] = (uint32_t)pl_io_get_varint(c)) >= m->n_nodes)
			return pl_fail(err, PL_EDATA, "a tree begins behind the last node");
	for (size_t i = 0; i < m->n_nodes; i++) {
		struct pl_boost_node *n = &m->node[i];
		uint64_t left = pl_io_get_varint(c), feature = pl_io_get_varint(c);

		n->left = left ? (uint32_t)(i + left) : 0;
		n->feature = (uint16_t)(feature >> 1);
		n->missing_right = feature & 1;
		n->value = pl_io_get_f32(c);
		m->mean[i] = pl_io_get_f32(c);
		/* children lie behind their parent, so every walk ends */
		if ((left && (left >= m->n_nodes || i + left + 1 >= m->n_nodes)) ||
		    feature >> 1 >= m->n_features || !isfinite(n->value) || !isfinite(m->mean[i]))
			return pl_fail(err, PL_EDATA, "node %zu of the trees is out of range", i);
	}
	for (uint32_t f = 0; f < m->n_features; f++) {
		m->gain[f] = pl_io_get_f64(c);
		c->bad |= !(m->gain[f] >= 0 && m->gain[f] < 1e300);
	}
	return 0;
}

int pl_boost_get(struct pl_cur *c, struct pl_boost *m, struct pl_err *err)
{
	uint64_t features = pl_io_get_varint(c), trees = pl_io_get_varint(c),
		 nodes = pl_io_get_varint(c), left = (uint64_t)(c->end - c->p);
	int rc;

	*m = (struct pl_boost){ .base = pl_io_get_f64(c) };
	/* a tree takes a byte, a node ten */
	if (c->bad || !features || features > PL_BOOST_FEATURES || trees > left ||
	    nodes > left / 10 || !isfinite(m->base))
		return pl_fail(err, PL_EDATA, "the trees are cut short or out of range");
	m->n_features = (uint32_t)features;
	m->n_trees = (uint32_t)trees;
	m->n_nodes = (size_t)nodes;
	rc = get_arrays(c, m, err);
	if (rc == 0 && c->bad)
		rc = pl_fail(err, PL_EDATA, "the trees are cut short");
	if (rc == 0) {
		pl_boost_round(m);
		rc = pl_boost_flatten(m, 1, &m->flat, err);
	}
	if (rc < 0)
		pl_boost_fini(m);
	return rc;
}
