/* Reading the sizes of tensors. */
#include <stdlib.h>

#include "graph/dims.h"

bool pl_dims_next(const char **s, struct pl_dims *t)
{
	const char *p = *s;

	*t = (struct pl_dims){ .elements = 1 };
	while (*p && !(*p == '[' && p[1] != '['))
		p++;
	if (!*p++)
		return false;
	while (*p && *p != ']') {
		char *end;
		long long v = strtoll(p, &end, 10);

		if (end == p) {
			p++;
			continue;
		}
		if (t->n < PL_DIMS_MAX)
			t->size[t->n] = v;
		t->n++;
		t->elements = pl_dims_product(t->elements, v);
		p = end;
	}
	*s = p;
	return true;
}
