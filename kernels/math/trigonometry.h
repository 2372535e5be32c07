// Circular and hyperbolic functions and their inverses, as elementwise operations of one operand.
// math/unary.h says what the members mean, and lists the operations.
#pragma once

#include "kernels/math/operation.h"

namespace firn::math {

struct Sin : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return sin(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy * cos(x);
  }
};

struct Cos : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return cos(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return -dy * sin(x);
  }
};

struct Tan : UnaryDefaults {
  static constexpr Saves saves = Saves::output;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return tan(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V y, Args) {
    return dy * (V(1) + y * y);
  }
};

struct Asin : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return asin(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy * rsqrt((V(1) - x) * (V(1) + x));
  }
};

struct Acos : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return acos(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return -(dy * rsqrt((V(1) - x) * (V(1) + x)));
  }
};

struct Atan : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return atan(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy / (V(1) + x * x);
  }
};

struct Sinh : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return sinh(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy * cosh(x);
  }
};

struct Cosh : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  static constexpr Autocast autocast = Autocast::fp32;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return cosh(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy * sinh(x);
  }
};

struct Asinh : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return asinh(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy * rsqrt(V(1) + x * x);
  }
};

struct Acosh : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return acosh(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy * rsqrt((x - V(1)) * (x + V(1)));
  }
};

struct Atanh : UnaryDefaults {
  static constexpr Saves saves = Saves::input;
  template <class V>
  FIRN_HD static V f(V x, Args) {
    return atanh(x);
  }
  template <class V>
  FIRN_HD static V df(V dy, V x, Args) {
    return dy / ((V(1) - x) * (V(1) + x));
  }
};

}  // namespace firn::math
