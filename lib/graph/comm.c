/*
 * Communication across ranks, from the matches that merge found.
 *
 * A collective is a rendezvous: every member's arrival leads to it, it leads to every member's
 * transfer, and the transfer is what is left from the last arrival to the member's own end. A pair
 * is the same with two members: the receive cannot begin before its data, a send without a buffer
 * not before its receiver, so both transfer from the later start on.
 *
 * Frameworks issue a send and a receive as one batch and record one span for both. Such twins (same
 * rank, same start, same end) would make the transfer of the one last as long as the wait of the
 * other; a twin's transfer ends with its partner's.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/internal.h"

#define TWIN_NS	 1000
#define EARLY_NS 50000 /* clocks are aligned better than this */

static int copy_groups(struct gb *b, struct pl_err *err)
{
	const struct pl_merge *m = &b->t->merge;
	struct pl_graph *g = b->g;
	int rc;

	for (uint32_t i = 0; i < m->n_groups; i++) {
		const struct pl_group *from = &m->group[i];
		struct pl_ggroup *to;

		if ((rc = pl_grow(&g->group, &g->cap_groups, g->n_groups + 1, sizeof(*g->group),
				  err)) < 0 ||
		    (rc = pl_grow(&g->group_rank, &g->cap_group_ranks, g->n_group_ranks + from->n,
				  sizeof(*g->group_rank), err)) < 0)
			return rc;
		to = &g->group[g->n_groups++];
		*to = (struct pl_ggroup){ .flags = from->flags,
					  .rank = (uint32_t)g->n_group_ranks,
					  .n = from->n };
		if (from->n)
			memcpy(g->group_rank + g->n_group_ranks, from->rank,
			       from->n * sizeof(*from->rank));
		g->n_group_ranks += from->n;
		rc = pl_intern_add(&g->str, from->name ? from->name : "",
				   from->name ? strlen(from->name) : 0, &to->name, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Another communication of the same rank with the same span? Marked in `flags` scratch before. */
static void find_twins(struct gb *b, const struct rankinfo *rk, uint8_t *twin)
{
	for (size_t k = 0; k < rk->n_res; k++) {
		const struct resinfo *ri = &b->ri[rk->res[k]];

		for (size_t l = k + 1; l < rk->n_res; l++) {
			const struct resinfo *rj = &b->ri[rk->res[l]];
			uint32_t j = 0;

			for (uint32_t i = 0; i < ri->n; i++) {
				const struct op *p = &ri->op[i], *q;

				while (j < rj->n && rj->op[j].start < p->start - TWIN_NS)
					j++;
				q = j < rj->n ? &rj->op[j] : NULL;
				if (q && p->node != q->node && p->node != PL_NONE &&
				    q->node != PL_NONE && llabs(q->start - p->start) <= TWIN_NS &&
				    llabs(q->end - p->end) <= TWIN_NS) {
					twin[p->node] = twin[q->node] = 1;
				}
			}
		}
	}
}

static void set_transfer(struct gb *b, uint32_t arrive, pl_ns from, pl_ns until, bool missing)
{
	struct node *t = &b->node[arrive + 1];
	pl_ns end = pl_min_i64(t->start + t->dur, until);

	t->start = pl_max_i64(b->node[arrive].start, pl_min_i64(from, end));
	t->dur = pl_max_i64(0, end - t->start);
	t->flags = (uint8_t)(missing ? t->flags | PL_NF_MISSING : t->flags & ~PL_NF_MISSING);
	b->node[arrive].flags = (uint8_t)(missing ? b->node[arrive].flags | PL_NF_MISSING
						  : b->node[arrive].flags & ~PL_NF_MISSING);
}

static int one_match(struct gb *b, uint32_t match, const uint8_t *twin, struct pl_err *err)
{
	const struct pl_match *m = &b->t->merge.match[match];
	const struct pl_member *mem = b->t->merge.member + m->first;
	struct node n = { .start = INT64_MIN,
			  .type = PL_N_RENDEZVOUS,
			  .kind = PL_K_COLLECTIVE,
			  .res = PL_NONE,
			  .name = b->s_rendezvous,
			  .group = m->group,
			  .step = -1 };
	struct attr all = { -1, -1, -1, -1, -1 };
	pl_ns until = INT64_MAX;
	uint32_t id, found = 0;
	int rc;

	for (uint32_t i = 0; i < m->n; i++) {
		uint32_t a = gb_arrival(b, &mem[i]);

		if (a == PL_NONE)
			continue;
		found++;
		n.start = pl_max_i64(n.start, b->node[a].start);
		n.name = b->node[a].name;
		n.kind = b->node[a].kind;
		all.bytes = pl_max_i64(all.bytes, b->attr[b->node[a].attr].bytes);
		if (m->flags & PL_MATCH_P2P)
			until = pl_min_i64(until, gb_end(b, a + 1));
	}
	if (found < 2) { /* nobody to wait for, or nobody recorded */
		uint32_t a = PL_NONE;

		for (uint32_t i = 0; i < m->n && a == PL_NONE; i++)
			a = gb_arrival(b, &mem[i]);
		if (a == PL_NONE)
			return 0;
		if (m->n > 1 || m->flags & PL_MATCH_MISSING)
			b->g->unmatched_comm++;
		b->node[a].group = b->node[a + 1].group = m->group;
		set_transfer(b, a, b->node[a].start, INT64_MAX,
			     m->n > 1 || m->flags & PL_MATCH_MISSING);
		return 0;
	}
	if ((rc = gb_attr(b, &all, &n.attr, err)) < 0 || (rc = gb_node(b, &n, &id, err)) < 0)
		return rc;
	if (gb_messages(b, match))
		return gb_chunks(b, match, id, err);
	for (uint32_t i = 0; i < m->n; i++) {
		uint32_t a = gb_arrival(b, &mem[i]);

		if (a == PL_NONE)
			continue;
		b->node[a].group = b->node[a + 1].group = m->group;
		if ((rc = gb_edge(b, a, id, PL_E_COMM, err)) < 0)
			return rc;
		if (gb_end(b, a + 1) + EARLY_NS < n.start) {
			/* it did not wait for the last (a buffered send, a wrong match) */
			b->g->unmatched_comm++;
			continue;
		}
		set_transfer(b, a, n.start, twin[a] ? until : INT64_MAX,
			     m->flags & PL_MATCH_MISSING);
		if ((rc = gb_edge(b, id, a + 1, PL_E_COMM, err)) < 0)
			return rc;
	}
	return 0;
}

/* Twins end when their own transfer does; operations after them must still see the recorded end, so
 * the operation's end in the lists follows its node. */
static void refresh_ends(struct gb *b)
{
	for (uint32_t r = 0; r < b->g->n_res; r++)
		for (uint32_t i = 0; i < b->ri[r].n; i++)
			if (b->ri[r].op[i].last != PL_NONE)
				b->ri[r].op[i].end = gb_end(b, b->ri[r].op[i].last);
}

int gb_comm(struct gb *b, struct pl_err *err)
{
	const struct pl_merge *m = &b->t->merge;
	uint8_t *twin;
	int rc = pl_alloc(&twin, b->n_nodes, 1, err);

	if (rc < 0)
		return rc;
	PL_TRY(copy_groups(b, err));
	for (size_t r = 0; r < b->n_ranks; r++)
		if (b->rank[r].table)
			find_twins(b, &b->rank[r], twin);
	for (uint32_t i = 0; i < m->n_matches; i++)
		if (m->match[i].first <= m->n_members &&
		    m->match[i].n <= m->n_members - m->match[i].first)
			PL_TRY(one_match(b, i, twin, err));
	refresh_ends(b);
out:
	pl_free(twin);
	return rc;
}
