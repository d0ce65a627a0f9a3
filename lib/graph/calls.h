/*
 * calls.h - what the names of copies and of calls of a device's runtime mean, whoever made the
 * device: CUDA, HIP and ROCm; as PyTorch, JAX, Nsight Systems and rocprofv3 write them.
 */
#ifndef PL_GRAPH_CALLS_H
#define PL_GRAPH_CALLS_H

#include <stdbool.h>

enum pl_copy_direction { PL_COPY_OTHER, PL_COPY_TO_DEVICE, PL_COPY_TO_HOST };
/* Of a copy with this name: "Memcpy HtoD (Pageable -> Device)", "MEMORY_COPY_DEVICE_TO_HOST". */
enum pl_copy_direction pl_graph_copy_direction(const char *name);
/* Does a call of this name allocate or release memory of a device, or pin memory of the host? */
bool pl_graph_manages_memory(const char *call);
/* Does it load code on a device, which may be compiled then? */
bool pl_graph_loads_code(const char *call);

#endif
