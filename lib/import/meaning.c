/*
 * The meaning of categories, names, data types and dimensions of profiler events.
 *
 * Categories changed their spelling over the years (Kineto before and after 2022, ROCm, Intel); all
 * of them are in one table. Names are used only where categories are not enough: for kernels that
 * communicate, for host ranges that are the communication itself, and for steps.
 */
#include "import/internal.h"

uint8_t pl_import_cat_kind(const char *s, size_t n)
{
	static const struct {
		const char *cat;
		uint8_t kind;
	} table[] = {
		{ "cpu_op", PL_K_HOST_OP },
		{ "operator", PL_K_HOST_OP },
		{ "Operator", PL_K_HOST_OP },
		{ "user_annotation", PL_K_ANNOTATION },
		{ "gpu_user_annotation", PL_K_GPU_ANNOTATION },
		{ "python_function", PL_K_PYTHON },
		{ "cuda_runtime", PL_K_RUNTIME },
		{ "cuda_driver", PL_K_RUNTIME },
		{ "Runtime", PL_K_RUNTIME },
		{ "runtime", PL_K_RUNTIME },
		{ "hip_runtime", PL_K_RUNTIME },
		{ "xpu_runtime", PL_K_RUNTIME },
		{ "mtia_runtime", PL_K_RUNTIME },
		{ "glow_runtime", PL_K_RUNTIME },
		{ "privateuse1_runtime", PL_K_RUNTIME },
		{ "privateuse1_driver", PL_K_RUNTIME },
		{ "kernel", PL_K_KERNEL },
		{ "Kernel", PL_K_KERNEL },
		{ "concurrent_kernel", PL_K_KERNEL },
		{ "gpu_memcpy", PL_K_COPY },
		{ "Memcpy", PL_K_COPY },
		{ "memcpy", PL_K_COPY },
		{ "gpu_memset", PL_K_SET },
		{ "Memset", PL_K_SET },
		{ "memset", PL_K_SET },
		{ "cuda_sync", PL_K_SYNC },
		{ "cpu_instant_event", PL_K_INSTANT },
		{ "Trace", PL_K_OTHER },
		{ "overhead", PL_K_OTHER },
		{ "collective_comm", PL_K_OTHER },
	};
	int kind;

	for (size_t i = 0; i < PL_LEN(table); i++)
		if (strlen(table[i].cat) == n && !memcmp(table[i].cat, s, n))
			return table[i].kind;
	kind = pl_trace_kind_find(s, n); /* the categories that paceline writes */
	return kind >= 0 && kind < PL_K_COUNT_ ? (uint8_t)kind : PL_K_COUNT_;
}

static bool starts(const char *s, size_t n, const char *with)
{
	size_t m = strlen(with);

	return n >= m && !memcmp(s, with, m);
}

/* Kernels that communicate: NCCL and RCCL with old and new names, and known custom ones. */
static bool is_device_comm(const char *s, size_t n)
{
	static const char *const own[] = {
		"cross_device_reduce", "all_reduce_kernel",	"allreduce_kernel",
		"all_gather_kernel",   "reduce_scatter_kernel", "AllReduceKernel",
		"one_shot_all_reduce", "two_shot_all_reduce",	"multimem_",
	};

	if (starts(s, n, "void "))
		s += 5, n -= 5;
	if (starts(s, n, "nccl:"))
		return false;
	if (starts(s, n, "nccl") || starts(s, n, "rccl") || starts(s, n, "msccl"))
		return true;
	for (size_t i = 0; i < PL_LEN(own); i++)
		if (pl_import_has(s, n, own[i]))
			return true;
	return false;
}

uint8_t pl_import_name_class(const char *s, size_t n)
{
	static const char *const host[] = { "gloo:", "mpi:", "ucc:" };
	static const char *const range[] = { "nccl:", "rccl:", "xccl:", "hccl:" };

	if (starts(s, n, "ProfilerStep#") && n > 13 && s[13] >= '0' && s[13] <= '9')
		return PL_N_STEP;
	if (starts(s, n, "enumerate(DataLoader)"))
		return PL_N_DATA;
	if (starts(s, n, "Optimizer.step#"))
		return PL_N_OPTIMIZER;
	if (starts(s, n, "Optimizer.zero_grad#"))
		return PL_N_ZERO_GRAD;
	if (n == 8 && !memcmp(s, "[memory]", 8))
		return PL_N_MEMORY;
	if (n == 18 && !memcmp(s, "record_param_comms", 18))
		return PL_N_RPC;
	if (starts(s, n, "c10d::send") || starts(s, n, "c10d::recv"))
		return PL_N_POST;
	for (size_t i = 0; i < PL_LEN(host); i++)
		if (starts(s, n, host[i]))
			return PL_N_HOSTCOMM;
	for (size_t i = 0; i < PL_LEN(range); i++)
		if (starts(s, n, range[i]))
			return PL_N_RANGE;
	return is_device_comm(s, n) ? PL_N_DEVCOMM : PL_N_PLAIN;
}

/*
 * Read one argument of "Input Dims": [4, 2048] is a tensor, [] is a scalar tensor or no tensor,
 * [[4], []] is a list of tensors. Adds its elements; j is after its '['. False: another form.
 */
static bool add_dims(struct pl_json *j, bool inner, int64_t *elements, bool *tensor)
{
	int64_t product = 1, v;
	bool any = inner;
	enum pl_json_type t;

	for (;;) {
		t = pl_json_next(j);
		if (t == PL_JSON_ARRAY_END)
			break;
		if (t == PL_JSON_ARRAY) {
			any = false;
			if (!add_dims(j, true, elements, tensor))
				return false;
		} else if (t == PL_JSON_NUMBER && pl_json_i64(j->text, j->len, &v) && v >= 0) {
			if (__builtin_mul_overflow(product, v, &product))
				return false;
			any = true;
		} else {
			return false;
		}
	}
	if (any) {
		*tensor = true;
		return !__builtin_add_overflow(*elements, product, elements);
	}
	return true;
}

void pl_import_dims_size(const char *dims, const char *types, int64_t *elements, int64_t *bytes)
{
	struct pl_json d, t;
	enum pl_json_type td;

	*elements = *bytes = -1;
	pl_json_init(&d, dims, strlen(dims));
	pl_json_init(&t, types, strlen(types));
	if (pl_json_next(&d) != PL_JSON_ARRAY || pl_json_next(&t) != PL_JSON_ARRAY)
		return;
	while ((td = pl_json_next(&d)) == PL_JSON_ARRAY) {
		bool tensor = false;
		int64_t n = 0, size = 0;

		if (!add_dims(&d, false, &n, &tensor))
			return;
		if (pl_json_next(&t) == PL_JSON_STRING)
			size = pl_trace_dtype(t.text, t.len, NULL);
		if (!tensor && size) { /* a number with the type of a tensor */
			n = 1;
			tensor = true;
		}
		if (!tensor)
			continue;
		*elements = *elements < 0 ? n : *elements + n;
		if (!size || (*bytes < 0 && *elements != n)) /* one is unknown: no sum */
			*bytes = -2;
		else if (*bytes != -2 && n <= INT64_MAX / 32)
			*bytes = (*bytes < 0 ? 0 : *bytes) + n * size;
	}
	if (*bytes < 0)
		*bytes = -1;
}

bool pl_import_step_number(const char *s, size_t n, int64_t *step)
{
	static const char *const words[] = { "step", "iteration", "iter" };
	size_t at = n;

	while (at && s[at - 1] >= '0' && s[at - 1] <= '9')
		at--;
	if (at == n || n - at > 9 || !pl_json_i64(s + at, n - at, step))
		return false;
	while (at && strchr(" _-#:=", s[at - 1]) && s[at - 1])
		at--;
	for (size_t i = 0; i < PL_LEN(words); i++) {
		size_t k = strlen(words[i]);

		if (at >= k && !strncasecmp(s + at - k, words[i], k) &&
		    (at == k || !strchr("abcdefghijklmnopqrstuvwxyz", s[at - k - 1] | 0x20) ||
		     (at >= 8 && !memcmp(s + at - k, "Step", 4))))
			return true;
	}
	return false;
}
