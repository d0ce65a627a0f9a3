/*
 * Buckets: gradients that are sent together, their order and algorithm; from a plan or DDP's rule.
 *
 * A plan without tensors of a base (one by hand) gets the tensors of the network as its base.
 *
 * The default is the rule of PyTorch's DistributedDataParallel (Li et al., VLDB 2020, section
 * 3.2.3): gradients fill a bucket in the order in which they become ready; the gradient that
 * reaches the limit closes it. A plan changes these buckets: pl_plan_buckets() makes its sets, and
 * the names of its tensors are resolved to tensors of the network. Tensors that the plan does not
 * name are put into sets by the default rule, after the sets of the plan.
 *
 * The tensors of a bucket are in the order of the slab of gradients. If they are contiguous in the
 * slab, they are sent from there, with the gaps between them (tensors are aligned).
 */
#include <math.h>
#include <stdlib.h>

#include "dp/dp.h"
#include "train/worker.h"

struct builder {
	const struct pl_net_tensor *t;
	uint32_t n;
	uint32_t *set;	/* [tensor of the network]: its set, PL_NONE: none so far */
	uint32_t *base; /* the default bucket of a tensor */
	uint32_t *parts;
	uint8_t *algo;
	uint32_t n_sets;
	uint32_t *found; /* (n) scratch memory of assign() */
};

/* Give tensors without a set one, from number `next` on, by the default rule. Returns the next. */
static uint32_t assign_default_sets(const struct builder *m, int64_t limit, uint32_t *set,
				    uint32_t next)
{
	struct pl_bucket_filler f = { .rule = pl_plan_bucket_rule_ddp(limit), .set = next };

	for (uint32_t i = m->n; i-- > 0;)
		if (set[i] == PL_NONE)
			set[i] = pl_plan_bucket_next(&f, (int64_t)(m->t[i].n * sizeof(float)));
	return pl_plan_bucket_end(&f);
}

/* ---- names --------------------------------------------------------------------------------- */

/* Reads the number behind "grad " or "bucket "; false: the name has another form. */
static bool parse_number(const char *name, const char *what, uint32_t *k)
{
	size_t n = strlen(what);
	char *end;
	unsigned long v;

	if (strncmp(name, what, n) || name[n] < '0' || name[n] > '9')
		return false;
	v = strtoul(name + n, &end, 10);
	*k = (uint32_t)v;
	return (*end == '\0' || *end == ' ') && v < UINT32_MAX;
}

/* "grad 3 512x784": does the tensor have that shape? A name without a shape fits all. */
static bool shape_fits(const struct pl_net_tensor *t, const char *name)
{
	const char *s = strchr(name + 5, ' ');
	char *end;

	if (!s)
		return true;
	for (int i = 0; i < t->n_dims; i++, s = end)
		if (strtoll(s + 1, &end, 10) != t->dim[i] || *end != (i + 1 < t->n_dims ? 'x' : 0))
			return false;
	return true;
}

/* Finds the tensors that a name of the plan stands for: found[0 .. m->n). Returns how many. */
static uint32_t resolve(const struct builder *m, const char *name, uint32_t *found)
{
	uint32_t k, n = 0;
	size_t len = strlen(name);

	for (uint32_t i = 0; i < m->n; i++)
		if (!strcmp(m->t[i].name, name) ||
		    (!strncmp(name, "grad ", 5) && !strcmp(m->t[i].name, name + 5))) {
			found[0] = i;
			return 1;
		}
	if (parse_number(name, "grad ", &k)) {
		if (k >= m->n || !shape_fits(&m->t[m->n - 1 - k], name))
			return 0;
		found[0] = m->n - 1 - k;
		return 1;
	}
	for (uint32_t i = 0; i < m->n; i++) { /* "bucket 3", or a module: "fc1" */
		bool module = !strncmp(m->t[i].name, name, len) && m->t[i].name[len] == '.';

		if (module || (parse_number(name, "bucket ", &k) && m->base[i] == k))
			found[n++] = i;
	}
	return n;
}

/* Sets value[tensor] of each tensor that the name stands for. */
static void assign(const struct builder *m, const char *name, uint32_t *value, uint32_t v)
{
	for (uint32_t i = resolve(m, name, m->found); i-- > 0;)
		value[m->found[i]] = v;
}

/* ---- plans --------------------------------------------------------------------------------- */

static void set_algo(struct builder *m, const struct pl_rewrite *rw, const struct pl_log *log)
{
	int algo = rw->word ? pl_comm_algorithm_find(rw->word) : -1;

	if (algo < 0) {
		pl_say(log, PL_LOG_WARN,
		       "the plan's algorithm %s is left out: this engine does not have it",
		       rw->word ? rw->word : "");
		return;
	}
	for (uint32_t s = 0; !rw->n_args && s < m->n_sets; s++)
		m->algo[s] = (uint8_t)algo;
	for (uint32_t a = 0; a < rw->n_args; a++)
		for (uint32_t i = resolve(m, rw->arg[a], m->found); i-- > 0;)
			m->algo[m->set[m->found[i]]] = (uint8_t)algo;
}

/* Rewrites that do not change the sets of tensors. train/worker.c applies those of its passes. */
static void apply_other_rewrite(struct builder *m, const struct pl_rewrite *rw,
				const struct pl_log *log)
{
	const char *why =
		rw->op == PL_RW_BANDWIDTH || rw->op == PL_RW_LATENCY || rw->op == PL_RW_SPEED
			? "it describes another machine"
			: "run has nothing like it";

	if (rw->op == PL_RW_ALGORITHM)
		set_algo(m, rw, log);
	if (rw->op == PL_RW_PRIORITY)
		why = "the optimizer waits for all gradients, so none is more urgent than another";
	if (rw->op == PL_RW_FUSE_OPS)
		why = "layers are one operation with the activation behind them already, and no "
		      "others become one";
	if (rw->op != PL_RW_ALGORITHM && rw->op != PL_RW_FUSE_TENSORS &&
	    rw->op != PL_RW_PARTITION_TENSOR && rw->op != PL_RW_ORDER &&
	    rw->op != PL_RW_BUCKET_MB && !pl_train_worker_obeys(rw->op))
		pl_say(log, PL_LOG_WARN, "the plan's %s is left out: %s",
		       pl_plan_rewrite_name(rw->op), why);
}

static int no_tensor(const struct builder *m, const char *name, struct pl_err *err)
{
	struct pl_plan_near near = pl_plan_near_begin(name);

	for (uint32_t i = 0; i < m->n; i++)
		pl_plan_near(&near, m->t[i].name);
	return pl_plan_no_name(
		&near, "there is",
		"the plan is another job's, or the name is wrong: the network's tensors "
		"are called MODULE.weight and MODULE.bias, or \"grad N\", where 0 is "
		"the last",
		err);
}

/* ---- plans by hand ------------------------------------------------------------------------- */

/* Take the tensors that name `arg` of rewrite i stands for: taken_by[tensor]. */
static int take_name(const struct builder *m, const struct pl_plan *p, size_t i, uint32_t arg,
		     const char **taken_by, struct pl_err *err)
{
	const struct pl_rewrite *rw = &p->rw[i];
	const char *name = rw->arg[arg];
	uint32_t n = resolve(m, name, m->found);
	int rc = n ? 0 : no_tensor(m, name, err);

	for (uint32_t k = 0; k < n && rc == 0; k++) {
		const char **by = &taken_by[m->found[k]];

		if (*by && strcmp(*by, name) != 0)
			rc = pl_fail(err, PL_EDATA,
				     "\"%.200s\" and \"%.200s\" both stand for the tensor %s; "
				     "name it in one way",
				     *by, name, m->t[m->found[k]].name);
		*by = name;
	}
	return rc < 0 ? pl_plan_wrap(p->file, rw, i, arg, err) : 0;
}

/*
 * Make a plan with the tensors of the network as its base, in the order in which they become ready.
 * Tensors for which a rewrite has one name, such as those of a module, become one. *full borrows
 * the rest from p; the caller frees the arena and the tensors.
 */
static int add_base(const struct builder *m, const struct pl_plan *p, struct pl_plan *full,
		    struct pl_err *err)
{
	const char **taken_by;
	int rc;

	*full = *p;
	full->arena = (struct pl_arena){ 0 };
	PL_CHECK(pl_alloc(&taken_by, (size_t)m->n + 1, sizeof(*taken_by), err));
	for (size_t i = 0; i < p->n_rw; i++)
		for (uint32_t a = 0; a < p->rw[i].n_args && pl_plan_names_tensors(p->rw[i].op); a++)
			PL_TRY(take_name(m, p, i, a, taken_by, err));
	for (uint32_t i = m->n; i-- > 0;) {
		const char *name = taken_by[i] ? taken_by[i] : m->t[i].name;

		if (!taken_by[i] || (resolve(m, name, m->found), m->found[0] == i))
			PL_TRY(pl_plan_add_tensor(full, name, (int64_t)(m->t[i].n * sizeof(float)),
						  false, err));
	}
	rc = 0;
out:
	pl_free(taken_by);
	return rc;
}

/* Give each tensor its set of the plan. Tensors that the plan does not name come last. */
static int assign_plan_sets(struct builder *m, const struct pl_plan *p, int64_t limit,
			    struct pl_err *err)
{
	struct pl_buckets b = { 0 };
	uint32_t *base = NULL;
	int rc;

	PL_TRY(pl_alloc(&base, p->n_tensors + 1, sizeof(*base), err));
	for (size_t i = 0; i < p->n_tensors; i++) {
		uint32_t k = resolve(m, p->tensor[i].name, m->found);

		if (!k) {
			rc = no_tensor(m, p->tensor[i].name, err);
			pl_plan_wrap_tensor(p, i, true, err);
			goto out;
		}
		base[i] = m->base[m->found[k - 1]];
	}
	PL_TRY(pl_plan_buckets(p, base, &b, err));
	for (size_t i = 0; i < p->n_tensors; i++)
		assign(m, p->tensor[i].name, m->set, b.set[i]);
	m->n_sets = assign_default_sets(m, limit, m->set, b.n_sets);
	for (uint32_t s = 0; s < m->n_sets && s < b.n_sets; s++)
		m->parts[s] = b.parts[s];
out:
	pl_plan_buckets_fini(&b);
	pl_free(base);
	return rc;
}

/* ---- the result ---------------------------------------------------------------------------- */

/* Makes a bucket of each set that has a tensor; its tensors are in the order of the slab. */
static int build(struct builder *m, struct pl_dp_buckets *b, struct pl_err *err)
{
	uint32_t at = 0;

	PL_CHECK(pl_alloc(&b->v, (size_t)m->n_sets + 1, sizeof(*b->v), err));
	PL_CHECK(pl_alloc(&b->index, (size_t)m->n + 1, sizeof(*b->index), err));
	PL_CHECK(pl_alloc(&b->of, (size_t)m->n + 1, sizeof(*b->of), err));
	for (uint32_t s = 0; s < m->n_sets; s++) {
		struct pl_dp_bucket x = {
			.first = at, .parts = m->parts[s], .algo = m->algo[s], .contiguous = true
		};
		const struct pl_net_tensor *last = NULL;

		for (uint32_t i = 0; i < m->n; i++) {
			if (m->set[i] != s)
				continue;
			x.contiguous &= !last || i == b->index[at - 1] + 1;
			b->index[at++] = i;
			b->of[i] = b->n;
			x.count += m->t[i].n;
			x.n++;
			last = &m->t[i];
		}
		if (!x.n)
			continue;
		x.offset = m->t[b->index[x.first]].offset;
		if (x.contiguous)
			x.count = last->offset + last->n - x.offset;
		x.parts = x.parts > x.count ? (uint32_t)x.count : x.parts;
		b->v[b->n++] = x;
	}
	return 0;
}

int pl_dp_buckets(const struct pl_net_tensor *t, uint32_t n, double bucket_mb, uint8_t algo,
		  const struct pl_plan *plan, const struct pl_log *log, struct pl_dp_buckets *b,
		  struct pl_err *err)
{
	struct builder m = { .t = t, .n = n };
	struct pl_plan by_hand = { .n_rw = 0 };
	int64_t limit = bucket_mb > 0 ? (int64_t)ceil(bucket_mb * 1048576) : PL_DDP_BUCKET_BYTES;
	uint32_t sets;
	int rc;

	memset(b, 0, sizeof(*b));
	sets = 2 * n + 1 + (plan ? (uint32_t)pl_min_size(plan->n_tensors, UINT32_MAX / 4) : 0);
	PL_TRY(pl_alloc(&m.set, (size_t)n + 1, sizeof(*m.set), err));
	PL_TRY(pl_alloc(&m.base, (size_t)n + 1, sizeof(*m.base), err));
	PL_TRY(pl_alloc(&m.found, (size_t)n + 1, sizeof(*m.found), err));
	PL_TRY(pl_alloc(&m.parts, sets, sizeof(*m.parts), err));
	PL_TRY(pl_alloc(&m.algo, sets, sizeof(*m.algo), err));
	memset(m.set, 0xff, n * sizeof(*m.set));
	memset(m.base, 0xff, n * sizeof(*m.base));
	for (uint32_t i = 0; i < sets; i++) {
		m.parts[i] = 1;
		m.algo[i] = algo;
	}
	assign_default_sets(&m, limit, m.base, 0);
	if (plan && !plan->n_tensors)
		PL_TRY(add_base(&m, plan, &by_hand, err));
	if (plan)
		PL_TRY(assign_plan_sets(&m, plan->n_tensors ? plan : &by_hand, limit, err));
	else
		m.n_sets = assign_default_sets(&m, limit, m.set, 0);
	for (size_t i = 0; plan && i < plan->n_rw; i++)
		apply_other_rewrite(&m, &plan->rw[i], log);
	rc = build(&m, b, err);
out:
	pl_free(by_hand.tensor);
	pl_arena_fini(&by_hand.arena);
	pl_free(m.set);
	pl_free(m.base);
	pl_free(m.found);
	pl_free(m.parts);
	pl_free(m.algo);
	if (rc < 0)
		pl_dp_buckets_fini(b);
	return rc;
}

void pl_dp_buckets_fini(struct pl_dp_buckets *b)
{
	pl_free(b->v);
	pl_free(b->index);
	pl_free(b->of);
	memset(b, 0, sizeof(*b));
}
