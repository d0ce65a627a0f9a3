/*
 * Functions on the columns of shapes: allocation, copies, comparison. All of them walk the table of
 * columns.h, column after column, because the values of a column are consecutive in memory.
 */
#include <stddef.h>

#include "graph/graph.h"

#define COLUMN(member, word, type, unknown, values, bit)                                           \
	{ word, offsetof(struct pl_shape, member), sizeof(type), (type)(unknown), values, bit },
const struct pl_node_column pl_graph_node_columns[PL_N_NODE_COLUMNS] = { PL_NODE_COLUMNS(COLUMN) };

void *pl_graph_shape_column(const struct pl_shape *s, const struct pl_node_column *c)
{
	void *p;

	memcpy(&p, (const char *)s + c->offset, sizeof(p));
	return p;
}

static void set_column(struct pl_shape *s, const struct pl_node_column *c, void *p)
{
	memcpy((char *)s + c->offset, &p, sizeof(p));
}

static int64_t value_at(const struct pl_node_column *c, const void *column, size_t i)
{
	switch (c->size) {
	case 1:
		return ((const uint8_t *)column)[i];
	case 8:
		return ((const int64_t *)column)[i];
	default:
		if (c->unknown < 0)
			return ((const int32_t *)column)[i];
		return ((const uint32_t *)column)[i];
	}
}

int64_t pl_graph_shape_value(const struct pl_shape *s, const struct pl_node_column *c,
			     uint32_t node)
{
	const void *p = pl_graph_shape_column(s, c);

	return p ? value_at(c, p, node) : c->unknown;
}

unsigned pl_graph_shape_has(const struct pl_shape *s)
{
	unsigned has = 0;

	for (size_t i = 0; i < PL_N_NODE_COLUMNS; i++)
		if (pl_graph_shape_column(s, &pl_graph_node_columns[i]))
			has |= pl_graph_node_columns[i].bit;
	return has;
}

unsigned pl_graph_shape_known(const struct pl_shape *s)
{
	unsigned has = pl_graph_shape_has(s), known = 0;

	for (size_t i = 0; i < PL_N_NODE_COLUMNS; i++) {
		const struct pl_node_column *c = &pl_graph_node_columns[i];
		const void *p = pl_graph_shape_column(s, c);

		for (uint32_t n = 0; n < s->n_nodes && has & c->bit & ~known; n++)
			if (value_at(c, p, n) != c->unknown)
				known |= c->bit;
	}
	return known;
}

static int resize(void **p, size_t n, size_t size, struct pl_err *err)
{
	void *q = n > SIZE_MAX / size - 1 ? NULL : pl_realloc(*p, (n + 1) * size);

	if (!q)
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu x %zu bytes)", n, size);
	*p = q;
	return 0;
}

int pl_graph_shape_room_nodes(struct pl_shape *s, unsigned has, size_t nodes, struct pl_err *err)
{
	void *p = s->off;

	PL_CHECK(resize(&p, nodes, sizeof(*s->off), err));
	s->off = p;
	s->off[0] = 0;
	for (size_t i = 0; i < PL_N_NODE_COLUMNS; i++) {
		const struct pl_node_column *c = &pl_graph_node_columns[i];

		if (c->bit && !(has & c->bit))
			continue;
		p = pl_graph_shape_column(s, c);
		PL_CHECK(resize(&p, nodes, c->size, err));
		set_column(s, c, p);
	}
	return 0;
}

int pl_graph_shape_room_edges(struct pl_shape *s, size_t edges, struct pl_err *err)
{
	void *src = s->src, *type = s->etype;
	int rc;

	PL_CHECK(resize(&src, edges, sizeof(*s->src), err));
	s->src = src;
	rc = resize(&type, edges, sizeof(*s->etype), err);
	s->etype = type;
	return rc;
}

int pl_graph_shape_room(struct pl_shape *s, unsigned has, size_t nodes, size_t edges,
			struct pl_err *err)
{
	PL_CHECK(pl_graph_shape_room_nodes(s, has, nodes, err));
	return pl_graph_shape_room_edges(s, edges, err);
}

void pl_graph_shape_drop_columns(struct pl_shape *s, unsigned bits)
{
	for (size_t i = 0; i < PL_N_NODE_COLUMNS; i++) {
		const struct pl_node_column *c = &pl_graph_node_columns[i];

		if (!(c->bit & bits))
			continue;
		pl_free(pl_graph_shape_column(s, c));
		set_column(s, c, NULL);
	}
}

void pl_graph_shape_fini(struct pl_shape *s)
{
	for (size_t i = 0; i < PL_N_NODE_COLUMNS; i++)
		pl_free(pl_graph_shape_column(s, &pl_graph_node_columns[i]));
	pl_free(s->off);
	pl_free(s->src);
	pl_free(s->etype);
	pl_free(s->comms);
	memset(s, 0, sizeof(*s));
}

#define COPY(type)                                                                                 \
	for (uint32_t i = 0; i < n; i++)                                                           \
		if (map[i] != PL_NONE)                                                             \
			((type *)to)[map[i]] = ((const type *)from)[i];

static void copy_column(size_t size, const void *from, const uint32_t *map, uint32_t n, void *to)
{
	if (size == 1) {
		COPY(uint8_t)
	} else if (size == 8) {
		COPY(uint64_t)
	} else {
		COPY(uint32_t)
	}
}

void pl_graph_shape_copy_columns(const struct pl_shape *from, const uint32_t *map,
				 struct pl_shape *to)
{
	for (size_t i = 0; i < PL_N_NODE_COLUMNS; i++) {
		const struct pl_node_column *c = &pl_graph_node_columns[i];
		const void *p = pl_graph_shape_column(from, c);

		if (p && map)
			copy_column(c->size, p, map, from->n_nodes, pl_graph_shape_column(to, c));
		else if (p)
			memcpy(pl_graph_shape_column(to, c), p, from->n_nodes * c->size);
	}
}

int pl_graph_shape_copy_comms(const struct pl_shape *from, struct pl_shape *to, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&to->comms, from->n_comms, sizeof(*to->comms), err));
	if (from->n_comms)
		memcpy(to->comms, from->comms, from->n_comms * sizeof(*to->comms));
	to->n_comms = from->n_comms;
	return 0;
}

int pl_graph_shape_dup(const struct pl_shape *from, struct pl_shape *to, struct pl_err *err)
{
	PL_CHECK(pl_graph_shape_room(to, pl_graph_shape_has(from), from->n_nodes, from->n_edges,
				     err));
	to->n_nodes = from->n_nodes;
	to->n_edges = from->n_edges;
	to->n_entries = from->n_entries;
	pl_graph_shape_copy_columns(from, NULL, to);
	memcpy(to->off, from->off, (from->n_nodes + (size_t)1) * sizeof(*to->off));
	if (from->n_edges) {
		memcpy(to->src, from->src, from->n_edges * sizeof(*to->src));
		memcpy(to->etype, from->etype, from->n_edges * sizeof(*to->etype));
	}
	return pl_graph_shape_copy_comms(from, to, err);
}
