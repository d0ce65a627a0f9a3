/*
 * Intervals of cost models: of operations that were not measured, outside the measured sizes and on
 * a device that the model was adapted to.
 */
#include <math.h>
#include <stdlib.h>

#include "costmodel_fixture.h"

#define NEVER	 "never" /* an operation of which nothing was measured */
#define MEASURED 6

static const char *const ops[MEASURED] = { "add", "mul", "div", "relu", "gelu", "pow" };

/* Operations of one family. Their times are multiples of the time of their bytes, and each
 * operation has its own factor. */
static void learn_family(struct bench *b)
{
	static const double by[MEASURED] = { 1, 1.1, 1.3, 0.9, 1.2, 1.05 };

	begin(b);
	for (int i = 0; i < MEASURED; i++)
		move(b, ops[i], PL_KERNEL_FLOAT32, by[i], 80);
	move(b, "seldom", PL_KERNEL_FLOAT32, 1.5, 30);
	if (!learn(b, true))
		abort();
}

static double width(const struct bench *b, const char *op, double elements,
		    const struct pl_devices *sheets)
{
	struct pl_kernel_time t = predict(b, op, moved(elements, PL_KERNEL_FLOAT32), sheets, 0);

	printf("# %s of %g: %.3f to %.3f of the time\n", op, elements, t.lo_ns / t.ns,
	       t.hi_ns / t.ns);
	return t.hi_ns / t.lo_ns;
}

/* ---- outside of the sizes that were measured ------------------------------------------------- */

/* Also of an operation that its family predicts, whose interval is wide already. */
static void test_far(void)
{
	static const char *const others[] = { NEVER, "seldom" };
	struct bench b;

	learn_family(&b);
	for (size_t i = 0; i < PL_LEN(others); i++) {
		double inside = width(&b, others[i], 1e6, &b.sheets);
		double above = width(&b, others[i], 1e10, &b.sheets);

		ok(above > 1.2 * inside, "%s above the measured sizes", others[i]);
		ok(width(&b, others[i], 1e13, &b.sheets) > 1.2 * above, "... farther away");
		ok(width(&b, others[i], 3, &b.sheets) > 1.2 * inside, "... and below");
	}
	end(&b);
}

/* ---- operations of unlike many measurements -------------------------------------------------- */

/* Every second operation has too few measurements to show how an operation errs: in the order in
 * which they occur, those are first (0), or second. */
static double width_of_many(int first)
{
	struct bench b;
	double w;

	begin(&b);
	for (int i = 0; i < 48; i++) {
		char op[16];

		snprintf(op, sizeof(op), "op%d", i);
		move(&b, op, PL_KERNEL_FLOAT32, 1 + 0.01 * i, i % 2 == first ? 5 : 26);
	}
	if (!learn(&b, true))
		abort();
	w = width(&b, NEVER, 1e6, &b.sheets);
	end(&b);
	return w;
}

static void test_many(void)
{
	double w[2] = { width_of_many(0), width_of_many(1) };

	ok(w[0] < 3 && w[1] < 3, "24 of 48 operations show how one errs, which is no guess of a "
				 "factor of three");
}

/* ---- a device that was adapted to ------------------------------------------------------------ */

/* Another device of alpha's speed, that takes a fifth longer. */
static const char other[] = "{\"Device\": \"Other\", \"Mem_Bw\": 300, \"Num_Sm\": 58,"
			    " \"SingleFLOPs\": 30300}";

/* n measurements there, of the first operations in turn. */
static void adapt(struct bench *b, const struct pl_devices *there, size_t n_ops, int n)
{
	struct pl_samples s = { 0 };
	struct pl_err err = { 0 };

	for (int i = 0; i < n; i++) {
		struct pl_kernel k = moved(pick(b, 1000, 3e7), PL_KERNEL_FLOAT32);
		double ns = 1.2 * (8000 + pl_kernel_work(&k).bytes / 300 * 1.2);
		const struct pl_measure m = { .k = k,
					      .known = true,
					      .op = ops[(size_t)i % n_ops],
					      .model = "",
					      .device = 0,
					      .ns = ns };

		if (pl_samples_add(&s, &m, there, &err) < 0)
			abort();
	}
	ok(pl_kernel_adapt(b->m, &s, &err) == 0, "adapted to %d measurements of %zu operations", n,
	   n_ops);
	pl_samples_fini(&s);
}

/* An operation that was not measured on the device is as unsure after the adaptation as before. */
static void test_adapted(void)
{
	struct pl_devices there = { .n = 0 };
	struct pl_err err = { 0 };
	double before, of_add, of_never;
	struct bench b;

	if (add(&there, "other", other, &err) < 0)
		abort();
	learn_family(&b);
	before = width(&b, NEVER, 1e6, &there);
	adapt(&b, &there, 1, 1);
	ok(width(&b, NEVER, 1e6, &there) > 0.98 * before,
	   "one measurement of another operation says nothing of it");
	ok(width(&b, "seldom", 1e6, &there) > 0.98 * before, "... nor of one that has no part");
	adapt(&b, &there, MEASURED / 2 - 1, 40);
	of_add = width(&b, "add", 1e6, &there);
	adapt(&b, &there, MEASURED / 2, 40);
	ok(width(&b, "add", 1e6, &there) < 0.95 * of_add,
	   "half of the operations show how wrong the others are");
	adapt(&b, &there, MEASURED, 120);
	of_add = width(&b, "add", 1e6, &there);
	of_never = width(&b, NEVER, 1e6, &there);
	ok(of_never > 1.2 * of_add, "what was never measured is less sure than the others");
	ok(of_never < 0.98 * before, "... but surer than without the adaptation");
	pl_device_fini(&there);
	end(&b);
}

int main(void)
{
	test_many();
	test_adapted();
	test_far();
	return done_testing();
}
