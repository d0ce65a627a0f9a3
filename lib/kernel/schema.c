/*
 * Schemas: the statements, read and kept. table.c applies them.
 */
#include <math.h>

#include "core/words.h"
#include "kernel/expr.h"
#include "kernel/internal.h"

#define SCHEMA_MAX (1 << 20) /* bytes */

#define NEED		PL_LANG_NEED
#define KEY		PL_LANG_KEY
#define TEXT(key, what) PL_LANG_FIELD(key, NAME, KEY, what, .word = NULL)

/* Dimensions of all families, as keys of "op"; each is an expression. */
#define DIMS                                                                                       \
	TEXT("batch", "gemm, conv: products, images"), TEXT("m", "gemm: rows of C and A"),         \
		TEXT("n", "gemm: columns of C and B"), TEXT("k", "gemm: columns of A, rows of B"), \
		TEXT("in", "conv: channels of the input"), TEXT("out", "conv: of the output"),     \
		TEXT("size", "conv: width of an image"),                                           \
		TEXT("kernel", "conv: width of a filter"), TEXT("stride", "conv"),                 \
		TEXT("padding", "conv"), TEXT("groups", "conv"),                                   \
		TEXT("elements", "elementwise, move: numbers of a tensor"),                        \
		TEXT("inputs", "elementwise: tensors read"),                                       \
		TEXT("outputs", "elementwise, move: tensors written"),                             \
		TEXT("bytes", "bytes read and written; of communication: of a rank"),              \
		TEXT("rows", "softmax, norm, embedding"), TEXT("columns", "likewise"),             \
		TEXT("ranks", "communication: that take part"),                                    \
		TEXT("local", "communication: of these on a host"), TEXT("a", "other"),            \
		TEXT("b", "other"), TEXT("c", "other"), TEXT("d", "other")

static const struct pl_lang_row rows[] = {
	[SCHEMA_LATENCY] = { PL_LANG_ROW("latency", TIMING,
					 "the column of the latency; with \"*\" columns, and * is "
					 "the operation",
					 PL_LANG_FIELD("column", NAME, NEED,
						       "name of the column, or pattern"),
					 PL_LANG_FIELD("unit", CHOICE, KEY, "of its numbers",
						       .choices = "ns|us|ms|s", .value = "ms"),
					 PL_LANG_FIELD("missing", REAL, KEY,
						       "this number and greater ones mean that "
						       "nothing was measured")),
			     .once = true },
	[SCHEMA_OPERATION] = { PL_LANG_ROW(
				       "operation", TIMING, "the column that names the operation",
				       PL_LANG_FIELD("column", NAME, NEED, "name of the column")),
			       .once = true },
	[SCHEMA_DEVICE] = { PL_LANG_ROW("device", TIMING, "what names the device",
					PL_LANG_FIELD("column", NAME, KEY, "a column"),
					PL_LANG_FIELD("from", CHOICE, KEY, "the folder or the file",
						      .choices = "folder|file")),
			    .once = true },
	[SCHEMA_MODEL] = { PL_LANG_ROW("model", TIMING,
				       "what names the model that the operation is a part of",
				       PL_LANG_FIELD("column", NAME, KEY, "a column"),
				       PL_LANG_FIELD("from", CHOICE, KEY, "the folder or the file",
						     .choices = "folder|file")),
			   .once = true },
	[SCHEMA_KERNEL] = { PL_LANG_ROW(
				    "kernel", TIMING,
				    "the column of kernels' names, which tell tiles of products",
				    PL_LANG_FIELD("column", NAME, NEED, "name of the column")),
			    .once = true },
	[SCHEMA_TYPE] = { PL_LANG_ROW("type", TIMING, "the type of elements where an op has none",
				      PL_LANG_FIELD("type", NAME, NEED,
						    "float32, float16, bfloat16 ...")),
			  .once = true },
	[SCHEMA_FILE] = { PL_LANG_ROW(
		"file", TIMING, "numbers in the names of files: gpt_{size}_mbs{mbs}.csv",
		PL_LANG_FIELD("pattern", NAME, NEED,
			      "{NAME} stands for a variable, * for anything")) },
	[SCHEMA_LET] = { PL_LANG_ROW(
		"let", TIMING, "a variable", PL_LANG_FIELD("name", NAME, NEED, "its name"),
		PL_LANG_FIELD("value", NAME, NEED, "an expression of columns and variables"),
		PL_LANG_FIELD("when", NAME, KEY,
			      "only if this is not 0; \"NAME=WORD\" compares a text")) },
	[SCHEMA_OP] = { PL_LANG_ROW(
		"op", TIMING, "what an operation does; dimensions are expressions",
		PL_LANG_FIELD("names", NAME, NEED, "its name, or \"A|B\", or a pattern"),
		PL_LANG_FIELD("family", NAME, KEY | NEED, "kind of work"),
		PL_LANG_FIELD("type", NAME, KEY, "of elements"),
		PL_LANG_FIELD("when", NAME, KEY,
			      "only if this is not 0; \"NAME=WORD\" compares a text"),
		PL_LANG_FIELD("as", NAME, KEY, "another name for the operation"), DIMS) },
};
_Static_assert(PL_LEN(rows) == SCHEMA_STATEMENTS, "a statement without a row");

const struct pl_lang_schema pl_schema_schema = {
	.name = "schema", .version = 1, .header = true, .row = rows, .n_rows = PL_LEN(rows)
};

double pl_schema_unit(const char *word)
{
	static const double ns[] = { 1, 1e3, 1e6, 1e9 };
	int i = word ? pl_words_find("ns|us|ms|s", word) : -1;

	return i < 0 ? 0 : ns[i];
}

/* ---- statements ------------------------------------------------------------------------------ */

static const char *text_of(const struct pl_lang_statement *st, const char *key)
{
	const struct pl_lang_value *v = pl_lang_get(st, key);

	return v && v->present ? v->s : NULL;
}

static int keep(struct pl_schema *s, const char **to, const char *text, struct pl_err *err)
{
	*to = NULL;
	return text ? pl_dup(&s->arena, to, text, err) : 0;
}

static int keep_source(struct pl_schema *s, const struct pl_lang_reader *r, struct schema_source *x,
		       struct pl_err *err)
{
	const char *from = text_of(&r->st, "from");

	if (!from == !text_of(&r->st, "column"))
		return pl_lang_fail(r, 0, err, "write column=NAME or from=folder or from=file");
	x->folder = from && !strcmp(from, "folder");
	x->file = from && !x->folder;
	return keep(s, &x->column, text_of(&r->st, "column"), err);
}

const char *pl_schema_equal(const char *when)
{
	const char *s = when;

	for (; *s && *s != '='; s++) { /* quotes hold a name, whatever is in it */
		const char *close = *s == '\'' ? strchr(s + 1, '\'') : NULL;

		s = close ? close : s;
	}
	return *s && s > when && s[1] != '=' && !strchr("!<>", s[-1]) ? s : NULL;
}

/* Names get their meaning from a table. */
static uint32_t any_name(void *arg, const char *name)
{
	(void)arg;
	(void)name;
	return 0;
}

/* Faults of an expression that no table mends. NULL is fine. */
static int check_expr(const struct pl_lang_reader *r, const char *text, struct pl_err *err)
{
	struct pl_err why = { 0 };
	struct pl_expr *e = NULL;
	int rc = text ? pl_expr_new(text, any_name, NULL, &e, &why) : 0;

	pl_expr_free(e);
	if (rc == PL_EDATA)
		return pl_lang_fail(r, 0, err, "%s", why.msg);
	return pl_fail_as(err, &why);
}

static int check_when(const struct pl_lang_reader *r, const char *when, struct pl_err *err)
{
	return when && !pl_schema_equal(when) ? check_expr(r, when, err) : 0;
}

static int keep_let(struct pl_schema *s, const struct pl_lang_reader *r, struct pl_err *err)
{
	struct schema_let x = { 0 };

	PL_CHECK(keep(s, &x.name, text_of(&r->st, "name"), err));
	PL_CHECK(keep(s, &x.value, text_of(&r->st, "value"), err));
	PL_CHECK(keep(s, &x.when, text_of(&r->st, "when"), err));
	PL_CHECK(check_expr(r, x.value, err));
	PL_CHECK(check_when(r, x.when, err));
	return pl_append(&s->let, &s->n_lets, &s->cap_lets, &x, sizeof(x), err);
}

/* The type that a word names; *type stays if there is no word. */
static int read_type(const struct pl_lang_reader *r, const char *word, uint8_t *type,
		     struct pl_err *err)
{
	int known = word ? pl_kernel_type_find(word) : *type;

	if (known < 0)
		return pl_lang_fail(r, 0, err, "there is no type \"%.40s\"; float32, float16 ...",
				    word);
	*type = (uint8_t)known;
	return 0;
}

/* Each dimension that is given is one of the family. */
static int check_dims(const struct pl_lang_reader *r, unsigned family, struct pl_err *err)
{
	static const struct pl_lang_field dims[] = { DIMS };

	for (size_t i = 0; i < PL_LEN(dims); i++) {
		const char *name = NULL;
		double otherwise;
		unsigned k = 0;

		if (!text_of(&r->st, dims[i].name))
			continue;
		while ((name = pl_kernel_dim(family, k, &otherwise)) && strcmp(name, dims[i].name))
			k++;
		if (!name)
			return pl_lang_fail(r, 0, err, "%s has no dimension %s",
					    pl_kernel_family_word(family), dims[i].name);
	}
	return 0;
}

static int keep_op(struct pl_schema *s, const struct pl_lang_reader *r, struct pl_err *err)
{
	struct schema_op x = { .type = s->type };
	const char *family = text_of(&r->st, "family");
	int known = pl_kernel_family_find(family);

	if (known < 0) {
		struct pl_words_near near = { .s = family };
		char hint[96];

		for (unsigned i = 0; i < PL_KERNEL_FAMILIES_; i++)
			pl_words_near(&near, pl_kernel_family_word(i),
				      strlen(pl_kernel_family_word(i)));
		return pl_lang_fail(r, 0, err, "there is no family \"%.40s\"%s", family,
				    pl_words_near_text(&near, hint, sizeof(hint)));
	}
	x.family = (uint8_t)known;
	PL_CHECK(read_type(r, text_of(&r->st, "type"), &x.type, err));
	PL_CHECK(keep(s, &x.names, text_of(&r->st, "names"), err));
	PL_CHECK(keep(s, &x.as, text_of(&r->st, "as"), err));
	PL_CHECK(keep(s, &x.when, text_of(&r->st, "when"), err));
	PL_CHECK(check_when(r, x.when, err));
	PL_CHECK(check_dims(r, x.family, err));
	for (unsigned i = 0; i < PL_KERNEL_DIMS; i++) {
		double otherwise;
		const char *name = pl_kernel_dim(x.family, i, &otherwise);

		if (!name)
			break;
		PL_CHECK(keep(s, &x.dim[i], text_of(&r->st, name), err));
		if (!x.dim[i] && isnan(otherwise))
			return pl_lang_fail(r, 0, err, "%s needs %s=EXPRESSION", family, name);
		PL_CHECK(check_expr(r, x.dim[i], err));
	}
	return pl_append(&s->op, &s->n_ops, &s->cap_ops, &x, sizeof(x), err);
}

static int keep_statement(struct pl_schema *s, const struct pl_lang_reader *r, struct pl_err *err)
{
	const struct pl_lang_value *v;
	const char *file;

	switch (r->st.row - rows) {
	case SCHEMA_LATENCY:
		v = pl_lang_get(&r->st, "missing");
		s->missing = v && v->present ? v->r : INFINITY;
		s->unit_ns =
			pl_schema_unit(text_of(&r->st, "unit") ? text_of(&r->st, "unit") : "ms");
		return keep(s, &s->latency, text_of(&r->st, "column"), err);
	case SCHEMA_OPERATION:
		return keep(s, &s->operation, text_of(&r->st, "column"), err);
	case SCHEMA_DEVICE:
		return keep_source(s, r, &s->device, err);
	case SCHEMA_MODEL:
		return keep_source(s, r, &s->model, err);
	case SCHEMA_KERNEL:
		return keep(s, &s->kernel, text_of(&r->st, "column"), err);
	case SCHEMA_TYPE:
		return read_type(r, text_of(&r->st, "type"), &s->type, err);
	case SCHEMA_FILE:
		PL_CHECK(keep(s, &file, text_of(&r->st, "pattern"), err));
		return pl_append(&s->file, &s->n_files, &s->cap_files, &file, sizeof(file), err);
	case SCHEMA_LET:
		return keep_let(s, r, err);
	default:
		return keep_op(s, r, err);
	}
}

static int check_whole(const struct pl_schema *s, struct pl_err *err)
{
	if (!s->latency)
		return pl_fail(err, PL_EDATA, "%s: there is no statement \"latency\"", s->name);
	if (!strchr(s->latency, '*') && !s->operation)
		return pl_fail(err, PL_EDATA,
			       "%s: name the column of the operation (operation COLUMN), or write "
			       "\"*\" for it in the latency",
			       s->name);
	return s->n_ops ? 0 : pl_fail(err, PL_EDATA, "%s: there is no statement \"op\"", s->name);
}

static int read_statements(struct pl_schema *s, struct pl_lang_reader *r, struct pl_err *err)
{
	int rc;

	while ((rc = pl_lang_next(r, err)) > 0)
		PL_CHECK(keep_statement(s, r, err));
	return rc < 0 ? rc : check_whole(s, err);
}

static struct pl_schema *new_schema(const char *name, struct pl_err *err)
{
	struct pl_schema *s;

	if (pl_alloc(&s, 1, sizeof(*s), err) < 0)
		return NULL;
	s->missing = INFINITY;
	if (keep(s, &s->name, name, err) < 0) {
		pl_schema_free(s);
		return NULL;
	}
	return s;
}

int pl_schema_parse(const char *text, const char *name, struct pl_schema **out, struct pl_err *err)
{
	struct pl_schema *s = new_schema(name, err);
	struct pl_lang_reader r = { 0 };
	struct pl_in *in = NULL;
	int rc;

	*out = NULL;
	if (!s)
		return err->code;
	PL_TRY(keep(s, &s->text, text, err));
	in = pl_in_open_mem(name, text, strlen(text), err);
	PL_TRY(in ? 0 : err->code);
	PL_TRY(pl_lang_open(&r, &pl_schema_schema, in, name, err));
	rc = read_statements(s, &r, err);
out:
	pl_lang_close(&r);
	pl_in_close(in);
	if (rc < 0)
		pl_schema_free(s);
	else
		*out = s;
	return rc;
}

int pl_schema_open(const char *name, struct pl_schema **s, struct pl_err *err)
{
	struct pl_buf text = { 0 };
	struct pl_in *in;
	int rc;

	*s = NULL;
	for (size_t i = 0; pl_schema_built_in[i].name; i++)
		if (!strcmp(pl_schema_built_in[i].name, name))
			return pl_schema_parse(pl_schema_built_in[i].text, name, s, err);
	in = pl_in_open(name, err);
	if (!in)
		return pl_wrap(err, "schema (neusight, vidur, mist and run are built in)");
	rc = pl_in_read_all(in, SCHEMA_MAX, &text, err);
	if (rc >= 0 && text.n && memchr(text.p, 0, text.n))
		rc = pl_fail(err, PL_EDATA, "%s: not a schema, but binary data", name);
	if (rc >= 0)
		rc = pl_buf_put(&text, "", 1, err);
	if (rc >= 0)
		rc = pl_schema_parse((const char *)text.p, name, s, err);
	pl_buf_fini(&text);
	pl_in_close(in);
	return rc;
}

void pl_schema_free(struct pl_schema *s)
{
	if (!s)
		return;
	pl_free(s->let);
	pl_free(s->op);
	pl_free(s->file);
	pl_arena_fini(&s->arena);
	pl_free(s);
}

const char *pl_schema_name(const struct pl_schema *s)
{
	return s->name;
}

const char *pl_schema_text(const struct pl_schema *s)
{
	return s->text;
}

bool pl_schema_is_long(const struct pl_schema *s)
{
	return !strchr(s->latency, '*');
}
