/* fuzz.h - what the fuzz targets share: options for an import, and a sink that looks at everything.
 */
#ifndef PL_FUZZ_H
#define PL_FUZZ_H

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/dataset.h"
#include "import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned fuzz_sum; /* keeps the reads */

#define FUZZ_CHECK(x)                                                                              \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

__attribute__((unused)) static int fuzz_batch(struct pl_sink *s, struct pl_segment *seg,
					      struct pl_batch *b, struct pl_err *err)
{
	(void)s;
	(void)err;
	FUZZ_CHECK(b->n <= PL_BATCH_ROWS);
	for (uint32_t i = 0; i < b->n; i++) {
		FUZZ_CHECK(b->track[i] < seg->n_tracks);
		FUZZ_CHECK(b->name[i] < seg->str.n);
		FUZZ_CHECK(b->dur[i] >= -1);
		fuzz_sum += b->kind[i] + (unsigned)b->ts[i];
	}
	for (uint32_t i = 0; i < b->n_cols; i++) {
		const struct pl_col *c = &b->col[i];

		FUZZ_CHECK(c->type < PL_V_COUNT_);
		FUZZ_CHECK(c->key == PL_NONE || c->key < seg->str.n);
		for (uint32_t k = 0; k < c->n; k++) {
			FUZZ_CHECK(c->row[k] < b->n && (!k || c->row[k] > c->row[k - 1]));
			if (c->type == PL_V_STR || c->type == PL_V_JSON)
				FUZZ_CHECK((uint64_t)c->val[k] < seg->str.n);
			if (c->type == PL_V_DEC)
				FUZZ_CHECK(c->scale[k] <= 18);
		}
	}
	return 0;
}

__attribute__((unused)) static int fuzz_end(struct pl_sink *s, struct pl_segment *seg,
					    struct pl_err *err)
{
	(void)s;
	(void)err;
	for (uint32_t i = 0; i < seg->n_tracks; i++) {
		const struct pl_track *t = &seg->track[i];

		FUZZ_CHECK(t->type < PL_T_COUNT_ && t->pid < seg->str.n && t->tid < seg->str.n);
		FUZZ_CHECK(t->name == PL_NONE || t->name < seg->str.n);
	}
	return 0;
}

/* Import the bytes by force as one format; every answer is fine but a crash. */
__attribute__((unused)) static void fuzz_import(const char *format, const uint8_t *data,
						size_t size, const struct pl_import_opts *o)
{
	struct pl_sink sink = { .batch = fuzz_batch, .end = fuzz_end };
	struct pl_import_stats st;
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	int rc = pl_import_run(in, pl_import_find(format), o, &sink, &st, &err);

	FUZZ_CHECK(rc >= 0 || (err.code == rc && err.msg[0]));
}

/* The input as a file of samples, described in each of these ways; look() at what is read. */
__attribute__((unused)) static void fuzz_dataset(const uint8_t *data, size_t size, const char *kind,
						 const char *const *what, size_t n,
						 void (*look)(struct pl_dataset *d))
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	for (size_t i = 0; i < n; i++) {
		struct pl_err err = { 0 };
		struct pl_dataset d;
		char spec[80];
		int rc;

		snprintf(spec, sizeof(spec), "%s:/proc/self/fd/%d%s", kind, fd, what[i]);
		rc = pl_dataset_open(spec, 1, &d, &err);
		FUZZ_CHECK(rc == 0 || (err.code == rc && err.msg[0]));
		FUZZ_CHECK(rc == 0 || (!d.x && !d.y && !d.target && !d.token && !d.word));
		if (rc == 0)
			look(&d);
		pl_dataset_fini(&d);
	}
	close(fd);
}

#endif
