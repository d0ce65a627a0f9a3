/* The words of the numbers of paceline-trace(5): kinds, roles, types of tracks. */
#include "core/words.h"
#include "trace/internal.h"

#define WORD(name, word) word,
static const char *const kinds[] = { PL_TRACE_KINDS(WORD) };
static const char *const tracks[] = { PL_TRACE_TRACK_TYPES(WORD) };
static const char *const roles[] = { PL_TRACE_ROLES(WORD) };

/* Types of values; the bit of PL_V_COUNT_ means any type. */
#define INT  (1u << PL_V_INT | 1u << PL_V_COUNT_)
#define STR  (1u << PL_V_STR | 1u << PL_V_COUNT_)
#define TEXT (STR | 1u << PL_V_JSON)

/* The usual key of each role that has one. */
#define USUAL_KEYS(KEY)                                                                            \
	KEY("correlation", PL_R_CORR, INT)                                                         \
	KEY("External id", PL_R_EXTERNAL, INT)                                                     \
	KEY("bytes", PL_R_BYTES, INT)                                                              \
	KEY("Process Group Name", PL_R_GROUP, STR)                                                 \
	KEY("Seq", PL_R_SEQ, INT)                                                                  \
	KEY("peer", PL_R_PEER, INT)                                                                \
	KEY("chunk", PL_R_CHUNK, INT)                                                              \
	KEY("channel", PL_R_CHANNEL, INT)                                                          \
	KEY("of", PL_R_OF, INT)                                                                    \
	KEY("Process Group Ranks", PL_R_RANKS, TEXT)                                               \
	KEY("Group size", PL_R_SIZE, INT)                                                          \
	KEY("In msg nelems", PL_R_ELEMENTS, INT)                                                   \
	KEY("Out msg nelems", PL_R_ELEMENTS_OUT, INT)                                              \
	KEY("dtype", PL_R_DTYPE, TEXT)                                                             \
	KEY("Input Dims", PL_R_DIMS, TEXT)                                                         \
	KEY("Input type", PL_R_TYPES, TEXT)                                                        \
	KEY("Record function id", PL_R_RECORD, INT)                                                \
	KEY("Src Rank", PL_R_SRC, INT)                                                             \
	KEY("Dst Rank", PL_R_DST, INT)                                                             \
	KEY("stream", PL_R_STREAM, INT)                                                            \
	KEY("wait_on_stream", PL_R_WAIT_STREAM, INT)                                               \
	KEY("wait_on_cuda_event_record_corr_id", PL_R_WAIT_CORR, INT)                              \
	KEY("wait_on_cuda_event_id", PL_R_WAIT_EVENT, INT)                                         \
	KEY("Bytes", PL_R_ALLOC, INT)                                                              \
	KEY("Addr", PL_R_ADDRESS, INT)                                                             \
	KEY("Total Allocated", PL_R_ALLOCATED, INT)                                                \
	KEY("Total Reserved", PL_R_RESERVED, INT)                                                  \
	KEY("Device Type", PL_R_DEVICE_TYPE, INT)                                                  \
	KEY("Device Id", PL_R_DEVICE, INT)                                                         \
	KEY("Concrete Inputs", PL_R_VALUES, TEXT)                                                  \
	KEY("operator", PL_R_OP, STR)                                                              \
	KEY("flops", PL_R_FLOPS, INT)                                                              \
	KEY("bytes moved", PL_R_MOVED, INT)                                                        \
	KEY("comes after", PL_R_AFTER, STR)                                                        \
	KEY("Sequence number", PL_R_SEQUENCE, INT)
#define AS_ROW(key, role, types) { key, role, types },
#define AS_KEY(key, role, types) [role] = key,

static const struct {
	const char *key;
	uint8_t role, types;
} role_keys[] = {
	USUAL_KEYS(AS_ROW) /* and other keys of some sources */
	{ "external id", PL_R_EXTERNAL, INT },
	{ "Input dims", PL_R_DIMS, TEXT },
};
static const char *const usual_keys[PL_R_COUNT_] = { USUAL_KEYS(AS_KEY) };
_Static_assert(PL_LEN(role_keys) == PL_ROLE_KEYS, "as many as trace.h says");

const char *pl_trace_kind_name(unsigned kind)
{
	return kind < PL_K_COUNT_ ? kinds[kind] : "unknown";
}

/* The kinds, and the classes that only selections have. */
static const char *kind_or_class(unsigned i)
{
	static const char *const classes[] = { "comm", "gap", "all" };

	return i < PL_K_COUNT_ ? kinds[i] : classes[i - PL_K_COUNT_];
}

int pl_trace_kind_check(const char *glob, bool of_graphs, struct pl_err *err)
{
	/* "compute" is an older word for kernel|host_op; kinds of later versions have numbers */
	if (glob && (pl_glob(glob, "compute") || (!of_graphs && !strncmp(glob, "kind-", 5))))
		return 0;
	return pl_words_check(glob, "kind", kind_or_class, PL_K_COUNT_ + (of_graphs ? 3 : 1), err);
}

int pl_trace_kind_find(const char *name, size_t n)
{
	unsigned v = 0;

	for (unsigned k = 0; k < PL_K_COUNT_; k++)
		if (strlen(kinds[k]) == n && !memcmp(kinds[k], name, n))
			return (int)k;
	if (n < 6 || n > 8 || memcmp(name, "kind-", 5) != 0)
		return -1;
	for (size_t i = 5; i < n; i++) {
		if (name[i] < '0' || name[i] > '9')
			return -1;
		v = v * 10 + (unsigned)(name[i] - '0');
	}
	return v <= UINT8_MAX ? (int)v : -1;
}

const char *pl_trace_track_type_name(unsigned type)
{
	return type < PL_T_COUNT_ ? tracks[type] : "unknown";
}

const char *pl_trace_role_name(unsigned role)
{
	return role < PL_R_COUNT_ ? roles[role] : "unknown";
}

unsigned pl_trace_role_of_key(const char *key, size_t n, unsigned type)
{
	for (size_t i = 0; i < PL_LEN(role_keys); i++)
		if (strlen(role_keys[i].key) == n && !memcmp(role_keys[i].key, key, n))
			return role_keys[i].types >> type & 1 ? role_keys[i].role : PL_R_ARG;
	return PL_R_ARG;
}

/* A table, because exporters ask for each value. */
const char *pl_trace_role_key(unsigned role)
{
	return role < PL_R_COUNT_ && usual_keys[role] ? usual_keys[role] : pl_trace_role_name(role);
}

void pl_trace_role_keys_note(const struct pl_intern *str, pl_id id[PL_ROLE_KEYS])
{
	for (size_t i = 0; i < PL_LEN(role_keys); i++)
		id[i] = pl_intern_find(str, role_keys[i].key, strlen(role_keys[i].key));
}

unsigned pl_trace_role_settle(const pl_id id[PL_ROLE_KEYS], unsigned role, pl_id key, unsigned type)
{
	if ((role != PL_R_ARG && role != PL_R_PEER) || key == PL_NONE)
		return role;
	for (size_t i = 0; i < PL_LEN(role_keys); i++)
		if (id[i] == key && role_keys[i].types >> type & 1)
			return role_keys[i].role;
	return role;
}
