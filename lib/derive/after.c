/*
 * Dependencies between operations that the source recorded by name: dPRO's graph of operators.
 *
 * An event names operations of its rank; it comes after the last one of each name that had ended
 * when the event began. A name that no operation has says nothing. O(n log n) in the operations of
 * a rank, and a lookup for each name.
 */
#include <stdlib.h>

#include "derive/internal.h"

#define SLACK_NS 2000 /* of rounding in start and end times */

struct named {	    /* an operation, by name and end */
	pl_id name; /* of the graph */
	pl_ns end;
	struct op *op;
	bool thread;
};

PL_COMPARATOR(by_name, struct named, name, end);

static const char *after_of(const struct builder *b, const struct op *op)
{
	const struct pl_events *e;

	if (op->node == PL_NONE || op->call != PL_NONE)
		return NULL;
	e = b->t->seg[op->seg];
	return !e->after || e->after[op->ev] == PL_NONE
		       ? NULL
		       : pl_intern_get(&e->seg.str, e->after[op->ev]);
}

static bool has_after(const struct builder *b, const struct rank *rank)
{
	for (uint32_t seg = rank->ended; seg != PL_NONE; seg = b->seg[seg].next_ended)
		if (b->t->seg[seg]->after)
			return true;
	return false;
}

/* The operations of the rank that have nodes, by name and end. */
static size_t list(struct builder *b, const struct rank *rank, struct named **out)
{
	size_t n = 0, cap = 0;

	for (size_t k = 0; k < rank->n_res; k++) {
		const struct resource *r = &b->resource[rank->res[k]];

		for (uint32_t i = 0; i < r->n; i++) {
			struct op *op = &r->op[i];
			const struct named x = { op->node == PL_NONE ? PL_NONE
								     : b->node[op->node].name,
						 op->end, op, r->thread };

			if (op->node != PL_NONE)
				PL_DERIVE_ADD(b->err, *out, n, cap, x);
		}
	}
	if (n)
		pl_sort(*out, n, sizeof(**out), by_name);
	return n;
}

static void one_name(struct builder *b, const struct named *v, size_t n, const struct op *to,
		     pl_id name)
{
	const struct named key = { .name = name, .end = pl_add_sat(to->start, SLACK_NS + 1) };
	const struct named *from;
	size_t at = 0;

	PL_LOWER_BOUND(at, n, by_name(&v[at], &key) < 0);
	while (at && v[at - 1].name == name && v[at - 1].op == to)
		at--;
	if (!at || v[at - 1].name != name)
		return;
	from = &v[at - 1];
	PL_DERIVE_ADD(b->err, b->after, b->n_after, b->cap_after,
		      (struct pl_derive_after){ from->thread ? NULL : from->op, from->op->last,
						to->node });
}

void pl_derive_note_after(struct builder *b, struct rank *rank)
{
	struct named *v = NULL;
	size_t n, before = b->n_after;

	if (!has_after(b, rank))
		return;
	n = list(b, rank, &v);
	for (size_t i = 0; i < n && !b->err->code; i++) {
		const char *s = after_of(b, v[i].op);

		while (s && *s) {
			size_t k = strcspn(s, " ");
			pl_id name = pl_intern_find(&b->g->str, s, k);

			if (name != PL_NONE)
				one_name(b, v, n, v[i].op, name);
			s += k + (s[k] == ' ');
		}
	}
	rank->ordered = b->n_after > before;
	pl_free(v);
}

/* An operation that began a little before what it comes after had ended: times are rounded. */
static void tie(struct builder *b, uint32_t from, uint32_t to)
{
	pl_ns over = b->node[from].start + b->node[from].dur - b->node[to].start;

	if (over > SLACK_NS)
		return;
	if (over > 0)
		b->node[from].dur -= pl_min_i64(over, b->node[from].dur);
	b->g->recorded_waits++;
	pl_derive_edge(b, from, to, PL_E_WAIT);
}

void pl_derive_after(struct builder *b)
{
	for (size_t i = 0; i < b->n_after; i++) {
		const struct pl_derive_after *a = &b->after[i];

		tie(b, a->communication ? a->communication->last : a->from, a->to);
	}
	pl_free(b->after);
	b->after = NULL;
	b->n_after = b->cap_after = 0;
}
