/*
 * Shapes as the builder makes them: room, likeness, copies. All shapes of a graph have the same
 * columns.
 */
#include <string.h>

#include "derive/internal.h"

void gb_shape_free(struct pl_shape *s)
{
	void *p[] = { s->type,	s->role, s->kind,  s->flags, s->res,  s->name, s->group, s->k,
		      s->bytes, s->mb,	 s->chunk, s->layer, s->peer, s->off,  s->src,	 s->etype };

	for (size_t i = 0; i < PL_LEN(p); i++)
		pl_free(p[i]);
	memset(s, 0, sizeof(*s));
}

int gb_shape_alloc(struct pl_shape *s, unsigned has, size_t nodes, size_t edges, struct pl_err *err)
{
	const struct {
		void *array;
		size_t size;
		unsigned bit;
	} col[] = {
		{ &s->type, 1, 0 },  { &s->role, 1, 0 }, { &s->kind, 1, 0 },  { &s->flags, 1, 0 },
		{ &s->res, 4, 0 },   { &s->name, 4, 0 }, { &s->group, 4, 0 }, { &s->off, 4, 0 },
		{ &s->bytes, 8, 1 }, { &s->mb, 4, 2 },	 { &s->chunk, 4, 4 }, { &s->layer, 4, 8 },
		{ &s->peer, 4, 16 },
	};
	int rc;

	memset(s, 0, sizeof(*s));
	for (size_t i = 0; i < PL_LEN(col); i++)
		if ((!col[i].bit || has & col[i].bit) &&
		    (rc = gb_room(col[i].array, nodes + 1, col[i].size, err)) < 0)
			return rc;
	if ((rc = gb_room(&s->src, edges, sizeof(*s->src), err)) < 0)
		return rc;
	return gb_room(&s->etype, edges, 1, err);
}

uint64_t gb_shape_hash(const struct pl_shape *s)
{
	uint64_t h = pl_hash(s->type, s->n_nodes);

	h = h * 31 + pl_hash(s->role, s->n_nodes);
	h = h * 31 + pl_hash(s->name, s->n_nodes * sizeof(*s->name));
	h = h * 31 + pl_hash(s->res, s->n_nodes * sizeof(*s->res));
	h = h * 31 + pl_hash(s->off, (s->n_nodes + 1) * sizeof(*s->off));
	h = h * 31 + pl_hash(s->src, s->n_edges * sizeof(*s->src));
	return h * 31 + pl_hash(s->etype, s->n_edges);
}

static bool same_column(const void *a, const void *c, size_t bytes)
{
	return !bytes || !a || !memcmp(a, c, bytes); /* every shape has the same columns */
}

bool gb_shape_same(const struct pl_shape *a, const struct pl_shape *c)
{
	size_t n = a->n_nodes, m = a->n_edges;

	return n == c->n_nodes && m == c->n_edges && a->n_entries == c->n_entries &&
	       same_column(a->type, c->type, n) && same_column(a->role, c->role, n) &&
	       same_column(a->kind, c->kind, n) && same_column(a->flags, c->flags, n) &&
	       same_column(a->res, c->res, 4 * n) && same_column(a->name, c->name, 4 * n) &&
	       same_column(a->group, c->group, 4 * n) && same_column(a->bytes, c->bytes, 8 * n) &&
	       same_column(a->mb, c->mb, 4 * n) && same_column(a->chunk, c->chunk, 4 * n) &&
	       same_column(a->layer, c->layer, 4 * n) && same_column(a->peer, c->peer, 4 * n) &&
	       same_column(a->off, c->off, 4 * (n + 1)) && same_column(a->src, c->src, 4 * m) &&
	       same_column(a->etype, c->etype, m);
}

/* An exact copy of what the scratch shape holds. */
int gb_shape_dup(const struct pl_shape *a, unsigned has, struct pl_shape *s, struct pl_err *err)
{
	size_t n = a->n_nodes, m = a->n_edges;
	int rc = gb_shape_alloc(s, has, n, m, err);

	if (rc < 0)
		return rc;
	s->n_nodes = a->n_nodes;
	s->n_edges = a->n_edges;
	s->n_entries = a->n_entries;
	memcpy(s->type, a->type, n);
	memcpy(s->role, a->role, n);
	memcpy(s->kind, a->kind, n);
	memcpy(s->flags, a->flags, n);
	memcpy(s->res, a->res, 4 * n);
	memcpy(s->name, a->name, 4 * n);
	memcpy(s->group, a->group, 4 * n);
	if (a->bytes)
		memcpy(s->bytes, a->bytes, 8 * n);
	if (a->mb)
		memcpy(s->mb, a->mb, 4 * n);
	if (a->chunk)
		memcpy(s->chunk, a->chunk, 4 * n);
	if (a->layer)
		memcpy(s->layer, a->layer, 4 * n);
	if (a->peer)
		memcpy(s->peer, a->peer, 4 * n);
	memcpy(s->off, a->off, 4 * (n + 1));
	memcpy(s->src, a->src, 4 * m);
	memcpy(s->etype, a->etype, m);
	return 0;
}
