/*
 * What-if: from text to statements. The grammar is in paceline-replay(1), section WHAT-IF.
 *
 * Names of operations may hold anything, so nothing is quoted: what follows a selector is looked
 * for from the end, and a comma ends a pattern only where another key follows.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/cmd.h"
#include "sim/whatif.h"

#define FACTOR_MAX 1e6
#define RANKS_MAX  1000000

static const char *const key_name[KEYS] = {
	[KEY_KIND] = "kind",   [KEY_NAME] = "name", [KEY_HOST] = "host", [KEY_RANK] = "rank",
	[KEY_STAGE] = "stage", [KEY_DP] = "dp",	    [KEY_STEP] = "step", [KEY_SIZE] = "size",
	[KEY_LAYER] = "layer", [KEY_MB] = "mb",
};

#define SELECTOR                                                                                   \
	", where SELECTOR is \"all\" or KEY=PATTERN[,KEY=PATTERN]... with KEY kind, name, rank, "  \
	"host, stage, dp, step, size, layer or mb"

static const struct {
	const char *word, *grammar;
} verbs[VERBS] = {
	[V_SCALE] = { "scale", "scale SELECTOR by X" SELECTOR },
	[V_REMOVE] = { "remove", "remove SELECTOR" SELECTOR },
	[V_SET] = { "set", "set SELECTOR to TIME" SELECTOR },
	[V_FIX] = { "fix", "fix SELECTOR [to mean|median]" SELECTOR },
	[V_BANDWIDTH] = { "bandwidth", "bandwidth [LINK] by X" },
	[V_LATENCY] = { "latency", "latency [LINK] by X, or latency [LINK] to TIME" },
	[V_RANKS] = { "ranks", "ranks N" },
};

static int bad(struct pl_err *err, const struct pl_change *c, const char *why)
{
	return pl_fail(err, PL_EUSAGE, "what-if \"%s\": %s; expected: %s", c->text, why,
		       c->verb < VERBS ? verbs[c->verb].grammar
				       : "scale SELECTOR by X, remove SELECTOR, set SELECTOR to "
					 "TIME, fix SELECTOR [to mean|median], bandwidth [LINK] by "
					 "X, latency [LINK] by X|to TIME, or ranks N");
}

static int no_memory(struct pl_err *err)
{
	return pl_fail(err, PL_ENOMEM, "out of memory");
}

static void change_fini(struct pl_change *c)
{
	for (int i = 0; i < KEYS; i++) {
		pl_free(c->pick[i].text);
		pl_free(c->pick[i].alt);
	}
	pl_free(c->link);
	pl_free(c->text);
}

static char *trim(char *s)
{
	size_t n;

	while (*s == ' ')
		s++;
	for (n = strlen(s); n && s[n - 1] == ' ';)
		s[--n] = '\0';
	return s;
}

/* ---- selectors ------------------------------------------------------------------------------- */

/* Kinds are checked, so that a misspelt one is not silently nothing. */
static bool kind_exists(const char *glob)
{
	static const char *const classes[] = { "comm", "compute", "gap", "all" };

	for (size_t i = 0; i < PL_LEN(classes); i++)
		if (pl_glob(glob, classes[i]))
			return true;
	for (unsigned k = 0; k < PL_K_COUNT_; k++)
		if (pl_glob(glob, pl_kind_name(k)))
			return true;
	return false;
}

/* A comma separates keys only where a "key=" follows: names of kernels hold commas. */
static char *selector_end(char *s)
{
	for (char *p = s; (p = strchr(p, ',')); p++)
		for (int k = 0; k < KEYS; k++)
			if (!strncmp(p + 1, key_name[k], strlen(key_name[k])) &&
			    p[1 + strlen(key_name[k])] == '=')
				return p;
	return NULL;
}

static bool whole_number(const char *s, enum key k, int64_t *v)
{
	struct pl_err ignore = { 0 };
	char *end;

	if (k == KEY_SIZE)
		return *s && pl_parse_size(s, v, &ignore) == 0 && *v >= 0;
	errno = 0;
	*v = strtoll(s, &end, 10);
	return *s && !strchr(" \t+", *s) && !*end && !errno;
}

/* One alternative, which `s` is cut to. */
static int parse_alt(struct pl_change *c, enum key k, char *s, struct pl_err *err)
{
	struct alt a = { .lo = k == KEY_STEP ? INT64_MIN + 1 : 0, .hi = INT64_MAX };
	char *dots = strstr(s, "..");
	struct pick *p = &c->pick[k];
	int rc;

	if (dots) {
		*dots = '\0';
		if ((!*s && !dots[2]) || (*s && !whole_number(s, k, &a.lo)) ||
		    (dots[2] && !whole_number(dots + 2, k, &a.hi)))
			return bad(err, c, "a range is not of numbers a..b");
		if (a.lo > a.hi)
			return bad(err, c, "a range ends before it begins");
	} else if (whole_number(s, k, &a.lo)) {
		a.hi = a.lo;
	} else if (k == KEY_SIZE) {
		return bad(err, c, "a size is not a number of bytes or a range");
	} else {
		a.glob = s;
	}
	rc = pl_grow(&p->alt, &p->cap, p->n + 1, sizeof(*p->alt), err);
	if (rc == 0)
		p->alt[p->n++] = a;
	return rc;
}

static int parse_pattern(struct pl_change *c, enum key k, const char *s, struct pl_err *err)
{
	int rc = 0;

	if (k == KEY_KIND && !kind_exists(s))
		return bad(err, c, "no kind matches");
	c->pick[k].text = pl_strdup(s);
	if (!c->pick[k].text)
		return no_memory(err);
	if (k == KEY_KIND || k == KEY_NAME || k == KEY_HOST)
		return 0;
	for (char *p = c->pick[k].text, *next; rc == 0 && p; p = next) {
		next = strchr(p, '|');
		if (next)
			*next++ = '\0';
		rc = parse_alt(c, k, p, err);
	}
	return rc;
}

static enum key find_key(const char *s)
{
	enum key k = 0;

	while (k < KEYS && strcmp(s, key_name[k]))
		k++;
	return k;
}

static int parse_selector(struct pl_change *c, char *s, struct pl_err *err)
{
	int rc;

	while (s) {
		char *end = selector_end(s), *eq;
		enum key k;

		if (end)
			*end++ = '\0';
		if (!strcmp(s, "all")) {
			s = end;
			continue;
		}
		eq = strchr(s, '=');
		if (!eq)
			return bad(err, c, "a selector lacks '='");
		*eq++ = '\0';
		k = find_key(s);
		if (k >= KEYS)
			return bad(err, c, "unknown key");
		if (c->pick[k].text)
			return bad(err, c, "a key is given twice");
		if ((rc = parse_pattern(c, k, eq, err)) < 0)
			return rc;
		s = end;
	}
	return 0;
}

bool sim_pick_number(const struct pick *p, int64_t v)
{
	char text[24] = "";

	if (!p->text)
		return true;
	for (size_t i = 0; i < p->n; i++) {
		const struct alt *a = &p->alt[i];

		if (!a->glob) {
			if (v >= a->lo && v <= a->hi)
				return true;
			continue;
		}
		if (!*text)
			snprintf(text, sizeof(text), "%lld", (long long)v);
		if (pl_glob(a->glob, text))
			return true;
	}
	return false;
}

/* ---- statements ------------------------------------------------------------------------------ */

/* Cut `s`, which begins with a blank, before its last " by " or " to "; what follows, or NULL. */
static char *cut_last(char *s, const char *word)
{
	char *at = NULL;

	for (char *p = s; (p = strstr(p, word)); p++)
		at = p;
	if (!at)
		return NULL;
	*at = '\0';
	return trim(at + strlen(word));
}

static int parse_factor(const struct pl_change *c, const char *s, bool zero, double *v,
			struct pl_err *err)
{
	struct pl_err ignore = { 0 };

	if (pl_parse_real(s, v, &ignore) < 0)
		return bad(err, c, "the factor is not a number");
	if (*v < (zero ? 0 : 1 / FACTOR_MAX) || *v > FACTOR_MAX)
		return bad(err, c,
			   zero ? "the factor is not between 0 and 1e6"
				: "the factor is not between 1e-6 and 1e6");
	return 0;
}

static int parse_to(struct pl_change *c, const char *s, struct pl_err *err)
{
	struct pl_err ignore = { 0 };

	if (pl_parse_time(s, &c->to, &ignore) < 0)
		return bad(err, c, "the time is not like 25us");
	return c->to < 0 ? bad(err, c, "the time is negative") : 0;
}

static int parse_scale(struct pl_change *c, char *s, struct pl_err *err)
{
	char *x = cut_last(s, " by ");
	double f;
	int rc;

	if (!x)
		return bad(err, c, "lacks \"by X\"");
	if ((rc = parse_factor(c, x, true, &f, err)) < 0)
		return rc;
	c->factor = (float)f;
	return parse_selector(c, trim(s), err);
}

static int parse_remove(struct pl_change *c, char *s, struct pl_err *err)
{
	c->to = 0;
	return parse_selector(c, trim(s), err);
}

static int parse_set(struct pl_change *c, char *s, struct pl_err *err)
{
	char *x = cut_last(s, " to ");
	int rc;

	if (!x)
		return bad(err, c, "lacks \"to TIME\"");
	rc = parse_to(c, x, err);
	return rc < 0 ? rc : parse_selector(c, trim(s), err);
}

/* A name may hold " to ": only mean and median are no part of it. */
static int parse_fix(struct pl_change *c, char *s, struct pl_err *err)
{
	static const char *const end[] = {
		[TYPICAL_MEAN] = " to mean", [TYPICAL_MEDIAN] = " to median"
	};
	size_t n = strlen(s);

	for (enum typical_how how = TYPICAL_MEAN; how < TYPICAL_HOWS; how++) {
		size_t k = strlen(end[how]);

		if (n < k || strcmp(s + n - k, end[how]) != 0)
			continue;
		s[n - k] = '\0';
		c->how = how;
		break;
	}
	return parse_selector(c, trim(s), err);
}

static int parse_link(struct pl_change *c, const char *s, struct pl_err *err)
{
	if (!*s)
		return 0;
	c->link = pl_strdup(s);
	return c->link ? 0 : no_memory(err);
}

static int parse_bandwidth(struct pl_change *c, char *s, struct pl_err *err)
{
	char *x = cut_last(s, " by ");
	int rc;

	if (!x)
		return bad(err, c, "lacks \"by X\"");
	rc = parse_factor(c, x, false, &c->by, err);
	return rc < 0 ? rc : parse_link(c, trim(s), err);
}

static int parse_latency(struct pl_change *c, char *s, struct pl_err *err)
{
	char *x = cut_last(s, " by ");
	int rc;

	if (x) {
		rc = parse_factor(c, x, true, &c->by, err);
	} else {
		x = cut_last(s, " to ");
		rc = x ? parse_to(c, x, err) : bad(err, c, "lacks \"by X\" or \"to TIME\"");
	}
	return rc < 0 ? rc : parse_link(c, trim(s), err);
}

static int parse_ranks(struct pl_change *c, char *s, struct pl_err *err)
{
	struct pl_err ignore = { 0 };
	int64_t n;

	if (pl_parse_int(trim(s), &n, &ignore) < 0)
		return bad(err, c, "N is not a whole number");
	if (n < 1 || n > RANKS_MAX)
		return bad(err, c, "N is not between 1 and 1000000");
	c->ranks = (uint32_t)n;
	return 0;
}

static int parse(struct pl_change *c, char *s, struct pl_err *err)
{
	static int (*const rest[VERBS])(struct pl_change *, char *, struct pl_err *) = {
		[V_SCALE] = parse_scale,     [V_REMOVE] = parse_remove,
		[V_SET] = parse_set,	     [V_FIX] = parse_fix,
		[V_RANKS] = parse_ranks,     [V_BANDWIDTH] = parse_bandwidth,
		[V_LATENCY] = parse_latency,
	};
	char *blank;

	s = trim(s);
	blank = s + strcspn(s, " ");
	for (enum verb v = 0; v < VERBS; v++) {
		size_t n = strlen(verbs[v].word);

		if ((size_t)(blank - s) != n || memcmp(s, verbs[v].word, n) != 0)
			continue;
		c->verb = v;
		return rest[v](c, blank, err);
	}
	return bad(err, c, "does not begin with a word that is known");
}

int pl_whatif_add(struct pl_whatif *w, const char *text, struct pl_err *err)
{
	struct pl_change c = { .verb = VERBS, .factor = 1, .by = 1, .to = -1 };
	char *copy = pl_strdup(text);
	int rc;

	c.text = pl_strdup(text);
	if (copy && c.text)
		rc = parse(&c, copy, err);
	else
		rc = no_memory(err);
	if (rc >= 0)
		rc = pl_grow(&w->change, &w->cap, w->n + 1, sizeof(*w->change), err);
	if (rc >= 0)
		w->change[w->n++] = c;
	else
		change_fini(&c);
	pl_free(copy);
	return rc;
}

void pl_whatif_fini(struct pl_whatif *w)
{
	for (size_t i = 0; i < w->n; i++)
		change_fini(&w->change[i]);
	pl_free(w->change);
	memset(w, 0, sizeof(*w));
}
