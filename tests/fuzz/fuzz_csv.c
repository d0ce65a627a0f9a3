/* Samples in CSV: classes, named or not, and targets; normalised they are numbers still. */
#include <math.h>

#include "fuzz.h"
#include "io/dataset.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const what[] = { "", ",label=a", ",target=a", ",target=a,target=b" };
	char path[32], spec[80];
	int fd = fuzz_file(data, size, path);

	for (size_t i = 0; i < PL_LEN(what); i++) {
		struct pl_err err = { 0 };
		struct pl_dataset d;
		int rc;

		snprintf(spec, sizeof(spec), "csv:%s%s", path, what[i]);
		FUZZ_CHECK(lseek(fd, 0, SEEK_SET) == 0);
		rc = pl_dataset_open(spec, 1, &d, &err);
		FUZZ_CHECK(rc == 0 || (err.code == rc && err.msg[0] && !d.x && !d.word));
		if (rc == 0) {
			look(&d, d.n);
			pl_dataset_normalise(&d, pl_dataset_train(&d, 0.8));
			look(&d, pl_dataset_train(&d, 0.8));
		}
		pl_dataset_fini(&d);
	}
	close(fd);
	return 0;
}
