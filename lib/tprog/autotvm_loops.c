/* What the templates of AutoTVM share: sizes of tiles, and the text of loops and indices. */
#include "tprog/autotvm_internal.h"

const struct autotvm_knob *pl_autotvm_knob(const struct autotvm_record *r, const char *name)
{
	for (int i = 0; i < r->n_knobs; i++)
		if (!strcmp(r->knob[i].name, name))
			return &r->knob[i];
	return NULL;
}

/* The n tiles that divide the extent. */
enum autotvm_is pl_autotvm_tiles(struct autotvm_record *r, const char *name, int64_t extent, int n,
				 int64_t *out)
{
	const struct autotvm_knob *k = pl_autotvm_knob(r, name);
	int64_t product = 1;
	int open = -1;

	if (!k || k->n != n)
		return pl_autotvm_not(r, AUTOTVM_BAD, "\"%s\" should have %d sizes", name, n);
	for (int i = 0; i < n; i++) {
		out[i] = k->size[i];
		if (out[i] == -1 && open < 0) {
			open = i;
			continue;
		}
		if (out[i] < 1)
			return pl_autotvm_not(r, AUTOTVM_BAD, "size %d of \"%s\" is %lld", i + 1,
					      name, (long long)out[i]);
		product = out[i] <= extent / product ? product * out[i] : INT64_MAX;
	}
	if (open >= 0 && extent % product == 0) {
		out[open] = extent / product;
		product = extent;
	}
	if (product != extent)
		return pl_autotvm_not(r, AUTOTVM_OTHER, "the sizes of \"%s\" do not divide %lld",
				      name, (long long)extent);
	return AUTOTVM_FINE;
}

/* A knob that is a single number; `usual` without it. */
int64_t pl_autotvm_number(const struct autotvm_record *r, const char *name, int64_t usual)
{
	const struct autotvm_knob *k = pl_autotvm_knob(r, name);

	return k && k->n == 1 ? k->size[0] : usual;
}

char *pl_autotvm_text(struct autotvm_build *b)
{
	return b->text[b->next++ % AUTOTVM_TEXTS];
}

/* An index of parts, the outermost first: pl_autotvm_sum(b, "io", n, "ii", m) is "io * m + ii".
 * Parts of one iteration, and those without a name, are left out. */
const char *pl_autotvm_sum_of(struct autotvm_build *b, ...)
{
	char *out = pl_autotvm_text(b);
	const char *name;
	int64_t inside = 1;
	size_t n = 0;
	va_list ap, again;

	va_start(ap, b);
	va_copy(again, ap);
	while (va_arg(ap, const char *))
		inside *= va_arg(ap, int64_t);
	va_end(ap);
	while ((name = va_arg(again, const char *))) {
		int64_t extent = va_arg(again, int64_t);

		inside /= extent;
		if (extent == 1 || !*name || n >= sizeof(b->text[0]))
			continue;
		n += (size_t)snprintf(out + n, sizeof(b->text[0]) - n,
				      inside > 1 ? "%s%s * %lld" : "%s%s", n ? " + " : "", name,
				      (long long)inside);
	}
	va_end(again);
	return n ? out : strcpy(out, "0");
}

/* Part of a fused loop: the variable divided by what is inside of the part. */
const char *pl_autotvm_part(struct autotvm_build *b, const char *name, int64_t outside,
			    int64_t extent, int64_t inside)
{
	char *out = pl_autotvm_text(b);

	if (extent == 1)
		snprintf(out, sizeof(b->text[0]), "0");
	else if (inside == 1 && outside == 1)
		snprintf(out, sizeof(b->text[0]), "%s", name);
	else if (inside == 1)
		snprintf(out, sizeof(b->text[0]), "(%s %% %lld)", name, (long long)extent);
	else if (outside == 1)
		snprintf(out, sizeof(b->text[0]), "(%s / %lld)", name, (long long)inside);
	else
		snprintf(out, sizeof(b->text[0]), "(%s / %lld %% %lld)", name, (long long)inside,
			 (long long)extent);
	return out;
}

void pl_autotvm_loop(struct autotvm_build *b, const char *name, int64_t extent, const char *how)
{
	pl_autotvm_line(b, "for %s %lld%s%s", name, (long long)extent, *how ? " " : "", how);
	b->at.depth++;
}

/* A loop, unless it has one iteration. */
void pl_autotvm_loop_if(struct autotvm_build *b, const char *name, int64_t extent, const char *how)
{
	if (extent > 1)
		pl_autotvm_loop(b, name, extent, how);
}

void pl_autotvm_alloc(struct autotvm_build *b, const char *fmt, ...)
{
	char what[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	pl_autotvm_line(b, "alloc %s", what);
	b->at.depth++;
}

/*
 * TVM writes loops out from the innermost on, until that would make more than `most` statements.
 * *steps: the statements inside, 0: there is a loop that stays.
 */
bool pl_autotvm_unrolled(int64_t extent, int64_t most, int64_t *steps)
{
	*steps = *steps && extent <= most / *steps ? extent * *steps : 0;
	return *steps > 0;
}

void pl_autotvm_parameters(struct autotvm_build *b)
{
	const struct autotvm_product *x = b->of;
	long long m = (long long)x->m, n = (long long)x->n, k = (long long)x->k,
		  p = (long long)x->packed;

	if (x->batch) {
		pl_autotvm_line(b, "buffer A float32 %lld %lld %lld",
				x->one_a ? 1 : (long long)x->batch, x->turned_a ? k : m,
				x->turned_a ? m : k);
		pl_autotvm_line(b, "buffer B float32 %lld %lld %lld",
				x->one_b ? 1 : (long long)x->batch, x->flat_b ? k : n,
				x->flat_b ? n : k);
		pl_autotvm_line(b, "buffer C float32 %lld %lld %lld", (long long)x->batch, m, n);
		return;
	}
	pl_autotvm_line(b, "buffer A float32 %lld %lld", m, k);
	if (x->packed)
		pl_autotvm_line(b, "buffer B float32 %lld %lld %lld", n / p, k, p);
	else
		pl_autotvm_line(b, "buffer B float32 %lld %lld", n, k);
	pl_autotvm_line(b, "buffer C float32 %lld %lld", m, n);
}

static const char *put_place(struct autotvm_build *b, const char *name, const char *batch,
			     const char *x, const char *y)
{
	char *out = pl_autotvm_text(b);

	if (batch)
		snprintf(out, sizeof(b->text[0]), "%s[%s, %s, %s]", name, batch, x, y);
	else
		snprintf(out, sizeof(b->text[0]), "%s[%s, %s]", name, x, y);
	return out;
}

/* Numbers of the operands and of the result; batch: NULL for products of matrices. */
const char *pl_autotvm_a(struct autotvm_build *b, const char *batch, const char *i, const char *k)
{
	bool turned = b->of->turned_a;

	return put_place(b, "A", batch && b->of->one_a ? "0" : batch, turned ? k : i,
			 turned ? i : k);
}
const char *pl_autotvm_b(struct autotvm_build *b, const char *batch, const char *j, const char *k)
{
	bool flat = b->of->flat_b;

	return put_place(b, "B", batch && b->of->one_b ? "0" : batch, flat ? k : j, flat ? j : k);
}
const char *pl_autotvm_c(struct autotvm_build *b, const char *batch, const char *i, const char *j)
{
	return put_place(b, "C", batch, i, j);
}

/* a + b */
const char *pl_autotvm_plus(struct autotvm_build *b, const char *a, const char *c)
{
	char *out = pl_autotvm_text(b);

	if (!strcmp(a, "0"))
		return c;
	if (!strcmp(c, "0"))
		return a;
	snprintf(out, sizeof(b->text[0]), "%s + %s", a, c);
	return out;
}
