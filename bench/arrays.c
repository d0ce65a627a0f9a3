/*
 * Files of arrays through the library, for comparison with other readers and writers
 * (bench/arrays):
 *
 *     arrays weights IN OUT     safetensors, read and written again
 *     arrays npy FILE           shape, then each value as float32, one a line, exact in hexadecimal
 *
 * Exit status: 0, 3 where the library refuses the file, 4 for anything else.
 */
#include <stdio.h>
#include <string.h>

#include "data/dtype.h"
#include "data/weights.h"

static int weights(const char *from, const char *to, struct pl_err *err)
{
	struct pl_in *in = pl_in_open(from, err);
	struct pl_out *out;
	struct pl_weights w;
	int rc;

	if (!in)
		return err->code;
	rc = pl_weights_read(in, from, &w, err);
	pl_in_close(in);
	if (rc < 0)
		return rc;
	out = pl_out_open(to, true, err);
	rc = out ? pl_weights_write(&w, out, err) : err->code;
	if (out && rc < 0)
		pl_out_abort(out);
	else if (out)
		rc = pl_out_close(out, err);
	pl_weights_fini(&w);
	return rc;
}

static int npy(const char *file, struct pl_err *err)
{
	struct pl_in *in = pl_in_open(file, err);
	struct pl_array a;
	int rc;

	if (!in)
		return err->code;
	rc = pl_npy_read(in, &a, err);
	pl_in_close(in);
	if (rc < 0)
		return rc;
	for (int i = 0; i < a.n_dims; i++)
		printf("%lld ", (long long)a.dim[i]);
	printf("\n");
	for (size_t i = 0; i < a.n; i++) {
		float f;

		pl_dtype_f32(a.dtype, a.data.p + i * pl_dtype_size(a.dtype), 1, &f);
		printf("%a\n", (double)f);
	}
	pl_data_array_fini(&a);
	return 0;
}

int main(int argc, char **argv)
{
	struct pl_err err = { 0 };
	int rc = PL_EUSAGE;

	if (argc == 4 && !strcmp(argv[1], "weights"))
		rc = weights(argv[2], argv[3], &err);
	else if (argc == 3 && !strcmp(argv[1], "npy"))
		rc = npy(argv[2], &err);
	if (rc < 0)
		fprintf(stderr, "arrays: %s\n", err.msg);
	return !rc ? 0 : rc == PL_EDATA ? 3 : 4;
}
