/* The options that choose events: lists of numbers, a window of time. */
#include <stdlib.h>
#include <string.h>

#include "program.h"

#define MAX_RANKS 1000000

/* "3" or "3-5" at *p up to a comma or the end; moves *p behind it. */
static int range(const char **p, const char *what, int64_t *lo, int64_t *hi, struct pl_err *err)
{
	char one[64], *dash;
	size_t n = strcspn(*p, ",");
	int rc;

	if (!n || n >= sizeof(one))
		return pl_fail(err, PL_EUSAGE, "--%s: \"%s\" is no list of numbers (like 0,4-7)",
			       what, *p);
	memcpy(one, *p, n);
	one[n] = '\0';
	dash = strchr(one + 1, '-');
	if (dash)
		*dash = '\0';
	rc = pl_parse_int(one, lo, err);
	*hi = *lo;
	if (rc == 0 && dash)
		rc = pl_parse_int(dash + 1, hi, err);
	if (rc < 0)
		return pl_wrap(err, "--%s", what);
	if (*hi < *lo)
		return pl_fail(err, PL_EUSAGE, "--%s: %lld-%lld is empty", what, (long long)*lo,
			       (long long)*hi);
	*p += n;
	*p += **p == ',';
	return 0;
}

static int parse_ranks(struct selection *s, const struct pl_list *l, struct pl_err *err)
{
	size_t cap = 0;
	int rc = 0;

	for (size_t i = 0; i < l->n; i++) {
		const char *p = l->v[i];
		int64_t lo, hi;

		do {
			PL_TRY(range(&p, "rank", &lo, &hi, err));
			if (lo < 0 || hi - lo >= MAX_RANKS || hi > INT32_MAX)
				return pl_fail(err, PL_EUSAGE, "--rank: \"%s\" is out of range",
					       l->v[i]);
			PL_TRY(pl_grow(&s->rank, &cap, s->f.n_ranks + (size_t)(hi - lo) + 1,
				       sizeof(*s->rank), err));
			for (; lo <= hi; lo++)
				s->rank[s->f.n_ranks++] = (int32_t)lo;
		} while (*p);
	}
	s->f.rank = s->rank;
out:
	return rc;
}

static int parse_steps(struct selection *s, const struct pl_list *l, struct pl_err *err)
{
	size_t cap = 0;
	int rc = 0;

	for (size_t i = 0; i < l->n; i++) {
		const char *p = l->v[i];
		int64_t lo, hi;

		do {
			PL_TRY(range(&p, "step", &lo, &hi, err));
			PL_TRY(pl_grow(&s->step, &cap, 2 * (size_t)s->f.n_steps + 2,
				       sizeof(*s->step), err));
			s->step[2 * s->f.n_steps] = lo;
			s->step[2 * s->f.n_steps++ + 1] = hi;
		} while (*p);
	}
	s->f.step = s->step;
out:
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
	int rc;

	PL_TRY(parse_ranks(s, &c->rank, err));
	PL_TRY(parse_steps(s, &c->step, err));
	if (c->time)
		PL_TRY(parse_window(s, c->time, err));
	s->f.kind = c->kind;
	s->f.name = c->name;
	s->any = s->f.n_ranks || s->f.n_steps || s->f.has_time || c->kind || c->name;
out:
	return rc;
}

void selection_fini(struct selection *s)
{
	pl_free(s->rank);
	pl_free(s->step);
}
