/* emu_device.h - what tests in C see and change of the emulated device. */
#ifndef PL_EMU_DEVICE_H
#define PL_EMU_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The device that there is; tests change it before they open a context. */
struct emu_device {
	int count, major, minor, driver; /* driver: 0, none installed */
	size_t memory;			 /* bytes */
	size_t used;			 /* of them */
	uint64_t mallocs, launches;	 /* so far; launches of graphs */
	int sms;			 /* multiprocessors */
	bool broken;	 /* what runs next fails, and so does everything behind it */
	bool later;	 /* so from the first recorded pass on */
	bool no_capture; /* recording fails */
	int strayed; /* calls that opened a device that nobody had set, since they were listed */
};
extern struct emu_device emu_device;
/* Blocks of memory that were not given back, or were written beyond their ends. */
size_t emu_leaks(void);
size_t emu_overruns(void);
/* What a stream begins with, for libraries that stand in for others and are given one: f(arg) is
 * done when the stream comes to it, each time if it is recorded; arg is copied, of so many bytes.
 */
struct emu_stream_head {
	void (*put)(void *stream, void (*f)(void *arg), const void *arg, size_t bytes);
	bool (*is_recorded)(void *stream, bool spoil); /* is it? and what is recorded is lost */
};
/* Order of blocks and threads, see cuda_emu.h. */
void emu_order(uint64_t seed);
/* No epilogue is offered for products, as for some shapes, or no product, or sums of an operand
 * leave most of the device idle, or what is offered with an epilogue is refused; those that had
 * one, so far. */
extern bool emu_no_epilogues, emu_no_products, emu_idle_sums, emu_refuses;
extern uint64_t emu_epilogues;

#ifdef __cplusplus
}
#endif

#endif
