/*
 * selftest.h - the self-test of a graph: what speaks against predictions that are made from it.
 *
 * A graph that replays without an error can still be wrong about causes. Two things show this
 * without another recording. First, durations are changed: a step that gets longer when operations
 * are removed, or shorter when they grow, is a *contradiction*. In a graph whose ranks wait for one
 * another only small differences of this kind can occur, where steps of several ranks overlap.
 * Second, a part of the critical path may be *doubtful*: time without a known cause, time in which
 * a thread was idle, and communication without a partner.
 */
#ifndef PL_SELFTEST_H
#define PL_SELFTEST_H

#include "sim/sim.h"

/* A step may change in the wrong direction by this share, because steps of ranks overlap. */
#define PL_SELFTEST_MARGIN 0.02

/* What paths and ranks of a graph are judged by. It borrows the graph. */
struct pl_selftest;
int pl_selftest_new(const struct pl_graph *g, struct pl_selftest **out, struct pl_err *err) PL_MUST;
void pl_selftest_free(struct pl_selftest *t);

/* One test: the operations that `keys` selects take `factor` times as long. */
struct pl_selftest_try {
	const char *what; /* the change in words: "remove kind=comm" */
	struct pl_selector keys;
	float factor;
	double mean; /* out: the mean step, ns */
};
/* Set `mean` of all tests. */
int pl_selftest_run(const struct pl_sim *s, struct pl_selftest_try *v, size_t n,
		    struct pl_err *err) PL_MUST;
/* Does a mean step that was `before` and is `after` contradict the factor? */
bool pl_selftest_contradicts(float factor, double before, double after);
/* The tests of every graph: communication, computation and gaps, removed and doubled; of a small
 * graph also its phases. Returns how many of `most` were filled in. */
size_t pl_selftest_usual(const struct pl_graph *g, struct pl_selftest_try *v, size_t most);

/* The doubtful parts of a critical path, ns. */
struct pl_selftest_path {
	pl_ns length;
	pl_ns unexplained; /* time that no modelled predecessor explains */
	pl_ns idle; /* long gaps of a thread that begins no step: the thread may have waited */
	pl_ns unrecorded; /* long gaps of a thread that begins steps: work or waits of the program
			   */
	pl_ns alone;	/* communication without a partner: it includes the wait for the partner */
	pl_ns inferred; /* operations that were not in the input */
	pl_ns assumed;	/* launches that nobody recorded, by a host of which nothing is known */
	pl_ns waiting;	/* operations of a thread that end with communication of another one */
	pl_ns slow; /* sends and receives beyond three times what others of the same name take */
	pl_ns host_comm; /* not doubtful: communication that threads carry out, not devices */
	pl_ns host_work; /* likewise: operations of threads */
};
/* A gap is long if an interpreter needs less time between two operations: a millisecond. */
void pl_selftest_path(const struct pl_selftest *t, const struct pl_path *p,
		      struct pl_selftest_path *out);

/*
 * How far predictions err whose graph is right, for 90 of 100 changes that were really made, as
 * shares: of the step; of the time of threads, which differs from one run to the next; of the
 * change; and of the communication of threads that a change takes away, because it also took time
 * from computation. The likelihood of the errors of every second kind of job of bench/jobs
 * (PyTorch on hosts, over gloo) is greatest near these values.
 */
#define PL_SELFTEST_MODEL     0.01
#define PL_SELFTEST_HOST      0.02
#define PL_SELFTEST_CHANGE    0.06
#define PL_SELFTEST_HOST_COMM 0.4
/* Of a change of how the same bytes are carried (buckets, order, algorithms), where devices or
 * threads carry them: the model of cost errs more than a change of durations. 15 plans of buckets
 * for jobs over gloo were carried out. The plan for a job with a slow link saved 0.9 times the
 * predicted time. The other plans saved 0.24 times the predicted time in the mean, and between -0.7
 * and 1.0 times: threads that carry more at a time take more from computation, because all
 * processors are busy. So a saving below 5 % of the step is not proposed there. */
#define PL_SELFTEST_CARRIED_BY_DEVICES 0.16
#define PL_SELFTEST_CARRIED_BY_HOSTS   0.98
/* How much less than predicted a change may save that makes other groups of sharded parameters, or
 * lets threads carry communication beside computation. 23 such changes of two jobs over gloo were
 * carried out. They saved between 0.56 and 1.08 times the predicted time, in the mean 0.8 times,
 * when predictions left out what computation loses beside that communication. Six of them were
 * predicted again with it: they saved 0.9 to 1.07 times the predicted time. */
#define PL_SELFTEST_LESS_BY_HOSTS 0.4
/* What a change saves differs between the steps of a recording: the standard deviation as a share
 * of the mean was 0.01 to 0.2 where one process had its processor for itself, and 0.1 to 2 where
 * ranks shared processors. This is assumed where one step says nothing about it. */
#define PL_SELFTEST_SCATTER 0.25
/* If a share of something is unknown, each share is as likely: 95 of 100 are below this one. */
#define PL_SELFTEST_UNKNOWN_SHARE 0.95
/* Half of the 90 % interval of the mean of n values with this standard deviation, by Student's
 * distribution; 0 of one value. */
double pl_selftest_half(double deviation, size_t n);
/* The same of the difference of two means, of n_a and n_b values with the standard deviations a and
 * b (Welch's approximation); NAN where one of them is of one value. */
double pl_selftest_half_difference(double a, size_t n_a, double b, size_t n_b);
#define PL_SELFTEST_NORMAL                                                                         \
	1.645 /* standard deviations: the half for many values, times sqrt(n)                      \
	       */

/*
 * How many times as long as usual equal operations of threads take, in the median step: the slowest
 * of them that together take a tenth of the time. Usual is the fastest quarter, because most of
 * them may be slow. Weighted by time, because a thread that loses its processor loses milliseconds
 * in few of many short operations; the median step, because some operations take long once. 1:
 * nothing can be compared.
 */
#define PL_SELFTEST_SLOWEST 0.1
/* So many times as long takes nothing that keeps its processor: caches, clock rates and a second
 * thread of the processor make less than this. */
#define PL_SELFTEST_UNLIKE 3
/* Also into *v, which the caller frees with pl_free(), also after a failure: the operations of
 * threads that took so many times as long as usual in any step, and what they usually take. A node
 * of a shape of several steps can be in it several times, with the same time. Of a large graph a
 * part of the nodes is looked at. */
int pl_selftest_scatter(const struct pl_graph *g, double *times, struct pl_node_time **v, size_t *n,
			struct pl_err *err) PL_MUST;

/* How the ranks of a graph depend on one another. */
struct pl_selftest_ranks {
	/* of each member, in all steps: communications; sends and receives among them */
	uint64_t comms, p2p;
	uint64_t comms_alone, p2p_alone; /* those without a partner */
	bool joined;			 /* some rank waits for another one */
};
void pl_selftest_ranks(const struct pl_selftest *t, struct pl_selftest_ranks *out);

#endif
