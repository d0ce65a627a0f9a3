/* Lists of numbers and ranges: --rank, --step. */
#include <string.h>

#include "program.h"

/* "3", "3-5" or "-1" at *p up to a comma or the end; moves *p behind it. */
static int one_range(const char **p, int64_t *pair, struct pl_err *err)
{
	size_t n = strcspn(*p, ",");
	char text[64], *dash;
	int rc;

	if (!n || n >= sizeof(text))
		return pl_fail(err, PL_EUSAGE, "\"%s\" is no list of numbers (like 0,4-7)", *p);
	memcpy(text, *p, n);
	text[n] = '\0';
	*p += n;
	dash = strchr(text + 1, '-');
	if (dash)
		*dash++ = '\0';
	rc = pl_parse_int(text, &pair[0], err);
	if (rc == 0)
		rc = pl_parse_int(dash ? dash : text, &pair[1], err);
	if (rc == 0 && pair[1] < pair[0])
		rc = pl_fail(err, PL_EUSAGE, "%lld-%lld is empty", (long long)pair[0],
			     (long long)pair[1]);
	return rc;
}

int parse_ranges(const struct pl_list *l, const char *what, int64_t **pair, size_t *n,
		 struct pl_err *err)
{
	size_t cap = 0;
	int rc = 0;

	for (size_t i = 0; i < l->n; i++) {
		const char *p = l->v[i];

		for (;; p++) {
			rc = pl_grow(pair, &cap, 2 * *n + 2, sizeof(**pair), err);
			if (rc == 0)
				rc = one_range(&p, *pair + 2 * *n, err);
			if (rc < 0)
				return pl_wrap(err, "--%s", what);
			++*n;
			if (!*p)
				break;
		}
	}
	return rc;
}
