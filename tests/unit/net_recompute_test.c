/*
 * Recomputation: the same bits, less memory; of named layers and blocks, and of random models.
 */
#include "net_fixture.h"
#include "tensor/net_internal.h" /* to spoil what must not be read */

struct seen {
	uint32_t again;
};

static void on_begin(void *arg, uint32_t layer, enum pl_net_phase p, bool again)
{
	(void)layer;
	((struct seen *)arg)->again += again && p == PL_PHASE_FORWARD;
}

/* As fix_pass(), but what segments share is no number when the way back begins. */
static bool spoiled_pass(struct pl_net *net, const struct pl_batch_io *io, double *loss)
{
	if (pl_net_forward(net, io, 9, false, loss, NULL, NULL) < 0)
		return false;
	memset(net->acts + net->kept_bytes, 0xff, net->acts_bytes - net->kept_bytes);
	return pl_net_backward(net, false, NULL) == 0;
}

static void test_recompute(const char *text, const struct pl_backend *be, const char *what,
			   const char *const *names, size_t n, bool saves)
{
	struct pl_net *plain = fix_net(text, be, 4, 7), *again = fix_net(text, be, 4, 7);
	struct seen s = { 0 };
	struct pl_net_hooks h = { &s, on_begin, NULL, NULL };
	struct pl_err err = { 0 };
	struct fix_batch b;
	double loss[2] = { 0, 1 };
	size_t all, n_state, before = fix_bytes(again);
	float *p;

	fix_batch(&b, plain, 4, 5);
	for (uint32_t i = 0; i < plain->n; i += 2) { /* some in another precision */
		pl_net_precision(plain, i, PL_PHASE_FORWARD, PL_BF16);
		pl_net_precision(again, i, PL_PHASE_FORWARD, PL_BF16);
	}
	ok(pl_net_recompute(again, names, n, &err) == 0, "%s: %s", what, err.msg);
	pl_net_hooks(again, &h);
	for (int step = 0; step < 2; step++)
		ok(fix_pass(plain, &b.io, 9, 1, false, &loss[0]) &&
			   spoiled_pass(again, &b.io, &loss[1]) && loss[0] == loss[1],
		   "%s: the same loss", what);
	p = fix_params(plain, &all);
	ok(!memcmp(fix_grads(plain), fix_grads(again), all * sizeof(*p)),
	   "%s: the same gradients to the bit", what);
	p = fix_state(plain, &n_state);
	ok(!n_state || !memcmp(p, fix_state(again, &n_state), n_state * sizeof(*p)),
	   "%s: the same running means", what);
	ok(s.again > 0 && (!saves || fix_bytes(again) < before),
	   "%s: %u layers ran again, %zu bytes instead of %zu", what, s.again, fix_bytes(again),
	   before);
	is_i64(pl_net_recompute(again, NULL, 0, &err), 0, "and back");
	ok(fix_bytes(again) == before && fix_pass(again, &b.io, 9, 1, false, &loss[1]) &&
		   loss[0] == loss[1],
	   "%s: without it as before", what);
	ok(pl_net_recompute(again, (const char *[]){ "nobody" }, 1, &err) == PL_EDATA &&
		   strstr(err.msg, "no layer before the loss is called \"nobody\""),
	   "an unknown name: %s", err.msg);
	fix_batch_free(&b);
	pl_net_free(plain);
	pl_net_free(again);
}

static void test_recomputes(const struct pl_backend *be)
{
	test_recompute(fix_gpt, be, "two blocks", (const char *[]){ "h.0", "h.1" }, 2, true);
	test_recompute(fix_gpt, be, "a part of a block",
		       (const char *[]){ "h.0.ln_2", "h.0.fc", "h.0.act" }, 3, false);
	test_recompute(fix_gpt, be, "across the ends of blocks",
		       (const char *[]){ "h.0.proj", "h.0.r2.add", "h.1.r1", "h.1.ln_1", "wte",
					 "wpe", "2" },
		       7, false);
	/* what goes around the block is made in one segment and added in another */
	test_recompute("input 6 / dense 8 name=z / dense 8 name=a.0 / tanh name=a.t / "
		       "residual name=b / dense 8 name=a.1 / relu name=a.r / dense 8 name=c / "
		       "dropout 0.2 name=d / end / tanh name=e / dense 3 / loss squared",
		       be, "half a block each", (const char *[]){ "a", "c", "d", "b.add", "e" }, 5,
		       false);
	test_recompute(fix_gpt, be, "names that overlap", (const char *[]){ "h", "h.1", "h.0.fc" },
		       3, false);
	test_recompute(fix_cnn, be, "images", (const char *[]){ "0", "1", "2", "3", "4", "5", "6" },
		       7, false);
	test_recompute(fix_cnn, be, "one layer", (const char *[]){ "3" }, 1, false);
}

/* Any layers of any model; names that are prefixes come with the blocks. */
static void test_recompute_random(void)
{
	int built = 0, bad = 0;

	for (uint64_t seed = 1; seed <= 4000; seed++) {
		struct pl_net *net[2] = { NULL, NULL };
		const char *names[64];
		double loss[2] = { 0, 0 };
		const struct pl_net_layer *l;
		size_t n_names = 0, n;
		struct fix_batch b;
		uint32_t n_layers;
		uint64_t state = seed;
		char text[1024];

		fix_random_model(seed, text, sizeof(text));
		for (int i = 0; i < 2; i++)
			net[i] = fix_try(text, &pl_backend_plain, 3);
		if (!net[0] || !net[1])
			continue;
		built++;
		l = fix_layers(net[1], &n_layers);
		for (uint32_t i = 0; i + 1 < n_layers && n_names < PL_LEN(names); i++)
			if (pl_rng_next(&state) % 3)
				names[n_names++] = l[i].name;
		fix_batch(&b, net[0], 3, 5);
		fix_params(net[0], &n);
		if (pl_net_recompute(net[1], names, n_names, NULL) < 0 ||
		    !fix_pass(net[0], &b.io, 9, 1, false, &loss[0]) ||
		    !spoiled_pass(net[1], &b.io, &loss[1]) || loss[0] != loss[1] ||
		    memcmp(fix_grads(net[0]), fix_grads(net[1]), n * sizeof(float)) != 0) {
			printf("# %s\n", text);
			bad++;
		}
		fix_batch_free(&b);
		pl_net_free(net[0]);
		pl_net_free(net[1]);
	}
	ok(built > 500 && !bad, "%d random models, %d not the same with recomputation", built, bad);
}

int main(void)
{
	test_recomputes(&pl_backend_plain);
	test_recomputes(&pl_backend_cpu);
	test_recompute_random();
	return done_testing();
}
