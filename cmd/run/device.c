/*
 * On what a rank computes. A GPU's backend is a plugin that is opened only when a job asks for it,
 * in the process that uses it: a context of CUDA does not survive a fork.
 */
#include <string.h>

#include "program.h"
#include "tensor/plugin.h"

int device_open(const struct pl_job *j, const struct place *p, struct device *d, struct pl_err *err)
{
	struct pl_backend_opts o = { .local_rank = p->local_rank };
	bool cuda;
	int rc;

	PL_TRY(pl_job_device(j, &cuda, &o.device, err));
	if (!cuda)
		return 0;
	o.store = strcmp(j->precision, "bf16") ? PL_STORE_FP32 : PL_STORE_BF16;
	PL_TRY(pl_backend_cuda(&d->backend, err));
	PL_TRY(d->backend->open(&o, &d->ctx, err));
	d->store = o.store;
out:
	return rc;
}

void device_close(struct device *d)
{
	if (d->ctx)
		d->backend->close(d->ctx);
	d->ctx = NULL;
}
