/*
 * What events of an XLA profile mean: steps, operations of devices and the calls that start them,
 * waits, collectives.
 *
 * A segment is held until its end, because the meaning of an event depends on others:
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
 * - Where one call starts an execution on all devices, a thread for each of them launches it. That
 *   thread waits for the call: a wait with the correlation of the call is added.
 * - JAX records little of its waits for a device. A thread that started executions, and then has no
 *   event until shortly after one of them ended on a device, waited for it: a call Synchronize is
 *   added, with the argument `inferred`. A recorded wait gets one without it.
 * - Steps are those that the program annotated (step_num), else those of the device's own line.
 *   Ranks of further devices get the steps of the host as events of their own.
 *
 * O(n log n) in the events, about 250 bytes each.
 */
#include <stdlib.h>

#include "import/xla.h"
#include "trace/hold.h"

#define PAUSE_NS  20000	 /* shorter ones are no waits */
#define RETURN_NS 200000 /* within this time a thread goes on after the end of a wait */

struct event {
	struct pl_batch *b;
	uint32_t row;
	pl_ns ts, end;
	pl_id name, track;
	uint8_t class; /* of hosts: enum pl_xla_class */
	uint8_t line;  /* of devices */
	uint8_t kind;
	bool op, outer; /* an operation of a device; one that contains others */
	int32_t device; /* -1 none */
	int64_t run, step, corr, bytes, flops, moved, program; /* INT64_MIN none */
	pl_id name_op, module, text;			       /* PL_NONE none */
	const char *coll;
	pl_id group; /* text that lists its devices */
	int64_t seq;
	uint32_t nth; /* of this name in this execution on this device */
};
struct run { /* an execution on a device */
	int32_t device;
	int64_t number;
	pl_ns start, end;
	int64_t corr;
};
struct pause { /* a wait of a thread for the devices */
	pl_ns start, end;
};
struct device {
	int32_t number, rank;
	bool streams; /* it has lines of streams; what is on other lines is said there, too */
	pl_id track;  /* of operations that ran on threads, PL_NONE: not needed */
	pl_id host;   /* of the calls that start its executions */
};
struct place { /* of a track of the source */
	uint8_t plane, line;
	int32_t device;
	int64_t stream;
};
struct known { /* about an operation of a program */
	const char *coll;
	int64_t bytes;
};

struct pl_xla {
	struct pl_sink sink, *to;
	const struct pl_import_opts *o;
	struct pl_import_stats *st;
	struct pl_hold hold;
	struct pl_segment *seg;
	struct place *place;
	struct event *v, **by;
	struct run *run;
	struct device *device;
	struct pause *pause;
	size_t n, cap, n_runs, cap_runs, n_devices, cap_devices, n_pauses, cap_pauses;
	bool dispatches;       /* the calls for the first device are those for all devices */
	uint32_t first_tracks; /* of the source */
	struct pl_batch more;  /* events that are added */
	int64_t corr;	       /* the last one given */
	uint8_t *class;	       /* [string] */
	struct pl_intern known_key;
	struct known *known;
	size_t cap_known;
	struct pl_intern seq_key; /* collectives of a group, to number them */
};

/* ---- reading the rows ---------------------------------------------------------------------- */

static const char *text(const struct pl_xla *x, pl_id id)
{
	return id == PL_NONE ? "" : pl_intern_get(&x->seg->str, id);
}

static int64_t number(const struct pl_xla *x, const struct pl_col *c, uint32_t k)
{
	int64_t v;

	if (c->type == PL_V_INT || c->type == PL_V_BOOL)
		return c->val[k];
	if (c->type == PL_V_STR &&
	    pl_json_i64(text(x, (pl_id)c->val[k]), x->seg->str.len[c->val[k]], &v))
		return v;
	return INT64_MIN;
}

/* "kind_src:pageable kind_dst:device size:4096 ...", "num_bytes:4096 addr..." */
static int64_t size_in(const char *details)
{
	static const char *const keys[] = { "size:", "num_bytes:" };

	for (size_t i = 0; i < PL_LEN(keys); i++) {
		const char *s = strstr(details, keys[i]);

		if (s && s[strlen(keys[i])] >= '0' && s[strlen(keys[i])] <= '9') {
			s += strlen(keys[i]);
			return pl_take_digits(&s);
		}
	}
	return INT64_MIN;
}

static void take_stat(struct pl_xla *x, struct event *e, unsigned stat, const struct pl_col *c,
		      uint32_t k)
{
	int64_t *const to[PL_XS_COUNT_] = {
		[PL_XS_STEP] = &e->step,       [PL_XS_RUN] = &e->run,	  [PL_XS_CORR] = &e->corr,
		[PL_XS_FLOPS] = &e->flops,     [PL_XS_MOVED] = &e->moved, [PL_XS_BYTES] = &e->bytes,
		[PL_XS_PROGRAM] = &e->program,
	};
	pl_id id = c->type == PL_V_STR ? (pl_id)c->val[k] : PL_NONE;
	int64_t v;

	if (to[stat]) {
		*to[stat] = number(x, c, k);
		return;
	}
	switch (stat) {
	case PL_XS_DEVICE:
		v = number(x, c, k);
		e->device = v >= 0 && v <= 1 << 20 ? (int32_t)v : e->device;
		break;
	case PL_XS_OP:
		e->name_op = id;
		break;
	case PL_XS_MODULE:
		e->module = id;
		break;
	case PL_XS_NAME:
		e->text = id;
		break;
	case PL_XS_DETAILS:
		e->bytes = size_in(text(x, id));
		break;
	}
}

static uint8_t class_of(struct pl_xla *x, pl_id name)
{
	if (!x->class[name])
		x->class[name] = pl_import_xla_class(text(x, name));
	return x->class[name];
}

static int add_event(struct pl_xla *x, struct pl_batch *b, uint32_t row, struct pl_err *err)
{
	const struct place *p = &x->place[b->track[row]];
	struct event e = { .b = b,
			   .row = row,
			   .ts = b->ts[row],
			   .end = pl_add_sat(b->ts[row], b->dur[row]),
			   .name = b->name[row],
			   .track = b->track[row],
			   .line = p->line,
			   .kind = b->kind[row],
			   .device = p->plane == PL_XP_DEVICE ? p->device : -1,
			   .run = INT64_MIN,
			   .step = INT64_MIN,
			   .corr = INT64_MIN,
			   .bytes = INT64_MIN,
			   .flops = INT64_MIN,
			   .moved = INT64_MIN,
			   .program = INT64_MIN,
			   .seq = INT64_MIN,
			   .name_op = PL_NONE,
			   .module = PL_NONE,
			   .text = PL_NONE,
			   .group = PL_NONE };

	e.class = p->plane == PL_XP_HOST ? class_of(x, e.name) : PL_XC_NEW;
	return pl_append(&x->v, &x->n, &x->cap, &e, sizeof(e), err);
}

/* The rows that a reader could not tell apart: host operations without a category. */
static int read_batch(struct pl_xla *x, struct pl_batch *b, uint8_t **stat, size_t *cap,
		      struct pl_row_values *values, struct pl_err *err)
{
	PL_CHECK(pl_trace_row_values_build(values, b, err));
	PL_CHECK(pl_grow(stat, cap, b->n_cols + 1, 1, err));
	for (uint32_t c = 0; c < b->n_cols; c++) {
		const struct pl_col *col = &b->col[c];
		const char *key = col->key == PL_NONE ? "" : text(x, col->key);

		(*stat)[c] =
			col->role == PL_R_CAT ? PL_XS_COUNT_ : pl_import_xla_stat(key, strlen(key));
	}
	for (uint32_t r = 0; r < b->n; r++) {
		bool ours = b->kind[r] == PL_K_HOST_OP && b->dur[r] >= 0;

		for (uint32_t i = values->off[r]; i < values->off[r + 1]; i++)
			ours &= (*stat)[values->ent[i].col] != PL_XS_COUNT_;
		if (!ours || x->place[b->track[r]].plane == PL_XP_OTHER)
			continue;
		PL_CHECK(add_event(x, b, r, err));
		for (uint32_t i = values->off[r]; i < values->off[r + 1]; i++)
			take_stat(x, &x->v[x->n - 1], (*stat)[values->ent[i].col],
				  &b->col[values->ent[i].col], values->ent[i].k);
		x->corr = pl_max_i64(x->corr, x->v[x->n - 1].corr);
	}
	return 0;
}

static int read_rows(struct pl_xla *x, struct pl_err *err)
{
	struct pl_row_values values = { 0 };
	uint8_t *stat = NULL;
	size_t cap = 0;
	int rc = 0;

	PL_TRY(pl_alloc(&x->place, x->seg->n_tracks + 1, sizeof(*x->place), err));
	PL_TRY(pl_alloc(&x->class, x->seg->str.n + 1, 1, err));
	for (uint32_t i = 0; i < x->seg->n_tracks; i++) {
		const struct pl_track *t = &x->seg->track[i];
		struct place *p = &x->place[i];

		p->plane = pl_import_xla_plane(text(x, t->process), &p->device);
		p->line = pl_import_xla_line(text(x, t->name), &p->stream);
	}
	for (size_t i = 0; i < x->hold.n; i++)
		PL_TRY(read_batch(x, &x->hold.b[i], &stat, &cap, &values, err));
out:
	pl_trace_row_values_fini(&values);
	pl_free(stat);
	return rc;
}

/* ---- threads: what lies inside what -------------------------------------------------------- */

static int by_track(const void *pa, const void *pb)
{
	const struct event *a = *(struct event *const *)pa, *c = *(struct event *const *)pb;
	int order = PL_COMPARE_FIELDS(a, c, track, ts);

	order = order ? order : PL_COMPARE(c->end, a->end);
	return order ? order : PL_COMPARE(a, c);
}

static int by_device(const void *pa, const void *pb)
{
	const struct event *a = *(struct event *const *)pa, *c = *(struct event *const *)pb;
	int order = PL_COMPARE_FIELDS(a, c, device, ts);

	return order ? order : PL_COMPARE(a, c);
}

static bool is_work(const struct pl_xla *x, const struct event *e)
{
	if (x->place[e->track].plane == PL_XP_HOST)
		return e->name_op != PL_NONE && e->device >= 0;
	return e->line == PL_XL_STREAM || e->line == PL_XL_OPS || e->line == PL_XL_ASYNC;
}

/* "[3] CommonPjRtLoadedExecutable::Execute (jit_step)": the device; else that of the thread. */
static int32_t device_of_launch(const char *name)
{
	int64_t v;

	if (*name++ != '[')
		return 0;
	v = pl_take_digits(&name);
	return v >= 0 && v < 1 << 20 ? (int32_t)v : 0;
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
	list += list ? strlen("global_devices=") : 0;
	return end ? pl_intern_add(&x->seg->str, list, (size_t)(end + 1 - list), &op->group, err)
		   : 0;
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

	pl_sort(x->by, x->n, sizeof(*x->by), by_track);
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = x->by[i];

		while (depth &&
		       (stack[depth - 1]->track != e->track || stack[depth - 1]->end <= e->ts))
			depth--;
		e->op = is_work(x, e);
		if (e->class == PL_XC_LAUNCH)
			e->device = device_of_launch(text(x, e->name));
		PL_CHECK(nested(x, e, stack, depth, err));
		if (depth < DEPTH && e->class != PL_XC_NOTE)
			stack[depth++] = e;
	}
	return 0;
}

/* ---- devices ------------------------------------------------------------------------------- */

static struct device *find_device(const struct pl_xla *x, int32_t number)
{
	for (size_t i = 0; i < x->n_devices; i++)
		if (x->device[i].number == number)
			return &x->device[i];
	return NULL;
}

static int compare_devices(const void *pa, const void *pb)
{
	const struct device *a = pa, *b = pb;

	return PL_COMPARE(a->number, b->number);
}

static int find_devices(struct pl_xla *x, struct pl_err *err)
{
	for (size_t i = 0; i < x->n; i++) {
		const struct event *e = &x->v[i];
		struct device *d;

		if (!e->op)
			continue;
		d = find_device(x, e->device);
		if (!d) {
			PL_CHECK(pl_append(
				&x->device, &x->n_devices, &x->cap_devices,
				&(struct device){ e->device, e->device, false, PL_NONE, PL_NONE },
				sizeof(*x->device), err));
			d = &x->device[x->n_devices - 1];
		}
		d->streams |= e->line == PL_XL_STREAM && x->place[e->track].plane == PL_XP_DEVICE;
	}
	pl_sort(x->device, x->n_devices, sizeof(*x->device), compare_devices);
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

/* Ranks and tracks. The host's tracks belong to the rank of the first device. */
static int place_devices(struct pl_xla *x, struct pl_err *err)
{
	uint32_t n = x->first_tracks = x->seg->n_tracks;
	bool several = x->n_devices > 1;
	char name[48];

	for (uint32_t i = 0; i < n; i++) {
		const struct device *d = x->place[i].plane == PL_XP_DEVICE
						 ? find_device(x, x->place[i].device)
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
		struct event *e = &x->v[i];
		struct device *d = find_device(x, e->device);
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
	for (size_t i = 0; i < x->hold.n; i++)
		for (uint32_t c = 0; c < x->hold.b[i].n_cols; c++) {
			const struct pl_col *col = &x->hold.b[i].col[c];
			const char *key = col->key == PL_NONE ? "" : text(x, col->key);

			if (pl_import_xla_stat(key, strlen(key)) != PL_XS_GLOBAL)
				continue;
			for (uint32_t k = 0; k < col->n; k++) {
				const char *name = text(x, x->hold.b[i].name[col->row[k]]);
				struct device *d = *name == '['
							   ? find_device(x, device_of_launch(name))
							   : NULL;
				int64_t v = number(x, col, k);

				if (d && v >= 0 && v < 1 << 24)
					d->rank = (int32_t)v;
			}
		}
}

/* ---- executions and their calls ------------------------------------------------------------ */

/* Which events are the calls of the first device: those for all, or its own. The thread that
 * launches for it would else be one more that idles until the call. */
static void choose_calls(struct pl_xla *x)
{
	bool others = false, all = false;

	for (size_t i = 0; i < x->n; i++) {
		others |= x->v[i].class == PL_XC_LAUNCH && x->n_devices &&
			  x->v[i].device != x->device[0].number;
		all |= x->v[i].class == PL_XC_DISPATCH;
	}
	x->dispatches = others && all;
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = &x->v[i];

		/* a launch, or something inside it */
		if (!e->op && e->line == PL_XL_RANGES && x->dispatches &&
		    e->device == x->device[0].number && e->class != PL_XC_DISPATCH)
			e->class = PL_XC_EXECUTOR;
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

static struct run *find_run(const struct pl_xla *x, const struct event *e)
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

	for (size_t i = 0; i < x->n; i++)
		if (x->v[i].op && x->v[i].run != INT64_MIN)
			PL_CHECK(pl_append(&x->run, &x->n_runs, &x->cap_runs,
					   &(struct run){ x->v[i].device, x->v[i].run, x->v[i].ts,
							  x->v[i].end, 0 },
					   sizeof(*x->run), err));
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
	size_t k = 0;

	pl_sort(x->run, x->n_runs, sizeof(*x->run), compare_runs);
	pl_sort(x->by, x->n, sizeof(*x->by), by_device);
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = x->by[i];

		if (e->class != PL_XC_LAUNCH)
			continue;
		while (k < x->n_runs &&
		       (x->run[k].device < e->device ||
			(x->run[k].device == e->device && x->run[k].start < e->ts)))
			k++;
		if (k == x->n_runs || x->run[k].device != e->device)
			continue;
		e->run = x->run[k].number;
		e->corr = x->run[k++].corr = ++x->corr;
	}
	pl_sort(x->run, x->n_runs, sizeof(*x->run), by_number);
}

/* ---- collectives --------------------------------------------------------------------------- */

static const struct known *find_known(const struct pl_xla *x, const struct event *e)
{
	char key[512];
	pl_id id;
	int n = snprintf(key, sizeof(key), "%s(%lld)/%s", text(x, e->module), (long long)e->program,
			 text(x, e->name_op));

	if (e->name_op == PL_NONE || n < 0 || n >= (int)sizeof(key))
		return NULL;
	id = pl_intern_find(&x->known_key, key, (size_t)n);
	return id == PL_NONE ? NULL : &x->known[id];
}

static void communication(struct pl_xla *x, struct event *e)
{
	const struct known *k = find_known(x, e);
	const char *op = text(x, e->name_op != PL_NONE ? e->name_op : e->name);

	if (!e->coll && k)
		e->coll = k->coll;
	if (!e->coll && e->line != PL_XL_STREAM)
		e->coll = pl_import_xla_coll(op, strlen(op));
	if (!e->coll && x->place[e->track].line == PL_XL_STREAM) {
		size_t n = strlen(text(x, e->name));

		if (pl_import_name_class(text(x, e->name), n) == PL_N_DEVCOMM) {
			e->coll = pl_import_xla_coll(op, strlen(op));
			e->coll = e->coll ? e->coll : pl_trace_coll_from_name(text(x, e->name), n);
			e->coll = e->coll ? e->coll : pl_trace_coll_name(PL_COLL_OTHER);
		}
	}
	if (e->coll && k && k->bytes >= 0)
		e->bytes = k->bytes;
}

static int by_first(const void *pa, const void *pb)
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

/* Number the collectives: the same number on all devices of a group. */
static int number_collectives(struct pl_xla *x, struct pl_err *err)
{
	uint32_t *count = NULL;
	size_t cap = 0, n_count = 0;
	int64_t next = 0;
	pl_id id;
	int rc = 0;

	pl_sort(x->by, x->n, sizeof(*x->by), by_first);
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = x->by[i];

		if (!e->coll || !e->op || e->outer || e->group == PL_NONE)
			continue;
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

/* ---- kinds and tracks ---------------------------------------------------------------------- */

static uint8_t kind_on_device(const struct pl_xla *x, const struct event *e)
{
	const struct device *d = find_device(x, e->device);
	const char *name = text(x, e->name), *op = text(x, e->name_op);

	if (!e->op)
		return PL_K_GPU_ANNOTATION;
	if (e->outer || pl_import_xla_contains(*op ? op : name))
		return PL_K_GPU_ANNOTATION;
	if (x->place[e->track].plane == PL_XP_DEVICE && d && d->streams && e->line != PL_XL_STREAM)
		return PL_K_GPU_ANNOTATION; /* the same work as on the streams */
	if (e->coll)
		return !strcmp(e->coll, "send")	  ? PL_K_SEND
		       : !strcmp(e->coll, "recv") ? PL_K_RECV
						  : PL_K_COLLECTIVE;
	if (strcasestr(name, "memcpy"))
		return PL_K_COPY;
	return strcasestr(name, "memset") ? PL_K_SET : PL_K_KERNEL;
}

static uint8_t kind_on_host(const struct event *e)
{
	if (e->step != INT64_MIN)
		return PL_K_STEP;
	switch (e->class) {
	case PL_XC_PYTHON:
	case PL_XC_PYTHON_IDLE:
		return PL_K_PYTHON;
	case PL_XC_DATA:
		return PL_K_DATA;
	case PL_XC_WAIT:
	case PL_XC_SYNC:
		return PL_K_WAIT;
	case PL_XC_LAUNCH:
		return PL_K_RUNTIME;
	case PL_XC_EXECUTOR:
	case PL_XC_RENDEZVOUS:
		return PL_K_ANNOTATION;
	case PL_XC_NOTE:
		return PL_K_OTHER;
	default:
		return e->corr != INT64_MIN ? PL_K_RUNTIME : PL_K_HOST_OP;
	}
}

static void settle(struct pl_xla *x, struct event *e)
{
	bool host = x->place[e->track].plane == PL_XP_HOST;
	const struct device *d = find_device(x, e->device);
	const struct run *r;

	if (e->op)
		communication(x, e);
	e->kind = host && !e->op ? kind_on_host(e) : kind_on_device(x, e);
	if (e->op && (r = find_run(x, e)) && r->corr && e->corr == INT64_MIN)
		e->corr = r->corr;
	if (host && e->op && d)
		e->track = d->track;
	else if (host && d && d->host != PL_NONE)
		e->track = d->host;
	e->b->kind[e->row] = e->kind;
	e->b->track[e->row] = e->track;
}

/* ---- events that are added ----------------------------------------------------------------- */

static int put_value(struct pl_xla *x, uint8_t role, uint8_t type, const char *key, int64_t v,
		     struct pl_err *err)
{
	pl_id id = PL_NONE;
	uint32_t c;

	if (key)
		PL_CHECK(pl_intern_add(&x->seg->str, key, strlen(key), &id, err));
	PL_CHECK(pl_trace_batch_col(&x->more, role, type, id, &c, err));
	return pl_trace_col_put(&x->more.col[c], x->more.n, v, 0, err);
}

static int flush_more(struct pl_xla *x, struct pl_err *err)
{
	if (!x->more.n)
		return 0;
	x->more.first = x->seg->n_events;
	if (x->to->batch)
		PL_CHECK(x->to->batch(x->to, x->seg, &x->more, err));
	x->seg->n_events += x->more.n;
	x->st->events += x->more.n;
	pl_trace_batch_clear(&x->more);
	return 0;
}

/* The row whose values were put. */
static int add_row(struct pl_xla *x, uint8_t kind, pl_id track, const char *name, pl_ns ts,
		   pl_ns end, struct pl_err *err)
{
	struct pl_batch *b = &x->more;
	pl_id id;

	PL_CHECK(pl_intern_add(&x->seg->str, name, strlen(name), &id, err));
	b->kind[b->n] = kind;
	b->track[b->n] = track;
	b->name[b->n] = id;
	b->ts[b->n] = ts;
	b->dur[b->n] = end - ts;
	return ++b->n < PL_BATCH_ROWS ? 0 : flush_more(x, err);
}

/* A wait of a thread for the device of its rank. */
static int add_wait(struct pl_xla *x, pl_id track, pl_ns ts, pl_ns end, bool inferred,
		    struct pl_err *err)
{
	int64_t corr = ++x->corr;

	PL_CHECK(put_value(x, PL_R_CORR, PL_V_INT, NULL, corr, err));
	if (inferred)
		PL_CHECK(put_value(x, PL_R_ARG, PL_V_BOOL, "inferred", true, err));
	PL_CHECK(add_row(x, PL_K_RUNTIME, track, "XLA Synchronize", ts, end, err));
	PL_CHECK(put_value(x, PL_R_CORR, PL_V_INT, NULL, corr, err));
	return add_row(x, PL_K_SYNC, track, "Context Sync", ts, end, err);
}

static int add_steps(struct pl_xla *x, const struct event *e, struct pl_err *err)
{
	for (size_t i = 1; i < x->n_devices; i++) {
		const struct device *d = &x->device[i];
		pl_id track = d->host != PL_NONE ? d->host : d->track;

		for (uint32_t k = 0; k < x->first_tracks && track == PL_NONE; k++)
			if (x->place[k].device == d->number && x->seg->track[k].type == PL_T_STREAM)
				track = k;
		if (track == PL_NONE)
			continue;
		PL_CHECK(put_value(x, PL_R_STEP, PL_V_INT, NULL, e->step, err));
		PL_CHECK(put_value(x, PL_R_ARG, PL_V_BOOL, "inferred", true, err));
		PL_CHECK(add_row(x, PL_K_STEP, track, text(x, e->name), e->ts, e->end, err));
	}
	return 0;
}

/* ---- waits --------------------------------------------------------------------------------- */

/* Does the event say what its thread did all the time? */
static bool is_busy(const struct event *e)
{
	return e->kind == PL_K_HOST_OP || e->kind == PL_K_DATA || e->kind == PL_K_RUNTIME ||
	       e->class == PL_XC_PYTHON_IDLE || e->kind == PL_K_WAIT;
}

/* Ends of executions on the first device, ascending, with the ends of all devices. */
struct ends {
	pl_ns *v;
	size_t n;
};

static int list_ends(const struct pl_xla *x, struct ends *ends, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&ends->v, x->n_runs + 1, sizeof(*ends->v), err));
	for (size_t i = 0; i < x->n_runs; i++)
		if (x->run[i].corr)
			ends->v[ends->n++] = x->run[i].end;
	pl_sort(ends->v, ends->n, sizeof(*ends->v), pl_compare_i64);
	return 0;
}

/* Did an execution end in the time from a to b, shortly before b? */
static bool ends_in(const struct ends *ends, pl_ns a, pl_ns b)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, ends->n, ends->v[i] <= b);
	return i && ends->v[i - 1] > a && b - ends->v[i - 1] <= pl_max_i64(RETURN_NS, (b - a) / 5);
}

static int maybe_wait(struct pl_xla *x, const struct ends *ends, pl_id track, pl_ns a, pl_ns b,
		      struct pl_err *err)
{
	if (b - a < PAUSE_NS || !ends_in(ends, a, b))
		return 0;
	PL_CHECK(add_wait(x, track, a, b, true, err));
	return pl_append(&x->pause, &x->n_pauses, &x->cap_pauses, &(struct pause){ a, b },
			 sizeof(*x->pause), err);
}

/* The pauses of a thread v[0..n), which has called for executions. */
static int pauses(struct pl_xla *x, const struct ends *ends, struct event *const *v, size_t n,
		  struct pl_err *err)
{
	pl_ns busy = INT64_MIN, step = INT64_MIN; /* until then */

	for (size_t i = 0; i < n; i++) {
		const struct event *e = v[i];

		if (e->kind == PL_K_STEP) {
			if (busy != INT64_MIN && e->ts > busy)
				PL_CHECK(maybe_wait(x, ends, e->track, busy,
						    step > busy && step < e->ts ? step : e->ts,
						    err));
			busy = pl_max_i64(busy, e->ts);
			step = e->end;
			continue;
		}
		if (e->class == PL_XC_SYNC && e->ts >= busy && ends_in(ends, e->ts, e->end)) {
			PL_CHECK(add_wait(x, e->track, e->ts, e->end, false, err));
			PL_CHECK(pl_append(&x->pause, &x->n_pauses, &x->cap_pauses,
					   &(struct pause){ e->ts, e->end }, sizeof(*x->pause),
					   err));
			busy = pl_max_i64(busy, e->end);
			continue;
		}
		if (!is_busy(e))
			continue;
		if (busy != INT64_MIN && e->ts > busy)
			PL_CHECK(maybe_wait(x, ends, e->track, busy,
					    step > busy && step < e->ts ? step : e->ts, err));
		busy = pl_max_i64(busy, e->end);
	}
	return busy != INT64_MIN && step > busy
		       ? maybe_wait(x, ends, v[n - 1]->track, busy, step, err)
		       : 0;
}

static int waits(struct pl_xla *x, struct pl_err *err)
{
	struct ends ends = { 0 };
	int rc;

	pl_sort(x->by, x->n, sizeof(*x->by), by_track);
	PL_TRY(list_ends(x, &ends, err));
	for (size_t i = 0, k; i < x->n; i = k) {
		bool calls = false;

		for (k = i; k < x->n && x->by[k]->track == x->by[i]->track; k++)
			calls |= x->by[k]->kind == PL_K_STEP || x->by[k]->class == PL_XC_SYNC ||
				 (x->by[k]->class == PL_XC_LAUNCH &&
				  x->by[k]->track < x->first_tracks);
		if (calls && x->by[i]->track < x->first_tracks &&
		    x->place[x->by[i]->track].plane == PL_XP_HOST)
			PL_TRY(pauses(x, &ends, x->by + i, k - i, err));
	}
	rc = 0;
out:
	pl_free(ends.v);
	return rc;
}

/* ---- threads that launch for one device ---------------------------------------------------- */

PL_COMPARATOR(by_end, struct pause, end, start);

/* The thread that launches for device d: before e it waited for the call for all devices, from
 * the time on at which it had nothing else to do. */
static int wait_for_call(struct pl_xla *x, const struct device *d, const struct event *e,
			 pl_ns from, struct pl_err *err)
{
	struct event key = { .device = x->device[0].number, .run = e->run };
	const struct run *all = find_run(x, &key);

	if (!all || !all->corr || from == INT64_MIN || e->ts <= from)
		return 0;
	PL_CHECK(put_value(x, PL_R_CORR, PL_V_INT, NULL, all->corr, err));
	PL_CHECK(put_value(x, PL_R_ARG, PL_V_BOOL, "inferred", true, err));
	return add_row(x, PL_K_WAIT, d->host, "XLA wait for the call", from, e->ts, err);
}

static int launcher(struct pl_xla *x, const struct device *d, struct pl_err *err)
{
	pl_ns free = INT64_MIN; /* the end of the latest launch or wait */
	pl_ns step = INT64_MIN; /* the start of the latest step */
	size_t k = 0;

	for (size_t i = 0; i <= x->n; i++) {
		const struct event *e = i < x->n ? x->by[i] : NULL;

		step = e && e->kind == PL_K_STEP ? e->ts : step;
		if (e &&
		    (e->class != PL_XC_LAUNCH || e->device != d->number || e->corr == INT64_MIN))
			continue;
		for (; k < x->n_pauses && (!e || x->pause[k].end <= e->ts); k++) {
			pl_ns from = pl_max_i64(free, x->pause[k].start);

			if (free == INT64_MIN || from >= x->pause[k].end)
				continue;
			PL_CHECK(add_wait(x, d->host, from, x->pause[k].end, true, err));
			free = x->pause[k].end;
		}
		if (!e)
			break;
		PL_CHECK(wait_for_call(x, d, e, pl_max_i64(free, step), err));
		free = pl_max_i64(free, e->end);
	}
	return 0;
}

static int launchers(struct pl_xla *x, struct pl_err *err)
{
	for (size_t i = 0; i < x->n; i++) /* the step of each device ends with that of the host */
		if (x->v[i].kind == PL_K_STEP)
			PL_CHECK(pl_append(&x->pause, &x->n_pauses, &x->cap_pauses,
					   &(struct pause){ x->v[i].ts, x->v[i].end },
					   sizeof(*x->pause), err));
	pl_sort(x->pause, x->n_pauses, sizeof(*x->pause), by_end);
	pl_sort(x->by, x->n, sizeof(*x->by), by_first);
	for (size_t i = 1; i < x->n_devices && x->dispatches; i++)
		if (x->device[i].host != PL_NONE)
			PL_CHECK(launcher(x, &x->device[i], err));
	return 0;
}

/* ---- the end of a segment ------------------------------------------------------------------ */

/* The values that events of one batch, v[0..n) in the order of rows, have in one column. */
static int64_t value_of(const struct event *e, unsigned role, const struct pl_xla *x,
			struct pl_err *err, int *rc)
{
	pl_id id = PL_NONE;

	switch (role) {
	case PL_R_STEP:
		return e->kind == PL_K_STEP ? e->step : INT64_MIN;
	case PL_R_CORR:
		return e->corr;
	case PL_R_BYTES:
		return e->kind == PL_K_KERNEL ? INT64_MIN : e->bytes;
	case PL_R_FLOPS:
		return e->kind == PL_K_KERNEL ? e->flops : INT64_MIN;
	case PL_R_MOVED:
		return e->kind == PL_K_KERNEL ? e->moved : INT64_MIN;
	case PL_R_SEQ:
		return pl_trace_kind_is_comm(e->kind) ? e->seq : INT64_MIN;
	case PL_R_GROUP:
	case PL_R_RANKS:
		return e->kind == PL_K_COLLECTIVE && e->group != PL_NONE ? e->group : INT64_MIN;
	default:
		if (!e->coll || !pl_trace_kind_is_comm(e->kind))
			return INT64_MIN;
		*rc = pl_intern_add(&x->seg->str, e->coll, strlen(e->coll), &id, err);
		return id;
	}
}

static int give_batch(struct pl_xla *x, struct pl_batch *b, const struct event *v, size_t n,
		      struct pl_err *err)
{
	static const struct {
		uint8_t role, type;
	} added[] = { { PL_R_STEP, PL_V_INT },	{ PL_R_CORR, PL_V_INT },  { PL_R_BYTES, PL_V_INT },
		      { PL_R_FLOPS, PL_V_INT }, { PL_R_MOVED, PL_V_INT }, { PL_R_SEQ, PL_V_INT },
		      { PL_R_GROUP, PL_V_STR }, { PL_R_RANKS, PL_V_STR }, { PL_R_COLL, PL_V_STR } };
	struct pl_col *col;
	int rc = 0;

	PL_CHECK(pl_arena_array(&x->hold.mem, &col, b->n_cols + PL_LEN(added), sizeof(*col), err));
	if (b->n_cols)
		memcpy(col, b->col, b->n_cols * sizeof(*col));
	b->col = col;
	for (size_t a = 0; a < PL_LEN(added); a++) {
		struct pl_col *c = &col[b->n_cols];

		*c = (struct pl_col){ .role = added[a].role,
				      .type = added[a].type,
				      .key = PL_NONE };
		PL_CHECK(pl_arena_array(&x->hold.mem, &c->row, n, sizeof(*c->row), err));
		PL_CHECK(pl_arena_array(&x->hold.mem, &c->val, n, sizeof(*c->val), err));
		for (size_t i = 0; i < n && rc >= 0; i++) {
			c->val[c->n] = value_of(&v[i], added[a].role, x, err, &rc);
			c->row[c->n] = v[i].row;
			c->n += c->val[c->n] != INT64_MIN;
		}
		b->n_cols += c->n > 0;
	}
	b->cap_cols = b->n_cols;
	return rc < 0 || !x->to->batch ? rc : x->to->batch(x->to, x->seg, b, err);
}

static int give(struct pl_xla *x, struct pl_err *err)
{
	size_t at = 0;

	for (size_t i = 0; i < x->hold.n; i++) {
		size_t from = at;

		while (at < x->n && x->v[at].b == &x->hold.b[i])
			at++;
		PL_CHECK(give_batch(x, &x->hold.b[i], x->v + from, at - from, err));
	}
	return 0;
}

/* Steps of the line of the first device, if the program annotated none. */
static bool steps_of_device(struct pl_xla *x)
{
	for (size_t i = 0; i < x->n; i++)
		if (x->v[i].step != INT64_MIN && x->v[i].device < 0)
			return false;
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = &x->v[i];
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

	PL_CHECK(read_rows(x, err));
	PL_CHECK(pl_alloc(&x->by, x->n + 1, sizeof(*x->by), err));
	for (size_t i = 0; i < x->n; i++)
		x->by[i] = &x->v[i];
	PL_CHECK(threads(x, err));
	device_steps = steps_of_device(x);
	PL_CHECK(find_devices(x, err));
	choose_calls(x);
	global_numbers(x);
	PL_CHECK(place_devices(x, err));
	PL_CHECK(list_runs(x, err));
	pair_calls(x);
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = &x->v[i];

		settle(x, e);
		if (device_steps && e->step != INT64_MIN)
			e->b->kind[e->row] = e->kind = PL_K_STEP;
	}
	return number_collectives(x, err);
}

/* Events of their own, after those of the source. */
static int add_events(struct pl_xla *x, struct pl_err *err)
{
	for (size_t i = 0; i < x->n; i++)
		if (x->v[i].kind == PL_K_STEP && x->place[x->v[i].track].plane == PL_XP_HOST)
			PL_CHECK(add_steps(x, &x->v[i], err));
	PL_CHECK(waits(x, err));
	PL_CHECK(launchers(x, err));
	return flush_more(x, err);
}

static struct pl_xla *self(struct pl_sink *s)
{
	return (struct pl_xla *)(void *)((char *)s - offsetof(struct pl_xla, sink));
}

static int on_begin(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct pl_xla *x = self(s);

	return x->to->begin ? x->to->begin(x->to, seg, err) : 0;
}

static int on_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		    struct pl_err *err)
{
	(void)seg;
	return pl_trace_hold_add(&self(s)->hold, b, NULL, err);
}

static void forget(struct pl_xla *x)
{
	pl_free(x->place);
	pl_free(x->class);
	pl_free(x->by);
	x->place = NULL;
	x->class = NULL;
	x->by = NULL;
	x->n = x->n_runs = x->n_devices = x->n_pauses = 0;
	x->corr = 0;
	pl_intern_reset(&x->seq_key);
	pl_trace_hold_reset(&x->hold);
}

static int on_end(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct pl_xla *x = self(s);

	x->seg = seg;
	PL_CHECK(understand(x, err));
	PL_CHECK(give(x, err));
	PL_CHECK(add_events(x, err));
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
	pl_free(x->v);
	pl_free(x->run);
	pl_free(x->device);
	pl_free(x->pause);
	pl_free(x);
}
