/*
 * Candidates: the defaults of frameworks, equal cuts, and cuts by dynamic programming for the times
 * of lib/cost.
 *
 * PyTorch DDP closes a bucket when the bucket has reached the limit; Horovod closes it before it
 * exceeds the limit. Both take tensors in the order of readiness. Tensors of different groups of
 * ranks never share a bucket: each group is cut separately.
 */
#include <math.h>
#include <string.h>

#include "search/internal.h"

/* ---- memory ---------------------------------------------------------------------------------- */

int pl_search_cand_init(const struct search *s, struct cand *c, struct pl_err *err)
{
	int rc;

	memset(c, 0, sizeof(*c));
	PL_TRY(pl_plan_buckets_init(&c->b, s->n, err));
	PL_TRY(pl_alloc(&c->algo, s->n, sizeof(*c->algo), err));
	c->mean = INFINITY;
out:
	return rc;
}

void pl_search_cand_fini(struct cand *c)
{
	pl_plan_buckets_fini(&c->b);
	pl_free(c->algo);
	c->algo = NULL;
}

void pl_search_cand_copy(const struct search *s, struct cand *to, const struct cand *from)
{
	pl_plan_buckets_copy(&to->b, &from->b);
	to->ordered = from->ordered;
	to->urgent = from->urgent;
	to->mean = from->mean;
	memcpy(to->algo, from->algo, s->n);
}

/* The set whose last tensor comes first is ready first: tensors are in order of readiness. */
int pl_search_cand_number(struct search *s, struct cand *c, struct pl_err *err)
{
	uint32_t *from = s->scratch;
	uint8_t *algo = (uint8_t *)(from + s->n);
	int rc;

	for (uint32_t t = 0; t < s->n; t++)
		c->b.place[t] = c->ordered ? c->b.set[t] : t;
	rc = pl_plan_buckets_number(&c->b, from, err);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < c->b.n_sets; i++)
		algo[i] = c->algo[from[i]];
	memcpy(c->algo, algo, c->b.n_sets);
	return 0;
}

bool pl_search_cand_same(const struct search *s, const struct cand *a, const struct cand *b)
{
	return a->b.n_sets == b->b.n_sets && a->urgent == b->urgent &&
	       !memcmp(a->b.set, b->b.set, s->n * sizeof(*a->b.set)) &&
	       !memcmp(a->b.parts, b->b.parts, a->b.n_sets * sizeof(*a->b.parts)) &&
	       !memcmp(a->algo, b->algo, a->b.n_sets);
}

/* What sets a candidate apart from plain buckets. */
static uint32_t frills(const struct cand *c)
{
	uint32_t n = c->ordered + c->urgent;

	for (uint32_t i = 0; i < c->b.n_sets; i++)
		n += (c->b.parts[i] > 1) + (c->algo[i] != PL_ALGO_RING);
	return n;
}

bool pl_search_cand_better(const struct cand *a, const struct cand *b)
{
	uint32_t x, y;

	if (a->mean != b->mean)
		return a->mean < b->mean;
	x = frills(a);
	y = frills(b);
	return x != y ? x < y : a->b.n_sets < b->b.n_sets;
}

int pl_search_batch_add(struct search *s, const struct cand *from, struct cand **c,
			struct pl_err *err)
{
	size_t had = s->cap_batch;
	int rc = pl_grow(&s->batch, &s->cap_batch, s->n_batch + 1, sizeof(*s->batch), err);

	if (rc < 0)
		return rc;
	if (s->cap_batch > had)
		memset(s->batch + had, 0, (s->cap_batch - had) * sizeof(*s->batch));
	*c = &s->batch[s->n_batch];
	if (!(*c)->b.set && (rc = pl_search_cand_init(s, *c, err)) < 0)
		return rc;
	pl_search_cand_copy(s, *c, from);
	(*c)->mean = INFINITY;
	s->n_batch++;
	return 0;
}

/* An empty one, to be filled with sets: whole, and by ring. */
static int add_plain(struct search *s, struct cand **c, struct pl_err *err)
{
	int rc = pl_search_batch_add(s, &s->recorded, c, err);

	if (rc < 0)
		return rc;
	(*c)->b.n_sets = 0;
	(*c)->ordered = (*c)->urgent = false;
	for (uint32_t i = 0; i < s->n; i++) {
		(*c)->b.parts[i] = 1;
		(*c)->algo[i] = PL_ALGO_RING;
		(*c)->b.set[i] = PL_NONE;
	}
	return 0;
}

/* ---- defaults -------------------------------------------------------------------------------- */

/* Tensors of different groups never meet: each group fills buckets of its own. */
static int cut(struct search *s, struct pl_bucket_rule rule, struct cand *c, struct pl_err *err)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		struct pl_bucket_filler f = { .rule = rule, .set = n };

		if (c->b.set[i] != PL_NONE)
			continue;
		for (uint32_t t = i; t < s->n; t++) /* the group of i */
			if (s->group[t] == s->group[i])
				c->b.set[t] = pl_plan_bucket_next(&f, s->bytes[t]);
		n = pl_plan_bucket_end(&f);
	}
	return pl_search_cand_number(s, c, err);
}

static int add_rule(struct search *s, struct pl_bucket_rule rule, struct pl_err *err)
{
	struct cand *c;
	int rc = add_plain(s, &c, err);

	return rc < 0 ? rc : cut(s, rule, c, err);
}

int pl_search_add_preset(struct search *s, enum pl_preset preset, struct pl_err *err)
{
	const int64_t mib = (int64_t)1 << 20;
	const struct pl_bucket_rule rule[PL_PRESET_COUNT_] = {
		[PL_PRESET_DDP] = pl_plan_bucket_rule_ddp(PL_DDP_BUCKET_BYTES),
		[PL_PRESET_HOROVOD] = { 64 * mib, 64 * mib, true },
		[PL_PRESET_EACH] = { 0, 0, false },
		[PL_PRESET_ALL] = { INT64_MAX, INT64_MAX, false },
	};
	struct cand *c;

	if (preset == PL_PRESET_NONE)
		return pl_search_batch_add(s, &s->recorded, &c, err);
	return add_rule(s, rule[preset], err);
}

static int add_equal_cuts(struct search *s, struct pl_err *err)
{
	int64_t total = 0, last = 0;
	int rc = 0;

	for (uint32_t t = 0; t < s->n; t++)
		total = pl_add_sat(total, s->bytes[t]);
	for (int64_t k = 2; rc == 0 && k <= 64 && k <= s->n; k += (k + 3) / 4) {
		struct pl_bucket_rule r = { total / k + 1, total / k + 1, false };

		if (r.limit != last)
			rc = add_rule(s, r, err);
		last = r.limit;
	}
	return rc;
}

unsigned pl_search_algos(const struct search *s)
{
	unsigned most = 0;

	for (uint32_t t = 0; t < s->n; t++)
		most = s->algos[t] > most ? s->algos[t] : most;
	return most;
}

/* ---- dynamic programming --------------------------------------------------------------------- */

struct channel {
	const struct search *s;
	struct pl_cost_comm comm;
};

static pl_ns channel_time(void *arg, int64_t bytes)
{
	struct channel *c = arg;

	c->comm.bytes = bytes;
	return pl_cost_transfer(c->s->cost, &c->comm);
}

struct dp_case {
	unsigned algo;
	pl_ns issue_ns; /* on the channel, a bucket */
	pl_ns late_ns;	/* how much later everything is ready */
};

struct dp_room {
	uint32_t *tensor, *first; /* of the group; boundaries */
	int64_t *bytes;
	pl_ns *ready;
};

/* The group of tensor i, cut by dynamic programming into sets from *n_sets on. */
static int cut_group(struct search *s, const struct dp_case *d, uint32_t i, struct dp_room *room,
		     struct cand *c, uint32_t *n_sets, struct pl_err *err)
{
	struct channel ch = { s, pl_rewriter_comm(s->worker[0].r, i) };
	struct pl_bucket_problem p = { .ready_ns = room->ready,
				       .bytes = room->bytes,
				       .transfer = channel_time,
				       .arg = &ch,
				       .issue_ns = d->issue_ns };
	uint32_t n;
	pl_ns end;
	int rc;

	ch.comm.parts = 1;
	ch.comm.algo = d->algo < s->algos[i] ? (uint8_t)d->algo : PL_ALGO_RING;
	ch.comm.servers = s->servers;
	for (uint32_t t = i; t < s->n; t++) {
		if (s->group[t] != s->group[i])
			continue;
		room->tensor[p.n] = t;
		room->bytes[p.n] = s->bytes[t];
		room->ready[p.n] = pl_add_sat(s->ready[t], d->late_ns);
		/* changed operations may have made it earlier than those before it */
		if (p.n)
			room->ready[p.n] = pl_max_i64(room->ready[p.n], room->ready[p.n - 1]);
		p.n++;
	}
	rc = pl_bucket_dp(&p, room->first, &n, &end, err);
	for (uint32_t b = 0; rc == 0 && b < n; b++) {
		uint32_t stop = b + 1 < n ? room->first[b + 1] : (uint32_t)p.n;

		c->algo[*n_sets] = ch.comm.algo;
		for (uint32_t k = room->first[b]; k < stop; k++)
			c->b.set[room->tensor[k]] = *n_sets;
		++*n_sets;
	}
	return rc;
}

static int add_dp(struct search *s, const struct dp_case *d, struct dp_room *room,
		  struct pl_err *err)
{
	uint32_t n_sets = 0;
	struct cand *c;
	int rc = add_plain(s, &c, err);

	for (uint32_t i = 0; rc == 0 && i < s->n; i++)
		if (c->b.set[i] == PL_NONE)
			rc = cut_group(s, d, i, room, c, &n_sets, err);
	return rc < 0 ? rc : pl_search_cand_number(s, c, err);
}

static int add_dps(struct search *s, unsigned algo, struct dp_room *room, struct pl_err *err)
{
	pl_ns issue = s->cost->issue_ns;
	int rc = 0;

	for (unsigned a = algo; rc == 0 && a < pl_search_algos(s); a++) {
		const struct dp_case d[] = {
			{ a, 0, 0 }, { a, issue, 0 }, { a, 0, issue }, { a, 2 * issue, issue }
		};

		for (size_t i = 0; rc == 0 && i < (issue ? PL_LEN(d) : 1); i++)
			rc = add_dp(s, &d[i], room, err);
	}
	return rc;
}

int pl_search_add_cuts(struct search *s, unsigned algo, struct pl_err *err)
{
	struct dp_room room = { .tensor = NULL };
	int rc;

	if (!s->o->fuse)
		return 0;
	PL_TRY(pl_alloc(&room.tensor, s->n, sizeof(*room.tensor), err));
	PL_TRY(pl_alloc(&room.first, s->n, sizeof(*room.first), err));
	PL_TRY(pl_alloc(&room.bytes, s->n, sizeof(*room.bytes), err));
	PL_TRY(pl_alloc(&room.ready, s->n, sizeof(*room.ready), err));
	rc = add_dps(s, algo, &room, err);
out:
	pl_free(room.tensor);
	pl_free(room.first);
	pl_free(room.bytes);
	pl_free(room.ready);
	return rc;
}

int pl_search_add_seeds(struct search *s, struct pl_err *err)
{
	int rc;

	if (!s->o->fuse)
		return 0;
	rc = add_equal_cuts(s, err);
	return rc < 0 ? rc : pl_search_add_cuts(s, PL_ALGO_RING, err);
}
