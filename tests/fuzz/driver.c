/*
 * Runs a fuzz target on files, without a fuzzer: fuzz_X FILE|FOLDER... Each input is also cut after
 * every byte of its first 2 KiB and every 251st after that, so a handful of small files goes far.
 * Prints TAP.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

static int tests;

/* In memory of its exact size, so that a sanitizer sees every byte read too much. */
static void run(const uint8_t *data, size_t n)
{
	uint8_t *copy = malloc(n ? n : 1);

	FUZZ_CHECK(copy);
	memcpy(copy, data, n);
	LLVMFuzzerTestOneInput(copy, n);
	free(copy);
}

static int one_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	static uint8_t data[1 << 20];
	size_t n;

	if (!f) {
		perror(path);
		return 1;
	}
	n = fread(data, 1, sizeof(data), f);
	fclose(f);
	run(data, n);
	for (size_t i = 0; i < n; i += i < 2048 ? 1 : 251)
		run(data, i);
	printf("ok %d - %s (%zu bytes)\n", ++tests, path, n);
	fflush(stdout);
	return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int folder(const char *path)
{
	struct dirent **e;
	int n = scandir(path, &e, NULL, by_name), rc = n < 0;

	for (int i = 0; i < n; i++) {
		char file[4096];

		snprintf(file, sizeof(file), "%s/%s", path, e[i]->d_name);
		if (e[i]->d_name[0] != '.')
			rc |= one_file(file);
		free(e[i]);
	}
	if (n >= 0)
		free(e);
	return rc;
}

int main(int argc, char **argv)
{
	int rc = 0;

	for (int i = 1; i < argc; i++) {
		struct stat st;

		rc |= !stat(argv[i], &st) && S_ISDIR(st.st_mode) ? folder(argv[i])
								 : one_file(argv[i]);
	}
	printf("1..%d\n", tests);
	return rc || !tests;
}
