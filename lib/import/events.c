/*
 * One event of a Chrome trace: text into fields and columns, in one pass.
 *
 * Events of one kind have the same keys in the same order. So each key stores up to four keys that
 * came after it, and the next key is compared with these before it is searched. One comparison of
 * 16 bytes recognises `"ts": ` without a search for its closing quote or hashing. The value then
 * goes directly into its column. Nothing is allocated for an event whose keys are known.
 *
 * Measured on profiles of PyTorch, one core: see bench/. The top level and the arguments are two
 * key spaces; a counter's arguments are a third, because there they are the values.
 */
#include "import/internal.h"

/* ---- keys ---------------------------------------------------------------------------------- */

static uint8_t code_of(uint8_t space, const char *s, size_t n)
{
	static const char *const top[] = {
		[PL_TOP_PH] = "ph",   [PL_TOP_CAT] = "cat",	[PL_TOP_NAME] = "name",
		[PL_TOP_PID] = "pid", [PL_TOP_TID] = "tid",	[PL_TOP_TS] = "ts",
		[PL_TOP_DUR] = "dur", [PL_TOP_ARGS] = "args",	[PL_TOP_ID] = "id",
		[PL_TOP_ID2] = "id2", [PL_TOP_SCOPE] = "scope",
	};
	static const struct {
		const char *key;
		uint8_t code;
	} arg[] = {
		/* and those without a role */
		{ "Process Group Description", PL_A_DESC },
		{ "Collective name", PL_R_COLL },
		{ "device", PL_A_DEVICE },
		{ "step", PL_R_STEP },
		{ "microbatch", PL_R_MB },
		{ "layer", PL_R_LAYER },
		{ "name", PL_A_NAME },
		{ "labels", PL_A_LABELS },
		{ "sort_index", PL_A_SORT },
	};

	if (space == PL_KS_TOP) {
		for (size_t i = 1; i < PL_LEN(top); i++)
			if (strlen(top[i]) == n && !memcmp(top[i], s, n))
				return (uint8_t)i;
	} else if (space == PL_KS_ARG) {
		for (size_t i = 0; i < PL_LEN(arg); i++)
			if (strlen(arg[i].key) == n && !memcmp(arg[i].key, s, n))
				return arg[i].code;
		return (uint8_t)pl_trace_role_of_key(s, n, PL_V_COUNT_);
	}
	return 0;
}

#define NEVER 0x10000u /* a bit that no comparison of 16 bytes sets */

static struct pl_key *key_new(struct pl_ev *e)
{
	struct pl_key *k = pl_arena_take(&e->key_mem, sizeof(*k));

	if (!k) {
		e->rc = pl_fail(e->err, PL_ENOMEM, "out of memory (keys)");
		return NULL;
	}
	memset(k, 0, sizeof(*k));
	k->m0 = NEVER;
	k->id = PL_NONE;
	return k;
}

/* tmp: one byte of key space, then the key. */
static struct pl_key *key_get(struct pl_ev *e, uint8_t space)
{
	const char *s = (const char *)e->tmp.p;
	size_t n = e->tmp.n - 1;
	struct pl_key *k;
	pl_id id;

	if ((e->rc = pl_intern_add(&e->key_text, s, n + 1, &id, e->err)) < 0)
		return NULL;
	if (id < e->n_keys)
		return e->key[id];
	e->rc = pl_grow(&e->key, &e->cap_keys, (size_t)id + 1, sizeof(*e->key), e->err);
	if (e->rc < 0)
		return NULL;
	k = key_new(e);
	if (!k)
		return NULL;
	k->space = space;
	k->code = code_of(space, s + 1, n);
	k->index = id;
	k->len = (uint32_t)n + 1;
	if (n < sizeof(k->text) && !memchr(s + 1, '\\', n) && !memchr(s + 1, '"', n)) {
		memcpy(k->text, s + 1, n);
		k->text[n] = '"';
		k->m0 = k->len >= 16 ? 0xffff : (1u << k->len) - 1;
		k->m1 = k->len > 16 ? (uint32_t)(((uint64_t)1 << (k->len - 16)) - 1) : 0;
	}
	e->key[e->n_keys++] = k;
	return k;
}

static inline bool matches(const struct pl_key *k, const char *p)
{
#if PL_SSE2
	__m128i a = _mm_loadu_si128((const __m128i *)(const void *)p);
	__m128i b = _mm_loadu_si128((const __m128i *)(const void *)k->text);
	unsigned m = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(a, b));

	if ((m & k->m0) != k->m0)
		return false;
	if (!k->m1)
		return true;
	a = _mm_loadu_si128((const __m128i *)(const void *)(p + 16));
	b = _mm_loadu_si128((const __m128i *)(const void *)(k->text + 16));
	m = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(a, b));
	return (m & k->m1) == k->m1;
#else
	return k->m0 != NEVER && !memcmp(p, k->text, k->len);
#endif
}

/* The key at *p (after its opening quote), not among those expected after `prev`. */
static struct pl_key *key_search(struct pl_ev *e, struct pl_key *prev, uint8_t space,
				 const char **p, const char *end)
{
	unsigned flags;
	const char *q = pl_scan_string(*p, end, &flags);
	uint8_t tag = (uint8_t)('0' + space);
	struct pl_key *k;
	size_t n = (size_t)(q - *p);

	if (q >= end) {
		e->more = true;
		return NULL;
	}
	if (flags & PL_S_NEWLINE || n > 4096) {
		pl_import_event_bad(e, *p, "key not closed");
		return NULL;
	}
	if (flags & (PL_S_CONTROL | PL_S_HIGH))
		e->tolerated = flags & PL_S_CONTROL ? "control characters in a key" : e->tolerated;
	e->tmp.n = 0;
	if ((e->rc = pl_buf_put(&e->tmp, &tag, 1, e->err)) < 0 ||
	    (e->rc = pl_buf_put(&e->tmp, *p, n, e->err)) < 0)
		return NULL;
	if (flags & PL_S_ESCAPE)
		e->tmp.n = 1 + pl_json_unescape(*p, n, (char *)e->tmp.p + 1);
	k = key_get(e, space);
	if (!k)
		return NULL;
	for (int i = 0; i < PL_NEXT; i++)
		if (prev->next[i] == k)
			goto known; /* a key with escapes, or a long key */
	prev->next[prev->victim++ % PL_NEXT] = k;
known:
	*p = q + 1;
	return k;
}

static inline struct pl_key *key_next(struct pl_ev *e, struct pl_key *prev, uint8_t space,
				      const char **p, const char *end)
{
	for (int i = 0; i < PL_NEXT; i++) {
		struct pl_key *k = prev->next[i];

		if (!k)
			break;
		if (PL_LIKELY(matches(k, *p))) {
			*p += k->len;
			return k;
		}
	}
	return key_search(e, prev, space, p, end);
}

/* ---- values of the top level --------------------------------------------------------------- */

static const char *slow_time(struct pl_ev *e, const char *p, const char *end, pl_ns *ns)
{
	const char *q = p;

	while (q < end && ((*q >= '0' && *q <= '9') || (*q && strchr("+-.eE", *q))))
		q++;
	if (q >= end)
		return pl_import_window_ends(e);
	if (q - p < 4096 && pl_json_time_ns(p, (size_t)(q - p), 1000, ns))
		return q;
	if (*ns != INT64_MAX && *ns != INT64_MIN)
		return pl_import_event_bad(e, p, "a time that is not a number");
	e->value_bad = "a time beyond the range of 2^63 ns (the limit stands for it)";
	return q;
}

/* Microseconds with at most three decimals are the usual form; slow_time() reads all others. */
static const char *time_value(struct pl_ev *e, const char *p, const char *end, pl_ns *ns)
{
	const char *start, *first;
	bool quoted = *p == '"', neg;
	static const unsigned unit[] = { 1000, 100, 10, 1 };
	uint64_t x = 0;
	unsigned n;

	start = p += quoted;
	neg = *p == '-';
	first = p += neg;
	n = pl_scan_digits(p, &x);
	p += n;
	if (n == 8)
		p += pl_scan_digits(p, &x);
	if (PL_UNLIKELY(p == first || x > INT64_MAX / 1000 - 1))
		goto slow;
	n = 0;
	if (*p == '.') {
		n = pl_scan_digits(++p, &x);
		if (PL_UNLIKELY(n > 3))
			goto slow;
		p += n;
	}
	x *= unit[n];
	if (PL_UNLIKELY((unsigned char)(*p - '0') < 10 || (*p | 0x20) == 'e'))
		goto slow;
	if (p >= end)
		return pl_import_window_ends(e);
	*ns = neg ? -(pl_ns)x : (pl_ns)x;
	goto done;
slow:
	p = slow_time(e, start, end, ns);
	if (!p)
		return NULL;
done:
	if (quoted && *p++ != '"')
		return pl_import_event_bad(e, start, "a time that is not a number");
	return p;
}

/* If a duration is negative or no number, only its value is lost, not the event. */
static const char *dur_value(struct pl_ev *e, const char *p, const char *end)
{
	struct pl_fields *f = &e->f;
	const char *q = *p == '"' || *p == '-' || (*p >= '0' && *p <= '9')
				? time_value(e, p, end, &f->dur)
				: NULL;
	size_t n;
	pl_id id;

	if (e->more)
		return NULL;
	f->has_dur = true;
	if (q && f->dur >= 0)
		return q;
	if (q) {
		e->value_bad = "a negative duration (0 stands for it)";
		pl_import_event_number(p + (*p == '"'), end, &f->dur_type, &f->dur_raw,
				       &f->dur_scale);
	} else {
		e->what = NULL;
		e->value_bad = "a duration that is not a number (0 stands for it)";
		f->dur_type = PL_V_COUNT_;
		if (*p == '"')
			q = pl_import_event_string(e, p + 1, end, &id);
		else if ((q = pl_import_event_word(e, p, end, &n)) &&
			 (e->rc = pl_import_rows_str(e->rows, p, n, &id, e->err)) < 0)
			return NULL;
		if (!q)
			return NULL;
		f->dur_type = PL_V_STR;
		f->dur_raw = id;
	}
	f->odd_dur = f->dur_type <= PL_V_STR;
	f->dur = 0;
	return q;
}

/* cat and name; a number or word there is taken as text. */
static const char *text_value(struct pl_ev *e, const char *p, const char *end, pl_id *id)
{
	const char *q;
	size_t n;

	if (PL_LIKELY(*p == '"'))
		return pl_import_event_string(e, p + 1, end, id);
	q = pl_import_event_word(e, p, end, &n);
	if (!q)
		return NULL;
	e->rc = pl_import_rows_str(e->rows, p, n, id, e->err);
	return e->rc < 0 ? NULL : q;
}

static const char *pid_value(struct pl_ev *e, const char *p, const char *end, struct pl_pid *pid)
{
	uint8_t type, scale;
	const char *q;
	pl_id id;

	if (*p != '"') {
		q = pl_import_event_number(p, end, &type, &pid->v, &scale);
		if (q >= end)
			return pl_import_window_ends(e);
		if (PL_LIKELY(type == PL_V_INT)) {
			pid->tok = PL_TOK_INT;
			return q;
		}
	}
	pid->tok = *p == '"' ? PL_TOK_STR : PL_TOK_RAW;
	q = text_value(e, p, end, &id);
	pid->v = id;
	return q;
}

static const char *id_value(struct pl_ev *e, struct pl_key *k, const char *p, const char *end)
{
	struct pl_fields *f = &e->f;
	uint8_t scale;
	const char *q;
	pl_id id;

	if (*p == '"') {
		q = pl_import_event_string(e, p + 1, end, &id);
		f->id = id;
		f->id_type = PL_V_STR;
	} else {
		q = pl_import_event_number(p, end, &f->id_type, &f->id, &scale);
		if (q >= end)
			return pl_import_window_ends(e);
		if (f->id_type != PL_V_INT)
			return pl_import_event_value(e, k, p, end);
	}
	f->has_id = true;
	return q;
}

/* What tells asynchronous events with the same id apart. */
static const char *part_of_id(struct pl_ev *e, struct pl_key *k, const char *p, const char *end,
			      pl_id *id)
{
	const char *q = pl_import_event_value(e, k, p, end);

	if (q && (e->rc = pl_import_rows_str(e->rows, p, (size_t)(q - p), id, e->err)) < 0)
		return NULL;
	return q;
}

static const char *object(struct pl_ev *e, const char *p, const char *end, struct pl_key *prev,
			  uint8_t space);

static const char *args_value(struct pl_ev *e, struct pl_key *k, const char *p, const char *end)
{
	struct pl_fields *f = &e->f;

	if (*p != '{')
		return pl_import_event_value(e, k, p, end);
	if (e->counter || f->ph == 'C') {
		e->counter = true;
		return object(e, p + 1, end, e->root_value, PL_KS_VALUE);
	}
	return object(e, p + 1, end, e->root_arg[f->cat == PL_NONE ? 63 : f->cat & 63], PL_KS_ARG);
}

static const char *top_value(struct pl_ev *e, struct pl_key *k, const char *p, const char *end)
{
	struct pl_fields *f = &e->f;

	switch (k->code) {
	case PL_TOP_PH:
		if (p[0] != '"' || p[1] == '"' || p[2] != '"')
			return p + 2 >= end ? pl_import_window_ends(e)
					    : pl_import_event_bad(e, p, "ph is not one letter");
		f->ph = p[1];
		return p + 3;
	case PL_TOP_CAT:
		return text_value(e, p, end, &f->cat);
	case PL_TOP_NAME:
		return text_value(e, p, end, &f->name);
	case PL_TOP_PID:
		return pid_value(e, p, end, &f->pid);
	case PL_TOP_TID:
		return pid_value(e, p, end, &f->tid);
	case PL_TOP_TS:
		f->has_ts = true;
		return time_value(e, p, end, &f->ts);
	case PL_TOP_DUR:
		return dur_value(e, p, end);
	case PL_TOP_ARGS:
		return args_value(e, k, p, end);
	case PL_TOP_ID:
		return id_value(e, k, p, end);
	case PL_TOP_ID2:
		return part_of_id(e, k, p, end, &f->id2);
	case PL_TOP_SCOPE:
		return part_of_id(e, k, p, end, &f->scope);
	default:
		return pl_import_event_value(e, k, p, end);
	}
}

/* ---- objects ------------------------------------------------------------------------------- */

/* p is after the '{'. */
static const char *object(struct pl_ev *e, const char *p, const char *end, struct pl_key *prev,
			  uint8_t space)
{
	struct pl_key *k;

	for (;;) {
		p = pl_scan_space(p, end);
		if (PL_UNLIKELY(p >= end))
			return pl_import_window_ends(e);
		if (PL_UNLIKELY(*p != '"')) {
			if (*p == '}')
				return p + 1;
			return pl_import_event_bad(e, p, "a key in quotes expected");
		}
		p++;
		k = key_next(e, prev, space, &p, end);
		if (PL_UNLIKELY(!k))
			return NULL;
		p = pl_scan_space(p, end);
		if (PL_UNLIKELY(p >= end))
			return pl_import_window_ends(e);
		if (PL_UNLIKELY(*p != ':'))
			return pl_import_event_bad(e, p, "a colon expected after the key");
		p = pl_scan_space(p + 1, end);
		if (PL_UNLIKELY(p >= end))
			return pl_import_window_ends(e);
		p = space == PL_KS_TOP ? top_value(e, k, p, end)
				       : pl_import_event_value(e, k, p, end);
		if (PL_UNLIKELY(!p))
			return NULL;
		p = pl_scan_space(p, end);
		if (PL_UNLIKELY(p >= end))
			return pl_import_window_ends(e);
		if (*p != ',') {
			if (PL_LIKELY(*p == '}'))
				return p + 1;
			return pl_import_event_bad(
				e, p, "a comma or bracket expected (unescaped quote?)");
		}
		p++;
		prev = k;
	}
}

#define MAX_KEYS 65536

/* Forget all keys: at the start, and when a source has a new key for every event. */
static int keys_reset(struct pl_ev *e)
{
	pl_intern_reset(&e->key_text);
	pl_arena_reset(&e->key_mem);
	e->n_keys = 0;
	e->rc = 0;
	e->root_top = key_new(e);
	e->root_value = key_new(e);
	for (size_t i = 0; i < PL_LEN(e->root_arg); i++)
		e->root_arg[i] = key_new(e);
	return e->rc;
}

void pl_import_event_begin(struct pl_ev *e)
{
	memset(&e->f, 0, offsetof(struct pl_fields, arg));
	e->f.name = e->f.cat = e->f.id2 = e->f.scope = PL_NONE;
	e->what = e->where = e->tolerated = e->value_bad = NULL;
	e->more = false;
	e->rc = 0;
	e->event++;
}

const char *pl_import_event_read(struct pl_ev *e, const char *p, const char *end)
{
	const char *q;

	if (PL_UNLIKELY(e->n_keys > MAX_KEYS && keys_reset(e) < 0))
		return NULL;
	pl_import_event_begin(e);
	e->counter = false;
	q = object(e, p + 1, end, e->root_top, PL_KS_TOP);
	if (PL_UNLIKELY(q && e->f.ph == 'C' && !e->counter)) { /* ph came after the arguments */
		pl_import_rows_undo(e->rows);
		pl_import_event_begin(e);
		e->counter = true;
		q = object(e, p + 1, end, e->root_top, PL_KS_TOP);
	}
	if (PL_UNLIKELY(q && q > end))
		return pl_import_window_ends(e);
	return q;
}

const char *pl_import_event_read_more(struct pl_ev *e, const char *p, const char *end)
{
	const char *tolerated = e->tolerated, *value_bad = e->value_bad, *q;
	struct pl_fields f = e->f;

	q = object(e, p + 1, end, e->root_top, PL_KS_TOP);
	f.have |= e->f.have;
	memcpy(f.arg, e->f.arg, sizeof(f.arg));
	memcpy(f.arg_type, e->f.arg_type, sizeof(f.arg_type));
	e->f = f;
	e->tolerated = tolerated; /* both ends of a pair may have an argument */
	e->value_bad = value_bad;
	return q;
}

/* ---- lifetime ------------------------------------------------------------------------------ */

int pl_import_event_init(struct pl_ev *e, struct pl_rows *rows, struct pl_report *report,
			 struct pl_err *err)
{
	memset(e, 0, sizeof(*e));
	e->rows = rows;
	e->report = report;
	e->err = err;
	if (keys_reset(e) < 0)
		pl_import_event_fini(e);
	else
		pl_import_event_renew(e);
	return e->rc;
}

/* Forget the numbers of strings and columns, because a new segment has others. */
void pl_import_event_renew(struct pl_ev *e)
{
	for (size_t i = 0; i < e->n_keys; i++) {
		e->key[i]->id = PL_NONE;
		memset(e->key[i]->col, 0, sizeof(e->key[i]->col));
	}
	for (size_t i = 0; i < PL_RECENT; i++)
		e->recent[i].len = UINT32_MAX;
	if (e->n_info)
		memset(e->info, 0, e->n_info * sizeof(*e->info));
	e->col_cat = e->col_ph = e->col_step = 0;
	memset(e->col_flow, 0, sizeof(e->col_flow));
}

void pl_import_event_fini(struct pl_ev *e)
{
	pl_intern_fini(&e->key_text);
	pl_arena_fini(&e->key_mem);
	pl_free(e->key);
	pl_free(e->info);
	pl_buf_fini(&e->tmp);
}
