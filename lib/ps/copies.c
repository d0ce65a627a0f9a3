/*
 * Weights on their way to workers: copies in memory of the endpoint, one for all receivers of one
 * version.
 *
 * A body begins with the version. A receiver on this host reads the body where it lies: a worker
 * keeps the message until the next reply, because a commit is what its weights have become since
 * then. So the server has the weights that the commit began from, too, and takes the new ones of
 * the worker in place of the difference. That is a pass less over both of them. Of a worker on
 * another host the server keeps what it has sent last.
 *
 * What a worker may look at is not written again, also when its connection is lost, or when this
 * server follows one that was killed. When the worker greets again, it names the version that it
 * still needs, and the others are free. A worker whose number another process has taken over
 * meanwhile may find other weights in the memory. So whoever changes the memory changes the
 * version first, and a reader looks at the version afterwards (a sequence lock).
 *
 * An update that is followed by a reply writes the weights where they can be sent: to a body of the
 * store, which is lent to the endpoint. If all bodies are being read, it writes to the store and,
 * in the same pass, to memory of the endpoint. A reply without an update copies the weights, unless
 * they are in a body.
 */
#include <stdatomic.h>

#include "ps/internal.h"
#include "ps/passes.h"

#define HEAD PL_PS_BODY
#define NONE UINT64_MAX /* version: that of no weights */

struct pl_ps_copy {
	struct pl_ps_copy *next;
	char *body;
	uint64_t version;
	uint32_t used; /* by messages that are not sent yet */
	int place;     /* the body of the store that it is; -1: memory of the endpoint */
};

size_t pl_ps_reply_bytes(size_t n)
{
	return HEAD + n * sizeof(float);
}

void pl_ps_copies_fini(struct pl_ps_copies *c)
{
	while (c->first) { /* the bodies are the endpoint's */
		struct pl_ps_copy *x = c->first;

		c->first = x->next;
		pl_free(x);
	}
}

static int copy_new(struct pl_ps_copies *c, struct pl_ps_copy **out, struct pl_err *err)
{
	struct pl_ps_copy *x;

	PL_CHECK(pl_alloc(&x, 1, sizeof(*x), err));
	x->body = pl_comm_endpoint_alloc(c->end, pl_ps_reply_bytes(c->n), err);
	if (!x->body) {
		pl_free(x);
		return err->code;
	}
	x->version = NONE;
	x->place = -1;
	x->next = c->first;
	c->first = *out = x;
	return 0;
}

int pl_ps_copies_open(struct pl_ps_copies *c, struct pl_ps_store *store, uint32_t bodies,
		      struct pl_err *err)
{
	struct pl_err why = { 0 };
	size_t bytes;
	void *p;
	int fd = pl_ps_store_file(store, &p, &bytes);

	if (fd < 0 || pl_comm_endpoint_lend(c->end, fd, p, bytes, &why) < 0)
		return 0; /* all weights are copied */
	for (uint32_t i = 0; i < bodies; i++) {
		struct pl_ps_copy *x;

		PL_CHECK(pl_alloc(&x, 1, sizeof(*x), err));
		*x = (struct pl_ps_copy){ .body = pl_ps_store_body(store, i),
					  .place = (int)i,
					  .next = c->first };
		c->first = x;
		/* of the server before this one, if it could send them */
		memcpy(&x->version, x->body, sizeof(x->version));
		if (!x->version || x->version > pl_ps_store_progress(store)->version)
			x->version = NONE;
	}
	return 0;
}

int pl_ps_copies_pin(struct pl_ps_copies *c, struct pl_ps_sent *sent, struct pl_err *err)
{
	for (struct pl_ps_copy *x = c->first; x; x = x->next) {
		if (x->version == NONE)
			continue;
		PL_CHECK(pl_append(&sent->v, &sent->n, &sent->cap, &x, sizeof(x), err));
		x->used++;
	}
	return 0;
}

/* Before and after the weights are written. */
static void set_version(struct pl_ps_copy *x, uint64_t version)
{
	x->version = version;
	pl_ps_pass_end();
	atomic_store_explicit((_Atomic uint64_t *)(void *)x->body, version, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

/* One that no message uses; the weights in it are no more. */
static int take_free(struct pl_ps_copies *c, struct pl_ps_copy **out, struct pl_err *err)
{
	for (*out = c->first; *out && ((*out)->used || (*out)->place >= 0); *out = (*out)->next)
		;
	if (!*out)
		PL_CHECK(copy_new(c, out, err));
	set_version(*out, NONE);
	return 0;
}

/* Bodies are taken in this order: first those without weights that were written, then the oldest
 * weights. One that was never written takes no memory yet, so it is the last. */
static uint64_t turn_of(const struct pl_ps_copy *x)
{
	uint64_t v;

	memcpy(&v, x->body, sizeof(v));
	return v == NONE ? 0 : v ? v : NONE;
}

/* The body of the store that an update writes: the one that an update before it has written since
 * the last commit, or a free one, which becomes the aim. NULL: there is none. */
static struct pl_ps_copy *take_body(struct pl_ps_copies *c, struct pl_ps_store *store)
{
	bool moved = pl_ps_store_moved(store);
	int now = pl_ps_store_in_body(store), guessed = moved ? -1 : pl_ps_store_guessed(store);
	struct pl_ps_copy *best = NULL;

	for (struct pl_ps_copy *x = c->first; x; x = x->next)
		if (x->place >= 0 && (guessed < 0 || x->place == guessed) &&
		    (moved ? x->place == now : !x->used && x->place != now) &&
		    (!best || turn_of(x) < turn_of(best)))
			best = x;
	if (best && !moved)
		pl_ps_store_aim(store, best->place);
	return best;
}

int pl_ps_copies_update(struct pl_ps_copies *c, struct pl_ps_store *store,
			const struct pl_policy_update *up, const struct pl_ps_change *u,
			bool replies, struct pl_err *err)
{
	uint64_t before = pl_ps_store_progress(store)->version, now;
	struct pl_ps_copy *x = NULL;

	if (replies && (x = take_body(c, store))) {
		set_version(x, NONE);
	} else if (replies) {
		PL_CHECK(take_free(c, &x, err));
		pl_ps_store_also(store, (float *)(void *)(x->body + HEAD));
	}
	pl_ps_store_update(store, up, u);
	pl_ps_store_also(store, NULL);
	pl_ps_store_aim(store, -1);
	now = pl_ps_store_progress(store)->version;
	if (x && now != before)
		set_version(x, now);
	return 0;
}

bool pl_ps_copies_guess(struct pl_ps_copies *c, struct pl_ps_store *store,
			const struct pl_policy_update *up, const struct pl_ps_change *u,
			float *keep)
{
	struct pl_ps_copy *x;

	pl_ps_store_guess_drop(store);
	x = pl_ps_store_moved(store) ? NULL : take_body(c, store);
	pl_ps_store_aim(store, -1);
	if (!x)
		return false;
	set_version(x, NONE);
	return pl_ps_store_guess(store, up, u, keep, x->place);
}

/* The weights as they are, in memory that messages may use. */
static int copy_of(struct pl_ps_copies *c, struct pl_ps_store *store, struct pl_ps_copy **out,
		   struct pl_err *err)
{
	uint64_t version = pl_ps_store_progress(store)->version;
	struct pl_ps_copy *x;

	for (x = c->first; x && x->version != version; x = x->next)
		;
	if (!x) {
		PL_CHECK(take_free(c, &x, err));
		pl_ps_pass_copy((float *)(void *)(x->body + HEAD), NULL, pl_ps_store_weights(store),
				c->n, pl_ps_streams(c->n));
		set_version(x, version);
	}
	*out = x;
	return 0;
}

int pl_ps_copies_send(struct pl_ps_copies *c, struct pl_ps_store *store, uint32_t connection,
		      struct pl_ps_sent *sent, struct pl_message *m, struct pl_err *err)
{
	struct pl_ps_copy *x = NULL;

	PL_CHECK(copy_of(c, store, &x, err));
	PL_CHECK(pl_append(&sent->v, &sent->n, &sent->cap, &x, sizeof(x), err));
	x->used++;
	m->kind = PL_PS_REPLY;
	m->value[1] = x->version;
	m->body = x->body;
	m->bytes = pl_ps_reply_bytes(c->n);
	return pl_comm_endpoint_send(c->end, connection, m, x, err);
}

void pl_ps_sent_one(struct pl_ps_sent *sent, const void *done, bool keep)
{
	struct pl_ps_copy *was = sent->kept;
	size_t i = 0;

	while (i < sent->n && sent->v[i] != done)
		i++;
	if (i == sent->n)
		return;
	if (keep)
		sent->kept = sent->v[i];
	else
		sent->v[i]->used--;
	if (keep && was)
		was->used--;
	sent->n--;
	memmove(sent->v + i, sent->v + i + 1, (sent->n - i) * sizeof(sent->v[0]));
}

void pl_ps_sent_all(struct pl_ps_sent *sent)
{
	while (sent->n)
		pl_ps_sent_one(sent, sent->v[0], false);
	if (sent->kept)
		sent->kept->used--;
	sent->kept = NULL;
}

uint64_t pl_ps_sent_keep(struct pl_ps_sent *sent, uint64_t version)
{
	struct pl_ps_copy *x = sent->kept;

	for (size_t i = 0; i < sent->n && (!x || x->version != version); i++)
		x = sent->v[i];
	if (!x || x->version != version)
		x = NULL;
	else
		x->used++;
	pl_ps_sent_all(sent);
	sent->kept = x;
	return x ? version : NONE;
}

static struct pl_ps_copy *find(struct pl_ps_sent *sent, uint64_t version)
{
	struct pl_ps_copy *x = sent->kept;

	if (x && x->version != version) { /* it has taken a later reply */
		x->used--;
		x = sent->kept = NULL;
	}
	for (size_t i = 0; i < sent->n && !x; i++)
		if (sent->v[i]->version == version)
			x = sent->v[i];
	return x;
}

static const float *weights_of(const struct pl_ps_copy *x)
{
	return x ? (const float *)(const void *)(x->body + HEAD) : NULL;
}

const float *pl_ps_sent_weights(struct pl_ps_sent *sent, uint64_t version)
{
	return weights_of(find(sent, version));
}

bool pl_ps_sent_hold(struct pl_ps_sent *sent, uint64_t version)
{
	struct pl_ps_copy *x = find(sent, version);

	pl_ps_sent_let_go(sent);
	sent->held = x;
	if (x)
		x->used++;
	return x;
}

const float *pl_ps_sent_held(const struct pl_ps_sent *sent)
{
	return weights_of(sent->held);
}

void pl_ps_sent_let_go(struct pl_ps_sent *sent)
{
	if (sent->held)
		sent->held->used--;
	sent->held = NULL;
}

void pl_ps_sent_fini(struct pl_ps_sent *sent)
{
	pl_free(sent->v);
	*sent = (struct pl_ps_sent){ 0 };
}

bool pl_ps_reply_is(const struct pl_message *m)
{
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit((const _Atomic uint64_t *)m->body, memory_order_relaxed) ==
	       m->value[1];
}

const float *pl_ps_reply_weights(const struct pl_message *m, size_t n)
{
	return m->bytes == pl_ps_reply_bytes(n)
		       ? (const float *)(const void *)((const char *)m->body + HEAD)
		       : NULL;
}

bool pl_ps_reply_take(const struct pl_message *m, float *to, size_t n)
{
	const float *w = pl_ps_reply_weights(m, n);

	if (!w)
		return false;
	pl_ps_pass_copy(to, NULL, w, n, pl_ps_streams(n));
	pl_ps_pass_end();
	return pl_ps_reply_is(m);
}
