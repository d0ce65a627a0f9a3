/*
 * Waits of the host for an event: cudaEventSynchronize names neither event nor stream.
 *
 * As for waits of streams (events.c), a hypothesis says which event: the k-th last one that was
 * recorded before the wait, and the stream that it was recorded on. All waits at one place of the
 * program share a hypothesis. A wait refutes it if the event had not occurred when the call
 * returned. A long wait supports it if the call returned soon after the event, and speaks against
 * it if the event had occurred long before. A wait that did not have to wait takes the hypothesis
 * of its place: it counts when the device becomes slower. A place without support gets nothing.
 *
 * Cost: O(calls + waits * events back).
 */
#include <stdlib.h>

#include "derive/events.h"

#define TOL_NS	  2000	/* of rounding in start and end times */
#define LONG_NS	  20000 /* a longer call has waited */
#define RETURN_NS 30000 /* a wait returns at most this long after the event */
#define N_BACK	  48	/* events back */

struct sync {
	uint32_t call, n_records; /* records before it */
	uint64_t place;
};

PL_COMPARATOR(by_place, struct sync, place, call);

PL_COMPARATOR(by_call, struct awaited, call);

/* The last operation before the event, NULL: none. */
static struct op *source(const struct events *x, const struct sync *s, uint32_t back, uint32_t src)
{
	const struct record *r;

	if (back > s->n_records)
		return NULL;
	r = &x->rec[s->n_records - back];
	return r->stream[src] == PL_NONE || !r->n[src] ? NULL
						       : x->l->v[r->stream[src]].op[r->n[src] - 1];
}

/* How well an event fits the waits of a place. */
static int64_t score(const struct events *x, const struct sync *s, size_t n, uint32_t back,
		     uint32_t src)
{
	int64_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		const struct call *c = &x->rank->call[s[i].call];
		const struct op *op = source(x, &s[i], back, src);

		if (op && op->end > c->end + TOL_NS)
			sum -= 4;
		else if (op && c->end - c->start >= LONG_NS)
			sum += op->end > c->start && c->end - op->end <= RETURN_NS ? 1 : -1;
	}
	return sum;
}

/* The waits of one place; where no event fits them, `alone` lets each have its own. */
static void one_place(struct events *x, const struct sync *s, size_t n, bool alone)
{
	uint32_t best = 0, best_src = 0;
	int64_t most = 0;

	for (uint32_t back = 1; back <= N_BACK; back++)
		for (uint32_t src = 0; src < N_SRC; src++) {
			int64_t now = score(x, s, n, back, src);

			if (now > most) {
				most = now;
				best = back;
				best_src = src;
			}
		}
	for (size_t i = 0; i < n; i++) {
		struct op *op = best ? source(x, &s[i], best, best_src) : NULL;

		if (op)
			PL_DERIVE_ADD(x->b->err, x->l->awaited, x->l->n_awaited, x->l->cap_awaited,
				      (struct awaited){ s[i].call, op });
		else if (alone && n > 1)
			one_place(x, &s[i], 1, false);
	}
}

static bool any_waits(const struct rank *rank)
{
	for (size_t c = 0; c < rank->n_calls; c++)
		if (rank->call[c].type == CALL_SYNC && rank->call[c].of_event)
			return true;
	return false;
}

void pl_derive_event_syncs(struct builder *b, struct rank *rank, struct streams *l, uint64_t *hash)
{
	struct events x = { .b = b, .rank = rank, .l = l, .hash = hash };
	struct sync *sync = NULL;
	size_t n_sync = 0, cap = 0;

	if (!l->n || !any_waits(rank))
		return;
	for (uint32_t c = 0; c < rank->n_calls; c++) {
		const struct call *y = &rank->call[c];

		if (y->type == CALL_RECORD && !y->internal)
			pl_derive_add_record(&x, c, false);
		else if (y->type == CALL_SYNC && y->of_event)
			PL_DERIVE_ADD(b->err, sync, n_sync, cap,
				      (struct sync){ c, (uint32_t)x.n_rec, 0 });
	}
	for (size_t i = 0; i < n_sync; i++)
		sync[i].place = pl_derive_place(&x, sync[i].call);
	pl_sort(sync, n_sync, sizeof(*sync), by_place);
	for (size_t i = 0, n; i < n_sync && x.n_rec; i += n) {
		for (n = 1; i + n < n_sync && sync[i + n].place == sync[i].place; n++)
			;
		one_place(&x, sync + i, n, true);
	}
	pl_sort(l->awaited, l->n_awaited, sizeof(*l->awaited), by_call);
	pl_free(sync);
	pl_free(x.rec);
}
