/*
 * Candidates: defaults of frameworks, equal cuts, and cuts by dynamic programming with lib/cost.
 *
 * PyTorch DDP closes a bucket when the bucket has reached the limit; Horovod closes it before it
 * exceeds the limit. Both take tensors in the order of readiness. Tensors of different groups of
 * ranks never share a bucket: each group is cut separately.
 */
#include <math.h>

#include "search/buckets_internal.h"

/* ---- memory ---------------------------------------------------------------------------------- */

int pl_search_choice_new(struct choices *s, struct candidate **out, struct pl_err *err)
{
	struct bucket_choice *c;

	PL_CHECK(pl_arena_array(&s->arena, &c, 1, sizeof(*c), err));
	*c = (struct bucket_choice){ .head.mean = INFINITY, .next = s->all };
	s->all = c;
	*out = &c->head;
	PL_CHECK(pl_plan_buckets_init(&c->b, s->n, err));
	return pl_arena_array(&s->arena, &c->algo, s->n, sizeof(*c->algo), err);
}

void pl_search_choice_copy(const struct choices *s, struct candidate *candidate,
			   const struct candidate *source)
{
	struct bucket_choice *to = (struct bucket_choice *)candidate;
	const struct bucket_choice *from = (const struct bucket_choice *)source;

	pl_plan_buckets_copy(&to->b, &from->b);
	to->ordered = from->ordered;
	to->urgent = from->urgent;
	to->head.mean = from->head.mean;
	memcpy(to->algo, from->algo, s->n);
}

/* Number the sets by readiness: the set whose last tensor comes first is ready first. */
void pl_search_cand_number(struct choices *s, struct bucket_choice *c)
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

bool pl_search_cand_same(const struct choices *s, const struct candidate *one,
			 const struct candidate *other)
{
	const struct bucket_choice *a = (const struct bucket_choice *)one;
	const struct bucket_choice *b = (const struct bucket_choice *)other;

	return a->b.n_sets == b->b.n_sets && a->urgent == b->urgent &&
	       !memcmp(a->b.set, b->b.set, s->n * sizeof(*a->b.set)) &&
	       !memcmp(a->b.parts, b->b.parts, a->b.n_sets * sizeof(*a->b.parts)) &&
	       !memcmp(a->algo, b->algo, a->b.n_sets);
}

/* The differences from plain buckets; with equal numbers, fewer buckets are simpler. */
static uint64_t complexity(const struct candidate *candidate)
{
	const struct bucket_choice *c = (const struct bucket_choice *)candidate;
	uint64_t n = c->ordered + c->urgent;

	for (uint32_t i = 0; i < c->b.n_sets; i++)
		n += (c->b.parts[i] > 1) +
		     (c->algo[i] != PL_ALGO_RING && c->algo[i] != PL_REWRITE_SAME_ALGORITHM);
	return n << 32 | c->b.n_sets;
}

bool pl_search_cand_better(const struct candidate *a, const struct candidate *b)
{
	return a->mean != b->mean ? a->mean < b->mean : complexity(a) < complexity(b);
}

struct bucket_choice *pl_search_batch_add(struct choices *s, const struct bucket_choice *from)
{
	struct bucket_choice *c = (struct bucket_choice *)s->spare;

	if (s->rc == 0 && s->n_batch == s->had_batch) {
		s->rc = pl_grow(&s->batch, &s->cap_batch, s->n_batch + 1, sizeof(*s->batch),
				&s->failure);
		if (s->rc == 0)
			s->rc = pl_search_choice_new(s, &s->batch[s->n_batch], &s->failure);
		s->had_batch += s->rc == 0;
	}
	if (s->rc == 0)
		c = pl_search_batch_at(s, s->n_batch++);
	pl_search_choice_copy(s, &c->head, &from->head);
	c->head.mean = INFINITY;
	return c;
}

struct candidate *pl_search_choice_add(struct choices *s, const struct candidate *from)
{
	return &pl_search_batch_add(s, (const struct bucket_choice *)from)->head;
}

void pl_search_choice_clear(struct choices *s)
{
	s->n_batch = 0;
}

int pl_search_choice_apply(struct worker *l, const struct candidate *candidate, struct pl_err *err)
{
	const struct bucket_choice *c = (const struct bucket_choice *)candidate;
	const struct choices *s = l->s->choices;
	const struct pl_bucketing b = { .n_sets = c->b.n_sets,
					.set_of = c->b.set,
					.parts = c->b.parts,
					.algo = c->algo,
					.servers = s->servers,
					.priority = c->urgent ? s->priority : NULL };

	if (s->n) /* a sharded job may have gradients, but no choice of buckets */
		PL_CHECK(pl_rewrite_bucketing(l->r, &b, err));
	return pl_sim_settle(&l->e, err);
}

int pl_search_choice_failed(const struct choices *s, struct pl_err *err)
{
	if (s->rc < 0)
		*err = s->failure;
	return s->rc;
}

int pl_search_choice_simulate(struct choices *s, struct pl_err *err)
{
	struct search *all = s->search;

	PL_CHECK(pl_search_choice_failed(s, err));
	PL_CHECK(pl_search_simulate(all, all->version > 0, s->batch, s->n_batch,
				    pl_search_choice_apply, err));
	for (size_t i = 0; i < s->n_batch; i++)
		if (isfinite(s->batch[i]->mean) && pl_search_cand_better(s->batch[i], all->best))
			pl_search_choice_copy(s, all->best, s->batch[i]);
	return 0;
}

/* Add an empty choice, to be filled with sets: no partition, no chosen algorithm. */
static struct bucket_choice *add_plain(struct choices *s)
{
	struct bucket_choice *c = pl_search_batch_add(s, s->recorded);

	c->b.n_sets = 0;
	c->ordered = c->urgent = false;
	for (uint32_t i = 0; i < s->n; i++) {
		c->b.parts[i] = 1;
		c->algo[i] = s->plain;
		c->b.set[i] = PL_NONE;
	}
	return c;
}

/* ---- defaults -------------------------------------------------------------------------------- */

static struct bucket_choice *add_rule(struct choices *s, struct pl_bucket_rule rule)
{
	struct bucket_choice *c = add_plain(s);

	pl_rewrite_fill_buckets(s->search->worker[0].r, rule, c->b.set);
	pl_search_cand_number(s, c);
	return c;
}

struct candidate *pl_search_choice_add_preset(struct choices *s, enum pl_preset preset)
{
	const int64_t mib = (int64_t)1 << 20;
	const struct pl_bucket_rule rule[PL_PRESET_COUNT_] = {
		[PL_PRESET_DDP] = pl_plan_bucket_rule_ddp(PL_DDP_BUCKET_BYTES),
		[PL_PRESET_HOROVOD] = { 128 * mib, 128 * mib, true },
		[PL_PRESET_EACH] = { 0, 0, false },
		[PL_PRESET_ALL] = { INT64_MAX, INT64_MAX, false },
	};

	if (preset == PL_PRESET_NONE)
		return pl_search_choice_add(s, &s->recorded->head);
	return &add_rule(s, rule[preset])->head;
}

static void add_equal_cuts(struct choices *s)
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

unsigned pl_search_algos(const struct choices *s)
{
	unsigned most = 0;

	for (uint32_t t = 0; t < s->n; t++)
		most = s->algos[t] > most ? s->algos[t] : most;
	return most;
}

/* ---- dynamic programming --------------------------------------------------------------------- */

struct channel {
	const struct choices *s;
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
	pl_ns late_ns;	/* delay of the readiness of all tensors */
};

struct dp_room {		  /* [tensor] */
	uint32_t *tensor, *first; /* of the group; boundaries */
	int64_t *bytes;
	pl_ns *ready;
	struct pl_arena arena;
};

/* The group of tensor i, cut by dynamic programming into sets from *n_sets on. */
static void cut_group(struct choices *s, const struct dp_case *d, uint32_t i, struct dp_room *room,
		      struct bucket_choice *c, uint32_t *n_sets)
{
	struct channel ch = { s, pl_rewrite_comm(s->search->worker[0].r, i) };
	struct pl_bucket_problem p = { .ready_ns = room->ready,
				       .bytes = room->bytes,
				       .transfer = channel_time,
				       .arg = &ch,
				       .issue_ns = d->issue_ns };
	uint8_t algo = d->algo && d->algo < s->algos[i] ? (uint8_t)d->algo : s->plain;
	uint32_t n = 0;
	pl_ns end;

	ch.comm.parts = 1;
	if (algo != PL_REWRITE_SAME_ALGORITHM)
		ch.comm.algo = algo;
	ch.comm.servers = s->servers;
	for (uint32_t t = i; t < s->n; t++) {
		if (s->tensor[t].fuses != s->tensor[i].fuses)
			continue;
		room->tensor[p.n] = t;
		room->bytes[p.n] = s->tensor[t].bytes;
		room->ready[p.n] = pl_add_sat(s->ready[t], d->late_ns);
		/* changed operations may make it ready before its predecessors */
		if (p.n)
			room->ready[p.n] = pl_max_i64(room->ready[p.n], room->ready[p.n - 1]);
		p.n++;
	}
	if (s->rc == 0)
		s->rc = pl_search_bucket_dp(&p, room->first, &n, &end, &s->failure);
	for (uint32_t b = 0; b < n; b++) {
		uint32_t stop = b + 1 < n ? room->first[b + 1] : (uint32_t)p.n;

		c->algo[*n_sets] = algo;
		for (uint32_t k = room->first[b]; k < stop; k++)
			c->b.set[room->tensor[k]] = *n_sets;
		++*n_sets;
	}
}

static void add_dp(struct choices *s, const struct dp_case *d, struct dp_room *room)
{
	struct bucket_choice *c = add_plain(s);
	uint32_t n_sets = 0;

	for (uint32_t i = 0; s->rc == 0 && i < s->n; i++)
		if (c->b.set[i] == PL_NONE)
			cut_group(s, d, i, room, c, &n_sets);
	pl_search_cand_number(s, c);
}

static int room_init(struct dp_room *room, uint32_t n, struct pl_err *err)
{
	PL_CHECK(pl_arena_array(&room->arena, &room->tensor, n, sizeof(*room->tensor), err));
	PL_CHECK(pl_arena_array(&room->arena, &room->first, n, sizeof(*room->first), err));
	PL_CHECK(pl_arena_array(&room->arena, &room->bytes, n, sizeof(*room->bytes), err));
	return pl_arena_array(&room->arena, &room->ready, n, sizeof(*room->ready), err);
}

void pl_search_choice_add_cuts(struct choices *s, unsigned algo)
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

void pl_search_choice_add_seeds(struct choices *s)
{
	if (s->o->fuse)
		add_equal_cuts(s);
	pl_search_choice_add_cuts(s, PL_ALGO_RING);
}

void pl_search_choice_add_merged(struct choices *s, const uint8_t *wanted)
{
	struct bucket_choice *c;

	if (!s->o->fuse || !s->n)
		return;
	c = pl_search_batch_add(s, s->now);
	for (uint32_t t = 0; t < s->n; t++) {
		uint32_t set = c->b.set[t], with = PL_NONE;

		if (!wanted[t])
			continue;
		for (uint32_t u = 0; u < t && with == PL_NONE; u++)
			if (s->tensor[u].fuses == s->tensor[t].fuses && wanted[u])
				with = c->b.set[u];
		for (uint32_t u = 0; u < s->n && with != PL_NONE; u++)
			if (c->b.set[u] == set)
				c->b.set[u] = with;
	}
	pl_search_cand_number(s, c);
}
