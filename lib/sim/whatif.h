/* whatif.h - a parsed statement of what-if; private to lib/sim/whatif*.c. */
#ifndef PL_SIM_WHATIF_H
#define PL_SIM_WHATIF_H

#include "lang/lang.h"
#include "sim/internal.h"
#include "sim/straggler_typical.h"

enum verb { V_SCALE, V_REMOVE, V_SET, V_FIX, V_BANDWIDTH, V_LATENCY, V_RANKS, VERBS };
enum key {
	KEY_KIND,
	KEY_NAME,
	KEY_HOST,
	KEY_RANK, /* this and what follows are numbers */
	KEY_STAGE,
	KEY_DP,
	KEY_STEP,
	KEY_SIZE,
	KEY_LAYER,
	KEY_MB,
	KEYS,
};

struct pick {
	char *text; /* the glob; of numbers cut into the ranges. NULL: any */
	struct pl_lang_range *range;
	size_t n;
};

struct pl_change {
	enum verb verb;
	char *text;		/* as it was given */
	struct pick pick[KEYS]; /* all NULL of the verbs that concern communication */
	float factor;		/* scale */
	double by;		/* bandwidth, latency by */
	pl_ns to;		/* set, latency to; -1: by */
	enum typical_how how;	/* fix */
	char *link;		/* NULL: all */
	uint32_t ranks;
};

static inline bool verb_on_network(enum verb v)
{
	return v >= V_BANDWIDTH;
}

/* Does the key say nothing of the number, or match it? */
bool pl_sim_pick_number(const struct pick *p, int64_t v);

/* ---- what statements need to know of the whole graph ------------------------------------------
 */

struct pl_whatif_model {
	size_t n;			      /* statements that it is good for */
	struct typical typical[TYPICAL_HOWS]; /* those that are asked for; empty otherwise */
	uint32_t **class; /* [shape][node]: of communication, PL_NONE; or NULL */
	size_t n_shapes, n_classes;
	bool guessed;  /* which of them are data-parallel */
	double *ratio; /* [statement][class]: of the transfer, NAN: not selected */
};

#endif
