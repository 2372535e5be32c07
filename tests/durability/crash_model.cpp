#include "durability/crash_model.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace firn::testing {
namespace {

constexpr std::size_t kSector = 512;

void write_into(std::string& bytes, std::size_t offset, const std::string& data) {
  bytes.resize(std::max(bytes.size(), offset + data.size()), '\0');
  bytes.replace(offset, data.size(), data);
}

/// Length and bytes of each file, so that different states have different texts.
std::string text_of(const Snapshot& files) {
  std::string out;
  for (const auto& [name, bytes] : files)
    out += name + '\0' + std::to_string(bytes.size()) + '\0' + bytes;
  return out;
}

}  // namespace

std::string CrashModel::File::live() const {
  std::string out = flushed;
  for (const Change& change : pending) {
    if (change.cuts) {
      out.resize(change.offset, '\0');
    } else {
      write_into(out, change.offset, change.data);
    }
  }
  return out;
}

void CrashModel::Naming::apply(Names& names) const {
  if (!removed.empty()) names.erase(removed);
  if (!added.empty()) names[added] = file;
}

CrashModel::CrashModel(const Snapshot& files, std::uint64_t seed, const CrashSamples& samples)
    : rng_(seed), samples_(samples) {
  for (const auto& [name, bytes] : files) {
    names_[name] = files_.size();
    files_.push_back({bytes, {}});
  }
  flushed_names_ = names_;
}

void CrashModel::rename(Naming naming) {
  naming.apply(names_);
  pending_.push_back(std::move(naming));
}

void CrashModel::apply(const Call& call) {
  if (!call.is_done()) return;
  const auto found = names_.find(call.path);
  const bool known = found != names_.end();
  const auto at = static_cast<std::size_t>(call.offset);
  if (call.creates() && !known) {
    files_.emplace_back();
    rename({"", call.path, files_.size() - 1});
  } else if (call.name == "fsync" && call.path.empty()) {
    flushed_names_ = names_;
    pending_.clear();
  } else if (!known) {
    return;
  } else if (call.name == "open" && (call.flags & O_TRUNC) != 0) {
    files_[found->second].pending.push_back({0, "", true});
  } else if (call.name == "ftruncate") {
    files_[found->second].pending.push_back({at, "", true});
  } else if (call.name == "write") {
    files_[found->second].pending.push_back(
        {at, call.data.substr(0, static_cast<std::size_t>(call.result)), false});
  } else if (call.name == "fsync") {
    File& file = files_[found->second];
    file = {file.live(), {}};
  } else if (call.name == "rename") {
    rename({call.path, call.target, found->second});
  } else if (call.name == "unlink") {
    rename({call.path, "", 0});
  }
}

Snapshot CrashModel::live() const {
  Snapshot out;
  for (const auto& [name, file] : names_) out[name] = files_[file].live();
  return out;
}

std::vector<CrashModel::Names> CrashModel::folders() {
  std::vector<Names> out;
  const auto add = [&](std::uint64_t happened) {
    Names names = flushed_names_;
    for (std::size_t i = 0; i < pending_.size(); ++i)
      if ((happened >> (i % 64) & 1) != 0) pending_[i].apply(names);
    if (std::find(out.begin(), out.end(), names) == out.end()) out.push_back(std::move(names));
  };
  add(0);
  add(~std::uint64_t{0});
  if (pending_.size() < 60 && std::uint64_t{1} << pending_.size() <= samples_.folders) {
    for (std::uint64_t set = 0; set >> pending_.size() == 0; ++set) add(set);
  } else {
    for (std::size_t i = 0; i < samples_.folders; ++i) add(rng_.next());
  }
  return out;
}

std::vector<std::string> CrashModel::contents(const File& file) {
  if (file.pending.empty()) return {file.flushed};
  const std::string full = file.live();
  const bool was_cut =
      std::any_of(file.pending.begin(), file.pending.end(), [](const Change& c) { return c.cuts; });
  // A length that was cut may have arrived without the bytes.
  std::vector<std::string> bases = {file.flushed};
  if (was_cut) bases.emplace_back();
  std::set<std::string> out;
  for (const std::string& base : bases) {
    const std::size_t low = std::min(base.size(), full.size());
    const std::size_t high = std::max(base.size(), full.size());
    enum class Sector : std::uint8_t { lost, arrived, zero, garbage };
    const auto add = [&](std::size_t length, const std::function<Sector(std::size_t)>& of) {
      std::string bytes = base, arrived = full;
      bytes.resize(high, '\0');
      arrived.resize(high, '\0');
      for (std::size_t from = 0; from < high; from += kSector) {
        const std::size_t n = std::min(kSector, high - from);
        const Sector sector = of(from / kSector);
        if (sector == Sector::arrived) bytes.replace(from, n, arrived, from, n);
        if (sector != Sector::zero && sector != Sector::garbage) continue;
        for (std::size_t i = from; i < from + n; ++i) {
          if (i < base.size() && base[i] == arrived[i]) continue;  // no write changes it
          bytes[i] = sector == Sector::zero ? '\0' : static_cast<char>(rng_.next());
        }
      }
      bytes.resize(length);
      out.insert(std::move(bytes));
    };
    const auto all = [](Sector sector) { return [sector](std::size_t) { return sector; }; };
    add(base.size(), all(Sector::lost));
    add(high, all(Sector::lost));
    add(full.size(), all(Sector::arrived));
    add(full.size(), all(Sector::zero));
    add(full.size(), all(Sector::garbage));
    for (std::size_t i = 1; i <= samples_.cuts; ++i) {
      const std::size_t cut = low + (high - low) * i / (samples_.cuts + 1);
      const std::size_t last = full.size() * i / (samples_.cuts + 1) / kSector;
      add(cut, all(Sector::arrived));
      add(full.size(), [=](std::size_t s) { return s <= last ? Sector::arrived : Sector::zero; });
    }
    for (std::size_t i = 0; i < samples_.random; ++i) {
      const auto length =
          low + static_cast<std::size_t>(rng_.below(static_cast<std::int64_t>(high - low) + 1));
      add(i % 2 == 0 ? full.size() : length,
          [&](std::size_t) { return static_cast<Sector>(rng_.below(4)); });
    }
  }
  return {out.begin(), out.end()};
}

std::vector<Snapshot> CrashModel::states() {
  std::map<std::size_t, std::vector<std::string>> choices;
  std::vector<Snapshot> out;
  for (const Names& names : folders()) {
    std::size_t most = 1;
    for (const auto& [name, file] : names) {
      if (!choices.contains(file)) choices[file] = contents(files_[file]);
      most = std::max(most, choices[file].size());
    }
    // Each content of each file, beside different ones of the others.
    for (std::size_t i = 0; i < most; ++i) {
      Snapshot state;
      std::size_t step = 0;
      for (const auto& [name, file] : names) {
        const auto& choice = choices[file];
        state[name] = choice[(i + step++ * (i / 2)) % choice.size()];
      }
      out.push_back(std::move(state));
    }
  }
  return out;
}

std::size_t for_each_crash(const Snapshot& before, const std::vector<Call>& calls,
                           const CrashSamples& samples, const CrashCheck& check) {
  CrashModel model(before, 17, samples);
  std::set<std::string> seen;
  std::size_t count = 0;
  const auto crash = [&](bool returned, const std::string& where) {
    for (const Snapshot& state : model.states()) {
      if (!seen.insert((returned ? "1" : "0") + text_of(state)).second) continue;
      ++count;
      check(state, returned, where);
    }
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string where = "before call " + std::to_string(i) + ", " + to_string(calls[i]);
    crash(false, where);
    model.apply(calls[i]);
  }
  crash(false, "before the save returned");
  crash(true, "after the save returned");
  return count;
}

}  // namespace firn::testing
