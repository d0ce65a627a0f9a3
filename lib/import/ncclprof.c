/*
 * Traces of the example profiler plugin of NCCL, of one process: an array of Chrome events, in
 * pairs of begin ("b") and end ("e") that are nested by their order in the file. A collective
 * encloses its proxy operations, these their network steps.
 *
 * NCCL ends the event of a collective when it has enqueued it. So a collective here is the time
 * from the first to the last of its kernel channels and messages. The wait of the proxy for the
 * network, SendWait and RecvWait, is a message of the collective (trace(5)); its other steps are
 * waits. Times that are 0 are missing. One pass, constant memory.
 */
#include "import/objects.h"

enum cat { GROUP_API, COLL_API, P2P_API, LAUNCH, GROUP, COLL, P2P, PROXY, NET, GPU, CATS };
static const char *const cats[CATS] = { "GROUP_API", "COLL_API", "P2P_API", "KERNEL_LAUNCH",
					"GROUP",     "COLL",	 "P2P",	    "PROXY",
					"NET",	     "GPU" };

struct open { /* a begin without its end so far */
	bool is;
	pl_ns ts; /* 0 missing */
	char name[64];
	int64_t channel, peer, step, steps, bytes; /* of PROXY, NET and GPU */
};
struct call { /* a collective, send or receive */
	bool is;
	char name[64], comm[24], dtype[24], algorithm[16], protocol[16];
	int64_t seq, rank, peer, count;
	unsigned coll;
	pl_ns begin, first, last; /* 0 missing */
};
struct prof {
	struct pl_objects_in in;
	struct open open[CATS];
	struct call call;
	int64_t rank, pid; /* -1: none so far, -2: several */
	int32_t job_rank;  /* -1 unknown */
	size_t enqueued;   /* operations of which only the enqueuing is known */
};

static int track(struct prof *x, uint8_t type, const char *what, const char *name, int64_t number,
		 pl_id *id, struct pl_err *err)
{
	char text[64];
	const struct pl_lane lane = {
		.type = type, .process = x->pid, .number = number, .name = text, .rank = -1
	};

	if (name)
		snprintf(text, sizeof(text), "%s %s", what, name);
	else
		pl_import_lane_name(text, sizeof(text), what, number);
	return pl_import_lane(&x->in.lanes, &lane, id, err);
}

static int event(struct prof *x, uint8_t kind, pl_id id, const char *name, pl_ns ts, pl_ns end,
		 struct pl_err *err)
{
	return pl_import_rows_event(&x->in.rows, kind, id,
				    pl_import_rows_text(&x->in.rows, name, strlen(name)), ts,
				    pl_max_i64(0, pl_sub_sat(end, ts)), err);
}

/* ---- operations ---------------------------------------------------------------------------- */

/* The rank in the job, by what the communicators say so far. */
static int find_rank(struct prof *x, struct pl_err *err)
{
	return pl_import_member_rank(x->in.o, x->in.rows.path, x->rank >= 0 ? (int32_t)x->rank : -1,
				     0, &x->job_rank, err);
}

/* Peers are numbers in their communicator: ranks of the job if this rank is the same in both. */
static void put_peer(struct prof *x, int64_t peer)
{
	if (peer >= 0 && (x->job_rank >= 0 ? x->call.rank == x->job_rank : x->rank != -2))
		pl_import_put_int(&x->in.rows, PL_R_PEER, NULL, peer);
}

static int begin_call(struct prof *x, const struct pl_object *o, pl_ns ts, struct pl_err *err)
{
	struct call *c = &x->call;
	int64_t rank = x->rank;
	char text[80];

	*c = (struct call){ .is = true,
			    .begin = ts,
			    .seq = pl_objects_int(o, "SeqNum", -1),
			    .rank = pl_objects_int(o, "Rank", -1),
			    .peer = pl_objects_int(o, "Peer", -1),
			    .count = pl_objects_int(o, "Count", -1) };
	pl_objects_copy(o, "name", c->name, sizeof(c->name));
	pl_objects_copy(o, "CommHash", c->comm, sizeof(c->comm));
	pl_objects_copy(o, "Datatype", c->dtype, sizeof(c->dtype));
	pl_objects_copy(o, "Algorithm", c->algorithm, sizeof(c->algorithm));
	pl_objects_copy(o, "Protocol", c->protocol, sizeof(c->protocol));
	snprintf(text, sizeof(text), "nccl%s", c->name);
	c->coll = pl_trace_coll_find(text, strlen(text));
	if (c->rank >= 0 && c->rank < INT32_MAX)
		x->rank = x->rank == -1 || x->rank == c->rank ? c->rank : -2;
	return x->rank == rank ? 0 : find_rank(x, err);
}

/* NCCL counts each operation of a communicator for itself. */
static int64_t number_of(const struct call *c)
{
	return c->seq < 0 || c->seq > INT64_MAX / 64 ? -1 : c->seq * 32 + c->coll;
}

static void put_sizes(struct prof *x, const struct call *c)
{
	const char *type = strncmp(c->dtype, "nccl", 4) ? c->dtype : c->dtype + 4;
	int64_t bytes = pl_trace_dtype(type, strlen(type), NULL);
	/* of an all-gather NCCL says the part of one rank, and not how many there are */
	bool whole = c->coll != PL_COLL_ALLGATHER && c->coll != PL_COLL_REDUCE_SCATTER &&
		     c->coll != PL_COLL_ALLTOALL && c->coll != PL_COLL_GATHER &&
		     c->coll != PL_COLL_SCATTER;

	if (c->count < 0)
		return;
	pl_import_put_int(&x->in.rows, PL_R_ELEMENTS, NULL, c->count);
	pl_import_put_text(&x->in.rows, PL_R_DTYPE, NULL, type, strlen(type));
	if (bytes && whole && c->count <= INT64_MAX / 32)
		pl_import_put_int(&x->in.rows, PL_R_BYTES, NULL, c->count * bytes);
}

static int end_call(struct prof *x, pl_ns end, int64_t at, struct pl_err *err)
{
	struct call *c = &x->call;
	const char *coll = pl_trace_coll_name(c->coll);
	pl_ns first = c->first ? c->first : c->begin;
	uint8_t kind = c->coll == PL_COLL_SEND	 ? PL_K_SEND
		       : c->coll == PL_COLL_RECV ? PL_K_RECV
						 : PL_K_COLLECTIVE;
	pl_id id;

	c->is = false;
	x->enqueued += !c->last;
	if (!c->last)
		c->last = end;
	if (!first || !c->last)
		return pl_import_report(&x->in.report, PL_BAD, at, "an operation without a time",
					err);
	PL_CHECK(track(x, PL_T_STREAM, "communicator", c->comm, 0, &id, err));
	if (c->coll != PL_COLL_OTHER)
		pl_import_put_text(&x->in.rows, PL_R_COLL, NULL, coll, strlen(coll));
	pl_import_put_text(&x->in.rows, PL_R_GROUP, NULL, c->comm, strlen(c->comm));
	if (kind == PL_K_COLLECTIVE && number_of(c) >= 0) {
		pl_import_put_int(&x->in.rows, PL_R_SEQ, NULL, number_of(c));
		pl_import_put_int(&x->in.rows, PL_R_ARG, "SeqNum", c->seq);
	} else if (kind != PL_K_COLLECTIVE) {
		put_peer(x, c->peer);
	}
	put_sizes(x, c);
	if (*c->algorithm)
		pl_import_put_text(&x->in.rows, PL_R_ARG, "Algorithm", c->algorithm,
				   strlen(c->algorithm));
	if (*c->protocol)
		pl_import_put_text(&x->in.rows, PL_R_ARG, "Protocol", c->protocol,
				   strlen(c->protocol));
	return event(x, kind, id, c->name, first, c->last, err);
}

/* ---- what is inside of them ---------------------------------------------------------------- */

/* The operation covers what is inside of it. */
static void cover(struct prof *x, pl_ns start, pl_ns end)
{
	struct call *c = &x->call;

	if (c->is && (!c->first || start < c->first))
		c->first = start;
	if (c->is && end > c->last)
		c->last = end;
}

/* A step of a proxy operation: a message while the network works, else a wait. */
static int end_step(struct prof *x, const struct open *s, pl_ns end, struct pl_err *err)
{
	const struct open *op = &x->open[PROXY];
	const struct call *c = &x->call;
	bool send = !strcmp(s->name, "SendWait"), recv = !strcmp(s->name, "RecvWait");
	bool message = (send || recv) && c->is && op->is && op->peer >= 0 && number_of(c) >= 0 &&
		       c->coll != PL_COLL_SEND && c->coll != PL_COLL_RECV;
	pl_id id;

	if (send || recv)
		cover(x, s->ts, end);
	PL_CHECK(track(x, PL_T_LINK,
		       strncmp(s->name, "Send", 4) ? "receive, channel" : "send, channel", NULL,
		       op->channel, &id, err));
	if (message) {
		pl_import_put_int(&x->in.rows, PL_R_OF, NULL, number_of(c));
		pl_import_put_text(&x->in.rows, PL_R_GROUP, NULL, c->comm, strlen(c->comm));
		if (op->bytes >= 0)
			pl_import_put_int(&x->in.rows, PL_R_BYTES, NULL, op->bytes);
	}
	if (op->is) {
		pl_import_put_int(&x->in.rows, PL_R_CHANNEL, NULL, op->channel);
		put_peer(x, op->peer);
	}
	pl_import_put_int(&x->in.rows, PL_R_ARG, "Step", s->step);
	return event(x,
		     !message ? PL_K_WAIT
		     : send   ? PL_K_SEND
			      : PL_K_RECV,
		     id, s->name, s->ts, end, err);
}

static int end_kernel(struct prof *x, const struct open *k, pl_ns end, struct pl_err *err)
{
	pl_id id;

	cover(x, k->ts, end);
	PL_CHECK(track(x, PL_T_OTHER, "kernel, channel", NULL, k->channel, &id, err));
	pl_import_put_int(&x->in.rows, PL_R_CHANNEL, NULL, k->channel);
	return event(x, PL_K_ANNOTATION, id, k->name, k->ts, end, err);
}

static int end_other(struct prof *x, enum cat cat, const struct open *s, pl_ns end,
		     struct pl_err *err)
{
	bool idle = !strcmp(s->name, "Idle") || !strcmp(s->name, "Sleep");
	pl_id id;

	if (cat == NET)
		return end_step(x, s, end, err);
	if (cat == GPU)
		return end_kernel(x, s, end, err);
	PL_CHECK(track(x, cat == PROXY ? PL_T_OTHER : PL_T_THREAD, cat == PROXY ? "proxy" : "calls",
		       "of NCCL", 0, &id, err));
	if (s->channel >= 0)
		pl_import_put_int(&x->in.rows, PL_R_CHANNEL, NULL, s->channel);
	put_peer(x, s->peer);
	return event(x, idle ? PL_K_WAIT : PL_K_ANNOTATION, id, s->name, s->ts, end, err);
}

static int begin(struct prof *x, enum cat cat, const struct pl_object *o, pl_ns ts,
		 struct pl_err *err)
{
	struct open *s = &x->open[cat];
	int64_t total = pl_objects_int(o, "transSize", 0), start, stop;

	*s = (struct open){ .is = true,
			    .ts = ts,
			    .channel = pl_objects_int(o, "Channel", -1),
			    .peer = pl_objects_int(o, "Peer", -1),
			    .step = pl_objects_int(o, "Step", -1),
			    .steps = pl_objects_int(o, "Steps", 0),
			    .bytes = pl_objects_int(o, "ChunkSize", -1) };
	pl_objects_copy(o, "name", s->name, sizeof(s->name));
	if (total > 0 && s->steps > 0)
		s->bytes = total / s->steps;
	if (cat == COLL || cat == P2P)
		PL_CHECK(begin_call(x, o, ts, err));
	/* the timer of the device, in ns, where the end is missing */
	start = pl_objects_int(o, "StartGpuClk", 0);
	stop = pl_objects_int(o, "StopGpuClk", 0);
	s->bytes = cat == GPU ? (start > 0 && stop > start ? stop - start : 0) : s->bytes;
	return 0;
}

static int end(struct prof *x, enum cat cat, pl_ns ts, int64_t at, struct pl_err *err)
{
	struct open *s = &x->open[cat];

	if (!s->is)
		return pl_import_report(&x->in.report, PL_BAD, at, "an end without its begin", err);
	s->is = false;
	if (cat == COLL || cat == P2P)
		return end_call(x, ts, at, err);
	if (cat == GPU && !ts && s->ts && s->bytes > 0)
		ts = pl_add_sat(s->ts, s->bytes);
	if (!ts || !s->ts)
		return pl_import_report(
			&x->in.report, PL_BAD, at,
			"an event without its begin or end, as where the plugin saw "
			"no end of a kernel",
			err);
	return end_other(x, cat, s, ts, err);
}

/* CATS: another one. */
static unsigned category(const struct pl_object *o)
{
	size_t n;
	const char *s = pl_objects_text(o, "cat", &n);
	unsigned cat = s ? 0 : CATS;

	while (cat < CATS && (strlen(cats[cat]) != n || memcmp(cats[cat], s, n) != 0))
		cat++;
	return cat;
}

static int one(void *arg, const struct pl_object *o, struct pl_err *err)
{
	struct prof *x = arg;
	char phase = pl_objects_phase(o);
	unsigned cat;
	pl_ns ts = 0;

	if (!o->n) /* the {} at the end */
		return 0;
	PL_CHECK(pl_import_rows_ready(&x->in.rows, err));
	cat = category(o);
	if (cat == CATS) /* copy engines, network plugins */
		return 0;
	if (!pl_objects_time(o, "ts", 1000, &ts))
		return pl_import_report(&x->in.report, PL_BAD, o->at, "an event without a time",
					err);
	if (x->pid < 0)
		x->pid = pl_objects_int(o, "pid", 0);
	if (phase == 'b')
		PL_CHECK(begin(x, cat, o, ts, err));
	else if (phase == 'e')
		return end(x, cat, ts, o->at, err);
	return x->in.rows.rc;
}

static int finish(void *arg, struct pl_err *err)
{
	struct prof *x = arg;

	if (x->rank < 0)
		PL_CHECK(find_rank(x, err));
	for (pl_id i = 0; i < x->in.rows.seg.n_tracks; i++)
		x->in.rows.seg.track[i].rank = x->job_rank;
	if (x->job_rank < 0)
		return 0;
	return pl_objects_job(&x->in, x->job_rank, 0, err);
}

static int run(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
	       struct pl_import_stats *st, struct pl_err *err)
{
	struct prof x = { .rank = -1, .pid = -1, .job_rank = -1 };
	int rc;

	PL_TRY(pl_objects_open(&x.in, in, o, sink, st, "ncclprof", finish, &x, err));
	PL_TRY(pl_import_objects(&x.in.src, &x.in.report, one, &x, err));
	if (x.call.is)
		PL_TRY(pl_import_report(&x.in.report, PL_TRUNCATED,
					pl_import_src_at(&x.in.src, x.in.src.p),
					"an operation without its end", err));
	if (x.rank == -2 && x.job_rank < 0)
		pl_say(o->log, PL_LOG_WARN,
		       "%s: its rank differs between its communicators, so that in the job is "
		       "unknown; give the file a name such as rank3.txt",
		       x.in.report.file);
	if (x.enqueued)
		pl_say(o->log, PL_LOG_WARN,
		       "%s: of %zu operations only the time in which they were enqueued is known; "
		       "NCCL_PROFILE_EVENT_MASK=4095 records their kernels and network steps too",
		       x.in.report.file, x.enqueued);
	rc = pl_import_rows_close(&x.in.rows, err);
out:
	pl_objects_fini(&x.in);
	return rc;
}

static int probe(const uint8_t *p, size_t n)
{
	if (!n || *p != '[')
		return 0;
	return pl_import_has(p, n, "\"CommHash\"") || (pl_import_has(p, n, "\"cat\": \"GROUP") &&
						       pl_import_has(p, n, "\"groupId\""))
		       ? 80
		       : 0;
}

const struct pl_importer pl_import_ncclprof = {
	.name = "ncclprof",
	.summary = "traces of NCCL's example profiler",
	.probe = probe,
	.run = run,
};
