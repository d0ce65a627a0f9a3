/*
 * process.h - the recorder of a library that somebody loads into another program: where it writes,
 * which rank it is, and what happens at the end of the process.
 */
#ifndef PL_RECORD_PROCESS_H
#define PL_RECORD_PROCESS_H

#include "record/rec.h"

struct pl_process {
	struct pl_recorder *rec;
	int rank, size; /* -1, 0: unknown */
};
/* Is PACELINE_RECORD_DIR set, and did nothing fail so far? */
bool pl_process_wanted(void);
/*
 * The recorder of this process, opened by the first call: DIR/rankN.KIND.trace. `rank` and `size`
 * if the caller knows them, else -1 and 0: the variables of launchers say them. NULL: nothing is
 * recorded (said once on standard error if it is a failure). `first` prepares the new recorder. Any
 * thread.
 */
const struct pl_process *pl_process_open(const char *kind, int rank, int size,
					 void (*first)(struct pl_recorder *r));
/* The same if it is open already, else NULL. */
const struct pl_process *pl_process_now(void);
/* Is it open, and was it opened by this process? Not in the child of a fork, whose end must leave
 * alone what is its parent's. */
bool pl_process_is_this(void);
/* Once, at the end of the process, and earlier if nothing more comes. `lost`: events that found no
 * room elsewhere. */
void pl_process_close(uint64_t lost);
/* One line on standard error, once in a process. */
void pl_process_say(const char *kind, const char *text);

#endif
