/* Which programs to measure on another device: those that stand for all, by KMeans. */
#include <math.h>

#include "core/sort.h"
#include "tprog/cost.h"

#define ROUNDS 20

struct means {
	const struct pl_tprog_set *s;
	float *scale;  /* 1 / deviation of each column; 0: all are equal */
	float *centre; /* (n, PL_TPROG_COLUMNS), scaled */
	double *away;  /* [row]: squared distance to its centre */
	uint32_t *of;  /* [row]: its centre */
	size_t n;
};

static double distance(const struct means *m, const float *x, const float *centre, double most)
{
	double sum = 0;

	for (int c = 0; c < PL_TPROG_COLUMNS && sum < most; c++) {
		double d = (double)(x[c] * m->scale[c] - centre[c]);

		sum += d * d;
	}
	return sum;
}

static void find_scales(struct means *m)
{
	for (int c = 0; c < PL_TPROG_COLUMNS; c++) {
		double sum = 0, squares = 0, n = (double)m->s->n, d;

		for (size_t i = 0; i < m->s->n; i++)
			sum += (double)m->s->v[i].x[c];
		for (size_t i = 0; i < m->s->n; i++) {
			d = (double)m->s->v[i].x[c] - sum / n;
			squares += d * d;
		}
		d = sqrt(squares / n);
		m->scale[c] = d > 1e-6 ? (float)(1 / d) : 0;
	}
}

static void put_centre(struct means *m, size_t k, size_t row)
{
	float *to = m->centre + k * PL_TPROG_COLUMNS;

	for (int c = 0; c < PL_TPROG_COLUMNS; c++)
		to[c] = m->s->v[row].x[c] * m->scale[c];
	for (size_t i = 0; i < m->s->n; i++) {
		double d = distance(m, m->s->v[i].x, to, m->away[i]);

		if (d < m->away[i]) {
			m->away[i] = d;
			m->of[i] = (uint32_t)k;
		}
	}
}

/* KMeans++: each centre is a row that is taken with a chance of its squared distance to those
 * before. */
static void begin(struct means *m, uint64_t rng)
{
	for (size_t i = 0; i < m->s->n; i++)
		m->away[i] = INFINITY;
	put_centre(m, 0, (size_t)(pl_rng_next(&rng) % m->s->n));
	for (size_t k = 1; k < m->n; k++) {
		double sum = 0, at;
		size_t row = 0;

		for (size_t i = 0; i < m->s->n; i++)
			sum += m->away[i];
		at = sum * (double)(pl_rng_next(&rng) >> 11) * 0x1p-53;
		while (row + 1 < m->s->n && (at -= m->away[row]) >= 0)
			row++;
		put_centre(m, k, row);
	}
}

/* Each centre moves to the mean of its rows, which then choose again. False: nothing changed. */
static bool move(struct means *m, double *sum, size_t *count)
{
	bool changed = false;

	memset(sum, 0, m->n * PL_TPROG_COLUMNS * sizeof(*sum));
	memset(count, 0, m->n * sizeof(*count));
	for (size_t i = 0; i < m->s->n; i++) {
		double *to = sum + (size_t)m->of[i] * PL_TPROG_COLUMNS;

		count[m->of[i]]++;
		for (int c = 0; c < PL_TPROG_COLUMNS; c++)
			to[c] += (double)(m->s->v[i].x[c] * m->scale[c]);
	}
	for (size_t k = 0; k < m->n; k++)
		for (int c = 0; c < PL_TPROG_COLUMNS && count[k]; c++)
			m->centre[k * PL_TPROG_COLUMNS + (size_t)c] =
				(float)(sum[k * PL_TPROG_COLUMNS + (size_t)c] / (double)count[k]);
	for (size_t i = 0; i < m->s->n; i++) {
		uint32_t before = m->of[i];

		m->away[i] = INFINITY;
		for (size_t k = 0; k < m->n; k++) {
			double d = distance(m, m->s->v[i].x, m->centre + k * PL_TPROG_COLUMNS,
					    m->away[i]);

			if (d < m->away[i]) {
				m->away[i] = d;
				m->of[i] = (uint32_t)k;
			}
		}
		changed |= m->of[i] != before;
	}
	return changed;
}

static int compare(const void *a, const void *b)
{
	return PL_COMPARE(*(const size_t *)a, *(const size_t *)b);
}

/* The nearest row of each centre that no other centre has taken. */
static void take(struct means *m, bool *taken, size_t *chosen)
{
	for (size_t k = 0; k < m->n; k++) {
		double best = INFINITY;

		chosen[k] = SIZE_MAX;
		for (size_t i = 0; i < m->s->n; i++) {
			double d = taken[i] ? INFINITY
					    : distance(m, m->s->v[i].x,
						       m->centre + k * PL_TPROG_COLUMNS, best);

			if (d < best || (chosen[k] == SIZE_MAX && !taken[i])) {
				best = d;
				chosen[k] = i;
			}
		}
		taken[chosen[k]] = true;
	}
	pl_sort(chosen, m->n, sizeof(*chosen), compare);
}

int pl_tprog_choose(const struct pl_tprog_set *s, size_t n, uint64_t seed, size_t *chosen,
		    struct pl_err *err)
{
	struct means m = { .s = s, .n = n };
	size_t *count = NULL;
	double *sum = NULL;
	bool *taken = NULL;
	int rc;

	if (!n || n > s->n)
		return pl_fail(err, PL_EDATA, "%zu programs of %zu cannot be chosen", n, s->n);
	PL_TRY(pl_alloc(&m.scale, PL_TPROG_COLUMNS, sizeof(*m.scale), err));
	PL_TRY(pl_alloc(&m.centre, n * PL_TPROG_COLUMNS, sizeof(*m.centre), err));
	PL_TRY(pl_alloc(&m.away, s->n, sizeof(*m.away), err));
	PL_TRY(pl_alloc(&m.of, s->n, sizeof(*m.of), err));
	PL_TRY(pl_alloc(&sum, n * PL_TPROG_COLUMNS, sizeof(*sum), err));
	PL_TRY(pl_alloc(&count, n, sizeof(*count), err));
	PL_TRY(pl_alloc(&taken, s->n, sizeof(*taken), err));
	find_scales(&m);
	begin(&m, seed + 1);
	for (int i = 0; i < ROUNDS && move(&m, sum, count); i++)
		;
	take(&m, taken, chosen);
out:
	pl_free(m.scale);
	pl_free(m.centre);
	pl_free(m.away);
	pl_free(m.of);
	pl_free(sum);
	pl_free(count);
	pl_free(taken);
	return rc;
}
