/*
 * TFRecord: https://www.tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details". A
 * CRC is masked, since a file may hold CRCs of data that hold CRCs themselves: turned right by 15
 * bits, plus a constant. CRC-32C: RFC 3720, appendix B.4. Bit by bit, because records are short.
 */
#include "io/tfrecord.h"
#include "core/bytes.h"

#define POLYNOMIAL 0x82f63b78u /* 0x1edc6f41, the lowest bit first */
#define MASK	   0xa282ead8u

uint32_t pl_tfrecord_crc(const void *p, size_t n)
{
	const uint8_t *b = p;
	uint32_t crc = ~0u;

	for (size_t i = 0; i < n; i++) {
		crc ^= b[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
	}
	return ~crc;
}

static void put_crc(struct pl_writer *w, const void *p, size_t n)
{
	uint32_t crc = pl_tfrecord_crc(p, n);
	uint8_t b[4];

	pl_le32_put(b, (crc >> 15 | crc << 17) + MASK);
	pl_write(w, b, sizeof(b));
}

void pl_tfrecord_put(struct pl_writer *w, const void *p, size_t n)
{
	uint8_t length[8];

	pl_le64_put(length, n);
	pl_write(w, length, sizeof(length));
	put_crc(w, length, sizeof(length));
	pl_write(w, p, n);
	put_crc(w, p, n);
}
