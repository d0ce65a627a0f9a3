/*
 * Values of an event: strings by id, nested values as raw text, exact numbers, unquoted words.
 *
 * A string needs at most two lookups. `recent` is a direct-mapped cache of 1024 strings. An entry
 * holds the first, middle and last eight bytes, which identify a string of up to 24 bytes without
 * reading its text. Other strings are searched in the table of the segment. Traces repeat their
 * strings, so most lookups cost three loads and a multiplication. A nested value ("Input Dims") is
 * one string of JSON text. Its end is found by counting brackets, and its JSON is checked only when
 * the text is first seen.
 */
#include "import/internal.h"
#include "io/write.h"

const char *pl_import_event_bad(struct pl_ev *e, const char *where, const char *what)
{
	e->what = what;
	e->where = where;
	return NULL;
}

static const char *fatal(struct pl_ev *e, int rc)
{
	e->rc = rc;
	return NULL;
}

struct pl_strinfo *pl_import_event_info(struct pl_ev *e, pl_id id)
{
	if (PL_UNLIKELY(id >= e->n_info)) {
		size_t old = e->n_info;

		e->rc = pl_grow(&e->info, &e->cap_info, (size_t)id + 1, sizeof(*e->info), e->err);
		if (e->rc < 0)
			return NULL;
		memset(e->info + old, 0, (e->cap_info - old) * sizeof(*e->info));
		e->n_info = e->cap_info;
	}
	return &e->info[id];
}

/* s has PL_SLACK readable bytes after it. */
static inline int intern(struct pl_ev *e, const char *s, size_t n, pl_id *id)
{
	const uint8_t *p = (const uint8_t *)s;
	uint64_t a = pl_le64_get(p), m = 0, z = 0;
	struct pl_recent *r;

	if (n >= 8) {
		m = pl_le64_get(p + n / 2 - 4);
		z = pl_le64_get(p + n - 8);
	} else {
		a &= ((uint64_t)1 << 8 * n) - 1;
	}
	r = &e->recent[((a * 0x9e3779b97f4a7c15u) ^ (m * 0xc2b2ae3d27d4eb4fu) ^
			((z + n) * 0xd6e8feb86659fd93u)) >>
		       54];
	if (PL_LIKELY(r->len == n && r->a == a && r->m == m && r->z == z) &&
	    (n <= 24 || !memcmp(e->rows->seg.str.str[r->id], s, n))) {
		*id = r->id;
		return 0;
	}
	PL_CHECK(pl_import_rows_str(e->rows, s, n, id, e->err));
	*r = (struct pl_recent){ .a = a, .m = m, .z = z, .len = (uint32_t)n, .id = *id };
	return 0;
}

/* Does a line of an event (`"key":` or a bracket) begin at p? Then a closing quote is missing. */
static bool begins_member(const char *p, const char *end)
{
	p = pl_scan_space(p, end);
	if (*p == '{' || *p == '}')
		return true;
	if (*p != '"')
		return false;
	for (int i = 0; i < 40 && ++p < end && *p != '"' && *p != '\n'; i++)
		;
	return *p == '"' && *pl_scan_space(p + 1, end) == ':';
}

/* Escapes, control characters, bytes above 127: [p, q) is the text between the quotes. */
static const char *odd_string(struct pl_ev *e, const char *p, const char *q, unsigned flags,
			      pl_id *id)
{
	struct pl_json j;
	size_t n = (size_t)(q - p);
	int rc;

	if (flags & PL_S_NEWLINE)
		for (const char *s = p; (s = memchr(s, '\n', (size_t)(q - s))); s++)
			if (begins_member(s + 1, q))
				return pl_import_event_bad(e, p, "string not closed");
	pl_json_init(&j, p - 1, n + 2);
	if (pl_json_next(&j) != PL_JSON_STRING || j.len != n)
		return pl_import_event_bad(e, p, "string not closed");
	if (j.lenient)
		e->tolerated = flags & PL_S_CONTROL ? "control characters in a string"
						    : "bad escapes or UTF-8 in a string";
	e->tmp.n = 0;
	rc = pl_buf_need(&e->tmp, n + 1, e->err);
	if (rc < 0)
		return fatal(e, rc);
	n = flags & PL_S_ESCAPE ? pl_json_unescape(p, n, (char *)e->tmp.p) : n;
	rc = pl_import_rows_str(e->rows, flags & PL_S_ESCAPE ? (const char *)e->tmp.p : p, n, id,
				e->err);
	return rc < 0 ? fatal(e, rc) : q + 1;
}

const char *pl_import_event_string(struct pl_ev *e, const char *p, const char *end, pl_id *id)
{
	unsigned flags;
	const char *q = pl_scan_string(p, end, &flags);
	int rc;

	if (PL_UNLIKELY(q >= end))
		return pl_import_window_ends(e);
	if (PL_UNLIKELY(flags))
		return odd_string(e, p, q, flags, id);
	rc = intern(e, p, (size_t)(q - p), id);
	return PL_UNLIKELY(rc < 0) ? fatal(e, rc) : q + 1;
}

/* ---- nested values ------------------------------------------------------------------------- */

int pl_import_json_repair(const char *s, size_t n, struct pl_buf *b, struct pl_err *err)
{
	struct pl_writer w = { .b = *b };

	pl_write_json(&w, s, n);
	*b = w.b;
	return pl_write_check(&w, err);
}

/* 0 clean, 1 lenient, -1 malformed */
int pl_import_json_check(const char *s, size_t n)
{
	enum pl_json_type t;
	struct pl_json j;

	pl_json_init(&j, s, n);
	while ((t = pl_json_next(&j)) != PL_JSON_END)
		if (t == PL_JSON_ERROR)
			return -1;
	return j.lenient;
}

/* Check a nested text that is new. */
static int judge(struct pl_ev *e, const char *s, size_t n, pl_id id)
{
	int state = pl_import_json_check(s, n);
	pl_id clean = PL_NONE;

	if (state > 0) {
		e->tmp.n = 0;
		PL_CHECK(pl_import_json_repair(s, n, &e->tmp, e->err));
		PL_CHECK(pl_import_rows_str(e->rows, (const char *)e->tmp.p, e->tmp.n, &clean,
					    e->err));
	}
	e->info[id].nested = state < 0 ? 3 : (uint8_t)(state + 1);
	e->info[id].repaired = clean;
	return 0;
}

static const char *nested(struct pl_ev *e, const char *p, const char *end, pl_id *id)
{
	const char *q = pl_scan_nested(p, end);
	struct pl_strinfo *info;
	int rc;

	if (PL_UNLIKELY(q > end))
		return pl_import_window_ends(e);
	rc = intern(e, p, (size_t)(q - p), id);
	if (PL_UNLIKELY(rc < 0))
		return fatal(e, rc);
	info = pl_import_event_info(e, *id);
	if (!info)
		return NULL;
	if (PL_LIKELY(info->nested == 1))
		return q;
	if (!info->nested) {
		rc = judge(e, p, (size_t)(q - p), *id);
		if (rc < 0)
			return fatal(e, rc);
		info = &e->info[*id];
	}
	if (info->nested == 3)
		return pl_import_event_bad(e, p, "malformed array or object");
	if (info->nested == 2) {
		e->tolerated = "an array or object that is not valid JSON";
		*id = info->repaired;
	}
	return q;
}

/* ---- numbers and words --------------------------------------------------------------------- */

#define MAX_SCALE 18 /* decimals of PL_V_DEC */

/* Append the digits at *p to *v, and move *p behind them. */
static inline void take_digits(const char **p, const char *end, uint64_t *v)
{
	unsigned n;

	do
		*p += n = pl_scan_digits(*p, v);
	while (PL_UNLIKELY(n == 8) && *p < end);
}

/* *type is PL_V_COUNT_ if there is no number at p. Up to 18 digits fit in 64 bits. */
const char *pl_import_event_number(const char *p, const char *end, uint8_t *type, int64_t *v,
				   uint8_t *scale)
{
	const char *start = p, *first, *dot = NULL;
	uint64_t x = 0;
	bool neg = *p == '-';

	first = p += neg;
	*scale = 0;
	*type = PL_V_INT;
	take_digits(&p, end, &x);
	if (p == first || (*first == '0' && p - first > 1))
		goto none;
	if (*p == '.') {
		dot = ++p;
		take_digits(&p, end, &x);
		if (p == dot)
			goto none;
		*type = p - dot > MAX_SCALE ? PL_V_JSON : PL_V_DEC;
		*scale = (uint8_t)(p - dot);
	}
	if (PL_UNLIKELY((*p | 0x20) == 'e')) {
		const char *exp;

		p++;
		p += *p == '-' || *p == '+';
		for (exp = p; p < end && (unsigned char)(*p - '0') < 10;)
			p++;
		if (p == exp)
			goto none;
		*type = PL_V_JSON;
	}
	*v = (int64_t)(neg ? 0 - x : x);
	if (PL_UNLIKELY(p - first > 18 || (neg && !x))) { /* exact, or kept as text */
		int wide;

		if (*type == PL_V_INT &&
		    (!pl_json_i64(start, (size_t)(p - start), v) || (neg && !x)))
			*type = PL_V_JSON;
		if (*type == PL_V_DEC &&
		    (!pl_json_decimal(start, (size_t)(p - start), v, &wide) || (neg && !*v)))
			*type = PL_V_JSON;
	}
	return p;
none:
	*type = PL_V_COUNT_;
	return start;
}

/* A word without quotes: up to a comma, a bracket or white space. */
const char *pl_import_event_word(struct pl_ev *e, const char *p, const char *end, size_t *n)
{
	const char *q = p;

	while (q < end && (unsigned char)*q > ' ' && *q != ',' && *q != '}' && *q != ']' &&
	       *q != '"' && *q != '{' && *q != '[' && *q != ':')
		q++;
	if (q >= end)
		return pl_import_window_ends(e);
	*n = (size_t)(q - p);
	return *n && *n <= 64 ? q : pl_import_event_bad(e, p, "value expected");
}

static const char *word(struct pl_ev *e, const char *p, const char *end, uint8_t *type, int64_t *v)
{
	size_t n;
	const char *q = pl_import_event_word(e, p, end, &n);
	pl_id id;
	int rc;

	if (!q)
		return NULL;
	*v = 0;
	if ((n == 4 && !memcmp(p, "true", 4)) || (n == 5 && !memcmp(p, "false", 5))) {
		*type = PL_V_BOOL;
		*v = n == 4;
		return q;
	}
	if (n == 4 && !memcmp(p, "null", 4)) {
		*type = PL_V_NULL;
		return q;
	}
	e->tolerated = "a bare word where a value belongs (inf, nan ...)";
	rc = pl_import_rows_str(e->rows, p, n, &id, e->err);
	*type = PL_V_STR;
	*v = id;
	return rc < 0 ? fatal(e, rc) : q;
}

/* ---- into columns -------------------------------------------------------------------------- */

/* Of a step, as -O chrome writes those whose name does not say their number. */
static bool is_step(const struct pl_ev *e)
{
	const struct pl_intern *str = &e->rows->seg.str;
	pl_id cat = e->f.cat;

	return cat != PL_NONE && str->len[cat] == 4 && !memcmp(pl_intern_get(str, cat), "step", 4);
}

static uint8_t role_of(const struct pl_ev *e, const struct pl_key *k, uint8_t type)
{
	if (k->space == PL_KS_TOP)
		return PL_R_TOP;
	if (k->space == PL_KS_VALUE)
		return type == PL_V_INT || type == PL_V_DEC ? PL_R_VALUE : PL_R_ARG;
	/* only in general JSON: the "step" of Kineto may be anything */
	if (e->chrome && type == PL_V_INT &&
	    (k->code == PL_R_STEP || k->code == PL_R_MB || k->code == PL_R_LAYER))
		return k->code;
	return (uint8_t)pl_trace_role_of_key(e->key_text.str[k->index] + 1,
					     e->key_text.len[k->index] - 1, type);
}

/* "Collective name" gets its role if its word is one of ours, else it is an argument. */
static int put_coll(struct pl_ev *e, struct pl_key *k, pl_id id)
{
	const struct pl_intern *str = &e->rows->seg.str;
	const char *s = pl_intern_get(str, id), *coll = pl_trace_coll_from_name(s, str->len[id]);
	uint8_t role = coll && !strcmp(coll, s) ? PL_R_COLL : PL_R_ARG;

	pl_import_rows_put(e->rows, role, PL_V_STR, k->id, id);
	return e->rows->rc;
}

/* PL_ESTOP: the event has too many members. */
static int put(struct pl_ev *e, struct pl_key *k, uint8_t type, int64_t v, uint8_t scale)
{
	uint32_t index = k->col[type];
	int rc;

	if (PL_UNLIKELY(k->event == e->event)) {
		e->tolerated = "a key twice in one object (the first counts)";
		return 0;
	}
	k->event = e->event;
	if (PL_UNLIKELY(k->code == PL_R_STEP && k->space == PL_KS_ARG && type == PL_V_INT) &&
	    !e->chrome && is_step(e)) {
		pl_import_rows_put(e->rows, PL_R_STEP, type, PL_NONE, v);
		return e->rows->rc;
	}
	if (PL_UNLIKELY(!index)) {
		if (e->rows->n_defs >= PL_MAX_MEMBERS) {
			e->what = "an event of more than 60000 members";
			return PL_ESTOP;
		}
		if (k->id == PL_NONE &&
		    (rc = pl_import_rows_str(e->rows, e->key_text.str[k->index] + 1,
					     e->key_text.len[k->index] - 1, &k->id, e->err)) < 0)
			return rc;
		if (k->code == PL_R_COLL && k->space == PL_KS_ARG && type == PL_V_STR)
			return put_coll(e, k, (pl_id)v);
		PL_CHECK(pl_import_rows_col(e->rows, role_of(e, k, type), type, k->id, &index,
					    e->err));
		k->col[type] = ++index;
	}
	return pl_trace_col_put(&e->rows->cur->b.col[index - 1], e->rows->cur->b.n, v, scale,
				e->err);
}

const char *pl_import_event_value(struct pl_ev *e, struct pl_key *k, const char *p, const char *end)
{
	uint8_t type, scale = 0;
	const char *q;
	int64_t v = 0;
	pl_id id;
	int rc;

	if (*p == '"') {
		type = PL_V_STR;
		q = pl_import_event_string(e, p + 1, end, &id);
		v = id;
	} else if (*p == '[' || *p == '{') {
		type = PL_V_JSON;
		q = nested(e, p, end, &id);
		v = id;
	} else {
		q = pl_import_event_number(p, end, &type, &v, &scale);
		if (PL_UNLIKELY(q >= end))
			return pl_import_window_ends(e);
		if (PL_UNLIKELY(type == PL_V_COUNT_)) {
			q = word(e, p, end, &type, &v);
		} else if (PL_UNLIKELY(type == PL_V_JSON)) {
			rc = pl_import_rows_str(e->rows, p, (size_t)(q - p), &id, e->err);
			if (rc < 0)
				return fatal(e, rc);
			v = id;
		}
	}
	if (PL_UNLIKELY(!q))
		return NULL;
	if (k->code && k->space == PL_KS_ARG && k->event != e->event) {
		e->f.have |= (uint64_t)1 << k->code;
		e->f.arg[k->code] = v;
		e->f.arg_type[k->code] = type;
	}
	rc = put(e, k, type, v, scale);
	if (PL_LIKELY(rc >= 0))
		return q;
	return rc == PL_ESTOP ? NULL : fatal(e, rc);
}
