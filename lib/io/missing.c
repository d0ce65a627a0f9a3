/*
 * Names of files that do not exist: the error says which similar names do. The cause is a misspelt
 * name, or a pattern that matches nothing: shells pass such a pattern on as it is.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>

#include "core/words.h"
#include "io/internal.h"

struct similar {
	const char *base; /* the name that is missing */
	struct pl_words_near near;
	size_t score, n; /* of a pattern: the best score, and how many names have it */
	char name[256];	 /* the first of these in alphabetical order */
};

/* The number of bytes of the pattern's literal parts that occur in the name. Points separate parts,
 * so that "*.pt.trace.json.gz" finds "rank0.pt.trace.json". */
static size_t score(const char *pattern, const char *name)
{
	size_t sum = 0;

	for (const char *p = pattern; *p;) {
		size_t n = strcspn(p, "*?[.");

		if (n && memmem(name, strlen(name), p, n))
			sum += n;
		p += n;
		if (*p == '[')
			p += strcspn(p, "]");
		p += *p != '\0';
	}
	return sum;
}

static void compare(struct similar *x, const char *name)
{
	size_t s = score(x->base, name);

	pl_words_near(&x->near, name, strlen(name));
	if (!x->n || s > x->score) {
		x->n = 0;
		x->score = s;
	} else if (s < x->score) {
		return;
	}
	if (!x->n || strcmp(name, x->name) < 0)
		snprintf(x->name, sizeof(x->name), "%s", name);
	x->n++;
}

/* Look at the names in the last folder of the path that exists; it is left in `path`. */
static void find_similar(char *path, struct similar *x)
{
	DIR *d = NULL;
	struct dirent *e;

	for (;;) {
		char *slash = strrchr(path, '/');

		x->base = slash ? slash + 1 : path;
		if (slash == path || !slash) {
			d = opendir(slash ? "/" : ".");
			break;
		}
		*slash = '\0';
		d = opendir(path);
		if (d)
			break;
	}
	x->near.s = x->base;
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			compare(x, e->d_name);
	if (d)
		closedir(d);
}

int pl_in_missing(const char *path, struct pl_err *err)
{
	int reason = errno;
	char copy[PATH_MAX], folder[PATH_MAX] = "", more[32] = "", hint[PATH_MAX + 400] = "";
	struct similar x = { 0 };
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	if (n < sizeof(copy)) {
		memcpy(copy, path, n);
		copy[n] = '\0';
		find_similar(copy, &x);
		snprintf(folder, sizeof(folder), "%.*s", (int)(x.base - copy), path);
	}
	if (x.base && strpbrk(x.base, "*?[")) {
		if (x.n > 1)
			snprintf(more, sizeof(more), " and %zu more", x.n - 1);
		return pl_fail(err, PL_EIO, "%.300s matches nothing in %.300s%s%.300s%s", x.base,
			       *folder ? folder : "the current folder",
			       x.n ? "; there are: " : ", which is empty", x.name, more);
	}
	if (x.near.distance)
		snprintf(hint, sizeof(hint), "; did you mean %s%s?", folder, x.near.word);
	return pl_fail(err, PL_EIO, "%.300s: cannot open: %s%.500s", path, strerror(reason), hint);
}
