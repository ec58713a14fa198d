// What is made of the centres before rows meet them: their image for products, and the bounds of these.
#pragma once

namespace nearest {

// The centres as factors of products, and what scores are made of, for rows of a type.
template <class R> struct FactorsFor {
    const unsigned char* image;     // steps of 16 columns each, as tensor.h has them
    const R* means;                 // the centres' mean, times `scale`
    const float* squares;           // |c - m|^2; infinite for those that only fill the image up
    const float* factors;           // of the products: -2, and the powers of two taken out again
    float scale, limit;             // what rows are multiplied by; rows fit float16 if |x - m|^2 is less then
    float share, floor;             // of |x - m| times `scale`, and apart from it, how far scores may be out of order
};
typedef FactorsFor<float> Factors;

// A column's mean over the centres; 0 where that is not finite.
template <int K, int D, class R, class C> __device__ __forceinline__ R mean_of(const C* centres, int column)
{
    R sum = 0;
    #pragma unroll 8
    for (int k = 0; k < K; k++) sum += (R)centres[k * D + column];
    sum /= K;
    return sum - sum == 0 ? sum : 0;
}

template <class T> __device__ __forceinline__ T over_warp(T value)
{
    for (int offset = 16; offset; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
    return value;
}
__device__ __forceinline__ float largest_of_warp(float value)
{
    for (int offset = 16; offset; offset /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
    return value;
}

// What is known of the centres beside the image: N of each.
enum Numbers { SQUARE, LACK, TOP, POWER, NUMBERS };

// Where numbers of the image lie that tensor.h multiplies with rows of a type.
template <int N, class R> struct AsMultiplied {
    static __device__ __forceinline__ int of(int n, int c) { return tensor::place_of<N, 16 / sizeof(R)>(n, c); }
};

// A centre's part of the image, of so many steps from the first on, and its numbers, by a warp: |c - m|^2, infinite if
// it is not finite; the norm of what the image lacks; its largest number; the power of two that brings this to 2^14 in
// the image, where small ones are then as exact as large ones.
template <int N, int K, int D, class Place, class R, class C>
__device__ void factorise(unsigned short* image, float* numbers, const R* means, const C* centres, int n, int first,
                          int steps)
{
    constexpr int COLUMNS = (D + 15) / 16 * 16;
    const int lane = threadIdx.x % 32;
    auto from_mean = [&](int column) {
        return n < K && column < D ? (double)centres[(long long)n * D + column] - means[column] : 0.0;
    };
    float top = 0;
    for (int column = lane; column < COLUMNS; column += 32) top = fmaxf(top, fabsf((float)from_mean(column)));
    top = largest_of_warp(top);
    const float power = top > 1e-30f && top < 1e30f ? ldexpf(1.0f, min(68, 14 - ilogbf(top))) : 1.0f;
    double square = 0, lack = 0;
    for (int column = lane; column < COLUMNS; column += 32) {
        const double value = from_mean(column);
        const unsigned pair = tensor::pack((float)value * power, 0.0f);
        const double missing = value * power - tensor::first_of(pair);
        square += value * value;
        lack += missing * missing;
        const int step = column / 16 - first;
        if (step >= 0 && step < steps) image[step * N * 16 + Place::of(n, column % 16)] = (unsigned short)pair;
    }
    square = over_warp(square);
    lack = over_warp(lack);
    if (lane == 0) {
        numbers[SQUARE * N + n] = n < K && square < 1e30 ? (float)square : far_away();
        numbers[LACK * N + n] = (float)(sqrt(lack) / power);
        numbers[TOP * N + n] = top;
        numbers[POWER * N + n] = power;
    }
}

// What the centres' greatest numbers say of rows and bounds. A score is off by twice |x - m| times: what the image
// lacks; |c - m| times what rounding a row, its two parts and the score leaves, and 2^-20 with what tensor cores cut
// off for each of PRODUCTS of 16 numbers that are added up, CHAIN times; and with one in place of two, 2^-11 for what
// a row's other part would have been. Two scores are off by twice that. Apart from |x - m|, their squares are, and rows
// by 2^-25 a number, where float16 is no finer. A row of doubles is rounded twice, to double by 2^-53 of it and then to
// float; that, and what the bound itself is rounded by, is why 4.004 stands where 4 would.
template <int D, int CHAIN, int PRODUCTS, class R>
__device__ __forceinline__ void set_bounds(FactorsFor<R>& factors, float square, float lack, float top)
{
    // Beyond these, and with a centre that is not finite, all rows are computed exactly.
    const bool usable = square > 1e-30f && square < 1e30f;
    const float far = sqrtf(square), part = PRODUCTS == 1 ? 0x1p-11f : 0.0f;
    const float rounding = 0x1.8p-22f + PRODUCTS * CHAIN * 0x1p-20f + part;
    factors.scale = usable ? ldexpf(1.0f, -ilogbf(top)) : 1.0f;
    factors.limit = usable ? 4.2e9f : 0.0f;
    factors.share = 4.004f * (lack + far * rounding) / factors.scale;
    factors.floor = square * 0x1p-22f + 4.004f * far * sqrtf((float)D) * 0x1p-25f / factors.scale;
}

}  // namespace nearest
