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
 * - Where one call starts an execution on all devices, a thread for each device launches it. These
 *   threads wait for the call, and the call waits for their launches. Both waits are added. Each
 *   has the correlation of the call or launch for which it waits.
 * - JAX records little of its waits for a device. A thread that started executions, and then has no
 *   event until shortly after one of them ended on a device, waited for it: a call Synchronize is
 *   added, with the argument `inferred`. A recorded wait gets one without it.
 * - Steps are those that the program annotated (step_num), else those of the device's own line.
 *   Ranks of further devices get the steps of the host as events of their own.
 *
 * O(n log n) in the events, about 250 bytes each.
 */
#include <stdlib.h>

#include "import/xla_internal.h"

/* ---- reading the rows ---------------------------------------------------------------------- */

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
		e->device = v >= 0 && v < PL_XLA_NUMBERS ? (int32_t)v : e->device;
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

/* Most events of a host need no more than their names. */
static bool said_by_name(struct pl_xla *x, struct pl_batch *b, uint32_t row)
{
	static const uint8_t kinds[] = {
		[PL_XC_PYTHON] = PL_K_PYTHON, [PL_XC_WAIT] = PL_K_WAIT, [PL_XC_NOTE] = PL_K_OTHER
	};
	uint8_t class;

	if (x->place[b->track[row]].plane != PL_XP_HOST)
		return false;
	class = class_of(x, b->name[row]);
	if (class != PL_XC_PYTHON && class != PL_XC_WAIT && class != PL_XC_NOTE)
		return false;
	b->kind[row] = kinds[class];
	return true;
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
		if (!ours || x->place[b->track[r]].plane == PL_XP_OTHER || said_by_name(x, b, r))
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
	PL_TRY(pl_alloc(&x->word, x->seg->str.n + 1, sizeof(*x->word), err));
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
static int32_t device_of_launch(const char *name)
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
	size_t n = 0;

	for (size_t i = 0; i < x->n; i++)
		if (!want || want(x, &x->v[i]))
			x->by[n++] = &x->v[i];
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
		struct event *e = x->by[i];

		while (depth &&
		       (stack[depth - 1]->track != e->track || stack[depth - 1]->end <= e->ts))
			depth--;
		e->op = is_work(x, e);
		if (e->class == PL_XC_LAUNCH)
			e->device = device_of_launch(text(x, e->name));
		PL_CHECK(nested(x, e, stack, depth, err));
		if (depth < DEPTH)
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
		struct event *e = &x->v[i];
		struct device *d;

		if (!e->op)
			continue;
		d = find_device(x, e->device);
		if (!d && x->n_devices == PL_XLA_DEVICES) {
			d = &x->device[0];
			e->device = d->number;
		} else if (!d) {
			PL_CHECK(pl_append(&x->device, &x->n_devices, &x->cap_devices,
					   &(struct device){ .number = e->device,
							     .rank = e->device,
							     .track = PL_NONE,
							     .host = PL_NONE },
					   sizeof(*x->device), err));
			d = &x->device[x->n_devices - 1];
		}
		d->streams |= e->line == PL_XL_STREAM && x->place[e->track].plane == PL_XP_DEVICE;
		d->cpu |= x->place[e->track].plane == PL_XP_HOST;
	}
	pl_sort(x->device, x->n_devices, sizeof(*x->device), compare_devices);
	/* calls that name no device are those of the first one */
	for (size_t i = 0; x->n_devices && i < x->n; i++)
		if (x->v[i].device == 0)
			x->v[i].device = x->device[0].number;
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

				if (d && v >= 0 && v < PL_XLA_NUMBERS) {
					d->rank = (int32_t)v;
					d->global = true;
				}
			}
		}
}

/* ---- kinds and tracks ---------------------------------------------------------------------- */

static uint8_t kind_on_device(const struct pl_xla *x, const struct event *e)
{
	const struct device *d = find_device(x, e->device);
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
	case PL_XC_EXECUTOR:
	case PL_XC_RENDEZVOUS:
		return PL_K_ANNOTATION;
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
		pl_import_xla_collective(x, e);
	e->kind = host && !e->op ? kind_on_host(e) : kind_on_device(x, e);
	if (e->op && (r = pl_import_xla_run(x, e)) && r->corr && e->corr == INT64_MIN)
		e->corr = r->corr;
	if (host && e->op && d)
		e->track = d->track;
	else if (host && d && d->host != PL_NONE)
		e->track = d->host;
	e->b->kind[e->row] = e->kind;
	e->b->track[e->row] = e->track;
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
		return e->join ? INT64_MIN : e->corr;
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
	struct pl_arena *mem = &x->columns; /* the batch is given once: no longer than that */
	struct pl_col *col;
	int rc = 0;

	pl_arena_reset(mem);
	PL_CHECK(pl_arena_array(mem, &col, b->n_cols + PL_LEN(added), sizeof(*col), err));
	if (b->n_cols)
		memcpy(col, b->col, b->n_cols * sizeof(*col));
	b->col = col;
	for (size_t a = 0; a < PL_LEN(added); a++) {
		struct pl_col *c = &col[b->n_cols];

		*c = (struct pl_col){ .role = added[a].role,
				      .type = added[a].type,
				      .key = PL_NONE };
		PL_CHECK(pl_arena_array(mem, &c->row, n, sizeof(*c->row), err));
		PL_CHECK(pl_arena_array(mem, &c->val, n, sizeof(*c->val), err));
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
		PL_CHECK(give_batch(x, &x->hold.b[i], at > from ? x->v + from : NULL, at - from,
				    err));
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
	PL_CHECK(threads(x, err));
	device_steps = steps_of_device(x);
	PL_CHECK(find_devices(x, err));
	pl_import_xla_choose_calls(x);
	global_numbers(x);
	PL_CHECK(place_devices(x, err));
	PL_CHECK(pl_import_xla_calls(x, err));
	for (size_t i = 0; i < x->n; i++) {
		struct event *e = &x->v[i];

		settle(x, e);
		if (device_steps && e->step != INT64_MIN)
			e->b->kind[e->row] = e->kind = PL_K_STEP;
	}
	return pl_import_xla_number(x, err);
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
	pl_free(x->word);
	x->word = NULL;
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
	pl_arena_fini(&x->columns);
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
