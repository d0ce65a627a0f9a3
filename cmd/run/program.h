/* program.h - what the files of the program `run` share. */
#ifndef RUN_PROGRAM_H
#define RUN_PROGRAM_H

#include <stdatomic.h>

#include "core/cmd.h"
#include "train/train.h"

#define RANKS_MAX 1024

enum format { AS_TEXT, AS_JSON, AS_CSV, AS_SVG };

struct config {
	struct pl_common c; /* first */
	int to;
	int64_t ranks;	   /* 0: as the job or the launcher says */
	const char *hosts; /* as the job says */
	int servers;	   /* processes besides the ranks, which come first (struct pl_engine) */
	bool again;	   /* this is a server in place of one that was killed */
	bool is_parent;	   /* this process forked others, which have ended */
	struct comparison *row; /* of --policies: in place of a report; NULL */
	int *memory;	    /* [servers]: files without a name of forked processes; NULL: none */
	atomic_bool *ended; /* [processes], if they were forked: shared memory; NULL */
	const char *plan, *trace, *report, *checkpoint, *checkpoint_best, *resume, *export_to,
		*import_from;
	const char *device, *transport, *meet, *bind, *bench;
	struct pl_list set, link, pace, op, log;
	const char *policies, *speeds, *rates;
	double target_loss;
	int64_t seeds;
	bool eval, layers, kernels;
	int64_t threads; /* of a rank; 0: as many as cores, below: as the job says */
	pl_ns timeout_ns;
	int64_t min_size, max_size, iterations, networks;
	struct pl_launch launch; /* what the environment says */
};

/* ---- ranks.c: one process or several --------------------------------------------------------- */

/* The signal that asked for the end, 0: none. */
extern atomic_int stop_signal;
void catch_signals(void); /* from now on SIGINT and SIGTERM ask; before, they end the process */
/* Under Slurm the process ends only when its output was read. */
void flush_before_exit(void);
/* Looks for a launcher, which says how many ranks there are and where they meet, into *c. */
int read_launcher(struct config *c, struct pl_err *err) PL_MUST;
/* The host of a rank: one that the job or PACELINE_HOST imitates; NULL: the real one, also of
 * servers. */
#define HOST_MAX 32
const char *host_of_rank(const struct config *c, const struct pl_launch *p, char text[HOST_MAX]);
/*
 * Starts the ranks: as many as the launcher or -n says, else `default_ranks`. In each of them
 * `work` is called, and its result returned. Their parent process waits, and fails if one failed.
 */
int start_ranks(struct config *c, int64_t default_ranks,
		int (*work)(void *arg, const struct pl_launch *p, struct pl_err *err), void *arg,
		struct pl_err *err) PL_MUST;
/* Ends this process by a signal, so that the shell learns which one ended the job. start_ranks()
 * does it, but not in the parent under --policies, which has a table to write. */
void end_by(int sig);
struct device;
/* Where the processes of a job meet whose engine connects them. shape: to be freed by pl_free();
 * host: memory that lasts as long as *m. */
int find_meeting(const struct config *c, const struct pl_launch *p, const struct pl_job *j,
		 struct device *d, struct pl_engine_meeting *m, struct pl_link_shape **shape,
		 char host[HOST_MAX], struct pl_err *err) PL_MUST;
/* Connects the ranks; *w is NULL if there is one rank. `j` gives links and transport. The ranks
 * send data that is on the device `d`. */
int open_world(const struct config *c, const struct pl_launch *p, const struct pl_job *j,
	       struct device *d, struct pl_tracer *t, struct pl_world **w,
	       struct pl_err *err) PL_MUST;

/* ---- job.c: what to do ----------------------------------------------------------------------- */

struct work {
	const struct config *c;
	struct pl_job job;
	struct pl_model model;
	struct pl_plan plan;
	struct pl_dataset data;
	bool planned;
};
int read_work(const struct config *c, const char *path, struct work *w, struct pl_err *err) PL_MUST;
void work_fini(struct work *w);
/* How many processes of -n or of the launcher train; 0: neither says it. */
int64_t count_ranks(const struct config *c, const struct pl_job *j);
/* Changes the job by the options; --bench has no other job. */
int apply_options(const struct config *c, struct pl_job *j, struct pl_err *err) PL_MUST;

/* ---- device.c: on which device ------------------------------------------------------------ */

struct device {
	const struct pl_backend *backend; /* NULL: the CPU, which the engine opens */
	void *ctx;
	enum pl_store store;
	int rank; /* of this process */
	unsigned grace_s;
};
/* servers: how many of the processes are none of the ranks. */
int device_open(const struct pl_job *j, const struct pl_launch *p, int servers, struct device *d,
		struct pl_err *err) PL_MUST;
/* The `lost` of pl_world_opts, with the device as its argument: an alarm ends the process after
 * grace_s if it has not ended by itself. */
void device_lost(void *device, const char *why);
void device_close(struct device *d);

/* ---- engines.c: what trains ------------------------------------------------------------------ */

/* The first engine that matches; plan: NULL if there is none. PL_EABSENT: none does. */
int find_engine(const struct pl_job *j, const struct pl_plan *plan, const struct pl_engine **e,
		struct pl_err *err) PL_MUST;

/* ---- train.c --------------------------------------------------------------------------------- */

int train(void *work, const struct pl_launch *p, struct pl_err *err) PL_MUST;

/* ---- report.c: what was measured ------------------------------------------------------------- */

struct result {
	const struct pl_train *t;
	const char *model;
	int signal;	 /* that ended the training before its time; 0: none */
	int64_t samples; /* of all ranks */
	double seconds, samples_per_s, heterogeneity;
	int workers;			/* ranks, or groups of them */
	struct pl_train_result *worker; /* of each */
};
/* Each rank brings its own result; afterwards all have those of all, and the sums of these. An
 * engine with groups of ranks has one of each group. */
int gather_workers(const struct pl_train *t, const struct pl_train_result *own,
		   const struct pl_launch *p, struct result *r, struct pl_err *err) PL_MUST;
/* Writes the report to path, as JSON or as text. */
int report_write(const struct result *r, const char *path, bool json, struct pl_err *err) PL_MUST;

/* Writes a table as the options say. */
struct pl_table;
int write_table(const struct config *c, const struct pl_table *t, struct pl_out *out,
		struct pl_err *err) PL_MUST;
/* The layers of the model with their work, to the output. */
int report_layers(const struct config *c, const struct pl_model *m, struct pl_err *err) PL_MUST;

/* ---- policies.c: --policies ------------------------------------------------------------------ */

/* --speeds as paces of the job. */
int apply_speeds(const struct config *c, struct pl_job *j, struct pl_err *err) PL_MUST;
/* The measurements of one training, in memory that it shares with the process that compares. */
struct comparison {
	bool done, reached, diverged;
	double h_measured, seconds_to_target, samples_to_target, samples_per_s, steps, commits,
		bytes_sent, compute_share, wait_share, staleness_mean, staleness_max, final_loss;
};
void comparison_fill(struct comparison *row, const struct result *r);
/* Trains the job under each policy, with each seed and each learning rate, one after another. */
int compare_policies(struct config *c, struct work *w, struct pl_err *err) PL_MUST;

/* ---- bench.c, plot.c ------------------------------------------------------------------------- */

/* The operations that --op names, as bits; without --op all. */
int bench_operations(const struct config *c, unsigned *ops, struct pl_err *err) PL_MUST;
int bench_comm(void *work, const struct pl_launch *p, struct pl_err *err) PL_MUST;

/* ---- kernels.c: --bench kernels and machine ----------------------------------------------------
 */

int bench_kernels(const struct config *c, struct pl_err *err) PL_MUST;
/* The same table for the step of a job, without times. */
int list_kernels(const struct config *c, const struct work *w, struct pl_err *err) PL_MUST;
int bench_machine(const struct config *c, struct pl_err *err) PL_MUST;
/* Loss against time and against steps, of one or several logs. */
int plot_logs(char **path, int n, struct pl_out *out, struct pl_err *err) PL_MUST;
/* plot_policies.c: is the file a table of --policies? All of such tables as one picture. */
bool plot_is_comparison(const char *path);
int plot_policies(char **path, int n, struct pl_out *out, struct pl_err *err) PL_MUST;

#endif
