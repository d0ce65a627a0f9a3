/*
 * import.h - readers of foreign formats. Each format has one file with one `struct pl_importer`.
 *
 * Importers are lenient: an event that cannot be read is skipped, counted, and reported once for
 * each class of fault. With `strict` the first fault is PL_EDATA with its position.
 */
#ifndef PL_IMPORT_H
#define PL_IMPORT_H

#include "trace/trace.h"

struct pl_import_stats {
	uint64_t events;    /* passed on */
	uint64_t bad;	    /* events or values that were skipped */
	uint64_t tolerated; /* values that are not valid JSON but were read (inf ...) */
	bool truncated;	    /* missing end bracket, cut gzip ... */
	bool empty;	    /* not a single byte, which is an error */
	char first[256];    /* "byte 1234: REASON" of the first bad event */
};

struct pl_et; /* execution traces read so far (tensor sizes), see et.c */

struct pl_import_opts {
	bool strict;
	bool salvage; /* for paceline's own stream: keep the whole blocks of a damaged file */
	struct pl_pool *pool;
	const struct pl_log *log;
	const char *rank_from; /* "name" | "info" | "order" | a pattern with %d; NULL: auto */
	int32_t order;	       /* number of this file among the inputs */
	int32_t process;       /* of this profile of XLA in its job, from 1; 0: not known */
	const char *columns;   /* --columns of an operation table, or NULL */
	struct pl_et *et;      /* may be NULL */
	/* a segment ends when its strings and their table exceed this; 0: PL_DICTIONARY_BYTES */
	size_t max_dictionary_bytes;
};

struct pl_importer {
	const char *name;    /* "kineto" */
	const char *summary; /* for --help and the man page */
	/* Rate the first bytes (inflated; 64 KiB or all): 0 not this format, 100 certain. */
	int (*probe)(const uint8_t *p, size_t n);
	int (*run)(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
		   struct pl_import_stats *st, struct pl_err *err);
};

extern const struct pl_importer *const pl_import_formats[]; /* NULL-terminated */
/* The format of a file that begins with these bytes; NULL: none that is known. */
const struct pl_importer *pl_import_probe(const uint8_t *p, size_t n);
const struct pl_importer *pl_import_find(const char *name);

/*
 * Inflate `raw` if it is a foreign gzip, as the probe functions expect. Takes `raw`; NULL: failure.
 */
struct pl_in *pl_import_open(struct pl_in *raw, struct pl_pool *pool, struct pl_err *err);

/*
 * Inflate if needed, recognise the format (or use `force`) and import: programs call only this
 * function. Takes `raw` (as opened, or from pl_import_open()) and closes it in every case.
 */
int pl_import_run(struct pl_in *raw, const struct pl_importer *force,
		  const struct pl_import_opts *o, struct pl_sink *sink, struct pl_import_stats *st,
		  struct pl_err *err) PL_MUST;

/* Rank and host from the name of a file: "rank_3.json.gz", "kineto_3",
 * "HOST_PID.TIME.pt.trace.json". If the name does not contain them: -1 and NULL. The host is a
 * pointer into `path` with *host_len. */
int32_t pl_import_name_rank(const char *path, const char **host, size_t *host_len);

/* Execution traces give sizes to the collectives of the profile with the same process id. */
struct pl_et *pl_import_et_new(struct pl_err *err);
void pl_import_et_free(struct pl_et *et);
bool pl_import_et_probe(const uint8_t *p, size_t n); /* inflated bytes */
/* Takes `in` as pl_import_run() does. */
int pl_import_et_load(struct pl_et *et, struct pl_in *in, const struct pl_import_opts *o,
		      struct pl_import_stats *st, struct pl_err *err) PL_MUST;

#endif
