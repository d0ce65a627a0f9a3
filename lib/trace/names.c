/* The registries of paceline-trace(5): kinds, roles, types of tracks. */
#include <string.h>

#include "trace/trace.h"

static const char *const kinds[PL_K_COUNT_] = {
	[PL_K_OTHER] = "other",
	[PL_K_HOST_OP] = "host_op",
	[PL_K_PYTHON] = "python",
	[PL_K_RUNTIME] = "runtime",
	[PL_K_KERNEL] = "kernel",
	[PL_K_COPY] = "copy",
	[PL_K_SET] = "set",
	[PL_K_COLLECTIVE] = "collective",
	[PL_K_SEND] = "send",
	[PL_K_RECV] = "recv",
	[PL_K_SYNC] = "sync",
	[PL_K_MEMORY] = "memory",
	[PL_K_DATA] = "data",
	[PL_K_STEP] = "step",
	[PL_K_ANNOTATION] = "annotation",
	[PL_K_COUNTER] = "counter",
	[PL_K_FLOW_OUT] = "flow_out",
	[PL_K_FLOW_IN] = "flow_in",
	[PL_K_INSTANT] = "instant",
	[PL_K_GPU_ANNOTATION] = "gpu_annotation",
	[PL_K_WAIT] = "wait",
};

static const char *const tracks[PL_T_COUNT_] = {
	[PL_T_OTHER] = "other",	  [PL_T_THREAD] = "thread",
	[PL_T_STREAM] = "stream", [PL_T_COPY_ENGINE] = "copy_engine",
	[PL_T_LINK] = "link",	  [PL_T_SERVER] = "server",
	[PL_T_QUEUE] = "queue",	  [PL_T_NODE] = "node",
	[PL_T_JOB] = "job",	  [PL_T_REQUEST] = "request",
};

static const char *const roles[PL_R_COUNT_] = {
	[PL_R_ARG] = "arg",	[PL_R_TOP] = "top",
	[PL_R_CAT] = "cat",	[PL_R_PH] = "ph",
	[PL_R_STEP] = "step",	[PL_R_CORR] = "corr",
	[PL_R_FLOW] = "flow",	[PL_R_GROUP] = "group",
	[PL_R_SEQ] = "seq",	[PL_R_PEER] = "peer",
	[PL_R_BYTES] = "bytes", [PL_R_MB] = "mb",
	[PL_R_CHUNK] = "chunk", [PL_R_LAYER] = "layer",
	[PL_R_COLL] = "coll",	[PL_R_EXTERNAL] = "external",
	[PL_R_VALUE] = "value", [PL_R_CHANNEL] = "channel",
	[PL_R_OF] = "of",
};

const char *pl_kind_name(unsigned kind)
{
	return kind < PL_K_COUNT_ ? kinds[kind] : "unknown";
}

int pl_kind_find(const char *name, size_t n)
{
	unsigned v = 0;

	for (unsigned k = 0; k < PL_K_COUNT_; k++)
		if (strlen(kinds[k]) == n && !memcmp(kinds[k], name, n))
			return (int)k;
	if (n < 6 || n > 8 || memcmp(name, "kind-", 5) != 0)
		return -1;
	for (size_t i = 5; i < n; i++) {
		if (name[i] < '0' || name[i] > '9')
			return -1;
		v = v * 10 + (unsigned)(name[i] - '0');
	}
	return v <= UINT8_MAX ? (int)v : -1;
}

const char *pl_track_type_name(unsigned type)
{
	return type < PL_T_COUNT_ ? tracks[type] : "unknown";
}

const char *pl_role_name(unsigned role)
{
	return role < PL_R_COUNT_ ? roles[role] : "unknown";
}
