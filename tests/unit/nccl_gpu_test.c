/*
 * What one GPU can show of worlds on GPUs, with the real device and the real NCCL: a communicator
 * of one rank, whose all-to-all is a group of messages to itself; two ranks on one GPU staged over
 * other transports; and two ranks on one GPU through NCCL, which it refuses (or carries out right,
 * where it is new enough and told to): either way all ranks end in time. Skipped, with the reason,
 * where there is no GPU, no plugin, or no NCCL.
 */
#include "device_fixture.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include "tensor/plugin.h"

#define ABSENT 77

/* In a process of its own: a context of CUDA does not survive a fork. */
static int probe(struct pl_world_opts *o, void *arg)
{
	struct pl_backend_opts d = { .threads = 1 };
	const struct pl_backend *b;
	struct pl_err e = { 0 };
	void *ctx;

	(void)o;
	if (pl_backend_cuda(&b, &e) < 0 || b->open(&d, &ctx, &e) < 0) {
		snprintf(arg, 1000, "%.900s", e.msg);
		return e.code == PL_EABSENT ? ABSENT : 1;
	}
	b->close(ctx);
	return 0;
}

static int on_gpu(struct pl_world_opts *o, void *transport)
{
	const struct pl_backend *b;
	struct pl_err e = { 0 };

	o->transport = transport;
	NEED(pl_backend_cuda(&b, &e) == 0);
	return everything(o, b);
}

/* Each fine, or each with the library's word for it. */
static int duplicate(struct pl_world_opts *o, void *arg)
{
	const struct pl_backend *b;
	struct pl_err e = { 0 };
	struct rank r;
	struct trip t;
	int rc;

	(void)arg;
	o->transport = "nccl";
	NEED(pl_backend_cuda(&b, &e) == 0);
	rc = open_rank(o, b, &r, &e);
	if (rc == 0) {
		NEED(prepare(&r, &t, PL_OP_ALLREDUCE, 1000, true, 1));
		load(&r, &t);
		rc = pl_comm_world_do(r.w, &t.a, &e);
	}
	if (rc == 0)
		rc = pl_comm_world_settle(r.w, &e);
	if (rc == 0) {
		r.b->copy(r.ctx, t.copy, t.dst, t.n_dst * sizeof(float));
		NEED(check(&r, &t));
		return close_rank(&r, &e) == 0 ? 0 : 1;
	}
	printf("# rank %d: %s\n", o->rank, e.msg);
	if (r.w)
		pl_comm_world_abort(r.w, e.msg);
	return strstr(e.msg, "NCCL") || strstr(e.msg, "nccl") ? 0 : 1;
}

int main(void)
{
	static const char *const transport[] = { "nccl", "tcp", "auto" };
	struct pl_world_opts o = { .timeout_ns = 20000000000 };
	char *why = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const char *bin = getenv("BIN");
	char path[1024];
	struct ranks r;
	void *lib;

	snprintf(path, sizeof(path), "%s/%s", bin ? bin : "bin", PL_PLUGIN_CUDA);
	setenv(PL_PLUGIN_ENV, path, 0);
	r = start_ranks(1, &o, probe, why);
	end_ranks(&r, 60);
	if (r.status[0] == ABSENT) {
		printf("1..0 # SKIP %s\n", why);
		return 0;
	}
	ok(r.status[0] == 0, "the device opens: %s", why);
	lib = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
	for (size_t i = 0; i < PL_LEN(transport); i++)
		for (int n = 1; n <= 2; n++) {
			bool nccl = i == 0;

			o.meet = meeting(false);
			if (nccl && !lib)
				skip("NCCL", "no libnccl.so.2");
			else if (nccl && n == 2)
				ok(run_ranks(n, &o, duplicate, NULL, 120),
				   "two ranks on one GPU through NCCL: right, or refused with its "
				   "word");
			else
				ok(run_ranks(n, &o, on_gpu, (void *)(uintptr_t)transport[i], 120),
				   "memory of a GPU: %s, %d rank%s", transport[i], n,
				   n > 1 ? "s" : "");
		}
	return done_testing();
}
