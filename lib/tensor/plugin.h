/*
 * plugin.h - backends that are shared objects. A backend that needs a toolkit to build and a driver
 * to run is not part of the programs. They open it when a job asks for it.
 *
 * A plugin is in the folder of the program (bin/paceline-cuda.so in a checkout) and exports one
 * symbol. It has its own copy of the parts of the library that it needs.
 */
#ifndef PL_PLUGIN_H
#define PL_PLUGIN_H

#include "tensor/backend.h"

struct pl_plugin {
	const char *version; /* PL_VERSION of its build: another version has other tables */
	const struct pl_backend *backend;
};
extern const struct pl_backend pl_backend_cuda_table; /* in the plugin */
#define PL_PLUGIN_CUDA	 "paceline-cuda.so"
#define PL_PLUGIN_SYMBOL "pl_plugin_cuda"
#define PL_PLUGIN_ENV	 "PL_CUDA_PLUGIN" /* path of another file */

/*
 * The backend of CUDA. It stays open until the process ends. PL_EABSENT: not built, of another
 * version, or a library is missing. Its open() checks whether there is a device.
 */
int pl_backend_cuda(const struct pl_backend **be, struct pl_err *err) PL_MUST;

#endif
