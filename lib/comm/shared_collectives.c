/*
 * Collectives in shared memory, without messages.
 *
 * Each rank describes a collective in its own slot, and reads the slots of the others. Small
 * collectives (at most 8 KiB of each rank) carry their data in the slot: every rank reads all
 * slots, and the collective has ended. Large ones use memory of the world. In an all-reduce, rank r
 * reads part r of every vector, sums the parts in the order of ranks and writes the result to every
 * rank, so each byte is read and written once. In other collectives each rank reads the data that
 * it receives. A second flag reports that a rank no longer needs the memory of others. If only some
 * of the memory is shared, the collective uses messages through rings. All ranks make the same
 * decision, because all see all slots.
 *
 * Slot i serves every 32nd collective. A rank fills it when all ranks have left the previous one.
 */
#include "comm/internal.h"

#define TURN ((size_t)256 << 10) /* bytes between two checks of other operations */

static struct pl_slot *slot_of(const struct pl_world *w, int rank, uint64_t number)
{
	return &w->peer[rank].shared->slot[number % PL_SLOTS];
}

/* The bytes of this rank that other ranks read. */
static size_t src_bytes(const struct pl_world *w, const struct pl_coll_args *a)
{
	return pl_comm_coll_extent(w, a).src_n * sizeof(float);
}

/* The size that decides how data travel. All ranks get the same: for a broadcast, the root's. */
static size_t decision_bytes(const struct pl_world *w, const struct pl_coll_args *a)
{
	return a->op == PL_OP_BROADCAST ? a->count * sizeof(float) : src_bytes(w, a);
}

bool pl_comm_shared_coll_fits(const struct pl_world *w, const struct pl_coll_args *a)
{
	return w->all_local && w->size > 1 && !w->shaped && a->op > PL_OP_RECV &&
	       (a->algo == PL_CA_AUTO || a->algo == PL_CA_DIRECT);
}

/* Sets a flag of this rank's slot, and wakes the ranks that wait for it. */
static void raise_flag(struct pl_world *w, _Atomic uint64_t *flag, uint64_t value)
{
	atomic_store_explicit(flag, value, memory_order_release);
	for (int r = 0; r < w->size; r++)
		pl_comm_world_wake_rank(w, r);
}

int pl_comm_shared_coll_waits_for(const struct pl_world *w, const struct pl_work *k)
{
	uint64_t until = k->slot + 1; /* the value that the flag of every rank must reach */

	if (!k->direct || k->state >= PL_WORK_STEPS || k->state == PL_WORK_SHARED)
		return -1;
	if (k->state == PL_WORK_QUEUED) /* all have left the previous collective of the slot */
		until -= pl_min_size(until, PL_SLOTS);
	for (int r = 0; r < w->size; r++) {
		const struct pl_slot *s = slot_of(w, r, k->slot);

		if (atomic_load_explicit(k->state == PL_WORK_POSTED ? &s->posted : &s->done,
					 memory_order_acquire) < until)
			return r;
	}
	return -1;
}

static bool post(struct pl_world *w, struct pl_work *k)
{
	struct pl_coll_args *a = &k->a;
	struct pl_slot *s = slot_of(w, w->rank, k->slot);

	if (pl_comm_shared_coll_waits_for(w, k) >= 0)
		return false;
	s->op = a->op;
	s->root = (uint32_t)a->root;
	s->count = a->count;
	if (decision_bytes(w, a) <= PL_EAGER) {
		if (src_bytes(w, a))
			memcpy(s->data, a->src, src_bytes(w, a));
	} else {
		s->src_region = pl_comm_shared_find(w, a->src, src_bytes(w, a), &s->src_at);
		s->dst_region = pl_comm_shared_find(w, a->dst, decision_bytes(w, a), &s->dst_at);
		if (a->op == PL_OP_ALLTOALL && a->src == a->dst)
			s->src_region = PL_NONE; /* other ranks would read overwritten data */
		if (a->op == PL_OP_BROADCAST && w->rank != a->root)
			s->src_region = 0; /* no rank reads it */
		if (a->op != PL_OP_ALLREDUCE)
			s->dst_region = 0;
	}
	raise_flag(w, &s->posted, k->slot + 1);
	k->state = PL_WORK_POSTED;
	k->last_progress = pl_now_ns();
	return true;
}

/* 1: all ranks have posted the same; 0: not yet; -1: the world failed. */
static int all_posted(struct pl_world *w, const struct pl_work *k)
{
	if (pl_comm_shared_coll_waits_for(w, k) >= 0)
		return 0;
	for (int r = 0; r < w->size; r++) {
		const struct pl_slot *s = slot_of(w, r, k->slot);

		if (s->op == k->a.op && s->count == k->a.count && s->root == (uint32_t)k->a.root)
			continue;
		pl_comm_world_fail(
			w, r,
			"rank %d began %s of %llu elements (root %u) where rank %d began %s %llu "
			"of %zu (root %d): ranks must begin the same operations",
			pl_comm_name(w, r), pl_comm_operation_name(s->op),
			(unsigned long long)s->count, s->root, pl_comm_name(w, w->rank),
			pl_comm_operation_name(k->a.op), (unsigned long long)k->seq, k->a.count,
			k->a.root);
		return -1;
	}
	return 1;
}

static void release_slot(struct pl_world *w, struct pl_work *k)
{
	raise_flag(w, &slot_of(w, w->rank, k->slot)->done, k->slot + 1);
}

/* ---- carrying out ---- */

/* Other ranks can write to a slot, so its values are checked. */
static bool is_inside(const struct pl_world *w, uint32_t region, uint64_t at, size_t bytes)
{
	const struct pl_region *g = &w->region[region % PL_REGIONS];

	return region < PL_REGIONS && g->base && at <= g->stride && bytes <= g->stride - at;
}

static bool all_shared(struct pl_world *w, const struct pl_work *k)
{
	for (int r = 0; r < w->size; r++) {
		const struct pl_slot *s = slot_of(w, r, k->slot);
		bool read = k->a.op != PL_OP_BROADCAST || r == k->a.root;

		if (s->src_region == PL_NONE || s->dst_region == PL_NONE ||
		    (read && !is_inside(w, s->src_region, s->src_at, decision_bytes(w, &k->a))) ||
		    (k->a.op == PL_OP_ALLREDUCE &&
		     !is_inside(w, s->dst_region, s->dst_at, decision_bytes(w, &k->a))))
			return false;
	}
	return true;
}

/* A small collective has its data in the slots. */
static bool is_small(const struct pl_world *w, const struct pl_work *k)
{
	return decision_bytes(w, &k->a) <= PL_EAGER;
}

static uint8_t *address(const struct pl_world *w, int rank, uint32_t region, uint64_t at)
{
	const struct pl_region *g = &w->region[region];

	return g->base + (size_t)w->peer[rank].local_rank * g->stride + at;
}

static const uint8_t *src_of(const struct pl_world *w, const struct pl_work *k, int r)
{
	const struct pl_slot *s = slot_of(w, r, k->slot);

	return is_small(w, k) ? s->data : address(w, r, s->src_region, s->src_at);
}

static uint8_t *dst_of(const struct pl_world *w, const struct pl_work *k, int r)
{
	const struct pl_slot *s = slot_of(w, r, k->slot);

	return address(w, r, s->dst_region, s->dst_at);
}

/* Set the bytes that this rank copies or sums: its part of a large all-reduce, else all. */
static void set_range(struct pl_world *w, struct pl_work *k)
{
	const struct pl_coll_args *a = &k->a;
	size_t n = (size_t)w->size, r = (size_t)w->rank, c = a->count, part = c * sizeof(float);
	/* whole cache lines, so that ranks do not write to the same one */
	size_t lines = (c + 15) / 16;

	k->from = 0;
	k->to = pl_comm_coll_extent(w, a).dst_n * sizeof(float);
	if (a->op == PL_OP_ALLREDUCE && !is_small(w, k)) {
		k->from = pl_min_size((lines * r / n) * 64, part);
		k->to = pl_min_size((lines * (r + 1) / n) * 64, part);
	} else if (a->op == PL_OP_BROADCAST && w->rank == a->root && a->src == a->dst) {
		k->to = 0;
	}
	k->at = k->from;
}

static void reduce_piece(struct pl_world *w, struct pl_work *k, size_t bytes)
{
	const float *src[PL_LOCAL_MAX];
	float *dst[PL_LOCAL_MAX];
	bool all = k->a.op == PL_OP_ALLREDUCE && !is_small(w, k);
	bool scatters = k->a.op == PL_OP_REDUCE_SCATTER;
	size_t skip = scatters ? (size_t)w->rank * k->a.count * sizeof(float) : 0;
	int n = w->size;

	for (int r = 0; r < n; r++) {
		src[r] = (const float *)(void *)(src_of(w, k, r) + skip + k->at);
		if (all)
			dst[r] = (float *)(void *)(dst_of(w, k, r) + k->at);
	}
	if (!all)
		dst[0] = (float *)(void *)((uint8_t *)k->a.dst + k->at);
	pl_comm_sum_many(dst, all ? n : 1, src, n, bytes / sizeof(float));
}

/* Copy the part of the piece that is in one rank's part; returns its bytes, at most `bytes`. */
static size_t copy_piece(struct pl_world *w, struct pl_work *k, size_t bytes)
{
	size_t part = k->a.count * sizeof(float), r = (size_t)k->a.root, in = k->at;
	uint8_t *d = (uint8_t *)k->a.dst + k->at;
	const uint8_t *s;

	if (k->a.op != PL_OP_BROADCAST) {
		r = k->at / part;
		in = k->at % part;
		bytes = pl_min_size(bytes, part - in);
	}
	s = src_of(w, k, (int)r) + in;
	if (k->a.op == PL_OP_ALLTOALL)
		s += (size_t)w->rank * part;
	if (s != d)
		memmove(d, s, bytes);
	return bytes;
}

/* Counts the bytes that other ranks read from this rank, and those that it wrote for them. */
static void count_sent(struct pl_world *w, const struct pl_work *k)
{
	size_t n = (size_t)w->size, part = k->a.count * sizeof(float), sent = part * (n - 1);

	if (k->a.op == PL_OP_ALLREDUCE)
		sent = (k->to - k->from) * (n - 1) + part - (k->to - k->from);
	else if (k->a.op == PL_OP_BROADCAST && w->rank != k->a.root)
		sent = 0;
	atomic_fetch_add_explicit(&w->sent, sent, memory_order_relaxed);
}

static bool transfer_turn(struct pl_world *w, struct pl_work *k)
{
	size_t bytes = pl_min_size(TURN, k->to - k->at);
	bool small = is_small(w, k);
	bool sums = k->a.op == PL_OP_ALLREDUCE || k->a.op == PL_OP_REDUCE_SCATTER;

	if (bytes && sums)
		reduce_piece(w, k, bytes);
	else if (bytes)
		bytes = copy_piece(w, k, bytes);
	k->at += bytes;
	k->last_progress = pl_now_ns();
	if (!small) /* who has done its part sees that this rank goes on */
		atomic_fetch_add_explicit(&slot_of(w, w->rank, k->slot)->turns, 1,
					  memory_order_relaxed);
	if (k->at < k->to)
		return true;
	count_sent(w, k);
	release_slot(w, k);
	/* where the data were in the slot, no rank uses other memory of this rank */
	k->state = small ? PL_WORK_DONE : PL_WORK_PART_DONE;
	return true;
}

/* All ranks have posted: carries the data in slots, in shared memory, or by messages. */
static void choose_transfer(struct pl_world *w, struct pl_work *k)
{
	struct pl_err e = { 0 };

	if (is_small(w, k) || all_shared(w, k)) {
		set_range(w, k);
		k->state = PL_WORK_SHARED;
	} else {
		/* the slot is read; the messages keep ranks together from here on */
		release_slot(w, k);
		k->direct = false;
		if (pl_comm_expand(k, &e) < 0)
			pl_comm_world_fail(w, w->rank, "rank %d: %s", pl_comm_name(w, w->rank),
					   e.msg);
		else
			pl_comm_engine_queue(k);
	}
}

/* Rank r, for which this one waits, may take long for its part. While it goes on, it is not late.
 */
static void notice_progress(const struct pl_world *w, struct pl_work *k, int r)
{
	uint64_t turns = atomic_load_explicit(&slot_of(w, r, k->slot)->turns, memory_order_relaxed);

	if (turns != k->turns)
		k->last_progress = pl_now_ns();
	k->turns = turns;
}

bool pl_comm_shared_coll_step(struct pl_world *w, struct pl_work *k, bool may_post, bool may_decide)
{
	bool moved = false;
	int r;

	if (k->state == PL_WORK_QUEUED)
		moved = may_post && post(w, k);
	if (k->state == PL_WORK_POSTED && may_decide && all_posted(w, k) > 0) {
		choose_transfer(w, k);
		moved = true;
	}
	if (k->state == PL_WORK_SHARED)
		return transfer_turn(w, k);
	if (k->state != PL_WORK_PART_DONE)
		return moved;
	r = pl_comm_shared_coll_waits_for(w, k);
	if (r < 0)
		k->state = PL_WORK_DONE;
	else
		notice_progress(w, k, r);
	return moved || r < 0;
}
