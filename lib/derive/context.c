/*
 * Phase, module and work of host operations, as far as the profiler recorded them.
 *
 * Some ranges of a thread are no operations; they describe the operations inside them. An
 * annotation ("Optimizer.step#SGD.step") gives the phase. A call of a module by the interpreter
 * ("nn.Module: Linear_0") gives the module; its path also has the modules of the ranges around it.
 * What PyTorch does for sharded parameters names their module with its whole path.
 * The phase of an operation comes from its own name, else from the operation or range around it. A
 * forward operation inside another phase is not forward. In the backward pass it makes activations
 * again that were not kept. Ranges of evaluation that cover all of a job give no phase.
 *
 * The work of an operation is what it computes on tensors of which sizes and type. Products of
 * matrices take two operations for each pair of elements that meet. The first two tensors that are
 * no scalars are multiplied, the second one as it is or transposed; if the name has "add" and there
 * are three such tensors, the first one is what is added. Dimensions before the last two repeat
 * where a tensor has size 1 or none. A convolution takes two operations for each element of the
 * filter at each place where the filter is put, edges included; each gradient takes as many.
 * Attention makes two such products, and its gradient five. O(n log n) in ranges.
 */
#include <stdlib.h>

#include "core/spans.h"
#include "derive/describe.h"
#include "derive/internal.h"
#include "derive/names.h"

/* Rows with sizes: jobs whose sizes never repeat must not fill the graph. */
#define MAX_WORK	65536
#define MAX_DIMS	256 /* bytes of text of one operation's sizes */
#define MAX_PATH	256
#define KNOWN_WORK_BITS 12 /* 2^12 operations whose row need not be found again */

/* Of a convolution in one dimension: greater ones are damage, and products of them would overflow.
 */
#define MAX_SETTING (1 << 30)

#define USERS 0x80 /* of segment.range_of: a function of the user's program */

static const char module_prefix[] = "nn.Module: ";

/* ---- ranges ---------------------------------------------------------------------------------- */

/* The phase that a name says, asked once for each name. */
static uint8_t phase_of(struct builder *b, uint32_t seg, pl_id name)
{
	const struct pl_intern *str = &b->t->seg[seg]->seg.str;
	uint8_t *known = &b->seg[seg].phase_of[name];

	if (!*known)
		*known = (uint8_t)(pl_derive_name_once(&b->names, str->str[name], str->len[name],
						       b->err)
					   ->phase +
				   1);
	return (uint8_t)(*known - 1);
}

/* The phase of a range whose name says that it is no training: words of annotations, and functions
 * of the interpreter. */
static uint8_t special_phase(const char *name)
{
	static const struct {
		uint8_t phase;
		const char *names;
	} known[] = {
		{ PL_PH_GARBAGE,
		  "gc|GC|Python GC|gc.*|*gc.collect*|*[Gg]arbage*[Cc]ollect*|"
		  "<built-in * collect>|<built-in method collect of *>|gc_collect*" },
		{ PL_PH_CHECKPOINT,
		  "checkpoint|Checkpoint|checkpointing|*[Ss]av*[Cc]heckpoint*|*[Cc]heckpoint*[Ss]"
		  "av*|"
		  "*[Ww]rite*checkpoint*|*torch/serialization.py(*): save|torch.save*|"
		  "*torch/distributed/checkpoint/state_dict_saver.py(*" },
		{ PL_PH_EVALUATION, "eval|Eval|evaluate|evaluation|Evaluation|validate|validation|"
				    "Validation|*[./_ ]validation|*[./_ ]evaluate|*: evaluate|"
				    "*: validate|*validation_step*|*evaluation_loop*" },
		{ PL_PH_COMPILATION,
		  "compile|compilation|Compilation|*entire_frame_compile*|*_compile.compile_inner*|"
		  "*inductor_compile*|*async_compile*|*call_user_compiler*|"
		  "*GraphLowering.compile*|*torch/_dynamo/convert_frame.py(*|triton_compile*|"
		  /* the file of that name also has functions that run compiled code */
		  "*compile_fx|*compile_fx[!.]*|*compile_fx.<*|"
		  "*torch/_inductor/compile_fx.py(*): *compil*" },
		{ PL_PH_INPUT, "*torch/utils/data/dataloader.py(*): __next__" },
	};

	for (size_t i = 0; i < PL_LEN(known); i++)
		if (pl_glob(known[i].names, name))
			return known[i].phase;
	return PL_PH_UNKNOWN;
}

/* Is it a function of the user's program, "train.py(41): step", and not of Python or PyTorch, whose
 * files the profiler names from the folders where they are installed? */
static bool is_users(const char *name)
{
	static const char others[] =
		"*site-packages/*|*dist-packages/*|*/lib/python*|torch/*|*/torch/*|torchvision/*|"
		"lightning/*|pytorch_lightning/*|transformers/*|accelerate/*|deepspeed/*|megatron/"
		"*|"
		"numpy/*|triton/*|apex/*|threading.py*|contextlib.py*|functools.py*|runpy.py*|"
		"multiprocessing/*|concurrent/*|asyncio/*|importlib/*|collections/*|logging/*|json/"
		"*|"
		"selectors.py*|queue.py*|copy.py*|random.py*|weakref.py*|typing.py*|abc.py*|enum."
		"py*|"
		"pickle.py*|tempfile.py*|subprocess.py*|inspect.py*|socket.py*|os.py*|re.py*|"
		"dataclasses.py*|traceback.py*|warnings.py*|types.py*|<*|nn.Module: *";

	return pl_glob("*.py([0-9]*): *", name) && !pl_glob(others, name);
}

/* The module or phase that a range gives to the events inside it, if it gives one. */
static void range_tells(struct builder *b, uint32_t seg, uint32_t ev, struct range *x)
{
	const struct pl_events *e = b->t->seg[seg];
	uint8_t *known = &b->seg[seg].range_of[e->name[ev]];
	const char *name, *sharded;
	size_t n;

	if (e->kind[ev] != PL_K_ANNOTATION && e->kind[ev] != PL_K_PYTHON)
		return;
	if (!*known)
		*known = (uint8_t)(special_phase(pl_intern_get(&e->seg.str, e->name[ev])) + 1) |
			 (e->kind[ev] == PL_K_PYTHON &&
					  is_users(pl_intern_get(&e->seg.str, e->name[ev]))
				  ? USERS
				  : 0);
	x->phase = (uint8_t)((*known & 15) - 1);
	if (*known & USERS)
		x->line = e->name[ev];
	if (x->phase == PL_PH_UNKNOWN && e->kind[ev] == PL_K_ANNOTATION)
		x->phase = phase_of(b, seg, e->name[ev]);
	name = pl_intern_get(&e->seg.str, e->name[ev]);
	if (e->kind[ev] == PL_K_PYTHON && !strncmp(name, module_prefix, sizeof(module_prefix) - 1))
		x->module = pl_derive_intern_text(b->err, &b->g->str, name);
	sharded = e->kind[ev] == PL_K_ANNOTATION ? pl_derive_sharded_module(name, &n) : NULL;
	if (sharded)
		x->module = pl_derive_intern(b->err, &b->g->str, sharded, n);
	x->whole = sharded;
}

static void gather_ranges(struct builder *b, uint32_t seg)
{
	const struct pl_events *e = b->t->seg[seg];

	for (uint32_t ev = 0; ev < e->n; ev++) {
		uint32_t res = b->seg[seg].track_res[e->track[ev]];
		struct range x = { .module = PL_NONE, .line = PL_NONE };
		struct resource *resource;

		if (e->dur[ev] < 0 || res == PL_NONE || !b->resource[res].thread)
			continue;
		range_tells(b, seg, ev, &x);
		if (x.module == PL_NONE && x.line == PL_NONE && x.phase == PL_PH_UNKNOWN)
			continue;
		resource = &b->resource[res];
		x.start = pl_derive_time(b, seg, ev);
		x.end = pl_add_sat(x.start, e->dur[ev]);
		x.line = pl_derive_str(b, seg, x.line);
		PL_DERIVE_ADD(b->err, resource->range, resource->n_ranges, resource->cap_ranges, x);
	}
}

static int by_range(const void *pa, const void *pb)
{
	const struct range *a = pa, *c = pb;

	return PL_DERIVE_OUTER_FIRST(a, c);
}

/* The path of a module inside another. */
static void join_path(struct builder *b, const struct range *outer, struct range *x)
{
	const char *name = b->g->str.str[x->module] + sizeof(module_prefix) - 1;
	char path[MAX_PATH];

	if (outer && outer->module != PL_NONE)
		snprintf(path, sizeof(path), "%s.%s", pl_intern_get(&b->g->str, outer->module),
			 name);
	else
		snprintf(path, sizeof(path), "%s", name);
	x->module = pl_derive_intern_text(b->err, &b->g->str, path);
}

/* ---- a job that is an evaluation ------------------------------------------------------------- */

#define NEARLY_ALL 0.9 /* of each step */

/* Of a rank: from the first operation to the last. */
struct extent {
	pl_ns start, end;
	bool trains; /* the name of an operation says that it is of a backward pass */
};

static bool is_operation(unsigned kind)
{
	return kind == PL_K_HOST_OP || kind == PL_K_RUNTIME || kind == PL_K_KERNEL ||
	       kind == PL_K_COPY || pl_trace_kind_is_comm(kind);
}

static void find_extents(struct builder *b, struct extent *x)
{
	for (size_t r = 0; r < b->n_ranks; r++)
		x[r] = (struct extent){ INT64_MAX, INT64_MIN, false };
	for (uint32_t seg = 0; seg < b->t->n_segs; seg++) {
		const struct pl_events *e = b->t->seg[seg];

		for (uint32_t ev = 0; ev < e->n; ev++) {
			uint32_t res = b->seg[seg].track_res[e->track[ev]];
			struct extent *of;
			pl_ns start;

			if (res == PL_NONE || e->dur[ev] < 0 || !is_operation(e->kind[ev]))
				continue;
			of = &x[b->resource[res].rank_index];
			start = pl_derive_time(b, seg, ev);
			of->start = pl_min_i64(of->start, start);
			of->end = pl_max_i64(of->end, pl_add_sat(start, e->dur[ev]));
			of->trains |= pl_graph_is_backward(phase_of(b, seg, e->name[ev]));
		}
	}
}

static int add_evaluations(const struct builder *b, struct pl_spans *s)
{
	for (size_t i = 0; i < b->g->n_res; i++)
		for (uint32_t k = 0; k < b->resource[i].n_ranges; k++) {
			const struct range *x = &b->resource[i].range[k];

			if (x->phase == PL_PH_EVALUATION)
				PL_CHECK(pl_spans_add(s, (int32_t)b->resource[i].rank_index,
						      x->start, x->end, b->err));
		}
	pl_spans_unite(s);
	return 0;
}

static bool covers(const struct pl_spans *s, size_t rank, pl_ns start, pl_ns end)
{
	return (double)pl_spans_cover(s, (int32_t)rank, start, end) >=
	       NEARLY_ALL * (double)(end - start);
}

/* Do the ranges cover nearly all of each step of the rank, or of all that it does? */
static bool only_evaluates(const struct builder *b, const struct pl_spans *s, size_t rank,
			   const struct extent *x)
{
	const struct rank *r = &b->rank[rank];

	if (x->trains || x->start >= x->end)
		return false;
	for (size_t i = 0; i < r->n_win; i++)
		if (!covers(s, rank, r->win[i].start, r->win[i].end))
			return false;
	return r->n_win || covers(s, rank, x->start, x->end);
}

/* Ranges of evaluation that are the job itself explain nothing: they would hide what bounds it. */
static void forget_job(struct builder *b)
{
	struct extent *x = NULL;
	struct pl_spans s = { 0 };
	int rc;

	PL_TRY(add_evaluations(b, &s));
	if (!s.n)
		goto out;
	PL_TRY(pl_alloc(&x, b->n_ranks, sizeof(*x), b->err));
	find_extents(b, x);
	for (size_t i = 0; i < b->g->n_res; i++) {
		struct resource *resource = &b->resource[i];
		uint32_t rank = resource->rank_index;

		if (!resource->n_ranges || !only_evaluates(b, &s, rank, &x[rank]))
			continue;
		for (uint32_t k = 0; k < resource->n_ranges; k++)
			if (resource->range[k].phase == PL_PH_EVALUATION)
				resource->range[k].phase = PL_PH_UNKNOWN;
	}
out:
	pl_free(x);
	pl_spans_fini(&s);
}

/* ---- ranges in ranges ------------------------------------------------------------------------ */

/* A range without a module or phase takes that of the range around it. */
static void nest_ranges(struct builder *b, struct resource *resource)
{
	struct range_stack s = { 0 };

	pl_sort(resource->range, resource->n_ranges, sizeof(*resource->range), by_range);
	for (uint32_t i = 0; i < resource->n_ranges; i++) {
		struct range *x = &resource->range[i];
		const struct range *outer = pl_derive_range_at(resource, &s, x->start);

		if (outer == x) /* it is on the stack itself */
			outer = s.depth > 1 ? &resource->range[s.at[s.depth - 2]] : NULL;
		if (x->module != PL_NONE && !x->whole)
			join_path(b, outer, x);
		else if (x->module == PL_NONE && outer)
			x->module = outer->module;
		if (outer && x->line == PL_NONE)
			x->line = outer->line;
		if (outer && (x->phase == PL_PH_UNKNOWN || pl_graph_phase_holds(outer->phase)))
			x->phase = outer->phase;
	}
}

void pl_derive_ranges(struct builder *b)
{
	for (uint32_t seg = 0; seg < b->t->n_segs; seg++)
		gather_ranges(b, seg);
	if (!b->err->code)
		forget_job(b);
	for (size_t r = 0; r < b->g->n_res && !b->err->code; r++)
		nest_ranges(b, &b->resource[r]);
}

const struct range *pl_derive_range_at(const struct resource *resource, struct range_stack *s,
				       pl_ns t)
{
	for (; s->next < resource->n_ranges && resource->range[s->next].start <= t; s->next++) {
		while (s->depth &&
		       resource->range[s->at[s->depth - 1]].end <= resource->range[s->next].start)
			s->depth--;
		if (s->depth < RANGE_DEPTH_MAX)
			s->at[s->depth++] = s->next;
	}
	while (s->depth && resource->range[s->at[s->depth - 1]].end <= t)
		s->depth--;
	return s->depth ? &resource->range[s->at[s->depth - 1]] : NULL;
}

/* ---- work ------------------------------------------------------------------------------------ */

/* -1 if it is too large, or a summand is not known. */
static int64_t sum(int64_t a, int64_t b)
{
	int64_t s;

	return a < 0 || b < 0 || __builtin_add_overflow(a, b, &s) ? -1 : s;
}

/* Bytes of an element by the next of "["float", "", "long int"]"; the type's name into `type`. */
static int64_t next_type(const char **s, const char **type)
{
	const char *from = strchr(*s, '"'), *to = from ? strchr(from + 1, '"') : NULL;

	if (!to)
		return 0;
	*s = to + 1;
	return pl_trace_dtype(from + 1, (size_t)(to - from - 1), type);
}

/* `bytes` are read, and `written` elements written; each can be -1, not known. */
static void set_work(struct pl_gwork *w, int64_t flops, int64_t bytes, int64_t written,
		     int64_t element)
{
	w->flops = flops;
	if (flops >= 0)
		w->bytes = sum(bytes, pl_dims_product(written, element));
}

/* Two operations for each element of a row and each column. Products of the dimensions before the
 * last two are made side by side; a dimension of size 1 or a missing one repeats. */
static int64_t product_flops(const struct pl_dims *a, const struct pl_dims *b)
{
	int64_t inner, columns, n;

	if (a->n < 1 || b->n < 1 || a->n > PL_DIMS_MAX || b->n > PL_DIMS_MAX)
		return -1;
	inner = a->size[a->n - 1];
	if (b->n > 1 && inner == b->size[b->n - 2])
		columns = b->size[b->n - 1];
	else if (inner == b->size[b->n - 1])
		columns = b->n > 1 ? b->size[b->n - 2] : 1;
	else
		return -1;
	n = pl_dims_product(pl_dims_product(2, inner),
			    pl_dims_product(a->n > 1 ? a->size[a->n - 2] : 1, columns));
	for (int d = 3; d <= a->n || d <= b->n; d++) {
		int64_t x = d <= a->n ? a->size[a->n - d] : 1,
			y = d <= b->n ? b->size[b->n - d] : 1;

		if (x != y && x != 1 && y != 1)
			return -1;
		n = pl_dims_product(n, x == 1 ? y : x);
	}
	return n;
}

/* `t`: the first tensors that are no scalars. What is added to a product stands before its factors,
 * except the bias of a linear layer. */
static void measure_product(struct pl_gwork *w, const char *name, const struct pl_dims *t, int n,
			    int64_t bytes, int64_t element)
{
	const struct pl_dims *a = n > 2 && strstr(name, "add") ? &t[1] : t;
	int64_t flops = n < 2 ? -1 : product_flops(a, a + 1);
	int64_t inner = flops < 0 ? 0 : a->size[a->n - 1];

	set_work(w, flops, bytes, inner > 0 ? flops / 2 / inner : -1, element);
}

/* ---- convolutions and attention -------------------------------------------------------------- */

#define ALWAYS 0xff

/* Where the convolutions of PyTorch have their settings among the arguments; 0: they have none.
 * A gradient has a mask that says what it computes; its tensors are output, input and filter. The
 * last row whose name fits counts. */
static const struct convolution {
	const char *name;
	uint8_t stride, padding, dilation, transposed, output_padding, groups, mask;
} convolutions[] = {
	{ "aten::conv[123]d", 3, 4, 5, 0, 0, 0, 0 },
	{ "aten::*convolution", 3, 4, 5, 6, 7, 8, 0 },
	{ "aten::conv_transpose[123]d", 3, 4, 7, ALWAYS, 5, 6, 0 },
	{ "aten::cudnn_convolution", 3, 2, 4, 0, 0, 0, 0 },
	{ "aten::cudnn_convolution_transpose", 4, 2, 5, ALWAYS, 3, 6, 0 },
	{ "aten::m*_convolution", 4, 3, 5, 0, 0, 0, 0 }, /* of MIOpen and oneDNN */
	{ "aten::thnn_conv2d", 4, 5, 0, 0, 0, 0, 0 },
	{ "aten::*slow_conv[23]d*", 4, 5, 0, 0, 0, 0, 0 },
	{ "aten::*conv_depthwise[23]d", 4, 5, 6, 0, 0, 0, 0 },
	{ "aten::convolution_backward", 0, 0, 0, 7, 0, 0, 10 },
	{ "aten::_slow_conv2d_backward", 0, 0, 0, 0, 0, 0, 6 },
};

/* The text of argument k, up to a quote, of "["", "[1, 1]", "True"]"; "" if it is not there. */
static const char *argument(const char *values, unsigned k)
{
	for (unsigned quotes = 0; *values; values++)
		if (*values == '"' && quotes++ == 2 * k)
			return values + 1;
	return "";
}

/* A setting in dimension d; one number can stand for all dimensions. -1: not known. */
static int64_t setting(const char *values, unsigned k, int d)
{
	const char *s = argument(values, k);
	struct pl_dims x;

	if (*s != '[' || !pl_dims_next(&s, &x) || !x.n || x.n > PL_DIMS_MAX)
		return -1;
	d = d < x.n ? d : x.n - 1;
	return x.size[d] > MAX_SETTING ? -1 : x.size[d];
}

/* How many elements the output has in all dimensions but samples and channels; -1: not known. */
static int64_t output_places(const struct convolution *c, const char *values, bool transposed,
			     const struct pl_dims *in, const struct pl_dims *filter)
{
	int64_t n = 1;

	for (int d = 0; d + 2 < in->n; d++) {
		int64_t stride = setting(values, c->stride, d);
		int64_t padding = setting(values, c->padding, d);
		int64_t dilation = c->dilation ? setting(values, c->dilation, d) : 1;
		int64_t more = transposed ? setting(values, c->output_padding, d) : 0;
		int64_t size = in->size[d + 2], span = filter->size[d + 2];

		if (stride < 1 || padding < 0 || dilation < 1 || more < 0 || size > MAX_SETTING ||
		    span < 1 || span > MAX_SETTING)
			return -1;
		span = dilation * (span - 1) + 1;
		size = transposed ? (size - 1) * stride + span + more - 2 * padding
				  : size + 2 * padding - span + stride;
		if (size < (transposed ? 1 : stride))
			return -1;
		n = pl_dims_product(n, transposed ? size : size / stride);
	}
	return n;
}

/* Places of a tensor whose first two dimensions are samples and channels. */
static int64_t places_of(const struct pl_dims *t)
{
	return t->elements / t->size[0] / t->size[1];
}

/* `t`: the tensors of three dimensions and more; `bytes` of all that are read. */
static void measure_convolution(struct pl_gwork *w, const char *name, const char *values,
				const struct pl_dims *t, int n, int64_t bytes, int64_t element)
{
	const struct convolution *c = NULL;
	int64_t at, written;
	bool transposed;

	for (int i = 0; i < n; i++)
		if (t[i].n != t[0].n || t[i].n > PL_DIMS_MAX || t[i].elements <= 0)
			return;
	for (size_t i = 0; i < PL_LEN(convolutions); i++)
		if (n == (convolutions[i].mask ? 3 : 2) && pl_glob(convolutions[i].name, name))
			c = &convolutions[i];
	if (!c)
		return;
	transposed = c->transposed == ALWAYS ||
		     (c->transposed && *argument(values, c->transposed) == 'T');
	if (c->mask) {
		const char *mask = argument(values, c->mask), *second = strchr(mask, ',');
		bool of_input = *mask == '[' && mask[1] == 'T';
		bool of_filter = second && second[1] == ' ' && second[2] == 'T';

		at = pl_dims_product(of_input + of_filter, places_of(&t[transposed]));
		written = sum(of_input * t[1].elements, of_filter * t[2].elements);
	} else {
		int64_t groups = transposed ? strtoll(argument(values, c->groups), NULL, 10) : 0;

		written = output_places(c, values, transposed, &t[0], &t[1]);
		at = transposed ? places_of(&t[0]) : written;
		written = pl_dims_product(
			pl_dims_product(t[0].size[0], written),
			transposed ? pl_dims_product(groups > 0 ? groups : -1, t[1].size[1])
				   : t[1].size[0]);
	}
	set_work(w,
		 pl_dims_product(pl_dims_product(pl_dims_product(2, t[0].size[0]), at),
				 t[n - 1].elements),
		 bytes, written, element);
}

/*
 * Each query is multiplied with each key, masked or not, and each score with each value. The
 * gradient computes the scores again: it makes three products as the first and two as the second.
 * `t`: the tensors of three dimensions and more: query, key, value; in a gradient behind another.
 * The place in the sequence is dimension 2 of the tensors of the first two names, else 1.
 */
static void measure_attention(struct pl_gwork *w, const char *name, const char *types,
			      const struct pl_dims *t, int n, int64_t bytes, int64_t element)
{
	static const char *const known[] = { "aten::*scaled_dot_product_*",
					     "aten::_cudnn_attention_*", "aten::_flash_attention_*",
					     "flash_attn::_flash_attn_*",
					     "aten::_efficient_attention_*" };
	bool gradient = strstr(name, "backward");
	int64_t queries, out;
	size_t k = 0;

	while (k < PL_LEN(known) && !pl_glob(known[k], name))
		k++;
	/* the last one: if an argument has the lengths of sequences, these follow one another */
	if (k == PL_LEN(known) || n < 3 + gradient ||
	    (k == 4 && *argument(types, gradient ? 6 : 4) != '"'))
		return;
	t += gradient;
	for (int i = 0; i < 3; i++)
		if (t[i].n != 4 || t[i].elements <= 0)
			return;
	queries = t[0].elements / t[0].size[3];
	out = pl_dims_product(queries, t[2].size[3]);
	set_work(w,
		 pl_dims_product(
			 pl_dims_product(pl_dims_product(2, queries), t[1].size[k < 2 ? 2 : 1]),
			 sum(pl_dims_product(gradient ? 3 : 1, t[0].size[3]),
			     pl_dims_product(gradient ? 2 : 1, t[2].size[3]))),
		 bytes, gradient ? sum(sum(t[0].elements, t[1].elements), t[2].elements) : out,
		 element);
}

/* Floating-point operations and bytes of an operation on these tensors, as far as they follow. */
static void measure(struct pl_gwork *w, const char *name, const char *dims, const char *types,
		    const char *values, const char **type)
{
	struct pl_dims t, first[3], large[4];
	const char *next = types;
	int64_t bytes = 0, most = 0, element = 0;
	int n_first = 0, n_large = 0;

	while (pl_dims_next(&dims, &t)) {
		const char *word = NULL;
		int64_t size = next_type(&next, &word), n;

		if (!size)
			continue;
		if (!*type)
			*type = word;
		element = element ? element : size;
		if (t.n >= 1 && n_first < 3)
			first[n_first++] = t;
		if (t.n >= 3 && n_large++ < 4)
			large[n_large - 1] = t;
		n = pl_dims_product(t.elements, size);
		bytes = sum(bytes, n);
		most = pl_max_i64(most, n);
	}
	if (w->op == PL_OP_MATMUL)
		measure_product(w, name, first, n_first, bytes, element);
	else if (w->op == PL_OP_CONVOLUTION && (n_large == 2 || n_large == 3))
		measure_convolution(w, name, values, large, n_large, bytes, element);
	else if (w->op == PL_OP_ATTENTION)
		measure_attention(w, name, types, large, n_large, bytes, element);
	else if (w->op == PL_OP_ELEMENTWISE || w->op == PL_OP_DROPOUT || w->op == PL_OP_SOFTMAX ||
		 w->op == PL_OP_NORMALIZATION || w->op == PL_OP_COPY)
		w->bytes = bytes > 0 ? pl_add_sat(bytes, most) : -1; /* as much out as in */
}

static uint32_t new_work(struct builder *b, const struct op *op)
{
	const struct pl_events *e = b->t->seg[op->seg];
	const struct pl_intern *str = &e->seg.str;
	const char *dims = pl_intern_get(str, e->dims[op->ev]), *type = NULL;
	const char *values = pl_derive_text(e, e->values, op->ev);
	struct pl_gwork w = { .type = PL_NONE, .flops = -1, .bytes = -1, .name = PL_NONE };
	pl_id name = e->name[op->ev];

	if (strlen(dims) > MAX_DIMS || !strpbrk(dims, "0123456789"))
		return PL_NONE;
	if (e->op && e->op[op->ev] != PL_NONE)
		name = e->op[op->ev];
	w.op = pl_derive_name_once(&b->names, pl_intern_get(str, name), str->len[name], b->err)->op;
	measure(&w, pl_intern_get(str, name), dims, pl_intern_get(str, e->types[op->ev]),
		values ? values : "", &type);
	if (e->flops && e->flops[op->ev] >= 0)
		w.flops = e->flops[op->ev];
	if (e->moved && e->moved[op->ev] >= 0)
		w.bytes = e->moved[op->ev];
	w.dims = pl_derive_str(b, op->seg, e->dims[op->ev]);
	if (name != e->name[op->ev])
		w.name = pl_derive_str(b, op->seg, name);
	if (type)
		w.type = pl_derive_intern_text(b->err, &b->g->str, type);
	b->work.rows.most = MAX_WORK;
	return pl_derive_add_work(b->g, &b->work.rows, &w, b->err);
}

uint32_t pl_derive_work(struct builder *b, const struct op *op)
{
	const struct pl_events *e = b->t->seg[op->seg];
	const struct known_work x = { .seg = op->seg + 1,
				      .name = e->name[op->ev],
				      .dims = e->dims ? e->dims[op->ev] : PL_NONE,
				      .types = e->types ? e->types[op->ev] : PL_NONE,
				      .values = e->values ? e->values[op->ev] : PL_NONE,
				      .op = e->op ? e->op[op->ev] : PL_NONE,
				      .flops = e->flops ? e->flops[op->ev] : -1,
				      .moved = e->moved ? e->moved[op->ev] : -1 };
	uint64_t h = (uint64_t)x.op * 0xd6e8feb86659fd93u ^ (uint64_t)x.flops ^
		     ((uint64_t)x.name << 32 | x.dims) * 0x9e3779b97f4a7c15u ^
		     ((uint64_t)x.types << 32 | x.values) * 0xff51afd7ed558ccdu;
	struct known_work *known;

	if (x.dims == PL_NONE || x.types == PL_NONE)
		return PL_NONE;
	if (!b->work.known &&
	    pl_alloc(&b->work.known, (size_t)1 << KNOWN_WORK_BITS, sizeof(x), b->err) < 0)
		return PL_NONE;
	known = &b->work.known[(h ^ h >> 32) * 0x9e3779b97f4a7c15u >> (64 - KNOWN_WORK_BITS)];
	if (memcmp(known, &x, offsetof(struct known_work, row)) != 0) {
		*known = x;
		known->row = new_work(b, op);
	}
	return b->err->code ? PL_NONE : known->row;
}

/*
 * Is the operation, of the backward pass, made so that a gradient goes through it again? PyTorch
 * numbers the operations whose gradients are to be computed. In the backward pass these are the
 * operations of a model that makes its activations again, or those of gradients that are
 * themselves differentiated (create_graph). Names tell which: no gradient calls a layer of a model,
 * and a model calls no operation of a gradient. The light mode records the calls of modules:
 * "Linear.forward".
 */
static bool is_numbered(struct builder *b, const struct op *op, uint8_t says)
{
	static const char layers[] =
		"aten::linear|aten::conv?d|aten::*_norm|aten::relu|aten::gelu|aten::silu|"
		"aten::dropout|aten::embedding|aten::softmax|aten::scaled_dot_product_attention";
	const struct pl_events *e = b->t->seg[op->seg];
	const char *name = pl_intern_get(&e->seg.str, e->name[op->ev]);

	if (says == PL_PH_FORWARD && pl_glob("*.forward", name))
		return b->recomputes = true;
	if (!e->sequence || e->sequence[op->ev] < 0 || !strstr(name, "::") ||
	    pl_glob("autograd::*|torch::autograd::*|struct torch::autograd::*", name))
		return false;
	b->differentiates |= says == PL_PH_BACKWARD && !strncmp(name, "aten::", 6);
	b->recomputes |= pl_glob(layers, name);
	return says == PL_PH_UNKNOWN || says == PL_PH_FORWARD;
}

void pl_derive_phase(struct builder *b, struct op *op, uint8_t around)
{
	uint8_t says = pl_graph_phase_holds(around)
			       ? around
			       : phase_of(b, op->seg, b->t->seg[op->seg]->name[op->ev]);

	op->phase = says;
	if (says == PL_PH_UNKNOWN || (says == PL_PH_FORWARD && around))
		op->phase = around;
	if (pl_graph_is_backward(around) && is_numbered(b, op, says))
		op->phase = PL_PH_RECOMPUTATION;
}

void pl_derive_settle_recomputation(struct builder *b)
{
	for (uint32_t i = 0; i < b->n_nodes && (b->differentiates || !b->recomputes); i++)
		if (b->node[i].phase == PL_PH_RECOMPUTATION)
			b->node[i].phase = PL_PH_BACKWARD;
}
