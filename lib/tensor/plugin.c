/*
 * Opens plugins with dlopen, once, from the folder of the running program.
 *
 * A plugin is never closed, because drivers leave threads and handlers with code in it.
 */
#include "tensor/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "config.h"

/* Find the path of the plugin. */
static int find(char *path, size_t size, struct pl_err *err)
{
	const char *said = getenv(PL_PLUGIN_ENV);
	char *slash;
	ssize_t n;

	if (said && *said) {
		snprintf(path, size, "%s", said);
		return 0;
	}
	n = readlink("/proc/self/exe", path, size - sizeof(PL_PLUGIN_CUDA));
	if (n < 0)
		return pl_fail_sys(err, "finding the folder of this program");
	path[n] = '\0';
	slash = strrchr(path, '/');
	memcpy(slash ? slash + 1 : path, PL_PLUGIN_CUDA, sizeof(PL_PLUGIN_CUDA));
	return 0;
}

static int load(const char *path, const struct pl_plugin **p, struct pl_err *err)
{
	void *lib, *symbol;

	if (access(path, R_OK) < 0)
		return pl_fail(err, PL_EABSENT,
			       "the CUDA backend is not here (%s: %s); it is built by make where "
			       "nvcc is, and not with CUDA=0",
			       path, strerror(errno));
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *why = dlerror();

		return pl_fail(err, PL_EABSENT,
			       "the CUDA backend cannot be loaded: %.600s; the libraries of the "
			       "CUDA toolkit it was built with must be found (LD_LIBRARY_PATH, "
			       "ldconfig)",
			       why ? why : path);
	}
	symbol = dlsym(lib, PL_PLUGIN_SYMBOL);
	*p = symbol;
	if (!symbol)
		return pl_fail(err, PL_EABSENT,
			       "%s is no CUDA backend: it has no symbol " PL_PLUGIN_SYMBOL, path);
	if (strcmp((*p)->version, PL_VERSION) != 0)
		return pl_fail(
			err, PL_EABSENT,
			"the CUDA backend %s is of version %.32s, this program of " PL_VERSION
			"; install both from one build",
			path, (*p)->version);
	return 0;
}

int pl_backend_cuda(const struct pl_backend **be, struct pl_err *err)
{
	const struct pl_plugin *p = NULL;
	char path[PATH_MAX + sizeof(PL_PLUGIN_CUDA)];

	PL_CHECK(find(path, sizeof(path), err));
	PL_CHECK(load(path, &p, err));
	*be = p->backend;
	return 0;
}
