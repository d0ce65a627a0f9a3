/*
 * Collectives as programs of steps.
 *
 * The vector is cut into parts (one for each rank of the ring, or for each rank that owns one), and
 * parts into pieces of at most a segment. A piece keeps its number in all messages. `last` is the
 * step that wrote a piece last. A step that sends or sums the piece waits only for this step, so
 * pieces pass through all phases of an algorithm without waiting for one another.
 *
 * Ring: reduce-scatter and all-gather (Patarasuk and Yuan, JPDC 2009), 2(n-1)/n of the vector from
 * and to each rank. Halving: recursive halving and doubling (Rabenseifner, ICCS 2004; Thakur et
 * al., IJHPCA 2005), the same volume in 2 log2(n) rounds; ranks above the power of two first send
 * their vector to a partner. Tree: a binary tree, reduced to rank 0 and broadcast from it.
 * Hierarchical: reduced to the first rank of each host, a ring of these ranks, then broadcast on
 * each host. Direct: each rank sends to every other, and sums in the order of ranks.
 *
 * A piece is summed on one rank only, or in the same order on all ranks, so all ranks hold the same
 * bits. In-place operation is safe except for direct, because a piece is overwritten only by a
 * value that was computed from it. With two ranks, direct adds to a piece after it was sent. With
 * more ranks, it sends a copy.
 */
#include "comm/internal.h"

struct piece {
	size_t off, bytes; /* in the whole vector */
	uint32_t last;	   /* last step that wrote it; PL_NO_STEP: it is still in src */
	uint32_t sent;	   /* 1 + step that sent it: at most one, before it is overwritten */
};
struct expand {
	struct pl_work *k;
	struct pl_world *w;
	struct pl_err *err;
	int rc;
	const uint8_t *src;
	uint8_t *dst;
	size_t src_off, dst_off; /* offsets in the vector at which src and dst begin */
	uint8_t *own_dst;	 /* reduce-scatter: the place of the own part; else NULL */
	size_t own_off, own_end;
	struct piece *piece;
	size_t n_pieces, cap_pieces;
	uint32_t *first; /* first piece of each part, and the number of pieces at the end */
	size_t cap_first;
	int n_parts;
	uint32_t id_base;
	/* If ranks send different data for one offset: the difference of piece numbers; else 0. */
	uint32_t stride;
};

/* ---- pieces ---- */

/* The start of part c of m nearly equal parts of n. */
static size_t share_at(size_t n, size_t c, size_t m)
{
	return n / m * c + n % m * c / m;
}

static void add_piece(struct expand *x, size_t off, size_t bytes)
{
	const struct piece p = { .off = off, .bytes = bytes, .last = PL_NO_STEP };

	x->rc = pl_append(&x->piece, &x->n_pieces, &x->cap_pieces, &p, sizeof(p), x->err);
}

/* Cuts the floats [lo, hi) into m nearly equal parts; m 0: [lo, hi) of the `count` floats of each
 * rank. */
static void cut_pieces(struct expand *x, size_t lo, size_t hi, int m)
{
	size_t parts = (size_t)(m ? m : x->w->size);

	x->id_base += (uint32_t)x->n_pieces;
	x->n_pieces = 0;
	x->n_parts = (int)parts;
	x->rc = pl_grow(&x->first, &x->cap_first, parts + 1, sizeof(*x->first), x->err);
	for (size_t c = 0; c < parts && x->rc >= 0; c++) {
		size_t a = m ? lo + share_at(hi - lo, c, parts) : c * x->k->a.count + lo;
		size_t b = m ? lo + share_at(hi - lo, c + 1, parts) : a + hi - lo;
		size_t bytes = (b - a) * sizeof(float);

		x->first[c] = (uint32_t)x->n_pieces;
		for (size_t at = 0; x->rc >= 0 && at < bytes; at += x->w->segment)
			add_piece(x, a * sizeof(float) + at,
				  pl_min_size(x->w->segment, bytes - at));
		x->first[c + 1] = (uint32_t)x->n_pieces;
	}
}

/* ---- steps ---- */

static uint32_t emit(struct expand *x, struct pl_step s)
{
	struct pl_work *k = x->k;

	if (x->rc >= 0)
		x->rc = pl_grow(&k->step, &k->cap_steps, k->n_steps + 1, sizeof(*k->step), x->err);
	if (x->rc < 0)
		return PL_NO_STEP;
	if (s.kind <= PL_STEP_RECV_BEFORE && k->a.op > PL_OP_RECV)
		s.channel = (uint16_t)(x->w->peer[s.peer].local
					       ? 1
					       : 1 + s.chunk % (uint32_t)x->w->channels);
	s.n_after = s.after != PL_NO_STEP;
	k->step[k->n_steps] = s;
	return (uint32_t)k->n_steps++;
}

static uint8_t *dst_of(const struct expand *x, const struct piece *p)
{
	if (x->own_dst && p->off >= x->own_off && p->off < x->own_end)
		return x->own_dst + (p->off - x->own_off);
	return x->dst + (p->off - x->dst_off);
}

/* The data of a piece on this rank; NULL: none yet. */
static const uint8_t *src_of(const struct expand *x, const struct piece *p)
{
	if (p->last != PL_NO_STEP)
		return dst_of(x, p);
	return !x->src || p->off < x->src_off ? NULL : x->src + (p->off - x->src_off);
}

static struct pl_step step_for(const struct expand *x, uint8_t kind, int peer, size_t i)
{
	const struct piece *p = &x->piece[i];
	uint32_t whose = (uint32_t)(kind == PL_STEP_SEND ? x->w->rank : peer);

	return (struct pl_step){
		.kind = kind,
		.peer = peer,
		.chunk = x->id_base + (uint32_t)i + whose * x->stride,
		.bytes = p->bytes,
		.after = p->last,
		.sent = p->sent,
		.a = src_of(x, p),
	};
}

static void send(struct expand *x, int peer, size_t i)
{
	x->piece[i].sent = emit(x, step_for(x, PL_STEP_SEND, peer, i)) + 1;
}

/* RECV, RECV_ADD, RECV_TO or COPY into the piece */
static void write_piece(struct expand *x, uint8_t kind, int peer, size_t i)
{
	struct pl_step s = step_for(x, kind, peer, i);

	s.dst = dst_of(x, &x->piece[i]);
	if (kind != PL_STEP_COPY)
		x->piece[i].last = emit(x, s);
	else if (s.dst != s.a)
		emit(x, s); /* other pieces are sent from src */
}

/* A step for each piece of the parts [lo, hi), with one peer. */
static void emit_range(struct expand *x, uint8_t kind, int peer, int lo, int hi)
{
	for (uint32_t i = x->rc < 0 ? 0 : x->first[lo]; x->rc >= 0 && i < x->first[hi]; i++) {
		if (kind == PL_STEP_SEND)
			send(x, peer, i);
		else
			write_piece(x, kind, peer, i);
	}
}

static void one_part_of(struct expand *x, uint8_t kind, int peer, int c)
{
	emit_range(x, kind, peer, c, c + 1);
}

static void all_parts(struct expand *x, uint8_t kind, int peer)
{
	emit_range(x, kind, peer, 0, x->n_parts);
}

/* ---- algorithms ---- */

static int modulo(int i, int n)
{
	return (i % n + n) % n;
}

static int power_below(int n)
{
	int p = 1;

	while (2 * p <= n)
		p *= 2;
	return p;
}

/*
 * The parent of rank `r` in the tree along which an algorithm reduces and broadcasts; -1: none.
 * Rings and halving work among the ranks without a parent. A broadcast begins at its root, which
 * also serves the ranks of its host.
 */
static int parent_of(const struct expand *x, uint8_t algo, int r)
{
	const int *leader = x->w->leader_of;
	bool from_root = x->k->a.op == PL_OP_BROADCAST;
	int n = x->w->size, p = power_below(n), root = from_root ? x->k->a.root : 0;
	int v = modulo(r - root, n);

	if (algo == PL_CA_HALVING)
		return r < p ? -1 : r - p;
	if (algo == PL_CA_HIERARCHICAL && !from_root)
		return leader[r] == r ? -1 : leader[r];
	if (!v || (algo == PL_CA_RING && !from_root))
		return -1;
	if (algo == PL_CA_HIERARCHICAL)
		return leader[r] == r || leader[r] == leader[root] ? root : leader[r];
	return modulo(root + (algo == PL_CA_RING   ? v - 1
			      : algo == PL_CA_TREE ? (v - 1) / 2
						   : 0),
		      n);
}

/* A step for each piece and each child of this rank. */
static void with_children(struct expand *x, uint8_t algo, uint8_t kind)
{
	for (int r = 0; r < x->w->size; r++)
		if (parent_of(x, algo, r) == x->w->rank)
			all_parts(x, kind, r);
}

static void reduce_up(struct expand *x, uint8_t algo)
{
	int top = parent_of(x, algo, x->w->rank);

	with_children(x, algo, PL_STEP_RECV_ADD);
	if (top >= 0)
		all_parts(x, PL_STEP_SEND, top);
}

static void broadcast_down(struct expand *x, uint8_t algo)
{
	int top = parent_of(x, algo, x->w->rank);

	if (top >= 0)
		all_parts(x, PL_STEP_RECV, top);
	with_children(x, algo, PL_STEP_SEND);
}

static bool in_ring(const struct expand *x, uint8_t algo, int r)
{
	return algo != PL_CA_HIERARCHICAL || x->w->leader_of[r] == r;
}

/*
 * A ring of all ranks, or of the first ranks of the hosts, in order. RECV_ADD: member i holds the
 * sum of part i afterwards; RECV: it has part i, and all have all afterwards.
 */
static void ring(struct expand *x, uint8_t algo, uint8_t kind)
{
	int size = x->w->size, rank = x->w->rank, next = rank, prev = rank, n = 0, first;

	do
		next = modulo(next + 1, size);
	while (!in_ring(x, algo, next));
	do
		prev = modulo(prev - 1, size);
	while (!in_ring(x, algo, prev));
	first = -(kind == PL_STEP_RECV_ADD);
	for (int r = 0; r < size; r++) {
		n += in_ring(x, algo, r);
		first += r < rank && in_ring(x, algo, r);
	}
	for (int s = 0; s + 1 < n; s++) {
		one_part_of(x, PL_STEP_SEND, next, modulo(first - s, n));
		one_part_of(x, kind, prev, modulo(first - s - 1, n));
	}
}

static void halving(struct expand *x)
{
	int r = x->w->rank, p = power_below(x->w->size), lo = 0, hi = p;

	for (int m = p / 2; m; m /= 2) {
		int mid = lo + m;
		bool low = !(r & m);

		emit_range(x, PL_STEP_SEND, r ^ m, low ? mid : lo, low ? hi : mid);
		emit_range(x, PL_STEP_RECV_ADD, r ^ m, low ? lo : mid, low ? mid : hi);
		lo = low ? lo : mid;
		hi = lo + m;
	}
	for (int m = 1; m < p; m *= 2) {
		int other = lo ^ m;

		emit_range(x, PL_STEP_SEND, r ^ m, lo, lo + m);
		emit_range(x, PL_STEP_RECV, r ^ m, other, other + m);
		lo &= ~m;
	}
}

/* dst = the sum of this part over all ranks, in their order; own: the value of this rank */
static void sum_in_order(struct expand *x, int part, const uint8_t *own)
{
	int n = x->w->size, r = x->w->rank;

	for (uint32_t i = x->first[part]; i < x->first[part + 1]; i++) {
		const uint8_t *mine = own + (x->piece[i].off - x->piece[x->first[part]].off);

		for (int q = 0; q < n; q++) {
			struct pl_step s = step_for(x, PL_STEP_RECV_ADD, q, i);

			s.dst = dst_of(x, &x->piece[i]);
			/* ranks 0 and 1 add their own value to the first received one */
			if (q == r && (r <= 1))
				continue;
			if (q == r) {
				s.kind = PL_STEP_ADD;
				s.a = mine;
			} else if (q == 0) {
				s.kind = r == 1 ? PL_STEP_RECV_BEFORE : PL_STEP_RECV;
				s.a = mine;
			} else if (q == 1 && r == 0) {
				s.a = mine;
			}
			x->piece[i].last = emit(x, s);
		}
	}
}

/* Direct between two ranks, in place: a received piece stays in temporary memory until the own
 * piece was sent. This is faster than a copy of the whole vector, which must be complete before the
 * first piece is sent, and the received piece is still in the cache. */
static void exchange_in_place(struct expand *x)
{
	int r = x->w->rank;

	for (size_t i = 0; i < x->n_pieces && x->rc >= 0; i++) {
		struct pl_step s = step_for(x, PL_STEP_RECV, !r, i);
		uint32_t sent;

		send(x, !r, i);
		sent = x->piece[i].sent - 1;
		s.dst = (uint8_t *)x->k->temp + x->piece[i].off;
		emit(x, s);
		s.kind = r ? PL_STEP_ADD_BEFORE : PL_STEP_ADD; /* in the order of ranks */
		s.a = s.dst;
		s.dst = dst_of(x, &x->piece[i]);
		s.after = sent; /* and after the receive, the step that follows it */
		if (emit(x, s) != PL_NO_STEP)
			x->k->step[x->k->n_steps - 1].n_after = 2;
	}
}

static void alloc_temp(struct expand *x, size_t bytes)
{
	x->k->temp = pl_malloc(bytes);
	if (!x->k->temp)
		x->rc = pl_fail(x->err, PL_ENOMEM, "out of memory (%zu bytes)", bytes);
}

/* Copies the input of the user, where the result would overwrite it. */
static const uint8_t *copy_input(struct expand *x, const void *p, size_t bytes)
{
	alloc_temp(x, bytes);
	return x->k->temp ? memcpy(x->k->temp, p, bytes) : p;
}

static void direct_all_reduce(struct expand *x, size_t lo)
{
	int n = x->w->size;

	if (x->rc < 0)
		return;
	x->stride = (uint32_t)x->n_pieces;
	if (n == 2 && x->src == x->dst) {
		exchange_in_place(x);
	} else {
		for (int i = 1; i < n; i++)
			all_parts(x, PL_STEP_SEND, modulo(x->w->rank + i, n));
		sum_in_order(x, 0, x->src + lo * sizeof(float));
	}
	x->id_base += (uint32_t)(n - 1) * x->stride;
	x->stride = 0;
}

static void all_reduce(struct expand *x, uint8_t algo, size_t lo, size_t hi)
{
	const int parts[] = { [PL_CA_RING] = x->w->size,
			      [PL_CA_HALVING] = power_below(x->w->size),
			      [PL_CA_HIERARCHICAL] = x->w->n_hosts,
			      [PL_CA_TREE] = 1,
			      [PL_CA_DIRECT] = 1 };

	cut_pieces(x, lo, hi, parts[algo]);
	if (algo == PL_CA_DIRECT) {
		direct_all_reduce(x, lo);
		return;
	}
	reduce_up(x, algo);
	if (parent_of(x, algo, x->w->rank) < 0) {
		if (algo == PL_CA_HALVING) {
			halving(x);
		} else if (algo != PL_CA_TREE) {
			ring(x, algo, PL_STEP_RECV_ADD);
			ring(x, algo, PL_STEP_RECV);
		}
	}
	broadcast_down(x, algo);
}

static void reduce_scatter(struct expand *x, uint8_t algo, const uint8_t *own, size_t lo, size_t hi)
{
	int n = x->w->size, me = x->w->rank;

	cut_pieces(x, lo, hi, 0);
	if (algo == PL_CA_RING) {
		ring(x, algo, PL_STEP_RECV_ADD);
		return;
	}
	for (int i = 1; i < n; i++)
		one_part_of(x, PL_STEP_SEND, modulo(me + i, n), modulo(me + i, n));
	if (x->rc >= 0)
		sum_in_order(x, me, own + lo * sizeof(float));
}

static void all_gather(struct expand *x, uint8_t algo, size_t lo, size_t hi)
{
	int n = x->w->size, me = x->w->rank;

	cut_pieces(x, lo, hi, 0);
	one_part_of(x, PL_STEP_COPY, me, me);
	if (algo == PL_CA_RING) {
		ring(x, algo, PL_STEP_RECV);
		return;
	}
	for (int i = 1; i < n; i++)
		one_part_of(x, PL_STEP_SEND, modulo(me + i, n), me);
	for (int i = 1; i < n; i++)
		one_part_of(x, PL_STEP_RECV, modulo(me - i, n), modulo(me - i, n));
}

static void all_to_all(struct expand *x, size_t lo, size_t hi)
{
	int n = x->w->size, me = x->w->rank;

	cut_pieces(x, lo, hi, 0);
	for (int i = 1; i < n && x->rc >= 0; i++) {
		int to = modulo(me + i, n), from = modulo(me - i, n);

		one_part_of(x, PL_STEP_SEND, to, to);
		for (uint32_t j = x->first[from]; j < x->first[from + 1]; j++) {
			struct pl_step s = step_for(x, PL_STEP_RECV, from, j);

			s.dst = dst_of(x, &x->piece[j]);
			/* it is the sender's part for this rank */
			s.chunk = x->id_base + x->first[me] + (j - x->first[from]);
			emit(x, s);
		}
	}
	one_part_of(x, PL_STEP_COPY, me, me);
}

/* Dissemination (Hensgen, Finkel, Manber, 1988): log2(n) rounds link all pairs of ranks. */
static void barrier(struct expand *x)
{
	int n = x->w->size, r = x->w->rank;
	uint32_t last = PL_NO_STEP, round = 0;

	for (int d = 1; d < n; d *= 2, round++) {
		struct pl_step s = { .kind = PL_STEP_SEND,
				     .peer = modulo(r + d, n),
				     .chunk = round };

		s.after = last;
		emit(x, s);
		s.kind = PL_STEP_RECV;
		s.peer = modulo(r - d, n);
		last = emit(x, s);
	}
}

static void one_rank(struct expand *x)
{
	const struct pl_coll_args *a = &x->k->a;

	if (a->op != PL_OP_BARRIER && a->src != a->dst && a->count)
		emit(x, (struct pl_step){ .kind = PL_STEP_COPY,
					  .after = PL_NO_STEP,
					  .dst = a->dst,
					  .a = a->src,
					  .bytes = a->count * sizeof(float) });
}

/* ---- the program of a work ---- */

/* Sets pointers and offsets. Copies input that direct would overwrite before it is sent. */
static const uint8_t *prepare(struct expand *x, uint8_t algo)
{
	struct pl_coll_args *a = &x->k->a;
	size_t part = a->count * sizeof(float), n = (size_t)x->w->size;
	const uint8_t *own = NULL;

	x->src = a->src;
	x->dst = a->dst;
	if (a->op == PL_OP_ALLREDUCE && algo == PL_CA_DIRECT && a->src == a->dst && n == 2)
		alloc_temp(x, part);
	else if (a->op == PL_OP_ALLREDUCE && algo == PL_CA_DIRECT && a->src == a->dst)
		x->src = copy_input(x, a->src, part);
	else if (a->op == PL_OP_ALLTOALL && a->src == a->dst)
		x->src = copy_input(x, a->src, part * n);
	else if (a->op == PL_OP_BROADCAST && x->w->rank != a->root)
		x->src = a->dst;
	else if (a->op == PL_OP_ALLGATHER)
		x->src_off = (size_t)x->w->rank * part;
	if (a->op != PL_OP_REDUCE_SCATTER)
		return NULL;
	x->own_dst = a->dst;
	x->own_off = (size_t)x->w->rank * part;
	x->own_end = x->own_off + part;
	own = x->src + x->own_off;
	if (algo == PL_CA_DIRECT)
		return own == a->dst ? copy_input(x, own, part) : own;
	alloc_temp(x, part * n);
	x->dst = x->k->temp;
	return own;
}

static void message(struct expand *x)
{
	const struct pl_coll_args *a = &x->k->a;
	uint8_t kind = a->op == PL_OP_SEND ? PL_STEP_SEND : PL_STEP_RECV;

	cut_pieces(x, 0, a->count, 1);
	all_parts(x, kind, a->root);
	if (!x->n_pieces) /* an empty message tells the peer that the operation was begun */
		emit(x, (struct pl_step){ .kind = kind, .peer = a->root, .after = PL_NO_STEP });
}

static void one_part(struct expand *x, uint8_t algo, const uint8_t *own, size_t lo, size_t hi)
{
	const struct pl_coll_args *a = &x->k->a;

	switch (a->op) {
	case PL_OP_ALLREDUCE:
		all_reduce(x, algo, lo, hi);
		break;
	case PL_OP_REDUCE_SCATTER:
		reduce_scatter(x, algo, own, lo, hi);
		break;
	case PL_OP_ALLGATHER:
		all_gather(x, algo, lo, hi);
		break;
	case PL_OP_BROADCAST:
		cut_pieces(x, lo, hi, 1);
		broadcast_down(x, algo);
		if (x->w->rank == a->root)
			all_parts(x, PL_STEP_COPY, a->root);
		break;
	default:
		all_to_all(x, lo, hi);
	}
}

int pl_comm_expand(struct pl_work *k, struct pl_err *err)
{
	struct expand x = { .k = k, .w = k->w, .err = err };
	struct pl_coll_args *a = &k->a;
	uint8_t algo = pl_comm_algo(k->w, a->op, a->algo, pl_comm_coll_bytes(k->w, a));
	size_t parts = a->parts ? a->parts : 1;

	a->algo = algo;
	if (parts > a->count)
		parts = a->count ? a->count : 1;
	if (a->op <= PL_OP_RECV) {
		x.src = a->src;
		x.dst = a->dst;
		message(&x);
	} else if (k->w->size == 1) {
		one_rank(&x);
	} else if (a->op == PL_OP_BARRIER) {
		barrier(&x);
	} else if (a->count) {
		const uint8_t *own = prepare(&x, algo);

		for (size_t p = 0; p < parts && x.rc >= 0; p++)
			one_part(&x, algo, own, share_at(a->count, p, parts),
				 share_at(a->count, p + 1, parts));
	}
	pl_free(x.piece);
	pl_free(x.first);
	return x.rc < 0 ? x.rc : 0;
}
