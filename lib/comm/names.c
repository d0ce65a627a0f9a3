/* Names of operations and algorithms. */
#include <string.h>

#include "comm/comm.h"

static const char *const op_name[PL_OP_COUNT_] = {
	[PL_OP_SEND] = "send",
	[PL_OP_RECV] = "receive",
	[PL_OP_ALLREDUCE] = "all-reduce",
	[PL_OP_REDUCE_SCATTER] = "reduce-scatter",
	[PL_OP_ALLGATHER] = "all-gather",
	[PL_OP_BROADCAST] = "broadcast",
	[PL_OP_ALLTOALL] = "all-to-all",
	[PL_OP_BARRIER] = "barrier",
};
static const char *const algo_name[PL_CA_COUNT_] = {
	[PL_CA_AUTO] = "auto",
	[PL_CA_RING] = "ring",
	[PL_CA_TREE] = "tree",
	[PL_CA_HALVING] = "halving",
	[PL_CA_HIERARCHICAL] = "hierarchical",
	[PL_CA_DIRECT] = "direct",
};

const char *pl_comm_operation_name(unsigned op)
{
	return op < PL_OP_COUNT_ ? op_name[op] : "?";
}

int pl_comm_operation_find(const char *name)
{
	for (int i = 0; i < PL_OP_COUNT_; i++) {
		const char *a = op_name[i], *b = name;

		while (*a && (*a == *b || (*a == '-' && *b == '_')))
			a++, b++;
		if (!*a && !*b)
			return i;
	}
	return -1;
}

const char *pl_comm_algorithm_name(unsigned algo)
{
	return algo < PL_CA_COUNT_ ? algo_name[algo] : "?";
}

int pl_comm_algorithm_find(const char *name)
{
	if (!strcmp(name, "halving-doubling"))
		return PL_CA_HALVING;
	for (int i = 0; i < PL_CA_COUNT_; i++)
		if (!strcmp(name, algo_name[i]))
			return i;
	return -1;
}
