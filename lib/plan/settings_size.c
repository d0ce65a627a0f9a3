/*
 * One size for all buckets, for the frameworks that have no list of them.
 *
 * Such a framework fills a bucket with gradients in the order of readiness and closes it by one of
 * two rules: when it has reached the size, or before the tensor that does not fit. Both rules are
 * simulated here for the sizes of the plan's sets (at most TRIED of them) and for 1, which gives
 * each tensor a bucket. The size is taken whose buckets differ from the sets of the plan in the
 * fewest ends, of equally good ones the largest: O(tried x tensors). A tensor of the plan may be a
 * layer of several parameters. A framework may cut between these; the plan does not know their
 * sizes. Sets that are no runs of the order of readiness count by their last tensors. This keeps
 * the number of sets, and the earliest time at which each is ready.
 */
#include "plan/internal.h"

#define TRIED 512

int pl_settings_ends(const struct pl_sets *s, bool **out, bool *runs, struct pl_err *err)
{
	size_t n = s->p->n_tensors;
	bool *end = NULL;
	uint32_t b = 0;
	int rc;

	PL_TRY(pl_alloc(&end, n, sizeof(*end), err));
	for (uint32_t i = 0; i < s->n; i++)
		end[s->tensor[s->first[i + 1] - 1]] = true;
	/* a set that is no run may end before the last tensor; that one ends a bucket anyway */
	end[n - 1] = true;
	*runs = true;
	for (size_t i = 0; i < n; i++) {
		*runs &= s->b.set[i] == b;
		b += end[i];
	}
	*out = end;
	end = NULL;
out:
	pl_free(end);
	return rc;
}

/* Ends of buckets that are not the wanted ones, or the other way round. */
static uint32_t differing(const struct pl_sets *s, const bool *want, enum pl_close rule,
			  int64_t unit, int64_t size)
{
	struct pl_bucket_filler f = {
		.rule = { .first = size, .limit = size, .before = rule != PL_CLOSE_REACHED }
	};
	size_t n = s->p->n_tensors;
	uint32_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t before = f.set,
			 now = pl_plan_bucket_next(&f, s->p->tensor[i].bytes / unit);

		if (i)
			sum += (now != before) != want[i - 1];
	}
	return sum + !want[n - 1]; /* the last one always ends a bucket */
}

void pl_settings_one_size(struct pl_setter *setter, enum pl_close rule, int64_t unit,
			  struct pl_one_size *out)
{
	const struct pl_sets *s = &setter->s;
	bool *want;

	memset(out, 0, sizeof(*out));
	if (pl_settings_ends(s, &want, &out->runs, &setter->w.fail) < 0)
		return;
	out->size = 1;
	out->differ = differing(s, want, rule, unit, 1);
	for (size_t i = 0; i < s->n && out->differ; i += 1 + s->n / TRIED) {
		int64_t size = 0;
		uint32_t d;

		/* a sum of whole units, as the rule sees it */
		for (uint32_t t = s->first[i]; t < s->first[i + 1]; t++)
			size = pl_add_sat(size, s->p->tensor[s->tensor[t]].bytes / unit);
		d = differing(s, want, rule, unit, pl_max_i64(size, 1));
		if (d < out->differ || (d == out->differ && size > out->size)) {
			out->size = pl_max_i64(size, 1);
			out->differ = d;
		}
	}
	pl_free(want);
}

void pl_settings_put_differ(struct pl_setter *s, const struct pl_one_size *o)
{
	if (o->differ)
		pl_write_format(&s->w,
				"# not exactly the plan's sets: all buckets have one size; ends of "
				"buckets that differ: %u\n",
				o->differ);
	else if (!o->runs)
		pl_write_text(&s->w,
			      "# not exactly the plan's sets: buckets are filled as gradients "
			      "become ready\n");
}
