/* Output of a plan, in the requested format. */
#include <string.h>

#include "program.h"

static const struct pl_settings *settings_of(int to)
{
	static const char *const name[] = { "ddp",	 "fsdp",     "horovod", "byteps",
					    "deepspeed", "megatron", "xla" };

	for (size_t i = 0; pl_settings[i]; i++)
		if (!strcmp(pl_settings[i]->name, name[to - AS_SETTINGS]))
			return pl_settings[i];
	return NULL;
}

static int as_settings(int to, const struct pl_plan *p, struct pl_out *out, struct pl_err *err)
{
	const struct pl_settings *s = settings_of(to);

	if (!s)
		return pl_fail(err, PL_EINTERNAL, "settings number %d are not there", to);
	return pl_settings_write(s, p, out, err);
}

int write_plan(const struct config *c, const struct pl_plan *p, struct pl_out *out,
	       struct pl_err *err)
{
	switch (c->to) {
	case AS_PLAN:
		return pl_plan_write(p, out, (int)c->c.level, err);
	case AS_TEXT:
		return pl_plan_write_text(p, out, err);
	case AS_JSON:
		return pl_plan_write_json(p, out, err);
	default:
		return as_settings(c->to, p, out, err);
	}
}
