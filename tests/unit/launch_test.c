/* Rank and size from made-up environments; tokens from folders. */
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "tap.h"

static struct pl_err err;

static void clear(void)
{
	static const char *const names[] = {
		"PACELINE_RANK",
		"PACELINE_SIZE",
		"PACELINE_LOCAL_RANK",
		"PACELINE_LOCAL_SIZE",
		"PACELINE_MEET",
		"PACELINE_TOKEN",
		"RANK",
		"WORLD_SIZE",
		"LOCAL_RANK",
		"LOCAL_WORLD_SIZE",
		"MASTER_ADDR",
		"MASTER_PORT",
		"TORCHELASTIC_RUN_ID",
		"TORCHELASTIC_USE_AGENT_STORE",
		"OMPI_COMM_WORLD_RANK",
		"OMPI_COMM_WORLD_SIZE",
		"OMPI_COMM_WORLD_LOCAL_RANK",
		"OMPI_COMM_WORLD_LOCAL_SIZE",
		"PMI_RANK",
		"PMI_SIZE",
		"MPI_LOCALRANKID",
		"MPI_LOCALNRANKS",
		"PMIX_RANK",
		"PMIX_LOCAL_RANK",
		"PMIX_LOCAL_SIZE",
		"SLURM_PROCID",
		"SLURM_NTASKS",
		"SLURM_LOCALID",
		"SLURM_STEP_ID",
		"SLURM_STEPID",
		"SLURM_STEP_NUM_NODES",
		"SLURM_STEP_NODELIST",
		"SLURM_STEP_RESV_PORTS",
		"SLURM_JOB_ID",
		"SLURM_RESTART_COUNT",
		"TORCHELASTIC_RESTART_COUNT",
		"OMPI_MCA_ess_base_jobid",
		"OMPI_MCA_orte_precondition_transports",
		"PMIX_NAMESPACE",
		"PMI_JOBID",
		"FLUX_JOB_ID",
	};

	for (size_t i = 0; i < PL_LEN(names); i++)
		unsetenv(names[i]);
}

/* "A=1 B=2" */
static int find(const char *env, struct pl_launch *l)
{
	char text[1024], *save = NULL;

	clear();
	snprintf(text, sizeof(text), "%s", env);
	for (char *s = strtok_r(text, " ", &save); s; s = strtok_r(NULL, " ", &save)) {
		char *equal = strchr(s, '=');

		*equal = '\0';
		setenv(s, equal + 1, 1);
	}
	memset(&err, 0, sizeof(err));
	return pl_comm_launch_find(l, &err);
}

#define TORCH                                                                                      \
	"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node0 MASTER_PORT=29500"
#define OMPI                                                                                       \
	"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 "              \
	"OMPI_COMM_WORLD_LOCAL_SIZE=4"
#define SLURM "SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_STEP_ID=0"

static void found(void)
{
	static const struct {
		const char *env, *by;
		int rank, size, local_rank, local_size;
	} good[] = {
		{ "", NULL, -1, -1, -1, -1 },
		{ "PACELINE_RANK=0 PACELINE_SIZE=1", "paceline", 0, 1, -1, -1 },
		{ "PACELINE_RANK=2 PACELINE_SIZE=4 PACELINE_LOCAL_RANK=0 PACELINE_LOCAL_SIZE=2",
		  "paceline", 2, 4, 0, 2 },
		{ TORCH, "torchrun", 3, 8, 1, 4 },
		{ "RANK=3 WORLD_SIZE=8", "torchrun", 3, 8, -1, -1 },
		{ OMPI, "openmpi", 3, 8, 1, 4 },
		{ OMPI " PMIX_RANK=3", "openmpi", 3, 8, 1, 4 },
		{ "PMI_RANK=3 PMI_SIZE=8 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=4", "pmi", 3, 8, 1, 4 },
		{ "PMIX_RANK=3 PACELINE_SIZE=8", "pmix", 3, 8, -1, -1 },
		{ "PMIX_RANK=3 " SLURM, "pmix", 3, 8, 1, -1 },
		{ "PMI_RANK=3 PMI_SIZE=8 " SLURM, "pmi", 3, 8, 1, -1 },
		{ "PMI_RANK=3 PMI_SIZE=4 " SLURM, "pmi", 3, 4, -1, -1 },
		{ "PMI_RANK=2 PMI_SIZE=8 " SLURM, "pmi", 2, 8, -1, -1 },
		{ SLURM, "slurm", 3, 8, 1, -1 },
		{ "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEPID=7", "slurm", 0, 2, -1, -1 },
		/* launchers inside one another: the inner one counts */
		{ OMPI " SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0", "openmpi", 3, 8, 1, 4 },
		{ TORCH " TORCHELASTIC_RUN_ID=x OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2",
		  "torchrun", 3, 8, 1, 4 },
		{ TORCH " " OMPI, "torchrun", 3, 8, 1, 4 },
		{ "PACELINE_RANK=1 PACELINE_SIZE=2 " OMPI, "paceline", 1, 2, -1, -1 },
		/* the shells of sbatch and salloc are no ranks, nor is a half-set shell */
		{ "SLURM_PROCID=0 SLURM_NTASKS=8", NULL, -1, -1, -1, -1 },
		{ "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=4294967291", NULL, -1, -1, -1, -1 },
		{ "WORLD_SIZE=8", NULL, -1, -1, -1, -1 },
		{ "PACELINE_SIZE=8", NULL, -1, -1, -1, -1 },
		{ "RANK= WORLD_SIZE=8", NULL, -1, -1, -1, -1 },
	};

	for (size_t i = 0; i < PL_LEN(good); i++) {
		struct pl_launch l;
		int rc = find(good[i].env, &l);
		bool by = good[i].by ? l.launcher && !strcmp(l.launcher, good[i].by) : !l.launcher;

		if (!ok(rc == 0 && by && l.rank == good[i].rank && l.size == good[i].size &&
				l.local_rank == good[i].local_rank &&
				l.local_size == good[i].local_size,
			"%s", *good[i].env ? good[i].env : "an empty environment"))
			printf("# %d %s: %s %d of %d, %d of %d\n", rc, err.msg,
			       l.launcher ? l.launcher : "nobody", l.rank, l.size, l.local_rank,
			       l.local_size);
	}
}

static void meet(void)
{
	struct pl_launch l;
	char env[512];

	is_i64(find(TORCH, &l), 0, "torchrun");
	is_str(l.meet, "tcp:node0:29500", "its meeting place");
	is_str(l.token, "", "and no token");
	is_i64(find(TORCH " TORCHELASTIC_USE_AGENT_STORE=True", &l), 0, "where its agent listens");
	is_str(l.meet, "tcp:node0:29501", "the next port");
	is_i64(find(TORCH " PACELINE_MEET=dir:/tmp/x PACELINE_TOKEN=0123456789abcdef", &l), 0,
	       "own words");
	is_str(l.meet, "dir:/tmp/x", "count more");
	is_str(l.token, "0123456789abcdef", "the token");
	is_i64(find("PACELINE_MEET=dir:/tmp/x", &l), 0, "a meeting place alone");
	ok(!l.launcher && !strcmp(l.meet, "dir:/tmp/x"), "makes no rank");
	snprintf(env, sizeof(env), "PACELINE_TOKEN=%0200d", 0);
	ok(find(env, &l) == PL_EUSAGE && strstr(err.msg, "PACELINE_TOKEN"), "a token too long");
	snprintf(env, sizeof(env), "RANK=0 WORLD_SIZE=1 MASTER_PORT=1 MASTER_ADDR=%0300d", 0);
	ok(find(env, &l) == PL_EUSAGE && strstr(err.msg, "MASTER_ADDR"), "an address too long");
}

static void meet_in_slurm(void)
{
	static const struct {
		const char *nodes, *host;
	} list[] = {
		{ "node1", "node1" },
		{ "node1,node2", "node1" },
		{ "node[07-09,12]-ib,login", "node07-ib" },
		{ "r[1,4]c[003-005]", "r1c003" },
		{ "vm,vm-[2-3]", "vm" },
	};
	struct pl_launch l;
	char env[512], want[100], first[256];

	for (size_t i = 0; i < PL_LEN(list); i++) {
		snprintf(env, sizeof(env),
			 SLURM " SLURM_STEP_NODELIST=%s SLURM_STEP_RESV_PORTS=12000-12003",
			 list[i].nodes);
		snprintf(want, sizeof(want), "tcp:%s:12000", list[i].host);
		is_i64(find(env, &l), 0, list[i].nodes);
		is_str(l.meet, want, "... meets at its first node, at a port of the step");
	}
	is_i64(find(SLURM " SLURM_JOB_ID=5 SLURM_STEP_NODELIST=a", &l), 0, "a step");
	snprintf(first, sizeof(first), "%s", l.meet);
	ok(!strncmp(l.meet, "tcp:a:", 6) && atoi(l.meet + 6) >= 20000 && atoi(l.meet + 6) < 32000,
	   "... without ports of its own (%s)", l.meet);
	is_i64(find(SLURM " SLURM_JOB_ID=6 SLURM_STEP_NODELIST=a", &l), 0, "that of another job");
	ok(strcmp(first, l.meet) != 0, "... has another port");
	is_i64(find("PMI_RANK=3 PMI_SIZE=8 " SLURM " SLURM_STEP_NODELIST=a", &l), 0, "with PMI");
	ok(!strncmp(l.meet, "tcp:a:", 6), "... the same");
	is_i64(find(OMPI " " SLURM " SLURM_STEP_NODELIST=a", &l), 0, "mpirun's daemons");
	is_str(l.meet, "", "... are another step than its ranks");
	is_i64(find(SLURM " SLURM_STEP_NODELIST=a PACELINE_MEET=dir:/x", &l), 0, "own words");
	is_str(l.meet, "dir:/x", "... count more");
	ok(find(SLURM " SLURM_STEP_NODELIST=a[1-", &l) == PL_EUSAGE &&
		   strstr(err.msg, "no list of nodes"),
	   "a broken list");
}

static void refused(void)
{
	static const struct {
		const char *env, *says;
	} bad[] = {
		{ "PACELINE_RANK=1",
		  "PACELINE_RANK is 1 in the environment, but the number of ranks is not set" },
		{ "PACELINE_RANK=2 PACELINE_SIZE=2", "PACELINE_RANK is 2 and PACELINE_SIZE is 2" },
		{ "PACELINE_RANK=x PACELINE_SIZE=2", "PACELINE_RANK is \"x\"" },
		{ "PACELINE_RANK=-1 PACELINE_SIZE=2", "PACELINE_RANK is \"-1\"" },
		{ "PACELINE_RANK=0 PACELINE_SIZE=0", "PACELINE_SIZE is \"0\"" },
		{ "PACELINE_RANK=0 PACELINE_SIZE=99999999999", "PACELINE_SIZE is" },
		{ "PACELINE_RANK=0 PACELINE_SIZE=2 PACELINE_LOCAL_RANK=1 PACELINE_LOCAL_SIZE=1",
		  "PACELINE_LOCAL_RANK is 1 and PACELINE_LOCAL_SIZE is 1" },
		{ "PACELINE_RANK=0 PACELINE_SIZE=2 PACELINE_LOCAL_SIZE=3",
		  "PACELINE_LOCAL_SIZE is 3, above PACELINE_SIZE" },
		{ "RANK=3", "RANK is 3 in the environment, but the number of ranks is not set" },
		{ "RANK=3 WORLD_SIZE=2", "RANK is 3 and WORLD_SIZE is 2" },
		{ "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a", "of MASTER_ADDR and MASTER_PORT only one" },
		{ "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=70000", "port 70000" },
		{ "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=x", "MASTER_PORT is \"x\"" },
		{ OMPI " RANK=0 WORLD_SIZE=8", "RANK is 0 and OMPI_COMM_WORLD_RANK is 3" },
		{ OMPI " RANK=3 WORLD_SIZE=4", "WORLD_SIZE is 4 and OMPI_COMM_WORLD_SIZE is 8" },
		{ OMPI " PMIX_RANK=2", "OMPI_COMM_WORLD_RANK is 3 and PMIX_RANK is 2" },
		{ "PMI_RANK=1",
		  "PMI_RANK is 1 in the environment, but the number of ranks is not set" },
		{ "PMIX_RANK=1", "set PACELINE_SIZE" },
		{ "PMIX_RANK=1 PACELINE_SIZE=1", "the rank is 1 and the size is 1" },
		/* Slurm speaks of other ranks: its size is not taken */
		{ "PMIX_RANK=1 " SLURM, "but the number of ranks is not set" },
	};

	for (size_t i = 0; i < PL_LEN(bad); i++) {
		struct pl_launch l;
		int rc = find(bad[i].env, &l);

		if (!ok(rc == PL_EUSAGE && strstr(err.msg, bad[i].says), "refused: %s",
			bad[i].says))
			printf("# %d %s\n", rc, err.msg);
	}
}

/* What tells one job from another, and whether its ranks are known to be apart. */
static void jobs(void)
{
	static const struct {
		const char *one, *other;
		bool same;
	} c[] = {
		{ "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1",
		  "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", true },
		{ TORCH, TORCH " TORCHELASTIC_RESTART_COUNT=1", false },
		{ SLURM " SLURM_JOB_ID=7", SLURM " SLURM_JOB_ID=8", false },
		{ "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=0 SLURM_JOB_ID=7",
		  SLURM " SLURM_JOB_ID=7", true },
		{ "SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_STEP_ID=1 SLURM_JOB_ID=7",
		  SLURM " SLURM_JOB_ID=7", false },
		{ OMPI " OMPI_MCA_ess_base_jobid=5 PMIX_NAMESPACE=5",
		  OMPI " OMPI_MCA_ess_base_jobid=5 PMIX_NAMESPACE=5", true },
		{ OMPI " OMPI_MCA_ess_base_jobid=5 PMIX_NAMESPACE=5",
		  OMPI " OMPI_MCA_ess_base_jobid=5 PMIX_NAMESPACE=6", false },
		{ OMPI " OMPI_MCA_ess_base_jobid=5", OMPI " PMIX_NAMESPACE=5", false },
	};
	static const struct {
		const char *env;
		bool several_hosts;
	} s[] = {
		{ OMPI, true },
		{ TORCH, true },
		{ "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", false },
		{ "PMI_RANK=0 PMI_SIZE=2", false },
		{ SLURM, false },
		{ SLURM " SLURM_STEP_NUM_NODES=1", false },
		{ SLURM " SLURM_STEP_NUM_NODES=2", true },
		{ "PACELINE_RANK=0 PACELINE_SIZE=2 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2", false },
	};
	struct pl_launch a, b;

	for (size_t i = 0; i < PL_LEN(c); i++)
		ok(find(c[i].one, &a) == 0 && find(c[i].other, &b) == 0 && a.job && b.job &&
			   (a.job == b.job) == c[i].same,
		   "%s jobs: %s, %s", c[i].same ? "the same" : "two", c[i].one, c[i].other);
	ok(find("PMI_RANK=0 PMI_SIZE=2", &a) == 0 && !a.job, "a job without a number");
	for (size_t i = 0; i < PL_LEN(s); i++)
		ok(find(s[i].env, &a) == 0 && a.several_hosts == s[i].several_hosts, "%s hosts: %s",
		   s[i].several_hosts ? "several" : "no other", s[i].env);
}

#define JOB " SLURM_JOB_ID=7"

static void take_rank(struct pl_launch *l, int rank)
{
	char text[200];

	snprintf(text, sizeof(text), "SLURM_PROCID=%d SLURM_NTASKS=2 SLURM_STEP_ID=0" JOB, rank);
	if (find(text, l) < 0)
		printf("# %s\n", err.msg);
	err.code = 0;
}

static mode_t mode_of(const char *folder, const char *file)
{
	char path[400];
	struct stat st = { 0 };

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	return lstat(path, &st) == 0 ? st.st_mode & 0777 : 0;
}

static void share(void)
{
	struct pl_launch zero, one;

	take_rank(&zero, 0);
	take_rank(&one, 1);
	is_i64(pl_comm_launch_share(&one, 20000000, &err), PL_EIO, "rank 0 is waited for");
	ok(strstr(err.msg, "rank 0 never came") && strstr(err.msg, "PACELINE_MEET"),
	   "... and missed, with a remedy");
	take_rank(&one, 1);
	is_i64(pl_comm_launch_share(&zero, 1, &err), 0, "rank 0 makes a token");
	is_i64(pl_comm_launch_share(&one, 1, &err), 0, "rank 1 takes it");
	ok(strlen(zero.token) == 64 && !strcmp(zero.token, one.token) &&
		   !strcmp(zero.meet, one.meet) && !strncmp(zero.meet, "dir:", 4),
	   "it is the same, and where to meet");
	is_i64(mode_of(zero.folder, "."), 0700, "the folder is ours");
	is_i64(mode_of(zero.folder, "token"), 0600, "so is the token");
	pl_comm_launch_unshare(&one);
	is_i64(mode_of(zero.folder, "token"), 0600, "rank 1 takes nothing away");
	chmod(zero.folder, 0755);
	take_rank(&one, 1);
	ok(pl_comm_launch_share(&one, 1, &err) == PL_EIO && strstr(err.msg, "mode 755"),
	   "a folder that others may enter is none");
	err.code = 0;
	chmod(zero.folder, 0700);
	pl_comm_launch_unshare(&zero);
	is_i64(mode_of(zero.folder, "."), 0, "rank 0 removes all");
	take_rank(&one, 0);
	if (symlink("/", zero.folder) < 0)
		printf("# no symbolic link\n");
	is_i64(pl_comm_launch_share(&one, 1, &err), PL_EIO, "nor is a symbolic link");
	err.code = 0;
	unlink(zero.folder);
	take_rank(&one, 0);
	one.several_hosts = true;
	ok(pl_comm_launch_share(&one, 1, &err) == PL_EUSAGE && strstr(err.msg, "PACELINE_TOKEN"),
	   "hosts that share no folder");
	err.code = 0;
	snprintf(one.meet, sizeof(one.meet), "dir:%s", getenv("TMPDIR"));
	ok(pl_comm_launch_share(&one, 1, &err) == 0 && !strcmp(one.folder, zero.folder),
	   "and those that do");
	pl_comm_launch_unshare(&one);
}

/* Nobody knows here whether a process of another host has ended. */
static void of_another_host(void)
{
	struct pl_launch zero, again, one;
	char text[256], token[128] = "";
	FILE *f;

	take_rank(&zero, 0);
	is_i64(pl_comm_launch_share(&zero, 1, &err), 0, "a folder");
	snprintf(text, sizeof(text), "%s/token", zero.folder);
	f = fopen(text, "w");
	if (f) {
		fprintf(f, "paceline-token 1 abc 7 8 %064d\n", 9);
		fclose(f);
	}
	take_rank(&again, 0);
	ok(pl_comm_launch_share(&again, 1, &err) == PL_EIO &&
		   strstr(err.msg, "process 7, of another") && strstr(err.msg, "remove the folder"),
	   "a token of another host stays, with a remedy");
	err.code = 0;
	take_rank(&one, 1);
	is_i64(pl_comm_launch_share(&one, 1, &err), 0, "... and is taken");
	ok(pl_comm_launch_token(&one, token, sizeof(token)) && !strcmp(token, one.token),
	   "... and read again");
	unlink(text);
	ok(!pl_comm_launch_token(&one, token, sizeof(token)) && !strcmp(token, one.token),
	   "... until there is none");
	pl_comm_launch_unshare(&zero);
	is_i64(mode_of(zero.folder, "."), 0, "nothing is left");
}

/* A token that a process left behind, and one of a process that lives. */
static void left_behind(void)
{
	struct pl_launch zero, one;
	char ready;
	int p[2];
	pid_t pid;

	if (pipe(p) < 0)
		abort();
	fflush(stdout);
	take_rank(&zero, 0);
	pid = fork();
	if (pid == 0) {
		ready = pl_comm_launch_share(&zero, 1, &err) == 0;
		if (write(p[1], &ready, 1) < 0)
			_exit(1);
		pause();
		_exit(0);
	}
	ok(read(p[0], &ready, 1) == 1 && ready, "another process is rank 0");
	take_rank(&one, 1);
	is_i64(pl_comm_launch_share(&one, 1, &err), 0, "its token is taken");
	ok(pl_comm_launch_share(&zero, 1, &err) == PL_EIO && strstr(err.msg, "another run"),
	   "there is no second rank 0");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	take_rank(&one, 1);
	is_i64(pl_comm_launch_share(&one, 20000000, &err), PL_EIO,
	       "the token of a dead process is none");
	take_rank(&zero, 0);
	take_rank(&one, 1);
	is_i64(pl_comm_launch_share(&zero, 1, &err), 0, "it is replaced");
	ok(pl_comm_launch_share(&one, 1, &err) == 0 && !strcmp(one.token, zero.token),
	   "by one that is taken");
	pl_comm_launch_unshare(&zero);
	is_i64(mode_of(zero.folder, "."), 0, "nothing is left");
}

int main(void)
{
	const char *tmp = getenv("TMP");

	setenv("TMPDIR", tmp ? tmp : ".", 1);
	found();
	meet();
	meet_in_slurm();
	refused();
	jobs();
	share();
	left_behind();
	of_another_host();
	clear();
	return done_testing();
}
