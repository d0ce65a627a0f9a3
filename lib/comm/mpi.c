/*
 * Worlds over MPI: the steps of our own collectives, as messages of MPI.
 *
 * The collectives of MPI itself are not used. MPI does not promise that a sum has the same bits on
 * all ranks, nor that it has them in the next run (MPI 4.0, section 6.9.1, only recommends this).
 * Its non-blocking collectives have no deadline that could name the late rank, and they are slow
 * where no thread drives them. Therefore MPI only moves segments between pairs of ranks, over any
 * network that it knows. The sums are made here, in the order of expand.c, so a sum has the same
 * bits as with the other transports. A message holds only data. Its tag is a digest of its
 * operation, so ranks that began different operations notice this.
 *
 * There are two communicators, because sends and receives do not wait for collectives. In each,
 * messages from one rank to another keep their order, as in the queues of the engine. MPI has at
 * most the first DEPTH steps of a queue at a time. Received data that will be added is received
 * into a stage first. MPI forbids a write to a buffer that is being sent, and a send from a buffer
 * that is being received. A step therefore waits until the buffer is free. This wait costs nothing,
 * because the data that the step writes depends on the data that the peer has received. Data for a
 * buffer that the caller may free after a failure is also received into a stage, because MPI may
 * write to a cancelled receive for as long as the process lives.
 *
 * Where the MPI of all ranks says that it takes pointers to memory of GPUs, the steps and stages of
 * large operations are in that memory (device.c).
 *
 * MPI_THREAD_FUNNELED is enough: one thread makes all calls, from MPI_Init_thread to MPI_Finalize.
 * An abort calls no function of MPI, because MPI_Abort would end all processes before they could
 * say why. The launcher ends the other processes when one has exited without MPI_Finalize.
 */
#include <stdlib.h>

#include "comm/internal.h"
#include "comm/mpi_lib.h"
#include "core/cmd.h"
#include "tensor/backend.h"

#define DEPTH 4
/* Smaller operations are staged. A sum on the device needs a launch, a mark and polling, some 10 us
 * for each hop. MPI itself copies small messages, so two more copies take no longer. */
#define LEAST_OF_GPUS ((size_t)64 << 10)

struct request {
	struct pl_step *step;
	pl_mpi_handle request;
	uint8_t *stage; /* receives the data; NULL: the destination does */
	bool came, unstaged;
};
struct request_queue { /* of the first steps of a queue, the oldest first */
	struct request of[DEPTH];
	int n;
};
struct transfers { /* a peer and a direction, of one communicator */
	struct request_queue out, in;
};

struct stages { /* `n` that are free, of n_all, of `bytes` each */
	uint8_t **of;
	size_t n, n_all, cap, bytes;
};

struct mpi {
	struct pl_world *w;
	struct pl_mpi_lib lib;
	pl_mpi_handle comm[2];	     /* messages between two; collectives */
	struct transfers *transfers; /* (size, 2) */
	struct stages stages[2];     /* in memory of the host; of the device */
	void *next_kept;	     /* after an abort: MPI may still write to stages */
};

static int failed(const struct mpi *m, const char *what, int code, struct pl_err *err)
{
	return pl_comm_mpi_failed(&m->lib, what, code, err);
}

/* ---- messages ---- */

/* The digest of a message, in the 15 bits that every MPI has for a tag. */
static int tag_of(const struct pl_step *s)
{
	const struct pl_work *k = s->work;
	uint64_t what[3] = { k->a.op == PL_OP_RECV ? PL_OP_SEND : k->a.op, k->seq, s->bytes };

	what[0] |= (uint64_t)k->a.algo << 8 | (uint64_t)s->chunk << 16;
	return (int)(pl_hash(what, sizeof(what)) & 32767);
}

/* All must be free. */
static void free_stages(struct mpi *m, bool of_device)
{
	const struct pl_world *w = m->w;
	struct stages *s = &m->stages[of_device];

	while (s->n) {
		uint8_t *p = s->of[--s->n];

		if (of_device)
			w->device.b->free(w->device.ctx, p);
		else
			pl_free(p);
	}
	s->n_all = 0;
}

/*
 * Stages are kept, because freeing memory of a device waits for all work of the device. Those of
 * the operation by which the ranks agree on segments of GPUs are too small for these segments.
 */
static uint8_t *take_stage(struct mpi *m, const struct pl_work *k)
{
	const struct pl_world *w = m->w;
	struct stages *s = &m->stages[k->device.cuda_aware];
	struct pl_err e = { 0 };
	uint8_t *p;

	if (s->bytes != w->segment && s->n == s->n_all) {
		free_stages(m, k->device.cuda_aware);
		s->bytes = w->segment;
	}
	if (s->n)
		return s->of[--s->n];
	if (pl_grow(&s->of, &s->cap, s->n_all + 1, sizeof(*s->of), &e) < 0)
		return NULL;
	p = k->device.cuda_aware ? w->device.b->alloc(w->device.ctx, w->segment)
				 : pl_malloc(w->segment);
	s->n_all += p != NULL;
	return p;
}

static void return_stage(struct mpi *m, const struct pl_work *k, uint8_t *stage)
{
	struct stages *s = &m->stages[k->device.cuda_aware];

	s->of[s->n++] = stage;
}

/* Is the destination of the step no longer being sent? MPI forbids to write to it before. */
static bool can_write(const struct pl_step *s)
{
	const struct pl_step *o = s->sent ? &s->work->step[s->sent - 1] : NULL;

	return pl_comm_step_ready(s) && (!o || o->done || o->a != s->dst);
}

static struct pl_step *next_to_post(const struct pl_queue_of_steps *q,
				    const struct request_queue *f)
{
	return f->n ? f->of[f->n - 1].step->next : q->head;
}

/* The oldest step has ended: the queue continues with the next one. */
static void complete_first(struct mpi *m, struct pl_queue_of_steps *q, struct request_queue *f)
{
	struct pl_step *s = f->of[0].step;

	f->n--;
	memmove(&f->of[0], &f->of[1], (size_t)f->n * sizeof(f->of[0]));
	q->head = q->head->next;
	if (!s->ready)
		s->ready = pl_comm_step_could_begin(s, q->freed);
	pl_comm_step_done(m->w, s);
	q->freed = s->end;
}

/* Has the request completed? 1: yes; 0: not yet; negative: an error. */
static int poll_request(struct mpi *m, struct request *f, struct pl_mpi_status *status,
			struct pl_err *err)
{
	int flag = 0, code = m->lib.test(&f->request, &flag, status);
	const struct pl_step *s = f->step;

	if (code && !pl_comm_mpi_truncated(&m->lib, code))
		return failed(m, "MPI_Test", code, err);
	if ((code || flag) && s->kind != PL_STEP_SEND &&
	    (code || pl_comm_mpi_tag_of(&m->lib, status) != tag_of(s)))
		return pl_fail(err, PL_EIO,
			       "rank %d sent something else than the %zu bytes (piece %u) of it "
			       "by %s: ranks must begin the same operations with the same sizes",
			       pl_comm_name(m->w, s->peer), s->bytes, s->chunk,
			       pl_comm_algorithm_name(s->work->a.algo));
	return flag;
}

static int pump_out(struct mpi *m, struct pl_conn *c, struct request_queue *f, struct pl_err *err)
{
	struct pl_mpi_status status = { { 0 } };
	struct pl_step *s;

	while (f->n < DEPTH && (s = next_to_post(&c->sends, f)) && pl_comm_step_ready(s)) {
		int code = m->lib.isend(s->a, (int)s->bytes, m->lib.byte, c->peer, tag_of(s),
					m->comm[c->channel], &f->of[f->n].request);

		if (code)
			return failed(m, "MPI_Isend", code, err);
		s->ready = pl_comm_step_could_begin(s, c->sends.freed);
		s->work->last_progress = pl_now_ns();
		f->of[f->n++].step = s;
		atomic_fetch_add(&m->w->peer[c->peer].bytes_sent, s->bytes + PL_HEADER_BYTES);
	}
	while (f->n) {
		int rc = poll_request(m, &f->of[0], &status, err);

		if (rc <= 0)
			return rc;
		complete_first(m, &c->sends, f);
	}
	return 0;
}

/* Moves received data from the stage to its destination. 1: done; 0: not yet; negative: failed. */
static int unstage(struct mpi *m, struct request *f, struct pl_err *err)
{
	struct pl_step *s = f->step;
	int rc = 1;

	if (!f->stage || f->unstaged)
		return 1;
	if (!s->mark && !can_write(s))
		return 0;
	if (s->work->device.cuda_aware)
		rc = pl_comm_device_step(s, (const float *)(const void *)f->stage, err);
	else
		pl_comm_step_apply(s, f->stage, 0, s->bytes);
	if (rc <= 0)
		return rc;
	return_stage(m, s->work, f->stage);
	f->unstaged = true;
	return 1;
}

/* Is the data received into its destination, without a stage? */
static bool is_in_place(const struct pl_step *s)
{
	return s->kind == PL_STEP_RECV && !s->work->staged;
}

static int post_receive(struct mpi *m, struct pl_conn *c, struct request_queue *f,
			struct pl_step *s, struct pl_err *err)
{
	struct request *new = &f->of[f->n];
	int code;

	*new = (struct request){ .step = s };
	if (!is_in_place(s) && !(new->stage = take_stage(m, s->work)))
		return pl_fail(err, PL_ENOMEM, "out of memory%s (%zu bytes for what comes in)",
			       s->work->device.cuda_aware ? " of the device" : "", m->w->segment);
	code = m->lib.irecv(new->stage ? new->stage : s->dst, (int)s->bytes, m->lib.byte, c->peer,
			    PL_MPI_ANY_TAG, m->comm[c->channel], &new->request);
	if (code)
		return failed(m, "MPI_Irecv", code, err);
	f->n++;
	return 0;
}

static int pump_in(struct mpi *m, struct pl_conn *c, struct request_queue *f, struct pl_err *err)
{
	struct pl_mpi_status status = { { 0 } };
	struct pl_step *s;
	int rc = 0;

	while (f->n < DEPTH && (s = next_to_post(&c->recvs, f)) &&
	       (!is_in_place(s) || can_write(s)) && rc >= 0)
		rc = post_receive(m, c, f, s, err);
	/* the next segment can be received while one is summed */
	for (int i = 0; i < f->n && rc >= 0;) {
		struct request *x = &f->of[i];

		if (!x->came) {
			rc = poll_request(m, x, &status, err);
			if (rc <= 0)
				return rc;
			x->came = true;
			x->step->work->last_progress = pl_now_ns();
			m->w->peer[c->peer].bytes_received += x->step->bytes + PL_HEADER_BYTES;
		}
		rc = unstage(m, x, err);
		if (rc > 0 && i == 0)
			complete_first(m, &c->recvs, f);
		else
			i++;
	}
	return rc < 0 ? rc : 0;
}

static int pump(struct mpi *m, struct pl_err *err)
{
	struct pl_world *w = m->w;
	int rc = 0;

	for (int r = 0; r < w->size; r++) {
		struct pl_conn *c = w->peer[r].conn;

		for (int i = 0; c && i < 2 && rc >= 0; i++) {
			struct transfers *l = &m->transfers[2 * r + i];

			rc = pump_out(m, &c[i], &l->out, err);
			if (rc >= 0)
				rc = pump_in(m, &c[i], &l->in, err);
		}
	}
	return rc;
}

/* Does the memory of the result stay valid after a failure? Memory of the world and staging memory
 * do. The caller may have freed its own memory when a network card still writes to it. */
static bool outlives_failure(const struct pl_work *k)
{
	uint64_t at;

	return k->device.stage || k->device.cuda_aware ||
	       pl_comm_shared_find(k->w, k->a.dst, 0, &at) != PL_NONE;
}

static int mpi_begin(void *state, struct pl_work *k, struct pl_err *err)
{
	int rc = pl_comm_expand(k, err);

	(void)state;
	k->staged = k->a.dst && !outlives_failure(k);
	if (rc >= 0)
		pl_comm_engine_queue(k);
	return rc;
}

/* A step without a message. 1: it has ended; 0: not yet; negative: an error. */
static int advance_local(struct mpi *m, struct pl_work *k, struct pl_err *err)
{
	struct pl_step *s = k->local.head;
	int rc;

	if (!k->device.cuda_aware)
		return pl_comm_engine_local(m->w, k);
	if (!s || !pl_comm_step_ready(s))
		return 0;
	rc = pl_comm_device_step(s, NULL, err);
	if (rc > 0) {
		k->local.head = k->local.head->next;
		pl_comm_step_done(m->w, s);
	}
	return rc;
}

static int mpi_test(void *state, struct pl_work *k, struct pl_err *err)
{
	struct mpi *m = state;
	int rc = k == m->w->active ? pump(m, err) : 0, more = 1; /* once a round, for all */

	while (rc >= 0 && k->state == PL_WORK_STEPS && more > 0)
		rc = more = advance_local(m, k, err);
	return rc < 0 ? rc : k->state == PL_WORK_DONE;
}

/* ---- opening ---- */

/* Rank i of the world is which one in MPI_COMM_WORLD? */
static int rank_in_mpi(const struct pl_world *w, int i)
{
	return w->o.of.size ? w->o.of.first + (int)w->o.names[i] : i;
}

/* Only the ranks of the world take part, which may be some of a job. */
static int make_comms(struct mpi *m, struct pl_err *err)
{
	struct pl_world *w = m->w;
	pl_mpi_handle all = 0, own = 0;
	int rank = -1, code, *in_mpi;

	PL_CHECK(pl_alloc(&in_mpi, (size_t)w->size, sizeof(*in_mpi), err));
	for (int i = 0; i < w->size; i++)
		in_mpi[i] = rank_in_mpi(w, i);
	code = m->lib.group(m->lib.world, &all);
	if (!code)
		code = m->lib.group_incl(all, w->size, in_mpi, &own);
	pl_free(in_mpi);
	for (int i = 0; i < 2 && !code; i++) {
		code = m->lib.create_group(m->lib.world, own, i, &m->comm[i]);
		if (!code)
			code = m->lib.set_errhandler(m->comm[i], m->lib.errors_return);
	}
	if (!code)
		code = m->lib.rank(m->comm[0], &rank);
	if (code)
		return failed(m, "MPI_Comm_create_group", code, err);
	if (rank != w->rank)
		return pl_fail(err, PL_EUSAGE, "MPI has another rank %d", pl_comm_name(w, w->rank));
	return 0;
}

/*
 * The user's setting for memory of GPUs: operations of at least *least bytes give it to MPI; 0: MPI
 * itself says whether it takes such memory. The setting exists because a library may take this
 * memory without saying so, and one that says so may be slow. Intel MPI is not asked, because it
 * has a variable of its own.
 */
static int read_setting(size_t *least, struct pl_err *err)
{
	const char *say = getenv("PACELINE_MPI_GPU");
	int64_t v = 0;
	int rc = say && *say ? pl_parse_size(say, &v, err) : 0;

	if (rc < 0)
		return pl_wrap(err, "PACELINE_MPI_GPU");
	if (say && *say)
		*least = v == 0 ? SIZE_MAX : v == 1 ? LEAST_OF_GPUS : (size_t)v;
	return 0;
}

/* Does MPI take pointers to memory of the device? */
static int check_device(struct mpi *m, struct pl_err *err)
{
	struct pl_world *w = m->w;
	size_t said = 0;

	PL_CHECK(read_setting(&said, err));
	w->device.cuda_aware = w->device.b && w->device.b->sum_async &&
			       (said ? said < SIZE_MAX : pl_comm_mpi_takes_cuda(&m->lib));
	w->device.min_bytes = said ? said : LEAST_OF_GPUS;
	return 0;
}

static int mpi_load(struct pl_world *w, void **state, struct pl_ready *own, struct pl_err *err)
{
	struct mpi *m;
	int rc;

	PL_CHECK(pl_alloc(&m, 1, sizeof(*m), err));
	m->w = w;
	*state = m;
	rc = pl_comm_mpi_lib_open(&m->lib, err);
	memcpy(own->text, m->lib.version, sizeof(m->lib.version));
	return rc;
}

static int mpi_open(void *state, struct pl_err *err)
{
	struct mpi *m = state;
	struct pl_world *w = m->w;
	int rc;

	PL_TRY(pl_alloc(&m->transfers, 2 * (size_t)w->size, sizeof(*m->transfers), err));
	if (w->device.b) /* MPI uses the device of the thread that initialises MPI */
		w->device.b->comm_stream(w->device.ctx);
	PL_TRY(pl_comm_mpi_begin(&m->lib, w->o.of.size ? w->o.of.size : w->size,
				 rank_in_mpi(w, w->rank), err));
	PL_TRY(make_comms(m, err));
	PL_TRY(check_device(m, err));
	pl_say(w->o.log, PL_LOG_DEBUG, "rank %d: %s (%s)", pl_comm_name(w, w->rank), m->lib.version,
	       m->lib.name);
	return 0;
out:
	pl_free(m->transfers);
	return rc;
}

static void mpi_abort(void *state)
{
	struct mpi *m = state;

	pl_comm_library_keep(m, &m->next_kept);
}

static void mpi_close(void *state)
{
	struct mpi *m = state;

	m->lib.finalize();
	free_stages(m, false);
	free_stages(m, true);
	pl_free(m->stages[0].of);
	pl_free(m->stages[1].of);
	pl_free(m->transfers);
	pl_free(m);
}

const struct pl_comm_library pl_comm_library_mpi = { .name = "mpi",
						     .ends_with_all = true,
						     .load = mpi_load,
						     .open = mpi_open,
						     .begin = mpi_begin,
						     .test = mpi_test,
						     .abort = mpi_abort,
						     .close = mpi_close };
