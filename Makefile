# paceline: one non-recursive Makefile for GNU make. `make help` lists the targets.
#
# Sources are found by wildcard: every folder under cmd/ is a program, every lib/*/*.c goes into
# libcore.a. A new program or module needs no change here.

-include config.mk

VERSION  := $(shell cat VERSION 2>/dev/null || echo 0)
PREFIX   ?= /usr/local
DESTDIR  ?=
bindir     := $(PREFIX)/bin
libexecdir := $(PREFIX)/libexec
mandir     := $(PREFIX)/share/man
datadir    := $(PREFIX)/share

CC       ?= cc
CFLAGS   ?= -O2 -g
SAN      ?=
V        ?= 0
Q        := $(if $(filter 1,$(V)),,@)

comma := ,
BUILD ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
BIN   ?= $(if $(SAN)$(filter-out build,$(BUILD)),$(BUILD)/bin,bin)

PKG = $(shell pkg-config --exists $(1) 2>/dev/null && echo 1 || echo 0)
HAS = $(shell printf '\#include <$(1)>\nint main(void){return 0;}\n' | $(CC) -xc - -l$(2) -o /dev/null 2>/dev/null && echo 1 || echo 0)
WITH_LIBDEFLATE ?= $(call HAS,libdeflate.h,deflate)

FLAGS := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wvla -Wundef -Wformat=2 -Werror -fvisibility=hidden -ffile-prefix-map=$(CURDIR)=. \
	-Ilib -I$(BUILD) -MMD -MP -pthread
LIBS  := -lz -lcsv -lm $(if $(filter 1,$(WITH_LIBDEFLATE)),-ldeflate)
ifneq ($(SAN),)
FLAGS += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
endif

LIB_SRC  := $(sort $(wildcard lib/*/*.c))
LIB_OBJ  := $(LIB_SRC:%.c=$(BUILD)/%.o)
PROGRAMS := $(sort $(notdir $(patsubst %/,%,$(dir $(wildcard cmd/*/*.c)))))
UNIT     := $(sort $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/*_test.c)))

all: $(PROGRAMS:%=$(BIN)/%)

$(BUILD)/config.h: FORCE
	$(Q)mkdir -p $(BUILD)
	$(Q)printf '%s\n' '#define PL_VERSION "$(VERSION)"' '#define HAVE_LIBDEFLATE $(WITH_LIBDEFLATE)' >$@.new
	$(Q)cmp -s $@.new $@ 2>/dev/null && rm -f $@.new || mv $@.new $@

$(BUILD)/%.o: %.c $(BUILD)/config.h
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(FLAGS) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(BUILD)/libcore.a: $(LIB_OBJ)
	$(Q)rm -f $@ && ar rcsD $@ $^

define program
$(BIN)/$(1): $(patsubst %.c,$(BUILD)/%.o,$(wildcard cmd/$(1)/*.c)) $(BUILD)/cmd/main.o $(BUILD)/libcore.a
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$(CC) $$(FLAGS) $$(CFLAGS) $$(LDFLAGS) -o $$@ $$^ $$(LIBS)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$(p))))

$(BUILD)/unit/%: $(BUILD)/tests/unit/%.o $(BUILD)/libcore.a
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

units: $(UNIT:%=$(BUILD)/unit/%)

FORCE:
.PHONY: all units FORCE
.DELETE_ON_ERROR:
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
