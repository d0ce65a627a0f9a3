/*
 * The fit of communication: samples of size and time from a graph, and a line for each kind.
 *
 * The measured time is the busy time of the link of a rank. If transfers of one rank overlap, they
 * share the link, and the duration of a single transfer says little. Therefore the transfers of a
 * rank are divided into busy periods. A period of k communications of one kind and S bytes is a
 * sample of busy = k a + b S, that is, the point (S / k, busy / k). Without overlap a period is one
 * communication. The members of a collective have periods of the same communications; the median of
 * these periods is one sample.
 *
 * If threads carry communication, or communication slowed computation down (pl_cost.overlap),
 * periods that computation mostly covered are fitted separately from the others. The line comes
 * from the periods without computation. During computation a byte takes longer by a factor, because
 * the thread that moves it gets a processor less often; and each communication first waits for a
 * processor. Very small messages show this wait, because it is most of their time. Without such
 * messages the wait for each message is that of the other kinds of communication of the graph. It
 * is assumed (WAIT_NS) only if no kind shows it. A recording of few steps may have too few periods
 * without computation. If computation then covered small periods more than large ones, as in
 * data-parallel training, whose last bucket is the largest, the difference is no latency: the line
 * is that of the large ones, with the intercept of the topology.
 *
 * The time a is spent k times if communications are carried out one after another. If they are
 * carried out at the same time and a is the link's latency, a is spent once. So if busy = a + b S
 * for the whole period fits the samples clearly better, a becomes each communication's flight.
 *
 * Periods are left out if a communication in them has another kind, an unknown size or members that
 * were not recorded (PL_NF_MISSING). O(n log n) in transfers, plus the cost of line.c.
 */
#include <math.h>

#include "cost/internal.h"

#define SAME_SIZE  0.01 /* sizes that differ by less say nothing about the slope */
#define ALONE	   0.25 /* computation covers at most this share of the period */
#define OVERLAPPED 0.75 /* computation covers at least this share of the period */
#define ENOUGH	   3	/* periods without overlap that are needed for a line */
#define FEW	   10	/* fewer periods are those of a few steps */
#define SMALL	   4	/* small messages that are needed to find the wait of each */
#define MUCH	   4	/* the greatest factor by which computation slows communication down */
/* How long a thread that a message wakes waits for a busy processor, if the recording does not show
 * it. The scheduler, the timer and the number of processors of the recorded machine are not known
 * here, so this is only the order of magnitude: slices of Linux are 1 to 4 ms, and its scheduler
 * often lets the woken thread run at once. */
#define WAIT_NS 500000
#define WRONG	0.25 /* relative error of k a + b S from which a + b S is tried instead */
#define CLEARLY 0.5  /* the share of the error that may remain then */

struct transfer {
	pl_ns start, end;
	int64_t bytes; /* -1 unknown */
	uint32_t rank, meet, n;
	uint8_t kind, coll, algo;
	bool usable;
};
struct record { /* a busy period of one rank */
	double x, y;
	double overlapped; /* share of it in which the rank computed */
	uint64_t class_of; /* algorithm, kind, collective, ranks, last whether sizes are unknown */
	uint64_t place;	   /* step and rendezvous */
	uint32_t n, meet, count;
	uint8_t kind, coll, algo;
	bool unknown; /* sizes */
};
struct gap { /* from one end to the next, in a busy period */
	uint64_t class_of;
	double bytes, ns; /* of the next */
};
struct fitter {
	const struct pl_graph *g;
	struct pl_cost *c;
	bool threads;	/* carry the communication */
	bool contend;	/* communication and what computes beside it */
	double latency; /* of recorded messages, 0: there are none */
	double wait_ns; /* of a message beside computation, where small messages do not show it */
	double waited, messages; /* sums: the waits that small messages show, and of how many */
	struct transfer *t;
	struct record *r;
	struct pl_spans comp; /* computation of the step, if they contend */
	struct gap *gap;
	size_t n_t, cap_t, n_r, cap_r, n_gaps, cap_gaps;
};

/* Does this node count? A message counts once: by its receive if there is one, else by its send.
 * What was sent counts, not what was left of the collective. */
static bool counts(const struct pl_shape *s, uint32_t i, uint8_t message)
{
	return s->flags[i] & PL_NF_MESSAGE ? s->kind[i] == message : !pl_node_is_rest(s, i);
}

static uint8_t message_kind(const struct pl_shape *s)
{
	for (uint32_t i = 0; i < s->n_nodes; i++)
		if (s->flags[i] & PL_NF_MESSAGE && s->kind[i] == PL_K_RECV)
			return PL_K_RECV;
	return PL_K_SEND;
}

/* The message keeps the sender's link busy from its beginning to its arrival. */
static void from_sender(const struct fitter *f, const struct pl_gstep *st, uint32_t i,
			struct transfer *t)
{
	const struct pl_shape *s = &f->g->shape[st->shape];

	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
		uint32_t from = s->src[e];

		if (!(s->flags[from] & PL_NF_MESSAGE) || s->kind[from] != PL_K_SEND ||
		    s->res[from] == PL_NONE)
			continue;
		t->start = pl_min_i64(t->start, st->start[from]);
		t->rank = (uint32_t)pl_node_rank(f->g, s, from);
	}
}

/* The recorded algorithm; a ring if the recording does not say it. */
static uint8_t algorithm_of(const struct pl_graph *g, const struct pl_shape *s, uint32_t i)
{
	const struct pl_gcomm *c = s->comm && s->comm[i] != PL_NONE ? &s->comms[s->comm[i]] : NULL;

	return c ? pl_cost_algorithm(pl_intern_get(&g->str, c->algorithm)) : PL_ALGO_RING;
}

static int add_transfer(struct fitter *f, const struct pl_gstep *st, uint32_t i, struct pl_err *err)
{
	const struct pl_shape *s = &f->g->shape[st->shape];
	uint32_t meet = pl_node_meeting(s, i), group = s->group[i];
	bool message = s->flags[i] & PL_NF_MESSAGE;
	struct transfer t = { .start = st->start[i],
			      .end = st->start[i] + st->dur[i],
			      .bytes = s->bytes ? s->bytes[i] : -1,
			      .rank = (uint32_t)pl_node_rank(f->g, s, i),
			      .meet = meet,
			      .kind = s->kind[i],
			      .coll = (uint8_t)pl_node_coll(s, i),
			      .algo = algorithm_of(f->g, s, i),
			      .usable = (meet != PL_NONE || message) &&
					!(s->flags[i] & PL_NF_MISSING) };

	if (message && t.kind == PL_K_RECV)
		from_sender(f, st, i, &t);
	if (meet != PL_NONE) {
		t.n = group != PL_NONE ? f->g->group[group].n : s->off[meet + 1] - s->off[meet];
		if (s->bytes && s->bytes[meet] > t.bytes)
			t.bytes = s->bytes[meet];
	}
	if (cost_same_kind(&t.kind, &t.coll)) {
		t.n = 2;
		t.algo = PL_ALGO_RING;
	}
	return pl_append(&f->t, &f->n_t, &f->cap_t, &t, sizeof(t), err);
}

PL_COMPARATOR(by_rank_time, struct transfer, rank, start, end);

PL_COMPARATOR(by_end, struct transfer, end);

static int add_gaps(struct fitter *f, struct transfer *t, size_t n, uint64_t class_of,
		    struct pl_err *err)
{
	PL_CHECK(pl_grow(&f->gap, &f->cap_gaps, f->n_gaps + n, sizeof(*f->gap), err));
	pl_sort(t, n, sizeof(*t), by_end);
	for (size_t i = 1; i < n; i++)
		f->gap[f->n_gaps++] =
			(struct gap){ class_of, (double)t[i].bytes,
				      (double)(t[i].end - pl_max_i64(t[i - 1].end, t[i].start)) };
	return 0;
}

/* Transfers [from, to) of f->t are one busy period. */
static int add_period(struct fitter *f, uint32_t step, size_t from, size_t to, struct pl_err *err)
{
	const struct transfer *t = &f->t[from];
	struct record r = { .n = t->n,
			    .meet = t->meet,
			    .count = (uint32_t)(to - from),
			    .kind = t->kind,
			    .coll = t->coll,
			    .algo = t->algo };
	pl_ns end = t->end;

	for (size_t i = from; i < to; i++) {
		const struct transfer *u = &f->t[i];

		if (!u->usable || u->kind != r.kind || u->coll != r.coll || u->algo != r.algo ||
		    u->n != r.n)
			return 0;
		r.unknown |= u->bytes < 0;
		r.x += (double)u->bytes;
		r.meet = u->meet < r.meet ? u->meet : r.meet;
		end = pl_max_i64(end, u->end);
	}
	r.class_of = (uint64_t)r.algo << 48 | (uint64_t)r.kind << 40 | (uint64_t)r.coll << 32 | r.n;
	r.class_of = r.class_of << 1 | r.unknown;
	r.place = (uint64_t)step << 32 | r.meet;
	r.x = r.unknown ? 0 : r.x / r.count;
	r.y = (double)(end - t->start) / r.count;
	if (!(r.y > 0))
		return 0;
	r.overlapped = (double)pl_spans_cover(&f->comp, (int32_t)t->rank, t->start, end) /
		       (double)(end - t->start);
	PL_CHECK(pl_append(&f->r, &f->n_r, &f->cap_r, &r, sizeof(r), err));
	return r.count > 1 && !r.unknown && r.kind == PL_K_COLLECTIVE
		       ? add_gaps(f, f->t + from, to - from, r.class_of, err)
		       : 0;
}

static int add_step(struct fitter *f, uint32_t step, struct pl_err *err)
{
	const struct pl_gstep *st = &f->g->step[step];
	const struct pl_shape *s = &f->g->shape[st->shape];
	const uint8_t message = message_kind(s);
	int rc = 0;

	f->n_t = 0;
	pl_spans_clear(&f->comp);
	for (uint32_t i = 0; i < s->n_nodes && rc >= 0; i++) {
		if (s->type[i] != PL_N_OP)
			continue;
		if (s->role[i] == PL_RO_TRANSFER && counts(s, i, message))
			rc = add_transfer(f, st, i, err);
		else if (s->role[i] == PL_RO_COMPUTE && f->contend)
			rc = pl_spans_add(&f->comp, pl_node_rank(f->g, s, i), st->start[i],
					  st->start[i] + st->dur[i], err);
	}
	pl_spans_unite(&f->comp);
	pl_sort(f->t, f->n_t, sizeof(*f->t), by_rank_time);
	for (size_t i = 0, n; i < f->n_t && rc >= 0; i += n) {
		pl_ns end = f->t[i].end;

		for (n = 1;
		     i + n < f->n_t && f->t[i + n].rank == f->t[i].rank && f->t[i + n].start < end;
		     n++)
			end = pl_max_i64(end, f->t[i + n].end);
		rc = add_period(f, step, i, i + n, err);
	}
	return rc;
}

/* ---- from samples to lines ------------------------------------------------------------------- */

static bool same_class(const struct record *a, const struct record *b)
{
	return a->class_of >> 1 == b->class_of >> 1;
}

PL_COMPARATOR(by_place, struct record, class_of, place, count, x);

PL_COMPARATOR(by_y, struct record, y);

/* Which records are of one communication: id[i], numbered in order of arrival; *n of them. */
static int find_same(const struct fitter *f, uint32_t *id, size_t *n, struct pl_err *err)
{
	struct pl_intern keys = { 0 };
	int rc = 0;

	for (size_t i = 0; i < f->n_r && rc >= 0; i++) {
		const struct record *r = &f->r[i];
		uint64_t key[4] = { r->class_of, r->place, r->count };

		memcpy(&key[3], &r->x, sizeof(r->x));
		rc = pl_intern_add(&keys, (const char *)key, sizeof(key), &id[i], err);
	}
	*n = keys.n;
	pl_intern_fini(&keys);
	return rc;
}

/* Makes one sample of the periods of several ranks: their median, overlapped if one of them
 * computed. Counting sort brings them together, because there may be a thousand ranks. */
static int join_members(struct fitter *f, struct pl_err *err)
{
	struct record *of = NULL;
	uint32_t *id = NULL, *at = NULL;
	size_t n = 0;
	int rc;

	PL_TRY(pl_alloc(&id, f->n_r, sizeof(*id), err));
	PL_TRY(find_same(f, id, &n, err));
	PL_TRY(pl_alloc(&at, n + 1, sizeof(*at), err));
	PL_TRY(pl_alloc(&of, f->n_r, sizeof(*of), err));
	for (size_t i = 0; i < f->n_r; i++)
		at[id[i] + 1]++;
	for (size_t k = 0; k < n; k++)
		at[k + 1] += at[k];
	for (size_t i = 0; i < f->n_r; i++)
		of[at[id[i]]++] = f->r[i];
	for (size_t k = 0, first = 0; k < n; first = at[k++]) {
		struct record *v = of + first;
		size_t m = at[k] - first;
		double overlapped = 0;

		pl_sort(v, m, sizeof(*v), by_y);
		for (size_t i = 0; i < m; i++)
			overlapped = fmax(overlapped, v[i].overlapped);
		f->r[k] = v[(m - 1) / 2];
		f->r[k].overlapped = overlapped;
	}
	f->n_r = n;
	pl_sort(f->r, f->n_r, sizeof(*f->r), by_place);
out:
	pl_free(id);
	pl_free(at);
	pl_free(of);
	return rc;
}

static double analysed(const struct pl_cost *c, const struct pl_fit *fit, int64_t bytes)
{
	struct pl_cost_comm comm = { .kind = fit->kind,
				     .coll = fit->coll,
				     .algo = fit->algo,
				     .was = fit->algo,
				     .group = PL_NONE,
				     .n = fit->n,
				     .bytes = bytes };

	return (double)pl_cost_analytic(&c->topo, &comm);
}

/* One size, or none that is known: what a byte or a message costs is the topology's. */
static void fit_one_size(const struct pl_cost *c, struct pl_fit *fit, const struct point *p,
			 size_t n, struct line *l, double typical)
{
	const int64_t much = INT64_C(1) << 30;
	double a = fmin(analysed(c, fit, 0), typical);
	double per_byte = (analysed(c, fit, much) - analysed(c, fit, 0)) / (double)much;
	double x = fit->estimated ? 0 : (p[0].x + p[n - 1].x) / 2;

	l->a = a;
	l->b = x > 0 ? (typical - a) / x : per_byte;
	if (!(x > 0) && (!fit->estimated || !(per_byte > 0)))
		l->a = typical;
	if (!fit->estimated || !(per_byte > 0))
		return;
	fit->min_bytes = INT64_MAX; /* such sizes as explain the times */
	for (size_t i = 0; i < n; i++) {
		int64_t s = (int64_t)fmin(fmax(0, (p[i].y - a) / per_byte), 0x1p62);

		fit->min_bytes = pl_min_i64(fit->min_bytes, s);
		fit->max_bytes = pl_max_i64(fit->max_bytes, s);
	}
}

static int median_time(const struct point *p, size_t n, double *out, struct pl_err *err)
{
	double *v;

	PL_CHECK(pl_alloc(&v, n, sizeof(*v), err));
	for (size_t i = 0; i < n; i++)
		v[i] = p[i].y;
	*out = pl_median_double(v, n);
	pl_free(v);
	return 0;
}

/* Does the analysis explain them better than the line? */
static int fit_shape(const struct pl_cost *c, const struct point *p, size_t n, const struct line *l,
		     struct pl_fit *fit, struct pl_err *err)
{
	double *z;
	int rc;

	PL_CHECK(pl_alloc(&z, n, sizeof(*z), err));
	for (size_t i = 0; i < n; i++)
		z[i] = analysed(c, fit, (int64_t)llround(p[i].x));
	rc = pl_cost_line_shape(p, z, n, l, &fit->shape, err);
	pl_free(z);
	return rc;
}

static void ring_of(const struct pl_fit *fit, double *messages, double *share)
{
	struct pl_cost_comm comm = {
		.kind = fit->kind, .coll = fit->coll, .was = fit->algo, .n = fit->n
	};

	pl_cost_ring(&comm, messages, share);
}

/* By how much the latency of a line of n samples may be wrong. If the samples do not show it, no
 * message takes longer than PL_COST_MESSAGE_NS, and nothing less than its latency. */
static int find_doubt(const struct point *p, size_t n, const struct line *l, double messages,
		      double *off, struct pl_err *err)
{
	double least = INFINITY;

	PL_CHECK(pl_cost_line_interval(p, n, l, off, err));
	for (size_t i = 0; i < n; i++)
		least = fmin(least, p[i].y);
	if (!isfinite(*off))
		*off = fmin(messages * PL_COST_MESSAGE_NS, fmax(l->a, least - l->a));
	return 0;
}

/* The line of n samples. `sloped`: they show no intercept. */
static int fit_line(const struct pl_cost *c, const struct record *r, size_t n, bool sloped,
		    struct pl_fit *fit, struct pl_err *err)
{
	struct line l = { 0, 0, 0 };
	struct point *p = NULL;
	double lo = INFINITY, hi = 0, messages, share;
	int rc;

	PL_TRY(pl_alloc(&p, n, sizeof(*p), err));
	for (size_t i = 0; i < n; i++) {
		p[i] = (struct point){ r[i].x, r[i].y };
		lo = fmin(lo, r[i].x);
		hi = fmax(hi, r[i].x);
	}
	fit->min_bytes = (int64_t)fmin(lo, 0x1p62); /* hostile sizes stay in range */
	fit->max_bytes = (int64_t)fmin(hi, 0x1p62);
	fit->one_size = !fit->estimated && hi - lo <= SAME_SIZE * hi;
	if (fit->estimated || fit->one_size) {
		PL_TRY(median_time(p, n, &l.a, err));
		PL_TRY(pl_cost_line_residual(p, n, &l, err));
		fit_one_size(c, fit, p, n, &l, l.a);
	} else if (sloped) {
		PL_TRY(pl_cost_line_through(p, n, analysed(c, fit, 0), &l, err));
		l.b = fmax(l.b, 0);
		PL_TRY(pl_cost_line_residual(p, n, &l, err));
	} else {
		PL_TRY(pl_cost_line_fit(p, n, &l, err));
		PL_TRY(pl_cost_line_settle(p, n, analysed(c, fit, 0), &l, err));
		PL_TRY(fit_shape(c, p, n, &l, fit, err));
	}
	fit->a_ns = l.a;
	fit->b_ns_per_byte = l.b;
	fit->residual = l.residual;
	ring_of(fit, &messages, &share);
	if (fit->one_size || sloped)
		fit->a_off_ns = messages * PL_COST_MESSAGE_NS;
	else
		PL_TRY(find_doubt(p, n, &l, messages, &fit->a_off_ns, err));
out:
	pl_free(p);
	return rc;
}

/* How far a + b S is off for the gaps of the class, as a share of their time. */
static double gap_error(const struct fitter *f, uint64_t class_of, double a, double b)
{
	double off = 0, sum = 0;

	for (size_t i = 0; i < f->n_gaps; i++) {
		if (f->gap[i].class_of != class_of)
			continue;
		off += fabs(a + b * f->gap[i].bytes - f->gap[i].ns);
		sum += f->gap[i].ns;
	}
	return sum > 0 ? off / sum : 0;
}

/* The latency of recorded messages, mean of their links; 0: there are none. */
static double link_latency(const struct pl_graph *g)
{
	double sum = 0;
	size_t n = 0;

	for (size_t i = 0; i < g->n_res; i++) {
		if (g->res[i].track_type != PL_T_LINK || g->res[i].launch_ns <= 0)
			continue;
		sum += (double)g->res[i].launch_ns;
		n++;
	}
	return n ? sum / (double)n : 0;
}

/* Where messages were recorded they say what a link is, better than a default. */
static void learn_links(double latency, struct pl_cost *c)
{
	double messages, share;
	const struct pl_fit *fit = NULL;

	for (size_t i = 0; i < c->n_fits; i++)
		if (c->fit[i].flight_ns > 0 && c->fit[i].b_ns_per_byte > 0 &&
		    (!fit || c->fit[i].max_bytes > fit->max_bytes))
			fit = &c->fit[i];
	if (!(latency > 0) || !fit)
		return;
	ring_of(fit, &messages, &share);
	for (size_t i = 0; i < c->topo.n_links; i++) {
		c->topo.link[i].latency_ns = (pl_ns)latency;
		c->topo.link[i].bytes_per_ns = share / fit->b_ns_per_byte;
	}
}

/* Is a spent once for all that overlap? */
static int fit_flight(const struct fitter *f, const struct record *r, size_t n, struct pl_fit *fit,
		      struct pl_err *err)
{
	double serial = gap_error(f, r->class_of, fit->a_ns, fit->b_ns_per_byte);
	double messages, share, known;
	struct line l = { 0, 0, 0 };
	struct point *p = NULL;
	int rc = 0;

	ring_of(fit, &messages, &share);
	known = messages * f->latency;
	if (!(known > 0) && serial < WRONG)
		return 0;
	PL_TRY(pl_alloc(&p, n, sizeof(*p), err));
	for (size_t i = 0; i < n; i++)
		p[i] = (struct point){ r[i].x * r[i].count, r[i].y * r[i].count };
	PL_TRY(pl_cost_line_fit(p, n, &l, err));
	if (!(l.a > 0) || !(l.b > 0) ||
	    (!(known > 0) && gap_error(f, r->class_of, 0, l.b) > CLEARLY * serial))
		goto out;
	fit->flight_ns = known > 0 ? fmin(known, l.a) : l.a;
	fit->a_ns = l.a - fit->flight_ns;
	fit->b_ns_per_byte = l.b;
	fit->residual = l.residual;
	fit->shape = 0;
	PL_TRY(find_doubt(p, n, &l, messages, &fit->a_off_ns, err));
out:
	pl_free(p);
	return rc;
}

/*
 * Fits what overlapping computation adds to the line. Small communications, whose bytes take less
 * than the assumed wait, show what it adds to each communication. The others show what it adds to a
 * byte. Sums are compared, because the waits are few and long. Without overlapped samples a byte is
 * taken to slow down like computation, because both get equal parts of the processors.
 */
static void fit_overlapped(struct fitter *f, const struct record *r, size_t n, struct pl_fit *fit)
{
	double messages, share, wait = 0, over = 0, bytes = 0, most;
	size_t small = 0;

	ring_of(fit, &messages, &share);
	fit->a_contended_ns = most = fit->a_ns + (f->threads ? messages * f->wait_ns : 0);
	for (size_t i = 0; i < n; i++) {
		double line = fit->b_ns_per_byte * r[i].x;

		if (r[i].overlapped < OVERLAPPED || line > most)
			continue;
		wait += r[i].y - line;
		small++;
	}
	fit->assumed = small < SMALL;
	if (!fit->assumed) {
		fit->a_contended_ns = fmax(fit->a_ns, wait / (double)small);
		f->waited += (fit->a_contended_ns - fit->a_ns) * (double)small;
		f->messages += messages * (double)small;
	}
	for (size_t i = 0; i < n; i++) {
		double line = fit->b_ns_per_byte * r[i].x;

		if (r[i].overlapped < OVERLAPPED || line <= most)
			continue;
		over += fmax(line, r[i].y - fit->a_contended_ns);
		bytes += line;
	}
	fit->b_contended = fmin(MUCH, bytes > 0 ? over / bytes : f->c->overlap);
}

/* Moves the records without overlap to the front. Returns how many; 0: none of them is large. */
static size_t part_alone(struct record *r, size_t n)
{
	double largest = 0, seen = 0;
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		struct record x = r[i];

		largest = fmax(largest, x.x);
		if (x.overlapped > ALONE)
			continue;
		seen = fmax(seen, x.x);
		r[i] = r[kept];
		r[kept++] = x;
	}
	return kept >= ENOUGH && 2 * seen >= largest ? kept : 0;
}

/* Moves the records of large communications to the front. Returns how many, if computation covers
 * them less than it covers the small ones; else 0. */
static size_t part_large(struct record *r, size_t n)
{
	double large = 0, small = 0, middle = 0;
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		middle += r[i].x / (double)n;
	for (size_t i = 0; i < n; i++) {
		struct record x = r[i];

		if (!(x.x > middle)) {
			small += x.overlapped;
			continue;
		}
		large += x.overlapped;
		r[i] = r[kept];
		r[kept++] = x;
	}
	return kept && n < FEW && small / (double)(n - kept) > large / (double)kept + ALONE ? kept
											    : 0;
}

static int add_fit(struct fitter *f, struct record *r, size_t n, struct pl_err *err)
{
	struct pl_cost *c = f->c;
	struct pl_fit fit = { .kind = r->kind,
			      .coll = r->coll,
			      .algo = r->algo,
			      .n = r->n,
			      .samples = n,
			      .estimated = r->unknown,
			      .b_contended = 1 };
	size_t alone = f->contend && !fit.estimated ? part_alone(r, n) : 0;
	bool sloped = f->threads && !fit.estimated && !alone && (alone = part_large(r, n));
	int rc;

	PL_TRY(fit_line(c, r, alone ? alone : n, sloped, &fit, err));
	if (fit.kind == PL_K_COLLECTIVE && !fit.estimated && !fit.one_size && !sloped)
		PL_TRY(fit_flight(f, r, alone ? alone : n, &fit, err));
	fit.a_contended_ns = fit.a_ns;
	if (alone && !(fit.flight_ns > 0))
		fit_overlapped(f, r, n, &fit);
	rc = pl_append(&c->fit, &c->n_fits, &c->cap_fits, &fit, sizeof(fit), err);
out:
	return rc;
}

/* Fits each class of records. Records of known size come first in a class; records of unknown size
 * count only if there are no others. */
static int fit_classes(struct fitter *f, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0, n, known; i < f->n_r && rc >= 0; i += n) {
		known = 0;
		for (n = 0; i + n < f->n_r && same_class(&f->r[i], &f->r[i + n]); n++)
			known += !f->r[i + n].unknown;
		rc = add_fit(f, &f->r[i], known ? known : n, err);
	}
	return rc;
}

/* Fits all classes; then again with the wait that some of them show, for those that do not. */
static int fit_all(struct fitter *f, struct pl_err *err)
{
	bool assumed = false;
	int rc = fit_classes(f, err);

	for (size_t i = 0; i < f->c->n_fits; i++)
		assumed |= f->c->fit[i].assumed;
	if (rc < 0 || !assumed || !(f->messages > 0))
		return rc;
	f->wait_ns = f->waited / f->messages;
	f->c->n_fits = 0;
	return fit_classes(f, err);
}

int pl_cost_fit(const struct pl_graph *g, const struct pl_topology *topo, struct pl_cost *c,
		struct pl_err *err)
{
	struct fitter f = { .g = g, .c = c, .wait_ns = WAIT_NS };
	double samples;
	int rc;

	memset(c, 0, sizeof(*c));
	c->user_topology = topo != NULL;
	c->links_known = topo || g->n_links;
	if (topo)
		c->topo = *topo;
	else
		PL_TRY(pl_cost_topo_detect(g, &c->topo, err));
	pl_cost_topo_recorded(g, &c->topo);
	f.threads = pl_cost_by_threads(g);
	f.latency = link_latency(g);
	PL_TRY(pl_cost_overlap(g, &c->overlap, &samples, err));
	f.contend = f.threads || c->overlap > 1;
	for (size_t k = 0; k < g->n_steps; k++)
		PL_TRY(add_step(&f, (uint32_t)k, err));
	PL_TRY(join_members(&f, err));
	PL_TRY(fit_all(&f, err));
	if (!topo)
		learn_links(f.latency, c);
	PL_TRY(pl_cost_issue(g, &c->issue_ns, err));
out:
	pl_spans_fini(&f.comp);
	pl_free(f.t);
	pl_free(f.r);
	pl_free(f.gap);
	if (rc < 0)
		pl_cost_fini(c);
	return rc;
}

void pl_cost_fini(struct pl_cost *c)
{
	if (!c->user_topology)
		pl_topology_fini(&c->topo);
	pl_free(c->fit);
	memset(c, 0, sizeof(*c));
}
