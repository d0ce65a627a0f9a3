/*
 * tree.h - small documents as a tree in memory: JSON, and Python's pickles of plain values.
 *
 * A pickle is a program. It is not carried out: only the instructions that make dictionaries,
 * lists, tuples, texts and numbers are known, and any other is an error, which names it and its
 * position. Parts of a pickle may be shared, or contain themselves; readers that go to a fixed
 * depth are safe.
 */
#ifndef PL_TREE_H
#define PL_TREE_H

#include "core/core.h"

enum pl_tree_type {
	PL_TREE_NULL,
	PL_TREE_BOOL,
	PL_TREE_INT,
	PL_TREE_REAL,
	PL_TREE_TEXT,
	PL_TREE_LIST, /* also tuples */
	PL_TREE_DICT, /* items: key, value, key, value */
};
struct pl_tree {
	union {
		int64_t i;	    /* INT, BOOL */
		double real;	    /* REAL */
		const char *s;	    /* TEXT; ended by 0 */
		struct pl_tree **v; /* items of LIST and DICT */
	};
	size_t n; /* bytes of the text, items */
	uint32_t cap;
	uint8_t type;
};

/* Both take all of their memory from the arena. Errors give the position in bytes, without a file.
 */
int pl_tree_json(struct pl_arena *a, const char *p, size_t n, struct pl_tree **t,
		 struct pl_err *err) PL_MUST;
int pl_tree_pickle(struct pl_arena *a, const uint8_t *p, size_t n, struct pl_tree **t,
		   struct pl_err *err) PL_MUST;

/* The value of a key; NULL: no dictionary (NULL included), or no such key. */
const struct pl_tree *pl_tree_get(const struct pl_tree *t, const char *key);
/* Item i of a list, NULL: there is none. */
const struct pl_tree *pl_tree_item(const struct pl_tree *t, size_t i);
size_t pl_tree_count(const struct pl_tree *t); /* of a list; 0 for anything else */
/* A number, a text that is one, or `none`. */
int64_t pl_tree_int(const struct pl_tree *t, int64_t none);
/* A text, or NULL. */
const char *pl_tree_text(const struct pl_tree *t, size_t *n);

/* Append an item to a list or dictionary; for the readers. */
int pl_tree_add(struct pl_arena *a, struct pl_tree *to, struct pl_tree *item,
		struct pl_err *err) PL_MUST;
struct pl_tree *pl_tree_new(struct pl_arena *a, enum pl_tree_type type, struct pl_err *err);

#endif
