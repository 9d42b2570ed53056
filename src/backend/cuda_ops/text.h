/* text.h - CUDA C that stands in files of its own.
 *
 * A .cu file is one NB_CUDA(...), included where a string is expected; what a
 * source needs to have defined is written before it. */
#ifndef NB_CUDA_OPS_TEXT_H
#define NB_CUDA_OPS_TEXT_H

#define NB_CUDA(...) #__VA_ARGS__

#endif
