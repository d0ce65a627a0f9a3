/*
 * tfrecord.h - TFRecord, the framing of files that TensorBoard and TensorFlow read.
 *
 * A record is its length (8 bytes, lowest first), the masked CRC-32C of these 8 bytes, the bytes,
 * and their masked CRC-32C.
 */
#ifndef PL_TFRECORD_H
#define PL_TFRECORD_H

#include "io/write.h"

/* CRC-32C (Castagnoli) of n bytes. */
uint32_t pl_tfrecord_crc(const void *p, size_t n);
/* Appends a record to the writer. */
void pl_tfrecord_put(struct pl_writer *w, const void *p, size_t n);

#endif
