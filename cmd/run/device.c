/*
 * On what a rank computes. A GPU's backend is a plugin that is opened only when a job asks for it,
 * in the process that uses it: a context of CUDA does not survive a fork.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "program.h"
#include "tensor/plugin.h"

int device_open(const struct pl_job *j, const struct place *p, struct device *d, struct pl_err *err)
{
	/* not every launcher says the place on the host */
	struct pl_backend_opts o = { .local_rank = p->local_rank < 0 ? p->rank : p->local_rank };
	bool cuda;
	int rc;

	if (!pl_job_device(j->device, &cuda, &o.device) || !cuda)
		return 0;
	o.store = strcmp(j->precision, "bf16") ? PL_STORE_FP32 : PL_STORE_BF16;
	PL_TRY(pl_backend_cuda(&d->backend, err));
	PL_TRY(d->backend->open(&o, &d->ctx, err));
	d->store = o.store;
out:
	return rc;
}

static char last_words[800];

static void give_up(int sig)
{
	(void)sig;
	if (write(STDERR_FILENO, last_words, strlen(last_words)) < 0)
		_exit(4);
	_exit(4);
}

/* Where the device never comes to an end (a kernel of a library that waits for a rank, and cannot
 * be stopped), who waits for it does not, either. An alarm ends what goes on for that long. */
void device_lost(void *device, const char *why)
{
	const struct device *d = device;

	if (!d->ctx)
		return;
	snprintf(last_words, sizeof(last_words), "run: rank %d: %.650s; its device hangs\n",
		 d->rank, why);
	signal(SIGALRM, give_up);
	alarm(d->grace_s);
}

void device_close(struct device *d)
{
	if (d->ctx)
		d->backend->close(d->ctx);
	d->ctx = NULL;
}
