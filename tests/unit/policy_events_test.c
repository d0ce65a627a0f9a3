/*
 * What holds for each policy after any events: one reply for each that waits, no action for a
 * worker that is not there, nobody waits for ever, bounded staleness, and a state from which a
 * restarted server goes on. Random events, and all short sequences of events of two and three
 * workers.
 */
#include "policy_fixture.h"

#define WORKERS 5

static const char *const policies[] = { "bsp",	   "ssp:0",	      "ssp:3",	   "asp",
					"local:3", "fixed-adacomm:2", "adacomm:4", "adsp",
					"adsp++",  "batchtune",	      "diloco:2",  "dylu:6" };

/* What a server and its workers know. */
struct world {
	struct pl_policy *p;
	const char *name;
	uint32_t workers;
	bool present[WORKERS], waits[WORKERS];
	uint64_t base[WORKERS], clock[WORKERS]; /* clock: as ssp counts */
	struct pl_policy_order order[WORKERS];
	pl_ns now, wake; /* wake: -1: none */
	uint64_t version;
	const char *wrong;
	char said[4096]; /* the answer to the last event */
};

static void check_that(struct world *w, bool good, const char *what)
{
	if (!good && !w->wrong)
		w->wrong = what;
}

static void check_order(struct world *w, const struct pl_policy_order *o)
{
	check_that(w, o->steps || o->every > 0, "an order without an end");
	check_that(w, o->rate > 0 && o->batch >= 0, "an order with impossible numbers");
}

static void act(struct world *w, const struct pl_policy_event *e, const struct pl_policy_action *a)
{
	const struct pl_policy_update *u = &a->update;
	uint32_t i = a->worker;

	say_action(w->said, sizeof(w->said), a);
	if (a->kind == PL_POLICY_UPDATE || a->kind == PL_POLICY_REPLY || a->kind == PL_POLICY_ORDER)
		check_that(w, i < w->workers && w->present[i], "an action for an absent worker");
	if (a->kind == PL_POLICY_UPDATE) {
		if (u->s_u != 0 || u->v_u != 0 || u->w_u != 0)
			check_that(w, e->kind == PL_POLICY_COMMITTED && i == e->worker,
				   "U of an earlier commit");
		w->version += u->w_u != 0 || u->w_s != 0 || u->w_v != 0;
	} else if (a->kind == PL_POLICY_REPLY) {
		check_that(w, w->waits[i], "a reply to a worker that does not wait");
		w->waits[i] = false;
		w->base[i] = w->version;
		w->order[i] = a->order;
		check_order(w, &a->order);
	} else if (a->kind == PL_POLICY_ORDER) {
		check_that(w, !w->waits[i], "an order to a worker that waits");
		w->order[i] = a->order;
		check_order(w, &a->order);
	} else if (a->kind == PL_POLICY_WAKE) {
		check_that(w, a->at >= w->now, "a timer of the past");
		w->wake = a->at;
	}
}

static void event(struct world *w, struct pl_policy_event e)
{
	const struct pl_policy_action *a;
	struct pl_err err = { 0 };
	size_t n;

	e.now = w->now;
	w->said[0] = '\0';
	if (pl_policy_handle(w->p, &e, &a, &n, &err) < 0) {
		check_that(w, false, "an event was refused");
		return;
	}
	for (size_t i = 0; i < n; i++)
		act(w, &e, &a[i]);
	check_that(w, w->version == pl_policy_version(w->p), "another version");
	for (uint32_t i = 0; i < w->workers; i++)
		check_that(w,
			   pl_policy_worker(w->p, i)->present == w->present[i] &&
				   pl_policy_worker(w->p, i)->waiting == w->waits[i],
			   "the policy sees other workers");
}

static uint64_t slowest(const struct world *w)
{
	uint64_t c = UINT64_MAX;

	for (uint32_t i = 0; i < w->workers; i++)
		if (w->present[i] && w->clock[i] < c)
			c = w->clock[i];
	return c;
}

static void join(struct world *w, uint32_t i)
{
	uint64_t c = slowest(w);

	w->clock[i] = c == UINT64_MAX ? w->clock[i] : c;
	w->present[i] = w->waits[i] = true;
	event(w, (struct pl_policy_event){ .kind = PL_POLICY_JOINED, .worker = i });
}

static void leave(struct world *w, uint32_t i)
{
	w->present[i] = w->waits[i] = false;
	event(w, (struct pl_policy_event){ .kind = PL_POLICY_LEFT, .worker = i });
}

static void commit(struct world *w, uint32_t i, double loss)
{
	uint64_t n = w->order[i].steps ? w->order[i].steps : 2;
	int64_t batch = w->order[i].batch ? w->order[i].batch : 16;

	w->waits[i] = true;
	w->clock[i] += n;
	event(w, (struct pl_policy_event){ .kind = PL_POLICY_COMMITTED,
					   .worker = i,
					   .steps = n,
					   .samples = n * (uint64_t)batch,
					   .base = w->base[i],
					   .loss = loss,
					   .step_ns = (i + 1) * 10 * MS,
					   .commit_ns = MS });
}

static void timer(struct world *w)
{
	w->wake = -1;
	event(w, (struct pl_policy_event){ .kind = PL_POLICY_TIMER });
}

static uint32_t count(const bool *flag, uint32_t n)
{
	uint32_t set = 0;

	for (uint32_t i = 0; i < n; i++)
		set += flag[i];
	return set;
}

static void begin(struct world *w, const char *name, uint32_t workers, uint32_t min_workers)
{
	struct pl_policy_opts o = policy_opts(name, workers);

	o.min_workers = min_workers;
	*w = (struct world){ .name = name, .workers = workers, .wake = -1, .p = policy_new_of(&o) };
}

/* If all that compute go on, each worker that waits gets its reply. */
static void drain(struct world *w, uint32_t min_workers)
{
	bool before[WORKERS];

	if (count(w->present, w->workers) < min_workers)
		return;
	memcpy(before, w->waits, sizeof(before));
	for (int round = 0; round < 8 && count(before, w->workers); round++)
		for (uint32_t i = 0; i < w->workers; i++) {
			w->now += MS;
			if (w->present[i] && !w->waits[i])
				commit(w, i, 1);
			for (uint32_t k = 0; k < w->workers; k++)
				before[k] = before[k] && w->waits[k];
		}
	check_that(w, !count(before, w->workers), "a worker waits for ever");
}

/* ---- random events --------------------------------------------------------------------------- */

static void random_event(struct world *w, uint64_t *seed)
{
	uint32_t i = (uint32_t)(pl_rng_next(seed) % w->workers);
	uint64_t what = pl_rng_next(seed) % 16;

	w->now += (pl_ns)(pl_rng_next(seed) % (30 * MS));
	if (w->wake >= 0 && w->now >= w->wake)
		timer(w);
	if (!w->present[i]) {
		if (what < 8)
			join(w, i);
	} else if (what == 0) {
		leave(w, i);
	} else if (!w->waits[i]) {
		commit(w, i, 1 + (double)(pl_rng_next(seed) % 100) / 100);
	}
}

/* A reply is there for all that need not wait, by the rules of each policy. */
static void check_waits(struct world *w, uint32_t min_workers)
{
	unsigned bound = 0;
	bool ssp = sscanf(w->name, "ssp:%u", &bound) == 1;
	uint32_t n = count(w->present, w->workers), waits = count(w->waits, w->workers);

	if (n < min_workers)
		return;
	if (ssp) {
		for (uint32_t i = 0; i < w->workers; i++)
			if (w->present[i])
				check_that(
					w, w->waits[i] == (w->clock[i] - slowest(w) > bound),
					"ssp: a worker waits within the bound, or not beyond it");
	} else if (!strcmp(w->name, "asp") || w->name[0] == 'd' || !strncmp(w->name, "adsp", 4)) {
		if (strncmp(w->name, "diloco", 6) != 0)
			check_that(w, !waits, "a worker waits");
	} else {
		check_that(w, !n || waits < n, "all wait");
	}
}

static void random_events(const char *name)
{
	const char *wrong = NULL;
	uint64_t seed = 7;

	for (int round = 0; round < CASES(80) && !wrong; round++) {
		uint32_t workers = 1 + (uint32_t)(pl_rng_next(&seed) % WORKERS);
		uint32_t least = 1 + (uint32_t)(pl_rng_next(&seed) % workers);
		struct world w;

		begin(&w, name, workers, least);
		for (int i = 0; i < 200 && !w.wrong; i++) {
			random_event(&w, &seed);
			check_waits(&w, least);
		}
		drain(&w, least);
		wrong = w.wrong;
		pl_policy_free(w.p);
	}
	ok(!wrong, "%s: random events%s%s", name, wrong ? ": " : "", wrong ? wrong : "");
}

/* ---- all short sequences --------------------------------------------------------------------- */

#define PLAIN 3 /* events of one worker: joins, leaves, commits */

/* Carry out event `what`; false: it cannot happen. */
static bool try_event(struct world *w, unsigned what)
{
	uint32_t i = what / PLAIN;

	w->now += 7 * MS;
	if (i == w->workers) {
		if (w->wake < 0 || what % PLAIN)
			return false;
		w->now = w->wake;
		timer(w);
		return true;
	}
	switch (what % PLAIN) {
	case 0:
		if (w->present[i])
			return false;
		join(w, i);
		return true;
	case 1:
		if (!w->present[i])
			return false;
		leave(w, i);
		return true;
	default:
		if (!w->present[i] || w->waits[i])
			return false;
		commit(w, i, 1);
		return true;
	}
}

/* All sequences of `depth` events, in the order of their digits. Returns how many there are. */
static long all_sequences(const char *name, uint32_t workers, uint32_t least, int depth,
			  const char **wrong)
{
	unsigned digit[16] = { 0 }, base = PLAIN * (workers + 1);
	long n = 0;

	for (;;) {
		struct world w;
		int at;

		begin(&w, name, workers, least);
		for (at = 0; at < depth && try_event(&w, digit[at]); at++)
			check_waits(&w, least);
		if (at == depth) {
			n++;
			drain(&w, least);
			at--;
		}
		*wrong = w.wrong;
		pl_policy_free(w.p);
		if (*wrong)
			return n;
		/* the next sequence that differs at `at` or before */
		while (at >= 0 && digit[at] == base - 1)
			at--;
		if (at < 0)
			return n;
		digit[at]++;
		for (int i = at + 1; i < depth; i++)
			digit[i] = 0;
	}
}

static void exhaustive(const char *name)
{
	const char *wrong = NULL;
	long n = 0;

	for (uint32_t least = 1; least <= 2 && !wrong; least++)
		n += all_sequences(name, 2, least, CASES(8) == 8 ? 8 : 6, &wrong);
	for (uint32_t least = 1; least <= 3 && !wrong; least += 2)
		n += all_sequences(name, 3, least, CASES(8) != 8 ? 5 : long_form() ? 8 : 6, &wrong);
	ok(!wrong && n > 100, "%s: all %ld short sequences of 2 and 3 workers%s%s", name, n,
	   wrong ? ": " : "", wrong ? wrong : "");
}

/* ---- restart --------------------------------------------------------------------------------- */

static void check_damage(const struct world *w, uint8_t *state, size_t n)
{
	struct pl_policy_opts o = policy_opts(strcmp(w->name, "bsp") ? "bsp" : "asp", w->workers);
	struct pl_policy *p = policy_new_of(&o);
	struct pl_err err = { 0 };
	size_t refused = 0;

	ok(pl_policy_get(p, state, n, &err) == PL_EDATA, "%s", err.msg);
	pl_policy_free(p);
	for (size_t i = 0; i < n; i++) {
		p = policy_new(w->name, w->workers);
		state[i] ^= 0x10;
		refused += pl_policy_get(p, state, n, &err) == PL_EDATA;
		state[i] ^= 0x10;
		pl_policy_free(p);
	}
	p = policy_new(w->name, w->workers);
	ok(refused == n && pl_policy_get(p, state, n - 1, &err) == PL_EDATA,
	   "%s: each damaged byte is found", w->name);
	pl_policy_free(p);
}

static bool same_counts(const struct pl_policy_worker *a, const struct pl_policy_worker *b)
{
	return a->commits == b->commits && a->steps == b->steps && a->samples == b->samples &&
	       a->staleness_mean == b->staleness_mean && a->staleness_max == b->staleness_max &&
	       a->step_ns == b->step_ns && a->commit_ns == b->commit_ns && a->commits > 0;
}

/* A policy whose workers have all left, and one that was restarted, give the same answers. */
static void restart(const char *name)
{
	struct world a, b;
	uint8_t state[1024 + 64 * WORKERS];
	struct pl_err err = { 0 };
	uint64_t seed = 3, same;
	bool equal = true;
	size_t n = 0;

	begin(&a, name, WORKERS, 1);
	for (uint32_t i = 0; i < WORKERS; i++)
		join(&a, i);
	for (int i = 0; i < 300; i++)
		random_event(&a, &seed);
	/* in_round() has the restart in the middle of a round */
	while (pl_policy_waits(policy_opts(name, 1).kind) && count(a.waits, WORKERS))
		random_event(&a, &seed);
	if (ok(pl_policy_put(a.p, state, sizeof(state), &n, &err) == 0 && n <= sizeof(state),
	       "%s: put", name))
		printf("# %zu bytes\n", n);
	ok(pl_policy_put(a.p, state, n - 1, &n, &err) == PL_EINTERNAL, "%s: %s", name, err.msg);
	err = (struct pl_err){ 0 };
	begin(&b, name, WORKERS, 1);
	ok(pl_policy_get(b.p, state, n, &err) == 0, "%s: read%s", name, err.msg);
	for (uint32_t i = 0; i < WORKERS; i++) {
		equal = equal && same_counts(pl_policy_worker(a.p, i), pl_policy_worker(b.p, i));
		if (a.present[i])
			leave(&a, i);
	}
	/* S is in the state of the server: what has left counts in the round */
	a.wake = -1;
	b.now = a.now;
	b.version = a.version;
	memcpy(b.clock, a.clock, sizeof(b.clock));
	same = seed;
	for (uint32_t i = 0; i < 2 * WORKERS + 500; i++) {
		if (i < WORKERS) {
			join(&a, i);
			join(&b, i);
		} else {
			random_event(&a, &seed);
			random_event(&b, &same);
		}
		equal = equal && !strcmp(a.said, b.said);
	}
	ok(equal && !a.wrong && !b.wrong, "%s: a restarted server goes on alike", name);
	check_damage(&a, state, n);
	pl_policy_free(a.p);
	pl_policy_free(b.p);
}

/* What was committed in a round before the server was restarted counts once. */
static void in_round(const char *name)
{
	uint8_t state[1024 + 64 * 3];
	struct pl_policy *p = policy_new(name, 3);
	struct pl_err err = { 0 };
	size_t n = 0;

	for (uint32_t i = 0; i < 3; i++)
		joins(p, i, 0);
	commits(p, 1, 5 * MS, 1, 5 * MS);
	ok(pl_policy_put(p, state, sizeof(state), &n, &err) == 0,
	   "%s: put in the middle of a round", name);
	pl_policy_free(p);
	p = policy_new(name, 3);
	ok(pl_policy_get(p, state, n, &err) == 0, "... and read");
	is_str(joins(p, 0, 10 * MS), "", "one of three workers waits for the others");
	is_str(joins(p, 1, 10 * MS), "", "... so does one that has committed");
	is_str(joins(p, 2, 10 * MS), "reply2 steps=1, reply0 steps=1",
	       "the others make their steps, and the commit of the one is not made again");
	commits(p, 0, 15 * MS, 1, 5 * MS);
	is_str(commits(p, 2, 15 * MS, 1, 5 * MS),
	       "update2 s_u=1 w_s=0.3333 clear, reply0 steps=1, reply1 steps=1, reply2 steps=1",
	       "the round has three commits");
	pl_policy_free(p);
}

/* A worker that is lost after it has committed, and comes back in the same round, counts once. */
static void comes_back(const char *name, uint32_t min_workers)
{
	struct pl_policy_opts o = policy_opts(name, 3);
	struct pl_policy *p;
	const char *said;

	o.min_workers = min_workers;
	p = policy_new_of(&o);
	for (uint32_t i = 0; i < 3; i++)
		joins(p, i, 0);
	commits(p, 1, 5 * MS, 1, 5 * MS);
	said = leaves(p, 1, 6 * MS);
	ok(strstr(said, "few1 \"worker 1 has left: 2 of 3 workers remain") ? min_workers == 3
									   : !*said,
	   "%s: a worker is lost in a round, %u are needed: %s", name, min_workers, said);
	is_str(joins(p, 1, 7 * MS), "", "... and waits for the end of it when it comes back");
	commits(p, 0, 15 * MS, 1, 5 * MS);
	is_str(commits(p, 2, 15 * MS, 1, 5 * MS),
	       "update2 s_u=1 w_s=0.3333 clear, reply0 steps=1, reply1 steps=1, reply2 steps=1",
	       "... which has three commits");
	commits(p, 1, 20 * MS, 1, 5 * MS);
	leaves(p, 1, 21 * MS);
	commits(p, 0, 25 * MS, 1, 5 * MS);
	said = commits(p, 2, 25 * MS, 1, 5 * MS);
	if (min_workers == 3) {
		is_str(said, "update2 s_u=1", "... all wait for it in the next round");
		said = joins(p, 1, 30 * MS);
		is_str(said,
		       "update1 w_s=0.3333 clear, reply0 steps=1, reply1 steps=1, reply2 steps=1",
		       "... which ends when it is there");
	} else {
		is_str(said, "update2 s_u=1 w_s=0.3333 clear, reply0 steps=1, reply2 steps=1",
		       "... the next round ends without it");
		is_str(joins(p, 1, 30 * MS), "reply1 steps=1", "... and it begins another");
	}
	pl_policy_free(p);
}

int main(void)
{
	in_round("bsp");
	in_round("batchtune");
	for (uint32_t least = 2; least <= 3; least++)
		comes_back("bsp", least);
	for (size_t i = 0; i < PL_LEN(policies); i++) {
		random_events(policies[i]);
		exhaustive(policies[i]);
		restart(policies[i]);
	}
	return done_testing();
}
