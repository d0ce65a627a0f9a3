/* plugin.cu - the symbol that run(1) searches in paceline-cuda.so (plugin.h). */
#include "tensor/cuda/context.h"

#include "config.h"

extern "C" __attribute__((visibility("default"))) const struct pl_plugin pl_plugin_cuda;
extern "C" const struct pl_plugin pl_plugin_cuda = { PL_VERSION, &pl_backend_cuda_table };
