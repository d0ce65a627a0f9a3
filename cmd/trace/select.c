/* The options that choose events: lists of numbers, a window of time. */
#include "program.h"

static int parse_window(struct selection *s, const char *text, struct pl_err *err)
{
	const char *dots = strstr(text, "..");
	char from[64];
	int rc = 0;

	if (!dots || (size_t)(dots - text) >= sizeof(from))
		return pl_fail(err, PL_EUSAGE, "--time: \"%s\" is not FROM..TO (like 100ms..1.5s)",
			       text);
	memcpy(from, text, (size_t)(dots - text));
	from[dots - text] = '\0';
	s->f.has_time = true;
	s->f.t0 = INT64_MIN;
	s->f.t1 = INT64_MAX;
	if (from[0])
		rc = pl_parse_time(from, &s->f.t0, err);
	if (rc == 0 && dots[2])
		rc = pl_parse_time(dots + 2, &s->f.t1, err);
	if (rc < 0)
		return pl_wrap(err, "--time");
	if (s->f.t1 < s->f.t0)
		return pl_fail(err, PL_EUSAGE, "--time: \"%s\" is empty", text);
	return 0;
}

int selection_parse(struct selection *s, const struct config *c, struct pl_err *err)
{
	size_t n_ranks = 0, n_steps = 0;
	struct pl_err why = { 0 };

	PL_CHECK(pl_parse_ranges(&c->rank, "rank", &s->rank, &n_ranks, err));
	PL_CHECK(pl_parse_ranges(&c->step, "step", &s->step, &n_steps, err));
	for (size_t i = 0; i < n_ranks; i++)
		if (s->rank[2 * i] < 0 || s->rank[2 * i + 1] > INT32_MAX)
			return pl_fail(err, PL_EUSAGE, "--rank: %lld-%lld is out of range",
				       (long long)s->rank[2 * i], (long long)s->rank[2 * i + 1]);
	s->f.rank = s->rank;
	s->f.n_ranks = (uint32_t)n_ranks;
	s->f.step = s->step;
	s->f.n_steps = (uint32_t)n_steps;
	if (c->time)
		PL_CHECK(parse_window(s, c->time, err));
	if (pl_trace_kind_check(c->kind, false, &why) < 0)
		return pl_fail(err, PL_EUSAGE, "--kind: %s", why.msg);
	s->f.kind = c->kind;
	s->f.name = c->name;
	s->any = s->f.n_ranks || s->f.n_steps || s->f.has_time || c->kind || c->name;
	return 0;
}

void selection_fini(struct selection *s)
{
	pl_free(s->rank);
	pl_free(s->step);
}
