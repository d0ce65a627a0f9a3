/*
 * Executions of programs of XLA, the calls that start them, and the collectives in them; xla.c says
 * how they are found.
 */
#include <stdlib.h>

#include "import/xla_internal.h"

/* ---- executions and their calls ------------------------------------------------------------ */

static int by_device(const void *pa, const void *pb)
{
	const struct event *a = *(struct event *const *)pa, *c = *(struct event *const *)pb;
	int order = PL_COMPARE_FIELDS(a, c, device, ts);

	return order ? order : PL_COMPARE(a, c);
}

/* Which events are the calls of the first device: those for all, or its own. The thread that
 * launches for it would else be one more that idles until the call. */
void pl_import_xla_choose_calls(struct pl_xla *x)
{
	bool others = false, all = false;

	for (size_t i = 0; i < x->n; i++) {
		const struct event *e = event_at(x, i);

		others |= e->class == PL_XC_LAUNCH && x->n_devices &&
			  e->device != x->device[0].number;
		all |= e->class == PL_XC_DISPATCH;
	}
	x->dispatches = others && all;
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = event_at(x, i);

		/* a launch, or something inside it */
		if (!e->op && e->line == PL_XL_RANGES && x->dispatches &&
		    e->device == x->device[0].number && e->class != PL_XC_DISPATCH)
			e->class = PL_XC_EXECUTOR;
		else if (!x->n_devices && e->class == PL_XC_LAUNCH)
			e->class =
				PL_XC_HOST; /* older versions record no operations: it computes */
		else if (e->class == PL_XC_DISPATCH)
			e->class = x->dispatches ? PL_XC_LAUNCH : PL_XC_HOST;
		if (e->class == PL_XC_LAUNCH && e->device < 0)
			e->device = x->device[0].number;
	}
}

static int compare_runs(const void *pa, const void *pb)
{
	const struct run *a = pa, *b = pb;

	return PL_COMPARE_FIELDS(a, b, device, start, number);
}

static int by_number(const void *pa, const void *pb)
{
	const struct run *a = pa, *b = pb;

	return PL_COMPARE_FIELDS(a, b, device, number, start);
}

struct run *pl_import_xla_run(const struct pl_xla *x, const struct event *e)
{
	const struct run key = { .device = e->device, .number = e->run };
	size_t at = 0;

	PL_LOWER_BOUND(at, x->n_runs, by_number(&x->run[at], &key) < 0);
	return e->run != INT64_MIN && at < x->n_runs && x->run[at].device == e->device &&
			       x->run[at].number == e->run
		       ? &x->run[at]
		       : NULL;
}

static int list_runs(struct pl_xla *x, struct pl_err *err)
{
	size_t n = 0;

	for (size_t i = 0; i < x->n; i++) {
		const struct event *e = event_at(x, i);

		if (e->op && e->run != INT64_MIN)
			PL_CHECK(pl_append(&x->run, &x->n_runs, &x->cap_runs,
					   &(struct run){ e->device, e->run, e->ts, e->end, 0, 0 },
					   sizeof(*x->run), err));
	}
	pl_sort(x->run, x->n_runs, sizeof(*x->run), by_number);
	for (size_t i = 0; i < x->n_runs; i++) {
		struct run *to = n ? &x->run[n - 1] : NULL;

		if (to && to->device == x->run[i].device && to->number == x->run[i].number)
			to->end = pl_max_i64(to->end, x->run[i].end);
		else
			x->run[n++] = x->run[i];
	}
	x->n_runs = n;
	return 0;
}

/* The calls of each device and its executions, both in order of time. An execution that began
 * before the first call that is left was started before the profile began. */
static void pair_calls(struct pl_xla *x)
{
	size_t k = 0, n = pl_import_xla_pick(x, pl_import_xla_is_launch, by_device);

	pl_sort(x->run, x->n_runs, sizeof(*x->run), compare_runs);
	for (size_t i = 0; i < n; i++) {
		struct event *e = picked(x, i);

		while (k < x->n_runs &&
		       (x->run[k].device < e->device ||
			(x->run[k].device == e->device && x->run[k].start < e->ts)))
			k++;
		if (k == x->n_runs || x->run[k].device != e->device)
			continue;
		e->run = x->run[k].number;
		x->run[k].call = e->ts;
		e->corr = x->run[k++].corr = ++x->corr;
	}
	pl_sort(x->run, x->n_runs, sizeof(*x->run), by_number);
}

int pl_import_xla_calls(struct pl_xla *x, struct pl_err *err)
{
	PL_CHECK(list_runs(x, err));
	pair_calls(x);
	return 0;
}

/* ---- collectives --------------------------------------------------------------------------- */

struct word *pl_import_xla_word(const struct pl_xla *x, pl_id id)
{
	struct word *w = &x->word[id];
	const char *name = text(x, id);

	if (PL_LIKELY(w->is))
		return w;
	w->is = true;
	w->contains = pl_import_xla_contains(name);
	w->devcomm = pl_import_name_class(name, strlen(name)) == PL_N_DEVCOMM;
	w->copy = strcasestr(name, "memcpy");
	w->set = strcasestr(name, "memset");
	w->coll = pl_import_xla_coll(name, strlen(name));
	return w;
}

/* What the description of its program says; the latest answer is kept. */
static const struct known *find_known(const struct pl_xla *x, const struct event *e)
{
	char key[512];
	struct word *w;
	pl_id id;
	int n;

	if (!x->known_key.n || e->name_op == PL_NONE)
		return NULL;
	w = pl_import_xla_word(x, e->name_op);
	if (w->looked && w->module == e->module && w->program == e->program)
		return w->known;
	n = snprintf(key, sizeof(key), "%s(%llu)/%s", text(x, e->module),
		     (unsigned long long)e->program, text(x, e->name_op));
	id = n < 0 || n >= (int)sizeof(key) ? PL_NONE
					    : pl_intern_find(&x->known_key, key, (size_t)n);
	w->known = id == PL_NONE ? NULL : &x->known[id];
	w->module = e->module;
	w->program = e->program;
	w->looked = true;
	return w->known;
}

void pl_import_xla_collective(struct pl_xla *x, struct event *e)
{
	const struct known *k = find_known(x, e);
	const struct word *op = pl_import_xla_word(x, e->name_op != PL_NONE ? e->name_op : e->name);

	if (!e->coll && k)
		e->coll = k->coll;
	if (!e->coll && e->line != PL_XL_STREAM)
		e->coll = op->coll;
	if (!e->coll && x->place[e->track].line == PL_XL_STREAM &&
	    pl_import_xla_word(x, e->name)->devcomm) {
		const char *name = text(x, e->name);

		e->coll = op->coll;
		e->coll = e->coll ? e->coll : pl_trace_coll_from_name(name, strlen(name));
		e->coll = e->coll ? e->coll : pl_trace_coll_name(PL_COLL_OTHER);
	}
	if (e->coll && k && k->bytes >= 0)
		e->bytes = k->bytes;
}

int pl_import_xla_by_time(const void *pa, const void *pb)
{
	const struct event *a = *(struct event *const *)pa, *c = *(struct event *const *)pb;
	int order = PL_COMPARE(a->ts, c->ts);

	return order ? order : PL_COMPARE(a, c);
}

/* The key of a collective on one device, or of all devices that take part (device -1). */
static int seq_key(struct pl_xla *x, const struct event *e, int32_t device, pl_id *id,
		   struct pl_err *err)
{
	const int64_t key[] = { e->run,	  e->module, e->name_op != PL_NONE ? e->name_op : e->name,
				e->group, device,    device < 0 ? e->nth : 0 };

	return pl_intern_add(&x->seq_key, (const char *)key, sizeof(key), id, err);
}

static bool is_numbered(const struct pl_xla *x, const struct event *e)
{
	(void)x;
	return e->coll && e->op && !e->outer && e->group != PL_NONE;
}

/* Number the collectives: the same number on all devices of a group. */
int pl_import_xla_number(struct pl_xla *x, struct pl_err *err)
{
	uint32_t *count = NULL;
	size_t cap = 0, n_count = 0, n = pl_import_xla_pick(x, is_numbered, pl_import_xla_by_time);
	int64_t next = 0;
	pl_id id;
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		struct event *e = picked(x, i);

		PL_TRY(seq_key(x, e, e->device, &id, err));
		PL_TRY(pl_grow(&count, &cap, (size_t)id + 3, sizeof(*count), err));
		for (; n_count < (size_t)id + 3; n_count++)
			count[n_count] = UINT32_MAX;
		e->nth = ++count[id]; /* from 0 */
		PL_TRY(seq_key(x, e, -1, &id, err));
		PL_TRY(pl_grow(&count, &cap, (size_t)id + 3, sizeof(*count), err));
		for (; n_count < (size_t)id + 3; n_count++)
			count[n_count] = UINT32_MAX;
		if (count[id] == UINT32_MAX)
			count[id] = (uint32_t)next++;
		e->seq = count[id];
	}
out:
	pl_free(count);
	return rc;
}
