/*
 * Steps of a recording whose program does not mark them with prof.step(): PyTorch records the calls
 * of optimizers. After a call of step() the next step begins: with the call of zero_grad(), and
 * with the batch that was fetched just before that; without zero_grad(), at the end of step().
 *
 * Of several optimizers the one that steps most seldom counts, unless it steps once, of those that
 * step equally often the last one, as in trace -- COMMAND. Optimizers of one class have one name.
 * Several of them that step in each step show gaps of two classes, so many short ones between any
 * two long ones; or no zero_grad() and no batch between their calls. What comes before the first of
 * these borders, and after the last one, is in no step.
 */
#include "import/internal.h"

#define TOGETHER 4 /* by this factor gaps within steps are shorter than the others */

int pl_import_calls_add(struct pl_calls *c, enum pl_called what, const char *name, size_t n,
			const struct pl_fields *f, struct pl_err *err)
{
	struct pl_call call = { .pid = f->pid.v, .tid = f->tid.v, .start = f->ts };

	/* other ids than numbers change with the segment */
	if (f->pid.tok != PL_TOK_INT || f->tid.tok != PL_TOK_INT || !f->has_dur || f->dur < 0)
		return 0;
	call.end = pl_add_sat(f->ts, f->dur);
	call.what = what;
	PL_CHECK(pl_intern_add(&c->names, name, n, &call.name, err));
	return pl_append(&c->v, &c->n, &c->cap, &call, sizeof(call), err);
}

PL_COMPARATOR(by_optimizer, struct pl_call, what, pid, tid, name, start, end);

PL_COMPARATOR(by_thread, struct pl_call, pid, tid, start, end);

/* Do the n calls that end with `last` show steps better than others? What came once shows none. */
static bool is_better(size_t n, const struct pl_call *last, size_t others,
		      const struct pl_call *others_last)
{
	if ((n > 1) != (others > 1))
		return n > 1;
	return n == others ? last->end >= others_last->end : n < others;
}

/* The calls of one optimizer, of n in order: the first of them, and how many there are. */
static size_t choose(const struct pl_call *v, size_t n, size_t *first)
{
	size_t best = 0;

	for (size_t i = 0, k; i < n; i += k) {
		for (k = 1; i + k < n && v[i + k].pid == v[i].pid && v[i + k].tid == v[i].tid &&
			    v[i + k].name == v[i].name;
		     k++)
			;
		if (best && !is_better(k, &v[i + k - 1], best, &v[*first + best - 1]))
			continue;
		*first = i;
		best = k;
	}
	return best;
}

static pl_ns gap(const struct pl_call *v, size_t i)
{
	return pl_max_i64(0, pl_sub_sat(v[i].start, v[i - 1].end));
}

/* Are there the same number of short gaps between all that are not, and two of these at least?
 * Recordings begin and end inside of a step, so there may be fewer before the first and behind the
 * last. */
static bool is_regular(const struct pl_call *v, size_t n, pl_ns limit)
{
	size_t run = 0, longer = 0, each = 0, first = 0;

	for (size_t i = 1; i < n; i++) {
		if (gap(v, i) < limit) {
			run++;
			continue;
		}
		if (longer == 0)
			first = run;
		else if (longer == 1)
			each = run;
		else if (run != each)
			return false;
		longer++;
		run = 0;
	}
	return longer >= 2 && each > 0 && first <= each && run <= each;
}

/* Gaps within a step are below *limit, those between steps are not: several optimizers step in each
 * step. A pause of one optimizer is a long gap, too, but not a regular one. */
static int find_limit(const struct pl_call *v, size_t n, pl_ns *limit, struct pl_err *err)
{
	int64_t *sorted;

	*limit = 0;
	PL_CHECK(pl_alloc(&sorted, n, sizeof(*sorted), err));
	for (size_t i = 1; i < n; i++)
		sorted[i - 1] = gap(v, i);
	pl_sort(sorted, n - 1, sizeof(*sorted), pl_compare_i64);
	for (size_t i = 1; i + 1 < n && !*limit; i++)
		if (sorted[i] / TOGETHER > sorted[i - 1] && is_regular(v, n, sorted[i]))
			*limit = sorted[i];
	pl_free(sorted);
	return 0;
}

/* Is there a call of zero_grad(), or for a batch, between the two calls? *at: of those that are in
 * order of threads, the first that may be; moves on. */
static bool is_divided(const struct pl_call *a, const struct pl_call *b, const struct pl_call *v,
		       size_t n, size_t *at)
{
	while (*at < n && by_thread(&v[*at], a) < 0)
		++*at;
	return *at < n && v[*at].pid == a->pid && v[*at].tid == a->tid && v[*at].start < b->start;
}

/* Calls that belong to one step become the last of them. Returns how many remain in *kept. Where
 * gaps do not tell, what lies between two calls does. */
static int join(struct pl_call *v, size_t n, const struct pl_call *other, size_t n_other,
		size_t *kept, struct pl_err *err)
{
	bool divides = false;
	size_t at = 0;
	pl_ns limit;

	*kept = n;
	if (n < 2)
		return 0;
	PL_CHECK(find_limit(v, n, &limit, err));
	for (size_t i = 1; i < n && !limit; i++)
		divides |= is_divided(&v[i - 1], &v[i], other, n_other, &at);
	at = *kept = 0;
	for (size_t i = 0; i < n; i++) {
		if (i && (limit ? gap(v, i) < limit
				: divides && !is_divided(&v[i - 1], &v[i], other, n_other, &at)))
			--*kept;
		v[(*kept)++] = v[i];
	}
	return 0;
}

/* Where the step after the call x begins. The n others are in order of threads; *at: the first that
 * may follow x, moves on. before: the start of the next call. *zero: was it found by zero_grad()?
 */
static pl_ns border(const struct pl_call *x, pl_ns before, const struct pl_call *v, size_t n,
		    size_t *at, bool *zero)
{
	const struct pl_call after = { .pid = x->pid, .tid = x->tid, .start = x->end };
	pl_ns fetched = x->end, fetch_end = INT64_MIN;

	*zero = false;
	while (*at < n && by_thread(&v[*at], &after) < 0)
		++*at;
	for (size_t i = *at;
	     i < n && v[i].pid == x->pid && v[i].tid == x->tid && v[i].start < before; i++) {
		*zero = v[i].what == PL_CALL_ZERO_GRAD;
		if (*zero)
			return fetch_end <= v[i].start && fetch_end > x->end ? fetched : v[i].start;
		fetched = v[i].start;
		fetch_end = v[i].end;
	}
	return x->end;
}

int pl_import_calls_steps(struct pl_calls *c, size_t *found, struct pl_err *err)
{
	struct pl_call *v = c->v;
	size_t steps = 0, first = 0, n, at = 0, last;
	bool zero = false, usual = false;

	*found = 0;
	if (c->marked || !c->n)
		return 0;
	pl_sort(v, c->n, sizeof(*v), by_optimizer);
	while (steps < c->n && v[steps].what == PL_CALL_STEP)
		steps++;
	pl_sort(v + steps, c->n - steps, sizeof(*v), by_thread);
	n = choose(v, steps, &first);
	memmove(v, v + first, n * sizeof(*v));
	PL_CHECK(join(v, n, v + steps, c->n - steps, &n, err));
	for (size_t i = 0; i < n; i++) {
		usual |= zero;
		v[i].end = border(&v[i], i + 1 < n ? v[i + 1].start : INT64_MAX, c->v + steps,
				  c->n - steps, &at, &zero);
	}
	last = n && usual && !zero ? n - 1 : n; /* what follows the last call is missing */
	for (size_t i = 0; i + 1 < last; i++) {
		v[i].start = v[i].end;
		v[i].end = pl_max_i64(v[i].start, v[i + 1].end);
	}
	*found = last ? last - 1 : 0;
	return 0;
}

void pl_import_calls_fini(struct pl_calls *c)
{
	pl_intern_fini(&c->names);
	pl_free(c->v);
}
