/*
 * What events of an XLA profile mean: steps, operations of devices and the calls that start them,
 * waits, collectives.
 *
 * Nothing is given on before the end of a segment, because the meaning of an event depends on
 * others:
 *
 * - A device is a rank, if the file has several. On CPUs its operations run on threads of a pool
 *   that all devices share; they move to one track for each device. An operation that contains
 *   others ("while") is a range.
 * - An execution of a program has a number (run_id), which its operations have on every device. The
 *   calls that start executions do not, so they pair with the executions of their device in order.
 * - An operation of a CPU inside which the devices of the process meet is a collective; the text of
 *   the rendezvous has its kind and its devices. Elsewhere the operation's name says it. The k-th
 *   operation of one name in one execution is the same collective on all devices: this gives the
 *   numbers by which merge matches them.
 * - Where one call starts an execution on all devices, a thread for each device launches it. These
 *   threads wait for the call, and the call waits for their launches. Both waits are added. Each
 *   has the correlation of the call or launch for which it waits.
 * - JAX records little of its waits for a device. A thread that started executions, and then has no
 *   event until shortly after one of them ended on a device, waited for it: a call Synchronize is
 *   added, with the argument `inferred`. A recorded wait gets one without it.
 * - A call of a function of TensorFlow lasts until threads of a pool have computed it. So it is a
 *   range, as what contains it: its thread works for its own operations and waits in between.
 * - Steps are those that the program annotated (step_num), else those of the device's own line.
 *   Ranks of further devices get the steps of the host as events of their own.
 *
 * O(n log n) in the events. Batches are held, or the reader gives them twice; of each event of a
 * host that needs more than its name about 180 bytes are kept besides, of an operation of a device
 * 24. Where these are many, they are in a temporary file.
 */
#include <stdlib.h>

#include "import/xla_internal.h"

uint8_t pl_import_xla_class_of(struct pl_xla *x, pl_id name)
{
	if (!x->class[name])
		x->class[name] = pl_import_xla_class(text(x, name));
	return x->class[name];
}

/* ---- threads: what lies inside what -------------------------------------------------------- */

int pl_import_xla_by_track(const void *pa, const void *pb)
{
	const struct event *a = *(struct event *const *)pa, *c = *(struct event *const *)pb;
	int order = PL_COMPARE_FIELDS(a, c, track, ts);

	order = order ? order : PL_COMPARE(c->end, a->end);
	return order ? order : PL_COMPARE(a, c);
}

static bool is_work(const struct pl_xla *x, const struct event *e)
{
	if (x->place[e->track].plane == PL_XP_HOST)
		return e->name_op != PL_NONE && e->device >= 0;
	return e->line == PL_XL_STREAM || e->line == PL_XL_OPS || e->line == PL_XL_ASYNC;
}

/* "[3] CommonPjRtLoadedExecutable::Execute (jit_step)": the device; else that of the thread. */
int32_t pl_import_xla_launches_for(const char *name)
{
	int64_t v;

	if (*name++ != '[')
		return 0;
	v = pl_take_digits(&name);
	return v >= 0 && v < PL_XLA_NUMBERS ? (int32_t)v : 0;
}

/* The text of a rendezvous: "all reduce RendezvousKey{..., global_devices=[0, 1], ...}". */
static int meet(struct pl_xla *x, struct event *op, const struct event *e, struct pl_err *err)
{
	const char *s = text(x, e->text), *key = strstr(s, " RendezvousKey"),
		   *list = strstr(s, "global_devices=["), *end = list ? strchr(list, ']') : NULL;

	if (!key || op->coll)
		return 0;
	op->coll = pl_trace_coll_from_name(s, (size_t)(key - s));
	op->coll = op->coll ? op->coll : pl_trace_coll_name(PL_COLL_OTHER);
	if (list)
		list += strlen("global_devices=");
	return end ? pl_intern_add(&x->seg->str, list, (size_t)(end + 1 - list), &op->group, err)
		   : 0;
}

size_t pl_import_xla_pick(struct pl_xla *x,
			  bool (*want)(const struct pl_xla *x, const struct event *e),
			  int (*order)(const void *, const void *))
{
	bool sorted = true;
	size_t n = 0;

	for (size_t i = 0; i < x->n; i++) {
		struct event *e = event_at(x, i);

		if (want && !want(x, e))
			continue;
		sorted = sorted && (!n || order(&x->by[n - 1], &e) <= 0);
		x->by[n++] = e;
		if (!(n & 0xffff))
			pl_spill_rest(&x->pointers);
	}
	if (!sorted) /* events of most lines are in order, and then memory is not filled with all */
		pl_sort(x->by, n, sizeof(*x->by), order);
	return n;
}

#define DEPTH 256

/* One event of a thread, with those around it. */
static int nested(struct pl_xla *x, struct event *e, struct event *const *stack, int depth,
		  struct pl_err *err)
{
	for (int d = depth; d-- > 0;) {
		struct event *o = stack[d];

		if (e->class == PL_XC_RENDEZVOUS && o->op)
			return meet(x, o, e, err);
		if (e->op && o->op)
			o->outer = true;
		if (e->class == PL_XC_CALL && o->class == PL_XC_HOST && !o->op)
			o->class = PL_XC_CALL;
		if (e->class == PL_XC_JOIN && o->class == PL_XC_DISPATCH)
			o->join = e;
		/* the outermost step, wait or call counts */
		if ((e->class == PL_XC_SYNC || e->class == PL_XC_LAUNCH) && o->class == e->class)
			e->class = PL_XC_HOST;
		if (e->step != INT64_MIN && o->step != INT64_MIN)
			e->step = INT64_MIN;
		/* what happens inside the call for a device belongs to its rank */
		if (o->class == PL_XC_LAUNCH && e->class != PL_XC_LAUNCH && !e->op)
			e->device = o->device;
	}
	return 0;
}

static int threads(struct pl_xla *x, struct pl_err *err)
{
	struct event *stack[DEPTH];
	int depth = 0;

	pl_import_xla_pick(x, NULL, pl_import_xla_by_track);
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = picked(x, i);

		while (depth &&
		       (stack[depth - 1]->track != e->track || stack[depth - 1]->end <= e->ts))
			depth--;
		e->op = is_work(x, e);
		if (e->class == PL_XC_LAUNCH)
			e->device = pl_import_xla_launches_for(text(x, e->name));
		PL_CHECK(nested(x, e, stack, depth, err));
		if (depth < DEPTH)
			stack[depth++] = e;
	}
	return 0;
}

/* ---- devices ------------------------------------------------------------------------------- */

struct device *pl_import_xla_device(struct pl_xla *x, int32_t number)
{
	if (x->hint < x->n_devices && x->device[x->hint].number == number) /* mostly */
		return &x->device[x->hint];
	for (size_t i = 0; i < x->n_devices; i++)
		if (x->device[i].number == number)
			return &x->device[x->hint = i];
	return NULL;
}

static int compare_devices(const void *pa, const void *pb)
{
	const struct device *a = pa, *b = pb;

	return PL_COMPARE(a->number, b->number);
}

int pl_import_xla_note_device(struct pl_xla *x, int32_t number, struct device **d,
			      struct pl_err *err)
{
	const struct device fresh = {
		.number = number, .rank = number, .track = PL_NONE, .host = PL_NONE
	};

	*d = pl_import_xla_device(x, number);
	if (!*d && x->n_devices == PL_XLA_DEVICES)
		*d = pl_import_xla_device(x, x->first_device);
	if (*d)
		return 0;
	if (!x->n_devices)
		x->first_device = number;
	PL_CHECK(pl_append(&x->device, &x->n_devices, &x->cap_devices, &fresh, sizeof(fresh), err));
	*d = &x->device[x->n_devices - 1];
	return 0;
}

/* Calls that name no device are those of the first one. */
int32_t pl_import_xla_device_number(struct pl_xla *x, int32_t number, bool op)
{
	if (op && !pl_import_xla_device(x, number))
		number = x->first_device;
	return number == 0 && x->n_devices ? x->device[0].number : number;
}

static int find_devices(struct pl_xla *x, struct pl_err *err)
{
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = event_at(x, i);
		struct device *d;

		if (!e->op)
			continue;
		PL_CHECK(pl_import_xla_note_device(x, e->device, &d, err));
		d->streams |= e->line == PL_XL_STREAM && x->place[e->track].plane == PL_XP_DEVICE;
		d->cpu |= x->place[e->track].plane == PL_XP_HOST;
	}
	pl_sort(x->device, x->n_devices, sizeof(*x->device), compare_devices);
	x->hint = 0;
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = event_at(x, i);

		e->device = pl_import_xla_device_number(x, e->device, e->op);
	}
	for (size_t i = 0; i < x->n_runs; i++)
		x->run[i].device = pl_import_xla_device_number(x, x->run[i].device, true);
	return 0;
}

static int add_track(struct pl_xla *x, struct pl_track *t, const char *name, pl_id *id,
		     struct pl_err *err)
{
	PL_CHECK(pl_intern_add(&x->seg->str, name, strlen(name), &t->name, err));
	t->tid = t->name;
	t->flags |= PL_TRACK_TID_STR;
	return pl_trace_segment_track(x->seg, t, id, err);
}

/* Of several profiles of one job, whose names tell no ranks: the ranks of this one. On CPUs the
 * number of a device says the process, else the calls may say its number in the job. */
static void rank_process(struct pl_xla *x)
{
	const int32_t n = (int32_t)x->n_devices;

	for (int32_t i = 0; x->o->process && i < n; i++) {
		struct device *d = &x->device[i];

		if (d->cpu)
			d->rank = d->number / PL_XLA_CPUS * n + i;
		else if (!d->global)
			d->rank = (x->o->process - 1) * n + i;
	}
}

/* Ranks and tracks. The host's tracks belong to the rank of the first device. */
static int place_devices(struct pl_xla *x, struct pl_err *err)
{
	uint32_t n = x->first_tracks = x->seg->n_tracks;
	bool several = x->n_devices > 1 || (x->n_devices && x->o->process && !x->o->rank_from);
	char name[48];

	rank_process(x);
	for (uint32_t i = 0; i < n; i++) {
		const struct device *d = x->place[i].plane == PL_XP_DEVICE
						 ? pl_import_xla_device(x, x->place[i].device)
					 : x->n_devices ? &x->device[0]
							: NULL;
		struct pl_track *t = &x->seg->track[i];

		if (several && d)
			t->rank = d->rank;
		if (x->place[i].plane != PL_XP_DEVICE)
			continue;
		t->device = x->place[i].device;
		t->type = PL_T_OTHER;
		if (x->place[i].line == PL_XL_STREAM ||
		    (d && !d->streams && x->place[i].line != PL_XL_RANGES &&
		     x->place[i].line != PL_XL_STEPS))
			t->type = PL_T_STREAM;
		if (t->type == PL_T_STREAM)
			t->stream = x->place[i].line == PL_XL_STREAM ? x->place[i].stream
								     : x->place[i].line - PL_XL_OPS;
	}
	for (size_t i = 0; i < x->n; i++) {
		const struct event *e = event_at(x, i);
		struct device *d = pl_import_xla_device(x, e->device);
		struct pl_track t = x->seg->track[e->track];

		if (!d || x->place[e->track].plane != PL_XP_HOST)
			continue;
		t.rank = several ? d->rank : t.rank;
		if (e->op && d->track == PL_NONE) {
			t.type = PL_T_STREAM;
			t.device = d->number;
			t.stream = 0;
			snprintf(name, sizeof(name), "device %d", d->number);
			PL_CHECK(add_track(x, &t, name, &d->track, err));
		} else if (e->class == PL_XC_LAUNCH && d != x->device && d->host == PL_NONE) {
			t.type = PL_T_THREAD;
			snprintf(name, sizeof(name), "launches of device %d", d->number);
			PL_CHECK(add_track(x, &t, name, &d->host, err));
		}
	}
	return 0;
}

/* The rank of a device is its number in the job, where the calls say it. */
static void global_numbers(struct pl_xla *x)
{
	for (size_t i = 0; i < x->n_globals; i++) {
		struct device *d = pl_import_xla_device(x, x->global[i].device);

		if (d) {
			d->rank = x->global[i].number;
			d->global = true;
		}
	}
}

/* ---- kinds and tracks ---------------------------------------------------------------------- */

static uint8_t kind_on_device(struct pl_xla *x, const struct event *e)
{
	const struct device *d = pl_import_xla_device(x, e->device);
	const struct word *name = pl_import_xla_word(x, e->name);
	bool named = *text(x, e->name_op);

	if (!e->op)
		return PL_K_GPU_ANNOTATION;
	if (e->outer || (named ? pl_import_xla_word(x, e->name_op) : name)->contains)
		return PL_K_GPU_ANNOTATION;
	if (x->place[e->track].plane == PL_XP_DEVICE && d && d->streams && e->line != PL_XL_STREAM)
		return PL_K_GPU_ANNOTATION; /* the same work as on the streams */
	if (e->coll)
		return !strcmp(e->coll, "send")	  ? PL_K_SEND
		       : !strcmp(e->coll, "recv") ? PL_K_RECV
						  : PL_K_COLLECTIVE;
	if (name->copy)
		return PL_K_COPY;
	return name->set ? PL_K_SET : PL_K_KERNEL;
}

static uint8_t kind_on_host(const struct event *e)
{
	if (e->step != INT64_MIN)
		return PL_K_STEP;
	switch (e->class) {
	case PL_XC_PYTHON_IDLE:
		return PL_K_PYTHON;
	case PL_XC_DATA:
		return PL_K_DATA;
	case PL_XC_SYNC:
	case PL_XC_JOIN:
		return PL_K_WAIT;
	case PL_XC_LAUNCH:
		return e->join ? PL_K_HOST_OP : PL_K_RUNTIME; /* a part of it is the call */
	case PL_XC_CALL:
	case PL_XC_EXECUTOR:
	case PL_XC_RENDEZVOUS:
		return PL_K_ANNOTATION;
	default:
		return e->corr != INT64_MIN ? PL_K_RUNTIME : PL_K_HOST_OP;
	}
}

void pl_import_xla_settle(struct pl_xla *x, struct event *e)
{
	bool host = x->place[e->track].plane == PL_XP_HOST;
	const struct device *d = pl_import_xla_device(x, e->device);
	const struct run *r;

	if (e->op)
		pl_import_xla_collective(x, e);
	e->kind = host && !e->op ? kind_on_host(e) : kind_on_device(x, e);
	if (e->op && (r = pl_import_xla_run(x, e)) && r->corr && e->corr == INT64_MIN)
		e->corr = r->corr;
	if (host && e->op && d)
		e->track = d->track;
	else if (host && d && d->host != PL_NONE)
		e->track = d->host;
}

/* ---- the end of a segment ------------------------------------------------------------------ */

/* Steps of the line of the first device, if the program annotated none. */
static bool steps_of_device(struct pl_xla *x)
{
	for (size_t i = 0; i < x->n; i++) {
		const struct event *e = event_at(x, i);

		if (e->step != INT64_MIN && e->device < 0)
			return false;
	}
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = event_at(x, i);
		int64_t v;

		if (e->line == PL_XL_STEPS && x->place[e->track].plane == PL_XP_DEVICE &&
		    pl_json_i64(text(x, e->name), x->seg->str.len[e->name], &v))
			e->step = v;
	}
	return true;
}

static int understand(struct pl_xla *x, struct pl_err *err)
{
	bool device_steps;

	PL_CHECK(pl_import_xla_complete(x, err));
	PL_CHECK(pl_spill_grow(&x->pointers, (x->n + 1) * sizeof(*x->by), err));
	x->by = x->pointers.p;
	PL_CHECK(pl_import_xla_outer(x, err));
	PL_CHECK(threads(x, err));
	device_steps = steps_of_device(x);
	PL_CHECK(find_devices(x, err));
	pl_import_xla_choose_calls(x);
	global_numbers(x);
	PL_CHECK(place_devices(x, err));
	PL_CHECK(pl_import_xla_calls(x, err));
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = event_at(x, i);

		e->outer |= is_outer(x, e->at);
		pl_import_xla_settle(x, e);
		if (device_steps && e->step != INT64_MIN)
			e->kind = PL_K_STEP;
	}
	PL_CHECK(pl_import_xla_number(x, err));
	x->row = 0;
	return 0;
}

static struct pl_xla *self(struct pl_sink *s)
{
	return (struct pl_xla *)(void *)((char *)s - offsetof(struct pl_xla, sink));
}

static int on_begin(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct pl_xla *x = self(s);

	x->seg = seg;
	return x->to->begin ? x->to->begin(x->to, seg, err) : 0;
}

static int on_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		    struct pl_err *err)
{
	struct pl_xla *x = self(s);

	if (!x->twice)
		return pl_trace_hold_add(&x->hold, b, NULL, err);
	return x->understood ? pl_import_xla_give(x, b, err) : pl_import_xla_learn(x, seg, b, err);
}

/* The memory of a segment; that of arrays which grow stays, but not a temporary file. */
static void forget(struct pl_xla *x)
{
	pl_free(x->facts);
	pl_free(x->outer);
	pl_free(x->class);
	pl_free(x->word);
	x->facts = NULL;
	x->outer = NULL;
	x->class = NULL;
	x->word = NULL;
	pl_spill_fini(&x->events);
	pl_spill_fini(&x->pointers);
	pl_spill_fini(&x->spans);
	x->v = NULL;
	x->by = NULL;
	x->n = x->n_spans = x->n_runs = x->n_devices = x->n_pauses = x->n_globals = 0;
	x->n_strings = x->n_places = x->hint = x->next = 0;
	x->row = 0;
	x->corr = 0;
	x->understood = x->spans_mixed = false;
	pl_intern_reset(&x->seq_key);
	pl_trace_hold_reset(&x->hold);
}

void pl_import_xla_twice(struct pl_xla *x)
{
	x->twice = true;
}

int pl_import_xla_between(struct pl_xla *x, struct pl_err *err)
{
	x->understood = true;
	return understand(x, err);
}

static int on_end(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct pl_xla *x = self(s);

	x->seg = seg;
	for (size_t i = 0; i < x->hold.n; i++)
		PL_CHECK(pl_import_xla_learn(x, seg, &x->hold.b[i], err));
	if (!x->twice)
		PL_CHECK(understand(x, err));
	for (size_t i = 0; i < x->hold.n; i++)
		PL_CHECK(pl_import_xla_give(x, &x->hold.b[i], err));
	PL_CHECK(pl_import_xla_add(x, err));
	forget(x);
	pl_trace_batch_forget(&x->more); /* another segment has other strings */
	return x->to->end ? x->to->end(x->to, seg, err) : 0;
}

/* ---- lifetime ------------------------------------------------------------------------------ */

struct pl_xla *pl_import_xla_new(const struct pl_import_opts *o, struct pl_sink *to,
				 struct pl_import_stats *st, struct pl_err *err)
{
	struct pl_xla *x;

	if (pl_alloc(&x, 1, sizeof(*x), err) < 0)
		return NULL;
	x->sink = (struct pl_sink){ .begin = on_begin, .batch = on_batch, .end = on_end };
	x->o = o;
	x->to = to;
	x->st = st;
	if (pl_trace_batch_init(&x->more, err) >= 0)
		return x;
	pl_free(x);
	return NULL;
}

struct pl_sink *pl_import_xla_sink(struct pl_xla *x)
{
	return &x->sink;
}

int pl_import_xla_know(struct pl_xla *x, const char *program, const char *op, size_t n_op,
		       const char *coll, int64_t bytes, struct pl_err *err)
{
	char key[512];
	size_t old = x->known_key.n;
	int n = snprintf(key, sizeof(key), "%s/%.*s", program, (int)n_op, op);
	pl_id id;

	if (n < 0 || n >= (int)sizeof(key))
		return 0;
	PL_CHECK(pl_grow(&x->known, &x->cap_known, old + 1, sizeof(*x->known), err));
	PL_CHECK(pl_intern_add(&x->known_key, key, (size_t)n, &id, err));
	if (id == old)
		x->known[id] = (struct known){ coll, bytes };
	return 0;
}

void pl_import_xla_free(struct pl_xla *x)
{
	if (!x)
		return;
	forget(x);
	pl_trace_hold_fini(&x->hold);
	pl_trace_batch_fini(&x->more);
	pl_intern_fini(&x->known_key);
	pl_intern_fini(&x->seq_key);
	pl_free(x->known);
	pl_free(x->cols);
	pl_free(x->place);
	pl_free(x->global);
	pl_free(x->run);
	pl_free(x->device);
	pl_free(x->pause);
	pl_free(x);
}
