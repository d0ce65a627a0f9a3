/* Names of copies and of calls of runtimes, as globs; see calls.h. */
#include "graph/calls.h"
#include "core/core.h"

enum pl_copy_direction pl_graph_copy_direction(const char *name)
{
	static const char to_device[] =
		"*HtoD*|*HtoA*|*H2D*|*h2d*|*HostToDevice*|*HOST_TO_DEVICE*|*Host-to-Device*|"
		"*host_to_device*";
	static const char to_host[] =
		"*DtoH*|*AtoH*|*D2H*|*d2h*|*DeviceToHost*|*DEVICE_TO_HOST*|*Device-to-Host*|"
		"*device_to_host*";

	return pl_glob(to_device, name) ? PL_COPY_TO_DEVICE
	       : pl_glob(to_host, name) ? PL_COPY_TO_HOST
					: PL_COPY_OTHER;
}

/* Of CUDA's runtime and driver, of HIP, and of the runtime below it. */
bool pl_graph_manages_memory(const char *call)
{
	static const char calls[] =
		"cu*Malloc*|cu*Free*|cu*HostAlloc*|cu*HostRegister*|cu*HostUnregister*|"
		"cu*MemAlloc*|"
		"hip*Malloc*|hip*Free*|hip*HostAlloc*|hip*HostRegister*|hip*HostUnregister*|"
		"hip*MemAlloc*|"
		"hsa_amd_memory_pool_allocate|hsa_amd_memory_pool_free|hsa_memory_allocate|"
		"hsa_memory_free";

	return pl_glob(calls, call);
}

bool pl_graph_loads_code(const char *call)
{
	return pl_glob("cu*ModuleLoad*|cu*LibraryLoad*|hip*ModuleLoad*|hip*LibraryLoad*", call);
}
