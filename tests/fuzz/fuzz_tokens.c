/* Texts, as bytes, 16-bit numbers and arrays: every token is one of the vocabulary. */
#include "fuzz.h"
#include "io/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const what[] = { "", ",type=u16", ",type=bytes" };
	char path[32], spec[80];
	int fd = fuzz_file(data, size, path);

	for (size_t i = 0; i < PL_LEN(what); i++) {
		struct pl_err err = { 0 };
		struct pl_dataset d;
		int rc;

		snprintf(spec, sizeof(spec), "tokens:%s%s", path, what[i]);
		FUZZ_CHECK(lseek(fd, 0, SEEK_SET) == 0);
		rc = pl_dataset_open(spec, 1, &d, &err);
		FUZZ_CHECK(rc == 0 || (err.code == rc && err.msg[0] && !d.token && !d.word));
		FUZZ_CHECK(rc < 0 || (d.n >= 2 && !d.x && !d.y && !d.target));
		FUZZ_CHECK(!d.n_words || d.n_words == (size_t)d.vocab);
		for (size_t k = 0; k < d.n; k++)
			FUZZ_CHECK(d.token[k] >= 0 && d.token[k] < d.vocab);
		pl_dataset_fini(&d);
	}
	close(fd);
	return 0;
}
