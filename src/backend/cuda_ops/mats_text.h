/* mats_text.h - the texts of linear algebra's kernels, by file. */
static const char mats_text[] =
#include "backend/cuda_ops/mats.cu"
    ;
static const char jacobi_text[] =
#include "backend/cuda_ops/jacobi.cu"
    ;
static const char mats_move_text[] =
#include "backend/cuda_ops/mats_move.cu"
    ;
static const char mats_multiply_text[] =
#include "backend/cuda_ops/mats_multiply.cu"
    ;
static const char cholesky_text[] =
#include "backend/cuda_ops/cholesky.cu"
    ;
static const char triangle_text[] =
#include "backend/cuda_ops/triangle.cu"
    ;
static const char lu_text[] =
#include "backend/cuda_ops/lu.cu"
    ;
static const char qr_text[] =
#include "backend/cuda_ops/qr.cu"
    ;
static const char jacobi_begin_text[] =
#include "backend/cuda_ops/jacobi_begin.cu"
    ;
static const char eigh_text[] =
#include "backend/cuda_ops/eigh.cu"
    ;
static const char svd_text[] =
#include "backend/cuda_ops/svd.cu"
    ;
static const char svd_weigh_text[] =
#include "backend/cuda_ops/svd_weigh.cu"
    ;
