/*
 * The order in which a rank issued collectives that several of its threads carry out.
 *
 * gloo hands collectives to service threads. Two collectives that are issued back to back start at
 * once on two threads, and chance decides on each rank which of them starts first. Only the order
 * of issue is the same on all ranks. Two records show it:
 *
 *  - Record function numbers are counted through a process and given when a collective is issued.
 *    Where the profiler wrote them, they are the order.
 *  - The host operators that issue (c10d::broadcast_) are recorded, one for each collective. The
 *    service threads take from one queue. So the k-th collective of a kind and size that starts was
 *    issued by the k-th operator of that kind and size. Operators that write their sizes in another
 *    way are left for a second pass, which compares kinds alone.
 *
 * Events keep their times. Events whose issue is known exchange their places in the rank's order:
 * the one that was issued first gets the place of the one that started first.
 *
 * lib/derive/service.c also looks for the operator of a collective, but by another rule, because a
 * wrong answer costs something else. Here only the order counts. A collective whose operator is not
 * found keeps its place, so operators of exactly its size come first, and numbers of record
 * functions count only if all collectives have them. There each communication needs an operator:
 * nothing else would delay it in a prediction. So it takes the next one that fits, whatever is
 * known: correlations, numbers of record functions, sizes, or only the kind.
 *
 * Cost: sorting the communication; one look at a table for each other event.
 */
#include <stdlib.h>

#include "clock/internal.h"

/* Of text: some dozens of sizes. Longer lists are told apart by their beginning. */
#define DIMS_MAX 512

struct issue_op { /* a host operator that issues */
	pl_ns ts, end;
	uint32_t track, next; /* next: of the same key, PL_NONE */
	pl_id coll, dims;
	bool used;
};

struct issue_note { /* beside each event of the segment */
	int64_t rf;
	pl_id dims;
};

struct pl_issue {
	struct pl_intern str; /* its own: numbers of pl_align.str decide between equals elsewhere */
	struct issue_op *op;
	size_t n, cap;
	struct issue_note *note;
	size_t n_notes, cap_notes;
	pl_id *coll; /* by string of the segment: collective that it names, NOT_YET */
	size_t n_coll, cap_coll;
	uint32_t *row_op; /* row of the batch -> op, PL_NONE */
};

#define NOT_YET (PL_NONE - 1)

int pl_clock_issue_begin(struct pl_issue **at, struct pl_err *err)
{
	if (!*at) {
		PL_CHECK(pl_alloc(at, 1, sizeof(**at), err));
		PL_CHECK(pl_alloc(&(*at)->row_op, PL_BATCH_ROWS, sizeof(*(*at)->row_op), err));
	}
	(*at)->n = (*at)->n_notes = (*at)->n_coll = 0;
	return 0;
}

void pl_clock_issue_free(struct pl_issue *is)
{
	if (!is)
		return;
	pl_intern_fini(&is->str);
	pl_free(is->op);
	pl_free(is->note);
	pl_free(is->coll);
	pl_free(is->row_op);
	pl_free(is);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int named(struct pl_issue *is, const char *s, size_t n, pl_id *coll, struct pl_err *err)
{
	const char *c = pl_trace_coll_from_name(s, n);

	*coll = PL_NONE;
	return c ? pl_intern_add(&is->str, c, strlen(c), coll, err) : 0;
}

static int add_op(struct pl_issue *is, const struct pl_segment *seg, const struct pl_batch *b,
		  uint32_t row, struct pl_err *err)
{
	pl_id name = b->name[row];

	if (name >= is->n_coll || b->dur[row] < 0)
		return 0;
	if (is->coll[name] == NOT_YET)
		PL_CHECK(named(is, seg->str.str[name], seg->str.len[name], &is->coll[name], err));
	if (is->coll[name] == PL_NONE || is->n >= PL_NONE)
		return 0;
	PL_CHECK(pl_grow(&is->op, &is->cap, is->n + 1, sizeof(*is->op), err));
	is->row_op[row] = (uint32_t)is->n;
	is->op[is->n++] = (struct issue_op){ .ts = b->ts[row],
					     .end = pl_add_sat(b->ts[row], b->dur[row]),
					     .track = b->track[row],
					     .coll = is->coll[name],
					     .dims = PL_NONE };
	return 0;
}

static int add_dims(struct pl_issue *is, const struct pl_segment *seg, const struct pl_col *c,
		    const uint32_t *row_note, struct pl_err *err)
{
	char text[DIMS_MAX];

	if (c->type != PL_V_STR && c->type != PL_V_JSON)
		return 0;
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t op = is->row_op[c->row[i]], note = row_note[c->row[i]];
		size_t n;

		if ((op == PL_NONE && note == PL_NONE) || (uint64_t)c->val[i] >= seg->str.n)
			continue;
		n = pl_trace_dims_text(pl_intern_get(&seg->str, (pl_id)c->val[i]), op != PL_NONE,
				       text, sizeof(text));
		PL_CHECK(pl_intern_add(&is->str, text, n,
				       op != PL_NONE ? &is->op[op].dims : &is->note[note].dims,
				       err));
	}
	return 0;
}

int pl_clock_issue_batch(struct pl_issue *is, const struct pl_segment *seg,
			 const struct pl_batch *b, const uint32_t *row_note, size_t n_notes,
			 struct pl_err *err)
{
	PL_CHECK(pl_grow(&is->coll, &is->cap_coll, seg->str.n + 1, sizeof(*is->coll), err));
	for (; is->n_coll < seg->str.n; is->n_coll++)
		is->coll[is->n_coll] = NOT_YET;
	PL_CHECK(pl_grow(&is->note, &is->cap_notes, n_notes + 1, sizeof(*is->note), err));
	for (; is->n_notes < n_notes; is->n_notes++)
		is->note[is->n_notes] = (struct issue_note){ -1, PL_NONE };
	for (uint32_t i = 0; i < b->n; i++) {
		is->row_op[i] = PL_NONE;
		if (b->kind[i] == PL_K_HOST_OP)
			PL_CHECK(add_op(is, seg, b, i, err));
	}
	for (uint32_t k = 0; k < b->n_cols; k++) {
		const struct pl_col *c = &b->col[k];

		if (c->role == PL_R_DIMS)
			PL_CHECK(add_dims(is, seg, c, row_note, err));
		if (c->role != PL_R_RECORD)
			continue;
		for (uint32_t i = 0; i < c->n; i++)
			if (row_note[c->row[i]] != PL_NONE)
				is->note[row_note[c->row[i]]].rf = c->val[i];
	}
	return 0;
}

/* ---- the order of one rank ------------------------------------------------------------------- */

struct issued { /* an event on a thread, or an operator */
	int32_t rank;
	pl_ns ts;
	int64_t key; /* of an event: order of issue, NO_VALUE unknown */
	uint32_t i;  /* ev or op */
	uint32_t track;
};

PL_COMPARATOR(by_start, struct issued, rank, ts, i);

PL_COMPARATOR(by_key, struct issued, key, i);

/* Identifiers of all, each another? Those that are not counted are 0. */
static bool by_record_function(const struct pl_issue *is, size_t ev0, struct issued *v, size_t n)
{
	bool good = true;

	for (size_t i = 0; i < n; i++) {
		v[i].key = is->note[v[i].i - ev0].rf;
		good &= v[i].key > 0;
	}
	if (!good)
		return false;
	qsort(v, n, sizeof(*v), by_key);
	for (size_t i = 1; i < n; i++)
		good &= v[i].key != v[i - 1].key;
	return good;
}

/* Operators that only call another one for the same collective issue nothing themselves. */
static size_t drop_outer(const struct pl_issue *is, struct issued *o, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		const struct issue_op *p = &is->op[o[i].i];
		bool outer = false;

		for (size_t k = i + 1; k < n && o[k].ts < p->end && !outer; k++)
			outer = o[k].track == o[i].track && is->op[o[k].i].coll == p->coll;
		if (!outer)
			o[kept++] = o[i];
	}
	return kept;
}

/* Give events, by start, the first operators of their kind (and size) that nobody has yet. */
static int take_ops(struct pl_align *a, struct pl_issue *is, size_t ev0, struct issued *v, size_t n,
		    const struct issued *o, size_t n_ops, bool sizes, struct pl_err *err)
{
	struct pl_intern kinds = { 0 };
	uint32_t *head = NULL, k; /* of each kind: the first operator that nobody has */
	int rc;

	PL_TRY(pl_alloc(&head, n_ops + 1, sizeof(*head), err));
	for (size_t i = n_ops; i-- > 0;) {
		struct issue_op *op = &is->op[o[i].i];
		pl_id key[2] = { op->coll, sizes ? op->dims : PL_NONE };
		size_t before = kinds.n;

		if (op->used)
			continue;
		PL_TRY(pl_intern_add(&kinds, (const char *)key, sizeof(key), &k, err));
		op->next = kinds.n > before ? PL_NONE : head[k];
		head[k] = o[i].i;
	}
	for (size_t i = 0; i < n; i++) {
		pl_id name = a->ev[v[i].i].name, key[2] = { PL_NONE, PL_NONE };
		uint32_t op;

		if (v[i].key != PL_NO_VALUE || name == PL_NONE)
			continue;
		PL_TRY(named(is, a->str.str[name], a->str.len[name], &key[0], err));
		key[1] = sizes ? is->note[v[i].i - ev0].dims : PL_NONE;
		k = pl_intern_find(&kinds, (const char *)key, sizeof(key));
		op = k == PL_NONE ? PL_NONE : head[k];
		if (op == PL_NONE || is->op[op].ts > v[i].ts)
			continue;
		head[k] = is->op[op].next;
		is->op[op].used = true;
		v[i].key = is->op[op].ts;
	}
out:
	pl_intern_fini(&kinds);
	pl_free(head);
	return rc;
}

/* Events v[0..n) of one rank exchange their turns. `o`: its operators; both are by start. */
static int settle_rank(struct pl_align *a, struct pl_issue *is, size_t ev0, struct issued *v,
		       size_t n, struct issued *o, size_t n_ops, pl_ns *turn, struct pl_err *err)
{
	size_t known = 0;

	if (!by_record_function(is, ev0, v, n)) {
		for (size_t i = 0; i < n; i++)
			v[i].key = PL_NO_VALUE;
		qsort(v, n, sizeof(*v), by_start);
		n_ops = drop_outer(is, o, n_ops);
		PL_CHECK(take_ops(a, is, ev0, v, n, o, n_ops, true, err));
		PL_CHECK(take_ops(a, is, ev0, v, n, o, n_ops, false, err));
	}
	qsort(v, n, sizeof(*v), by_start);
	for (size_t i = 0; i < n; i++)
		if (v[i].key != PL_NO_VALUE) {
			turn[known] = v[i].ts;
			v[known++] = v[i];
		}
	qsort(v, known, sizeof(*v), by_key);
	for (size_t i = 0; i < known; i++)
		a->ev[v[i].i].turn = turn[i];
	return 0;
}

/* ---- the segment ----------------------------------------------------------------------------- */

/* Add what runs on a thread; what runs on streams keeps its order there. */
static void add_issued(const struct pl_segment *seg, uint32_t track, pl_ns ts, size_t i,
		       struct issued *v, size_t *n)
{
	if (track < seg->n_tracks && seg->track[track].type != PL_T_STREAM)
		v[(*n)++] = (struct issued){ seg->track[track].rank, ts, PL_NO_VALUE, (uint32_t)i,
					     track };
}

int pl_clock_issue_settle(struct pl_align *a, struct pl_issue *is, const struct pl_segment *seg,
			  size_t ev0, struct pl_err *err)
{
	struct issued *v = NULL, *o = NULL;
	pl_ns *turn = NULL;
	size_t n = 0, n_ops = 0, op = 0;
	int rc;

	PL_TRY(pl_alloc(&v, a->n - ev0 + 1, sizeof(*v), err));
	PL_TRY(pl_alloc(&turn, a->n - ev0 + 1, sizeof(*turn), err));
	PL_TRY(pl_alloc(&o, is->n + 1, sizeof(*o), err));
	for (size_t i = ev0; i < a->n; i++)
		if (a->ev[i].kind == PL_K_COLLECTIVE)
			add_issued(seg, a->ev[i].comm_stream, a->ev[i].ts, i, v, &n);
	for (size_t i = 0; i < is->n && n; i++)
		add_issued(seg, is->op[i].track, is->op[i].ts, i, o, &n_ops);
	pl_sort(v, n, sizeof(*v), by_start);
	pl_sort(o, n_ops, sizeof(*o), by_start);
	for (size_t i = 0, end, op_end; i < n; i = end) {
		bool several = false;

		for (end = i; end < n && v[end].rank == v[i].rank; end++)
			several |= v[end].track != v[i].track;
		while (op < n_ops && o[op].rank < v[i].rank)
			op++;
		for (op_end = op; op_end < n_ops && o[op_end].rank == v[i].rank;)
			op_end++;
		if (several)
			PL_TRY(settle_rank(a, is, ev0, v + i, end - i, o + op, op_end - op, turn,
					   err));
	}
out:
	pl_free(v);
	pl_free(o);
	pl_free(turn);
	return rc;
}
