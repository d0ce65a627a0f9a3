/*
 * SQLite databases through libsqlite3, which is opened at run time.
 *
 * The file is opened as immutable, so that nothing is locked and no journal is looked for. A build
 * that did not find the library (WITH_SQLITE=0) opens none: PL_EABSENT.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "io/internal.h"
#include "io/sqlite.h"
#include "io/sqlite_rows.h"

bool pl_sqlite_probe(const uint8_t *p, size_t n)
{
	return n >= 16 && !memcmp(p, "SQLite format 3", 16);
}

#define LIBRARY "libsqlite3.so.0"

/* The part of SQLite's interface that is used, which never changes; held against its header below.
 */
struct sqlite3;
struct sqlite3_stmt;
enum {
	S_OK = 0,
	S_PERM = 3,
	S_NOMEM = 7,
	S_IOERR = 10,
	S_CANTOPEN = 14,
	S_ROW = 100,
	S_DONE = 101,
	S_NULL = 5,		/* a type of values */
	S_OPEN_READONLY = 1,	/* flags of open_v2() */
	S_OPEN_URI = 0x40,	/* the name is a URI */
	S_OPEN_NOMUTEX = 0x8000 /* one thread a database */
};

/* X(name, result, arguments) */
#define CALLS(X)                                                                                   \
	X(open_v2, int, (const char *, struct sqlite3 **, int, const char *))                      \
	X(close, int, (struct sqlite3 *))                                                          \
	X(errmsg, const char *, (struct sqlite3 *))                                                \
	X(prepare_v2, int,                                                                         \
	  (struct sqlite3 *, const char *, int, struct sqlite3_stmt **, const char **))            \
	X(step, int, (struct sqlite3_stmt *))                                                      \
	X(reset, int, (struct sqlite3_stmt *))                                                     \
	X(finalize, int, (struct sqlite3_stmt *))                                                  \
	X(bind_int64, int, (struct sqlite3_stmt *, int, long long))                                \
	X(bind_text, int, (struct sqlite3_stmt *, int, const char *, int, void (*)(void *)))       \
	X(column_type, int, (struct sqlite3_stmt *, int))                                          \
	X(column_int64, long long, (struct sqlite3_stmt *, int))                                   \
	X(column_text, const unsigned char *, (struct sqlite3_stmt *, int))                        \
	X(column_blob, const void *, (struct sqlite3_stmt *, int))                                 \
	X(column_bytes, int, (struct sqlite3_stmt *, int))
#define MEMBER(name, result, arguments) result(*name) arguments;
#define LOAD(name, result, arguments)	&&pl_symbol(lib, "sqlite3_" #name, &c->name)

struct calls {
	CALLS(MEMBER)
};
#if HAVE_SQLITE
#include <sqlite3.h>
#define SAME(name, result, arguments)                                                              \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&sqlite3_##name),                   \
						    __typeof__(((struct calls *)NULL)->name)),     \
		       "as in sqlite3.h: " #name);
CALLS(SAME)
_Static_assert(S_OK == SQLITE_OK && S_PERM == SQLITE_PERM && S_NOMEM == SQLITE_NOMEM &&
		       S_IOERR == SQLITE_IOERR && S_CANTOPEN == SQLITE_CANTOPEN &&
		       S_ROW == SQLITE_ROW && S_DONE == SQLITE_DONE && S_NULL == SQLITE_NULL &&
		       S_OPEN_READONLY == SQLITE_OPEN_READONLY && S_OPEN_URI == SQLITE_OPEN_URI &&
		       S_OPEN_NOMUTEX == SQLITE_OPEN_NOMUTEX,
	       "as in sqlite3.h");
#endif

struct pl_sqlite {
	struct calls c;
	const char *name; /* of the input, for messages */
	struct sqlite3 *db;
	struct sqlite3_stmt *table, *column; /* the questions of has_table(), has_column() */
	int fd;				     /* of the file, -1 none */
	bool own_fd;
};
struct pl_sqlite_query {
	struct pl_sqlite *d;
	struct sqlite3_stmt *s;
	struct pl_sqlite_rows *rows; /* instead of the statement */
};

/* The handle of the library is kept: programs end soon after. */
static int load(struct calls *c, const char *name, struct pl_err *err)
{
	void *lib = HAVE_SQLITE && !pl_fail_now() ? dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL) : NULL;

	if (lib CALLS(LOAD))
		return 0;
	if (!HAVE_SQLITE)
		return pl_fail(err, PL_EABSENT,
			       "%s: this is an SQLite database, and this build reads none; install "
			       "libsqlite3-dev, and build again",
			       name);
	return pl_fail(err, PL_EABSENT,
		       "%s: this is an SQLite database, and " LIBRARY
		       " is not there to read it; install it (Debian: libsqlite3-0)",
		       name);
}

/* SQLite's own memory is not counted, so that its failure is that of the open file. */
static int broken(struct pl_sqlite *d, int code, struct pl_err *err)
{
	switch (code & 0xff) {
	case S_NOMEM:
		return pl_fail(err, PL_ENOMEM, "%s: out of memory (SQLite)", d->name);
	case S_IOERR:
	case S_CANTOPEN:
	case S_PERM:
		return pl_fail(err, PL_EIO, "%s: SQLite cannot read it: %s", d->name,
			       d->db ? d->c.errmsg(d->db) : "no database");
	default:
		return pl_fail(err, PL_EDATA, "%s: SQLite refuses it: %s", d->name,
			       d->db ? d->c.errmsg(d->db) : "no database");
	}
}

/* A path as a URI, in which '?', '#' and '%' would mean something. */
static void quote(const char *path, char *uri, size_t size)
{
	size_t n = (size_t)snprintf(uri, size, "file:");

	for (; *path && n + 20 < size; path++)
		n += (size_t)snprintf(uri + n, size - n, strchr("?#%", *path) ? "%%%02X" : "%c",
				      (unsigned)*path);
	snprintf(uri + n, size - n, "?immutable=1");
}

static int open_path(struct pl_sqlite *d, const char *path, struct pl_err *err)
{
	static const char table[] = "SELECT 1 FROM sqlite_master WHERE type IN ('table', 'view') "
				    "AND name = ?1",
			  column[] = "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2";
	char uri[PATH_MAX + 64];
	int code;

	quote(path, uri, sizeof(uri));
	code = d->c.open_v2(uri, &d->db, S_OPEN_READONLY | S_OPEN_URI | S_OPEN_NOMUTEX, NULL);
	if (code == S_OK) /* reads the schema, so the file is open from here on */
		code = d->c.prepare_v2(d->db, table, -1, &d->table, NULL);
	if (code == S_OK)
		code = d->c.prepare_v2(d->db, column, -1, &d->column, NULL);
	return code == S_OK ? 0 : broken(d, code, err);
}

/* The temporary name is in the folder until SQLite has opened the file. */
static int open_copy(struct pl_sqlite *d, struct pl_in *in, struct pl_err *err)
{
	const char *folder = getenv("TMPDIR");
	char path[PATH_MAX];
	struct pl_out *out;
	int fd, rc;

	snprintf(path, sizeof(path), "%s/paceline-XXXXXX", folder && *folder ? folder : "/tmp");
	errno = EIO;
	fd = pl_fail_now() ? -1 : mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return pl_fail_sys(err, "%s: a temporary file", path);
	close(fd);
	out = pl_out_open(path, false, err);
	rc = out ? pl_out_finish(out, pl_out_copy(out, in, err), err) : err->code;
	if (rc >= 0)
		rc = open_path(d, path, err);
	if (rc >= 0)
		d->fd = open(path, O_RDONLY | O_CLOEXEC); /* -1: SQLite reads all tables */
	d->own_fd = d->fd >= 0;
	unlink(path);
	return rc;
}

struct pl_sqlite *pl_sqlite_open(struct pl_in *in, struct pl_err *err)
{
	struct pl_sqlite *d;
	struct stat st;
	char path[64];
	int rc;

	if (pl_alloc(&d, 1, sizeof(*d), err) < 0)
		return NULL;
	d->name = pl_in_name(in);
	d->fd = -1;
	rc = load(&d->c, d->name, err);
	if (rc < 0) {
		pl_free(d);
		return NULL;
	}
	if (in->fd >= 0 && !in->gz && !in->offset && !fstat(in->fd, &st) && S_ISREG(st.st_mode) &&
	    st.st_nlink) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", in->fd);
		rc = open_path(d, path, err);
		d->fd = in->fd;
	} else {
		rc = open_copy(d, in, err);
	}
	if (rc >= 0)
		return d;
	pl_sqlite_close(d);
	return NULL;
}

void pl_sqlite_close(struct pl_sqlite *d)
{
	if (!d)
		return;
	d->c.finalize(d->table);
	d->c.finalize(d->column);
	d->c.close(d->db);
	if (d->own_fd)
		close(d->fd);
	pl_free(d);
}

static bool ask(struct pl_sqlite *d, struct sqlite3_stmt *s, const char *a, const char *b)
{
	bool yes;

	d->c.reset(s);
	d->c.bind_text(s, 1, a, -1, NULL);
	if (b)
		d->c.bind_text(s, 2, b, -1, NULL);
	yes = d->c.step(s) == S_ROW;
	d->c.reset(s);
	return yes;
}

bool pl_sqlite_has_table(struct pl_sqlite *d, const char *table)
{
	return ask(d, d->table, table, NULL);
}

bool pl_sqlite_has_column(struct pl_sqlite *d, const char *table, const char *column)
{
	return ask(d, d->column, table, column);
}

struct pl_sqlite_query *pl_sqlite_query(struct pl_sqlite *d, const char *sql, struct pl_err *err)
{
	struct pl_sqlite_query *q;
	int code;

	if (pl_alloc(&q, 1, sizeof(*q), err) < 0)
		return NULL;
	q->d = d;
	code = pl_fail_now() ? S_NOMEM : d->c.prepare_v2(d->db, sql, -1, &q->s, NULL);
	if (code == S_OK)
		return q;
	broken(d, code, err);
	pl_free(q);
	return NULL;
}

/* ---- whole tables -------------------------------------------------------------------------- */

#define MAX_COLUMNS 128

/* The place of a column in a list of names separated by commas; -1: it is not there. */
static int place_in(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (int i = 0; *list; i++) {
		size_t k = strcspn(list, ",");

		if (k == n && !strncasecmp(list, name, n))
			return i;
		list += k + (list[k] == ',');
	}
	return -1;
}

/* false: it is no table of plain rows with all of its columns in each row. */
static bool plain_table(struct pl_sqlite *d, const char *name, const char *columns,
			struct pl_sqlite_table *t, int *slot)
{
	static const char root[] =
		"SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?1 AND "
		"sql NOT LIKE '%WITHOUT%ROWID%' AND sql NOT LIKE 'CREATE VIRTUAL%'",
			  list[] = "SELECT name, pk, hidden, dflt_value IS NOT NULL FROM "
				   "pragma_table_xinfo(?1) ORDER BY cid";
	struct sqlite3_stmt *s = NULL;
	bool plain = true;
	int code = d->c.prepare_v2(d->db, root, -1, &s, NULL);

	if (code == S_OK)
		d->c.bind_text(s, 1, name, -1, NULL);
	if (code == S_OK && (code = d->c.step(s)) == S_ROW)
		t->root = (uint32_t)d->c.column_int64(s, 0);
	d->c.finalize(s);
	if (code != S_ROW || !t->root || d->c.prepare_v2(d->db, list, -1, &s, NULL) != S_OK)
		return false;
	d->c.bind_text(s, 1, name, -1, NULL);
	while (plain && (code = d->c.step(s)) == S_ROW) {
		const char *column = (const char *)d->c.column_text(s, 0);

		plain = column && t->n_columns < MAX_COLUMNS && !d->c.column_int64(s, 1) &&
			!d->c.column_int64(s, 2) && !d->c.column_int64(s, 3);
		if (plain)
			slot[t->n_columns++] = place_in(columns, column);
	}
	d->c.finalize(s);
	return plain && code == S_DONE && t->n_columns;
}

int pl_sqlite_table(struct pl_sqlite *d, const char *table, const char *columns,
		    struct pl_sqlite_query **q, struct pl_err *err)
{
	int slot[MAX_COLUMNS], rc;
	struct pl_sqlite_table t = { .name = table, .slot = slot, .n_wanted = 1 };
	struct stat st;

	*q = NULL;
	if (d->fd < 0 || fstat(d->fd, &st) != 0 || !plain_table(d, table, columns, &t, slot))
		return 0;
	t.file_bytes = (uint64_t)st.st_size;
	for (const char *c = columns; *c; c++)
		t.n_wanted += *c == ',';
	PL_CHECK(pl_alloc(q, 1, sizeof(**q), err));
	(*q)->d = d;
	rc = pl_sqlite_rows_open(&t, d->fd, d->name, &(*q)->rows, err);
	if (rc >= 0 && (*q)->rows)
		return 0;
	pl_free(*q);
	*q = NULL;
	return rc;
}

void pl_sqlite_query_free(struct pl_sqlite_query *q)
{
	if (!q)
		return;
	pl_sqlite_rows_close(q->rows);
	q->d->c.finalize(q->s);
	pl_free(q);
}

void pl_sqlite_bind(struct pl_sqlite_query *q, int64_t v)
{
	q->d->c.reset(q->s);
	q->d->c.bind_int64(q->s, 1, v);
}

int pl_sqlite_next(struct pl_sqlite_query *q, struct pl_err *err)
{
	int code;

	if (q->rows)
		return pl_sqlite_rows_next(q->rows, err);
	code = q->d->c.step(q->s);
	return code == S_ROW ? 1 : code == S_DONE ? 0 : broken(q->d, code, err);
}

bool pl_sqlite_null(struct pl_sqlite_query *q, int column)
{
	return q->rows ? pl_sqlite_rows_null(q->rows, column)
		       : q->d->c.column_type(q->s, column) == S_NULL;
}

int64_t pl_sqlite_int(struct pl_sqlite_query *q, int column, int64_t none)
{
	if (q->rows)
		return pl_sqlite_rows_int(q->rows, column, none);
	return pl_sqlite_null(q, column) ? none : q->d->c.column_int64(q->s, column);
}

const char *pl_sqlite_text(struct pl_sqlite_query *q, int column, size_t *n)
{
	const char *s;

	if (q->rows)
		return pl_sqlite_rows_text(q->rows, column, n);
	s = (const char *)q->d->c.column_text(q->s, column);
	*n = s ? (size_t)q->d->c.column_bytes(q->s, column) : 0;
	return s;
}

const uint8_t *pl_sqlite_blob(struct pl_sqlite_query *q, int column, size_t *n)
{
	const uint8_t *p;

	if (q->rows)
		return (const uint8_t *)pl_sqlite_rows_text(q->rows, column, n);
	p = q->d->c.column_blob(q->s, column);
	*n = p ? (size_t)q->d->c.column_bytes(q->s, column) : 0;
	return p;
}
