/*
 * Networks against what PyTorch computed of them (tests/gen/net_golden.py): output, loss, every
 * gradient, the losses of ten steps of an optimiser, running means; on each backend. The same with
 * products in bfloat16: there the golden file rounds what was summed in float64, so a number close
 * to the middle of two may go the other way, and with it all that follows. Attention in blocks
 * rounds probabilities up to a factor: it is held to what torch.autocast is off by.
 */
#include "net_fixture.h"

#define GRAD_BOUND 1e-5 /* of ||g - want|| / ||want||, float32 against float64 */
#define LOSS_BOUND 1e-5 /* relative, of each of the ten losses */
#define HALF_ATTN  5e-4 /* in bfloat16 with attention: some numbers were rounded the other way */

struct entry {
	char name[96];
	char type[4];
	size_t n;
	void *p;
};
struct golden {
	struct entry e[256];
	size_t n;
};

static bool golden_read(struct golden *g, const char *path)
{
	FILE *f = fopen(path, "rb");
	char line[160];

	g->n = 0;
	while (f && g->n < PL_LEN(g->e) && fgets(line, sizeof(line), f)) {
		struct entry *e = &g->e[g->n];
		size_t size;

		if (sscanf(line, "%95s %3s %zu", e->name, e->type, &e->n) != 3 || e->n > 1 << 20)
			break;
		size = !strcmp(e->type, "txt") ? 1 : !strcmp(e->type, "f64") ? 8 : 4;
		e->p = calloc(e->n + 1, size);
		if (!e->p || fread(e->p, size, e->n, f) != e->n)
			break;
		g->n++;
	}
	ok(f && feof(f) && g->n > 0, "%s is whole", path);
	if (f)
		fclose(f);
	return g->n > 0;
}

static const struct entry *find(const struct golden *g, const char *kind, const char *name)
{
	char key[160];

	snprintf(key, sizeof(key), "%s%s", kind, name);
	for (size_t i = 0; i < g->n; i++)
		if (!strcmp(g->e[i].name, key))
			return &g->e[i];
	return NULL;
}

static const void *data(const struct golden *g, const char *name)
{
	const struct entry *e = find(g, name, "");

	return e ? e->p : NULL;
}

/* ||got - want|| / ||want|| */
static double distance(const float *got, const struct entry *want, size_t n)
{
	const float *w = want ? want->p : NULL;
	double d = 0, size = 0;

	if (!want || want->n != n)
		return INFINITY;
	for (size_t i = 0; i < n; i++) {
		d += ((double)got[i] - (double)w[i]) * ((double)got[i] - (double)w[i]);
		size += (double)w[i] * (double)w[i];
	}
	return size > 0 ? sqrt(d / size) : sqrt(d);
}

static struct pl_optim_opts optim_of(const char *text)
{
	struct pl_optim_opts o = { .kind = !strncmp(text, "sgd", 3)	? PL_OPTIM_SGD
					   : !strncmp(text, "adamw", 5) ? PL_OPTIM_ADAMW
									: PL_OPTIM_ADAM,
				   .steps = 10 };
	char copy[256], *rest = copy, *word;

	snprintf(copy, sizeof(copy), "%s", text);
	while ((word = strsep(&rest, " "))) {
		char *equal = strchr(word, '=');
		double v = equal ? strtod(equal + 1, NULL) : 0;
		const struct {
			const char *key;
			double *to;
		} known[] = { { "lr=", &o.lr },	    { "momentum=", &o.momentum },
			      { "b1=", &o.b1 },	    { "b2=", &o.b2 },
			      { "eps=", &o.eps },   { "decay=", &o.decay },
			      { "clip=", &o.clip }, { "gamma=", &o.gamma } };

		for (size_t i = 0; i < PL_LEN(known); i++)
			if (!strncmp(word, known[i].key, strlen(known[i].key)))
				*known[i].to = v;
		if (!strncmp(word, "every=", 6)) {
			o.every = (int64_t)v;
			o.schedule = PL_SCHED_STEP;
		} else if (!strncmp(word, "cosine=", 7)) {
			o.schedule = PL_SCHED_COSINE;
		} else if (!strncmp(word, "warmup=", 7)) {
			o.warmup = (int64_t)v;
		} else if (!strncmp(word, "nesterov=", 9)) {
			o.nesterov = v != 0;
		}
	}
	return o;
}

/* The greatest distance of a gradient from those of `kind`, and whose. */
static double gradients_off(const struct golden *g, struct pl_net *net, const char *kind,
			    const char **which)
{
	uint32_t n;
	const struct pl_net_tensor *t = fix_tensors(net, &n);
	double worst = 0;

	*which = "";
	for (uint32_t i = 0; i < n; i++) {
		double d = distance(fix_grads(net) + t[i].offset, find(g, kind, t[i].name), t[i].n);

		if (worse(worst, d) != worst) {
			worst = worse(worst, d);
			*which = t[i].name;
		}
	}
	return worst;
}

static void check_gradients(const struct golden *g, struct pl_net *net, const char *what)
{
	uint32_t n;
	const struct pl_net_tensor *t = fix_tensors(net, &n);
	const char *which;
	double worst = gradients_off(g, net, "g:", &which), dot = 0, a = 0, b = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct entry *want = find(g, "g:", t[i].name);
		const float *got = fix_grads(net) + t[i].offset;

		for (size_t j = 0; want && j < want->n; j++) {
			double w = (double)((const float *)want->p)[j];

			dot += (double)got[j] * w;
			a += (double)got[j] * (double)got[j];
			b += w * w;
		}
	}
	ok(worst <= GRAD_BOUND, "%s: gradients within %.1e, the worst %s", what, worst, which);
	ok(dot / sqrt(a * b) >= 0.99999, "%s: and their direction: cosine %.9f", what,
	   dot / sqrt(a * b));
}

/* Ten steps; the greatest relative difference of a loss from those wanted. */
static int take_steps(const struct golden *g, struct pl_net *net, const struct pl_batch_io *io,
		      const double *want, double *off, struct pl_err *err)
{
	struct pl_optim_opts o = optim_of(data(g, "optim"));
	struct pl_optim *opt = NULL;
	double worst = 0, loss = 0;
	int rc = pl_optim_new(net, &o, &opt, err);

	for (int64_t step = 0; rc >= 0 && step < 10; step++) {
		rc = pl_net_forward(net, io, 0, false, &loss, NULL, err);
		if (rc >= 0)
			rc = pl_net_backward(net, false, err);
		if (rc >= 0)
			pl_optim_step(opt, step, 0, SIZE_MAX, (double)NAN);
		worst = worse(worst, fabs(loss - want[step]) / want[step]);
	}
	pl_optim_free(opt);
	*off = worst;
	return rc;
}

static void check_steps(const struct golden *g, struct pl_net *net, const struct pl_batch_io *io,
			const char *what)
{
	const double *eval = data(g, "eval");
	struct pl_err err = { 0 };
	double worst, loss = 0;
	int rc = take_steps(g, net, io, data(g, "losses"), &worst, &err);

	ok(rc >= 0 && worst <= LOSS_BOUND, "%s: ten losses within %.1e %s", what, worst, err.msg);
	rc = rc < 0 ? rc : pl_net_forward(net, io, 0, true, &loss, NULL, &err);
	ok(rc >= 0 && fabs(loss - *eval) <= 2 * LOSS_BOUND * *eval,
	   "%s: in evaluation mode %.7f, should be %.7f", what, loss, *eval);
}

static void check_state(const struct golden *g, struct pl_net *net, const char *what)
{
	uint32_t n;
	const struct pl_net_tensor *t = fix_state_tensors(net, &n);
	size_t all;
	const float *p = fix_state(net, &all);
	double worst = 0;

	for (uint32_t i = 0; i < n; i++)
		worst = worse(worst, distance(p + t[i].offset, find(g, "s:", t[i].name), t[i].n));
	if (n)
		ok(worst <= 1e-4, "%s: running means within %.1e", what, worst);
}

/* How many parameters of the net the file has, which get its values. */
static uint32_t load(const struct golden *g, struct pl_net *net)
{
	uint32_t n, found = 0;
	const struct pl_net_tensor *t = fix_tensors(net, &n);
	size_t all;
	float *p = fix_params(net, &all);

	for (uint32_t i = 0; i < n; i++) {
		const struct entry *e = find(g, "p:", t[i].name);

		if (!e || e->n != t[i].n)
			continue;
		memcpy(p + t[i].offset, e->p, e->n * sizeof(float));
		found++;
	}
	return found;
}

static void check_half(const struct golden *g, struct pl_net *net, const struct pl_batch_io *io,
		       double bound, const char *what)
{
	double loss = 0, off, exact, steps, want = *(const double *)data(g, "half:loss");
	double autocast = *(const double *)data(g, "autocast");
	struct pl_err err = { 0 };
	const char *which;
	uint32_t n;
	int rc;

	fix_layers(net, &n);
	for (uint32_t i = 0; i < n; i++) {
		pl_net_precision(net, i, PL_PHASE_FORWARD, PL_BF16);
		pl_net_precision(net, i, PL_PHASE_BACKWARD, PL_BF16);
	}
	load(g, net);
	rc = pl_net_forward(net, io, 0, false, &loss, NULL, &err);
	rc = rc < 0 ? rc : pl_net_backward(net, false, &err);
	exact = gradients_off(g, net, "g:", &which);
	off = gradients_off(g, net, "half:g:", &which);
	ok(rc >= 0 && fabs(loss - want) <= bound * want, "%s: the loss is %.8f, should be %.8f %s",
	   what, loss, want, err.msg);
	ok(off <= bound, "%s: gradients within %.1e, the worst %s", what, off, which);
	ok(exact > off && exact <= 1.5 * autocast,
	   "%s: those of float64 are %.1e away, with torch.autocast %.1e", what, exact, autocast);
	load(g, net);
	rc = take_steps(g, net, io, data(g, "half:losses"), &steps, &err);
	ok(rc >= 0 && steps <= 4 * bound, "%s: ten losses within %.1e %s", what, steps, err.msg);
}

static void check_golden(const struct golden *g, const char *name, const struct pl_backend *be)
{
	static struct fix_model m;
	struct pl_batch_io io = { data(g, "x"), data(g, "ids"), data(g, "y"), data(g, "target"),
				  0 };
	struct pl_net_opts o = { .backend = be, .batch = 8, .threads = 1 };
	char what[64];
	struct pl_err err = { 0 };
	struct pl_net_shape s;
	struct pl_net *net;
	double loss = 0;
	uint32_t n, found;
	size_t all, a_sample = 1;
	float *p;

	snprintf(what, sizeof(what), "%s on %s", name, be->name);
	fix_parse(&m, data(g, "model"));
	if (!ok(pl_net_new(m.layer, m.n, &o, &net, &err) == 0, "%s is built %s", what, err.msg))
		return;
	fix_tensors(net, &n);
	found = load(g, net);
	is_i64(found, n, "every parameter has PyTorch's name and size");
	fix_shape(net, &s);
	for (int i = 0; i < s.n_dims; i++)
		a_sample *= (size_t)s.dim[i];
	io.n = (int)(find(g, io.x ? "x" : "ids", "")->n / a_sample);
	ok(pl_net_forward(net, &io, 0, false, &loss, NULL, &err) == 0, "%s: forward %s", what,
	   err.msg);
	ok(fabs(loss - *(const double *)data(g, "loss")) <= 1e-6 * loss, "%s: the loss is %.8f",
	   what, loss);
	p = (float *)fix_output(net, &all);
	ok(distance(p, find(g, "out", ""), all) <= 1e-6, "%s: the output, within %.1e", what,
	   distance(p, find(g, "out", ""), all));
	ok(pl_net_backward(net, false, &err) == 0, "%s: backward %s", what, err.msg);
	check_gradients(g, net, what);
	pl_net_free(net);
	if (pl_net_new(m.layer, m.n, &o, &net, &err) < 0)
		return;
	load(g, net);
	check_steps(g, net, &io, what);
	check_state(g, net, what);
	pl_net_free(net);
	if (pl_net_new(m.layer, m.n, &o, &net, &err) < 0)
		return;
	snprintf(what, sizeof(what), "%s on %s in bfloat16", name, be->name);
	check_half(g, net, &io,
		   strcmp(name, "gpt") != 0 ? GRAD_BOUND
		   : be == &pl_backend_cpu  ? *(const double *)data(g, "autocast")
					    : HALF_ATTN,
		   what);
	pl_net_free(net);
}

int main(void)
{
	static const char *const names[] = { "mlp", "cnn", "gpt", "residual", "hinge" };
	static struct golden g;
	const char *src = getenv("SRC");

	for (size_t i = 0; i < PL_LEN(names); i++) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/tests/golden/net/%s.bin", src ? src : ".",
			 names[i]);
		if (!golden_read(&g, path))
			continue;
		check_golden(&g, names[i], &pl_backend_plain);
		check_golden(&g, names[i], &pl_backend_cpu);
		for (size_t e = 0; e < g.n; e++)
			free(g.e[e].p);
	}
	return done_testing();
}
