/*
 * What a job can begin again from: weights, state of the optimiser and of the network, and the
 * number of the next step, as a safetensors file.
 *
 * A checkpoint is the file of weights and running means by name that other frameworks read, and
 * beside them the slabs of the optimiser ("optimizer.0" ...). Its metadata say which step comes
 * next, of which seed and optimizer it is, and a number over all bytes, so that damage is found.
 * Everything else that a step depends on (its samples, dropout) follows from the seed and the
 * number of the step. All ranks are equal, so rank 0 writes, and each reads; running means are
 * those of rank 0 from then on.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "dp/internal.h"

static const char key_step[] = "paceline.step", key_seed[] = "paceline.seed",
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

/* Of all names and bytes, in any order: a file may have another than we wrote. */
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

/* What its slabs mean. */
static const char *optimizer_of(const struct dp *d)
{
	static const char *const names[] = { "sgd", "adam", "adamw" };

	return d->oo.kind == PL_OPTIM_SGD && d->oo.momentum != 0 ? "sgd with momentum"
								 : names[d->oo.kind];
}

/* ---- writing ------------------------------------------------------------------------------- */

/* What is made for a file, until it is written. */
struct made {
	float **turned; /* tensors that lie the other way in files; by number */
	float *copy[4]; /* of a device's memory */
	uint32_t n;
};

/* Makes p what the host can read. */
static int hold(struct dp *d, struct made *m, const float **p, size_t n, struct pl_err *err)
{
	int rc = d->be->device && n ? pl_alloc(&m->copy[m->n], n, sizeof(float), err) : 0;

	if (!m->copy[m->n])
		return rc;
	d->be->get(d->ctx, m->copy[m->n], *p, n * sizeof(float));
	*p = m->copy[m->n++];
	return d->be->sync(d->ctx, err);
}

/* A tensor as files hold it. */
static int add_tensor(struct pl_weights *w, const struct pl_net_tensor *t, const float *v,
		      float **turned, struct pl_err *err)
{
	int dim[4] = { t->dim[1], t->dim[0] }, rc;

	if (!t->transposed || t->n_dims != 2)
		return pl_weights_add(w, t->name, t->n_dims, t->dim, v, err);
	rc = pl_alloc(turned, t->n, sizeof(**turned), err);
	if (rc < 0)
		return rc;
	transpose(v, *turned, (size_t)t->dim[0], (size_t)t->dim[1]);
	return pl_weights_add(w, t->name, 2, dim, *turned, err);
}

/* A slab, as one row. */
static int add_slab(struct pl_weights *w, const char *name, const float *v, size_t n,
		    struct pl_err *err)
{
	int dim = (int)n;

	if (n > INT_MAX)
		return pl_fail(err, PL_ELIMIT, "\"%s\" has %zu numbers, a row of a file %d at most",
			       name, n, INT_MAX);
	return pl_weights_add(w, name, 1, &dim, v, err);
}

static void made_fini(struct dp *d, struct made *m)
{
	for (uint32_t i = 0; m->turned && i < d->n_tensors; i++)
		pl_free(m->turned[i]);
	pl_free(m->turned);
	for (uint32_t i = 0; i < m->n; i++)
		pl_free(m->copy[i]);
}

static int collect(struct dp *d, bool all, struct pl_weights *w, struct made *m, struct pl_err *err)
{
	float *slab[2] = { NULL, NULL };
	size_t n, n_state;
	uint32_t slabs, n_running;
	const struct pl_net_tensor *running = pl_net_state_tensors(d->net, &n_running);
	const float *params = d->params, *state = pl_net_state(d->net, &n_state);
	int rc;

	PL_TRY(pl_alloc(&m->turned, (size_t)d->n_tensors + 1, sizeof(*m->turned), err));
	PL_TRY(hold(d, m, &params, d->n_params, err));
	PL_TRY(hold(d, m, &state, n_state, err));
	for (uint32_t i = 0; i < d->n_tensors; i++)
		PL_TRY(add_tensor(w, &d->tensor[i], params + d->tensor[i].offset, &m->turned[i],
				  err));
	slabs = all ? pl_optim_slabs(d->optim, slab, &n) : 0;
	for (uint32_t i = 0; i < slabs; i++) {
		const float *p = slab[i];
		char name[32];

		snprintf(name, sizeof(name), "optimizer.%u", i);
		PL_TRY(hold(d, m, &p, n, err));
		PL_TRY(add_slab(w, name, p, n, err));
	}
	for (uint32_t i = 0; i < n_running; i++)
		PL_TRY(pl_weights_add(w, running[i].name, running[i].n_dims, running[i].dim,
				      state + running[i].offset, err));
out:
	return rc;
}

static int write_file(const struct pl_weights *w, const char *path, struct pl_err *err)
{
	struct pl_out *out = pl_out_open(path, true, err);
	int rc;

	if (!out)
		return err->code;
	rc = pl_weights_write(w, out, err);
	if (rc < 0) {
		pl_out_abort(out);
		return rc;
	}
	return pl_out_close(out, err);
}

int dp_save(void *state, const char *path, int64_t step, struct pl_err *err)
{
	struct dp *d = state;
	struct pl_weights w = { 0 };
	struct made m = { 0 };
	char text[32];
	size_t n;
	float *running = pl_net_state(d->net, &n);
	int rc;

	PL_TRY(dp_broadcast(d, running, n, false, err));
	if (d->rank)
		goto out;
	PL_TRY(collect(d, true, &w, &m, err));
	PL_TRY(pl_weights_add_meta(&w, "format", "pt", err));
	snprintf(text, sizeof(text), "%lld", (long long)step);
	PL_TRY(pl_weights_add_meta(&w, key_step, text, err));
	snprintf(text, sizeof(text), "%lld", (long long)d->o.job->seed);
	PL_TRY(pl_weights_add_meta(&w, key_seed, text, err));
	PL_TRY(pl_weights_add_meta(&w, key_optimizer, optimizer_of(d), err));
	snprintf(text, sizeof(text), "%016llx", (unsigned long long)checksum(&w));
	PL_TRY(pl_weights_add_meta(&w, key_sum, text, err));
	PL_TRY(write_file(&w, path, err));
out:
	pl_weights_fini(&w);
	made_fini(d, &m);
	if (rc < 0)
		pl_wrap(err, "checkpoint %s", path);
	return rc;
}

int dp_export(void *state, const char *path, struct pl_err *err)
{
	struct dp *d = state;
	struct pl_weights w = { 0 };
	struct made m = { 0 };
	int rc = 0;

	if (d->rank)
		goto out;
	PL_TRY(collect(d, false, &w, &m, err));
	PL_TRY(pl_weights_add_meta(&w, "format", "pt", err));
	PL_TRY(write_file(&w, path, err));
out:
	pl_weights_fini(&w);
	made_fini(d, &m);
	if (rc < 0)
		pl_wrap(err, "weights %s", path);
	return rc;
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

/* Of n floats; turned: the tensor that lies the other way in files, NULL: it does not. */
static int take(struct dp *d, const struct pl_weights *w, const char *name, float *to, size_t n,
		const struct pl_net_tensor *turned, struct pl_err *err)
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
	if (d->be->device) {
		PL_TRY(pl_alloc(&own, n, sizeof(*own), err));
		host = own;
	}
	if (turned)
		PL_TRY(pl_alloc(&other, n, sizeof(*other), err));
	PL_TRY(pl_weights_f32(x, turned ? other : host, n, err));
	if (turned)
		transpose(other, host, (size_t)turned->dim[1], (size_t)turned->dim[0]);
	if (own)
		d->be->put(d->ctx, to, own, n * sizeof(float));
out:
	pl_free(other);
	pl_free(own);
	return rc;
}

/* Parameters and running means. */
static int take_params(struct dp *d, const struct pl_weights *w, struct pl_err *err)
{
	uint32_t n_running;
	const struct pl_net_tensor *running = pl_net_state_tensors(d->net, &n_running);
	size_t n;
	int rc = 0;

	for (uint32_t i = 0; i < n_running; i++)
		PL_TRY(take(d, w, running[i].name, pl_net_state(d->net, &n) + running[i].offset,
			    running[i].n, NULL, err));
	for (uint32_t i = 0; i < d->n_tensors; i++) {
		const struct pl_net_tensor *t = &d->tensor[i];

		PL_TRY(take(d, w, t->name, d->params + t->offset, t->n,
			    t->transposed && t->n_dims == 2 ? t : NULL, err));
	}
	pl_net_changed(d->net);
out:
	return rc;
}

int dp_import(void *state, const char *path, struct pl_err *err)
{
	struct dp *d = state;
	struct pl_weights w = { 0 };
	const float *params = d->params;
	struct made m = { 0 };
	int rc;

	PL_TRY(read_file(path, &w, err));
	PL_TRY(take_params(d, &w, err));
	PL_TRY(hold(d, &m, &params, d->n_params, err));
	PL_TRY(dp_same(d, pl_hash(params, d->n_params * sizeof(float)), "weights", err));
out:
	pl_weights_fini(&w);
	made_fini(d, &m);
	if (rc < 0)
		pl_wrap(err, "weights %s", path);
	return rc;
}

/* Is it a whole checkpoint of this job? */
static int check(const struct dp *d, const struct pl_weights *w, int64_t *step, struct pl_err *err)
{
	const char *text = pl_weights_meta(w, key_step), *seed = pl_weights_meta(w, key_seed),
		   *sum = pl_weights_meta(w, key_sum),
		   *optimizer = pl_weights_meta(w, key_optimizer);
	char *end;

	if (!text || !seed || !sum || !optimizer)
		return pl_fail(err, PL_EDATA,
			       "weights, but no checkpoint; to begin from them: --import");
	*step = strtoll(text, &end, 10);
	if (*end || *step < 0)
		return pl_fail(err, PL_EDATA, "the number of its step is no number");
	if (strtoull(sum, NULL, 16) != checksum(w))
		return pl_fail(err, PL_EDATA, "damaged: its checksum is not that of its bytes");
	if (strtoll(seed, NULL, 10) != d->o.job->seed)
		return pl_fail(
			err, PL_EDATA,
			"of a job with seed %.30s, this one has %lld; it would not continue it",
			seed, (long long)d->o.job->seed);
	if (strcmp(optimizer, optimizer_of(d)))
		return pl_fail(
			err, PL_EDATA,
			"its optimizer was %.30s, that of this job is %s; to begin anew from "
			"its weights: --import",
			optimizer, optimizer_of(d));
	return 0;
}

int dp_load(void *state, const char *path, int64_t *step, struct pl_err *err)
{
	struct dp *d = state;
	struct pl_weights w = { 0 };
	float *slab[2] = { NULL, NULL };
	uint32_t slabs;
	size_t n;
	int rc;

	PL_TRY(read_file(path, &w, err));
	PL_TRY(check(d, &w, step, err));
	PL_TRY(take_params(d, &w, err));
	slabs = pl_optim_slabs(d->optim, slab, &n);
	for (uint32_t i = 0; i < slabs; i++) {
		char name[32];

		snprintf(name, sizeof(name), "optimizer.%u", i);
		PL_TRY(take(d, &w, name, slab[i], n, NULL, err));
	}
	PL_TRY(dp_same(d, checksum(&w), "checkpoint", err));
out:
	pl_weights_fini(&w);
	if (rc < 0)
		pl_wrap(err, "checkpoint %s", path);
	return rc;
}
