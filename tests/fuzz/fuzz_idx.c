/* IDX. */
#include "data/dtype.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	struct pl_array a;
	int rc = pl_idx_read(in, &a, &err);

	FUZZ_CHECK(rc == 0 || (err.code == rc && err.msg[0] && !a.data.p));
	if (rc == 0) {
		FUZZ_CHECK(a.data.n == a.n * pl_dtype_size(a.dtype) && a.data.n <= size);
		FUZZ_CHECK(a.n_dims >= 1 && a.n_dims <= 8);
		for (size_t i = 0; i < a.data.n; i++)
			fuzz_sum += a.data.p[i];
	}
	pl_data_array_fini(&a);
	pl_in_close(in);
	return 0;
}
