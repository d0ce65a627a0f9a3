/* Graphs from programs of ranks: two stages of a pipeline, and ranks that wait for ever. */
#include <stdlib.h>
#include <string.h>

#include "graph/program.h"
#include "tap.h"

static struct pl_err err;
static struct pl_graph g;

static void must(int rc)
{
	if (rc >= 0)
		return;
	printf("Bail out! %s\n", err.msg);
	exit(1);
}

enum { COMPUTE, LINK, N_RESOURCES };
static const char *const names[N_RESOURCES] = { "compute", "link" };

static uint32_t add(struct pl_program *p, const char *name, uint32_t comm, pl_ns dur)
{
	struct pl_graph_program_op op = pl_graph_program_op_unknown;
	uint32_t id;

	op.role = comm == PL_NONE ? PL_RO_COMPUTE : PL_RO_TRANSFER;
	op.kind = comm == PL_NONE ? PL_K_KERNEL : PL_K_COLLECTIVE;
	op.flags = PL_NF_IN_STEP;
	op.resource = comm == PL_NONE ? COMPUTE : LINK;
	op.comm = comm;
	op.dur = dur;

	must(pl_intern_add(&g.str, name, strlen(name), &op.name, &err));
	must(pl_graph_program_add(p, &op, &id, &err));
	return id;
}

static pl_ns start_of(const struct pl_graph_program_nodes *n, uint32_t rank, uint32_t op)
{
	return g.step[0].start[n->last[n->at[rank] + op]];
}

/* Rank 0 computes 10, sends, and computes 50 meanwhile; rank 1 computes 5, receives and goes on. */
static void pipeline(void)
{
	static const uint32_t of_rank[] = { 0, 1 };
	struct pl_program p[2] = { { .n_ops = 0 }, { .n_ops = 0 } };
	struct pl_graph_program_job job = { .program = p,
					    .of_rank = of_rank,
					    .n_ranks = 2,
					    .resource = names,
					    .n_resources = N_RESOURCES,
					    .n_comms = 1 };
	struct pl_graph_program_nodes n;
	uint32_t a, send, more, b, receive, c;

	pl_graph_init(&g);
	a = add(&p[0], "a", PL_NONE, 10);
	send = add(&p[0], "send", 0, 7);
	must(pl_graph_program_after(&p[0], a, PL_E_DATA, &err));
	more = add(&p[0], "more", PL_NONE, 50);
	must(pl_graph_program_after(&p[0], a, PL_E_SEQ, &err));
	b = add(&p[1], "b", PL_NONE, 5);
	receive = add(&p[1], "receive", 0, 7);
	c = add(&p[1], "c", PL_NONE, 20);
	must(pl_graph_program_after(&p[1], b, PL_E_SEQ, &err));
	must(pl_graph_program_after(&p[1], receive, PL_E_DATA, &err));
	must(pl_graph_from_programs(&job, &g, &n, &err));
	ok(pl_graph_valid(&g, &err), "two programs make a valid graph %s", err.msg);
	is_i64((long long)g.n_res, 4, "each rank has its resources");
	is_i64(g.shape[0].n_nodes, 9, "arrivals, a rendezvous, transfers and computation");
	is_i64(start_of(&n, 0, send), 10, "a transfer begins when the last member is there");
	is_i64(start_of(&n, 1, receive), 10, "for all members");
	is_i64(start_of(&n, 0, more), 10, "computation goes on beside it");
	is_i64(start_of(&n, 1, c), 17, "or waits for it");
	pl_graph_program_nodes_fini(&n);
	pl_graph_fini(&g);

	/* the same with a second communication that rank 1 alone knows of */
	pl_graph_init(&g);
	memset(&err, 0, sizeof(err));
	job.n_comms = 2;
	add(&p[1], "receive", 1, 7);
	ok(pl_graph_from_programs(&job, &g, &n, &err) == PL_EDATA, "a rank that waits for ever: %s",
	   err.msg);
	pl_graph_fini(&g);
	pl_graph_program_fini(&p[0]);
	pl_graph_program_fini(&p[1]);
}

int main(void)
{
	pipeline();
	return done_testing();
}
