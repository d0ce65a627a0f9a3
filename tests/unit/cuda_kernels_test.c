/*
 * The kernels for CUDA on the emulated device: the battery of all backends with activations in
 * float32 and in bfloat16, each case in two orders of blocks and threads. Attention has a test of
 * its own, and products are the library's.
 */
#include "kernels_table.h"
#include "tensor_battery.h"

static void *host_alloc(size_t size)
{
	return malloc(size);
}

static void run_kernels(const char *name, bool half)
{
	static struct pl_backend table;
	struct pl_backend_opts o = { .threads = 1 };
	struct pl_err err = { 0 };

	seed = 20;
	if (!ok(!plain->open(&o, &slow, &err), "%s: opened", name))
		return;
	table = emu_table();
	battery.table = &table;
	battery.one = emu_table_open(half, 1);
	battery.many = emu_table_open(half, 1000000);
	battery.again = "the same in any order of blocks and threads";
	battery.half = half;
	battery.rounds = emu_table_watched() ? 8 : CASES(16); /* as it takes its time */
	battery.half_rounds = CASES(4);
	battery.alloc = host_alloc;
	battery.free = free;
	run_battery(name, "gemm, dense, attn");
	emu_table_close(battery.one);
	emu_table_close(battery.many);
	plain->close(slow);
}

int main(void)
{
	run_kernels("float32", false);
	run_kernels("bfloat16", true);
	return done_testing();
}
