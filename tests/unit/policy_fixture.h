/* policy_fixture.h - a policy that is told events, and its actions as one line of text. */
#ifndef PL_POLICY_FIXTURE_H
#define PL_POLICY_FIXTURE_H

#include <math.h>
#include <stdlib.h>

#include "tap.h"

#include "policy/policy.h"

#define MS 1000000ll
#define S  1000000000ll

/* Is there time for the long form of a test? */
static inline bool long_form(void)
{
	const char *set = getenv("LONG");

	return set && !strcmp(set, "1");
}

static inline struct pl_policy_opts policy_opts(const char *text, uint32_t workers)
{
	struct pl_policy_opts o = { .workers = workers, .batch = 16, .argument = (double)NAN };
	struct pl_err err = { 0 };

	if (pl_policy_parse(text, &o, &err) < 0) {
		printf("Bail out! %s\n", err.msg);
		exit(1);
	}
	return o;
}

static inline struct pl_policy *policy_new_of(const struct pl_policy_opts *o)
{
	struct pl_err err = { 0 };
	struct pl_policy *p;

	if (pl_policy_new(o, &p, &err) < 0) {
		printf("Bail out! %s\n", err.msg);
		exit(1);
	}
	return p;
}

static inline struct pl_policy *policy_new(const char *text, uint32_t workers)
{
	struct pl_policy_opts o = policy_opts(text, workers);

	return policy_new_of(&o);
}

static inline void say_factor(char *to, size_t size, const char *name, double v)
{
	size_t at = strlen(to);

	if (v != 0)
		snprintf(to + at, size - at, " %s=%.4g", name, v);
}

/* "update0 s_u=1, reply0 steps=1, ...": v_v is left out where it is 1. */
static inline void say_action(char *to, size_t size, const struct pl_policy_action *a)
{
	static const char *const words[] = { "update", "reply", "order", "wake", "note", "few" };
	size_t at;

	snprintf(to + strlen(to), size - strlen(to), "%s%s", *to ? ", " : "", words[a->kind]);
	at = strlen(to);
	if (a->worker != PL_NONE)
		snprintf(to + at, size - at, "%u", a->worker);
	if (a->kind == PL_POLICY_UPDATE) {
		say_factor(to, size, "s_u", a->update.s_u);
		if (a->update.v_v != 1)
			snprintf(to + strlen(to), size - strlen(to), " v_v=%.4g", a->update.v_v);
		say_factor(to, size, "v_u", a->update.v_u);
		say_factor(to, size, "v_s", a->update.v_s);
		say_factor(to, size, "w_u", a->update.w_u);
		say_factor(to, size, "w_s", a->update.w_s);
		say_factor(to, size, "w_v", a->update.w_v);
		if (a->update.clear)
			snprintf(to + strlen(to), size - strlen(to), " clear");
	} else if (a->kind == PL_POLICY_REPLY || a->kind == PL_POLICY_ORDER) {
		say_factor(to, size, "steps", (double)a->order.steps);
		if (a->order.every) {
			say_factor(to, size, "first", (double)a->order.first / (double)MS);
			say_factor(to, size, "every", (double)a->order.every / (double)MS);
		}
		say_factor(to, size, "batch", (double)a->order.batch);
		say_factor(to, size, "rate", a->order.rate == 1 ? 0 : a->order.rate);
	} else if (a->kind == PL_POLICY_WAKE) {
		say_factor(to, size, "at", (double)a->at / (double)MS);
	} else {
		snprintf(to + strlen(to), size - strlen(to), " \"%s\"", a->text);
	}
}

static char policy_said[8192];

/* The answer to an event; "error: ..." if it is refused. */
static inline const char *tell(struct pl_policy *p, struct pl_policy_event e)
{
	const struct pl_policy_action *a;
	struct pl_err err = { 0 };
	size_t n;

	policy_said[0] = '\0';
	if (pl_policy_handle(p, &e, &a, &n, &err) < 0) {
		snprintf(policy_said, sizeof(policy_said), "error: %s", err.msg);
		return policy_said;
	}
	for (size_t i = 0; i < n; i++)
		say_action(policy_said, sizeof(policy_said), &a[i]);
	return policy_said;
}

static inline const char *joins(struct pl_policy *p, uint32_t worker, pl_ns now)
{
	return tell(p, (struct pl_policy_event){
			       .kind = PL_POLICY_JOINED, .worker = worker, .now = now });
}

static inline const char *leaves(struct pl_policy *p, uint32_t worker, pl_ns now)
{
	return tell(p, (struct pl_policy_event){
			       .kind = PL_POLICY_LEFT, .worker = worker, .now = now });
}

/* Steps with the batch of the job, on the weights of the last reply. */
static inline struct pl_policy_event commit_of(const struct pl_policy *p, uint32_t worker,
					       pl_ns now, uint64_t steps, pl_ns step_ns)
{
	return (struct pl_policy_event){ .kind = PL_POLICY_COMMITTED,
					 .worker = worker,
					 .now = now,
					 .steps = steps,
					 .samples = 16 * steps,
					 .base = pl_policy_worker(p, worker)->version,
					 .loss = (double)NAN,
					 .step_ns = step_ns };
}

static inline const char *commits(struct pl_policy *p, uint32_t worker, pl_ns now, uint64_t steps,
				  pl_ns step_ns)
{
	return tell(p, commit_of(p, worker, now, steps, step_ns));
}

#endif
