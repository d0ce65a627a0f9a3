/* What makes the time of an operation, and which features matter to a model. */
#include "core/sort.h"
#include "kernel/model_internal.h"

#define LEAST 0.01  /* shares below are not shown, */
#define SHOWN 0.005 /* nor factors whose logarithm is below */

static void write_name(struct pl_writer *w, const struct pl_kernel_model *m, const struct part *p)
{
	if (p->op == PL_NONE)
		pl_write_format(w, "any other %s", pl_kernel_family_word(p->family));
	else
		pl_write_format(w, "%s (%s)", m->op.str[p->op], pl_kernel_family_word(p->family));
	pl_write_format(w, " in %s", pl_kernel_type_word(p->type));
}

/* The largest of v, of those that are not yet taken; PL_FEATURES: all were. */
static int largest(const double *v, bool *taken)
{
	int best = PL_FEATURES;

	for (int i = 0; i < PL_FEATURES; i++)
		if (!taken[i] && (best == PL_FEATURES || fabs(v[i]) > fabs(v[best])))
			best = i;
	if (best < PL_FEATURES)
		taken[best] = true;
	return best;
}

void pl_kernel_explain_model(const struct pl_kernel_model *m, struct pl_writer *w)
{
	pl_write_format(w, "learner: %s\nmeasured on:", m->learner->name);
	for (size_t i = 0; i < m->devices.n; i++)
		pl_write_format(w, " %s", m->devices.v[i].name);
	if (isfinite(m->rates.flops_per_watt))
		pl_write_format(w, "\npower-limited boards sustain %.1f GFLOP/s per watt",
				m->rates.flops_per_watt);
	pl_write_text(w, "\n");
	for (size_t i = 0; i < m->n_parts; i++) {
		const struct part *p = &m->part[i];
		double share[PL_FEATURES] = { 0 };
		bool taken[PL_FEATURES] = { false };
		int f;

		pl_write_text(w, "\n");
		write_name(w, m, p);
		pl_write_format(w, ": %u measurements, floor %.1f us\n", p->n, p->floor_ns / 1e3);
		if (p->other.all.n)
			pl_write_format(
				w, "  on another device: %+.0f to %+.0f %% in nine of ten\n",
				100 * expm1(p->other.all.low), 100 * expm1(p->other.all.high));
		if (!m->learner->importance)
			continue;
		m->learner->importance(p->learned, share);
		while ((f = largest(share, taken)) < PL_FEATURES && share[f] >= 0.01)
			pl_write_format(w, "  %5.1f %%  %s\n", 100 * share[f],
					pl_kernel_feature_name(p->family, (unsigned)f));
	}
}

static void write_parts(struct pl_writer *w, const struct part *p, const double *part)
{
	bool taken[PL_FEATURES] = { false };
	int f;

	while ((f = largest(part, taken)) < PL_FEATURES && fabs(part[f]) >= SHOWN)
		pl_write_format(w, "    x %.3f  %s\n", exp(part[f]),
				pl_kernel_feature_name(p->family, (unsigned)f));
}

void pl_kernel_explain(const struct pl_kernel_model *m, const struct pl_samples *s,
		       const struct pl_sample *x, const struct pl_kernel_time *t,
		       struct pl_writer *w)
{
	const struct pl_device *d = &s->devices.v[x->device];
	const struct part *p;
	double part[PL_FEATURES] = { 0 }, base, rest;
	const double *few;
	float row[PL_FEATURES];
	struct pl_tile tile = { 0 };
	struct pl_physics bounds;
	pl_id op = pl_intern_find(&m->op, s->op.str[x->k.op], s->op.len[x->k.op]);

	pl_write_format(w, "%s on %s: ", s->op.str[x->k.op], d->name);
	p = x->known ? pl_kernel_part(m, op, x->k.family, x->k.type) : NULL;
	if (!p) {
		pl_write_text(w, "not known\n");
		return;
	}
	pl_write_format(w, "%.1f us, ", t->ns / 1e3);
	if (!isnan(t->lo_ns))
		pl_write_format(w, "nine of ten in %.1f to %.1f us; ", t->lo_ns / 1e3,
				t->hi_ns / 1e3);
	pl_write_format(w, "%s\n", pl_kernel_flag_word(t->flag));
	pl_write_format(w, "  floor %.1f us, computing %.1f us, memory %.1f us, together %.1f us\n",
			t->floor_ns / 1e3, t->compute_ns / 1e3, t->memory_ns / 1e3,
			t->ns / t->factor / 1e3);
	if (p->family == PL_KERNEL_GEMM || p->family == PL_KERNEL_CONV) {
		tile = pl_tiles_choose_one(&p->tiles, &x->k, d);
		pl_write_format(w, "  tile %u x %u\n", tile.a, tile.b);
	}
	pl_write_format(w, "  x %.3f learned", t->factor);
	if (!m->learner->explain) {
		pl_write_text(w, "\n");
		return;
	}
	pl_kernel_features(&x->k, d, &m->rates, tile, &bounds, row);
	base = m->learner->explain(p->learned, row, part);
	pl_write_format(w, ", of which\n    x %.3f  all operations of this kind\n", exp(base));
	write_parts(w, p, part);
	for (int i = 0; i < PL_FEATURES; i++)
		base += part[i];
	rest = log(t->factor) - base;
	few = t->few ? pl_kernel_few(m, op, p->family, p->type) : NULL;
	if (few && fabs(*few) >= SHOWN)
		pl_write_format(w, "    x %.3f  this operation, of few measurements\n", exp(*few));
	rest -= few ? *few : 0;
	if (fabs(rest) >= SHOWN)
		pl_write_format(w, "    x %.3f  this device\n", exp(rest));
}

/* ---- many operations ------------------------------------------------------------------------- */

struct total { /* of the operations of one name */
	pl_id op;
	uint8_t family;
	double times, ns, floor_ns, compute_ns, memory_ns;
	double part[PL_FEATURES]; /* sums of |logarithm| ns */
};

static int by_time(const void *pa, const void *pb)
{
	const struct total *a = pa, *b = pb;
	int c = PL_COMPARE(b->ns, a->ns);

	return c ? c : PL_COMPARE(a->op, b->op);
}

static void add_to_total(const struct pl_kernel_model *m, const struct pl_samples *s,
			 const struct pl_sample *x, const struct pl_kernel_time *t, double times,
			 struct total *to)
{
	const char *name = s->op.str[x->k.op];
	pl_id op = pl_intern_find(&m->op, name, s->op.len[x->k.op]);
	const struct part *p = x->known ? pl_kernel_part(m, op, x->k.family, x->k.type) : NULL;
	const struct pl_device *d = &s->devices.v[x->device];
	double part[PL_FEATURES] = { 0 }, ns = t->ns * times;
	float row[PL_FEATURES];
	struct pl_tile tile = { 0 };
	struct pl_physics bounds;

	to->op = x->k.op;
	to->family = x->k.family;
	to->times += times;
	to->ns += ns;
	to->floor_ns += t->floor_ns * times;
	to->compute_ns += t->compute_ns * times;
	to->memory_ns += t->memory_ns * times;
	if (!p || !m->learner->explain)
		return;
	if (p->family == PL_KERNEL_GEMM || p->family == PL_KERNEL_CONV)
		tile = pl_tiles_choose_one(&p->tiles, &x->k, d);
	pl_kernel_features(&x->k, d, &m->rates, tile, &bounds, row);
	m->learner->explain(p->learned, row, part);
	for (int i = 0; i < PL_FEATURES; i++)
		to->part[i] += fabs(part[i]) * ns;
}

static void write_total(struct pl_writer *w, const struct pl_samples *s, struct total *t,
			double all)
{
	bool taken[PL_FEATURES] = { false };
	double sum = 0;
	int f;

	pl_write_format(w,
			"\n%5.1f %%  %s (%s), %.0f times, %.1f us each: floor %.1f us, computing "
			"%.1f us, memory %.1f us\n",
			100 * t->ns / all, s->op.str[t->op], pl_kernel_family_word(t->family),
			t->times, t->ns / t->times / 1e3, t->floor_ns / t->times / 1e3,
			t->compute_ns / t->times / 1e3, t->memory_ns / t->times / 1e3);
	for (int i = 0; i < PL_FEATURES; i++)
		sum += t->part[i];
	while ((f = largest(t->part, taken)) < PL_FEATURES && t->part[f] >= LEAST * t->ns)
		pl_write_format(w, "         %5.1f %%  %s, changes the time by %.1f %%\n",
				100 * t->part[f] / sum,
				pl_kernel_feature_name(t->family, (unsigned)f),
				100 * expm1(t->part[f] / t->ns));
}

int pl_kernel_explain_all(const struct pl_kernel_model *m, const struct pl_samples *s,
			  const struct pl_sample *v, const double *times, size_t n,
			  struct pl_writer *w, struct pl_err *err)
{
	struct pl_kernel_time *t = NULL;
	struct total *total = NULL;
	double all = 0, count = 0;
	int rc;

	PL_TRY(pl_alloc(&t, n + 1, sizeof(*t), err));
	PL_TRY(pl_alloc(&total, s->op.n + 1, sizeof(*total), err));
	PL_TRY(pl_kernel_apply(m, s, v, n, t, err));
	for (size_t i = 0; i < n; i++)
		if (times[i] > 0 && t[i].ns > 0) {
			add_to_total(m, s, &v[i], &t[i], times[i], &total[v[i].k.op]);
			all += t[i].ns * times[i];
			count += times[i];
		}
	pl_sort(total, s->op.n, sizeof(*total), by_time);
	pl_write_format(w,
			"%.0f operations take %.3f ms together, each alone and with its launch\n",
			count, all / 1e6);
	for (size_t i = 0; i < s->op.n && total[i].ns > 0; i++)
		write_total(w, s, &total[i], all);
	rc = 0;
out:
	pl_free(t);
	pl_free(total);
	return rc;
}
