/* kernel_fixture.h - what the tests of operations share: an error that is expected, a data sheet.
 */
#ifndef PL_KERNEL_FIXTURE_H
#define PL_KERNEL_FIXTURE_H

#include "kernel/device.h"
#include "tap.h"

static inline void says(int rc, const struct pl_err *err, const char *text, const char *what)
{
	bool good = rc == PL_EDATA && err->code == PL_EDATA && strstr(err->msg, text);

	ok(good, "%s", what);
	if (!good)
		printf("# %d, \"%s\"\n# want \"%s\"\n", rc, err->msg, text);
}

static const char a100[] =
	"{\"Device\": \"NVIDIA A100-PCIE-40GB\", \"Dev_Mem\": 40, \"Mem_Bw\": 1555,"
	" \"Num_Sm\": 108, \"Core_Per_SM\": 64, \"Freq\": 1410, \"SingleFLOPs\": 19500,"
	" \"Notes\": {\"Num_Sm\": [1, 2]}, \"HalfTensorFLOPs\": 312000, \"L2Cache\": 40}";

static int add(struct pl_devices *d, const char *name, const char *json, struct pl_err *err)
{
	/* of exactly that length, so that reading behind it is found */
	char *copy = pl_malloc(strlen(json) + 1);
	int rc;

	memcpy(copy, json, strlen(json) + 1);
	rc = pl_device_add(d, name, copy, strlen(json), err);
	pl_free(copy);
	return rc;
}

#endif
