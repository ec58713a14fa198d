// In the style of Rodinia's lavaMD: particles in boxes, each of which acts on those of its own box and of the boxes
// around. All habitual includes, macros for types, structures by value, nested ones behind an address.
#include <stdio.h>
#include <stdlib.h>
#include <stdbool.h>
#include <math.h>
#include <time.h>
#include <sys/time.h>
#include <unistd.h>
#include <iostream>
#include <algorithm>
#include <vector>
#if CUDART_VERSION < 5000
#error too old
#endif
#define fp double
#define PER_BOX 8
#define DOT(A, B) ((A.x) * (B.x) + (A.y) * (B.y) + (A.z) * (B.z))
using namespace std;

typedef struct { fp x, y, z; } THREE_VECTOR;
typedef struct { fp v, x, y, z; } FOUR_VECTOR;
typedef struct nei_str { int x, y, z; int number; long offset; } nei_str;
typedef struct box_str { int x, y, z; int number; long offset; int nn; nei_str nei[26]; } box_str;
typedef struct par_str { fp alpha; } par_str;
typedef struct dim_str {
    int boxes1d_arg;
    long number_boxes;
    long space_elem;
    size_t space_mem;
} dim_str;

__device__ fp weight(const par_str& par, const FOUR_VECTOR& a, const FOUR_VECTOR& b)
{ return exp(-2.0 * par.alpha * par.alpha * (a.v + b.v - DOT(a, b))); }

__global__ void forces(par_str par, dim_str dim, const box_str* boxes, const FOUR_VECTOR* rv, const fp* qv,
                       FOUR_VECTOR* fv)
{
    __shared__ FOUR_VECTOR others[PER_BOX];
    __shared__ fp charges[PER_BOX];
    const int box = blockIdx.x, me = threadIdx.x;
    if (box >= dim.number_boxes) return;
    const box_str& home = boxes[box];
    const FOUR_VECTOR own = rv[home.offset + me];
    FOUR_VECTOR sum = {0, 0, 0, 0};
    for (int k = 0; k < 1 + home.nn; k++) {
        const long first = k == 0 ? home.offset : home.nei[k - 1].offset;
        others[me] = rv[first + me];
        charges[me] = qv[first + me];
        __syncthreads();
        for (int j = 0; j < min(PER_BOX, (int)dim.space_elem); j++) {
            const fp w = charges[j] * weight(par, own, others[j]);
            const THREE_VECTOR d = {own.x - others[j].x, own.y - others[j].y, own.z - others[j].z};
            sum.v += w;
            sum.x += w * d.x;
            sum.y += w * d.y;
            sum.z += w * d.z;
        }
        __syncthreads();
    }
    fv[home.offset + me] = sum;
}
