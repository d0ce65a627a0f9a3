/*
 * tprog.h - tensor programs: loop nests that compute an operation of a model, as a schedule made
 * them. Text: paceline-tprog(5).
 *
 * A program is a list of nodes in pre-order: loops, buffers that live inside a loop, and stores,
 * which are the leaves. Everything that a node refers to is in tables of the program.
 */
#ifndef PL_TPROG_H
#define PL_TPROG_H

#include "io/stream.h"
#include "io/write.h"
#include "lang/lang.h"

#define PL_TPROG_MAJOR 1

/* How the iterations of a loop are carried out. X(NAME, "word"). */
#define PL_TPROG_BINDS(X)                                                                          \
	X(SERIAL, "serial")                                                                        \
	X(PARALLEL, "parallel")                                                                    \
	X(VECTORIZE, "vectorize")                                                                  \
	X(UNROLL, "unroll")                                                                        \
	X(BLOCK_X, "block.x")                                                                      \
	X(BLOCK_Y, "block.y")                                                                      \
	X(BLOCK_Z, "block.z")                                                                      \
	X(THREAD_X, "thread.x")                                                                    \
	X(THREAD_Y, "thread.y")                                                                    \
	X(THREAD_Z, "thread.z")                                                                    \
	X(VTHREAD, "vthread")
#define PL_TPROG_NUMBER_(name, word) PL_TPROG_##name,
enum pl_tprog_bind { PL_TPROG_BINDS(PL_TPROG_NUMBER_) PL_TPROG_BINDS_ };
#undef PL_TPROG_NUMBER_

/* The operations of expressions. X(NAME, "word", operands). Integers are indices. */
#define PL_TPROG_EXPRS(X)                                                                          \
	X(NUMBER, "", 0)                                                                           \
	X(LOOP, "", 0) /* the value of a loop's variable */                                        \
	X(LOAD, "", 0) /* a number of a buffer; its indices are arguments */                       \
	X(ADD, "+", 2)                                                                             \
	X(SUB, "-", 2)                                                                             \
	X(MUL, "*", 2)                                                                             \
	X(DIV, "/", 2) /* of integers, which are not negative: rounded down */                     \
	X(MOD, "%", 2)                                                                             \
	X(LESS, "<", 2) /* the comparisons, and "&": 1 or 0, of integers */                        \
	X(EQUAL, "==", 2)                                                                          \
	X(AND, "&", 2)                                                                             \
	X(MAX, "max", 2)                                                                           \
	X(MIN, "min", 2)                                                                           \
	X(SELECT, "select", 3) /* the second if the first is not 0, else the third */              \
	X(EXP, "exp", 1)                                                                           \
	X(LOG, "log", 1)                                                                           \
	X(SQRT, "sqrt", 1)                                                                         \
	X(TANH, "tanh", 1)                                                                         \
	X(ERF, "erf", 1)
#define PL_TPROG_NUMBER_(name, word, operands) PL_TPROG_##name,
enum pl_tprog_expr_op { PL_TPROG_EXPRS(PL_TPROG_NUMBER_) PL_TPROG_EXPRS_ };
#undef PL_TPROG_NUMBER_

#define PL_TPROG_DIMS 8

struct pl_tprog_expr {
	uint8_t op;
	bool integer;
	uint16_t depth;	      /* of the operations in one another, 1: no operation */
	uint32_t ref;	      /* LOOP: a node; LOAD: a buffer */
	uint32_t arg, n_args; /* operands or indices: program.arg[arg ..] */
	double number;	      /* NUMBER */
};
struct pl_tprog_buffer {
	const char *name;
	uint32_t node; /* ALLOC whose body may use it; PL_NONE: a parameter of the program */
	bool shared;   /* by the threads of a block */
	int n_dims;    /* float32, the last dimension is contiguous */
	int64_t dim[PL_TPROG_DIMS];
	int64_t n; /* numbers */
};
enum pl_tprog_kind { PL_TPROG_FOR, PL_TPROG_ALLOC, PL_TPROG_STORE };
enum pl_tprog_update { PL_TPROG_SET, PL_TPROG_PLUS, PL_TPROG_MOST }; /* = += max= */
struct pl_tprog_node {
	uint8_t kind;
	uint8_t bind;	  /* FOR: enum pl_tprog_bind */
	bool reduce;	  /* FOR: of a dimension that is summed up */
	uint8_t update;	  /* STORE */
	uint32_t parent;  /* PL_NONE: the program */
	uint32_t end;	  /* its body: the nodes behind it, to the one before `end` */
	const char *name; /* FOR: of its variable */
	int64_t extent;	  /* FOR: the variable is 0 to extent - 1 */
	uint32_t buffer;  /* ALLOC, STORE */
	uint32_t arg;	  /* STORE: indices, program.arg[arg .. + n_dims of the buffer] */
	uint32_t value;	  /* STORE: an expression */
};
struct pl_tprog_measured { /* ns */
	const char *device;
	double median, least;
	int64_t runs;
};
/* Zero-initialised is empty. Strings belong to the arena. */
struct pl_tprog {
	struct pl_arena arena;
	const char *name;
	const char *model, *op; /* "" unknown: of which network, what it computes */
	uint32_t line;
	struct pl_tprog_buffer *buffer;
	struct pl_tprog_node *node;
	struct pl_tprog_expr *expr;
	uint32_t *arg;
	struct pl_tprog_measured *measured;
	size_t n_buffers, cap_buffers, n_nodes, cap_nodes, n_exprs, cap_exprs, n_args, cap_args,
		n_measured, cap_measured;
};
void pl_tprog_fini(struct pl_tprog *p);

/* Reads the programs of a file one after another. PL_EDATA names line and column. */
struct pl_tprog_reader;
int pl_tprog_reader_new(struct pl_in *in, struct pl_tprog_reader **r, struct pl_err *err) PL_MUST;
void pl_tprog_reader_free(struct pl_tprog_reader *r); /* NULL is fine */
/* The next program into an empty *p; 1: there is one, 0: the file ends. */
int pl_tprog_next(struct pl_tprog_reader *r, struct pl_tprog *p, struct pl_err *err) PL_MUST;

/* Can a program, a buffer or a device be called so? */
bool pl_tprog_is_name(const char *s);
/* The text of a program; read back, it is the same program. */
void pl_tprog_write(const struct pl_tprog *p, struct pl_writer *w);
void pl_tprog_write_header(struct pl_writer *w);

/*
 * The program as a function in C: void NAME(float *const *buffer), whose elements are its
 * parameters in their order. Loops that are bound to blocks and threads of a device are serial.
 * The header stands once before the functions of a source.
 */
void pl_tprog_write_c_header(struct pl_writer *w);
void pl_tprog_write_c(const struct pl_tprog *p, const char *name, struct pl_writer *w);

/* Is one of its loops bound to the blocks or threads of a GPU? */
bool pl_tprog_is_cuda(const struct pl_tprog *p);
/*
 * The program as CUDA C++ (cuda.c): its kernels, and int NAME(float *const *buffer, cudaStream_t
 * stream), which launches them; the parameters are in the memory of the device, and what it returns
 * is a cudaError_t. The source needs cuda_runtime.h before it. PL_EDATA says what of the program
 * cannot be a kernel; what was written until then is of no use.
 */
int pl_tprog_write_cuda(const struct pl_tprog *p, const char *name, struct pl_writer *w,
			struct pl_err *err) PL_MUST;

/*
 * Carries the program out, slowly. buffer: of each parameter, in their order. PL_EDATA: an index is
 * outside of its buffer.
 */
int pl_tprog_run(const struct pl_tprog *p, float *const *buffer, struct pl_err *err) PL_MUST;
/*
 * PL_EDATA: an index may be outside of its buffer, or a whole number divided by 0. Compiled
 * programs do not look (bounds.c).
 */
int pl_tprog_check(const struct pl_tprog *p, struct pl_err *err) PL_MUST;

/* ---- generate.c: programs of operations ------------------------------------------------------ */

/* The operations of models: statements of a file, see paceline-tprog(5). */
extern const struct pl_lang_schema pl_tprog_tasks_schema;
#define PL_TPROG_SIZES 6
struct pl_tprog_task {
	uint32_t row;	   /* of the schema */
	const char *model; /* "" none */
	const char *then;  /* what follows on each number, "" nothing */
	int64_t size[PL_TPROG_SIZES];
};
struct pl_tprog_tasks {
	struct pl_arena arena;
	struct pl_tprog_task *v;
	size_t n, cap;
};
int pl_tprog_tasks_read(struct pl_in *in, struct pl_tprog_tasks *t, struct pl_err *err) PL_MUST;
void pl_tprog_tasks_fini(struct pl_tprog_tasks *t);
const char *pl_tprog_task_op(const struct pl_tprog_task *t); /* "dense" */
/* Append the lines of a program, behind its name, that computes the operation by a random schedule:
 * equal seeds give equal programs. Seed 0: without a schedule, every loop once and serial. */
int pl_tprog_generate(const struct pl_tprog_task *t, uint64_t seed, struct pl_buf *text,
		      struct pl_err *err) PL_MUST;

/* ---- leaves.c: what cost models see ---------------------------------------------------------- */

/* What a leaf computes and where it lies: CDMPP (EuroSys 2024), compact AST. */
#define PL_TPROG_CDMPP	  164
#define PL_TPROG_OWN	  51 /* behind them: machine.c */
#define PL_TPROG_FEATURES (PL_TPROG_CDMPP + PL_TPROG_OWN)
struct pl_tprog_leaf {
	uint32_t node;
	uint32_t place; /* in the tree in pre-order, with a mark at the end of each node */
	float x[PL_TPROG_FEATURES];
};
/* The leaves; pl_free(). */
int pl_tprog_leaves(const struct pl_tprog *p, struct pl_tprog_leaf **leaf, size_t *n,
		    struct pl_err *err) PL_MUST;
/* Operations on floats of the whole program. */
double pl_tprog_flops(const struct pl_tprog *p);

#endif
