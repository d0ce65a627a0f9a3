/*
 * Checkpoints that stay when the next one takes their name: FILE.STEP is a second name (a hard
 * link) of FILE, or a copy where the file system has no links. So FILE is there at any moment.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "train/worker.h"

#define PATH_ROOM 4096

static int name_of(const char *path, int64_t step, char name[PATH_ROOM], struct pl_err *err)
{
	int n = snprintf(name, PATH_ROOM, "%s.%lld", path, (long long)step);

	return n < PATH_ROOM ? 0 : pl_fail(err, PL_ELIMIT, "the name of a checkpoint is too long");
}

static int copy(const char *from, const char *to, struct pl_err *err)
{
	struct pl_in *in = pl_in_open(from, err);
	struct pl_out *out;
	int rc;

	if (!in)
		return err ? err->code : PL_EIO;
	out = pl_out_open(to, true, err);
	if (out)
		pl_out_durable(out);
	rc = out ? pl_out_finish(out, pl_out_copy(out, in, err), err) : err ? err->code : PL_EIO;
	pl_in_close(in);
	return rc;
}

/* The step that a file has in its name "BASE.STEP"; below 0: none. */
static int64_t step_of(const char *file, const char *base)
{
	size_t n = strlen(base);
	const char *s;
	int64_t step;

	if (strncmp(file, base, n) != 0 || file[n] != '.')
		return -1;
	s = file + n + 1;
	if (*s < '0' || *s > '9' || (*s == '0' && s[1]) || strlen(s) > 18)
		return -1;
	step = pl_take_digits(&s);
	return *s ? -1 : step;
}

static int by_step(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Those of the job that this one continues; a folder that cannot be read has none. */
static int look(struct pl_kept *k, const char *path, int64_t before, struct pl_err *err)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	char folder[PATH_ROOM];
	struct dirent *e;
	DIR *d;
	int rc = 0;

	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path + 1) : 1,
		 slash ? path : ".");
	d = opendir(folder);
	while (d && rc == 0 && (e = readdir(d))) {
		int64_t step = step_of(e->d_name, base);

		if (step >= 0 && step < before)
			rc = pl_append(&k->step, &k->n, &k->cap, &step, sizeof(step), err);
	}
	if (d)
		closedir(d);
	if (k->n)
		pl_sort(k->step, k->n, sizeof(*k->step), by_step);
	return rc;
}

int pl_train_keep(struct pl_kept *k, const char *path, int64_t step, int64_t keep, bool resumed,
		  struct pl_err *err)
{
	char name[PATH_ROOM];

	if (resumed && !k->looked)
		PL_CHECK(look(k, path, step, err));
	k->looked = true;
	PL_CHECK(name_of(path, step, name, err));
	if (unlink(name) && errno != ENOENT)
		return pl_fail_sys(err, "%s: removing", name);
	/* of the file itself, where `path` is a symbolic link: the next one is written through it
	 */
	if (linkat(AT_FDCWD, path, AT_FDCWD, name, AT_SYMLINK_FOLLOW))
		PL_CHECK(copy(path, name, err));
	PL_CHECK(pl_append(&k->step, &k->n, &k->cap, &step, sizeof(step), err));
	while (k->n > (size_t)keep) {
		PL_CHECK(name_of(path, k->step[0], name, err));
		if (unlink(name) && errno != ENOENT)
			return pl_fail_sys(err, "%s: removing", name);
		memmove(k->step, k->step + 1, --k->n * sizeof(*k->step));
	}
	return 0;
}

void pl_train_keep_fini(struct pl_kept *k)
{
	pl_free(k->step);
	*k = (struct pl_kept){ 0 };
}
