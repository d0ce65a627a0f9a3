/*
 * Traces of BytePS (comm.json) and of dPRO (bps_trace_final.json, comm_detail.json, io.json):
 * Chrome events whose names are CATEGORY.OPERATION.PART: "FW.conv0", "Comm.grad.PUSH", "I/O_read".
 * Of the process "host0.rank1" host and rank are known. One pass.
 *
 * BytePS synchronises each partition of a tensor, a key, by pushing it to a server and pulling the
 * sum. From the push to the pull is an all-reduce here, the N-th of the key: files list the pushes
 * of a key before its pulls, so the time of a push is kept until its pull comes, in 8 bytes.
 */
#include "import/dpro_dag.h"
#include "import/objects.h"

#define ANSWERS 65536 /* names of operations whose answers are kept */

struct answer { /* what the operations of one name come after */
	uint64_t fusions;
	uint32_t segment;
	pl_id text; /* PL_NONE: nothing */
	bool known;
};
struct flow {	     /* of a key of a rank */
	pl_ns *wait; /* push i < n_push: its start; pull i < n_pull: its end */
	size_t cap, n_push, n_pull;
};
struct dpro {
	struct pl_objects_in in;
	struct pl_intern key; /* "RANK KEY" -> flow */
	struct flow *flow;
	size_t n_flows, cap_flows;
	bool unknown; /* a track is of no rank so far */
	char pid[64]; /* the last process, and whose it is */
	size_t n_pid;
	int32_t rank, host;
	struct pl_dpro_dag *dag; /* NULL: there is none */
	struct pl_intern fused;	 /* tensors -> with which others: "0" -> "0+1" */
	pl_id *with;		 /* [fused]: string of `fused` */
	size_t cap_with;
	uint64_t fusions; /* how often this changed */
	struct pl_buf after;
	struct pl_intern asked; /* name -> answer */
	struct answer *answer;
	size_t cap_answers;
};
struct op {
	const struct pl_object *o;
	const char *name, *part, *tensor; /* Comm.TENSOR.PART */
	size_t n_name, n_part, n_tensor;
	int64_t key;	/* -1: it is of none */
	char track[32]; /* of the key */
	pl_ns ts, dur;
	int32_t rank, host; /* -1 unknown */
	int64_t step;
};

static bool starts(const char *s, size_t n, const char *with)
{
	size_t k = strlen(with);

	return n >= k && !memcmp(s, with, k);
}

/* The number after a word: "rank" in "host0.rank1"; -1: none. */
static int32_t number_after(const char *s, size_t n, const char *word)
{
	size_t k = strlen(word);

	for (size_t i = 0; i + k < n; i++) {
		int64_t v = 0;

		if (memcmp(s + i, word, k) != 0 || s[i + k] < '0' || s[i + k] > '9')
			continue;
		for (i += k; i < n && s[i] >= '0' && s[i] <= '9' && v < 1 << 24; i++)
			v = v * 10 + (s[i] - '0');
		return v < 1 << 24 ? (int32_t)v : -1;
	}
	return -1;
}

/* ---- what an operation comes after --------------------------------------------------------- */

static bool computes(const char *s, size_t n)
{
	return starts(s, n, "FW.") || starts(s, n, "BW.") || starts(s, n, "UPDATE") ||
	       starts(s, n, "OUTPUT");
}

static int set_with(struct dpro *d, pl_id tensor, pl_id all, struct pl_err *err)
{
	size_t old = d->cap_with;

	PL_CHECK(pl_grow(&d->with, &d->cap_with, d->fused.n, sizeof(*d->with), err));
	for (; old < d->cap_with; old++)
		d->with[old] = PL_NONE;
	d->fusions += d->with[tensor] != all;
	d->with[tensor] = all;
	return 0;
}

/* A tensor, alone or with others: "0+1" is "0" with "1". */
static int note_fused(struct dpro *d, const char *s, size_t n, struct pl_err *err)
{
	pl_id all, id;

	PL_CHECK(pl_intern_add(&d->fused, s, n, &all, err));
	PL_CHECK(set_with(d, all, all, err));
	for (size_t at = 0; at < n; at++) {
		const char *plus = memchr(s + at, '+', n - at);
		size_t k = plus ? (size_t)(plus - s) - at : n - at;

		PL_CHECK(pl_intern_add(&d->fused, s + at, k, &id, err));
		PL_CHECK(set_with(d, id, all, err));
		at += k;
	}
	return 0;
}

/* Names, unless they were put last: the tensors of one operation mostly come after one operator. */
static int put_names(struct dpro *d, const char *names, size_t n, struct pl_err *err)
{
	if (d->after.n >= n && !memcmp((const char *)d->after.p + d->after.n - n, names, n) &&
	    (d->after.n == n || ((const char *)d->after.p)[d->after.n - n - 1] == ' '))
		return 0;
	return pl_buf_put(&d->after, names, n, err);
}

/* An operator of the graph: its name in traces, or those of the parts of a tensor's way. */
static int put_before(struct dpro *d, const char *label, struct pl_err *err)
{
	const char *tensor = label + 5;
	char text[2048];
	pl_id id;
	int n;

	if (strchr(label, ' ') || strlen(label) > 500)
		return 0;
	if (strncmp(label, "Comm.", 5) != 0) {
		n = snprintf(text, sizeof(text), "%s ", label);
		return put_names(d, text, (size_t)n, err);
	}
	id = pl_intern_find(&d->fused, tensor, strlen(tensor));
	if (id != PL_NONE)
		tensor = pl_intern_get(&d->fused, d->with[id]);
	n = snprintf(text, sizeof(text),
		     "Comm.%.600s.NCCL_ALLREDUCE Comm.%.600s.MEMCPY_OUT_FUSION_BUFFER Comm.%.600s ",
		     tensor, tensor, tensor);
	return put_names(d, text, (size_t)n, err);
}

/* Operations of one device are in the order of their track. */
static int put_label(struct dpro *d, const char *label, size_t n, struct pl_err *err)
{
	const char *before;
	size_t at = 0;

	while ((before = pl_import_dpro_before(d->dag, label, n, &at)))
		if (!computes(label, n) || !computes(before, strlen(before)))
			PL_CHECK(put_before(d, before, err));
	return 0;
}

static int put_tensors(struct dpro *d, const struct op *op, struct pl_err *err)
{
	char label[512];

	for (size_t at = 0; at < op->n_tensor; at++) {
		const char *plus = memchr(op->tensor + at, '+', op->n_tensor - at);
		size_t k = plus ? (size_t)(plus - op->tensor) - at : op->n_tensor - at;
		int n = snprintf(label, sizeof(label), "Comm.%.*s", (int)pl_min_size(k, 500),
				 op->tensor + at);

		PL_CHECK(put_label(d, label, (size_t)n, err));
		at += k;
	}
	return 0;
}

/* What an operation comes after, into d->after. */
static int find_after(struct dpro *d, const struct op *op, struct pl_err *err)
{
	d->after.n = 0;
	if (op->n_tensor)
		PL_CHECK(put_tensors(d, op, err));
	else
		PL_CHECK(put_label(d, op->name, op->n_name, err));
	/* the parts of a tensor follow one another */
	if (op->n_part == 14 && !memcmp(op->part, "NCCL_ALLREDUCE", 14))
		PL_CHECK(pl_buf_printf(&d->after, err, "Comm.%.*s.MEMCPY_IN_FUSION_BUFFER ",
				       (int)op->n_tensor, op->tensor));
	if (op->n_part == 24 && !memcmp(op->part, "MEMCPY_OUT_FUSION_BUFFER", 24))
		PL_CHECK(pl_buf_printf(&d->after, err, "Comm.%.*s.NCCL_ALLREDUCE ",
				       (int)op->n_tensor, op->tensor));
	return 0;
}

/* The answer for each name is kept, while no tensor is fused with others than before: an operation
 * of each step may come after very many. */
static int answer_of(struct dpro *d, const struct op *op, struct answer **a, struct pl_err *err)
{
	size_t old;
	pl_id id;

	if (d->asked.n >= ANSWERS)
		pl_intern_reset(&d->asked);
	old = d->asked.n;
	PL_CHECK(pl_intern_add(&d->asked, op->name, op->n_name, &id, err));
	PL_CHECK(pl_grow(&d->answer, &d->cap_answers, d->asked.n, sizeof(*d->answer), err));
	*a = &d->answer[id];
	if (id == old)
		(*a)->known = false;
	return 0;
}

/* The role `after` of the row to come. */
static int put_after(struct dpro *d, const struct op *op, struct pl_err *err)
{
	struct pl_rows *rows = &d->in.rows;
	struct answer *a;

	if (op->n_tensor)
		PL_CHECK(note_fused(d, op->tensor, op->n_tensor, err));
	PL_CHECK(answer_of(d, op, &a, err));
	if (!a->known || a->fusions != d->fusions || a->segment != rows->segments) {
		PL_CHECK(find_after(d, op, err));
		*a = (struct answer){ .known = true,
				      .fusions = d->fusions,
				      .segment = rows->segments,
				      .text = PL_NONE };
		if (d->after.n)
			a->text =
				pl_import_rows_text(rows, (const char *)d->after.p, d->after.n - 1);
	}
	if (a->text != PL_NONE)
		pl_import_rows_put(rows, PL_R_AFTER, PL_V_STR, PL_NONE, a->text);
	return 0;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static int row(struct dpro *d, const struct op *op, uint8_t kind, uint8_t type, const char *track,
	       pl_ns ts, pl_ns dur, struct pl_err *err)
{
	const struct pl_lane l = {
		.type = type, .name = track, .rank = op->rank, .process = pl_max_i64(op->host, 0)
	};
	pl_id id;

	PL_CHECK(pl_import_lane(&d->in.lanes, &l, &id, err));
	d->unknown |= op->rank < 0;
	if (op->step >= 0)
		pl_import_put_int(&d->in.rows, PL_R_STEP, NULL, op->step);
	if (d->dag && (kind == PL_K_KERNEL || kind == PL_K_COPY || kind == PL_K_COLLECTIVE))
		PL_CHECK(put_after(d, op, err));
	return pl_import_rows_event(&d->in.rows, kind, id,
				    pl_import_rows_text(&d->in.rows, op->name, op->n_name), ts, dur,
				    err);
}

/* of: the number of the tensor; time: how often the tensor was sent before. Both make the number of
 * the collective. */
static void put_collective(struct dpro *d, const char *coll, const char *group, int64_t of,
			   int64_t time)
{
	pl_import_put_text(&d->in.rows, PL_R_COLL, NULL, coll, strlen(coll));
	pl_import_put_text(&d->in.rows, PL_R_GROUP, NULL, group, strlen(group));
	if (of >= 0 && of < (int64_t)1 << 40 && time >= 0 && time < 1 << 20)
		pl_import_put_int(&d->in.rows, PL_R_SEQ, NULL, of << 20 | time);
}

/* The state of a key or tensor. */
static int flow_of(struct dpro *d, const struct op *op, const char *s, size_t n, struct flow **f,
		   struct pl_err *err)
{
	char key[160];
	int len = snprintf(key, sizeof(key), "%d %.*s", (int)op->rank, (int)pl_min_size(n, 120), s);
	pl_id id;

	PL_CHECK(pl_intern_add(&d->key, key, (size_t)len, &id, err));
	if (id >= d->n_flows) {
		PL_CHECK(pl_grow(&d->flow, &d->cap_flows, id + (size_t)1, sizeof(*d->flow), err));
		memset(&d->flow[d->n_flows], 0, (id + (size_t)1 - d->n_flows) * sizeof(*d->flow));
		d->n_flows = id + (size_t)1;
	}
	*f = &d->flow[id];
	return 0;
}

/* ---- communication ------------------------------------------------------------------------- */

/* The N-th push and the N-th pull of a key are one all-reduce. */
static int push_or_pull(struct dpro *d, const struct op *op, bool pull, struct pl_err *err)
{
	struct op both = *op;
	struct flow *f;
	size_t i;
	pl_ns from, to;

	PL_CHECK(flow_of(d, op, op->track, strlen(op->track), &f, err));
	i = pull ? f->n_pull++ : f->n_push++;
	if (i >= (pull ? f->n_push : f->n_pull)) { /* the other one is still to come */
		PL_CHECK(pl_grow(&f->wait, &f->cap, i + 1, sizeof(*f->wait), err));
		f->wait[i] = pull ? pl_add_sat(op->ts, op->dur) : op->ts;
		return 0;
	}
	from = pull ? f->wait[i] : op->ts;
	to = pull ? pl_add_sat(op->ts, op->dur) : f->wait[i];
	if (to < from)
		return pl_import_report(&d->in.report, PL_BAD, op->o->at,
					"a pull before the push of its key", err);
	put_collective(d, "allreduce", "byteps", op->key, op->step >= 0 ? op->step : (int64_t)i);
	pl_import_put_text(&d->in.rows, PL_R_ARG, "tensor", op->tensor, op->n_tensor);
	both.n_name -= op->n_part + 1;
	return row(d, &both, PL_K_COLLECTIVE, PL_T_STREAM, op->track, from, pl_sub_sat(to, from),
		   err);
}

/* An all-reduce of all ranks, or one among the devices of a host. */
static int device_collective(struct dpro *d, const struct op *op, const char *coll, bool local,
			     struct pl_err *err)
{
	struct flow *f;
	int64_t tensor;
	char group[32];

	PL_CHECK(flow_of(d, op, op->name, op->n_name, &f, err));
	tensor = (int64_t)(pl_hash(op->tensor, op->n_tensor) & 0xffffffff);
	snprintf(group, sizeof(group), local ? "host %d" : "all", (int)op->host);
	put_collective(d, coll, group, tensor, op->step >= 0 ? op->step : (int64_t)f->n_push++);
	pl_import_put_text(&d->in.rows, PL_R_ARG, "tensor", op->tensor, op->n_tensor);
	return row(d, op, PL_K_COLLECTIVE, PL_T_STREAM, op->key >= 0 ? op->track : "communication",
		   op->ts, op->dur, err);
}

static bool part_is(const struct op *op, const char *part)
{
	return op->n_part == strlen(part) && !memcmp(op->part, part, op->n_part);
}

static int communication(struct dpro *d, const struct op *op, struct pl_err *err)
{
	size_t n;
	const char *tid = pl_objects_text(op->o, "tid", &n);
	bool pull = part_is(op, "PULL");

	if (tid && n == 5 && !memcmp(tid, "total", 5))
		return row(d, op, PL_K_ANNOTATION, PL_T_OTHER, "tensors", op->ts, op->dur, err);
	if (pull || part_is(op, "PUSH")) {
		PL_CHECK(row(d, op, PL_K_ANNOTATION, PL_T_LINK, pull ? "pull" : "push", op->ts,
			     op->dur, err));
		return op->key >= 0 ? push_or_pull(d, op, pull, err) : 0;
	}
	if (part_is(op, "NCCL_ALLREDUCE"))
		return device_collective(d, op, "allreduce", false, err);
	if (op->host >= 0 && (part_is(op, "REDUCE") || part_is(op, "BROADCAST")))
		return device_collective(d, op, *op->part == 'R' ? "reduce" : "broadcast", true,
					 err);
	if (part_is(op, "Sync") || part_is(op, "QUEUE") ||
	    starts(op->part, op->n_part, "COORDINATE_"))
		return row(d, op, PL_K_WAIT, PL_T_OTHER, "waits", op->ts, op->dur, err);
	if (starts(op->part, op->n_part, "COPY") || starts(op->part, op->n_part, "MEMCPY"))
		return row(d, op, PL_K_COPY, PL_T_STREAM, op->key >= 0 ? op->track : "copies",
			   op->ts, op->dur, err);
	if (part_is(op, "SEND") || part_is(op, "RECV")) {
		static const char *const key[] = { "channelId", "loopId", "chunkId",
						   "sliceId",	"stepN",  "name" };

		for (size_t i = 0; i < PL_LEN(key); i++)
			pl_import_put_member(&d->in.rows, op->o, key[i]);
		return row(d, op, PL_K_ANNOTATION, PL_T_LINK,
			   *op->part == 'S' ? "messages sent" : "messages received", op->ts,
			   op->dur, err);
	}
	return row(d, op, PL_K_ANNOTATION, PL_T_OTHER, "parts", op->ts, op->dur, err);
}

/* ---- events -------------------------------------------------------------------------------- */

/* "Comm.layer.weight.PUSH": the part is after the last dot. The thread is the key. */
static void split(struct op *op)
{
	size_t i = op->n_name;

	op->key = pl_objects_int(op->o, "tid", -1);
	pl_import_lane_name(op->track, sizeof(op->track), "key", op->key);
	while (i > 0 && op->name[i - 1] != '.')
		i--;
	op->part = op->name + i;
	op->n_part = op->n_name - i;
	op->tensor = op->name + 5;
	op->n_tensor = i > 5 ? i - 6 : op->n_name - 5;
	if (i <= 5)
		op->n_part = 0;
}

/* Processes "host0.rank1", "comm_detail_r1_lr0"; others are of the rank of the file. */
static void whose(struct dpro *d, struct op *op)
{
	size_t n;
	const char *s = pl_objects_text(op->o, "pid", &n);

	op->rank = op->host = -1;
	if (!s)
		return;
	if (starts(s, n, "Comm.")) /* BytePS has one process for each tensor */
		return;
	if (!n || n != d->n_pid || memcmp(s, d->pid, n) != 0) {
		d->host = number_after(s, n, "host");
		d->rank = starts(s, n, "comm_detail_r") ? number_after(s, n, "detail_r")
							: number_after(s, n, "rank");
		d->n_pid = n <= sizeof(d->pid) ? n : 0;
		memcpy(d->pid, s, d->n_pid);
	}
	op->host = d->host;
	op->rank = d->rank;
}

/* Arguments have a name, too: that of BytePS lacks the part, that of dPRO has "~>" and more. */
static void name_of(struct op *op)
{
	for (unsigned i = 0; i < op->o->n; i++) {
		const struct pl_object_member *m = &op->o->m[i];
		size_t n = 0;

		if (m->n_key != 4 || memcmp(m->key, "name", 4) != 0 || m->type != '"')
			continue;
		while (n < m->n && !(m->s[n] == '~' && n + 1 < m->n && m->s[n + 1] == '>'))
			n++;
		if (op->name && n <= op->n_name)
			continue;
		op->name = m->s;
		op->n_name = n;
	}
}

static int one(void *arg, const struct pl_object *o, struct pl_err *err)
{
	struct dpro *d = arg;
	struct op op = { .o = o, .key = -1 };
	char phase = pl_objects_phase(o);
	bool mark = phase == 'i';

	if (!o->n || phase == 'M')
		return 0;
	PL_CHECK(pl_import_rows_ready(&d->in.rows, err));
	name_of(&op);
	if (!op.name || !pl_objects_time(o, "ts", 1000, &op.ts))
		return pl_import_report(&d->in.report, PL_BAD, o->at,
					"an event without a name or time", err);
	if (!mark && (!pl_objects_time(o, "dur", 1000, &op.dur) || op.dur < 0))
		return pl_import_report(&d->in.report, PL_BAD, o->at, "an event without a duration",
					err);
	op.step = pl_objects_int(o, "step", -1);
	whose(d, &op);
	if (mark)
		return row(d, &op, PL_K_INSTANT, PL_T_OTHER, "marks", op.ts, -1, err);
	if (starts(op.name, op.n_name, "Comm.")) {
		split(&op);
		return communication(d, &op, err);
	}
	if (starts(op.name, op.n_name, "I/O"))
		return row(d, &op, PL_K_DATA, PL_T_OTHER, "input", op.ts, op.dur, err);
	return row(d, &op, PL_K_KERNEL, PL_T_STREAM, "computation", op.ts, op.dur, err);
}

/* ---- the trace ----------------------------------------------------------------------------- */

static int finish(void *arg, struct pl_err *err)
{
	struct dpro *d = arg;
	struct pl_segment *seg = &d->in.rows.seg;
	int32_t rank;

	if (!d->unknown)
		return 0;
	PL_CHECK(pl_import_pick_rank(d->in.o, d->in.rows.path, -1, &rank, err));
	for (pl_id i = 0; i < seg->n_tracks; i++)
		if (seg->track[i].rank < 0)
			seg->track[i].rank = rank;
	if (rank < 0)
		return 0;
	return pl_objects_job(&d->in, rank, 0, err);
}

/* Pushes that were never pulled are only links. */
static int leftovers(struct dpro *d, struct pl_err *err)
{
	size_t alone = 0;

	for (size_t i = 0; i < d->n_flows; i++)
		if (d->flow[i].wait)
			alone += d->flow[i].n_push > d->flow[i].n_pull
					 ? d->flow[i].n_push - d->flow[i].n_pull
					 : d->flow[i].n_pull - d->flow[i].n_push;
	return alone ? pl_import_report(&d->in.report, PL_BAD,
					pl_import_src_at(&d->in.src, d->in.src.p),
					"pushes without their pulls, or the reverse", err)
		     : 0;
}

static int run(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
	       struct pl_import_stats *st, struct pl_err *err)
{
	struct dpro d = { .in.o = o };
	int rc;

	PL_TRY(pl_objects_open(&d.in, in, o, sink, st, "dpro", finish, &d, err));
	d.dag = pl_import_dpro_dag(pl_in_name(in), &d.in.report, err);
	PL_TRY(d.dag ? 0 : err->code);
	PL_TRY(pl_import_objects(&d.in.src, &d.in.report, one, &d, err));
	PL_TRY(leftovers(&d, err));
	rc = pl_import_rows_close(&d.in.rows, err);
out:
	pl_objects_fini(&d.in);
	for (size_t i = 0; i < d.n_flows; i++)
		pl_free(d.flow[i].wait);
	pl_free(d.flow);
	pl_intern_fini(&d.key);
	pl_import_dpro_dag_free(d.dag);
	pl_intern_fini(&d.fused);
	pl_free(d.with);
	pl_buf_fini(&d.after);
	pl_intern_fini(&d.asked);
	pl_free(d.answer);
	return rc;
}

/* Names of that form, in the files that Chrome's viewer shows. */
static int probe(const uint8_t *p, size_t n)
{
	if (!n || (*p != '[' && *p != '{') || pl_import_has(p, n, "\"schemaVersion\"") ||
	    pl_import_has(p, n, "\"deviceProperties\""))
		return 0;
	return pl_import_has(p, n, "\"Comm.") || pl_import_has(p, n, "\"FW.") ||
			       pl_import_has(p, n, "\"BW.")
		       ? 75
		       : 0;
}

const struct pl_importer pl_import_dpro = {
	.name = "dpro",
	.summary = "traces of BytePS and dPRO",
	.probe = probe,
	.run = run,
};
