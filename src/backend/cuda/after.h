/* after.h - kernels that are on the card before what is before them is over.
 *
 * To begin a kernel takes about as long as a small one runs.  One that waits by
 * itself for what the stream has before it, and only then touches memory, may
 * begin meanwhile.  Such kernels begin with nb_after();, and their text has
 * NB_CARD_AFTER before them: a text of which all do so is launched early.
 * Others, kernels of users' own among them, and all on cards before compute
 * capability 9.0, begin when what is before them is over. */
#ifndef NB_CUDA_AFTER_H
#define NB_CUDA_AFTER_H

#define NB_CARD_AFTER                                                      \
    "#if __CUDA_ARCH__ >= 900\n"                                           \
    "#define nb_after() asm volatile(\"griddepcontrol.launch_dependents; " \
    "griddepcontrol.wait;\" ::: \"memory\")\n"                             \
    "#else\n"                                                              \
    "#define nb_after() (void)0\n"                                         \
    "#endif\n"

#endif
