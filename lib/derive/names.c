/*
 * The meaning of the names of operations: the only table of such knowledge.
 *
 * Names come from kernels of many libraries, from operators of frameworks and from tables that
 * people wrote. A name is cut into words, which the rows of tables look for. What a fused kernel is
 * bound by (a product, a convolution) stands before what is fused with it.
 */
#include <ctype.h>

#include "derive/names.h"
#include "derive/put.h"

#define MAX_WORDS 48 /* of a name; kernels are told by their first words and template arguments */
#define MAX_WORD  20

struct words {
	char w[MAX_WORDS][MAX_WORD]; /* lower case */
	int n;
	uint64_t first[64]; /* by first character, modulo 64: a bit for each word */
};

/* A word ends where letters, digits and all else meet, and before a capital that begins a word. */
static bool same_word(const char *s, size_t i, size_t n)
{
	unsigned char a = (unsigned char)s[i - 1], b = (unsigned char)s[i];

	if (isdigit(a) || isdigit(b))
		return isdigit(a) && isdigit(b);
	if (!isupper(b))
		return true;
	return isupper(a) && !(i + 1 < n && islower((unsigned char)s[i + 1]));
}

static void split(const char *s, size_t n, struct words *w)
{
	size_t len = 0;

	memset(w->first, 0, sizeof(w->first));
	w->n = 0;
	for (size_t i = 0; i < n; i++) {
		if (!isalnum((unsigned char)s[i])) {
			len = 0;
			continue;
		}
		if (!len || !same_word(s, i, n)) {
			if (w->n == MAX_WORDS)
				return;
			len = 0;
			w->first[tolower((unsigned char)s[i]) & 63] |= UINT64_C(1) << w->n++;
		}
		if (len + 1 < MAX_WORD)
			w->w[w->n - 1][len++] = (char)tolower((unsigned char)s[i]);
		w->w[w->n - 1][len] = '\0';
	}
}

/* A name has the value of a row if it contains one of the row's alternatives, which '|' separates.
 * Blanks separate words that must follow one another. If several rows fit, the first one decides.
 */
struct row {
	uint8_t value;
	const char *words;
};

static const struct row operators[] = {
	{ PL_OP_ATTENTION, "flash|fmha|attention" },
	{ PL_OP_CONVOLUTION, "conv|convolution|convolve|scudnn|hcudnn|fprop|wgrad|dgrad|winograd" },
	{ PL_OP_MATMUL, "gemm|hgemm|sgemm|dgemm|igemm|gemv|gemvx|xmma|nvjet|cutlass|matmul|mm|"
			"bmm|baddbmm|addmm|addmv|aten mv|linear" },
	{ PL_OP_UPDATE, "adam|adamw|sgd|lamb|optimizer" },
	{ PL_OP_LOSS, "nll loss|cross entropy|loss" },
	{ PL_OP_NORMALIZATION, "layer norm|layernorm|batch norm|batchnorm|bn|group norm|groupnorm|"
			       "rms norm|rmsnorm" },
	{ PL_OP_SOFTMAX, "softmax|soft max" },
	{ PL_OP_EMBEDDING, "embedding" },
	{ PL_OP_COPY, "to dense" },
	{ PL_OP_MATMUL, "dense forward|dense backward" }, /* of run; not embedding_dense_backward */
	{ PL_OP_DROPOUT, "dropout" },
	{ PL_OP_POOLING, "pool|pooling|maxpool|avgpool" },
	{ PL_OP_REDUCTION, "reduce|triton red" },
	{ PL_OP_ELEMENTWISE, "elementwise|pointwise|triton poi|relu|re lu|gelu|silu|swish|sigmoid|"
			     "tanh|aten add|aten mul|aten sub|aten div|aten threshold backward" },
	{ PL_OP_REDUCTION, "aten sum|aten mean" },
	{ PL_OP_COPY, "copy|memcpy|nchw to nhwc|nhwc to nchw|transpose|aten cat|aten stack" },
};

static const struct row phases[] = {
	/* what PyTorch does to gather and to reduce sharded parameters, and to put gradients into
	 * buckets and back */
	{ PL_PH_COMM, "distributed reducer|ddp reducer|fsdp|data parallel pre forward|data "
		      "parallel post forward|"
		      "data parallel pre backward|data parallel post backward" },
	{ PL_PH_INPUT, "enumerate data loader|dataloader|data loader" },
	{ PL_PH_OPTIMIZER, "optimizer|adam|adamw|sgd|lamb|zero grad|clip grad" },
	{ PL_PH_WEIGHT_GRAD, "accumulate grad|wgrad|weight grad|weight gradient" },
	{ PL_PH_INPUT_GRAD, "dgrad|input gradient" },
	{ PL_PH_BACKWARD, "autograd engine evaluate|backward|bwd|bw" },
	{ PL_PH_FORWARD, "forward|fprop|fwd|fw" },
	{ PL_PH_COMPILATION, "compile|compilation|compiler|jaxpr|lower sharding computation|"
			     "thunk emitter|task dispatcher|hlo passes" },
};

static const char *const type_names[] = {
	NULL, "tf32", "bfloat16", "float16", "float8", "float32"
};
static const struct row types[] = {
	{ 1, "tf 32" },
	{ 2, "bf 16|bfloat 16|bfloat" },
	{ 3, "f 16|fp 16|float 16|half|hgemm|h 884|h 1688|s 16816 gemm|16816" },
	{ 4, "float 8|fp 8" },
	{ 5, "f 32|fp 32|float 32" },
};

static const char *const algorithm_names[] = { NULL,	       "ring",	  "tree",
					       "nvls",	       "collnet", "halving-doubling",
					       "hierarchical", "direct" };
static const struct row algorithms[] = {
	{ 1, "ring" },
	{ 2, "tree" },
	{ 3, "nvls" },
	{ 4, "collnet" },
	{ 5, "halving doubling" },
	{ 6, "hierarchical" },
	{ 7, "direct" },
};

/* Do the words of an alternative follow one another in the name, from word i on? */
static bool fits(const struct words *w, int i, const char *s)
{
	for (; i < w->n; i++) {
		const char *word = w->w[i];

		while (*word && *s == *word) {
			s++;
			word++;
		}
		if (*word || !strchr(" |", *s))
			return false;
		if (*s++ != ' ')
			return true;
	}
	return false;
}

/* The value of the first alternative that fits anywhere, 0 if none does. */
static uint8_t look_up(const struct words *w, const struct row *rows, size_t n)
{
	for (size_t k = 0; k < n; k++)
		for (const char *s = rows[k].words, *end; s; s = end ? end + 1 : NULL) {
			end = strchr(s, '|');
			for (uint64_t m = w->first[*s & 63]; m; m &= m - 1)
				if (fits(w, __builtin_ctzll(m), s))
					return rows[k].value;
		}
	return 0;
}

/* "forward NAME" and "backward NAME": a pass of a whole layer, as tables of layers and run(1) write
 * it. */
static void read_layer(const char *name, size_t n, struct pl_name_says *says)
{
	static const char *const pass[] = { "forward ", "backward " };

	for (size_t i = 0; i < PL_LEN(pass); i++) {
		size_t k = strlen(pass[i]);

		if (n <= k || memcmp(name, pass[i], k) != 0)
			continue;
		says->phase = i ? PL_PH_BACKWARD : PL_PH_FORWARD;
		says->module = name + k;
	}
}

void pl_derive_name_read(const char *name, size_t n, struct pl_name_says *says)
{
	struct words w;

	split(name, n, &w);
	*says = (struct pl_name_says){
		.op = look_up(&w, operators, PL_LEN(operators)),
		.phase = look_up(&w, phases, PL_LEN(phases)),
		.communicates = pl_trace_coll_from_name(name, n) != NULL,
		.type = type_names[look_up(&w, types, PL_LEN(types))],
		.algorithm = algorithm_names[look_up(&w, algorithms, PL_LEN(algorithms))],
	};
	if (says->communicates) /* most names do not */
		says->coll = (uint8_t)pl_trace_coll_find(name, n);
	read_layer(name, n, says);
}

/* PyTorch names no module where it means the outermost one. */
const char *pl_derive_sharded_module(const char *name, size_t *n)
{
	static const char prefix[] = "FSDP::";
	const char *end;

	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
		return NULL;
	end = strchr(name, ' ');
	if (!end || !strcmp(end, " ()")) {
		*n = sizeof(PL_GRAPH_OUTERMOST) - 1;
		return PL_GRAPH_OUTERMOST;
	}
	*n = strlen(end);
	if (*n < 4 || end[1] != '(' || end[*n - 1] != ')')
		return NULL;
	*n -= 3;
	return end + 2;
}

const struct pl_name_says *pl_derive_name_once(struct pl_names_read *r, const char *name, size_t n,
					       struct pl_err *err)
{
	static const struct pl_name_says nothing;
	size_t had = r->str.n;
	pl_id k;

	if (!pl_derive_grow(err, &r->says, &r->cap, had + 1, sizeof(*r->says)))
		return &nothing;
	k = pl_derive_intern(err, &r->str, name, n);
	if (k == had)
		pl_derive_name_read(r->str.str[k], n, &r->says[k]);
	return k == PL_NONE ? &nothing : &r->says[k];
}

void pl_derive_names_fini(struct pl_names_read *r)
{
	pl_intern_fini(&r->str);
	pl_free(r->says);
}
