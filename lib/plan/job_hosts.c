/* Which ranks of a job are on which host, and which of them commit to servers as one. Linear in the
 * hosts and ranks. */
#include "plan/job.h"

/* The number of ranks of the first host, if each has its own; 0: they are alike. */
static int64_t listed(const char *hosts)
{
	int64_t n = 0;

	return strchr(hosts, ',') && pl_lang_count(&hosts, &n) ? n : 0;
}

int64_t pl_job_hosts(const char *hosts)
{
	int64_t v = 1, n = 0;

	if (!listed(hosts))
		return pl_lang_count(&hosts, &v) ? v : 1;
	while (pl_lang_count(&hosts, &v))
		n++;
	return n;
}

int64_t pl_job_host(const char *hosts, int64_t ranks, int64_t rank)
{
	int64_t v, n = 0;

	if (!listed(hosts))
		return rank / pl_max_i64(1, ranks / pl_job_hosts(hosts));
	for (; pl_lang_count(&hosts, &v) && rank >= v; n++)
		rank -= v;
	return n;
}

int pl_job_hosts_check(const char *hosts, int64_t ranks, struct pl_err *err)
{
	const char *s = hosts;
	int64_t n, sum = 0;

	if (listed(hosts)) {
		while (pl_lang_count(&s, &n))
			sum += n;
		return sum == ranks ? 0
				    : pl_fail(err, PL_EDATA,
					      "hosts %.100s have %lld ranks, and the job %lld; "
					      "change hosts or ranks",
					      hosts, (long long)sum, (long long)ranks);
	}
	n = pl_job_hosts(hosts);
	if (n > ranks || ranks % n)
		return pl_fail(err, PL_EDATA,
			       "%lld hosts with %lld ranks in all cannot have equally many; change "
			       "hosts or ranks, or list the ranks of each host, like: hosts 3,1",
			       (long long)n, (long long)ranks);
	return 0;
}

int64_t pl_job_workers(const struct pl_job *j)
{
	return j->group > 0 ? j->ranks / j->group : pl_job_hosts(j->hosts);
}

int pl_job_workers_check(const struct pl_job *j, struct pl_err *err)
{
	if (j->group <= 0)
		return pl_job_hosts_check(j->hosts, j->ranks, err);
	if (j->ranks % j->group)
		return pl_fail(err, PL_EDATA,
			       "group=%lld, but there are %lld ranks: each group has as many as "
			       "the others; change group or ranks",
			       (long long)j->group, (long long)j->ranks);
	return 0;
}

int pl_job_workers_find(const struct pl_job *j, uint32_t **first, struct pl_err *err)
{
	int64_t n = pl_job_workers(j), size;
	const char *s = j->group < 0 && listed(j->hosts) ? j->hosts : NULL;

	*first = NULL;
	PL_CHECK(pl_job_workers_check(j, err));
	PL_CHECK(pl_alloc(first, (size_t)n + 1, sizeof(**first), err));
	size = j->ranks / n;
	for (int64_t i = 0; i < n; i++) {
		if (s && !pl_lang_count(&s, &size))
			break;
		(*first)[i + 1] = (*first)[i] + (uint32_t)size;
	}
	return 0;
}
