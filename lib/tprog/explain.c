/* The entries of the vectors of tensor programs, in words, and which of them matter to a model. */
#include <math.h>

#include "core/sort.h"
#include "core/words.h"
#include "tprog/network.h"

#define SHOWN 15

#define RATES                                                                                      \
	"reads|writes|lines into 32 KiB|lines into 256 KiB|lines into 1 MiB|lines into 4 MiB|"     \
	"lines into 32 MiB|pages into 64|pages into 2048|instructions on memory|"                  \
	"instructions that compute|turns of loops|writes to lines of other threads|vectors "       \
	"across lines|cycles of waiting sums|cycles"

/* The vector in its order: `n` times the entries of the list. */
static const struct group {
	const char *what, *entries; /* entries: "a|b|c", each a column */
	int n;
} groups[] = {
	{ "floats", "mad|add|mul|div|comparisons|functions|other", 1 },
	{ "integers", "mad|add|mul|div|comparisons|functions|other", 1 },
	{ "longest leaf", "conditions|selections", 1 },
	{ "vectorised loops",
	  "number|product|innermost|nowhere|inner|middle|outer|inner sum|"
	  "middle sum|outer sum|mixed",
	  1 },
	{ "unrolled loops",
	  "number|product|innermost|nowhere|inner|middle|outer|inner sum|"
	  "middle sum|outer sum|mixed",
	  1 },
	{ "parallel loops",
	  "number|product|innermost|nowhere|inner|middle|outer|inner sum|"
	  "middle sum|outer sum|mixed",
	  1 },
	{ "gpu", "is one|block.x|block.y|block.z|thread.x|thread.y|thread.z|vthread", 1 },
	{ "buffer",
	  "read|written|both|bytes|different bytes|lines|different lines|used by a loop|"
	  "used by a store|not used again|iterations between|bytes between|uses|"
	  "bytes by uses|different bytes by uses|lines by uses|different lines by uses|"
	  "stride",
	  5 },
	{ "operations for a byte", "at a tenth of the nest", 10 },
	{ "stored buffer", "bytes|bytes times loops|loops around|loops inside", 1 },
	{ "longest leaf", "iterations|loops|unrolling", 1 },
	{ "loop from inside", "extent|summed up|vectorised|unrolled", 3 },
	{ "vectorised loop", "extent|rest|filled up", 1 },
	{ "place of the store", "by the innermost loop|by the second|by the third", 1 },
	{ "place of read buffer", "by the innermost loop|by the second|by the third", 4 },
	{ "longest leaf",
	  RATES "|chain of sums|sums between|threads|rest of threads|parallel begins", 1 },
	{ "program",
	  "leaves|iterations|mads|functions|floats|integers|conditions|bytes|"
	  "different bytes|lines|different lines|" RATES "|parallel begins|work|"
	  "share of the longest leaf|begins by work",
	  1 },
};

/* Column c in words. */
static void name_column(int c, char *out, size_t size)
{
	for (size_t g = 0; g < PL_LEN(groups); g++)
		for (int k = 1; k <= groups[g].n; k++)
			for (const char *s = groups[g].entries; s; s = strchr(s, '|')) {
				s += *s == '|';
				if (c--)
					continue;
				if (groups[g].n > 1)
					snprintf(out, size, "%s %d: %.*s", groups[g].what, k,
						 (int)strcspn(s, "|"), s);
				else
					snprintf(out, size, "%s: %.*s", groups[g].what,
						 (int)strcspn(s, "|"), s);
				return;
			}
	snprintf(out, size, "entry without a name");
}

struct gain {
	double share;
	int column;
};

static int by_share(const void *pa, const void *pb)
{
	const struct gain *a = pa, *b = pb;
	int c = PL_COMPARE(b->share, a->share);

	return c ? c : PL_COMPARE(a->column, b->column);
}

static void write_gains(const struct pl_boost *trees, struct pl_writer *w)
{
	struct gain g[PL_TPROG_COLUMNS];
	double sum = 0;

	for (int c = 0; c < PL_TPROG_COLUMNS; c++) {
		g[c] = (struct gain){ trees->gain[c], c };
		sum += trees->gain[c];
	}
	pl_sort(g, PL_TPROG_COLUMNS, sizeof(*g), by_share);
	pl_write_text(w, "\nWhat matters to the trees, percent:\n");
	for (int c = 0; c < SHOWN && g[c].share > 0; c++) {
		char name[96];

		name_column(g[c].column, name, sizeof(name));
		pl_write_format(w, "%6.1f  %s\n", 100 * g[c].share / sum, name);
	}
}

void pl_tprog_settings_text(const struct pl_tprog_settings *s, char *out, size_t size)
{
	char power[32] = "likely";

	if (!isnan(s->power))
		snprintf(power, sizeof(power), "%.3g", s->power);
	snprintf(out, size,
		 "layers=%d heads=%d width=%d latent=%d batch=%d rate=%.3g relative=%.3g power=%s",
		 s->layers, s->heads, s->width, s->latent, s->batch, s->rate, s->relative, power);
}

void pl_tprog_explain(const struct pl_tprog_model *m, struct pl_writer *w)
{
	pl_write_format(w, "A model of tensor programs on %s: %s, from %llu programs%s.\n\n",
			m->device, pl_words_name(PL_TPROG_LEARNERS("\0"), m->learner),
			(unsigned long long)m->n_rows,
			m->errors[m->ops.n].offset != 0 ? " of another device, adapted" : "");
	if (m->errors[m->ops.n].n)
		pl_write_text(w, "Errors on networks that were left out, percent:\n"
				 "operation      programs  5 % are below  5 % are above\n");
	for (pl_id k = 0; k <= m->ops.n; k++) {
		const struct pl_tprog_errors *e = &m->errors[k];

		if (e->n)
			pl_write_format(w, "%-14s %8u  %+13.0f  %+13.0f\n",
					k < m->ops.n ? m->ops.str[k] : "all", e->n,
					100 * (exp(e->low - e->shift) - 1),
					100 * (exp(e->high - e->shift) - 1));
	}
	if (m->held_out.n)
		pl_write_format(
			w,
			"\nErrors on the %u programs of the adaptation, left out in turn: "
			"5 %% are below %+.0f, 5 %% above %+.0f percent.\nIntervals hold these, "
			"too.\n",
			m->held_out.n, 100 * expm1(m->held_out.low), 100 * expm1(m->held_out.high));
	if (m->net) {
		const struct pl_tprog_settings n = pl_tprog_network_settings(m->net);
		char text[PL_TPROG_SETTINGS_TEXT];

		pl_tprog_settings_text(&n, text, sizeof(text));
		pl_write_format(w, "\nThe network: %s.\n", text);
	}
	if (m->trees.n_trees)
		write_gains(&m->trees, w);
}

/* By the size of the change. */
static int by_change(const void *pa, const void *pb)
{
	const struct gain *a = pa, *b = pb;
	int c = PL_COMPARE(fabs(b->share), fabs(a->share));

	return c ? c : PL_COMPARE(a->column, b->column);
}

/* What the trees make of a unit of work: a time that all programs take, and factors. */
static void write_factors(const struct pl_boost *trees, const float *x, const char *what,
			  struct pl_writer *w)
{
	double part[PL_TPROG_COLUMNS] = { 0 }, none = pl_boost_explain(trees, x, part), rest = 0;
	struct gain g[PL_TPROG_COLUMNS];

	for (int c = 0; c < PL_TPROG_COLUMNS; c++)
		g[c] = (struct gain){ part[c], c };
	pl_sort(g, PL_TPROG_COLUMNS, sizeof(*g), by_change);
	pl_write_format(w, "    x %-8.4g %s\n", exp(none), what);
	for (int c = 0; c < PL_TPROG_COLUMNS; c++) {
		char name[96];

		if (c >= SHOWN || fabs(g[c].share) < 0.005) {
			rest += g[c].share;
			continue;
		}
		name_column(g[c].column, name, sizeof(name));
		pl_write_format(w, "    x %-8.3f %s, here %.4g\n", exp(g[c].share), name,
				(double)x[g[c].column]);
	}
	if (rest != 0)
		pl_write_format(w, "    x %-8.3f all other entries\n", exp(rest));
}

void pl_tprog_explain_row(const struct pl_tprog_model *m, const struct pl_tprog_set *s, size_t row,
			  const struct pl_tprog_time *t, struct pl_writer *w)
{
	const struct pl_tprog_row *r = &s->v[row];

	pl_write_format(w, "%s (%s) on %s: %.3f us, ", s->names.str[r->program],
			s->names.str[r->op], m->device, t->ns / 1e3);
	if (!isnan(t->lo_ns))
		pl_write_format(w, "nine of ten in %.3f to %.3f us; ", t->lo_ns / 1e3,
				t->hi_ns / 1e3);
	pl_write_format(w, "%s\n  %.4g units of work, %.4g ns each\n",
			t->inside ? "in-range" : "extrapolated", r->work, t->ns / r->work);
	if (!m->trees.n_trees)
		pl_write_text(w, "  a network made this of the whole program\n");
	else
		write_factors(&m->trees, r->x,
			      m->net ? "ns: all programs, by the trees (half of the model)"
				     : "ns: all programs",
			      w);
	if (m->adapted.n_trees)
		write_factors(&m->adapted, r->x, "all programs, by the adaptation", w);
}
