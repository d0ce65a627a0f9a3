/* program.h - declarations that the files of the program `plan` share. */
#ifndef PLAN_PROGRAM_H
#define PLAN_PROGRAM_H

#include "core/cmd.h"
#include "cost/predictor.h"
#include "inputs/inputs.h"
#include "search/search.h"

enum format {
	AS_PLAN,
	AS_TEXT,
	AS_JSON,
	AS_SETTINGS /* and those behind: one a framework */
};
enum fold { FOLD_AUTO, FOLD_NONE, FOLD_MEAN, FOLD_MEDIAN };

struct config {
	struct pl_common c; /* first */
	int to, preset, optimizer, fold;
	double minutes;
	int64_t evaluations, memory; /* -1: no limit given */
	const char *topology, *model, *device, *speeds;
	bool any, keep_ranks;
	double fuse_share; /* -1: not given */
	struct pl_list allow, forbid, step, fuse_ops, folder;
};

/* ---- input.c ---- */
/* One step that stands for those of the graph, as asked for. */
int choose_steps(const struct config *c, struct pl_graph *g, struct pl_search_noise *noise,
		 struct pl_err *err) PL_MUST;
/* The rewrites that --allow and --forbid leave. */
int choose_rewrites(const struct config *c, struct pl_search_opts *o, struct pl_err *err) PL_MUST;
/* Does --keep-ranks go with the other options? */
int check_keep_ranks(struct pl_search_opts *o, struct pl_err *err) PL_MUST;

/* ---- policies.c ---- */
/* The report of a job: which policy suits its workers. */
int plan_policies(const struct config *c, struct pl_input *input, struct pl_out *out,
		  struct pl_err *err) PL_MUST;

#endif
