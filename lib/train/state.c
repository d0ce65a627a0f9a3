/*
 * Checkpoints: weights, state of the optimiser and of the network, the number of the next step and
 * of the samples so far, as a safetensors file. A job continues from them.
 *
 * A checkpoint is the file of weights and running means by name that other frameworks read, and
 * beside them the slabs of the optimiser ("optimizer.0" ...). Its metadata say which step comes
 * next, of which seed and optimizer it is, and a number over all bytes, so that damage is found.
 * Everything else that a step depends on (its samples, dropout) follows from the seed and the
 * number of the step. But which samples a step takes depends on how many all ranks take in one, and
 * on how many samples there are to train on: a job in which one of these differs is refused. All
 * ranks are equal, so rank 0 writes, and each reads; running means are those of rank 0 from then
 * on.
 */
#include <stdlib.h>
#include <string.h>

#include "data/weights.h"
#include "train/worker.h"

static const char key_step[] = "paceline.step", key_samples[] = "paceline.samples",
		  key_trained_on[] = "paceline.trained_on", key_seed[] = "paceline.seed",
		  key_sum[] = "paceline.checksum", key_optimizer[] = "paceline.optimizer";

/* (rows, cols) to (cols, rows) */
static void transpose(const float *from, float *to, size_t rows, size_t cols)
{
	for (size_t r = 0; r < rows; r++)
		for (size_t c = 0; c < cols; c++)
			to[c * rows + r] = from[r * cols + c];
}

static uint64_t hash_of_pair(const char *name, const void *data, size_t bytes)
{
	uint64_t part[2] = { pl_hash(name, strlen(name)), pl_hash(data, bytes) };

	return pl_hash(part, sizeof(part));
}

/* Over all names and bytes. It does not depend on the order, which other programs may change. */
static uint64_t checksum(const struct pl_weights *w)
{
	uint64_t h = 0;

	for (size_t i = 0; i < w->n; i++)
		h += hash_of_pair(w->w[i].name, w->w[i].data, w->w[i].bytes);
	for (size_t i = 0; i + 1 < w->n_meta; i += 2)
		if (strcmp(w->meta[i], key_sum))
			h += hash_of_pair(w->meta[i], w->meta[i + 1], strlen(w->meta[i + 1]));
	return h;
}

/* Says what the slabs of the optimiser mean. */
static const char *optimizer_of(const struct pl_worker *worker)
{
	return worker->optim_opts.kind == PL_OPTIM_SGD && worker->optim_opts.momentum != 0
		       ? "sgd with momentum"
		       : worker->o.job->optimizer;
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Memory of the host that a file is written from. */
struct host_copies {
	float **transposed; /* tensors that files hold transposed; by number */
	float *copy[4];	    /* of slabs of a device */
	uint32_t n;
};

/* Makes *p point to memory of the host. */
static int copy_to_host(struct pl_worker *worker, struct host_copies *m, const float **p, size_t n,
			struct pl_err *err)
{
	int rc = worker->be->device && n ? pl_alloc(&m->copy[m->n], n, sizeof(float), err) : 0;

	if (!m->copy[m->n])
		return rc;
	worker->be->get(worker->ctx, m->copy[m->n], *p, n * sizeof(float));
	*p = m->copy[m->n++];
	return worker->be->sync(worker->ctx, err);
}

/* Adds a tensor as files hold it. */
static int add_tensor(struct pl_weights *w, const struct pl_net_tensor *t, const float *v,
		      float **transposed, struct pl_err *err)
{
	bool turn = t->transposed && t->n_dims == 2;
	int64_t dim[PL_LEN(t->dim)];
	int rc;

	for (int i = 0; i < t->n_dims; i++)
		dim[i] = t->dim[turn ? 1 - i : i];
	if (!turn)
		return pl_weights_add(w, t->name, t->n_dims, dim, v, err);
	rc = pl_alloc(transposed, t->n, sizeof(**transposed), err);
	if (rc < 0)
		return rc;
	transpose(v, *transposed, (size_t)t->dim[0], (size_t)t->dim[1]);
	return pl_weights_add(w, t->name, 2, dim, *transposed, err);
}

static void host_copies_fini(struct pl_worker *worker, struct host_copies *m)
{
	for (uint32_t i = 0; m->transposed && i < worker->n_tensors; i++)
		pl_free(m->transposed[i]);
	pl_free(m->transposed);
	for (uint32_t i = 0; i < m->n; i++)
		pl_free(m->copy[i]);
}

static int collect(struct pl_worker *worker, bool all, struct pl_weights *w, struct host_copies *m,
		   struct pl_err *err)
{
	float *slab[2] = { NULL, NULL };
	size_t n, n_state;
	uint32_t slabs, n_running;
	const struct pl_net_tensor *running = pl_net_state_tensors(worker->net, &n_running);
	const float *params = worker->params, *state = pl_net_state(worker->net, &n_state);
	int rc;

	PL_TRY(pl_alloc(&m->transposed, (size_t)worker->n_tensors + 1, sizeof(*m->transposed),
			err));
	PL_TRY(copy_to_host(worker, m, &params, worker->n_params, err));
	PL_TRY(copy_to_host(worker, m, &state, n_state, err));
	for (uint32_t i = 0; i < worker->n_tensors; i++)
		PL_TRY(add_tensor(w, &worker->tensor[i], params + worker->tensor[i].offset,
				  &m->transposed[i], err));
	slabs = all ? pl_optim_slabs(worker->optim, slab, &n) : 0;
	for (uint32_t i = 0; i < slabs; i++) {
		const float *p = slab[i];
		char name[32];

		snprintf(name, sizeof(name), "optimizer.%u", i);
		PL_TRY(copy_to_host(worker, m, &p, n, err));
		PL_TRY(pl_weights_add(w, name, 1, &(int64_t){ (int64_t)n }, p, err));
	}
	for (uint32_t i = 0; i < n_running; i++)
		PL_TRY(add_tensor(w, &running[i], state + running[i].offset, NULL, err));
out:
	return rc;
}

static int add_number(struct pl_weights *w, const char *key, int64_t v, struct pl_err *err)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", (long long)v);
	return pl_weights_add_meta(w, key, text, err);
}

/* Of all ranks. */
static int64_t samples_of_step(const struct pl_worker *worker)
{
	return worker->o.job->batch * worker->ranks;
}

/* What a checkpoint says beside its tensors. */
static int add_metadata(const struct pl_worker *worker, struct pl_weights *w, int64_t step,
			struct pl_err *err)
{
	char sum[32];
	int rc;

	PL_TRY(add_number(w, key_step, step, err));
	PL_TRY(add_number(w, key_samples, step * samples_of_step(worker), err));
	PL_TRY(add_number(w, key_trained_on, (int64_t)worker->feed.train, err));
	PL_TRY(add_number(w, key_seed, worker->o.job->seed, err));
	PL_TRY(pl_weights_add_meta(w, key_optimizer, optimizer_of(worker), err));
	snprintf(sum, sizeof(sum), "%016llx", (unsigned long long)checksum(w));
	rc = pl_weights_add_meta(w, key_sum, sum, err);
out:
	return rc;
}

/* Rank 0 writes the weights; step: a checkpoint with this next step; below 0: the weights alone. */
static int write_file(struct pl_worker *worker, const char *path, int64_t step, struct pl_err *err)
{
	struct pl_weights w = { 0 };
	struct host_copies m = { 0 };
	struct pl_out *out;
	int rc = 0;

	if (worker->rank)
		return 0;
	PL_TRY(collect(worker, step >= 0, &w, &m, err));
	PL_TRY(pl_weights_add_meta(&w, "format", "pt", err));
	if (step >= 0)
		PL_TRY(add_metadata(worker, &w, step, err));
	out = pl_out_open(path, true, err);
	rc = out ? pl_out_finish(out, pl_weights_write(&w, out, err), err) : err->code;
out:
	pl_weights_fini(&w);
	host_copies_fini(worker, &m);
	return rc;
}

int pl_train_worker_save(struct pl_worker *worker, const char *path, int64_t step,
			 struct pl_err *err)
{
	size_t n;
	float *running = pl_net_state(worker->net, &n);
	int rc = pl_train_worker_broadcast(worker, running, n, false, err);

	if (rc >= 0)
		rc = write_file(worker, path, step, err);
	return rc < 0 ? pl_wrap(err, "checkpoint %s", path) : rc;
}

int pl_train_worker_export(struct pl_worker *worker, const char *path, struct pl_err *err)
{
	int rc = write_file(worker, path, -1, err);

	return rc < 0 ? pl_wrap(err, "weights %s", path) : rc;
}

/* ---- reading ------------------------------------------------------------------------------- */

static int read_file(const char *path, struct pl_weights *w, struct pl_err *err)
{
	struct pl_in *in = pl_in_open(path, err);
	int rc;

	if (!in)
		return err->code;
	rc = pl_weights_read(in, pl_in_name(in), w, err);
	pl_in_close(in);
	return rc;
}

/* Reads n floats; transposed: the tensor if files hold it transposed, else NULL. */
static int read_tensor(struct pl_worker *worker, const struct pl_weights *w, const char *name,
		       float *to, size_t n, const struct pl_net_tensor *transposed,
		       struct pl_err *err)
{
	const struct pl_weight *x = pl_weights_find(w, name);
	float *other = NULL, *own = NULL, *host = to;
	int64_t have = 1;
	int rc = 0;

	if (!x)
		return pl_fail(err, PL_EDATA, "no tensor \"%.200s\"; it is another model's", name);
	for (int i = 0; i < x->n_dims; i++)
		have *= x->dim[i];
	if (have != (int64_t)n)
		return pl_fail(err, PL_EDATA,
			       "tensor \"%.200s\" has %lld elements, the model's %zu", name,
			       (long long)have, n);
	if (worker->be->device) {
		PL_TRY(pl_alloc(&own, n, sizeof(*own), err));
		host = own;
	}
	if (transposed)
		PL_TRY(pl_alloc(&other, n, sizeof(*other), err));
	PL_TRY(pl_weights_f32(x, transposed ? other : host, n, err));
	if (transposed)
		transpose(other, host, (size_t)transposed->dim[1], (size_t)transposed->dim[0]);
	if (own)
		worker->be->put(worker->ctx, to, own, n * sizeof(float));
out:
	pl_free(other);
	pl_free(own);
	return rc;
}

/* Parameters and running means. */
static int read_params(struct pl_worker *worker, const struct pl_weights *w, struct pl_err *err)
{
	uint32_t n_running;
	const struct pl_net_tensor *running = pl_net_state_tensors(worker->net, &n_running);
	size_t n;
	int rc = 0;

	for (uint32_t i = 0; i < n_running; i++)
		PL_TRY(read_tensor(worker, w, running[i].name,
				   pl_net_state(worker->net, &n) + running[i].offset, running[i].n,
				   NULL, err));
	for (uint32_t i = 0; i < worker->n_tensors; i++) {
		const struct pl_net_tensor *t = &worker->tensor[i];

		PL_TRY(read_tensor(worker, w, t->name, worker->params + t->offset, t->n,
				   t->transposed && t->n_dims == 2 ? t : NULL, err));
	}
	pl_net_changed(worker->net);
out:
	return rc;
}

int pl_train_worker_import(struct pl_worker *worker, const char *path, struct pl_err *err)
{
	struct pl_weights w = { 0 };
	const float *params = worker->params;
	struct host_copies m = { 0 };
	int rc;

	PL_TRY(read_file(path, &w, err));
	PL_TRY(read_params(worker, &w, err));
	PL_TRY(copy_to_host(worker, &m, &params, worker->n_params, err));
	PL_TRY(pl_train_worker_check_same(worker, pl_hash(params, worker->n_params * sizeof(float)),
					  "weights", err));
out:
	pl_weights_fini(&w);
	host_copies_fini(worker, &m);
	if (rc < 0)
		pl_wrap(err, "weights %s", path);
	return rc;
}

/* False: the key is not there, or its value is no number. */
static bool number_of(const struct pl_weights *w, const char *key, int64_t *v)
{
	const char *text = pl_weights_meta(w, key);
	char *end;

	if (!text || !*text)
		return false;
	*v = strtoll(text, &end, 10);
	return !*end;
}

/* What the metadata of a checkpoint say. */
struct checkpoint {
	int64_t step, samples, trained_on, seed;
	const char *optimizer;
};

/* Refuses a file that is no complete checkpoint. */
static int read_checkpoint(const struct pl_weights *w, struct checkpoint *c, struct pl_err *err)
{
	const char *sum = pl_weights_meta(w, key_sum);

	c->optimizer = pl_weights_meta(w, key_optimizer);
	if (!sum || !c->optimizer)
		return pl_fail(err, PL_EDATA,
			       "weights, but no checkpoint; to begin from them: --import");
	if (strtoull(sum, NULL, 16) != checksum(w))
		return pl_fail(err, PL_EDATA, "damaged: its checksum is not that of its bytes");
	if (!number_of(w, key_step, &c->step) || !number_of(w, key_samples, &c->samples) ||
	    !number_of(w, key_trained_on, &c->trained_on) || !number_of(w, key_seed, &c->seed) ||
	    c->step < 0)
		return pl_fail(err, PL_EDATA,
			       "it does not say which samples it has seen; to begin from its "
			       "weights: --import");
	return 0;
}

/* Refuses a checkpoint if the next step of the job would take other samples. */
static int check_continues(const struct pl_worker *worker, const struct checkpoint *c,
			   struct pl_err *err)
{
	int64_t each = samples_of_step(worker), batch = worker->o.job->batch, before;
	char remedy[64] = "";

	if (c->trained_on != (int64_t)worker->feed.train)
		return pl_fail(err, PL_EDATA,
			       "it was trained on the first %lld samples, this job trains on the "
			       "first %lld: samples that are held out would not be the same; with "
			       "another split begin from its weights: --import",
			       (long long)c->trained_on, (long long)worker->feed.train);
	if (c->samples == c->step * each)
		return 0;
	before = c->step ? c->samples / c->step : 0;
	if (before && before % worker->ranks == 0)
		snprintf(remedy, sizeof(remedy), "; --set batch=%lld would",
			 (long long)(before / worker->ranks));
	return pl_fail(err, PL_EDATA,
		       "its %lld steps took %lld samples each, those of this job take %lld (batch "
		       "%lld, %d rank%s), so it would not go on at the next sample%s",
		       (long long)c->step, (long long)before, (long long)each, (long long)batch,
		       worker->ranks, worker->ranks == 1 ? "" : "s", remedy);
}

/* Refuses a checkpoint of another job. */
static int check_job(const struct pl_worker *worker, const struct checkpoint *c, struct pl_err *err)
{
	if (c->seed != worker->o.job->seed)
		return pl_fail(
			err, PL_EDATA,
			"of a job with seed %lld, this one has %lld; it would not continue it",
			(long long)c->seed, (long long)worker->o.job->seed);
	if (strcmp(c->optimizer, optimizer_of(worker)) != 0)
		return pl_fail(
			err, PL_EDATA,
			"its optimizer was %.30s, that of this job is %s; to begin anew from "
			"its weights: --import",
			c->optimizer, optimizer_of(worker));
	return 0;
}

int pl_train_worker_load(struct pl_worker *worker, const char *path, bool to_train, int64_t *step,
			 struct pl_err *err)
{
	struct pl_weights w = { 0 };
	struct checkpoint c = { 0 };
	float *slab[2] = { NULL, NULL };
	uint32_t slabs;
	size_t n;
	int rc;

	PL_TRY(read_file(path, &w, err));
	PL_TRY(read_checkpoint(&w, &c, err));
	PL_TRY(check_job(worker, &c, err));
	if (to_train)
		PL_TRY(check_continues(worker, &c, err));
	*step = c.step;
	PL_TRY(read_params(worker, &w, err));
	slabs = pl_optim_slabs(worker->optim, slab, &n);
	for (uint32_t i = 0; i < slabs; i++) {
		char name[32];

		snprintf(name, sizeof(name), "optimizer.%u", i);
		PL_TRY(read_tensor(worker, &w, name, slab[i], n, NULL, err));
	}
	PL_TRY(pl_train_worker_check_same(worker, checksum(&w), "checkpoint", err));
out:
	pl_weights_fini(&w);
	if (rc < 0)
		pl_wrap(err, "checkpoint %s", path);
	return rc;
}
