/*
 * The present choice of buckets as lines of a plan. Tensors by number.
 */
#include "search/buckets_internal.h"

static int add_line(struct pl_plan *p, unsigned op, const char *word, int64_t k,
		    const uint32_t *tensor, uint32_t n, struct pl_err *err)
{
	struct pl_rewrite rw = { .op = (uint8_t)op,
				 .word = word,
				 .k = k,
				 .n_args = n,
				 .alone_ns = INT64_MIN,
				 .in_plan_ns = INT64_MIN };
	int rc = pl_alloc(&rw.arg, n ? n : 1, sizeof(*rw.arg), err);

	for (uint32_t i = 0; rc == 0 && i < n; i++)
		rw.arg[i] = p->tensor[tensor[i]].name;
	if (rc == 0)
		rc = pl_plan_add(p, &rw, err);
	pl_free(rw.arg);
	return rc;
}

/* Did the tensor share its bucket in the recording? */
static bool was_fused(const struct choices *s, uint32_t tensor)
{
	for (uint32_t t = 0; t < s->n; t++)
		if (t != tensor && s->recorded->b.set[t] == s->recorded->b.set[tensor])
			return true;
	return false;
}

/* If some sets differ from the recorded ones, write lines for all, so that the plan shows all. */
static int fuse_lines(struct choices *s, struct pl_err *err)
{
	const struct pl_buckets *b = &s->now->b;
	int rc = 0;

	if (b->n_sets == s->recorded->b.n_sets &&
	    !memcmp(b->set, s->recorded->b.set, s->n * sizeof(*b->set)))
		return 0;
	for (uint32_t a = 0; rc == 0 && a < b->n_sets; a++) {
		const uint32_t *v = pl_search_set_members(s, a);
		uint32_t n = pl_search_set_size(s, a);

		if (n > 1 || was_fused(s, v[0]))
			rc = add_line(s->search->p, PL_RW_FUSE_TENSORS, NULL, 0, v, n, err);
	}
	return rc;
}

static int algorithm_lines(struct choices *s, struct pl_err *err)
{
	const uint32_t sets = s->now->b.n_sets;
	int rc = 0;

	for (unsigned algo = PL_ALGO_RING; rc == 0 && algo < PL_ALGO_COUNT_; algo++) {
		uint32_t n = 0;

		for (uint32_t a = 0; a < sets; a++)
			if (s->now->algo[a] == algo)
				s->scratch[n++] = *pl_search_set_members(s, a);
		if (n && algo != s->plain)
			rc = add_line(s->search->p, PL_RW_ALGORITHM, pl_plan_algorithm_name(algo),
				      algo == PL_ALGO_PS ? s->servers : 0, s->scratch,
				      n == sets ? 0 : n, err);
	}
	return rc;
}

/* A tensor of each set, the most urgent first. */
static int priority_line(struct choices *s, struct pl_err *err)
{
	uint32_t *v = s->scratch, n = 0;

	for (uint32_t t = 0; t < s->n; t++) /* tensors by priority */
		v[s->priority[t] - 1] = t;
	memset(s->hot, 0, s->n); /* [set]: it has a tensor in the line */
	for (uint32_t i = 0; i < s->n; i++)
		if (!s->hot[s->now->b.set[v[i]]]) {
			s->hot[s->now->b.set[v[i]]] = 1;
			v[n++] = v[i];
		}
	return add_line(s->search->p, PL_RW_PRIORITY, NULL, 0, v, n, err);
}

int pl_search_choice_lines(struct choices *s, struct pl_err *err)
{
	const struct pl_buckets *b = &s->now->b;

	PL_CHECK(fuse_lines(s, err));
	for (uint32_t a = 0; a < b->n_sets; a++)
		if (b->parts[a] > 1)
			PL_CHECK(add_line(s->search->p, PL_RW_PARTITION_TENSOR, NULL, b->parts[a],
					  pl_search_set_members(s, a), 1, err));
	for (uint32_t a = 0; a < b->n_sets; a++)
		s->scratch[a] = *pl_search_set_members(s, a);
	if (s->now->ordered && b->n_sets > 1)
		PL_CHECK(add_line(s->search->p, PL_RW_ORDER, NULL, 0, s->scratch, b->n_sets, err));
	if (s->now->urgent && b->n_sets > 1)
		PL_CHECK(priority_line(s, err));
	return algorithm_lines(s, err);
}
