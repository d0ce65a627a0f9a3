/*
 * Presets of models. Each is written as the text of paceline-model(5) and read like any other, so
 * that a preset is nothing that a file cannot be.
 *
 * cnn: the network of TensorFlow's CIFAR-10 tutorial without its local response normalisation, for
 * which it has no counterpart that others use. gpt: GPT-2 (Radford et al., 2019) with its names and
 * initial deviations, without dropout: what enters the sum of a block is smaller by sqrt(2 layers).
 */
#include <math.h>

#include "plan/internal.h"
#include "plan/model.h"

#define WIDTH_MAX ((int64_t)1 << 24) /* of a width */
#define MLP_MAX	  256

const char pl_model_presets[] = "mlp:784-512-512-10, cnn, cnn:1x28x28,classes=10, "
				"gpt:layers=2,heads=4,width=128,context=64,vocab=65, gpt2";

/* A whole number of 1 .. max at *s, which moves behind it; 0. */
static int64_t take_int(const char **s, int64_t max)
{
	int64_t v = pl_take_digits(s);

	return v > 0 && v <= max ? v : 0;
}

/* "784-512-10" */
static int mlp(const char *args, struct pl_buf *b, struct pl_err *err)
{
	const char *s = args;
	int n = 0;

	for (;; s++) {
		int64_t width = take_int(&s, WIDTH_MAX);

		if (!width || (*s && *s != '-') || n == MLP_MAX)
			return pl_fail(err, PL_EUSAGE,
				       "mlp:%.100s: widths of 1 to %lld, joined with -, at most "
				       "%d, like mlp:784-512-10",
				       args, (long long)WIDTH_MAX, MLP_MAX);
		PL_CHECK(pl_buf_printf(b, err, "%s %lld\n", n ? "dense" : "input",
				       (long long)width));
		if (n && *s)
			PL_CHECK(pl_buf_printf(b, err, "relu\n"));
		n++;
		if (!*s)
			break;
	}
	if (n < 2)
		return pl_fail(err, PL_EUSAGE, "mlp:%.100s: an input and at least one layer", args);
	return pl_buf_printf(b, err, "loss softmax-cross-entropy\n");
}

/* "", or "CxHxW", "classes=N" */
static int cnn(const char *args, struct pl_buf *b, struct pl_err *err)
{
	int64_t dim[3] = { 3, 32, 32 }, classes = 10;
	const char *s = args;
	bool good = true;

	if (*s && *s != 'c')
		for (int i = 0; i < 3 && good; i++) {
			dim[i] = take_int(&s, 4096);
			good = dim[i] && (i == 2 || *s++ == 'x');
		}
	if (good && *s == ',')
		s++;
	if (good && !strncmp(s, "classes=", 8)) {
		s += 8;
		classes = take_int(&s, WIDTH_MAX);
	}
	/* each pooling halves it */
	if (!good || *s || !classes || dim[1] < 4 || dim[2] < 4)
		return pl_fail(err, PL_EUSAGE,
			       "cnn:%.100s: channels, height and width, each at most 4096 and the "
			       "latter at least 4, and classes, like cnn:1x28x28,classes=10",
			       args);
	return pl_buf_printf(b, err,
			     "input %lld %lld %lld\n"
			     "conv 64 5 pad=2\nrelu\nmaxpool 3 stride=2 pad=1\n"
			     "conv 64 5 pad=2\nrelu\nmaxpool 3 stride=2 pad=1\n"
			     "flatten\ndense 384\nrelu\ndense 192\nrelu\ndense %lld\n"
			     "loss softmax-cross-entropy\n",
			     (long long)dim[0], (long long)dim[1], (long long)dim[2],
			     (long long)classes);
}

struct gpt {
	int64_t layers, heads, width, context, vocab;
};

static int gpt_block(const struct gpt *g, int64_t i, struct pl_buf *b, struct pl_err *err)
{
	const char *h = "transformer.h";
	long long n = i, c = g->width;
	char out[40];

	pl_fmt_real(out, sizeof(out), 0.02 / sqrt(2.0 * (double)g->layers));
	return pl_buf_printf(b, err,
			     "residual name=%s.%lld.r1\n"
			     "layernorm name=%s.%lld.ln_1\n"
			     "attention %lld std=0.02 std_out=%s conv1d name=%s.%lld.attn\n"
			     "end\n"
			     "residual name=%s.%lld.r2\n"
			     "layernorm name=%s.%lld.ln_2\n"
			     "dense %lld std=0.02 conv1d name=%s.%lld.mlp.c_fc\n"
			     "gelu name=%s.%lld.mlp.act\n"
			     "dense %lld std=%s conv1d name=%s.%lld.mlp.c_proj\n"
			     "end\n",
			     h, n, h, n, (long long)g->heads, out, h, n, h, n, h, n, 4 * c, h, n, h,
			     n, c, out, h, n);
}

static int gpt_text(const struct gpt *g, struct pl_buf *b, struct pl_err *err)
{
	PL_CHECK(pl_buf_printf(b, err,
			       "input %lld\n"
			       "embedding %lld %lld std=0.02 name=transformer.wte\n"
			       "position std=0.02 name=transformer.wpe\n",
			       (long long)g->context, (long long)g->vocab, (long long)g->width));
	for (int64_t i = 0; i < g->layers; i++)
		PL_CHECK(gpt_block(g, i, b, err));
	return pl_buf_printf(b, err,
			     "layernorm name=transformer.ln_f\n"
			     "dense %lld bias=0 tie=transformer.wte name=lm_head\n"
			     "loss softmax-cross-entropy\n",
			     (long long)g->vocab);
}

/* The greatest divisor of n up to `most`. */
static int64_t divisor(int64_t n, int64_t most)
{
	while (n % most)
		most--;
	return most;
}

static int gpt(const char *args, struct pl_buf *b, struct pl_err *err)
{
	struct gpt g = { 0 };
	const struct {
		const char *key;
		int64_t *v, max;
	} arg[] = { { "layers=", &g.layers, 1024 },
		    { "heads=", &g.heads, 1024 },
		    { "width=", &g.width, 65536 },
		    { "context=", &g.context, 1 << 20 },
		    { "vocab=", &g.vocab, WIDTH_MAX } };
	const char *s = args;
	bool good = *s;

	while (*s && good) {
		size_t i = 0;

		while (i < PL_LEN(arg) && strncmp(s, arg[i].key, strlen(arg[i].key)) != 0)
			i++;
		good = i < PL_LEN(arg) && !*arg[i].v;
		if (!good)
			break;
		s += strlen(arg[i].key);
		*arg[i].v = take_int(&s, arg[i].max);
		good = *arg[i].v && (!*s || (*s == ',' && s[1]));
		s += *s == ',';
	}
	for (size_t i = 0; i < PL_LEN(arg); i++)
		good = good && *arg[i].v;
	if (good && g.width % g.heads)
		return pl_fail(
			err, PL_EUSAGE,
			"gpt:%.200s: width %lld is no multiple of %lld heads; write width=%lld "
			"or heads=%lld",
			args, (long long)g.width, (long long)g.heads,
			(long long)((g.width / g.heads + 1) * g.heads),
			(long long)divisor(g.width, g.heads));
	if (!good)
		return pl_fail(err, PL_EUSAGE,
			       "gpt:%.200s: write layers (to 1024), heads (to 1024), width (to "
			       "65536, a multiple of the heads), context and vocab, each once, "
			       "like gpt:layers=2,heads=4,width=128,context=64,vocab=65",
			       args);
	return gpt_text(&g, b, err);
}

static int gpt2(const char *args, struct pl_buf *b, struct pl_err *err)
{
	static const struct gpt g = { 12, 12, 768, 1024, 50257 };

	if (*args)
		return pl_fail(err, PL_EUSAGE,
			       "gpt2 takes no arguments; other sizes are gpt:layers=...");
	return gpt_text(&g, b, err);
}

static const struct preset {
	const char *name;
	int (*text)(const char *args, struct pl_buf *b, struct pl_err *err);
	bool args; /* needed */
} presets[] = {
	{ "mlp", mlp, true }, { "cnn", cnn, false }, { "gpt", gpt, true }, { "gpt2", gpt2, false }
};

static const struct preset *find(const char *text)
{
	size_t n = strcspn(text, ":");

	for (size_t i = 0; i < PL_LEN(presets); i++)
		if (strlen(presets[i].name) == n && !memcmp(presets[i].name, text, n))
			return &presets[i];
	return NULL;
}

bool pl_model_is_preset(const char *text)
{
	return !strchr(text, '/') && find(text);
}

int pl_model_preset(const char *text, struct pl_model *m, struct pl_err *err)
{
	const struct preset *p = find(text);
	struct pl_buf b = { 0 };
	struct pl_in *in;
	const char *args;
	int rc;

	memset(m, 0, sizeof(*m));
	if (!p || (p->args && !strchr(text, ':')))
		return pl_fail(err, PL_EUSAGE,
			       "there is no model \"%.100s\"; there are %s, and files", text,
			       pl_model_presets);
	args = text + strlen(p->name);
	PL_TRY(p->text(args + (*args == ':'), &b, err));
	in = pl_in_open_mem(text, b.p, b.n, err);
	if (!in) {
		rc = PL_ENOMEM;
		goto out;
	}
	rc = pl_model_read(in, text, m, err);
	pl_in_close(in);
	for (size_t i = 0; i < m->n_layers; i++)
		m->layer[i].line = 0;
out:
	pl_buf_fini(&b);
	return rc;
}
