/*
 * The description of a program of XLA, as profiles in XPlane have it: the collectives, with what
 * each of them moves. The field numbers are those of the public hlo.proto and xla_data.proto.
 *
 * The size is that of the whole buffer, as in nccl-tests: the larger one of what an operation takes
 * and gives.
 */
#include "import/xla.h"
#include "io/pb.h"

enum { HLO_MODULE = 1, MODULE_COMPUTATION = 3, COMPUTATION_INSTRUCTION = 2 };
enum { I_NAME = 1, I_OPCODE = 2, I_SHAPE = 3, I_ID = 35, I_OPERANDS = 36 };
enum { SHAPE_TYPE = 2, SHAPE_DIMS = 3, SHAPE_TUPLE = 4 };

/* Bytes of an element by its type; 0: no number. */
static int64_t type_bytes(uint64_t type)
{
	static const uint8_t bytes[] = { 0, 1, 1, 2, 4, 8,  1, 2, 4, 8, 2, 4, 8,
					 0, 0, 8, 2, 0, 16, 1, 1, 1, 1, 1, 1, 1 };

	return type < PL_LEN(bytes) ? bytes[type] : 0;
}

static int64_t product(int64_t a, uint64_t b)
{
	int64_t v;

	return b > INT64_MAX || __builtin_mul_overflow(a, (int64_t)b, &v) ? 0 : v;
}

/* Bytes of a shape: of a tuple those of all elements, or (`largest`) of the largest element, which
 * may be a tuple itself. */
static int64_t shape_bytes(const uint8_t *p, size_t n, bool largest, int depth)
{
	struct pl_pb_in m = pl_pb_message(p, n);
	struct pl_pb_field f;
	int64_t size = 1, tuple = 0, sum;
	uint64_t type = 0, d;

	while (pl_pb_next(&m, &f)) {
		const uint8_t *q = f.p;

		if (f.number == SHAPE_TYPE && !f.bytes)
			type = f.v;
		else if (f.number == SHAPE_DIMS && !f.bytes)
			size = product(size, f.v);
		while (f.number == SHAPE_DIMS && f.bytes && pl_pb_take_varint(&q, f.p + f.n, &d))
			size = product(size, d);
		if (f.number != SHAPE_TUPLE || !f.bytes || !depth)
			continue;
		sum = shape_bytes(f.p, f.n, false, depth - 1);
		tuple = largest ? pl_max_i64(tuple, sum) : pl_add_sat(tuple, sum);
	}
	return tuple ? tuple : product(size, (uint64_t)type_bytes(type));
}

struct instruction {
	struct pl_pb_field name, opcode, shape, operands;
	uint64_t id;
};

static struct instruction read_instruction(const struct pl_pb_field *field)
{
	struct pl_pb_in m = pl_pb_message(field->p, field->n);
	struct instruction x = { 0 };
	struct pl_pb_field f;

	while (pl_pb_next(&m, &f)) {
		if (f.number == I_NAME && f.bytes)
			x.name = f;
		else if (f.number == I_OPCODE && f.bytes)
			x.opcode = f;
		else if (f.number == I_SHAPE && f.bytes)
			x.shape = f;
		else if (f.number == I_OPERANDS)
			x.operands = f;
		else if (f.number == I_ID && !f.bytes)
			x.id = f.v;
	}
	return x;
}

struct result { /* of an instruction */
	uint64_t id;
	int64_t bytes;
};
struct results {
	struct result *v;
	size_t n, cap;
};
PL_COMPARATOR(by_id, struct result, id);

/* The results of all instructions of a computation, by id. */
static int read_results(const struct pl_pb_field *computation, struct results *r,
			struct pl_err *err)
{
	struct pl_pb_in m = pl_pb_message(computation->p, computation->n);
	struct pl_pb_field f;

	while (pl_pb_next(&m, &f)) {
		struct instruction i;
		struct result one;

		if (f.number != COMPUTATION_INSTRUCTION || !f.bytes)
			continue;
		i = read_instruction(&f);
		one = (struct result){ i.id, shape_bytes(i.shape.p, i.shape.n, false, 4) };
		PL_CHECK(pl_append(&r->v, &r->n, &r->cap, &one, sizeof(one), err));
	}
	pl_sort(r->v, r->n, sizeof(*r->v), by_id);
	return 0;
}

static int64_t result_bytes(const struct results *r, uint64_t id)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, r->n, r->v[i].id < id);
	return i < r->n && r->v[i].id == id ? r->v[i].bytes : 0;
}

/* Bytes of the results of the instructions that x takes. */
static int64_t operand_bytes(const struct results *r, const struct instruction *x)
{
	const uint8_t *p = x->operands.p;
	int64_t sum = 0;
	uint64_t id;

	if (!x->operands.bytes)
		return x->operands.number ? result_bytes(r, x->operands.v) : 0;
	while (pl_pb_take_varint(&p, x->operands.p + x->operands.n, &id))
		sum = pl_add_sat(sum, result_bytes(r, id));
	return sum;
}

static int one_instruction(struct pl_xla *x, const char *program,
			   const struct pl_pb_field *computation, struct results *r,
			   const struct instruction *i, struct pl_err *err)
{
	const char *coll =
		i->opcode.n ? pl_import_xla_coll((const char *)i->opcode.p, i->opcode.n) : NULL;
	int64_t bytes;

	if (!coll || !i->name.n)
		return 0;
	if (!r->n) /* once: a program may have many collectives */
		PL_CHECK(read_results(computation, r, err));
	/* the result of "all-gather-start" is one tuple of its operands and its results */
	bytes = shape_bytes(i->shape.p, i->shape.n,
			    i->opcode.n > 6 && strcmp(coll, "allreduce") != 0 &&
				    !memcmp(i->opcode.p + i->opcode.n - 6, "-start", 6),
			    4);
	bytes = pl_max_i64(bytes, operand_bytes(r, i));
	return pl_import_xla_know(x, program, (const char *)i->name.p, i->name.n, coll,
				  bytes ? bytes : -1, err);
}

static int one_computation(struct pl_xla *x, const char *program,
			   const struct pl_pb_field *computation, struct pl_err *err)
{
	struct pl_pb_in m = pl_pb_message(computation->p, computation->n);
	struct results results = { 0 };
	struct pl_pb_field f;
	int rc = 0;

	while (rc >= 0 && pl_pb_next(&m, &f)) {
		struct instruction i;

		if (f.number != COMPUTATION_INSTRUCTION || !f.bytes)
			continue;
		i = read_instruction(&f);
		rc = one_instruction(x, program, computation, &results, &i, err);
	}
	pl_free(results.v);
	return rc;
}

int pl_import_hlo(struct pl_xla *x, const char *program, size_t n_program, const uint8_t *p,
		  size_t n, struct pl_err *err)
{
	struct pl_pb_in hlo = pl_pb_message(p, n);
	struct pl_pb_field module, f;
	char name[256];

	if (n_program >= sizeof(name))
		return 0;
	snprintf(name, sizeof(name), "%.*s", (int)n_program, n_program ? program : "");
	while (pl_pb_next(&hlo, &module)) {
		struct pl_pb_in m = pl_pb_message(module.p, module.bytes ? module.n : 0);

		while (module.number == HLO_MODULE && module.bytes && pl_pb_next(&m, &f))
			if (f.number == MODULE_COMPUTATION && f.bytes)
				PL_CHECK(one_computation(x, name, &f, err));
	}
	return 0;
}
