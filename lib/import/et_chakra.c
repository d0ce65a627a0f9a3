/*
 * Execution traces of Chakra as those of PyTorch, from which converters make them: the nodes of
 * communication as JSON text, which et.c reads. Chakra keeps the values of PyTorch as text in
 * single quotes, and cuts operators into pieces, "c10d::broadcast_(0)"; the first one counts.
 */
#include "import/internal.h"
#include "io/pb.h"
#include "io/write.h"
#include "trace/chakra.h"

#define MOST ((size_t)1 << 30) /* bytes of a message */

/* "[[1, 2, 0, 64, 4, 'cuda:0']]" as JSON; PyTorch's text has no quotes inside of quotes. */
static void put_values(struct pl_writer *w, const char *key, const struct pl_pb_field *io)
{
	struct pl_pb_in m = pl_pb_message(io->p, io->n);
	struct pl_pb_field f;

	while (pl_pb_next(&m, &f)) {
		if (f.number != PL_CK_IO_VALUES || !f.bytes || !f.n || *f.p != '[')
			continue;
		pl_write_format(w, ",\"%s\":{\"values\":", key);
		for (size_t i = 0; i < f.n; i++)
			pl_write_char(w, f.p[i] == '\'' ? '"' : (char)f.p[i]);
		pl_write_char(w, '}');
		return;
	}
}

static void put_attr(struct pl_writer *w, const struct pl_chakra_attr *a, size_t *n)
{
	if (!a->name.n)
		return;
	pl_write_text(w, (*n)++ ? ",{\"name\":" : ",\"attrs\":[{\"name\":");
	pl_write_json_str(w, (const char *)a->name.p, a->name.n);
	pl_write_text(w, ",\"value\":");
	if (a->text.bytes)
		pl_write_json_str(w, a->text.n ? (const char *)a->text.p : "", a->text.n);
	else
		pl_write_int(w, a->v);
	pl_write_char(w, '}');
}

/* A node, if it is of communication: the others are far more. */
static void put_node(struct pl_writer *w, struct pl_pb_in message, bool *any)
{
	struct pl_pb_in m = message;
	struct pl_pb_field f, name = { .n = 0 };
	size_t n = 0;
	uint8_t nclass;

	while (pl_pb_next(&m, &f))
		if (f.number == PL_CK_NAME && f.bytes)
			name = f;
	n = name.n;
	if (n > 3 && name.p[n - 1] == ')' && name.p[n - 3] == '(' && name.p[n - 2] >= '0' &&
	    name.p[n - 2] <= '9') {
		if (name.p[n - 2] != '0')
			return;
		n -= 3;
	}
	nclass = n ? pl_import_name_class((const char *)name.p, n) : PL_N_PLAIN;
	if (nclass != PL_N_RPC && nclass != PL_N_HOSTCOMM)
		return; /* et.c has no use for it */
	pl_write_text(w, *any ? ",{\"name\":" : "{\"name\":");
	*any = true;
	pl_write_json_str(w, n ? (const char *)name.p : "", n);
	n = 0;
	for (m = message; pl_pb_next(&m, &f);)
		if (f.number == PL_CK_INPUTS && f.bytes)
			put_values(w, "inputs", &f);
		else if (f.number == PL_CK_OUTPUTS && f.bytes)
			put_values(w, "outputs", &f);
	for (m = message; pl_pb_next(&m, &f);)
		if (f.number == PL_CK_ATTR && f.bytes) {
			struct pl_chakra_attr a = pl_trace_chakra_attr(&f);

			put_attr(w, &a, &n);
		}
	pl_write_text(w, n ? "]}" : "}");
}

/* The pid stands in the attributes of the first message, which earlier versions numbered 1. */
static void put_head(struct pl_writer *w, struct pl_pb_in m)
{
	struct pl_pb_field f;

	pl_write_text(w, "{\"schema\":\"1.1.0-chakra\"");
	while (pl_pb_next(&m, &f)) {
		struct pl_chakra_attr a = { .v = -1 };

		if (f.bytes && f.number <= PL_CK_META_ATTR)
			a = pl_trace_chakra_attr(&f);
		if (a.name.n == 3 && !memcmp(a.name.p, "pid", 3) && a.v >= 0)
			pl_write_format(w, ",\"pid\":%lld", (long long)a.v);
	}
	pl_write_text(w, ",\"nodes\":[");
}

/* The next message, behind its length. 1: there is one; 0: the input ends; *cut: it ends too early.
 */
static int next_message(struct pl_in *in, struct pl_pb_in *m, bool *cut, struct pl_err *err)
{
	const uint8_t *p, *q;
	uint64_t size;
	int64_t n = pl_in_peek(in, 10, &p, err);

	if (n <= 0)
		return (int)n;
	q = p;
	*cut = !pl_pb_take_varint(&q, p + n, &size) || size > MOST;
	if (*cut)
		return 0;
	pl_in_skip(in, (size_t)(q - p));
	n = pl_in_peek(in, (size_t)size, &p, err);
	if (n < 0)
		return (int)n;
	*cut = (uint64_t)n < size;
	if (!*cut)
		*m = pl_pb_message(p, (size_t)size);
	return !*cut;
}

int pl_import_et_of_chakra(struct pl_in *in, struct pl_buf *json, struct pl_err *err)
{
	struct pl_writer w = { 0 };
	bool first = true, any = false, cut = false;
	struct pl_pb_in m;
	int rc;

	for (; (rc = next_message(in, &m, &cut, err)) > 0; first = false) {
		size_t size = (size_t)(m.end - m.p);

		if (first)
			put_head(&w, m);
		else
			put_node(&w, m, &any);
		pl_in_skip(in, size);
	}
	pl_write_text(&w, cut ? "" : "]}");
	if (rc >= 0)
		rc = pl_write_check(&w, err);
	if (rc >= 0) {
		*json = w.b;
		memset(&w.b, 0, sizeof(w.b));
	}
	pl_write_fini(&w);
	return rc;
}
