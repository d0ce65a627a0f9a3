/*
 * kgen_model.h - the passes of a training step, for what puts them in order (kgen_schedule.c) and
 * what kinds of jobs add (kgen_kinds.c).
 */
#ifndef KGEN_MODEL_H
#define KGEN_MODEL_H

#include "kgen_emit.h"

#define KG_LAYER_END	    10 /* operators of a layer */
#define KG_HIDDEN	    4096
#define KG_TOKENS	    4096
#define KG_ACTIVATION_BYTES (2.0 * KG_HIDDEN * KG_TOKENS)
#define KG_LAYER_GRAD_BYTES (2.0 * 12 * KG_HIDDEN * KG_HIDDEN)

/* Scopes of draws. */
enum { KG_PH_START, KG_PH_FWD, KG_PH_BWD, KG_PH_JOIN, KG_PH_OPT, KG_PH_P2P, KG_PH_WEIGHTS };

/* Passes over a layer; a backward pass may be split into that for inputs and that for weights. */
enum { KG_FORWARD, KG_BACKWARD, KG_INPUTS, KG_WEIGHTS };

struct kg_build;

/*
 * What a kind adds at a boundary of layer `layer` of the stage: boundary i is before operator i
 * and, on the way back, behind it; KG_LAYER_END is the end of the forward and the beginning of the
 * backward pass.
 */
typedef void kg_boundary(struct kg_build *b, int pass, int layer, int at);

/* State of a rank while its scripts are written. */
struct kg_build {
	struct kg_emit e;
	int first_layer, n_layers, n_pending, n_sends, pass;
	bool last_microbatch;
	bool shards;	   /* gradients are reduced by the kind */
	double work;	   /* samples of this step, relative */
	double slot_work;  /* ... of these operators: experts do not get equal shares */
	uint32_t *seq;	   /* autograd sequence numbers [microbatch][layer][slot] */
	uint32_t *pending; /* data-parallel collectives not joined yet */
	struct {
		int stream;
		uint32_t event;
	} * send;
	kg_boundary *boundary;
	/* sharded layers */
	uint32_t gathered[2]; /* end events of the layers that are gathered, by number modulo 2 */
	uint32_t released[2]; /* events behind the last use of the last two layers */
	uint32_t reduced;     /* end event of the last reduced gradients */
	int n_gathered, n_released, n_reduced;
};

/* kgen_model.c */
double kg_activation_bytes(const struct kg_build *b);
double kg_layer_bytes(const struct kg_build *b); /* parameters, and gradients */
void kg_forward(struct kg_build *b, int mb, int chunk);
void kg_backward(struct kg_build *b, int mb, int chunk, int pass);
void kg_finish_sends(struct kg_build *b);

/* kgen_schedule.c: the schedules, and that of the kind of the job */
typedef void kg_schedule(struct kg_build *b);
kg_schedule kg_one_forward_one_backward, kg_interleaved, kg_zero_bubble, kg_captured;

/* kgen_kinds.c */
kg_boundary *kg_kind_boundary(const struct kg_cfg *cfg); /* NULL: nothing */
void kg_run_schedule(struct kg_build *b);

#endif
