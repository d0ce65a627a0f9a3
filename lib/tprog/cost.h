/*
 * cost.h - how long tensor programs take, learned from programs that were measured.
 *
 * What is learned is the time for one unit of work, so that programs may be larger than those that
 * were measured. Trees see a program as one vector: that of the leaf that takes longest, and sums
 * over all leaves. The network is that of CDMPP (EuroSys 2024): an encoder over the sequence of
 * leaves, each with its place in the tree, and layers that make one number of all.
 *
 * Predictions are calibrated, each operation for itself, by the errors of models that have not seen
 * the network which a program is a part of: the prediction moves towards the one with the least
 * mean of |predicted / measured - 1|, the less the fewer networks show it, and the interval is the
 * middle 90 % of the errors. That is not split conformal prediction, whose calibration no training
 * sees, and has no guarantee: --cross says how many of the intervals hold.
 */
#ifndef PL_TPROG_COST_H
#define PL_TPROG_COST_H

#include "learn/boost.h"
#include "tprog/tprog.h"

#define PL_TPROG_SUMS	 31
#define PL_TPROG_COLUMNS (PL_TPROG_FEATURES + PL_TPROG_SUMS)

struct pl_tprog_row {			  /* a program on a device */
	pl_id program, model, op, device; /* into set.names */
	double ns;			  /* median; NAN: not measured */
	double work;			  /* operations and stores, in all iterations */
	float x[PL_TPROG_COLUMNS];
	uint32_t leaf, n_leaves; /* into set.leaf */
};
struct pl_tprog_set { /* zero-initialised is empty */
	struct pl_intern names;
	struct pl_tprog_row *v;
	struct pl_tprog_leaf *leaf;
	size_t n, cap, n_leaves, cap_leaves;
};
void pl_tprog_set_fini(struct pl_tprog_set *s);
/* A row for each measurement of the program; `once`: one row, without a time. */
int pl_tprog_set_add(struct pl_tprog_set *s, const struct pl_tprog *p, bool once,
		     struct pl_err *err) PL_MUST;
/* All programs of a file. */
int pl_tprog_set_read(struct pl_tprog_set *s, struct pl_in *in, bool once,
		      struct pl_err *err) PL_MUST;

/* TREES and NET: the network, and the mean of both. NEAREST: the program whose vector is nearest.
 * WORK: all programs take as long for a unit of work. The last two are not kept in files. */
#define PL_TPROG_LEARNERS(s) "trees" s "net" s "both" s "nearest" s "work"
enum pl_tprog_learner {
	PL_TPROG_TREES,
	PL_TPROG_NET,
	PL_TPROG_BOTH,
	PL_TPROG_NEAREST,
	PL_TPROG_WORK
};
struct pl_tprog_settings {	  /* of the network */
	int layers, heads, width; /* blocks, heads of attention, numbers of a leaf */
	int latent;		  /* numbers of the vector that stands for a program */
	int batch;		  /* programs of a step of training */
	double rate;		  /* of learning, the greatest */
	double relative;	  /* weight of the relative error in the loss */
	double power;		  /* of Box and Cox; NAN: the most likely one */
};
extern const struct pl_tprog_settings pl_tprog_usual;
/* "layers=2 heads=4 ..." */
#define PL_TPROG_SETTINGS_TEXT 192
void pl_tprog_settings_text(const struct pl_tprog_settings *s, char *out, size_t size);
struct pl_tprog_fit_opts {
	enum pl_tprog_learner learner;
	const struct pl_tprog_settings *settings; /* NULL: the usual ones */
	double share;				  /* of the usual epochs of the network; 0: all */
	bool intervals; /* calibrate predictions and intervals: some fits more */
	uint64_t seed;
	int threads; /* of the network; 0: 1 */
	struct pl_pool *pool;
};
/* Settings that were tried, and their errors on models that were left out. */
#define PL_TPROG_RUNGS 3
struct pl_tprog_trial {
	struct pl_tprog_settings settings;
	int rungs; /* that it took part in */
	double error[PL_TPROG_RUNGS];
};
/* Try n settings, the first of them the usual ones. trial: (n), filled; *best: the one with the
 * least error of those that took part in all rungs. The same seed gives the same trials for any
 * number of threads. PL_EDATA as in pl_tprog_fit(), and if there is one model only. */
int pl_tprog_tune(const struct pl_tprog_set *s, const struct pl_tprog_fit_opts *o,
		  struct pl_tprog_trial *trial, size_t n, size_t *best, struct pl_err *err) PL_MUST;
struct pl_tprog_time {
	double ns, lo_ns, hi_ns; /* the last two NAN: the model has no intervals */
	bool inside;		 /* all entries of its vector are in the range of those measured */
};
struct pl_tprog_model; /* opaque */

/* From all rows, which must be measured. PL_EDATA: there are none, or they are of several
 * devices. */
int pl_tprog_fit(const struct pl_tprog_set *s, const struct pl_tprog_fit_opts *o,
		 struct pl_tprog_model **m, struct pl_err *err) PL_MUST;
void pl_tprog_model_free(struct pl_tprog_model *m); /* NULL is fine */
const char *pl_tprog_model_device(const struct pl_tprog_model *m);
/* So many errors show their middle 90 %. */
#define PL_TPROG_INTERVALS 19
/* t: (s->n); of a model that was calibrated with fewer errors than INTERVALS, without intervals.
 * The network has room for one batch, so one thread at a time may use the model. */
int pl_tprog_apply(struct pl_tprog_model *m, const struct pl_tprog_set *s, struct pl_tprog_time *t,
		   struct pl_err *err) PL_MUST;
/*
 * Learn from a few programs by how much their times differ from those predicted, on another device
 * or of another network: by how much all do and each operation does. Then the network learns on
 * from them; meanwhile the central moments of the latent vectors of the target's programs are held
 * to those of the programs that it learned from (learn/moments.h). From ADAPT_TREES programs on,
 * further trees learn what those of the model have left. The programs are left out of it in turn,
 * and the errors on them widen the intervals. With fewer than INTERVALS programs these may
 * hold less than nine of ten.
 */
#define PL_TPROG_ADAPT_TREES 50
struct pl_tprog_adapt_opts {
	const struct pl_tprog_set *target; /* its programs, whether measured or not; NULL: only s */
	double discrepancy;		   /* weight of that of the moments; 0: they may move */
	uint64_t seed;
	struct pl_pool *pool;
};
int pl_tprog_adapt(struct pl_tprog_model *m, const struct pl_tprog_set *s,
		   const struct pl_tprog_adapt_opts *o, struct pl_err *err) PL_MUST;
/* How unlike the latent vectors of the programs are to those of the programs that the network
 * learned from, by their moments; NAN: the model has no network. */
int pl_tprog_discrepancy(struct pl_tprog_model *m, const struct pl_tprog_set *s, double *d,
			 struct pl_err *err) PL_MUST;
/* t[i]: row i, by a model that has seen no row of its group; of more than ten groups, some are left
 * out together. With o->intervals each model is calibrated: some of its own groups are left out,
 * which takes five more fits. A model of one group gives no interval.
 * PL_EDATA: there is one group only. */
int pl_tprog_cross(const struct pl_tprog_set *s, const pl_id *group,
		   const struct pl_tprog_fit_opts *o, struct pl_tprog_time *t,
		   struct pl_err *err) PL_MUST;
/* n programs whose vectors stand for those of all, to be measured on another device: the nearest
 * ones to the n centres of KMeans (Lloyd, 1982; begun as KMeans++). chosen: (n), ascending. */
int pl_tprog_choose(const struct pl_tprog_set *s, size_t n, uint64_t seed, size_t *chosen,
		    struct pl_err *err) PL_MUST;

#define PL_TPROG_MODEL_MAJOR 1
/* paceline-costmodel(5): blocks of its own in place of the parts of operations. */
int pl_tprog_model_write(const struct pl_tprog_model *m, const char *provenance, struct pl_out *out,
			 int level, struct pl_err *err) PL_MUST;
/* Is the file such a model? Consumes nothing. False for what is none, or cannot be read. */
bool pl_tprog_model_is(struct pl_in *in);
int pl_tprog_model_read(struct pl_in *in, struct pl_tprog_model **m, struct pl_err *err) PL_MUST;
/* What it was made from, and which entries of the vectors matter to its trees, as text. */
void pl_tprog_explain(const struct pl_tprog_model *m, struct pl_writer *w);
/* The same of one row whose time pl_tprog_apply() has found: which entries of its vector make its
 * trees say so. A network does not say. */
void pl_tprog_explain_row(const struct pl_tprog_model *m, const struct pl_tprog_set *s, size_t row,
			  const struct pl_tprog_time *t, struct pl_writer *w);

#endif
