/* The operating system: time, small files, processors, symbols of libraries. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "core/core.h"

pl_ns pl_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (pl_ns)t.tv_sec * 1000000000 + t.tv_nsec;
}

pl_ns pl_epoch_ns(void)
{
	pl_ns least = INT64_MAX, difference = 0;

	for (int i = 0; i < 5; i++) {
		pl_ns before = pl_now_ns(), after, real;
		struct timespec t;

		clock_gettime(CLOCK_REALTIME, &t);
		after = pl_now_ns();
		real = (pl_ns)t.tv_sec * 1000000000 + t.tv_nsec;
		if (after - before < least) {
			least = after - before;
			difference = real - before - least / 2;
		}
	}
	return difference;
}

void pl_sleep_ns(pl_ns ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	nanosleep(&t, NULL);
}

int pl_read_small(const char *path, void *to, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, to, size - 1) : -1;

	((char *)to)[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
	return (int)n;
}

void pl_remove_folder(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	rmdir(path);
}

/* The affinity mask counts, because taskset, containers and batch systems give a process fewer
 * processors than the machine has. It is too small for more than 1,024; then all count. */
int pl_processors(void)
{
	cpu_set_t set;
	long n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
							      : sysconf(_SC_NPROCESSORS_ONLN);

	return n > 0 ? (int)n : 1;
}

/* dlsym() returns a pointer to an object; POSIX allows copying it to a function pointer. */
bool pl_symbol(void *lib, const char *name, void *function)
{
	void *p = dlsym(lib, name);

	memcpy(function, &p, sizeof(p));
	return p != NULL;
}
