/*
 * The choice of an algorithm: the one that takes the least time by a model.
 *
 * A message crosses a link in latency + bytes / rate. Links between different pairs do not hinder
 * one another. A link is busy while processors work, so the longer of the two counts. Each message
 * and each byte that is sent, received and added takes a processor some time. Where ranks share
 * processors, three more things count. The work of all ranks adds up. A message costs a change of
 * process too, because the receiver must get a processor first. Where all ranks wait for one
 * another at each hop, as in a ring, the processors serve them in whole turns: three ranks on two
 * processors take two turns a hop, as four would. Trees and chains begin to overlap after the first
 * segments. In the direct algorithm each byte costs more, because the data of all ranks compete for
 * the caches, and because in-place operation copies them first.
 *
 * The constants were fitted to all-reduces of 2, 3, 4 and 8 ranks over loopback, and over links of
 * 1 and 10 Gbit/s with 200 and 20 us of latency, in memory that the caches hold, where choices
 * differ most. What counts is the ratio of the cost of a message to that of a byte, which differs
 * less between machines than either. The choice must not depend on a measurement: all ranks must
 * choose the same algorithm, and a job must choose the same one in every run, because the order of
 * a sum and so its last bits follow from the algorithm. A plan can name another algorithm, which
 * `run --bench=comm` measures.
 */
#include <math.h>

#include "comm/internal.h"

#define NS_A_MESSAGE	 4500.0
#define NS_A_SWITCH	 5500.0 /* more for each message, where ranks share processors */
#define NS_A_HOP	 4000.0 /* until a rank that waited for others continues */
#define NS_A_BYTE	 0.15
#define NS_A_BYTE_DIRECT 0.45
#define WHOLE_VECTORS	 1.2 /* a factor: whole vectors leave the cache, parts stay in it */

static bool supports(uint8_t op, uint8_t algo)
{
	switch (algo) {
	case PL_CA_DIRECT:
		return true;
	case PL_CA_RING:
		return op >= PL_OP_ALLREDUCE && op <= PL_OP_BROADCAST;
	case PL_CA_TREE:
	case PL_CA_HIERARCHICAL:
		return op == PL_OP_ALLREDUCE || op == PL_OP_BROADCAST;
	case PL_CA_HALVING:
		return op == PL_OP_ALLREDUCE;
	default:
		return false;
	}
}

/* How many times longer n ranks take because `busy` processors serve whole turns at each hop. */
static double turns_factor(double n, double busy)
{
	return busy < n ? ceil(n / busy) * busy / n : 1;
}

/* The modelled time of an all-reduce of s bytes, in ns. */
static double all_reduce_ns(const struct pl_world *w, uint8_t algo, double s)
{
	double n = w->size, low = 1, depth = 0; /* low: the power of two up to n */
	/* not the longer segments of GPUs, so that sums are equal with all transports */
	double segment = (double)pl_min_size(w->segment, PL_SEGMENT);
	double piece = s < segment ? s : segment, busy = n < w->processors ? n : w->processors;
	double hops, messages, link = s, work = 2 * (n - 1) * s * NS_A_BYTE, path = 0;

	for (; 2 * low <= n; low *= 2)
		depth++;
	hops = 2 * depth;
	switch (algo) {
	case PL_CA_DIRECT:
		hops = 1;
		messages = n * (n - 1);
		work = messages * s * NS_A_BYTE_DIRECT;
		break;
	case PL_CA_RING:
		hops = 2 * (n - 1);
		messages = n * hops;
		link = hops / n * s;
		work *= turns_factor(n, busy);
		break;
	case PL_CA_TREE:
		messages = 2 * (n - 1);
		link += (hops - 1) * piece;
		/* Two leaves and a root on fewer processors: no rank forwards, and the root has
		 * half of the work, so while one rank waits another one uses its processor. */
		if (depth > 1 || n <= busy)
			work *= WHOLE_VECTORS;
		/* the rank with most neighbours; pieces overlap with those before */
		path = ((n > 4 ? 3 : n > 2 ? 2 : 1) * s + (hops - 1) * piece / 2) * NS_A_BYTE;
		break;
	default:
		messages = low * hops;
		if (n > low) { /* whole vectors to partners and back */
			hops += 2;
			messages += 2 * (n - low);
			link = 4.0 / 3 * (s + piece);
			work *= 1 + (WHOLE_VECTORS - 1) * (n - low) / (n - 1);
		}
		work *= turns_factor(low, low < busy ? low : busy);
	}
	work = work / busy > path ? work / busy : path;
	work += messages * (NS_A_MESSAGE + (n > busy ? NS_A_SWITCH : 0)) / busy;
	link = w->min_bytes_per_ns > 0 ? link / w->min_bytes_per_ns : 0;
	return hops * (NS_A_HOP + (double)w->max_latency) + (link > work ? link : work);
}

static uint8_t choose_all_reduce(const struct pl_world *w, size_t bytes)
{
	static const uint8_t algorithm[] = { PL_CA_DIRECT, PL_CA_RING, PL_CA_TREE, PL_CA_HALVING };
	uint8_t best = PL_CA_DIRECT;
	double best_ns = INFINITY;

	for (size_t i = 0; i < PL_LEN(algorithm); i++) {
		double t = all_reduce_ns(w, algorithm[i], (double)bytes);

		best = t < best_ns ? algorithm[i] : best;
		best_ns = fmin(t, best_ns);
	}
	return best;
}

uint8_t pl_comm_algo(const struct pl_world *w, uint8_t op, uint8_t algo, size_t bytes)
{
	bool large = bytes >= (size_t)64 << 10;
	/* If several hosts have several ranks each, data should cross the network once a host. */
	bool hosts_of_many = w->n_hosts > 1 && w->n_hosts < w->size;
	uint8_t forwards = supports(op, PL_CA_RING) ? PL_CA_RING : PL_CA_DIRECT;

	if (supports(op, algo))
		return algo;
	/* the nearest algorithm of the operation: one that forwards too */
	if (algo != PL_CA_AUTO)
		return forwards;
	if (hosts_of_many && large && supports(op, PL_CA_HIERARCHICAL))
		return PL_CA_HIERARCHICAL;
	if (op == PL_OP_ALLREDUCE)
		return choose_all_reduce(w, bytes);
	if (op != PL_OP_BROADCAST)
		return large ? forwards : PL_CA_DIRECT;
	if (w->size == 2 || !bytes)
		return PL_CA_DIRECT;
	return bytes < (size_t)1 << 20 ? PL_CA_TREE : PL_CA_RING;
}
