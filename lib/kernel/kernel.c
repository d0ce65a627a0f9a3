/* Families of operations, their dimensions and their work. */
#include <math.h>
#include <stdlib.h>

#include "core/words.h"
#include "kernel/kernel.h"

static const struct {
	const char *word, *dims;
} families[] = {
#define ROW(name, word, dims) { word, dims },
	PL_KERNEL_FAMILIES(ROW)
#undef ROW
};

static const struct {
	const char *word;
	double bytes;
} types[] = {
#define ROW(name, word, bytes) { word, bytes },
	PL_KERNEL_TYPES(ROW)
#undef ROW
};

const char *pl_kernel_family_word(unsigned family)
{
	return family < PL_KERNEL_FAMILIES_ ? families[family].word : "unknown";
}

int pl_kernel_family_find(const char *word)
{
	for (unsigned i = 0; i < PL_KERNEL_FAMILIES_; i++)
		if (!strcmp(families[i].word, word))
			return (int)i;
	return -1;
}

/* The dimensions of a family: the words, taken apart. */
struct dims {
	bool made;
	char name[PL_KERNEL_DIMS][16];
	double otherwise[PL_KERNEL_DIMS];
	bool zero[PL_KERNEL_DIMS];  /* may be 0 */
	bool whole[PL_KERNEL_DIMS]; /* counts something */
	unsigned n;
};

/* Each thread has its own, as each row of a table asks. */
static const struct dims *dims_of(unsigned family)
{
	static _Thread_local struct dims of[PL_KERNEL_FAMILIES_];
	struct dims *d = &of[family];

	if (d->made)
		return d;
	for (const char *s = families[family].dims; *s && d->n < PL_KERNEL_DIMS; d->n++) {
		size_t n = strcspn(s, "=|");

		snprintf(d->name[d->n], sizeof(d->name[0]), "%.*s", (int)n, s);
		d->otherwise[d->n] = s[n] == '=' ? strtod(s + n + 1, NULL) : NAN;
		d->zero[d->n] = d->otherwise[d->n] <= 0;
		d->whole[d->n] = pl_words_find("inputs|outputs|bytes|a|b|c|d", d->name[d->n]) < 0;
		s += strcspn(s, "|");
		s += *s == '|';
	}
	d->made = true;
	return d;
}

const char *pl_kernel_dim(unsigned family, unsigned i, double *otherwise)
{
	const struct dims *d = family < PL_KERNEL_FAMILIES_ ? dims_of(family) : NULL;

	if (!d || i >= d->n)
		return NULL;
	*otherwise = d->otherwise[i];
	return d->name[i];
}

bool pl_kernel_dim_is_whole(unsigned family, unsigned i)
{
	const struct dims *d = family < PL_KERNEL_FAMILIES_ ? dims_of(family) : NULL;

	return d && i < d->n && d->whole[i];
}

bool pl_kernel_is_comm(unsigned family)
{
	return family >= PL_KERNEL_ALLREDUCE && family <= PL_KERNEL_SENDRECV;
}

const char *pl_kernel_type_word(unsigned type)
{
	return type < PL_KERNEL_TYPES_ ? types[type].word : "unknown";
}

int pl_kernel_type_find(const char *word)
{
	static const char *const also[] = {
		"float|fp32|f32", "", "half|fp16|f16", "bf16", "double|fp64|f64", "fp8|f8", "i8"
	};

	for (unsigned i = 0; i < PL_KERNEL_TYPES_ && *word; i++)
		if (!strcmp(types[i].word, word) || pl_words_find(also[i], word) >= 0)
			return (int)i;
	return -1;
}

double pl_kernel_type_bytes(unsigned type)
{
	return type < PL_KERNEL_TYPES_ ? types[type].bytes : 4;
}

/* ---- work ------------------------------------------------------------------------------------ */

static struct pl_kernel_work of_product(double batch, double m, double n, double k, double element)
{
	return (struct pl_kernel_work){ .flops = 2 * batch * m * n * k,
					.bytes = element * batch * (m * k + k * n + m * n) };
}

static struct pl_kernel_work of_convolution(const double *d, double element)
{
	double out = floor((d[3] + 2 * d[6] - d[4]) / fmax(d[5], 1)) + 1;

	return (struct pl_kernel_work){
		.flops = 2 * d[0] * out * out * d[2] * d[1] / d[7] * d[4] * d[4],
		.bytes = element * (d[0] * d[1] * d[3] * d[3] + d[2] * d[1] / d[7] * d[4] * d[4] +
				    d[0] * d[2] * out * out)
	};
}

struct pl_kernel_work pl_kernel_work(const struct pl_kernel *k)
{
	const double *d = k->dim, element = pl_kernel_type_bytes(k->type);

	switch (k->family) {
	case PL_KERNEL_GEMM:
		return of_product(d[0], d[1], d[2], d[3], element);
	case PL_KERNEL_CONV:
		return of_convolution(d, element);
	case PL_KERNEL_ELEMENTWISE:
		return (struct pl_kernel_work){ d[0],
						d[3] > 0 ? d[3] : element * d[0] * (d[1] + d[2]) };
	case PL_KERNEL_MOVE:
		return (struct pl_kernel_work){ 0, d[2] > 0 ? d[2] : element * d[0] * (1 + d[1]) };
	case PL_KERNEL_SOFTMAX:
	case PL_KERNEL_NORM: /* a pass for the sum, one for the result */
		return (struct pl_kernel_work){ 5 * d[0] * d[1], 2 * element * d[0] * d[1] };
	case PL_KERNEL_EMBEDDING:
		return (struct pl_kernel_work){ 0, 2 * element * d[0] * d[1] };
	case PL_KERNEL_OTHER:
		return (struct pl_kernel_work){ 0, 0 };
	default: /* communication: what a rank sends at least */
		return (struct pl_kernel_work){ 0, d[0] };
	}
}

int pl_kernel_check(const struct pl_kernel *k, struct pl_err *err)
{
	const struct dims *d = dims_of(k->family);

	for (unsigned i = 0; i < d->n; i++) {
		double v = k->dim[i];
		char is[32] = "not known";

		if ((d->zero[i] ? v >= 0 : v > 0) && v <= 1e18)
			continue;
		if (!isnan(v))
			snprintf(is, sizeof(is), "%g", v);
		return pl_fail(err, PL_EDATA, "%s of %s is %s, and must be %s", d->name[i],
			       pl_kernel_family_word(k->family), is,
			       v > 1e18	    ? "at most 1e18"
			       : isnan(v)   ? "a number"
			       : d->zero[i] ? "0 or more"
					    : "above 0");
	}
	if (k->family == PL_KERNEL_CONV && k->dim[4] > k->dim[3] + 2 * k->dim[6])
		return pl_fail(err, PL_EDATA, "kernel of conv is %g, and the padded image has %g",
			       k->dim[4], k->dim[3] + 2 * k->dim[6]);
	return 0;
}
