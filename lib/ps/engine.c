/* The engine: what a process of either kind has, and how run(1) drives it. */
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ps/internal.h"
#include "ps/passes.h"

#define GRAIN 16 /* numbers: slices begin with a line of the cache */

/* State is right behind parameters. */
void pl_ps_vector_read(const struct pl_net_view *v, float *to)
{
	size_t n = v->n_params + v->n_state;
	const float *from = pl_ps_vector_in_host(v);

	if (!from) {
		v->be->get(v->ctx, to, v->params, n * sizeof(float));
		return;
	}
	pl_ps_pass_copy(to, NULL, from, n, pl_ps_streams(n));
	pl_ps_pass_end();
}

void pl_ps_vector_put(const struct pl_net_view *v, size_t at, const float *from, size_t n)
{
	float *to = pl_ps_vector_in_host(v);

	if (!to) {
		v->be->put(v->ctx, v->params + at, from, n * sizeof(float));
		return;
	}
	pl_ps_pass_copy(to + at, NULL, from, n, pl_ps_streams(n));
	pl_ps_pass_end();
}

void pl_ps_vector_write(const struct pl_net_view *v, const float *from)
{
	pl_ps_vector_put(v, 0, from, v->n_params + v->n_state);
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
	uint32_t worker;

	if (process < (int)p->servers)
		return process;
	if (pl_ps_member(p, process - (int)p->servers, &worker) > 0)
		return -1;
	return (int)(p->servers + worker);
}

/* The links between endpoints. -1 is any process there. */
static int shapes_of(const struct pl_ps *p, struct pl_link_shape **v, size_t *n, struct pl_err *err)
{
	const struct pl_engine_meeting *m = p->meeting;

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
	const struct pl_engine_meeting *m = p->meeting;
	const char *transport = p->w.o.job->transport;
	struct pl_endpoint_opts o = { .id = p->process,
				      .token = m->token,
				      .listen = pl_ps_is_server(p) ? m->at : NULL,
				      .free_port = p->process > 0,
				      .bind = m->bind,
				      /* what carries data in groups alone */
				      .transport = strcmp(transport, "nccl") != 0 &&
								   strcmp(transport, "mpi") != 0
							   ? transport
							   : "auto",
				      .host = m->host,
				      .timeout_ns = m->timeout_ns,
				      .body_max = longest_body(p),
				      /* those that listen are servers */
				      .ended = m->ended,
				      .n_ended = m->ended ? p->servers : 0,
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

/* ---- the network's numbers where servers can read them ----------------------------------------
 */

/* Parameters, then gradients. */
static void *memory_make(void *arg, size_t bytes)
{
	struct pl_ps_memory *m = &((struct pl_ps *)arg)->memory;
	void *at = MAP_FAILED;
	struct pl_err ignore = { 0 };
	float *plain = NULL;

	if (m->made++) {
		(void)!pl_ps_pass_alloc(&m->grads, bytes / sizeof(float), &plain, &ignore);
		return plain;
	}
	m->bytes = PL_PS_HEAD + bytes;
	m->fd = pl_fail_now() ? -1 : memfd_create("paceline", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (m->fd >= 0 && ftruncate(m->fd, (off_t)m->bytes) == 0)
		at = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (at != MAP_FAILED) {
		m->commit = at;
		return m->commit + PL_PS_HEAD;
	}
	if (m->fd >= 0)
		close(m->fd);
	return NULL;
}

static void memory_free(void *arg, void *p, size_t bytes)
{
	struct pl_ps_memory *m = &((struct pl_ps *)arg)->memory;

	(void)bytes;
	if (m->commit && p == m->commit + PL_PS_HEAD) {
		munmap(m->commit, m->bytes);
		close(m->fd);
		m->commit = NULL;
		m->made = 0;
	} else {
		pl_free(m->grads);
		m->grads = NULL;
	}
}

static int prepare_worker(struct pl_ps *p, const struct pl_engine_opts *o, const atomic_int *stop,
			  struct pl_err *err)
{
	struct pl_engine_opts own = *o;
	struct pl_worker *w = &p->w;

	/* a server evaluates alone, and computes no step */
	own.rank = pl_ps_is_server(p) ? 0 : o->meeting->rank - (int)p->servers;
	own.ranks = pl_ps_is_server(p) ? 1 : (int)p->ranks;
	PL_CHECK(pl_ps_group_open(p, o, stop, err));
	own.world = p->g.world;
	if (p->g.size == 1 && !pl_ps_is_server(p) && !(o->backend && o->backend->device)) {
		own.slab = memory_make;
		own.slab_free = memory_free;
		own.slab_arg = p;
	}
	PL_CHECK(pl_train_worker_init(w, &own, own.world ? ready : NULL, err));
	return own.world ? pl_dp_sync_init(&p->g.sync, w, err) : 0;
}

static int take_sizes(struct pl_ps *p, const struct pl_engine_opts *o, struct pl_err *err)
{
	uint32_t worker;

	p->meeting = o->meeting;
	p->timeout_ns = o->meeting->timeout_ns;
	p->servers = (uint32_t)o->job->servers;
	p->ranks = (uint32_t)o->meeting->size - p->servers;
	p->process = (uint32_t)o->meeting->rank;
	PL_CHECK(pl_ps_places_find(p, o, err));
	p->g.size = 1;
	if (!pl_ps_is_server(p)) {
		p->g.member = (uint32_t)pl_ps_member(p, p->process - p->servers, &worker);
		p->g.size = pl_ps_size(p, worker);
		p->process = p->servers + worker;
	}
	return 0;
}

/* What a process trains with. */
static int make(struct pl_ps *p, const struct pl_engine_opts *o, const atomic_int *stop,
		struct pl_err *err)
{
	PL_CHECK(prepare_worker(p, o, stop, err));
	p->vector = (struct pl_ps_vector){ p->w.view.n_params, p->w.view.n_state };
	if (p->servers > pl_ps_vector_size(&p->vector))
		return pl_fail(err, PL_EDATA, "%u servers, but the network has only %zu numbers",
			       p->servers, pl_ps_vector_size(&p->vector));
	PL_CHECK(pl_train_worker_job_hash(&p->w, &p->job, err));
	if (!p->g.member)
		PL_CHECK(open_endpoint(p, err));
	if (p->memory.commit)
		PL_CHECK(pl_comm_endpoint_lend(p->end, p->memory.fd, p->memory.commit,
					       p->memory.bytes, err));
	p->g.in_turn = false;
	return 0;
}

static int prepare_all(struct pl_ps *p, const struct pl_engine_opts *o, struct pl_err *err)
{
	char name[32];

	PL_CHECK(take_sizes(p, o, err));
	if (p->g.size == 1 && p->workers < p->ranks && !o->alone)
		PL_CHECK(pl_comm_attend(o->job->transport, o->meeting->size, o->meeting->rank,
					&p->attends, err));
	if (o->tracer && p->g.size > 1) {
		snprintf(name, sizeof(name), "group %u", pl_ps_number(p));
		PL_CHECK(pl_train_tracer_group(o->tracer, name, pl_ps_ranks(p, pl_ps_number(p)),
					       (int)p->servers, err));
	}
	PL_CHECK(make(p, o, NULL, err));
	PL_CHECK(pl_alloc(&p->counts, p->workers, sizeof(*p->counts), err));
	PL_CHECK(pl_alloc(&p->seen, p->workers, sizeof(*p->seen), err));
	return o->tracer ? pl_train_tracer_names(o->tracer, p->w.net, o->job, p->g.sync.b.n, err)
			 : 0;
}

/* The other ranks of a group learn why one of them cannot train. */
static int prepare(struct pl_worker *w, const struct pl_engine_opts *o, struct pl_err *err)
{
	struct pl_ps *p = (struct pl_ps *)w;
	int rc = prepare_all(p, o, err);

	p->g.in_turn = true;
	rc = rc < 0 ? pl_ps_group_close(p, rc, err) : rc;
	p->g.in_turn = false;
	return rc;
}

/* Groups whose world has ended have freed its memory. */
static void unmake(struct pl_ps *p, bool lost)
{
	pl_comm_endpoint_close(p->end);
	p->end = NULL;
	pl_ps_store_close(p->store);
	p->store = NULL;
	if (p->g.world) { /* it has trained nothing */
		pl_comm_world_abort(p->g.world, "it could not begin");
		p->g.over = true;
	}
	pl_dp_sync_fini(&p->g.sync, p->g.over);
	pl_train_worker_fini(&p->w, lost || p->g.over);
}

/*
 * The group has lost a rank, which only was stopped, or whose launcher starts another process in
 * its place: all ranks meet again, and begin as if they were started. This rank's place among the
 * samples and in the schedule stays; the state of its optimizer does not, because the new process
 * has none.
 */
static int come_again(struct pl_ps *p, struct pl_train *t, struct pl_err *err)
{
	struct pl_engine_opts o = p->w.o;
	struct pl_feed feed = p->w.feed;
	int64_t schedule = p->w.optim_opts.steps;
	struct pl_err lost = *err;
	char ranks[PL_PS_RANKS];
	int rc;

	o.world = NULL;
	o.rank = o.ranks = 0;
	unmake(p, true);
	memset(&p->w, 0, sizeof(p->w));
	p->g = (struct pl_ps_group){ .size = p->g.size, .member = p->g.member };
	err->code = 0;
	rc = make(p, &o, t->stop, err);
	if (rc < 0) {
		rc = pl_ps_group_close(p, rc, err);
		p->g.broken = false;
		*err = lost;
		return lost.code;
	}
	p->w.feed.first_step = feed.first_step;
	p->w.feed.first_sample = feed.first_sample;
	p->w.optim_opts.steps = schedule;
	pl_optim_set_steps(p->w.optim, schedule);
	if (!p->g.member)
		pl_say(o.log, PL_LOG_WARN, "group %u%s is whole again", pl_ps_number(p),
		       pl_ps_name_ranks(p, pl_ps_number(p), ranks));
	return 0;
}

/* Not from a device, where a kernel may wait for ever; and MPI begins once in a process. */
static bool comes_again(const struct pl_ps *p)
{
	return !p->w.o.ctx && strcmp(p->w.o.job->transport, "mpi") != 0;
}

static int control(struct pl_train *t, struct pl_err *err)
{
	struct pl_ps *p = (struct pl_ps *)t->worker;
	int rc;

	if (pl_ps_is_server(p)) {
		rc = p->process ? pl_ps_follow(p, t, err) : pl_ps_lead(p, t, err);
		if (rc >= 0)
			pl_comm_attend_end(p->attends);
		return rc;
	}
	for (;;) {
		rc = p->g.member ? pl_ps_group_serve(p, t, err) : pl_ps_work(p, t, err);

		if (rc >= 0)
			pl_comm_attend_end(p->attends);
		if (rc >= 0 || !p->g.broken || !comes_again(p) || *t->stop)
			return rc;
		PL_CHECK(come_again(p, t, err));
	}
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
	return rc;
}

static int gather(struct pl_worker *w, struct pl_train_result *all, struct pl_err *err)
{
	const struct pl_ps *p = (const struct pl_ps *)w;

	(void)err;
	for (uint32_t i = 0; i < p->workers; i++) {
		const struct pl_ps_counts *c = &p->counts[i];
		double ns = fmax(1, (double)(c->compute_ns + c->wait_ns + c->commit_ns));
		const struct pl_policy_worker *k = &p->seen[i];

		all[i] = (struct pl_train_result){
			.rank = pl_ps_ranks(p, i)[0],
			/* what the servers have of it */
			.steps = (double)k->steps,
			.samples = (double)k->samples,
			.samples_per_s = (double)k->samples / fmax(1e-9, p->seconds),
			.commits = (double)k->commits,
			.compute_share = (double)c->compute_ns / ns,
			.wait_share = (double)c->wait_ns / ns,
			.bytes_sent = (double)c->bytes_sent,
			.staleness_mean = k->staleness_mean,
			.staleness_max = (double)k->staleness_max,
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

/* A server makes no step of an optimizer: a state that it has read from a checkpoint of another
 * engine is not that of the weights in its own checkpoints. Zeros say that there is none. */
static void forget_state(struct pl_worker *w)
{
	float *slab[2];
	size_t n;

	for (uint32_t i = pl_optim_slabs(w->optim, slab, &n); i-- > 0;)
		w->view.be->zero(w->view.ctx, slab[i], n * sizeof(float));
	w->has_state = false;
	w->optim_first = 0;
}

static int load(struct pl_worker *w, const char *path, bool to_train, int64_t *step,
		struct pl_err *err)
{
	struct pl_ps *p = (struct pl_ps *)w;
	int rc, ranks = w->ranks;

	w->ranks = (int)p->ranks;
	rc = pl_train_worker_load(w, path, to_train, step, err);
	w->ranks = ranks;
	if (rc >= 0 && pl_ps_is_server(p))
		forget_state(w);
	return rc;
}

static void finish(struct pl_worker *w, bool lost)
{
	struct pl_ps *p = (struct pl_ps *)w;
	const struct pl_log *log = w->o.log;
	struct pl_err e = { 0 };

	unmake(p, lost);
	if (pl_comm_attend_close(p->attends, PL_PS_GROUP_PATIENCE * p->timeout_ns, &e) < 0)
		pl_say(log, PL_LOG_WARN, "%s", e.msg);
	pl_free(p->counts);
	pl_free(p->seen);
	pl_ps_places_fini(p);
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
