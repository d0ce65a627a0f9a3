/*
 * Models: paceline-model(5), read and written.
 *
 * A statement is an operation, numbers, keys with values, and bare words, in any order; written are
 * the numbers first, then the keys as they came. Here only the frame is judged: the first and last
 * statement, blocks, names. What each operation takes is known where it is computed. Linear.
 */
#include <math.h>
#include <string.h>

#include "plan/internal.h"
#include "plan/model.h"

#define VERSION	   1
#define LAYERS_MAX 65536
#define WORDS_MAX  64

void pl_model_fini(struct pl_model *m)
{
	pl_arena_fini(&m->arena);
	pl_free(m->layer);
	memset(m, 0, sizeof(*m));
}

const char *pl_model_key(const struct pl_model_layer *l, const char *key)
{
	for (uint32_t i = 0; i < l->n_keys; i++)
		if (!strcmp(l->key[i].key, key))
			return l->key[i].text;
	return NULL;
}

/* ---- reading ------------------------------------------------------------------------------------
 */

struct reader {
	struct pl_text t;
	struct pl_model *m;
	struct pl_intern names;
	size_t depth; /* of blocks */
};

static int dup(struct reader *r, const char *s, size_t n, const char **out, struct pl_err *err)
{
	return pl_plan_dup_str(&r->m->arena, s, n, out, err);
}

static int read_key(struct reader *r, const char *s, struct pl_model_layer *l,
		    struct pl_model_key *key, struct pl_err *err)
{
	const char *equal = strchr(s, '=');
	size_t n = equal ? (size_t)(equal - s) : strlen(s);
	struct pl_model_key *k = &key[l->n_keys];
	int rc;

	if (!pl_text_is_key(s, n))
		return pl_text_fail(&r->t, err,
				    "\"%.100s\" is no number, no KEY=VALUE and no plain word", s);
	if (equal && !equal[1])
		return pl_text_fail(&r->t, err, "nothing stands behind \"%.100s\"", s);
	PL_TRY(dup(r, s, n, &k->key, err));
	PL_TRY(dup(r, equal ? equal + 1 : "", equal ? strlen(equal + 1) : 0, &k->text, err));
	if (pl_model_key(l, k->key))
		return pl_text_fail(&r->t, err, "%.100s is there twice; leave one", k->key);
	if (!pl_decimal(k->text, &k->v))
		k->v = NAN;
	l->n_keys++;
out:
	return rc;
}

/* All words behind the operation. */
static int read_words(struct reader *r, struct pl_model_layer *l, struct pl_err *err)
{
	struct pl_text *t = &r->t;
	size_t words = t->n - t->i;
	struct pl_model_key *key;
	double *num;
	int rc = 0;

	if (!words)
		return 0;
	if (words > WORDS_MAX)
		return pl_text_fail(t, err, "more than %d words", WORDS_MAX);
	num = pl_arena_take(&r->m->arena, words * sizeof(*num));
	key = pl_arena_take(&r->m->arena, words * sizeof(*key));
	if (!num || !key)
		return pl_fail(err, PL_ENOMEM, "out of memory (a model)");
	l->num = num;
	l->key = key;
	for (; t->i < t->n; t->i++) {
		const struct pl_word *w = &t->word[t->i];

		if (!w->quoted && !strcmp(w->s, ";"))
			return pl_text_fail(t, err, "\";\" has no meaning here");
		if (!w->quoted && pl_decimal(w->s, &num[l->n_num]))
			l->n_num++;
		else
			PL_TRY(read_key(r, w->s, l, key, err));
	}
out:
	return rc;
}

/* What depends on the statements before. */
static int check_order(struct reader *r, const struct pl_model_layer *l, struct pl_err *err)
{
	const struct pl_model *m = r->m;
	const char *name = pl_model_key(l, "name");
	size_t n = r->names.n;
	bool input = !strcmp(l->op, "input");
	pl_id id;
	int rc;

	if (input == (m->n_layers > 0))
		return pl_text_fail(&r->t, err,
				    input ? "a second input; a model has one, and it stands first"
					  : "a model begins with its input, like: input 3 32 32");
	if (m->n_layers && !strcmp(m->layer[m->n_layers - 1].op, "loss"))
		return pl_text_fail(&r->t, err, "\"%.100s\" behind the loss, which stands last",
				    l->op);
	if (!strcmp(l->op, "residual"))
		r->depth++;
	if (!strcmp(l->op, "end") && !r->depth--)
		return pl_text_fail(&r->t, err, "an end without a residual");
	if (!strcmp(l->op, "loss") && r->depth)
		return pl_text_fail(&r->t, err,
				    "the loss inside a residual block; an end is missing");
	if (!name)
		return 0;
	if (!*name)
		return pl_text_fail(&r->t, err, "write name=NAME");
	rc = pl_intern_add(&r->names, name, strlen(name), &id, err);
	if (rc >= 0 && id != n)
		return pl_text_fail(&r->t, err, "a second layer is named \"%.100s\"", name);
	return rc;
}

static int read_layer(struct reader *r, struct pl_err *err)
{
	struct pl_model_layer l = { .line = r->t.line };
	struct pl_model *m = r->m;
	const char *op = r->t.word[0].s;
	int rc;

	if (m->n_layers >= LAYERS_MAX)
		return pl_text_fail(&r->t, err, "more than %d layers", LAYERS_MAX);
	if (!pl_text_is_key(op, strlen(op)))
		return pl_text_fail(&r->t, err, "a line begins with an operation, not \"%.100s\"",
				    op);
	PL_TRY(dup(r, op, strlen(op), &l.op, err));
	r->t.i = 1;
	PL_TRY(read_words(r, &l, err));
	PL_TRY(check_order(r, &l, err));
	PL_TRY(pl_grow(&m->layer, &m->cap_layers, m->n_layers + 1, sizeof(*m->layer), err));
	m->layer[m->n_layers++] = l;
out:
	return rc;
}

static int read_all(struct reader *r, struct pl_in *in, const char *name, struct pl_err *err)
{
	struct pl_model *m = r->m;
	bool first = true;
	int rc;

	PL_TRY(dup(r, name, strlen(name), &m->name, err));
	PL_TRY(pl_text_read(&r->t, in, name, err));
	while ((rc = pl_text_next(&r->t, err)) > 0) {
		if (first && pl_text_key(&r->t, "paceline-model"))
			PL_TRY(pl_text_version(&r->t, VERSION, err));
		else
			PL_TRY(read_layer(r, err));
		first = false;
	}
	if (rc < 0)
		goto out;
	if (!m->n_layers || strcmp(m->layer[m->n_layers - 1].op, "loss") != 0)
		rc = pl_fail(err, PL_EDATA,
			     "%s: line %u: a model ends with its loss, like: loss "
			     "softmax-cross-entropy",
			     name, m->n_layers ? m->layer[m->n_layers - 1].line : r->t.line);
out:
	return rc;
}

int pl_model_read(struct pl_in *in, const char *name, struct pl_model *m, struct pl_err *err)
{
	struct reader r = { .m = m };
	struct pl_err why = { 0 };
	int rc;

	memset(m, 0, sizeof(*m));
	rc = read_all(&r, in, name, &why);
	pl_text_fini(&r.t);
	pl_intern_fini(&r.names);
	if (rc < 0) {
		pl_model_fini(m);
		if (err && !err->code)
			*err = why;
	}
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

/* ---- writing ------------------------------------------------------------------------------------
 */

static int put_layer(struct pl_buf *b, struct pl_buf *word, const struct pl_model_layer *l,
		     struct pl_err *err)
{
	char real[40];
	int rc;

	PL_TRY(pl_buf_printf(b, err, "%s", l->op));
	for (uint32_t i = 0; i < l->n_num; i++)
		PL_TRY(pl_buf_printf(b, err, " %s",
				     pl_text_real_str(real, sizeof(real), l->num[i])));
	for (uint32_t i = 0; i < l->n_keys; i++) {
		const struct pl_model_key *k = &l->key[i];

		word->n = 0;
		PL_TRY(pl_buf_printf(word, err, "%s%s%s", k->key, *k->text ? "=" : "", k->text));
		PL_TRY(pl_text_put_name(b, (const char *)word->p, word->n, err));
	}
	rc = pl_buf_printf(b, err, "\n");
out:
	return rc;
}

int pl_model_write(const struct pl_model *m, struct pl_out *out, struct pl_err *err)
{
	struct pl_buf b = { 0 }, word = { 0 };
	int rc;

	PL_TRY(pl_buf_printf(&b, err, "paceline-model %d\n", VERSION));
	for (size_t i = 0; i < m->n_layers; i++)
		PL_TRY(put_layer(&b, &word, &m->layer[i], err));
	rc = pl_out_write(out, b.p, b.n, err);
out:
	pl_buf_fini(&b);
	pl_buf_fini(&word);
	return rc;
}
