/* trace -- COMMAND: records what a command does. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "program.h"

int record(struct config *c, char **argv, struct pl_err *err)
{
	char folder[64], text[512];
	const char *where = c->c.output;
	struct pl_recorded r;
	int rc;

	PL_CHECK(check_options(c, err));
	if (!where) {
		snprintf(folder, sizeof(folder), "paceline-%ld", (long)getpid());
		where = folder;
	}
	rc = pl_record_run(&c->record, where, argv, &c->c.log, &r, err);
	c->c.status = r.status;
	if (rc < 0 || !r.files)
		return rc;
	pl_record_text(&r, where, text, sizeof(text));
	if (!c->c.quiet)
		fprintf(stderr, "trace: %s; next: replay %s\n", text, where);
	if (!isnan(r.cost) && llabs(r.recorded_ns - r.plain_ns) < r.spread_ns)
		pl_say(&c->c.log, PL_LOG_NOTE,
		       "what recording took cannot be told: steps take %.3f ms with it and %.3f ms "
		       "without, and differ by %.3f ms among themselves",
		       (double)r.recorded_ns / 1e6, (double)r.plain_ns / 1e6,
		       (double)r.spread_ns / 1e6);
	else if (!isnan(r.cost))
		pl_say(&c->c.log, PL_LOG_NOTE,
		       "recording took %+.1f %% of a step: %.3f ms with it, %.3f ms without",
		       100 * r.cost, (double)r.recorded_ns / 1e6, (double)r.plain_ns / 1e6);
	else
		pl_say(&c->c.log, PL_LOG_NOTE,
		       "what recording took is not known: it needs steps without it");
	return 0;
}
