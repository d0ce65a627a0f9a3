/* Selectors: patterns matched against the strings and resources of a graph; see select.h. */
#include "graph/select.h"
#include "core/words.h"

bool pl_graph_select_is_number(int key)
{
	return key == PL_SEL_SIZE || (key >= PL_SEL_RANK && key <= PL_SEL_MB);
}

/* ---- patterns -------------------------------------------------------------------------------- */

static int read_patterns(struct pl_graph_select *x, const struct pl_selector *keys,
			 struct pl_err *err)
{
	int rc = 0;

	x->keys = keys;
	for (int k = 0; k < PL_SEL_COUNT_; k++) {
		if (!keys->key[k] || !pl_graph_select_is_number(k))
			continue;
		x->text[k] = pl_strdup(keys->key[k]);
		if (!x->text[k])
			return pl_fail(err, PL_ENOMEM, "out of memory");
		PL_TRY(pl_lang_numbers(x->text[k], k == PL_SEL_SIZE,
				       k == PL_SEL_STEP ? INT64_MIN / 2 : 0, &x->range[k],
				       &x->n_ranges[k], err));
	}
	PL_TRY(pl_trace_kind_check(keys->key[PL_SEL_KIND], true, err));
	rc = pl_words_check(keys->key[PL_SEL_PHASE], "phase", pl_graph_phase_name, PL_PH_COUNT_,
			    err);
out:
	return rc < 0 ? rc : 0;
}

int pl_graph_select_check(const struct pl_selector *keys, struct pl_err *err)
{
	struct pl_graph_select x = { 0 };
	int rc = read_patterns(&x, keys, err);

	pl_graph_select_fini(&x);
	return rc;
}

void pl_graph_select_fini(struct pl_graph_select *x)
{
	for (int k = 0; k < PL_SEL_COUNT_; k++) {
		pl_free(x->text[k]);
		pl_free(x->range[k]);
	}
	pl_free(x->name);
	pl_free(x->res);
	pl_free(x->module);
	memset(x, 0, sizeof(*x));
}

static bool glob(const struct pl_graph_select *x, int key, const char *s)
{
	return !x->keys->key[key] || pl_glob(x->keys->key[key], s);
}

static bool number(const struct pl_graph_select *x, int key, int64_t v)
{
	return !x->keys->key[key] || pl_lang_in_range(x->range[key], x->n_ranges[key], v);
}

/* An unknown number (-1) matches nothing. */
static bool known(const struct pl_graph_select *x, int key, int64_t v)
{
	return !x->keys->key[key] || (v >= 0 && number(x, key, v));
}

bool pl_graph_select_step(const struct pl_graph_select *x, int64_t v)
{
	return !x->keys->key[PL_SEL_STEP] || (v != INT64_MIN && number(x, PL_SEL_STEP, v));
}

bool pl_graph_select_more(const struct pl_graph_select *x, const struct pl_graph_select_node *n)
{
	return known(x, PL_SEL_SIZE, n->bytes) && known(x, PL_SEL_LAYER, n->layer) &&
	       known(x, PL_SEL_MB, n->mb) && x->phase[n->phase] &&
	       (!x->module || x->module[n->module < x->n_names ? n->module : x->n_names]);
}

/* ---- tables ---------------------------------------------------------------------------------- */

bool pl_graph_select_has_duration(unsigned role)
{
	return role == PL_RO_COMPUTE || role == PL_RO_HOST || role == PL_RO_GAP ||
	       role == PL_RO_COPY || role == PL_RO_TRANSFER;
}

static bool kind_matches(const char *pattern, unsigned role, unsigned kind)
{
	if (!pattern || pl_glob(pattern, "all"))
		return true;
	if (role == PL_RO_GAP)
		return pl_glob(pattern, "gap");
	if (pl_glob(pattern, pl_trace_kind_name(kind)))
		return true;
	if (pl_graph_select_is_comm(role, kind))
		return pl_glob(pattern, "comm");
	return (kind == PL_K_KERNEL || kind == PL_K_HOST_OP) && pl_glob(pattern, "compute");
}

static bool res_matches(const struct pl_graph_select *x, const struct pl_graph *g,
			const struct pl_resource *r)
{
	return number(x, PL_SEL_RANK, r->rank) &&
	       glob(x, PL_SEL_HOST, r->host == PL_NONE ? "" : pl_intern_get(&g->str, r->host)) &&
	       number(x, PL_SEL_STAGE, r->coord[PL_COORD_PP]) &&
	       known(x, PL_SEL_DP, r->coord[PL_COORD_DP]);
}

static int match_strings(const struct pl_graph_select *x, int key, const struct pl_graph *g,
			 const struct pl_edit *e, uint8_t **out, struct pl_err *err)
{
	int rc = pl_alloc(out, (size_t)x->n_names + 1, 1, err);

	for (uint32_t i = 0; rc >= 0 && i <= x->n_names; i++)
		(*out)[i] = glob(x, key,
				 i == x->n_names ? ""
				 : e		 ? pl_edit_name(e, i)
						 : pl_intern_get(&g->str, i));
	return rc;
}

int pl_graph_select_init(struct pl_graph_select *x, const struct pl_selector *keys,
			 const struct pl_graph *g, const struct pl_edit *e, struct pl_err *err)
{
	const struct pl_resource *res = e ? e->res : g->res;
	const char *const *key = keys->key;
	int rc;

	memset(x, 0, sizeof(*x));
	PL_TRY(read_patterns(x, keys, err));
	x->n_names = (uint32_t)(g->str.n + (e ? e->added.n : 0));
	x->n_res = (uint32_t)(e ? e->n_res : g->n_res);
	PL_TRY(pl_alloc(&x->res, (size_t)x->n_res + 1, 1, err));
	for (uint32_t i = 0; i < x->n_res; i++)
		x->res[i] = res_matches(x, g, &res[i]);
	x->res[x->n_res] =
		!key[PL_SEL_RANK] && !key[PL_SEL_HOST] && !key[PL_SEL_STAGE] && !key[PL_SEL_DP];
	PL_TRY(match_strings(x, PL_SEL_NAME, g, e, &x->name, err));
	if (key[PL_SEL_MODULE])
		PL_TRY(match_strings(x, PL_SEL_MODULE, g, e, &x->module, err));
	for (unsigned role = 0; role < PL_RO_COUNT_; role++)
		for (unsigned k = 0; k < 256; k++)
			x->kind[role][k] = pl_graph_select_has_duration(role) &&
					   kind_matches(key[PL_SEL_KIND], role, k);
	for (unsigned i = 0; i < PL_PH_COUNT_; i++)
		x->phase[i] = glob(x, PL_SEL_PHASE, pl_graph_phase_name(i));
	x->by_node = key[PL_SEL_SIZE] || key[PL_SEL_LAYER] || key[PL_SEL_MB] || key[PL_SEL_PHASE] ||
		     key[PL_SEL_MODULE];
out:
	if (rc < 0)
		pl_graph_select_fini(x);
	return rc;
}
