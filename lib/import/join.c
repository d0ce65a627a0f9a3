/*
 * Joining device communication with the host events that describe it.
 *
 * A kernel of NCCL has a correlation. The runtime call with the same correlation is inside a
 * record_param_comms (and a range such as "nccl:all_reduce") of the host thread that launched the
 * kernel. This event, or the node of an execution trace at the same position, has the collective,
 * its size and its group. Operations are kept for each thread in order of start, launches in a hash
 * table. Both hold only events of communication, so their memory does not grow with the trace.
 *
 * Nodes of an execution trace pair with operations by record function id where the profile has it,
 * else by order: both are ordered by start. Both lists begin with the profile but may end
 * differently. A pair whose collective or number of elements differs is not used.
 */
#include <stdlib.h>

#include "import/internal.h"

struct thread {
	int64_t pid, tid;
	uint32_t *op; /* by start */
	size_t n, cap;
	bool sorted;
};

struct launch {
	uint32_t rpc, range; /* operation + 1, 0 none */
};

struct pl_comm {
	const char *path; /* of the input */
	const struct pl_log *log;
	struct pl_comm_op *op;
	size_t n_ops, cap_ops, n_mapped;
	struct thread *thread;
	size_t n_threads, cap_threads;
	uint32_t *slot; /* [track]: thread + 2, 1 none, 0 not determined */
	size_t n_slots, cap_slots;
	struct pl_intern corr; /* of the launches, as bytes */
	struct launch *launch;
	size_t n_launches, cap_launches;
	struct pl_intern text;
	const struct pl_et_file *et;
	size_t next_rpc, next_host; /* nodes used so far, if nodes are paired by order only */
	bool looked_for_et, warned, said_limit;
	uint64_t sorted; /* operations sorted so far, counting repeated sorting */
};

/* A profiler writes operations of the host before the kernels that they launched, so all are in
 * memory. This number takes 120 MiB with the launches; an hour of training has fewer. */
#define MAX_OPS	    (1u << 20)
#define MAX_THREADS 4096u
/* Limit on the number of sorted operations, counting repeated sorting. If unsorted operations and
 * launches alternate, each launch sorts again; the limit ends this after seconds. */
#define MAX_SORTED ((uint64_t)1 << 28)
/* Operations before a launch that are searched for those around it. Operations of communication
 * nest two deep, so more would only find those that ended long before. */
#define ENCLOSING 8

struct pl_comm *pl_import_comm_new(const char *path, const struct pl_log *log, struct pl_err *err)
{
	struct pl_comm *c = NULL;

	if (pl_alloc(&c, 1, sizeof(*c), err) < 0)
		return NULL;
	c->path = path;
	c->log = log;
	return c;
}

void pl_import_comm_free(struct pl_comm *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n_threads; i++)
		pl_free(c->thread[i].op);
	pl_free(c->thread);
	pl_free(c->op);
	pl_free(c->slot);
	pl_free(c->launch);
	pl_intern_fini(&c->corr);
	pl_intern_fini(&c->text);
	pl_free(c);
}

void pl_import_comm_renew(struct pl_comm *c)
{
	c->n_slots = 0;
}

int pl_import_comm_text(struct pl_comm *c, const char *s, size_t n, pl_id *id, struct pl_err *err)
{
	return pl_intern_add(&c->text, s, n, id, err);
}

void pl_import_comm_use_et(struct pl_comm *c, const struct pl_et *et, const char *pid, int32_t rank)
{
	if (c->looked_for_et || !et)
		return;
	c->looked_for_et = true;
	c->et = pl_import_et_find(et, pid, rank);
}

bool pl_import_comm_hold(const struct pl_comm *c)
{
	return c->et != NULL;
}

/* ---- operations ---------------------------------------------------------------------------- */

static size_t find_thread(const struct pl_comm *c, int64_t pid, int64_t tid)
{
	size_t i = 0;

	while (i < c->n_threads && (c->thread[i].tid != tid || c->thread[i].pid != pid))
		i++;
	return i;
}

/* Warns once that some kernels have no host event that describes them. */
static int limit_reached(struct pl_comm *c, const char *what)
{
	if (!c->said_limit)
		pl_say(c->log, PL_LOG_WARN,
		       "%s: %s; kernels launched from there on have no group or size from the host",
		       c->path, what);
	c->said_limit = true;
	return 0;
}

int pl_import_comm_add_op(struct pl_comm *c, int64_t pid, int64_t tid, const struct pl_comm_op *op,
			  struct pl_err *err)
{
	size_t i = find_thread(c, pid, tid);
	struct thread *t;

	if (c->n_ops >= MAX_OPS)
		return limit_reached(c, "more than 1,048,576 host operations that communicate");
	if (i == c->n_threads && i >= MAX_THREADS)
		return limit_reached(c, "more than 4,096 host threads that communicate");
	if (i == c->n_threads) {
		PL_CHECK(pl_grow(&c->thread, &c->cap_threads, i + 1, sizeof(*c->thread), err));
		c->thread[c->n_threads++] =
			(struct thread){ .pid = pid, .tid = tid, .sorted = true };
		c->n_slots = 0;
	}
	t = &c->thread[i];
	PL_CHECK(pl_grow(&c->op, &c->cap_ops, c->n_ops + 1, sizeof(*c->op), err));
	PL_CHECK(pl_grow(&t->op, &t->cap, t->n + 1, sizeof(*t->op), err));
	if (t->n && c->op[t->op[t->n - 1]].t0 > op->t0)
		t->sorted = false;
	c->op[c->n_ops] = *op;
	c->op[c->n_ops].et = PL_NONE;
	t->op[t->n++] = (uint32_t)c->n_ops++;
	return 0;
}

static int by_start(const void *pa, const void *pb, void *ops)
{
	const struct pl_comm_op *op = ops;
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	return op[a].t0 != op[b].t0 ? PL_COMPARE(op[a].t0, op[b].t0) : PL_COMPARE(a, b);
}

/* The innermost operation of each type (rpc, range) on t at ts: its number + 1; 0: none. */
static void enclosing(const struct pl_comm *c, const struct thread *t, pl_ns ts, struct launch *l)
{
	size_t lo = 0;

	PL_LOWER_BOUND(lo, t->n, c->op[t->op[lo]].t0 <= ts);
	for (int i = 0; lo > 0 && i < ENCLOSING; i++) {
		const struct pl_comm_op *op = &c->op[t->op[--lo]];
		uint32_t *found = op->rpc ? &l->rpc : &l->range;

		if (op->t1 >= ts && !*found)
			*found = t->op[lo] + 1;
	}
}

/* The first launch of a correlation counts. */
static int put_launch(struct pl_comm *c, int64_t corr, struct launch l, struct pl_err *err)
{
	pl_id id;

	PL_CHECK(pl_grow(&c->launch, &c->cap_launches, c->corr.n + 1, sizeof(*c->launch), err));
	PL_CHECK(pl_intern_add(&c->corr, (const char *)&corr, sizeof(corr), &id, err));
	if (id == c->n_launches)
		c->launch[c->n_launches++] = l;
	return 0;
}

static struct thread *thread_of(struct pl_comm *c, uint32_t track, int64_t pid, int64_t tid,
				struct pl_err *err, int *rc)
{
	*rc = 0;
	if (PL_UNLIKELY(track >= c->n_slots)) {
		size_t n = c->n_slots;

		*rc = pl_grow(&c->slot, &c->cap_slots, (size_t)track + 1, sizeof(*c->slot), err);
		if (*rc < 0)
			return NULL;
		memset(c->slot + n, 0, (track + 1 - n) * sizeof(*c->slot));
		c->n_slots = track + 1;
	}
	if (!c->slot[track]) {
		size_t i = find_thread(c, pid, tid);

		c->slot[track] = i < c->n_threads ? (uint32_t)i + 2 : 1;
	}
	return c->slot[track] == 1 ? NULL : &c->thread[c->slot[track] - 2];
}

int pl_import_comm_add_launch(struct pl_comm *c, uint32_t track, int64_t pid, int64_t tid, pl_ns ts,
			      int64_t corr, struct pl_err *err)
{
	struct launch l = { 0, 0 };
	struct thread *t;
	int rc;

	if (!c->n_threads)
		return 0;
	t = thread_of(c, track, pid, tid, err, &rc);
	if (!t)
		return rc;
	if (!t->sorted) {
		if (c->sorted > MAX_SORTED)
			return limit_reached(c, "host operations are too far out of order");
		c->sorted += t->n;
		qsort_r(t->op, t->n, sizeof(*t->op), by_start, c->op);
		t->sorted = true;
	}
	enclosing(c, t, ts, &l);
	if (!l.rpc && !l.range)
		return 0;
	if (c->n_launches >= MAX_OPS)
		return limit_reached(c, "more than 1,048,576 launches of communication");
	return put_launch(c, corr, l, err);
}

/* ---- the execution trace ------------------------------------------------------------------- */

static const struct pl_et_node *node_by_rf(const struct pl_et_file *et, int64_t rf)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, et->n, et->node[i].rf < rf);
	return i < et->n && et->node[i].rf == rf ? &et->node[i] : NULL;
}

static bool agree(const struct pl_comm_op *op, const struct pl_et_node *n)
{
	if (!n->rpc)
		return false;
	if (op->tensors == 1 && n->wait)
		return false;
	if (op->tensors == 0 && n->elements > 1) /* one element may be a scalar without a tensor */
		return false;
	if (op->elements > 0 && n->elements > 0 && op->elements != n->elements &&
	    op->elements != n->elements_out)
		return false;
	return !op->coll || !n->coll || !strcmp(op->coll, n->coll);
}

/* Pair all operations with nodes: linear, except for the search after a contradiction. */
static int map_ops(struct pl_comm *c, struct pl_err *err)
{
	const struct pl_et_file *et = c->et;
	size_t n = 0, j = 0, paired = 0, contradict = 0;
	uint32_t *v = NULL;

	PL_CHECK(pl_alloc(&v, c->n_ops, sizeof(*v), err));
	for (size_t i = 0; i < c->n_ops; i++)
		if (c->op[i].rpc)
			v[n++] = (uint32_t)i;
	if (n)
		qsort_r(v, n, sizeof(*v), by_start, c->op);
	for (size_t i = 0; i < n; i++) {
		struct pl_comm_op *op = &c->op[v[i]];
		const struct pl_et_node *node = op->rf >= 0 ? node_by_rf(et, op->rf) : NULL;
		size_t k = j;

		op->et = PL_NONE;
		if (!node && op->rf < 0) {
			while (k < et->n && k - j < 256 && !agree(op, &et->node[k]))
				k++;
			if (k < et->n && k - j < 256) {
				for (size_t s = j; s < k; s++)
					contradict += et->node[s].rpc;
				node = &et->node[k];
				j = k + 1;
			}
		}
		if (node) {
			op->et = (uint32_t)(node - et->node);
			paired++;
		} else {
			contradict++;
		}
	}
	pl_free(v);
	c->n_mapped = c->n_ops;
	if (contradict && !c->warned) {
		c->warned = true;
		pl_say(c->log, PL_LOG_WARN,
		       "%s: %zu of %zu collectives pair with the execution trace of process %s; "
		       "where they disagree, sizes are left out (is it of the same run?)",
		       c->path, paired, n, et->pid);
	}
	return 0;
}

/* If nodes are paired by order only: the next node of this type that can be `coll`. */
static const struct pl_et_node *node_by_order(struct pl_comm *c, bool rpc, const char *coll)
{
	size_t *next = rpc ? &c->next_rpc : &c->next_host;

	for (size_t i = *next, seen = 0; i < c->et->n && seen < 64; i++) {
		const struct pl_et_node *n = &c->et->node[i];

		if (n->rpc != rpc || n->wait || (rpc && n->group_size == 1))
			continue;
		seen++;
		if (coll && n->coll && strcmp(coll, n->coll) != 0)
			continue;
		*next = i + 1;
		return n;
	}
	return NULL;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* The known values of one row of communication. */
struct known {
	const char *coll, *group;
	size_t group_len;
	int64_t bytes, seq, peer;
};

static bool vague(const char *coll)
{
	return !coll || !strcmp(coll, "sendrecv") || !strcmp(coll, "collective");
}

static void learn_op(const struct pl_comm *c, struct known *k, const struct pl_comm_op *op)
{
	if (vague(k->coll) && op->coll)
		k->coll = op->coll;
	if (k->bytes < 0)
		k->bytes = op->bytes;
	if (k->seq < 0)
		k->seq = op->seq;
	if (k->peer < 0)
		k->peer = op->peer;
	if (!k->group && op->group != PL_NONE) {
		k->group = pl_intern_get(&c->text, op->group);
		k->group_len = c->text.len[op->group];
	}
}

static void learn_node(struct known *k, const struct pl_et_node *n)
{
	if (vague(k->coll) && n->coll)
		k->coll = n->coll;
	if (k->bytes < 0)
		k->bytes = n->bytes;
	if (!k->group && n->group) {
		k->group = n->group;
		k->group_len = strlen(n->group);
	}
}

static void learn(struct pl_comm *c, const struct pl_comm_row *row, struct known *k)
{
	const struct launch *l = NULL;
	const struct pl_et_node *node = NULL;
	pl_id at = PL_NONE;

	if (row->corr >= 0)
		at = pl_intern_find(&c->corr, (const char *)&row->corr, sizeof(row->corr));
	if (at != PL_NONE)
		l = &c->launch[at];
	if (l && l->range)
		learn_op(c, k, &c->op[l->range - 1]);
	if (l && l->rpc) {
		const struct pl_comm_op *op = &c->op[l->rpc - 1];

		learn_op(c, k, op);
		if (c->et && op->et != PL_NONE)
			node = &c->et->node[op->et];
	}
	if (c->et && !node && row->rf >= 0)
		node = node_by_rf(c->et, row->rf);
	else if (c->et && !node && (row->host || !c->n_launches))
		node = node_by_order(c, !row->host, k->coll);
	if (node)
		learn_node(k, node);
}

static void put(struct pl_rows *r, uint32_t row, uint8_t role, uint8_t type, int64_t v)
{
	uint32_t index;

	if (r->rc >= 0)
		r->rc = pl_import_rows_col(r, role, type, PL_NONE, &index, r->err);
	if (r->rc >= 0)
		r->rc = pl_trace_col_put(&r->cur->b.col[index], row, v, 0, r->err);
}

static void put_row(struct pl_comm *c, struct pl_rows *r, const struct pl_comm_row *row)
{
	struct known k = { .coll = row->coll, .bytes = row->bytes, .seq = -1, .peer = -1 };
	struct pl_batch *b = &r->cur->b;

	if (row->group != PL_NONE) {
		k.group = pl_intern_get(&r->seg.str, row->group);
		k.group_len = r->seg.str.len[row->group];
	}
	learn(c, row, &k);
	if (k.coll)
		b->kind[row->row] = !strcmp(k.coll, "send")   ? PL_K_SEND
				    : !strcmp(k.coll, "recv") ? PL_K_RECV
							      : PL_K_COLLECTIVE;
	if (k.coll && !row->has_coll && strcmp(k.coll, "collective") != 0)
		put(r, row->row, PL_R_COLL, PL_V_STR,
		    pl_import_rows_text(r, k.coll, strlen(k.coll)));
	if (k.bytes >= 0 && !row->has_bytes)
		put(r, row->row, PL_R_BYTES, PL_V_INT, k.bytes);
	if (k.group && k.group_len && !row->has_group)
		put(r, row->row, PL_R_GROUP, PL_V_STR,
		    pl_import_rows_text(r, k.group, k.group_len));
	if (k.seq >= 0 && !row->has_seq)
		put(r, row->row, PL_R_SEQ, PL_V_INT, k.seq);
	if (k.peer >= 0)
		put(r, row->row, PL_R_PEER, PL_V_INT, k.peer);
}

int pl_import_comm_resolve(struct pl_comm *c, struct pl_rows *r, struct pl_held *h,
			   struct pl_err *err)
{
	struct pl_held *cur = r->cur;

	if (c->et && c->n_mapped != c->n_ops)
		PL_CHECK(map_ops(c, err));
	r->cur = h;
	for (size_t i = 0; i < h->n_rows; i++)
		put_row(c, r, &h->row[i]);
	r->cur = cur;
	return r->rc;
}
