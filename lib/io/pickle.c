/*
 * Python's pickles of plain values, protocols 2 to 5, as a tree.
 *
 * A pickle is a program for a machine with a stack and a memory. The instructions below cannot name
 * a class or a function, so nothing can be called. One pass; each instruction is done in constant
 * time or in that of the items that it moves from the stack.
 */
#include "core/bytes.h"
#include "io/tree.h"

struct machine {
	struct pl_arena *a;
	const uint8_t *start, *p, *end;
	struct pl_tree **stack; /* NULL: a mark */
	size_t n, cap;
	struct pl_tree **memo;
	size_t n_memo, cap_memo;
	bool refused; /* it is more than plain values */
	struct pl_err *err;
	struct pl_err ignored; /* of a pickle that is cut off */
};

static int bad(const struct machine *m, const char *what)
{
	return pl_fail(m->err, PL_EDATA, "byte %lld: %s", (long long)(m->p - m->start), what);
}

static int push(struct machine *m, struct pl_tree *t)
{
	return t ? pl_append(&m->stack, &m->n, &m->cap, &t, sizeof(struct pl_tree *), m->err)
		 : m->err->code;
}

static struct pl_tree *top(const struct machine *m)
{
	return m->n ? m->stack[m->n - 1] : NULL;
}

/* *first: the place of the first item after the last mark, which is taken away. */
static int mark(struct machine *m, size_t *first)
{
	size_t i = m->n;

	while (i && m->stack[i - 1])
		i--;
	if (!i)
		return bad(m, "items without a mark before them");
	*first = i;
	return 0;
}

/* Move the items from `first` on to `to`, which is below them. */
static int collect(struct machine *m, size_t first, struct pl_tree *to)
{
	for (size_t i = first; i < m->n; i++) {
		if (!m->stack[i])
			return bad(m, "a mark among items");
		PL_CHECK(pl_tree_add(m->a, to, m->stack[i], m->err));
	}
	return 0;
}

/* The items after the mark join the list or dictionary before it. */
static int join(struct machine *m, uint8_t type, size_t first, size_t below)
{
	struct pl_tree *to = below ? m->stack[below - 1] : NULL;

	if (!to || to->type != type)
		return bad(m, type == PL_TREE_DICT ? "no dictionary for an item"
						   : "no list for an item");
	if (type == PL_TREE_DICT && (m->n - first) % 2)
		return bad(m, "a key without a value");
	PL_CHECK(collect(m, first, to));
	m->n = below;
	return 0;
}

static int tuple(struct machine *m, size_t first, size_t below)
{
	struct pl_tree *t = pl_tree_new(m->a, PL_TREE_LIST, m->err);

	if (!t)
		return PL_ENOMEM;
	PL_CHECK(collect(m, first, t));
	m->n = below;
	return push(m, t);
}

static int push_int(struct machine *m, int64_t v, uint8_t type)
{
	struct pl_tree *t = pl_tree_new(m->a, type, m->err);

	if (t)
		t->i = v;
	return push(m, t);
}

static int push_text(struct machine *m, size_t n)
{
	struct pl_tree *t;

	if (n > (size_t)(m->end - m->p))
		return bad(m, "a text that is cut off");
	t = pl_tree_new(m->a, PL_TREE_TEXT, m->err);
	if (t) {
		t->n = n;
		t->s = pl_arena_dup(m->a, (const char *)m->p, n);
		if (!t->s)
			return pl_fail(m->err, PL_ENOMEM, "out of memory (document)");
	}
	m->p += n;
	return push(m, t);
}

/* Little-endian, two's complement, of `n` bytes. Numbers beyond 64 bits become the greatest. */
static int push_long(struct machine *m, size_t n)
{
	uint64_t v = n && m->p[n - 1] & 0x80 ? UINT64_MAX : 0;

	if (n > 8)
		v = v ? (uint64_t)INT64_MIN : INT64_MAX;
	for (size_t i = 0; n <= 8 && i < n; i++)
		v = (v & ~((uint64_t)0xff << 8 * i)) | (uint64_t)m->p[i] << 8 * i;
	m->p += n;
	return push_int(m, (int64_t)v, PL_TREE_INT);
}

static int push_real(struct machine *m)
{
	struct pl_tree *t = pl_tree_new(m->a, PL_TREE_REAL, m->err);
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | m->p[i];
	m->p += 8;
	if (t)
		memcpy(&t->real, &v, sizeof(v));
	return push(m, t);
}

static int put(struct machine *m, size_t i)
{
	if (!top(m))
		return bad(m, "nothing to keep");
	if (i >= (size_t)(m->p - m->start)) /* each place has an instruction */
		return bad(m, "a place in the memory that is too far away");
	PL_CHECK(pl_grow(&m->memo, &m->cap_memo, i + 1, sizeof(struct pl_tree *), m->err));
	for (; m->n_memo <= i; m->n_memo++)
		m->memo[m->n_memo] = NULL;
	m->memo[i] = top(m);
	return 0;
}

static int get(struct machine *m, size_t i)
{
	if (i >= m->n_memo || !m->memo[i])
		return bad(m, "a place in the memory that is empty");
	return push(m, m->memo[i]);
}

enum {
	MARK = '(',
	STOP = '.',
	BININT = 'J',
	BININT1 = 'K',
	BININT2 = 'M',
	NONE = 'N',
	BINUNICODE = 'X',
	APPEND = 'a',
	APPENDS = 'e',
	BINGET = 'h',
	LONG_BINGET = 'j',
	BINPUT = 'q',
	LONG_BINPUT = 'r',
	SETITEM = 's',
	TUPLE = 't',
	SETITEMS = 'u',
	BINFLOAT = 'G',
	BINSTRING = 'T',
	SHORT_BINSTRING = 'U',
	EMPTY_LIST = ']',
	EMPTY_TUPLE = ')',
	EMPTY_DICT = '}',
	PROTO = 0x80,
	TUPLE1 = 0x85,
	TUPLE2,
	TUPLE3,
	NEWTRUE,
	NEWFALSE,
	LONG1,
	SHORT_BINUNICODE = 0x8c,
	BINUNICODE8,
	MEMOIZE = 0x94,
	FRAME
};

/* Bytes of the argument of fixed size. */
static size_t argument(uint8_t code)
{
	switch (code) {
	case BININT1:
	case BINGET:
	case BINPUT:
	case SHORT_BINSTRING:
	case PROTO:
	case LONG1:
	case SHORT_BINUNICODE:
		return 1;
	case BININT2:
		return 2;
	case BININT:
	case BINUNICODE:
	case LONG_BINGET:
	case LONG_BINPUT:
	case BINSTRING:
		return 4;
	case BINFLOAT:
	case BINUNICODE8:
	case FRAME:
		return 8;
	default:
		return 0;
	}
}

/* Instructions with an argument; v: it, as a number. PL_ESTOP: another instruction. */
static int with_argument(struct machine *m, uint8_t code, uint64_t v)
{
	switch (code) {
	case PROTO:
		return v >= 2 && v <= 5 ? 0 : bad(m, "a protocol of pickles other than 2 to 5");
	case FRAME:
		return 0;
	case BININT:
		return push_int(m, (int32_t)(uint32_t)v, PL_TREE_INT);
	case BININT1:
	case BININT2:
		return push_int(m, (int64_t)v, PL_TREE_INT);
	case LONG1:
		return v <= (size_t)(m->end - m->p) ? push_long(m, (size_t)v)
						    : bad(m, "a number that is cut off");
	case BINUNICODE:
	case BINUNICODE8:
	case SHORT_BINUNICODE:
	case BINSTRING:
	case SHORT_BINSTRING:
		return push_text(m, (size_t)v);
	case BINPUT:
	case LONG_BINPUT:
		return put(m, (size_t)v);
	case BINGET:
	case LONG_BINGET:
		return get(m, (size_t)v);
	default:
		return PL_ESTOP;
	}
}

static int plain(struct machine *m, uint8_t code)
{
	size_t first = 0;

	switch (code) {
	case MARK:
		return pl_append(&m->stack, &m->n, &m->cap, &(struct pl_tree *){ NULL },
				 sizeof(struct pl_tree *), m->err);
	case NONE:
		return push_int(m, 0, PL_TREE_NULL);
	case NEWTRUE:
	case NEWFALSE:
		return push_int(m, code == NEWTRUE, PL_TREE_BOOL);
	case EMPTY_LIST:
	case EMPTY_TUPLE:
		return push(m, pl_tree_new(m->a, PL_TREE_LIST, m->err));
	case EMPTY_DICT:
		return push(m, pl_tree_new(m->a, PL_TREE_DICT, m->err));
	case APPENDS:
	case SETITEMS:
		PL_CHECK(mark(m, &first));
		return join(m, code == APPENDS ? PL_TREE_LIST : PL_TREE_DICT, first, first - 1);
	case APPEND:
		return m->n < 2 ? bad(m, "no item") : join(m, PL_TREE_LIST, m->n - 1, m->n - 1);
	case SETITEM:
		return m->n < 3 ? bad(m, "no item") : join(m, PL_TREE_DICT, m->n - 2, m->n - 2);
	case TUPLE:
		PL_CHECK(mark(m, &first));
		return tuple(m, first, first - 1);
	case TUPLE1:
	case TUPLE2:
	case TUPLE3:
		first = code - TUPLE1 + 1u;
		return m->n < first ? bad(m, "no item") : tuple(m, m->n - first, m->n - first);
	case MEMOIZE:
		return put(m, m->n_memo);
	default:
		return pl_fail(
			m->err, PL_EDATA,
			"byte %lld: instruction 0x%02x of a pickle, which does more than make "
			"plain values; it is refused, and nothing was carried out",
			(long long)(m->p - 1 - m->start), code);
	}
}

static int carry_out(struct machine *m)
{
	while (m->p < m->end) {
		uint8_t code = *m->p++;
		size_t n = argument(code);
		uint64_t v = 0;
		int rc;

		if (code == STOP)
			return m->n == 1 && top(m) ? 0
						   : bad(m, "the end, with no value or several");
		if (n > (size_t)(m->end - m->p))
			break;
		if (code == BINFLOAT) {
			PL_CHECK(push_real(m));
			continue;
		}
		for (size_t i = 0; i < n; i++)
			v |= (uint64_t)m->p[i] << 8 * i;
		m->p += n;
		rc = n ? with_argument(m, code, v) : PL_ESTOP;
		PL_CHECK(rc == PL_ESTOP ? plain(m, code) : rc);
	}
	return bad(m, "the pickle is cut off");
}

/* The values that a cut pickle had made. Items go into the container that stands before their mark.
 */
static struct pl_tree *rest(struct machine *m)
{
	m->err = &m->ignored;
	for (;;) {
		size_t i = m->n;

		while (i && m->stack[i - 1])
			i--;
		if (i < 2)
			break;
		if (m->stack[i - 2] && m->stack[i - 2]->type == PL_TREE_DICT)
			m->n -= (m->n - i) % 2;
		if (!m->stack[i - 2] || join(m, m->stack[i - 2]->type, i, i - 1) < 0)
			m->n = i - 1;
	}
	return m->n ? m->stack[0] : NULL;
}

int pl_tree_pickle(struct pl_arena *a, const uint8_t *p, size_t n, struct pl_tree **t,
		   struct pl_err *err)
{
	struct machine m = { .a = a, .start = p, .p = p, .end = p + n, .err = err };
	int rc = carry_out(&m);

	*t = rc == 0 ? top(&m) : rc == PL_EDATA && !m.refused ? rest(&m) : NULL;
	pl_free(m.stack);
	pl_free(m.memo);
	return rc;
}
