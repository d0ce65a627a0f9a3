/*
 * What synchronisation in an export of Nsight Systems waits for: its types, and the records of CUDA
 * events by number.
 *
 * A wait names the record of its event by eventSyncId. Exports without that column are older: there
 * it is the latest record of the event whose call came before the wait, since correlations ascend
 * in the order of calls. O(n log n) once, O(log n) a wait.
 */
#include "import/nsys.h"

/* The numbers of the types changed; the table that names them is in the export. */
static int read_types(struct pl_nsys *x, struct pl_nsys_waits *w, struct pl_err *err)
{
	static const struct {
		const char *word;
		int64_t type;
	} words[] = { { "WAIT_EVENT", PL_NSYS_SYNC_WAIT },
		      { "EVENT", PL_NSYS_SYNC_EVENT },
		      { "STREAM", PL_NSYS_SYNC_STREAM },
		      { "CONTEXT", PL_NSYS_SYNC_CONTEXT },
		      { "DEVICE", PL_NSYS_SYNC_CONTEXT } };
	struct pl_sqlite_query *q;
	int rc;

	for (int64_t i = 0; i < (int64_t)PL_LEN(w->type); i++)
		w->type[i] = i < PL_NSYS_SYNC_TYPES ? i : PL_NSYS_SYNC_OTHER;
	PL_CHECK(pl_nsys_select(x, "ENUM_CUPTI_SYNC_TYPE", "id,name", 2, NULL, &q, err));
	while ((rc = q ? pl_sqlite_next(q, err) : 0) > 0) {
		int64_t id = pl_sqlite_int(q, 0, -1);
		size_t n;
		const char *s = pl_sqlite_text(q, 1, &n);

		if (id < 0 || id >= (int64_t)PL_LEN(w->type) || !s)
			continue;
		w->type[id] = PL_NSYS_SYNC_OTHER;
		for (size_t i = 0; i < PL_LEN(words) && !w->type[id]; i++)
			if (strcasestr(s, words[i].word))
				w->type[id] = words[i].type;
	}
	pl_sqlite_query_free(q);
	return pl_nsys_keep(x, "ENUM_CUPTI_SYNC_TYPE", rc, err);
}

PL_COMPARATOR(by_number, struct pl_nsys_record, process, number, corr, stream);

static int read_records(struct pl_nsys *x, struct pl_nsys_waits *w, struct pl_err *err)
{
	static const char table[] = "CUPTI_ACTIVITY_KIND_CUDA_EVENT";
	struct pl_sqlite_query *q;
	int rc;

	w->by_sync_id =
		pl_sqlite_has_column(x->db, table, "eventSyncId") &&
		pl_sqlite_has_column(x->db, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "eventSyncId");
	PL_CHECK(pl_nsys_select(x, table,
				w->by_sync_id ? "globalPid,eventSyncId,correlationId,streamId"
					      : "globalPid,eventId,correlationId,streamId",
				4, NULL, &q, err));
	while ((rc = q ? pl_sqlite_next(q, err) : 0) > 0) {
		struct pl_nsys_record r = { pl_nsys_process_key(pl_sqlite_int(q, 0, 0)),
					    pl_sqlite_int(q, 1, -1), pl_sqlite_int(q, 2, -1),
					    pl_sqlite_int(q, 3, -1) };

		if (r.number < 0)
			continue;
		rc = pl_append(&w->record, &w->n_records, &w->cap_records, &r, sizeof(r), err);
		if (rc < 0)
			break;
	}
	pl_sqlite_query_free(q);
	if (w->n_records)
		pl_sort(w->record, w->n_records, sizeof(*w->record), by_number);
	return pl_nsys_keep(x, table, rc, err);
}

const struct pl_nsys_record *pl_nsys_waits_find(const struct pl_nsys_waits *w, int64_t process,
						int64_t number, int64_t corr)
{
	const struct pl_nsys_record want = { process, number, w->by_sync_id ? INT64_MAX : corr,
					     INT64_MAX };
	size_t i = 0;

	PL_LOWER_BOUND(i, w->n_records, by_number(&w->record[i], &want) <= 0);
	if (!i || number < 0 || w->record[i - 1].process != process ||
	    w->record[i - 1].number != number)
		return NULL;
	return &w->record[i - 1];
}

int pl_nsys_waits_read(struct pl_nsys *x, struct pl_nsys_waits *w, struct pl_err *err)
{
	PL_CHECK(read_types(x, w, err));
	return read_records(x, w, err);
}
