/* The engine: what a process of either kind has, and how run(1) drives it. */
#include <math.h>

#include "ps/internal.h"

#define GRAIN 16 /* numbers: slices begin with a line of the cache */

void pl_ps_vector_read(const struct pl_net_view *v, float *to)
{
	v->be->get(v->ctx, to, v->params, v->n_params * sizeof(float));
	if (v->n_state)
		v->be->get(v->ctx, to + v->n_params, v->state, v->n_state * sizeof(float));
}

void pl_ps_vector_write(const struct pl_net_view *v, const float *from)
{
	v->be->put(v->ctx, v->params, from, v->n_params * sizeof(float));
	if (v->n_state)
		v->be->put(v->ctx, v->state, from + v->n_params, v->n_state * sizeof(float));
}

size_t pl_ps_slice_at(const struct pl_ps *p, uint32_t server)
{
	size_t n = pl_ps_vector_size(&p->vector), grain = n / GRAIN < p->servers ? 1 : GRAIN;

	return server == p->servers ? n : n / grain * server / p->servers * grain;
}

int pl_ps_slice_read(struct pl_ps *p, uint32_t server, float *to, struct pl_err *err)
{
	float *all;

	PL_CHECK(pl_alloc(&all, pl_ps_vector_size(&p->vector), sizeof(*all), err));
	pl_ps_vector_read(&p->w.view, all);
	memcpy(to, all + pl_ps_slice_at(p, server), pl_ps_slice_size(p, server) * sizeof(*all));
	pl_free(all);
	return 0;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static bool matches(const struct pl_job *job, const struct pl_plan *plan)
{
	(void)plan;
	return !strcmp(job->engine, "ps");
}

static int servers(const struct pl_job *job)
{
	return (int)job->servers;
}

/* The longest body: a commit, all actions that are kept, or the addresses of all servers. */
static size_t longest_body(const struct pl_ps *p)
{
	size_t commit = PL_PS_HEAD + pl_ps_vector_size(&p->vector) * sizeof(float);
	size_t others = p->servers > 1 ? pl_ps_actions(p) * sizeof(struct pl_ps_action) : 0;
	size_t small = ((size_t)p->servers + 1) * PL_PS_ADDRESS + sizeof(struct pl_ps_hello);

	others = others > small ? others : small;
	return commit > others ? commit : others;
}

/* The endpoints' number of a process: the first rank of a group has its worker's; -1: it has no
 * endpoint. */
static int number_of(const struct pl_ps *p, int process)
{
	int rank = process - (int)p->servers, size = (int)p->g.size;

	if (rank < 0)
		return process;
	return rank % size ? -1 : (int)p->servers + rank / size;
}

/* The links between endpoints. -1 is any process there. */
static int shapes_of(const struct pl_ps *p, struct pl_link_shape **v, size_t *n, struct pl_err *err)
{
	const struct pl_engine_meeting *m = p->w.o.meeting;

	*n = 0;
	PL_CHECK(pl_alloc(v, m->n_shapes + 1, sizeof(**v), err));
	for (size_t i = 0; i < m->n_shapes; i++) {
		struct pl_link_shape s = m->shape[i];
		int from = number_of(p, s.from), to = number_of(p, s.to);

		if ((s.from >= 0 && from < 0) || (s.to >= 0 && to < 0))
			continue;
		s.from = from;
		s.to = to;
		(*v)[(*n)++] = s;
	}
	return 0;
}

static int open_endpoint(struct pl_ps *p, struct pl_err *err)
{
	const struct pl_engine_meeting *m = p->w.o.meeting;
	const char *transport = p->w.o.job->transport;
	struct pl_endpoint_opts o = { .id = p->process,
				      .token = m->token,
				      .listen = pl_ps_is_server(p) ? m->at : NULL,
				      .free_port = p->process > 0,
				      .bind = m->bind,
				      .transport = strcmp(transport, "nccl") ? transport : "auto",
				      .host = m->host,
				      .timeout_ns = m->timeout_ns,
				      .body_max = longest_body(p),
				      .log = p->w.o.log };
	struct pl_link_shape *shape = NULL;
	int rc;

	PL_TRY(shapes_of(p, &shape, &o.n_shapes, err));
	o.shape = shape;
	rc = pl_comm_endpoint_open(&o, &p->end, err); /* which has a copy of the links */
out:
	pl_free(shape);
	return rc;
}

static void ready(void *arg, uint32_t first, uint32_t n)
{
	pl_dp_sync_ready(&((struct pl_ps *)arg)->g.sync, first, n);
}

static int prepare_worker(struct pl_ps *p, const struct pl_engine_opts *o, struct pl_err *err)
{
	struct pl_engine_opts own = *o;
	struct pl_worker *w = &p->w;

	/* a server evaluates alone, and computes no step */
	own.rank = pl_ps_is_server(p) ? 0 : (int)(pl_ps_number(p) * p->g.size + p->g.member);
	own.ranks = pl_ps_is_server(p) ? 1 : (int)p->ranks;
	PL_CHECK(pl_ps_group_open(p, o, err));
	own.world = p->g.world;
	PL_CHECK(pl_ps_group_fail(p, pl_train_worker_init(w, &own, own.world ? ready : NULL, err),
				  err));
	if (own.world)
		PL_CHECK(pl_ps_group_fail(p, pl_dp_sync_init(&p->g.sync, w, err), err));
	return 0;
}

static int take_sizes(struct pl_ps *p, const struct pl_engine_opts *o, struct pl_err *err)
{
	uint32_t process = (uint32_t)o->meeting->rank;

	p->servers = (uint32_t)o->job->servers;
	p->ranks = (uint32_t)o->meeting->size - p->servers;
	p->g.size = (uint32_t)o->job->group;
	p->workers = p->ranks / p->g.size;
	if (p->workers * p->g.size != p->ranks)
		return pl_fail(err, PL_EDATA, "%u ranks cannot be divided into groups of %u",
			       p->ranks, p->g.size);
	p->process = process;
	if (process >= p->servers) {
		p->process = p->servers + (process - p->servers) / p->g.size;
		p->g.member = (process - p->servers) % p->g.size;
	}
	p->timeout_ns = o->meeting->timeout_ns;
	return 0;
}

static int prepare_all(struct pl_worker *w, const struct pl_engine_opts *o, struct pl_err *err)
{
	struct pl_ps *p = (struct pl_ps *)w;

	PL_CHECK(take_sizes(p, o, err));
	PL_CHECK(prepare_worker(p, o, err));
	p->vector = (struct pl_ps_vector){ w->view.n_params, w->view.n_state };
	if (p->servers > pl_ps_vector_size(&p->vector))
		return pl_fail(err, PL_EDATA, "%u servers, but the network has only %zu numbers",
			       p->servers, pl_ps_vector_size(&p->vector));
	PL_CHECK(pl_train_worker_job_hash(w, &p->job, err));
	PL_CHECK(pl_alloc(&p->counts, p->workers, sizeof(*p->counts), err));
	PL_CHECK(pl_alloc(&p->seen, p->workers, sizeof(*p->seen), err));
	if (!p->g.member)
		PL_CHECK(open_endpoint(p, err));
	return o->tracer ? pl_train_tracer_names(o->tracer, w->net, o->job, p->g.sync.b.n, err) : 0;
}

/* The other ranks of a group learn why one of them cannot train. */
static int prepare(struct pl_worker *w, const struct pl_engine_opts *o, struct pl_err *err)
{
	int rc = prepare_all(w, o, err);

	return rc < 0 ? pl_ps_group_close((struct pl_ps *)w, rc, err) : rc;
}

static int control(struct pl_train *t, struct pl_err *err)
{
	struct pl_ps *p = (struct pl_ps *)t->worker;

	if (!p->process)
		return pl_ps_lead(p, t, err);
	if (pl_ps_is_server(p))
		return pl_ps_follow(p, t, err);
	return p->g.member ? pl_ps_group_serve(p, t, err) : pl_ps_work(p, t, err);
}

static int step(struct pl_worker *w, int64_t number, struct pl_step_result *r, struct pl_err *err)
{
	struct pl_ps *p = (struct pl_ps *)w;
	int rc;

	pl_train_worker_begin_step(w, number, r);
	if (p->g.world)
		pl_dp_sync_begin(&p->g.sync);
	PL_TRY(pl_train_worker_compute(w, (int)p->g.size, r, err));
	if (p->g.world)
		PL_TRY(pl_dp_sync_wait(&p->g.sync, &r->wait_ns, err));
	PL_TRY(pl_train_worker_update(w, r, err));
out:
	pl_train_worker_end_step(w, rc == 0, r);
	return pl_ps_group_fail(p, rc, err);
}

static int gather(struct pl_worker *w, struct pl_train_result *all, struct pl_err *err)
{
	const struct pl_ps *p = (const struct pl_ps *)w;

	(void)err;
	for (uint32_t i = 0; i < p->workers; i++) {
		const struct pl_ps_counts *c = &p->counts[i];
		double ns = fmax(1, (double)(c->compute_ns + c->wait_ns + c->commit_ns));
		double s = fmax(1e-9, (double)(c->end - c->begin) / 1e9);

		all[i] = (struct pl_train_result){
			.steps = (double)c->steps,
			.samples = (double)c->samples,
			.samples_per_s = (double)c->samples / s,
			.commits = (double)c->commits,
			.compute_share = (double)c->compute_ns / ns,
			.wait_share = (double)c->wait_ns / ns,
			.bytes_sent = (double)c->bytes_sent,
			.staleness_mean = p->seen[i].staleness_mean,
			.staleness_max = (double)p->seen[i].staleness_max,
			.step_s = c->steps ? (double)c->compute_ns / 1e9 / (double)c->steps : 0
		};
	}
	return (int)p->workers;
}

/* The numbers of a checkpoint are those of all ranks, although the server alone has the file. */
static int save(struct pl_worker *w, const char *path, int64_t step, struct pl_err *err)
{
	const struct pl_ps *p = (const struct pl_ps *)w;
	int rc;

	w->ranks = (int)p->ranks;
	rc = pl_train_worker_save(w, path, step, err);
	w->ranks = 1;
	return rc;
}

static int load(struct pl_worker *w, const char *path, bool to_train, int64_t *step,
		struct pl_err *err)
{
	const struct pl_ps *p = (const struct pl_ps *)w;
	int rc, ranks = w->ranks;

	w->ranks = (int)p->ranks;
	rc = pl_train_worker_load(w, path, to_train, step, err);
	w->ranks = ranks;
	return rc;
}

static void finish(struct pl_worker *w, bool lost)
{
	struct pl_ps *p = (struct pl_ps *)w;

	pl_comm_endpoint_close(p->end);
	pl_free(p->counts);
	pl_free(p->seen);
	if (p->g.world) { /* it has trained nothing */
		pl_comm_world_abort(p->g.world, "it could not begin");
		p->g.over = true;
	}
	pl_dp_sync_fini(&p->g.sync, p->g.over);
	pl_train_worker_fini(w, lost || p->g.over);
}

const struct pl_engine pl_ps_engine = {
	.name = "ps",
	.matches = matches,
	.size = sizeof(struct pl_ps),
	.servers = servers,
	.prepare = prepare,
	.control = control,
	.step = step,
	.gather = gather,
	.eval = pl_train_worker_eval,
	.save = save,
	.load = load,
	.export_weights = pl_train_worker_export,
	.import_weights = pl_train_worker_import,
	.finish = finish,
};
