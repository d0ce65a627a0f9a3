/*
 * replay -- COMMAND: records the command into a folder, whose files are then the input.
 *
 * A temporary folder goes away after the report. It stays if the command or the report failed,
 * because what was recorded may cost hours to record again.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"

static int temporary(struct recording *r, struct pl_err *err)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(r->folder, sizeof(r->folder), "%.400s/paceline-XXXXXX",
		 tmp && *tmp ? tmp : "/tmp");
	r->temporary = true;
	return mkdtemp(r->folder) ? 0 : pl_fail_sys(err, "%s", r->folder);
}

int record(struct config *c, struct recording *r, char **argv, struct pl_err *err)
{
	struct pl_recorded done;
	char text[512];
	int rc;

	if (c->keep)
		snprintf(r->folder, sizeof(r->folder), "%.480s", c->keep);
	else
		PL_CHECK(temporary(r, err));
	rc = pl_record_run(&c->record, r->folder, argv, &c->c.log, &done, err);
	c->c.status = done.status;
	if (rc >= 0 && !done.files)
		rc = pl_fail(err, PL_EDATA, "%s: there is nothing to replay", argv[0]);
	if (rc < 0 && r->temporary)
		rmdir(r->folder); /* if it is empty */
	if (rc < 0)
		return rc;
	pl_record_text(&done, r->folder, text, sizeof(text));
	pl_say(&c->c.log, PL_LOG_NOTE, "%s", text);
	r->failed = done.status != 0;
	r->name = r->folder;
	return 0;
}

void record_end(const struct config *c, const struct recording *r, bool failed)
{
	if (!r->name || !r->temporary)
		return;
	if (!failed && !r->failed)
		pl_remove_folder(r->folder);
	else
		pl_say(&c->c.log, PL_LOG_WARN, "the recording stays in %s", r->folder);
}
