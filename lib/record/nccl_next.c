/*
 * Another profiler plugin of NCCL, which gets the same calls, with its own contexts and handles: in
 * the version that NCCL uses, or in an earlier one.
 */
#include <dlfcn.h>

#include "record/internal.h"

static struct {
	const struct np_v4 *v4;
	const struct np_v5 *v5, *v6;
	/* those of the version in use; all communicators of a process use one version of NCCL */
	int (*start4)(void *context, void **handle, struct np_event_v4 *e);
	int (*start5)(void *context, void **handle, struct np_event_v5 *e);
	int (*stop)(void *handle);
	int (*state)(void *handle, int state, union np_args *args);
	int (*finalize)(void *context);
} next;

int pl_nccl_chain(const char *file, struct pl_err *err)
{
	char name[512];
	void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);

	snprintf(name, sizeof(name), "libnccl-profiler-%.480s.so", file); /* as NCCL names them */
	if (!lib && !strchr(file, '/'))
		lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return pl_fail(err, PL_EABSENT, "the NCCL profiler %s cannot be opened: %s", file,
			       dlerror());
	next.v6 = dlsym(lib, "ncclProfiler_v6");
	next.v5 = dlsym(lib, "ncclProfiler_v5");
	next.v4 = dlsym(lib, "ncclProfiler_v4");
	if (!pl_nccl_next_known())
		return pl_fail(err, PL_EABSENT,
			       "%s is no NCCL profiler of version 4, 5 or 6: it gets no events",
			       file);
	return 0;
}

bool pl_nccl_next_known(void)
{
	return next.v4 || next.v5 || next.v6;
}

int pl_nccl_next_init(void **context, int version, const char *name, uint64_t hash, int nodes,
		      int ranks, int rank, void *log)
{
	const struct np_v5 *v5 = version == 6 && next.v6 ? next.v6 : version >= 5 ? next.v5 : NULL;
	const struct np_v4 *v4 = v5 ? NULL : next.v4;
	int mask = 0, rc = 1;

	if (v5)
		rc = v5->init(context, hash, &mask, name, nodes, ranks, rank, log);
	else if (v4)
		rc = v4->init(context, &mask, name, hash, nodes, ranks, rank, log);
	if (rc || !mask)
		return 0;
	next.start5 = v5 ? v5->start : NULL;
	next.start4 = v4 ? v4->start : NULL;
	next.stop = v5 ? v5->stop : v4->stop;
	next.state = v5 ? v5->state : v4->state;
	next.finalize = v5 ? v5->finalize : v4->finalize;
	return mask & (v4 ? NP_TYPES_V4 : v5 == next.v5 ? NP_TYPES_V5 : ~0);
}

void **pl_nccl_group_of(struct np_event_v5 *e)
{
	return e->type == NP_COLL  ? &e->what.coll.group
	       : e->type == NP_P2P ? &e->what.p2p.group
				   : NULL;
}

void *pl_nccl_next_start_v4(void *context, struct np_event_v4 *e, void *parent)
{
	void *own = e->parent, *handle = NULL;

	e->parent = parent;
	next.start4(context, &handle, e);
	e->parent = own;
	return handle;
}

/* NCCL knows version 5, the other plugin 4: there the parent of a collective is its group. */
static void *start_earlier(void *context, const struct np_event_v5 *e, void *parent, void *group)
{
	struct np_event_v4 v4 = { .type = (uint8_t)e->type, .parent = parent, .rank = e->rank };
	void *handle = NULL;

	switch (e->type) {
	case NP_COLL:
		v4.what.coll = e->what.coll;
		v4.parent = group;
		break;
	case NP_P2P:
		v4.what.p2p = e->what.p2p;
		v4.parent = group;
		break;
	case NP_PROXY_OP:
		v4.what.proxy_op = e->what.proxy_op;
		break;
	case NP_PROXY_STEP:
		v4.what.step = e->what.step;
		break;
	case NP_KERNEL_CH:
		v4.what.kernel_ch = e->what.kernel_ch;
		break;
	case NP_GROUP:
		break;
	default: /* a network plugin's, whose length is not known here */
		return NULL;
	}
	next.start4(context, &handle, &v4);
	return handle;
}

void *pl_nccl_next_start_v5(void *context, struct np_event_v5 *e, void *parent, void *group)
{
	void **at = pl_nccl_group_of(e), *own_group = at ? *at : NULL, *own = e->parent;
	void *handle = NULL;

	if (!next.start5)
		return start_earlier(context, e, parent, group);
	e->parent = parent;
	if (at)
		*at = group;
	next.start5(context, &handle, e);
	e->parent = own;
	if (at)
		*at = own_group;
	return handle;
}

void pl_nccl_next_stop(void *handle)
{
	if (handle)
		next.stop(handle);
}

void pl_nccl_next_state(void *handle, int state, union np_args *args)
{
	if (handle && next.state)
		next.state(handle, state, args);
}

void pl_nccl_next_finalize(void *context)
{
	next.finalize(context);
}
