/* Input of the program: graphs, and changes from the command line and from files. */
#include <string.h>

#include "core/progress.h"
#include "derive/describe.h"
#include "io/container.h"
#include "plan/topology.h"
#include "program.h"

#define CHANGES_MAX (16u << 20) /* bytes of all files */

void changes_fini(struct changes *x)
{
	pl_free(x->list.v);
	pl_buf_fini(&x->text);
	pl_sim_whatif_model_free(x->model);
	pl_free(x->hits);
}

/* ---- changes --------------------------------------------------------------------------------- */

static int read_file(const char *path, struct pl_buf *b, struct pl_err *err)
{
	struct pl_in *in = pl_in_open(path, err);
	int rc;

	if (!in)
		return err->code;
	rc = pl_in_read_all(in, CHANGES_MAX, b, err);
	pl_in_close(in);
	return rc < 0 ? rc : pl_buf_put(b, "\n", 1, err);
}

static int check_change(const char *change, const char *path, unsigned line, struct pl_err *err)
{
	struct pl_whatif w = { 0 };
	int rc = pl_sim_whatif_add(&w, change, err);

	pl_sim_whatif_fini(&w);
	return rc < 0 ? pl_wrap(err, "%s: line %u", path, line) : 0;
}

/* One change a line of [line, end); text after # and blank lines do not count. */
static int split(struct changes *x, const char *path, char *line, const char *end,
		 struct pl_err *err)
{
	char *stop;
	int rc = 0;

	for (unsigned number = 1; line < end; line = stop + 1, number++) {
		size_t n;

		stop = memchr(line, '\n', (size_t)(end - line));
		*stop = '\0';
		line[strcspn(line, "#")] = '\0';
		line += strspn(line, " \t\r");
		for (n = strlen(line); n && strchr(" \t\r", line[n - 1]);)
			line[--n] = '\0';
		if (!n)
			continue;
		PL_TRY(check_change(line, path, number, err));
		PL_TRY(pl_list_add(&x->list, line, err));
	}
out:
	return rc;
}

int read_changes(const struct config *c, struct changes *x, struct pl_err *err)
{
	size_t *end = NULL, at = 0; /* of each file in the text, which moves while it grows */
	int rc;

	for (size_t i = 0; i < c->whatif.n; i++)
		PL_TRY(pl_list_add(&x->list, c->whatif.v[i], err));
	PL_TRY(pl_alloc(&end, c->whatif_file.n + 1, sizeof(*end), err));
	for (size_t i = 0; i < c->whatif_file.n; i++) {
		PL_TRY(read_file(c->whatif_file.v[i], &x->text, err));
		end[i] = x->text.n;
	}
	for (size_t i = 0; i < c->whatif_file.n; at = end[i++])
		PL_TRY(split(x, c->whatif_file.v[i], (char *)x->text.p + at,
			     (char *)x->text.p + end[i], err));
	rc = 0;
out:
	pl_free(end);
	return rc;
}

static int make_model(const struct config *c, struct changes *x, const struct pl_graph *g,
		      const struct pl_whatif *w, struct pl_err *err)
{
	struct pl_topology topo = { 0 };
	int rc = 0;

	if (c->topology)
		PL_TRY(pl_topology_parse(c->topology, &topo, err));
	pl_sim_whatif_model_free(x->model);
	x->model = pl_sim_whatif_model_new(w, g, c->topology ? &topo : NULL, err);
	rc = x->model ? 0 : err->code;
out:
	pl_topology_fini(&topo);
	return rc;
}

int parse_changes(const struct config *c, struct changes *x, const struct pl_graph *g,
		  struct pl_whatif *w, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < x->list.n; i++)
		PL_TRY(pl_sim_whatif_add(w, x->list.v[i], err));
	if (!w->n)
		return 0;
	PL_TRY(make_model(c, x, g, w, err));
	if (pl_sim_whatif_model_guessed(x->model))
		pl_say(&c->c.log, PL_LOG_WARN,
		       "the graph does not say which communication is data-parallel: for \"ranks\" "
		       "that of all ranks counts as such");
	w->model = x->model;
	pl_free(x->hits);
	x->hits = NULL;
	PL_TRY(pl_alloc(&x->hits, w->n, sizeof(*x->hits), err));
	PL_TRY(pl_sim_whatif_hits(w, g, x->hits, err));
	for (size_t i = 0; i < w->n; i++)
		if (!x->hits[i])
			pl_say(&c->c.log, PL_LOG_WARN, "the change \"%s\" selects no operation",
			       x->list.v[i]);
out:
	return rc;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static int check(struct pl_in *in, struct pl_err *err)
{
	uint32_t kind;
	int rc = pl_container_kind(in, &kind, err);

	if (rc < 0 || kind)
		return rc;
	return pl_fail(err, PL_EDATA,
		       "%s: not a graph; traces become one by: trace FILE... | merge | graph",
		       pl_in_name(in));
}

static int fold(const struct config *c, struct report *r, struct pl_err *err)
{
	struct pl_graph out;
	int rc;

	for (size_t k = 0; k < r->g.n_steps; k++)
		r->n_recorded += r->g.step[k].number != INT64_MIN;
	pl_graph_init(&out);
	rc = pl_sim_fold(&r->g, c->fold == FOLD_MEDIAN, &out, &r->n_folded, err);
	if (rc < 0)
		return rc;
	pl_graph_fini(&r->g);
	r->g = out;
	return 0;
}

/* Is anything about whole collectives, not about messages? */
static bool wants_whole(const struct config *c, const struct changes *x)
{
	for (size_t i = 0; x && i < x->list.n; i++)
		if (!strncmp(x->list.v[i] + strspn(x->list.v[i], " \t"), "ranks", 5))
			return true;
	return c->plan || c->expand || c->stragglers;
}

/*
 * The optional columns that this run does not read. Without changes and timelines the report
 * distinguishes nodes by kind, role, resource and name, and memory by layer.
 */
static unsigned unused_columns(const struct config *c, const struct changes *x)
{
	if (!x || x->list.n || c->plan || c->expand || c->stragglers || c->timeline ||
	    c->fold != FOLD_NONE)
		return 0;
	return PL_HAS_bytes | PL_HAS_mb | PL_HAS_chunk | PL_HAS_peer | PL_HAS_phase |
	       PL_HAS_module | PL_HAS_comm | PL_HAS_work;
}

int read_graph(const struct config *c, const char *path, struct pl_pool *pool, struct report *r,
	       struct pl_err *err)
{
	struct pl_in *in = pl_in_open(path ? path : "-", err);
	int rc;

	if (!in)
		return err->code;
	pl_progress("reading %s", pl_in_name(in));
	PL_TRY(check(in, err));
	if (unused_columns(c, r->given))
		PL_TRY(pl_graph_read_without(in, pool, unused_columns(c, r->given), &r->g, err));
	else
		PL_TRY(pl_derive_read(in, pool, &r->g, err));
	if (wants_whole(c, r->given))
		PL_TRY(pl_sim_fold_messages(&r->g, err));
	if (c->fold != FOLD_NONE && (rc = fold(c, r, err)) < 0)
		pl_wrap(err, "%s", pl_in_name(in));
out:
	pl_in_close(in);
	return rc;
}

int take_graph(struct report *r, const struct pl_edit *e, struct pl_err *err)
{
	struct pl_graph out;
	int rc = pl_edit_graph(e, &out, err);

	if (rc < 0)
		return rc;
	pl_sim_run_fini(&r->run);
	pl_sim_free(r->s);
	pl_graph_fini(&r->g);
	r->g = out;
	r->s = pl_sim_new(&r->g, err);
	return r->s ? 0 : err->code;
}
