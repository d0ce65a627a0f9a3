/*
 * Why a selector selects nothing: the first of its keys that no operation of the graph has, and
 * what the graph has instead. One pass over the graph for each key.
 */
#include "core/words.h"
#include "graph/select.h"

static bool selects_any(const struct pl_graph_select *x, const struct pl_graph *g)
{
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *sh = &g->shape[g->step[k].shape];

		if (!pl_graph_select_step(x, g->step[k].number))
			continue;
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
			if (pl_graph_selects(x, sh, i))
				return true;
	}
	return false;
}

static int test(const struct pl_selector *keys, const struct pl_graph *g, bool *any,
		struct pl_err *err)
{
	struct pl_graph_select x;

	PL_CHECK(pl_graph_select_init(&x, keys, g, NULL, err));
	*any = selects_any(&x, g);
	pl_graph_select_fini(&x);
	return 0;
}

/* ---- what the graph has ---------------------------------------------------------------------- */

/* An operation of the graph. */
struct operation {
	const struct pl_graph *g;
	const struct pl_gstep *step;
	const struct pl_shape *sh;
	uint32_t i;
};

static const char *string_of(const struct pl_graph *g, pl_id id)
{
	return id < g->str.n ? pl_intern_get(&g->str, id) : "";
}

static const char *word_of(const struct operation *o, int key)
{
	const struct pl_shape *sh = o->sh;
	uint32_t i = o->i;

	switch (key) {
	case PL_SEL_KIND:
		return sh->role[i] == PL_RO_GAP ? "gap" : pl_trace_kind_name(sh->kind[i]);
	case PL_SEL_HOST:
		return sh->res[i] < o->g->n_res ? string_of(o->g, o->g->res[sh->res[i]].host) : "";
	case PL_SEL_PHASE:
		return pl_graph_phase_name(sh->phase ? sh->phase[i] : PL_PH_UNKNOWN);
	case PL_SEL_MODULE:
		return sh->module ? string_of(o->g, sh->module[i]) : "";
	default:
		return string_of(o->g, sh->name[i]);
	}
}

/* Below 0: the operation has none. */
static int64_t number_of(const struct operation *o, int key)
{
	const struct pl_shape *sh = o->sh;
	uint32_t i = o->i;
	const struct pl_resource *res = sh->res[i] < o->g->n_res ? &o->g->res[sh->res[i]] : NULL;

	switch (key) {
	case PL_SEL_RANK:
		return res ? res->rank : -1;
	case PL_SEL_STAGE:
		return res ? res->coord[PL_COORD_PP] : -1;
	case PL_SEL_DP:
		return res ? res->coord[PL_COORD_DP] : -1;
	case PL_SEL_STEP:
		return o->step->number;
	case PL_SEL_SIZE:
		return sh->bytes ? sh->bytes[i] : -1;
	case PL_SEL_LAYER:
		return sh->layer ? sh->layer[i] : -1;
	default:
		return sh->mb ? sh->mb[i] : -1;
	}
}

/* What the operations have: numbers, or words. */
struct known {
	int64_t least, most;
	struct pl_intern word;
};

static int look(const struct pl_graph *g, int key, struct known *k, struct pl_err *err)
{
	bool number = pl_graph_select_is_number(key);

	for (size_t s = 0; s < g->n_steps; s++) {
		struct operation o = { g, &g->step[s], &g->shape[g->step[s].shape], 0 };

		for (o.i = o.sh->n_entries; o.i < o.sh->n_nodes; o.i++) {
			int64_t v = number ? number_of(&o, key) : 0;
			const char *word = number ? "" : word_of(&o, key);
			pl_id id;

			if (!pl_graph_select_has_duration(o.sh->role[o.i]) || v < 0)
				continue;
			k->least = v < k->least ? v : k->least;
			k->most = v > k->most ? v : k->most;
			if (*word && strcmp(word, "-") != 0) /* a phase that is not known */
				PL_CHECK(pl_intern_add(&k->word, word, strlen(word), &id, err));
		}
	}
	return 0;
}

/* The nearest word; else that only a part of a word matches; else the first words. */
static void explain_words(const struct pl_intern *word, const char *key, const char *pattern,
			  char *why, size_t size)
{
	struct pl_words_near near = { .s = pattern };
	size_t at = 0;
	bool part = false;

	for (pl_id i = 0; i < word->n; i++) {
		pl_words_near(&near, word->str[i], word->len[i]);
		part |= strstr(word->str[i], pattern) != NULL;
	}
	if (near.distance)
		snprintf(why, size, "; did you mean %s=%s?", key, near.word);
	else if (part)
		snprintf(why, size, "; the whole %s must match: %s=*%.100s* matches a part", key,
			 key, pattern);
	for (pl_id i = 0; !near.distance && !part && i < word->n && at + word->len[i] < size / 2;
	     i++)
		at += (size_t)snprintf(why + at, size - at, "%s%s", i ? ", " : "; there are ",
				       word->str[i]);
}

static int refuse_key(const struct pl_graph *g, int key, const char *pattern, struct pl_err *err)
{
	static const char *const names[] = {
#define NAME(id, word, ...) word,
		PL_PLAN_SELECTOR(NAME)
#undef NAME
	};
	const char *name = names[key];
	struct known k = { .least = INT64_MAX, .most = -1 };
	char why[400] = "";
	int rc = look(g, key, &k, err);

	if (rc < 0)
		goto out;
	if (!pl_graph_select_is_number(key))
		explain_words(&k.word, name, pattern, why, sizeof(why));
	else if (k.most < 0)
		snprintf(why, sizeof(why), "; of no operation the %s is known", name);
	else
		snprintf(why, sizeof(why), "; there are %s=%lld..%lld", name, (long long)k.least,
			 (long long)k.most);
	rc = pl_fail(err, PL_EDATA, "no operation of the graph has %s=%.100s%s", name, pattern,
		     why);
out:
	pl_intern_fini(&k.word);
	return rc;
}

int pl_graph_select_refuse(const struct pl_selector *keys, const struct pl_graph *g,
			   struct pl_err *err)
{
	bool any;

	PL_CHECK(test(keys, g, &any, err));
	if (any)
		return 0;
	for (int k = 0; k < PL_SEL_COUNT_; k++) {
		struct pl_selector one = { .all = false };

		if (!keys->key[k])
			continue;
		one.key[k] = keys->key[k];
		PL_CHECK(test(&one, g, &any, err));
		if (!any)
			return refuse_key(g, k, keys->key[k], err);
	}
	return pl_fail(err, PL_EDATA,
		       keys->all ? "the graph has no operation"
				 : "it selects no operation: some match each pattern, but none "
				   "matches all of them");
}
