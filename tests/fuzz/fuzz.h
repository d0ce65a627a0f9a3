/* fuzz.h - what the fuzz targets share: options for an import, and a sink that looks at everything.
 */
#ifndef PL_FUZZ_H
#define PL_FUZZ_H

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

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
	int rc = pl_import(in, pl_importer_find(format), o, &sink, &st, &err);

	FUZZ_CHECK(rc >= 0 || (err.code == rc && err.msg[0]));
}

/* The input as a file, for what opens files; its descriptor. */
__attribute__((unused)) static int fuzz_file(const uint8_t *data, size_t size, char path[32])
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

#endif
