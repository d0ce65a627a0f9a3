/* file.h - the numbers of paceline-graph(5) that writer and reader share. Private to the module. */
#ifndef PL_GRAPH_FILE_H
#define PL_GRAPH_FILE_H

#include "graph/graph.h"
#include "io/record.h"

#define BLOCK_VERSION 1
#define BLOCK_ROWS    65536
#define BLOCK_EDGES   (1u << 20)   /* a block ends early when it would have more */
#define ROWS_A_BYTE   8		   /* most rows, and most edges, for each byte of a payload */
#define STRING_BYTES  (256u << 10) /* a block of strings ends after this */

#define B_GRPH PL_FOURCC('G', 'R', 'P', 'H')
#define B_STRS PL_FOURCC('S', 'T', 'R', 'S')
#define B_RSRC PL_FOURCC('R', 'S', 'R', 'C')
#define B_GRUP PL_FOURCC('G', 'R', 'U', 'P')
#define B_LINK PL_FOURCC('L', 'I', 'N', 'K')
#define B_WORK PL_FOURCC('W', 'O', 'R', 'K')
#define B_SHAP PL_FOURCC('S', 'H', 'A', 'P')
#define B_COMM PL_FOURCC('C', 'O', 'M', 'M')
#define B_NODE PL_FOURCC('N', 'O', 'D', 'E')
#define B_TNSR PL_FOURCC('T', 'N', 'S', 'R')
#define B_STEP PL_FOURCC('S', 'T', 'E', 'P')
#define B_TIME PL_FOURCC('T', 'I', 'M', 'E')
#define B_TOTL PL_FOURCC('T', 'O', 'T', 'L')

#define G_STEPLESS  1u
#define G_DESCRIBED 2u

/* Columns from this bit on came with minor version 1: they stand behind the edges. */
#define LATER_COLUMNS PL_HAS_phase

/* Rows of the graph's tables. Members of a group and consumers of a tensor are separate lists. */
extern const struct pl_record pl_graph_record_resource, pl_graph_record_group, pl_graph_record_link,
	pl_graph_record_work, pl_graph_record_comm, pl_graph_record_tensor;

#endif
