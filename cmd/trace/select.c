/* The options that choose events: lists of numbers, a window of time. */
#include <stdlib.h>
#include <string.h>

#include "program.h"

#define MAX_RANKS 1000000

static int parse_ranks(struct selection *s, const struct pl_list *l, struct pl_err *err)
{
	int64_t *pair = NULL;
	size_t n = 0, cap = 0;
	int rc;

	PL_TRY(pl_parse_ranges(l, "rank", &pair, &n, err));
	for (size_t i = 0; i < n; i++) {
		int64_t lo = pair[2 * i], hi = pair[2 * i + 1];

		if (lo < 0 || hi - lo >= MAX_RANKS || hi > INT32_MAX) {
			rc = pl_fail(err, PL_EUSAGE, "--rank: %lld-%lld is out of range",
				     (long long)lo, (long long)hi);
			goto out;
		}
		PL_TRY(pl_grow(&s->rank, &cap, s->f.n_ranks + (size_t)(hi - lo) + 1,
			       sizeof(*s->rank), err));
		for (; lo <= hi; lo++)
			s->rank[s->f.n_ranks++] = (int32_t)lo;
	}
	s->f.rank = s->rank;
out:
	pl_free(pair);
	return rc;
}

static int parse_steps(struct selection *s, const struct pl_list *l, struct pl_err *err)
{
	size_t n = 0;
	int rc = pl_parse_ranges(l, "step", &s->step, &n, err);

	s->f.n_steps = (uint32_t)n;
	s->f.step = s->step;
	return rc;
}

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
	PL_CHECK(parse_ranks(s, &c->rank, err));
	PL_CHECK(parse_steps(s, &c->step, err));
	if (c->time)
		PL_CHECK(parse_window(s, c->time, err));
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
