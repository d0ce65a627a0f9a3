/* What the tests of recorders share. */
#ifndef RECORD_FIXTURE_H
#define RECORD_FIXTURE_H

#include "trace/trace.h"

/* A trace that was written to a file. *t: the caller's to end, also after a failure. */
static int load(const char *path, struct pl_trace *t, struct pl_err *err)
{
	const struct pl_trace_reader_opts o = { 0 };
	struct pl_in *in = pl_in_open(path, err);
	int rc;

	memset(t, 0, sizeof(*t));
	if (!in)
		return err->code;
	rc = pl_trace_load(in, &o, t, err);
	pl_in_close(in);
	return rc;
}

#endif
