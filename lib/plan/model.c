/*
 * Models: paceline-model(5), read and written.
 *
 * The schema lists the arguments of each layer. In addition this file checks the first and the last
 * statement, blocks and names. The module that computes layers checks shapes. Linear.
 */
#include <math.h>

#include "plan/internal.h"
#include "plan/model.h"

#define LAYERS_MAX 65536
#define DIM_MAX	   (1 << 24)

/* ---- schema ---------------------------------------------------------------------------------- */

#define KEY		     PL_LANG_KEY
#define DIM(key, more, what) PL_LANG_FIELD(key, INT, more, what, .min = 1, .max = DIM_MAX)
#define SIZE(key, what)	     DIM(key, PL_LANG_NEED, what)
#define NAME		     PL_LANG_FIELD("name", NAME, KEY, "name, which no other layer has")
#define STD		     PL_LANG_FIELD("std", REAL, KEY, "standard deviation of the initial weights", .max = 1e6)
#define EPS		     PL_LANG_FIELD("eps", REAL, KEY, "added to the variance", .max = 1, .value = "1e-5")
#define BIAS		     PL_LANG_FIELD("bias", FLAG, KEY, "add a bias", .value = "1")
#define CONV1D		     PL_LANG_FIELD("conv1d", FLAG, KEY, "weight files hold the transposed weight")
#define STRIDE		     DIM("stride", KEY, "step of the windows")
#define PAD                                                                                        \
	PL_LANG_FIELD("pad", INT, KEY, "padding; same: keep the shape", .max = DIM_MAX,            \
		      .choices = "same", .value = "0")
#define LAYER(key, what, ...)                                                                      \
	{                                                                                          \
		PL_LANG_ROW(key, STRUCTURE, what, __VA_ARGS__)                                     \
	}

static const struct pl_lang_row rows[] = {
	LAYER("input", "features, a sequence or an image that comes in", SIZE("dim1", "size"),
	      DIM("dim2", 0, "size"), DIM("dim3", 0, "size"), NAME),
	LAYER("dense", "fully connected layer", SIZE("outputs", "outputs"), BIAS, STD,
	      PL_LANG_FIELD("tie", NAME, KEY, "layer whose weight it uses"), CONV1D, NAME),
	LAYER("conv", "convolution of images", SIZE("filters", "filters"),
	      SIZE("size", "rows of a filter"),
	      DIM("width", 0, "columns of a filter; as many as rows if not given"), STRIDE, PAD,
	      BIAS, STD, NAME),
	LAYER("maxpool", "maximum of windows", SIZE("size", "rows and columns"), STRIDE, PAD, NAME),
	LAYER("avgpool", "mean of windows", SIZE("size", "rows and columns"), STRIDE, PAD, NAME),
	LAYER("batchnorm", "normalisation over the batch", EPS,
	      PL_LANG_FIELD("momentum", REAL, KEY, "share of the batch in the running statistics",
			    .max = 1, .value = "0.1"),
	      NAME),
	LAYER("layernorm", "normalisation over the last dimension", EPS, NAME),
	LAYER("embedding", "tokens to vectors", SIZE("vocabulary", "tokens"),
	      SIZE("width", "values of a vector"), STD, NAME),
	LAYER("position", "vectors of positions, added", STD, NAME),
	LAYER("attention", "causal self-attention with both projections", SIZE("heads", "heads"),
	      STD,
	      PL_LANG_FIELD("std_out", REAL, KEY, "standard deviation of the second projection",
			    .max = 1e6),
	      BIAS, CONV1D, NAME),
	LAYER("relu", "max(x, 0)", NAME),
	LAYER("gelu", "Gaussian error linear unit", NAME),
	LAYER("tanh", "hyperbolic tangent", NAME),
	LAYER("sigmoid", "logistic function", NAME),
	LAYER("dropout", "random zeros in training",
	      PL_LANG_FIELD("probability", REAL, PL_LANG_NEED | PL_LANG_BELOW,
			    "probability of a zero", .max = 1),
	      NAME),
	LAYER("flatten", "to one dimension", NAME),
	LAYER("residual", "begins a block whose input is added to its output", NAME),
	LAYER("end", "ends the block", NAME),
	LAYER("loss", "what training makes smaller",
	      PL_LANG_FIELD("loss", CHOICE, PL_LANG_NEED, "kind",
			    .choices = "softmax-cross-entropy|squared|hinge"),
	      NAME),
};
const struct pl_lang_schema pl_model_schema = {
	.name = "model", .version = 1, .row = rows, .n_rows = PL_LEN(rows)
};

void pl_model_fini(struct pl_model *m)
{
	pl_arena_fini(&m->arena);
	pl_free(m->layer);
	memset(m, 0, sizeof(*m));
}

const char *pl_model_key(const struct pl_layer *l, const char *key)
{
	for (uint32_t i = 0; i < l->n_keys; i++)
		if (!strcmp(l->key[i].key, key))
			return l->key[i].text;
	return NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reader {
	struct pl_lang_reader r;
	struct pl_model *m;
	struct pl_intern names;
	size_t depth; /* of blocks */
};

/* A field of the statement becomes a number or a key. The text of a flag is "" or a number; the
 * kind of a loss is a key without a text. */
static int add_field(struct reader *r, const struct pl_lang_field *f, const struct pl_lang_value *v,
		     struct pl_layer *l, double *num, struct pl_layer_key *key, struct pl_err *err)
{
	bool word = f->type == PL_LANG_CHOICE;
	const char *text = f->type != PL_LANG_FLAG ? v->s : !v->s ? "" : v->i ? "1" : "0";
	struct pl_layer_key *k = &key[l->n_keys];

	if (!(f->flags & PL_LANG_KEY) && !word) {
		num[l->n_num++] = v->r;
		return 0;
	}
	PL_CHECK(pl_dup(&r->m->arena, &k->key, word ? v->s : f->name, err));
	PL_CHECK(pl_dup(&r->m->arena, &k->text, word ? "" : text, err));
	if (!pl_decimal(k->text, &k->v))
		k->v = NAN;
	l->n_keys++;
	return 0;
}

/* Rules that depend on earlier statements. */
static int check_order(struct reader *r, struct pl_err *err)
{
	const struct pl_lang_statement *st = &r->r.st;
	const struct pl_lang_value *name = pl_lang_get(st, "name");
	const struct pl_model *m = r->m;
	const char *op = st->row->name;
	uint32_t at = r->r.word[0].column;
	size_t n = r->names.n;
	bool input = !strcmp(op, "input");
	pl_id id;
	int rc;

	if (m->n_layers >= LAYERS_MAX)
		return pl_lang_fail(&r->r, at, err, "more than %d layers", LAYERS_MAX);
	if (input == (m->n_layers > 0))
		return pl_lang_fail(&r->r, at, err,
				    input ? "a second input; a model has one, and it stands first"
					  : "a model begins with its input, like: input 3 32 32");
	if (m->n_layers && !strcmp(m->layer[m->n_layers - 1].op, "loss"))
		return pl_lang_fail(&r->r, at, err, "\"%.100s\" behind the loss, which stands last",
				    op);
	if (!strcmp(op, "residual"))
		r->depth++;
	if (!strcmp(op, "end") && !r->depth--)
		return pl_lang_fail(&r->r, at, err, "an end without a residual");
	if (!strcmp(op, "loss") && r->depth)
		return pl_lang_fail(&r->r, at, err,
				    "the loss inside a residual block; an end is missing");
	if (!name)
		return 0;
	rc = pl_intern_add(&r->names, name->s, strlen(name->s), &id, err);
	if (rc >= 0 && id != n)
		return pl_lang_fail(&r->r, name->column, err, "a second layer is named \"%.100s\"",
				    name->s);
	return rc;
}

static int read_layer(struct reader *r, struct pl_err *err)
{
	const struct pl_lang_statement *st = &r->r.st;
	struct pl_layer l = { .line = st->line };
	struct pl_model *m = r->m;
	struct pl_layer_key *key;
	double *num;

	PL_CHECK(check_order(r, err));
	PL_CHECK(pl_dup(&m->arena, &l.op, st->row->name, err));
	PL_CHECK(pl_arena_array(&m->arena, &num, st->n, sizeof(*num), err));
	PL_CHECK(pl_arena_array(&m->arena, &key, st->n, sizeof(*key), err));
	l.num = num;
	l.key = key;
	for (size_t i = 0; i < st->n; i++)
		if (st->value[i].present)
			PL_CHECK(
				add_field(r, &st->row->field[i], &st->value[i], &l, num, key, err));
	return pl_append(&m->layer, &m->n_layers, &m->cap_layers, &l, sizeof(l), err);
}

static int read_all(struct reader *r, struct pl_in *in, const char *name, struct pl_err *err)
{
	struct pl_model *m = r->m;
	int rc;

	PL_TRY(pl_lang_open(&r->r, &pl_model_schema, in, name, err));
	PL_TRY(pl_dup(&m->arena, &m->name, name, err));
	while ((rc = pl_lang_next(&r->r, err)) > 0)
		PL_TRY(read_layer(r, err));
	if (rc < 0)
		goto out;
	if (m->n_layers)
		r->r.line = m->layer[m->n_layers - 1].line;
	if (!m->n_layers || strcmp(m->layer[m->n_layers - 1].op, "loss") != 0)
		rc = pl_lang_fail(&r->r, 0, err,
				  "a model ends with its loss, like: loss softmax-cross-entropy");
out:
	return rc;
}

int pl_model_read(struct pl_in *in, const char *name, struct pl_model *m, struct pl_err *err)
{
	struct reader r = { .m = m };
	int rc;

	memset(m, 0, sizeof(*m));
	rc = read_all(&r, in, name, err);
	pl_lang_close(&r.r);
	pl_intern_fini(&r.names);
	if (rc < 0)
		pl_model_fini(m);
	return rc < 0 ? rc : 0;
}

int pl_model_parse(const char *text, struct pl_model *m, struct pl_err *err)
{
	struct pl_err why = { 0 };
	struct pl_in *in;
	int rc;

	if (pl_model_is_preset(text))
		return pl_model_preset(text, m, err);
	memset(m, 0, sizeof(*m));
	in = pl_in_open(text, &why);
	if (!in)
		return pl_fail(err, why.code, "%s%s%s", why.msg,
			       strchr(text, '/') ? "" : "; of models without a file there are ",
			       strchr(text, '/') ? "" : pl_model_presets);
	rc = pl_model_read(in, pl_in_name(in), m, err);
	pl_in_close(in);
	return rc;
}

int pl_model_text(const char *text, size_t n, const char *name, struct pl_model *m,
		  struct pl_err *err)
{
	struct pl_in *in = pl_in_open_mem(name, text, n, err);
	int rc = in ? pl_model_read(in, name, m, err) : err->code;

	pl_in_close(in);
	return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_layer(struct pl_writer *w, struct pl_lang_statement *st, const struct pl_layer *l)
{
	const struct pl_lang_row *row = pl_lang_row(&pl_model_schema, l->op);

	if (pl_lang_begin(st, &pl_model_schema, row, &w->fail) < 0)
		return;
	for (uint32_t i = 0; i < l->n_num; i++)
		st->value[i] = (struct pl_lang_value){ .present = true,
						       .i = (int64_t)l->num[i],
						       .r = l->num[i] };
	for (uint32_t i = 0; i < l->n_keys; i++) {
		const struct pl_layer_key *k = &l->key[i];
		const struct pl_lang_field *f = pl_lang_field(row, k->key, NULL);
		struct pl_lang_value *v = &st->value[f ? f - row->field : 0];

		/* a key without a text is a flag, or the value of the first field */
		*v = (struct pl_lang_value){ .present = true, .i = 1 };
		v->s = !f ? k->key : *k->text ? k->text : NULL;
	}
	pl_lang_write(w, st);
	pl_write_char(w, '\n');
}

int pl_model_write(const struct pl_model *m, struct pl_out *out, struct pl_err *err)
{
	struct pl_lang_statement st = { 0 };
	struct pl_writer w;

	pl_write_init(&w, out, 0);
	pl_write_format(&w, "paceline-model %d\n", pl_model_schema.version);
	for (size_t i = 0; i < m->n_layers; i++)
		put_layer(&w, &st, &m->layer[i]);
	pl_lang_end(&st);
	return pl_write_end(&w, err);
}
