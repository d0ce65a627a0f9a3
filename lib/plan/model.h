/*
 * model.h - a network as a list of layers: paceline-model(5). Data and text; what a layer computes
 * is lib/tensor's business, which also says what arguments each takes.
 */
#ifndef PL_MODEL_H
#define PL_MODEL_H

#include "core/core.h"
#include "core/layer.h"
#include "io/stream.h"
#include "lang/lang.h"

/* Zero-initialised is empty. Strings and arrays belong to the arena. */
struct pl_model {
	struct pl_arena arena;
	const char *name;	/* the preset, or the file */
	struct pl_layer *layer; /* the first is "input", the last "loss" */
	size_t n_layers, cap_layers;
};
extern const struct pl_lang_schema pl_model_schema;
void pl_model_fini(struct pl_model *m);
/* PL_EDATA with line, cause and remedy. */
int pl_model_read(struct pl_in *in, const char *name, struct pl_model *m,
		  struct pl_err *err) PL_MUST;
/* The same of a text in memory. */
int pl_model_text(const char *text, size_t n, const char *name, struct pl_model *m,
		  struct pl_err *err) PL_MUST;
int pl_model_write(const struct pl_model *m, struct pl_out *out, struct pl_err *err) PL_MUST;
/*
 * "mlp:784-512-512-10", "cnn" (the CIFAR-10 tutorial network of TensorFlow: conv 64 5x5 twice with
 * pooling, dense 384, 192, 10; "cnn:1x28x28,classes=10" for other inputs), "gpt:layers=2,heads=4,
 * width=128,context=64,vocab=65", "gpt2" (GPT-2 124M). PL_EUSAGE with what there is.
 */
int pl_model_preset(const char *text, struct pl_model *m, struct pl_err *err) PL_MUST;
extern const char pl_model_presets[]; /* examples of all, for messages */
/* Does the text name a preset (and no file)? */
bool pl_model_is_preset(const char *text);
/* A preset, or the name of a file, which is one if it holds a slash or begins with no preset. */
int pl_model_parse(const char *text, struct pl_model *m, struct pl_err *err) PL_MUST;
/* The text of a key, "" of a bare word, NULL if the layer has none. */
const char *pl_model_key(const struct pl_layer *l, const char *key);

#endif
