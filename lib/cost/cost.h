/*
 * cost.h - how long communication takes, how much memory a step needs: models, fitted to what a
 * graph recorded and moved to other sizes, ranks, algorithms and links by analysis.
 */
#ifndef PL_COST_H
#define PL_COST_H

#include "graph/edit.h"
#include "plan/topology.h"

/* ---- what is asked for ---- */

/* A change of a link ("*": of all links): factors of its bandwidth (> 0) and its latency. */
struct pl_link_change {
	const char *link;
	double bandwidth, latency;
	bool absolute; /* for "*": `latency` is the latency of each message in ns */
};

#define PL_COST_CHANGES 16 /* of links, at most */

/* An algorithm of recorded all-reduces that no plan asks for: each rank sends its data to each
 * other rank, over links that do not hinder each other. */
#define PL_COST_DIRECT PL_ALGO_COUNT_
/* The algorithm with that name in a graph; "" and NULL (unknown) and names that no plan has are a
 * ring. */
uint8_t pl_cost_algorithm(const char *name);

/* The properties of a communication that determine its duration. */
struct pl_cost_comm {
	uint8_t kind;	   /* enum pl_kind_id of the event: collective, send, receive */
	uint8_t coll;	   /* enum pl_coll */
	uint8_t algo;	   /* enum pl_algo, PL_COST_DIRECT */
	uint8_t was;	   /* the recorded algorithm, to which the fit belongs: likewise */
	bool assumed;	   /* the recording does not say the algorithm: a ring is assumed */
	bool pairs;	   /* each pair of ranks has a link, whatever the topology says */
	uint32_t group;	   /* graph.group, PL_NONE */
	uint32_t n;	   /* ranks */
	uint32_t recorded; /* ranks that it had in the recording, 0: n */
	uint32_t servers;  /* of PL_ALGO_PS */
	uint32_t parts;	   /* chunks that follow one another, 0 or 1: whole */
	int64_t bytes;	   /* that a rank contributes or receives, the larger; -1 unknown */
	const struct pl_link_change *change; /* that the plan makes, in order; NULL: none */
	uint32_t n_changes;
};

/* ---- collectives over a topology: analysis --------------------------------------------------- */

/*
 * Latency-bandwidth cost of a collective of n ranks on a topology (the first n ranks). With link
 * latency a and bandwidth B per rank (a shared link's is divided by the ranks that use it at once):
 * ring 2(n-1)(a + S/nB); tree 2 ceil(log2 n) a + 2S/B, but 2 floor(log2 n) a + S/B where each pair
 * of ranks has a link and pieces are fine. Where messages have a largest size (those of run) and
 * one link carries all that a rank sends, the tree is binary: 2 floor(log2 n) a + 3S/B, but 2S/B
 * for n < 5, and S/B for n = 2; halving-doubling 2 ceil(log2 n) a + 2(n-1)/n S/B, but with partners
 * for the ranks above a power of two if a tree is binary; hierarchical: reduce-scatter in the host,
 * all-reduce between hosts on S/ranks a host, all-gather in the host; ps with k servers
 * 2a + 2 max(S/B, nS/kB). (Thakur, Rabenseifner, Gropp, IJHPCA 2005, for the first three.) Other
 * collectives are their parts of these. Rounded up to ns. More ranks than the topology has are
 * taken to be on more hosts like its last. Changes of links in `c` are made.
 */
pl_ns pl_cost_analytic(const struct pl_topology *t, const struct pl_cost_comm *c);

/*
 * Servers on k hosts of their own and beside each of n >= 2 workers: the share of the bytes that
 * each of the k carries so that all links are busy equally long, at most 1/k. `ratio`: bytes a
 * second of a worker's host by those of a server's. With equal links 2(n-1) / (n^2 + kn - 2k), and
 * a sum takes n times this share of S/B: 2(n-1)/n for k = 0, an all-reduce; 1 for k = n, servers
 * alone (BytePS: Jiang et al., A unified architecture for accelerating distributed DNN training,
 * OSDI 2020, section 4). Pushes and pulls pass at one time, in the two directions of the links.
 */
double pl_cost_server_share(uint32_t n, uint32_t k, double ratio);
/* The time of a sum of `bytes` on the busiest link that follows, without latencies. */
double pl_cost_server_sum(uint32_t n, uint32_t k, double worker_bytes_per_ns,
			  double server_bytes_per_ns, double bytes);

/* ---- fitted to a graph ----------------------------------------------------------------------- */

struct pl_fit { /* t = a + b S of one kind of communication */
	uint8_t kind, coll;
	uint8_t algo; /* the recorded algorithm: enum pl_algo, PL_COST_DIRECT; not said: a ring */
	uint32_t n;   /* ranks */
	double a_ns, b_ns_per_byte;
	double a_contended_ns,
		b_contended; /* with computation beside it: a, and the factor of b, >= 1 */
	bool assumed;	     /* a_contended_ns: no sample showed it */
	/* > 0: communications that overlap share the link but not the latency. Each keeps the link
	 * busy for a + b S, and its data arrive flight_ns later. */
	double flight_ns;
	double shape; /* > 0: t is this factor times the analysis, which bends as the samples do */
	double residual; /* median of |t - fit| / t */
	/* half of the 90 % interval of a; what it gains the bytes lose. Sizes alike, or fewer than
	 * four samples: no message of a job takes longer than PL_COST_MESSAGE_NS to arrive without
	 * its bytes */
	double a_off_ns;
	uint64_t samples;
	int64_t min_bytes, max_bytes;
	bool one_size;	/* a single size: a is the topology's, b follows */
	bool estimated; /* sizes were not recorded */
};
/* Messages take from 1 us (InfiniBand) to about 1 ms (TCP between zones of a cloud). */
#define PL_COST_MESSAGE_NS 1000000
/* A relative error of a model on a recorded step up to this is assumed for changed steps too. */
#define PL_COST_BIAS_MAX 0.25

struct pl_predictor;
struct pl_cost {
	struct pl_topology topo;
	bool user_topology; /* the topology is the caller's, and not detected */
	bool links_known;   /* whether a rank has one link or a link to each other rank */
	struct pl_fit *fit;
	size_t n_fits, cap_fits;
	pl_ns issue_ns; /* lower quartile of the host time of issuing one communication */
	/* A cost model of kernels, the caller's; NULL: there is none. */
	const struct pl_predictor *predictor;
	double overlap; /* factor of computation's durations while communication runs beside it; 1:
			 * neither slows the other down */
};
/* Fits the transfers of the graph per kind, collective, algorithm and number of ranks (fit.c says
 * how). Sends and receives are one kind, send. `topo` may be NULL: detected from hosts and ranks of
 * the graph, with links as recorded messages show them, else default ones; it must outlive *c. *c
 * needs no initialisation; after a failure it is empty. */
int pl_cost_fit(const struct pl_graph *g, const struct pl_topology *topo, struct pl_cost *c,
		struct pl_err *err) PL_MUST;
void pl_cost_fini(struct pl_cost *c);
/* The fit of the communication's kind and collective, if possible of the algorithm it was recorded
 * with, and then of the nearest number of ranks; NULL. */
const struct pl_fit *pl_cost_find_fit(const struct pl_cost *c, const struct pl_cost_comm *comm);
/*
 * Duration of a communication's transfer, from the last arrival on. With a fit it is the line of
 * the fit, moved as by pl_cost_line(). If the algorithm is not the recorded one, it is multiplied
 * by the ratio of the analyses. Without a fit it is the analysis. Communication of unknown size
 * takes as long as one in the middle of the fitted sizes.
 */
pl_ns pl_cost_transfer(const struct pl_cost *c, const struct pl_cost_comm *comm);
/* The time from the end of the transfer until the data has arrived. The next communication may use
 * the link during this time. */
pl_ns pl_cost_flight(const struct pl_cost *c, const struct pl_cost_comm *comm);
/* Factors >= 1 by which durations grow while the transfer and computation of its ranks run at the
 * same time: those of computation, that of the transfer. */
void pl_cost_contention(const struct pl_cost *c, const struct pl_cost_comm *comm,
			double *computation, double *transfer);
/* Do threads carry the communication, rather than devices? */
bool pl_cost_by_threads(const struct pl_graph *g);
/* The factor by which computation takes longer while its rank communicates, as recorded; 1: none.
 * *samples: the operations beside communication that show it; fewer than PL_COST_OVERLAP_SAMPLES of
 * a device may be chance. */
#define PL_COST_OVERLAP_SAMPLES 48
int pl_cost_overlap(const struct pl_graph *g, double *overlap, double *samples,
		    struct pl_err *err) PL_MUST;
/* The time of an operation (enum pl_operator, on elements of `type`, NULL: taken for float32) in
 * that precision ("bf16"), relative to its time so far; above 1: it gets slower. Factors of
 * Daydream (Zhu et al., ATC 2020). */
double pl_cost_precision(unsigned op, const char *type, const char *precision);

/* ---- the parts of the cost of a communication, for changing them independently --------------- */

struct pl_cost_line { /* t = a_ns + b_ns_per_byte * bytes */
	double a_ns, b_ns_per_byte;
	int64_t bytes; /* those of the communication; where unknown, in the middle of the fit's */
};
/* The fit of the nearest number of ranks (by ratio), as recorded, moved to the ranks and the
 * changed links of `comm`; without a fit the analysis. The two parts move separately. For another
 * number of ranks they move by the messages and the bytes of the recorded algorithm over links like
 * the recorded ones; if the user's topology has as many ranks, by the analysis on it. False for
 * fewer than two ranks. */
bool pl_cost_line(const struct pl_cost *c, const struct pl_cost_comm *comm,
		  struct pl_cost_line *out);
/* The times of senders and receivers of recorded messages (PL_NF_MESSAGE; 0: there are none), and
 * which of them includes the time on the link: PL_K_SEND or PL_K_RECV. */
struct pl_cost_sides {
	struct pl_cost_line side[2]; /* of the sender, of the receiver; `bytes` is 0 */
	uint8_t link;
};
int pl_cost_sides(const struct pl_graph *g, struct pl_cost_sides *s, struct pl_err *err) PL_MUST;
/* By the recorded algorithm: messages that follow one another, and bytes that a rank sends for each
 * byte of the communication. Gather, scatter and barrier are trees, broadcast and reduce chains; a
 * direct all-reduce is one message to each rank, all at the same time. */
void pl_cost_ring(const struct pl_cost_comm *comm, double *messages, double *share);
/* The factors that the changes of links in `comm` put on a and b. Of "*" they are those of the
 * change; of other links the analysis says how much these matter. */
void pl_cost_links(const struct pl_cost *c, const struct pl_cost_comm *comm, double *a, double *b);

/* ---- memory ---------------------------------------------------------------------------------- */

struct pl_memory_opts {
	double optimizer_bytes; /* per byte of parameter: 2 for Adam of the same precision; 0 SGD */
	double activation_share; /* of an activation's recorded size: 1/k when a batch passes in k
				  * parts; 0 means 1 */
	/* Called with what a rank has from `at` on, by rank and time; NULL: not */
	int (*changed)(void *arg, int32_t rank, pl_ns at, int64_t bytes, struct pl_err *err);
	void *arg;
};
struct pl_memory_rank {
	int32_t rank;
	int64_t peak_bytes, params_bytes, grads_bytes, optimizer_bytes, activations_bytes,
		temporaries_bytes, buffers_bytes; /* parts: at the peak */
	uint32_t node;				  /* whose start is the peak */
	bool estimated;				  /* sizes were missing */
};
/*
 * Peak per rank of the settled edit, from the lifetimes of tensors. Parameters and the optimiser's
 * state live always, gradients from their producer's start (of microbatches: from the start of the
 * first that adds to the gradient) to the end of the step, anything else to
 * the end of its last consumer (without consumer: activations to the end of the step, the rest to
 * that of the producer; tensors without a producer exist when the step begins). Activations that
 * are made again (pl_etensor.remade) are gone between their other uses and the start of their last
 * consumer, or of the first among those of their layer; what they are made from is not counted
 * apart. In a batch of several parts (activation_share) gradients are there when the step begins,
 * the operation that makes one needs as much again, and temporaries made until then shrink like
 * activations. Tensors with PL_TF_ELSEWHERE take nothing.
 * A communication that carries several tensors has a buffer of its size from its arrival
 * to the end of its transfer. Ranks whose parameters are not known are taken to have as many as
 * gradients. *rank is n long, in the order of the graph's ranks; pl_free().
 */
int pl_memory_peak(const struct pl_edit *e, const struct pl_memory_opts *o,
		   struct pl_memory_rank **rank, size_t *n, struct pl_err *err) PL_MUST;

#endif
