/* network_internal.h - what the parts of the network of tensor programs share. */
#ifndef PL_TPROG_NETWORK_INTERNAL_H
#define PL_TPROG_NETWORK_INTERNAL_H

#include "plan/model.h"
#include "tensor/net.h"
#include "tprog/network.h"

struct pl_tprog_network {
	struct pl_tprog_settings settings;
	struct pl_buf text; /* its layers */
	struct pl_model model;
	struct pl_net *net;
	uint32_t latent;					  /* the layer */
	float least[PL_TPROG_FEATURES], range[PL_TPROG_FEATURES]; /* of each entry */
	float (*place)[PL_TPROG_FEATURES];			  /* [PLACES] */
	double power, mean, deviation;				  /* of the labels */
	double *moments;   /* (PL_MOMENTS, latent), of the programs that it learned from */
	double *work;	   /* as many numbers */
	float *bounded;	   /* of a batch: tangents of latent vectors, and a gradient */
	double pull;	   /* weight of the discrepancy from the moments */
	float *base;	   /* parameters before it was adapted; NULL: it was not */
	float *x, *target; /* of a batch */
};

/* The layers and the room of a network with these settings. */
int pl_tprog_network_make(struct pl_tprog_network *t, int threads, uint64_t seed,
			  struct pl_err *err) PL_MUST;
/* The parameters are those before an adaptation. */
int pl_tprog_network_keep(struct pl_tprog_network *t, struct pl_err *err) PL_MUST;

#endif
