/*
 * sqlscan - SQLite's own scan of an export of Nsight Systems: all columns of the tables that its
 * reader reads, one sqlite3_step() a row, and nothing else
 *
 * usage: sqlscan FILE
 *
 * Prints the number of rows.
 */
#include <stdio.h>

#include "io/sqlite.h"

int main(int argc, char **argv)
{
	static const char *const tables[] = { "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME",
					      "CUPTI_ACTIVITY_KIND_KERNEL",
					      "CUPTI_ACTIVITY_KIND_MEMCPY" };
	struct pl_err err = { 0 };
	struct pl_in *in = argc == 2 ? pl_in_open(argv[1], &err) : NULL;
	struct pl_sqlite *d = in ? pl_sqlite_open(in, &err) : NULL;
	long rows = 0;
	int rc = d ? 0 : -1;

	for (size_t i = 0; i < PL_LEN(tables) && rc >= 0; i++) {
		char sql[80];
		struct pl_sqlite_query *q;

		snprintf(sql, sizeof(sql), "SELECT * FROM %s", tables[i]);
		q = pl_sqlite_query(d, sql, &err);
		rc = q ? 0 : -1;
		while (q && (rc = pl_sqlite_next(q, &err)) > 0)
			rows++;
		pl_sqlite_query_free(q);
	}
	pl_sqlite_close(d);
	pl_in_close(in);
	if (rc < 0) {
		fprintf(stderr, "sqlscan: %s\n", argc == 2 ? err.msg : "usage: sqlscan FILE");
		return argc == 2 ? 3 : 2;
	}
	printf("%ld\n", rows);
	return 0;
}
