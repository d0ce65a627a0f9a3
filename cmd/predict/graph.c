/* The durations of a graph, from the model: on a device that its job never ran on. */
#include <math.h>

#include "cost/host.h"
#include "cost/predictor.h"
#include "derive/describe.h"
#include "io/container.h"
#include "program.h"
#include "sim/sim.h"

struct filler {
	const struct work *w;
	struct pl_graph g;
	struct pl_samples s;
	struct pl_intern seen; /* name and row of work */
	struct pl_predictor *predictor;
	struct pl_predictor_asked *known; /* by number in `seen` */
	size_t n, cap;
	struct pl_kernel_time *t; /* by sample */
	uint32_t device;
	/* operations; timeless: unknown, and without a duration; open: without an interval; alike:
	 * by their family alone */
	size_t unknown, timeless, beyond, open, alike, all;
	struct names unknown_names, timeless_names, alike_names;
};

static int find_device(const struct work *w, uint32_t *device, struct pl_err *err)
{
	const struct pl_devices *known = pl_kernel_model_devices(w->model);
	const char *name = w->device[0];
	struct pl_err why = { 0 };

	if (!name && known->n == 1) /* a model of one machine */
		name = known->v[0].name;
	if (!name)
		return pl_fail(err, PL_EUSAGE,
			       "--device=NAME says on which device the graph shall run");
	*device = pl_device_find(&w->devices, name);
	if (*device != PL_NONE)
		return 0;
	(void)pl_device_missing(&w->devices, name, &why);
	return pl_fail(err, PL_EDATA, "--device=%s: %s", name, why.msg);
}

static bool is_predicted(const struct pl_shape *x, uint32_t node)
{
	return x->role[node] == PL_RO_COMPUTE && x->work && x->work[node] != PL_NONE;
}

/* The operation of a node, once for all that are alike. */
static int find_op(struct filler *f, const struct pl_shape *x, uint32_t node, struct pl_err *err)
{
	const uint32_t key[2] = { x->name[node], x->work[node] };
	struct pl_predictor_asked of;
	struct pl_predictor_op op;
	pl_id id;

	PL_CHECK(pl_intern_add(&f->seen, (const char *)key, sizeof(key), &id, err));
	if (id < f->n)
		return 0;
	op = pl_predictor_op(f->predictor, &f->g, x->name[node], x->work[node]);
	PL_CHECK(pl_predictor_ask(f->predictor, &op, &f->s, &of, err));
	return pl_append(&f->known, &f->n, &f->cap, &of, sizeof(of), err);
}

static const struct pl_predictor_asked *asked_of(const struct filler *f, const struct pl_shape *x,
						 uint32_t node)
{
	const uint32_t key[2] = { x->name[node], x->work[node] };

	return &f->known[pl_intern_find(&f->seen, (const char *)key, sizeof(key))];
}

static int find_times(struct filler *f, struct pl_err *err)
{
	PL_CHECK(find_device(f->w, &f->device, err));
	PL_CHECK(pl_predictor_of(f->w->model, &f->w->devices, f->device, &f->predictor, err));
	for (size_t i = 0; i < f->g.n_shapes; i++)
		for (uint32_t n = 0; n < f->g.shape[i].n_nodes; n++)
			if (is_predicted(&f->g.shape[i], n))
				PL_CHECK(find_op(f, &f->g.shape[i], n, err));
	if (!f->n)
		return pl_fail(err, PL_EDATA,
			       "no operation of this graph has sizes; record shapes "
			       "(record_shapes=True), or make it of a job or with -f opgraph");
	PL_CHECK(pl_alloc(&f->t, f->s.n + 1, sizeof(*f->t), err));
	return pl_kernel_apply(f->w->model, &f->s, f->s.v, f->s.n, f->t, err);
}

/* How far the end of an interval is away, in millionths of the time; -1: there is no interval. */
static int32_t away(double ns, double end)
{
	double ppm = 1e6 * fabs(end - ns) / ns;

	return isnan(end) || !(ns > 0) ? -1 : ppm < INT32_MAX ? (int32_t)ppm : INT32_MAX;
}

static int set_time(struct filler *f, struct pl_edit *e, uint32_t node,
		    const struct pl_kernel_time *t, struct pl_err *err)
{
	double ns = fmin(t->ns, 0x1p60);

	f->beyond += t->flag == PL_KERNEL_EXTRAPOLATED;
	if (t->flag == PL_KERNEL_UNKNOWN) {
		f->alike++;
		PL_CHECK(names_add(&f->alike_names, pl_edit_name(e, e->node[node].name), ns, err));
	}
	f->open += isnan(t->lo_ns);
	e->node[node].below = away(ns, t->lo_ns);
	e->node[node].above = away(ns, t->hi_ns);
	return pl_edit_set_dur(e, node, (pl_ns)llround(ns), err);
}

static int set_times(struct filler *f, struct pl_edit *e, struct pl_err *err)
{
	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];
		const struct pl_shape *x = &f->g.shape[f->g.step[n->step].shape];
		struct pl_kernel_time t;
		struct names *names;

		if (n->origin == PL_NONE || !is_predicted(x, n->origin))
			continue;
		f->all++;
		if (pl_predictor_answer(f->predictor, f->device, asked_of(f, x, n->origin), f->t,
					&t)) {
			PL_CHECK(set_time(f, e, i, &t, err));
			continue;
		}
		f->unknown++;
		names = e->node[i].dur ? &f->unknown_names : &f->timeless_names;
		f->timeless += e->node[i].dur == 0;
		PL_CHECK(names_add(names, pl_intern_get(&f->g.str, x->name[n->origin]),
				   (double)e->node[i].dur, err));
	}
	return pl_sim_settle(e, err);
}

static void say(struct filler *f, const char *file)
{
	const struct pl_log *log = &f->w->c->c.log;
	char text[NAMES_TEXT];

	if (f->unknown > f->timeless)
		pl_say(log, PL_LOG_WARN,
		       "%s: %zu of %zu operations keep their durations, because the model does "
		       "not know them (%s)",
		       file, f->unknown - f->timeless, f->all,
		       names_text(&f->unknown_names, text, sizeof(text)));
	if (f->timeless)
		pl_say(log, PL_LOG_WARN,
		       "%s: %zu of %zu operations have no time, because the model does not know "
		       "them (%s); of a job, make the graph with or without --operators, as "
		       "the model was measured",
		       file, f->timeless, f->all,
		       names_text(&f->timeless_names, text, sizeof(text)));
	if (f->open)
		pl_say(log, PL_LOG_WARN,
		       "%s: %zu of %zu operations have a time without an interval, which that "
		       "of the step leaves out",
		       file, f->open, f->all);
	if (f->alike)
		pl_say(log, PL_LOG_WARN,
		       "%s: %zu of %zu operations have names of which nothing or little was "
		       "measured "
		       "(%s): other operations of their family predict them, with wide "
		       "intervals",
		       file, f->alike, f->all, names_text(&f->alike_names, text, sizeof(text)));
	if (f->beyond)
		pl_say(log, PL_LOG_WARN,
		       "%s: %zu of %zu operations are outside of what was measured: their times "
		       "are less sure, and the farther away their sizes are, the wider are their "
		       "intervals",
		       file, f->beyond, f->all);
}

/*
 * The host in front of the device. A CPU launches nothing. The layers of run(1) are C, and what it
 * takes to launch them is in their times.
 */
static int add_hosts(struct filler *f, struct pl_edit *e, struct pl_err *err)
{
	const struct pl_device *d = &f->w->devices.v[f->device];
	struct pl_cost_host host = pl_cost_host_usual;
	bool assumed = false;
	size_t n;

	if (!isnan(f->w->c->host_us))
		host.ns = host.low = host.high = 1e3 * f->w->c->host_us;
	else if (d->cpu > 0 || !strcmp(pl_schema_name(f->w->schema), "run"))
		host.ns = 0;
	else if (d->host_ns > 0)
		host = (struct pl_cost_host){ d->host_ns, d->host_low_ns, d->host_high_ns };
	else
		assumed = true;
	if (!(host.ns > 0))
		return 0;
	PL_CHECK(pl_cost_add_hosts(e, &host, &n, err));
	if (n && assumed)
		pl_say(&f->w->c->c.log, PL_LOG_NOTE,
		       "%zu operations are launched by a host that is assumed to take %.0f us for "
		       "each (%.0f to %.0f); --host-us, or Host_Launch of the data sheet, says how "
		       "long yours takes",
		       n, host.ns / 1e3, host.low / 1e3, host.high / 1e3);
	return pl_sim_settle(e, err);
}

static int write_graph(struct filler *f, const struct pl_edit *e, struct pl_out *out,
		       struct pl_err *err)
{
	struct pl_buf line = { 0 };
	struct pl_graph g;
	int rc;

	PL_CHECK(pl_edit_graph(e, &g, err));
	rc = pl_provenance(&f->w->c->c, &line, err);
	if (rc >= 0)
		rc = pl_graph_write(&g, out, (int)f->w->c->c.level, f->w->pool,
				    (const char *)line.p, err);
	pl_buf_fini(&line);
	pl_graph_fini(&g);
	return rc;
}

/* What makes the times of all operations together, in place of the graph. */
static int explain_graph(const struct filler *f, struct pl_out *out, struct pl_err *err)
{
	struct pl_writer to;
	double *times, n;
	int rc;

	PL_CHECK(pl_alloc(&times, f->s.n + 1, sizeof(*times), err));
	for (uint32_t i = 0; i < f->g.n_steps; i++) {
		const struct pl_shape *x = &f->g.shape[f->g.step[i].shape];

		for (uint32_t k = 0; k < x->n_nodes; k++) {
			uint32_t sample = is_predicted(x, k)
						  ? pl_predictor_sample(asked_of(f, x, k), f->t, &n)
						  : PL_NONE;

			if (sample != PL_NONE)
				times[sample] += n;
		}
	}
	pl_write_init(&to, out, 0);
	rc = pl_kernel_explain_all(f->w->model, &f->s, f->s.v, times, f->s.n, &to, err);
	if (rc >= 0)
		rc = pl_write_end(&to, err);
	pl_write_fini(&to);
	pl_free(times);
	return rc;
}

/* A table or a job is no graph. */
static int check_graph(struct pl_in *in, struct pl_err *err)
{
	const uint8_t *first;
	int64_t n = pl_in_peek(in, 18, &first, err);

	return n < 0 ? (int)n
	       : !n || pl_container_probe(first, (size_t)n)
		       ? 0
		       : pl_fail(err, PL_EDATA,
				 "%s: not a graph, which -O graph needs: graph(1) makes one of a "
				 "job or a recording; a table is predicted without -O",
				 pl_in_name(in));
}

int fill_graph(const struct work *w, struct pl_out *out, struct pl_err *err)
{
	struct filler f = { .w = w };
	struct pl_in *in = pl_in_open(w->argv[0], err);
	struct pl_edit e = { 0 };
	struct pl_sim *s = NULL;
	int rc;

	if (!in)
		return err->code;
	pl_graph_init(&f.g);
	PL_TRY(check_graph(in, err));
	PL_TRY(pl_derive_read(in, w->pool, &f.g, err));
	PL_TRY(find_times(&f, err));
	if (w->c->explain) {
		rc = explain_graph(&f, out, err);
		goto out;
	}
	s = pl_sim_new(&f.g, err);
	PL_TRY(s ? 0 : err->code);
	PL_TRY(pl_sim_edit(s, 0, f.g.n_steps, &e, err));
	PL_TRY(set_times(&f, &e, err));
	PL_TRY(add_hosts(&f, &e, err));
	say(&f, pl_in_name(in));
	PL_TRY(write_graph(&f, &e, out, err));
out:
	if (rc < 0 && !strstr(err->msg, pl_in_name(in)))
		pl_wrap(err, "%s", pl_in_name(in));
	pl_edit_fini(&e);
	pl_sim_free(s);
	pl_graph_fini(&f.g);
	pl_samples_fini(&f.s);
	pl_intern_fini(&f.seen);
	names_fini(&f.unknown_names);
	names_fini(&f.timeless_names);
	names_fini(&f.alike_names);
	pl_predictor_free(f.predictor);
	pl_free(f.known);
	pl_free(f.t);
	pl_in_close(in);
	return rc;
}
