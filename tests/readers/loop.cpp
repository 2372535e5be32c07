// Files that are changed at random: every reader returns or throws Error, and takes no more memory
// than the file has. FIRN_FUZZ_SEED chooses other changes, FIRN_FUZZ_CALLS their number.
#include <cstdlib>
#include <set>
#include <string>

#include "firn/firn.h"
#include "readers/readers.h"
#include "support/catch.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using firn::testing::Rng;

namespace {

/// One to four changes: a bit, a byte, a piece removed, repeated or replaced by a token.
Bytes mutated(Bytes bytes, const std::vector<std::string>& tokens, Rng& rng) {
  const auto place = [&](std::size_t end) {
    return static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(end) + 1));
  };
  for (std::int64_t changes = 1 + rng.below(4); changes > 0; --changes) {
    const std::size_t at = place(bytes.size()),
                      n = place(std::min<std::size_t>(bytes.size() - at, 12));
    switch (rng.below(6)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << rng.below(8));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(rng.below(256));
        break;
      case 2:
        bytes.erase(at, n);
        break;
      case 3:
        bytes.insert(place(bytes.size()), bytes.substr(at, n));
        break;
      case 4:
        bytes.replace(at, n, tokens[place(tokens.size() - 1)]);
        break;
      default:
        if (rng.below(4) == 0) bytes.resize(at);
    }
  }
  return bytes;
}

std::int64_t setting(const char* name, std::int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

}  // namespace

TEST_CASE("readers: a file that ends early is refused, wherever it ends", "[host]") {
  const std::set<std::string> lists = {"csv", "tokens", "records", "tiktoken"};  // which may be shorter
  for (const Reader& reader : readers()) {
    if (lists.contains(reader.name)) continue;
    const TempFolder folder;
    for (const Bytes& good : reader.good) {
      const std::size_t end = good.find_last_not_of("\r\n ") + 1;
      for (std::size_t n = 0; n < end; ++n) {
        INFO(reader.name << ": the first " << n << " of " << good.size() << " bytes");
        CHECK_THROWS_AS(reader.read(folder, good.substr(0, n)), Error);
      }
    }
  }
}

TEST_CASE("readers: files that are changed at random are read or refused", "[host]") {
  const auto seed = static_cast<std::uint64_t>(setting("FIRN_FUZZ_SEED", 1));
  const std::int64_t calls = setting("FIRN_FUZZ_CALLS", 2000);  // 20,000 in all
  for (const Reader& reader : readers()) {
    const TempFolder folder;
    const std::size_t idle = memory_stats(Device::cpu()).total.current;
    for (const Bytes& bytes : reader.good) {
      INFO(reader.name);
      CHECK_NOTHROW(reader.read(folder, bytes));
    }
    Rng rng(seed);
    std::int64_t returned = 0;
    for (std::int64_t i = 0; i < calls; ++i) {
      const Bytes& good = reader.good[static_cast<std::size_t>(i) % reader.good.size()];
      const Bytes bytes = mutated(good, reader.tokens, rng);
      reset_peak_memory(Device::cpu());
      std::string wrong;
      try {
        reader.read(folder, bytes);
        ++returned;
        if (reader.verified && bytes != good) wrong = "a change was not found";
      } catch (const Error&) {
      } catch (const std::exception& e) {
        wrong = e.what();
      }
      const auto stats = memory_stats(Device::cpu()).total;
      if (!wrong.empty() || stats.current != idle ||
          stats.peak > idle + bytes.size() + reader.allowance) {
        INFO(reader.name << ", seed " << seed << ", file " << i << ": " << wrong << "; peak "
                         << stats.peak - idle << " of " << bytes.size());
        REQUIRE(false);
      }
    }
    INFO(reader.name << ": " << returned << " of " << calls << " were read");
    CHECK(returned < calls / 2 + calls / 4);
    if (!reader.verified) CHECK(returned >= calls / 200);
  }
}
