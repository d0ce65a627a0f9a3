/*
 * What a rank records of itself: the names and tracks, and the events of its world.
 *
 * The track of the main thread has steps, batches, layers, gradients that are ready, the starts of
 * communication and the waits for it. A start and a wait have the number (correlation) of their
 * communication. The track of the thread that communicates has the collectives. Messages are on one
 * link for each channel. The device is recorded by tracer_device.c.
 */
#include "train/tracer.h"

#define WORK_MAX 0x1p62

static const char *const coll_names[PL_OP_COUNT_] = {
	[PL_OP_SEND] = "send",		 [PL_OP_RECV] = "recv",
	[PL_OP_ALLREDUCE] = "allreduce", [PL_OP_REDUCE_SCATTER] = "reduce_scatter",
	[PL_OP_ALLGATHER] = "allgather", [PL_OP_BROADCAST] = "broadcast",
	[PL_OP_ALLTOALL] = "alltoall",	 [PL_OP_BARRIER] = "barrier",
};

static const char *const names[PL_NAME_COUNT_] = {
	[PL_NAME_STEP] = "step",	   [PL_NAME_BATCH] = "batch",
	[PL_NAME_OPTIMIZER] = "optimizer", [PL_NAME_WAIT] = "wait",
	[PL_NAME_LOSS] = "loss",	   [PL_NAME_READY] = "paceline::gradient",
	[PL_NAME_PACE] = "pace",	   [PL_NAME_ISSUE] = "issue allreduce",
	[PL_NAME_SUM] = "issue sum",	   [PL_NAME_GROUP] = "world",
	[PL_NAME_BF16] = "bf16",
};

static int add_name(struct pl_tracer *t, pl_id *id, struct pl_err *err, const char *text)
{
	*id = pl_rec_name(t->rec, text);
	return *id == PL_NONE ? pl_fail(err, PL_ENOMEM, "out of memory (names of a trace)") : 0;
}

/* A communication for each algorithm: "allreduce bucket 0", "allreduce bucket 0 tree" ... */
static int algorithm_names(struct pl_tracer *t, pl_id *id, struct pl_err *err, const char *what)
{
	char text[64];

	for (unsigned algo = 0; algo < PL_CA_COUNT_; algo++) {
		snprintf(text, sizeof(text), "%.32s%s%s", what, algo == PL_CA_AUTO ? "" : " ",
			 algo == PL_CA_AUTO ? "" : pl_comm_algorithm_name(algo));
		PL_CHECK(add_name(t, &id[algo], err, text));
	}
	return 0;
}

int pl_train_tracer_new(struct pl_recorder *rec, struct pl_tracer **out, struct pl_err *err)
{
	struct pl_tracer *t;
	int rc = pl_alloc(&t, 1, sizeof(*t), err);

	*out = NULL;
	if (rc < 0)
		return rc;
	t->rec = rec;
	t->main = pl_rec_track(rec, PL_T_THREAD, "main");
	t->comm = pl_rec_track(rec, PL_T_THREAD, "communication");
	if (t->main == PL_NONE || t->comm == PL_NONE) {
		rc = pl_fail(err, PL_ENOMEM, "out of memory (tracks of a trace)");
		goto out;
	}
	for (uint32_t i = 0; i < PL_OP_COUNT_; i++) {
		PL_TRY(add_name(t, &t->coll[i], err, coll_names[i]));
		PL_TRY(algorithm_names(t, t->with_algorithm[i], err, coll_names[i]));
	}
	for (uint32_t i = 0; i < PL_NAME_COUNT_; i++)
		PL_TRY(add_name(t, &t->name[i], err, names[i]));
out:
	if (rc < 0)
		pl_train_tracer_free(t);
	else
		*out = t;
	return rc;
}

void pl_train_tracer_free(struct pl_tracer *t)
{
	struct pl_err ignore = { 0 };
	uint64_t lost;

	if (!t)
		return;
	if (pl_train_tracer_stop(t, false, &lost, &ignore) < 0)
		lost = 0; /* an earlier failure is reported already */
	pl_free(t->link);
	pl_free(t->sent);
	pl_free(t->bucket);
	pl_free(t->layer);
	pl_free(t->work);
	pl_free(t->dims);
	pl_free(t->param);
	pl_free(t);
}

static int dims_name(struct pl_tracer *t, const struct pl_net_tensor *x, pl_id *id,
		     struct pl_err *err)
{
	char text[96];
	int n = snprintf(text, sizeof(text), "[[");

	for (int i = 0; i < x->n_dims && n < (int)sizeof(text) - 16; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%d", i ? ", " : "", x->dim[i]);
	snprintf(text + n, sizeof(text) - (size_t)n, "]]");
	return add_name(t, id, err, text);
}

static int layer_work(struct pl_tracer *t, const struct pl_net *net, uint32_t layer,
		      enum pl_net_phase phase, struct pl_tracer_work *work, struct pl_err *err)
{
	const struct pl_net_op op = pl_net_op(net, layer, phase, sizeof(float));

	*work = (struct pl_tracer_work){ .op = PL_NONE, .dims = PL_NONE, .flops = -1, .moved = -1 };
	if (!pl_net_sizes(net, layer).runs[phase])
		return 0;
	PL_CHECK(add_name(t, &work->op, err, op.name));
	PL_CHECK(add_name(t, &work->dims, err, op.dims));
	work->flops = op.flops < WORK_MAX ? (int64_t)op.flops : -1;
	work->moved = op.bytes < WORK_MAX ? (int64_t)op.bytes : -1;
	return 0;
}

static int update_work(struct pl_tracer *t, size_t params, const struct pl_job *job,
		       struct pl_err *err)
{
	char text[64];

	snprintf(text, sizeof(text), "update.%.40s", job->optimizer);
	PL_CHECK(add_name(t, &t->update.op, err, text));
	snprintf(text, sizeof(text), "[[%zu]]", params);
	PL_CHECK(add_name(t, &t->update.dims, err, text));
	t->update.flops = -1;
	t->update.moved = (int64_t)(params * sizeof(float)) * pl_job_update_numbers(job);
	return 0;
}

int pl_train_tracer_names(struct pl_tracer *t, struct pl_net *net, const struct pl_job *job,
			  uint32_t n_buckets, struct pl_err *err)
{
	static const char *const passes[] = { "forward", "recompute", "backward" };
	const struct pl_net_view v = pl_net_view(net);
	char text[256];

	PL_CHECK(pl_alloc(&t->bucket, (size_t)n_buckets * PL_CA_COUNT_ + 1, sizeof(pl_id), err));
	PL_CHECK(pl_alloc(&t->layer, 3 * (size_t)v.n_layers + 1, sizeof(pl_id), err));
	PL_CHECK(pl_alloc(&t->dims, (size_t)v.n_tensors + 1, sizeof(pl_id), err));
	PL_CHECK(pl_alloc(&t->param, (size_t)v.n_tensors + 1, sizeof(pl_id), err));
	for (uint32_t i = 0; i < n_buckets; i++) {
		snprintf(text, sizeof(text), "allreduce bucket %u", i);
		PL_CHECK(algorithm_names(t, &t->bucket[i * PL_CA_COUNT_], err, text));
	}
	t->n_buckets = n_buckets;
	PL_CHECK(update_work(t, v.n_params, job, err));
	PL_CHECK(pl_alloc(&t->work, 2 * (size_t)v.n_layers + 1, sizeof(*t->work), err));
	for (uint32_t i = 0; i < 2 * v.n_layers; i++)
		PL_CHECK(layer_work(t, net, i / 2, (enum pl_net_phase)(i % 2), &t->work[i], err));
	for (uint32_t i = 0; i < 3 * v.n_layers; i++) {
		snprintf(text, sizeof(text), "%s %.200s", passes[i % 3], v.layer[i / 3].name);
		PL_CHECK(add_name(t, &t->layer[i], err, text));
	}
	for (uint32_t i = 0; i < v.n_tensors; i++) {
		PL_CHECK(dims_name(t, &v.tensor[i], &t->dims[i], err));
		PL_CHECK(add_name(t, &t->param[i], err, v.tensor[i].name));
	}
	return 0;
}

/* The world calls this for one event at a time, so the list of links needs no lock. */
static pl_id link_track(struct pl_tracer *t, int channel)
{
	struct pl_err ignore = { 0 };
	char text[32];

	if (channel < 0 || channel >= 1024)
		return t->comm;
	if (pl_grow(&t->link, &t->cap_links, (size_t)channel + 1, sizeof(*t->link), &ignore) < 0)
		return t->comm;
	while (t->n_links <= (uint32_t)channel) {
		snprintf(text, sizeof(text), "channel %u", t->n_links);
		t->link[t->n_links++] = pl_rec_track(t->rec, PL_T_LINK, text);
	}
	return t->link[channel];
}

#define CHANNELS 64 /* later channels share these numbers */

/*
 * When a send began. The world tells when it was queued. But a send waits behind an earlier one on
 * the same connection, so it begins when that one has ended.
 */
static pl_ns send_start(struct pl_tracer *t, const struct pl_comm_event *e)
{
	struct pl_err ignore = { 0 };
	size_t at = (size_t)e->peer * CHANNELS + (size_t)(e->channel % CHANNELS);
	pl_ns begin;

	if (e->peer < 0 || e->channel < 0 ||
	    pl_grow(&t->sent, &t->cap_sent, at + 1, sizeof(*t->sent), &ignore) < 0)
		return e->begin;
	while (t->n_sent <= at)
		t->sent[t->n_sent++] = 0;
	begin = pl_min_i64(e->end, pl_max_i64(e->begin, t->sent[at]));
	t->sent[at] = pl_max_i64(t->sent[at], e->end);
	return begin;
}

int pl_train_tracer_group(struct pl_tracer *t, const char *name, const uint32_t *rank, int first,
			  struct pl_err *err)
{
	t->rank = rank;
	t->first = first;
	return add_name(t, &t->name[PL_NAME_GROUP], err, name);
}

/* The number of a process in the trace, of a rank of the world. */
static int process_of(const struct pl_tracer *t, int rank)
{
	return t->first + (t->rank && rank >= 0 ? (int)t->rank[rank] : rank);
}

void pl_train_tracer_comm(void *tracer, const struct pl_comm_event *e)
{
	struct pl_tracer *t = tracer;
	bool message = (e->op == PL_OP_SEND || e->op == PL_OP_RECV) && e->collective != e->op;
	struct pl_rec_event x;
	uint32_t bucket = (uint32_t)(e->tag % PL_TAG_BUCKETS);

	pl_id label = e->op < PL_OP_COUNT_ ? t->coll[e->op] : t->name[PL_NAME_WAIT];

	if (pl_train_tracer_takes(t, e))
		return;
	if (message) {
		x = pl_rec_event(link_track(t, e->channel),
				 e->op == PL_OP_SEND ? PL_K_SEND : PL_K_RECV, label, e->begin,
				 e->end);
		x.channel = e->channel;
		x.chunk = (int32_t)e->chunk;
		x.peer = process_of(t, e->peer);
	} else {
		if (e->tag && e->op == PL_OP_ALLREDUCE && bucket < t->n_buckets)
			label = t->bucket[bucket * PL_CA_COUNT_ + e->algo];
		else if (e->op < PL_OP_COUNT_)
			label = t->with_algorithm[e->op][e->algo];
		x = pl_rec_event(t->comm,
				 e->op == PL_OP_SEND   ? PL_K_SEND
				 : e->op == PL_OP_RECV ? PL_K_RECV
						       : PL_K_COLLECTIVE,
				 label, e->op == PL_OP_SEND ? send_start(t, e) : e->begin, e->end);
		x.coll = e->op < PL_OP_COUNT_ ? t->coll[e->op] : PL_NONE;
		x.corr = e->tag ? (int64_t)e->tag : -1;
		if (e->op == PL_OP_SEND || e->op == PL_OP_RECV)
			x.peer = process_of(t, e->peer);
	}
	x.step = e->tag ? pl_tag_step(e->tag) : -1;
	x.bytes = (int64_t)e->bytes;
	x.seq = (int64_t)e->seq;
	x.group = t->name[PL_NAME_GROUP];
	pl_rec(t->rec, &x);
}
