/* fake_cudnn.h - what a test sees of the libcudnn that stands in for the real one. */
#ifndef PL_FAKE_CUDNN_H
#define PL_FAKE_CUDNN_H

struct fake_cudnn_count {
	int live;   /* handles and descriptors that were not destroyed */
	int misuse; /* calls that the real one would not take either */
	int asked;  /* heuristics */
	int run[3]; /* convolutions, by way */
	int exact;  /* of those that were queued: in float32 that stays it */
};
/* Found by its name. */
const struct fake_cudnn_count *fake_cudnn_counts(void);

#endif
