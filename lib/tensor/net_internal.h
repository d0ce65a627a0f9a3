/*
 * net_internal.h - a network as nodes in order of the forward pass; the interface of layer types.
 *
 * Values are the outputs of nodes, named by the node's index; PL_NET_INPUT is the input. A node
 * that computes nothing, or that the node before it computes (`alias`), uses another node's value.
 */
#ifndef PL_TENSOR_NET_INTERNAL_H
#define PL_TENSOR_NET_INTERNAL_H

#include "tensor/net.h"

#define PL_NET_INPUT	 UINT32_MAX
#define PL_NET_ALIGN	 16 /* floats: a cache line */
#define PL_NET_DEPTH	 16 /* of residual blocks */
#define PL_NET_DIM_MAX	 (1 << 24)
#define PL_NET_FLOAT_MAX ((size_t)INT32_MAX) /* of a tensor: kernels count in int */

struct pl_builder;
struct pl_node;

/* The inputs of the backward pass of a node besides its gradient; and whether dx is optional. */
enum { PL_READS_X = 1, PL_READS_Y = 2, PL_MAY_END = 4 };

/* The values of a node in one pass, in memory of the backend. */
struct pl_pass {
	const float *x;
	float *y; /* the output; the backward pass only reads it */
	void *save;
	const float *weight, *bias; /* NULL: none */
	float *dweight, *dbias;
	float *dy, *dx; /* dy may be overwritten (if there is an activation); dx NULL: not wanted */
	size_t n;	/* numbers of the output */
	int rows;	/* of the batch */
};

/* The activations are in the order of enum pl_act. */
enum pl_layer_op {
	PL_LAYER_INPUT,
	PL_LAYER_DENSE,
	PL_LAYER_CONV,
	PL_LAYER_MAXPOOL,
	PL_LAYER_AVGPOOL,
	PL_LAYER_BATCHNORM,
	PL_LAYER_LAYERNORM,
	PL_LAYER_EMBEDDING,
	PL_LAYER_POSITION,
	PL_LAYER_ATTENTION,
	PL_LAYER_RELU,
	PL_LAYER_GELU,
	PL_LAYER_TANH,
	PL_LAYER_SIGMOID,
	PL_LAYER_DROPOUT,
	PL_LAYER_FLATTEN,
	PL_LAYER_RESIDUAL,
	PL_LAYER_END,
	PL_LAYER_LOSS,
	PL_LAYER_COUNT_
};
struct pl_layer_type {
	const char *name;
	uint8_t flags; /* above; READS_Y of a dense or conv layer: with an activation */
	double flops;  /* for each number of the output, unless build() sets it */
	/* Adds the nodes and tensors of the current statement. */
	void (*build)(struct pl_builder *b);
	void (*forward)(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p);
	void (*backward)(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p);
};

struct pl_node {
	enum pl_layer_op op;
	uint32_t x;	       /* the value that it reads; never an alias */
	uint32_t y;	       /* the value that it makes: its own, or, of an alias, x */
	uint32_t skip;	       /* of `end`: the value that is added; else PL_NET_INPUT */
	uint32_t weight, bias; /* tensors, PL_NONE; the weight may be another layer's */
	uint32_t position;     /* tensor, of an embedding */
	bool alias;
	enum pl_act act;
	int rows;	     /* rows of a sample: T of sequences, else 1 */
	int c, k;	     /* length of an input row and an output row */
	struct pl_conv conv; /* n is that of the current batch */
	struct pl_pool2d pool;
	struct pl_attn attn;
	float p, eps, momentum;
	uint8_t loss;	      /* enum pl_loss */
	size_t state;	      /* place in the slab of state */
	size_t ny;	      /* floats of the output, a sample */
	size_t save_bytes;    /* kept for the backward pass besides the output, for a batch */
	size_t y_at, save_at; /* places in the slab of activations, bytes */
	uint32_t segment;     /* of recomputation, PL_NONE */
	bool y_scratch;	      /* the output is in the memory that all segments share */
	bool remake;	      /* runs again before the backward pass of its segment */
	uint8_t dy, dx;	      /* buffers of the gradients of output and input, PL_NO_GRAD */
	uint8_t dskip;	      /* of `residual`: the gradient that bypassed the block */
};

enum pl_loss { PL_LOSS_XENT, PL_LOSS_SQUARED, PL_LOSS_HINGE };
enum pl_init_kind { PL_INIT_ZERO, PL_INIT_ONE, PL_INIT_UNIFORM, PL_INIT_NORMAL };
struct pl_init {
	enum pl_init_kind kind;
	double v; /* half the width, or the deviation */
};
struct pl_segment {
	uint32_t first, last;
};
struct pl_slab { /* memory, and the function that frees it */
	float *p;
	size_t n; /* floats */
	size_t bytes;
	bool foreign;
};

#define PL_NET_BUFFERS (PL_NET_DEPTH + 3)
#define PL_NET_LOGITS  PL_NET_BUFFERS /* gradient of the loss, if it overwrites its input */
#define PL_NO_GRAD     UINT8_MAX

struct pl_net {
	const struct pl_backend *be;
	void *ctx;
	struct pl_net_opts o;
	struct pl_arena arena; /* names */
	struct pl_net_hooks hooks;
	struct pl_net_shape shape;
	size_t nx; /* floats (or ids) of a sample */

	struct pl_node *node; /* the last is the loss */
	struct pl_net_layer *layer;
	struct pl_net_tensor *tensor, *state_tensor;
	struct pl_init *init; /* by tensor */
	uint32_t n, n_tensors, n_state_tensors;
	uint32_t first_back; /* the first node with parameters: the backward pass ends there */

	struct pl_slab params, grads;
	struct pl_slab state;	       /* behind the parameters, in their memory */
	uint8_t *acts;		       /* outputs and saved values; all segments share the end */
	size_t acts_bytes, kept_bytes; /* kept: the part before the shared end */
	float *work;
	size_t work_bytes, taken;	 /* taken: allocated by the backend so far */
	float *grad[PL_NET_BUFFERS + 1]; /* gradients of values, used by turns; PL_NET_LOGITS */
	size_t grad_n[PL_NET_BUFFERS];
	struct pl_segment *segment;
	uint32_t n_segments;
	float *x, *target; /* of the batch, on the backend, float32 */
	float *stored;	   /* x in the type of stored activations; NULL: x is used */
	int32_t *ids, *classes;
	const float **value; /* [node]: current place of its output */
	bool *touched;	     /* [tensor]: its gradient belongs to this backward pass */

	struct pl_loss_sum *sum; /* of the last forward pass; the earlier ones follow it */
	pl_net_loss *own_loss;	 /* NULL: none */
	void *own_loss_arg;
	float *own;	   /* host memory of it: outputs, targets and gradients of a batch */
	pl_net_term *term; /* of the caller, on the output of a layer; NULL: none */
	void *term_arg;
	uint32_t term_layer;
	float *term_host;    /* host memory of it: output and gradient of a batch */
	uint32_t n_losses;   /* passes so far */
	struct pl_vary vary; /* the last values that the backend got */
	uint64_t changes; /* number of changes of the passes: a change invalidates recorded ones */
	float scale;

	/* of the last forward() */
	int samples;
	bool eval, again, can_go_back, opened;
	bool outline; /* it has no memory */
};

static inline float *pl_net_weight(const struct pl_net *net, uint32_t t)
{
	return t == PL_NONE ? NULL : net->params.p + net->tensor[t].offset;
}
static inline float *pl_net_dweight(const struct pl_net *net, uint32_t t)
{
	return t == PL_NONE ? NULL : net->grads.p + net->tensor[t].offset;
}
static inline const float *pl_net_value(const struct pl_net *net, uint32_t v)
{
	return v != PL_NET_INPUT ? net->value[v] : net->stored ? net->stored : net->x;
}
/* Bytes of an activation. */
static inline size_t pl_net_width(const struct pl_net *net)
{
	return net->o.store == PL_STORE_BF16 ? 2 : sizeof(float);
}
static inline size_t pl_net_round(size_t n)
{
	return (n + PL_NET_ALIGN - 1) / PL_NET_ALIGN * PL_NET_ALIGN;
}

/* ---- net_build.c: statements to nodes ---------------------------------------------------- */

struct pl_block { /* an open residual block */
	uint32_t count, skip;
	const char *name;
	int n_dims, dim[4];
};
struct pl_builder {
	struct pl_net *net;
	const struct pl_layer *text;
	size_t n_text, at; /* the current statement */
	enum pl_layer_op op;
	const char *name;   /* of its layer */
	int n_dims, dim[4]; /* the input; build() sets the output */
	uint32_t count;	    /* statements so far outside of blocks */
	struct pl_block block[PL_NET_DEPTH];
	uint32_t depth;
	struct pl_intern names; /* of layers, so far */
	struct pl_err *err;
	int rc; /* the first failure, which stays: later calls return values that can be used */
};
int pl_net_build(struct pl_net *net, const struct pl_layer *layer, size_t n,
		 struct pl_err *err) PL_MUST;
/* PL_EDATA; puts the line and the name of the layer before the text. */
void pl_tensor_build_bad(struct pl_builder *b, const char *fmt, ...) PL_PRINTF(2, 3);
/* A node that reads the last value; set b->dim to the output first. NULL name: b->name. */
struct pl_node *pl_tensor_build_node(struct pl_builder *b, enum pl_layer_op op, const char *name);
/* A node of b->op that computes nothing, or that the node before it computes. */
struct pl_node *pl_tensor_build_alias(struct pl_builder *b);
/* "NAME.what" of the last node; its index. */
uint32_t pl_tensor_build_tensor(struct pl_builder *b, const char *what, int n_dims, const int *dim,
				struct pl_init init);
size_t pl_tensor_build_state(struct pl_builder *b, const char *what, int n); /* its place */
/* Numbers and keys of the current statement; `usual`: value of a missing one. */
int pl_tensor_build_num(const struct pl_builder *b, uint32_t i, int usual);
const struct pl_layer_key *pl_tensor_build_key(const struct pl_builder *b, const char *key);
double pl_tensor_build_real(const struct pl_builder *b, const char *key, double usual);
bool pl_tensor_build_switch(const struct pl_builder *b, const char *key, bool usual);
/* "3x32x32" */
char *pl_tensor_build_dims(char *out, size_t size, int n_dims, const int *dim);
/* A string that the net owns. */
const char *pl_tensor_build_text(struct pl_builder *b, const char *fmt, ...) PL_PRINTF(2, 3);

/* ---- layers.c ------------------------------------------------------------------------------- */

extern const struct pl_layer_type pl_tensor_layers[PL_LAYER_COUNT_];

/* ---- net_plan.c, net_init.c ------------------------------------------------------------- */

int pl_net_plan_back(struct pl_net *net, struct pl_err *err) PL_MUST; /* once */
int pl_net_plan_acts(struct pl_net *net, struct pl_err *err) PL_MUST; /* again after a change */
int pl_net_init(struct pl_net *net, struct pl_err *err) PL_MUST;

/* ---- net.c ---------------------------------------------------------------------------------- */

/* Memory of the backend, at least 64 bytes; PL_ENOMEM names `what` and the memory that there is. An
 * outline gets none. */
int pl_net_alloc(struct pl_net *net, void *out, size_t bytes, const char *what,
		 struct pl_err *err) PL_MUST;
/* The calls up to pl_net_record(net, 0, 0) are those of one type of pass, with this argument. */
enum { PL_NET_FORWARD = 1, PL_NET_BACKWARD, PL_NET_OPTIM };
void pl_net_record(struct pl_net *net, int pass, uint64_t arg);

#endif
