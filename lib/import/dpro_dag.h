/* dpro_dag.h - the graph of a model's operators that lies beside the traces of dPRO: dag.gml. */
#ifndef PL_DPRO_DAG_H
#define PL_DPRO_DAG_H

#include "import/internal.h"

struct pl_dpro_dag;

/*
 * The graph in the folder of this trace, or of a worker below it (all workers train one model).
 * NULL: there is none, or (with err->code) a failure. A file that is no graph is reported and left
 * out.
 */
struct pl_dpro_dag *pl_import_dpro_dag(const char *trace, struct pl_report *r, struct pl_err *err);
/* The graph in the n bytes of such a file. NULL: it has no edges, or (with err->code) a failure. */
struct pl_dpro_dag *pl_import_dpro_dag_parse(const char *text, size_t n, struct pl_err *err);
void pl_import_dpro_dag_free(struct pl_dpro_dag *d); /* NULL is allowed */
/* An operator that the one with this label comes after, from *at on, which is 0 at first and moves
 * to the next one; NULL: there are no more. */
const char *pl_import_dpro_before(const struct pl_dpro_dag *d, const char *label, size_t n,
				  size_t *at);

#endif
