/*
 * The words of XLA's profiler: planes, lines, events, statistics, collectives. The only table of
 * them; both readers use it. The names are those of JAX 0.4 to 0.10 and TensorFlow 2.
 */
#include "import/xla.h"

uint8_t pl_import_xla_plane(const char *name, int32_t *device)
{
	static const char *const kinds[] = { "/device:GPU:", "/device:TPU:", "/device:CUSTOM:" };

	*device = -1;
	for (size_t i = 0; i < PL_LEN(kinds); i++) {
		const char *s = strstr(name, kinds[i]);
		int64_t v = -1;

		if (!s)
			continue;
		s += strlen(kinds[i]);
		v = *s >= '0' && *s <= '9' ? pl_take_digits(&s) : -1;
		if (v < 0 || v >= PL_XLA_NUMBERS)
			return PL_XP_OTHER;
		*device = (int32_t)v;
		return strstr(s, "SparseCore") ? PL_XP_OTHER : PL_XP_DEVICE;
	}
	return strstr(name, "/host:CPU") ? PL_XP_HOST : PL_XP_OTHER;
}

uint8_t pl_import_xla_line(const char *name, int64_t *stream)
{
	*stream = -1;
	if (!strncmp(name, "Stream #", 8)) {
		name += 8;
		*stream = *name >= '0' && *name <= '9' ? pl_take_digits(&name) : -1;
		return *stream < 0 ? PL_XL_RANGES : PL_XL_STREAM;
	}
	if (!strcmp(name, "XLA Ops"))
		return PL_XL_OPS;
	if (!strcmp(name, "Async XLA Ops"))
		return PL_XL_ASYNC;
	return strcmp(name, "Steps") ? PL_XL_RANGES : PL_XL_STEPS;
}

uint8_t pl_import_xla_class(const char *name)
{
	static const struct {
		uint8_t class;
		const char *names;
	} known[] = {
		{ PL_XC_NOTE, "ThreadpoolListener::*|end: *" },
		/* before the functions of the interpreter: some of them wait */
		{ PL_XC_SYNC, "*[Bb]lock_until_ready*|*BlockHostUntilReady*|*BlockUntilReady*|"
			      "*AwaitReady*|*Buffer::Await|*TransferFromDevice*|*ToLiteralSync*|"
			      "*PjrtAsyncWait*|np.asarray(jax.Array)|*SynchronizeAllActivity*|"
			      "*BlockHostUntilDone*" },
		{ PL_XC_PYTHON_IDLE, "$time *|$select *|$<built-in method sleep*" },
		{ PL_XC_PYTHON, "$*" },
		{ PL_XC_CALL, "KernelAndDeviceFunc::Run|EagerLocalExecute: __*" },
		{ PL_XC_DATA, "load|*[Dd]ata[Ll]oad*|*data_load*|load_data*|load_batch*|get_batch*|"
			      "next_batch*|*input_pipeline*|Iterator*|*IteratorGetNext*|"
			      "*[Ii]nfeed*" },
		{ PL_XC_EXECUTOR, "ThunkExecutor::Execute*|InvokeRendezvous" },
		{ PL_XC_RENDEZVOUS, "Rendezvous" },
		{ PL_XC_JOIN, "Wait for LaunchOnDevice completion*" },
		{ PL_XC_WAIT, "Wait for *|Wait: *|*::Wait|*WaitForNotification*" },
		{ PL_XC_LAUNCH, "\\[[0-9]*\\] *::Execute*|*::ExecuteHelper*|*::EnqueueExecution*|"
				"*LocalExecutable::RunAsync*|tpu::System::Execute|"
				"DoEnqueueProgram" },
		{ PL_XC_DISPATCH, "*LoadedExecutable::Execute|*LoadedExecutable::Execute (*" },
	};

	for (size_t i = 0; i < PL_LEN(known); i++)
		if (pl_glob(known[i].names, name))
			return known[i].class;
	return PL_XC_HOST;
}

uint8_t pl_import_xla_stat(const char *key, size_t n)
{
	static const struct {
		const char *key;
		uint8_t stat;
	} known[] = {
		{ "step_num", PL_XS_STEP },
		{ "hlo_op", PL_XS_OP },
		{ "hlo_module", PL_XS_MODULE },
		{ "program_id", PL_XS_PROGRAM },
		{ "run_id", PL_XS_RUN },
		{ "device_ordinal", PL_XS_DEVICE },
		{ "global_device_id", PL_XS_GLOBAL },
		{ "correlation_id", PL_XS_CORR },
		{ "name", PL_XS_NAME },
		{ "flops", PL_XS_FLOPS },
		{ "bytes_accessed", PL_XS_MOVED },
		{ "bytes_transferred", PL_XS_BYTES },
		{ "payload_size_bytes", PL_XS_BYTES },
		{ "memcpy_details", PL_XS_DETAILS },
		{ "memset_details", PL_XS_DETAILS },
	};

	for (size_t i = 0; i < PL_LEN(known); i++)
		if (strlen(known[i].key) == n && !strncasecmp(known[i].key, key, n))
			return known[i].stat;
	return PL_XS_OTHER;
}

static bool starts(const char *s, size_t n, const char *with)
{
	return n >= strlen(with) && !memcmp(s, with, strlen(with));
}

const char *pl_import_xla_coll(const char *op, size_t n)
{
	/* what JAX calls them; and XLA, whose words begin a name */
	static const struct {
		const char *word;
		uint8_t coll;
	} known[] = {
		{ "psum_scatter", PL_COLL_REDUCE_SCATTER },
		{ "psum", PL_COLL_ALLREDUCE },
		{ "pmean", PL_COLL_ALLREDUCE },
		{ "pmax", PL_COLL_ALLREDUCE },
		{ "pmin", PL_COLL_ALLREDUCE },
		{ "ppermute", PL_COLL_SENDRECV },
		{ "pbroadcast", PL_COLL_BROADCAST },
		{ "all-reduce", PL_COLL_ALLREDUCE },
		{ "reduce-scatter", PL_COLL_REDUCE_SCATTER },
		{ "reduce_scatter", PL_COLL_REDUCE_SCATTER },
		{ "all-gather", PL_COLL_ALLGATHER },
		{ "all_gather", PL_COLL_ALLGATHER },
		{ "all-to-all", PL_COLL_ALLTOALL },
		{ "all_to_all", PL_COLL_ALLTOALL },
		{ "ragged-all-to-all", PL_COLL_ALLTOALL },
		{ "collective-permute", PL_COLL_SENDRECV },
		{ "collective-broadcast", PL_COLL_BROADCAST },
		{ "send", PL_COLL_SEND },
		{ "recv", PL_COLL_RECV },
	};

	if (n && *op == '%')
		op++, n--;
	for (size_t i = 0; i < PL_LEN(known); i++) {
		size_t k = strlen(known[i].word);

		if (!starts(op, n, known[i].word))
			continue;
		/* not "all-reduce_fusion", not "sender", not the send that "-done" ends */
		if (n == k || op[k] == '.' || starts(op + k, n - k, "-start") ||
		    starts(op + k, n - k, "_invariant"))
			return pl_trace_coll_name(known[i].coll);
	}
	return NULL;
}

bool pl_import_xla_contains(const char *op)
{
	return pl_glob("while|while.*|call|call.[0-9]*|conditional|conditional.*|%while*|%call*|"
		       "%conditional*|command_buffer*",
		       op);
}
