/*
 * record.h - tables in payloads of the container. One list describes the members of a row, so that
 * writing and reading cannot disagree. Also the strings and the provenance that several kinds of
 * streams store in the same way.
 */
#ifndef PL_RECORD_H
#define PL_RECORD_H

#include "io/container.h"

/* The coding of a member of a struct. With several values, the member is an array. */
enum pl_field_type {
	PL_F_U8,
	PL_F_U32,	 /* varint */
	PL_F_ID,	 /* uint32_t: PL_NONE as 0, other numbers plus one, as varint */
	PL_F_I32,	 /* signed varint */
	PL_F_I64,	 /* signed varint */
	PL_F_SIZE,	 /* int64_t that is not negative: varint */
	PL_F_F64,	 /* its bits */
	PL_F_TEXT,	 /* char *, NULL as "": length and bytes */
	PL_F_MAYBE_TEXT, /* one byte, 0 for NULL, then as PL_F_TEXT */
};
struct pl_field {
	uint8_t type; /* enum pl_field_type */
	uint16_t offset, bytes;
};
#define PL_FIELD(coding, type, member)                                                             \
	{                                                                                          \
		PL_F_##coding, offsetof(type, member), sizeof(((type *)NULL)->member)              \
	}

struct pl_record {
	const char *what; /* "track", for messages */
	size_t size;	  /* of the struct */
	const struct pl_field *field;
	size_t n_fields;
	/* Data after the fields, such as a list. NULL: none. `arg` belongs to the caller. */
	int (*put_rest)(struct pl_buf *b, const void *row, const void *arg, struct pl_err *err);
	int (*get_rest)(struct pl_cur *c, void *row, void *arg, struct pl_err *err);
};
#define PL_RECORD(name, type, fields)                                                              \
	.what = (name), .size = sizeof(type), .field = (fields), .n_fields = PL_LEN(fields)

/* Append the fields, without their size. */
void pl_record_put_fields(struct pl_buf *b, const struct pl_record *r, const void *row);
/* Texts go into the arena, or are allocated one by one if it is NULL. An incomplete row is valid
 * too. Fails with "a track is cut short or has a number out of range". */
int pl_record_get_fields(struct pl_cur *c, const struct pl_record *r, void *row,
			 struct pl_arena *arena, struct pl_err *err) PL_MUST;

/* Are the numbers equal, and the pointers of texts? */
bool pl_record_same_fields(const struct pl_record *r, const void *a, const void *b);

/* Sets *part to the next `size` bytes, and moves c behind them. */
int pl_record_get_part(struct pl_cur *c, uint64_t size, struct pl_cur *part,
		       struct pl_err *err) PL_MUST;
/* Fails with "the payload ends too early". */
int pl_record_get_short(struct pl_err *err);

/* An entry: its size, the fields, the rest. Readers skip data of later versions. */
int pl_record_put_entry(struct pl_buf *b, const struct pl_record *r, const void *row,
			const void *arg, struct pl_err *err) PL_MUST;
/* Rows as blocks of entries, each block of about 256 KiB. */
int pl_container_writer_put_table(struct pl_container_writer *w, uint32_t type, uint16_t version,
				  const struct pl_record *r, const void *rows, size_t n,
				  const void *arg, struct pl_err *err) PL_MUST;
/* The next of `count` entries into the zeroed row. */
int pl_record_get_entry(struct pl_cur *c, const struct pl_record *r, void *row,
			struct pl_arena *arena, void *arg, struct pl_err *err) PL_MUST;
/* Append all entries of a block to an array of pl_grow(). A row that fails counts, to be freed. */
int pl_record_get_table(struct pl_cur *c, uint32_t count, const struct pl_record *r, void *array,
			size_t *n, size_t *cap, struct pl_arena *arena, void *arg,
			struct pl_err *err) PL_MUST;

/* A count, then differences of neighbours. Reading appends to an array that pl_grow() made. */
void pl_record_put_numbers(struct pl_buf *b, const uint32_t *v, uint32_t n);
int pl_record_get_numbers(struct pl_cur *c, void *array, size_t *n, size_t *cap, uint32_t *first,
			  uint32_t *count, struct pl_err *err) PL_MUST;

/* Write strings from number `first` on, in blocks that end after `limit` bytes. */
int pl_container_writer_put_strings(struct pl_container_writer *w, uint32_t type, uint16_t version,
				    const struct pl_intern *str, size_t first, size_t limit,
				    struct pl_err *err) PL_MUST;
/* Read a block of strings; each must be new, and their numbers must follow the earlier ones. */
int pl_record_get_strings(struct pl_cur *c, uint32_t count, struct pl_intern *str,
			  struct pl_err *err) PL_MUST;

/* Write lines of provenance: those of `text`, and `line` as one line (NULL: none). */
int pl_container_writer_put_provenance(struct pl_container_writer *w, uint16_t version,
				       const void *text, size_t n, const char *line,
				       struct pl_err *err) PL_MUST;
int pl_record_get_provenance(struct pl_buf *lines, const struct pl_block *b,
			     struct pl_err *err) PL_MUST;

/*
 * Read a stream of one segment, such as a graph or plan: calls on_block() for each block; errors
 * begin with the input's name and the block's place. `what` names the kind: "graph".
 */
int pl_container_reader_each(struct pl_in *in, const struct pl_container_reader_opts *opts,
			     const char *what,
			     int (*on_block)(void *arg, const struct pl_block *b,
					     struct pl_err *err),
			     void *arg, struct pl_err *err) PL_MUST;

#endif
