/* Graphs from tables of layers: what a small one must become, to the ns; what is refused. */
#include <stdlib.h>

#include "derive/layers.h"
#include "sim/sim.h"
#include "tap.h"

#define HEAD "layer,forward_ns,backward_ns,param_bytes,activation_bytes\n"

static struct {
	int calls;
	int64_t bytes;
	uint32_t ranks;
	pl_ns ns; /* the answer; negative: as long as there are bytes */
} cost;
static struct {
	int n;
	char text[256];
} said;

static pl_ns transfer(void *arg, int64_t bytes, uint32_t ranks)
{
	ok(arg == &cost, "the cost function gets its argument");
	cost.calls++;
	cost.bytes += bytes;
	cost.ranks = ranks;
	return cost.ns < 0 ? bytes : cost.ns;
}

static void say(void *arg, enum pl_level level, const char *text)
{
	(void)arg;
	(void)level;
	said.n++;
	snprintf(said.text, sizeof(said.text), "%s", text);
}

static int make(const char *csv, uint32_t ranks, struct pl_graph *g, struct pl_err *err)
{
	struct pl_log log = { .say = say };
	struct pl_layers_opts o = {
		.log = &log, .n_ranks = ranks, .per_host = 2, .transfer = transfer, .arg = &cost
	};
	struct pl_in *in = pl_in_open_mem("net.csv", csv, strlen(csv), err);
	int rc = in ? pl_derive_layers(in, &o, g, err) : PL_ENOMEM;

	pl_in_close(in);
	return rc;
}

/* Node of the rank with that name and role. */
static uint32_t find(const struct pl_graph *g, int32_t rank, const char *name, unsigned role)
{
	const struct pl_shape *s = &g->shape[0];

	for (uint32_t i = 0; i < s->n_nodes; i++)
		if (s->res[i] != PL_NONE && g->res[s->res[i]].rank == rank && s->role[i] == role &&
		    !strcmp(pl_intern_get(&g->str, s->name[i]), name))
			return i;
	return PL_NONE;
}

static void at(const struct pl_graph *g, int32_t rank, const char *name, unsigned role, pl_ns start,
	       pl_ns dur)
{
	uint32_t i = find(g, rank, name, role);

	if (!ok(i != PL_NONE, "rank %d: %s", rank, name))
		return;
	is_i64(g->step[0].start[i], start, "it starts");
	is_i64(g->step[0].dur[i], dur, "it lasts");
}

static bool edge(const struct pl_graph *g, uint32_t from, uint32_t to, unsigned type)
{
	const struct pl_shape *s = &g->shape[0];

	for (uint32_t e = s->off[to]; e < s->off[to + 1]; e++)
		if (s->src[e] == from && s->etype[e] == type)
			return true;
	return false;
}

static const struct pl_tensor *tensor(const struct pl_graph *g, const char *name, int32_t rank)
{
	for (size_t i = 0; i < g->n_tensors; i++) {
		const struct pl_tensor *t = &g->tensor[i];

		if (!strcmp(pl_intern_get(&g->str, t->name), name) &&
		    pl_node_rank(g, &g->shape[0], g->consumer[t->consumer]) == rank)
			return t;
	}
	return NULL;
}

static void replayed(const struct pl_graph *g, pl_ns want)
{
	struct pl_err err = { 0 };
	struct pl_sim *sim = pl_sim_new(g, &err);
	struct pl_run run = { 0 };
	pl_ns left = 0;

	if (!ok(sim && pl_sim_run(sim, &run, &err) == 0, "it replays %s", err.msg))
		return;
	is_i64(run.step_end[0] - run.step_start[0], want, "in the step's time");
	for (uint32_t i = 0; i < g->shape[0].n_nodes; i++)
		left += pl_sim_unexplained(sim, 0, i) +
			llabs(run.start[0][i] - g->step[0].start[i]);
	is_i64(left, 0, "with nothing unexplained and every start as it was");
	pl_sim_run_fini(&run);
	pl_sim_free(sim);
}

/*
 * a: 10 forward, 20 backward, 100 bytes; b: 5, 7, none; c: 30, 40, 50 bytes; update 8. A transfer
 * lasts a ns for each byte: c's from 85 to 135, a's from 135 (it is ready at 112) to 235.
 */
static void test_small(void)
{
	struct pl_err err = { 0 };
	struct pl_graph g;
	const struct pl_tensor *t;
	uint32_t i;

	cost.ns = -1;
	if (!ok(make("# what this is\n"
		     "param_bytes,layer,backward_us,forward_ns,activation_bytes,update_ns,tensor\n"
		     "100,a,0.020,10,1000,3,w.a\n"
		     "0,b,0.007,5,2000,,\n\n"
		     "50,c,0.040,30,0,5,\n",
		     3, &g, &err) == 0,
		"a small table %s", err.msg))
		return;
	ok(pl_graph_valid(&g, &err), "is a valid graph %s", err.msg);
	is_i64(cost.calls, 2, "a communication for each layer that has parameters");
	is_i64(cost.bytes, 150, "of their bytes");
	is_i64(cost.ranks, 3, "of all ranks");
	is_i64(g.n_ranks, 3, "ranks");
	is_str(pl_intern_get(&g.str, g.res[5].host), "host 1", "the third is on the second host");
	for (int32_t r = 0; r < 3; r++) {
		at(&g, r, "forward c", PL_RO_COMPUTE, 15, 30);
		at(&g, r, "backward c", PL_RO_COMPUTE, 45, 40);
		at(&g, r, "backward b", PL_RO_COMPUTE, 85, 7);
		at(&g, r, "backward a", PL_RO_COMPUTE, 92, 20);
		at(&g, r, "allreduce c", PL_RO_ARRIVE, 85, 0);
		at(&g, r, "allreduce c", PL_RO_TRANSFER, 85, 50);
		at(&g, r, "allreduce a", PL_RO_ARRIVE, 135, 0);
		at(&g, r, "allreduce a", PL_RO_TRANSFER, 135, 100);
		at(&g, r, "optimizer", PL_RO_COMPUTE, 235, 8);
	}
	i = find(&g, 1, "allreduce a", PL_RO_ARRIVE);
	ok(edge(&g, find(&g, 1, "backward a", PL_RO_COMPUTE), i, PL_E_DATA), "data to the arrival");
	ok(edge(&g, find(&g, 1, "allreduce c", PL_RO_TRANSFER), i, PL_E_SEQ), "in stream order");
	is_i64(g.shape[0].layer[i], 0, "the layer of its node");
	is_i64(g.shape[0].bytes[i], 100, "the bytes of its node");
	t = tensor(&g, "grad w.a", 1);
	ok(t && t->role == PL_TR_GRAD && t->bytes == 100 && t->n_consumers == 1 &&
		   g.consumer[t->consumer] == i &&
		   t->producer == find(&g, 1, "backward a", PL_RO_COMPUTE),
	   "a gradient, from backward to the arrival");
	t = tensor(&g, "w.a", 2);
	ok(t && t->role == PL_TR_PARAM && t->producer == PL_NONE && t->n_consumers == 2 &&
		   g.consumer[t->consumer + 1] == find(&g, 2, "optimizer", PL_RO_COMPUTE),
	   "a parameter, to forward and optimiser");
	t = tensor(&g, "activation b", 0);
	ok(t && t->role == PL_TR_ACTIVATION && t->bytes == 2000 &&
		   t->producer == find(&g, 0, "forward b", PL_RO_COMPUTE) &&
		   g.consumer[t->consumer] == find(&g, 0, "backward b", PL_RO_COMPUTE),
	   "an activation, from forward to backward");
	is_i64((long long)g.n_tensors, 3 * 6, "and no tensors without bytes");
	replayed(&g, 243);
	pl_graph_fini(&g);
}

static void test_alone(void)
{
	struct pl_err err = { 0 };
	struct pl_graph g;
	const struct pl_tensor *t;

	cost.calls = 0;
	if (!ok(make(HEAD "a,1,2,4,0\n", 1, &g, &err) == 0, "one rank %s", err.msg))
		return;
	is_i64(cost.calls, 0, "communicates with nobody");
	t = tensor(&g, "grad a", 0);
	ok(t && g.consumer[t->consumer] == find(&g, 0, "optimizer", PL_RO_COMPUTE),
	   "its gradients go to the optimiser");
	replayed(&g, 3);
	pl_graph_fini(&g);
}

static void refused(const char *csv, uint32_t ranks, int code, const char *says, const char *what)
{
	struct pl_err err = { 0 };
	struct pl_graph g;
	int rc = make(csv, ranks, &g, &err);

	ok(rc == code && strstr(err.msg, says), "%s: %s", what, err.msg);
	if (rc == 0)
		pl_graph_fini(&g);
}

static void test_refused(void)
{
	cost.ns = 1;
	refused("", 2, PL_EDATA, "net.csv: no layers", "nothing");
	refused(HEAD, 2, PL_EDATA, "no layers", "a header only");
	refused("layer,forward_ns,param_bytes,activation_bytes\na,1,1,1\n", 2, PL_EDATA,
		"line 1: no column \"backward_ns\"", "a column missing");
	refused("layer,forward_ns,backward_ns,forward_us,param_bytes,activation_bytes\n", 2,
		PL_EDATA, "line 1: two columns", "a column twice");
	refused(HEAD "a,1,2,3,4\nb,x,2,3,4\n", 2, PL_EDATA, "line 3: column 2 (forward): \"x\"",
		"a word for a time");
	refused(HEAD "a,1,2,3.5,4\n", 2, PL_EDATA, "line 2: column 4 (param_bytes): \"3.5\"",
		"half a byte");
	refused(HEAD "a,1,-2,3,4\n", 2, PL_EDATA, "column 3 (backward): \"-2\"", "a negative time");
	refused(HEAD "a,1,2\n", 2, PL_EDATA, "column 4 (param_bytes): nothing", "a short row");
	refused(HEAD ",1,2,3,4\n", 2, PL_EDATA, "line 2: column 1 (layer): nothing", "no name");
	refused(HEAD "a,1,2,3,4\nb,1,2,3,4,5\n", 2, PL_EDATA, "line 3: 6 cells under a header of 5",
		"a cell too many");
	refused(HEAD "a,1,2,3,4\na,1,2,3,4\n", 2, PL_EDATA, "line 3: a second layer \"a\"",
		"a name twice");
	refused("layer,tensor,forward_ns,backward_ns,param_bytes,activation_bytes\n"
		"a,w,1,2,3,4\nb,w,1,2,3,4\n",
		2, PL_EDATA, "line 3: a second tensor \"w\"", "a tensor twice");
	refused("layer,forward_s,backward_s,param_bytes,activation_bytes\na,1e9,1e9,1,1\n", 2,
		PL_ELIMIT, "line 2: the step would last", "seconds for nanoseconds");
	cost.ns = (pl_ns)1 << 61;
	refused(HEAD "a,1,2,3,4\n", 2, PL_ELIMIT, "the step would last", "a transfer without end");
	cost.ns = 1;
	refused(HEAD "a,1,2,3,4\n", 0, PL_EUSAGE, "0 ranks", "no ranks");
	refused(HEAD "a,1,2,3,4\n", 1u << 29, PL_ELIMIT, "fewer --ranks", "too many ranks");
}

static void test_unknown(void)
{
	struct pl_err err = { 0 };
	struct pl_graph g;

	said.n = 0;
	if (!ok(make("layer,forward_ns,backward_ns,colour,param_bytes,activation_bytes,kind\n"
		     "a,1,2,red,3,4,conv\nb,1,2,red,3,4,conv\n",
		     2, &g, &err) == 0,
		"a column more %s", err.msg))
		return;
	is_i64(said.n, 1, "is warned about once");
	ok(strstr(said.text, "net.csv: line 1: column \"colour\"") != NULL, "%s", said.text);
	pl_graph_fini(&g);
}

/* ---- tables of a caller ---------------------------------------------------------------------- */

/* Three layers, of which two have parameters of 3 MiB each; passes of one and two operations. */
static void test_table(void)
{
	static const struct pl_layers_op op[] = {
		{ "dense.forward", PL_OP_MATMUL, PL_PH_FORWARD, "[[8,4],[4,2]]", 128, 96 },
		{ "input", PL_OP_MATMUL, PL_PH_INPUT_GRAD, "[[8,2],[2,4]]", 128, 96 },
		{ "weight", PL_OP_MATMUL, PL_PH_WEIGHT_GRAD, "[[4,8],[8,2]]", 128, 96 },
		{ "nothing", PL_OP_UNKNOWN, PL_PH_FORWARD, NULL, -1, -1 },
		{ "nothing", PL_OP_UNKNOWN, PL_PH_BACKWARD, NULL, -1, -1 },
	};
	static const struct pl_layers_row row[] = {
		{ "a", "a", 3 << 20, 64, 64, op, 1, 2 },
		{ "flat", "flat", 0, 64, 64, op + 3, 1, 1 },
		{ "b", "b", 3 << 20, 64, 64, op, 1, 2 },
	};
	const struct pl_layers_table table = {
		.name = "x", .row = row, .n = 3, .type = "float32", .update = "update.sgd"
	};
	struct pl_layers_opts o = { .n_ranks = 2, .transfer = transfer, .arg = &cost, .passes = 2 };
	struct pl_graph g;
	struct pl_err err = { 0 };
	const struct pl_shape *s;
	uint32_t i, reduces = 0, forwards = 0;

	if (!ok(pl_derive_layers_table(&table, &o, &g, &err) == 0, "a table of a caller %s",
		err.msg))
		return;
	s = &g.shape[0];
	i = find(&g, 1, "input", PL_RO_COMPUTE);
	ok(i != PL_NONE && s->phase[i] == PL_PH_INPUT_GRAD && g.work[s->work[i]].flops == 128 &&
		   !strcmp(pl_intern_get(&g.str, s->module[i]), "b"),
	   "an operation has phase, work and module");
	i = find(&g, 0, "update.sgd", PL_RO_COMPUTE);
	ok(i != PL_NONE && s->phase[i] == PL_PH_OPTIMIZER &&
		   !strcmp(pl_intern_get(&g.str, g.work[s->work[i]].dims), "[[1572864]]"),
	   "the update has all parameters");
	for (i = 0; i < s->n_nodes; i++) {
		reduces += s->role[i] == PL_RO_TRANSFER;
		forwards += !strcmp(pl_intern_get(&g.str, s->name[i]), "dense.forward");
	}
	is_i64(reduces, 2 * 2, "each layer reduces its gradients, in the last pass");
	is_i64(forwards, 2 * 2 * 2, "two passes of two layers on two ranks");
	ok(pl_graph_valid(&g, &err), "a valid graph %s", err.msg);
	pl_graph_fini(&g);

	o.bucket_bytes = 25 << 20;
	o.passes = 0;
	if (!ok(pl_derive_layers_table(&table, &o, &g, &err) == 0, "buckets %s", err.msg))
		return;
	s = &g.shape[0];
	i = find(&g, 0, "allreduce bucket 0", PL_RO_TRANSFER);
	ok(i != PL_NONE && s->bytes[i] == 3 << 20, "the first has 1 MiB or the layer that ends it");
	i = find(&g, 0, "allreduce bucket 1", PL_RO_TRANSFER);
	ok(i != PL_NONE && s->bytes[i] == 3 << 20, "the other one the rest");
	pl_graph_fini(&g);
	o.n_ranks = 0;
	ok(pl_derive_layers_table(&table, &o, &g, &err) == PL_EUSAGE, "no ranks: %s", err.msg);
}

int main(void)
{
	test_small();
	test_table();
	test_alone();
	test_refused();
	test_unknown();
	return done_testing();
}
