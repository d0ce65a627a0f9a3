/*
 * Candidates: the defaults of frameworks, equal cuts, and what dynamic programming makes of the
 * times of lib/cost.
 *
 * PyTorch DDP closes a bucket when it has grown to the limit, Horovod before it outgrows it; both
 * take tensors as they become ready. Tensors of different groups of ranks never meet: each group is
 * cut by itself.
 */
#include <math.h>
#include <string.h>

#include "search/internal.h"

#define MIB ((int64_t)1 << 20)

/* ---- memory ---------------------------------------------------------------------------------- */

int cand_init(const struct search *s, struct cand *c, struct pl_err *err)
{
	size_t n = s->n ? s->n : 1;
	int rc;

	memset(c, 0, sizeof(*c));
	rc = pl_alloc(&c->set_of, 2 * n + (n + 3) / 4, sizeof(*c->set_of), err);
	if (rc < 0)
		return rc;
	c->parts = c->set_of + n;
	c->algo = (uint8_t *)(c->parts + n);
	c->mean = INFINITY;
	return 0;
}

void cand_fini(struct cand *c)
{
	pl_free(c->set_of);
	c->set_of = NULL;
}

void cand_copy(const struct search *s, struct cand *to, const struct cand *from)
{
	to->n_sets = from->n_sets;
	to->ordered = from->ordered;
	to->urgent = from->urgent;
	to->mean = from->mean;
	memcpy(to->set_of, from->set_of, s->n * sizeof(*to->set_of));
	memcpy(to->parts, from->parts, s->n * sizeof(*to->parts));
	memcpy(to->algo, from->algo, s->n);
}

/* The set whose last tensor comes first is ready first: tensors are in order of readiness. */
void cand_number(struct search *s, struct cand *c)
{
	uint32_t *to = s->scratch, *from = s->scratch + s->n, n = 0;

	memset(to, 0xff, s->n * sizeof(*to));
	if (c->ordered) {
		for (uint32_t t = 0; t < s->n; t++)
			to[c->set_of[t]] = 0;
		for (uint32_t i = 0; i < s->n; i++)
			if (to[i] != PL_NONE) {
				to[i] = n;
				from[n++] = i;
			}
	} else {
		for (uint32_t t = s->n; t-- > 0;)
			if (to[c->set_of[t]] == PL_NONE) {
				to[c->set_of[t]] = n;
				from[n++] = c->set_of[t];
			}
		for (uint32_t i = 0; i < n; i++)
			to[from[i]] = n - 1 - i;
		for (uint32_t i = 0; i < n / 2; i++) {
			uint32_t x = from[i];

			from[i] = from[n - 1 - i];
			from[n - 1 - i] = x;
		}
	}
	for (uint32_t t = 0; t < s->n; t++)
		c->set_of[t] = to[c->set_of[t]];
	/* gather through the other half of scratch: to is no longer needed */
	for (uint32_t i = 0; i < n; i++)
		to[i] = c->parts[from[i]] | (uint32_t)c->algo[from[i]] << 24;
	for (uint32_t i = 0; i < n; i++) {
		c->parts[i] = to[i] & 0xffffff;
		c->algo[i] = (uint8_t)(to[i] >> 24);
	}
	c->n_sets = n;
}

bool cand_same(const struct search *s, const struct cand *a, const struct cand *b)
{
	return a->n_sets == b->n_sets && a->urgent == b->urgent &&
	       !memcmp(a->set_of, b->set_of, s->n * sizeof(*a->set_of)) &&
	       !memcmp(a->parts, b->parts, a->n_sets * sizeof(*a->parts)) &&
	       !memcmp(a->algo, b->algo, a->n_sets);
}

/* What sets a candidate apart from plain buckets. */
static uint32_t frills(const struct cand *c)
{
	uint32_t n = c->ordered + c->urgent;

	for (uint32_t i = 0; i < c->n_sets; i++)
		n += (c->parts[i] > 1) + (c->algo[i] != PL_ALGO_RING);
	return n;
}

bool cand_better(const struct cand *a, const struct cand *b)
{
	uint32_t x, y;

	if (a->mean != b->mean)
		return a->mean < b->mean;
	x = frills(a);
	y = frills(b);
	return x != y ? x < y : a->n_sets < b->n_sets;
}

int batch_add(struct search *s, const struct cand *from, struct cand **c, struct pl_err *err)
{
	size_t had = s->cap_batch;
	int rc = pl_grow(&s->batch, &s->cap_batch, s->n_batch + 1, sizeof(*s->batch), err);

	if (rc < 0)
		return rc;
	if (s->cap_batch > had)
		memset(s->batch + had, 0, (s->cap_batch - had) * sizeof(*s->batch));
	*c = &s->batch[s->n_batch];
	if (!(*c)->set_of && (rc = cand_init(s, *c, err)) < 0)
		return rc;
	cand_copy(s, *c, from);
	(*c)->mean = INFINITY;
	s->n_batch++;
	return 0;
}

/* An empty one, to be filled with sets: whole, and by ring. */
static int add_plain(struct search *s, struct cand **c, struct pl_err *err)
{
	int rc = batch_add(s, &s->recorded, c, err);

	if (rc < 0)
		return rc;
	(*c)->n_sets = 0;
	(*c)->ordered = (*c)->urgent = false;
	for (uint32_t i = 0; i < s->n; i++) {
		(*c)->parts[i] = 1;
		(*c)->algo[i] = PL_ALGO_RING;
		(*c)->set_of[i] = PL_NONE;
	}
	return 0;
}

/* ---- defaults -------------------------------------------------------------------------------- */

struct rule {
	int64_t first, limit; /* bytes of a group's first bucket, of others */
	bool before;	      /* closed before it outgrows the limit; else when it has reached it */
};

static void cut(struct search *s, const struct rule *r, struct cand *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		int64_t limit = r->first, bytes = 0;
		bool any = false;

		if (c->set_of[i] != PL_NONE)
			continue;
		for (uint32_t t = i; t < s->n; t++) { /* the group of i */
			if (s->group[t] != s->group[i])
				continue;
			if (any &&
			    (r->before ? pl_add_sat(bytes, s->bytes[t]) > limit : bytes >= limit)) {
				n++;
				bytes = 0;
				limit = r->limit;
			}
			c->set_of[t] = n;
			bytes = pl_add_sat(bytes, s->bytes[t]);
			any = true;
		}
		n++;
	}
	cand_number(s, c);
}

static int add_rule(struct search *s, const struct rule *r, struct pl_err *err)
{
	struct cand *c;
	int rc = add_plain(s, &c, err);

	if (rc == 0)
		cut(s, r, c);
	return rc;
}

int add_preset(struct search *s, enum pl_preset preset, struct pl_err *err)
{
	static const struct rule rule[PL_PRESET_COUNT_] = {
		[PL_PRESET_DDP] = { MIB, 25 * MIB, false },
		[PL_PRESET_HOROVOD] = { 64 * MIB, 64 * MIB, true },
		[PL_PRESET_EACH] = { 0, 0, false },
		[PL_PRESET_ALL] = { INT64_MAX, INT64_MAX, false },
	};
	struct cand *c;

	if (preset == PL_PRESET_NONE)
		return batch_add(s, &s->recorded, &c, err);
	return add_rule(s, &rule[preset], err);
}

static int add_equal_cuts(struct search *s, struct pl_err *err)
{
	int64_t total = 0, last = 0;
	int rc = 0;

	for (uint32_t t = 0; t < s->n; t++)
		total = pl_add_sat(total, s->bytes[t]);
	for (int64_t k = 2; rc == 0 && k <= 64 && k <= s->n; k += (k + 3) / 4) {
		struct rule r = { total / k + 1, total / k + 1, false };

		if (r.limit != last)
			rc = add_rule(s, &r, err);
		last = r.limit;
	}
	return rc;
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
	struct channel ch = { s, pl_rewriter_comm(s->lane[0].r, i) };
	struct pl_bucket_problem p = { .ready_ns = room->ready,
				       .bytes = room->bytes,
				       .transfer = channel_time,
				       .arg = &ch,
				       .issue_ns = d->issue_ns };
	uint32_t n;
	pl_ns end;
	int rc;

	ch.comm.parts = 1;
	ch.comm.algo = (uint8_t)d->algo;
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

		c->algo[*n_sets] = (uint8_t)d->algo;
		for (uint32_t k = room->first[b]; k < stop; k++)
			c->set_of[room->tensor[k]] = *n_sets;
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
		if (c->set_of[i] == PL_NONE)
			rc = cut_group(s, d, i, room, c, &n_sets, err);
	if (rc == 0)
		cand_number(s, c);
	return rc;
}

static int add_dps(struct search *s, struct dp_room *room, struct pl_err *err)
{
	pl_ns issue = s->cost->issue_ns;
	unsigned algos = s->o->algorithm ? PL_ALGO_PS : PL_ALGO_RING + 1;
	int rc = 0;

	for (unsigned a = PL_ALGO_RING; rc == 0 && a < algos; a++) {
		const struct dp_case d[] = {
			{ a, 0, 0 }, { a, issue, 0 }, { a, 0, issue }, { a, 2 * issue, issue }
		};

		for (size_t i = 0; rc == 0 && i < (issue ? PL_LEN(d) : 1); i++)
			rc = add_dp(s, &d[i], room, err);
	}
	return rc;
}

int add_cuts(struct search *s, struct pl_err *err)
{
	struct dp_room room = { .tensor = NULL };
	int rc;

	if (!s->o->fuse)
		return 0;
	PL_TRY(pl_alloc(&room.tensor, s->n, sizeof(*room.tensor), err));
	PL_TRY(pl_alloc(&room.first, s->n, sizeof(*room.first), err));
	PL_TRY(pl_alloc(&room.bytes, s->n, sizeof(*room.bytes), err));
	PL_TRY(pl_alloc(&room.ready, s->n, sizeof(*room.ready), err));
	rc = add_dps(s, &room, err);
out:
	pl_free(room.tensor);
	pl_free(room.first);
	pl_free(room.bytes);
	pl_free(room.ready);
	return rc;
}

int add_seeds(struct search *s, struct pl_err *err)
{
	int rc;

	if (!s->o->fuse)
		return 0;
	rc = add_equal_cuts(s, err);
	return rc < 0 ? rc : add_cuts(s, err);
}
