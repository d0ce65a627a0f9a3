/*
 * Intervals of cost models: of operations that were not measured, and outside the
 * measured sizes.
 */
#include <math.h>
#include <stdlib.h>

#include "costmodel_fixture.h"

#define NEVER	 "never" /* an operation of which nothing was measured */
#define MEASURED 6

static const char *const ops[MEASURED] = { "add", "mul", "div", "relu", "gelu", "pow" };

/* Operations of one family, each of which takes another multiple of what its bytes take. */
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

int main(void)
{
	test_far();
	return done_testing();
}
