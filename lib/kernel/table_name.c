/*
 * What the name of a table says: its folder, and the variables of the patterns of a schema.
 */
#include <ctype.h>

#include "kernel/internal.h"

/* Is s inside a number or a word? */
static bool is_inside(const char *s)
{
	return (isdigit((unsigned char)s[-1]) && isdigit((unsigned char)*s)) ||
	       (isalpha((unsigned char)s[-1]) && isalpha((unsigned char)*s));
}

/* Where that ends what "*" or a variable stands for: at the first place where the text behind it in
 * the pattern follows. A variable has a character at least, and cuts no number or word. NULL:
 * nowhere. */
static const char *part_end(const char *s, const char *behind, bool variable)
{
	size_t n = strcspn(behind, "{*"), rest = strlen(s);

	if (rest < n + variable)
		return NULL;
	if (!behind[n]) {
		s += rest - n;
		return strcmp(s, behind) || (variable && is_inside(s)) ? NULL : s;
	}
	for (const char *p = s + variable; p <= s + rest - n; p++)
		if (!strncmp(p, behind, n) && !(variable && is_inside(p)))
			return p;
	return NULL;
}

/* "gpt_{size}_tp{tp}" against the name. Adds texts. */
static bool match_name(struct schema_name *to, struct pl_arena *a, const char *pattern,
		       struct pl_err *err, int *rc)
{
	const char *s = to->file;

	while (*pattern) {
		const char *close = *pattern == '{' ? strchr(pattern, '}') : NULL, *next, *end;
		struct schema_text t;

		if (!close && *pattern != '*') {
			if (*pattern++ != *s++)
				return false;
			continue;
		}
		next = close ? close + 1 : pattern + 1;
		end = part_end(s, next, close != NULL);
		if (!end)
			return false;
		if (close) {
			t.name = pl_arena_dup(a, pattern + 1, (size_t)(close - pattern) - 1);
			t.value = pl_arena_dup(a, s, (size_t)(end - s));
			*rc = !t.name || !t.value
				      ? pl_fail(err, PL_ENOMEM, "out of memory")
				      : pl_append(&to->text, &to->n, &to->cap, &t, sizeof(t), err);
			if (*rc < 0)
				return false;
		}
		s = end;
		pattern = next;
	}
	return !*s;
}

/* Without the slashes at the end: "d//t.csv" is in "d". */
static const char *folder_end(const char *name, const char *slash)
{
	while (slash && slash > name && slash[-1] == '/')
		slash--;
	return slash ? slash : name;
}

int pl_schema_read_name(const struct pl_schema *s, const char *name, struct pl_arena *a,
			struct schema_name *to, struct pl_err *err)
{
	const char *slash = strrchr(name, '/'), *file = slash ? slash + 1 : name;
	const char *folder = name, *end = folder_end(name, slash);
	size_t n = strlen(file);
	int rc = 0;

	for (const char *p = name; p < end; p++)
		if (*p == '/')
			folder = p + 1;
	if (n > 3 && !strcmp(file + n - 3, ".gz"))
		n -= 3;
	if (n > 4 && !strncmp(file + n - 4, ".csv", 4))
		n -= 4;
	to->folder = pl_arena_dup(a, folder, (size_t)(end - folder));
	to->file = pl_arena_dup(a, file, n);
	if (!to->folder || !to->file)
		return pl_fail(err, PL_ENOMEM, "out of memory");
	for (size_t i = 0; i < s->n_files && rc >= 0; i++) {
		to->n = 0;
		if (match_name(to, a, s->file[i], err, &rc))
			return rc;
	}
	to->n = 0;
	return rc;
}
