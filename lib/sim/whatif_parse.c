/*
 * What-if: the schema of the statements, and the parser. paceline-replay(1), section WHAT-IF, gives
 * the meaning of the statements.
 */
#include <string.h>

#include "sim/whatif.h"

#define FACTOR_MAX 1e6

/* ---- schema ---------------------------------------------------------------------------------- */

#define NEED			   PL_LANG_NEED
#define PICK(key, kind, what, ...) PL_LANG_FIELD(key, kind, PL_LANG_KEY, what, __VA_ARGS__)
/* Which operations: the keys in the order of enum key, then the word for all. */
#define SELECTOR                                                                                   \
	PICK("kind", GLOB, "kind, or one of comm, compute, gap and all"),                          \
		PICK("name", GLOB, "name of the operation"),                                       \
		PICK("host", GLOB, "name of the host"), PICK("rank", NUMBERS, "rank"),             \
		PICK("stage", NUMBERS, "pipeline stage"),                                          \
		PICK("dp", NUMBERS, "data-parallel rank"),                                         \
		PICK("step", NUMBERS, "step", .min = -0x1p62),                                     \
		PICK("size", SIZES, "bytes of a communication or copy"),                           \
		PICK("layer", NUMBERS, "layer"), PICK("mb", NUMBERS, "microbatch"),                \
		PICK("all", FLAG, "all operations")
#define BY(least, more, what)                                                                      \
	PL_LANG_FIELD("by", REAL, PL_LANG_KEY | (more), what, .min = least, .max = FACTOR_MAX,     \
		      .word = "by")
#define TO(more)                                                                                   \
	PL_LANG_FIELD("to", TIME, PL_LANG_KEY | PL_LANG_SECONDS | (more),                          \
		      "time; without a unit, s", .word = "to")
#define LINK PL_LANG_FIELD("link", NAME, 0, "link of the topology; all if not given")

static const struct pl_lang_row rows[VERBS] = {
	[V_SCALE] = { PL_LANG_ROW("scale", TIMING, "make operations take X times as long", SELECTOR,
				  BY(0, NEED, "factor of the durations")) },
	[V_REMOVE] = { PL_LANG_ROW("remove", TIMING, "make operations take no time", SELECTOR) },
	[V_SET] = { PL_LANG_ROW("set", TIMING, "make operations take a given time", SELECTOR,
				TO(NEED)) },
	[V_FIX] = { PL_LANG_ROW("fix", TIMING,
				"make operations take what is typical of their peers", SELECTOR,
				PL_LANG_FIELD("to", CHOICE, PL_LANG_KEY, "what is typical",
					      .choices = "mean|median", .word = "to")) },
	[V_BANDWIDTH] = { PL_LANG_ROW("bandwidth", TIMING,
				      "make links carry X times as many bytes a second", LINK,
				      BY(1 / FACTOR_MAX, NEED, "factor")) },
	[V_LATENCY] = { PL_LANG_ROW("latency", TIMING,
				    "change what a message takes beside its bytes", LINK,
				    BY(0, 0, "factor"), TO(0)) },
	[V_RANKS] = { PL_LANG_ROW(
		"ranks", TIMING, "change the number of data-parallel workers",
		PL_LANG_FIELD("ranks", INT, NEED, "workers", .min = 1, .max = 1e6)) },
};
const struct pl_lang_schema pl_sim_whatif_schema = {
	.name = "what-if", .version = 1, .row = rows, .n_rows = VERBS
};

/* ---- statements ------------------------------------------------------------------------------ */

static void change_fini(struct pl_change *c)
{
	for (int i = 0; i < KEYS; i++) {
		pl_free(c->pick[i].text);
		pl_free(c->pick[i].range);
	}
	pl_free(c->link);
	pl_free(c->text);
}

/* Kinds are checked, so that a misspelt one is not silently nothing. */
static bool kind_exists(const char *glob)
{
	static const char *const classes[] = { "comm", "compute", "gap", "all" };

	for (size_t i = 0; i < PL_LEN(classes); i++)
		if (pl_glob(glob, classes[i]))
			return true;
	for (unsigned k = 0; k < PL_K_COUNT_; k++)
		if (pl_glob(glob, pl_trace_kind_name(k)))
			return true;
	return false;
}

bool pl_sim_pick_number(const struct pick *p, int64_t v)
{
	return !p->text || pl_lang_in_range(p->range, p->n, v);
}

/* The pattern of key k. */
static int set_pick(struct pick *p, const struct pl_lang_field *f, const char *s,
		    struct pl_err *err)
{
	p->text = pl_strdup(s);
	if (!p->text)
		return pl_fail(err, PL_ENOMEM, "out of memory");
	if (f->type != PL_LANG_NUMBERS && f->type != PL_LANG_SIZES)
		return 0;
	return pl_lang_numbers(p->text, f->type == PL_LANG_SIZES, (int64_t)f->min, &p->range, &p->n,
			       err);
}

static int set_selector(struct pl_change *c, const struct pl_lang_statement *st, struct pl_err *err)
{
	bool any = st->value[KEYS].given;
	int rc = 0;

	for (unsigned k = 0; k < KEYS && rc >= 0; k++)
		if (st->value[k].given) {
			any = true;
			rc = set_pick(&c->pick[k], &st->row->field[k], st->value[k].s, err);
		}
	if (rc >= 0 && !any)
		return pl_fail(err, PL_EDATA,
			       "it does not say of which operations; write all, or "
			       "KEY=PATTERN");
	if (rc >= 0 && c->pick[KEY_KIND].text && !kind_exists(c->pick[KEY_KIND].text))
		return pl_fail(err, PL_EDATA, "no kind matches \"%.100s\"", c->pick[KEY_KIND].text);
	return rc;
}

static int set_change(struct pl_change *c, const struct pl_lang_statement *st, struct pl_err *err)
{
	const struct pl_lang_value *by = pl_lang_get(st, "by"), *to = pl_lang_get(st, "to");
	const struct pl_lang_value *link = pl_lang_get(st, "link");

	c->verb = (enum verb)(st->row - rows);
	if (by)
		c->by = by->r;
	c->factor = c->verb == V_SCALE ? (float)c->by : 1;
	if (c->verb == V_FIX && to)
		c->how = to->i ? TYPICAL_MEDIAN : TYPICAL_MEAN;
	else if (to)
		c->to = to->i;
	if (c->verb == V_REMOVE)
		c->to = 0;
	if (c->verb == V_RANKS)
		c->ranks = (uint32_t)st->value[0].i;
	if (c->verb == V_LATENCY && !by == !to)
		return pl_fail(err, PL_EDATA, "it needs by X or to TIME");
	if (link && !(c->link = pl_strdup(link->s)))
		return pl_fail(err, PL_ENOMEM, "out of memory");
	return verb_on_network(c->verb) ? 0 : set_selector(c, st, err);
}

/* The message, behind the text that it is about and before what may be written. */
static int refuse(const struct pl_lang_reader *r, const char *text, const struct pl_err *why,
		  struct pl_err *err)
{
	struct pl_buf usage = { 0 };
	int rc = why->code;

	if (rc == PL_ENOMEM)
		return pl_fail(err, rc, "%s", why->msg);
	if (r->st.row && pl_lang_usage(&usage, r->st.row, err) < 0)
		return PL_ENOMEM;
	rc = pl_fail(err, PL_EUSAGE, "what-if \"%s\": %s%s%.*s", text, why->msg,
		     usage.n ? "; expected: " : "", (int)usage.n, usage.n ? (char *)usage.p : "");
	pl_buf_fini(&usage);
	return rc;
}

int pl_sim_whatif_add(struct pl_whatif *w, const char *text, struct pl_err *err)
{
	struct pl_change c = { .verb = VERBS, .by = 1, .to = -1 };
	struct pl_lang_reader r;
	struct pl_err why = { 0 };
	int rc = pl_lang_option(&r, &pl_sim_whatif_schema, text, &why);

	if (rc >= 0)
		rc = set_change(&c, &r.st, &why);
	if (rc >= 0 && !(c.text = pl_strdup(text)))
		rc = pl_fail(&why, PL_ENOMEM, "out of memory");
	if (rc >= 0)
		rc = pl_grow(&w->change, &w->cap, w->n + 1, sizeof(*w->change), &why);
	if (rc >= 0)
		w->change[w->n++] = c;
	else
		rc = refuse(&r, text, &why, err);
	if (rc < 0)
		change_fini(&c);
	pl_lang_close(&r);
	return rc < 0 ? rc : 0;
}

void pl_sim_whatif_fini(struct pl_whatif *w)
{
	for (size_t i = 0; i < w->n; i++)
		change_fini(&w->change[i]);
	pl_free(w->change);
	memset(w, 0, sizeof(*w));
}
