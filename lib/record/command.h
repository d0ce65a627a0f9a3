/*
 * command.h - runs a command and records it: `trace -- COMMAND`, `replay -- COMMAND`.
 *
 * The command gets variables in its environment, by which programs load what records them: Python a
 * hook (hook.py), NCCL a profiler plugin, CUDA a library of CUPTI, the linker wrappers of MPI. All
 * of them write into one folder. paceline-trace(1), RECORDING, says what users see of it.
 */
#ifndef PL_RECORD_COMMAND_H
#define PL_RECORD_COMMAND_H

#include "core/cmd.h"
#include "record/variables.h"

#define PL_RECORD_STEPS 3 /* recorded, where the user says nothing */
#define PL_RECORD_SKIP	5 /* before them */

struct pl_record {
	int64_t steps, skip; /* -1: as above */
	int by;		     /* what tells the steps: index of PL_RECORD_BY */
	bool light, mpi;     /* mpi: load the library that records calls of MPI */
};
#define PL_RECORD_BY(S) "auto" S "optimizer" S "loader" S "profiler" S "calls"
/* The options of a program whose configuration has a `struct pl_record member`. */
#define PL_OPTS_RECORD(config, member)                                                             \
	{ 0,	      "record-steps",                                                              \
	  "N",	      "of a command: record N steps (default 3)",                                  \
	  PL_OPT_INT, offsetof(config, member.steps),                                              \
	  NULL },                                                                                  \
		{ 0,                                                                               \
		  "skip-steps",                                                                    \
		  "N",                                                                             \
		  "of a command: skip N steps before those that are recorded (default 5)",         \
		  PL_OPT_INT,                                                                      \
		  offsetof(config, member.skip),                                                   \
		  NULL },                                                                          \
		{ 0,                                                                               \
		  "steps-by",                                                                      \
		  "WHAT",                                                                          \
		  "of a command: count steps by auto, optimizer, loader, profiler, or calls of "   \
		  "the model",                                                                     \
		  PL_OPT_CHOICE,                                                                   \
		  offsetof(config, member.by),                                                     \
		  PL_RECORD_BY("|") },                                                             \
		{ 0,	       "light",                                                            \
		  NULL,	       "of a command: record less of each step, at less cost",             \
		  PL_OPT_FLAG, offsetof(config, member.light),                                     \
		  NULL },                                                                          \
	{                                                                                          \
		0, "mpi", NULL,                                                                    \
			"of a command: record calls of MPI (default; --no-mpi leaves out "         \
			"libpaceline-mpi.so, which some programs refuse)",                         \
			PL_OPT_FLAG, offsetof(config, member.mpi), NULL                            \
	}
/* For `defaults` of the program. */
static inline void pl_record_defaults(struct pl_record *r)
{
	r->steps = r->skip = -1;
	r->mpi = true;
}
/* Without a command, these options are mistakes; with one, operands before "--" are. argc: of all
 * operands, as `run` of the program gets them. */
int pl_record_check(const struct pl_record *r, const struct pl_common *c, int argc, char **argv,
		    struct pl_err *err) PL_MUST;

struct pl_recorded {
	int status;	  /* of the command, as a shell has it: 128+n for signal n */
	bool started;	  /* false: it could not be executed; then pl_record_run() failed */
	unsigned files;	  /* recordings in the folder */
	unsigned ranks;	  /* that recorded something */
	int64_t first, n; /* steps that all ranks have, and how many; n 0: not known */
	int64_t bytes;
	double cost; /* of recording, as a share of the step: the middle rank's; NAN: not measured
		      */
	int64_t plain_ns, recorded_ns; /* its median steps without and with recording */
	int64_t spread_ns; /* between the quartiles of both, added: less cannot be told */
};
/*
 * Make the folder, run the command with argv (which ends with NULL), wait for it, and look at what
 * it left. The command keeps the standard streams. The folder must be empty or not there; only
 * recordings stay in it, and a folder that was made here and has none is removed. Fails if the
 * command was not executed or if the folder cannot be used. Warnings say why something was not
 * recorded.
 */
int pl_record_run(const struct pl_record *o, const char *folder, char **argv,
		  const struct pl_log *log, struct pl_recorded *r, struct pl_err *err) PL_MUST;
/* One line without a newline: what was recorded. */
void pl_record_text(const struct pl_recorded *r, const char *folder, char *text, size_t size);

#endif
