/*
 * The rank and size of this process, from the environment that a launcher gives its processes.
 *
 * The variables of paceline come first, then those of torchrun, Open MPI, PMI (MPICH, Intel MPI,
 * srun --mpi=pmi2), PMIx, and Slurm. Launchers nest: mpirun starts its daemons through srun, and
 * both may start torchrun. The outer variables then describe the inner launcher, not this process.
 * Therefore Slurm's variables are read last and are not compared with others. All other variables
 * must agree, because a RANK that was left in the shell that calls mpirun would otherwise cause a
 * hang. Constant time.
 */
#include <stdlib.h>

#include "comm/comm.h"

#define COUNT_MAX 1000000000

struct source {
	const char *launcher;
	const char *rank, *size;
	const char *local_rank, *local_size; /* NULL: not set */
	const char *job[4]; /* together they identify the launcher's job; the same on all hosts */
};
static const struct source paceline = {
	"paceline", "PACELINE_RANK", "PACELINE_SIZE", "PACELINE_LOCAL_RANK", "PACELINE_LOCAL_SIZE",
	{ NULL }
};
static const struct source others[] = {
	{ "torchrun",
	  "RANK",
	  "WORLD_SIZE",
	  "LOCAL_RANK",
	  "LOCAL_WORLD_SIZE",
	  { "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT" } },
	/* the number of its job has only 16 random bits; the key has 128 */
	{ "openmpi",
	  "OMPI_COMM_WORLD_RANK",
	  "OMPI_COMM_WORLD_SIZE",
	  "OMPI_COMM_WORLD_LOCAL_RANK",
	  "OMPI_COMM_WORLD_LOCAL_SIZE",
	  { "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_precondition_transports",
	    "PMIX_NAMESPACE" } },
	{ "pmi",
	  "PMI_RANK",
	  "PMI_SIZE",
	  "MPI_LOCALRANKID",
	  "MPI_LOCALNRANKS",
	  { "PMI_JOBID", "FLUX_JOB_ID" } },
	{ "pmix", "PMIX_RANK", NULL, "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE", { "PMIX_NAMESPACE" } },
};
static const struct source slurm = {
	"slurm",	"SLURM_PROCID",
	"SLURM_NTASKS", "SLURM_LOCALID",
	NULL,		{ "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_RESTART_COUNT" }
};

static const char *env(const char *name)
{
	const char *s = name ? getenv(name) : NULL;

	return s && *s ? s : NULL;
}

/* A whole number of min .. COUNT_MAX, -1 if the variable is not set. */
static int read_number(const char *name, int min, int *v, struct pl_err *err)
{
	const char *s = env(name);
	long n;
	char *end;

	*v = -1;
	if (!s)
		return 0;
	n = strtol(s, &end, 10);
	if (s[strspn(s, "0123456789")] || strlen(s) > 10 || *end || n < min || n > COUNT_MAX)
		return pl_fail(err, PL_EUSAGE,
			       "%s is \"%.100s\" in the environment, where a whole number of %d or "
			       "more should be",
			       name, s, min);
	*v = (int)n;
	return 0;
}

static int check_below(const char *a, int v, const char *b, int n, struct pl_err *err)
{
	if (v < 0 || n < 0 || v < n)
		return 0;
	return pl_fail(err, PL_EUSAGE,
		       "the environment contradicts itself: %s is %d and %s is %d; ranks are 0 to "
		       "%d",
		       a, v, b, n, n - 1);
}

static uint64_t job_of(const struct source *s)
{
	uint64_t h[3] = { 0 };

	for (size_t i = 0; i < PL_LEN(s->job); i++) {
		const char *v = env(s->job[i]);

		if (!v)
			continue;
		h[1] = i;
		h[2] = pl_hash(v, strlen(v));
		h[0] = pl_hash(h, sizeof(h));
	}
	return h[0];
}

/* Read the values of a source. l->launcher stays NULL if it has no rank. */
static int read_source(const struct source *s, struct pl_launch *l, struct pl_err *err)
{
	PL_CHECK(read_number(s->rank, 0, &l->rank, err));
	PL_CHECK(read_number(s->size, 1, &l->size, err));
	PL_CHECK(read_number(s->local_rank, 0, &l->local_rank, err));
	PL_CHECK(read_number(s->local_size, 1, &l->local_size, err));
	if (l->rank < 0)
		return 0;
	PL_CHECK(check_below(s->rank, l->rank, s->size, l->size, err));
	PL_CHECK(check_below(s->local_rank, l->local_rank, s->local_size, l->local_size, err));
	PL_CHECK(check_below(s->local_rank, l->local_rank, s->size, l->size, err));
	if (l->size >= 0 && l->local_size > l->size)
		return pl_fail(err, PL_EUSAGE,
			       "the environment contradicts itself: %s is %d, above %s, which is "
			       "%d",
			       s->local_size, l->local_size, s->size, l->size);
	l->launcher = s->launcher;
	l->rank_name = s->rank;
	l->job = job_of(s);
	return 0;
}

/* A step of srun, and not the shell of a batch job or of salloc, which have the variables of the
 * job: Slurm numbers those steps from 2^32 - 16 up. */
static bool in_step(void)
{
	const char *id = env("SLURM_STEP_ID");

	if (!id)
		id = env("SLURM_STEPID");
	return id && strtoull(id, NULL, 10) < 0xfffffff0u;
}

/* Take size and place from Slurm's variables, if they fit: --mpi=pmix or pmi2 may lack one. */
static int complete_by_slurm(struct pl_launch *l, struct pl_err *err)
{
	struct pl_launch s = { 0 };
	int rc = read_source(&slurm, &s, err);

	if (rc < 0 || !in_step() || !s.launcher || s.rank != l->rank ||
	    (l->size >= 0 && s.size != l->size))
		return rc;
	l->size = s.size;
	l->local_rank = l->local_rank < 0 ? s.local_rank : l->local_rank;
	return 0;
}

static int check_agreement(const struct source *a, const struct pl_launch *x,
			   const struct source *b, const struct pl_launch *y, struct pl_err *err)
{
	bool ranks = x->rank != y->rank, sizes = x->size >= 0 && y->size >= 0 && x->size != y->size;

	if (!ranks && !sizes)
		return 0;
	return pl_fail(err, PL_EUSAGE,
		       "the environment contradicts itself: %s is %d and %s is %d; unset those of "
		       "the launcher that is not in use, or set PACELINE_RANK and PACELINE_SIZE",
		       ranks ? a->rank : a->size, ranks ? x->rank : x->size,
		       ranks ? b->rank : b->size, ranks ? y->rank : y->size);
}

/* Find the first launcher with a rank. The launchers after it in the table must have the same rank.
 * torchrun is an exception, because any of them may have started it. */
static int find_launcher(struct pl_launch *l, const struct source **by, struct pl_err *err)
{
	struct pl_launch x = { 0 };
	bool found = false;
	int rc = 0;

	for (size_t i = 0; i < PL_LEN(others); i++) {
		x.launcher = NULL;
		PL_TRY(read_source(&others[i], &x, err));
		if (!x.launcher)
			continue;
		if (found) {
			PL_TRY(check_agreement(*by, l, &others[i], &x, err));
			l->size = l->size < 0 ? x.size : l->size;
			continue;
		}
		found = true;
		*by = &others[i];
		*l = x;
		if (env("TORCHELASTIC_RUN_ID") && i == 0)
			return 0;
	}
	x.launcher = NULL;
	if (!found && in_step())
		PL_TRY(read_source(&slurm, &x, err));
	else if (found && !strncmp(l->launcher, "pmi", 3))
		PL_TRY(complete_by_slurm(l, err));
	if (x.launcher) {
		*by = &slurm;
		*l = x;
	}
out:
	return rc;
}

static int copy_variable(char *out, size_t size, const char *name, struct pl_err *err)
{
	const char *s = env(name);

	if (!s)
		return 0;
	if (strlen(s) >= size)
		return pl_fail(err, PL_EUSAGE, "%s in the environment is longer than %zu bytes",
			       name, size - 1);
	strcpy(out, s);
	return 0;
}

/* Finds whether the ranks are known to be on several hosts. */
static int find_several_hosts(struct pl_launch *l, struct pl_err *err)
{
	int nodes = 1, rc = 0;

	if (l->local_size > 0)
		l->several_hosts = l->local_size < l->size;
	else if (strcmp(l->launcher, paceline.launcher) != 0 && in_step())
		rc = read_number("SLURM_STEP_NUM_NODES", 1, &nodes, err);
	if (nodes > 1)
		l->several_hosts = true;
	return rc;
}

/* If torchrun's agent keeps the store, it listens at MASTER_PORT; ranks meet at the next port. */
static int torchrun_meet(struct pl_launch *l, struct pl_err *err)
{
	const char *host = env("MASTER_ADDR"), *agent = env("TORCHELASTIC_USE_AGENT_STORE");
	int port, rc = read_number("MASTER_PORT", 1, &port, err), n;

	if (rc < 0 || (!host && port < 0))
		return rc;
	if (!host || port < 0)
		return pl_fail(err, PL_EUSAGE,
			       "of MASTER_ADDR and MASTER_PORT only one is set; set both, or "
			       "PACELINE_MEET");
	port += agent && !strcmp(agent, "True");
	if (port > 65535)
		return pl_fail(err, PL_EUSAGE, "MASTER_PORT leads to port %d; ports end at 65535",
			       port);
	n = snprintf(l->meet, sizeof(l->meet), "tcp:%s:%d", host, port);
	if (n < 0 || (size_t)n >= sizeof(l->meet))
		return pl_fail(err, PL_EUSAGE, "MASTER_ADDR is longer than %zu bytes",
			       sizeof(l->meet) - 12);
	return 0;
}

/* The first of a list as "node[07-09,12]-ib,login": node07-ib. */
static bool first_host(const char *s, char *to, size_t size)
{
	size_t n = 0;

	for (; *s && *s != ',' && n + 1 < size; s++) {
		if (*s != '[') {
			to[n++] = *s;
			continue;
		}
		for (s++; *s && !strchr("-,]", *s) && n + 1 < size; s++)
			to[n++] = *s;
		s = strchr(s, ']');
		if (!s)
			return false;
	}
	to[n] = '\0';
	return n > 0 && (!*s || *s == ',');
}

/* Did srun start the ranks themselves? mpirun may start its daemons as a step, too. */
static bool is_step_of_slurm(const struct pl_launch *l)
{
	return in_step() && (!strcmp(l->launcher, "slurm") || !strncmp(l->launcher, "pmi", 3));
}

/*
 * Slurm's step begins with rank 0 on its first node. The port is one that Slurm keeps for the step
 * (MpiParams=ports=...), else it follows from the step's number, below the ports that the
 * system gives to connections.
 */
static int slurm_meet(struct pl_launch *l, struct pl_err *err)
{
	const char *nodes = env("SLURM_STEP_NODELIST"), *ports = env("SLURM_STEP_RESV_PORTS");
	char host[200];
	uint64_t step = job_of(&slurm);
	int port = ports ? atoi(ports) : 0;

	if (!nodes)
		return 0;
	if (!first_host(nodes, host, sizeof(host)))
		return pl_fail(err, PL_EUSAGE,
			       "SLURM_STEP_NODELIST is \"%.100s\": no list of nodes; set "
			       "PACELINE_MEET",
			       nodes);
	if (port < 1 || port > 65535)
		port = 20000 + (int)(step % 12000);
	snprintf(l->meet, sizeof(l->meet), "tcp:%s:%d", host, port);
	return 0;
}

int pl_comm_launch_find(struct pl_launch *l, struct pl_err *err)
{
	const struct source *by = &paceline;
	struct pl_launch own = { 0 };

	memset(l, 0, sizeof(*l));
	l->rank = l->size = l->local_rank = l->local_size = -1;
	PL_CHECK(read_source(&paceline, &own, err));
	if (own.launcher) {
		*l = own;
	} else {
		PL_CHECK(find_launcher(l, &by, err));
		if (l->launcher && l->size < 0)
			l->size = own.size;
		PL_CHECK(check_below("the rank", l->rank, "the size", l->size, err));
	}
	if (l->launcher && l->size < 0)
		return pl_fail(err, PL_EUSAGE,
			       "%s is %d in the environment, but the number of ranks is not set; "
			       "set %s, or unset %s",
			       by->rank, l->rank, by->size ? by->size : paceline.size, by->rank);
	if (l->launcher)
		PL_CHECK(find_several_hosts(l, err));
	if (l->launcher && !strcmp(l->launcher, "torchrun"))
		PL_CHECK(torchrun_meet(l, err));
	else if (l->launcher && is_step_of_slurm(l))
		PL_CHECK(slurm_meet(l, err));
	PL_CHECK(copy_variable(l->meet, sizeof(l->meet), "PACELINE_MEET", err));
	return copy_variable(l->token, sizeof(l->token), "PACELINE_TOKEN", err);
}
