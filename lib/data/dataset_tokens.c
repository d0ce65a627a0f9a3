/*
 * Texts as tokens: 16-bit numbers as nanoGPT's prepare scripts write them, NPY, or bytes.
 *
 * In a text, each byte that occurs is a token, in byte order (as in models on ASCII). Linear.
 */
#include "data/internal.h"

enum type { T_ANY, T_BYTES, T_U16 };

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && !strcmp(s + n - k, end);
}

/* Make one string for each token, from its byte. */
static int name_bytes(struct pl_dataset *d, const int32_t *id, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&d->word, (size_t)d->vocab, sizeof(*d->word), err));
	d->n_words = (size_t)d->vocab;
	for (int c = 0; c < 256; c++) {
		char s[2] = { (char)c, 0 };

		if (id[c] >= 0)
			PL_CHECK(pl_dup(NULL, &d->word[id[c]], s, err));
	}
	return 0;
}

static int from_bytes(struct pl_dataset *d, const struct pl_buf *b, struct pl_err *err)
{
	int32_t id[256];
	bool seen[256] = { false };

	for (size_t i = 0; i < b->n; i++)
		seen[b->p[i]] = true;
	for (int c = 0; c < 256; c++)
		id[c] = seen[c] ? d->vocab++ : -1;
	PL_CHECK(pl_alloc(&d->token, b->n, sizeof(*d->token), err));
	for (size_t i = 0; i < b->n; i++)
		d->token[i] = id[b->p[i]];
	d->n = b->n;
	return name_bytes(d, id, err);
}

static int from_numbers(struct pl_dataset *d, unsigned dtype, const struct pl_buf *b,
			const char *file, struct pl_err *err)
{
	size_t at = 0;

	d->n = b->n / pl_dtype_size(dtype);
	PL_CHECK(pl_alloc(&d->token, d->n, sizeof(*d->token), err));
	if (!pl_dtype_i32(dtype, b->p, d->n, INT32_MAX - 1, d->token, &at))
		return pl_fail(err, PL_EDATA, "%s: element %zu is no token: a whole number from 0",
			       file, at);
	for (size_t i = 0; i < d->n; i++)
		d->vocab = d->token[i] >= d->vocab ? d->token[i] + 1 : d->vocab;
	return 0;
}

static int read_tokens(struct pl_in *in, enum type type, const char *file, struct pl_dataset *d,
		       struct pl_err *err)
{
	struct pl_array a = { 0 };
	struct pl_buf b = { 0 };
	const uint8_t *p;
	int64_t n = pl_in_peek(in, 6, &p, err);
	int rc;

	if (n < 0)
		return (int)n;
	if (type == T_ANY && pl_npy_probe(p, (size_t)n)) {
		PL_TRY(pl_npy_read(in, &a, err));
		PL_TRY(pl_data_array_end(in, "the array's last element", err));
		PL_TRY(from_numbers(d, a.dtype, &a.data, file, err));
	} else {
		PL_TRY(pl_in_read_all(in, PL_VALUES_MAX, &b, err));
		if (type == T_U16 && b.n % 2)
			rc = pl_fail(err, PL_EDATA,
				     "%s: %zu bytes are no 16-bit tokens; write type=bytes for a "
				     "text",
				     file, b.n);
		else
			rc = type == T_U16 ? from_numbers(d, PL_DT_U16, &b, file, err)
					   : from_bytes(d, &b, err);
	}
	if (rc >= 0 && d->n < 2)
		rc = pl_fail(err, PL_EDATA, "%s: %zu tokens; there is nothing to predict", file,
			     d->n);
out:
	pl_data_array_fini(&a);
	pl_buf_fini(&b);
	return rc;
}

int pl_dataset_tokens(const struct pl_data_parts *p, struct pl_dataset *d, struct pl_err *err)
{
	const char *file = p->part[0],
		   *value = p->n == 2 ? pl_data_parts_value(p, 1, "type") : NULL;
	enum type type = ends_with(file, ".bin") || ends_with(file, ".bin.gz") ? T_U16 : T_ANY;
	struct pl_in *in;
	int rc;

	if (value)
		type = !strcmp(value, "u16") ? T_U16 : T_BYTES;
	if (!*file || p->n > 2 || (p->n == 2 && !value) ||
	    (value && strcmp(value, "u16") != 0 && strcmp(value, "bytes") != 0))
		return pl_fail(err, PL_EUSAGE,
			       "data tokens: needs a file, as in tokens:FILE, or "
			       "tokens:FILE,type=u16 or bytes");
	in = pl_in_open_any(file, err);
	if (!in)
		return err->code;
	rc = read_tokens(in, type, file, d, err);
	pl_in_close(in);
	return rc;
}
