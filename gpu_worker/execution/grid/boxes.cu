// Copies boxes of cells between places in memory, many at a time. A box that repeats one element has strides of 0, and
// its element repeated over 16 bytes.
struct Copy {
    const char* source;
    char* target;
    long long from_z, from_y, to_z, to_y;      // in bytes
    int from_x, to_x;                           // in units
    int nx, ny;                                 // of a row, in units; rows of a plane
    int unit, rows;                             // bytes
};
struct Work { int copy, first, rows, reserved; };

template <typename T>
__device__ void copy_rows(const Copy& copy, int first, int rows)
{
    const unsigned nx = copy.nx, count = rows * nx;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
        const unsigned row = i / nx, x = i - row * nx, at = first + row, z = at / copy.ny, y = at - z * copy.ny;
        const T* source = (const T*)(copy.source + z * copy.from_z + y * copy.from_y);
        T* target = (T*)(copy.target + z * copy.to_z + y * copy.to_y);
        target[(long long)x * copy.to_x] = source[(long long)(int)x * copy.from_x];
    }
}

extern "C" __global__ void copy_boxes(const Copy* __restrict__ copies, const Work* __restrict__ works)
{
    const Work work = works[blockIdx.x];
    const Copy copy = copies[work.copy];
    switch (copy.unit) {
        case 16: copy_rows<uint4>(copy, work.first, work.rows); break;
        case 8: copy_rows<unsigned long long>(copy, work.first, work.rows); break;
        case 4: copy_rows<unsigned int>(copy, work.first, work.rows); break;
        case 2: copy_rows<unsigned short>(copy, work.first, work.rows); break;
        default: copy_rows<unsigned char>(copy, work.first, work.rows);
    }
}
