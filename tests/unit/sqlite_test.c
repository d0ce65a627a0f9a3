/* Tables of SQLite read from their pages: the rows that SQLite says, and damaged files. */
#include <stdlib.h>

#include "config.h"
#include "io/sqlite.h"
#include "tap.h"

#define TABLE	"NVTX_EVENTS"
#define COLUMNS "start,end,eventType,text,globalTid,textId"
#define WIDTH	6

/* All values of a query as text; a negative code. */
static int collect(struct pl_sqlite_query *q, struct pl_buf *out, struct pl_err *err)
{
	int rc;

	out->n = 0;
	while ((rc = pl_sqlite_next(q, err)) > 0)
		for (int c = 0; c < WIDTH && rc > 0; c++) {
			bool text = c == 3;
			size_t n = 0;
			const char *s = text ? pl_sqlite_text(q, c, &n) : NULL;

			rc = text ? pl_buf_printf(out, err, "%s:%zu ", s ? s : "-", n)
				  : pl_buf_printf(out, err, "%d:%lld ", pl_sqlite_null(q, c),
						  (long long)pl_sqlite_int(q, c, -77));
			rc = rc < 0 ? rc : 1;
			if (rc < 0)
				return rc;
		}
	return rc;
}

static int both(struct pl_sqlite *d, struct pl_buf *pages, struct pl_buf *sql, struct pl_err *err)
{
	struct pl_sqlite_query *q = NULL;
	int rc = pl_sqlite_table(d, TABLE, COLUMNS, &q, err);

	ok(rc >= 0 && q, "a table of plain rows");
	rc = q ? collect(q, pages, err) : -1;
	pl_sqlite_query_free(q);
	if (rc < 0)
		return rc;
	q = pl_sqlite_query(d, "SELECT " COLUMNS " FROM " TABLE, err);
	rc = q ? collect(q, sql, err) : -1;
	pl_sqlite_query_free(q);
	return rc;
}

static void whole(const char *path)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open(path, &err);
	struct pl_sqlite *d = in ? pl_sqlite_open(in, &err) : NULL;
	struct pl_buf pages = { 0 }, sql = { 0 };
	struct pl_sqlite_query *q = NULL;
	int rc = d ? both(d, &pages, &sql, &err) : -1;

	ok(!rc && pages.n > 20000, "all rows are read (%s)", err.msg);
	ok(pages.n == sql.n && !memcmp(pages.p, sql.p, sql.n),
	   "integers of each size, reals, texts, bytes, records on several pages: as SQLite says");
	ok(!pl_sqlite_table(d, "StringIds", "id,value", &q, &err) && !q,
	   "a table whose rowid is a column is left to SQLite");
	ok(!pl_sqlite_table(d, "no such", "id", &q, &err) && !q, "and one that is not there");
	pl_buf_fini(&pages);
	pl_buf_fini(&sql);
	pl_sqlite_close(d);
	pl_in_close(in);
}

/* Each 149th byte of the pages, changed: rows, or an error that names the table and the page. */
static void damaged(const char *path)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open(path, &err);
	struct pl_buf file = { 0 }, rows = { 0 };
	unsigned read = 0, refused = 0, other = 0;

	if (!in || pl_in_read_all(in, (size_t)1 << 20, &file, &err) < 0)
		return;
	for (size_t i = 1024; i < file.n; i += 149) {
		struct pl_err e = { 0 };
		struct pl_sqlite_query *q = NULL;
		uint8_t old = ((uint8_t *)file.p)[i];
		struct pl_in *m;
		struct pl_sqlite *d;

		((uint8_t *)file.p)[i] = (uint8_t)(old ^ 0x81);
		m = pl_in_open_mem("bad.sqlite", (const char *)file.p, file.n, &e);
		d = m ? pl_sqlite_open(m, &e) : NULL;
		if (!d || pl_sqlite_table(d, TABLE, COLUMNS, &q, &e) < 0 ||
		    (q && collect(q, &rows, &e) < 0))
			refused += strstr(e.msg, "bad.sqlite: ") && e.code == PL_EDATA;
		else
			read += q != NULL;
		other += e.code && e.code != PL_EDATA;
		pl_sqlite_query_free(q);
		pl_sqlite_close(d);
		pl_in_close(m);
		((uint8_t *)file.p)[i] = old;
	}
	ok(refused > 5, "damage of the pages is found (%u times)", refused);
	ok(read > 30, "or changes values alone (%u times)", read);
	ok(!other, "nothing else happens");
	pl_buf_fini(&file);
	pl_buf_fini(&rows);
	pl_in_close(in);
}

int main(void)
{
	const char *src = getenv("SRC");
	char path[4096];

	snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/nsys/wide.sqlite", src ? src : ".");
	if (!HAVE_SQLITE) {
		ok(true, "skipped: no SQLite");
		return done_testing();
	}
	whole(path);
	damaged(path);
	return done_testing();
}
