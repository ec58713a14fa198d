// The sums of rows by their nearest centre by a pair of thread blocks, against those by distances in double.
#include "vispark/nearest.h"

#include <random>

using namespace nearest;

// Rows that lie at a centre, near one, as far from two or three of them, or anywhere.
template <int K, int D, class C> std::vector<float> rows_of(int rows, const std::vector<C>& centres, unsigned seed)
{
    std::mt19937 dice(seed);
    std::normal_distribution<float> normal;
    std::vector<float> points((size_t)rows * D);
    for (int row = 0; row < rows; row++) {
        const int kind = dice() % 5, amid = kind < 2 ? 1 : kind;
        const C* some[4];
        for (int i = 0; i < 4; i++) some[i] = &centres[dice() % K * D];
        for (int d = 0; d < D; d++) {
            double sum = 0;
            for (int i = 0; i < amid; i++) sum += some[i][d] / amid;
            points[(size_t)row * D + d] = (float)(kind == 4 ? normal(dice) : sum + (kind ? 1e-4 : 0) * normal(dice));
        }
    }
    return points;
}

template <int K, int D, int SLOTS, class C> void check(int rows, unsigned seed)
{
    typedef Pair<(K + 7) / 8 * 8, K, D, SLOTS, FIRST, C> Way;
    std::mt19937 dice(seed);
    std::normal_distribution<float> normal;
    std::vector<C> centres(K * D);
    for (C& number : centres) number = (C)normal(dice);
    std::copy_n(centres.begin(), D, centres.end() - D);     // the last is the first
    const std::vector<float> points = rows_of<K, D>(rows, centres, seed + 1);
    std::vector<float> x(points.size() + 16);
    float* const aligned = (float*)(((size_t)x.data() + 15) / 16 * 16);
    std::copy(points.begin(), points.end(), aligned);
    std::vector<double> wanted(K * D), runs[2];
    std::vector<int> many(K);
    for (int row = 0; row < rows; row++) {
        double least = INFINITY;
        int nearest = 0;
        for (int k = 0; k < K; k++) {
            double distance = 0;
            for (int d = 0; d < D; d++) {
                const double difference = (double)points[(size_t)row * D + d] - (double)centres[k * D + d];
                distance += difference * difference;
            }
            if (distance < least) {
                least = distance;
                nearest = k;
            }
        }
        many[nearest]++;
        for (int d = 0; d < D; d++) wanted[nearest * D + d] += points[(size_t)row * D + d];
    }
    for (std::vector<double>& sums : runs) {
        sums.assign(K * D, NAN);
        machine::launch(2, Way::THREADS, sizeof(typename Way::SharedStorage), [&] {
            typename Way::SharedStorage& storage = *(typename Way::SharedStorage*)machine::block().shared;
            if (!Way::fold(aligned, rows, storage, centres.data(), sums.data())) return;
            for (int k = threadIdx.x; k < K; k += Way::FIRST_MULTIPLIER * 32)
                if (storage.counts[k] != many[k]) machine::fail("a count");
        });
        for (int i = 0; i < K * D; i++)
            if (!(fabs(sums[i] - wanted[i]) <= 1e-5 * (1 + many[i / D]))) machine::fail("a sum");
    }
    if (runs[0] != runs[1]) machine::fail("sums that depend on the order");
}

int main(int, char** arguments)
{
    const unsigned seed = (unsigned)atoi(arguments[1]);
    machine::state += 7919ull * seed;
    for (int rows : {0, 1, 17}) check<80, 208, 4, float>(rows, seed);
    check<57, 180, 4, double>(120, seed);
    check<41, 132, 5, float>(900, seed);        // an epoch and some of the next
    puts("right");
}
