/* costmodel_fixture.h - measurements by laws that a test knows, and a cost model that learned them.
 */
#ifndef PL_COSTMODEL_FIXTURE_H
#define PL_COSTMODEL_FIXTURE_H

#include "kernel/model.h"
#include "kernel_fixture.h"

static const char alpha[] = "{\"Mem_Bw\": 300, \"Num_Sm\": 58, \"SingleFLOPs\": 30300,"
			    " \"HalfTensorFLOPs\": 120000}";
static const char beta[] = "{\"Mem_Bw\": 900, \"Num_Sm\": 80, \"SingleFLOPs\": 15000,"
			   " \"HalfTensorFLOPs\": 200000}";

struct bench {
	struct pl_devices sheets;
	struct pl_samples s;
	struct pl_kernel_model *m;
	uint64_t seed;
};

static inline void begin(struct bench *b)
{
	struct pl_err err = { 0 };

	*b = (struct bench){ .seed = 5 };
	if (add(&b->sheets, "alpha", alpha, &err) < 0 || add(&b->sheets, "beta", beta, &err) < 0)
		abort();
}

static inline void end(struct bench *b)
{
	pl_kernel_model_free(b->m);
	pl_samples_fini(&b->s);
	pl_device_fini(&b->sheets);
}

static inline void measure(struct bench *b, const char *op, struct pl_kernel k, uint32_t device,
			   double ns)
{
	struct pl_err err = { 0 };
	const struct pl_measure m = {
		.k = k, .known = true, .op = op, .model = "", .device = device, .ns = ns
	};

	if (pl_samples_add(&b->s, &m, &b->sheets, &err) < 0)
		abort();
}

static inline double pick(struct bench *b, double low, double high)
{
	double u = (double)(pl_rng_next(&b->seed) >> 11) * 0x1p-53;

	return floor(low * pow(high / low, u) + 0.5);
}

static inline struct pl_kernel moved(double elements, uint8_t type)
{
	return (struct pl_kernel){ .family = PL_KERNEL_ELEMENTWISE,
				   .type = type,
				   .dim = { elements, 1, 1 } };
}

/* n operations that move bytes and take `by` times what the usual ones take. */
static inline void move(struct bench *b, const char *op, uint8_t type, double by, int n)
{
	for (int i = 0; i < n; i++) {
		uint32_t d = (uint32_t)i % 2;
		struct pl_kernel k = moved(pick(b, 1000, 3e7), type);

		measure(b, op, k, d,
			by * (8000 + pl_kernel_work(&k).bytes / b->sheets.v[d].bandwidth * 1.2));
	}
}

static inline void multiply(struct bench *b, const char *op, int n)
{
	for (int i = 0; i < n; i++) {
		struct pl_kernel k = { .family = PL_KERNEL_GEMM,
				       .type = PL_KERNEL_FLOAT16,
				       .dim = { 1, pick(b, 64, 4096), pick(b, 64, 4096),
						pick(b, 64, 4096) } };
		uint32_t d = (uint32_t)i % 2;

		measure(b, op, k, d,
			9000 + pl_kernel_work(&k).flops / b->sheets.v[d].half_flops * 1.5);
	}
}

static inline bool learn(struct bench *b, bool intervals)
{
	const struct pl_kernel_fit_opts o = { .intervals = intervals, .seed = 1 };
	struct pl_err err = { 0 };

	return ok(pl_kernel_fit(&b->s, NULL, &o, &b->m, &err) == 0, "learned %s", err.msg);
}

static inline struct pl_kernel_time predict(const struct bench *b, const char *op,
					    struct pl_kernel k, const struct pl_devices *sheets,
					    uint32_t device)
{
	const struct pl_measure m = {
		.k = k, .known = true, .op = op, .model = "", .device = device, .ns = NAN
	};
	struct pl_kernel_time t = { .ns = NAN };
	struct pl_samples s = { 0 };
	struct pl_err err = { 0 };

	ok(pl_samples_add(&s, &m, sheets, &err) == 0 &&
		   pl_kernel_apply(b->m, &s, s.v, s.n, &t, &err) == 0,
	   "%s is predicted %s", op, err.msg);
	pl_samples_fini(&s);
	return t;
}

#endif
