/* nabla/nabla.h - all of Nabla for C.
 *
 * Chapters: nabla/base.h errors and threads, nabla/dtype.h element types,
 * nabla/tensor.h tensors and scopes, nabla/ops.h operations of a common form and
 * then, by family, nabla/view.h, nabla/reduce.h, nabla/contract.h,
 * nabla/index.h, nabla/conv.h, nabla/linalg.h, nabla/random.h; nabla/op.h
 * operations as data; nabla/graph.h recorded programs; nabla/transform.h
 * derivatives and maps of functions; nabla/control.h loops and branches;
 * nabla/device.h where tensors are; nabla/shard.h many devices, nabla/collective.h what they say to each other,
 * nabla/explain.h why they do, nabla/distributed.h many processes;
 * nabla/io.h files; nabla/debug.h checks and times.  A first program:
 *
 *     #include <nabla/nabla.h>
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         nb_scope_open();
 *         float data[] = {1, 2, 3, 4};
 *         nb_tensor *x = nb_constant(NB_F32, 1, (int64_t[]){4}, data);
 *         nb_tensor *y = nb_tanh(nb_mul(x, nb_num(0.5)));
 *         char *text = nb_tensor_text(y);
 *         puts(text ? text : nb_error_message());
 *         nb_text_release(text);
 *         nb_scope_close(0, NULL);
 *     }
 */
#ifndef NABLA_NABLA_H
#define NABLA_NABLA_H

#include "nabla/autoshard.h"
#include "nabla/base.h"
#include "nabla/collective.h"
#include "nabla/compile.h"
#include "nabla/contract.h"
#include "nabla/control.h"
#include "nabla/conv.h"
#include "nabla/custom.h"
#include "nabla/debug.h"
#include "nabla/device.h"
#include "nabla/distributed.h"
#include "nabla/dtype.h"
#include "nabla/explain.h"
#include "nabla/graph.h"
#include "nabla/index.h"
#include "nabla/io.h"
#include "nabla/linalg.h"
#include "nabla/op.h"
#include "nabla/ops.h"
#include "nabla/random.h"
#include "nabla/reduce.h"
#include "nabla/reshard.h"
#include "nabla/rule.h"
#include "nabla/schedule.h"
#include "nabla/shard.h"
#include "nabla/tensor.h"
#include "nabla/transform.h"
#include "nabla/view.h"

#endif
