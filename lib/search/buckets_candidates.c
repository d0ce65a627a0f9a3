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
void pl_search_cand_number(struct search *s, struct cand *c)
{
	uint32_t *from = s->scratch;
	uint8_t *algo = (uint8_t *)(from + s->n);

	for (uint32_t t = 0; t < s->n; t++)
		c->b.place[t] = c->ordered ? c->b.set[t] : t;
	if (s->rc < 0 || (s->rc = pl_plan_buckets_number(&c->b, from, &s->failure)) < 0)
		return;
	for (uint32_t i = 0; i < c->b.n_sets; i++)
		algo[i] = c->algo[from[i]];
	memcpy(c->algo, algo, c->b.n_sets);
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

struct cand *pl_search_batch_add(struct search *s, const struct cand *from)
{
	size_t had = s->cap_batch;
	struct cand *c = &s->spare;

	if (s->rc == 0)
		s->rc = pl_grow(&s->batch, &s->cap_batch, s->n_batch + 1, sizeof(*s->batch),
				&s->failure);
	if (s->cap_batch > had)
		memset(s->batch + had, 0, (s->cap_batch - had) * sizeof(*s->batch));
	if (s->rc == 0 && !s->batch[s->n_batch].b.set)
		s->rc = pl_search_cand_init(s, &s->batch[s->n_batch], &s->failure);
	if (s->rc == 0)
		c = &s->batch[s->n_batch++];
	pl_search_cand_copy(s, c, from);
	c->mean = INFINITY;
	return c;
}

/* An empty one, to be filled with sets: whole, and by ring. */
static struct cand *add_plain(struct search *s)
{
	struct cand *c = pl_search_batch_add(s, &s->recorded);

	c->b.n_sets = 0;
	c->ordered = c->urgent = false;
	for (uint32_t i = 0; i < s->n; i++) {
		c->b.parts[i] = 1;
		c->algo[i] = PL_ALGO_RING;
		c->b.set[i] = PL_NONE;
	}
	return c;
}

/* ---- defaults -------------------------------------------------------------------------------- */

/* Tensors of different groups never meet: each group fills buckets of its own. */
static void add_rule(struct search *s, struct pl_bucket_rule rule)
{
	struct cand *c = add_plain(s);
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		struct pl_bucket_filler f = { .rule = rule, .set = n };

		if (c->b.set[i] != PL_NONE)
			continue;
		for (uint32_t t = i; t < s->n; t++) /* the group of i */
			if (s->tensor[t].fuses == s->tensor[i].fuses)
				c->b.set[t] = pl_plan_bucket_next(&f, s->tensor[t].bytes);
		n = pl_plan_bucket_end(&f);
	}
	pl_search_cand_number(s, c);
}

void pl_search_add_preset(struct search *s, enum pl_preset preset)
{
	const int64_t mib = (int64_t)1 << 20;
	const struct pl_bucket_rule rule[PL_PRESET_COUNT_] = {
		[PL_PRESET_DDP] = pl_plan_bucket_rule_ddp(PL_DDP_BUCKET_BYTES),
		[PL_PRESET_HOROVOD] = { 64 * mib, 64 * mib, true },
		[PL_PRESET_EACH] = { 0, 0, false },
		[PL_PRESET_ALL] = { INT64_MAX, INT64_MAX, false },
	};

	if (preset == PL_PRESET_NONE)
		pl_search_batch_add(s, &s->recorded);
	else
		add_rule(s, rule[preset]);
}

static void add_equal_cuts(struct search *s)
{
	int64_t total = 0, last = 0;

	for (uint32_t t = 0; t < s->n; t++)
		total = pl_add_sat(total, s->tensor[t].bytes);
	for (int64_t k = 2; k <= 64 && k <= s->n; k += (k + 3) / 4) {
		struct pl_bucket_rule r = { total / k + 1, total / k + 1, false };

		if (r.limit != last)
			add_rule(s, r);
		last = r.limit;
	}
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

struct dp_room {		  /* [tensor] */
	uint32_t *tensor, *first; /* of the group; boundaries */
	int64_t *bytes;
	pl_ns *ready;
	struct pl_arena arena;
};

/* The group of tensor i, cut by dynamic programming into sets from *n_sets on. */
static void cut_group(struct search *s, const struct dp_case *d, uint32_t i, struct dp_room *room,
		      struct cand *c, uint32_t *n_sets)
{
	struct channel ch = { s, pl_rewriter_comm(s->worker[0].r, i) };
	struct pl_bucket_problem p = { .ready_ns = room->ready,
				       .bytes = room->bytes,
				       .transfer = channel_time,
				       .arg = &ch,
				       .issue_ns = d->issue_ns };
	uint32_t n = 0;
	pl_ns end;

	ch.comm.parts = 1;
	ch.comm.algo = d->algo < s->algos[i] ? (uint8_t)d->algo : PL_ALGO_RING;
	ch.comm.servers = s->servers;
	for (uint32_t t = i; t < s->n; t++) {
		if (s->tensor[t].fuses != s->tensor[i].fuses)
			continue;
		room->tensor[p.n] = t;
		room->bytes[p.n] = s->tensor[t].bytes;
		room->ready[p.n] = pl_add_sat(s->ready[t], d->late_ns);
		/* changed operations may have made it earlier than those before it */
		if (p.n)
			room->ready[p.n] = pl_max_i64(room->ready[p.n], room->ready[p.n - 1]);
		p.n++;
	}
	if (s->rc == 0)
		s->rc = pl_bucket_dp(&p, room->first, &n, &end, &s->failure);
	for (uint32_t b = 0; b < n; b++) {
		uint32_t stop = b + 1 < n ? room->first[b + 1] : (uint32_t)p.n;

		c->algo[*n_sets] = ch.comm.algo;
		for (uint32_t k = room->first[b]; k < stop; k++)
			c->b.set[room->tensor[k]] = *n_sets;
		++*n_sets;
	}
}

static void add_dp(struct search *s, const struct dp_case *d, struct dp_room *room)
{
	struct cand *c = add_plain(s);
	uint32_t n_sets = 0;

	for (uint32_t i = 0; s->rc == 0 && i < s->n; i++)
		if (c->b.set[i] == PL_NONE)
			cut_group(s, d, i, room, c, &n_sets);
	pl_search_cand_number(s, c);
}

static int room_init(struct dp_room *room, uint32_t n, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_arena_array(&room->arena, &room->tensor, n, sizeof(*room->tensor), err));
	PL_TRY(pl_arena_array(&room->arena, &room->first, n, sizeof(*room->first), err));
	PL_TRY(pl_arena_array(&room->arena, &room->bytes, n, sizeof(*room->bytes), err));
	rc = pl_arena_array(&room->arena, &room->ready, n, sizeof(*room->ready), err);
out:
	return rc;
}

void pl_search_add_cuts(struct search *s, unsigned algo)
{
	struct dp_room room = { .tensor = NULL };
	pl_ns issue = s->cost->issue_ns;

	if (s->o->fuse && s->rc == 0)
		s->rc = room_init(&room, s->n, &s->failure);
	for (unsigned a = algo; s->o->fuse && s->rc == 0 && a < pl_search_algos(s); a++) {
		const struct dp_case d[] = {
			{ a, 0, 0 }, { a, issue, 0 }, { a, 0, issue }, { a, 2 * issue, issue }
		};

		for (size_t i = 0; i < (issue ? PL_LEN(d) : 1); i++)
			add_dp(s, &d[i], &room);
	}
	pl_arena_fini(&room.arena);
}

void pl_search_add_seeds(struct search *s)
{
	if (s->o->fuse)
		add_equal_cuts(s);
	pl_search_add_cuts(s, PL_ALGO_RING);
}
