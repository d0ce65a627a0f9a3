/*
 * loader-workers: processes read the batches while the job computes (num_workers of a DataLoader).
 *
 * N workers hand over N batches in the time that one of them needs for one. They read ahead, so the
 * job waits only if a batch is not there yet: AHEAD batches for each worker, as a DataLoader does
 * that is not told otherwise. A *fetch* is a run of operations of phase input on a thread, which is
 * how the job takes its next batch.
 *
 * Without workers the thread reads the batch itself: the fetch is the time of a batch. With workers
 * its operations take no time, and an operation on the resource "loader workers" takes the N-th
 * part of it. Each follows the one before, in earlier steps, too: an entry in each step stands for
 * it. The fetch waits for its end. The first of them has begun before the recording: at the fetch
 * before the first, as long ago as the thread works between two fetches. Where steps are apart,
 * that is true of each step: it begins when it was recorded, and the fetch before it ended as long
 * ago as in the recording.
 *
 * Batches have AHEAD * N places. When the job takes a batch, a worker begins with the next one for
 * its place, and reads all but the N-th part of it; then that part follows the batches before, as
 * above. It is an operation on a resource of the place, for which an entry stands in a later step.
 * So a step that takes much longer than others gives the job no more than these batches.
 *
 * If the job was recorded with workers that are too slow, lib/derive (loader.c) made these
 * operations, and their durations change. The recording does not show how many workers there were.
 * Without workers the thread spends all of the time that they took.
 *
 * Not modelled: processors that the workers take from the job. O(nodes).
 */
#include <stdlib.h>

#include "rewrite/rewrite_internal.h"

#define AHEAD  2 /* prefetch_factor */
#define PLACES "loader workers ahead"

struct fetch {
	uint32_t res, first; /* the thread, and its first operation */
	pl_ns begin, end;    /* as recorded */
	pl_ns dur;	     /* of its operations */
};
struct fetches {
	struct fetch *v; /* by thread, then by time */
	size_t n, cap;
};

/* Is it the resource of workers? */
static bool is_workers(const struct pl_edit *e, uint32_t res)
{
	return res != PL_NONE &&
	       !strcmp(pl_edit_name(e, e->res[res].name), PL_GRAPH_LOADER_WORKERS);
}

/* Does the thread spend time for its next batch here? */
static bool reads(const struct pl_edit *e, const struct pl_enode *n)
{
	return !n->dead && n->type == PL_N_OP && n->phase == PL_PH_INPUT &&
	       e->res[n->res].track_type == PL_T_THREAD &&
	       (n->role == PL_RO_HOST || n->role == PL_RO_GAP || n->role == PL_RO_COMPUTE ||
		n->role == PL_RO_COPY);
}

PL_COMPARATOR(by_thread, struct fetch, res, begin);

static int find_fetches(struct pl_rewriter *r, struct fetches *f, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	uint32_t *open; /* [resource]: number of its open fetch and 1 */
	int rc;

	PL_CHECK(pl_alloc(&open, e->n_res, sizeof(*open), err));
	for (uint32_t i = 0; i < r->n_recorded; i++) {
		const struct pl_enode *n = &e->node[i];
		struct fetch x = { n->res, i, n->start, 0, 0 };

		if (n->res == PL_NONE || n->type == PL_N_ENTRY || is_workers(e, n->res))
			continue;
		if (!reads(e, n)) {
			open[n->res] = 0;
			continue;
		}
		if (!open[n->res]) {
			PL_TRY(pl_append(&f->v, &f->n, &f->cap, &x, sizeof(x), err));
			open[n->res] = (uint32_t)f->n;
		}
		f->v[open[n->res] - 1].end = pl_edit_end(e, i);
		f->v[open[n->res] - 1].dur += n->dur;
	}
	pl_sort(f->v, f->n, sizeof(*f->v), by_thread);
	rc = 0;
out:
	pl_free(open);
	return rc;
}

/* ---- no workers were recorded ---------------------------------------------------------------- */

/* How long the thread works, on average, from one of its n fetches to the next. */
static pl_ns between(const struct pl_edit *e, const struct fetch *f, size_t n)
{
	pl_ns sum = 0;

	if (n < 2)
		return pl_max_i64(0, pl_sub_sat(pl_edit_step(e, e->node[f->first].step), f->dur));
	for (size_t i = 1; i < n; i++)
		sum += f[i].begin - f[i - 1].end;
	return sum / (pl_ns)(n - 1);
}

/* The operations of a fetch take no time. */
static void silence(struct pl_rewriter *r, const struct fetch *f)
{
	for (uint32_t i = f->first; i < r->n_recorded; i++) {
		const struct pl_enode *n = &r->e->node[i];

		if (n->res != f->res || n->step != r->e->node[f->first].step)
			continue;
		if (!reads(r->e, n) || n->start >= f->end)
			break;
		rw_set_dur(r, i, 0);
	}
}

/* The entry of the workers `id` in the step of a fetch. PL_NONE: they have read nothing `before`,
 * and begin at that time. */
static uint32_t add_entry(struct pl_rewriter *r, uint32_t id, const struct fetch *f,
			  uint32_t before, pl_ns begin)
{
	struct pl_enode x = pl_edit_blank_node();
	uint32_t entry;

	x.type = PL_N_ENTRY;
	x.step = r->e->node[f->first].step;
	x.res = id;
	x.name = r->e->res[id].name;
	x.start = begin;
	x.fixed = before == PL_NONE ? begin : INT64_MIN;
	entry = rw_add_node(r, &x, before == PL_NONE ? f->first : before);
	if (before != PL_NONE)
		rw_add_edge(r, before, entry, PL_E_SEQ, 0);
	return entry;
}

/* What workers do for a fetch. */
static struct pl_enode work_for(const struct pl_edit *e, const struct fetch *f, uint32_t res,
				pl_ns dur, pl_ns begin)
{
	struct pl_enode x = e->node[f->first];

	x.res = res;
	x.role = PL_RO_HOST;
	x.kind = PL_K_DATA;
	x.origin = x.work = PL_NONE;
	x.flags = 0;
	x.dur = dur;
	x.start = begin;
	x.fixed = INT64_MIN;
	return x;
}

static uint32_t add_workers(struct pl_rewriter *r, uint32_t thread, const char *name)
{
	struct pl_resource res = r->e->res[thread];
	uint32_t id = 0;

	if (r->rc == 0)
		r->rc = pl_edit_add_name(r->e, name, &res.name, &r->failure);
	if (r->rc == 0)
		r->rc = pl_edit_add_resource(r->e, &res, &id, &r->failure);
	return id;
}

struct places { /* of batches that are read or wait for the job */
	size_t n;
	uint32_t *res;	/* [place]; PL_NONE: it was not needed so far */
	uint32_t *node; /* [place]: what its worker reads first; PL_NONE: no batch is begun */
};

static void places_init(struct pl_rewriter *r, struct places *p, size_t batches, int64_t workers)
{
	size_t n = pl_min_size(AHEAD * (size_t)workers, batches);

	*p = (struct places){ .n = AHEAD * (size_t)workers };
	if (r->rc == 0)
		r->rc = pl_alloc(&p->res, n, sizeof(*p->res), &r->failure);
	if (r->rc == 0)
		r->rc = pl_alloc(&p->node, n, sizeof(*p->node), &r->failure);
	for (size_t i = 0; r->rc == 0 && i < n; i++)
		p->res[i] = p->node[i] = PL_NONE;
}

/* Batch i was taken: a worker begins with that which gets its place. */
static void begin_next(struct pl_rewriter *r, struct places *p, const struct fetch *f, size_t i,
		       int64_t workers)
{
	const struct pl_edit *e = r->e;
	pl_ns dur = f[i + p->n].dur;
	size_t k = i % p->n;
	struct pl_enode x;

	p->node[k] = PL_NONE;
	if (pl_edit_parted(e) && e->node[f[i].first].step != e->node[f[i + p->n].first].step)
		return;
	if (p->res[k] == PL_NONE)
		p->res[k] = add_workers(r, f->res, PLACES);
	x = work_for(e, &f[i], p->res[k], dur - dur / workers, f[i].begin);
	p->node[k] = rw_add_node(r, &x, f[i].first);
	rw_add_edge(r, f[i].first, p->node[k], PL_E_WAIT, 0);
}

/* The last part of batch i, at `node`, follows the first one. */
static void go_on(struct pl_rewriter *r, const struct places *p, const struct fetch *f, size_t i,
		  uint32_t node)
{
	size_t k = i % p->n;
	uint32_t from = i < p->n ? PL_NONE : p->node[k];

	if (from == PL_NONE)
		return;
	if (r->e->node[from].step != r->e->node[f[i].first].step)
		from = add_entry(r, p->res[k], &f[i], from, r->e->node[from].start);
	rw_add_edge(r, from, node, PL_E_WAIT, 0);
}

/* The n fetches of a thread wait for workers. */
static void hand_over(struct pl_rewriter *r, const struct fetch *f, size_t n, int64_t workers)
{
	const struct pl_edit *e = r->e;
	uint32_t before = PL_NONE, last, id = add_workers(r, f->res, PL_GRAPH_LOADER_WORKERS);
	struct places p;

	places_init(r, &p, n, workers);
	for (size_t i = 0; i < n && r->rc == 0; i++) {
		pl_ns begin = i ? f[i - 1].end : f[i].begin - between(e, f, n);
		struct pl_enode x;

		if (!i || e->node[f[i].first].step != e->node[f[i - 1].first].step)
			before = add_entry(r, id, &f[i], pl_edit_parted(e) ? PL_NONE : before,
					   begin);
		x = work_for(e, &f[i], id, f[i].dur / workers, begin);
		last = before;
		before = rw_add_node(r, &x, last);
		rw_add_edge(r, last, before, PL_E_SEQ, 0);
		rw_add_edge(r, before, f[i].first, PL_E_WAIT, 0);
		go_on(r, &p, f, i, before);
		silence(r, &f[i]);
		if (i + p.n < n)
			begin_next(r, &p, f, i, workers);
	}
	pl_free(p.res);
	pl_free(p.node);
}

/* ---- workers were recorded ------------------------------------------------------------------- */

/* The operation of the thread before the one that waits for the batch. The wait may be in the next
 * step, whose entry of the workers stands between. */
static uint32_t asks_for(const struct pl_edit *e, uint32_t batch)
{
	uint32_t entry = PL_NONE;

	for (uint32_t x = e->node[batch].out; x != PL_NONE; x = e->edge[x].out_next) {
		uint32_t waits = e->edge[x].dst, res = e->node[waits].res;

		if (res == e->node[batch].res && e->node[waits].type == PL_N_ENTRY)
			entry = waits;
		if (res == PL_NONE || res == e->node[batch].res)
			continue;
		for (uint32_t y = e->node[waits].in; y != PL_NONE; y = e->edge[y].in_next)
			if (e->node[e->edge[y].src].res == res)
				return e->edge[y].src;
	}
	return entry == PL_NONE ? PL_NONE : asks_for(e, entry);
}

/* The mean time of a recorded batch; 0: there is none. */
static double mean_batch(const struct pl_rewriter *r)
{
	const struct pl_edit *e = r->e;
	double sum = 0, n = 0;

	for (uint32_t i = 0; i < r->n_recorded; i++)
		if (!e->node[i].dead && e->node[i].type == PL_N_OP &&
		    is_workers(e, e->node[i].res)) {
			sum += (double)e->node[i].dur;
			n++;
		}
	return n > 0 ? sum / n : 0;
}

/* The thread that asked for the batch behind `node` spends that much more time. */
static void ask_longer(struct pl_rewriter *r, uint32_t node, double ns)
{
	uint32_t asks = asks_for(r->e, node);

	if (asks != PL_NONE)
		rw_set_dur(r, asks, r->e->node[asks].dur + llround(ns));
}

/* Other workers; none: the thread that asked for the batch reads it. A batch that begins before the
 * steps at hand is known by its end alone; it ends earlier by what a batch gains. */
static void change_workers(struct pl_rewriter *r, double was, int64_t workers, double batch)
{
	const struct pl_edit *e = r->e;
	double by = workers ? was / (double)workers : 0;

	for (uint32_t i = 0; i < r->n_recorded; i++) {
		const struct pl_enode n = e->node[i];
		bool begun = n.type == PL_N_ENTRY && n.fixed != INT64_MIN;

		if (n.dead || !is_workers(e, n.res) || (n.type != PL_N_OP && !begun))
			continue;
		if (!workers)
			ask_longer(r, i, was * (begun ? batch : (double)n.dur));
		if (begun)
			rw_set_fixed(r, i, n.fixed - llround((1 - by) * batch));
		else
			rw_set_dur(r, i, rw_times(n.dur, by));
	}
}

static int apply_loader(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	struct fetches f = { 0 };
	bool recorded = false;
	double batch;
	int rc = 0;

	for (uint32_t i = 0; i < e->n_res; i++) {
		if (is_workers(e, i) && i >= e->g->n_res)
			return pl_fail(err, PL_EDATA, "the loader has other workers already");
		recorded |= is_workers(e, i);
	}
	if (recorded && !(rw->x > 0))
		return pl_fail(err, PL_EDATA,
			       "the job was recorded with workers, and the recording does not say "
			       "how many; write: loader-workers %lld was=M",
			       (long long)rw->k);
	if (recorded) {
		batch = mean_batch(r);
		change_workers(r, rw->x, rw->k, batch);
		return batch > 0 ? 0 : pl_fail(err, PL_EDATA, "the job waits for no batch");
	}
	if (!rw->k)
		return pl_fail(err, PL_EDATA,
			       rw->x > 0
				       ? "the job waits for no batch, so nothing says how long "
					 "its workers read one"
				       : "the job was recorded without workers that are too slow");
	PL_TRY(find_fetches(r, &f, err));
	for (size_t i = 0, n; i < f.n; i += n) {
		for (n = 1; i + n < f.n && f.v[i + n].res == f.v[i].res; n++)
			;
		hand_over(r, &f.v[i], n, rw->k);
	}
	if (!f.n)
		rc = pl_fail(err, PL_EDATA, "the recording shows no loader of batches");
out:
	pl_free(f.v);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_loader_workers = {
	.apply = apply_loader,
	.explain = "{k} processes read batches while the job computes, so it waits only for a "
		   "batch that is not there yet"
};
