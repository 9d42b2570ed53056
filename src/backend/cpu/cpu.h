/* cpu.h - the processor that code is made for: the one this process runs on,
 * or what the environment variable NABLA_CPU asks for.
 *
 * NABLA_CPU is NAME or NAME:FEATURES, where NAME is native or, on x86-64, one
 * of the levels x86-64, x86-64-v2, -v3 and -v4, and FEATURES are as LLVM spells
 * them: "native:-avx512f".  It is read once.  All this is known without LLVM,
 * so that code can be looked up in a cache without opening it. */
#ifndef NB_CPU_CPU_H
#define NB_CPU_CPU_H

#include <stdbool.h>

typedef struct nb_cpu {
    int vector_bytes; /* of the widest vectors: 64, 32 or 16 */
    bool masks;       /* loads and stores of some lanes: AVX-512 F VL BW DQ */
    bool fma, f16c, bf16; /* instructions, of vectors too */
    const char *name;     /* NAME; "native" has to be asked of LLVM */
    const char *features; /* FEATURES, "" if there are none */
    const char *id;       /* all that code for it depends on, as a key */
    const char *trouble;  /* why there can be no code for it, else NULL */
} nb_cpu;

const nb_cpu *nb_cpu_target(void);

#endif
