/*
 * A file, or memory, of one page of a head, two records, two places for each of W, S and V, and, if
 * they are wanted, a U of each worker and the last actions. The head tells which record is valid;
 * the record tells which place of each vector is. Pages that were never written take no memory, so
 * a policy without S and V does not pay for them.
 *
 * An update reads and writes each number once: its cost is that of moving the vectors that it uses.
 * Where a reply follows, the same pass writes the weights of the reply, too.
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ps/passes.h"
#include "ps/store.h"

#define MAGIC 0x31535050 /* "PPS1" */
#define PAGE  4096
#define BLOCK 2048 /* numbers that stay in the first cache while a block is updated */

enum vector { W, S, V, VECTORS };
#define PLACES 2 /* of each vector; bodies are more of W */

struct head {
	uint32_t magic, workers;
	uint64_t n, number;
	_Atomic uint32_t valid; /* record */
};
struct record { /* behind it one pl_ps_applied a worker, then the policy's bytes */
	uint8_t place[VECTORS];
	bool zero[VECTORS]; /* all numbers are 0, whatever stands there */
	struct pl_ps_progress progress;
	size_t policy_bytes;
};
struct pl_ps_store {
	struct head *head;
	size_t n, bytes, record_bytes, vector_bytes;
	size_t first_body, body_bytes, kept, actions; /* where they begin */
	uint32_t workers, n_actions;
	struct record *next; /* changed since the last commit */
	bool moved[VECTORS]; /* since then: it is in another place */
	uint32_t bodies;     /* W: places PLACES to PLACES + bodies - 1 */
	int aim;	     /* place of W's next change; 0: one of the usual ones */
	int fd;		     /* of the memory, -1: no file */
	bool own;	     /* fd */
	float *also;	     /* another place for W; NULL */
	struct {
		struct pl_policy_update up;
		struct pl_ps_change u;
		int place; /* 0: there is none */
	} guess;
};

static size_t whole_pages(size_t n)
{
	return (n + PAGE - 1) / PAGE * PAGE;
}

static struct record *record_at(const struct pl_ps_store *s, uint32_t i)
{
	return (struct record *)(void *)((char *)s->head + PAGE + i * s->record_bytes);
}

char *pl_ps_store_body(const struct pl_ps_store *s, uint32_t i)
{
	return (char *)s->head + s->first_body + i * s->body_bytes;
}

static float *vector_at(const struct pl_ps_store *s, enum vector v, int place)
{
	char *at = (char *)s->head + PAGE + 2 * s->record_bytes;

	if (place < PLACES)
		return (float *)(void *)(at +
					 (PLACES * (size_t)v + (size_t)place) * s->vector_bytes);
	at = pl_ps_store_body(s, (uint32_t)(place - PLACES));
	return (float *)(void *)(at + PL_PS_BODY);
}

static float *current(const struct pl_ps_store *s, enum vector v)
{
	return vector_at(s, v, s->next->place[v]);
}

/* ---- open and close -------------------------------------------------------------------------- */

static int map(struct pl_ps_store *s, int fd, struct pl_err *err)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
	void *p;

	if (fd >= 0 && ftruncate(fd, (off_t)s->bytes))
		return pl_fail_sys(err, "memory for the weights of a server");
	p = pl_fail_now() ? MAP_FAILED : mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (p == MAP_FAILED)
		return pl_fail(err, PL_ENOMEM, "memory for the weights of a server: %zu bytes",
			       s->bytes);
	s->head = p;
	return 0;
}

static int check_file(const struct pl_ps_store *s, int fd, bool *fresh, struct pl_err *err)
{
	struct head h = { 0 };
	ssize_t got = fd < 0 ? 0 : pread(fd, &h, sizeof(h), 0);

	*fresh = got == 0 || !h.magic;
	if (*fresh || (h.magic == MAGIC && h.n == s->n && h.workers == s->workers))
		return 0;
	return pl_fail(
		err, PL_EDATA,
		"the memory of the server before this one has %llu numbers for %u workers, and not "
		"%zu for %u: it belongs to another job",
		(unsigned long long)h.n, h.workers, s->n, s->workers);
}

static void lay_out(struct pl_ps_store *s, const struct pl_ps_store_opts *o)
{
	s->n = o->n;
	s->workers = o->workers;
	s->n_actions = o->actions;
	s->record_bytes =
		whole_pages(sizeof(struct record) + o->workers * sizeof(struct pl_ps_applied) +
			    PL_PS_POLICY_BYTES(o->workers));
	s->vector_bytes = whole_pages(o->n * sizeof(float));
	s->bodies = o->bodies < PL_PS_BODIES ? o->bodies : PL_PS_BODIES;
	s->body_bytes = whole_pages(PL_PS_BODY + o->n * sizeof(float));
	s->first_body = PAGE + 2 * s->record_bytes + PLACES * VECTORS * s->vector_bytes;
	s->kept = s->first_body + s->bodies * s->body_bytes;
	s->actions = s->kept + (o->keeps ? o->workers * s->vector_bytes : 0);
	s->bytes = whole_pages(s->actions + o->actions * sizeof(struct pl_ps_action));
}

static uint64_t new_number(void)
{
	int64_t seed[2] = { pl_now_ns(), getpid() };

	return pl_hash(seed, sizeof(seed)) | 1;
}

int pl_ps_store_open(const struct pl_ps_store_opts *o, struct pl_ps_store **out, bool *fresh,
		     struct pl_err *err)
{
	struct pl_ps_store *s;
	int rc = pl_alloc(&s, 1, sizeof(*s), err);

	*out = NULL;
	if (rc < 0)
		return rc;
	lay_out(s, o);
	s->fd = o->fd;
	if (s->fd < 0 && s->bodies) { /* without a file nothing is shared */
		s->fd = memfd_create("paceline", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		s->own = s->fd >= 0;
	}
	PL_TRY(check_file(s, s->fd, fresh, err));
	PL_TRY(map(s, s->fd, err));
	if (*fresh) {
		struct record *r = record_at(s, 0);

		memset(r, 0, s->record_bytes);
		for (int v = 0; v < VECTORS; v++)
			r->zero[v] = true;
		s->head->n = o->n;
		s->head->number = new_number();
		s->head->workers = o->workers;
		atomic_store(&s->head->valid, 0);
	}
	s->next = record_at(s, 1 - s->head->valid);
	memcpy(s->next, record_at(s, s->head->valid), s->record_bytes);
	*out = s;
	s = NULL;
out:
	pl_ps_store_close(s);
	return rc;
}

void pl_ps_store_close(struct pl_ps_store *s)
{
	if (!s)
		return;
	if (s->head)
		munmap(s->head, s->bytes);
	if (s->own)
		close(s->fd);
	pl_free(s);
}

/* ---- counts ---------------------------------------------------------------------------------- */

uint64_t pl_ps_store_number(const struct pl_ps_store *s)
{
	return s->head->number;
}

struct pl_ps_progress *pl_ps_store_progress(struct pl_ps_store *s)
{
	return &s->next->progress;
}

struct pl_ps_applied *pl_ps_store_applied(struct pl_ps_store *s, uint32_t worker)
{
	return (struct pl_ps_applied *)(s->next + 1) + worker;
}

uint8_t *pl_ps_store_policy(struct pl_ps_store *s, size_t **n)
{
	*n = &s->next->policy_bytes;
	return (uint8_t *)pl_ps_store_applied(s, s->workers);
}

float *pl_ps_store_kept(struct pl_ps_store *s, uint32_t worker)
{
	return (float *)(void *)((char *)s->head + s->kept + worker * s->vector_bytes);
}

struct pl_ps_action *pl_ps_store_action(struct pl_ps_store *s, uint64_t number)
{
	return (struct pl_ps_action *)(void *)((char *)s->head + s->actions) +
	       number % s->n_actions;
}

void pl_ps_store_commit(struct pl_ps_store *s)
{
	uint32_t now = 1 - s->head->valid;

	atomic_store(&s->head->valid, now);
	/* last: a server that dies before its first commit leaves an empty file */
	s->head->magic = MAGIC;
	s->next = record_at(s, 1 - now);
	memcpy(s->next, record_at(s, now), s->record_bytes);
	memset(s->moved, 0, sizeof(s->moved));
}

/* ---- updates --------------------------------------------------------------------------------- */

const float *pl_ps_store_weights(const struct pl_ps_store *s)
{
	return current(s, W);
}

/* Where a vector is written: the place that the valid record does not use. */
static float *written(struct pl_ps_store *s, enum vector v)
{
	if (!s->moved[v] && v == W && s->aim)
		s->next->place[v] = (uint8_t)s->aim;
	else if (!s->moved[v])
		s->next->place[v] = !s->next->place[v];
	s->moved[v] = true;
	s->next->zero[v] = false;
	return current(s, v);
}

float *pl_ps_store_begin(struct pl_ps_store *s)
{
	return written(s, W);
}

/* A vector during an update; from NULL: 0; to NULL: it does not change. */
struct span {
	const float *from;
	float *to;
};

static struct span span_of(struct pl_ps_store *s, enum vector v, bool changes)
{
	struct span x = { .from = s->next->zero[v] ? NULL : current(s, v) };

	x.to = changes ? written(s, v) : NULL;
	return x;
}

static void load(float *b, const struct span *x, size_t at, size_t n, double factor)
{
	float f = (float)factor;

	if (!x->from)
		memset(b, 0, n * sizeof(*b));
	else if (f == 1.0f)
		memcpy(b, x->from + at, n * sizeof(*b));
	else
		for (size_t i = 0; i < n; i++)
			b[i] = f * x->from[at + i];
}

static void add(float *b, const float *a, size_t n, double factor)
{
	float f = (float)factor;

	if (f == 1.0f)
		for (size_t i = 0; i < n; i++)
			b[i] += a[i];
	else if (f != 0.0f)
		for (size_t i = 0; i < n; i++)
			b[i] += f * a[i];
}

static void put(const struct span *x, float *also, const float *b, size_t at, size_t n, bool stream)
{
	if (x->to)
		pl_ps_pass_copy(x->to + at, also ? also + at : NULL, b, n, stream);
}

int pl_ps_store_in_body(const struct pl_ps_store *s)
{
	return s->next->place[W] < PLACES ? -1 : s->next->place[W] - PLACES;
}

void pl_ps_store_aim(struct pl_ps_store *s, int body)
{
	s->aim = body < 0 ? 0 : PLACES + body;
}

bool pl_ps_store_moved(const struct pl_ps_store *s)
{
	return s->moved[W];
}

int pl_ps_store_file(const struct pl_ps_store *s, void **p, size_t *bytes)
{
	*p = s->head;
	*bytes = s->bytes;
	return s->fd;
}

void pl_ps_store_also(struct pl_ps_store *s, float *to)
{
	s->also = to;
}

/* What an update does with the numbers of a block. */
struct pass {
	const struct pl_policy_update *up;
	struct span s, v, w;
	bool uses_s, uses_v, stream;
	float *also;
};

static void update_block(const struct pass *p, const struct pl_ps_change *c, size_t at, size_t n)
{
	const struct pl_policy_update *up = p->up;
	float bs[BLOCK], bv[BLOCK], bw[BLOCK], bu[BLOCK];
	const float *u = c->to ? c->to + at : NULL;

	if (u && c->from) {
		pl_ps_pass_subtract(bu, NULL, u, c->from + at, n, false);
		u = bu;
	}
	if (p->uses_s) {
		load(bs, &p->s, at, n, 1);
		if (u)
			add(bs, u, n, up->s_u);
		put(&p->s, NULL, bs, at, n, p->stream);
	}
	if (p->uses_v) {
		load(bv, &p->v, at, n, up->v_v);
		if (u)
			add(bv, u, n, up->v_u);
		if (p->uses_s)
			add(bv, bs, n, up->v_s);
		put(&p->v, NULL, bv, at, n, p->stream);
	}
	if (!p->w.to)
		return;
	load(bw, &p->w, at, n, 1);
	if (u)
		add(bw, u, n, up->w_u);
	if (p->uses_s)
		add(bw, bs, n, up->w_s);
	if (p->uses_v)
		add(bw, bv, n, up->w_v);
	put(&p->w, p->also, bw, at, n, p->stream);
}

/* Does it change W alone, by U alone? */
static bool is_plain(const struct pl_ps_store *s, const struct pl_policy_update *up)
{
	bool keeps_v = s->next->zero[V] || (up->v_v == 1 && up->w_v == 0);

	return up->s_u == 0 && up->v_u == 0 && up->v_s == 0 && up->w_s == 0 && keeps_v &&
	       up->w_u != 0 && !s->next->zero[W];
}

bool pl_ps_store_guess(struct pl_ps_store *s, const struct pl_policy_update *up,
		       const struct pl_ps_change *u, float *keep, int body)
{
	float *to = vector_at(s, W, PLACES + body);
	bool stream = pl_ps_streams(s->n);

	s->guess.place = 0;
	if (!u->to || (keep && !u->from) || !is_plain(s, up) || s->moved[W])
		return false;
	if (keep)
		pl_ps_pass_split(to, keep, current(s, W), (float)up->w_u, u->to, u->from, s->n,
				 stream);
	else
		pl_ps_pass_add(to, NULL, current(s, W), (float)up->w_u, u->to, u->from, s->n,
			       stream);
	pl_ps_pass_end();
	s->guess.up = *up;
	s->guess.u = *u;
	if (keep)
		s->guess.u = (struct pl_ps_change){ .to = keep };
	s->guess.place = PLACES + body;
	return true;
}

void pl_ps_store_guess_drop(struct pl_ps_store *s)
{
	s->guess.place = 0;
}

int pl_ps_store_guessed(const struct pl_ps_store *s)
{
	return s->guess.place - PLACES < 0 ? -1 : s->guess.place - PLACES;
}

/* Is the guess this update? */
static bool take_guess(struct pl_ps_store *s, const struct pl_policy_update *up,
		       const struct pl_ps_change *u)
{
	bool good = s->guess.place && s->guess.place == s->aim && !s->moved[W] && !s->also &&
		    is_plain(s, up) && s->guess.u.to == u->to && s->guess.u.from == u->from &&
		    s->guess.up.w_u == up->w_u;

	s->guess.place = 0;
	return good;
}

/* Block by block: of each vector that the update uses, one read and one write. */
void pl_ps_store_update(struct pl_ps_store *s, const struct pl_policy_update *up,
			const struct pl_ps_change *u)
{
	bool guessed = take_guess(s, up, u);
	bool zero = s->next->zero[S], keeps_v = up->v_v == 1 && up->v_u == 0 && up->v_s == 0;
	struct pass p = { .up = up, .stream = pl_ps_streams(s->n), .also = s->also };

	p.s = span_of(s, S, up->s_u != 0 && !up->clear);
	p.v = span_of(s, V, !keeps_v && !(s->next->zero[V] && up->v_u == 0 && up->v_s == 0));
	p.w = span_of(s, W, up->w_u != 0 || up->w_s != 0 || up->w_v != 0);
	p.uses_s = p.s.to || up->v_s != 0 || up->w_s != 0;
	p.uses_v = p.v.to || up->w_v != 0;
	if (guessed)
		;
	else if (u->to && p.w.to && p.w.from && !p.uses_s && !p.uses_v)
		pl_ps_pass_add(p.w.to, p.also, p.w.from, (float)up->w_u, u->to, u->from, s->n,
			       p.stream);
	else
		for (size_t at = 0; at < s->n; at += BLOCK)
			update_block(&p, u, at, pl_min_size(BLOCK, s->n - at));
	pl_ps_pass_end();
	s->next->zero[S] = up->clear || (zero && up->s_u == 0);
	s->next->progress.version += p.w.to != NULL;
}
