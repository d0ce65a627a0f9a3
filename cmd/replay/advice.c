/*
 * The changes that would help most: what a user can do about the causes of the verdict.
 *
 * A row says for a cause what to do, with the setting, and which change of durations stands for it.
 * That change is simulated; without one the share of the cause is the most that can be saved.
 */
#include <math.h>
#include <stdlib.h>

#include "graph/edit_messages.h"
#include "graph/select.h"
#include "program.h"

#define LEAST 0.01 /* of the step: what saves less is no advice ... */
#define SMALL 0.03 /* ... nor is a cause that the verdict does not name */

#define MOST_WORKERS 64 /* that are advised */
#define AS_OTHERS    (-1.0)

/* What to do, in the words of the framework that was recorded; NULL: the first text. */
struct words {
	const char *any, *of[FRAMEWORKS];
};

static const struct advice {
	uint8_t cause;
	const char *selector; /* NULL: nothing to simulate */
	double factor;	      /* of their durations; AS_OTHERS: on the rank of the cause */
	struct words what;
} advices[] = {
	{ PL_VERDICT_INPUT,
	  "phase=input",
	  0.5,
	  { "batches twice as fast: twice as many workers that read them",
	    { [TORCH] = "batches twice as fast: twice as many workers (num_workers of the "
			"DataLoader)",
	      [TENSORFLOW] = "batches twice as fast: num_parallel_calls and prefetch of "
			     "tf.data" } } },
	{ PL_VERDICT_EXPOSED,
	  "kind=comm",
	  0.5,
	  { "half the bytes: gradients in bfloat16, or a faster network",
	    { [TORCH] = "half the bytes: gradients in bfloat16 (DDP: bf16_compress_hook), or a "
			"faster network" } } },
	{ PL_VERDICT_COMPUTE,
	  "kind=kernel|host_op",
	  0.5,
	  { "computation twice as fast: bfloat16 where the device has it, fused operations",
	    { [TORCH] = "computation twice as fast: bfloat16 (torch.autocast) where the device "
			"has it, torch.compile",
	      [JAX] = "computation twice as fast: bfloat16 "
		      "(jax.default_matmul_precision(\"bfloat16\"), or parameters of that type) "
		      "where the device has it",
	      [TENSORFLOW] = "computation twice as fast: bfloat16 (tf.keras.mixed_precision) "
			     "where the device has it, tf.function(jit_compile=True)" } } },
	{ PL_VERDICT_LAUNCH,
	  "kind=host_op|runtime|gap",
	  0.5,
	  { "launches twice as fast: CUDA graphs, or fewer and larger operations",
	    { [TORCH] = "launches twice as fast: CUDA graphs (torch.compile with "
			"mode=\"reduce-overhead\")",
	      [JAX] = "launches twice as fast: the whole step in one jax.jit, several steps in "
		      "one jax.lax.scan",
	      [TENSORFLOW] = "launches twice as fast: the whole step in one "
			     "tf.function(jit_compile=True)" } } },
	{ PL_VERDICT_HOST_SYNC,
	  NULL,
	  0,
	  { "the host does not wait: no value of the device is read or printed in each step",
	    { [TORCH] = "the host does not wait: no .item(), .cpu() or print of a tensor in each "
			"step",
	      [JAX] = "the host does not wait: no block_until_ready(), float() or print of an "
		      "array in each step",
	      [TENSORFLOW] = "the host does not wait: no .numpy() or print of a tensor in each "
			     "step" } } },
	{ PL_VERDICT_SLOW_RANK,
	  "kind=kernel|host_op",
	  AS_OTHERS,
	  { "that rank as fast as the others: see its clock, temperature and other processes",
	    { 0 } } },
	{ PL_VERDICT_IMBALANCE,
	  "kind=kernel|host_op",
	  AS_OTHERS,
	  { "as much work on that rank as on the others: samples of equal length, experts of equal "
	    "load",
	    { 0 } } },
	{ PL_VERDICT_IMBALANCE,
	  NULL,
	  0,
	  { "equal work on all ranks: samples of equal length", { 0 } } },
	{ PL_VERDICT_BUBBLE,
	  NULL,
	  0,
	  { "more microbatches, or a schedule with a smaller bubble (interleaved, zero-bubble)",
	    { 0 } } },
	{ PL_VERDICT_SLOW_LINK,
	  NULL,
	  0,
	  { "a link as fast as the others: see its errors and speed", { 0 } } },
	{ PL_VERDICT_MEMORY,
	  NULL,
	  0,
	  { "memory that is kept: an allocator that returns none in each step, pinned buffers for "
	    "batches",
	    { [TORCH] = "memory that is kept: expandable_segments:True in "
			"PYTORCH_CUDA_ALLOC_CONF; pin_memory of the DataLoader",
	      [JAX] = "memory that is kept: XLA_PYTHON_CLIENT_PREALLOCATE=true" } } },
	{ PL_VERDICT_RECOMPUTATION,
	  "phase=recomputation",
	  0,
	  { "activations kept, not made again, if the memory holds them: recompute fewer layers",
	    { [TORCH] =
		      "activations kept, not made again, if the memory holds them: checkpoint() of "
		      "fewer layers" } } },
	{ PL_VERDICT_CHECKPOINT,
	  NULL,
	  0,
	  { "checkpoints in the background",
	    { [TORCH] = "checkpoints in the background: torch.distributed.checkpoint.async_save",
	      [JAX] = "checkpoints in the background: orbax.checkpoint.AsyncCheckpointer",
	      [TENSORFLOW] = "checkpoints in the background: "
			     "tf.train.CheckpointOptions(enable_async=True)" } } },
	{ PL_VERDICT_GARBAGE,
	  NULL,
	  0,
	  { "garbage collection between steps: gc.freeze(), gc.disable()", { 0 } } },
	{ PL_VERDICT_EVALUATION, NULL, 0, { "evaluation less often, or on other ranks", { 0 } } },
	{ PL_VERDICT_COMPILATION,
	  NULL,
	  0,
	  { "code that is made before the training: steps of equal shapes, a warm cache", { 0 } } },
	{ PL_VERDICT_CONTENTION,
	  NULL,
	  0,
	  { "communication that leaves more of the device: NCCL_MAX_CTAS", { 0 } } },
};
/* The same where hosts compute and communicate, and where it is no communication of gradients. */
static const struct words contention_on_hosts = {
	"communication that leaves more of the processors: cores of their own for its threads",
	{ 0 }
};
static const struct words host_computation = {
	"if computation took half the time: fused operations may shorten it, and so may more "
	"threads where cores are idle",
	{ [TORCH] = "if computation took half the time: torch.compile may shorten it, and so may "
		    "more threads (OMP_NUM_THREADS) where cores are idle",
	  [TENSORFLOW] =
		  "if computation took half the time: tf.function(jit_compile=True) may "
		  "shorten it, and so may more threads (tf.config.threading) where cores are "
		  "idle" }
};
static const struct words computation_of_halves = {
	"computation twice as fast: another device; most of it has numbers of 16 bits already",
	{ [TORCH] = "computation twice as fast: torch.compile, or another device; most of it has "
		    "numbers of 16 bits already" }
};
static const struct words fewer_pauses = {
	"if the interpreter took half the time between operations: fewer and larger operations",
	{ [TORCH] = "if Python took half the time between operations: torch.compile, or fewer and "
		    "larger operations" }
};
/* What PyTorch calls where oneDNN has no kernel for a convolution. */
static const struct words slow_convolution = {
	"if computation took half the time: this processor has no fast kernel for these "
	"convolutions; it may have one for float32 (no autocast), or for other shapes",
	{ 0 }
};
/* Numbers of 16 bits get no smaller by a setting. */
static const struct words gradients_of_halves = {
	"half the communication: gradients, which have 16 bits already, in every second step, or a "
	"faster network",
	{ [TORCH] = "half the communication: gradients, which have 16 bits already, in every "
		    "second step (DDP: no_sync()), or a faster network" }
};
static const struct words bytes_of_halves = {
	"communication twice as fast: a faster network, as what is sent has 16 bits already", { 0 }
};
static const struct words fewer_bytes = {
	"half the bytes: bfloat16 for what is sent, or a faster network", { 0 }
};
static const struct words equal_stages = {
	"as much work in that stage as in the others: move layers", { 0 }
};
static const struct words quiet_machines = {
	"machines without other work, processors and devices with constant clocks", { 0 }
};
/* Memory of hosts. */
static const struct words kept_memory = {
	"memory that the process keeps: an allocator that gives none back to the system",
	{ [TORCH] = "memory that the process keeps, if the job takes new memory without a "
		    "profiler, too: gradients that stay "
		    "(zero_grad(set_to_none=False)), or an allocator that gives none back "
		    "(glibc: MALLOC_TRIM_THRESHOLD_=-1 MALLOC_MMAP_MAX_=0)" }
};
/* What the host keeps, such as parameters or activations. */
static const struct words less_on_the_host = {
	"less that the host keeps, if the memory of the device holds it, or copies that begin "
	"earlier, beside computation",
	{ [TORCH] = "less that the host keeps, if the device holds it (FSDP: no CPUOffloadPolicy), "
		    "or copies that begin earlier, beside computation" }
};
/* Nothing names the checkpoints. */
static const struct words behind_steps = {
	"what the program does behind some steps in the background, such as checkpoints", { 0 }
};
static const struct words fewer_bytes_of_shards = {
	"half the bytes: bfloat16 for what is sent, or a faster network",
	{ [TORCH] = "half the bytes: bfloat16 for what is sent (FSDP: MixedPrecisionPolicy), or a "
		    "faster network; plan tries fewer gathers by larger groups" }
};

/* The operations whose durations change. */
static const char *selector_of(const struct advice *a, const struct pl_verdict_row *v)
{
	bool silent = a->cause == PL_VERDICT_LAUNCH && v->silent;

	return silent ? "kind=host_op|runtime" : a->selector; /* gaps are other work, too */
}

static const struct words *what_to_do(const struct report *r, const struct advice *a,
				      const struct pl_verdict_row *v)
{
	bool shards = v->coll == PL_COLL_ALLGATHER || v->coll == PL_COLL_REDUCE_SCATTER;
	bool halves = a->cause == PL_VERDICT_COMPUTE ? r->half_computation : r->half_comm[v->coll];

	if (a->cause == PL_VERDICT_CHECKPOINT && v->inferred)
		return &behind_steps;
	if (a->cause == PL_VERDICT_MEMORY && v->fresh)
		return &kept_memory;
	if (a->cause == PL_VERDICT_MEMORY && v->offload)
		return &less_on_the_host;
	if (a->cause == PL_VERDICT_CONTENTION && !r->start_device)
		return &contention_on_hosts;
	if (a->cause == PL_VERDICT_COMPUTE && !r->start_device)
		return strstr(v->where, "aten::_slow_conv") ? &slow_convolution : &host_computation;
	if (a->cause == PL_VERDICT_COMPUTE && halves)
		return &computation_of_halves;
	if (a->cause == PL_VERDICT_EXPOSED && halves)
		return v->gradient ? &gradients_of_halves : &bytes_of_halves;
	if (a->cause == PL_VERDICT_EXPOSED && !v->gradient)
		return shards ? &fewer_bytes_of_shards : &fewer_bytes;
	if (a->cause == PL_VERDICT_IMBALANCE && v->equal)
		return &quiet_machines;
	if (a->cause == PL_VERDICT_IMBALANCE && v->staged)
		return &equal_stages;
	return &a->what;
}

static const char *in_words(const struct report *r, const struct words *w)
{
	return w->of[r->framework] ? w->of[r->framework] : w->any;
}

/* ---- the framework --------------------------------------------------------------------------- */

/*
 * What was recorded, by the names of operations: each framework has names that no other has. The
 * most names count, because a job of one framework may call another for its input.
 */
void find_framework(struct report *r)
{
	static const struct {
		uint8_t framework;
		const char *names;
	} known[] = {
		{ TORCH, "aten::*|c10d::*|autograd::*|nn.Module: *|torch/*|torch.*|*at::native::*|"
			 "*Backward0|DistributedDataParallel.*|enumerate(DataLoader)*|nccl:*|"
			 "gloo:*" },
		{ TENSORFLOW, "EagerLocalExecute*|EagerExecute*|FunctionRun*|TFE_*|tf_*|tf.*|"
			      "ExecutorState::*|KernelAndDevice*|Iterator::*|tensorflow::*" },
		{ JAX, "PjitFunction*|jit_*|jit(*|PjRt*|*PjRtClient*|*PyClient*|jax*|XLA *|"
		       "TfrtCpu*|ThunkExecutor*|BatchedDevicePut*" },
	};
	unsigned n[FRAMEWORKS] = { 0 };

	for (size_t i = 0; i < r->g.str.n; i++)
		for (size_t k = 0; k < PL_LEN(known); k++)
			if (pl_glob(known[k].names, pl_intern_get(&r->g.str, (pl_id)i))) {
				n[known[k].framework]++;
				break;
			}
	for (unsigned f = 0; f < FRAMEWORKS; f++)
		if (n[f] > n[r->framework])
			r->framework = (uint8_t)f;
}

/* ---- types ----------------------------------------------------------------------------------- */

struct halves { /* time, and that of it in numbers of 16 bits or fewer */
	double all, half;
};

static const char *const small[] = { "bfloat16", "float16", "float8" };

/* id: of the small types in the graph. */
static void add_time(const pl_id *id, pl_id type, pl_ns ns, struct halves *h)
{
	h->all += (double)ns;
	for (size_t i = 0; i < PL_LEN(small) && type != PL_NONE; i++)
		h->half += type == id[i] ? (double)ns : 0;
}

static bool most(const struct halves *h)
{
	return 2 * h->half > h->all;
}

void find_types(struct report *r)
{
	struct halves comm[PL_LEN(r->half_comm)] = { { 0 } }, product = { 0 }, other = { 0 };
	const struct pl_graph *g = &r->g;
	pl_id id[PL_LEN(small)];

	for (size_t i = 0; i < PL_LEN(small); i++)
		id[i] = pl_intern_find(&g->str, small[i], strlen(small[i]));
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_gstep *st = &g->step[k];
		const struct pl_shape *s = &g->shape[st->shape];

		for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
			const struct pl_gcomm *c =
				s->role[i] == PL_RO_TRANSFER ? pl_node_comm(s, i) : NULL;
			bool known = s->work && s->work[i] != PL_NONE;

			if (c && c->kind < PL_LEN(comm))
				add_time(id, c->type, st->dur[i], &comm[c->kind]);
			else if (s->role[i] == PL_RO_COMPUTE)
				add_time(id, known ? g->work[s->work[i]].type : PL_NONE, st->dur[i],
					 pl_graph_is_product(pl_node_operator(g, s, i)) ? &product
											: &other);
		}
	}
	r->half_computation = most(product.all > 0 ? &product : &other);
	for (size_t i = 0; i < PL_LEN(comm); i++)
		r->half_comm[i] = most(&comm[i]);
}

/* ---- what changes save ----------------------------------------------------------------------- */

/* Did processes beside the job read its batches? Then a fetch is their work, else the job's. */
static bool has_workers(const struct pl_graph *g)
{
	for (size_t i = 0; i < g->n_res; i++)
		if (!strcmp(pl_intern_get(&g->str, g->res[i].name), PL_GRAPH_LOADER_WORKERS))
			return true;
	return false;
}

/* The factor of the durations on the rank of the cause. A rank that is slow becomes as fast as the
 * others. Work moves to the others, so that all ranks have the mean. */
static double as_others(const struct report *r, const struct pl_verdict_row *v)
{
	double n = (double)r->g.n_ranks;

	return 1 - v->more * (v->cause == PL_VERDICT_IMBALANCE ? (n - 1) / n : 1);
}

/* What the change of `line` saves, by simulation; perhaps it was simulated before. in_graph: it
 * stands for a change of the graph. *alone: the share that it saves of the recorded times. */
static int simulate(const struct report *r, const char *line, double factor, bool in_graph,
		    struct saving *saves, double *alone, struct pl_err *err)
{
	struct halving x = { .factor = factor, .touched = 1 - factor, .in_graph = in_graph };
	struct pl_graph_select select = { 0 };
	pl_ns *length = NULL;
	const char *kind, *phase;
	struct pl_plan plan;
	int rc;

	for (size_t i = 0; i < r->n_changes; i++)
		if (!strcmp(r->change[i].change, line)) {
			*saves = r->change[i].saves;
			*alone = saves->share;
			return 0;
		}
	pl_plan_init(&plan);
	PL_TRY(pl_alloc(&length, r->n_steps, sizeof(*length), err));
	PL_TRY(pl_plan_add_line(&plan, line, err));
	kind = plan.rw[0].select.key[PL_SEL_KIND];
	x.comm = kind && !strcmp(kind, "comm");
	phase = plan.rw[0].select.key[PL_SEL_PHASE];
	x.pauses = kind ? strstr(kind, "gap") != NULL : phase && !strcmp(phase, "other");
	PL_TRY(pl_graph_select_init(&select, &plan.rw[0].select, &r->g, NULL, err));
	PL_TRY(pl_sim_means(r->s, &(struct pl_sim_scale){ &select, (float)factor, length }, 1,
			    &x.mean, err));
	x.length = length;
	*alone = 1 - x.mean / r->mean;
	PL_TRY(predict_line(r, line, &x, length, err));
	find_saving(r, &x, saves);
out:
	pl_graph_select_fini(&select);
	pl_plan_fini(&plan);
	pl_free(length);
	return rc;
}

/* Enough workers hide the time of the batches: then the job does not wait for input. Enough with
 * the recorded times, which --what-if has, and with those of a job without the profiler. */
static int try_workers(struct report *r, const struct pl_verdict_row *v, struct advice_row *row,
		       struct pl_err *err)
{
	double alone, share, rest;
	int n;

	PL_CHECK(simulate(r, "scale phase=input by 0", 0, true, &row->saves, &alone, err));
	share = fmax(row->saves.share, alone);
	rest = 1 - share;
	n = rest > 0 ? (int)fmin(MOST_WORKERS, ceil(share / rest)) : MOST_WORKERS;
	n = n > 1 ? n : 1;
	snprintf(row->what, sizeof(row->what),
		 r->framework == TORCH
			 ? "%sbatches that are read beside the job%s: DataLoader(num_workers=%d)"
		 : r->framework == TENSORFLOW
			 ? "%sbatches that are read beside the job%s: prefetch and "
			   "num_parallel_calls=%d of tf.data"
			 : "%sbatches that are read beside the job%s; processes that read: %d",
		 v->inferred ? "if the program reads its input there: " : "",
		 r->start_device ? "" : ", on idle processors", n);
	snprintf(row->change, sizeof(row->change), "loader-workers %d", n);
	if (n == MOST_WORKERS) { /* which may be too few */
		char line[48];

		snprintf(line, sizeof(line), "scale phase=input by %.4g", 1.0 / n);
		PL_CHECK(simulate(r, line, 1.0 / n, true, &row->saves, &alone, err));
	}
	return 0;
}

/* What anybody can set comes first, then what saves most. */
static bool is_before(const struct advice_row *a, const struct advice_row *b)
{
	if (a->no_setting != b->no_setting)
		return b->no_setting;
	return a->saves.share >= b->saves.share;
}

/* A place among the best, if the row saves enough. */
static void insert(struct report *r, const struct advice_row *row)
{
	size_t at = r->n_advice;

	if (row->saves.share < (row->at_most ? SMALL : LEAST) ||
	    (!row->at_most && row->saves.least <= 0)) /* perhaps nothing */
		return;
	for (; at && !is_before(&r->advice[at - 1], row); at--)
		;
	if (at == ADVICES)
		return;
	r->n_advice = pl_min_size(r->n_advice + 1, ADVICES);
	memmove(&r->advice[at + 1], &r->advice[at], (r->n_advice - at - 1) * sizeof(*r->advice));
	r->advice[at] = *row;
}

/* Settings of sharded parameters that change what is communicated, and when. */
static const struct {
	const char *line;
	struct words what;
} settings[] = {
	{ "no-reshard",
	  { "sharded parameters that stay whole from the forward to the backward pass, if the "
	    "memory holds them",
	    { [TORCH] = "sharded parameters that stay whole from the forward to the backward pass, "
			"if the memory holds them: fully_shard(reshard_after_forward=False)" } } },
	{ "prefetch 1",
	  { "sharded parameters that are gathered one layer ahead, if the memory holds them",
	    { [TORCH] = "sharded parameters that are gathered one layer ahead, if the memory holds "
			"them: set_modules_to_forward_prefetch(), "
			"set_modules_to_backward_prefetch()" } } },
};

int advise_settings(struct report *r, struct pl_pool *pool, struct pl_err *err)
{
	bool exposed = false;

	for (size_t i = 0; i < r->verdict.n; i++)
		exposed |= r->verdict.row[i].cause == PL_VERDICT_EXPOSED;
	if (!exposed || is_large(count_nodes(&r->g)) || pl_graph_has_messages(&r->g) ||
	    r->g.stepless || !pl_rewrite_gathers(&r->g))
		return 0;
	for (size_t k = 0; k < PL_LEN(settings); k++) {
		struct advice_row row = { .at_most = false };

		PL_CHECK(try_setting(r, settings[k].line, pool, &row.saves, err));
		snprintf(row.what, sizeof(row.what), "%s", in_words(r, &settings[k].what));
		snprintf(row.change, sizeof(row.change), "%s", settings[k].line);
		insert(r, &row);
	}
	return 0;
}

/* A step may need the gradients of several backward passes only once. */
static int try_no_sync(struct report *r, const struct pl_verdict_row *v, struct pl_err *err)
{
	struct advice_row row = { .at_most = false };
	struct halving x = { .comm = true };
	pl_ns *length = NULL;
	uint32_t passes;
	int rc;

	PL_TRY(pl_rewrite_passes(&r->g, &passes, err));
	if (passes < 2 || !v->gradient || r->g.stepless)
		goto out;
	PL_TRY(pl_alloc(&length, r->n_steps, sizeof(*length), err));
	x.factor = 1.0 / passes;
	x.touched = 1 - x.factor;
	snprintf(row.what, sizeof(row.what),
		 "gradients synchronised in one of %u backward passes%s", passes,
		 r->framework == TORCH ? ": no_sync() in the others" : "");
	snprintf(row.change, sizeof(row.change), "no-sync %u", passes);
	rc = simulate_line(r, row.change, &x, length, err);
	if (rc == PL_EDATA || rc == PL_EUSAGE) { /* steps differ in their passes */
		*err = (struct pl_err){ 0 };
		rc = 0;
		goto out;
	}
	PL_TRY(rc);
	find_saving(r, &x, &row.saves);
	insert(r, &row);
out:
	pl_free(length);
	return rc;
}

/* The factor that a line states, which has two digits. */
static double as_printed(double factor)
{
	char text[32];

	snprintf(text, sizeof(text), "%.2g", factor);
	return strtod(text, NULL);
}

/* Two kinds of pauses: what the program does behind the update, and the time of the interpreter
 * between the operations of a step. The selectors take both; the factor keeps the other one. */
static int try_other(struct report *r, const struct pl_verdict_row *v, struct pl_err *err)
{
	struct advice_row row = { .at_most = false };
	double factor = as_printed(1 - v->between), alone;

	snprintf(row.what, sizeof(row.what),
		 "without what the program does between %s: less often, "
		 "or in another thread",
		 v->updates ? "the optimizer and the next batch (logs, metrics)"
			    : "the steps (logs, requests)");
	snprintf(row.change, sizeof(row.change), "scale phase=other by %.2g", factor);
	if (v->between > 0)
		PL_CHECK(simulate(r, row.change, factor, false, &row.saves, &alone, err));
	insert(r, &row);
	factor = as_printed(1 - v->inside / 2);
	row = (struct advice_row){ .no_setting = true };
	snprintf(row.what, sizeof(row.what), "%s", in_words(r, &fewer_pauses));
	snprintf(row.change, sizeof(row.change), "scale phase=other,kind=gap by %.2g", factor);
	if (v->inside > 0)
		PL_CHECK(simulate(r, row.change, factor, false, &row.saves, &alone, err));
	insert(r, &row);
	return 0;
}

static int try_advice(struct report *r, const struct advice *a, const struct pl_verdict_row *v,
		      struct pl_err *err)
{
	struct advice_row row = { .saves = { v->share, 0, v->share },
				  .at_most = !a->selector,
				  .no_setting = a->cause == PL_VERDICT_COMPUTE };

	snprintf(row.what, sizeof(row.what), "%s", in_words(r, what_to_do(r, a, v)));
	if (a->cause == PL_VERDICT_INPUT && !has_workers(&r->g)) {
		PL_CHECK(try_workers(r, v, &row, err));
	} else if (a->selector && (v->rank >= 0 || a->factor >= 0)) {
		double factor = a->factor >= 0 ? a->factor : as_others(r, v), alone;
		char of[24] = "";

		if (a->factor < 0) {
			if (v->share < SMALL)
				return 0;
			snprintf(of, sizeof(of), "rank=%d,", v->rank);
		}
		snprintf(row.change, sizeof(row.change), "scale %s%s by %.3g", of,
			 selector_of(a, v), factor);
		PL_CHECK(simulate(r, row.change, factor, false, &row.saves, &alone, err));
	} else if (a->selector) {
		return 0;
	}
	insert(r, &row);
	return 0;
}

int find_advice(struct report *r, struct pl_err *err)
{
	const struct pl_verdict *v = &r->verdict;

	for (size_t k = 0; k < PL_LEN(advices); k++) {
		const struct advice *a = &advices[k];
		const struct pl_verdict_row *row =
			a->cause == PL_VERDICT_COMPUTE ? &v->compute : NULL;

		for (size_t i = 0; i < v->n && !row; i++)
			if (v->row[i].cause == a->cause &&
			    (a->selector || v->row[i].rank < 0 || a->cause != PL_VERDICT_IMBALANCE))
				row = &v->row[i];
		if (row)
			PL_CHECK(try_advice(r, a, row, err));
		if (row && a->cause == PL_VERDICT_EXPOSED)
			PL_CHECK(try_no_sync(r, row, err));
	}
	for (size_t i = 0; i < v->n; i++)
		if (v->row[i].cause == PL_VERDICT_OTHER)
			PL_CHECK(try_other(r, &v->row[i], err));
	return 0;
}

void print_advice(const struct report *r, struct pl_writer *w)
{
	for (size_t i = 0; i < r->n_advice; i++) {
		const struct advice_row *a = &r->advice[i];
		char head[112], text[320], interval[56] = "";

		if (!a->at_most)
			snprintf(interval, sizeof(interval), " (%.1f to %.1f %%%s)",
				 -100 * a->saves.most, -100 * a->saves.least,
				 is_unreliable(r) ? ", not reliable" : "");
		snprintf(head, sizeof(head), "%s %s-%.1f %%%s:", i ? "           " : "would help:",
			 a->at_most ? "at most " : "", 100 * a->saves.share, interval);
		snprintf(text, sizeof(text), *a->change ? "%s (--what-if '%s')" : "%s", a->what,
			 a->change);
		print_wrapped(head, text, w);
	}
}

void put_advice(struct pl_writer *w, const struct report *r)
{
	pl_json_key(w, "would_help");
	pl_json_open(w, '[');
	for (size_t i = 0; i < r->n_advice; i++) {
		const struct advice_row *a = &r->advice[i];

		pl_json_open(w, '{');
		pl_json_str(w, "what", a->what);
		pl_json_real(w, "share", a->saves.share);
		if (!a->at_most) {
			pl_json_real(w, "share_lo", a->saves.least);
			pl_json_real(w, "share_hi", a->saves.most);
		}
		pl_json_bool(w, "at_most", a->at_most);
		if (*a->change)
			pl_json_str(w, "change", a->change);
		pl_json_close(w);
	}
	pl_json_close(w);
}
