/* The engines of run: each is a file with a struct pl_engine, and a row here. */
#include "program.h"

#define ENGINES(X) X(pl_ps_engine) X(pl_dp_engine) X(pl_dp_local_sgd_engine)

#define DECLARE(name) extern const struct pl_engine name;
#define ADDRESS(name) &name,
ENGINES(DECLARE)
static const struct pl_engine *const engines[] = { ENGINES(ADDRESS) };

int find_engine(const struct pl_job *j, const struct pl_plan *plan, const struct pl_engine **e,
		struct pl_err *err)
{
	for (size_t i = 0; i < PL_LEN(engines); i++)
		if (engines[i]->matches ? engines[i]->matches(j, plan)
					: !strcmp(j->policy, engines[i]->policy)) {
			*e = engines[i];
			return 0;
		}
	return pl_fail(err, PL_EABSENT, "no engine trains with the policy %.100s%s", j->policy,
		       plan ? " and this plan" : "");
}
