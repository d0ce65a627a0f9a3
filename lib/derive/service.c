/*
 * Service threads: threads that only communicate (the workers of gloo), and who waits for them.
 *
 * Launches. A program issues a collective with an operator and goes on; a service thread carries it
 * out. The operator is found by correlation or record function id, or, if neither was recorded, by
 * order: service threads take from one queue, so the first operator that has no communication yet
 * issued it, if the collective fits, and the sizes if they were recorded. An operator that launches
 * communication of a device inside it issued that. The last piece of the
 * operator that had begun hands the communication over, where the piece begins. The light mode of
 * trace records nothing inside of an operator, so the piece may be long: it can be the copy before
 * a reduce-scatter. If the communication begins at the end of the piece, the piece hands it over
 * there. lib/clock/issue.c has a stricter rule for the order of collectives, and says why.
 *
 * Waits. A program waits where it needs the result. Often no event marks this place: there is only
 * a pause, which ends shortly after the communication. One such pause may be chance. So the places
 * of the program are compared. A place is the pause between nodes with these names that lies so
 * many nodes behind the latest issue of a communication of this name; the wait is for the one that
 * was issued so many before. Steps and layers repeat it. The place is a wait if
 *
 *	communications ended during the pause there, and most others before it, not after it;
 *	these pauses ended soon after the communication;
 *	these pauses are longer than those that the communication ended before.
 *
 * The same code can issue and wait from several operations, as the hooks of sharded parameters do
 * in the backward pass: places that differ only in the operation of the pause are also counted
 * together.
 *
 * Then every pause at this place waits, also where the communication ended early and nobody had to
 * wait: it can delay the thread in a prediction. Communications of one collective, group and thread
 * are waited for in the order of their issue. So the wait for one is a wait for those that were
 * issued before it, if no other wait for them is known.
 *
 * Pauses of PAUSE_MIN_NS and more that no such place explains: if a communication without a known
 * wait ended shortly before the end of the pause, the pause was a wait for it. The pause may also
 * end a little before the recorded end of the communication, because the woken thread may continue
 * first. In both cases the communication ends with the pause.
 *
 * O(n log n) in communications and nodes, and PLACES_MAX looks at each communication.
 */
#include "derive/internal.h"

#define DIMS_MAX       512	/* length of the text */
#define PAUSE_MIN_NS   200000	/* pauses searched for a wait that no place explains */
#define PAUSE_NEAR_NS  1000000	/* such a pause lasts at most this long after the communication */
#define WAKER_LATE_NS  10000000 /* a thread that woke another may have to wait for a processor */
#define BACK_STEPS     64	/* communications that are searched for each pause */
#define PLACES_MAX     256	/* of a rank: those at which most communications ended */
#define PLACE_LATE_NS  300000	/* a thread that waits at a place is usually awake by then */
#define LATENCY_MAX_NS 500000	/* from the issue to the start on an idle thread */
#define PIECE_TAIL     10	/* at the end: in the last part of so many of the piece */

/* ---- launches -------------------------------------------------------------------------------- */

struct issue {
	struct op *op;
	const char *coll, *dims; /* dims: NULL not recorded */
	int64_t record, corr;	 /* record: id of the record function */
	bool used;
	size_t then; /* if used: a later operator, up to which all are used */
};

/* A communication of a service thread. */
struct work {
	struct op *op;
	pl_ns start;
	pl_id name;
	uint32_t group;
	uint32_t issue, handed; /* nodes: the first of its operator, and the one that handed it
				 * over; PL_NONE not known */
	uint32_t res;		/* thread of the operator */
	bool at_end;		/* handed over at the end of `handed`, not where it began */
	uint32_t place;		/* the pause that waits for it, PL_NONE not known */
};

static int by_issue(const void *pa, const void *pb)
{
	const struct op *a = ((const struct issue *)pa)->op, *c = ((const struct issue *)pb)->op;

	return PL_COMPARE_FIELDS(a, c, start, node);
}

/* An operator that calls another one for the communication issues nothing itself. */
static size_t drop_outer(const struct builder *b, struct issue *v, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		const struct op *op = v[i].op;
		bool outer = false;

		for (size_t k = i + 1; k < n && v[k].op->start < op->end && !outer; k++)
			outer = b->node[v[k].op->node].res == b->node[op->node].res;
		if (!outer)
			v[kept++] = v[i];
	}
	return kept;
}

/* Where a thread launched communication of a device. */
struct launched {
	uint32_t res;
	pl_ns at;
};

PL_COMPARATOR(by_thread, struct launched, res, at);

/* Leaves out operators that launched communication of a device. */
static size_t drop_launching(struct builder *b, const struct rank *rank, struct issue *v, size_t n)
{
	struct launched *c = NULL;
	size_t n_c = 0, cap = 0, kept = 0;

	for (size_t i = 0; i < rank->n_calls; i++) {
		const struct call *x = &rank->call[i];

		if (x->n_ops && b->node[rank->by_call[x->first_op]->node].role == PL_RO_ARRIVE)
			PL_DERIVE_ADD(b->err, c, n_c, cap, (struct launched){ x->res, x->start });
	}
	pl_sort(c, n_c, sizeof(*c), by_thread);
	for (size_t i = 0; i < n; i++) {
		const struct op *op = v[i].op;
		uint32_t res = b->node[op->node].res;
		size_t k = 0;

		PL_LOWER_BOUND(k, n_c, c[k].res < res || (c[k].res == res && c[k].at < op->start));
		if (k == n_c || c[k].res != res || c[k].at >= op->end)
			v[kept++] = v[i];
	}
	pl_free(c);
	return kept;
}

/* The communications of service threads, or the operators that issue them; by start. */
static size_t collect(struct builder *b, const struct rank *rank, bool service, struct issue **v)
{
	size_t n = 0, cap = 0;

	for (size_t k = 0; k < rank->n_res; k++) {
		struct resource *resource = &b->resource[rank->res[k]];

		if (!resource->thread || resource->service != service)
			continue;
		for (uint32_t i = 0; i < resource->n; i++) {
			struct op *op = &resource->op[i];
			const struct pl_events *e = b->t->seg[op->seg];
			pl_id name = e->name[op->ev];
			const char *coll = pl_trace_coll_from_name(pl_intern_get(&e->seg.str, name),
								   e->seg.str.len[name]);

			/* the recorded collective is more reliable than the name */
			if (!coll && op->kind == PL_K_HOST_OP && pl_derive_corr(b, op) != INT64_MIN)
				coll = pl_derive_text(e, e->coll, op->ev);
			if ((!coll && !service) || op->node == PL_NONE)
				continue;
			PL_DERIVE_ADD(b->err, *v, n, cap,
				      (struct issue){ .op = op,
						      .coll = coll ? coll : "",
						      .dims = pl_derive_text(e, e->dims, op->ev),
						      .record = pl_derive_value(e->record, op->ev,
										INT64_MIN),
						      .corr = pl_derive_corr(b, op) });
		}
	}
	pl_sort(*v, n, sizeof(**v), by_issue);
	return service ? n : drop_outer(b, *v, drop_launching(b, rank, *v, n));
}

/* gloo reduces all data for a reduce-scatter and takes a part of it. */
static bool fits(const char *host, const char *work)
{
	return !strcmp(host, work) || (!strcmp(host, pl_trace_coll_name(PL_COLL_REDUCE_SCATTER)) &&
				       !strcmp(work, pl_trace_coll_name(PL_COLL_ALLREDUCE)));
}

/* Are the sizes of the work among those of the operator? */
static bool same_dims(const struct issue *host, const struct issue *work)
{
	char x[2 * DIMS_MAX], y[DIMS_MAX];
	size_t n;

	if (!host->dims || !work->dims)
		return false;
	pl_trace_dims_text(host->dims, false, x, sizeof(x));
	n = pl_trace_dims_text(work->dims, false, y, sizeof(y));
	if (n < 3)
		return false;
	y[n - 1] = '\0'; /* without the outer brackets */
	return strstr(x, y + 1);
}

/* The first operator from k on that is not used; nh: none. Paths over used ones get shorter. */
static size_t unused(struct issue *host, size_t nh, size_t k)
{
	size_t found = k;

	while (found < nh && host[found].used)
		found = host[found].then;
	while (k < found) {
		size_t then = host[k].then;

		host[k].then = found;
		k = then;
	}
	return found;
}

/* The operator that issued `work`, among the unused ones. nh: not known. */
static size_t find_issue(struct issue *host, size_t nh, const struct issue *work)
{
	const size_t first = unused(host, nh, 0);
	const pl_ns start = work->op->start;
	size_t hit = nh;

	for (size_t k = first; k < nh && work->corr != INT64_MIN; k = unused(host, nh, k + 1))
		if (host[k].corr == work->corr)
			return k;
	/* record 0: not counted */
	for (size_t k = first; k < nh && work->record > 0 && host[k].op->start <= start;
	     k = unused(host, nh, k + 1))
		if (host[k].record == work->record - 1)
			return k;
	for (size_t k = first; k < nh && host[k].op->start <= start; k = unused(host, nh, k + 1)) {
		if (!fits(host[k].coll, work->coll))
			continue;
		if (!work->dims || same_dims(&host[k], work))
			return k;
		hit = hit == nh ? k : hit;
	}
	return hit;
}

/* On a rank without a device an operator that issues communication is a part of it. */
static void is_communication(struct builder *b, const struct work *w, const struct op *issue)
{
	for (uint32_t i = issue->node; i <= issue->last; i++)
		if (b->node[i].role == PL_RO_COMPUTE) {
			b->node[i].kind = w->op->kind;
			b->node[i].phase = PL_PH_COMM;
		}
}

/* Does the piece hand over at its end what begins at `start`? What may be left of the piece then is
 * part of the node behind it. */
static bool hands_over_at_end(struct builder *b, uint32_t piece, pl_ns start)
{
	struct node *n = &b->node[piece], *next = n + 1;
	pl_ns left = n->start + n->dur - start;

	/* the latency explains what begins soon */
	if (n->dur <= LATENCY_MAX_NS || left > n->dur / PIECE_TAIL)
		return false;
	if (left <= 0)
		return true;
	if (piece + 1 >= b->n_nodes || next->res != n->res || next->start != n->start + n->dur ||
	    (next->role != PL_RO_GAP && !pl_derive_may_work(next)))
		return false;
	n->dur -= left;
	next->start -= left;
	next->dur += left;
	return true;
}

/* The operator `issue` hands the communication over. */
static void launch(struct builder *b, struct work *w, const struct op *issue, bool recorded)
{
	pl_ns start = b->node[w->op->node].start;
	uint32_t at = issue->last;

	while (at > issue->node && b->node[at].start > start)
		at--;
	w->issue = issue->node;
	w->handed = at;
	w->res = b->node[at].res;
	w->at_end = at == issue->last && hands_over_at_end(b, at, start);
	is_communication(b, w, issue);
	pl_derive_edge(b, at, w->op->node,
		       (w->at_end ? PL_E_LAUNCH : PL_E_EARLY) | (recorded ? 0 : PL_E_INFERRED));
}

static void launches(struct builder *b, const struct rank *rank, struct work **work, size_t *n)
{
	struct issue *host = NULL, *v = NULL;
	size_t nh = 0, nw;
	int rc;

	nw = collect(b, rank, true, &v);
	PL_TRY(pl_alloc(work, nw, sizeof(**work), b->err));
	nh = collect(b, rank, false, &host);
	for (size_t i = 0; i < nw; i++) {
		struct work *w = &(*work)[i];
		size_t hit = find_issue(host, nh, &v[i]);
		bool recorded;

		*w = (struct work){ .op = v[i].op,
				    .start = v[i].op->start,
				    .name = b->node[v[i].op->node].name,
				    .group = b->node[v[i].op->node].group,
				    .issue = PL_NONE,
				    .handed = PL_NONE,
				    .res = PL_NONE,
				    .place = PL_NONE };
		if (hit == nh)
			continue;
		host[hit].used = true;
		host[hit].then = hit + 1;
		recorded = v[i].corr != INT64_MIN && host[hit].corr == v[i].corr;
		launch(b, w, host[hit].op, recorded);
		if (!recorded)
			pl_derive_staged(b, rank, v[i].op, host[hit].op);
	}
	*n = nw;
out:
	pl_free(host);
	pl_free(v);
}

/* When the communication was handed over, INT64_MIN: not known. */
static pl_ns handed_at(const struct builder *b, const struct work *w)
{
	const struct node *n = &b->node[w->handed == PL_NONE ? 0 : w->handed];

	return w->handed == PL_NONE ? INT64_MIN : n->start + (w->at_end ? n->dur : 0);
}

/* The usual time from the issue to the start on an idle thread; 0: never seen. */
static pl_ns latency(struct builder *b, const struct work *work, size_t n, uint32_t res,
		     bool at_end, int64_t *v)
{
	pl_ns busy = INT64_MIN;
	size_t nv = 0;

	for (size_t i = 0; i < n; i++) {
		const struct work *w = &work[i];

		if (b->node[w->op->node].res != res)
			continue;
		if (w->at_end == at_end && handed_at(b, w) > busy)
			v[nv++] = w->start - handed_at(b, w);
		busy = w->op->end;
	}
	return nv ? pl_min_i64(pl_median_i64(v, nv), LATENCY_MAX_NS) : 0;
}

static void latencies(struct builder *b, const struct rank *rank, const struct work *work, size_t n)
{
	int64_t *v;

	if (pl_alloc(&v, n, sizeof(*v), b->err) < 0)
		return;
	for (size_t k = 0; k < rank->n_res; k++) {
		struct pl_resource *res = &b->g->res[rank->res[k]];

		if (!b->resource[rank->res[k]].service)
			continue;
		res->early_ns = latency(b, work, n, rank->res[k], false, v);
		res->launch_ns = latency(b, work, n, rank->res[k], true, v);
	}
	pl_free(v);
}

/* ---- places of the program where a thread waits ---------------------------------------------- */

struct place_key {
	pl_id comm, before, pause, after; /* names: of the communication, of the pause and its
					   * neighbours */
	uint32_t later, distance; /* issues of the name after its own; nodes after the last */
};
struct place {
	struct place_key key;
	uint32_t seen; /* communications that ended there */
	/* Of all communications of the name: how many ended during the pause, before or after it;
	 * how long the pauses lasted, and after the end of the communication. */
	uint32_t during, before, after;
	pl_ns length, idle_length, late;
};

PL_COMPARATOR_FALLING(by_seen, struct place, seen, key.later, key.distance, key.comm, key.before,
		      key.pause, key.after);
PL_COMPARATOR(by_distance, struct place, key.later, key.distance, key.comm, key.before, key.pause,
	      key.after);
PL_COMPARATOR(by_turn, struct work, res, group, name, issue);

struct waits {
	struct builder *b;
	const struct rank *rank;
	struct work *work; /* by turn, then by place, then by start */
	size_t n;
	struct pl_intern keys;
	struct place *place;
	size_t n_places, cap_places;
};

static pl_ns end_of(const struct waits *x, const struct work *w)
{
	return pl_derive_end(x->b, w->op->last);
}

/* Had the communication ended when the pause ended? The thread may have gone on before the end was
 * recorded; then the transfer ends with the pause, so it must have begun. */
static bool ended_by(const struct waits *x, const struct work *w, uint32_t node)
{
	const struct node *pause = &x->b->node[node];
	pl_ns end = pause->start + pause->dur, late = end_of(x, w) - end;

	return late <= 0 || (pause->dur >= PAUSE_MIN_NS && x->b->node[w->op->last].start < end &&
			     late <= pl_min_i64(WAKER_LATE_NS, pause->dur / 4));
}

bool pl_derive_is_kernel(struct builder *b, pl_id id)
{
	const char *name = pl_intern_get(&b->g->str, id);
	unsigned op;

	if (strncmp(name, "aten::", 6) != 0)
		return false;
	op = pl_derive_name_once(&b->names, name, b->g->str.len[id], b->err)->op;
	return op != PL_OP_UNKNOWN && op != PL_OP_COPY;
}

/* The first operation from i on whose node is on the thread; r->n: there is none. Others have no
 * node, or one on a resource of posted sends. */
static uint32_t next_on_thread(const struct resource *r, uint32_t i)
{
	while (i < r->n && (r->op[i].node < r->node0 || r->op[i].node >= r->node1))
		i++;
	return i;
}

static bool stands_before(const struct resource *r, uint32_t i, uint32_t node)
{
	i = next_on_thread(r, i);
	return i < r->n && r->op[i].node < node;
}

/* May the thread have waited in this node? In a gap, in a piece of an operation that encloses
 * others, and in an operation that says so. */
static bool is_pause(struct builder *b, uint32_t node)
{
	const struct node *n = &b->node[node];
	const struct resource *resource = &b->resource[n->res];
	uint32_t i = 0;

	if (n->role == PL_RO_GAP)
		return true;
	if (n->kind != PL_K_HOST_OP || (n->role != PL_RO_HOST && n->role != PL_RO_COMPUTE))
		return false;
	PL_LOWER_BOUND(i, resource->n, stands_before(resource, i, node));
	i = next_on_thread(resource, i);
	if (i == resource->n || resource->op[i].node != node || resource->op[i].last != node)
		return !pl_derive_is_kernel(b, n->name);
	return strstr(pl_intern_get(&b->g->str, n->name), "wait");
}

/* Are they of one group, name and thread? */
static bool alike(const struct work *w, const struct work *v)
{
	return w->res == v->res && w->group == v->group && w->name == v->name;
}

static struct place_key key_of(const struct waits *x, size_t i, size_t last, uint32_t pause)
{
	const struct node *n = &x->b->node[pause];

	return (struct place_key){ .comm = x->work[i].name,
				   .before = n[-1].name,
				   .pause = n->name,
				   .after = n[1].name,
				   .later = (uint32_t)(last - i),
				   .distance = pause - x->work[last].issue };
}

/* Work i ended in this node. */
static void propose(struct waits *x, size_t i, uint32_t node)
{
	struct builder *b = x->b;
	const struct work *w = &x->work[i];
	struct place_key key;
	size_t last = i;
	pl_id id;

	if (node <= w->issue || node + 1 >= b->resource[w->res].node1 || !is_pause(b, node))
		return;
	while (last + 1 < x->n && alike(&x->work[last + 1], w) && x->work[last + 1].issue < node)
		last++;
	key = key_of(x, i, last, node);
	id = pl_derive_intern(b->err, &x->keys, &key, sizeof(key));
	if (id == x->n_places)
		PL_DERIVE_ADD(b->err, x->place, x->n_places, x->cap_places,
			      (struct place){ .key = key });
	if (id < x->n_places)
		x->place[id].seen++;
}

static void propose_places(struct waits *x, size_t i)
{
	const struct builder *b = x->b;
	const struct work *w = &x->work[i];
	uint32_t at = w->issue, q;
	pl_ns end = end_of(x, w);

	PL_LOWER_BOUND(at, b->resource[w->res].node1, b->node[at].start < end);
	if (at == w->issue)
		return;
	at--;
	propose(x, i, at);
	/* the thread may have gone on before the end was recorded */
	for (q = at;
	     q > w->issue && at - q < BACK_STEPS && end - pl_derive_end(b, q) < WAKER_LATE_NS; q--)
		if (q != at && ended_by(x, w, q))
			propose(x, i, q);
}

/* The pause at that place behind work i, PL_NONE: the program was elsewhere. */
static uint32_t pause_at(const struct waits *x, size_t i, const struct place *p)
{
	const struct work *w = &x->work[i];
	size_t last = i + p->key.later;
	struct place_key key;
	uint32_t node;

	if (w->issue == PL_NONE || w->name != p->key.comm || last >= x->n ||
	    !alike(&x->work[last], w))
		return PL_NONE;
	node = x->work[last].issue + p->key.distance;
	if (node + 1 >= x->b->resource[w->res].node1 ||
	    (last + 1 < x->n && alike(&x->work[last + 1], w) && x->work[last + 1].issue < node))
		return PL_NONE;
	key = key_of(x, i, last, node);
	return memcmp(&key, &p->key, sizeof(key)) == 0 ? node : PL_NONE;
}

static void look_at(struct waits *x, struct place *p)
{
	for (size_t i = 0; i < x->n; i++) {
		uint32_t node = pause_at(x, i, p);
		const struct node *n = &x->b->node[node == PL_NONE ? 0 : node];
		pl_ns end = end_of(x, &x->work[i]);

		if (node == PL_NONE)
			continue;
		if (end <= n->start) {
			p->before++;
			p->idle_length += n->dur;
		} else if (ended_by(x, &x->work[i], node)) {
			p->during++;
			p->length += n->dur;
			p->late += pl_max_i64(0, n->start + n->dur - end);
		} else {
			p->after++;
		}
	}
}

/* Does the program wait there? */
static bool is_wait(const struct place *p)
{
	uint32_t n = p->during + p->before + p->after;

	return p->during >= 2 && p->during >= n / 10 && p->after <= n / 20 &&
	       p->late <= pl_max_i64(p->during * (pl_ns)PLACE_LATE_NS, p->length / 4) &&
	       (!p->before ||
		(double)p->length / p->during >= 2 * (double)p->idle_length / p->before);
}

/* The counts of all places that differ from place i only in the pause, which may be a piece of
 * another operation. */
static struct place together(const struct waits *x, size_t i)
{
	struct place sum = { .key = x->place[i].key };

	for (size_t k = 0; k < x->n_places; k++) {
		const struct place *p = &x->place[k];

		if (p->key.comm != sum.key.comm || p->key.before != sum.key.before ||
		    p->key.later != sum.key.later || p->key.distance != sum.key.distance)
			continue;
		sum.during += p->during;
		sum.before += p->before;
		sum.after += p->after;
		sum.length += p->length;
		sum.idle_length += p->idle_length;
		sum.late += p->late;
	}
	return sum;
}

/* The first place at which the program waits for each communication. */
static void find_places(struct waits *x)
{
	bool *waits = NULL;
	size_t n = 0;

	pl_sort(x->work, x->n, sizeof(*x->work), by_turn);
	for (size_t i = 0; i < x->n; i++)
		if (x->work[i].issue != PL_NONE)
			propose_places(x, i);
	pl_sort(x->place, x->n_places, sizeof(*x->place), by_seen);
	x->n_places = pl_min_size(x->n_places, PLACES_MAX);
	if (pl_alloc(&waits, x->n_places, sizeof(*waits), x->b->err) < 0)
		return;
	for (size_t i = 0; i < x->n_places; i++)
		look_at(x, &x->place[i]);
	for (size_t i = 0; i < x->n_places; i++) {
		struct place all = together(x, i);

		waits[i] = is_wait(&x->place[i]) ||
			   (x->place[i].during >= 2 && !x->place[i].after && is_wait(&all));
	}
	for (size_t i = 0; i < x->n_places; i++)
		if (waits[i])
			x->place[n++] = x->place[i];
	x->n_places = n;
	pl_free(waits);
	pl_sort(x->place, n, sizeof(*x->place), by_distance);
	for (size_t i = 0; i < x->n; i++) {
		struct work *w = &x->work[i];

		for (size_t k = 0; k < n && w->place == PL_NONE; k++) {
			uint32_t at = pause_at(x, i, &x->place[k]);

			if (at != PL_NONE && ended_by(x, w, at))
				w->place = at;
		}
	}
}

/* ---- all waits of a rank --------------------------------------------------------------------- */

PL_COMPARATOR(by_place, struct work, place, start, issue);
PL_COMPARATOR(by_start, struct work, start, issue);

/* The wait for a communication is one for those of its group that were issued before it. */
static void wait_in_turn(struct waits *x)
{
	size_t open = 0; /* the first communication since the last known wait */

	for (size_t i = 0; i < x->n; i++) {
		const struct work *w = &x->work[i];

		if (!alike(w, &x->work[open < x->n ? open : i]))
			open = i;
		if (w->place == PL_NONE)
			continue;
		for (; open < i; open++) {
			struct work *v = &x->work[open];

			if (v->issue < w->place && end_of(x, v) <= pl_derive_end(x->b, w->place))
				v->place = w->place;
		}
		open = i + 1;
	}
}

/* The thread waits for work w at the pause, which lasts until `end`. */
static void end_with(struct builder *b, const struct work *w, pl_ns end)
{
	struct node *last = &b->node[w->op->last];

	if (pl_derive_end(b, w->op->last) > end)
		last->dur = pl_max_i64(0, end - last->start);
}

/* Work v[0..n) has one place: the pause waits for all, first of all for the one that ends last. */
static void wait_for(struct builder *b, const struct work *v, size_t n)
{
	uint32_t pause = v->place, rest = (uint32_t)b->n_nodes;
	pl_ns start = b->node[pause].start, end = pl_derive_end(b, pause);
	const struct work *last = v;

	for (size_t i = 0; i < n; i++) {
		end_with(b, &v[i], end);
		if (pl_derive_end(b, v[i].op->last) > pl_derive_end(b, last->op->last))
			last = &v[i];
	}
	if (pl_derive_end(b, last->op->last) > start)
		pl_derive_split(b, &b->resource[b->node[pause].res], pause, 0,
				pl_derive_end(b, last->op->last), last->op->last);
	else /* nobody had to wait */
		pl_derive_split(b, &b->resource[b->node[pause].res], pause, end - start, end,
				last->op->last);
	for (size_t i = 0; i < n; i++)
		if (&v[i] != last)
			pl_derive_edge(b, v[i].op->last, rest, PL_E_WAIT | PL_E_INFERRED);
	b->g->inferred_waits += (int64_t)n;
}

static void wait_at_places(struct waits *x)
{
	pl_sort(x->work, x->n, sizeof(*x->work), by_place);
	for (size_t i = 0, k; i < x->n && x->work[i].place != PL_NONE; i = k) {
		for (k = i; k < x->n && x->work[k].place == x->work[i].place; k++)
			;
		wait_for(x->b, &x->work[i], k - i);
	}
}

/* ---- single pauses --------------------------------------------------------------------------- */

/* Of the communications without a known wait that began before `before` and ended in (from, to]:
 * the one that ended last, or with `first` the one that ended first. NULL: none. */
static struct work *finished_in(const struct waits *x, pl_ns from, pl_ns to, pl_ns before,
				bool first)
{
	struct work *best = NULL;
	size_t lo = 0;

	PL_LOWER_BOUND(lo, x->n, x->work[lo].start < before);
	for (size_t i = lo; i-- > 0 && lo - i <= BACK_STEPS;) {
		struct work *w = &x->work[i];
		pl_ns end = end_of(x, w);

		if (w->place == PL_NONE && end > from && end <= to &&
		    x->b->node[w->op->last].start < before &&
		    (!best || (first ? end < end_of(x, best) : end > end_of(x, best))))
			best = w;
	}
	return best;
}

/* The communication for which the pause waited, NULL: none. */
static struct work *waited_for(const struct waits *x, const struct node *pause)
{
	pl_ns from = pause->start, to = from + pause->dur, part = pause->dur / 4;
	struct work *done = finished_in(x, pl_max_i64(from, to - pl_max_i64(PAUSE_NEAR_NS, part)),
					to, to, false);

	return done ? done : finished_in(x, to, to + pl_min_i64(WAKER_LATE_NS, part), to, true);
}

static void single_pauses(struct waits *x)
{
	struct builder *b = x->b;

	pl_sort(x->work, x->n, sizeof(*x->work), by_start);
	for (size_t k = 0; k < x->rank->n_res; k++) {
		struct resource *resource = &b->resource[x->rank->res[k]];

		if (!resource->thread || resource->service)
			continue;
		for (uint32_t i = resource->node0; i < resource->node1; i++) {
			struct work *w;

			/* pl_derive_split() has left a short pause where a wait is known */
			if (b->node[i].dur < PAUSE_MIN_NS || !is_pause(b, i))
				continue;
			w = waited_for(x, &b->node[i]);
			if (!w || (b->node[i].role != PL_RO_GAP &&
				   (w->res != b->node[i].res || w->issue >= i)))
				continue;
			w->place = i;
			wait_for(b, w, 1);
		}
	}
}

void pl_derive_service(struct builder *b, struct rank *rank)
{
	struct waits x = { .b = b, .rank = rank };

	if (!rank->comm_threads)
		return;
	launches(b, rank, &x.work, &x.n);
	latencies(b, rank, x.work, x.n);
	rank->waits0 = rank->waits1 = (uint32_t)b->n_nodes;
	if (b->o->infer && !(rank->all_sync && rank->n_waited)) {
		find_places(&x);
		wait_in_turn(&x);
		wait_at_places(&x);
		rank->waits1 = (uint32_t)b->n_nodes;
		single_pauses(&x);
	}
	pl_intern_fini(&x.keys);
	pl_free(x.place);
	pl_free(x.work);
}
