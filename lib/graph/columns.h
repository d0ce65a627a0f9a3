/*
 * columns.h - the columns of a shape's nodes, listed once. File, rules, selection, folding,
 * editing, builder and views follow this list: a new column is one line here (and in
 * paceline-graph(5)).
 */
#ifndef PL_GRAPH_COLUMNS_H
#define PL_GRAPH_COLUMNS_H

#include "core/core.h"

/* The type of the values of a column decides how they are checked and printed. */
enum pl_column_values {
	PL_CV_NODE_TYPE, /* numbers of the registries of paceline-graph(5), printed as words */
	PL_CV_NODE_ROLE,
	PL_CV_KIND,
	PL_CV_FLAGS,
	PL_CV_PHASE,
	PL_CV_RESOURCE, /* numbers of rows of the graph's tables */
	PL_CV_STRING,
	PL_CV_GROUP,
	PL_CV_COMM, /* of the shape's communications */
	PL_CV_WORK,
	PL_CV_NUMBER, /* not below the value that stands for unknown */
};

/*
 * X(member, word, type, unknown, values, bit), in the order of the file. `word` is the name in text
 * and JSON, `unknown` the value that stands for unknown, `bit` announces an optional column in the
 * file (0: every shape has it). The size of the type decides the coding in the file: 1 byte is
 * stored as it is, 8 bytes are signed, 4 bytes are stored plus one, so that unknown is 0 (or 0
 * already is).
 */
#define PL_NODE_BASE_COLUMNS(X)                                                                    \
	X(type, "type", uint8_t, 0, PL_CV_NODE_TYPE, 0)                                            \
	X(role, "role", uint8_t, 0, PL_CV_NODE_ROLE, 0)                                            \
	X(kind, "kind", uint8_t, 0, PL_CV_KIND, 0)                                                 \
	X(flags, "flags", uint8_t, 0, PL_CV_FLAGS, 0)                                              \
	X(res, "resource", pl_id, PL_NONE, PL_CV_RESOURCE, 0) /* none: rendezvous */               \
	X(name, "name", pl_id, PL_NONE, PL_CV_STRING, 0)                                           \
	X(group, "group", uint32_t, PL_NONE, PL_CV_GROUP, 0)
/* NULL in a shape where no node has a value. k belongs to rendezvous. */
#define PL_NODE_OPTIONAL_COLUMNS(X)                                                                \
	X(k, "k", uint32_t, 0, PL_CV_NUMBER, 1)                                                    \
	X(bytes, "bytes", int64_t, -1, PL_CV_NUMBER, 2)                                            \
	X(mb, "mb", int32_t, -1, PL_CV_NUMBER, 4)                                                  \
	X(chunk, "chunk", int32_t, -1, PL_CV_NUMBER, 8)                                            \
	X(layer, "layer", int32_t, -1, PL_CV_NUMBER, 16)                                           \
	X(peer, "peer", int32_t, -1, PL_CV_NUMBER, 32)                                             \
	X(phase, "phase", uint8_t, 0, PL_CV_PHASE, 64)                                             \
	X(module, "module", pl_id, PL_NONE, PL_CV_STRING, 128)                                     \
	X(comm, "comm", uint32_t, PL_NONE, PL_CV_COMM, 256)                                        \
	X(work, "work", uint32_t, PL_NONE, PL_CV_WORK, 512)                                        \
	X(priority, "priority", int32_t, -1, PL_CV_NUMBER, 1024) /* 0 is the most urgent */        \
	X(line, "line", pl_id, PL_NONE, PL_CV_STRING, 2048)                                        \
	/* of a predicted duration: by how many millionths of it the real one may be shorter and   \
	 * longer, at 90 % */                                                                      \
	X(below, "below", int32_t, -1, PL_CV_NUMBER, 4096)                                         \
	X(above, "above", int32_t, -1, PL_CV_NUMBER, 8192)
#define PL_NODE_COLUMNS(X) PL_NODE_BASE_COLUMNS(X) PL_NODE_OPTIONAL_COLUMNS(X)

/* The bits of the optional columns. */
#define PL_COLUMN_BIT(member, word, type, unknown, values, bit) PL_HAS_##member = bit,
enum { PL_NODE_OPTIONAL_COLUMNS(PL_COLUMN_BIT) };
#undef PL_COLUMN_BIT

#define PL_COUNT_COLUMN(...) +1
enum { PL_N_NODE_COLUMNS = 0 PL_NODE_COLUMNS(PL_COUNT_COLUMN) };
#undef PL_COUNT_COLUMN

/* The members of a struct that holds the values of one node; and their initial values. */
#define PL_COLUMN_MEMBER(member, word, type, ...)	    type member;
#define PL_COLUMN_UNKNOWN(member, word, type, unknown, ...) .member = (type)(unknown),

struct pl_node_column {
	const char *word;
	size_t offset; /* of the array in struct pl_shape */
	size_t size;   /* of a value */
	int64_t unknown;
	uint8_t values; /* enum pl_column_values */
	unsigned bit;
};
extern const struct pl_node_column pl_graph_node_columns[PL_N_NODE_COLUMNS];

struct pl_shape;
/* The array of a column; NULL if the shape does not have it. */
void *pl_graph_shape_column(const struct pl_shape *s, const struct pl_node_column *c);
/* A value of a column; the unknown one if the shape does not have the column. */
int64_t pl_graph_shape_value(const struct pl_shape *s, const struct pl_node_column *c,
			     uint32_t node);
/* The bits of the optional columns that the shape has; and of those that hold a known value. */
unsigned pl_graph_shape_has(const struct pl_shape *s);
unsigned pl_graph_shape_known(const struct pl_shape *s);

/* Allocate the nodes in the columns that every shape has, in those of `has` and in `off`; and the
 * edges. New memory is not cleared, but off[0] is 0. After a failure the shape stays valid. */
int pl_graph_shape_room_nodes(struct pl_shape *s, unsigned has, size_t nodes,
			      struct pl_err *err) PL_MUST;
int pl_graph_shape_room_edges(struct pl_shape *s, size_t edges, struct pl_err *err) PL_MUST;
int pl_graph_shape_room(struct pl_shape *s, unsigned has, size_t nodes, size_t edges,
			struct pl_err *err) PL_MUST;
/* Frees the optional columns of these bits: their values are unknown from then on. */
void pl_graph_shape_drop_columns(struct pl_shape *s, unsigned bits);
void pl_graph_shape_fini(struct pl_shape *s); /* all zero afterwards */

/* Copy node i's columns to node map[i] (map NULL: i; PL_NONE: not) of `to`, with equal columns. */
void pl_graph_shape_copy_columns(const struct pl_shape *from, const uint32_t *map,
				 struct pl_shape *to);
/* Copy the table of communications into a shape that has none. */
int pl_graph_shape_copy_comms(const struct pl_shape *from, struct pl_shape *to,
			      struct pl_err *err) PL_MUST;
/* Make the zeroed shape `to` a copy. */
int pl_graph_shape_dup(const struct pl_shape *from, struct pl_shape *to,
		       struct pl_err *err) PL_MUST;

#endif
