/*
 * Reader of safetensors. The file is not trusted: the header has at most 100 MB (the limit of the
 * reference implementation), must be strict JSON, and is checked completely before any data is
 * read: unique names and keys, sizes that fit shape and type, data that covers the rest of the file
 * without gap or overlap. Memory follows the bytes that arrive. O(n log n) in the tensors.
 */
#include "core/bytes.h"
#include "data/weights.h"
#include "io/json.h"

#define HEADER_MAX  100000000u
#define TENSORS_MAX (1u << 20)
#define HEAD	    8u

struct reader {
	struct pl_weights *w;
	const char *name; /* of the input */
	struct pl_json j;
	struct pl_intern seen, meta_seen;
	uint64_t *begin; /* of each tensor's data */
	size_t cap_begin;
	bool meta;
};

static int bad(const struct reader *r, struct pl_err *err, const char *what)
{
	return pl_fail(err, PL_EDATA, "%s: byte %zu: %s", r->name,
		       HEAD + (size_t)(r->j.p - r->j.start), what);
}

static int bad_tensor(const struct reader *r, const struct pl_weight *x, struct pl_err *err,
		      const char *what)
{
	return pl_fail(err, PL_EDATA, "%s: tensor \"%.200s\": %s", r->name, x->name, what);
}

static int want(struct reader *r, enum pl_json_type t, const char *what, struct pl_err *err)
{
	if (pl_json_next(&r->j) == t)
		return 0;
	return bad(r, err, r->j.what ? r->j.what : what);
}

/* The token's text, unescaped; owned by the caller. */
static int text(struct reader *r, char **out, struct pl_err *err)
{
	size_t n;

	*out = NULL;
	if (r->j.lenient)
		return bad(r, err, "a string that is not strict JSON in UTF-8");
	*out = pl_malloc(r->j.len + 1);
	if (!*out)
		return pl_fail(err, PL_ENOMEM, "out of memory (a name of weights)");
	n = pl_json_unescape(r->j.text, r->j.len, *out);
	(*out)[n] = '\0';
	if (!memchr(*out, 0, n))
		return 0;
	pl_free(*out);
	*out = NULL;
	return bad(r, err, "a string with the character 0");
}

/* Read a string that must be new. */
static int once(struct reader *r, struct pl_intern *t, const char *s, struct pl_err *err)
{
	size_t n = t->n;
	pl_id id;

	PL_CHECK(pl_intern_add(t, s, strlen(s), &id, err));
	return id == n ? 0
		       : pl_fail(err, PL_EDATA, "%s: byte %zu: \"%.200s\" is there twice", r->name,
				 HEAD + (size_t)(r->j.p - r->j.start), s);
}

static int read_meta(struct reader *r, struct pl_err *err)
{
	struct pl_weights *w = r->w;

	if (r->meta)
		return bad(r, err, "a second __metadata__");
	r->meta = true;
	PL_CHECK(want(r, PL_JSON_OBJECT, "__metadata__ is an object", err));
	for (;;) {
		enum pl_json_type t = pl_json_next(&r->j);

		if (t == PL_JSON_OBJECT_END)
			return 0;
		if (t != PL_JSON_KEY)
			return bad(r, err, r->j.what ? r->j.what : "a key was expected");
		PL_CHECK(pl_grow(&w->meta, &w->cap_meta, w->n_meta + 2, sizeof(*w->meta), err));
		PL_CHECK(text(r, &w->meta[w->n_meta], err));
		PL_CHECK(once(r, &r->meta_seen, w->meta[w->n_meta++], err));
		PL_CHECK(want(r, PL_JSON_STRING, "values of __metadata__ are strings", err));
		PL_CHECK(text(r, &w->meta[w->n_meta], err));
		w->n_meta++;
	}
	return 0;
}

static int read_dtype(struct reader *r, struct pl_weight *x, struct pl_err *err)
{
	int type;

	PL_CHECK(want(r, PL_JSON_STRING, "dtype is a string", err));
	type = pl_dtype_find(PL_DT_SAFETENSORS, r->j.text, r->j.len);
	x->dtype = (uint8_t)type;
	if (type >= 0)
		return 0;
	return pl_fail(err, PL_EDATA,
		       "%s: tensor \"%.200s\": dtype \"%.*s\" is not read; convert it to F32, F16 "
		       "or BF16",
		       r->name, x->name, (int)pl_min_size(r->j.len, 32), r->j.text);
}

/* Read an array of at most `max` whole numbers from 0. Returns their number. */
static int read_numbers(struct reader *r, int64_t *v, int max, const char *what, struct pl_err *err)
{
	int n = 0, rc = want(r, PL_JSON_ARRAY, what, err);

	if (rc < 0)
		return rc;
	for (;;) {
		enum pl_json_type t = pl_json_next(&r->j);

		if (t == PL_JSON_ARRAY_END)
			return n;
		if (t != PL_JSON_NUMBER || n == max || !pl_json_i64(r->j.text, r->j.len, &v[n]) ||
		    v[n] < 0)
			return bad(r, err, r->j.what ? r->j.what : what);
		n++;
	}
}

static bool is_key(const struct reader *r, const char *key)
{
	return strlen(key) == r->j.len && !memcmp(key, r->j.text, r->j.len);
}

/* Read the members of one tensor. */
static int read_members(struct reader *r, struct pl_weight *x, int64_t offset[2],
			struct pl_err *err)
{
	enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
	unsigned seen = 0;
	const char *raw;
	size_t n_raw;
	int rc;

	PL_TRY(want(r, PL_JSON_OBJECT, "a tensor is an object", err));
	for (;;) {
		enum pl_json_type t = pl_json_next(&r->j);
		unsigned bit;

		if (t == PL_JSON_OBJECT_END)
			break;
		if (t != PL_JSON_KEY)
			return bad(r, err, r->j.what ? r->j.what : "a key was expected");
		/* no known key has escapes */
		bit = is_key(r, "dtype")	  ? DTYPE
		      : is_key(r, "shape")	  ? SHAPE
		      : is_key(r, "data_offsets") ? OFFSETS
						  : 0;
		if (bit & seen)
			return bad_tensor(r, x, err, "dtype, shape or data_offsets is there twice");
		seen |= bit;
		if (bit == DTYPE)
			PL_TRY(read_dtype(r, x, err));
		else if (bit == SHAPE)
			PL_TRY(x->n_dims = read_numbers(
				       r, x->dim, PL_LEN(x->dim),
				       "a shape is a list of at most 8 whole numbers", err));
		else if (bit == OFFSETS)
			PL_TRY(read_numbers(r, offset, 2,
					    "data_offsets are two whole numbers, begin and end",
					    err));
		else if (pl_json_skip(&r->j, &raw, &n_raw) < 0)
			return bad(r, err, r->j.what ? r->j.what : "a value was expected");
		if (bit == OFFSETS && rc != 2)
			return bad_tensor(r, x, err, "data_offsets are two numbers");
	}
	if (seen != (DTYPE | SHAPE | OFFSETS))
		return bad_tensor(r, x, err, "it needs dtype, shape and data_offsets");
	rc = 0;
out:
	return rc;
}

/* Read the members of the last tensor, whose name is known. */
static int read_tensor(struct reader *r, struct pl_err *err)
{
	struct pl_weight *x = &r->w->w[r->w->n - 1];
	int64_t offset[2] = { 0, 0 };
	size_t bytes;

	PL_CHECK(once(r, &r->seen, x->name, err));
	PL_CHECK(read_members(r, x, offset, err));
	bytes = pl_dtype_size(x->dtype);
	for (int i = 0; i < x->n_dims; i++)
		if (__builtin_mul_overflow(bytes, (size_t)x->dim[i], &bytes))
			return bad_tensor(r, x, err, "its shape multiplies beyond 2^64 bytes");
	if (offset[1] < offset[0] || (uint64_t)(offset[1] - offset[0]) != bytes)
		return bad_tensor(r, x, err, "data_offsets do not fit its shape and type");
	x->bytes = bytes;
	r->begin[r->w->n - 1] = (uint64_t)offset[0];
	return 0;
}

static int add_tensor(struct reader *r, char **name, struct pl_err *err)
{
	struct pl_weights *w = r->w;

	if (w->n >= TENSORS_MAX)
		return pl_fail(err, PL_ELIMIT, "%s: more than %u tensors", r->name, TENSORS_MAX);
	PL_CHECK(pl_grow(&w->w, &w->cap, w->n + 1, sizeof(*w->w), err));
	PL_CHECK(pl_grow(&r->begin, &r->cap_begin, w->n + 1, sizeof(*r->begin), err));
	w->w[w->n++] = (struct pl_weight){ .name = *name };
	*name = NULL;
	return read_tensor(r, err);
}

static int read_header(struct reader *r, struct pl_err *err)
{
	enum pl_json_type t;
	char *key = NULL;
	int rc;

	PL_TRY(want(r, PL_JSON_OBJECT, "the header is a JSON object", err));
	while ((t = pl_json_next(&r->j)) == PL_JSON_KEY) {
		PL_TRY(text(r, &key, err));
		if (!strcmp(key, "__metadata__"))
			PL_TRY(read_meta(r, err));
		else
			PL_TRY(add_tensor(r, &key, err));
		pl_free(key);
		key = NULL;
	}
	if (t != PL_JSON_OBJECT_END || pl_json_next(&r->j) != PL_JSON_END)
		return bad(r, err, r->j.what ? r->j.what : "something behind the header's object");
	if (r->j.lenient)
		return bad(r, err, "the header is not strict JSON in UTF-8");
out:
	pl_free(key);
	return rc;
}

/* ---- the data -------------------------------------------------------------------------------- */

struct place {
	uint64_t begin;
	bool full; /* of several tensors that begin at one place, the empty ones come first */
	size_t i;
};

PL_COMPARATOR(by_place, struct place, begin, full, i);

/* Sort the tensors by their data. *total: size of the data. */
static int order(struct reader *r, size_t *total, struct pl_err *err)
{
	struct pl_weights *w = r->w;
	struct pl_weight *sorted = NULL;
	struct place *at = NULL;
	uint64_t next = 0;
	int rc;

	PL_TRY(pl_alloc(&at, w->n, sizeof(*at), err));
	PL_TRY(pl_alloc(&sorted, w->n, sizeof(*sorted), err));
	for (size_t i = 0; i < w->n; i++)
		at[i] = (struct place){ r->begin[i], w->w[i].bytes > 0, i };
	pl_sort(at, w->n, sizeof(*at), by_place);
	for (size_t i = 0; i < w->n; i++) {
		sorted[i] = w->w[at[i].i];
		if (at[i].begin != next) {
			rc = bad_tensor(r, &sorted[i], err,
					at[i].begin < next
						? "its data overlaps that of another"
						: "there is a gap in the data before it");
			goto out;
		}
		next += sorted[i].bytes; /* below 2^63, because offsets are */
	}
	if (w->n)
		memcpy(w->w, sorted, w->n * sizeof(*sorted));
	*total = (size_t)next;
out:
	pl_free(at);
	pl_free(sorted);
	return rc;
}

static int read_data(struct reader *r, struct pl_in *in, size_t total, struct pl_err *err)
{
	struct pl_weights *w = r->w;
	struct pl_buf b = { 0 };
	size_t at = 0;
	int rc;

	PL_TRY(pl_data_array_take(in, total, &b, err));
	PL_TRY(pl_data_array_end(in, "the last tensor's data", err));
	w->memory = b.p;
	memset(&b, 0, sizeof(b));
	for (size_t i = 0; i < w->n; i++) {
		w->w[i].data = w->memory ? w->memory + at : NULL;
		at += w->w[i].bytes;
	}
out:
	pl_buf_fini(&b);
	return rc;
}

static int read_all(struct reader *r, struct pl_in *in, struct pl_buf *head, struct pl_err *err)
{
	uint64_t n;
	size_t total = 0;

	PL_CHECK(pl_data_array_take(in, HEAD + 1, head, err));
	n = pl_le64_get(head->p);
	/* the first 8 bytes of any file are a number, so it counts only before a brace */
	if (n < 2 || n > HEADER_MAX || head->p[HEAD] != '{')
		return pl_fail(err, PL_EDATA,
			       "%s: this is no safetensors file: 8 bytes are the size of the "
			       "header, 2 to %u, and the header begins with an opening brace",
			       r->name, HEADER_MAX);
	PL_CHECK(pl_data_array_take(in, (size_t)n - 1, head, err));
	pl_json_init(&r->j, (const char *)head->p + HEAD, (size_t)n);
	PL_CHECK(read_header(r, err));
	PL_CHECK(order(r, &total, err));
	return read_data(r, in, total, err);
}

int pl_weights_read(struct pl_in *in, const char *name, struct pl_weights *w, struct pl_err *err)
{
	struct reader r = { .w = w, .name = name };
	struct pl_buf head = { 0 };
	struct pl_err why = { 0 };
	int rc;

	memset(w, 0, sizeof(*w));
	rc = read_all(&r, in, &head, &why);
	pl_buf_fini(&head);
	pl_intern_fini(&r.seen);
	pl_intern_fini(&r.meta_seen);
	pl_free(r.begin);
	if (rc < 0)
		pl_weights_fini(w);
	return pl_fail_as(err, &why);
}
