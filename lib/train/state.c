/*
 * Checkpoints: weights, state of the optimiser and of the network, the number of the next step and
 * of the samples so far, as a safetensors file. A job continues from them.
 *
 * A checkpoint holds the weights and running means by name, which other frameworks read, and the
 * slabs of the optimiser ("optimizer.0" ...). Its metadata hold the number of the next step, the
 * seed, the name of the optimiser, and a checksum of all bytes, which shows damage. Everything else
 * that a step depends on (its samples, dropout) follows from the seed, the number of the step, and
 * the number of samples so far. So a job whose steps take another number of samples goes on at the
 * next sample, too; one that trains on other samples is refused. All ranks have the same weights,
 * so rank 0 writes, and each rank reads. Afterwards all have the running means of rank 0.
 */
#include <stdlib.h>

#include "data/weights.h"
#include "train/worker.h"

static const char key_sum[] = "paceline.checksum", key_optimizer[] = "paceline.optimizer";
/* of the last step before the checkpoint; older files lack it */
static const char key_each[] = "paceline.samples_per_step";
/* the step at which the state of the optimizer began anew, if it did */
static const char key_first[] = "paceline.optimizer_first";
/* of the best evaluation, if there was one that counts: its number and what the number is, ... */
static const char key_best[] = "paceline.best", key_monitor[] = "paceline.monitor",
		  key_beat[] = "paceline.best_to_beat", key_best_step[] = "paceline.best_step",
		  key_waited[] = "paceline.evaluations_waited";

/* The numbers of a checkpoint's metadata. */
enum { STEP, SAMPLES, TRAINED_ON, SEED, NUMBERS };
static const char *const number_keys[NUMBERS] = { "paceline.step", "paceline.samples",
						  "paceline.trained_on", "paceline.seed" };

static const char *const slab_names[] = { "optimizer.0", "optimizer.1" };

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

/* A hash over all names and bytes. Their order does not count: other programs may change it. */
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

/* ---- tensors ------------------------------------------------------------------------------- */

/* A tensor of a file, and its place in memory of the backend. */
struct entry {
	const char *name;
	int n_dims; /* as files have it */
	int64_t dim[4];
	bool transposed; /* of the one in memory */
	float *at;
	size_t n;
	float *copy; /* on the host, as in files; NULL if `at` can be used directly */
};
struct entries {
	struct entry *v;
	size_t n;
};

static void add_tensors(struct entries *e, const struct pl_net_tensor *t, uint32_t n, float *slab)
{
	for (uint32_t i = 0; i < n; i++, t++) {
		struct entry *x = &e->v[e->n++];

		*x = (struct entry){ .name = t->name,
				     .n_dims = t->n_dims,
				     .transposed = t->transposed && t->n_dims == 2,
				     .at = slab + t->offset,
				     .n = t->n };
		for (int k = 0; k < t->n_dims; k++)
			x->dim[k] = t->dim[x->transposed ? 1 - k : k];
	}
}

/* Parameters and running means; optimizer: its slabs, too. */
static int list_tensors(const struct pl_worker *worker, bool optimizer, struct entries *e,
			struct pl_err *err)
{
	float *slab[PL_LEN(slab_names)];
	size_t n;
	uint32_t slabs = optimizer ? pl_optim_slabs(worker->optim, slab, &n) : 0;
	const struct pl_net_view *v = &worker->view;

	PL_CHECK(pl_alloc(&e->v, (size_t)v->n_tensors + v->n_state_tensors + slabs + 1,
			  sizeof(*e->v), err));
	for (uint32_t i = 0; i < slabs; i++)
		e->v[e->n++] = (struct entry){ .name = slab_names[i],
					       .n_dims = 1,
					       .dim = { (int64_t)n },
					       .at = slab[i],
					       .n = n };
	add_tensors(e, v->tensor, v->n_tensors, v->params);
	add_tensors(e, v->state_tensor, v->n_state_tensors, v->state);
	return 0;
}

static void entries_fini(struct entries *e)
{
	for (size_t i = 0; i < e->n; i++)
		pl_free(e->v[i].copy);
	pl_free(e->v);
}

/* Copies between memory of the backend and memory of the host. */
static int to_file(struct pl_worker *worker, struct entry *e, struct pl_weights *w,
		   struct pl_err *err)
{
	float *host = NULL;
	int rc = 0;

	if (worker->view.be->device) {
		PL_TRY(pl_alloc(&host, e->n, sizeof(*host), err));
		worker->view.be->get(worker->view.ctx, host, e->at, e->n * sizeof(*host));
		PL_TRY(worker->view.be->sync(worker->view.ctx, err));
	}
	if (e->transposed) {
		PL_TRY(pl_alloc(&e->copy, e->n, sizeof(*e->copy), err));
		transpose(host ? host : e->at, e->copy, (size_t)e->dim[1], (size_t)e->dim[0]);
	} else {
		e->copy = host;
		host = NULL;
	}
	rc = pl_weights_add(w, e->name, e->n_dims, e->dim, e->copy ? e->copy : e->at, err);
out:
	pl_free(host);
	return rc;
}

/* "[48, 16]" */
static void put_shape(char *text, size_t room, int n_dims, const int64_t *dim)
{
	size_t n = (size_t)snprintf(text, room, "[");

	for (int i = 0; i < n_dims && n < room; i++)
		n += (size_t)snprintf(text + n, room - n, "%s%lld", i ? ", " : "",
				      (long long)dim[i]);
	if (n < room)
		snprintf(text + n, room - n, "]");
}

/* So many numbers in another shape are others: a matrix may be transposed. Dimensions of 1 do not
 * matter. */
static int check_shape(const struct entry *e, const struct pl_weight *x, struct pl_err *err)
{
	char model[120], file[200];
	int i = 0, k = 0;

	for (;; i++, k++) {
		while (i < e->n_dims && e->dim[i] == 1)
			i++;
		while (k < x->n_dims && x->dim[k] == 1)
			k++;
		if (i == e->n_dims || k == x->n_dims || e->dim[i] != x->dim[k])
			break;
	}
	if (i == e->n_dims && k == x->n_dims)
		return 0;
	put_shape(model, sizeof(model), e->n_dims, e->dim);
	put_shape(file, sizeof(file), x->n_dims, x->dim);
	return pl_fail(err, PL_EDATA, "tensor \"%.200s\" has the shape %s, that of the model is %s",
		       e->name, file, model);
}

static int from_file(struct pl_worker *worker, const struct entry *e, const struct pl_weights *w,
		     struct pl_err *err)
{
	const struct pl_weight *x = pl_weights_find(w, e->name);
	float *file = NULL, *host = NULL;
	int rc = 0;

	if (!x)
		return pl_fail(err, PL_EDATA, "no tensor \"%.200s\"; it is another model's",
			       e->name);
	if (e->transposed)
		PL_TRY(pl_alloc(&file, e->n, sizeof(*file), err));
	if (worker->view.be->device)
		PL_TRY(pl_alloc(&host, e->n, sizeof(*host), err));
	PL_TRY(pl_weights_f32(x, file ? file : host ? host : e->at, e->n, err));
	PL_TRY(check_shape(e, x, err));
	if (file)
		transpose(file, host ? host : e->at, (size_t)e->dim[0], (size_t)e->dim[1]);
	if (host)
		worker->view.be->put(worker->view.ctx, e->at, host, e->n * sizeof(*host));
out:
	pl_free(file);
	pl_free(host);
	return rc;
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Samples of all ranks in a step. */
static int64_t samples_of_step(const struct pl_worker *worker)
{
	return worker->o.job->batch * worker->ranks;
}

static int add_number(struct pl_weights *w, const char *key, int64_t v, struct pl_err *err)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", (long long)v);
	return pl_weights_add_meta(w, key, text, err);
}

static int add_best(const struct pl_worker *worker, struct pl_weights *w, struct pl_err *err)
{
	const struct pl_train_best *b = &worker->best;
	char text[32];

	if (b->step < 0)
		return 0;
	snprintf(text, sizeof(text), "%.17g", b->value);
	PL_CHECK(pl_weights_add_meta(w, key_best, text, err));
	snprintf(text, sizeof(text), "%.17g", b->to_beat);
	PL_CHECK(pl_weights_add_meta(w, key_beat, text, err));
	PL_CHECK(pl_weights_add_meta(w, key_monitor, worker->o.job->monitor, err));
	PL_CHECK(add_number(w, key_best_step, b->step, err));
	return add_number(w, key_waited, b->waited, err);
}

/* Writes the metadata of a checkpoint. */
static int add_metadata(const struct pl_worker *worker, struct pl_weights *w, int64_t step,
			struct pl_err *err)
{
	const int64_t number[NUMBERS] = { [STEP] = step,
					  [SAMPLES] = pl_train_worker_taken(worker, worker->ranks,
									    step),
					  [TRAINED_ON] = (int64_t)worker->feed.n_train,
					  [SEED] = worker->o.job->seed };
	char text[32];

	for (int i = 0; i < NUMBERS; i++)
		PL_CHECK(add_number(w, number_keys[i], number[i], err));
	PL_CHECK(add_number(w, key_each, samples_of_step(worker), err));
	if (worker->optim_first)
		PL_CHECK(add_number(w, key_first, worker->optim_first, err));
	PL_CHECK(add_best(worker, w, err));
	PL_CHECK(pl_weights_add_meta(w, key_optimizer, optimizer_of(worker), err));
	snprintf(text, sizeof(text), "%016llx", (unsigned long long)checksum(w));
	return pl_weights_add_meta(w, key_sum, text, err);
}

/* Rank 0 writes the weights; step: a checkpoint with this next step; below 0: the weights alone. */
static int write_file(struct pl_worker *worker, const char *path, int64_t step, struct pl_err *err)
{
	struct pl_weights w = { 0 };
	struct entries e = { 0 };
	struct pl_out *out;
	int rc = 0;

	if (worker->rank)
		return 0;
	PL_TRY(list_tensors(worker, step >= 0, &e, err));
	for (size_t i = 0; i < e.n; i++)
		PL_TRY(to_file(worker, &e.v[i], &w, err));
	PL_TRY(pl_weights_add_meta(&w, "format", "pt", err));
	if (step >= 0)
		PL_TRY(add_metadata(worker, &w, step, err));
	out = pl_out_open(path, true, err);
	if (out && step >= 0)
		pl_out_durable(out);
	rc = out ? pl_out_finish(out, pl_weights_write(&w, out, err), err) : err->code;
out:
	pl_weights_fini(&w);
	entries_fini(&e);
	return rc;
}

int pl_train_worker_save(struct pl_worker *worker, const char *path, int64_t step,
			 struct pl_err *err)
{
	int rc = pl_train_worker_broadcast(worker, worker->view.state, worker->view.n_state, false,
					   err);

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

static int read_tensors(struct pl_worker *worker, const struct pl_weights *w, bool optimizer,
			struct pl_err *err)
{
	struct entries e = { 0 };
	int rc;

	PL_TRY(list_tensors(worker, optimizer, &e, err));
	for (size_t i = 0; i < e.n; i++)
		PL_TRY(from_file(worker, &e.v[i], w, err));
	pl_net_changed(worker->net);
out:
	entries_fini(&e);
	return rc;
}

int pl_train_worker_import(struct pl_worker *worker, const char *path, struct pl_err *err)
{
	struct pl_weights w = { 0 };
	int rc;

	PL_TRY(read_file(path, &w, err));
	PL_TRY(read_tensors(worker, &w, false, err));
	PL_TRY(pl_train_worker_check_same(worker, checksum(&w), "weights", err));
out:
	pl_weights_fini(&w);
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

/* The metadata of a checkpoint, as read. */
struct checkpoint {
	int64_t number[NUMBERS];
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
	for (int i = 0; i < NUMBERS; i++)
		if (!number_of(w, number_keys[i], &c->number[i]) || c->number[STEP] < 0 ||
		    (i == SAMPLES && c->number[i] < 0))
			return pl_fail(err, PL_EDATA,
				       "it does not say which samples it has seen; to begin from "
				       "its weights: --import");
	return 0;
}

/* Says that the steps of the job take another number of samples than those before. */
static void say_other_steps(const struct pl_worker *worker, const struct checkpoint *c,
			    int64_t before)
{
	int64_t each = samples_of_step(worker), batch = worker->o.job->batch;
	char remedy[96] = "";

	if (worker->rank || !before || before == each)
		return;
	if (worker->o.meeting && worker->o.meeting->rank) /* the first server says it */
		return;
	if (before % worker->ranks == 0)
		snprintf(remedy, sizeof(remedy), "; with --set batch=%lld they would as before",
			 (long long)(before / worker->ranks));
	pl_say(worker->o.log, PL_LOG_WARN,
	       "the steps of the checkpoint took %lld samples each, from sample %lld on they take "
	       "%lld (batch %lld, %d rank%s)%s",
	       (long long)before, (long long)c->number[SAMPLES], (long long)each, (long long)batch,
	       worker->ranks, worker->ranks == 1 ? "" : "s", remedy);
}

/* Refuses a checkpoint of a job that trains on other samples; goes on at its next sample. */
static int continue_from(struct pl_worker *worker, const struct pl_weights *w,
			 const struct checkpoint *c, struct pl_err *err)
{
	int64_t step = c->number[STEP], samples = c->number[SAMPLES];
	int64_t trained_on = c->number[TRAINED_ON], before = step ? samples / step : 0;

	if (trained_on != (int64_t)worker->feed.n_train)
		return pl_fail(err, PL_EDATA,
			       "it was trained on the first %lld samples, this job trains on the "
			       "first %lld: samples that are held out would not be the same; with "
			       "another split begin from its weights: --import",
			       (long long)trained_on, (long long)worker->feed.n_train);
	if (step && number_of(w, key_each, &before) && before < 1)
		return pl_fail(err, PL_EDATA, "its steps took %lld samples each",
			       (long long)before);
	say_other_steps(worker, c, before);
	worker->feed.first_step = step;
	worker->feed.first_sample = samples;
	if (!worker->o.job->schedule_steps) { /* the schedule ends with the job */
		worker->optim_opts.steps = pl_train_worker_steps(worker, worker->ranks);
		pl_optim_set_steps(worker->optim, worker->optim_opts.steps);
	}
	return 0;
}

/* The best evaluation, unless this job monitors something else. */
static void read_best(struct pl_worker *worker, const struct pl_weights *w)
{
	const char *value = pl_weights_meta(w, key_best), *beat = pl_weights_meta(w, key_beat);
	const char *monitor = pl_weights_meta(w, key_monitor);
	struct pl_train_best *b = &worker->best, read;

	if (!value || !beat || !monitor || strcmp(monitor, worker->o.job->monitor) != 0 ||
	    !number_of(w, key_best_step, &read.step) || !number_of(w, key_waited, &read.waited))
		return;
	if (pl_decimal(value, &read.value) && pl_decimal(beat, &read.to_beat))
		*b = read;
}

static bool all_zero(const struct pl_weight *x)
{
	const uint8_t *p = x->data;

	for (size_t i = 0; i < x->bytes; i++)
		if (p[i])
			return false;
	return true;
}

/* Servers have no state of an optimizer, because each worker has its own. They write zeros. Adam
 * would take them for means of so many gradients as steps were made, and its steps would be too
 * long. */
static void find_state(struct pl_worker *worker, const char *path, const struct pl_weights *w,
		       int64_t step)
{
	const struct pl_engine_meeting *m = worker->o.meeting;
	bool has_slab = false;

	worker->has_state = false;
	for (size_t i = 0; i < PL_LEN(slab_names); i++) {
		const struct pl_weight *x = pl_weights_find(w, slab_names[i]);

		has_slab |= x != NULL;
		worker->has_state |= x && !all_zero(x);
	}
	worker->optim_first = 0;
	if (has_slab && !worker->has_state)
		worker->optim_first = step;
	else if (!number_of(w, key_first, &worker->optim_first))
		worker->optim_first = 0;
	pl_optim_shift(worker->optim, 0, -worker->optim_first);
	if (!has_slab || worker->has_state || !step || (m ? m->rank : worker->rank))
		return;
	pl_say(worker->o.log, PL_LOG_WARN, "checkpoint %s has no state of the optimizer, %s", path,
	       m ? "which is that of each worker: the optimizers of the workers begin anew"
		 : "because servers wrote it: the optimizer begins anew");
}

/* Refuses a checkpoint of another job. */
static int check_job(const struct pl_worker *worker, const struct checkpoint *c, struct pl_err *err)
{
	if (c->number[SEED] != worker->o.job->seed)
		return pl_fail(
			err, PL_EDATA,
			"of a job with seed %lld, this one has %lld; it would not continue it",
			(long long)c->number[SEED], (long long)worker->o.job->seed);
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
	int rc;

	PL_TRY(read_file(path, &w, err));
	PL_TRY(read_checkpoint(&w, &c, err));
	PL_TRY(check_job(worker, &c, err));
	if (to_train) {
		PL_TRY(continue_from(worker, &w, &c, err));
		read_best(worker, &w);
	}
	*step = c.number[STEP];
	PL_TRY(read_tensors(worker, &w, true, err));
	PL_TRY(pl_train_worker_check_same(worker, checksum(&w), "checkpoint", err));
	if (to_train)
		find_state(worker, path, &w, c.number[STEP]);
out:
	pl_weights_fini(&w);
	if (rc < 0)
		pl_wrap(err, "checkpoint %s", path);
	return rc;
}
