/*
 * dag.gml: what NetworkX writes for the graph of a model in which dPRO profiles. Of each node the
 * number and the label count, of each edge its two ends:
 *
 *	graph [
 *	  node [ id 0 label "BW.conv1" ]
 *	  edge [ source 0 target 7 ]
 *	]
 *
 * O(n) in the file; the labels and 8 bytes for each edge stay in memory.
 */
#include <glob.h>

#include "import/dpro_dag.h"

#define MOST ((size_t)256 << 20) /* bytes of a file */

struct edge {
	pl_id before;  /* label */
	uint32_t next; /* of the same operator, + 1 */
};
struct pl_dpro_dag {
	struct pl_intern label, number; /* numbers of nodes, in the order of nodes */
	pl_id *of_number;		/* the label of each */
	uint32_t *first;		/* [label]: its edges, + 1 */
	struct edge *edge;
	size_t cap_of_number, cap_first, n_edges, cap_edges;
};

/* ---- the text ------------------------------------------------------------------------------ */

struct gml {
	const char *p, *end;
	const char *s; /* the token: a word or number, a text without its quotes, a bracket */
	size_t n;
	char type; /* 'w', '"', '[' or ']'; 0 the end */
};

static void next(struct gml *g)
{
	while (g->p < g->end && (unsigned char)*g->p <= ' ')
		g->p++;
	g->s = g->p;
	g->n = 0;
	g->type = g->p < g->end ? *g->p : 0;
	if (g->type == '"') {
		g->s = ++g->p;
		while (g->p < g->end && *g->p != '"')
			g->p++;
		g->n = (size_t)(g->p - g->s);
		g->p += g->p < g->end;
	} else if (g->type == '[' || g->type == ']') {
		g->n = 1;
		g->p++;
	} else if (g->type) {
		g->type = 'w';
		while (g->p < g->end && (unsigned char)*g->p > ' ' && *g->p != '[' && *g->p != ']')
			g->p++;
		g->n = (size_t)(g->p - g->s);
	}
}

static bool is(const struct gml *g, const char *word)
{
	return g->type == 'w' && g->n == strlen(word) && !memcmp(g->s, word, g->n);
}

/* Behind the bracket that was read; other lists in it are passed over. */
static void pass(struct gml *g)
{
	for (int depth = 1; depth && g->type; next(g))
		depth += (g->type == '[') - (g->type == ']');
}

/* ---- the graph ----------------------------------------------------------------------------- */

static int add_node(struct pl_dpro_dag *d, const struct gml *number, const struct gml *label,
		    struct pl_err *err)
{
	size_t seen = d->number.n, labels = d->label.n;
	pl_id id, name;

	PL_CHECK(pl_intern_add(&d->number, number->s, number->n, &id, err));
	PL_CHECK(pl_intern_add(&d->label, label->s, label->n, &name, err));
	PL_CHECK(pl_grow(&d->of_number, &d->cap_of_number, id + (size_t)1, sizeof(*d->of_number),
			 err));
	PL_CHECK(pl_grow(&d->first, &d->cap_first, name + (size_t)1, sizeof(*d->first), err));
	if (name >= labels)
		d->first[name] = 0;
	if (id >= seen) /* of nodes with one number the first one counts */
		d->of_number[id] = name;
	return 0;
}

static int add_edge(struct pl_dpro_dag *d, const struct gml *from, const struct gml *to,
		    struct pl_err *err)
{
	pl_id a = pl_intern_find(&d->number, from->s, from->n),
	      b = pl_intern_find(&d->number, to->s, to->n), name;
	struct edge e;

	if (a == PL_NONE || b == PL_NONE)
		return 0;
	name = d->of_number[b];
	e = (struct edge){ .before = d->of_number[a], .next = d->first[name] };
	PL_CHECK(pl_append(&d->edge, &d->n_edges, &d->cap_edges, &e, sizeof(e), err));
	d->first[name] = (uint32_t)d->n_edges;
	return 0;
}

/* A node or an edge, behind its bracket. */
static int item(struct pl_dpro_dag *d, struct gml *g, bool edge, struct pl_err *err)
{
	const char *const keys[2] = { edge ? "source" : "id", edge ? "target" : "label" };
	struct gml value[2] = { 0 };

	while (g->type && g->type != ']') {
		int key = is(g, keys[0]) ? 0 : is(g, keys[1]) ? 1 : -1;

		next(g);
		if (key >= 0)
			value[key] = *g;
		if (g->type == '[') {
			next(g);
			pass(g);
		} else if (g->type != ']') {
			next(g);
		}
	}
	next(g);
	if (!value[0].n || !value[1].n)
		return 0;
	return edge ? add_edge(d, &value[0], &value[1], err)
		    : add_node(d, &value[0], &value[1], err);
}

/* Nodes come before the edges between them. */
static int parse(struct pl_dpro_dag *d, const char *p, size_t n, struct pl_err *err)
{
	struct gml g = { .p = p, .end = p + n };

	next(&g);
	while (g.type) {
		bool node = is(&g, "node"), edge = is(&g, "edge");

		next(&g);
		if ((!node && !edge) || g.type != '[')
			continue;
		next(&g);
		PL_CHECK(item(d, &g, edge, err));
	}
	return 0;
}

struct pl_dpro_dag *pl_import_dpro_dag_parse(const char *text, size_t n, struct pl_err *err)
{
	struct pl_dpro_dag *d = NULL;

	if (pl_alloc(&d, 1, sizeof(*d), err) >= 0 && (parse(d, text, n, err) < 0 || !d->n_edges)) {
		pl_import_dpro_dag_free(d);
		d = NULL;
	}
	return d;
}

/* ---- the file ------------------------------------------------------------------------------ */

/* The folder of the trace as a pattern that matches nothing else, with its slash; false: too long.
 */
static bool folder_of(const char *trace, char *to, size_t size)
{
	const char *slash = strrchr(trace, '/');
	size_t n = 0;

	for (const char *s = trace; slash && s <= slash; s++) {
		if (n + 3 > size)
			return false;
		if (strchr("*?[\\", *s))
			to[n++] = '\\';
		to[n++] = *s;
	}
	to[n] = '\0';
	return true;
}

/* The path of the graph, to be freed; NULL: there is none. */
static char *find(const char *trace)
{
	static const char *const below[] = { "", "*/", "*/*/" };
	char folder[4096], *found = NULL;

	if (!strcmp(trace, "stdin") || !folder_of(trace, folder, sizeof(folder)))
		return NULL; /* a stream is in no folder */
	for (size_t i = 0; i < PL_LEN(below) && !found; i++) {
		char pattern[sizeof(folder) + 16];
		glob_t g = { 0 };

		snprintf(pattern, sizeof(pattern), "%s%sdag.gml", folder, below[i]);
		if (glob(pattern, 0, NULL, &g) == 0 && g.gl_pathc)
			found = pl_strdup(g.gl_pathv[0]);
		globfree(&g);
	}
	return found;
}

struct pl_dpro_dag *pl_import_dpro_dag(const char *trace, struct pl_report *r, struct pl_err *err)
{
	struct pl_dpro_dag *d = NULL;
	struct pl_buf file = { 0 };
	char *path = find(trace);
	struct pl_in *in = path ? pl_in_open(path, err) : NULL;

	if (in && pl_in_read_all(in, MOST, &file, err) >= 0)
		d = pl_import_dpro_dag_parse((const char *)file.p, file.n, err);
	if (d)
		pl_say(r->o->log, PL_LOG_NOTE, "%s: %zu dependencies of operators from %s", r->file,
		       d->n_edges, path);
	else if (path && !err->code)
		pl_say(r->o->log, PL_LOG_WARN,
		       "%s: no graph of operators in GML, with nodes before edges; it is left out",
		       path);
	pl_buf_fini(&file);
	pl_in_close(in);
	pl_free(path);
	return d;
}

void pl_import_dpro_dag_free(struct pl_dpro_dag *d)
{
	if (!d)
		return;
	pl_intern_fini(&d->label);
	pl_intern_fini(&d->number);
	pl_free(d->of_number);
	pl_free(d->first);
	pl_free(d->edge);
	pl_free(d);
}

const char *pl_import_dpro_before(const struct pl_dpro_dag *d, const char *label, size_t n,
				  size_t *at)
{
	pl_id name = *at ? PL_NONE : pl_intern_find(&d->label, label, n);
	size_t e = *at ? *at - 1 : name == PL_NONE ? 0 : d->first[name]; /* edge + 1, 0 none */

	*at = e ? d->edge[e - 1].next + (size_t)1 : 1;
	return e ? pl_intern_get(&d->label, d->edge[e - 1].before) : NULL;
}
