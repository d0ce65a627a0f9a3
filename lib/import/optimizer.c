/*
 * Steps of a recording whose program does not mark them with prof.step(): PyTorch records the calls
 * of optimizers. After a call of step() the next step begins: with the call of zero_grad(), and
 * with the batch that was fetched just before that; without zero_grad(), at the end of step().
 *
 * Of several optimizers the one that steps most seldom counts, of those that step equally often the
 * last one, as in trace -- COMMAND. Optimizers of one class have one name: calls that follow one
 * another after less than a quarter of the longest time between two belong to one step. What comes
 * before the first of these borders, and after the last one, is in no step.
 */
#include "import/internal.h"

#define TOGETHER 4 /* a gap is short if it is less than this part of the longest one */

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

/* The calls of one optimizer, of n in order: the first of them, and how many there are. */
static size_t choose(const struct pl_call *v, size_t n, size_t *first)
{
	size_t best = 0;

	for (size_t i = 0, k; i < n; i += k) {
		for (k = 1; i + k < n && v[i + k].pid == v[i].pid && v[i + k].tid == v[i].tid &&
			    v[i + k].name == v[i].name;
		     k++)
			;
		if (best &&
		    (k > best || (k == best && v[i + k - 1].end < v[*first + best - 1].end)))
			continue;
		*first = i;
		best = k;
	}
	return best;
}

/* Calls that belong to one step become the last of them. Returns how many remain. */
static size_t join(struct pl_call *v, size_t n)
{
	pl_ns longest = 0;
	size_t kept = 0;

	for (size_t i = 1; i < n; i++)
		longest = pl_max_i64(longest, v[i].start - v[i - 1].end);
	for (size_t i = 0; i < n; i++) {
		if (kept && v[i].start - v[kept - 1].end < longest / TOGETHER)
			kept--;
		v[kept++] = v[i];
	}
	return kept;
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

size_t pl_import_calls_steps(struct pl_calls *c)
{
	struct pl_call *v = c->v;
	size_t steps = 0, first = 0, n, at = 0, last;
	bool zero = false, usual = false;

	if (c->marked || !c->n)
		return 0;
	pl_sort(v, c->n, sizeof(*v), by_optimizer);
	while (steps < c->n && v[steps].what == PL_CALL_STEP)
		steps++;
	pl_sort(v + steps, c->n - steps, sizeof(*v), by_thread);
	n = choose(v, steps, &first);
	memmove(v, v + first, n * sizeof(*v));
	n = join(v, n);
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
	return last ? last - 1 : 0;
}

void pl_import_calls_fini(struct pl_calls *c)
{
	pl_intern_fini(&c->names);
	pl_free(c->v);
}
