// One number could be a size or a factor.
// at most 14 lines
// says: {h, w}, or nn::Upsample(2)
#include <firn/firn.h>

using namespace firn;

int main() { upsample2d(zeros({1, 1, 4, 4}), 2); }
