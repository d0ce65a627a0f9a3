/*
 * net.h - a network with forward and backward pass over a backend, its parameters in one slab.
 *
 * Parameters, gradients, optimiser state and activations have one slab each (the layout of llm.c),
 * with tables of the tensors in it. Tensors of parameters are in the order of the forward pass.
 * During the backward pass, gradients become complete from the end of the slab to its beginning, so
 * a bucket of neighbours in the slab can be sent without a copy.
 */
#ifndef PL_NET_H
#define PL_NET_H

#include "core/layer.h"
#include "tensor/backend.h"

struct pl_net_opts {
	const struct pl_backend *backend; /* NULL: cpu */
	void *ctx;	     /* of the backend, and stays open; NULL: the network opens its own */
	int threads;	     /* of its own context; 0: 1 */
	enum pl_store store; /* of the context */
	bool graphs;	     /* passes over a whole batch, and updates, may be recorded */
	/* The gradient of the loss overwrites the loss's input if that is the output of a dense
	 * layer. Then the caller may read this output only in evaluations. */
	bool in_place;
	int batch;     /* samples of a forward pass */
	uint64_t seed; /* of initial weights and dropout */
	/* Allocates parameters and gradients, in this order, in memory that others can reach
	 * (shared memory); NULL: the backend allocates them. Bytes are a multiple of 64. */
	void *(*slab)(void *arg, size_t bytes);
	void (*slab_free)(void *arg, void *p, size_t bytes);
	void *slab_arg;
};

struct pl_net_tensor { /* of parameters */
	char *name;    /* "fc1.weight", the name in PyTorch */
	int n_dims, dim[4];
	size_t offset, n; /* floats in the slab; offset is a multiple of 16 */
	uint32_t layer;
	bool decay;	 /* weight decay applies (matrices, not biases and norms) */
	bool transposed; /* files of weights (GPT-2's) store it as (dim[1], dim[0]) */
};
/*
 * The statements in their order, without "input". "attention" becomes three layers: its two
 * projections and the part between them. The layer before a fused layer computes it, so no hook is
 * called for it. "residual" works only in the backward pass, "end" only in the forward pass.
 */
struct pl_net_layer {
	const char *op;	    /* "dense" */
	char *name;	    /* "fc1"; unique */
	int n_dims, dim[4]; /* of the output, without the batch */
	uint32_t first_tensor, n_tensors;
	uint32_t statement; /* number of its statement in the model */
	double flops;	    /* of a sample's forward pass; backward of matrices: twice */
	enum pl_precision precision[2]; /* by phase, of its products */
	size_t act_bytes;		/* kept for the backward pass, for a whole batch */
	bool recompute; /* computed again in the backward pass: set by pl_net_recompute() */
	bool fused;	/* the layer before it computes it, or it computes nothing (flatten) */
};
struct pl_net_shape {	    /* the shape of batches */
	int n_dims, dim[4]; /* of a sample's x; of ids: (T) */
	int vocab;	    /* ids are below this; 0: x is floats */
	int rows;	    /* rows of a sample with a class: T, else 1 */
	int classes;	    /* y is below this; 0: targets */
	int targets;	    /* floats a sample; 0: classes */
};

/* The output and the cost of a statement for one sample in the forward pass. */
struct pl_net_work {
	char name[64];	    /* of its (first) layer, as in traces and plans; "" none */
	int n_dims, dim[4]; /* of the output */
	int64_t params;
	double flops;
	double bytes; /* read and written, if each statement is a kernel and uses float32 */
};
/* Fill work[n], by statement, without memory for a network. PL_EDATA as in pl_net_new(). */
int pl_net_work(const struct pl_layer *layer, size_t n, struct pl_net_work *work,
		struct pl_err *err) PL_MUST;

/* What a layer computes for a batch, as cost models see it; 0: it has no such size. */
struct pl_net_sizes {
	double batch, m, n, k; /* `batch` products of (m x k) and (k x n) in the forward pass */
	double rows, columns;  /* of the output */
	/* of convolutions, whose images have `in` planes of size x size; the last three of pooling
	 */
	double in, size, kernel, stride, padding;
	bool ends;    /* nobody wants the gradient of its input */
	bool runs[2]; /* in the forward and the backward pass */
};

struct pl_net; /* opaque */
enum pl_net_phase { PL_PHASE_FORWARD, PL_PHASE_BACKWARD };
struct pl_net_hooks { /* each may be NULL */
	void *arg;
	/* around the work of a layer; `again`: recomputation of a forward pass */
	void (*begin)(void *arg, uint32_t layer, enum pl_net_phase p, bool again);
	void (*end)(void *arg, uint32_t layer, enum pl_net_phase p, bool again);
	/* the gradients of tensors first .. first + n - 1 are final */
	void (*ready)(void *arg, uint32_t first, uint32_t n);
};

/* The statements must have passed the checks of plan/model.h. */
/* PL_EDATA names layer and line: shapes that do not fit, names that occur twice. */
int pl_net_new(const struct pl_layer *layer, size_t n, const struct pl_net_opts *o,
	       struct pl_net **net, struct pl_err *err) PL_MUST;
void pl_net_free(struct pl_net *net);
void pl_net_hooks(struct pl_net *net, const struct pl_net_hooks *h);
/* The readable part of a network. The backend owns its memory. All is constant, except that
 * recomputation changes `recompute` and `act_bytes`, and pl_net_precision() the precision. */
struct pl_net_view {
	const struct pl_backend *be;
	void *ctx;
	struct pl_net_shape shape;
	const struct pl_net_layer *layer;
	const struct pl_net_tensor *tensor;
	float *params, *grads;
	/* state of the model that is no parameter: "1.running_mean", "1.running_var" */
	const struct pl_net_tensor *state_tensor;
	float *state; /* right behind the parameters: params + n_params; NULL: there is none */
	size_t n_params, n_state; /* n_state may be 0 */
	uint32_t n_layers, n_tensors, n_state_tensors;
};
struct pl_net_view pl_net_view(const struct pl_net *net);
struct pl_net_sizes pl_net_sizes(const struct pl_net *net, uint32_t layer);
/* The name that cost models know the pass of a layer by: "dense.forward", "maxpool2.backward";
 * "dense.backward_end" where nobody wants the gradient of the input. */
void pl_net_kernel_name(const struct pl_net *net, uint32_t layer, enum pl_net_phase phase,
			char *out, size_t size);
/* What the pass of a layer computes, for traces and graphs. */
struct pl_net_op {
	char name[64], dims[160]; /* the name above; sizes of its inputs: "[[32,64],[64,128]]" */
	double flops, bytes; /* read and written; -1: time goes by the numbers of the output, and
			      * a layer may keep some for the other pass */
};
/* element: bytes of a number */
struct pl_net_op pl_net_op(const struct pl_net *net, uint32_t layer, enum pl_net_phase phase,
			   double element);
/* A network without memory, which has only its view (without addresses) and its sizes. */
int pl_net_outline(const struct pl_layer *layer, size_t n, int batch, struct pl_net **net,
		   struct pl_err *err) PL_MUST;

/* A host batch: x (B, input) or ids (B, T); y classes (B) or (B, T), or floats (B, output). */
struct pl_batch_io {
	const float *x;
	const int32_t *ids;
	const int32_t *y;
	const float *target;
	int n; /* samples in use, at most `batch` */
};
/* Mean loss of the batch over samples and their rows (and hits among the rows, NULL: not wanted);
 * loss NULL: do not wait for it, see pl_net_losses(). `key`: for dropout; equal keys give equal
 * masks. eval: no dropout, running means, no backward pass. PL_EDATA for ids and classes out of
 * range; else the failure of a device. */
int pl_net_forward(struct pl_net *net, const struct pl_batch_io *b, uint64_t key, bool eval,
		   double *loss, int64_t *hits, struct pl_err *err) PL_MUST;
/* A loss that the caller computes; the network must have "loss squared". It returns the mean loss
 * of the n outputs x against the targets. If dx is not NULL, it writes the gradient times scale. */
typedef double pl_net_loss(void *arg, const float *x, const float *target, size_t n, float scale,
			   float *dx);
int pl_net_own_loss(struct pl_net *net, pl_net_loss *loss, void *arg, struct pl_err *err) PL_MUST;
/* A term of the loss that the caller computes from the output of a layer. In each backward pass it
 * is called right before that of the layer: y (samples, n) is the output, and it adds the gradient
 * of the term, times what pl_net_scale() says, to dy, which holds that of all layers behind. */
typedef void pl_net_term(void *arg, const float *y, size_t samples, size_t n, float scale,
			 float *dy);
/* For one layer; NULL: no term any more. PL_EINTERNAL: the layer must be dense, with any activation
 * but gelu, neither end a block nor be the input of the loss, and not be computed again. */
int pl_net_own_term(struct pl_net *net, uint32_t layer, pl_net_term *term, void *arg,
		    struct pl_err *err) PL_MUST;
/* What came into the loss in the last forward pass, which was an evaluation: (samples, outputs). */
int pl_net_outputs(struct pl_net *net, float *y, struct pl_err *err) PL_MUST;
/* The same of a layer that is not computed again. */
int pl_net_layer_outputs(struct pl_net *net, uint32_t layer, float *y, struct pl_err *err) PL_MUST;
/* The losses of the last n forward passes, the oldest first. Waits for all work of the device. */
#define PL_NET_LOSSES 64
int pl_net_losses(struct pl_net *net, uint32_t n, struct pl_loss_sum *sum,
		  struct pl_err *err) PL_MUST;
/* Multiply the gradients of later passes by `scale`; 1 at first. */
void pl_net_scale(struct pl_net *net, float scale);
/* Add the gradient of the last forward()'s loss to grads (without accumulate: overwrite them).
 * Calls ready() for each tensor once, the last layer first. Call it once for each forward(). */
int pl_net_backward(struct pl_net *net, bool accumulate, struct pl_err *err) PL_MUST;
/* The caller wrote into the parameters. */
void pl_net_changed(struct pl_net *net);
/*
 * Choose the layers that keep only the inputs of their segments; results keep the same bits. A name
 * that is a prefix ("h.0") selects all layers under it as one segment; neighbours that are named
 * one by one are one segment, too. Replaces earlier choices; n 0: none. Not between forward() and
 * backward(). PL_EDATA for a name without a layer.
 */
int pl_net_recompute(struct pl_net *net, const char *const *layer, size_t n,
		     struct pl_err *err) PL_MUST;
/*
 * Set the precision of the products of a layer in one pass; PL_FP32 by default (see backend.h).
 * Parameters, gradients, activations and the state of the optimiser are always float32. A forward
 * pass for recomputation or evaluation has the precision of training.
 */
void pl_net_precision(struct pl_net *net, uint32_t layer, enum pl_net_phase phase,
		      enum pl_precision p);

/* ---- optimisers ------------------------------------------------------------------------------ */

enum pl_optim_kind { PL_OPTIM_SGD, PL_OPTIM_ADAM, PL_OPTIM_ADAMW };
enum pl_schedule { PL_SCHED_CONST, PL_SCHED_STEP, PL_SCHED_COSINE, PL_SCHED_LINEAR };
struct pl_optim_opts {
	enum pl_optim_kind kind;
	double lr, momentum, b1, b2, eps, decay,
		clip; /* clip: of the norm of all gradients; 0: no */
	bool nesterov;
	bool decay_all;	      /* biases and norms decay, too: `decay` of pl_net_tensor is ignored */
	const char *no_decay; /* pattern of names that do not decay; NULL: none */
	enum pl_schedule schedule;
	int64_t warmup, steps; /* of the schedule */
	double gamma;	       /* of PL_SCHED_STEP: every `every` steps */
	int64_t every;
};
struct pl_optim;
/* PL_EUSAGE: a schedule that ends before it warms up. PL_EDATA: a pattern without a parameter. */
int pl_optim_new(struct pl_net *net, const struct pl_optim_opts *o, struct pl_optim **opt,
		 struct pl_err *err) PL_MUST;
void pl_optim_free(struct pl_optim *opt);
/* The schedule ends after another number of steps from now on. */
void pl_optim_set_steps(struct pl_optim *opt, int64_t steps);
double pl_optim_lr(const struct pl_optim_opts *o, int64_t step); /* step from 0 */
/* Update floats first .. first + n - 1 of the slab (all: 0, SIZE_MAX), once in each step. `norm`:
 * the norm of all gradients, for clipping; NaN: it is computed here, and all gradients must be
 * final. Clipping scales the gradients in their slab. */
void pl_optim_step(struct pl_optim *opt, int64_t step, size_t first, size_t n, double norm);
/* From the next step on, the learning rate is that of the schedule times `factor`. */
void pl_optim_rate(struct pl_optim *opt, double factor);
/* From the next step on, the schedule is at step + rate, and Adam counts step + count. */
void pl_optim_shift(struct pl_optim *opt, int64_t rate, int64_t count);
/* The slabs of the optimiser, of n floats each, for checkpoints. */
uint32_t pl_optim_slabs(struct pl_optim *opt, float **slab, size_t *n); /* at most 2 */

#endif
