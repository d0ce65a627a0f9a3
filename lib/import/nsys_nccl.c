/*
 * What NCCL says in an export of Nsight Systems, and the ranks of processes.
 *
 * NCCL marks each of its calls with an NVTX range that has a payload: communicator, size, peer. The
 * export has it as JSON text, or as bytes that the tables of payload schemas describe. A kernel is
 * launched in the range of its call; or, if calls were grouped, in the range of the outermost
 * ncclGroupEnd, which then stands for the calls of its group: with all their values if there is one
 * call, else with what the calls have in common and the sum of their sizes.
 *
 * The rank of a process is, in this order: its MPI rank; its rank in the largest communicator of
 * NCCL, unless something shows that this is a part of the job; the launcher's variable in the
 * recorded environment, if one process uses a device; the file's name, if one process uses a
 * device; the order of the devices, if each process has its own.
 */
#include "import/nsys.h"

enum { F_COMM, F_BYTES, F_SIZE, F_RANK, F_PEER, FIELDS };
static const char *const fields[FIELDS] = { "NCCL communicator ID", "Message size [bytes]",
					    "No. of ranks", "Rank", "Peer rank" };

struct payload {
	uint64_t v[FIELDS];
	unsigned have; /* bits */
};

static unsigned field_of(const char *s, size_t n)
{
	unsigned i = 0;

	while (i < FIELDS && (strlen(fields[i]) != n || memcmp(fields[i], s, n) != 0))
		i++;
	return i;
}

/* ---- payloads ------------------------------------------------------------------------------ */

/* Digits, perhaps with separators between thousands. */
static bool number(const char *s, size_t n, uint64_t *v)
{
	bool any = false;

	*v = 0;
	for (size_t i = 0; i < n; i++) {
		if (s[i] >= '0' && s[i] <= '9') {
			*v = *v * 10 + (uint64_t)(s[i] - '0');
			any = true;
		} else if (s[i] != ',' && s[i] != ' ') {
			return false;
		}
	}
	return any;
}

static void read_json(const char *s, size_t n, struct payload *p)
{
	enum pl_json_type t;
	struct pl_json j;
	unsigned f = FIELDS;

	pl_json_init(&j, s, n);
	while ((t = pl_json_next(&j)) != PL_JSON_END && t != PL_JSON_ERROR) {
		if (t == PL_JSON_KEY)
			f = field_of(j.text, j.len);
		else if ((t == PL_JSON_NUMBER || t == PL_JSON_STRING) && f < FIELDS &&
			 number(j.text, j.len, &p->v[f]))
			p->have |= 1u << f;
	}
}

#define HEADER 32 /* domain, flags, schema, flags; sizes of the payload and of all of it */

static void read_bytes(const struct pl_nsys *x, const uint8_t *b, size_t n, struct payload *p)
{
	int64_t schema = n >= HEADER ? (int64_t)pl_le32_get(b + 8) : -1;

	for (size_t i = 0; i < x->n_fields; i++) {
		const struct pl_nsys_field *f = &x->field[i];

		if (f->schema != schema || f->offset < 0 || f->offset > 4096 ||
		    (size_t)f->offset + f->bytes + HEADER > n)
			continue;
		b += HEADER + f->offset;
		p->v[f->what] = f->bytes == 8 ? pl_le64_get(b) : pl_le32_get(b);
		p->have |= 1u << f->what;
		b -= HEADER + f->offset;
	}
}

/* Fields of the payloads of NCCL; types of NVTX, of which only integers occur there. */
static int read_schemas(struct pl_nsys *x, struct pl_err *err)
{
	enum { INT = 5, UINT = 6, INT32 = 15, UINT32 = 16 };
	struct pl_sqlite_query *q;
	int rc;

	PL_CHECK(pl_nsys_select(x, "NVTX_PAYLOAD_SCHEMA_ENTRIES", "schemaId,type,name,offset", 3,
				NULL, &q, err));
	while ((rc = q ? pl_sqlite_next(q, err) : 0) > 0) {
		int64_t type = pl_sqlite_int(q, 1, 0);
		size_t n;
		const char *s = pl_sqlite_text(q, 2, &n);
		struct pl_nsys_field f = { .schema = pl_sqlite_int(q, 0, -1),
					   .offset = pl_sqlite_int(q, 3, 0),
					   .what = (uint8_t)(s ? field_of(s, n) : FIELDS) };

		f.bytes = type == INT || type == UINT || type == INT32 || type == UINT32 ? 4 : 8;
		if (f.what < FIELDS && (rc = pl_append(&x->field, &x->n_fields, &x->cap_fields, &f,
						       sizeof(f), err)) < 0)
			break;
	}
	pl_sqlite_query_free(q);
	return pl_nsys_keep(x, "NVTX_PAYLOAD_SCHEMA_ENTRIES", rc, err);
}

/* ---- ranges -------------------------------------------------------------------------------- */

struct group { /* calls between ncclGroupStart and ncclGroupEnd of one thread */
	int64_t global;
	unsigned depth, calls;
	struct pl_comm_op op; /* what they have in common */
};
struct groups {
	struct group *v;
	size_t n, cap;
};

static int group_of(struct groups *g, int64_t global, struct group **out, struct pl_err *err)
{
	const struct group new = { .global = global };
	size_t i = 0;

	while (i < g->n && g->v[i].global != global)
		i++;
	if (i == g->n)
		PL_CHECK(pl_append(&g->v, &g->n, &g->cap, &new, sizeof(new), err));
	*out = &g->v[i];
	return 0;
}

static const struct pl_nsys_comm *find_comm(const struct pl_nsys *x, uint32_t process, uint64_t id)
{
	for (size_t i = x->n_comms; i-- > 0;)
		if (x->comm[i].id == id && x->comm[i].process == process)
			return &x->comm[i];
	return NULL;
}

/* The size of the whole buffer, as in nccl-tests; NCCL says the part of one rank. */
static int64_t whole(const struct pl_nsys_comm *c, const char *coll, uint64_t bytes)
{
	if (bytes > INT64_MAX / 2)
		return -1;
	if (!coll ||
	    (strcmp(coll, "allgather") && strcmp(coll, "reduce_scatter") &&
	     strcmp(coll, "alltoall") && strcmp(coll, "gather") && strcmp(coll, "scatter")))
		return (int64_t)bytes;
	if (!c || c->size <= 0 || bytes > (uint64_t)(INT64_MAX / 2 / c->size))
		return -1;
	return (int64_t)bytes * c->size;
}

/* A call within a group. */
static void join(struct group *g, const struct pl_comm_op *op)
{
	if (!g->calls++) {
		g->op = *op;
		return;
	}
	if (g->op.coll != op->coll)
		g->op.coll = NULL;
	if (g->op.group != op->group)
		g->op.group = PL_NONE;
	g->op.bytes = g->op.bytes < 0 || op->bytes < 0 ? -1 : pl_add_sat(g->op.bytes, op->bytes);
	g->op.peer = -1;
}

/* The rank in the job of a member of a communicator; -1 unknown. */
static int64_t global_rank(const struct pl_nsys *x, uint64_t id, uint64_t rank)
{
	for (size_t i = 0; i < x->n_comms; i++) {
		const struct pl_nsys_comm *c = &x->comm[i];

		if (c->id == id && x->job && c->size == x->job)
			return rank < (uint64_t)x->job ? (int64_t)rank : -1;
		if (c->id == id && c->rank >= 0 && (uint64_t)c->rank == rank)
			return x->process[c->process].rank;
	}
	return -1;
}

static int call(struct pl_nsys *x, struct groups *groups, const char *name, size_t n,
		int64_t global, uint32_t process, pl_ns t0, pl_ns t1, const struct payload *p,
		struct pl_err *err)
{
	struct pl_comm_op op = { .t0 = t0,
				 .t1 = t1,
				 .rf = -1,
				 .bytes = -1,
				 .elements = -1,
				 .seq = -1,
				 .peer = -1,
				 .group = PL_NONE,
				 .tensors = -1 };
	struct group *g;
	char text[24];

	PL_CHECK(group_of(groups, global, &g, err));
	if (n >= 14 && !memcmp(name, "ncclGroupStart", 14)) {
		g->calls = g->depth++ ? g->calls : 0;
		return 0;
	}
	if (n >= 12 && !memcmp(name, "ncclGroupEnd", 12)) {
		g->depth -= g->depth > 0;
		if (g->depth || !g->calls)
			return 0;
		op = g->op;
		op.t0 = t0;
		op.t1 = t1;
	} else {
		op.coll = pl_trace_coll_from_name(name, n);
		if (!op.coll)
			return 0;
		if (p->have >> F_COMM & 1) {
			snprintf(text, sizeof(text), "%llu", (unsigned long long)p->v[F_COMM]);
			PL_CHECK(pl_import_comm_text(x->rows.comm, text, strlen(text), &op.group,
						     err));
			if (p->have >> F_PEER & 1)
				op.peer = global_rank(x, p->v[F_COMM], p->v[F_PEER]);
		}
		if (p->have >> F_BYTES & 1)
			op.bytes =
				whole(find_comm(x, process, p->v[F_COMM]), op.coll, p->v[F_BYTES]);
		if (g->depth)
			join(g, &op);
	}
	return pl_import_comm_add_op(x->rows.comm, x->process[process].key, pl_nsys_tid(global),
				     &op, err);
}

/* A communicator is made: by each of its members. */
static int note_comm(struct pl_nsys *x, uint32_t process, const struct payload *p,
		     struct pl_err *err)
{
	const struct pl_nsys_comm c = { process, p->v[F_COMM], (int32_t)p->v[F_SIZE],
					(int32_t)p->v[F_RANK] };
	const unsigned all = 1u << F_COMM | 1u << F_SIZE | 1u << F_RANK;

	if ((p->have & all) != all || p->v[F_SIZE] > 1 << 24 || p->v[F_RANK] >= p->v[F_SIZE] ||
	    find_comm(x, process, c.id))
		return 0;
	return pl_append(&x->comm, &x->n_comms, &x->cap_comms, &c, sizeof(c), err);
}

#define NVTX "start,end,text,textId,globalTid,jsonText,jsonTextId,binaryData"

static int walk(struct pl_nsys *x, struct groups *groups, bool comms, bool *any, struct pl_err *err)
{
	/* the ranges are few among all of NVTX; groups need them in order */
	bool by_text = pl_sqlite_has_column(x->db, "NVTX_EVENTS", "text");
	bool by_id = pl_sqlite_has_column(x->db, "NVTX_EVENTS", "textId");
	const char *where =
		by_text && by_id
			? "WHERE text GLOB 'nccl*' OR textId IN (SELECT id FROM StringIds WHERE "
			  "value GLOB 'nccl*') ORDER BY start"
		: by_id ? "WHERE textId IN (SELECT id FROM StringIds WHERE value GLOB 'nccl*') "
			  "ORDER BY start"
			: "WHERE text GLOB 'nccl*' ORDER BY start";
	struct pl_sqlite_query *q = NULL;
	struct pl_buf name = { 0 };
	int rc;

	if (by_text || by_id)
		PL_CHECK(pl_nsys_select(x, "NVTX_EVENTS", NVTX, 2, where, &q, err));
	while ((rc = q ? pl_sqlite_next(q, err) : 0) > 0) {
		struct payload p = { .have = 0 };
		const uint8_t *bytes;
		uint32_t process;
		const char *s;
		size_t n;

		*any = true;
		if (pl_sqlite_null(q, 0) || pl_sqlite_null(q, 1) || pl_sqlite_null(q, 4))
			continue;
		s = pl_sqlite_text(q, 5, &n);
		if (s)
			read_json(s, n, &p);
		bytes = s ? NULL : pl_sqlite_blob(q, 7, &n);
		if (bytes)
			read_bytes(x, bytes, n, &p);
		PL_TRY(pl_nsys_process(x, pl_sqlite_int(q, 4, 0), &process, err));
		if (comms) {
			PL_TRY(note_comm(x, process, &p, err));
			continue;
		}
		s = pl_sqlite_text(q, 2, &n);
		name.n = 0;
		if (!s) {
			pl_sqlite_bind(x->string, pl_sqlite_int(q, 3, -1));
			PL_TRY(pl_sqlite_next(x->string, err));
			s = rc ? pl_sqlite_text(x->string, 0, &n) : NULL;
		}
		PL_TRY(pl_buf_put(&name, s ? s : "", s ? n : 0, err));
		PL_TRY(call(x, groups, (const char *)name.p, name.n, pl_sqlite_int(q, 4, 0),
			    process, pl_sqlite_int(q, 0, 0), pl_sqlite_int(q, 1, 0), &p, err));
	}
out:
	pl_sqlite_query_free(q);
	pl_buf_fini(&name);
	return pl_nsys_keep(x, "NVTX_EVENTS", rc, err);
}

/* ---- ranks --------------------------------------------------------------------------------- */

static int mpi_ranks(struct pl_nsys *x, struct pl_err *err)
{
	struct pl_sqlite_query *q;
	uint32_t process;
	int rc;

	PL_CHECK(pl_nsys_select(x, "MPI_RANKS", "globalTid,rank", 2, NULL, &q, err));
	while ((rc = q ? pl_sqlite_next(q, err) : 0) > 0) {
		int64_t rank = pl_sqlite_int(q, 1, -1);

		rc = pl_nsys_process(x, pl_sqlite_int(q, 0, 0), &process, err);
		if (rc < 0)
			break;
		if (rank >= 0 && rank < INT32_MAX)
			x->process[process].rank = (int32_t)rank;
	}
	pl_sqlite_query_free(q);
	return pl_nsys_keep(x, "MPI_RANKS", rc, err);
}

/* The devices of the processes; returns the number of processes that have one. */
static int devices(struct pl_nsys *x, struct pl_err *err)
{
	struct pl_sqlite_query *q;
	uint32_t process;
	int rc, n = 0;

	PL_CHECK(pl_nsys_select(x, "CUPTI_ACTIVITY_KIND_KERNEL", "globalPid,deviceId", 2,
				"GROUP BY globalPid, deviceId ORDER BY globalPid, deviceId", &q,
				err));
	while ((rc = q ? pl_sqlite_next(q, err) : 0) > 0) {
		rc = pl_nsys_process(x, pl_sqlite_int(q, 0, 0), &process, err);
		if (rc < 0)
			break;
		if (x->process[process].device < 0)
			x->process[process].device = pl_sqlite_int(q, 1, -1);
	}
	pl_sqlite_query_free(q);
	rc = pl_nsys_keep(x, "CUPTI_ACTIVITY_KIND_KERNEL", rc, err);
	for (size_t i = 0; i < x->n_processes; i++)
		n += x->process[i].device >= 0;
	return rc < 0 ? rc : n;
}

/* The number after NAME= in a recorded environment, as a whole word; -1: none. */
static int64_t variable(const char *s, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = s; (p = strstr(p, name)); p += n) {
		const char *q = p + n;
		int64_t v;

		if (*q++ != '=' || (p > s && (p[-1] == '_' || (p[-1] | 0x20) >= 'a')))
			continue;
		q += *q == '"' || *q == '\'';
		v = pl_take_digits(&q);
		if (v >= 0 && v < INT32_MAX)
			return v;
	}
	return -1;
}

static int environment(struct pl_nsys *x, int64_t *rank, int64_t *world, struct pl_err *err)
{
	static const char *const names[][2] = { { "RANK", "WORLD_SIZE" },
						{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" },
						{ "PMI_RANK", "PMI_SIZE" },
						{ "PMIX_RANK", "PMIX_SIZE" },
						{ "SLURM_PROCID", "SLURM_NTASKS" } };
	struct pl_sqlite_query *q;
	size_t n;
	int rc;

	*rank = -1;
	PL_CHECK(pl_nsys_select(x, "TARGET_INFO_SYSTEM_ENV", "value", 1,
				"WHERE value LIKE '%RANK=%' OR value LIKE '%PROCID=%'", &q, err));
	while ((rc = q ? pl_sqlite_next(q, err) : 0) > 0) {
		const char *s = pl_sqlite_text(q, 0, &n);

		for (size_t i = 0; s && i < PL_LEN(names) && *rank < 0; i++) {
			*rank = variable(s, names[i][0]);
			if (*rank >= 0)
				*world = pl_max_i64(variable(s, names[i][1]), *world);
		}
	}
	pl_sqlite_query_free(q);
	return pl_nsys_keep(x, "TARGET_INFO_SYSTEM_ENV", rc, err);
}

/* Several processes on this host, each with a device: their order is that of the devices. */
static void by_device(struct pl_nsys *x)
{
	for (size_t i = 0; i < x->n_processes; i++) {
		int32_t rank = 0;

		if (x->process[i].device < 0)
			continue;
		for (size_t k = 0; k < x->n_processes; k++) {
			if (k != i && x->process[k].device == x->process[i].device)
				return;
			rank += x->process[k].device >= 0 &&
				x->process[k].device < x->process[i].device;
		}
		x->process[i].rank = rank;
		x->process[i].picked = true;
	}
	pl_say(x->o->log, PL_LOG_WARN,
	       "%s: nothing says the ranks of its processes; they are numbered by their devices, "
	       "which is right for a job on one host",
	       x->report.file);
}

/* What the export itself does not say of the process at `index`, the only one of the job. The
 * communicators count unless the environment names more ranks than they have. */
static int alone(struct pl_nsys *x, uint32_t index, int64_t *world, struct pl_err *err)
{
	struct pl_nsys_process *p = &x->process[index];
	int64_t rank = p->rank, size = 0;
	int32_t picked;
	bool member = rank < 0 && p->member >= 0;

	if (rank < 0)
		PL_CHECK(environment(x, &rank, &size, err));
	x->job = x->job < pl_max_i64(size, rank + 1) ? 0 : x->job;
	member = member && x->job;
	rank = member ? p->member : rank;
	if (member && x->job != size) /* perhaps a part of the job */
		PL_CHECK(pl_import_member_rank(x->o, x->report.file, p->member, x->job, &picked,
					       err));
	else
		PL_CHECK(pl_import_pick_rank(x->o, x->report.file, (int32_t)rank, &picked, err));
	if (member && picked != p->member)
		x->job = 0;
	*world = x->job ? x->job : size;
	p->picked = picked != rank || picked < 0;
	p->rank = picked;
	return 0;
}

/* The size of the communicators of the whole job; 0: none are known. They are the largest ones,
 * unless those contradict each other, ranks that are known, or the number of processes. */
static int32_t job_size(struct pl_nsys *x, int32_t processes)
{
	int32_t size = 0;
	bool fits = true;

	for (size_t i = 0; i < x->n_comms; i++)
		size = x->comm[i].size > size ? x->comm[i].size : size;
	for (size_t i = 0; i < x->n_comms; i++) {
		struct pl_nsys_process *p = &x->process[x->comm[i].process];
		int32_t rank = x->comm[i].rank;

		if (x->comm[i].size != size)
			continue;
		fits = fits && (p->member < 0 || p->member == rank) &&
		       (p->rank < 0 || p->rank == rank);
		p->member = rank;
	}
	for (size_t i = 0; i < x->n_processes && fits; i++)
		for (size_t k = 0; k < i && x->process[i].member >= 0; k++)
			fits = fits && x->process[k].member != x->process[i].member;
	if (fits && size >= processes)
		return size;
	if (size)
		pl_say(x->o->log, PL_LOG_WARN,
		       "%s: the largest communicators of NCCL, of %d ranks, are parts of the job: "
		       "the ranks of its processes do not come from them",
		       x->report.file, (int)size);
	return 0;
}

static int ranks(struct pl_nsys *x, int64_t *world, struct pl_err *err)
{
	uint32_t only = PL_NONE;
	bool any = false;
	int n;

	PL_CHECK(mpi_ranks(x, err));
	n = devices(x, err);
	PL_CHECK(n);
	x->job = job_size(x, n);
	*world = x->job;
	for (uint32_t i = 0; i < x->n_processes; i++)
		if (x->n_processes == 1 || (n == 1 && x->process[i].device >= 0))
			only = i;
	if (only != PL_NONE)
		PL_CHECK(alone(x, only, world, err));
	for (uint32_t i = 0; i < x->n_processes; i++) {
		struct pl_nsys_process *p = &x->process[i];

		if (p->rank < 0 && i != only && x->job)
			p->rank = p->member;
		any |= p->rank >= 0;
	}
	if (n > 1 && !any)
		by_device(x);
	return 0;
}

int pl_nsys_nccl(struct pl_nsys *x, int64_t *world, struct pl_err *err)
{
	struct groups groups = { 0 };
	bool any = false;
	int rc;

	PL_TRY(read_schemas(x, err));
	PL_TRY(walk(x, &groups, true, &any, err));
	PL_TRY(ranks(x, world, err)); /* peers are named by them */
	rc = any ? walk(x, &groups, false, &any, err) : 0;
out:
	pl_free(groups.v);
	return rc;
}
