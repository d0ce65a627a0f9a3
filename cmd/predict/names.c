/* Names of operations for a warning: which, and how many of each. */
#include "core/sort.h"
#include "program.h"

#define SHOWN 4 /* names */

int names_add(struct names *n, const char *name, double weight, struct pl_err *err)
{
	pl_id id;

	PL_CHECK(pl_intern_add(&n->intern, name, strlen(name), &id, err));
	if (id >= n->n) {
		const struct name_count new = { .name = id };

		PL_CHECK(pl_append(&n->v, &n->n, &n->cap, &new, sizeof(new), err));
	}
	n->v[id].times++;
	n->v[id].weight += weight;
	return 0;
}

static int by_weight(const void *pa, const void *pb)
{
	const struct name_count *a = pa, *b = pb;
	int c = PL_COMPARE(b->weight, a->weight);

	c = c ? c : PL_COMPARE(b->times, a->times);
	return c ? c : PL_COMPARE(a->name, b->name);
}

const char *names_text(struct names *n, char *out, size_t size)
{
	size_t at = 0;

	*out = '\0';
	pl_sort(n->v, n->n, sizeof(*n->v), by_weight);
	for (size_t i = 0; i < n->n && i < SHOWN && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%zu \"%.60s\"", i ? ", " : "",
				       n->v[i].times, pl_intern_get(&n->intern, n->v[i].name));
	if (n->n > SHOWN && at < size)
		snprintf(out + at, size - at, " and %zu more names", n->n - SHOWN);
	return out;
}

void names_fini(struct names *n)
{
	pl_intern_fini(&n->intern);
	pl_free(n->v);
}
