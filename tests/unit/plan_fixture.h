/* plan_fixture.h - plans from text, and what is written of them as a string. */
#ifndef PL_PLAN_FIXTURE_H
#define PL_PLAN_FIXTURE_H

#include <stdlib.h>

#include "plan/plan.h"
#include "tap.h"

static struct pl_err last; /* of the fixture's latest call */

__attribute__((unused)) static int read_bytes(const void *p, size_t n, struct pl_plan *plan)
{
	struct pl_in *in;
	int rc;

	memset(&last, 0, sizeof(last));
	in = pl_in_open_mem("test", p, n, &last);
	rc = pl_plan_read(in, "test", plan, &last);
	pl_in_close(in);
	return rc;
}

__attribute__((unused)) static int read_str(const char *s, struct pl_plan *plan)
{
	return read_bytes(s, strlen(s), plan);
}

typedef int (*plan_writer)(const struct pl_plan *p, struct pl_out *out, struct pl_err *err);

__attribute__((unused)) static int plan_binary(const struct pl_plan *p, struct pl_out *out,
					       struct pl_err *err)
{
	return pl_plan_write(p, out, 1, err);
}

/* What the writer writes, NUL-terminated; b is the caller's. */
__attribute__((unused)) static const char *written(const struct pl_plan *p, plan_writer w,
						   struct pl_buf *b)
{
	struct pl_out *out;
	int rc;

	memset(&last, 0, sizeof(last));
	memset(b, 0, sizeof(*b));
	out = pl_out_open_buf(b, &last);
	rc = w(p, out, &last);
	if (pl_out_close(out, &last) < 0 || pl_buf_put(b, "", 1, &last) < 0)
		abort();
	b->n--;
	return rc < 0 ? last.msg : (const char *)b->p;
}

#endif
