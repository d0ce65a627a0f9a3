/* The tables that NCCL searches in a profiler. They are in each shared object that NCCL may load.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "record/nccl.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT const struct np_v4 ncclProfiler_v4 = { "paceline",   pl_nccl_init_v4, pl_nccl_start_v4,
					      pl_nccl_stop, pl_nccl_state,   pl_nccl_finalize };
EXPORT const struct np_v5 ncclProfiler_v5 = { "paceline",   pl_nccl_init_v5, pl_nccl_start_v5,
					      pl_nccl_stop, pl_nccl_state,   pl_nccl_finalize };
EXPORT const struct np_v5 ncclProfiler_v6 = { "paceline",   pl_nccl_init_v6, pl_nccl_start_v5,
					      pl_nccl_stop, pl_nccl_state,   pl_nccl_finalize };

void pl_nccl_set_profiler(void)
{
	Dl_info info;

	if (dladdr(&ncclProfiler_v5, &info) && info.dli_fname)
		setenv("NCCL_PROFILER_PLUGIN", info.dli_fname, 0);
}
