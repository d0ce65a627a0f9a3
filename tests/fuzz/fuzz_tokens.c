/* Texts, as bytes, 16-bit numbers and arrays: every token is one of the vocabulary. */
#include "fuzz.h"

static void look(struct pl_dataset *d)
{
	FUZZ_CHECK(d->n >= 2 && !d->x && !d->y && !d->target);
	FUZZ_CHECK(!d->n_words || d->n_words == (size_t)d->vocab);
	for (size_t i = 0; i < d->n; i++)
		FUZZ_CHECK(d->token[i] >= 0 && d->token[i] < d->vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const what[] = { "", ",type=u16", ",type=bytes" };

	fuzz_dataset(data, size, "tokens", what, PL_LEN(what), look);
	return 0;
}
