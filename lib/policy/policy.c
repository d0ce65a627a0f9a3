/*
 * The common part of all policies: which there are, counts of workers, checks of events, the
 * actions of an event, and the bytes from which a restarted server continues.
 *
 * The actions have their memory from the beginning, so an event that was checked cannot fail. O(1)
 * for an event, besides what the kind does.
 */
#include <math.h>
#include <stdarg.h>

#include "core/bytes.h"
#include "core/words.h"
#include "policy/internal.h"

#define WORKERS_MAX  65536
#define KEPT_MAX     16 /* members of a kind that put() keeps */
#define HEAD_BYTES   48
#define WORKER_BYTES 64

static const uint8_t magic[8] = "plpolcy\1";

/* A new policy is a line here, and a file. In the order of paceline-policy(5). */
static const struct pl_policy_kind *const kinds[] = {
	&pl_policy_bsp,		  &pl_policy_ssp,     &pl_policy_asp,  &pl_policy_local,
	&pl_policy_fixed_adacomm, &pl_policy_adacomm, &pl_policy_adsp, &pl_policy_adsp_plus,
	&pl_policy_batchtune,	  &pl_policy_diloco,  &pl_policy_dylu,
};

/* ---- which policy ---------------------------------------------------------------------------- */

const struct pl_policy_kind *pl_policy_kind_at(size_t i)
{
	return i < PL_LEN(kinds) ? kinds[i] : NULL;
}

const char *pl_policy_name(const struct pl_policy_kind *k)
{
	return k->name;
}

const char *pl_policy_help(const struct pl_policy_kind *k)
{
	return k->help;
}

bool pl_policy_overlaps(const struct pl_policy_kind *k)
{
	return k->overlaps;
}

bool pl_policy_waits(const struct pl_policy_kind *k)
{
	return k->waits;
}

static int unknown(const char *text, size_t n, struct pl_err *err)
{
	char name[64], hint[96], all[400] = "";
	struct pl_words_near near = { .s = name };
	size_t at = 0;

	snprintf(name, sizeof(name), "%.*s", (int)pl_min_size(n, sizeof(name) - 1), text);
	for (size_t i = 0; i < PL_LEN(kinds); i++) {
		const struct pl_policy_kind *k = kinds[i];

		pl_words_near(&near, k->name, strlen(k->name));
		at += (size_t)snprintf(all + at, sizeof(all) - at, "%s%s%s%s", i ? ", " : "",
				       k->name, k->argument ? ":" : "",
				       k->argument ? k->argument : "");
	}
	return pl_fail(err, PL_EUSAGE, "there is no policy \"%s\"; there are %s%s", name, all,
		       pl_words_near_text(&near, hint, sizeof(hint)));
}

static bool in_range(const struct pl_policy_kind *k, double v)
{
	return v >= k->least && v <= k->most && v == floor(v);
}

int pl_policy_parse(const char *text, struct pl_policy_opts *o, struct pl_err *err)
{
	size_t n = strcspn(text, ":"), i = 0;
	const struct pl_policy_kind *k;

	while (i < PL_LEN(kinds) &&
	       (strlen(kinds[i]->name) != n || memcmp(kinds[i]->name, text, n)))
		i++;
	if (i == PL_LEN(kinds))
		return unknown(text, n, err);
	k = kinds[i];
	o->kind = k;
	o->argument = NAN;
	if (!text[n])
		return 0;
	if (!k->argument)
		return pl_fail(err, PL_EUSAGE,
			       "the policy %s takes no argument, but there is \"%.100s\"", k->name,
			       text);
	if (!pl_decimal(text + n + 1, &o->argument) || !in_range(k, o->argument))
		return pl_fail(err, PL_EUSAGE,
			       "%s:%s: %s is a whole number from %.0f to %.0f, not \"%.100s\"",
			       k->name, k->argument, k->argument, k->least, k->most, text + n + 1);
	return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int check_opts(const struct pl_policy_opts *o, struct pl_err *err)
{
	if (!o->kind)
		return pl_fail(err, PL_EUSAGE, "no policy is named");
	if (!o->workers || o->workers > WORKERS_MAX)
		return pl_fail(err, PL_EUSAGE, "%s: 1 to %d workers, not %u", o->kind->name,
			       WORKERS_MAX, o->workers);
	if (o->min_workers > o->workers)
		return pl_fail(err, PL_EUSAGE, "%s: of %u workers, at least %u cannot be present",
			       o->kind->name, o->workers, o->min_workers);
	if (o->batch < 0 || o->rank_batch < 0 || o->period < 0 || o->epoch < 0)
		return pl_fail(err, PL_EUSAGE, "%s: batch, period and epoch are not negative",
			       o->kind->name);
	if (o->kind->argument && !isnan(o->argument) && !in_range(o->kind, o->argument))
		return pl_fail(err, PL_EUSAGE, "%s: %s is a whole number from %.0f to %.0f, not %g",
			       o->kind->name, o->kind->argument, o->kind->least, o->kind->most,
			       o->argument);
	return 0;
}

int pl_policy_new(const struct pl_policy_opts *o, struct pl_policy **out, struct pl_err *err)
{
	const struct pl_policy_kind *k = o->kind;
	struct pl_policy *p = NULL;
	int rc;

	*out = NULL;
	PL_CHECK(check_opts(o, err));
	PL_TRY(pl_alloc(&p, 1, sizeof(*p), err));
	p->o = *o;
	if (isnan(o->argument))
		p->o.argument = k->usual;
	if (!o->min_workers)
		p->o.min_workers = k->waits ? o->workers : 1;
	if (!o->batch)
		p->o.batch = 1;
	if (!o->rank_batch)
		p->o.rank_batch = p->o.batch;
	p->now = INT64_MIN;
	/* An event has at most two actions a worker, and few of the policy. */
	p->cap = 2 * (size_t)o->workers + 16;
	PL_TRY(pl_alloc(&p->w, o->workers, sizeof(*p->w), err));
	PL_TRY(pl_alloc(&p->ready, o->workers, sizeof(*p->ready), err));
	PL_TRY(pl_alloc(&p->a, p->cap, sizeof(*p->a), err));
	PL_TRY(pl_alloc(&p->state, 1, k->state + 1, err));
	PL_TRY(pl_alloc(&p->each, o->workers, k->of_worker + 1, err));
	if (k->begin)
		k->begin(p);
	*out = p;
	p = NULL;
out:
	pl_policy_free(p);
	return rc;
}

void pl_policy_free(struct pl_policy *p)
{
	if (!p)
		return;
	pl_free(p->w);
	pl_free(p->ready);
	pl_free(p->a);
	pl_free(p->state);
	pl_free(p->each);
	pl_free(p);
}

/* ---- actions --------------------------------------------------------------------------------- */

static struct pl_policy_action *add(struct pl_policy *p, enum pl_policy_action_kind kind,
				    uint32_t worker)
{
	struct pl_policy_action *a = &p->a[p->n < p->cap ? p->n : p->cap - 1];

	p->n++;
	a->kind = (uint8_t)kind;
	a->worker = worker;
	a->text[0] = '\0';
	return a;
}

bool pl_policy_held(const struct pl_policy *p)
{
	return p->present < p->o.min_workers;
}

static struct pl_policy_order order_of(const struct pl_policy *p, uint32_t worker)
{
	struct pl_policy_order o = { .steps = 1, .rate = 1 };

	if (p->o.kind->order)
		p->o.kind->order(p, worker, &o);
	if (p->o.kind->waits && p->o.steps)
		o.steps = pl_min_size(o.steps, pl_policy_round_most(p));
	return o;
}

void pl_policy_reply(struct pl_policy *p, uint32_t worker)
{
	if (!p->w[worker].waiting || p->ready[worker])
		return;
	if (pl_policy_held(p)) {
		p->ready[worker] = true;
		p->n_ready++;
		return;
	}
	add(p, PL_POLICY_REPLY, worker)->order = order_of(p, worker);
	p->w[worker].waiting = false;
	p->w[worker].version = p->version;
}

void pl_policy_send_order(struct pl_policy *p, uint32_t worker)
{
	if (p->w[worker].present && !p->w[worker].waiting)
		add(p, PL_POLICY_ORDER, worker)->order = order_of(p, worker);
}

void pl_policy_update(struct pl_policy *p, uint32_t worker, const struct pl_policy_update *u)
{
	add(p, PL_POLICY_UPDATE, worker)->update = *u;
	p->version += u->w_u != 0 || u->w_s != 0 || u->w_v != 0;
}

void pl_policy_wake(struct pl_policy *p, pl_ns at)
{
	add(p, PL_POLICY_WAKE, PL_NONE)->at = at;
}

void pl_policy_note(struct pl_policy *p, uint32_t worker, const char *fmt, ...)
{
	struct pl_policy_action *a = add(p, PL_POLICY_NOTE, worker);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(a->text, sizeof(a->text), fmt, ap);
	va_end(ap);
}

void pl_policy_apply_at_once(struct pl_policy *p, const struct pl_policy_event *e)
{
	pl_policy_update(p, e->worker,
			 &(struct pl_policy_update){ .v_v = 1, .w_u = 1.0 / p->present });
}

void pl_policy_argument_steps(const struct pl_policy *p, uint32_t worker, struct pl_policy_order *o)
{
	(void)worker;
	o->steps = (uint64_t)p->o.argument;
}

/* Replies that were held until enough workers are present. */
static void release(struct pl_policy *p)
{
	if (!p->n_ready || pl_policy_held(p))
		return;
	p->n_ready = 0;
	for (uint32_t i = 0; i < p->o.workers; i++)
		if (p->ready[i]) {
			p->ready[i] = false;
			pl_policy_reply(p, i);
		}
}

/* ---- events ---------------------------------------------------------------------------------- */

static int check_event(const struct pl_policy *p, const struct pl_policy_event *e,
		       struct pl_err *err)
{
	const struct pl_policy_worker *w;
	const char *why = NULL;

	if (e->now < p->now)
		return pl_fail(err, PL_EINTERNAL, "policy: time went back from %lld to %lld ns",
			       (long long)p->now, (long long)e->now);
	if (e->kind == PL_POLICY_TIMER)
		return 0;
	if (e->kind > PL_POLICY_TIMER || e->worker >= p->o.workers)
		return pl_fail(err, PL_EINTERNAL, "policy: event %u of worker %u of %u", e->kind,
			       e->worker, p->o.workers);
	w = &p->w[e->worker];
	if (e->kind == PL_POLICY_JOINED)
		why = w->present ? "joins, but is present" : NULL;
	else if (!w->present)
		why = e->kind == PL_POLICY_LEFT ? "leaves, but has not joined"
						: "commits, but has not joined";
	else if (e->kind == PL_POLICY_COMMITTED && w->waiting)
		why = "commits, but waits for a reply";
	else if (e->kind == PL_POLICY_COMMITTED && !e->steps)
		why = "commits no step";
	else if (e->kind == PL_POLICY_COMMITTED && e->base > p->version)
		why = "commits on weights that have not been";
	return why ? pl_fail(err, PL_EINTERNAL, "policy: worker %u %s", e->worker, why) : 0;
}

static void count(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct pl_policy_worker *w = &p->w[e->worker];
	uint64_t staleness;

	if (e->kind == PL_POLICY_JOINED) {
		w->present = w->waiting = true;
		p->present++;
	} else if (e->kind == PL_POLICY_LEFT) {
		w->present = w->waiting = false;
		p->present--;
		p->n_ready -= p->ready[e->worker];
		p->ready[e->worker] = false;
	} else {
		staleness = p->version - e->base;
		w->waiting = true;
		w->commits++;
		w->steps += e->steps;
		w->samples += e->samples;
		w->staleness_mean += ((double)staleness - w->staleness_mean) / (double)w->commits;
		if (staleness > w->staleness_max)
			w->staleness_max = staleness;
		if (e->step_ns > 0)
			w->step_ns = e->step_ns;
		if (e->commit_ns > 0)
			w->commit_ns = e->commit_ns;
	}
}

int pl_policy_handle(struct pl_policy *p, const struct pl_policy_event *e,
		     const struct pl_policy_action **a, size_t *n, struct pl_err *err)
{
	const struct pl_policy_kind *k = p->o.kind;

	*a = p->a;
	*n = p->n = 0;
	PL_CHECK(check_event(p, e, err));
	p->now = e->now;
	if (e->kind != PL_POLICY_TIMER)
		count(p, e);
	if (e->kind == PL_POLICY_JOINED) {
		k->joined(p, e);
		release(p);
	} else if (e->kind == PL_POLICY_COMMITTED) {
		k->committed(p, e);
	} else if (e->kind == PL_POLICY_LEFT) {
		if (k->left)
			k->left(p, e);
		if (pl_policy_held(p))
			pl_policy_few(p, e->worker, add(p, PL_POLICY_FEW, e->worker)->text,
				      sizeof(p->a->text));
	} else if (k->timer) {
		k->timer(p, e);
	}
	if (p->n > p->cap)
		return pl_fail(err, PL_EINTERNAL, "policy: %zu actions of one event", p->n);
	*n = p->n;
	return 0;
}

/* ---- what it has seen ------------------------------------------------------------------------ */

const struct pl_policy_worker *pl_policy_worker(const struct pl_policy *p, uint32_t worker)
{
	return &p->w[worker];
}

uint64_t pl_policy_version(const struct pl_policy *p)
{
	return p->version;
}

uint32_t pl_policy_min_workers(const struct pl_policy *p)
{
	return p->o.min_workers;
}

bool pl_policy_collects(const struct pl_policy *p)
{
	return p->o.kind->waits && ((const struct pl_policy_round *)p->state)->weight > 0;
}

void pl_policy_few(const struct pl_policy *p, uint32_t worker, char *text, size_t size)
{
	snprintf(text, size, "worker %u has left: %u of %u workers remain, and %s needs %u", worker,
		 p->present, p->o.workers, p->o.kind->name, p->o.min_workers);
}

double pl_policy_heterogeneity(const struct pl_policy *p)
{
	double sum = 0, least = INFINITY;
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->o.workers; i++)
		if (p->w[i].present && p->w[i].step_ns > 0) {
			double v = 1 / (double)p->w[i].step_ns;

			sum += v;
			least = v < least ? v : least;
			n++;
		}
	return n ? sum / n / least : NAN;
}

/* ---- restart --------------------------------------------------------------------------------- */

/*
 * Numbers of 8 bytes, little-endian: magic, hash of the name, workers, version, hash of all that
 * follows and of the four before, and the number of members of the kind; these members; and 8
 * numbers a worker.
 */
static size_t bytes_of(const struct pl_policy *p)
{
	return HEAD_BYTES + 8 * (size_t)p->o.kind->kept + WORKER_BYTES * (size_t)p->o.workers;
}

static uint64_t bits_of(const void *member)
{
	uint64_t v;

	memcpy(&v, member, 8);
	return v;
}

static uint64_t check_sum(const uint8_t *b, size_t n)
{
	return pl_hash(b, 32) ^ pl_hash(b + 40, n - 40) * 31;
}

static void put_head(const struct pl_policy *p, uint8_t *to)
{
	memcpy(to, magic, 8);
	pl_le64_put(to + 8, pl_hash(p->o.kind->name, strlen(p->o.kind->name)));
	pl_le64_put(to + 16, p->o.workers);
	pl_le64_put(to + 24, p->version);
	pl_le64_put(to + 40, p->o.kind->kept);
}

int pl_policy_put(const struct pl_policy *p, uint8_t *to, size_t size, size_t *n,
		  struct pl_err *err)
{
	uint8_t *b = to;

	*n = bytes_of(p);
	if (p->o.kind->kept > KEPT_MAX || size < *n)
		return pl_fail(err, PL_EINTERNAL, "policy: %zu bytes for a state of %zu", size, *n);
	put_head(p, to);
	b += HEAD_BYTES;
	for (uint32_t i = 0; i < p->o.kind->kept; i++, b += 8)
		pl_le64_put(b, bits_of((const char *)p->state + 8 * (size_t)i));
	for (uint32_t i = 0; i < p->o.workers; i++, b += WORKER_BYTES) {
		const struct pl_policy_worker *w = &p->w[i];

		pl_le64_put(b, w->commits);
		pl_le64_put(b + 8, w->steps);
		pl_le64_put(b + 16, w->samples);
		pl_le64_put(b + 24, bits_of(&w->staleness_mean));
		pl_le64_put(b + 32, w->staleness_max);
		pl_le64_put(b + 40, (uint64_t)w->step_ns);
		pl_le64_put(b + 48, (uint64_t)w->commit_ns);
		pl_le64_put(b + 56, p->o.kind->of_worker ? bits_of(pl_policy_state_of(p, i)) : 0);
	}
	pl_le64_put(to + 32, check_sum(to, *n));
	return 0;
}

int pl_policy_get(struct pl_policy *p, const uint8_t *from, size_t n, struct pl_err *err)
{
	const uint8_t *b = from + HEAD_BYTES;
	uint8_t head[HEAD_BYTES];
	uint64_t v;

	if (p->now != INT64_MIN)
		return pl_fail(err, PL_EINTERNAL, "policy: a state for one that has begun");
	put_head(p, head);
	if (n != bytes_of(p) || memcmp(from, head, 24) != 0 ||
	    memcmp(from + 40, head + 40, 8) != 0 || pl_le64_get(from + 32) != check_sum(from, n))
		return pl_fail(err, PL_EDATA, "no state of the policy %s with %u workers",
			       p->o.kind->name, p->o.workers);
	p->version = pl_le64_get(from + 24);
	for (uint32_t i = 0; i < p->o.kind->kept; i++, b += 8) {
		v = pl_le64_get(b);
		memcpy((char *)p->state + 8 * (size_t)i, &v, 8);
	}
	for (uint32_t i = 0; i < p->o.workers; i++, b += WORKER_BYTES) {
		struct pl_policy_worker *w = &p->w[i];

		w->commits = pl_le64_get(b);
		w->steps = pl_le64_get(b + 8);
		w->samples = pl_le64_get(b + 16);
		v = pl_le64_get(b + 24);
		memcpy(&w->staleness_mean, &v, 8);
		w->staleness_max = pl_le64_get(b + 32);
		w->step_ns = (pl_ns)pl_le64_get(b + 40);
		w->commit_ns = (pl_ns)pl_le64_get(b + 48);
		v = pl_le64_get(b + 56);
		if (p->o.kind->of_worker)
			memcpy(pl_policy_state_of(p, i), &v, 8);
	}
	if (p->o.kind->valid && !p->o.kind->valid(p))
		return pl_fail(err, PL_EDATA, "the state of the policy %s has impossible numbers",
			       p->o.kind->name);
	return 0;
}
