/* Trees of values, and JSON as one. */
#include "io/tree.h"
#include "io/json.h"

struct pl_tree *pl_tree_new(struct pl_arena *a, enum pl_tree_type type, struct pl_err *err)
{
	struct pl_tree *t = pl_arena_take(a, sizeof(*t));

	if (!t) {
		pl_fail(err, PL_ENOMEM, "out of memory (document)");
		return NULL;
	}
	memset(t, 0, sizeof(*t));
	t->type = (uint8_t)type;
	return t;
}

/* Twice the room when it is full: the old one stays in the arena, at most as much again. */
int pl_tree_add(struct pl_arena *a, struct pl_tree *to, struct pl_tree *item, struct pl_err *err)
{
	struct pl_tree **v;

	if (to->n == to->cap) {
		uint32_t cap = to->cap ? 2 * to->cap : 4;

		if (cap < to->cap)
			return pl_fail(err, PL_ELIMIT, "a list of more than %u items", to->cap);
		PL_CHECK(pl_arena_array(a, &v, cap, sizeof(struct pl_tree *), err));
		if (to->n)
			memcpy(v, to->v, to->n * sizeof(*v));
		to->v = v;
		to->cap = cap;
	}
	to->v[to->n++] = item;
	return 0;
}

const struct pl_tree *pl_tree_get(const struct pl_tree *t, const char *key)
{
	size_t n = strlen(key);

	for (size_t i = 0; t && t->type == PL_TREE_DICT && i + 1 < t->n; i += 2)
		if (t->v[i]->type == PL_TREE_TEXT && t->v[i]->n == n && !memcmp(t->v[i]->s, key, n))
			return t->v[i + 1];
	return NULL;
}

const struct pl_tree *pl_tree_item(const struct pl_tree *t, size_t i)
{
	return i < pl_tree_count(t) ? t->v[i] : NULL;
}

size_t pl_tree_count(const struct pl_tree *t)
{
	return t && t->type == PL_TREE_LIST ? t->n : 0;
}

int64_t pl_tree_int(const struct pl_tree *t, int64_t none)
{
	int64_t v;

	if (t && (t->type == PL_TREE_INT || t->type == PL_TREE_BOOL))
		return t->i;
	return t && t->type == PL_TREE_TEXT && pl_json_i64(t->s, t->n, &v) ? v : none;
}

const char *pl_tree_text(const struct pl_tree *t, size_t *n)
{
	*n = t && t->type == PL_TREE_TEXT ? t->n : 0;
	return t && t->type == PL_TREE_TEXT ? t->s : NULL;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static int text(struct pl_arena *a, const struct pl_json *j, struct pl_tree *t, struct pl_err *err)
{
	char *s = pl_arena_take(a, j->len + 1);

	if (!s)
		return pl_fail(err, PL_ENOMEM, "out of memory (document)");
	t->type = PL_TREE_TEXT;
	t->n = pl_json_unescape(j->text, j->len, s);
	t->s = s;
	s[t->n] = '\0';
	return 0;
}

static void number(const struct pl_json *j, struct pl_tree *t)
{
	char s[64];

	if (pl_json_i64(j->text, j->len, &t->i)) {
		t->type = PL_TREE_INT;
	} else {
		snprintf(s, sizeof(s), "%.*s", (int)pl_min_size(j->len, 60), j->text);
		t->type = pl_decimal(s, &t->real) ? PL_TREE_REAL : PL_TREE_NULL;
	}
}

/* Objects of a document have the same keys again and again: each is one text. */
struct parser {
	struct pl_arena *a;
	struct pl_json j;
	struct pl_tree *key[64]; /* the latest of its place; without escapes */
};

static struct pl_tree **place_of_key(struct parser *p)
{
	const struct pl_json *j = &p->j;
	size_t n = j->len;

	return &p->key[(n ? 7 * n + (uint8_t)j->text[0] + 3 * (uint8_t)j->text[n / 2] : 0) %
		       PL_LEN(p->key)];
}

static int key(struct parser *p, struct pl_tree **out, struct pl_err *err)
{
	struct pl_tree **known = place_of_key(p);

	if (*known && (*known)->n == p->j.len && !memcmp((*known)->s, p->j.text, p->j.len)) {
		*out = *known;
		return 0;
	}
	*out = pl_tree_new(p->a, PL_TREE_NULL, err);
	if (!*out)
		return PL_ENOMEM;
	PL_CHECK(text(p->a, &p->j, *out, err));
	if ((*out)->n == p->j.len)
		*known = *out;
	return 0;
}

/* The value that begins with the token `k`. */
static int value(struct parser *p, enum pl_json_type k, struct pl_tree **out, struct pl_err *err)
{
	struct pl_tree *t, *item = NULL;
	struct pl_json *j = &p->j;
	int rc = 0;

	if (k == PL_JSON_KEY)
		return key(p, out, err);
	*out = t = pl_tree_new(p->a, PL_TREE_NULL, err);
	if (!t)
		return PL_ENOMEM;
	switch (k) {
	case PL_JSON_STRING:
		return text(p->a, j, t, err);
	case PL_JSON_NUMBER:
		number(j, t);
		return 0;
	case PL_JSON_TRUE:
	case PL_JSON_FALSE:
		t->type = PL_TREE_BOOL;
		t->i = k == PL_JSON_TRUE;
		return 0;
	case PL_JSON_NULL:
	case PL_JSON_WORD:
		return 0;
	case PL_JSON_OBJECT:
	case PL_JSON_ARRAY:
		t->type = k == PL_JSON_OBJECT ? PL_TREE_DICT : PL_TREE_LIST;
		while ((k = pl_json_next(j)) != PL_JSON_OBJECT_END && k != PL_JSON_ARRAY_END) {
			rc = value(p, k, &item, err); /* no deeper than struct pl_json goes */
			if (item && (rc >= 0 || item->type != PL_TREE_NULL))
				PL_CHECK(pl_tree_add(p->a, t, item, err));
			PL_CHECK(rc);
		}
		return 0;
	default:
		return pl_fail(err, PL_EDATA, "byte %lld: %s", (long long)(j->p - j->start),
			       k == PL_JSON_ERROR && j->what ? j->what : "the document is cut off");
	}
}

int pl_tree_json(struct pl_arena *a, const char *p, size_t n, struct pl_tree **t,
		 struct pl_err *err)
{
	struct parser x = { .a = a };

	pl_json_init(&x.j, n ? p : "", n);
	return value(&x, pl_json_next(&x.j), t, err);
}
