/*
 * Weights on their way to workers: copies in memory of the endpoint, one for all receivers of one
 * version.
 *
 * A body begins with the version. A receiver on this host reads the body where it lies. If it is
 * stopped for so long that it is taken for lost, the memory may get another version while it reads.
 * So whoever changes the memory changes the version first, and a receiver looks at the version
 * after it has copied the weights (a sequence lock).
 */
#include <stdatomic.h>

#include "ps/internal.h"

#define HEAD 64 /* so that the weights are aligned */

struct pl_ps_copy {
	struct pl_ps_copy *next;
	char *body;
	uint64_t version;
	uint32_t used; /* by messages that are not sent yet */
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
	x->next = c->first;
	c->first = *out = x;
	return 0;
}

static void fill(struct pl_ps_copy *x, const float *weights, size_t n, uint64_t version)
{
	atomic_store_explicit((_Atomic uint64_t *)(void *)x->body, version, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	memcpy(x->body + HEAD, weights, n * sizeof(float));
	x->version = version;
}

/* The weights as they are, in memory that messages may use. */
static int copy_of(struct pl_ps_copies *c, struct pl_ps_store *store, struct pl_ps_copy **out,
		   struct pl_err *err)
{
	uint64_t version = pl_ps_store_progress(store)->version;
	struct pl_ps_copy *free = NULL;

	for (struct pl_ps_copy *x = c->first; x; x = x->next) {
		if (x->used && x->version == version) {
			*out = x;
			return 0;
		}
		if (!x->used)
			free = x;
	}
	if (!free)
		PL_CHECK(copy_new(c, &free, err));
	fill(free, pl_ps_store_weights(store), c->n, version);
	*out = free;
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
	return pl_comm_endpoint_send(c->end, connection, m, sent, err);
}

void pl_ps_sent_one(struct pl_ps_sent *sent)
{
	if (!sent->n)
		return;
	sent->v[0]->used--;
	sent->n--;
	memmove(sent->v, sent->v + 1, sent->n * sizeof(sent->v[0]));
}

void pl_ps_sent_all(struct pl_ps_sent *sent)
{
	while (sent->n)
		pl_ps_sent_one(sent);
}

void pl_ps_sent_fini(struct pl_ps_sent *sent)
{
	pl_free(sent->v);
	*sent = (struct pl_ps_sent){ 0 };
}

bool pl_ps_reply_take(const struct pl_message *m, float *to, size_t n)
{
	const char *body = m->body;

	if (m->bytes != pl_ps_reply_bytes(n))
		return false;
	memcpy(to, body + HEAD, n * sizeof(float));
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit((const _Atomic uint64_t *)(const void *)body,
				    memory_order_relaxed) == m->value[1];
}
