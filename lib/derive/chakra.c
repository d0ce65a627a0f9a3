/*
 * Chakra execution traces as a graph.
 *
 * The nodes of a file, sorted so that each comes after what it depends on, become the program of a
 * rank (graph/program.h): of the nodes that could be next always the earliest one, by start time
 * and then by number. Files of converters have cycles; then the earliest of the nodes that are left
 * is next, and its dependencies on later nodes are left out. data_deps mean "after the end"; a
 * ctrl_dep is the operator around a node, which must have begun. A node runs on its thread (`tid`),
 * or, where the file does not say it, on one of the three resources of a rank that ASTRA-sim has;
 * nodes of one resource follow one another. The duration of an operator includes the operators
 * inside, so those begin with it, and the node behind it follows its end and theirs: each resource
 * has a stack of the operators that are open.
 *
 * The k-th collective of a process group is one communication of all ranks, and the k-th send with
 * a source, destination and tag meets the k-th such receive. A recorded duration of a collective
 * includes the wait for other ranks, so the shortest one is that of all, unless the file says more
 * exactly what the transfer took (`duration_ns`). O(n log n) in nodes and dependencies.
 */
#include <stdlib.h>

#include "core/sort.h"
#include "derive/chakra.h"
#include "derive/describe.h"
#include "graph/chakra.h"
#include "graph/program.h"
#include "io/pb.h"

#define MOST ((size_t)8 << 30) /* bytes of a file */

struct node {
	uint64_t id;
	const char *name, *group;
	size_t n_name, n_group;
	struct pl_pb_in message;
	unsigned type, role; /* PL_RO_NONE: the file does not say it */
	pl_ns start, dur;
	int64_t tid, coll, bytes, src, dst, tag, flops, moved; /* -1 unknown */
	bool host, exact;
	uint32_t n_before;     /* dependencies that are not in the program yet */
	uint32_t first;	       /* of the edges that leave it, + 1 */
	uint32_t op;	       /* in the program, PL_NONE: not yet */
	uint32_t after, dep;   /* the last operation that depends on it, and its dependency */
	uint32_t below, depth; /* the open node around it; depth 0: it is not open */
};
struct link {
	uint32_t to, next; /* next + 1 */
};
struct file {
	struct pl_buf bytes;
	int32_t rank;
	struct node *node; /* by id */
	size_t n, cap;
	struct pl_program program;
	uint64_t dropped;
};
struct comm { /* by number */
	uint32_t members;
	unsigned coll;
	int64_t bytes;
	pl_ns dur; /* the shortest, -1: files are exact */
	uint32_t group;
};
struct reader {
	struct file *file;
	size_t n_files;
	const char *name; /* of the file being read */
	struct pl_graph *g;
	struct pl_intern resources, comm_key, turn_key;
	uint32_t *turns; /* [turn_key]: how many communications of the key a rank had */
	size_t cap_turns;
	struct comm *comm;
	size_t n_comms, cap_comms;
	bool *host; /* [resource] */
	size_t cap_host;
	uint32_t *taken, *open; /* [operation]: its node; [resource]: the innermost open node */
	size_t cap_taken, cap_open;
	struct link *link;
	size_t n_links, cap_links;
	uint32_t *heap;
	size_t n_heap, cap_heap;
	uint64_t lasting, timeless; /* communications with a duration and without */
	struct pl_derive_work work;
};

/* ---- reading ------------------------------------------------------------------------------- */

static bool is_named(const struct pl_chakra_attr *a, const char *name)
{
	return a->name.n == strlen(name) && !memcmp(a->name.p, name, a->name.n);
}

static void take_attr(struct node *x, const struct pl_chakra_attr *a)
{
	const struct {
		const char *name;
		int64_t *to;
	} numbers[] = {
		{ "tid", &x->tid },	  { "comm_type", &x->coll },	{ "comm_size", &x->bytes },
		{ "comm_src", &x->src },  { "comm_dst", &x->dst },	{ "comm_tag", &x->tag },
		{ "num_ops", &x->flops }, { "tensor_size", &x->moved },
	};

	for (size_t i = 0; i < PL_LEN(numbers); i++)
		if (is_named(a, numbers[i].name))
			*numbers[i].to = a->v;
	if (is_named(a, "is_cpu_op"))
		x->host = a->v > 0;
	if (is_named(a, "pg_name") && a->text.n) {
		x->group = (const char *)a->text.p;
		x->n_group = a->text.n;
	}
	for (unsigned i = 0; i < PL_RO_COUNT_ && is_named(a, "role"); i++)
		if (a->text.n == strlen(pl_graph_node_role_name(i)) &&
		    !memcmp(a->text.p, pl_graph_node_role_name(i), a->text.n))
			x->role = i;
	if (is_named(a, "duration_ns") && a->v >= 0) {
		x->dur = a->v;
		x->exact = true;
	}
}

static pl_ns of_us(uint64_t us)
{
	return us > INT64_MAX / 4000 ? INT64_MAX / 4 : (pl_ns)us * 1000;
}

static struct node read_node(struct pl_pb_in m)
{
	struct node x = { .message = m,
			  .tid = -1,
			  .coll = -1,
			  .bytes = -1,
			  .src = -1,
			  .dst = -1,
			  .tag = -1,
			  .flops = -1,
			  .moved = -1,
			  .op = PL_NONE,
			  .after = PL_NONE };
	struct pl_pb_field f;
	pl_ns start_ns = INT64_MIN;

	while (pl_pb_next(&m, &f)) {
		if (f.number == PL_CK_ID && !f.bytes) {
			x.id = f.v;
		} else if (f.number == PL_CK_NAME && f.bytes) {
			x.name = (const char *)f.p;
			x.n_name = f.n;
		} else if (f.number == PL_CK_TYPE && !f.bytes) {
			x.type = f.v <= PL_CK_COLL ? (unsigned)f.v : PL_CK_COMP;
		} else if (f.number == PL_CK_START_US && !f.bytes) {
			x.start = of_us(f.v);
		} else if (f.number == PL_CK_DUR_US && !f.bytes && !x.exact) {
			x.dur = of_us(f.v);
		} else if (f.number == PL_CK_ATTR && f.bytes) {
			struct pl_chakra_attr a = pl_trace_chakra_attr(&f);

			take_attr(&x, &a);
			if (is_named(&a, "start_ns"))
				start_ns = a.v;
		}
	}
	if (start_ns != INT64_MIN)
		x.start = start_ns;
	return x;
}

static int compare_nodes(const void *pa, const void *pb)
{
	const struct node *a = pa, *b = pb;

	return PL_COMPARE(a->id, b->id);
}

static int read_messages(struct reader *r, struct file *f, struct pl_err *err)
{
	const uint8_t *p = f->bytes.p, *end = p ? p + f->bytes.n : p;
	bool first = true;
	uint64_t n;

	while (p < end) {
		const uint8_t *at = p;

		if (!pl_pb_take_varint(&p, end, &n) || n > (uint64_t)(end - p))
			return pl_fail(err, PL_EDATA, "%s: byte %lld: a message that is cut off",
				       r->name, (long long)(at - f->bytes.p));
		if (first) {
			struct pl_pb_in m = pl_pb_message(p, (size_t)n);
			struct pl_pb_field x;

			while (pl_pb_next(&m, &x)) {
				struct pl_chakra_attr a = pl_trace_chakra_attr(&x);

				if (x.bytes && x.number <= PL_CK_META_ATTR &&
				    is_named(&a, "rank") && a.v >= 0 && a.v < 1 << 24)
					f->rank = (int32_t)a.v;
			}
		} else {
			struct node x = read_node(pl_pb_message(p, (size_t)n));

			PL_CHECK(pl_append(&f->node, &f->n, &f->cap, &x, sizeof(x), err));
		}
		first = false;
		p += n;
	}
	if (!f->n || f->n >= PL_NONE)
		return pl_fail(err, PL_EDATA, "%s: this execution trace has no nodes", r->name);
	pl_sort(f->node, f->n, sizeof(*f->node), compare_nodes);
	for (size_t i = 1; i < f->n; i++)
		if (f->node[i].id == f->node[i - 1].id)
			return pl_fail(err, PL_EDATA, "%s: two nodes have the id %llu", r->name,
				       (unsigned long long)f->node[i].id);
	return 0;
}

/* The last number in the name before its ending: "job.3.et". */
static int32_t rank_of_name(const char *path)
{
	const char *base = strrchr(path, '/');
	int64_t v = -1;

	for (const char *s = base ? base + 1 : path; *s;)
		if (*s >= '0' && *s <= '9')
			v = pl_take_digits(&s);
		else
			s++;
	return v >= 0 && v < 1 << 24 ? (int32_t)v : -1;
}

/* ---- order --------------------------------------------------------------------------------- */

static uint32_t find(const struct file *f, uint64_t id)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, f->n, f->node[i].id < id);
	return i < f->n && f->node[i].id == id ? (uint32_t)i : PL_NONE;
}

/* Call fn for each dependency of a node that is in the file; ctrl: of a ctrl_dep. */
static int each_dep(struct reader *r, struct file *f, uint32_t i,
		    int (*fn)(struct reader *r, struct file *f, uint32_t i, uint32_t on, bool ctrl,
			      struct pl_err *err),
		    struct pl_err *err)
{
	struct pl_pb_in m = f->node[i].message;
	struct pl_pb_field x;

	while (pl_pb_next(&m, &x)) {
		bool ctrl = x.number == PL_CK_CTRL_DEPS;
		const uint8_t *q = x.p;
		uint64_t id = x.v;
		uint32_t on;

		if (!ctrl && x.number != PL_CK_DATA_DEPS)
			continue;
		while (!x.bytes || pl_pb_take_varint(&q, x.p + x.n, &id)) {
			on = find(f, id);
			if (on != PL_NONE && on != i)
				PL_CHECK(fn(r, f, i, on, ctrl, err));
			else
				f->dropped += on == i;
			if (!x.bytes)
				break;
		}
	}
	return 0;
}

static int note_dep(struct reader *r, struct file *f, uint32_t i, uint32_t on, bool ctrl,
		    struct pl_err *err)
{
	const struct link l = { i, f->node[on].first };

	(void)ctrl;
	f->node[i].n_before++;
	PL_CHECK(pl_append(&r->link, &r->n_links, &r->cap_links, &l, sizeof(l), err));
	f->node[on].first = (uint32_t)r->n_links;
	return 0;
}

static bool earlier(const struct file *f, uint32_t a, uint32_t b)
{
	return PL_COMPARE_FIELDS(&f->node[a], &f->node[b], start, id) < 0;
}

/* A heap of the nodes that could be next. */
static int push(struct reader *r, const struct file *f, uint32_t i, struct pl_err *err)
{
	size_t k = r->n_heap;

	PL_CHECK(pl_append(&r->heap, &r->n_heap, &r->cap_heap, &i, sizeof(i), err));
	for (; k && earlier(f, i, r->heap[(k - 1) / 2]); k = (k - 1) / 2)
		r->heap[k] = r->heap[(k - 1) / 2];
	r->heap[k] = i;
	return 0;
}

static uint32_t pop(struct reader *r, const struct file *f)
{
	uint32_t top = r->heap[0], last = r->heap[--r->n_heap];
	size_t k = 0, c;

	while ((c = 2 * k + 1) < r->n_heap) {
		c += c + 1 < r->n_heap && earlier(f, r->heap[c + 1], r->heap[c]);
		if (!earlier(f, r->heap[c], last))
			break;
		r->heap[k] = r->heap[c];
		k = c;
	}
	r->heap[k] = last;
	return top;
}

/* ---- programs ------------------------------------------------------------------------------ */

static int resource_of(struct reader *r, const struct node *x, uint32_t *id, struct pl_err *err)
{
	static const char *const words[] = { [PL_CK_MEM_LOAD] = "memory",
					     [PL_CK_MEM_STORE] = "memory",
					     [PL_CK_SEND] = "network",
					     [PL_CK_RECV] = "network",
					     [PL_CK_COLL] = "network" };
	char name[40];
	const char *word = x->type < PL_LEN(words) && words[x->type] ? words[x->type]
			   : x->host				     ? "host"
								     : "device";
	size_t old = r->resources.n;

	if (x->tid >= 0)
		snprintf(name, sizeof(name), "%s %lld", x->host ? "thread" : "stream",
			 (long long)x->tid);
	else
		snprintf(name, sizeof(name), "%s", word);
	PL_CHECK(pl_grow(&r->host, &r->cap_host, old + 1, sizeof(*r->host), err));
	PL_CHECK(pl_intern_add(&r->resources, name, strlen(name), id, err));
	if (*id == old)
		r->host[*id] = x->host;
	return 0;
}

/* The number of a communication by its key and its turn on this rank. */
static int comm_of(struct reader *r, const struct file *f, const struct node *x, uint32_t *number,
		   struct pl_err *err)
{
	char key[200];
	size_t old;
	pl_id turn, id;
	int n;

	if (x->type == PL_CK_COLL)
		n = snprintf(key, sizeof(key), "g%.*s", (int)pl_min_size(x->n_group, 100),
			     x->n_group ? x->group : "");
	else
		n = snprintf(key, sizeof(key), "p%lld>%lld/%lld",
			     (long long)(x->type == PL_CK_SEND && x->src < 0 ? f->rank : x->src),
			     (long long)(x->type == PL_CK_RECV && x->dst < 0 ? f->rank : x->dst),
			     (long long)x->tag);
	n += snprintf(key + n, sizeof(key) - (size_t)n, "@%d/%d", f->rank, x->type == PL_CK_RECV);
	old = r->turn_key.n;
	PL_CHECK(pl_grow(&r->turns, &r->cap_turns, old + 1, sizeof(*r->turns), err));
	PL_CHECK(pl_intern_add(&r->turn_key, key, (size_t)n, &turn, err));
	r->turns[turn] = turn == old ? 0 : r->turns[turn] + 1;
	n = (int)(strrchr(key, '@') - key);
	n += snprintf(key + n, sizeof(key) - (size_t)n, "#%u", r->turns[turn]);
	PL_CHECK(pl_intern_add(&r->comm_key, key, (size_t)n, &id, err));
	PL_CHECK(pl_grow(&r->comm, &r->cap_comms, (size_t)id + 1, sizeof(*r->comm), err));
	for (; r->n_comms <= id; r->n_comms++)
		r->comm[r->n_comms] =
			(struct comm){ .dur = INT64_MAX, .bytes = -1, .group = PL_NONE };
	*number = id;
	return 0;
}

static uint32_t work_of(struct reader *r, const struct node *x, struct pl_err *err)
{
	const struct pl_gwork w = { .type = PL_NONE,
				    .dims = PL_NONE,
				    .flops = x->flops,
				    .bytes = x->moved,
				    .name = PL_NONE };

	return x->flops < 0 && x->moved < 0 ? PL_NONE : pl_derive_add_work(r->g, &r->work, &w, err);
}

static int put_communication(struct reader *r, struct file *f, const struct node *x,
			     struct pl_graph_program_op *op, struct pl_err *err)
{
	struct comm *c;

	PL_CHECK(comm_of(r, f, x, &op->comm, err));
	c = &r->comm[op->comm];
	c->members++;
	c->coll = x->type == PL_CK_COLL	  ? pl_graph_coll_of_chakra(x->coll)
		  : x->type == PL_CK_SEND ? PL_COLL_SEND
					  : PL_COLL_RECV;
	c->bytes = pl_max_i64(c->bytes, x->bytes);
	c->dur = pl_min_i64(c->dur, x->exact ? -1 : x->dur);
	op->role = PL_RO_TRANSFER;
	op->kind = x->type == PL_CK_COLL   ? PL_K_COLLECTIVE
		   : x->type == PL_CK_SEND ? PL_K_SEND
					   : PL_K_RECV;
	op->peer = (int32_t)(x->type == PL_CK_SEND ? x->dst : x->type == PL_CK_RECV ? x->src : -1);
	r->lasting += x->dur > 0;
	r->timeless += x->dur <= 0;
	return 0;
}

static int put_op(struct reader *r, struct file *f, uint32_t i, struct pl_err *err)
{
	struct node *x = &f->node[i];
	struct pl_graph_program_op op = pl_graph_program_op_unknown;

	op.role = x->host ? PL_RO_HOST : PL_RO_COMPUTE;
	op.kind = x->host ? PL_K_HOST_OP : PL_K_KERNEL;
	if (x->role != PL_RO_NONE)
		op.role = (uint8_t)x->role;
	if (x->type == PL_CK_MEM_LOAD || x->type == PL_CK_MEM_STORE || x->role == PL_RO_COPY) {
		op.role = PL_RO_COPY;
		op.kind = PL_K_COPY;
	}
	op.dur = x->type <= PL_CK_METADATA ? 0 : x->dur;
	op.bytes = x->bytes;
	PL_CHECK(resource_of(r, x, &op.resource, err));
	PL_CHECK(pl_intern_add(&r->g->str, x->n_name ? x->name : "", x->n_name, &op.name, err));
	if (x->type >= PL_CK_SEND)
		PL_CHECK(put_communication(r, f, x, &op, err));
	else
		op.work = work_of(r, x, err);
	PL_CHECK(err->code);
	return pl_graph_program_add(&f->program, &op, &x->op, err);
}

/* Node i, the last one, comes after node `on`. The end of a node says more than its start. */
static int follow(struct file *f, uint32_t i, uint32_t on, unsigned type, struct pl_err *err)
{
	struct node *x = &f->node[i], *y = &f->node[on];
	struct pl_program *p = &f->program;

	if (y->after == x->op) {
		if (p->dep[y->dep].type == PL_E_START)
			p->dep[y->dep].type = (uint8_t)type;
		return 0;
	}
	y->after = x->op;
	y->dep = (uint32_t)p->n_deps;
	return pl_graph_program_after(p, y->op, type, err);
}

static int put_dep(struct reader *r, struct file *f, uint32_t i, uint32_t on, bool ctrl,
		   struct pl_err *err)
{
	const struct node *x = &f->node[i], *y = &f->node[on];
	unsigned type = ctrl ? PL_E_START : y->host && !x->host ? PL_E_LAUNCH : PL_E_WAIT;

	(void)r;
	if (y->op == PL_NONE) { /* a cycle: it comes later */
		f->dropped += !ctrl;
		return 0;
	}
	if (!ctrl && f->program.op[x->op].resource == f->program.op[y->op].resource)
		type = PL_E_SEQ;
	return follow(f, i, on, type, err);
}

/* Node i is the next of its resource. It follows the open nodes that are not around it, which end;
 * then it is open itself. */
static int open_node(struct reader *r, struct file *f, uint32_t i, struct pl_err *err)
{
	const struct pl_graph_program_op *op = &f->program.op[f->node[i].op];
	uint32_t res = op->resource, depth = 0, top;

	if (res >= r->cap_open) {
		size_t had = r->cap_open;

		PL_CHECK(pl_grow(&r->open, &r->cap_open, res + (size_t)1, sizeof(*r->open), err));
		memset(r->open + had, 0xff, (r->cap_open - had) * sizeof(*r->open));
	}
	for (uint32_t k = op->dep; k < op->dep + op->n_deps; k++) {
		const struct pl_graph_program_dep *d = &f->program.dep[k];
		const struct node *y = &f->node[r->taken[d->op]];

		if (d->type == PL_E_START && f->program.op[d->op].resource == res &&
		    y->depth > depth)
			depth = y->depth;
	}
	for (top = r->open[res]; top != PL_NONE && f->node[top].depth > depth;
	     top = f->node[top].below) {
		PL_CHECK(follow(f, i, top, PL_E_SEQ, err));
		f->node[top].depth = 0;
	}
	f->node[i].below = top;
	f->node[i].depth = depth + 1;
	r->open[res] = i;
	return 0;
}

/* Node i is next: what depends on it may be next after it. */
static int take_node(struct reader *r, struct file *f, uint32_t i, struct pl_err *err)
{
	struct pl_graph_program_op *op;

	PL_CHECK(put_op(r, f, i, err));
	PL_CHECK(pl_grow(&r->taken, &r->cap_taken, f->program.n_ops, sizeof(*r->taken), err));
	r->taken[f->node[i].op] = i;
	PL_CHECK(each_dep(r, f, i, put_dep, err));
	PL_CHECK(open_node(r, f, i, err));
	op = &f->program.op[f->node[i].op];
	op->flags |= PL_NF_IN_STEP | (op->n_deps ? 0 : PL_NF_STEP_BEGIN);
	for (uint32_t k = f->node[i].first; k; k = r->link[k - 1].next)
		if (!--f->node[r->link[k - 1].to].n_before &&
		    f->node[r->link[k - 1].to].op == PL_NONE)
			PL_CHECK(push(r, f, r->link[k - 1].to, err));
	return 0;
}

static int by_time(const void *pa, const void *pb, void *arg)
{
	const struct file *f = arg;
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	return PL_COMPARE_FIELDS(&f->node[a], &f->node[b], start, id);
}

/* The program of a file. `order`: its nodes by time, for those that are in cycles. */
static int make_program(struct reader *r, struct file *f, struct pl_err *err)
{
	uint32_t *order = NULL;
	size_t at = 0;
	int rc;

	r->n_links = r->n_heap = 0;
	if (r->cap_open)
		memset(r->open, 0xff, r->cap_open * sizeof(*r->open));
	for (uint32_t i = 0; i < f->n; i++)
		PL_TRY(each_dep(r, f, i, note_dep, err));
	f->dropped = 0; /* each is met again */
	PL_TRY(pl_alloc(&order, f->n, sizeof(*order), err));
	for (uint32_t i = 0; i < f->n; i++) {
		order[i] = i;
		if (!f->node[i].n_before)
			PL_TRY(push(r, f, i, err));
	}
	qsort_r(order, f->n, sizeof(*order), by_time, f);
	while (f->program.n_ops < f->n) {
		while (!r->n_heap && f->node[order[at]].op != PL_NONE)
			at++;
		PL_TRY(take_node(r, f, r->n_heap ? pop(r, f) : order[at], err));
	}
	rc = 0;
out:
	pl_free(order);
	return rc;
}

/* ---- the job ------------------------------------------------------------------------------- */

static int by_rank(const void *pa, const void *pb)
{
	const struct file *a = pa, *b = pb;

	return PL_COMPARE(a->rank, b->rank);
}

/* The group of a communication: the ranks that take part, under the name of the process group. */
static int find_groups(struct reader *r, struct pl_err *err)
{
	struct pl_graph *g = r->g;

	for (size_t i = 0; i < r->n_files; i++) {
		struct pl_program *p = &r->file[i].program;

		for (size_t k = 0; k < p->n_ops; k++) {
			struct comm *c = p->op[k].comm == PL_NONE ? NULL : &r->comm[p->op[k].comm];

			if (!c || p->op[k].kind != PL_K_COLLECTIVE)
				continue;
			if (c->dur > 0 && c->dur != INT64_MAX)
				p->op[k].dur = c->dur;
			if (c->members != r->n_files)
				continue;
			if (!g->n_groups) {
				struct pl_ggroup x = { .rank = 0, .n = (uint32_t)r->n_files };

				PL_CHECK(pl_intern_add(&g->str, "all", 3, &x.name, err));
				PL_CHECK(pl_append(&g->group, &g->n_groups, &g->cap_groups, &x,
						   sizeof(x), err));
				for (uint32_t m = 0; m < r->n_files; m++) {
					uint32_t rank = (uint32_t)r->file[m].rank;

					PL_CHECK(pl_append(&g->group_rank, &g->n_group_ranks,
							   &g->cap_group_ranks, &rank, sizeof(rank),
							   err));
				}
			}
			p->op[k].group = 0;
		}
	}
	return 0;
}

/* What pl_derive_describe() cannot know from names; the ranks have the numbers of their files. */
static void finish(struct reader *r, const struct pl_graph_program_nodes *nodes, uint32_t per_rank)
{
	struct pl_graph *g = r->g;
	struct pl_shape *s = &g->shape[0];

	for (size_t i = 0; i < g->n_res; i++) {
		g->res[i].rank = r->file[i / per_rank].rank;
		if (r->host[i % per_rank])
			g->res[i].track_type = PL_T_THREAD;
	}
	for (size_t i = 0; i < r->n_files; i++) {
		const struct pl_program *p = &r->file[i].program;

		g->rank[i] = r->file[i].rank;
		for (size_t k = 0; k < p->n_ops; k++) {
			uint32_t last = nodes->last[nodes->at[i] + k];

			if (p->op[k].comm == PL_NONE || !s->comm || s->comm[last] == PL_NONE)
				continue;
			s->comms[s->comm[last]].kind = (uint8_t)r->comm[p->op[k].comm].coll;
			s->comms[s->comm[last]].bytes = r->comm[p->op[k].comm].bytes;
		}
	}
}

static int make_graph(struct reader *r, struct pl_err *err)
{
	struct pl_graph_program_nodes nodes = { .at = NULL };
	struct pl_graph_program_job job = { .n_ranks = (uint32_t)r->n_files,
					    .n_resources = r->resources.n,
					    .n_comms = (uint32_t)r->n_comms };
	struct pl_program *program = NULL;
	uint32_t *of_rank = NULL, *members = NULL;
	const char **resource = NULL;
	int rc;

	PL_TRY(find_groups(r, err));
	PL_TRY(pl_alloc(&program, r->n_files, sizeof(*program), err));
	PL_TRY(pl_alloc(&of_rank, r->n_files, sizeof(*of_rank), err));
	PL_TRY(pl_alloc(&members, r->n_comms + 1, sizeof(*members), err));
	PL_TRY(pl_alloc(&resource, r->resources.n + (size_t)1, sizeof(*resource), err));
	for (uint32_t i = 0; i < r->n_files; i++) {
		program[i] = r->file[i].program;
		of_rank[i] = i;
	}
	for (size_t i = 0; i < r->n_comms; i++)
		members[i] = r->comm[i].members;
	for (pl_id i = 0; i < r->resources.n; i++)
		resource[i] = r->resources.str[i];
	job.program = program;
	job.of_rank = of_rank;
	job.members = members;
	job.resource = resource;
	PL_TRY(pl_graph_from_programs(&job, r->g, &nodes, err));
	r->g->stepless = true;
	PL_TRY(pl_derive_describe(r->g, NULL, err));
	finish(r, &nodes, job.n_resources);
out:
	pl_graph_program_nodes_fini(&nodes);
	pl_free(program);
	pl_free(of_rank);
	pl_free(members);
	pl_free(resource);
	return rc;
}

static void say(const struct reader *r, const struct pl_log *log)
{
	uint64_t dropped = 0;

	for (size_t i = 0; i < r->n_files; i++)
		dropped += r->file[i].dropped;
	if (dropped)
		pl_say(log, PL_LOG_WARN,
		       "%llu dependencies are left out, because what they wait for comes later or "
		       "is itself",
		       (unsigned long long)dropped);
	if (r->timeless)
		pl_say(log, PL_LOG_WARN,
		       "%llu of %llu communications have no duration and take no time",
		       (unsigned long long)r->timeless,
		       (unsigned long long)(r->timeless + r->lasting));
}

static int read_files(struct reader *r,
		      struct pl_in *(*open)(void *arg, size_t i, struct pl_err *err), void *arg,
		      struct pl_err *err)
{
	for (size_t i = 0; i < r->n_files; i++) {
		struct file *f = &r->file[i];
		struct pl_in *in = open(arg, i, err);
		int rc = in ? pl_in_read_all(in, MOST, &f->bytes, err) : err->code;

		r->name = in ? pl_in_name(in) : "";
		f->rank = -1;
		if (rc >= 0)
			rc = read_messages(r, f, err);
		if (rc >= 0 && f->rank < 0)
			f->rank = rank_of_name(r->name);
		pl_in_close(in);
		PL_CHECK(rc);
		if (f->rank < 0)
			f->rank = (int32_t)i;
	}
	pl_sort(r->file, r->n_files, sizeof(*r->file), by_rank);
	for (size_t i = 1; i < r->n_files; i++)
		if (r->file[i].rank == r->file[i - 1].rank)
			return pl_fail(err, PL_EDATA,
				       "two of the execution traces are of rank %d; name each rank "
				       "once",
				       r->file[i].rank);
	return 0;
}

int pl_derive_chakra(size_t n, struct pl_in *(*open)(void *arg, size_t i, struct pl_err *err),
		     void *arg, const struct pl_log *log, struct pl_graph *g, struct pl_err *err)
{
	struct reader r = { .n_files = n, .g = g };
	int rc;

	pl_graph_init(g);
	PL_TRY(pl_alloc(&r.file, n, sizeof(*r.file), err));
	PL_TRY(read_files(&r, open, arg, err));
	for (size_t i = 0; i < n; i++)
		PL_TRY(make_program(&r, &r.file[i], err));
	PL_TRY(make_graph(&r, err));
	if (!pl_graph_valid(g, err)) { /* a number in the file that no graph can have */
		rc = pl_wrap(err, "these execution traces");
		goto out;
	}
	say(&r, log);
out:
	for (size_t i = 0; r.file && i < n; i++) {
		pl_buf_fini(&r.file[i].bytes);
		pl_free(r.file[i].node);
		pl_graph_program_fini(&r.file[i].program);
	}
	pl_free(r.file);
	pl_intern_fini(&r.resources);
	pl_intern_fini(&r.comm_key);
	pl_intern_fini(&r.turn_key);
	pl_derive_work_fini(&r.work);
	pl_free(r.turns);
	pl_free(r.comm);
	pl_free(r.host);
	pl_free(r.taken);
	pl_free(r.open);
	pl_free(r.link);
	pl_free(r.heap);
	if (rc < 0)
		pl_graph_fini(g);
	return rc;
}
