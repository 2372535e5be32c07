// Finds a module wherever it was moved, and puts back its settings after a plan.
#include <cstddef>
#include <memory>
#include <utility>

#include "base/check.h"
#include "firn/nn/call.h"
#include "firn/nn/module.h"
#include "firn/runtime/kernel_support.h"

namespace firn::nn {

struct detail::ModuleLink::Place {
  ModuleLink* link;          ///< null if the module is gone
  std::ptrdiff_t in_module;  ///< bytes from the module to its link
};

void detail::ModuleLink::take(ModuleLink& from) noexcept {
  place_ = std::move(from.place_);
  if (place_) place_->link = this;
}
void detail::ModuleLink::cut() noexcept {
  if (place_) place_->link = nullptr;
  place_.reset();
}
detail::ModuleLink& detail::ModuleLink::operator=(const ModuleLink& from) noexcept {
  if (this != &from) cut();
  return *this;
}
detail::ModuleLink& detail::ModuleLink::operator=(ModuleLink&& from) noexcept {
  if (this == &from) return *this;
  cut();
  take(from);
  return *this;
}

std::shared_ptr<const detail::ModuleLink::Place> detail::ModuleLink::place(Module& m) {
  if (!place_)
    place_ = std::make_shared<Place>(
        Place{this, reinterpret_cast<char*>(this) - reinterpret_cast<char*>(&m)});
  return place_;
}

Module* detail::ModuleLink::find(const Place& place) noexcept {
  if (!place.link) return nullptr;
  return reinterpret_cast<Module*>(reinterpret_cast<char*>(place.link) - place.in_module);
}

Module& detail::ModuleLink::at(const Place& place) {
  Module* const m = find(place);
  FIRN_CHECK(m, "checkpoint", "keep the module until the backward pass",
             "a module whose activations are to be computed again was destroyed or assigned to");
  return *m;
}

void Module::about_to_set() {
  if (!runtime::planning()) [[likely]]
    return;
  const auto place = link_.place(*this);
  // A copy of a HookList is empty, so the present hooks come back by a move.
  const auto hooks = std::make_shared<detail::HookList>(hooks_.again());
  runtime::at_dry_end(place.get(), [place, hooks, training = training_, autocast = autocast_,
                                    checkpoint = checkpoint_] {
    Module* const m = detail::ModuleLink::find(*place);
    if (!m) return;
    m->training_ = training;
    m->autocast_ = autocast;
    m->checkpoint_ = checkpoint;
    m->hooks_ = std::move(*hooks);
  });
}

}  // namespace firn::nn
