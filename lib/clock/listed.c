/*
 * Groups that the header of a profiler's file lists, for communication that does not name its own.
 *
 * PyTorch writes beside its events a "distributedInfo" whose "pg_config" has an object for each
 * process group of the rank: pg_name, pg_size and the ranks. Versions differ: the list may be
 * text; "ranks" is empty or null for the group of all; the size is group_size. Whatever object has
 * ranks or such a size is taken for a group, wherever in the header it stands.
 *
 * A rank of one set of ranks only (of more than itself) communicates with that one: recorded. A
 * rank of several leaves it to infer.c which, but nothing else is inferred for it. Where a file
 * lists a set and the file of one of its members does not, nothing listed is used.
 *
 * Cost: O(N) of what the headers list, hashing.
 */
#include <stdlib.h>
#include <string.h>

#include "clock/internal.h"

#define MOST_RANKS (1 << 20) /* of a group that is given by its size alone */

/* ---- one header --------------------------------------------------------------------------------
 */

struct entry { /* one group as listed */
	pl_id name;
	int32_t *rank;
	size_t n, cap;
	int64_t size;  /* 0: not said */
	bool any, odd; /* odd: ranks that cannot be read */
};

struct header {
	struct entry *group;
	size_t n, cap;
	int64_t rank, world; /* -1, 0 */
};

static void header_fini(struct header *h)
{
	for (size_t i = 0; i < h->n; i++)
		pl_free(h->group[i].rank);
	pl_free(h->group);
}

static bool is_key(const struct pl_json *j, const char *key)
{
	return j->len == strlen(key) && !memcmp(j->text, key, j->len);
}

static int add_rank(struct entry *g, const char *s, size_t n, struct pl_err *err)
{
	int64_t v;
	int rc;

	if (!pl_json_i64(s, n, &v) || v < 0 || v > INT32_MAX) {
		g->odd = true;
		return 0;
	}
	rc = pl_grow(&g->rank, &g->cap, g->n + 1, sizeof(*g->rank), err);
	if (rc == 0)
		g->rank[g->n++] = (int32_t)v;
	return rc;
}

/* "[0, 1]" as text. */
static int add_rank_text(struct entry *g, const char *s, size_t n, struct pl_err *err)
{
	size_t k;
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i = k) {
		for (k = i; k < n && s[k] >= '0' && s[k] <= '9';)
			k++;
		if (k > i)
			rc = add_rank(g, s + i, k - i, err);
		else
			g->odd |= !strchr("[], ", s[k++]);
	}
	return rc;
}

/* The value of "ranks" comes next. */
static int read_ranks(struct pl_json *j, struct entry *g, struct pl_err *err)
{
	enum pl_json_type t = pl_json_next(j);
	int depth = j->depth, rc = 0;

	g->any = true;
	if (t == PL_JSON_STRING)
		return add_rank_text(g, j->text, j->len, err);
	g->odd |= t != PL_JSON_NULL && t != PL_JSON_WORD && t != PL_JSON_ARRAY;
	if (t != PL_JSON_ARRAY)
		return 0;
	while (rc == 0 && (t = pl_json_next(j)) != PL_JSON_END && t != PL_JSON_ERROR &&
	       (t != PL_JSON_ARRAY_END || j->depth >= depth)) {
		if (t == PL_JSON_NUMBER)
			rc = add_rank(g, j->text, j->len, err);
		else
			g->odd = true;
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

static int read_name(struct pl_align *a, struct pl_json *j, struct entry *g, struct pl_err *err)
{
	enum pl_json_type t = pl_json_next(j);

	if (t != PL_JSON_STRING && t != PL_JSON_NUMBER)
		return 0;
	return pl_intern_add(&a->str, j->text, j->len, &g->name, err);
}

static int read_header(struct pl_align *a, struct header *h, const char *s, size_t n, bool quoted,
		       struct pl_err *err);

/* A list that is itself text: JSON, or as Python prints it, with other quotes. */
static int read_quoted(struct pl_align *a, struct header *h, const struct pl_json *j,
		       struct pl_err *err)
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
	rc = read_header(a, h, text, n, true, err);
out:
	pl_free(text);
	return rc;
}

static int put_group(struct header *h, struct entry *g, struct pl_err *err)
{
	int rc = 0;

	if (g->any || g->size > 0) {
		rc = pl_grow(&h->group, &h->cap, h->n + 1, sizeof(*h->group), err);
		if (rc < 0)
			return rc;
		h->group[h->n++] = *g;
	}
	*g = (struct entry){ .name = PL_NONE };
	return rc;
}

static int read_header(struct pl_align *a, struct header *h, const char *s, size_t n, bool quoted,
		       struct pl_err *err)
{
	struct entry g = { .name = PL_NONE };
	enum pl_json_type t;
	struct pl_json j;
	int rc = 0;

	pl_json_init(&j, s, n);
	while ((t = pl_json_next(&j)) != PL_JSON_END && t != PL_JSON_ERROR) {
		if (t == PL_JSON_OBJECT || t == PL_JSON_OBJECT_END)
			PL_TRY(put_group(h, &g, err));
		if (t != PL_JSON_KEY)
			continue;
		if (is_key(&j, "pg_name"))
			PL_TRY(read_name(a, &j, &g, err));
		else if (is_key(&j, "ranks"))
			PL_TRY(read_ranks(&j, &g, err));
		else if (is_key(&j, "pg_size") || is_key(&j, "group_size"))
			g.size = read_number(&j, 0);
		else if (is_key(&j, "world_size"))
			h->world = read_number(&j, 0);
		else if (is_key(&j, "rank"))
			h->rank = read_number(&j, -1);
		else if (is_key(&j, "pg_config") && !quoted && pl_json_next(&j) == PL_JSON_STRING)
			PL_TRY(read_quoted(a, h, &j, err));
	}
out:
	pl_free(g.rank);
	return rc;
}

/* ---- what all headers list ---------------------------------------------------------------------
 */

/* Is it the group of all ranks, given by its size or by nothing? */
static bool is_world(const struct entry *g, int64_t world)
{
	return !g->n && !g->odd && (g->size <= 0 || g->size == world) && world <= MOST_RANKS;
}

/* Members of a group as they are: ascending, each once; false: they are not known. */
static int settle_ranks(struct entry *g, int64_t world, bool *known, struct pl_err *err)
{
	size_t k = 0;
	int rc = 0;

	*known = !g->odd;
	if (is_world(g, world)) {
		PL_TRY(pl_grow(&g->rank, &g->cap, (size_t)pl_max_i64(world, 1), sizeof(*g->rank),
			       err));
		for (; (int64_t)g->n < world; g->n++)
			g->rank[g->n] = (int32_t)g->n;
	}
	if (g->n)
		qsort(g->rank, g->n, sizeof(*g->rank), pl_compare_i32);
	for (size_t i = 0; i < g->n; i++)
		if (!k || g->rank[i] != g->rank[k - 1])
			g->rank[k++] = g->rank[i];
	g->n = k;
	*known &= k && (g->size <= 0 || g->size == (int64_t)k);
out:
	return rc;
}

static bool has_member(const int32_t *v, size_t n, int32_t rank)
{
	return n && bsearch(&rank, v, n, sizeof(*v), pl_compare_i32) != NULL;
}

/* `all`: the set of all ranks, once it is known: a file may list it many times. */
static int note_group(struct pl_align *a, struct entry *g, int32_t rank, int64_t world, pl_id *all,
		      struct pl_err *err)
{
	struct pl_listed l = {
		.rank = rank, .seg = (uint32_t)a->n_segs, .name = g->name, .set = PL_NONE
	};
	bool is_all = is_world(g, world), known = false;
	int rc;

	if (is_all && world > 0 && rank >= world)
		return 0;
	if (is_all && *all != PL_NONE)
		l.set = *all;
	else
		PL_TRY(settle_ranks(g, world, &known, err));
	if (known && !has_member(g->rank, g->n, rank))
		return 0;
	if (known)
		PL_TRY(pl_intern_add(&a->rank_sets, (const char *)g->rank, g->n * sizeof(*g->rank),
				     &l.set, err));
	if (is_all)
		*all = l.set;
	PL_TRY(pl_grow(&a->listed, &a->cap_listed, a->n_listed + 1, sizeof(*a->listed), err));
	a->listed[a->n_listed++] = l;
	rc = 0;
out:
	return rc;
}

int pl_listed_note(struct pl_align *a, const struct pl_segment *seg, size_t sr0, struct pl_err *err)
{
	const char *info = pl_segment_meta_get(seg, "distributedInfo");
	struct header h = { .rank = -1 };
	pl_id all = PL_NONE;
	int32_t rank = a->n_sr == sr0 + 1 ? a->sr[sr0].rank : -1;
	int rc = 0;

	if (!info || rank < 0)
		return 0;
	PL_TRY(read_header(a, &h, info, strlen(info), false, err));
	for (size_t i = 0; i < h.n && (h.rank < 0 || h.rank == rank); i++)
		PL_TRY(note_group(a, &h.group[i], rank, h.world, &all, err));
out:
	header_fini(&h);
	return rc;
}

const int32_t *pl_listed_ranks(const struct pl_align *a, pl_id set, uint32_t *n)
{
	*n = a->rank_sets.len[set] / (uint32_t)sizeof(int32_t);
	return (const int32_t *)(const void *)a->rank_sets.str[set];
}

/* ---- use ---------------------------------------------------------------------------------------
 */

struct member {	      /* a rank whose own file lists groups */
	bool unknown; /* its file lists groups whose ranks cannot be read */
};

PL_COMPARATOR(by_listed, struct pl_listed, rank, set, name);

/* Of each rank that a file lists groups of, and whether they can be read. */
static int files_of(struct pl_align *a, struct pl_intern *ranks, struct pl_intern *pairs,
		    struct member **who, struct pl_err *err)
{
	size_t cap = 0;
	pl_id id;
	int rc = 0;

	for (size_t i = 0; i < a->n_listed; i++) {
		const struct pl_listed *l = &a->listed[i];
		const uint32_t pair[2] = { (uint32_t)l->rank, l->set };

		size_t before = ranks->n;

		PL_TRY(pl_intern_add(ranks, (const char *)&l->rank, sizeof(l->rank), &id, err));
		PL_TRY(pl_grow(who, &cap, ranks->n, sizeof(**who), err));
		if (ranks->n > before)
			(*who)[id] = (struct member){ false };
		(*who)[id].unknown |= l->set == PL_NONE;
		PL_TRY(pl_intern_add(pairs, (const char *)pair, sizeof(pair), &id, err));
	}
out:
	return rc;
}

/* A set that a file lists and a member's own file does not: its number, and that member. */
static pl_id contradicted(const struct pl_align *a, const struct pl_intern *ranks,
			  const struct pl_intern *pairs, const struct member *who, int32_t *rank)
{
	for (pl_id s = 0; s < a->rank_sets.n; s++) {
		uint32_t n;
		const int32_t *v = pl_listed_ranks(a, s, &n);

		for (uint32_t i = 0; i < n; i++) {
			const uint32_t pair[2] = { (uint32_t)v[i], s };
			pl_id id = pl_intern_find(ranks, (const char *)&v[i], sizeof(v[i]));

			*rank = v[i];
			if (id != PL_NONE && !who[id].unknown &&
			    pl_intern_find(pairs, (const char *)pair, sizeof(pair)) == PL_NONE)
				return s;
		}
	}
	return PL_NONE;
}

static int32_t lister(const struct pl_align *a, pl_id set)
{
	for (size_t i = 0; i < a->n_listed; i++)
		if (a->listed[i].set == set)
			return a->listed[i].rank;
	return -1;
}

/* One entry for each rank and set of several ranks that has it as a member, by rank and set; who
 * has groups of unknown ranks keeps that entry. */
static int spread(struct pl_align *a, struct pl_err *err)
{
	size_t n = a->n_listed, k = 0;
	pl_id *name = NULL;
	int rc;

	PL_TRY(pl_alloc(&name, a->rank_sets.n + 1, sizeof(*name), err));
	memset(name, 0xff, a->rank_sets.n * sizeof(*name));
	for (size_t i = 0; i < n; i++) {
		struct pl_listed l = a->listed[i];

		if (l.set == PL_NONE)
			a->listed[k++] = l;
		else if (name[l.set] == PL_NONE)
			name[l.set] = l.name;
	}
	a->n_listed = k;
	for (pl_id s = 0; s < a->rank_sets.n; s++) {
		uint32_t members;
		const int32_t *v = pl_listed_ranks(a, s, &members);

		PL_TRY(pl_grow(&a->listed, &a->cap_listed, a->n_listed + members,
			       sizeof(*a->listed), err));
		for (uint32_t i = 0; i < members && members > 1; i++)
			a->listed[a->n_listed++] =
				(struct pl_listed){ .rank = v[i], .name = name[s], .set = s };
	}
	if (a->n_listed)
		qsort(a->listed, a->n_listed, sizeof(*a->listed), by_listed);
out:
	pl_free(name);
	return rc;
}

uint32_t pl_listed_of(const struct pl_align *a, int32_t rank, const struct pl_listed **first)
{
	size_t i = 0, k;

	PL_LOWER_BOUND(i, a->n_listed, a->listed[i].rank < rank);
	for (k = i; k < a->n_listed && a->listed[k].rank == rank; k++)
		if (a->listed[k].set == PL_NONE) /* the last: not all are known */
			return 0;
	*first = &a->listed[i];
	return (uint32_t)(k - i);
}

/* The set as events name it. */
static int set_text(struct pl_align *a, pl_id set, pl_id *id, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	uint32_t n;
	const int32_t *v = pl_listed_ranks(a, set, &n);
	int rc = 0;

	for (uint32_t i = 0; i < n; i++)
		PL_TRY(pl_buf_printf(&b, err, "%s%d", i ? ", " : "[", v[i]));
	PL_TRY(pl_buf_printf(&b, err, "]"));
	PL_TRY(pl_intern_add(&a->str, (const char *)b.p, b.n, id, err));
out:
	pl_buf_fini(&b);
	return rc;
}

/* Ranks of one set: their collectives without a group have this one. */
static int use_sole(struct pl_align *a, struct pl_err *err)
{
	pl_id *text = NULL, unnamed;
	int rc;

	PL_TRY(pl_intern_add(&a->str, "listed", 6, &unnamed, err));
	PL_TRY(pl_alloc(&text, a->rank_sets.n + 1, sizeof(*text), err));
	memset(text, 0xff, a->rank_sets.n * sizeof(*text));
	for (size_t i = 0; i < a->n; i++) {
		struct pl_comm *e = &a->ev[i];
		const struct pl_listed *l;

		if (e->kind != PL_K_COLLECTIVE || e->group != PL_NONE ||
		    pl_listed_of(a, e->rank, &l) != 1)
			continue;
		if (text[l->set] == PL_NONE)
			PL_TRY(set_text(a, l->set, &text[l->set], err));
		e->group = l->name == PL_NONE ? unnamed : l->name;
		e->ranks = text[l->set];
		e->listed = true;
	}
out:
	pl_free(text);
	return rc;
}

int pl_listed_use(struct pl_align *a, struct pl_err *err)
{
	struct pl_intern ranks = { 0 }, pairs = { 0 };
	struct member *who = NULL;
	int32_t rank;
	pl_id set;
	int rc = 0;

	if (!a->n_listed)
		return 0;
	qsort(a->listed, a->n_listed, sizeof(*a->listed), by_listed);
	PL_TRY(files_of(a, &ranks, &pairs, &who, err));
	set = contradicted(a, &ranks, &pairs, who, &rank);
	if (set != PL_NONE) {
		pl_say(a->o.log, PL_LOG_WARN,
		       "the file of rank %d lists a group that rank %d is in, the file of rank %d "
		       "does not: groups that files list are not used, but inferred",
		       lister(a, set), rank, rank);
		a->n_listed = 0;
		goto out;
	}
	PL_TRY(spread(a, err));
	rc = use_sole(a, err);
out:
	pl_intern_fini(&ranks);
	pl_intern_fini(&pairs);
	pl_free(who);
	return rc;
}
