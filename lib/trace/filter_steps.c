/*
 * The step of each event: the STEP event of the rank that contains its start. A device operation
 * belongs to the step of its launch (found by correlation). Steps are sorted; O(n log n).
 */
#include "io/json.h"
#include "trace/internal.h"

struct pl_trace_step {
	pl_ns t0, t1;
	int64_t step;
	int32_t rank;
	pl_id track, name;
	bool numbered;
};
struct pl_trace_launch { /* correlations are unique in a rank, not in a segment */
	int64_t corr;
	pl_ns ts;
	int32_t rank;
	pl_id track;
};

int pl_trace_steps_note(struct pl_trace_steps *x, const struct pl_batch *b, struct pl_err *err)
{
	size_t first = x->n;

	for (uint32_t i = 0; i < b->n; i++) {
		if (b->kind[i] != PL_K_STEP || b->dur[i] < 0)
			continue;
		PL_CHECK(pl_grow(&x->step, &x->cap, x->n + 1, sizeof(*x->step), err));
		x->step[x->n++] = (struct pl_trace_step){ .t0 = b->ts[i],
							  .t1 = pl_add_sat(b->ts[i], b->dur[i]),
							  .step = i,
							  .track = b->track[i],
							  .name = b->name[i] };
	}
	for (uint32_t c = 0; c < b->n_cols; c++) {
		const struct pl_col *col = &b->col[c];
		bool steps = col->role == PL_R_STEP && col->type == PL_V_INT;
		size_t j = first;

		if (!steps && (col->role != PL_R_CORR || col->type != PL_V_INT))
			continue;
		for (uint32_t k = 0; k < col->n; k++) {
			uint32_t i = col->row[k];

			if (!steps && b->kind[i] == PL_K_RUNTIME) {
				PL_CHECK(pl_grow(&x->launch, &x->cap_launches, x->n_launches + 1,
						 sizeof(*x->launch), err));
				x->launch[x->n_launches++] = (struct pl_trace_launch){
					.corr = col->val[k], .ts = b->ts[i], .track = b->track[i]
				};
			}
			if (!steps || b->kind[i] != PL_K_STEP || b->dur[i] < 0)
				continue;
			while (j < x->n && x->step[j].step < (int64_t)i)
				j++;
			if (j < x->n) {
				x->step[j].step = col->val[k];
				x->step[j++].numbered = true;
			}
		}
	}
	/* the end of the segment takes the missing numbers from the names of the events */
	return 0;
}

PL_COMPARATOR(by_rank_time, struct pl_trace_step, rank, t0);

PL_COMPARATOR(by_corr, struct pl_trace_launch, rank, corr, ts);

int64_t pl_trace_step_number(const struct pl_segment *s, pl_id name)
{
	size_t n, i;
	const char *p = pl_trace_segment_str(s, name, &n);
	int64_t v;

	for (i = n; i && p[i - 1] >= '0' && p[i - 1] <= '9' && n - i < 18; i--)
		;
	return i < n && pl_json_i64(p + i, n - i, &v) ? v : INT64_MIN;
}

static int32_t rank_of(const struct pl_segment *s, pl_id track)
{
	return track < s->n_tracks ? s->track[track].rank : -1;
}

void pl_trace_steps_sort(struct pl_trace_steps *x, const struct pl_segment *s)
{
	for (size_t i = 0; i < x->n; i++) {
		struct pl_trace_step *p = &x->step[i];

		p->rank = rank_of(s, p->track);
		if (!p->numbered)
			p->step = pl_trace_step_number(s, p->name);
	}
	for (size_t i = 0; i < x->n_launches; i++)
		x->launch[i].rank = rank_of(s, x->launch[i].track);
	pl_sort(x->step, x->n, sizeof(*x->step), by_rank_time);
	pl_sort(x->launch, x->n_launches, sizeof(*x->launch), by_corr);
}

static int64_t step_at(const struct pl_trace_steps *x, int32_t rank, pl_ns t)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, x->n,
		       x->step[i].rank < rank || (x->step[i].rank == rank && x->step[i].t0 <= t));
	if (!i || x->step[i - 1].rank != rank || t >= x->step[i - 1].t1)
		return INT64_MIN;
	return x->step[i - 1].step;
}

static pl_ns launch_of(const struct pl_trace_steps *x, int32_t rank, int64_t corr, pl_ns t)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, x->n_launches,
		       x->launch[i].rank < rank ||
			       (x->launch[i].rank == rank && x->launch[i].corr < corr));
	return i < x->n_launches && x->launch[i].rank == rank && x->launch[i].corr == corr
		       ? x->launch[i].ts
		       : t;
}

int64_t pl_trace_steps_of(const struct pl_trace_steps *x, const struct pl_segment *s,
			  const struct pl_batch *b, const struct pl_row_values *rows, uint32_t i)
{
	const struct pl_track *k = b->track[i] < s->n_tracks ? &s->track[b->track[i]] : NULL;
	pl_ns t = b->ts[i];

	for (uint32_t e = rows->off[i]; e < rows->off[i + 1]; e++) {
		const struct pl_col *c = &b->col[rows->ent[e].col];
		int64_t v = c->val[rows->ent[e].k];

		if (c->type != PL_V_INT)
			continue;
		if (c->role == PL_R_STEP)
			return v;
		if ((c->role == PL_R_CORR || c->role == PL_R_FLOW) && k && k->type != PL_T_THREAD)
			t = launch_of(x, k->rank, v, t);
	}
	if (b->kind[i] == PL_K_STEP)
		return pl_trace_step_number(s, b->name[i]);
	return step_at(x, k ? k->rank : -1, t);
}

void pl_trace_steps_fini(struct pl_trace_steps *x)
{
	pl_free(x->step);
	pl_free(x->launch);
}
