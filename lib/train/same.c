/*
 * Checks that all ranks have the same job. Where a launcher started them, each rank reads its own
 * files. A rank with another model, batch or plan would make the sums wrong.
 *
 * Ranks compare hashes of the texts of job, model and plan and of all bytes of the data, without
 * what may differ from host to host (names of files, threads, where to meet). Rank 0 broadcasts its
 * hash as floats that hold 16 bits each.
 */
#include "train/worker.h"

int pl_train_worker_check_same(struct pl_worker *w, uint64_t h, const char *what,
			       struct pl_err *err)
{
	float own[4], first[4];
	int rc;

	for (int i = 0; i < 4; i++)
		own[i] = first[i] = (float)(h >> 16 * i & 0xffff);
	rc = pl_train_worker_broadcast(w, first, 4, true, err);
	if (rc < 0 || !memcmp(own, first, sizeof(own)))
		return rc;
	return pl_fail(err, PL_EDATA,
		       "the %s of rank %d is not that of rank %d; start all ranks with the same "
		       "files and options",
		       what, w->rank, pl_comm_world_name(w->o.world, 0));
}

static int put_job(const struct pl_job *job, struct pl_out *out, struct pl_err *err)
{
	struct pl_job j = *job, usual;

	pl_job_init(&usual);
	j.name = j.model = j.data = j.meet = j.checkpoint = NULL;
	j.resume = j.resume ? "it" : NULL;
	j.eval_data = j.eval_data ? "it" : NULL;
	j.checkpoint_best = j.checkpoint_best ? "it" : NULL;
	j.threads = usual.threads;
	j.transport = usual.transport;
	j.timeout_ns = usual.timeout_ns;
	j.hosts = usual.hosts;
	return pl_job_write(&j, out, err);
}

enum { JOB, MODEL, PLAN, TEXTS };

static int hash_text(const struct pl_worker *w, int text, uint64_t *h, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	struct pl_out *out = pl_out_open_buf(&b, err);
	int rc = 0;

	if (!out)
		return PL_ENOMEM;
	if (text == JOB)
		rc = put_job(w->o.job, out, err);
	else if (text == MODEL)
		rc = pl_model_write(w->o.model, out, err);
	else if (w->o.plan)
		rc = pl_plan_write_text(w->o.plan, out, err);
	rc = pl_out_finish(out, rc, err);
	*h = pl_hash(b.p, b.n);
	pl_buf_fini(&b);
	return rc;
}

/* Hashes every byte, because ranks may differ in one sample: 0.1 s a GiB, less than reading. */
static uint64_t hash_data(const struct pl_dataset *s)
{
	uint64_t h[10] = { s->n, s->size, (uint64_t)s->classes, (uint64_t)s->n_targets,
			   (uint64_t)s->vocab };

	if (s->token)
		h[5] = pl_hash(s->token, s->n * sizeof(*s->token));
	if (s->y)
		h[6] = pl_hash(s->y, s->n * sizeof(*s->y));
	if (s->x)
		h[7] = pl_hash(s->x, s->n * s->size * sizeof(*s->x));
	if (s->target)
		h[8] = pl_hash(s->target, s->n * (size_t)s->n_targets * sizeof(*s->target));
	h[9] = s->train;
	return pl_hash(h, sizeof(h));
}

int pl_train_worker_job_hash(const struct pl_worker *w, uint64_t *h, struct pl_err *err)
{
	uint64_t part[TEXTS + 1] = { 0 };

	for (int i = 0; i < TEXTS; i++)
		PL_CHECK(hash_text(w, i, &part[i], err));
	if (!w->o.read_once)
		part[TEXTS] = hash_data(w->o.data);
	*h = pl_hash(part, sizeof(part));
	return 0;
}

int pl_train_worker_check_same_job(struct pl_worker *w, struct pl_err *err)
{
	static const char *const what[TEXTS] = { "job", "model", "plan" };
	uint64_t h;

	if (!w->o.world)
		return 0;
	for (int i = 0; i < TEXTS; i++) {
		PL_CHECK(hash_text(w, i, &h, err));
		PL_CHECK(pl_train_worker_check_same(w, h, what[i], err));
	}
	if (!w->o.read_once)
		PL_CHECK(pl_train_worker_check_same(w, hash_data(w->o.data), "data", err));
	return 0;
}
