/* The report as a page (-O html), and a step of it as a picture (-O svg). */
#include <math.h>
#include <stdlib.h>

#include "program.h"
#include "report/html.h"
#include "report/svg.h"

#define POINTS 100000 /* changes of memory that a page has, all ranks together */

int find_picture(struct report *r, struct pl_err *err)
{
	return pl_picture_of_run(&r->picture, &r->g, r->s, &r->run, &r->path, err);
}

/* ---- memory over time ------------------------------------------------------------------------ */

int note_memory(struct report *r, int32_t rank, pl_ns at, int64_t bytes, struct pl_err *err)
{
	struct pl_picture *p = &r->picture;
	struct pl_picture_memory x = { rank, at - p->origin, bytes };

	return pl_append(&p->memory, &p->n_memory, &p->cap_memory, &x, sizeof(x), err);
}

PL_COMPARATOR(by_rank, struct pl_picture_memory, rank, at);

/* By rank and time; of very many changes the largest of each few. */
static void order_memory(struct pl_picture *p)
{
	size_t few = p->n_memory / POINTS + 1, n = 0;

	pl_sort(p->memory, p->n_memory, sizeof(*p->memory), by_rank);
	for (size_t i = 0; i < p->n_memory;) {
		struct pl_picture_memory most = p->memory[i];
		size_t end = pl_min_size(i + few, p->n_memory);

		for (; i < end && p->memory[i].rank == most.rank; i++)
			if (p->memory[i].bytes > most.bytes)
				most = p->memory[i];
		p->memory[n++] = most;
	}
	p->n_memory = n;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* The operations that a line changes by a selector, or all input where workers read it. */
static int mark(struct report *r, const char *change, struct pl_err *err)
{
	const struct pl_selector input = { .key = { [PL_SEL_PHASE] = "input" } };
	const struct pl_rewrite *rw;
	struct pl_plan plan;
	int rc;

	pl_plan_init(&plan);
	PL_TRY(pl_plan_add_line(&plan, change, err));
	rw = &plan.rw[0];
	if (rw->op == PL_RW_LOADER_WORKERS)
		rc = pl_picture_mark(&r->picture, &r->g, change, &input, err);
	else if (rw->op == PL_RW_SCALE || rw->op == PL_RW_REMOVE || rw->op == PL_RW_SET ||
		 rw->op == PL_RW_FIX || rw->op == PL_RW_OVERLAP)
		rc = pl_picture_mark(&r->picture, &r->g, change, &rw->select, err);
out:
	pl_plan_fini(&plan);
	return rc;
}

/* What the buttons of the page change. */
static int mark_changes(struct report *r, struct pl_err *err)
{
	for (size_t i = 0; i < r->n_changes; i++)
		PL_CHECK(mark(r, r->change[i].change, err));
	for (size_t i = 0; i < r->n_advice; i++)
		if (*r->advice[i].change)
			PL_CHECK(mark(r, r->advice[i].change, err));
	return 0;
}

/* ---- printing -------------------------------------------------------------------------------- */

static int print_html(const struct config *c, struct report *r, const char *name,
		      struct pl_out *out, struct pl_err *err)
{
	struct pl_buf json = { 0 };
	struct pl_html page = { name, &json, &r->picture };
	struct pl_out *to;
	int rc;

	PL_CHECK(mark_changes(r, err));
	to = pl_out_open_buf(&json, err);
	if (!to)
		return err->code;
	order_memory(&r->picture);
	rc = print_json(c, r, to, err);
	rc = pl_out_finish(to, rc, err);
	if (rc >= 0)
		rc = pl_html_write(&page, out, err);
	pl_buf_fini(&json);
	return rc;
}

/* The step whose time is nearest to the mean; NULL: there is none. */
static const struct pl_picture_step *typical_step(const struct report *r)
{
	const struct pl_picture *p = &r->picture;
	const struct pl_picture_step *best = NULL;
	double mean = 0; /* of lengths; r->mean may be that of periods */

	for (size_t i = 0; i < p->n_steps; i++)
		mean += (double)(p->step[i].end - p->step[i].start) / (double)p->n_steps;
	for (size_t i = 0; i < p->n_steps; i++) {
		const struct pl_picture_step *x = &p->step[i];

		if (!best || fabs((double)(x->end - x->start) - mean) <
				     fabs((double)(best->end - best->start) - mean))
			best = x;
	}
	return best;
}

static int print_svg(const struct report *r, const char *name, struct pl_out *out,
		     struct pl_err *err)
{
	const struct pl_picture_step *step = typical_step(r);
	bool changed = isfinite(r->predicted_mean);
	struct pl_buf title = { 0 };
	char ns[32];
	int rc;

	PL_TRY(pl_buf_printf(&title, err, "%s: ", name));
	if (r->n_steps > 1)
		PL_TRY(pl_buf_printf(&title, err, "step %lld, the usual one of %zu, ",
				     (long long)step->number, r->n_steps));
	PL_TRY(pl_buf_printf(&title, err, "%s%s%c",
			     fmt_ns(ns, sizeof(ns), (double)(step->end - step->start)),
			     changed ? ", with the changes" : "", '\0'));
	rc = pl_svg_draw(&r->picture, (const char *)title.p, step->start, step->end, out, err);
out:
	pl_buf_fini(&title);
	return rc;
}

/* What the picture is about: the file, or the folder of several files. */
static void name_input(const struct pl_inputs *in, char *name, size_t size)
{
	const char *path = pl_inputs_name(&in->v[0]), *slash = strrchr(path, '/'), *begin = slash;

	if (slash && in->n > 1) {
		while (begin > path && begin[-1] != '/')
			begin--;
		snprintf(name, size, "%.*s", (int)(slash - begin), begin);
	} else {
		snprintf(name, size, "%s", slash && slash[1] ? slash + 1 : path);
	}
}

int print_picture(const struct config *c, struct report *r, struct pl_out *out, struct pl_err *err)
{
	char name[256];

	name_input(&c->job[0].inputs, name, sizeof(name));
	return c->to == AS_HTML ? print_html(c, r, name, out, err) : print_svg(r, name, out, err);
}
