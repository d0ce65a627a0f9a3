/*
 * Cost models as files, paceline-costmodel(5): blocks HEAD (learner, schema, rates, intervals of
 * all parts), PROV, DEVS, OPER (names of operations), FEWS (offsets of operations without a part),
 * PART (each a part), TRND (what an adapted model was before), TOTL.
 */
#include "io/blocks.h"
#include "io/record.h"
#include "kernel/model_internal.h"

#define B_HEAD	      PL_FOURCC('H', 'E', 'A', 'D')
#define B_DEVS	      PL_FOURCC('D', 'E', 'V', 'S')
#define B_OPER	      PL_FOURCC('O', 'P', 'E', 'R')
#define B_FEWS	      PL_FOURCC('F', 'E', 'W', 'S')
#define B_PART	      PL_FOURCC('P', 'A', 'R', 'T')
#define B_TRND	      PL_FOURCC('T', 'R', 'N', 'D')
#define B_TOTL	      PL_FOURCC('T', 'O', 'T', 'L')
#define BLOCK_VERSION 5
#define STRINGS_MAX   (1u << 20)
#define DEVICES_MAX   4096

/* ---- pieces ---------------------------------------------------------------------------------- */

static void put_text(struct pl_buf *b, const char *s)
{
	pl_io_put_str(b, s, strlen(s));
}

static char *get_text(struct pl_cur *c, struct pl_arena *a)
{
	size_t n;
	const char *s = pl_io_get_str(c, &n);

	c->bad |= !s || memchr(s, 0, n);
	return pl_arena_dup(a, c->bad ? "" : s, c->bad ? 0 : n);
}

/* The numbers of a data sheet, in the order of the file. */
#define SHEET(X)                                                                                   \
	X(memory_bytes)                                                                            \
	X(bandwidth)                                                                               \
	X(sms)                                                                                     \
	X(lanes)                                                                                   \
	X(clock_ghz)                                                                               \
	X(flops)                                                                                   \
	X(half_flops)                                                                              \
	X(l2_bytes) X(watts) X(capability) X(cpu) X(host_ns) X(host_low_ns) X(host_high_ns)

static void put_device(struct pl_buf *b, const struct pl_device *d)
{
	put_text(b, d->name);
	put_text(b, d->title);
#define PUT(m) pl_io_put_f64(b, d->m);
	SHEET(PUT)
#undef PUT
}

static int get_device(struct pl_cur *c, struct pl_devices *to, struct pl_err *err)
{
	struct pl_arena a = { 0 };
	struct pl_device d = { .name = get_text(c, &a), .title = get_text(c, &a) };
	uint32_t at;
	int rc;

#define GET(m) d.m = pl_io_get_f64(c);
	SHEET(GET)
#undef GET
	if (!d.name || !d.title)
		rc = pl_fail(err, PL_ENOMEM, "out of memory");
	else if (c->bad)
		rc = pl_record_get_short(err);
	else if (!(d.bandwidth > 0 && d.sms > 0 && d.clock_ghz > 0 && d.flops > 0) ||
		 d.half_flops <= 0 || d.l2_bytes <= 0 || d.watts <= 0 ||
		 (!isnan(d.host_ns) &&
		  !(d.host_low_ns > 0 && d.host_low_ns <= d.host_ns &&
		    d.host_ns <= d.host_high_ns && d.host_high_ns < PL_DEVICE_HOST_MOST)))
		rc = pl_fail(err, PL_EDATA, "the data sheet of %s has a number that is not above 0",
			     d.name);
	else
		rc = pl_device_copy(to, &d, &at, err);
	pl_arena_fini(&a);
	return rc;
}

static void put_quantiles(struct pl_buf *b, const struct quantiles *q)
{
	pl_io_put_varint(b, q->n);
	pl_io_put_f64(b, q->low);
	pl_io_put_f64(b, q->high);
}

static void get_quantiles(struct pl_cur *c, struct quantiles *q)
{
	q->n = (uint32_t)pl_io_get_varint(c);
	q->low = pl_io_get_f64(c);
	q->high = pl_io_get_f64(c);
	c->bad |= !isfinite(q->low) || !isfinite(q->high) || q->low > q->high;
}

static void put_spread(struct pl_buf *b, const struct spread *s)
{
	for (int i = 0; i < BINS; i++)
		put_quantiles(b, &s->bin[i]);
	put_quantiles(b, &s->all);
}

static void get_spread(struct pl_cur *c, struct spread *s)
{
	for (int i = 0; i < BINS; i++)
		get_quantiles(c, &s->bin[i]);
	get_quantiles(c, &s->all);
}

static void put_growth(struct pl_buf *b, const struct growth *g)
{
	for (int above = 0; above < 2; above++) {
		pl_io_put_varint(b, g[above].n);
		pl_io_put_f64(b, g[above].low);
		pl_io_put_f64(b, g[above].high);
		pl_io_put_f64(b, g[above].least);
	}
}

static void get_growth(struct pl_cur *c, struct growth *g)
{
	for (int above = 0; above < 2; above++) {
		uint64_t n = pl_io_get_varint(c);

		g[above].n = (uint32_t)n;
		g[above].low = pl_io_get_f64(c);
		g[above].high = pl_io_get_f64(c);
		g[above].least = pl_io_get_f64(c);
		c->bad |= n > UINT32_MAX || !(g[above].low >= 0 && g[above].low < 1e6) ||
			  !(g[above].high >= 0 && g[above].high < 1e6) ||
			  !(g[above].least >= 0 && g[above].least < 1e3);
	}
}

static void put_range(struct pl_buf *b, struct range r)
{
	pl_io_put_f64(b, r.low);
	pl_io_put_f64(b, r.high);
}

static struct range get_range(struct pl_cur *c)
{
	double low = pl_io_get_f64(c), high = pl_io_get_f64(c);

	c->bad |= isnan(low) || isnan(high);
	return (struct range){ low, high };
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void put_part(struct pl_buf *b, const struct pl_kernel_model *m, const struct part *p)
{
	pl_io_put_varint(b, p->op == PL_NONE ? 0 : (uint64_t)p->op + 1);
	pl_io_put_u8(b, p->family);
	pl_io_put_u8(b, p->type);
	pl_io_put_varint(b, p->n);
	pl_io_put_f64(b, p->floor_ns);
	pl_io_put_f64(b, p->ns_per_byte);
	pl_io_put_f64(b, p->clocks);
	for (size_t i = 0; i < m->devices.n; i++) {
		pl_io_put_f64(b, p->device_floor[i]);
		pl_io_put_f64(b, p->offset[i]);
	}
	for (int i = 0; i < PL_KERNEL_DIMS; i++)
		put_range(b, p->dim[i]);
	put_range(b, p->bound);
	put_range(b, p->work);
	put_range(b, p->bandwidth);
	put_range(b, p->rate);
	put_spread(b, &p->known);
	put_spread(b, &p->other);
	put_growth(b, p->growth);
	pl_tiles_put(&p->tiles, b);
	m->learner->put(p->learned, b);
}

static int get_part(struct pl_cur *c, struct pl_kernel_model *m, struct part *p, struct pl_err *err)
{
	uint64_t op = pl_io_get_varint(c);
	bool is_new;

	p->op = op ? (uint32_t)(op - 1) : PL_NONE;
	p->family = pl_io_get_u8(c);
	p->type = pl_io_get_u8(c);
	p->n = (uint32_t)pl_io_get_varint(c);
	p->floor_ns = pl_io_get_f64(c);
	p->ns_per_byte = pl_io_get_f64(c);
	p->clocks = pl_io_get_f64(c);
	if (op > m->op.n || p->family >= PL_KERNEL_FAMILIES_ || p->type >= PL_KERNEL_TYPES_)
		return pl_fail(err, PL_EDATA, "a part is of an operation that is not known");
	PL_CHECK(pl_kernel_add_key(&m->part_key, p->op, p->family, p->type, &is_new, err));
	if (!is_new)
		return pl_fail(err, PL_EDATA, "two parts are of the same operation");
	if (!(p->floor_ns > 0 && p->floor_ns < 1e18 && p->ns_per_byte >= 0 &&
	      p->ns_per_byte < 1e18 && p->clocks >= 0 && p->clocks < 1e6))
		return pl_fail(err, PL_EDATA, "a floor or rate of a part is not above 0");
	for (size_t i = 0; i < m->devices.n; i++) {
		p->device_floor[i] = pl_io_get_f64(c);
		p->offset[i] = pl_io_get_f64(c);
		c->bad |= p->device_floor[i] <= 0 || isinf(p->device_floor[i]) ||
			  !isfinite(p->offset[i]);
	}
	for (int i = 0; i < PL_KERNEL_DIMS; i++)
		p->dim[i] = get_range(c);
	p->bound = get_range(c);
	p->work = get_range(c);
	p->bandwidth = get_range(c);
	p->rate = get_range(c);
	get_spread(c, &p->known);
	get_spread(c, &p->other);
	get_growth(c, p->growth);
	if (c->bad)
		return pl_record_get_short(err);
	PL_CHECK(pl_tiles_get(c, &p->tiles, err));
	PL_CHECK(m->learner->get(c, pl_kernel_n_features(p->family), &p->learned, err));
	return c->bad ? pl_record_get_short(err) : 0;
}

/* ---- offsets ---------------------------------------------------------------------------------
 */

#define OFFSET_MAX 100 /* of a logarithm */

static void put_few(struct pl_buf *b, const struct pl_kernel_model *m, size_t i)
{
	struct pl_kernel_key key;

	memcpy(&key, m->few_key.str[i], sizeof(key));
	pl_io_put_varint(b, key.op);
	pl_io_put_u8(b, (uint8_t)key.family);
	pl_io_put_u8(b, (uint8_t)key.type);
	pl_io_put_f64(b, m->few[i]);
}

static int get_one_few(struct pl_cur *c, struct pl_kernel_model *m, struct pl_err *err)
{
	uint64_t op = pl_io_get_varint(c);
	unsigned family = pl_io_get_u8(c), type = pl_io_get_u8(c);
	double by = pl_io_get_f64(c);
	bool is_new;

	if (c->bad)
		return pl_record_get_short(err);
	if (op >= m->op.n || family >= PL_KERNEL_FAMILIES_ || type >= PL_KERNEL_TYPES_ ||
	    !(fabs(by) < OFFSET_MAX))
		return pl_fail(err, PL_EDATA, "the offset of an operation is not valid");
	PL_CHECK(pl_kernel_add_key(&m->few_key, (uint32_t)op, family, type, &is_new, err));
	if (!is_new)
		return pl_fail(err, PL_EDATA, "two offsets are of the same operation");
	return pl_append(&m->few, &m->n_few, &m->cap_few, &by, sizeof(by), err);
}

/* ---- the training of an adapted model -------------------------------------------------------- */

static int put_trained(const struct pl_kernel_model *m, struct pl_container_writer *w,
		       struct pl_buf *b, struct pl_err *err)
{
	if (!m->trained)
		return 0;
	for (size_t k = 0; k < m->n_parts * m->devices.n; k++) {
		pl_io_put_f64(b, m->trained[k].floor);
		pl_io_put_f64(b, m->trained[k].offset);
	}
	return pl_container_writer_put(w, B_TRND, BLOCK_VERSION, (uint32_t)m->n_parts, b, err);
}

/* ---- writing --------------------------------------------------------------------------------- */

struct written {
	const struct pl_kernel_model *m;
	const struct pl_schema *schema;
	const char *provenance;
};

static int put_blocks(const void *arg, struct pl_container_writer *w, struct pl_err *err)
{
	const struct written *a = arg;
	const struct pl_kernel_model *m = a->m;
	struct pl_buf b = { 0 };
	int rc;

	put_text(&b, m->learner->name);
	put_text(&b, pl_schema_name(a->schema));
	put_text(&b, pl_schema_text(a->schema));
	pl_io_put_f64(&b, m->rates.flops_per_watt);
	for (int i = 0; i < PL_GENERATIONS; i++)
		pl_io_put_f64(&b, m->rates.least[i]);
	pl_io_put_u8(&b, m->intervals);
	put_spread(&b, &m->known);
	put_spread(&b, &m->other);
	put_growth(&b, m->growth);
	PL_TRY(pl_container_writer_put(w, B_HEAD, BLOCK_VERSION, 1, &b, err));
	PL_TRY(pl_container_writer_put_provenance(w, BLOCK_VERSION, NULL, 0, a->provenance, err));
	for (size_t i = 0; i < m->devices.n; i++) {
		put_device(&b, &m->devices.v[i]);
		put_quantiles(&b, m->adapted ? &m->adapted[i] : &(struct quantiles){ 0, 0, 0 });
	}
	PL_TRY(pl_container_writer_put(w, B_DEVS, BLOCK_VERSION, (uint32_t)m->devices.n, &b, err));
	PL_TRY(pl_container_writer_put_strings(w, B_OPER, BLOCK_VERSION, &m->op, 0, STRINGS_MAX,
					       err));
	for (size_t i = 0; i < m->n_few; i++)
		put_few(&b, m, i);
	if (m->n_few)
		PL_TRY(pl_container_writer_put(w, B_FEWS, BLOCK_VERSION, (uint32_t)m->n_few, &b,
					       err));
	for (size_t i = 0; i < m->n_parts; i++) {
		put_part(&b, m, &m->part[i]);
		PL_TRY(pl_container_writer_put(w, B_PART, BLOCK_VERSION, 1, &b, err));
	}
	PL_TRY(put_trained(m, w, &b, err));
	pl_io_put_varint(&b, m->n_parts);
	rc = pl_container_writer_put(w, B_TOTL, BLOCK_VERSION, 1, &b, err);
out:
	pl_buf_fini(&b);
	return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reader {
	struct pl_kernel_model *m;
	struct pl_schema **schema;
	bool devices; /* seen */
};

static int get_head(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	struct reader *r = arg;
	struct pl_kernel_model *m = r->m;
	struct pl_arena a = { 0 };
	const char *learner = get_text(c, &a), *name = get_text(c, &a), *text = get_text(c, &a);
	bool sound;
	int rc;

	(void)b;
	m->rates.flops_per_watt = pl_io_get_f64(c);
	sound = m->rates.flops_per_watt > 0;
	for (int i = 0; i < PL_GENERATIONS; i++) {
		m->rates.least[i] = pl_io_get_f64(c);
		sound &= m->rates.least[i] >= 0 && isfinite(m->rates.least[i]);
	}
	m->intervals = pl_io_get_u8(c) != 0;
	get_spread(c, &m->known);
	get_spread(c, &m->other);
	get_growth(c, m->growth);
	if (!learner || !name || !text)
		rc = pl_fail(err, PL_ENOMEM, "out of memory");
	else if (c->bad || !sound)
		rc = pl_record_get_short(err);
	else if (!(m->learner = pl_kernel_learner(learner)))
		rc = pl_fail(err, PL_EDATA, "its learner \"%.40s\" is not known", learner);
	else
		rc = pl_schema_parse(text, name, r->schema, err);
	pl_arena_fini(&a);
	return rc;
}

static int get_devices(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	struct reader *r = arg;
	struct pl_kernel_model *m = r->m;

	if (r->devices || m->trained || b->count > DEVICES_MAX || b->count > b->n)
		return pl_fail(err, PL_EDATA, "the list of devices is not valid");
	r->devices = true;
	PL_CHECK(pl_alloc(&m->adapted, b->count + 1, sizeof(*m->adapted), err));
	for (uint32_t i = 0; i < b->count; i++) {
		PL_CHECK(get_device(c, &m->devices, err));
		get_quantiles(c, &m->adapted[i]);
	}
	return c->bad ? pl_record_get_short(err) : 0;
}

static int get_ops(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	struct pl_kernel_model *m = ((struct reader *)arg)->m;

	if (m->n_few || m->n_parts)
		return pl_fail(err, PL_EDATA,
			       "names of operations behind what is known of operations");
	return pl_record_get_strings(c, b->count, &m->op, err);
}

static int get_few(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	for (uint32_t i = 0; i < b->count; i++)
		PL_CHECK(get_one_few(c, ((struct reader *)arg)->m, err));
	return 0;
}

static int add_part(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	struct reader *r = arg;
	struct pl_kernel_model *m = r->m;
	struct part none = { 0 }, *p;

	(void)b;
	if (!r->devices || m->trained)
		return pl_fail(err, PL_EDATA, "a part before the devices, or behind the last one");
	PL_CHECK(pl_append(&m->part, &m->n_parts, &m->cap_parts, &none, sizeof(none), err));
	p = &m->part[m->n_parts - 1];
	PL_CHECK(pl_alloc(&p->device_floor, m->devices.n + 1, sizeof(*p->device_floor), err));
	PL_CHECK(pl_alloc(&p->offset, m->devices.n + 1, sizeof(*p->offset), err));
	return get_part(c, m, p, err);
}

static int get_trained(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	struct pl_kernel_model *m = ((struct reader *)arg)->m;
	size_t n = m->n_parts * m->devices.n;

	if (m->trained || b->count != m->n_parts)
		return pl_fail(err, PL_EDATA,
			       "what the model was before it was adapted is not valid");
	PL_CHECK(pl_alloc(&m->trained, n + 1, sizeof(*m->trained), err));
	for (size_t k = 0; k < n && !c->bad; k++) {
		struct level *t = &m->trained[k];

		t->floor = pl_io_get_f64(c);
		t->offset = pl_io_get_f64(c);
		c->bad |= t->floor <= 0 || isinf(t->floor) || !isfinite(t->offset);
	}
	return c->bad ? pl_record_get_short(err) : pl_kernel_find_trained(m, err);
}

static int get_totals(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	uint64_t parts = pl_io_get_varint(c);
	const struct reader *r = arg;

	(void)b;
	return c->bad || parts != r->m->n_parts
		       ? pl_fail(err, PL_EDATA, "the totals say %llu parts, there are %zu",
				 (unsigned long long)parts, r->m->n_parts)
		       : 0;
}

static const struct pl_blocks_part parts[] = { { B_HEAD, get_head },  { B_DEVS, get_devices },
					       { B_OPER, get_ops },   { B_FEWS, get_few },
					       { B_PART, add_part },  { B_TRND, get_trained },
					       { B_TOTL, get_totals } };
static const struct pl_blocks_form form = { .what = "model",
					    .remedy = "train it again",
					    .kind = PL_KIND_MODEL,
					    .major = PL_KERNEL_MODEL_MAJOR,
					    .version = BLOCK_VERSION,
					    .part = parts,
					    .n_parts = PL_LEN(parts) };

bool pl_kernel_model_is(struct pl_in *in)
{
	return pl_blocks_is(in, &form);
}

int pl_kernel_model_read(struct pl_in *in, struct pl_kernel_model **m, struct pl_schema **schema,
			 struct pl_err *err)
{
	struct reader r = { .schema = schema };
	const uint8_t *first;
	int64_t n = pl_in_peek(in, 18, &first, err);
	int rc;

	*m = NULL;
	*schema = NULL;
	if (n < 0)
		return (int)n;
	if (!pl_container_probe(first, (size_t)n))
		return pl_fail(err, PL_EDATA, "%s: not a cost model (predict --train makes one)",
			       pl_in_name(in));
	PL_CHECK(pl_alloc(&r.m, 1, sizeof(*r.m), err));
	rc = pl_blocks_read(in, &form, &r, err);
	if (rc < 0) {
		pl_kernel_model_free(r.m);
		pl_schema_free(*schema);
		*schema = NULL;
	} else {
		*m = r.m;
	}
	return rc;
}

/* ---- as a file ------------------------------------------------------------------------------- */

int pl_kernel_model_write(const struct pl_kernel_model *m, const struct pl_schema *schema,
			  const char *provenance, struct pl_out *out, int level, struct pl_err *err)
{
	const struct written a = { m, schema, provenance };

	return pl_blocks_write(out, &form, level, put_blocks, &a, err);
}
