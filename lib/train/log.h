/*
 * log.h - the rows of a training as they come: CSV, JSON lines, or events of TensorBoard.
 */
#ifndef PL_TRAIN_LOG_H
#define PL_TRAIN_LOG_H

#include "train/train.h"

struct pl_train_log;

/*
 * Opens a log whose name says its form: JSON lines if it ends in ".jsonl"; events in a new file of
 * the folder if it is a folder or ends in "/" (made if it is missing); else CSV. "-" is CSV on
 * standard output. A file that is there is replaced, or, with `append`, continued; a folder gets
 * one more file.
 */
int pl_train_log_open(const char *path, bool append, struct pl_train_log **l,
		      struct pl_err *err) PL_MUST;
/* Can such a log be written? It changes no file that is there. */
int pl_train_log_check(const char *path, struct pl_err *err) PL_MUST;
/* One row, passed on at once; `begin`: when training began. */
int pl_train_log_row(struct pl_train_log *l, const struct pl_train_row *row, pl_ns begin,
		     struct pl_err *err) PL_MUST;
/* Frees the log in every case; NULL is allowed. */
int pl_train_log_close(struct pl_train_log *l, struct pl_err *err) PL_MUST;

#endif
