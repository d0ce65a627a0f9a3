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

static int own_device(struct pl_samples *s, const struct pl_device *d, uint32_t *at,
		      struct pl_err *err)
{
	*at = pl_device_named(&s->devices, d->name);
	return *at != PL_NONE ? 0 : pl_device_copy(&s->devices, d, at, err);
}

int pl_samples_add(struct pl_samples *s, const struct pl_measure *m,
		   const struct pl_devices *devices, struct pl_err *err)
{
	struct pl_sample x = { .k = m->k, .known = m->known, .tile = m->tile, .ns = (float)m->ns };

	PL_CHECK(pl_intern_add(&s->op, m->op, strlen(m->op), &x.k.op, err));
	PL_CHECK(pl_intern_add(&s->model, m->model, strlen(m->model), &x.model, err));
	PL_CHECK(own_device(s, &devices->v[m->device], &x.device, err));
	return pl_append(&s->v, &s->n, &s->cap, &x, sizeof(x), err);
}
