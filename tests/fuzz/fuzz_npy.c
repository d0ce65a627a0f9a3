/* NPY and, of the same bytes, what a data set makes of such an array. */
#include "data/dtype.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	struct pl_array a;
	int rc = pl_npy_read(in, &a, &err);

	FUZZ_CHECK(rc == 0 || (err.code == rc && err.msg[0] && !a.data.p));
	if (rc == 0) {
		FUZZ_CHECK(a.data.n == a.n * pl_dtype_size(a.dtype) && a.data.n <= size);
		for (size_t i = 0; i < a.n; i++) {
			float f;
			int32_t v;
			size_t at;
			const uint8_t *p = a.data.p + i * pl_dtype_size(a.dtype);

			pl_dtype_f32(a.dtype, p, 1, &f);
			fuzz_sum += f > 0;
			if (pl_dtype_i32(a.dtype, p, 1, 1000, &v, &at))
				FUZZ_CHECK(v >= 0 && v <= 1000);
		}
	}
	pl_data_array_fini(&a);
	pl_in_close(in);
	return 0;
}
