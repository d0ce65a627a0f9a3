/* Measured operations in memory. */
#include "kernel/samples.h"

void pl_samples_fini(struct pl_samples *s)
{
	pl_intern_fini(&s->op);
	pl_intern_fini(&s->model);
	pl_device_fini(&s->devices);
	pl_free(s->v);
	memset(s, 0, sizeof(*s));
}

/* *id, and below *at, are those of the row before, because most rows have the same names. */
static int own_name(struct pl_intern *t, const char *name, pl_id *id, struct pl_err *err)
{
	size_t len = strlen(name);

	if (*id < t->n && t->len[*id] == len && !memcmp(t->str[*id], name, len))
		return 0;
	return pl_intern_add(t, name, len, id, err);
}

static int own_device(struct pl_samples *s, const struct pl_device *d, uint32_t *at,
		      struct pl_err *err)
{
	if (*at < s->devices.n && !strcmp(s->devices.v[*at].name, d->name))
		return 0;
	*at = pl_device_named(&s->devices, d->name);
	return *at != PL_NONE ? 0 : pl_device_copy(&s->devices, d, at, err);
}

int pl_samples_add(struct pl_samples *s, const struct pl_measure *m,
		   const struct pl_devices *devices, struct pl_err *err)
{
	const struct pl_sample none = { .k.op = PL_NONE, .model = PL_NONE, .device = PL_NONE };
	const struct pl_sample *before = s->n ? &s->v[s->n - 1] : &none;
	struct pl_sample x = { .k = m->k,
			       .known = m->known,
			       .tile = m->tile,
			       .ns = (float)m->ns,
			       .model = before->model,
			       .device = before->device };

	x.k.op = before->k.op;
	PL_CHECK(own_name(&s->op, m->op, &x.k.op, err));
	PL_CHECK(own_name(&s->model, m->model, &x.model, err));
	PL_CHECK(own_device(s, &devices->v[m->device], &x.device, err));
	return pl_append(&s->v, &s->n, &s->cap, &x, sizeof(x), err);
}
