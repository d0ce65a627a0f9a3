/*
 * What-if: parsing of changes, and the factor of every node's duration under them.
 *
 * A graph has far fewer names, resources and kinds than nodes, so globs are matched once for each
 * of those, and a node is looked up in three tables.
 */
#include <stdlib.h>
#include <string.h>

#include "core/cmd.h"
#include "sim/internal.h"

enum key { KEY_KIND, KEY_NAME, KEY_RANK, KEY_HOST, KEY_STAGE, KEY_STEP, KEYS };
static const char *const key_name[KEYS] = { "kind", "name", "rank", "host", "stage", "step" };

struct pl_change {
	char *glob[KEYS]; /* NULL: any */
	float factor;
};

static int bad(struct pl_err *err, const char *text, const char *why)
{
	return pl_fail(err, PL_EUSAGE,
		       "what-if \"%s\": %s; expected: scale KEY=GLOB[,KEY=GLOB]... by X, with KEY "
		       "kind, name, "
		       "rank, host, stage or step",
		       text, why);
}

static void change_fini(struct pl_change *c)
{
	for (int i = 0; i < KEYS; i++)
		pl_free(c->glob[i]);
}

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

static int parse_selector(struct pl_change *c, char *s, const char *text, struct pl_err *err)
{
	while (s) {
		char *end = selector_end(s), *eq;
		int k = 0;

		if (end)
			*end++ = '\0';
		if (!strcmp(s, "all")) {
			s = end;
			continue;
		}
		eq = strchr(s, '=');
		if (!eq)
			return bad(err, text, "a selector lacks '='");
		*eq++ = '\0';
		while (k < KEYS && strcmp(s, key_name[k]))
			k++;
		if (k == KEYS)
			return bad(err, text, "unknown key");
		if (c->glob[k])
			return bad(err, text, "a key is given twice");
		if (k == KEY_KIND && !kind_exists(eq))
			return bad(err, text, "no kind matches");
		c->glob[k] = pl_strdup(eq);
		if (!c->glob[k])
			return pl_fail(err, PL_ENOMEM, "out of memory");
		s = end;
	}
	return 0;
}

int pl_whatif_add(struct pl_whatif *w, const char *text, struct pl_err *err)
{
	struct pl_change c = { .factor = 1 };
	char *copy = pl_strdup(text), *s = copy, *by, *x;
	double f;
	int rc;

	if (!copy)
		return pl_fail(err, PL_ENOMEM, "out of memory");
	for (size_t n = strlen(copy); n && copy[n - 1] == ' ';)
		copy[--n] = '\0';
	while (*s == ' ')
		s++;
	if (strncmp(s, "scale ", 6)) {
		rc = bad(err, text, "does not begin with \"scale\"");
		goto out;
	}
	for (s += 6; *s == ' '; s++)
		;
	by = NULL;
	for (x = s; (x = strstr(x, " by ")); x++)
		by = x;
	if (!by) {
		rc = bad(err, text, "lacks \"by X\"");
		goto out;
	}
	for (x = by; x > s && x[-1] == ' '; x--)
		;
	*x = '\0';
	PL_TRY(pl_parse_real(by + 4 + strspn(by + 4, " "), &f, err));
	if (f < 0 || f > 1e6) {
		rc = bad(err, text, "the factor is not between 0 and 1e6");
		goto out;
	}
	c.factor = (float)f;
	PL_TRY(parse_selector(&c, s, text, err));
	PL_TRY(pl_grow(&w->change, &w->cap, w->n + 1, sizeof(*w->change), err));
	w->change[w->n++] = c;
out:
	if (rc < 0)
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

/* ---- selections ----------------------------------------------------------------------------- */

static bool has_duration(uint8_t role)
{
	return role == PL_RO_COMPUTE || role == PL_RO_HOST || role == PL_RO_GAP ||
	       role == PL_RO_COPY || role == PL_RO_TRANSFER;
}

static bool kind_matches(const char *glob, uint8_t role, uint8_t kind)
{
	if (role == PL_RO_GAP)
		return pl_glob(glob, "gap") || pl_glob(glob, "all");
	if (pl_glob(glob, "all") || pl_glob(glob, pl_kind_name(kind)))
		return true;
	if (role == PL_RO_TRANSFER)
		return pl_glob(glob, "comm");
	return (kind == PL_K_KERNEL || kind == PL_K_HOST_OP) && pl_glob(glob, "compute");
}

/* What one change says of each name, resource (behind the last: of none), and role and kind: found
 * once, used for all nodes. */
struct verdict {
	const struct pl_change *c;
	uint8_t *name, *res; /* 1: selected */
	uint8_t kind[PL_RO_COUNT_][256];
};
struct select {
	const struct pl_graph *g;
	struct verdict *v;
	size_t n;
};

static bool res_matches(const struct pl_change *c, const struct pl_graph *g, size_t res)
{
	const struct pl_resource *r = &g->res[res];
	char text[16];

	snprintf(text, sizeof(text), "%d", r->rank);
	if (c->glob[KEY_RANK] && !pl_glob(c->glob[KEY_RANK], text))
		return false;
	if (c->glob[KEY_HOST] &&
	    !pl_glob(c->glob[KEY_HOST], r->host == PL_NONE ? "" : pl_intern_get(&g->str, r->host)))
		return false;
	snprintf(text, sizeof(text), "%d", r->coord[PL_COORD_PP]);
	return !c->glob[KEY_STAGE] || pl_glob(c->glob[KEY_STAGE], text);
}

static int verdict_init(struct verdict *v, const struct pl_change *c, const struct pl_graph *g,
			struct pl_err *err)
{
	int rc;

	v->c = c;
	if ((rc = pl_alloc(&v->name, g->str.n + 1, 1, err)) < 0 ||
	    (rc = pl_alloc(&v->res, g->n_res + 1, 1, err)) < 0)
		return rc;
	for (size_t i = 0; i < g->n_res; i++)
		v->res[i] = res_matches(c, g, i);
	v->res[g->n_res] = !c->glob[KEY_RANK] && !c->glob[KEY_HOST] && !c->glob[KEY_STAGE];
	for (size_t i = 0; i <= g->str.n; i++)
		v->name[i] = !c->glob[KEY_NAME] ||
			     pl_glob(c->glob[KEY_NAME], pl_intern_get(&g->str, (pl_id)i));
	for (unsigned role = 0; role < PL_RO_COUNT_; role++)
		for (unsigned k = 0; k < 256; k++)
			v->kind[role][k] =
				has_duration((uint8_t)role) &&
				(!c->glob[KEY_KIND] ||
				 kind_matches(c->glob[KEY_KIND], (uint8_t)role, (uint8_t)k));
	return 0;
}

void sim_select_free(struct select *x)
{
	if (!x)
		return;
	for (size_t i = 0; x->v && i < x->n; i++) {
		pl_free(x->v[i].name);
		pl_free(x->v[i].res);
	}
	pl_free(x->v);
	pl_free(x);
}

int sim_select_new(const struct pl_whatif *w, const struct pl_graph *g, struct select **out,
		   struct pl_err *err)
{
	struct select *x;
	int rc = pl_alloc(&x, 1, sizeof(*x), err);

	if (rc < 0)
		return rc;
	x->g = g;
	x->n = w->n;
	PL_TRY(pl_alloc(&x->v, w->n, sizeof(*x->v), err));
	for (size_t i = 0; i < w->n; i++)
		PL_TRY(verdict_init(&x->v[i], &w->change[i], g, err));
	*out = x;
	return 0;
out:
	sim_select_free(x);
	return rc;
}

double sim_select_most(const struct select *x)
{
	double f = 1;

	for (size_t i = 0; i < x->n; i++)
		if (x->v[i].c->factor > 1)
			f *= x->v[i].c->factor;
	return f;
}

static bool step_matches(const char *glob, int64_t number)
{
	char text[24];

	if (!glob)
		return true;
	snprintf(text, sizeof(text), "%lld", (long long)number);
	return number != INT64_MIN && pl_glob(glob, text);
}

/* No branch depends on a node: which are selected is hard to foresee. */
uint64_t sim_select_apply(struct select *x, size_t step, float *f)
{
	const struct pl_shape *sh = &x->g->shape[x->g->step[step].shape];
	const uint32_t n_res = (uint32_t)x->g->n_res, n_names = (uint32_t)x->g->str.n;
	uint64_t hits = 0;

	for (size_t c = 0; c < x->n; c++) {
		const struct verdict *v = &x->v[c];
		const float factor[2] = { 1, v->c->factor };

		if (!step_matches(v->c->glob[KEY_STEP], x->g->step[step].number))
			continue;
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			uint32_t res = sh->res[i] < n_res ? sh->res[i] : n_res;
			uint32_t name = sh->name[i] < n_names ? sh->name[i] : n_names;
			unsigned hit =
				v->kind[sh->role[i]][sh->kind[i]] & v->res[res] & v->name[name];

			if (f)
				f[i] *= factor[hit];
			hits += hit;
		}
	}
	return hits;
}

/* ---- several selections as one --------------------------------------------------------------- */

void sim_masks_fini(struct masks *m)
{
	for (size_t j = 0; j < m->n; j++)
		sim_select_free(m->select[j]);
	pl_free(m->name);
	pl_free(m->res);
}

/* Change v of selection j is that of `bit`: enter it everywhere. */
static void add_mask(struct masks *m, const struct verdict *v, size_t j, unsigned bit)
{
	for (size_t i = 0; i <= m->n_names; i++)
		m->name[i] |= (uint8_t)(v->name[i] << bit);
	for (size_t i = 0; i <= m->n_res; i++)
		m->res[i] |= (uint8_t)(v->res[i] << bit);
	for (unsigned role = 0; role < PL_RO_COUNT_; role++)
		for (unsigned k = 0; k < 256; k++)
			m->kind[role][k] |= (uint8_t)(v->kind[role][k] << bit);
	for (unsigned i = 0; i < 1u << SIM_MASK_BITS; i++)
		if (i >> bit & 1)
			m->factor[i][j] *= v->c->factor;
}

int sim_masks_init(struct masks *m, const struct pl_sim *s, const struct pl_whatif *const *w,
		   size_t n, struct pl_err *err)
{
	unsigned bit = 0;
	int rc = 0;

	memset(m, 0, sizeof(*m));
	m->n_names = (uint32_t)s->g->str.n;
	m->n_res = (uint32_t)s->g->n_res;
	for (unsigned i = 0; i < 1u << SIM_MASK_BITS; i++)
		for (size_t j = 0; j < SIM_SIDES; j++)
			m->factor[i][j] = 1;
	PL_TRY(pl_alloc(&m->name, (size_t)m->n_names + 1, 1, err));
	PL_TRY(pl_alloc(&m->res, (size_t)m->n_res + 1, 1, err));
	for (size_t j = 0; j < n; j++) {
		PL_TRY(sim_select_for(s, w[j], &m->select[j], err));
		m->n++;
		for (size_t c = 0; c < m->select[j]->n; c++)
			add_mask(m, &m->select[j]->v[c], j, bit++);
	}
out:
	return rc;
}

uint8_t sim_masks_of_step(const struct masks *m, size_t step)
{
	unsigned bit = 0, mask = 0;

	for (size_t j = 0; j < m->n; j++) {
		const struct select *x = m->select[j];

		for (size_t c = 0; c < x->n; c++, bit++)
			if (step_matches(x->v[c].c->glob[KEY_STEP], x->g->step[step].number))
				mask |= 1u << bit;
	}
	return (uint8_t)mask;
}

int pl_whatif_hits(const struct pl_whatif *w, const struct pl_graph *g, uint64_t *hits,
		   struct pl_err *err)
{
	struct select *x;
	int rc = sim_select_new(w, g, &x, err);

	if (rc < 0)
		return rc;
	*hits = 0;
	for (size_t k = 0; k < g->n_steps; k++)
		*hits += sim_select_apply(x, k, NULL);
	sim_select_free(x);
	return 0;
}
