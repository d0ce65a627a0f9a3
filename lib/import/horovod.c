/*
 * Timelines of Horovod: Chrome events in which each tensor is a process. A tensor is negotiated
 * until all ranks have it ready; then its operation (ALLREDUCE ...) holds its activities one after
 * the other: waits, copies into and out of the fusion buffer, and the communication itself.
 *
 * Tensors that were fused share their activities, and the file has each activity once for every one
 * of them: begins that follow each other, and ends that do. They are one event here. Its size is
 * the sum of its tensors, whose types and shapes come when their operations end, so an event waits
 * for that: a few kilobytes of memory for the tensors under way. One pass.
 *
 * Only the coordinator, rank 0, writes negotiations, with the time at which each rank was ready.
 */
#include "import/objects.h"

enum { NEGOTIATE, OPERATION, ACTIVITY, DEPTH };

struct tensor { /* by pid of the file */
	char *name;
	int depth;	 /* of begins without an end */
	pl_ns ts[DEPTH]; /* of the begins */
	char what[DEPTH][40];
	bool negotiating;
	uint32_t first; /* shared activities of the operation under way, chained: number + 1 */
	uint32_t current;
};
struct shared { /* an activity of one or several tensors */
	char what[40], op[40];
	pl_ns begin, end;
	uint32_t open, waiting; /* tensors in it; tensors whose sizes are to come */
	uint32_t tensors;
	int64_t bytes; /* -1 unknown */
	pl_id name;    /* of its first tensor, in `names` */
	bool used;
};
struct link { /* of a tensor to an activity */
	uint32_t shared, next;
};
struct horovod {
	struct pl_objects_in in;
	struct tensor *tensor;
	size_t n_tensors, cap_tensors;
	struct shared *shared;
	size_t n_shared, cap_shared, unused; /* below `unused` all are used */
	struct link *link;		     /* of all tensors; link 0 is none */
	size_t n_links, cap_links;
	uint32_t free_link;
	uint32_t last; /* the activity that began last, + 1; 0 after any other event */
	int64_t ranks, base_us;
	bool coordinator;
};

#define MAX_TENSORS ((size_t)1 << 17)

static int tensor_of(struct horovod *h, const struct pl_object *o, struct tensor **t,
		     struct pl_err *err)
{
	int64_t pid = pl_objects_int(o, "pid", -1);

	*t = NULL;
	if (pid < 0 || pid >= (int64_t)MAX_TENSORS)
		return pl_import_report(&h->in.report, PL_BAD, o->at, "an event without a tensor",
					err);
	PL_CHECK(pl_grow(&h->tensor, &h->cap_tensors, (size_t)pid + 1, sizeof(*h->tensor), err));
	for (; h->n_tensors <= (size_t)pid; h->n_tensors++)
		memset(&h->tensor[h->n_tensors], 0, sizeof(*h->tensor));
	*t = &h->tensor[pid];
	return 0;
}

/* ---- events -------------------------------------------------------------------------------- */

static int lane(struct horovod *h, uint8_t type, const char *name, pl_id *id, struct pl_err *err)
{
	const struct pl_lane l = { .type = type, .name = name, .rank = -1 };

	return pl_import_lane(&h->in.lanes, &l, id, err);
}

static int event(struct horovod *h, uint8_t kind, pl_id track, const char *name, pl_ns ts,
		 pl_ns end, struct pl_err *err)
{
	return pl_import_rows_event(
		&h->in.rows, kind, track, pl_import_rows_text(&h->in.rows, name, strlen(name)), ts,
		end == INT64_MIN ? -1 : pl_max_i64(0, pl_sub_sat(end, ts)), err);
}

static void put_tensor(struct horovod *h, const struct tensor *t)
{
	if (t->name)
		pl_import_put_text(&h->in.rows, PL_R_ARG, "tensor", t->name, strlen(t->name));
}

/* NCCL_ALLREDUCE, MPI_ALLGATHER, GLOO_BCAST ... is the communication; NULL: another activity. */
static const char *communication(const char *what)
{
	static const char *const by[] = { "NCCL_", "MPI_", "GLOO_", "CCL_", "DDL_", "MLSL_" };
	char text[64];
	bool any = false;

	for (size_t i = 0; i < PL_LEN(by); i++)
		any |= !strncmp(what, by[i], strlen(by[i]));
	if (!any || strstr(what, "INIT") || strstr(what, "COMM"))
		return NULL;
	snprintf(text, sizeof(text), "hvd:%s", strchr(what, '_') + 1);
	for (char *c = text; *c; c++)
		*c = (char)(*c >= 'A' && *c <= 'Z' ? *c | 0x20 : *c);
	return pl_trace_coll_from_name(text, strlen(text));
}

/* An activity that all of its tensors have left, and whose sizes are known. */
static int emit(struct horovod *h, struct shared *s, struct pl_err *err)
{
	const char *coll = communication(s->what);
	bool move = !strncmp(s->what, "MEMCPY", 6);
	uint8_t kind = coll   ? PL_K_COLLECTIVE
		       : move ? PL_K_COPY
		       : !strncmp(s->what, "WAIT", 4) || !strcmp(s->what, "QUEUE")
			       ? PL_K_WAIT
			       : PL_K_ANNOTATION;
	struct pl_rows *r = &h->in.rows;
	pl_id id;

	s->used = false;
	h->unused = pl_min_size(h->unused, (size_t)(s - h->shared));
	PL_CHECK(lane(h, coll || move ? PL_T_STREAM : PL_T_OTHER,
		      coll || move ? "communication" : "waits", &id, err));
	if (coll) {
		pl_import_put_text(r, PL_R_COLL, NULL, coll, strlen(coll));
		pl_import_put_text(r, PL_R_GROUP, NULL, "horovod", 7);
		if (h->ranks > 0)
			pl_import_put_int(r, PL_R_SIZE, NULL, h->ranks);
	}
	if (s->bytes >= 0 && (coll || move))
		pl_import_put_int(r, PL_R_BYTES, NULL, s->bytes);
	pl_import_put_int(r, PL_R_ARG, "tensors", s->tensors);
	if (s->name < h->n_tensors)
		put_tensor(h, &h->tensor[s->name]);
	return event(h, kind, id, s->what, s->begin, s->end, err);
}

/* ---- activities ---------------------------------------------------------------------------- */

static int begin_activity(struct horovod *h, struct tensor *t, const char what[40], pl_ns ts,
			  struct pl_err *err)
{
	struct shared *s = h->last ? &h->shared[h->last - 1] : NULL;
	uint32_t i, k = h->free_link;

	if (!s || strcmp(s->what, what) != 0 || s->open != s->tensors) {
		for (i = (uint32_t)h->unused; i < h->n_shared && h->shared[i].used; i++)
			;
		h->unused = i;
		if (i == h->n_shared) {
			PL_CHECK(pl_grow(&h->shared, &h->cap_shared, h->n_shared + 1,
					 sizeof(*h->shared), err));
			h->n_shared++;
		}
		s = &h->shared[i];
		*s = (struct shared){ .used = true, .begin = ts, .name = (pl_id)(t - h->tensor) };
		memcpy(s->what, what, sizeof(s->what));
	}
	h->last = (uint32_t)(s - h->shared) + 1;
	s->open++;
	s->waiting++;
	s->tensors++;
	t->current = h->last;
	if (k) {
		h->free_link = h->link[k].next;
	} else {
		if (!h->n_links)
			h->n_links = 1;
		PL_CHECK(pl_grow(&h->link, &h->cap_links, h->n_links + 1, sizeof(*h->link), err));
		k = (uint32_t)h->n_links++;
	}
	h->link[k] = (struct link){ .shared = h->last, .next = t->first };
	t->first = k;
	return 0;
}

static void end_activity(struct horovod *h, struct tensor *t, pl_ns ts)
{
	struct shared *s = t->current ? &h->shared[t->current - 1] : NULL;

	t->current = 0;
	if (!s || !s->open)
		return;
	s->open--;
	s->end = pl_max_i64(s->end, ts);
}

/* "[1024, 1024]" of "HOROVOD_FLOAT32" or "float32". */
static int64_t size_of(const struct pl_object *o)
{
	size_t n, k;
	const char *s = pl_objects_text(o, "shape", &n), *type = pl_objects_text(o, "dtype", &k);
	int64_t bytes;

	if (!s || !type)
		return -1;
	if (k > 8 && !memcmp(type, "HOROVOD_", 8)) {
		type += 8;
		k -= 8;
	}
	bytes = pl_trace_dtype(type, k, NULL);
	for (const char *end = s + n; bytes > 0 && s < end; s++) {
		int64_t v;

		if (*s < '0' || *s > '9')
			continue;
		v = pl_take_digits(&s);
		if (v < 0 || __builtin_mul_overflow(bytes, v, &bytes))
			return -1;
		s--;
	}
	return bytes > 0 ? bytes : -1;
}

/* The operation of a tensor has ended: its size joins that of its activities. */
static int end_operation(struct horovod *h, struct tensor *t, int64_t bytes, struct pl_err *err)
{
	while (t->first) {
		uint32_t k = t->first;
		struct shared *s = &h->shared[h->link[k].shared - 1];

		t->first = h->link[k].next;
		h->link[k].next = h->free_link;
		h->free_link = k;
		s->bytes = bytes < 0 || s->bytes < 0 ? -1 : pl_add_sat(s->bytes, bytes);
		if (!--s->waiting && !s->open)
			PL_CHECK(emit(h, s, err));
	}
	return 0;
}

/* ---- phases -------------------------------------------------------------------------------- */

static int begin(struct horovod *h, struct tensor *t, const struct pl_object *o, pl_ns ts,
		 struct pl_err *err)
{
	char what[40];

	pl_objects_copy(o, "name", what, sizeof(what));
	if (t->depth >= DEPTH)
		return pl_import_report(&h->in.report, PL_BAD, o->at, "begins nested too deep",
					err);
	if (!t->depth && !strncmp(what, "NEGOTIATE", 9)) {
		t->negotiating = h->coordinator = true;
		h->last = 0;
	} else if (t->depth) {
		PL_CHECK(begin_activity(h, t, what, ts, err));
	} else {
		h->last = 0;
	}
	memcpy(t->what[t->depth], what, sizeof(what));
	t->ts[t->depth++] = ts;
	return 0;
}

static int end(struct horovod *h, struct tensor *t, const struct pl_object *o, pl_ns ts,
	       struct pl_err *err)
{
	pl_id id;

	if (!t->depth)
		return pl_import_report(&h->in.report, PL_BAD, o->at, "an end without its begin",
					err);
	t->depth--;
	if (t->depth) {
		end_activity(h, t, ts);
		return 0;
	}
	if (!t->negotiating) {
		PL_CHECK(end_operation(h, t, size_of(o), err));
		PL_CHECK(lane(h, PL_T_OTHER, "operations", &id, err));
		put_tensor(h, t);
		return event(h, PL_K_ANNOTATION, id, t->what[0], t->ts[0], ts, err);
	}
	t->negotiating = false;
	PL_CHECK(lane(h, PL_T_OTHER, "negotiation", &id, err));
	put_tensor(h, t);
	return event(h, PL_K_WAIT, id, t->what[0], t->ts[0], ts, err);
}

/* A rank is ready, or a cycle begins. */
static int point(struct horovod *h, const struct tensor *t, const struct pl_object *o, pl_ns ts,
		 struct pl_err *err)
{
	int64_t rank = t ? pl_objects_int(o, "name", -1) : -1;
	char what[40];
	pl_id id;

	pl_objects_copy(o, "name", what, sizeof(what));
	PL_CHECK(lane(h, PL_T_OTHER, "negotiation", &id, err));
	if (rank >= 0 && rank < 1 << 24) {
		h->ranks = pl_max_i64(h->ranks, rank + 1);
		pl_import_put_int(&h->in.rows, PL_R_ARG, "rank", rank);
		put_tensor(h, t);
		snprintf(what, sizeof(what), "ready");
	}
	return event(h, PL_K_INSTANT, id, what, ts, INT64_MIN, err);
}

static int metadata(struct horovod *h, struct tensor *t, const struct pl_object *o,
		    struct pl_err *err)
{
	/* the name of the event comes before that of the tensor */
	const struct pl_object_member *m = NULL;

	h->base_us = pl_objects_int(o, "start_time_since_epoch_in_micros", h->base_us);
	if (!t || !pl_objects_is(o, "name", "process_name"))
		return 0;
	for (unsigned i = 1; i < o->n; i++)
		if (o->m[i].n_key == 4 && !memcmp(o->m[i].key, "name", 4))
			m = &o->m[i];
	if (!m || t->name)
		return 0;
	PL_CHECK(pl_alloc(&t->name, (size_t)m->n + 1, 1, err));
	pl_json_unescape(m->s, m->n, t->name);
	return 0;
}

static int one(void *arg, const struct pl_object *o, struct pl_err *err)
{
	struct horovod *h = arg;
	struct tensor *t = NULL;
	char phase = pl_objects_phase(o);
	bool marker = phase == 'i';
	pl_ns ts = 0;

	if (!o->n)
		return 0;
	PL_CHECK(pl_import_rows_ready(&h->in.rows, err));
	if (!marker)
		PL_CHECK(tensor_of(h, o, &t, err));
	if (!marker && !t)
		return 0;
	if (phase == 'M')
		return metadata(h, t, o, err);
	if (!pl_objects_time(o, "ts", 1000, &ts))
		return pl_import_report(&h->in.report, PL_BAD, o->at, "an event without a time",
					err);
	if (phase == 'B')
		return begin(h, t, o, ts, err);
	if (phase == 'E')
		return end(h, t, o, ts, err);
	if (marker || phase == 'X')
		return point(h, t, o, ts, err);
	return pl_import_report(&h->in.report, PL_BAD, o->at, "an event of another kind", err);
}

/* ---- the timeline -------------------------------------------------------------------------- */

static int finish(void *arg, struct pl_err *err)
{
	struct horovod *h = arg;
	struct pl_segment *seg = &h->in.rows.seg;
	int32_t rank;

	PL_CHECK(
		pl_import_pick_rank(h->in.o, h->in.rows.path, h->coordinator ? 0 : -1, &rank, err));
	for (pl_id i = 0; i < seg->n_tracks; i++)
		seg->track[i].rank = rank;
	if (h->base_us > 0 && h->base_us < INT64_MAX / 1000)
		seg->base_ns = h->base_us * 1000;
	if (rank < 0)
		return 0;
	return pl_objects_job(&h->in, rank, h->ranks, err);
}

/* What had not ended: activities of tensors under way. */
static int leftovers(struct horovod *h, struct pl_err *err)
{
	size_t open = 0;

	for (size_t i = 0; i < h->n_tensors; i++)
		open += h->tensor[i].depth > 0;
	for (size_t i = 0; i < h->n_shared; i++) {
		struct shared *s = &h->shared[i];

		if (!s->used || s->open)
			continue;
		s->bytes = -1;
		PL_CHECK(pl_import_rows_ready(&h->in.rows, err));
		PL_CHECK(emit(h, s, err));
	}
	return open ? pl_import_report(&h->in.report, PL_TRUNCATED,
				       pl_import_src_at(&h->in.src, h->in.src.p),
				       "tensors without the end of what they did", err)
		    : 0;
}

static int run(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
	       struct pl_import_stats *st, struct pl_err *err)
{
	struct horovod h = { .in.o = o };
	int rc;

	PL_TRY(pl_objects_open(&h.in, in, o, sink, st, "horovod", finish, &h, err));
	PL_TRY(pl_import_objects(&h.in.src, &h.in.report, one, &h, err));
	PL_TRY(leftovers(&h, err));
	rc = pl_import_rows_close(&h.in.rows, err);
out:
	pl_objects_fini(&h.in);
	for (size_t i = 0; i < h.n_tensors; i++)
		pl_free(h.tensor[i].name);
	pl_free(h.tensor);
	pl_free(h.shared);
	pl_free(h.link);
	return rc;
}

static int probe(const uint8_t *p, size_t n)
{
	if (!n || *p != '[' || pl_import_has(p, n, "\"traceEvents\"") ||
	    pl_import_has(p, n, "\"Comm."))
		return 0;
	return pl_import_has(p, n, "start_time_since_epoch_in_micros") ||
			       pl_import_has(p, n, "\"NEGOTIATE_") ||
			       pl_import_has(p, n, "FUSION_BUFFER\"")
		       ? 80
		       : 0;
}

const struct pl_importer pl_import_horovod = {
	.name = "horovod",
	.summary = "timelines of Horovod",
	.probe = probe,
	.run = run,
};
