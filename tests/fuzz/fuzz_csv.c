/* Samples in CSV: classes, named or not, and targets; normalised they are numbers still. */
#include <math.h>

#include "fuzz.h"

/* What is held out may lie beyond all measure of what is trained on. */
static void look(const struct pl_dataset *d, size_t finite)
{
	FUZZ_CHECK(d->n && d->n_dims == 1 && d->size == (size_t)d->dim[0]);
	FUZZ_CHECK(!d->y == (d->n_targets > 0) && !d->target == !d->n_targets);
	for (size_t i = 0; i < d->n * d->size; i++)
		FUZZ_CHECK(i < finite * d->size ? isfinite(d->x[i]) : !isnan(d->x[i]));
	for (size_t i = 0; d->y && i < d->n; i++)
		FUZZ_CHECK(d->y[i] >= 0 && d->y[i] < d->classes);
	for (size_t i = 0; i < d->n * (size_t)d->n_targets; i++)
		FUZZ_CHECK(isfinite(d->target[i]));
	for (size_t i = 0; i < d->n_words; i++)
		FUZZ_CHECK(d->word[i][0]);
}

static void look_and_normalise(struct pl_dataset *d)
{
	look(d, d->n);
	pl_dataset_normalise(d, pl_dataset_train(d, 0.8));
	look(d, pl_dataset_train(d, 0.8));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const what[] = { "", ",label=a", ",target=a", ",target=a,target=b" };

	fuzz_dataset(data, size, "csv", what, PL_LEN(what), look_and_normalise);
	return 0;
}
