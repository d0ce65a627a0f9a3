/* The critical path by operation, kind and rank. */
#include <stdlib.h>

#include "program.h"

static int32_t device_of(const struct report *r, const struct pl_shape *sh, uint32_t node)
{
	const struct pl_resource *res = sh->res[node] == PL_NONE ? NULL : &r->g.res[sh->res[node]];

	return r->devices && res && res->track_type == PL_T_STREAM ? res->device : -1;
}

static bool has_devices(const struct pl_graph *g)
{
	int32_t rank = -1, device = -1;

	for (size_t i = 0; i < g->n_res; i++) { /* those of a rank follow one another */
		if (g->res[i].track_type != PL_T_STREAM || g->res[i].device < 0)
			continue;
		if (g->res[i].rank == rank && g->res[i].device != device)
			return true;
		rank = g->res[i].rank;
		device = g->res[i].device;
	}
	return false;
}

void path_item(const struct report *r, const struct pl_path_item *p, struct path_row *row)
{
	const struct pl_shape *sh = &r->g.shape[r->g.step[p->step].shape];
	uint8_t role = sh->role[p->node];

	*row = (struct path_row){ .rank = pl_node_rank(&r->g, sh, p->node),
				  .device = -1,
				  .count = 1,
				  .ns = p->ns,
				  .longest_ns = p->ns,
				  .id = PL_NONE };
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
		row->device = device_of(r, sh, p->node);
		row->node_kind = sh->kind[p->node];
		row->id = sh->name[p->node];
		row->name = pl_intern_get(&r->g.str, row->id);
		row->kind = role == PL_RO_GAP ? "gap" : pl_trace_kind_name(row->node_kind);
	}
}

static int by_time(const void *pa, const void *pb)
{
	const struct path_row *a = pa, *b = pb;
	int c = PL_COMPARE(b->ns, a->ns);

	c = c ? c : strcmp(a->name, b->name);
	c = c ? c : strcmp(a->kind, b->kind);
	return c ? c : PL_COMPARE_FIELDS(a, b, rank, device, role);
}

int sum_path(struct report *r, struct pl_err *err)
{
	struct pl_intern keys = { 0 }; /* by row: what makes it one */
	int rc = 0;

	r->devices = has_devices(&r->g);
	for (size_t i = 0; i < r->path.n; i++) {
		struct path_row row;
		uint64_t key[4];
		pl_id id;

		path_item(r, &r->path.item[i], &row);
		key[0] = (uint64_t)row.id << 32 | (uint32_t)row.rank;
		key[1] = (uint64_t)row.role << 8 | row.node_kind;
		key[2] = row.id == PL_NONE ? r->path.item[i].part : 0;
		key[3] = (uint32_t)row.device;
		PL_TRY(pl_intern_add(&keys, (const char *)key, sizeof(key), &id, err));
		if (id < r->n_rows) {
			r->row[id].ns += row.ns;
			r->row[id].longest_ns = pl_max_i64(r->row[id].longest_ns, row.ns);
			r->row[id].count++;
			continue;
		}
		PL_TRY(pl_append(&r->row, &r->n_rows, &r->cap_rows, &row, sizeof(row), err));
	}
	for (size_t i = 0; i < r->n_rows; i++)
		r->row[i].share = (double)r->row[i].ns / (double)r->path.length;
	pl_sort(r->row, r->n_rows, sizeof(*r->row), by_time);
out:
	pl_intern_fini(&keys);
	return rc;
}
