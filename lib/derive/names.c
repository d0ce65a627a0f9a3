/*
 * What an operation is, by its name: the one table of such knowledge.
 *
 * Names come from kernels of many libraries, from operators of frameworks and from tables that
 * people wrote. A name is cut into words, and a row of a table fits where its words follow one
 * another in the name. Of the rows that fit the first decides, so what a fused kernel is bound by
 * (a product, a convolution) stands before what is fused with it.
 */
#include <ctype.h>
#include <string.h>

#include "derive/names.h"
#include "derive/put.h"

#define MAX_WORDS 48 /* of a name; kernels are told by their first words and template arguments */
#define MAX_WORD  20

struct words {
	char w[MAX_WORDS][MAX_WORD]; /* lower case */
	int n;
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
			w->n++;
		}
		if (len + 1 < MAX_WORD)
			w->w[w->n - 1][len++] = (char)tolower((unsigned char)s[i]);
		w->w[w->n - 1][len] = '\0';
	}
}

struct row {
	const char *word[3];
	uint8_t value;
};

static const struct row operators[] = {
	{ { "flash" }, PL_OP_ATTENTION },
	{ { "fmha" }, PL_OP_ATTENTION },
	{ { "attention" }, PL_OP_ATTENTION },
	{ { "conv" }, PL_OP_CONVOLUTION },
	{ { "convolution" }, PL_OP_CONVOLUTION },
	{ { "convolve" }, PL_OP_CONVOLUTION },
	{ { "scudnn" }, PL_OP_CONVOLUTION },
	{ { "hcudnn" }, PL_OP_CONVOLUTION },
	{ { "fprop" }, PL_OP_CONVOLUTION },
	{ { "wgrad" }, PL_OP_CONVOLUTION },
	{ { "dgrad" }, PL_OP_CONVOLUTION },
	{ { "winograd" }, PL_OP_CONVOLUTION },
	{ { "gemm" }, PL_OP_MATMUL },
	{ { "hgemm" }, PL_OP_MATMUL },
	{ { "sgemm" }, PL_OP_MATMUL },
	{ { "dgemm" }, PL_OP_MATMUL },
	{ { "igemm" }, PL_OP_MATMUL },
	{ { "gemv" }, PL_OP_MATMUL },
	{ { "gemvx" }, PL_OP_MATMUL },
	{ { "xmma" }, PL_OP_MATMUL },
	{ { "nvjet" }, PL_OP_MATMUL },
	{ { "cutlass" }, PL_OP_MATMUL },
	{ { "matmul" }, PL_OP_MATMUL },
	{ { "mm" }, PL_OP_MATMUL },
	{ { "bmm" }, PL_OP_MATMUL },
	{ { "baddbmm" }, PL_OP_MATMUL },
	{ { "addmm" }, PL_OP_MATMUL },
	{ { "linear" }, PL_OP_MATMUL },
	{ { "adam" }, PL_OP_UPDATE },
	{ { "adamw" }, PL_OP_UPDATE },
	{ { "sgd" }, PL_OP_UPDATE },
	{ { "lamb" }, PL_OP_UPDATE },
	{ { "optimizer" }, PL_OP_UPDATE },
	{ { "nll", "loss" }, PL_OP_LOSS },
	{ { "cross", "entropy" }, PL_OP_LOSS },
	{ { "loss" }, PL_OP_LOSS },
	{ { "layer", "norm" }, PL_OP_NORMALIZATION },
	{ { "layernorm" }, PL_OP_NORMALIZATION },
	{ { "batch", "norm" }, PL_OP_NORMALIZATION },
	{ { "batchnorm" }, PL_OP_NORMALIZATION },
	{ { "bn" }, PL_OP_NORMALIZATION },
	{ { "group", "norm" }, PL_OP_NORMALIZATION },
	{ { "groupnorm" }, PL_OP_NORMALIZATION },
	{ { "rms", "norm" }, PL_OP_NORMALIZATION },
	{ { "rmsnorm" }, PL_OP_NORMALIZATION },
	{ { "softmax" }, PL_OP_SOFTMAX },
	{ { "soft", "max" }, PL_OP_SOFTMAX },
	{ { "embedding" }, PL_OP_EMBEDDING },
	{ { "dropout" }, PL_OP_DROPOUT },
	{ { "pool" }, PL_OP_POOLING },
	{ { "pooling" }, PL_OP_POOLING },
	{ { "maxpool" }, PL_OP_POOLING },
	{ { "avgpool" }, PL_OP_POOLING },
	{ { "reduce" }, PL_OP_REDUCTION },
	{ { "triton", "red" }, PL_OP_REDUCTION },
	{ { "elementwise" }, PL_OP_ELEMENTWISE },
	{ { "pointwise" }, PL_OP_ELEMENTWISE },
	{ { "triton", "poi" }, PL_OP_ELEMENTWISE },
	{ { "relu" }, PL_OP_ELEMENTWISE },
	{ { "re", "lu" }, PL_OP_ELEMENTWISE },
	{ { "gelu" }, PL_OP_ELEMENTWISE },
	{ { "silu" }, PL_OP_ELEMENTWISE },
	{ { "swish" }, PL_OP_ELEMENTWISE },
	{ { "sigmoid" }, PL_OP_ELEMENTWISE },
	{ { "tanh" }, PL_OP_ELEMENTWISE },
	{ { "aten", "add" }, PL_OP_ELEMENTWISE },
	{ { "aten", "mul" }, PL_OP_ELEMENTWISE },
	{ { "aten", "sub" }, PL_OP_ELEMENTWISE },
	{ { "aten", "div" }, PL_OP_ELEMENTWISE },
	{ { "aten", "threshold", "backward" }, PL_OP_ELEMENTWISE },
	{ { "aten", "sum" }, PL_OP_REDUCTION },
	{ { "aten", "mean" }, PL_OP_REDUCTION },
	{ { "copy" }, PL_OP_COPY },
	{ { "memcpy" }, PL_OP_COPY },
	{ { "nchw", "to", "nhwc" }, PL_OP_COPY },
	{ { "nhwc", "to", "nchw" }, PL_OP_COPY },
	{ { "transpose" }, PL_OP_COPY },
};

static const struct row phases[] = {
	{ { "enumerate", "data", "loader" }, PL_PH_INPUT },
	{ { "dataloader" }, PL_PH_INPUT },
	{ { "data", "loader" }, PL_PH_INPUT },
	{ { "optimizer" }, PL_PH_OPTIMIZER },
	{ { "adam" }, PL_PH_OPTIMIZER },
	{ { "adamw" }, PL_PH_OPTIMIZER },
	{ { "sgd" }, PL_PH_OPTIMIZER },
	{ { "lamb" }, PL_PH_OPTIMIZER },
	{ { "zero", "grad" }, PL_PH_OPTIMIZER },
	{ { "clip", "grad" }, PL_PH_OPTIMIZER },
	{ { "accumulate", "grad" }, PL_PH_WEIGHT_GRAD },
	{ { "wgrad" }, PL_PH_WEIGHT_GRAD },
	{ { "weight", "grad" }, PL_PH_WEIGHT_GRAD },
	{ { "weight", "gradient" }, PL_PH_WEIGHT_GRAD },
	{ { "dgrad" }, PL_PH_INPUT_GRAD },
	{ { "input", "gradient" }, PL_PH_INPUT_GRAD },
	{ { "autograd", "engine", "evaluate" }, PL_PH_BACKWARD },
	{ { "backward" }, PL_PH_BACKWARD },
	{ { "bwd" }, PL_PH_BACKWARD },
	{ { "bw" }, PL_PH_BACKWARD },
	{ { "forward" }, PL_PH_FORWARD },
	{ { "fprop" }, PL_PH_FORWARD },
	{ { "fwd" }, PL_PH_FORWARD },
	{ { "fw" }, PL_PH_FORWARD },
};

static const char *const type_names[] = {
	NULL, "tf32", "bfloat16", "float16", "float8", "float32"
};
static const struct row types[] = {
	{ { "tf", "32" }, 1 },	  { { "bf", "16" }, 2 },   { { "bfloat", "16" }, 2 },
	{ { "bfloat" }, 2 },	  { { "f", "16" }, 3 },	   { { "fp", "16" }, 3 },
	{ { "float", "16" }, 3 }, { { "half" }, 3 },	   { { "hgemm" }, 3 },
	{ { "h", "884" }, 3 },	  { { "h", "1688" }, 3 },  { { "s", "16816", "gemm" }, 3 },
	{ { "16816" }, 3 },	  { { "float", "8" }, 4 }, { { "fp", "8" }, 4 },
	{ { "f", "32" }, 5 },	  { { "fp", "32" }, 5 },   { { "float", "32" }, 5 },
};

static const char *const algorithm_names[] = { NULL, "ring", "tree", "nvls", "collnet" };
static const struct row algorithms[] = {
	{ { "ring" }, 1 },
	{ { "tree" }, 2 },
	{ { "nvls" }, 3 },
	{ { "collnet" }, 4 },
};

static bool fits(const struct words *w, int i, const struct row *r)
{
	for (int k = 0; k < 3 && r->word[k]; k++)
		if (i + k >= w->n || w->w[i + k][0] != r->word[k][0] ||
		    strcmp(w->w[i + k], r->word[k]) != 0)
			return false;
	return true;
}

/* The value of the first row that fits anywhere, 0 if none does. */
static uint8_t look_up(const struct words *w, const struct row *rows, size_t n)
{
	for (size_t k = 0; k < n; k++)
		for (int i = 0; i < w->n; i++)
			if (fits(w, i, &rows[k]))
				return rows[k].value;
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
