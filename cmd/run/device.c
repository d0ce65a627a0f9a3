/*
 * On what a rank computes. A GPU's backend is a plugin that is opened only when a job asks for it,
 * in the process that uses it: a context of CUDA does not survive a fork.
 */
#include <signal.h>
#include <unistd.h>

#include "program.h"
#include "tensor/plugin.h"

/* The number of a rank on its host. Servers are the first processes, and do not count where all are
 * on one host. On several, a launcher says the number, but not how many servers are here. A server
 * has the number that it is given. */
static int number_on_host(const struct pl_launch *p, int servers)
{
	/* not every launcher says the place on the host */
	int number = p->local_rank < 0 ? p->rank : p->local_rank;
	bool one_host = number == p->rank && (p->local_rank < 0 || !p->several_hosts);

	return one_host && number >= servers ? number - servers : number;
}

int device_open(const struct pl_job *j, const struct pl_launch *p, int servers, struct device *d,
		struct pl_err *err)
{
	struct pl_backend_opts o = { .local_rank = number_on_host(p, servers) };
	bool cuda;

	if (!pl_job_device(j->device, &cuda, &o.device) || !cuda)
		return 0;
	o.store = strcmp(j->precision, "bf16") ? PL_STORE_FP32 : PL_STORE_BF16;
	PL_CHECK(pl_backend_cuda(&d->backend, err));
	PL_CHECK(d->backend->open(&o, &d->ctx, err));
	d->store = o.store;
	return 0;
}

static char lost_message[800];

static void exit_on_alarm(int sig)
{
	(void)sig;
	if (write(STDERR_FILENO, lost_message, strlen(lost_message)) < 0)
		_exit(4);
	_exit(4);
}

/* A kernel of a communication library may wait for a lost rank for ever, and cannot be stopped. The
 * host that waits for this kernel would not end, either. So an alarm ends the process. */
void device_lost(void *device, const char *why)
{
	const struct device *d = device;

	if (!d->ctx)
		return;
	snprintf(lost_message, sizeof(lost_message), "run: rank %d: %.650s; its device hangs\n",
		 d->rank, why);
	signal(SIGALRM, exit_on_alarm);
	alarm(d->grace_s);
}

void device_close(struct device *d)
{
	if (d->ctx)
		d->backend->close(d->ctx);
	d->ctx = NULL;
}
