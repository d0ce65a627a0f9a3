/*
 * Tensor programs as CUDA C++: kernels, and a function of the host that launches them.
 *
 * A kernel is an outermost loop that is bound to blocks or threads, with all inside. In it, the
 * outermost loops that are bound to threads are phases: in a phase, every thread carries out its
 * own iterations. All threads carry out a loop that encloses phases; a statement outside of
 * phases, or a loop there without phases, is a phase of the first thread. A phase needs
 * __syncthreads() before it if it reads or writes numbers that an earlier phase has written, or
 * writes numbers that an earlier phase has read, unless a __syncthreads() stands between the two.
 * In a loop, all phases of the loop count as earlier ones. An array of a block that is not shared
 * is kept by each thread, without its first dimensions, where these are the thread itself each time
 * that it is used; otherwise it is in shared memory, too. Linear in the program times its depth.
 */
#include "tprog/internal.h"

#define MOST_SHARED  (48 << 10) /* bytes of a block, without asking for more */
#define MOST_THREADS 1024
#define UNROLLED     64 /* iterations at most */

static const char axis[3] = { 'x', 'y', 'z' };

enum { BLOCKS = 1, THREADS = 2 };    /* what is bound in a node, or inside of it */
enum { READ = 1, WRITTEN = 2 };	     /* a buffer, since threads have waited */
enum memory { GLOBAL, SHARED, OWN }; /* where a buffer lies: OWN: in each thread */

struct kernel {
	uint32_t root, from, end; /* the nodes in all its blocks */
	int64_t block[3], thread[3];
	uint32_t block_loop[3]; /* PL_NONE: none */
};
struct cuda {
	const struct pl_tprog *p;
	const char *name;
	struct pl_writer *w;
	struct pl_err *err;
	uint8_t *bound;	  /* [node] */
	uint32_t *phase;  /* [node]: the first node of its phase; PL_NONE */
	uint8_t *threads; /* [node]: of a phase: the axes that its threads have, bits */
	uint8_t *skip, *memory, *state, *now; /* [buffer] */
	struct kernel *kernel;
	size_t n_kernels, cap_kernels;
	struct pl_tprog_c c;
};

/* The axis that a node binds, 0 to 2; -1: none. */
static int axis_of(const struct pl_tprog_node *x, enum pl_tprog_bind first)
{
	return x->kind == PL_TPROG_FOR && x->bind >= first && x->bind <= first + 2
		       ? x->bind - (int)first
		       : -1;
}

static int block_axis(const struct cuda *k, uint32_t node)
{
	return axis_of(&k->p->node[node], PL_TPROG_BLOCK_X);
}

static int thread_axis(const struct cuda *k, uint32_t node)
{
	return axis_of(&k->p->node[node], PL_TPROG_THREAD_X);
}

static int refuse(const struct cuda *k, uint32_t node, const char *why)
{
	const struct pl_tprog_node *x = &k->p->node[node];

	return pl_fail(k->err, PL_EDATA, "program %.100s, which line %u begins: %s %.100s %s",
		       k->p->name, k->p->line, x->kind == PL_TPROG_FOR ? "loop" : "array",
		       x->kind == PL_TPROG_FOR ? x->name : k->p->buffer[x->buffer].name, why);
}

bool pl_tprog_is_cuda(const struct pl_tprog *p)
{
	bool bound = false;

	for (size_t i = 0; i < p->n_nodes; i++)
		bound |= axis_of(&p->node[i], PL_TPROG_BLOCK_X) >= 0 ||
			 axis_of(&p->node[i], PL_TPROG_THREAD_X) >= 0;
	return bound;
}

/* ---- what a statement touches ---------------------------------------------------------------- */

typedef void visit(struct cuda *k, uint32_t node, uint32_t buffer, uint32_t arg, uint8_t how);

static void visit_loads(struct cuda *k, uint32_t node, uint32_t expr, visit *f)
{
	const struct pl_tprog_expr *e = &k->p->expr[expr];

	if (e->op == PL_TPROG_LOAD)
		f(k, node, e->ref, e->arg, READ);
	for (uint32_t i = 0; i < e->n_args; i++)
		visit_loads(k, node, k->p->arg[e->arg + i], f);
}

/* All that the statements from..end read and write. */
static void visit_all(struct cuda *k, uint32_t from, uint32_t end, visit *f)
{
	for (uint32_t i = from; i < end; i++) {
		const struct pl_tprog_node *x = &k->p->node[i];

		if (x->kind != PL_TPROG_STORE)
			continue;
		visit_loads(k, i, x->value, f);
		for (int d = 0; d < k->p->buffer[x->buffer].n_dims; d++)
			visit_loads(k, i, k->p->arg[x->arg + (uint32_t)d], f);
		f(k, i, x->buffer, x->arg, x->update == PL_TPROG_SET ? WRITTEN : READ | WRITTEN);
	}
}

/* ---- kernels and phases ---------------------------------------------------------------------- */

/* The nodes of a phase: every statement has the same threads. */
static int check_phase(struct cuda *k, struct kernel *q, uint32_t root)
{
	uint32_t end = k->p->node[root].end, first = root;
	uint8_t all = 0;

	while (k->p->node[first].kind != PL_TPROG_STORE && first + 1 < end)
		first++;
	for (uint32_t i = root; i < end; i++) {
		const struct pl_tprog_node *x = &k->p->node[i];
		uint8_t mine = i > root ? k->threads[x->parent] : 0;
		int a = thread_axis(k, i);

		k->phase[i] = root;
		if (block_axis(k, i) >= 0)
			return refuse(k, i, "is bound to blocks inside of other loops");
		if (a >= 0 && (mine & 1 << a))
			return refuse(k, i, "is bound to threads that another loop has");
		if (a >= 0 && x->reduce)
			return refuse(k, i, "sums up, and is bound to threads");
		if (a >= 0)
			q->thread[a] = pl_max_i64(q->thread[a], x->extent);
		k->threads[i] = mine | (uint8_t)(a >= 0 ? 1 << a : 0);
		if (x->kind == PL_TPROG_ALLOC && mine && x->end > i + 1 &&
		    (k->bound[i] || k->p->buffer[x->buffer].shared))
			return refuse(k, i, "is of some threads, and others share it");
		if (x->kind == PL_TPROG_ALLOC)
			k->memory[x->buffer] = OWN;
		if (i == first)
			all = k->threads[i];
		if (x->kind == PL_TPROG_STORE && k->threads[i] != all)
			return refuse(k, root, "has statements of all of its threads and of some");
	}
	k->threads[root] = all; /* from here on: of the phase */
	return 0;
}

/* Is the node carried out by all threads, and has it phases inside? */
static bool is_common(const struct cuda *k, uint32_t node)
{
	return k->p->node[node].kind != PL_TPROG_STORE && (k->bound[node] & THREADS) &&
	       thread_axis(k, node) < 0;
}

static int check_level(struct cuda *k, struct kernel *q, uint32_t from, uint32_t end)
{
	for (uint32_t i = from; i < end; i = k->p->node[i].end) {
		const struct pl_tprog_node *x = &k->p->node[i];

		if (!is_common(k, i)) {
			PL_CHECK(check_phase(k, q, i));
			continue;
		}
		if (block_axis(k, i) >= 0)
			return refuse(k, i, "is bound to blocks inside of other loops");
		if (x->kind == PL_TPROG_ALLOC)
			k->memory[x->buffer] = k->p->buffer[x->buffer].shared ? SHARED : OWN;
		PL_CHECK(check_level(k, q, i + 1, x->end));
	}
	return 0;
}

#define UNSEEN UINT8_MAX

/* Are the first indices the thread itself, in the same order as before? Else the buffer goes to
 * shared memory. Until own_buffers() skip holds the axes, two bits for each dimension. */
static void find_own(struct cuda *k, uint32_t node, uint32_t buffer, uint32_t arg, uint8_t how)
{
	const struct pl_tprog_buffer *b = &k->p->buffer[buffer];
	uint8_t threads = k->threads[k->phase[node]], seen = 0, order = 0;

	(void)how;
	if (k->memory[buffer] != OWN || k->phase[b->node] != PL_NONE)
		return;
	for (int d = 0; d < b->n_dims && seen != threads; d++) {
		const struct pl_tprog_expr *e = &k->p->expr[k->p->arg[arg + (uint32_t)d]];
		int a = e->op == PL_TPROG_LOOP ? thread_axis(k, e->ref) : -1;

		if (a < 0 || (seen & 1 << a))
			break;
		seen |= (uint8_t)(1 << a);
		order |= (uint8_t)((a + 1) << 2 * d);
	}
	if (seen == threads && (k->skip[buffer] == UNSEEN || k->skip[buffer] == order))
		k->skip[buffer] = order;
	else
		k->memory[buffer] = SHARED;
}

static int own_buffers(struct cuda *k, const struct kernel *q)
{
	int64_t shared = 0;

	memset(k->skip, UNSEEN, k->p->n_buffers);
	visit_all(k, q->from, q->end, find_own);
	for (size_t i = 0; i < k->p->n_buffers; i++) {
		uint8_t order = k->skip[i];
		const struct pl_tprog_buffer *b = &k->p->buffer[i];
		bool inside = b->node != PL_NONE && b->node >= q->from && b->node < q->end;

		k->skip[i] = 0;
		for (; k->memory[i] == OWN && order != UNSEEN && order; order >>= 2)
			k->skip[i]++;
		if (!inside || k->memory[i] != SHARED)
			continue;
		shared += b->n * (int64_t)sizeof(float);
		if (b->n > MOST_SHARED || shared > MOST_SHARED)
			return refuse(k, b->node, "does not fit into 48 KB of shared memory");
	}
	return 0;
}

static int check_sizes(const struct cuda *k, const struct kernel *q)
{
	static const int64_t most_blocks[3] = { INT32_MAX, 65535, 65535 };
	int64_t threads = 1;

	for (int a = 0; a < 3; a++) {
		if (q->block[a] > most_blocks[a])
			return refuse(k, q->root, "has too many blocks");
		if (q->thread[a] > (a == 2 ? 64 : MOST_THREADS))
			return refuse(k, q->root, "has more threads than a block can have");
		threads *= q->thread[a];
	}
	if (threads > MOST_THREADS)
		return refuse(k, q->root, "has more than 1024 threads in a block");
	return 0;
}

/* The kernel that begins at the node: loops over blocks, one in another, then what a block does. */
static int check_kernel(struct cuda *k, uint32_t root)
{
	struct kernel q = { .root = root,
			    .from = root,
			    .end = k->p->node[root].end,
			    .block = { 1, 1, 1 },
			    .thread = { 1, 1, 1 },
			    .block_loop = { PL_NONE, PL_NONE, PL_NONE } };

	for (uint32_t i = root; i < q.end && block_axis(k, i) >= 0; i++) {
		const struct pl_tprog_node *x = &k->p->node[i];
		int a = block_axis(k, i);

		if (x->end != q.end)
			break; /* not all is in this loop */
		if (q.block_loop[a] != PL_NONE)
			return refuse(k, i, "is bound to blocks that another loop has");
		if (x->reduce)
			return refuse(k, i, "sums up, and is bound to blocks");
		q.block[a] = x->extent;
		q.block_loop[a] = i;
		q.from = i + 1;
	}
	PL_CHECK(check_level(k, &q, q.from, q.end));
	PL_CHECK(own_buffers(k, &q));
	PL_CHECK(check_sizes(k, &q));
	return pl_append(&k->kernel, &k->n_kernels, &k->cap_kernels, &q, sizeof(q), k->err);
}

/* Is the node carried out by the host? */
static bool is_host(const struct cuda *k, uint32_t node)
{
	return k->bound[node] && block_axis(k, node) < 0 && thread_axis(k, node) < 0;
}

/* ---- a kernel as text ------------------------------------------------------------------------ */

/* Loops of the host around a kernel. */
static void put_host_loops(const struct cuda *k, uint32_t root, const char *before)
{
	for (uint32_t i = k->p->node[root].parent; i != PL_NONE; i = k->p->node[i].parent)
		if (k->p->node[i].kind == PL_TPROG_FOR) {
			pl_write_text(k->w, before);
			pl_tprog_put_loop_name(k->p, i, k->w);
		}
}

static void put_head(const struct cuda *k, const struct kernel *q, size_t number)
{
	const char *comma = "";

	pl_write_format(k->w, "static __global__ void __launch_bounds__(%lld) %s_%zu(",
			(long long)(q->thread[0] * q->thread[1] * q->thread[2]), k->name, number);
	for (uint32_t i = 0; i < k->p->n_buffers; i++) {
		if (k->p->buffer[i].node != PL_NONE)
			continue;
		pl_write_format(k->w, "%sfloat *__restrict__ ", comma);
		pl_tprog_put_buffer_name(k->p, i, k->w);
		comma = ", ";
	}
	put_host_loops(k, q->root, ", long long ");
	pl_write_text(k->w, ")\n{\n");
	for (int a = 0; a < 3; a++) {
		if (q->block_loop[a] == PL_NONE)
			continue;
		pl_write_text(k->w, "  const long long ");
		pl_tprog_put_loop_name(k->p, q->block_loop[a], k->w);
		pl_write_format(k->w, " = blockIdx.%c;\n", axis[a]);
	}
}

static void put_loop(const struct cuda *k, uint32_t node, int depth)
{
	const struct pl_tprog_node *x = &k->p->node[node];

	pl_tprog_indent(depth, k->w);
	if (x->bind == PL_TPROG_UNROLL || x->bind == PL_TPROG_VECTORIZE ||
	    x->bind == PL_TPROG_VTHREAD) {
		pl_write_format(k->w, "#pragma unroll %lld\n",
				(long long)pl_min_i64(x->extent, UNROLLED));
		pl_tprog_indent(depth, k->w);
	}
	pl_write_text(k->w, "for (long long ");
	pl_tprog_put_loop_name(k->p, node, k->w);
	pl_write_text(k->w, " = 0; ");
	pl_tprog_put_loop_name(k->p, node, k->w);
	pl_write_format(k->w, " < %lld; ", (long long)x->extent);
	pl_tprog_put_loop_name(k->p, node, k->w);
	pl_write_text(k->w, "++) {\n");
}

/* The thread is the iteration; threads behind the last one have none. */
static void put_threads(const struct cuda *k, const struct kernel *q, uint32_t node, int depth)
{
	const struct pl_tprog_node *x = &k->p->node[node];
	int a = thread_axis(k, node);

	pl_tprog_indent(depth, k->w);
	if (x->extent < q->thread[a])
		pl_write_format(k->w, "if (threadIdx.%c < %lld) {\n", axis[a],
				(long long)x->extent);
	else
		pl_write_text(k->w, "{\n");
	pl_tprog_indent(depth + 1, k->w);
	pl_write_text(k->w, "const long long ");
	pl_tprog_put_loop_name(k->p, node, k->w);
	pl_write_format(k->w, " = threadIdx.%c;\n", axis[a]);
}

/* Numbers of the buffer in a thread, or in a block. */
static int64_t numbers_of(const struct cuda *k, uint32_t buffer)
{
	int64_t n = k->p->buffer[buffer].n;

	for (int d = 0; d < k->skip[buffer]; d++)
		n /= k->p->buffer[buffer].dim[d];
	return n;
}

static void put_array(const struct cuda *k, uint32_t buffer, int depth)
{
	pl_tprog_indent(depth, k->w);
	pl_write_format(k->w, "{\n");
	pl_tprog_indent(depth + 1, k->w);
	pl_write_text(k->w, k->memory[buffer] == SHARED ? "__shared__ float " : "float ");
	pl_tprog_put_buffer_name(k->p, buffer, k->w);
	pl_write_format(k->w, "[%lld];\n", (long long)numbers_of(k, buffer));
}

static void put_nodes(const struct cuda *k, const struct kernel *q, uint32_t from, uint32_t end,
		      int depth)
{
	for (uint32_t i = from; i < end; i = k->p->node[i].end) {
		const struct pl_tprog_node *x = &k->p->node[i];

		if (x->kind == PL_TPROG_STORE) {
			pl_tprog_indent(depth, k->w);
			pl_tprog_put_c_store(k->p, x, &k->c, k->w);
			continue;
		}
		if (x->kind == PL_TPROG_ALLOC)
			put_array(k, x->buffer, depth);
		else if (thread_axis(k, i) >= 0)
			put_threads(k, q, i, depth);
		else
			put_loop(k, i, depth);
		put_nodes(k, q, i + 1, x->end, depth + 1);
		pl_tprog_indent(depth, k->w);
		pl_write_text(k->w, "}\n");
	}
}

/* What threads may see of one another. */
static void note(struct cuda *k, uint32_t node, uint32_t buffer, uint32_t arg, uint8_t how)
{
	(void)node;
	(void)arg;
	if (k->memory[buffer] != OWN)
		k->now[buffer] |= how;
}

static void put_phase(struct cuda *k, const struct kernel *q, uint32_t root, int depth)
{
	bool waits = false, only = false;

	memset(k->now, 0, k->p->n_buffers);
	visit_all(k, root, k->p->node[root].end, note);
	for (size_t i = 0; i < k->p->n_buffers; i++)
		waits |= ((k->now[i] & WRITTEN) && k->state[i]) ||
			 ((k->now[i] & READ) && (k->state[i] & WRITTEN));
	if (q->thread[0] * q->thread[1] * q->thread[2] > 1 && waits) {
		pl_tprog_indent(depth, k->w);
		pl_write_text(k->w, "__syncthreads();\n");
		memset(k->state, 0, k->p->n_buffers);
	}
	for (size_t i = 0; i < k->p->n_buffers; i++)
		k->state[i] |= k->now[i];
	for (int a = 0; a < 3; a++) {
		if (q->thread[a] == 1 || (k->threads[root] & 1 << a))
			continue;
		if (!only)
			pl_tprog_indent(depth, k->w);
		pl_write_format(k->w, "%sthreadIdx.%c == 0", only ? " && " : "if (", axis[a]);
		only = true;
	}
	if (only)
		pl_write_text(k->w, ") {\n");
	put_nodes(k, q, root, k->p->node[root].end, depth + only);
	if (only) {
		pl_tprog_indent(depth, k->w);
		pl_write_text(k->w, "}\n");
	}
}

static void put_level(struct cuda *k, const struct kernel *q, uint32_t from, uint32_t end,
		      int depth)
{
	for (uint32_t i = from; i < end; i = k->p->node[i].end) {
		const struct pl_tprog_node *x = &k->p->node[i];

		if (!is_common(k, i)) {
			put_phase(k, q, i, depth);
			continue;
		}
		if (x->kind == PL_TPROG_ALLOC) {
			put_array(k, x->buffer, depth);
		} else {
			put_loop(k, i, depth);
			/* the iteration before has done all of this */
			memset(k->now, 0, k->p->n_buffers);
			visit_all(k, i + 1, x->end, note);
			for (size_t b = 0; b < k->p->n_buffers; b++)
				k->state[b] |= k->now[b];
		}
		put_level(k, q, i + 1, x->end, depth + 1);
		pl_tprog_indent(depth, k->w);
		pl_write_text(k->w, "}\n");
	}
}

/* ---- the host -------------------------------------------------------------------------------- */

/* Kernels, in the order in which the host launches them. */
static int put_kernels(struct cuda *k, uint32_t from, uint32_t end)
{
	for (uint32_t i = from; i < end; i = k->p->node[i].end) {
		const struct pl_tprog_node *x = &k->p->node[i];
		const struct kernel *q;

		if (is_host(k, i)) {
			if (x->kind == PL_TPROG_ALLOC && k->p->buffer[x->buffer].shared)
				return refuse(k, i, "is shared, but not of one block");
			if (x->kind == PL_TPROG_ALLOC) {
				pl_write_text(k->w, "static __device__ float ");
				pl_tprog_put_buffer_name(k->p, x->buffer, k->w);
				pl_write_format(k->w, "[%lld];\n",
						(long long)k->p->buffer[x->buffer].n);
			}
			PL_CHECK(put_kernels(k, i + 1, x->end));
			continue;
		}
		PL_CHECK(check_kernel(k, i));
		q = &k->kernel[k->n_kernels - 1];
		put_head(k, q, k->n_kernels - 1);
		memset(k->state, 0, k->p->n_buffers);
		put_level(k, q, q->from, q->end, 1);
		pl_write_text(k->w, "}\n");
	}
	return 0;
}

static void put_launch(const struct cuda *k, size_t number, int depth)
{
	const struct kernel *q = &k->kernel[number];
	uint32_t n = 0;

	pl_tprog_indent(depth, k->w);
	pl_write_format(k->w,
			"%s_%zu<<<dim3(%lld, %lld, %lld), dim3(%lld, %lld, %lld), 0, stream>>>(",
			k->name, number, (long long)q->block[0], (long long)q->block[1],
			(long long)q->block[2], (long long)q->thread[0], (long long)q->thread[1],
			(long long)q->thread[2]);
	for (size_t i = 0; i < k->p->n_buffers; i++)
		if (k->p->buffer[i].node == PL_NONE) {
			pl_write_format(k->w, "%sbuffer[%u]", n ? ", " : "", n);
			n++;
		}
	put_host_loops(k, q->root, ", ");
	pl_write_text(k->w, ");\n");
}

/* Has the host an array? Another program of the source may have one of the same name. */
static bool has_host_array(const struct cuda *k)
{
	bool found = false;

	for (uint32_t i = 0; i < k->p->n_nodes; i++)
		found |= k->p->node[i].kind == PL_TPROG_ALLOC && is_host(k, i);
	return found;
}

static size_t put_host(const struct cuda *k, uint32_t from, uint32_t end, size_t number, int depth)
{
	for (uint32_t i = from; i < end; i = k->p->node[i].end) {
		const struct pl_tprog_node *x = &k->p->node[i];
		bool loop = is_host(k, i) && x->kind == PL_TPROG_FOR;

		if (!is_host(k, i)) {
			put_launch(k, number++, depth);
			continue;
		}
		if (loop)
			put_loop(k, i, depth);
		number = put_host(k, i + 1, x->end, number, depth + loop);
		if (loop) {
			pl_tprog_indent(depth, k->w);
			pl_write_text(k->w, "}\n");
		}
	}
	return number;
}

static int begin(struct cuda *k)
{
	const struct pl_tprog *p = k->p;
	size_t nodes = p->n_nodes + 1, buffers = p->n_buffers + 1;

	PL_CHECK(pl_alloc(&k->bound, nodes, 1, k->err));
	PL_CHECK(pl_alloc(&k->threads, nodes, 1, k->err));
	PL_CHECK(pl_alloc(&k->phase, nodes, sizeof(*k->phase), k->err));
	PL_CHECK(pl_alloc(&k->skip, buffers, 1, k->err));
	PL_CHECK(pl_alloc(&k->memory, buffers, 1, k->err));
	PL_CHECK(pl_alloc(&k->state, buffers, 1, k->err));
	PL_CHECK(pl_alloc(&k->now, buffers, 1, k->err));
	k->c.skip = k->skip;
	for (uint32_t i = (uint32_t)p->n_nodes; i-- > 0;) {
		k->phase[i] = PL_NONE;
		k->bound[i] |= block_axis(k, i) >= 0 ? BLOCKS : 0;
		k->bound[i] |= thread_axis(k, i) >= 0 ? THREADS : 0;
		if (p->node[i].parent != PL_NONE)
			k->bound[p->node[i].parent] |= k->bound[i];
	}
	return 0;
}

int pl_tprog_write_cuda(const struct pl_tprog *p, const char *name, struct pl_writer *w,
			struct pl_err *err)
{
	struct cuda k = { .p = p, .name = name, .w = w, .err = err };
	bool scoped;
	int rc;

	if (!pl_tprog_is_cuda(p))
		return pl_fail(
			err, PL_EDATA,
			"program %.100s, which line %u begins: no loop is bound to blocks or "
			"threads",
			p->name, p->line);
	PL_TRY(begin(&k));
	scoped = has_host_array(&k);
	if (scoped)
		pl_write_format(w, "namespace %s_parts {\n", name);
	PL_TRY(put_kernels(&k, 0, (uint32_t)p->n_nodes));
	pl_write_format(w, "extern \"C\" int %s(float *const *buffer, cudaStream_t stream)\n{\n",
			name);
	put_host(&k, 0, (uint32_t)p->n_nodes, 0, 1);
	pl_write_text(w, "  return (int)cudaGetLastError();\n}\n");
	if (scoped)
		pl_write_text(w, "}\n");
out:
	pl_free(k.bound);
	pl_free(k.threads);
	pl_free(k.phase);
	pl_free(k.skip);
	pl_free(k.memory);
	pl_free(k.state);
	pl_free(k.now);
	pl_free(k.kernel);
	return rc;
}
