/*
 * Convolution by cuDNN (API reference of version 9, "cudnn_cnn library").
 *
 * An algorithm is used if the library calls it deterministic and if it multiplies the operands
 * themselves. Algorithms with transforms (Winograd, FFT) multiply other numbers, whose rounding
 * contradicts the definitions of fp32, tf32 and bfloat16 in backend.h, and FFT needs scratch memory
 * of many times the images. The first of the remaining ones is used: the library's heuristic
 * expects it to be the fastest. There is no timing, so each run on the same device and version
 * makes the same choice.
 *
 * Shapes are kept in a list. The calls of a step have the same order as those of the previous step,
 * so a search continues where the last one ended.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/cudnn.h"
#include "tensor/cuda/cudnn_abi.h"

#define WORK_MOST ((size_t)1 << 30) /* of scratch memory: for images in another layout */
#define OFFERS	  16		    /* more than there are algorithms */
#define NONE	  (-1)

struct pl_cudnn_plan {
	struct pl_cudnn_shape shape;
	void *x, *w, *y, *conv; /* descriptors */
	int algo;		/* NONE: there is none */
	bool tried;
	size_t work;
};

struct pass {
	pl_cudnn_heuristic_fn *heuristic;
	pl_cudnn_space_fn *space;
	pl_cudnn_run_fn *run;
};

struct pl_cudnn {
	void *lib, *handle;
#define MEMBER(member, symbol, type, args) type(*member) args;
	PL_CUDNN_FUNCTIONS(MEMBER)
#undef MEMBER
	struct pass pass[PL_CUDNN_PASSES];
	struct pl_cudnn_plan **plan;
	size_t n, cap, next;
};

/* ---- the library --------------------------------------------------------------------------- */

void pl_cudnn_version(const struct pl_cudnn *c, char *text, size_t size)
{
	/* four digits up to version 8, five later */
	size_t v = c->version(), major = v < 90000 ? v / 1000 : v / 10000;
	size_t rest = v - major * (v < 90000 ? 1000 : 10000);

	snprintf(text, size, "%zu.%zu.%zu", major, rest / 100, rest % 100);
}

static int find_all(struct pl_cudnn *c, const char *file, struct pl_err *err)
{
	char text[48];

	if (!pl_symbol(c->lib, "cudnnGetVersion", &c->version))
		return pl_fail(err, PL_EABSENT, "%.200s is not cuDNN: it has no cudnnGetVersion",
			       file);
	pl_cudnn_version(c, text, sizeof(text));
	if (strtol(text, NULL, 10) != PL_CUDNN_MAJOR)
		return pl_fail(err, PL_EABSENT, "%.200s is cuDNN %s, version %d is needed", file,
			       text, PL_CUDNN_MAJOR);
#define TAKE(symbol, to)                                                                           \
	if (!pl_symbol(c->lib, symbol, to))                                                        \
		return pl_fail(err, PL_EABSENT, "%.200s, cuDNN %s, has no %s", file, text, symbol);
#define TAKE_ONE(member, symbol, type, args) TAKE(symbol, &c->member)
#define TAKE_PASS(which, first, second, third)                                                     \
	TAKE(first, &c->pass[which].heuristic)                                                     \
	TAKE(second, &c->pass[which].space)                                                        \
	TAKE(third, &c->pass[which].run)
	PL_CUDNN_FUNCTIONS(TAKE_ONE)
	PL_CUDNN_PASS_FUNCTIONS(TAKE_PASS)
#undef TAKE_PASS
#undef TAKE_ONE
#undef TAKE
	return 0;
}

int pl_cudnn_open(const char *file, void *stream, struct pl_cudnn **out, struct pl_err *err)
{
	struct pl_cudnn *c;
	int rc = pl_alloc(&c, 1, sizeof(*c), err), status;

	*out = NULL;
	if (rc < 0)
		return rc;
	c->lib = pl_fail_now() ? NULL : dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!c->lib) {
		rc = pl_fail(err, PL_EABSENT, "cannot load %.400s", dlerror());
		goto out;
	}
	PL_TRY(find_all(c, file, err));
	status = c->create(&c->handle);
	if (status == PL_CUDNN_SUCCESS)
		status = c->set_stream(c->handle, stream);
	if (status != PL_CUDNN_SUCCESS) {
		rc = pl_fail(err, PL_EABSENT, "%.200s cannot be set up: %.100s (%d)", file,
			     c->error_string(status), status);
		goto out;
	}
	*out = c;
	return 0;
out:
	pl_cudnn_close(c);
	return rc;
}

static void free_plan(struct pl_cudnn *c, struct pl_cudnn_plan *p)
{
	if (p->x)
		c->tensor_free(p->x);
	if (p->y)
		c->tensor_free(p->y);
	if (p->w)
		c->filter_free(p->w);
	if (p->conv)
		c->conv_free(p->conv);
	pl_free(p);
}

void pl_cudnn_close(struct pl_cudnn *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++)
		free_plan(c, c->plan[i]);
	pl_free(c->plan);
	if (c->handle)
		c->destroy(c->handle);
	pl_free(c);
}

/* ---- algorithms, by shape ------------------------------------------------------------------ */

#define DO(call)                                                                                   \
	do {                                                                                       \
		int status_ = (call);                                                              \
		if (status_ != PL_CUDNN_SUCCESS)                                                   \
			return status_;                                                            \
	} while (0)

static int math_of(const struct pl_cudnn_shape *s)
{
	return s->half ? PL_CUDNN_TENSOR_MATH : s->tf32 ? PL_CUDNN_DEFAULT_MATH : PL_CUDNN_FMA_MATH;
}

static int describe(const struct pl_cudnn *c, struct pl_cudnn_plan *p)
{
	const struct pl_conv *d = &p->shape.d;
	int type = p->shape.half ? PL_CUDNN_BFLOAT16 : PL_CUDNN_FLOAT;

	DO(c->tensor_new(&p->x));
	DO(c->tensor_new(&p->y));
	DO(c->filter_new(&p->w));
	DO(c->conv_new(&p->conv));
	DO(c->tensor_set(p->x, PL_CUDNN_NCHW, type, d->n, d->c, d->h, d->w));
	DO(c->tensor_set(p->y, PL_CUDNN_NCHW, type, d->n, d->k, d->p, d->q));
	DO(c->filter_set(p->w, type, PL_CUDNN_NCHW, d->k, d->c, d->r, d->s));
	DO(c->conv_set(p->conv, d->pad, d->pad, d->stride, d->stride, 1, 1,
		       PL_CUDNN_CROSS_CORRELATION, PL_CUDNN_FLOAT));
	return c->conv_math(p->conv, math_of(&p->shape));
}

/* The descriptors in the order of the pass: two operands and the result. */
static void order(const struct pl_cudnn_plan *p, void **a, void **b, void **out)
{
	*a = p->shape.pass == PL_CUDNN_DX ? p->w : p->x;
	*b = p->shape.pass == PL_CUDNN_Y ? p->w : p->y;
	*out = p->shape.pass == PL_CUDNN_Y ? p->y : p->shape.pass == PL_CUDNN_DX ? p->x : p->w;
}

static bool usable(const struct pl_cudnn_shape *s, const struct pl_cudnn_offer *o)
{
	bool plain = s->pass == PL_CUDNN_Y
			     ? o->algo >= PL_CUDNN_Y_IMPLICIT && o->algo <= PL_CUDNN_Y_DIRECT
		     : s->pass == PL_CUDNN_DX ? o->algo == PL_CUDNN_DX_1
					      : o->algo == PL_CUDNN_DW_1;
	bool exact = o->math == PL_CUDNN_FMA_MATH || o->math == PL_CUDNN_DEFAULT_MATH ||
		     (o->math == PL_CUDNN_TENSOR_MATH && math_of(s) != PL_CUDNN_FMA_MATH);

	return o->status == PL_CUDNN_SUCCESS && o->determinism == PL_CUDNN_DETERMINISTIC && plain &&
	       exact;
}

/* An algorithm and a type of arithmetic; plain float32 stays plain float32. */
static bool take(const struct pl_cudnn *c, struct pl_cudnn_plan *p, const struct pl_cudnn_offer *o)
{
	int math = math_of(&p->shape);
	void *a, *b, *out;

	order(p, &a, &b, &out);
	if (c->conv_math(p->conv, math == PL_CUDNN_FMA_MATH ? math : o->math) != PL_CUDNN_SUCCESS ||
	    c->pass[p->shape.pass].space(c->handle, a, b, p->conv, out, o->algo, &p->work) !=
		    PL_CUDNN_SUCCESS ||
	    p->work > WORK_MOST)
		return false;
	p->algo = o->algo;
	return true;
}

static void choose(const struct pl_cudnn *c, struct pl_cudnn_plan *p)
{
	struct pl_cudnn_offer offer[OFFERS];
	void *a, *b, *out;
	int n = 0;

	p->algo = NONE;
	if (describe(c, p) != PL_CUDNN_SUCCESS)
		return;
	order(p, &a, &b, &out);
	if (c->pass[p->shape.pass].heuristic(c->handle, a, b, p->conv, out, OFFERS, &n, offer) !=
	    PL_CUDNN_SUCCESS)
		return;
	for (int i = 0; i < n && i < OFFERS; i++)
		if (usable(&p->shape, &offer[i]) && take(c, p, &offer[i]))
			return;
}

struct pl_cudnn_plan *pl_cudnn_find(struct pl_cudnn *c, const struct pl_cudnn_shape *s)
{
	struct pl_cudnn_plan *p;

	for (size_t i = 0; i < c->n; i++) {
		size_t at = (c->next + i) % c->n;

		p = c->plan[at];
		if (memcmp(&p->shape, s, sizeof(*s)) != 0)
			continue;
		c->next = at + 1;
		return p->algo == NONE ? NULL : p;
	}
	if (pl_grow(&c->plan, &c->cap, c->n + 1, sizeof(*c->plan), NULL) < 0 ||
	    pl_alloc(&p, 1, sizeof(*p), NULL) < 0)
		return NULL;
	p->shape = *s;
	choose(c, p);
	c->plan[c->n++] = p;
	c->next = 0;
	return p->algo == NONE ? NULL : p;
}

size_t pl_cudnn_work(const struct pl_cudnn_plan *p)
{
	return p->work;
}

bool pl_cudnn_untried(struct pl_cudnn_plan *p)
{
	bool untried = !p->tried;

	p->tried = true;
	return untried;
}

void pl_cudnn_give_up(struct pl_cudnn_plan *p)
{
	p->algo = NONE;
}

bool pl_cudnn_run(struct pl_cudnn *c, struct pl_cudnn_plan *p, const void *a, const void *b,
		  void *out, void *work)
{
	const float one = 1, zero = 0;
	void *da, *db, *dout;

	order(p, &da, &db, &dout);
	if (c->pass[p->shape.pass].run(c->handle, &one, da, a, db, b, p->conv, p->algo, work,
				       p->work, &zero, dout, out) == PL_CUDNN_SUCCESS)
		return true;
	pl_cudnn_give_up(p);
	return false;
}
