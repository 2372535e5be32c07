// FashionMNIST: 60,000 training and 10,000 test images of clothes, 28x28 grey, in ten classes
// (Xiao, Rasul & Vollgraf 2017).
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "firn/data/images.h"

namespace firn::data {

/// Images are u8 [n, 28, 28], labels u8 [n] in [0, kClasses).
struct FashionMnist {
  /// 60,000 images and their labels.
  LabelledImages train;
  /// 10,000 images and their labels.
  LabelledImages test;
  std::string folder;  ///< where the files were found

  static constexpr int kClasses = 10;  ///< the number of classes
  /// Names of the labels 0 to 9.
  static constexpr std::array<std::string_view, kClasses> kClassNames = {
      "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
      "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
};

/// Loads the four IDX files, `{train,t10k}-{images-idx3,labels-idx1}-ubyte`, each plain or as
/// `.gz`, from the first folder that holds any of them:
///   1. `folder`, and no other if it is given;
///   2. $FIRN_DATA, or fashion-mnist below it;
///   3. data/fashion-mnist below the current folder;
///   4. /usr/share/datasets/fashion-mnist (Debian's and Ubuntu's package dataset-fashion-mnist).
/// Throws IoError if no folder does; the error lists every place that was searched. Also throws
/// IoError if a file is missing, damaged or of another shape or dtype. So it does if a label is not
/// a class, or if the numbers of images and labels differ.
FashionMnist load_fashion_mnist(const std::string& folder = {});

}  // namespace firn::data
