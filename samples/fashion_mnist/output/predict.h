// --predict: one image, its predicted class, and the probabilities.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "firn/nn/module.h"
#include "options.h"

namespace sample {

struct Picture {
  std::vector<std::uint8_t> pixels;  ///< 28 x 28, row-major
  std::string name;                  ///< as given on the command line
};

/// The image that "FILE:INDEX" names: FILE is an IDX file of images 28 x 28. Throws IoError if
/// it is not, or has no such image.
Picture read_picture(const std::string& file_and_index);

/// Draws the image on stdout, with the predicted class and the probability of every class.
void predict(firn::nn::Module& model, const Picture& picture, const Options& options,
             firn::Device device);

}  // namespace sample
