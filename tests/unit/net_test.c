/*
 * Networks: what can be wrong about a model, shapes, names, initial values, shards, accumulation,
 * hooks, evaluation, threads, memory.
 *
 * runner: threads
 */
#include <sys/wait.h>
#include <unistd.h>

#include "net_fixture.h"

/* ---- models that are wrong ----------------------------------------------------------------- */

static const struct {
	const char *model, *says;
} wrong[] = {
	{ "dense 3 / loss squared", "line 1, column 1: a model begins with its input" },
	{ "input 3 / loss squared", "line 2: loss \"loss\": no layer above has parameters" },
	{ "input 3 / dense 3", "line 2: a model ends with its loss" },
	{ "input 3 / dens 3 / loss squared",
	  "line 2, column 2: there is no statement \"dens\"; did you mean dense" },
	{ "input 3 / input 3 / dense 3 / loss squared", "line 2, column 2: a second input" },
	{ "input 3 / dense / loss squared", "line 2, column 2: dense: outputs is missing" },
	{ "input / dense 3 / loss squared", "line 1, column 1: input: dim1 is missing" },
	{ "input 1 2 3 4 / flatten / dense 3 / loss squared",
	  "line 1, column 13: input: \"4\" is too much here" },
	{ "input 16777216 16777216 16777216 / loss squared", "more than 2^31 inputs" },
	{ "input 3 / dense 0 / loss squared",
	  "outputs must be at least 1 and at most 16777216, not 0" },
	{ "input 3 / dense 2.5 / loss squared", "outputs must be a whole number, not \"2.5\"" },
	{ "input 3 / dense 3 bias=2 / loss squared", "bias must be yes, no, 1 or 0, not \"2\"" },
	{ "input 3 / dense 3 std=x / loss squared", "std must be a decimal number, not \"x\"" },
	{ "input 3 / dense 3 name=a!b / loss squared", "name=a!b: a name is of letters" },
	{ "input 3 / dense 3 name=a / dense 4 name=a / loss squared",
	  "line 3, column 10: a second layer is named \"a\"" },
	{ "input 3 2 / dense 3 / flatten / dense 2 tie=0 / loss squared",
	  "the weight of \"0\" is 3x2" },
	{ "input 3 / dense 3 tie=b / loss squared", "tie=b: no layer above has this name" },
	{ "input 3 4 4 / dense 3 / loss squared", "3x4x4 comes in; put \"flatten\" before it" },
	{ "input 3 / conv 3 3 / loss squared", "3 comes in, should be channels x height x width" },
	{ "input 3 4 4 / conv 3 5 / loss squared", "filters of 5x5 with padding 0 do not fit" },
	{ "input 3 4 4 / conv 3 2 pad=same / loss squared", "pad=same needs an odd size, not 2" },
	{ "input 3 / dense 3 std=-1 / loss squared", "std must be at least 0 and at most 1e+06" },
	{ "input 3 / layernorm eps=2 / loss squared", "eps must be at least 0 and at most 1" },
	{ "input 3 / dense 3 name=1 / dense 3 / loss squared",
	  "line 3: dense \"1\": two layers have the name \"1\"" },
	{ "input 3 8 8 / maxpool 3 pad=-1 / loss squared", "pad must be at least 0" },
	{ "input 3 8 8 / conv 3 3 pad=-1 / loss squared", "pad must be at least 0" },
	{ "input 3 4 4 / conv 3 3 stride=0 / loss squared",
	  "stride must be at least 1 and at most 16777216, not 0" },
	{ "input 3 4 4 / conv 3 3 stride=1.5 / loss squared",
	  "stride must be a whole number, not \"1.5\"" },
	{ "input 3 4 4 / maxpool 5 / loss squared", "windows of 5x5 with padding 0 do not fit" },
	{ "input 3 4 4 / maxpool 2 pad=2 / loss squared", "padding is at most half the size" },
	{ "input 3 4 / batchnorm / loss squared", "sequences come in; use layernorm" },
	{ "input 3 / dense 3 / embedding 3 4 / loss squared", "right behind \"input\"" },
	{ "input 3 4 / embedding 3 4 / loss squared", "tokens come in as \"input LENGTH\"" },
	{ "input 3 4 / dense 3 / position / loss squared", "right behind \"embedding\"" },
	{ "input 3 / embedding 5 4 / attention 3 / loss squared",
	  "3 heads do not divide the width 4" },
	{ "input 3 / dense 4 / attention 2 / loss squared", "it takes sequences of rows" },
	{ "input 3 / dense 4 / dropout 1 / loss squared",
	  "probability must be at least 0 and below 1, not 1" },
	{ "input 3 / end / loss squared", "line 2, column 2: an end without a residual" },
	{ "input 3 / residual / dense 3 / loss squared",
	  "line 4, column 2: the loss inside a residual block" },
	{ "input 3 / residual / dense 4 / end / loss squared",
	  "line 4: end \"0.add\": 3 goes into the block and 4 comes out" },
	{ "input 3 / dense 3 / loss",
	  "loss is missing; write: loss softmax-cross-entropy|squared|hinge" },
	{ "input 3 / dense 3 / loss kind=l1", "loss has no \"kind\"" },
	{ "input 3 / dense 3 / loss squared hinge", "loss: \"hinge\" is too much here" },
	{ "input 3 / dense 1 / loss hinge", "it needs 2 classes or more; 1 come in" },
	{ "input 3 4 4 / conv 3 3 / loss hinge", "it takes classes; put \"flatten\"" },
	{ "input 3 / dense 3 / loss squared / dense 3",
	  "line 4, column 2: \"dense\" behind the loss" },
	{ "input 90000 / dense 90000 / loss squared", "2^31 numbers or more" },
	{ "input 4000 4000 / dense 4000 / loss squared", "has more than 2^31 inputs" },
};

static void test_wrong(void)
{
	static struct fix_model m;
	struct pl_net_opts o = { .backend = &pl_backend_plain, .batch = 200 };
	struct pl_err err = { 0 };
	struct pl_net *net;

	for (size_t i = 0; i < PL_LEN(wrong); i++) {
		memset(&err, 0, sizeof(err));
		ok(fix_build(&m, wrong[i].model, &o, &net, &err) == PL_EDATA && !net &&
			   strstr(err.msg, wrong[i].says),
		   "%s: %s", wrong[i].model, err.msg);
		pl_net_free(net);
	}
	memset(&err, 0, sizeof(err));
	fix_parse(&m, fix_mlp);
	m.layer[2].line = 0;
	m.layer[2].op = "rel";
	ok(pl_net_new(m.layer, m.n, &o, &net, &err) == PL_EDATA &&
		   strstr(err.msg, "statement 3: rel: there is no"),
	   "without lines: %s", err.msg);
	memset(&err, 0, sizeof(err));
	o.batch = 0;
	ok(pl_net_new(m.layer, m.n, &o, &net, &err) == PL_EUSAGE, "no batch: %s", err.msg);
	ok(pl_net_new(m.layer, 1, &o, &net, NULL) < 0, "an error that nobody asked for");
}

static void test_long(void)
{
	enum { N = 65536 };
	static struct pl_layer layer[N];
	static const double width = 3;
	static const struct pl_layer_key kind = { "squared", "", 0 };
	struct pl_net_opts o = { .backend = &pl_backend_plain, .batch = 1 };
	struct pl_err err = { 0 };
	struct pl_net *net;
	uint32_t n = 0;

	for (size_t i = 0; i < N; i++)
		layer[i] = (struct pl_layer){ .op = "relu" };
	for (size_t i = 0; i < 2; i++)
		layer[i] =
			(struct pl_layer){ .op = i ? "dense" : "input", .num = &width, .n_num = 1 };
	layer[N - 1] = (struct pl_layer){ .op = "loss", .key = &kind, .n_keys = 1 };
	ok(pl_net_new(layer, N, &o, &net, &err) == 0, "a long model: %s", err.msg);
	if (net)
		fix_layers(net, &n);
	is_i64(n, N - 1, "with all its layers");
	pl_net_free(net);
}

/* ---- what a model becomes ------------------------------------------------------------------ */

static void test_tables(void)
{
	struct pl_net *net = fix_net(fix_gpt, &pl_backend_plain, 2, 1);
	uint32_t n, nl;
	const struct pl_net_tensor *t = fix_tensors(net, &n);
	const struct pl_net_layer *l = fix_layers(net, &nl);
	struct pl_net_shape s;
	size_t all, end = 0, sum = 0;
	bool in_order = true, padded = true;

	fix_shape(net, &s);
	ok(s.vocab == 9 && s.rows == 6 && s.classes == 9 && s.n_dims == 1 && s.dim[0] == 6,
	   "what batches look like");
	is_str(t[0].name, "wte.weight", "names: the embedding");
	is_str(t[1].name, "wpe.weight", "the positions");
	is_str(t[4].name, "h.0.attn.c_attn.weight", "attention's projections");
	is_str(t[n - 1].name, "ln_f.bias", "a tied layer has no tensor of its own");
	ok(t[4].dim[0] == 24 && t[4].dim[1] == 8 && t[4].decay && !t[5].decay && !t[4].transposed,
	   "shapes, and what decays");
	for (uint32_t i = 0; i < n; i++) {
		in_order &= t[i].offset == end && t[i].offset % 16 == 0;
		end = t[i].offset + (t[i].n + 15) / 16 * 16;
		sum += t[i].n;
		padded &= !strcmp(t[i].name, "h.0.fc.weight") == t[i].transposed;
	}
	fix_params(net, &all);
	ok(in_order && all == end && padded, "tensors follow one another in the slab");
	is_i64((long long)sum,
	       9 * 8 + 6 * 8 + 2 * (16 + 16 + 24 * 9 + 8 * 9 + 32 * 9 + 8 * 33) + 16,
	       "so many parameters");
	ok(!strcmp(l[nl - 1].name, "loss") && !strcmp(l[1].op, "position") && l[1].fused &&
		   !l[0].fused,
	   "layers: the position is added by the embedding");
	pl_net_free(net);
	net = fix_net(fix_cnn, &pl_backend_plain, 2, 1);
	t = fix_state_tensors(net, &n);
	ok(n == 2 && !strcmp(t[0].name, "3.running_mean") && !strcmp(t[1].name, "3.running_var"),
	   "names of state");
	l = fix_layers(net, &nl);
	ok(l[0].dim[0] == 4 && l[0].dim[1] == 8 && l[2].dim[2] == 4 && l[4].dim[1] == 2 &&
		   l[7].n_dims == 1 && l[7].dim[0] == 20,
	   "shapes of images");
	ok(l[0].flops == 2.0 * 27 * 4 * 64 && l[1].fused && !l[5].fused && l[7].fused,
	   "flops, and what is fused");
	ok(fix_bytes(net) > 0 && l[0].act_bytes == 2 * 4 * 64 * sizeof(float), "bytes");
	pl_net_free(net);
}

static void test_initial(void)
{
	struct pl_net *a = fix_net(fix_cnn, &pl_backend_plain, 2, 1), *b, *c;
	struct pl_net *big = fix_net("input 300 / dense 400 / dense 300 std=0.5 / loss squared",
				     &pl_backend_plain, 1, 3);
	uint32_t n;
	const struct pl_net_tensor *t = fix_tensors(big, &n);
	size_t all, n_state;
	float *p = fix_params(big, &all), *q = fix_state(a, &n_state);
	double sum = 0, squares = 0, most = 0;

	for (size_t i = 0; i < t[0].n; i++) {
		most = fmax(most, fabs((double)p[i]));
		sum += (double)p[i];
		squares += (double)p[i] * (double)p[i];
	}
	ok(most <= 1 / sqrt(300) && most > 0.999 / sqrt(300) &&
		   fabs(sqrt(squares / (double)t[0].n) * sqrt(900) - 1) < 0.01 &&
		   fabs(sum / (double)t[0].n) < 0.001,
	   "uniform within 1/sqrt(fan_in)");
	sum = squares = 0;
	for (size_t i = 0; i < t[2].n; i++) {
		double v = (double)p[t[2].offset + i];

		sum += v;
		squares += v * v;
	}
	ok(fabs(sqrt(squares / (double)t[2].n) - 0.5) < 0.005 &&
		   fabs(sum / (double)t[2].n) < 0.005 && p[t[3].offset] == 0,
	   "normal with std=0.5, its bias 0: %.4f", sqrt(squares / (double)t[2].n));
	p = fix_params(a, &all);
	ok(q == p + all, "running means are right behind the parameters");
	ok(q[0] == 0 && q[3] == 0 && q[4] == 1 && q[7] == 1 && n_state == 16,
	   "running means 0, variances 1");
	b = fix_net(fix_cnn, &pl_backend_cpu, 5, 1);
	c = fix_net(fix_cnn, &pl_backend_plain, 2, 2);
	p = fix_params(a, &all);
	ok(!memcmp(p, fix_params(b, &all), all * sizeof(*p)),
	   "the same seed, the same values, whatever batch and backend");
	ok(memcmp(p, fix_params(c, &all), all * sizeof(*p)) != 0, "another seed, others");
	pl_net_free(a);
	pl_net_free(b);
	pl_net_free(c);
	pl_net_free(big);
}

/* ---- passes -------------------------------------------------------------------------------- */

static double relative(const float *a, const float *b, size_t n)
{
	double d = 0, size = 0;

	for (size_t i = 0; i < n; i++) {
		d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
		size += (double)b[i] * (double)b[i];
	}
	return sqrt(d / size);
}

/* M shards with batch B are one batch of M B, whether ranks average or one rank accumulates. */
static void test_shards(const char *text, const struct pl_backend *be, const char *what)
{
	enum { M = 4, B = 3 };
	struct pl_net *whole = fix_net(text, be, M * B, 7), *part = fix_net(text, be, B, 7);
	struct pl_net_shape s;
	struct fix_batch b;
	size_t n, a_sample = 1;
	double loss, sum = 0, one = 0;
	bool good;

	fix_shape(whole, &s);
	for (int i = 0; i < s.n_dims; i++)
		a_sample *= (size_t)s.dim[i];
	fix_batch(&b, whole, M * B, 5);
	good = fix_pass(whole, &b.io, 3, 1, false, &one);
	for (size_t m = 0; m < M; m++) {
		struct pl_batch_io io = b.io;

		io.n = B;
		io.x = io.x ? io.x + m * B * a_sample : NULL;
		io.ids = io.ids ? io.ids + m * B * a_sample : NULL;
		io.y = io.y ? io.y + m * B * (size_t)s.rows : NULL;
		io.target = io.target ? io.target + m * B * (size_t)s.targets : NULL;
		good &= fix_pass(part, &io, 3, 1.0f / M, m > 0, &loss);
		sum += loss / M;
	}
	fix_params(whole, &n);
	ok(good && fabs(sum - one) <= 1e-6 * one, "%s: the loss of %d shards: %.8f, %.8f", what, M,
	   sum, one);
	loss = relative(fix_grads(part), fix_grads(whole), n);
	ok(loss <= 1e-6, "%s: their gradients, accumulated, within %.1e", what, loss);
	fix_batch_free(&b);
	pl_net_free(whole);
	pl_net_free(part);
}

/* ---- outlines and outputs ---------------------------------------- */

static void test_outline(const char *text, const char *what)
{
	const struct pl_net_opts o = { .batch = 4, .threads = 1, .in_place = true };
	struct fix_model m = { .n = 0 };
	struct pl_net *net = NULL, *outline = NULL;
	struct pl_err err = { 0 };
	struct pl_net_view a, b;
	bool same = true;

	if (!ok(fix_build(&m, text, &o, &net, &err) == 0 &&
			pl_net_outline(m.layer, m.n, 4, &outline, &err) == 0,
		"%s: an outline %s", what, err.msg))
		goto out;
	a = pl_net_view(net);
	b = pl_net_view(outline);
	ok(a.n_layers == b.n_layers && a.n_params == b.n_params && !b.params,
	   "%s: ... has the layers and the numbers of the network, but no memory", what);
	for (uint32_t i = 0; i < a.n_layers && same; i++) {
		struct pl_net_sizes x = pl_net_sizes(net, i), y = pl_net_sizes(outline, i);

		same = !memcmp(&x, &y, offsetof(struct pl_net_sizes, ends)) && x.ends == y.ends &&
		       x.runs[0] == y.runs[0] && x.runs[1] == y.runs[1] &&
		       a.layer[i].act_bytes == b.layer[i].act_bytes;
		for (int p = 0; p < 2; p++) {
			char of[2][64];

			pl_net_kernel_name(net, i, (enum pl_net_phase)p, of[0], sizeof(of[0]));
			pl_net_kernel_name(outline, i, (enum pl_net_phase)p, of[1], sizeof(of[1]));
			same &= !strcmp(of[0], of[1]);
		}
	}
	ok(same, "%s: ... and the sizes of each layer", what);
out:
	pl_net_free(net);
	pl_net_free(outline);
	pl_model_fini(&m.read);
}

static void no_term(void *arg, const float *y, size_t samples, size_t n, float scale, float *dy)
{
	(void)arg, (void)y, (void)samples, (void)n, (void)scale, (void)dy;
}

static void test_outputs(void)
{
	unsigned refused = 0;
	struct pl_net *net =
		fix_net("input 5 / dense 8 / gelu / dense 3 / loss squared", &pl_backend_cpu, 4, 1);
	struct pl_err err = { 0 };
	struct fix_batch b;
	double loss = 0, sum = 0;
	float y[12];

	fix_batch(&b, net, 4, 2);
	ok(pl_net_forward(net, &b.io, 1, true, &loss, NULL, &err) == 0 &&
		   pl_net_outputs(net, y, &err) == 0,
	   "outputs %s", err.msg);
	for (int i = 0; i < 12; i++)
		sum += ((double)y[i] - (double)b.target[i]) * ((double)y[i] - (double)b.target[i]) /
		       12;
	ok(fabs(sum - loss) < 1e-5 * loss, "... make the loss: %g, %g", sum, loss);
	ok(pl_net_forward(net, &b.io, 1, false, &loss, NULL, &err) == 0 &&
		   pl_net_outputs(net, y, &err) == PL_EINTERNAL,
	   "... of evaluations");
	fix_batch_free(&b);
	pl_net_free(net);
	net = fix_net("input 5 / dense 4 / tanh / residual / dense 4 / relu / dense 4 / end / "
		      "dense 3 / gelu / dense 2 / loss squared",
		      &pl_backend_cpu, 2, 1);
	for (uint32_t i = 0; i < 10; i++) {
		struct pl_err e = { 0 };

		refused |= (unsigned)(pl_net_own_term(net, i, no_term, NULL, &e) < 0) << i;
	}
	/* the layers are dense tanh residual dense relu dense end dense gelu dense: the last one of
	 * the block, that before gelu and the input of the loss have no gradient of their own */
	is_i64(refused, 0x3f6, "layers that can have a term");
	ok(pl_net_own_term(net, 0, NULL, NULL, &err) == 0 && !net->term, "no term");
	pl_net_free(net);
}

struct seen {
	struct pl_net *net;
	uint32_t order[256], n, again, open;
	bool nested, late;
	float *copy; /* gradients when they were said to be final */
};

static void on_begin(void *arg, uint32_t layer, enum pl_net_phase p, bool again)
{
	struct seen *s = arg;

	(void)layer;
	s->nested |= s->open++ != 0;
	s->again += again && p == PL_PHASE_FORWARD;
}
static void on_end(void *arg, uint32_t layer, enum pl_net_phase p, bool again)
{
	(void)layer;
	(void)p;
	(void)again;
	((struct seen *)arg)->open--;
}
static void on_ready(void *arg, uint32_t first, uint32_t n)
{
	struct seen *s = arg;
	uint32_t all;
	const struct pl_net_tensor *t = fix_tensors(s->net, &all);

	for (uint32_t i = first; i < first + n; i++) {
		memcpy(s->copy + t[i].offset, fix_grads(s->net) + t[i].offset,
		       t[i].n * sizeof(float));
		s->order[s->n++] = i;
	}
}

static void test_hooks(void)
{
	struct pl_net *net = fix_net(fix_gpt, &pl_backend_plain, 3, 7);
	struct seen s = { .net = net };
	struct pl_net_hooks h = { &s, on_begin, on_end, on_ready };
	struct fix_batch b;
	double loss;
	uint32_t n;
	size_t all;
	bool falls = true, once = true;

	fix_params(net, &all);
	fix_tensors(net, &n);
	s.copy = calloc(all, sizeof(*s.copy));
	fix_batch(&b, net, 3, 5);
	pl_net_hooks(net, &h);
	ok(fix_pass(net, &b.io, 1, 1, false, &loss) && !s.nested && !s.open && !s.again,
	   "hooks come in pairs");
	for (uint32_t i = 0, seen[256] = { 0 }; i < s.n; i++)
		once &= !seen[s.order[i]]++;
	for (uint32_t i = 0; i + 2 < s.n; i++) /* two tensors of a layer are told of together */
		falls &= s.order[i + 2] < s.order[i];
	ok(s.n == n && once && falls, "ready() tells of each of %u tensors once, the last first",
	   n);
	ok(!memcmp(s.copy, fix_grads(net), all * sizeof(float)),
	   "what it tells of does not change any more");
	free(s.copy);
	fix_batch_free(&b);
	pl_net_free(net);
}

/* ---- the rest of passes -------------------------------------------------------------------- */

static void test_passes(void)
{
	struct pl_net *a = fix_net(fix_cnn, &pl_backend_plain, 4, 7);
	struct pl_net *b = fix_net(fix_cnn, &pl_backend_plain, 6, 7);
	struct pl_err err = { 0 };
	struct fix_batch batch;
	double loss[4];
	int64_t hits = -1, top = 0;
	size_t all, n_out, n_state;
	const float *out;
	float state[16];

	fix_batch(&batch, a, 4, 5);
	fix_params(a, &all);
	ok(fix_pass(a, &batch.io, 1, 1, false, &loss[0]) &&
		   fix_pass(b, &batch.io, 1, 1, false, &loss[1]) && loss[0] == loss[1] &&
		   !memcmp(fix_grads(a), fix_grads(b), all * sizeof(float)),
	   "room for more samples changes nothing");
	ok(fix_pass(b, &batch.io, 2, 1, false, &loss[2]) && loss[2] != loss[0],
	   "another key drops others");
	memcpy(state, fix_state(a, &n_state), sizeof(state));
	ok(pl_net_forward(a, &batch.io, 1, true, &loss[0], &hits, &err) == 0 &&
		   pl_net_forward(a, &batch.io, 2, true, &loss[1], NULL, &err) == 0 &&
		   loss[0] == loss[1] && loss[0] != loss[2],
	   "evaluation drops nothing");
	ok(!memcmp(state, fix_state(a, &n_state), sizeof(state)) && state[0] != 0,
	   "and moves no running mean");
	out = fix_output(a, &n_out);
	for (size_t i = 0; i < n_out / 3; i++) {
		int best = 0;

		for (int j = 1; j < 3; j++)
			if (out[i * 3 + (size_t)j] > out[i * 3 + (size_t)best])
				best = j;
		top += best == batch.y[i];
	}
	ok(n_out == 12 && hits == top, "hits: %lld of 4", (long long)hits);
	is_i64(pl_net_backward(a, false, &err), PL_EUSAGE, "no way back from there");
	fix_batch_free(&batch);
	pl_net_free(a);
	pl_net_free(b);
}

static void test_misuse(void)
{
	struct pl_net *a = fix_net(fix_cnn, &pl_backend_plain, 4, 7);
	struct pl_err err = { 0 };
	struct fix_batch batch;
	double loss;

	fix_batch(&batch, a, 4, 5);
	ok(pl_net_forward(a, &batch.io, 1, false, &loss, NULL, &err) == 0 &&
		   pl_net_backward(a, false, &err) == 0 &&
		   pl_net_backward(a, false, &err) == PL_EUSAGE,
	   "one way back a pass: %s", err.msg);
	memset(&err, 0, sizeof(err));
	batch.y[3] = 3;
	ok(pl_net_forward(a, &batch.io, 1, false, &loss, NULL, &err) == PL_EDATA &&
		   strstr(err.msg, "sample 3 of the batch, place 0: class 3"),
	   "a class that is none: %s", err.msg);
	batch.y[3] = 0;
	for (int n = 0; n <= 5; n += 5) {
		batch.io.n = n;
		is_i64(pl_net_forward(a, &batch.io, 1, false, &loss, NULL, NULL), PL_EUSAGE,
		       "more samples than there is room for, or none");
	}
	batch.io.n = 4;
	batch.io.x = NULL;
	memset(&err, 0, sizeof(err));
	ok(pl_net_forward(a, &batch.io, 1, false, &loss, NULL, &err) == PL_EUSAGE, "%s", err.msg);
	fix_batch_free(&batch);
	pl_net_free(a);
}

static void test_ids(void)
{
	struct pl_net *net = fix_net(fix_gpt, &pl_backend_plain, 2, 7);
	struct pl_err err = { 0 };
	struct fix_batch b;
	double loss;

	fix_batch(&b, net, 2, 5);
	b.ids[7] = -1;
	ok(pl_net_forward(net, &b.io, 1, false, &loss, NULL, &err) == PL_EDATA &&
		   strstr(err.msg, "sample 1 of the batch, place 1: token -1"),
	   "a token that is none: %s", err.msg);
	fix_batch_free(&b);
	pl_net_free(net);
}

/* The bits do not depend on the number of threads. */
static void test_threads(const char *text, const char *what)
{
	static struct fix_model m;
	struct pl_net *net[2] = { NULL, NULL };
	double loss[2] = { 0, 1 };
	struct fix_batch b;
	size_t n = 0;
	bool good = true;

	fix_parse(&m, text);
	for (int i = 0; i < 2; i++) {
		struct pl_net_opts o = { .batch = 48, .seed = 7, .threads = i ? 3 : 1 };

		good &= pl_net_new(m.layer, m.n, &o, &net[i], NULL) == 0;
		if (!good)
			break;
		fix_batch(&b, net[i], 48, 5);
		good = fix_pass(net[i], &b.io, 9, 1, false, &loss[i]);
		fix_params(net[i], &n);
		fix_batch_free(&b);
	}
	ok(good && loss[0] == loss[1] &&
		   !memcmp(fix_grads(net[0]), fix_grads(net[1]), n * sizeof(float)),
	   "%s: three threads, the same bits", what);
	pl_net_free(net[0]);
	pl_net_free(net[1]);
}

/* ---- memory -------------------------------------------------------------------------------- */

static size_t slabs, slab_bytes;
static void *slab_new(void *arg, size_t bytes)
{
	slabs++;
	slab_bytes += bytes;
	return arg ? aligned_alloc(64, bytes) : NULL;
}
static void slab_free(void *arg, void *p, size_t bytes)
{
	(void)arg;
	slabs--;
	slab_bytes -= bytes;
	free(p);
}

static void test_slabs(void)
{
	static struct fix_model m;
	struct pl_net_opts o = { .backend = &pl_backend_plain,
				 .batch = 2,
				 .slab = slab_new,
				 .slab_free = slab_free,
				 .slab_arg = &o };
	struct pl_err err = { 0 };
	struct pl_net *net;
	size_t n;

	fix_parse(&m, fix_mlp);
	ok(pl_net_new(m.layer, m.n, &o, &net, &err) == 0 && slabs == 2, "slabs of others: %s",
	   err.msg);
	fix_params(net, &n);
	ok(slab_bytes == 2 * n * sizeof(float) && slab_bytes % 64 == 0, "for both, %zu bytes",
	   slab_bytes);
	pl_net_free(net);
	ok(!slabs && !slab_bytes, "are given back");
	o.slab_arg = NULL;
	ok(pl_net_new(m.layer, m.n, &o, &net, &err) == PL_ENOMEM && !net, "or are not there: %s",
	   err.msg);
}

/* All that wants memory; this program runs itself with PL_FAIL for it. */
static int torture(void)
{
	static struct fix_model m;
	const char *name = "h.0";
	struct pl_optim_opts o = { .kind = PL_OPTIM_ADAM, .lr = 1, .b1 = 0.9, .b2 = 0.9 };
	struct pl_net_opts no = { .backend = &pl_backend_plain, .batch = 2 };
	struct pl_err err = { 0 };
	struct pl_optim *opt = NULL;
	struct pl_net *net;
	int rc;

	rc = fix_build(&m, fix_gpt, &no, &net, &err);
	rc = rc < 0 ? rc : pl_net_recompute(net, &name, 1, &err);
	rc = rc < 0 ? rc : pl_optim_new(net, &o, &opt, &err);
	pl_optim_free(opt);
	pl_net_free(net);
	return pl_exit_status(rc);
}

/* With the n-th fallible call failing: 0 done, 5 no memory. */
static int one_torture(long nth)
{
	pid_t pid = fork();
	int status = 0;

	if (!pid) {
		char text[16];

		snprintf(text, sizeof(text), "%ld", nth);
		setenv("PL_FAIL", text, 1);
		execl("/proc/self/exe", "net_test", "torture", (char *)NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_torture(void)
{
	int status = 5;
	long n = 0;

	while (status == 5 && n < 1000)
		status = one_torture(++n);
	ok(status == 0 && n > 15, "memory that is not there: %ld places, then %d", n - 1, status);
}

/* The loss's gradient over what went in: the same gradients, and less memory. Losses of several
 * passes, fetched at once. */
static void test_in_place(void)
{
	static struct fix_model m;
	struct pl_net_opts o = { .backend = &pl_backend_cpu, .batch = 4, .seed = 7 };
	struct pl_loss_sum sum[PL_NET_LOSSES];
	struct pl_net *a = NULL, *b = NULL;
	struct fix_batch batch;
	double loss[3] = { 0 };
	struct pl_err err = { 0 };
	size_t n;
	bool good;

	fix_parse(&m, fix_gpt);
	good = pl_net_new(m.layer, m.n, &o, &a, &err) == 0;
	o.in_place = true;
	good = good && pl_net_new(m.layer, m.n, &o, &b, &err) == 0;
	if (!ok(good, "two networks: %s", err.msg))
		return;
	fix_batch(&batch, a, 4, 5);
	fix_params(a, &n);
	pl_net_scale(b, 0.25f);
	for (int i = 0; i < 3; i++)
		good = good && fix_pass(a, &batch.io, (uint64_t)i, 0.25f, i > 0, &loss[i]) &&
		       pl_net_forward(b, &batch.io, (uint64_t)i, false, NULL, NULL, &err) == 0 &&
		       pl_net_backward(b, i > 0, &err) == 0;
	ok(good && !memcmp(fix_grads(a), fix_grads(b), n * sizeof(float)),
	   "in place: gradients are the same to the bit");
	ok(fix_bytes(b) < fix_bytes(a), "in place: %zu bytes, not %zu", fix_bytes(b), fix_bytes(a));
	ok(pl_net_losses(b, 2, sum, &err) == 0 && sum[0].loss == loss[1] && sum[1].loss == loss[2],
	   "losses of the last two passes, the oldest first");
	is_i64(pl_net_losses(b, 4, sum, &err), PL_EINTERNAL, "not of more than there were");
	fix_batch_free(&batch);
	pl_net_free(a);
	pl_net_free(b);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "torture"))
		return torture();
	test_wrong();
	test_long();
	test_tables();
	test_initial();
	test_in_place();
	test_shards(fix_mlp, &pl_backend_plain, "mlp");
	test_shards(
		"input 3 8 8 / conv 4 3 pad=1 / relu / maxpool 2 / conv 5 3 / tanh / avgpool 2 / "
		"flatten / dense 3 / loss hinge",
		&pl_backend_plain, "cnn");
	test_shards(
		"input 6 / embedding 9 8 / position / residual / layernorm / attention 2 / end / "
		"dense 9 / loss softmax-cross-entropy",
		&pl_backend_plain, "gpt");
	test_shards("input 5 / dense 8 / gelu / dense 3 / loss squared", &pl_backend_cpu,
		    "squared");
	test_outline(fix_mlp, "mlp");
	test_outline(fix_cnn, "cnn");
	test_outline("input 6 / embedding 9 8 / position / residual / layernorm / attention 2 / "
		     "end / dropout 0.5 / dense 9 / relu / dense 9 / loss softmax-cross-entropy",
		     "gpt");
	test_outputs();
	test_hooks();
	test_passes();
	test_misuse();
	test_threads(fix_gpt, "gpt");
	test_threads(fix_cnn, "cnn");
	test_ids();
	test_slabs();
	test_torture();
	return done_testing();
}
