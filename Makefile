# paceline: one non-recursive Makefile for GNU make, no configure step. `make help` lists the targets.
#
# Sources are found by wildcard: every folder under cmd/ is a program, every lib/*/*.c goes into
# libcore.a, every tests/unit/*_test.c, tests/fuzz/fuzz_*.c, tests/gen/NAME.c (with its NAME_*.c) and
# bench/NAME.c (likewise) is a program that is not installed. A new one needs no change here.
#
# Settings, on the command line or in config.mk: CC CPPFLAGS CFLAGS LDFLAGS PREFIX DESTDIR V=1
# SAN=address,undefined|thread WITH_LIBDEFLATE=0|1 WITH_OPENBLAS=0|1 WITH_SQLITE=0|1 CUDA=0|1
# QUICK=1 (for tests without a GPU: kernels are not optimized) DEBUG=-g DEPS=0 (install no packages).

-include config.mk

VERSION := $(shell cat VERSION)
PREFIX  ?= /usr/local
DESTDIR ?=
bindir     ?= $(PREFIX)/bin
libexecdir ?= $(PREFIX)/libexec
datadir    ?= $(PREFIX)/share
mandir     ?= $(datadir)/man

CC      ?= cc
ifeq ($(origin CXX),default)
CXX     := $(if $(findstring clang,$(CC)),clang++,g++)
endif
# Loops over columns and nodes: replay takes 12 % less time, graph 4 %; the other modules gain nothing.
LOOPS   := $(if $(filter undefined,$(origin CFLAGS)),$(if $(SAN),,-O3))
# each function of a test runs once: -O2 takes longer to compile than it saves
ONCE     := $(if $(filter undefined,$(origin CFLAGS)),$(if $(SAN),,-O1))
# Only tests use emulated kernels. The tests take as long as with -O2, and gcc takes 0.6 of the time.
EMULATED := $(if $(filter undefined,$(origin CFLAGS)),$(if $(SAN),,-O1 -g1))
# With a sanitizer clang takes two to four times as long to compile with -O1 as with -O0, but most code runs
# for less than a second in all tests together. What runs longer is optimized (perf shows which sources those are), and fuzzers.
QUICK_CFLAGS := $(if $(filter undefined,$(origin CFLAGS)),$(if $(SAN),$(if $(findstring fuzzer,$(SAN)),,-O0)))
HOT := $(addprefix lib/,clock/fit clock/fit_interval cost/moved cost/transfer core/intern core/mem core/num core/sort core/spans data/dataset graph/edit graph/edit_times \
	import/events import/import import/join import/values io/column io/colput io/write learn/boost learn/flat learn/moments plan/buckets \
	policy/policy policy/simulate rewrite/rewrite_find rewrite/rewrite_search rewrite/rewrite_sync rewrite/rewrite_take_over \
	search/buckets_candidates search/buckets_local sim/events sim/many sim/sim tprog/network tprog/run) \
	$(basename $(wildcard lib/tensor/*.c)) tests/oracle/plain $(addprefix tests/gen/kgen_,out sim write) \
	$(patsubst %,tests/unit/%_test,comm events net_grad nccl rewrite_overlap sim_shared stream tensor_cpu tensor_precision trace)
# sanitizers need half the time for this, and lines are all that their reports show
CFLAGS  ?= $(if $(SAN:fuzzer%=),-O1 -g1,-O2 $(DEBUG))
# -g1: gcc takes 0.7 of the time, and debuggers know lines, but no variables
DEBUG   ?= $(if $(QUICK),-g1,-g)
QUICK   ?=
SAN     ?=
V       ?= 0
WITH_LIBDEFLATE ?= auto
WITH_OPENBLAS   ?= auto
WITH_SQLITE     ?= auto
CUDA    ?= auto
DEPS    ?= 1
INSTALL ?= install
Q       := $(if $(filter 1,$(V)),,@)
comma   := ,

# A sanitized or otherwise different build has a tree of its own, with its own bin.
BUILD ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
BIN   ?= $(if $(filter-out build,$(BUILD)),$(BUILD)/bin,bin)
JOBS  ?= $(shell nproc 2>/dev/null || echo 2)

# ---- what there is to build -------------------------------------------------------------------------

LIB_SRC  := $(sort $(wildcard lib/*/*.c))
PROGRAMS := $(sort $(notdir $(patsubst %/,%,$(dir $(wildcard cmd/*/*.c)))))
UNIT     := $(patsubst tests/unit/%.c,%,$(filter-out tests/unit/cuda_%,$(sort $(wildcard tests/unit/*_test.c))))
# Kernels, and tests of them on an emulated device: C++ (see below)
CUDA_SRC := $(sort $(wildcard lib/tensor/cuda/*.cu))
UNIT_EMU := $(filter-out $(if $(SAN),cuda_race_test),$(sort $(basename $(notdir $(wildcard tests/unit/cuda_*_test.c tests/unit/cuda_*_test.cpp)))))
FUZZ     := $(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
# NAME.c and its NAME_*.c are one program
plain     = $(foreach s,$(sort $(wildcard $(1)/*.c)),$(if $(findstring _,$(notdir $(s))),,$(basename $(notdir $(s)))))
GEN      := $(call plain,tests/gen)
BENCH    := $(call plain,bench)
MAN      := $(sort $(wildcard man/*.[1-8]))

# ---- what the machine offers: asked once per configuration ------------------------------------------

# Targets that build nothing must work where nothing is installed yet.
NO_PROBE := test test-long demo deps asan tsan fuzz coverage lint clean help install-only uninstall \
	completion print-%
ifneq ($(filter-out $(NO_PROBE),$(or $(MAKECMDGOALS),all)),)
PROBING := 1
endif

# replace FILE by TEXT only if that changes it
define keep
$(shell mkdir -p $(dir $(1)))$(file >$(1).new,$(2))$(shell cmp -s $(1).new $(1) && rm -f $(1).new || mv -f $(1).new $(1))
endef

ifdef PROBING
$(call keep,$(BUILD)/probe.key,$(CC)|$(CXX)|$(CPPFLAGS)|$(CFLAGS)|$(LDFLAGS)|$(SAN)|$(WITH_LIBDEFLATE)|$(WITH_OPENBLAS)|$(WITH_SQLITE)|$(CUDA)|$(NVCC))
include $(BUILD)/probe.mk
$(BUILD)/probe.mk: $(BUILD)/probe.key tools/probe $(wildcard build/deps.stamp $(BUILD)/deps.stamp)
	@CC='$(CC)' CXX='$(CXX)' CPPFLAGS='$(CPPFLAGS)' CFLAGS='$(CFLAGS)' LDFLAGS='$(LDFLAGS)' SAN='$(SAN)' \
		CUDA='$(CUDA)' NVCC='$(NVCC)' WITH_LIBDEFLATE='$(WITH_LIBDEFLATE)' \
		WITH_OPENBLAS='$(WITH_OPENBLAS)' WITH_SQLITE='$(WITH_SQLITE)' tools/probe $@
endif

WARN  := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wformat=2 -Werror
# -fPIC: programs and shared objects share objects, so that a source is compiled once
FLAGS := -std=c11 -D_GNU_SOURCE $(WARN) -fPIC -fvisibility=hidden -ffile-prefix-map=$(CURDIR)=. \
	-Ilib -I$(BUILD) -MMD -MP -pthread $(FOUND_CFLAGS)
# what nobody calls is left out of a program: 5 % of run
FLAGS += -ffunction-sections -fdata-sections
LIBS  := -Wl,--gc-sections $(FOUND_LIBS) -ldl -lm
ifneq ($(SAN),)
FLAGS += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
# instrumented code makes gcc see uninitialised values and cut texts where there are none
ifeq ($(findstring clang,$(shell $(CC) --version 2>/dev/null)),)
FLAGS += -Wno-maybe-uninitialized -Wno-format-truncation
else
# clang does not say which sanitizer it is; and in C++ checks the types of functions by a library that
# programs in C lack, which shared objects would take from them. Three checks more make kernels compile twice as long;
# the address sanitizer finds what they would. Kernels whose loops are not unrolled (ROLLED) compile in 0.65 of the time,
# and their tests take as long
FLAGS += $(if $(findstring thread,$(SAN)),-D__SANITIZE_THREAD__=1)
FLAGS += $(if $(findstring address,$(SAN)),-D__SANITIZE_ADDRESS__=1)
# Programs have 200,000 relocations where they may lie anywhere: a third of the 15 ms in which one starts and ends, and
# tests start 16,000.
ifneq ($(findstring address,$(SAN)),)
FLAGS += -fsanitize-address-globals-dead-stripping
LIBS  := -no-pie $(LIBS)
endif
SAN_CXX := $(if $(findstring undefined,$(SAN)),-fno-sanitize=vptr$(comma)function) \
	$(if $(findstring address,$(SAN)),-fno-sanitize=null$(comma)object-size$(comma)pointer-overflow)
ROLLED  := -mllvm -pragma-unroll-threshold=0 -Wno-pass-failed
endif
endif
# lld takes half the time for programs as large as these, and the tests are more than a hundred
ifneq ($(SAN)$(QUICK),)
LIBS  := $(shell echo 'int main(void) { return 0; }' | $(CC) -fuse-ld=lld -x c -o /dev/null - 2>/dev/null && echo -fuse-ld=lld -Wl$(comma)--threads=1) $(LIBS)
endif

ifdef HAVE_LIBDEFLATE
define CONFIG_H
/* made by the Makefile; replaced only when its contents change */
#define PL_VERSION "$(VERSION)"
#define HAVE_LIBDEFLATE $(HAVE_LIBDEFLATE)
#define HAVE_OPENBLAS $(HAVE_OPENBLAS)
#define HAVE_SQLITE $(HAVE_SQLITE)
#define PL_SANITIZERS "$(SAN)"
endef
$(call keep,$(BUILD)/config.h,$(CONFIG_H))
$(call keep,$(BUILD)/flags,$(shell $(CC) --version 2>/dev/null | head -n 1) $(FLAGS) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS))
endif

# ---- building ------------------------------------------------------------------------------------------

# What needs the CUDA toolkit is one shared object, which run opens when a job asks for a GPU. Builds
# that differ for the sake of tests alone (sanitizers, other compilers) do without.
PLUGIN := $(if $(filter build,$(BUILD)),$(if $(NVCC_FOUND),$(if $(CUDA_SRC),$(BIN)/paceline-cuda.so)))

# What records other programs: one shared object for each library that is watched.
RECORDED    := $(basename $(notdir $(wildcard $(patsubst %,lib/record/entry/%.c,nccl cuda mpi))))
RECORD_LIBS := $(RECORDED:%=$(BIN)/libpaceline-%.so)

all: $(PROGRAMS:%=$(BIN)/%) $(BIN)/paceline $(PLUGIN) $(RECORD_LIBS) ## the programs, in bin/ (default)

$(foreach d,lib cmd bench tests,$(BUILD)/$(d)/%.o): CFLAGS += $(QUICK_CFLAGS)
$(HOT:%=$(BUILD)/%.o): QUICK_CFLAGS :=

$(BUILD)/tests/unit/%.o: CFLAGS += $(ONCE)
$(BUILD)/lib/derive/%.o $(BUILD)/lib/graph/%.o $(BUILD)/lib/sim/%.o $(BUILD)/lib/io/col%.o: CFLAGS += $(LOOPS)
$(foreach f,emu/lib/% race/%,$(BUILD)/$(f).o $(BUILD)/$(f).gch): private CFLAGS += $(EMULATED) $(ROLLED)
# gcc does not unroll the loops here with -O1, and then warns of values that they do set
$(BUILD)/emu/%/attn_mma_back.o: private EMULATED := $(EMULATED:-O1=-O2)

$(BUILD)/%.o: %.c $(BUILD)/flags | $(BUILD)/config.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(FLAGS) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(BUILD)/config.h $(BUILD)/flags $(BUILD)/flags.cuda $(BUILD)/probe.key: ;

# the page of replay -O html, as C strings: one for each of its sources, without the indentation
PAGE := $(sort $(wildcard lib/report/page.*))
$(BUILD)/lib/report/html.o: $(BUILD)/report/page.h
$(BUILD)/report/page.h: $(PAGE) Makefile
	@mkdir -p $(@D)
	$(Q)for f in $(PAGE); do echo "static const char page_$${f##*.}[] ="; \
		sed -e 's/^[[:blank:]]*//' -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n"/' $$f; echo ';'; done >$@

# what trace -- COMMAND gives to Python, as C strings
HOOK := lib/record/hook.py lib/record/light.py
$(BUILD)/lib/record/command.o: $(BUILD)/record/hook.h
$(BUILD)/record/hook.h: $(HOOK) Makefile
	@mkdir -p $(@D)
	$(Q)for f in $(HOOK); do echo "static const char $$(basename $$f .py)_py[] ="; \
		sed -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n"/' $$f; echo ';'; done >$@

$(BUILD)/libcore.a: $(LIB_SRC:%.c=$(BUILD)/%.o)
	$(Q)rm -f $@ && ar rcsD $@ $^

LINK = @mkdir -p $(@D); $(if $(Q),,echo $(CC) -o $@;) \
	$(CC) $(FLAGS) $(CPPFLAGS) $(CFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS) $(LIBS)

# program(TARGET,SOURCES): a program, what it is linked from besides the library
define program
$(1): $(2:%.c=$(BUILD)/%.o) $(BUILD)/libcore.a
	$$(LINK)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program,$(BIN)/$(p),$(sort $(wildcard cmd/$(p)/*.c)) cmd/main.c)))
# the trace of a device is plain C, but part of the plugin alone
MORE_cupti_test := $(sort $(wildcard lib/tensor/cuda/*.c)) lib/record/entry/nccl_tables.c
MORE_nccl_profiler_test := $(MORE_cupti_test)
$(foreach p,$(UNIT),$(eval $(call program,$(BUILD)/unit/$(p),tests/unit/$(p).c $(MORE_$(p)))))
# the reference of the kernels; tests of gradients build it in double
$(addprefix $(BUILD)/unit/,$(filter-out %_grad_test,$(filter net_% tensor_%,$(UNIT)))): $(BUILD)/tests/oracle/plain.o
# libFuzzer brings a main of its own; everywhere else driver.c runs the inputs of the corpus
$(foreach p,$(FUZZ),$(eval $(call program,$(BUILD)/fuzz/$(p),tests/fuzz/$(p).c $(if $(findstring fuzzer,$(SAN)),,tests/fuzz/driver.c))))
$(if $(findstring fuzzer,$(SAN)),$(FUZZ:%=$(BUILD)/fuzz/%): LDFLAGS += -fsanitize=fuzzer)
$(foreach p,$(GEN),$(eval $(call program,$(BUILD)/gen/$(p),$(wildcard tests/gen/$(p).c tests/gen/$(p)_*.c))))
$(foreach p,$(BENCH),$(eval $(call program,$(BUILD)/bench/$(p),$(wildcard bench/$(p).c bench/$(p)_*.c))))

# front(FOLDER,FILE): the program paceline, which runs those in FOLDER; without one, those beside it
front = sed -e 's|@VERSION@|$(VERSION)|' -e 's|@EXEC@|$(1)|' cmd/paceline/paceline.in >$(2).new && \
	chmod 755 $(2).new && mv -f $(2).new $(2)

$(BIN)/paceline: cmd/paceline/paceline.in VERSION
	@mkdir -p $(@D)
	@$(call front,,$@)

# ---- kernels ----------------------------------------------------------------------------------------------

# Sources of kernels are compiled twice: as C++ for the device that the tests emulate, wherever there
# is a C++ compiler; and by nvcc for real ones, where that is.
CXXFLAGS_EMU := -std=c++17 -Wall -Wextra -Wshadow -Wvla -Wundef -Wformat=2 -Werror -Wno-unknown-pragmas -fno-strict-aliasing \
	$(filter-out -std=c11 -Wstrict-prototypes -Wmissing-prototypes $(WARN),$(FLAGS)) $(SAN_CXX) \
	-Itests/emu
COMPILE_EMU   = $(CXX) $(CXXFLAGS_EMU) $(CPPFLAGS) $(CFLAGS) $(BEFORE)
BEFORE        = $(patsubst %.gch,-include %,$(filter %.gch,$^))

# cuda_emu.h precedes each source. It takes as long as a small kernel, so compilers read it once for all sources of a
# folder. Sources that are compiled with other options read it themselves: gcc would take it and fail.
$(BUILD)/emu/%/attn_mma_back.o $(BUILD)/emu/tests/unit/cuda_race_test.o: private BEFORE := -include tests/emu/cuda_emu.h
# With a sanitizer, most kernels run for less time than optimizing takes.
ifneq ($(SAN),)
COLD := $(patsubst %,$(BUILD)/emu/lib/tensor/cuda/%.o,backend batchnorm convolve elements embed graph layernorm loss plugin pool \
	traced)
$(COLD): private BEFORE := -include $(BUILD)/emu/cold/before.h
$(COLD) $(BUILD)/emu/cold/before.h.gch: private CFLAGS += -O0
$(COLD): $(BUILD)/emu/cold/before.h.gch
endif
$(BUILD)/%/before.h.gch: tests/emu/cuda_emu.h $(BUILD)/flags | $(BUILD)/config.h
	@mkdir -p $(@D)
	@echo '#include "cuda_emu.h"' >$(basename $@)
	$(Q)$(COMPILE_EMU) -x c++-header -o $@ $(basename $@)
$(BUILD)/emu/%.o: %.cu $(BUILD)/emu/lib/before.h.gch $(BUILD)/flags | $(BUILD)/config.h
	@mkdir -p $(@D)
	$(Q)$(COMPILE_EMU) -x c++ -c -o $@ $<
$(BUILD)/emu/%.o: %.cpp $(BUILD)/emu/tests/before.h.gch $(BUILD)/flags | $(BUILD)/config.h
	@mkdir -p $(@D)
	$(Q)$(COMPILE_EMU) -c -o $@ $<

# the trace of a device, in the plugin
DEVICE_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard $(patsubst %,lib/record/%.c,cuda cupti nccl nccl_next gpu_clock entry/nccl_tables)))
EMU_OBJ  := $(CUDA_SRC:%.cu=$(BUILD)/emu/%.o) \
	$(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard lib/tensor/cuda/*.c))) $(DEVICE_OBJ) \
	$(patsubst %.cpp,$(BUILD)/emu/%.o,$(sort $(wildcard tests/emu/*.cpp)))
# fibers are too much for the thread sanitizer
EMU_PLUGIN := $(if $(filter 1,$(HAVE_CXX)),$(if $(findstring thread,$(SAN)),,$(BUILD)/emu-cuda.so))
# what each shared object has of the library
CORE_OBJ := $(patsubst %,$(BUILD)/lib/core/%.o,err os mem num intern)

$(BUILD)/libemu.a: $(EMU_OBJ)
	$(Q)rm -f $@ && ar rcsD $@ $^
# the emulated device as the plugin that run opens
$(BUILD)/emu-cuda.so: $(EMU_OBJ) $(CORE_OBJ)
	$(Q)$(CXX) $(CXXFLAGS_EMU) $(CFLAGS) -shared -o $@ $^ $(LDFLAGS) -lm
# tests that look for races where that can be had, and otherwise do not
RACED    := $(if $(SAN),,$(filter $(patsubst %,cuda_%_test,kernels fused attn),$(UNIT_EMU)))
RACE_EMU := $(RACED:%_test=%_race_test)
# one thread each: nothing that the thread sanitizer, which does not know fibers, could find
ifeq ($(HAVE_CXX)$(findstring thread,$(SAN)),1)
UNIT += $(filter-out $(RACED),$(UNIT_EMU))
endif
# Kernels that tell what memory they touch: races among the threads of a launch (tests/emu/emu_race.cpp).
# Other sanitizers cannot be had at the same time.
RACE     := $(if $(SAN),,$(patsubst %.cu,$(BUILD)/race/%.o,$(shell grep -lE 'PL_LAUNCH|pl_each' $(CUDA_SRC) /dev/null)))
ifeq ($(HAVE_CXX),1)
UNIT += $(RACE_EMU)
endif
$(BUILD)/race/%.o $(BUILD)/race/%.gch: private CXXFLAGS_EMU += -fsanitize=thread
$(BUILD)/race/%.o: %.cu $(BUILD)/race/before.h.gch $(BUILD)/flags | $(BUILD)/config.h
	@mkdir -p $(@D)
	$(Q)$(COMPILE_EMU) -x c++ -c -o $@ $<
$(BUILD)/emu/tests/unit/cuda_race_test.o: private CXXFLAGS_EMU += $(if $(SAN),,-fsanitize=thread)
$(BUILD)/unit/cuda_kernels_race_test: $(BUILD)/tests/unit/cuda_kernels_test.o
$(patsubst %,$(BUILD)/unit/cuda_%_race_test,fused attn): $(BUILD)/unit/cuda_%_race_test: $(BUILD)/emu/tests/unit/cuda_%_test.o
$(RACE_EMU:%=$(BUILD)/unit/%): $(RACE)
$(BUILD)/tests/unit/cuda_%.o: FLAGS += -Itests/emu
$(foreach p,$(UNIT_EMU),$(eval $(BUILD)/unit/$(p): $(BUILD)/$(if $(wildcard tests/unit/$(p).cpp),emu/)tests/unit/$(p).o))
$(UNIT_EMU:%=$(BUILD)/unit/%) $(RACE_EMU:%=$(BUILD)/unit/%): $(BUILD)/tests/oracle/plain.o $(BUILD)/libemu.a $(BUILD)/libcore.a
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CXXFLAGS_EMU) $(CFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS) $(LIBS)

# measurements for a GPU, to be tried without one: with EMU_LIST nothing is computed
EMU_BENCH := $(if $(EMU_PLUGIN),$(patsubst bench/%.c,$(BUILD)/emu/gpu/%,$(sort $(wildcard bench/gpu_*.c))))
$(EMU_BENCH): $(BUILD)/emu/gpu/%: $(BUILD)/bench/%.o $(BUILD)/libemu.a $(BUILD)/libcore.a
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CXXFLAGS_EMU) $(CFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDFLAGS) $(LIBS)

# A100, H100 and H200, and anything newer through the driver's compiler
CUDA_ARCH  ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
	-gencode arch=compute_100,code=compute_100
NVCC_FLAGS  = -std=c++17 $(if $(QUICK),-O0,-O3) -lineinfo -Ilib -I$(BUILD) -Werror all-warnings $(NVCC_ARCH) \
	-Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra,-Werror -MMD -MP
NVCC_ARCH   = $(CUDA_ARCH)
# QUICK=1: kernels that are compiled to see the errors of nvcc, in a fifth of the time. The oldest device has the
# fewest instructions, and only one source asks for the device. Those with instructions of Hopper stay optimized: only then
# nvcc warns where it makes them wait for one another.
NVCC_FLAGS += $(NVCC_QUICK)
NVCC_QUICK := $(if $(QUICK),-Xcicc -O0 -Xptxas -O1)
$(patsubst %.cu,$(BUILD)/cuda/%.o,$(shell grep -L __CUDA_ARCH__ $(CUDA_SRC) /dev/null)): \
	NVCC_ARCH = $(if $(QUICK),$(wordlist 1,2,$(CUDA_ARCH)),$(CUDA_ARCH))
$(patsubst %.cu,$(BUILD)/cuda/%.o,$(wildcard lib/tensor/cuda/attn_wgmma*.cu)): NVCC_QUICK :=
ifdef PROBING
$(call keep,$(BUILD)/flags.cuda,$(CUDA_ARCH) $(NVCC_QUICK))
endif
# what Hopper alone has
$(patsubst %.cu,$(BUILD)/cuda/%.o,$(wildcard lib/tensor/cuda/attn_wgmma*.cu)): \
	NVCC_ARCH = -gencode arch=compute_90a,code=sm_90a

$(BUILD)/cuda/%.o: %.cu $(BUILD)/flags $(BUILD)/flags.cuda | $(BUILD)/config.h
	@mkdir -p $(@D)
	$(Q)$(NVCC_FOUND) $(NVCC_FLAGS) -c -o $@ $<

# The plugin has its own copy of what it needs of the library, and shows one symbol. cuBLASLt is found where the toolkit
# is, else as the system finds libraries.
PLUGIN_OBJ := $(CUDA_SRC:%.cu=$(BUILD)/cuda/%.o) $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard lib/tensor/cuda/*.c))) \
	$(DEVICE_OBJ) $(CORE_OBJ)
CUDA_C     := $(if $(CUDA_INC),-isystem $(CUDA_INC))
CUDA_LINK  := -cudart static $(if $(CUDA_LIB),-L$(CUDA_LIB) -Xlinker -rpath -Xlinker $(CUDA_LIB)) $(CUDA_BLAS) \
	-lz -lpthread -ldl -lm

$(BIN)/paceline-cuda.so: $(PLUGIN_OBJ)
	@mkdir -p $(@D)
	$(Q)$(NVCC_FOUND) -shared -o $@ $^ $(CUDA_LINK) -Xlinker -z,defs,--exclude-libs=ALL

cuda: $(if $(NVCC_FOUND),$(CUDA_SRC:%.cu=$(BUILD)/cuda/%.o)) ## the kernels by nvcc, where that is
	$(if $(NVCC_FOUND),,@echo 'cuda: no nvcc, nothing to compile')

# The recorder and what it needs of the library, in shared objects that other programs load. They show their entry points
# alone, and stay where they are if their user closes them, because the recorder has a thread.
RECORD_OBJ := $(patsubst %,$(BUILD)/lib/%.o,record/rec record/entry/process io/out io/container_writer io/member io/deflate io/colput \
	io/column io/record trace/batch trace/write trace/decode trace/encode trace/merge trace/records trace/names trace/coll core/pool core/sort core/spill) $(CORE_OBJ)
RECORD_cuda := $(patsubst %,$(BUILD)/lib/record/%.o,entry/cuda cuda cupti device)
RECORD_mpi := $(patsubst %,$(BUILD)/lib/record/%.o,entry/mpi entry/mpi_state)
RECORD_nccl := $(patsubst %,$(BUILD)/lib/record/%.o,entry/nccl entry/nccl_tables nccl nccl_next gpu_clock)
$(foreach l,$(RECORDED),$(eval $(BIN)/libpaceline-$(l).so: $(RECORD_$(l))))
$(RECORD_LIBS): $(RECORD_OBJ)
	@mkdir -p $(@D)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) -shared -o $@ $^ $(LDFLAGS) -Wl,-z,nodelete,--gc-sections$(if $(SAN),,$(comma)-z$(comma)defs) $(FOUND_LIBS) -ldl -lm

# libraries that stand in for others where tests load them
FAKES := $(patsubst tests/%.c,$(BUILD)/%.so,$(sort $(wildcard tests/emu/fake_*.c)))
$(FAKES): $(BUILD)/%.so: tests/%.c $(BUILD)/flags | $(BUILD)/config.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(FLAGS) $(CPPFLAGS) $(CFLAGS) -shared -o $@ $< $(LDFLAGS) -lm
$(BUILD)/emu/fake_cuda.so: LDFLAGS += -Wl,-soname,libcuda.so.1
# their declarations are held against NVIDIA's where these are
$(patsubst %,$(BUILD)/tests/unit/%_test.o,cupti_layout cuda_cudnn): FLAGS += $(CUDA_C)

# a device that is the CPU with queues, as a plugin: for ranks that communicate
FAKE_PLUGIN := $(patsubst tests/%.c,$(BUILD)/%.so,$(wildcard tests/emu/device_plugin.c))
$(BUILD)/emu/device_plugin.so: $(patsubst %,$(BUILD)/%.o,tests/emu/device_plugin $(basename $(wildcard lib/tensor/cpu*.c)) \
	lib/tensor/gemm tests/oracle/plain lib/core/pool) $(CORE_OBJ)
	@mkdir -p $(@D)
	$(Q)$(CC) $(FLAGS) $(CFLAGS) -shared -o $@ $^ $(LDFLAGS) -ldl -lm

# the thread sanitizer finds nothing in tests without threads: tests/run leaves them out
UNITS := $(UNIT:%=$(BUILD)/unit/%) $(FUZZ:%=$(BUILD)/fuzz/%)
ifneq ($(findstring thread,$(SAN)),)
UNITS := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(shell grep -lE 'runner: ([a-z]+, )*threads' $(UNIT:%=tests/unit/%.c) /dev/null))
endif
units: $(patsubst %,$(BUILD)/bench/%,$(filter timeit,$(BENCH))) $(EMU_PLUGIN) $(EMU_BENCH) $(FAKES) $(FAKE_PLUGIN) $(UNITS) $(GEN:%=$(BUILD)/gen/%)
helpers: $(GEN:%=$(BUILD)/gen/%) $(BENCH:%=$(BUILD)/bench/%)

# ---- testing --------------------------------------------------------------------------------------------

TESTS        ?=
TEST_TIMEOUT ?= $(if $(SAN),300,60)
# the thread sanitizer of older compilers cannot live with a strongly randomised address space
NO_ASLR = $(if $(findstring thread,$(SAN)),$(shell setarch -R true 2>/dev/null && echo setarch -R))
# PLAIN: a folder of the programs without a sanitizer, for what starts no thread
RUN_TESTS = CC='$(CC)' PLAIN='$(PLAIN)' BUILD='$(abspath $(BUILD))' BIN='$(abspath $(BIN))'

test: deps ## install what is missing, build, run the tests
	@$(MAKE) --no-print-directory -j$(JOBS) check

test-long: deps ## the same with the long form of each test (some minutes)
	@$(MAKE) --no-print-directory -j$(JOBS) check LONG=1 TEST_TIMEOUT=1800

check: all units ## build and run the tests (TESTS='cli/merge unit/json' picks some), install nothing
	@$(RUN_TESTS) LONG='$(LONG)' $(NO_ASLR) tests/run -t $(TEST_TIMEOUT) $(TESTS)

# For a GPU: tests of attention and of what is behind the backend's table, and measurements, linked
# with what nvcc made. Tests say so and pass where there is no device.
GPU_TESTS := cuda_attn_test cuda_backend_test
GPU_BENCH := $(basename $(notdir $(sort $(wildcard bench/gpu_*.c bench/gpu_*.cu))))
GPU_C     := $(CUDA_C) -DPL_GPU
$(addprefix $(BUILD)/gpu/,$(GPU_TESTS) $(GPU_BENCH)): $(BUILD)/gpu/%: $(BUILD)/gpu/%.o \
		$(filter-out $(CORE_OBJ),$(PLUGIN_OBJ)) $(BUILD)/tests/oracle/plain.o $(BUILD)/libcore.a
	$(Q)$(NVCC_FOUND) -o $@ $^ $(CUDA_LINK) $(FOUND_LIBS)
$(BUILD)/gpu/%.o: tests/unit/%.c $(BUILD)/flags | $(BUILD)/config.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(FLAGS) $(GPU_C) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
$(BUILD)/gpu/%.o: tests/unit/%.cpp $(BUILD)/flags | $(BUILD)/config.h
	@mkdir -p $(@D)
	$(Q)$(NVCC_FOUND) $(NVCC_FLAGS) -x cu -c -o $@ $<
$(BUILD)/gpu/%.o: bench/%.c $(BUILD)/flags | $(BUILD)/config.h
	@mkdir -p $(@D)
	$(Q)$(CC) $(FLAGS) $(GPU_C) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
$(BUILD)/gpu/%.o: bench/%.cu $(BUILD)/flags | $(BUILD)/config.h
	@mkdir -p $(@D)
	$(Q)$(NVCC_FOUND) $(NVCC_FLAGS) -c -o $@ $<

gpu: all $(if $(NVCC_FOUND),$(addprefix $(BUILD)/gpu/,$(GPU_TESTS) $(GPU_BENCH))) ## tests and measurements for a GPU, where nvcc is

test-gpu: gpu $(BUILD)/unit/nccl_gpu_test $(BUILD)/gen/devrank ## the tests that need a GPU; where there is none they are skipped, with a word
	@BUILD='$(abspath $(BUILD))' BIN='$(abspath $(BIN))' tests/gpu

gpu-kit: gpu $(BUILD)/unit/nccl_gpu_test $(BUILD)/gen/devrank ## BUILD/gpu-kit.tar.gz: what tests and measurements need on a GPU's machine that cannot build
	@BUILD='$(BUILD)' BIN='$(BIN)' tools/gpu-kit

asan: ## the tests under the address and undefined behaviour sanitizers
	@$(MAKE) --no-print-directory -j$(JOBS) check SAN=address,undefined

tsan: ## the tests under the thread sanitizer
	@$(MAKE) --no-print-directory -j$(JOBS) check SAN=thread

lint: ## format, order of the modules, manual pages, scripts, static analysis, clang
	@$(RUN_TESTS) WITH_LIBDEFLATE='$(WITH_LIBDEFLATE)' WITH_OPENBLAS='$(WITH_OPENBLAS)' WITH_SQLITE='$(WITH_SQLITE)' tests/lint $(CHECKS)

FUZZ_SECONDS ?= 60
fuzz: ## each fuzzer for FUZZ_SECONDS=60, in build-fuzz (needs clang)
	@$(MAKE) --no-print-directory -j$(JOBS) CC=clang BUILD=build-fuzz \
		SAN=fuzzer-no-link,address,undefined $(FUZZ:%=build-fuzz/fuzz/%)
	@for f in $(FUZZ); do c=$${f#fuzz_}; mkdir -p build-fuzz/found/$$c; echo "== $$f"; \
		build-fuzz/fuzz/$$f -max_total_time=$(FUZZ_SECONDS) -malloc_limit_mb=256 -rss_limit_mb=1024 \
			-timeout=10 -print_final_stats=1 -artifact_prefix=build-fuzz/$$c- \
			build-fuzz/found/$$c tests/fuzz/corpus/$$c 2>build-fuzz/$$c.log || \
			{ tail -n 40 build-fuzz/$$c.log; exit 1; }; \
		sed -n 's/^stat::number_of_executed_units: */runs: /p' build-fuzz/$$c.log; done

coverage: ## lines and branches that the tests reach, by file
	@find build-coverage -name "*.gcda" -delete 2>/dev/null || true
	@$(MAKE) --no-print-directory -j$(JOBS) check BUILD=build-coverage CFLAGS='-O0 -g --coverage -Wno-format-truncation'
	@tools/coverage build-coverage

# each script of bench/ prints a table and ends with 1 if a demand was missed; all of them run
BENCH_ENV = BIN='$(abspath $(BIN))' GEN='$(abspath $(BUILD))/gen' HELPERS='$(abspath $(BUILD))/bench' \
	SRC='$(CURDIR)' DATA='$(if $(DATA),$(abspath $(DATA)))'
define measure
@missed=; for b in $(1); do echo "== $$b"; $(BENCH_ENV) "$$b" || missed="$$missed $$b"; echo; done; \
	test -z "$$missed" || { echo "demands missed in:$$missed" >&2; exit 1; }
endef

bench: all helpers ## every measurement under bench/ (DATA=DIR: also those on other people's traces)
	@$(call measure,$$(find bench -maxdepth 1 -type f -perm -100 | sort))

check-data: all helpers ## those of bench/ that measure on the traces in DATA=DIR
	@test -n '$(DATA)' || { echo 'check-data: say where the traces are: make check-data DATA=DIR' >&2; exit 2; }
	@$(call measure,bench/identity bench/stragglers bench/clock bench/pipeline bench/vtrain bench/costmodel)

demo: deps ## install what is missing, build, run the pipeline on the bundled traces
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@BIN='$(abspath $(BIN))' samples/demo

deps: ## install what building and testing need (DEPS=0: only say what is missing)
	@mkdir -p $(BUILD)
	@CC='$(CC)' CPPFLAGS='$(CPPFLAGS)' LDFLAGS='$(LDFLAGS)' DEPS='$(DEPS)' CI='$(CI)' \
		WITH_LIBDEFLATE='$(WITH_LIBDEFLATE)' WITH_SQLITE='$(WITH_SQLITE)' STAMP=$(BUILD)/deps.stamp tools/deps build

# ---- installing --------------------------------------------------------------------------------------------

exec := $(libexecdir)/paceline
bash_completion := $(datadir)/bash-completion/completions/paceline
zsh_completion  := $(datadir)/zsh/site-functions/_paceline

install: all ## into DESTDIR/PREFIX: the front in bin, the programs in libexec/paceline, man, completion
	@$(MAKE) --no-print-directory install-only

install-only: # the same from what is built already
	@$(INSTALL) -d '$(DESTDIR)$(bindir)' '$(DESTDIR)$(exec)' $(patsubst %,'$(DESTDIR)$(mandir)/man%',1 5) \
		'$(DESTDIR)$(dir $(bash_completion))' '$(DESTDIR)$(dir $(zsh_completion))'
	@$(INSTALL) -m 755 $(PROGRAMS:%=$(BIN)/%) '$(DESTDIR)$(exec)'
	@for p in $(wildcard $(BIN)/paceline-cuda.so) $(RECORD_LIBS); do $(INSTALL) -m 644 $$p '$(DESTDIR)$(exec)' || exit; done
	@$(call front,$(exec),'$(DESTDIR)$(bindir)/paceline')
	@for m in $(MAN); do $(INSTALL) -m 644 $$m "$(DESTDIR)$(mandir)/man$${m##*.}" || exit; done
	@tools/completion bash '$(DESTDIR)$(exec)' >'$(DESTDIR)$(bash_completion)'
	@tools/completion zsh '$(DESTDIR)$(exec)' >'$(DESTDIR)$(zsh_completion)'
	@echo "installed $(words $(PROGRAMS)) programs and their front, $(DESTDIR)$(bindir)/paceline"

uninstall: ## remove what install put there
	@rm -f '$(DESTDIR)$(bindir)/paceline' $(PROGRAMS:%='$(DESTDIR)$(exec)/%') \
		'$(DESTDIR)$(exec)/paceline-cuda.so' $(RECORD_LIBS:$(BIN)/%='$(DESTDIR)$(exec)/%') \
		$(foreach m,$(MAN),'$(DESTDIR)$(mandir)/man$(patsubst .%,%,$(suffix $(m)))/$(notdir $(m))') \
		'$(DESTDIR)$(bash_completion)' '$(DESTDIR)$(zsh_completion)'
	@rmdir '$(DESTDIR)$(exec)' 2>/dev/null || true

clean: ## remove every build tree and bin/
	@rm -rf bin build build-*

help: ## this list
	@echo 'paceline $(VERSION)'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

print-%:
	@echo '$* = $($*)'

.PHONY: all cuda units helpers gpu gpu-kit test test-gpu test-long check asan tsan lint fuzz coverage bench check-data demo deps \
	install install-only uninstall clean help
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
