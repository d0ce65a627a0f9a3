/*
 * Cost models of operations: what is read predicts, says why, is adapted, can be written, and reads
 * back as the same bytes.
 *
 * An input that does not begin with the container is a list of blocks, which are put into one: a
 * byte with the version of their layout; then for each four letters, its count as a byte, its
 * length as two bytes, and its bytes.
 */
#include <math.h>
#include <string.h>

#include "fuzz.h"
#include "kernel/model.h"

static int read_model(const uint8_t *data, size_t size, struct pl_kernel_model **m,
		      struct pl_schema **schema)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	bool is = pl_kernel_model_is(in);
	int rc = pl_kernel_model_read(in, m, schema, &err);

	FUZZ_CHECK(rc == 0 ? is && *m && *schema : err.code == rc && err.msg[0] && !*m && !*schema);
	pl_in_close(in);
	return rc;
}

static void write_model(const struct pl_kernel_model *m, const struct pl_schema *schema,
			struct pl_buf *b)
{
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(b, &err);

	FUZZ_CHECK(pl_kernel_model_write(m, schema, "fuzz", out, 0, &err) == 0);
	FUZZ_CHECK(pl_out_close(out, &err) == 0);
}

/* ---- operations ------------------------------------------------------------------------------ */

static const struct {
	const char *op;
	struct pl_kernel k;
} ops[] = {
	{ "mm", { 0, PL_KERNEL_GEMM, PL_KERNEL_FLOAT32, { 2, 640, 512, 96 } } },
	{ "mm", { 0, PL_KERNEL_GEMM, PL_KERNEL_FLOAT16, { 1, 3, 5, 7 } } },
	{ "conv", { 0, PL_KERNEL_CONV, PL_KERNEL_FLOAT32, { 8, 3, 16, 32, 3, 1, 1, 1 } } },
	{ "add", { 0, PL_KERNEL_ELEMENTWISE, PL_KERNEL_FLOAT32, { 1e6, 2, 1, 0 } } },
	{ "rare", { 0, PL_KERNEL_ELEMENTWISE, PL_KERNEL_FLOAT32, { 10, 1, 1, 0 } } },
	{ "norm", { 0, PL_KERNEL_NORM, PL_KERNEL_FLOAT32, { 64, 1024 } } },
	{ "reduce", { 0, PL_KERNEL_ALLREDUCE, PL_KERNEL_FLOAT32, { 1e7, 4, 0 } } },
	{ "any", { 0, PL_KERNEL_OTHER, PL_KERNEL_FLOAT32, { 1, 2, 3, 4 } } },
};
#define DEVICES 3 /* of the model, at most */

/* Each on each device, as measured in so many ns. Devices: of the model, and another one. */
static void add_ops(struct pl_samples *s, const struct pl_devices *d, uint32_t device, double ns)
{
	struct pl_err err = { 0 };

	for (size_t i = 0; i < PL_LEN(ops); i++) {
		const struct pl_measure x = { .k = ops[i].k,
					      .known = true,
					      .op = ops[i].op,
					      .model = "",
					      .device = device,
					      .ns = ns * (double)(i + 1) };

		FUZZ_CHECK(pl_samples_add(s, &x, d, &err) == 0);
	}
}

static void find_devices(const struct pl_kernel_model *m, struct pl_devices *d)
{
	const struct pl_devices *own = pl_kernel_model_devices(m);
	struct pl_device other = { .name = "another one",
				   .title = "another one",
				   .memory_bytes = 16e9,
				   .bandwidth = 300,
				   .sms = 40,
				   .lanes = 64,
				   .clock_ghz = 1.5,
				   .flops = 8000,
				   .half_flops = 32000,
				   .l2_bytes = 4e6,
				   .watts = 70,
				   .capability = 7.5,
				   .cpu = 0,
				   .host_ns = NAN,
				   .host_low_ns = NAN,
				   .host_high_ns = NAN };
	struct pl_err err = { 0 };
	uint32_t at;

	for (uint32_t i = 0; i < own->n && i < DEVICES; i++)
		FUZZ_CHECK(pl_device_copy(d, &own->v[i], &at, &err) == 0);
	FUZZ_CHECK(pl_device_copy(d, &other, &at, &err) == 0);
}

static void explain(const struct pl_kernel_model *m, const struct pl_samples *s,
		    const struct pl_kernel_time *t)
{
	double times[PL_LEN(ops) * (DEVICES + 1)];
	struct pl_err err = { 0 };
	struct pl_buf b = { 0 };
	struct pl_out *out = pl_out_open_buf(&b, &err);
	struct pl_writer w;

	for (size_t i = 0; i < s->n; i++)
		times[i] = (double)(i % 3);
	pl_write_init(&w, out, 0);
	pl_kernel_explain_model(m, &w);
	for (size_t i = 0; i < s->n; i++)
		pl_kernel_explain(m, s, &s->v[i], &t[i], &w);
	FUZZ_CHECK(pl_kernel_explain_all(m, s, s->v, times, s->n, &w, &err) == 0);
	FUZZ_CHECK(pl_write_end(&w, &err) == 0);
	pl_write_fini(&w);
	FUZZ_CHECK(pl_out_close(out, &err) == 0);
	FUZZ_CHECK(b.n && !memmem(b.p, b.n, "(null)", 6));
	pl_buf_fini(&b);
}

static void use_model(const struct pl_kernel_model *m)
{
	struct pl_kernel_time t[PL_LEN(ops) * (DEVICES + 1)];
	struct pl_devices d = { .n = 0 };
	struct pl_samples s = { .n = 0 };
	struct pl_err err = { 0 };
	int rc;

	find_devices(m, &d);
	for (uint32_t i = 0; i < d.n; i++)
		add_ops(&s, &d, i, NAN);
	rc = pl_kernel_apply(m, &s, s.v, s.n, t, &err);
	FUZZ_CHECK(rc == 0 || (rc == PL_EDATA && strstr(err.msg, "does not say how fast")));
	for (size_t i = 0; i < s.n; i++)
		FUZZ_CHECK(t[i].flag <= PL_KERNEL_UNKNOWN && !(t[i].lo_ns > t[i].hi_ns));
	if (rc == 0)
		explain(m, &s, t);
	pl_samples_fini(&s);
	pl_device_fini(&d);
}

/* To the first of its devices, and to another one. */
static void adapt(struct pl_kernel_model *m)
{
	struct pl_devices d = { .n = 0 };
	struct pl_err err = { 0 };
	int rc = 0;

	find_devices(m, &d);
	for (uint32_t i = 0; i < d.n && rc >= 0; i += (uint32_t)pl_max_i64((int64_t)d.n - 1, 1)) {
		struct pl_samples s = { .n = 0 };

		for (int k = 0; k < 3; k++)
			add_ops(&s, &d, i, 1e3 * pow(7, k));
		rc = pl_kernel_adapt(m, &s, &err);
		FUZZ_CHECK(rc == 0 || (rc == PL_EDATA && err.msg[0]));
		pl_samples_fini(&s);
	}
	if (rc >= 0)
		use_model(m);
	pl_device_fini(&d);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* The blocks of the list in a container. */
static void put_blocks(const uint8_t *p, size_t n, struct pl_buf *to)
{
	const struct pl_container_writer_opts c = { .kind = PL_KIND_MODEL,
						    .major = PL_KERNEL_MODEL_MAJOR };
	const uint8_t *end = p + n;
	uint8_t version = n ? *p++ : 0;
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(to, &err);
	struct pl_container_writer *w = pl_container_writer_open(out, &c, &err);

	while (end - p >= 7) {
		uint32_t type = PL_FOURCC(p[0], p[1], p[2], p[3]), count = p[4];
		size_t bytes = (size_t)p[5] | (size_t)p[6] << 8;
		struct pl_buf b = { 0 };

		p += 7;
		bytes = pl_min_size(bytes, (size_t)(end - p));
		FUZZ_CHECK(pl_buf_put(&b, p, bytes, &err) == 0);
		p += bytes;
		if (!type || type == PL_BLOCK_INDEX || type == PL_BLOCK_END)
			type = PL_BLOCK_PROVENANCE;
		FUZZ_CHECK(pl_container_writer_put(w, type, version, count, &b, &err) == 0);
		pl_buf_fini(&b);
	}
	FUZZ_CHECK(pl_container_writer_close(w, &err) == 0);
	FUZZ_CHECK(pl_out_close(out, &err) == 0);
}

static void there_and_back(struct pl_kernel_model *m, const struct pl_schema *schema)
{
	struct pl_buf b = { 0 }, again = { 0 };
	struct pl_kernel_model *back;
	struct pl_schema *its;

	use_model(m);
	write_model(m, schema, &b);
	FUZZ_CHECK(read_model(b.p, b.n, &back, &its) == 0);
	write_model(back, its, &again);
	FUZZ_CHECK(b.n == again.n && !memcmp(b.p, again.p, b.n));
	adapt(back);
	pl_kernel_model_free(back);
	pl_schema_free(its);
	pl_buf_fini(&b);
	pl_buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_buf b = { 0 };
	struct pl_kernel_model *m = NULL;
	struct pl_schema *schema = NULL;
	int rc;

	if (size > 1 && data[0] == 0x1f && data[1] == 0x8b) {
		rc = read_model(data, size, &m, &schema);
	} else {
		put_blocks(data, size, &b);
		rc = read_model(b.p, b.n, &m, &schema);
	}
	if (rc == 0)
		there_and_back(m, schema);
	pl_kernel_model_free(m);
	pl_schema_free(schema);
	pl_buf_fini(&b);
	return 0;
}
