/* The critical path by operation, kind and rank: a hash table over its items. */
#include <stdlib.h>
#include <string.h>

#include "program.h"

void path_item(const struct report *r, const struct pl_path_item *p, struct path_row *row)
{
	const struct pl_shape *sh = &r->g.shape[r->g.step[p->step].shape];
	uint8_t role = sh->role[p->node];

	*row = (struct path_row){
		.rank = pl_node_rank(&r->g, sh, p->node), .count = 1, .ns = p->ns, .id = PL_NONE
	};
	switch (p->part) {
	case PL_PP_LATENCY:
		row->name = "launch and dispatch latency";
		row->kind = "latency";
		return;
	case PL_PP_UNEXPLAINED:
		row->name = row->kind = "unexplained";
		return;
	case PL_PP_LATE:
		row->name = "step begins later than on other ranks";
		row->kind = "late";
		return;
	default:
		row->role = role;
		row->node_kind = sh->kind[p->node];
		row->id = sh->name[p->node];
		row->name = pl_intern_get(&r->g.str, row->id);
		row->kind = role == PL_RO_GAP ? "gap" : pl_trace_kind_name(row->node_kind);
	}
}

static bool same(const struct path_row *a, const struct path_row *b)
{
	return a->rank == b->rank && a->id == b->id && a->role == b->role &&
	       a->node_kind == b->node_kind && !strcmp(a->kind, b->kind);
}

static int by_time(const void *pa, const void *pb)
{
	const struct path_row *a = pa, *b = pb;
	int c;

	if (a->ns != b->ns)
		return a->ns > b->ns ? -1 : 1;
	c = strcmp(a->name, b->name);
	if (!c)
		c = strcmp(a->kind, b->kind);
	if (!c)
		c = (a->rank > b->rank) - (a->rank < b->rank);
	return c ? c : (a->role > b->role) - (a->role < b->role);
}

struct sums {
	uint32_t *slot; /* row + 1 */
	size_t mask;
};

static size_t place(const struct sums *x, const struct report *r, const struct path_row *row)
{
	uint64_t key[2] = { (uint64_t)row->id << 32 | (uint32_t)row->rank,
			    (uint64_t)row->role << 16 | (uint64_t)row->node_kind << 8 |
				    (uint8_t)row->kind[0] };
	size_t at = pl_hash(key, sizeof(key)) & x->mask;

	while (x->slot[at] && !same(&r->row[x->slot[at] - 1], row))
		at = (at + 1) & x->mask;
	return at;
}

static int enlarge(struct sums *x, const struct report *r, struct pl_err *err)
{
	size_t size = x->mask ? 2 * (x->mask + 1) : 1024;
	struct sums y = { .mask = size - 1 };
	int rc = pl_alloc(&y.slot, size, sizeof(*y.slot), err);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < r->n_rows; i++)
		y.slot[place(&y, r, &r->row[i])] = i + 1;
	pl_free(x->slot);
	*x = y;
	return 0;
}

int sum_path(struct report *r, struct pl_err *err)
{
	struct sums x = { 0 };
	int rc = 0;

	for (size_t i = 0; i < r->path.n; i++) {
		struct path_row row;
		size_t at;

		path_item(r, &r->path.item[i], &row);
		if (2 * r->n_rows >= x.mask)
			PL_TRY(enlarge(&x, r, err));
		at = place(&x, r, &row);
		if (x.slot[at]) {
			r->row[x.slot[at] - 1].ns += row.ns;
			r->row[x.slot[at] - 1].count++;
			continue;
		}
		PL_TRY(pl_grow(&r->row, &r->cap_rows, r->n_rows + 1, sizeof(*r->row), err));
		r->row[r->n_rows++] = row;
		x.slot[at] = (uint32_t)r->n_rows;
	}
	for (size_t i = 0; i < r->n_rows; i++)
		r->row[i].share = (double)r->row[i].ns / (double)r->path.length;
	if (r->n_rows)
		qsort(r->row, r->n_rows, sizeof(*r->row), by_time);
out:
	pl_free(x.slot);
	return rc;
}
