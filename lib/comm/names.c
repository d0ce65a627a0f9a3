/* Names of operations and algorithms. */
#include "comm/comm.h"
#include "core/words.h"

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

const char *pl_comm_operation_name(unsigned op)
{
	return op < PL_OP_COUNT_ ? op_name[op] : "?";
}

int pl_comm_operation_find(const char *name)
{
	for (int i = 0; i < PL_OP_COUNT_; i++)
		for (const char *a = op_name[i], *b = name;; a++, b++) {
			a += *a == '-';
			b += *b == '-' || *b == '_';
			if (*a != *b)
				break;
			if (!*a)
				return i;
		}
	return -1;
}

const char *pl_comm_algorithm_name(unsigned algo)
{
	static const char names[] = PL_WORDS_COMM_ALGORITHM("\0") "\0";
	const char *s = pl_words_name(names, algo);

	return s ? s : "?";
}

int pl_comm_algorithm_find(const char *name)
{
	return pl_words_find(PL_WORDS_COMM_ALGORITHM("|"), name);
}
