/*
 * The most likely division of streams into groups.
 *
 * A few divisions are proposed, and the likelihood (likelihood.c) decides between them:
 *
 *     alone      each stream, because its partners are not in the input
 *     linked     the ranks that send to each other, which are often a group too
 *     regular    `size` streams `stride` apart, or on two levels: how jobs are usually laid out
 *     nearest    streams whose ends scatter least against each other (sequences.c)
 *
 * Each is as likely as another before anything is known, but the linked one, and so is each
 * division that a proposal could have made: it costs the logarithm of their number. A regular one
 * is one of a few shapes, on two levels two of them; the nearest could have been any partition of a
 * set, of which there are about exp(n log n / 2).
 *
 * Cost: that of a likelihood for each proposal, of which there are about as many as ways to write
 * the number of streams as a product; streams x groups comparisons for the nearest, where the group
 * that was joined last and the next one are tried first, so that two are enough for usual layouts.
 */
#include <math.h>
#include <stdlib.h>

#include "clock/likelihood.h"

#define SAMPLE	   32	 /* a limit of time: streams of which the nearest is looked for */
#define MAX_RATIO  10	 /* times the closest pairs: surely not one group */
#define JITTERY_NS 20000 /* ends that a processor had to be found for; a device's are closer */
#define EVIDENCE   3.0	 /* nats: 20 to 1 */
/* A limit of time: streams. There are as many shapes of two levels as pairs of divisors. */
#define TWO_LEVEL_MAX 64
/* The ends of one rank may jitter more than those of the others, as on a busy processor, by a small
 * factor. Streams of another group are milliseconds apart where these are microseconds. */
#define WIDER 3

struct divider {
	const struct pl_align *a;
	struct pl_stream *v;
	uint32_t n;
	struct pl_arena mem;
	struct pl_likelihood l;
	int64_t typical;       /* distance of the closest streams; INT64_MAX: not to be seen */
	uint32_t *class;       /* streams of one class may share a group */
	uint32_t *group;       /* of the division that is proposed next */
	struct pl_division *d; /* proposals */
	size_t n_divisions, cap, best;
};

/* ---- nearest --------------------------------------------------------------------------------- */

/*
 * How far the streams i and k are apart as one communication while nothing is known of their
 * clocks: the scatter of the difference of their ends, where one begins in the other. INT64_MAX:
 * they are of one rank, or do not do the same.
 */
static int64_t distance(const struct divider *x, uint32_t i, uint32_t k, int64_t *shift)
{
	const struct pl_seq *p = &x->v[i].s, *q = &x->v[k].s;
	double early;
	int64_t spread;

	if (p->rank == q->rank)
		return INT64_MAX;
	*shift = pl_clock_seq_shift(x->a, p, q);
	if (!pl_clock_seq_alike(x->a, p, q, *shift))
		return INT64_MAX;
	spread = pl_clock_seq_spread(x->a, p, q, *shift, &early);
	return early > PL_SEQ_IMPOSSIBLE ? INT64_MAX : spread;
}

/* How far the nearest neighbour typically is. */
static int find_typical(struct divider *x, struct pl_err *err)
{
	uint32_t step = x->n / SAMPLE + 1;
	int64_t *near, shift;
	size_t n = 0;
	int rc = pl_arena_array(&x->mem, &near, x->n, sizeof(*near), err);

	for (uint32_t i = 0; i < x->n && rc >= 0; i += step) {
		int64_t best = INT64_MAX;

		for (uint32_t k = 0; k < x->n; k++)
			if (k != i)
				best = pl_min_i64(best, distance(x, i, k, &shift));
		if (best < INT64_MAX)
			near[n++] = best;
	}
	x->typical = n ? pl_median_i64(near, n) : INT64_MAX;
	return rc;
}

struct cluster {
	uint32_t first, last, n; /* streams: first and last that joined */
};

static bool has_rank(const struct divider *x, const struct cluster *c, const uint32_t *next,
		     int32_t rank)
{
	for (uint32_t k = c->first; k != PL_NONE; k = next[k])
		if (x->v[k].s.rank == rank)
			return true;
	return false;
}

/* The cluster for stream i: one that fits very well, else the one that fits best. */
static uint32_t choose_cluster(const struct divider *x, uint32_t i, const struct cluster *c,
			       uint32_t n, uint32_t last, uint32_t most, const uint32_t *next)
{
	int64_t best = INT64_MAX, shift;
	uint32_t found = PL_NONE;

	for (uint32_t k = 0; k < n && best > x->typical; k++) {
		uint32_t g = (last + k) % n;
		int64_t d;

		if (c[g].n == most || has_rank(x, &c[g], next, x->v[i].s.rank))
			continue;
		d = distance(x, c[g].first, i, &shift);
		if (d < best) {
			best = d;
			found = g;
			x->v[i].shift = shift;
		}
	}
	if (found != PL_NONE &&
	    best <= WIDER * pl_min_i64(x->typical, INT64_MAX / 16) + PL_CLOCK_RESOLUTION_NS)
		return found;
	x->v[i].shift = 0;
	return PL_NONE;
}

/* Each stream joins the nearest cluster that it fits, or starts a new one: fills x->group. */
static int find_nearest(struct divider *x, uint32_t most, uint32_t *clusters, struct pl_err *err)
{
	struct cluster *c = NULL;
	uint32_t *next = NULL, last = 0, n = 0;

	PL_CHECK(find_typical(x, err));
	PL_CHECK(pl_arena_array(&x->mem, &c, x->n, sizeof(*c), err));
	PL_CHECK(pl_arena_array(&x->mem, &next, x->n, sizeof(*next), err));
	for (uint32_t i = 0; i < x->n; i++) {
		uint32_t g = x->typical < INT64_MAX ? choose_cluster(x, i, c, n, last, most, next)
						    : PL_NONE;

		next[i] = PL_NONE;
		if (g == PL_NONE)
			c[g = n++] = (struct cluster){ i, i, 0 };
		else
			next[c[g].last] = i;
		c[g].last = i;
		c[g].n++;
		x->group[i] = last = g;
	}
	*clusters = n;
	return 0;
}

/* ---- proposals ------------------------------------------------------------------------------- */

/* Streams that could share a group, by number. */
static void classify(struct divider *x)
{
	for (uint32_t i = 0; i < x->n; i++) {
		uint32_t k = 0;

		while (k < i &&
		       (x->class[k] != k || !pl_clock_seq_alike(x->a, &x->v[k].s, &x->v[i].s, 0)))
			k++;
		x->class[i] = k;
	}
}

static bool is_allowed(const struct divider *x, uint32_t n_groups, uint32_t *class_of)
{
	memset(class_of, 0xff, n_groups * sizeof(*class_of));
	for (uint32_t i = 0; i < x->n; i++) {
		uint32_t *class = &class_of[x->group[i]];

		if (*class != PL_NONE && *class != x->class[i])
			return false;
		*class = x->class[i];
	}
	return true;
}

/* The division in x->group. */
static int propose(struct divider *x, uint32_t n_groups, double prior, struct pl_err *err)
{
	struct pl_division d = { .n_groups = n_groups };

	PL_CHECK(pl_arena_array(&x->mem, &d.group, x->n, sizeof(*d.group), err));
	if (!is_allowed(x, n_groups, d.group))
		return 0;
	memcpy(d.group, x->group, x->n * sizeof(*d.group));
	PL_CHECK(pl_grow(&x->d, &x->cap, x->n_divisions + 1, sizeof(*x->d), err));
	pl_clock_likelihood_of(&x->l, &d);
	d.cost += prior;
	x->d[x->n_divisions] = d;
	if (!x->n_divisions || d.cost < x->d[x->best].cost)
		x->best = x->n_divisions;
	x->n_divisions++;
	return 0;
}

/* `size` streams, `stride` apart, and `size2` of those, `stride2` apart. */
struct shape {
	uint32_t size, stride, size2, stride2;
};

static uint32_t divide(const struct shape *s, struct divider *x)
{
	uint32_t inner = s->size * s->stride, next = 0;
	uint32_t block = s->size2 > 1 ? s->size2 * s->stride2 : inner;

	for (uint32_t i = 0; i < x->n; i++) {
		uint32_t in = i % block, lead = s->size2 > 1 ? in % s->stride2 : in;

		lead = i - in + lead / inner * inner + lead % s->stride;
		x->group[i] = lead == i ? next++ : x->group[lead];
	}
	return next;
}

/* Regular divisions: `size` streams `stride` apart, and several of those. */
static int propose_regular(struct divider *x, struct pl_err *err)
{
	double shapes = 0; /* of one level */

	for (uint32_t block = 2; block <= x->n; block++) /* size x stride */
		for (uint32_t size = 2; size <= block && x->n % block == 0; size++)
			shapes += block % size == 0;
	for (uint32_t block = 2; block <= x->n; block++)
		for (uint32_t size = 2; size <= block && x->n % block == 0; size++) {
			struct shape s = { size, block / size, 1, 1 };

			if (block % size)
				continue;
			PL_CHECK(propose(x, divide(&s, x), log(shapes), err));
			for (s.size2 = 2; s.size2 <= x->n / block && x->n <= TWO_LEVEL_MAX;
			     s.size2++)
				for (s.stride2 = 2 * block; s.size2 * s.stride2 <= x->n;
				     s.stride2 += block)
					if (x->n % (s.size2 * s.stride2) == 0)
						PL_CHECK(propose(x, divide(&s, x), 2 * log(shapes),
								 err));
		}
	return 0;
}

/* Are the streams of different ranks, ascending? */
static bool one_a_rank(const struct divider *x)
{
	for (uint32_t i = 1; i < x->n; i++)
		if (x->v[i].s.rank <= x->v[i - 1].s.rank)
			return false;
	return true;
}

static int propose_all(struct divider *x, const uint32_t *linked, bool pairs, struct pl_err *err)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < x->n; i++)
		x->group[i] = i;
	PL_CHECK(propose(x, x->n, 0, err)); /* the groups are those that are nearest */
	for (uint32_t i = 0; i < x->n && linked; i++)
		x->group[i] = linked[i] == i ? n++ : x->group[linked[i]];
	if (n && n < x->n)
		/* nearly every pipeline sums the norm of its gradients over the stages */
		PL_CHECK(propose(x, n, -2 * EVIDENCE, err));
	if (!pairs && one_a_rank(x))
		PL_CHECK(propose_regular(x, err));
	return 0;
}

/* ---- doubts ---------------------------------------------------------------------------------- */

/* Is there another division about as likely that would give other transfers? */
static int is_doubtful(struct divider *x, bool *doubtful, struct pl_err *err)
{
	const struct pl_division *best = &x->d[x->best];
	double *took;
	bool known = false;

	PL_CHECK(pl_arena_array(&x->mem, &took, 2u * (size_t)x->n * x->l.k, sizeof(*took), err));
	*doubtful = false;
	for (size_t i = 0; i < x->n_divisions && !*doubtful; i++) {
		const struct pl_division *d = &x->d[i];

		if (i == x->best)
			continue;
		*doubtful = !best->determined && d->n_groups < x->n;
		if (*doubtful || d->cost >= best->cost + EVIDENCE)
			continue;
		*doubtful = pl_clock_likelihood_differs(&x->l, best, d, took, known);
		known = true;
	}
	return 0;
}

/* Could the streams x and y be of one group after all? None ends before the other begins, and the
 * ends are hardly farther apart than those within groups. */
static bool could_be_one(const struct divider *x, const struct pl_stream *p,
			 const struct pl_stream *q)
{
	double early;
	int64_t d;

	if (x->typical == INT64_MAX || x->typical < JITTERY_NS || p->number != q->number ||
	    p->s.rank == q->s.rank || p->s.n != q->s.n ||
	    !pl_clock_seq_agree(x->a, &p->s, &q->s, 0, 1))
		return false;
	d = pl_clock_seq_spread(x->a, &p->s, &q->s, 0, &early);
	return early <= 0 && d / MAX_RATIO <= x->typical;
}

/* Groups that jitter may have parted. */
static uint32_t count_parted(const struct divider *x, const uint32_t *size)
{
	const struct pl_stream *last = NULL;
	uint32_t doubts = 0, next = 0;
	bool counted = false;

	for (uint32_t i = 0; i < x->n; i++) {
		const struct pl_stream *s = &x->v[i];

		if (s->group != next) /* not the first of its group */
			continue;
		next++;
		if (size[s->group] < 2)
			continue;
		if (last && could_be_one(x, last, s)) {
			doubts += counted ? 1 : 2;
			counted = true;
		} else {
			counted = false;
		}
		last = s;
	}
	return doubts;
}

static int count_doubts(struct divider *x, uint32_t *doubts, struct pl_err *err)
{
	uint32_t *size = x->group, groups = 0;
	bool doubtful;

	PL_CHECK(is_doubtful(x, &doubtful, err));
	memset(size, 0, x->n * sizeof(*size));
	for (uint32_t i = 0; i < x->n; i++)
		groups += ++size[x->v[i].group] == 2;
	*doubts = doubtful ? groups : x->a->n_listed ? 0 : count_parted(x, size);
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

int pl_clock_divide(const struct pl_align *a, struct pl_stream *v, uint32_t n,
		    const uint32_t *linked, bool pairs, uint32_t *n_groups, uint32_t *doubts,
		    struct pl_err *err)
{
	struct divider x = { .a = a, .v = v, .n = n };
	const struct pl_stream **p = NULL;
	uint32_t clusters;
	int rc;

	PL_TRY(pl_arena_array(&x.mem, &x.class, n, sizeof(*x.class), err));
	PL_TRY(pl_arena_array(&x.mem, &x.group, n, sizeof(*x.group), err));
	PL_TRY(pl_arena_array(&x.mem, &p, n, sizeof(*p), err));
	PL_TRY(find_nearest(&x, pairs ? 2 : n, &clusters, err));
	for (uint32_t i = 0; i < n; i++)
		p[i] = &v[i];
	PL_TRY(pl_clock_likelihood_init(&x.l, a, p, n, err));
	if (pairs)
		memset(x.class, 0, n * sizeof(*x.class));
	else
		classify(&x);
	if (clusters < n)
		PL_TRY(propose(&x, clusters, 0.5 * n * log(n), err));
	PL_TRY(propose_all(&x, linked, pairs, err));
	*n_groups = x.d[x.best].n_groups;
	for (uint32_t i = 0; i < n; i++)
		v[i].group = x.d[x.best].group[i];
	rc = count_doubts(&x, doubts, err);
out:
	pl_free(x.d);
	pl_arena_fini(&x.l.mem);
	pl_arena_fini(&x.mem);
	return rc;
}
