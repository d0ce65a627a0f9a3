/* What the operating system is asked for in many places: the time, and symbols of libraries. */
#include <dlfcn.h>
#include <string.h>
#include <time.h>

#include "core/core.h"

pl_ns pl_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (pl_ns)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* dlsym() returns functions as pointers to objects, which POSIX says may be copied. */
bool pl_symbol(void *lib, const char *name, void *function)
{
	void *p = dlsym(lib, name);

	memcpy(function, &p, sizeof(p));
	return p != NULL;
}
