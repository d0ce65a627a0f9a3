/*
 * The online search of adsp: commits a period, and under adsp++ momentum and the factor of the
 * local learning rate.
 *
 * Algorithm 1 of ADSP trains one period with C and one with C + 1 commits, and climbs while the
 * second is better. Its reward is a fit of three parameters to three losses, which any noise
 * overturns; the loss curve flattens as it falls, so the later probe looks worse; and the
 * workers wait while it decides. Here workers keep on working, and a comparison is made of three
 * probes: the present setting, the other one, the present one again. The mean of the first and the
 * third stands for the time of the second, so the flattening of the curve cancels to the first
 * order. A probe has at least a period and PL_POLICY_PROBE_LEAST losses; its reward is the rate at
 * which the loss falls (probe.c). The other setting is taken only if it is better by more than
 * SEPARABLE standard errors of the difference. Rates double or halve, because those of neighbours
 * cannot be told from one another: upwards first, as in the paper, then downwards if up was no
 * better.
 */
#include "policy/internal.h"

#define SEPARABLE   2.5
#define PERIODS_MAX 8 /* of a probe to which too few losses come */

const double pl_policy_momenta[4] = { 0, 0.3, 0.6, 0.9 };
const double pl_policy_factors[2] = { 0.1, 1 };

static uint32_t knobs_of(const struct pl_policy *p)
{
	return p->o.kind == &pl_policy_adsp_plus ? PL_POLICY_KNOBS : 1;
}

static void describe(const struct pl_policy_setting *s, uint32_t knob, char *to, size_t size)
{
	if (knob == PL_POLICY_RATE)
		snprintf(to, size, "%llu commits a period", (unsigned long long)s->at[knob]);
	else if (knob == PL_POLICY_MOMENTUM)
		snprintf(to, size, "momentum %g", pl_policy_momenta[s->at[knob]]);
	else
		snprintf(to, size, "%g of the learning rate", pl_policy_factors[s->at[knob]]);
}

static void begin_probe(const struct pl_policy *p, struct pl_policy_search *s, int phase)
{
	s->phase = (unsigned)phase;
	s->periods = 0;
	s->since = p->now;
	s->probe = (struct pl_policy_probe){ 0 };
}

static void end_search(struct pl_policy *p, struct pl_policy_adsp *a)
{
	pl_ns epoch = p->o.epoch ? p->o.epoch : PL_POLICY_EPOCH * a->period;

	a->search.phase = PL_POLICY_IDLE;
	a->search.next = pl_add_sat(p->now, epoch);
}

/* The setting beside the base; false: there is none. */
static bool neighbour(struct pl_policy_adsp *a, uint64_t most)
{
	struct pl_policy_search *s = &a->search;
	uint64_t from = a->base.at[s->knob], to;
	uint64_t last = s->knob == PL_POLICY_MOMENTUM ? PL_LEN(pl_policy_momenta) - 1
						      : PL_LEN(pl_policy_factors) - 1;

	if (s->knob == PL_POLICY_RATE) {
		to = s->direction > 0 ? 2 * from : from / 2;
		to = to > most ? most : to < 1 ? 1 : to;
	} else {
		to = s->direction > 0 ? (from < last ? from + 1 : last) : (from ? from - 1 : 0);
	}
	s->trial = a->base;
	s->trial.at[s->knob] = to;
	return to != from;
}

/* Go on to the other direction, or to the next knob. */
static void skip_direction(struct pl_policy_search *s)
{
	if (s->direction > 0 && !s->moved) {
		s->direction = -1;
		return;
	}
	s->knob++;
	s->direction = 1;
	s->moved = false;
}

/* Compare the base with the next setting; `phase` is the first probe that is missing. */
static void next_comparison(struct pl_policy *p, struct pl_policy_adsp *a, uint64_t most, int phase)
{
	struct pl_policy_search *s = &a->search;
	char text[PL_POLICY_KNOBS][48];

	while (s->knob < knobs_of(p) && !neighbour(a, most))
		skip_direction(s);
	if (s->knob < knobs_of(p)) {
		begin_probe(p, s, phase);
		return;
	}
	for (uint32_t i = 0; i < PL_POLICY_KNOBS; i++)
		describe(&a->base, i, text[i], sizeof(text[i]));
	if (knobs_of(p) == 1)
		pl_policy_note(p, PL_NONE, "%s: the search ends with %s", p->o.kind->name, text[0]);
	else
		pl_policy_note(p, PL_NONE, "%s: the search ends with %s, %s, %s", p->o.kind->name,
			       text[0], text[1], text[2]);
	end_search(p, a);
}

/* Three probes have ended. */
static void compare(struct pl_policy *p, struct pl_policy_adsp *a, uint64_t most)
{
	struct pl_policy_search *s = &a->search;
	const struct pl_policy_rate *r = s->rate;
	double now = (r[0].rate + r[2].rate) / 2, gain = r[1].rate - now;
	double error = sqrt(r[1].error * r[1].error +
			    (r[0].error * r[0].error + r[2].error * r[2].error) / 4);
	const char *verdict = "no clear difference";
	char base[48], trial[48];

	if (fabs(gain) > SEPARABLE * error)
		verdict = gain > 0 ? "taken" : "worse";
	describe(&a->base, s->knob, base, sizeof(base));
	describe(&s->trial, s->knob, trial, sizeof(trial));
	pl_policy_note(p, PL_NONE,
		       "%s: loss falls by %.3g/s with %s, by %.3g/s with %s, +- %.2g/s: %s",
		       p->o.kind->name, r[1].rate, trial, now, base, error, verdict);
	if (gain > SEPARABLE * error) {
		a->base = s->trial;
		s->moved = true;
		next_comparison(p, a, most, PL_POLICY_BEFORE);
		return;
	}
	/* the last probe is the first one of the next comparison */
	s->rate[0] = s->rate[2];
	skip_direction(s);
	next_comparison(p, a, most, PL_POLICY_TRIAL);
}

static void begin_search(struct pl_policy *p, struct pl_policy_adsp *a, uint64_t most)
{
	struct pl_policy_search *s = &a->search;

	s->knob = 0;
	s->direction = 1;
	s->moved = s->forced = false;
	next_comparison(p, a, most, PL_POLICY_BEFORE);
}

void pl_policy_search_start(const struct pl_policy *p, struct pl_policy_adsp *a)
{
	a->search = (struct pl_policy_search){ .next = p->now };
}

void pl_policy_search_again(const struct pl_policy *p, struct pl_policy_adsp *a)
{
	if (a->search.phase != PL_POLICY_IDLE)
		begin_probe(p, &a->search, PL_POLICY_BEFORE);
}

void pl_policy_search_check(struct pl_policy *p, struct pl_policy_adsp *a, uint64_t most)
{
	struct pl_policy_search *s = &a->search;

	if (a->base.at[PL_POLICY_RATE] > most)
		a->base.at[PL_POLICY_RATE] = most;
	if (s->phase == PL_POLICY_IDLE) {
		/* What a worker alone commits is what it has: no setting changes the result. */
		if (p->present > 1 && (s->forced || p->now >= s->next))
			begin_search(p, a, most);
		return;
	}
	if (s->trial.at[PL_POLICY_RATE] > most || /* it cannot be kept, or is the base by now */
	    s->trial.at[s->knob] == a->base.at[s->knob]) {
		next_comparison(p, a, most, PL_POLICY_BEFORE);
		return;
	}
	s->periods++;
	if (!pl_policy_probe_rate(&s->probe, p->o.target_loss > 0 ? p->o.target_loss : NAN,
				  &s->rate[s->phase - 1])) {
		if (s->periods < PERIODS_MAX)
			return;
		pl_policy_note(p, PL_NONE, "%s: %u losses in %u periods are too few for a search",
			       p->o.kind->name, s->probe.n, s->periods);
		end_search(p, a);
	} else if (s->phase == PL_POLICY_AFTER) {
		compare(p, a, most);
	} else {
		begin_probe(p, s, (int)s->phase + 1);
	}
}
