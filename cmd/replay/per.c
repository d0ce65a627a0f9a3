/* The table of --per: time by module, layer, line, operator or phase. */
#include "program.h"

static const struct pl_column columns[] = {
	{ "path_share", "of path", PL_CELL_PERCENT, 0 },
	{ "path_ns", "on path", PL_CELL_NS, 0 },
	{ "mean_ns", "a rank", PL_CELL_NS, 0 },
	{ "least_ns", "least", PL_CELL_NS, 0 },
	{ "most_ns", "most", PL_CELL_NS, 0 },
	{ "most_rank", "rank", PL_CELL_I64, 0 },
	{ "operations", "ops", PL_CELL_I64, 0 },
	{ "key", "", PL_CELL_STR, 44 },
};

/* All with one key. Times are sums over the reported steps. */
struct per_row {
	pl_id key;
	pl_ns path, sum;
	uint64_t ops;
};
struct per {
	const struct report *r;
	enum per_key per;
	struct pl_intern keys;
	struct per_row *row;
	size_t n, cap;
	pl_ns *of_rank; /* [key][rank] */
	size_t cap_of_rank;
};

static const char *key_of(const struct per *p, const struct pl_shape *sh, uint32_t i, char *room,
			  size_t size)
{
	const struct pl_intern *str = &p->r->g.str;
	unsigned op = pl_node_operator(&p->r->g, sh, i);

	switch (p->per) {
	case PER_PHASE:
		return pl_graph_phase_name(sh->phase ? sh->phase[i] : PL_PH_UNKNOWN);
	case PER_OPERATOR:
		return op ? pl_graph_operator_name(op) : pl_intern_get(str, sh->name[i]);
	case PER_LAYER:
		if (!sh->layer || sh->layer[i] < 0)
			return "-";
		snprintf(room, size, "layer %d", sh->layer[i]);
		return room;
	case PER_MODULE:
		return sh->module && sh->module[i] != PL_NONE ? pl_intern_get(str, sh->module[i])
							      : "-";
	default:
		return sh->line && sh->line[i] != PL_NONE
			       ? pl_verdict_line(pl_intern_get(str, sh->line[i]), room, size)
			       : "-";
	}
}

static int find_row(struct per *p, const struct pl_shape *sh, uint32_t i, struct per_row **row,
		    struct pl_err *err)
{
	size_t ranks = (size_t)p->r->g.n_ranks;
	struct per_row x = { 0 };
	char room[160];
	const char *key = key_of(p, sh, i, room, sizeof(room));

	PL_CHECK(pl_intern_add(&p->keys, key, strlen(key), &x.key, err));
	if (x.key == p->n) {
		PL_CHECK(pl_append(&p->row, &p->n, &p->cap, &x, sizeof(x), err));
		PL_CHECK(pl_grow(&p->of_rank, &p->cap_of_rank, p->n * ranks, sizeof(*p->of_rank),
				 err));
		memset(p->of_rank + (p->n - 1) * ranks, 0, ranks * sizeof(*p->of_rank));
	}
	*row = &p->row[x.key];
	return 0;
}

static int add_nodes(struct per *p, struct pl_err *err)
{
	/* the roles whose time is that of the operation: a bit each */
	const unsigned counts = 1u << PL_RO_COMPUTE | 1u << PL_RO_HOST | 1u << PL_RO_GAP |
				1u << PL_RO_COPY | 1u << PL_RO_TRANSFER | 1u << PL_RO_SYNC;
	const struct report *r = p->r;

	for (size_t k = 0; k < r->g.n_steps; k++) {
		const struct pl_shape *sh = &r->g.shape[r->g.step[k].shape];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes && pl_sim_reported(r->s, k); i++) {
			uint32_t rank = pl_graph_rank_index(&r->g, pl_node_rank(&r->g, sh, i));
			struct per_row *row;
			pl_ns ns;

			if (!(counts >> sh->role[i] & 1) || rank == PL_NONE)
				continue;
			PL_CHECK(find_row(p, sh, i, &row, err));
			ns = pl_sim_run_dur(r->s, &r->run, k, i);
			row->sum += ns;
			row->ops++;
			p->of_rank[row->key * (size_t)r->g.n_ranks + rank] += ns;
		}
	}
	return 0;
}

static int add_path(struct per *p, struct pl_err *err)
{
	for (size_t i = 0; i < p->r->path.n; i++) {
		const struct pl_path_item *q = &p->r->path.item[i];
		struct per_row *row;

		if (q->part != PL_PP_NODE)
			continue;
		PL_CHECK(find_row(p, &p->r->g.shape[p->r->g.step[q->step].shape], q->node, &row,
				  err));
		row->path += q->ns;
	}
	return 0;
}

PL_COMPARATOR_FALLING(by_path, struct per_row, path, key);

static void put_row(const struct per *p, const struct per_row *x, struct pl_table *t)
{
	pl_ns steps = (pl_ns)p->r->n_steps, ranks = p->r->g.n_ranks;
	const pl_ns *v = p->of_rank + x->key * (size_t)ranks;
	pl_ns least = v[0], most = v[0];
	int32_t rank = 0;

	for (int32_t i = 1; i < ranks; i++) {
		least = pl_min_i64(least, v[i]);
		if (v[i] <= most)
			continue;
		most = v[i];
		rank = i;
	}
	pl_table_row(t, p->r->path.length ? (double)x->path / (double)p->r->path.length : 0.0,
		     x->path / steps, x->sum / steps / ranks, least / steps, most / steps,
		     (int64_t)p->r->g.rank[rank], (int64_t)x->ops, pl_intern_get(&p->keys, x->key));
}

/* A table with nothing but "-" does not say what would fill it. */
static void say_unknown(const struct config *c, const struct per *p)
{
	static const char *const missing[] = {
		[PER_MODULE] = "a module: record with with_stack=True (PyTorch), or in ranges of "
			       "record_function()",
		[PER_LAYER] = "a layer: record in ranges whose names have its number",
		[PER_LINE] = "a line of the program: record with with_stack=True (PyTorch)",
	};

	if (p->n == 1 && p->per < (enum per_key)PL_LEN(missing) && missing[p->per] &&
	    !strcmp(pl_intern_get(&p->keys, p->row[0].key), "-"))
		pl_say(&c->c.log, PL_LOG_WARN, "no operation of this recording has %s",
		       missing[p->per]);
}

int print_per(const struct config *c, const struct report *r, struct pl_out *out,
	      struct pl_err *err)
{
	struct pl_table t = PL_TABLE(columns);
	struct per p = { .r = r, .per = (enum per_key)c->per };
	size_t most = c->to == AS_TEXT && c->top > 0 ? (size_t)c->top : SIZE_MAX;
	int rc;

	PL_TRY(add_nodes(&p, err));
	PL_TRY(add_path(&p, err));
	pl_sort(p.row, p.n, sizeof(*p.row), by_path);
	for (size_t i = 0; i < p.n && i < most; i++)
		put_row(&p, &p.row[i], &t);
	rc = print_table(c, &t, p.n, out, err);
	say_unknown(c, &p);
out:
	pl_table_fini(&t);
	pl_intern_fini(&p.keys);
	pl_free(p.row);
	pl_free(p.of_rank);
	return rc;
}
