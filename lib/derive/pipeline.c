/*
 * The generator of pipelined training: one step of a batch that passes in microbatches.
 *
 * The layers are cut into stages x chunks parts, of which rank s of a pipeline has the parts s,
 * s + stages, s + 2 stages ... Activations go from part to part, gradients go back. A rank computes
 * one pass of one part for one microbatch at a time, in the order of its schedule. Every schedule
 * here is so many forward passes first, then one forward and one backward pass in turn, then the
 * other backward passes:
 *
 *   gpipe: all forward passes first, chunk after chunk (GPipe, NeurIPS 2019). With chunks it is
 *   breadth-first pipeline parallelism (MLSys 2023).
 *
 *   1f1b: stages - 1 - s forward passes first (PipeDream-Flush, ICML 2021), so at most stages - s
 *   microbatches are in flight.
 *
 *   interleaved: 2 (stages - 1 - s) + (chunks - 1) stages forward passes first, in groups of
 *   `stages` microbatches (Narayanan et al., SC 2021).
 *
 * A message begins when its data is there and the message before it, in the same direction over the
 * same link, has ended; the ranks compute meanwhile. Several pipelines are replicas: the gradients
 * of a layer are reduced over them after its last backward pass, while others compute.
 *
 * O(ranks x microbatches x layers of a rank).
 */
#include "derive/generate_internal.h"

enum { SEND_NEXT = PL_GENERATE_RESOURCES, RECEIVE_PREVIOUS, SEND_PREVIOUS, RECEIVE_NEXT, PER_RANK };
enum { ACTIVATION, GRADIENT }; /* what a message carries */

enum schedule { GPIPE, ONE_F_ONE_B, INTERLEAVED };

struct pipeline {
	struct layer_table *t;
	enum schedule schedule;
	uint32_t stages, chunks, microbatches, parts, replicas;
	size_t *cut; /* [parts + 1]: part k has the layers cut[k] .. cut[k + 1] - 1 */
	struct pl_program *program;   /* [n_ranks] */
	uint32_t *of_rank, *members;  /* of the job */
	uint32_t n_messages, n_comms; /* communications: messages are the first */
	uint32_t *forward, *backward; /* [replicas * layers * microbatches]: operations */
	uint32_t *reduce;	      /* [replicas * layers]: the all-reduce, PL_NONE */
	uint32_t *optimizer;	      /* [n_ranks] */
	uint32_t *receive[2];	      /* of one rank, by pass: forward, backward; PL_NONE */
	pl_ns total_ns;
};
/* One rank while its program is made. */
struct rank {
	uint32_t number, stage, replica;
	struct pl_program *p;
	uint32_t computed;	 /* the last computation */
	uint32_t last[PER_RANK]; /* the last operation of each resource; 0: the begin of the step */
};

/* ---- stages ---------------------------------------------------------------------------------- */

static pl_ns weight(const struct layer_table *t, size_t i)
{
	return t->layer[i].weight;
}

/* How many parts are needed at least if none may take longer than `most`. */
static size_t parts_within(const struct layer_table *t, pl_ns most)
{
	size_t parts = 1;
	pl_ns sum = 0;

	for (size_t i = 0; i < t->n; i++) {
		if (sum + weight(t, i) > most) {
			parts++;
			sum = 0;
		}
		sum += weight(t, i);
	}
	return parts;
}

/*
 * The slowest part is as fast as it can be (bisection over its time). Of such cuts this one fills
 * the last parts first, because the first stages keep the activations of the most microbatches.
 */
static void cut_layers(struct pipeline *x)
{
	const struct layer_table *t = x->t;
	pl_ns low = 0, high = 0; /* low: too little, high: enough */

	for (size_t i = 0; i < t->n; i++) {
		low = pl_max_i64(low, weight(t, i));
		high += weight(t, i);
	}
	for (low--; high - low > 1;) {
		pl_ns middle = low + (high - low) / 2;

		if (parts_within(t, middle) <= x->parts)
			high = middle;
		else
			low = middle;
	}
	x->cut[x->parts] = t->n;
	for (size_t k = x->parts - 1; k > 0; k--) {
		size_t first = x->cut[k + 1] - 1; /* each part has a layer, so k are left */
		pl_ns sum = weight(t, first);

		while (first > k && sum + weight(t, first - 1) <= high)
			sum += weight(t, --first);
		x->cut[k] = first;
	}
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* Microbatch and chunk of the n-th forward pass of a rank. The n-th backward pass has the same
 * microbatch; its chunks come in reverse order. */
static void nth_pass(const struct pipeline *x, uint32_t n, bool forward, uint32_t *microbatch,
		     uint32_t *chunk)
{
	uint32_t round = x->stages * x->chunks;

	if (x->schedule == GPIPE) {
		*chunk = n / x->microbatches;
		*microbatch = n % x->microbatches;
	} else {
		*chunk = n % round / x->stages;
		*microbatch = n / round * x->stages + n % x->stages;
	}
	if (!forward)
		*chunk = x->chunks - 1 - *chunk;
}

/* How many forward passes come before one forward and one backward pass in turn. */
static uint32_t first_forwards(const struct pipeline *x, uint32_t stage)
{
	uint32_t after = x->stages - 1 - stage, n = x->microbatches * x->chunks;

	if (x->schedule == ONE_F_ONE_B)
		n = after < n ? after : n;
	if (x->schedule == INTERLEAVED && 2 * after + (x->chunks - 1) * x->stages < n)
		n = 2 * after + (x->chunks - 1) * x->stages;
	return n;
}

/* ---- the program of a rank ------------------------------------------------------------------- */

static uint32_t rank_of(const struct pipeline *x, uint32_t part, uint32_t replica)
{
	return part % x->stages * x->replicas + replica;
}

/* The place of a pass in x->forward and x->backward. */
static size_t place(const struct pipeline *x, const struct rank *r, size_t layer, uint32_t mb)
{
	return (r->replica * x->t->n + layer) * x->microbatches + mb;
}

/*
 * This rank's side of the message between part `k` and the next. A sender follows operation `after`
 * and its message before. A receiver (`after` is PL_NONE) is ready when the step begins, so that no
 * sender waits for it.
 */
static uint32_t put_message(struct pipeline *x, struct rank *r, unsigned what, uint32_t k,
			    uint32_t mb, uint32_t after)
{
	static const char *const name[2][2] = { { "recv activations", "send activations" },
						{ "recv gradients", "send gradients" } };
	struct pl_graph_program_op op = pl_graph_program_op_unknown;
	uint32_t near = rank_of(x, k, r->replica), far = rank_of(x, k + 1, r->replica);
	uint32_t from = what == ACTIVATION ? near : far, to = what == ACTIVATION ? far : near;
	bool send = after != PL_NONE;
	const struct pl_layers_opts *o = x->t->o;

	op.role = PL_RO_TRANSFER;
	op.kind = send ? PL_K_SEND : PL_K_RECV;
	op.flags = PL_NF_IN_STEP;
	op.resource = what == ACTIVATION ? (send ? SEND_NEXT : RECEIVE_PREVIOUS)
					 : (send ? SEND_PREVIOUS : RECEIVE_NEXT);
	op.comm = ((r->replica * 2 + what) * (x->parts - 1) + k) * x->microbatches + mb;
	op.bytes = x->t->layer[x->cut[k + 1] - 1].output_bytes;
	op.mb = (int32_t)mb;
	op.peer = (int32_t)(send ? to : from);
	op.dur = o->message ? o->message(o->arg, op.bytes, from, to) : 0;
	op.name = pl_derive_name(x->t, name[what][send]);
	pl_derive_add_length(x->t, op.dur, &x->total_ns);
	after = pl_derive_put_op(x->t, r->p, &op) ? after : PL_NONE;
	pl_derive_put_after(x->t, r->p, after, PL_E_DATA);
	pl_derive_put_after(x->t, r->p, send ? r->last[op.resource] : 0, PL_E_SEQ);
	return r->last[op.resource] = (uint32_t)r->p->n_ops - 1;
}

/* The gradients of a layer over the replicas, behind its last backward pass. */
static void put_reduce(struct pipeline *x, struct rank *r, size_t layer)
{
	const struct layer_reduce reduce = { .layer = layer,
					     .name = x->t->layer[layer].reduce,
					     .bytes = x->t->layer[layer].param_bytes,
					     .comm = x->n_messages + (uint32_t)layer,
					     .group = r->stage,
					     .ranks = x->replicas,
					     .after = r->computed,
					     .before = r->last[PL_GENERATE_COMM] };

	r->last[PL_GENERATE_COMM] = x->reduce[r->replica * x->t->n + layer] =
		pl_derive_put_reduce(x->t, r->p, &reduce, &x->total_ns);
}

/* Microbatch, chunk and part of a pass, and the neighbours of the part: does data come from one,
 * and go to one? A message lies between part `receive` or `send` and the next. */
struct pass {
	bool forward;
	uint32_t mb, chunk, part;
	uint32_t receive, send; /* PL_NONE: no message */
};

static struct pass pass_of(const struct pipeline *x, const struct rank *r, bool forward, uint32_t n)
{
	struct pass p = { .forward = forward };
	uint32_t below, above;

	nth_pass(x, n, forward, &p.mb, &p.chunk);
	p.part = p.chunk * x->stages + r->stage;
	below = x->stages > 1 && p.part > 0 ? p.part - 1 : PL_NONE;
	above = x->stages > 1 && p.part < x->parts - 1 ? p.part : PL_NONE;
	p.receive = forward ? below : above;
	p.send = forward ? above : below;
	return p;
}

static void put_receives(struct pipeline *x, struct rank *r)
{
	for (unsigned what = ACTIVATION; what <= GRADIENT; what++)
		for (uint32_t n = 0; n < x->microbatches * x->chunks; n++) {
			struct pass p = pass_of(x, r, what == ACTIVATION, n);

			x->receive[what][n] =
				p.receive == PL_NONE
					? PL_NONE
					: put_message(x, r, what, p.receive, p.mb, PL_NONE);
		}
}

/* The n-th forward or backward pass of a rank, with what it sends. */
static void put_pass(struct pipeline *x, struct rank *r, bool forward, uint32_t n)
{
	unsigned what = forward ? ACTIVATION : GRADIENT;
	struct pass p = pass_of(x, r, forward, n);
	size_t first = x->cut[p.part], end = x->cut[p.part + 1];

	for (size_t i = 0; i < end - first; i++) {
		size_t layer = forward ? first + i : end - 1 - i;
		const struct layer_pass pass = { .layer = layer,
						 .forward = forward,
						 .mb = (int32_t)p.mb,
						 .chunk = x->chunks > 1 ? (int32_t)p.chunk : -1,
						 .after = r->computed,
						 .data = i ? PL_NONE : x->receive[what][n] };

		r->computed = pl_derive_put_pass(x->t, r->p, &pass);
		(forward ? x->forward : x->backward)[place(x, r, layer, p.mb)] = r->computed;
		if (!forward && p.mb == x->microbatches - 1 && x->replicas > 1 &&
		    x->t->layer[layer].param_bytes > 0)
			put_reduce(x, r, layer);
	}
	if (p.send != PL_NONE)
		put_message(x, r, what, p.send, p.mb, r->computed);
}

static void put_optimizer(struct pipeline *x, struct rank *r)
{
	int64_t bytes = 0;
	pl_ns ns = 0;

	for (uint32_t part = r->stage; part < x->parts; part += x->stages)
		for (size_t i = x->cut[part]; i < x->cut[part + 1]; i++) {
			ns += x->t->layer[i].update_ns;
			bytes = pl_add_sat(bytes, x->t->layer[i].param_bytes);
		}
	x->optimizer[r->number] = pl_derive_put_update(x->t, r->p, ns, bytes, r->computed);
	if (r->last[PL_GENERATE_COMM])
		pl_derive_put_after(x->t, r->p, r->last[PL_GENERATE_COMM], PL_E_DATA);
}

static void make_program(struct pipeline *x, uint32_t number)
{
	struct rank r = { .number = number,
			  .stage = number / x->replicas,
			  .replica = number % x->replicas,
			  .p = &x->program[number] };
	uint32_t n = x->microbatches * x->chunks, first = first_forwards(x, r.stage);

	pl_derive_put_mark(x->t, r.p, true);
	put_receives(x, &r);
	for (uint32_t i = 0; i < n + first && !x->t->err->code; i++) {
		if (i < n)
			put_pass(x, &r, true, i);
		if (i >= first)
			put_pass(x, &r, false, i - first);
	}
	put_optimizer(x, &r);
	pl_derive_put_mark(x->t, r.p, false);
}

/* ---- the graph ------------------------------------------------------------------------------- */

/* The tensors of a layer on a rank whose operations are these nodes. */
static void put_tensors(const struct pipeline *x, const struct rank *r, size_t layer,
			const uint32_t *node)
{
	const uint32_t *forward = &x->forward[place(x, r, layer, 0)];
	const uint32_t *backward = &x->backward[place(x, r, layer, 0)];
	uint32_t optimizer = node[x->optimizer[r->number]], last = x->microbatches - 1;
	uint32_t reduce = x->reduce[r->replica * x->t->n + layer];

	pl_derive_put_params(x->t, layer, node[forward[0]], node[backward[last]],
			     reduce == PL_NONE ? optimizer : node[reduce], optimizer);
	for (uint32_t mb = 0; mb <= last; mb++)
		pl_derive_put_activation(x->t, layer, node[forward[mb]], node[backward[mb]]);
}

static void describe_ranks(struct pipeline *x, const struct pl_graph_program_nodes *nodes)
{
	struct pl_graph *g = x->t->g;

	for (size_t i = 0; i < g->n_res; i++) {
		uint32_t rank = (uint32_t)g->res[i].rank;

		g->res[i].coord[0] = (int32_t)(rank % x->replicas);
		g->res[i].coord[1] = (int32_t)(rank / x->replicas);
	}
	for (uint32_t n = 0; n < x->t->n_ranks; n++) {
		struct rank r = { .number = n,
				  .stage = n / x->replicas,
				  .replica = n % x->replicas };

		for (uint32_t part = r.stage; part < x->parts; part += x->stages)
			for (size_t i = x->cut[part]; i < x->cut[part + 1]; i++)
				put_tensors(x, &r, i, nodes->first + nodes->at[n]);
	}
}

/* The replicas of a stage, which reduce gradients. */
static void put_groups(struct pipeline *x)
{
	char name[32];

	for (uint32_t s = 0; x->replicas > 1 && s < x->stages; s++) {
		snprintf(name, sizeof(name), "dp of stage %u", s);
		pl_derive_put_group(x->t->g, name, 0, NULL, s * x->replicas, x->replicas,
				    x->t->err);
	}
}

static void make_graph(struct pipeline *x)
{
	static const char *const resource[PER_RANK] = {
		[PL_GENERATE_COMPUTE] = "compute",  [PL_GENERATE_COMM] = "comm",
		[SEND_NEXT] = "send activations",   [RECEIVE_PREVIOUS] = "receive activations",
		[SEND_PREVIOUS] = "send gradients", [RECEIVE_NEXT] = "receive gradients",
	};
	struct pl_graph_program_nodes nodes = { .at = NULL };
	struct pl_graph_program_job job = { .program = x->program,
					    .of_rank = x->of_rank,
					    .n_ranks = x->t->n_ranks,
					    .per_host = x->t->o->per_host,
					    .resource = resource,
					    .n_resources = PER_RANK,
					    .n_comms = x->n_comms,
					    .members = x->members };
	int rc;

	put_groups(x);
	for (uint32_t r = 0; r < job.n_ranks; r++) {
		x->of_rank[r] = r;
		make_program(x, r);
	}
	PL_TRY(x->t->err->code);
	/* communication that no program has, as of layers without parameters, has no members */
	for (uint32_t r = 0; r < job.n_ranks; r++)
		for (size_t i = 0; i < x->program[r].n_ops; i++)
			if (x->program[r].op[i].comm != PL_NONE)
				x->members[x->program[r].op[i].comm]++;
	PL_TRY(pl_graph_from_programs(&job, x->t->g, &nodes, x->t->err));
	describe_ranks(x, &nodes);
out:
	pl_graph_program_nodes_fini(&nodes);
}

/* ---- the statement --------------------------------------------------------------------------- */

static uint32_t number(const struct pl_lang_statement *st, const char *key)
{
	const struct pl_lang_value *v = pl_lang_get(st, key);

	return v ? (uint32_t)v->i : 1;
}

static int check(struct pipeline *x, struct pl_err *err)
{
	struct layer_table *t = x->t;

	if ((x->schedule == INTERLEAVED) != (x->chunks > 1) && x->schedule != GPIPE)
		return pl_fail(err, PL_EUSAGE,
			       "pipeline: interleaved takes two or more chunks, 1f1b takes one");
	if (x->schedule == INTERLEAVED && x->microbatches % x->stages)
		return pl_fail(
			err, PL_EUSAGE,
			"pipeline: interleaved: %u microbatches are no multiple of %u stages",
			x->microbatches, x->stages);
	if ((uint64_t)x->stages * x->chunks > t->n)
		return pl_fail(err, PL_EUSAGE,
			       "pipeline: %u stages of %u chunks need as many layers; %s has %zu",
			       x->stages, x->chunks, t->file, t->n);
	if (t->n_ranks == PL_NONE)
		t->n_ranks = x->stages;
	if (t->n_ranks % x->stages)
		return pl_fail(err, PL_EUSAGE, "pipeline: %u ranks are no multiple of %u stages",
			       t->n_ranks, x->stages);
	x->parts = x->stages * x->chunks;
	x->replicas = t->n_ranks / x->stages;
	if ((double)x->replicas * x->microbatches * (double)(t->n + 8 * (size_t)x->parts) >
	    PL_NONE / 8)
		return pl_fail(
			err, PL_ELIMIT,
			"pipeline: %u microbatches of %zu layers on %u ranks are more than a "
			"graph can hold",
			x->microbatches, t->n, t->n_ranks);
	x->total_ns = t->total_ns > TIME_MAX / x->microbatches ? TIME_MAX + 1
							       : t->total_ns * x->microbatches;
	pl_derive_add_length(t, 0, &x->total_ns);
	return err->code;
}

void pl_derive_pipeline(struct layer_table *t, const struct pl_lang_statement *st)
{
	struct pl_err *err = t->err;
	struct pipeline x = { .t = t,
			      .schedule = (enum schedule)pl_lang_get(st, "schedule")->i,
			      .stages = number(st, "stages"),
			      .microbatches = number(st, "microbatches"),
			      .chunks = number(st, "chunks") };
	size_t passes, reduces, own, n;
	uint32_t *at = NULL;
	int rc;

	PL_TRY(check(&x, err));
	x.n_messages = 2 * x.replicas * (x.parts - 1) * x.microbatches * (x.stages > 1);
	x.n_comms = x.n_messages + (x.replicas > 1 ? (uint32_t)t->n : 0);
	reduces = x.replicas * t->n;
	passes = reduces * x.microbatches;
	own = (size_t)x.microbatches * x.chunks;
	n = reduces + 2 * passes + 2 * own + 2 * (size_t)t->n_ranks + x.n_comms;
	PL_TRY(pl_alloc(&x.cut, x.parts + (size_t)1, sizeof(*x.cut), err));
	PL_TRY(pl_alloc(&x.program, t->n_ranks, sizeof(*x.program), err));
	PL_TRY(pl_alloc(&at, n, sizeof(*at), err));
	x.reduce = at;
	memset(x.reduce, 0xff, reduces * sizeof(*x.reduce));
	x.forward = x.reduce + reduces;
	x.backward = x.forward + passes;
	x.receive[0] = x.backward + passes;
	x.receive[1] = x.receive[0] + own;
	x.of_rank = x.receive[1] + own;
	x.optimizer = x.of_rank + t->n_ranks;
	x.members = x.optimizer + t->n_ranks;
	cut_layers(&x);
	make_graph(&x);
out:
	for (uint32_t r = 0; x.program && r < t->n_ranks; r++)
		pl_graph_program_fini(&x.program[r]);
	pl_free(x.cut);
	pl_free(x.program);
	pl_free(at);
}
