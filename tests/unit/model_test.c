/* Models: text there and back, errors with their lines, presets. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "plan/model.h"
#include "tap.h"
#include "tensor/net_internal.h"

static struct pl_err err;

static int read_str(const char *s, struct pl_model *m)
{
	struct pl_in *in;
	int rc;

	memset(&err, 0, sizeof(err));
	in = pl_in_open_mem("test", s, strlen(s), &err);
	rc = pl_model_read(in, "test", m, &err);
	pl_in_close(in);
	return rc;
}

static const char *written(const struct pl_model *m, struct pl_buf *b)
{
	struct pl_out *out;

	memset(&err, 0, sizeof(err));
	memset(b, 0, sizeof(*b));
	out = pl_out_open_buf(b, &err);
	if (pl_model_write(m, out, &err) < 0 || pl_out_close(out, &err) < 0 ||
	    pl_buf_put(b, "", 1, &err) < 0)
		abort();
	return (const char *)b->p;
}

static void text(void)
{
	static const char want[] = "paceline-model 1\n"
				   "input 3 32 32\n"
				   "conv 64 5 pad=same std=0.05 name=features.0\n"
				   "dropout 0.1\n"
				   "residual\n"
				   "relu\n"
				   "end\n"
				   "dense 10 conv1d name=\"last one\"\n"
				   "loss softmax-cross-entropy\n";
	struct pl_model m, n;
	struct pl_buf b, c;

	is_i64(read_str(
		       "# a net\ninput 3 32 32\n\nconv pad=same 64 std=0.05 5 name=features.0 # c\n"
		       "dropout 1e-1\nresidual\nrelu\nend\ndense 10 name=\"last one\" conv1d\n"
		       "loss softmax-cross-entropy",
		       &m),
	       0, "read");
	is_str(written(&m, &b), want, "written: numbers first, then keys");
	is_i64((long long)m.n_layers, 8, "statements");
	is_i64(m.layer[1].line, 4, "lines are those of the text");
	ok(m.layer[1].n_num == 2 && m.layer[1].num[0] == 64 && m.layer[1].num[1] == 5, "numbers");
	ok(m.layer[1].n_keys == 3 && m.layer[1].key[1].v == 0.05 && isnan(m.layer[1].key[0].v),
	   "values of keys, NaN where they are words");
	is_str(pl_model_key(&m.layer[7], "softmax-cross-entropy"), "", "a bare word has no text");
	ok(!pl_model_key(&m.layer[7], "name"), "a key that is not there");
	is_i64(read_str(want, &n), 0, "what is written is read");
	is_str(written(&n, &c), want, "and is the same");
	pl_buf_fini(&b);
	pl_buf_fini(&c);
	pl_model_fini(&m);
	pl_model_fini(&n);
}

static void exact(void)
{
	static const double v[] = { 0.1, 1.0 / 3, 1e-300, 0.12345678901234567, 5e-324 };
	struct pl_model m, n;
	struct pl_buf b, text = { 0 };

	for (size_t i = 0; i < PL_LEN(v); i++)
		if (pl_buf_printf(&text, &err, "%s %.17g%s\n", i ? "dropout" : "input 4\ndropout",
				  v[i], i + 1 < PL_LEN(v) ? "" : "\nloss squared\n") < 0)
			abort();
	if (pl_buf_put(&text, "", 1, &err) < 0 || read_str((char *)text.p, &m) < 0 ||
	    read_str(written(&m, &b), &n) < 0) {
		ok(false, "numbers: %s", err.msg);
		return;
	}
	for (size_t i = 0; i < PL_LEN(v); i++)
		ok(m.layer[i + 1].num[0] == v[i] && n.layer[i + 1].num[0] == v[i], "%g is exact",
		   v[i]);
	pl_buf_fini(&text);
	pl_buf_fini(&b);
	pl_model_fini(&m);
	pl_model_fini(&n);
}

static void errors(void)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", "a model ends with its loss" },
		{ "paceline-model 2\n", "line 1, column 16: version 2 is newer" },
		{ "input 4\ndense 2\n", "line 2: a model ends with its loss" },
		{ "dense 4\nloss squared\n", "line 1, column 1: a model begins with its input" },
		{ "input 4\ninput 4\nloss squared\n", "line 2, column 1: a second input" },
		{ "input 4\nloss squared\nrelu\n", "line 3, column 1: \"relu\" behind the loss" },
		{ "input 4\nend\nloss squared\n", "line 2, column 1: an end without a residual" },
		{ "input 4\nresidual\nrelu\nloss squared\n", "line 4, column 1: the loss inside" },
		{ "input 4\ndense 2 name=a\ndense 2 name=a\nloss squared\n",
		  "line 3, column 9: a second layer is named \"a\"" },
		{ "input 4\ndense 2 bias=0 bias=1\nloss squared\n", "bias is there twice" },
		{ "input 4\ndense\nloss squared\n", "line 2" },
		{ "input 4\ndense 1 2\nloss squared\n", "line 2" },
		{ "input 4\ndense 2 bias=\nloss squared\n",
		  "bias must be yes, no, 1 or 0, not \"\"" },
		{ "input 4\ndense 2x\nloss squared\n",
		  "outputs must be a whole number, not \"2x\"" },
		{ "input 4\ndense 2 =3\nloss squared\n", "\"=3\" is too much here" },
		{ "input 4\ndense 1e999\nloss squared\n",
		  "outputs must be a whole number, not \"1e999\"" },
		{ "input 4\ndense 2 ; x\nloss squared\n", "\";\" has no meaning" },
		{ "input 4\ndense 2 name\nloss squared\n",
		  "the value of name is missing; write: name=..." },
		{ "input 4\n5\nloss squared\n", "line 2, column 1: there is no statement \"5\"" },
		{ "input 4\ndens 2\nloss squared\n",
		  "line 2, column 1: there is no statement \"dens\"; did you mean dense?" },
		{ "input 4\ndense 2 baas=0\nloss squared\n",
		  "column 9: dense has no \"baas\"; did you mean bias?" },
	};
	struct pl_model m;

	for (size_t i = 0; i < PL_LEN(bad); i++) {
		int rc = read_str(bad[i].text, &m);

		if (!ok(rc == PL_EDATA && strstr(err.msg, bad[i].says), "refused: %s", bad[i].says))
			printf("# %d %s\n", rc, err.msg);
		ok(!m.n_layers && !m.arena.head, "and nothing is left");
	}
}

static int preset(const char *s, struct pl_model *m)
{
	memset(&err, 0, sizeof(err));
	return pl_model_preset(s, m, &err);
}

/* Parameters of a preset: dense, conv, norms, embeddings, attention. */
static double count(const struct pl_model *m)
{
	double n = 0, c = 0, hw = 1, context = 0;

	for (size_t i = 0; i < m->n_layers; i++) {
		const struct pl_layer *l = &m->layer[i];
		double k = l->n_num ? l->num[0] : 0;

		if (!strcmp(l->op, "input")) {
			context = c = k;
			hw = l->n_num == 3 ? l->num[1] * l->num[2] : 1;
		} else if (!strcmp(l->op, "dense")) {
			if (!pl_model_key(l, "tie"))
				n += c * k + k;
			c = k;
		} else if (!strcmp(l->op, "conv")) {
			n += k * c * l->num[1] * l->num[1] + k;
			c = k;
		} else if (!strcmp(l->op, "maxpool")) {
			hw /= 4;
		} else if (!strcmp(l->op, "flatten")) {
			c *= hw;
		} else if (!strcmp(l->op, "embedding")) {
			n += k * l->num[1];
			c = l->num[1];
		} else if (!strcmp(l->op, "position")) {
			n += context * c;
		} else if (!strcmp(l->op, "layernorm")) {
			n += 2 * c;
		} else if (!strcmp(l->op, "attention")) {
			n += 4 * c * c + 4 * c;
		}
	}
	return n;
}

static void presets(void)
{
	static const char mlp[] = "paceline-model 1\ninput 784\ndense 512\nrelu\ndense 10\n"
				  "loss softmax-cross-entropy\n";
	static const char *const wrong[] = {
		"mlp",
		"mlp:",
		"mlp:3",
		"mlp:3-",
		"mlp:3-0-2",
		"mlp:3,4",
		"vgg",
		"cnn:3x32",
		"cnn:0x8x8",
		"cnn:1x2x2",
		"cnn:1x8x8x",
		"gpt",
		"gpt:layers=2",
		"gpt2:layers=1",
		"gpt:layers=2,heads=3,width=128,context=64,vocab=65",
		"gpt:layers=2,layers=2,heads=4,width=128,context=64,vocab=65",
		"gpt:layers=2,heads=4,width=128,context=64,vocab=65,",
		"gpt:layers=-2,heads=4,width=128,context=64,vocab=65",
	};
	struct pl_model m, n;
	struct pl_buf b, c;

	is_i64(preset("mlp:784-512-10", &m), 0, "mlp");
	is_str(written(&m, &b), mlp, "its statements");
	is_str(m.name, "mlp:784-512-10", "its name");
	is_i64(m.layer[1].line, 0, "a preset has no lines");
	pl_model_fini(&m);
	pl_buf_fini(&b);
	is_i64(preset("mlp:784-512-512-10", &m), 0, "a wider mlp");
	is_i64((long long)count(&m), 669706, "its parameters");
	pl_model_fini(&m);
	is_i64(preset("cnn", &m), 0, "cnn");
	is_i64((long long)count(&m), 1756426, "its parameters");
	pl_model_fini(&m);
	is_i64(preset("cnn:1x28x28,classes=7", &m), 0, "cnn of another size");
	ok(m.layer[0].num[0] == 1 && m.layer[0].num[2] == 28 && m.layer[m.n_layers - 2].num[0] == 7,
	   "input and classes");
	pl_model_fini(&m);
	is_i64(preset("gpt2", &m), 0, "gpt2");
	is_i64((long long)count(&m), 124439808, "its parameters");
	ok(m.layer[5].key[1].v == 0.02 / sqrt(24), "deviation of what leads into a sum");
	is_i64(read_str(written(&m, &b), &n), 0, "it is text like any other");
	is_str(written(&n, &c), (char *)b.p, "and reads back");
	pl_buf_fini(&b);
	pl_buf_fini(&c);
	pl_model_fini(&m);
	pl_model_fini(&n);
	for (size_t i = 0; i < PL_LEN(wrong); i++)
		if (!ok(preset(wrong[i], &m) == PL_EUSAGE && err.msg[0], "refused: %s", wrong[i]))
			printf("# %s\n", err.msg);
}

static void parse(void)
{
	char path[] = "/tmp/model.XXXXXX";
	static const char s[] = "input 4\ndense 1\nloss squared\n";
	int fd = mkstemp(path);
	struct pl_model m;

	ok(fd >= 0 && write(fd, s, sizeof(s) - 1) == (ssize_t)sizeof(s) - 1, "a file");
	close(fd);
	memset(&err, 0, sizeof(err));
	is_i64(pl_model_parse(path, &m, &err), 0, "a file is read");
	is_i64((long long)m.n_layers, 3, "its statements");
	pl_model_fini(&m);
	unlink(path);
	is_i64(pl_model_parse("./cnn", &m, &err), PL_EIO, "with a slash it is a file");
	memset(&err, 0, sizeof(err));
	is_i64(pl_model_parse("cnn", &m, &err), 0, "a preset");
	pl_model_fini(&m);
	ok(pl_model_is_preset("mlp:1-2") && !pl_model_is_preset("a/mlp:1-2") &&
		   !pl_model_is_preset("mlps"),
	   "what is a preset");
}

/* As many layers as there may be, and one more. */
static void too_long(void)
{
	for (int n = 65536; n <= 65537; n++) {
		struct pl_buf b = { 0 };
		struct pl_model m;

		for (int i = 0; i < n; i++)
			if (pl_buf_printf(&b, &err,
					  i + 1 == n ? "loss squared\n"
					  : i	     ? "relu\n"
						     : "input 4\n") < 0)
				abort();
		if (pl_buf_put(&b, "", 1, &err) < 0)
			abort();
		ok(read_str((char *)b.p, &m) == (n == 65536 ? 0 : PL_EDATA), "%d layers: %s", n,
		   err.msg);
		pl_model_fini(&m);
		pl_buf_fini(&b);
	}
}

/* The schema has the layers that lib/tensor computes. */
static void layers(void)
{
	for (int i = 0; i < PL_LAYER_COUNT_; i++)
		ok(pl_lang_row(&pl_model_schema, pl_tensor_layers[i].name) != NULL, "%s",
		   pl_tensor_layers[i].name);
	is_i64(PL_LAYER_COUNT_, (long long)pl_model_schema.n_rows, "no layer is missing");
}

/* ---- work ------------------------------------------------------------------------------------ */

static void work_of(const char *text, size_t layer, const char *dims, int64_t params, double flops,
		    double bytes)
{
	struct pl_net_work w[16];
	struct pl_in *in = pl_in_open_mem("model", text, strlen(text), &err);
	struct pl_model m;
	char out[64];
	int n = 0;

	if (!ok(pl_model_read(in, "model", &m, &err) == 0 && m.n_layers <= PL_LEN(w) &&
			pl_net_work(m.layer, m.n_layers, w, &err) == 0,
		"work: %s", err.msg))
		return;
	for (int i = 0; i < w[layer].n_dims; i++)
		n += snprintf(out + n, sizeof(out) - (size_t)n, "%s%d", i ? "x" : "",
			      w[layer].dim[i]);
	ok(!strcmp(out, dims) && w[layer].params == params && w[layer].flops == flops &&
		   w[layer].bytes == bytes,
	   "%s: %s, %lld parameters, %g FLOPs, %g bytes", m.layer[layer].op, out,
	   (long long)w[layer].params, w[layer].flops, w[layer].bytes);
	pl_model_fini(&m);
	pl_in_close(in);
}

static void work(void)
{
	static const char image[] = "input 3 8 6\nconv 4 3 stride=2 pad=1\nbatchnorm\nmaxpool 2\n"
				    "flatten\ndense 5 bias=0\ngelu\nloss squared\n";
	static const char text[] = "input 4\nembedding 10 6\nposition\nresidual\nlayernorm\n"
				   "attention 2\nend\ndense 3\nloss softmax-cross-entropy\n";
	struct pl_net_work w[8];
	struct pl_model m;
	struct pl_in *in;

	/* filters 4 of 3 x 3 x 3 at 4 x 3 places */
	work_of(image, 1, "4x4x3", 4 * 27 + 4, 2 * 27 * 4 * 12, 4 * (144 + 48 + 112));
	work_of(image, 2, "4x4x3", 8, 8 * 48, 4 * (48 + 48 + 8));
	work_of(image, 3, "4x2x1", 0, 8 * 4, 4 * (48 + 8));
	work_of(image, 4, "8", 0, 0, 0);
	work_of(image, 5, "5", 40, 80, 4 * (8 + 5 + 40));
	work_of(image, 6, "5", 0, 60, 40);
	work_of(image, 7, "1", 0, 15, 24);
	work_of(text, 1, "4x6", 60, 24, 4 * (4 + 24 + 24));
	work_of(text, 2, "4x6", 24, 24, 4 * 72);
	work_of(text, 4, "4x6", 12, 8 * 24, 4 * 60);
	/* 4 tokens, width 6, 2 heads: projections, scores and their use, softmax */
	work_of(text, 5, "4x6", 4 * 36 + 24, 8 * 4 * 36 + 2 * 16 * 6 + 5 * 16, 4 * (48 + 168));
	work_of(text, 6, "4x6", 0, 24, 4 * 72);
	work_of(text, 7, "4x3", 21, 2 * 4 * 18, 4 * (24 + 12 + 21));
	memset(&err, 0, sizeof(err));
	in = pl_in_open_mem("model", "input 4\nconv 3 3\nloss squared\n", 30, &err);
	ok(pl_model_read(in, "model", &m, &err) == 0 &&
		   pl_net_work(m.layer, m.n_layers, w, &err) == PL_EDATA &&
		   strstr(err.msg, "line 2: conv \"0\": 4 comes in, should be"),
	   "a shape that does not fit: %s", err.msg);
	pl_model_fini(&m);
	pl_in_close(in);
}

int main(void)
{
	work();
	layers();
	too_long();
	text();
	exact();
	errors();
	presets();
	parse();
	return done_testing();
}
