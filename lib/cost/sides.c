/*
 * The sender and receiver of recorded messages, and which of them includes the time on the link.
 *
 * A message of a collective has the time that its sender spent and the time that its receiver spent
 * (derive/messages). If a send lasts until the link has taken the data, the time on the link is at
 * the sender; the receiver has the latency and the work on the data. If a send only hands the data
 * over, the time on the link is at the receiver. Each of the two gets a line through all its
 * messages. The one with more time for the bytes includes the link. The latency of the resource of
 * the receiver lies between the two.
 */
#include <math.h>

#include "cost/internal.h"

#define MOST (1 << 16) /* points of a side: more do not change the fit */

struct sides {
	struct point *p[2];
	size_t n[2], cap[2];
	double bytes[2];
};

static int add_step(struct sides *s, const struct pl_graph *g, const struct pl_gstep *st,
		    struct pl_err *err)
{
	const struct pl_shape *sh = &g->shape[st->shape];
	int rc = 0;

	for (uint32_t i = sh->n_entries; i < sh->n_nodes && rc >= 0; i++) {
		unsigned side = sh->kind[i] == PL_K_RECV;

		if (!(sh->flags[i] & PL_NF_MESSAGE) || !sh->bytes || sh->bytes[i] <= 0 ||
		    st->dur[i] <= 0 || s->n[side] >= MOST)
			continue;
		rc = pl_append(&s->p[side], &s->n[side], &s->cap[side],
			       &(struct point){ (double)sh->bytes[i], (double)st->dur[i] },
			       sizeof(**s->p), err);
		s->bytes[side] += (double)sh->bytes[i];
	}
	return rc;
}

int pl_cost_sides(const struct pl_graph *g, struct pl_cost_sides *out, struct pl_err *err)
{
	struct sides s = { 0 };
	double taken[2];
	int rc = 0;

	*out = (struct pl_cost_sides){ .link = PL_K_SEND };
	for (size_t k = 0; k < g->n_steps; k++)
		PL_TRY(add_step(&s, g, &g->step[k], err));
	for (unsigned side = 0; side < 2; side++) {
		struct line l = { 0 };

		if (s.n[side])
			PL_TRY(pl_cost_line_fit(s.p[side], s.n[side], &l, err));
		out->side[side] = (struct pl_cost_line){ .a_ns = l.a, .b_ns_per_byte = l.b };
		taken[side] = l.b * s.bytes[side];
	}
	if (taken[1] > taken[0])
		out->link = PL_K_RECV;
out:
	pl_free(s.p[0]);
	pl_free(s.p[1]);
	return rc;
}
