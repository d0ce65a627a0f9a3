/*
 * The job in the header of a profile: this rank, the number of ranks, the groups that communicate.
 *
 * PyTorch writes a member "distributedInfo" with "rank" and "world_size". Its "pg_config" has an
 * object for each process group of the rank: pg_name, pg_size and the ranks. Versions differ: the
 * list may be text; "ranks" is empty or null for the group of all ranks; the size may be
 * group_size. Any object with ranks or such a size counts as a group, at any place in the header.
 * The recorder of `run` writes rank and world_size in the same way. O(length of the header).
 */
#include "io/json.h"
#include "trace/trace.h"

void pl_trace_header_fini(struct pl_trace_header *h)
{
	for (size_t i = 0; i < h->n_groups; i++) {
		pl_free(h->group[i].name);
		pl_free(h->group[i].rank);
	}
	pl_free(h->group);
	memset(h, 0, sizeof(*h));
}

static bool is_key(const struct pl_json *j, const char *key)
{
	return j->len == strlen(key) && !memcmp(j->text, key, j->len);
}

static int add_rank(struct pl_trace_group *g, const char *s, size_t n, struct pl_err *err)
{
	int32_t rank;
	int64_t v;

	if (!pl_json_i64(s, n, &v) || v < 0 || v > INT32_MAX) {
		g->unreadable = true;
		return 0;
	}
	rank = (int32_t)v;
	return pl_append(&g->rank, &g->n, &g->cap, &rank, sizeof(rank), err);
}

/* "[0, 1]" as text. */
static int add_rank_text(struct pl_trace_group *g, const char *s, size_t n, struct pl_err *err)
{
	size_t k;
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i = k) {
		for (k = i; k < n && s[k] >= '0' && s[k] <= '9';)
			k++;
		if (k > i)
			rc = add_rank(g, s + i, k - i, err);
		else
			g->unreadable |= !strchr("[], ", s[k++]);
	}
	return rc;
}

/* Read the value of "ranks", which comes next. */
static int read_ranks(struct pl_json *j, struct pl_trace_group *g, struct pl_err *err)
{
	enum pl_json_type t = pl_json_next(j);
	int depth = j->depth, rc = 0;

	g->listed = true;
	if (t == PL_JSON_STRING)
		return add_rank_text(g, j->text, j->len, err);
	g->unreadable |= t != PL_JSON_NULL && t != PL_JSON_WORD && t != PL_JSON_ARRAY;
	if (t != PL_JSON_ARRAY)
		return 0;
	while (rc == 0 && (t = pl_json_next(j)) != PL_JSON_END && t != PL_JSON_ERROR &&
	       (t != PL_JSON_ARRAY_END || j->depth >= depth)) {
		if (t == PL_JSON_NUMBER)
			rc = add_rank(g, j->text, j->len, err);
		else
			g->unreadable = true;
	}
	return rc;
}

static int64_t read_number(struct pl_json *j, int64_t otherwise)
{
	enum pl_json_type t = pl_json_next(j);
	int64_t v;

	return (t == PL_JSON_NUMBER || t == PL_JSON_STRING) && pl_json_i64(j->text, j->len, &v)
		       ? v
		       : otherwise;
}

static int read_name(struct pl_json *j, struct pl_trace_group *g, struct pl_err *err)
{
	enum pl_json_type t = pl_json_next(j);

	if (t != PL_JSON_STRING && t != PL_JSON_NUMBER)
		return 0;
	pl_free(g->name);
	g->name = pl_malloc(j->len + 1);
	if (!g->name)
		return pl_fail(err, PL_ENOMEM, "out of memory");
	memcpy(g->name, j->text, j->len);
	g->name[j->len] = '\0';
	return 0;
}

static int read_header(struct pl_trace_header *h, const char *s, size_t n, bool quoted,
		       struct pl_err *err);

/* A list inside a string: JSON, or as Python prints it, with other quotes. */
static int read_quoted(struct pl_trace_header *h, const struct pl_json *j, struct pl_err *err)
{
	char *text = NULL;
	bool json;
	size_t n;
	int rc;

	PL_TRY(pl_alloc(&text, j->len + 1, 1, err));
	n = pl_json_unescape(j->text, j->len, text);
	json = memchr(text, '"', n) != NULL;
	for (size_t i = 0; i < n && !json; i++)
		text[i] = text[i] == '\'' ? '"' : text[i];
	rc = read_header(h, text, n, true, err);
out:
	pl_free(text);
	return rc;
}

static int put_group(struct pl_trace_header *h, struct pl_trace_group *g, struct pl_err *err)
{
	if (g->listed || g->size > 0) {
		PL_CHECK(pl_grow(&h->group, &h->cap_groups, h->n_groups + 1, sizeof(*h->group),
				 err));
		h->group[h->n_groups++] = *g;
	} else {
		pl_free(g->name);
		pl_free(g->rank);
	}
	memset(g, 0, sizeof(*g));
	return 0;
}

static int read_header(struct pl_trace_header *h, const char *s, size_t n, bool quoted,
		       struct pl_err *err)
{
	struct pl_trace_group g = { 0 };
	enum pl_json_type t;
	struct pl_json j;
	int rc = 0;

	pl_json_init(&j, s, n);
	while ((h->rank < 0 || !h->rank_alone) && (t = pl_json_next(&j)) != PL_JSON_END &&
	       t != PL_JSON_ERROR) {
		if (t == PL_JSON_OBJECT || t == PL_JSON_OBJECT_END)
			PL_TRY(put_group(h, &g, err));
		if (t != PL_JSON_KEY)
			continue;
		if (is_key(&j, "pg_name"))
			PL_TRY(read_name(&j, &g, err));
		else if (is_key(&j, "ranks"))
			PL_TRY(read_ranks(&j, &g, err));
		else if (is_key(&j, "pg_size") || is_key(&j, "group_size"))
			g.size = read_number(&j, 0);
		else if (is_key(&j, "world_size"))
			h->world = read_number(&j, 0);
		else if (is_key(&j, "rank") && j.depth == 1 && h->rank < 0)
			h->rank = read_number(&j, -1);
		else if (is_key(&j, "pg_config") && !quoted && pl_json_next(&j) == PL_JSON_STRING)
			PL_TRY(read_quoted(h, &j, err));
	}
out:
	pl_free(g.name);
	pl_free(g.rank);
	return rc;
}

int pl_trace_header_read(const struct pl_segment *seg, bool rank_alone, struct pl_trace_header *h,
			 struct pl_err *err)
{
	const char *info = pl_trace_segment_meta_get(seg, "distributedInfo");
	int rc;

	*h = (struct pl_trace_header){ .rank = -1, .rank_alone = rank_alone };
	rc = info ? read_header(h, info, strlen(info), false, err) : 0;
	if (h->rank > INT32_MAX)
		h->rank = -1;
	if (rc < 0)
		pl_trace_header_fini(h);
	return rc;
}
