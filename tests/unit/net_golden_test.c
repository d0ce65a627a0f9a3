/*
 * Networks against what PyTorch computed of them (tests/gen/net_golden.py): output, loss, every
 * gradient, the losses of ten steps of an optimiser, running means; on each backend.
 */
#include "net_fixture.h"

#define GRAD_BOUND 1e-5 /* of ||g - want|| / ||want||, float32 against float64 */
#define LOSS_BOUND 1e-5 /* relative, of each of the ten losses */

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

static void check_gradients(const struct golden *g, struct pl_net *net, const char *what)
{
	uint32_t n;
	const struct pl_net_tensor *t = pl_net_tensors(net, &n);
	double worst = 0, dot = 0, a = 0, b = 0;
	const char *which = "";

	for (uint32_t i = 0; i < n; i++) {
		const struct entry *want = find(g, "g:", t[i].name);
		const float *got = pl_net_grads(net) + t[i].offset;
		double d = distance(got, want, t[i].n);

		if (worse(worst, d) != worst) {
			worst = worse(worst, d);
			which = t[i].name;
		}
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

static void check_steps(const struct golden *g, struct pl_net *net, const struct pl_batch_io *io,
			const char *what)
{
	struct pl_optim_opts o = optim_of(data(g, "optim"));
	const double *want = data(g, "losses"), *eval = data(g, "eval");
	struct pl_err err = { 0 };
	struct pl_optim *opt = NULL;
	double worst = 0, loss = 0;
	int rc = pl_optim_new(net, &o, &opt, &err);

	for (int64_t step = 0; rc >= 0 && step < 10; step++) {
		rc = pl_net_forward(net, io, 0, false, &loss, NULL, &err);
		if (rc >= 0)
			rc = pl_net_backward(net, 1, false, &err);
		if (rc >= 0)
			pl_optim_step(opt, step, 0, SIZE_MAX, (double)NAN);
		worst = worse(worst, fabs(loss - want[step]) / want[step]);
	}
	ok(rc >= 0 && worst <= LOSS_BOUND, "%s: ten losses within %.1e %s", what, worst, err.msg);
	rc = rc < 0 ? rc : pl_net_forward(net, io, 0, true, &loss, NULL, &err);
	ok(rc >= 0 && fabs(loss - *eval) <= 2 * LOSS_BOUND * *eval,
	   "%s: in evaluation mode %.7f, should be %.7f", what, loss, *eval);
	pl_optim_free(opt);
}

static void check_state(const struct golden *g, struct pl_net *net, const char *what)
{
	uint32_t n;
	const struct pl_net_tensor *t = pl_net_state_tensors(net, &n);
	size_t all;
	const float *p = pl_net_state(net, &all);
	double worst = 0;

	for (uint32_t i = 0; i < n; i++)
		worst = worse(worst, distance(p + t[i].offset, find(g, "s:", t[i].name), t[i].n));
	if (n)
		ok(worst <= 1e-4, "%s: running means within %.1e", what, worst);
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
	uint32_t n, found = 0;
	size_t all, a_sample = 1;
	float *p;

	snprintf(what, sizeof(what), "%s on %s", name, be->name);
	fix_parse(&m, data(g, "model"));
	if (!ok(pl_net_new(m.layer, m.n, &o, &net, &err) == 0, "%s is built %s", what, err.msg))
		return;
	p = pl_net_params(net, &all);
	for (uint32_t i = 0; i < (pl_net_tensors(net, &n), n); i++) {
		const struct pl_net_tensor *t = &pl_net_tensors(net, &n)[i];
		const struct entry *e = find(g, "p:", t->name);

		if (e && e->n == t->n)
			memcpy(p + t->offset, e->p, e->n * sizeof(float));
		found += e && e->n == t->n;
	}
	is_i64(found, n, "every parameter has PyTorch's name and size");
	pl_net_shape(net, &s);
	for (int i = 0; i < s.n_dims; i++)
		a_sample *= (size_t)s.dim[i];
	io.n = (int)(find(g, io.x ? "x" : "ids", "")->n / a_sample);
	ok(pl_net_forward(net, &io, 0, false, &loss, NULL, &err) == 0, "%s: forward %s", what,
	   err.msg);
	ok(fabs(loss - *(const double *)data(g, "loss")) <= 1e-6 * loss, "%s: the loss is %.8f",
	   what, loss);
	p = (float *)pl_net_output(net, &all);
	ok(distance(p, find(g, "out", ""), all) <= 1e-6, "%s: the output, within %.1e", what,
	   distance(p, find(g, "out", ""), all));
	ok(pl_net_backward(net, 1, false, &err) == 0, "%s: backward %s", what, err.msg);
	check_gradients(g, net, what);
	pl_net_free(net);
	if (pl_net_new(m.layer, m.n, &o, &net, &err) < 0)
		return;
	p = pl_net_params(net, &all);
	for (uint32_t i = 0; i < n; i++) {
		const struct pl_net_tensor *t = &pl_net_tensors(net, &n)[i];

		memcpy(p + t->offset, find(g, "p:", t->name)->p, t->n * sizeof(float));
	}
	check_steps(g, net, &io, what);
	check_state(g, net, what);
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
