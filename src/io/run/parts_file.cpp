#include "io/run/parts_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "firn/ops/ops.h"
#include "firn/runtime/spans.h"
#include "io/file/atomic_file.h"
#include "io/file/crc32.h"
#include "io/file/file_part.h"
#include "io/safetensors_layout.h"

namespace firn::io {
namespace {

/// Largest number of elements (8 MiB) that are sent, or copied from a device, at once.
constexpr std::int64_t kPiece = std::int64_t{1} << 20;

/// An entry with shards, and the position of its bytes in the file.
struct Sharded {
  const RunEntry* entry;
  std::uint64_t offset;

  DType dtype() const { return entry->tensor.dtype(); }
  std::int64_t begin(int r) const { return entry->parts.bounds[static_cast<std::size_t>(r)]; }
  std::int64_t size(int r) const { return begin(r + 1) - begin(r); }
  std::uint64_t byte_of(std::int64_t element) const {
    return offset + static_cast<std::uint64_t>(element) * size_of(dtype());
  }
};

Tensor piece_of(const Tensor& flat, std::int64_t first, std::int64_t count) {
  return flat.as_strided({count}, {1}, first);
}

/// Calls fn(first, count) for the pieces of n elements.
template <class Fn>
void each_piece(std::int64_t n, const Fn& fn) {
  for (std::int64_t first = 0; first < n; first += kPiece) fn(first, std::min(kPiece, n - first));
}

/// Returns rank 0's text on every rank.
std::string text_of_first(const char* op, const std::string& mine, const autograd::Peers& peers) {
  Tensor length, text;
  autograd::on_every_rank(op, &peers, [&] {
    length = tensor<std::int64_t>({static_cast<std::int64_t>(mine.size())}, {1}, Device::cpu());
  });
  peers.broadcast(length, 0);
  std::string out;
  autograd::on_every_rank(op, &peers, [&] {
    text = zeros({*length.view().as<std::int64_t>()}, u8, Device::cpu());
    out.resize(text.bytes());
  });
  if (peers.rank() == 0) std::memcpy(text.mutable_view().data, mine.data(), mine.size());
  peers.broadcast(text, 0);
  std::memcpy(out.data(), text.view().data, text.bytes());
  return out;
}

/// Returns the numbers of all ranks, in the order of the ranks.
std::vector<std::int64_t> gather(const char* op, std::span<const std::int64_t> mine,
                                 const autograd::Peers& peers) {
  const auto n = static_cast<std::int64_t>(mine.size());
  Tensor own, all;
  std::vector<std::int64_t> out;
  autograd::on_every_rank(op, &peers, [&] {
    own = tensor(std::vector<std::int64_t>(mine.begin(), mine.end()), {n}, Device::cpu());
    all = empty({peers.size() * n}, i64, Device::cpu());
    out.resize(static_cast<std::size_t>(all.numel()));
  });
  peers.all_gather(own, all);
  const auto* const of_all = all.view().as<std::int64_t>();
  std::copy(of_all, of_all + out.size(), out.begin());
  return out;
}

/// Broadcasts pieces of the ranks' shards.
class PieceSender {
 public:
  /// Allocates memory for a piece, on all ranks or on none.
  PieceSender(const char* op, const autograd::Peers& peers) : peers_(peers) {
    autograd::on_every_rank(op, &peers, [&] {
      bytes_ = empty({kPiece * static_cast<std::int64_t>(size_of(f64))}, u8, Device::cpu());
    });
  }

  /// Returns elements [first, first + n) of rank r's shard `flat`, on every rank, valid until the
  /// next call.
  const void* send(const Tensor& flat, int r, std::int64_t first, std::int64_t n) const {
    const Tensor piece = piece_of(bytes_, 0, n * static_cast<std::int64_t>(size_of(flat.dtype())));
    if (peers_.rank() == r)
      copy_bytes(piece.mutable_view().data, Device::cpu(), piece_of(flat, first, n).view().data,
                 flat.device(), piece.bytes());
    if (r > 0) peers_.broadcast(piece, r);
    return piece.view().data;
  }

 private:
  const autograd::Peers& peers_;
  Tensor bytes_;
};

/// Writes one file on all ranks.
class PartsFile {
 public:
  PartsFile(const char* op, const std::string& path, std::vector<RunEntry>& entries,
            std::span<const Metadata> metadata, const autograd::Peers& peers)
      : op_(op), peers_(peers) {
    std::string table;
    autograd::on_every_rank(op_, &peers_, [&] {
      if (first()) table = lay_out(entries, metadata);
    });
    table = text_of_first(op_, table, peers_);
    autograd::on_every_rank(op_, &peers_, [&] {
      if (!first()) take_places(entries, table);
    });
    autograd::on_every_rank(op_, &peers_, [&] {
      crcs_.assign(sharded_.size() * static_cast<std::size_t>(peers_.size()), 0);
      if (!first()) return;
      file_ = std::make_unique<AtomicFile>(op_, path);
      file_->resize(bytes_);
    });
    const std::string temporary = text_of_first(op_, first() ? file_->temporary() : "", peers_);
    autograd::on_every_rank(op_, &peers_, [&] {
      if (!first() && ranks_open_one_file()) part_.emplace(op_, temporary, bytes_);
    });
    const std::int64_t is_open[] = {first() || (part_ && part_->is_open()) ? 1 : 0};
    const auto open = gather(op_, is_open, peers_);
    shared_ = ranks_open_one_file() &&
              std::all_of(open.begin(), open.end(), [](std::int64_t o) { return o == 1; });
  }

  void write() {
    if (shared_)
      write_own();
    else
      send_to_first();
    autograd::on_every_rank(op_, &peers_, [&] {
      if (first()) finish();
    });
  }

 private:
  bool first() const noexcept { return peers_.rank() == 0; }
  std::int64_t& crc_of(std::size_t entry, int rank) {
    return crcs_[entry * static_cast<std::size_t>(peers_.size()) + static_cast<std::size_t>(rank)];
  }

  /// Position in the file of an entry with shards, as rank 0 sends it to the others.
  struct Place {
    std::int64_t name = 0, elements = 0, offset = 0;  ///< name's CRC-32; all elements; in bytes

    static Place of(const RunEntry& e, std::uint64_t offset) {
      return {crc32(0, e.name.data(), e.name.size()), e.tensor.numel(),
              static_cast<std::int64_t>(offset)};
    }
  };

  /// Called on rank 0. Returns the places and the size of the file, encoded as bytes.
  std::string lay_out(const std::vector<RunEntry>& entries, std::span<const Metadata> metadata) {
    for (const RunEntry& e : entries) whole_.push_back({e.name, e.tensor});
    sums_.emplace(whole_);
    layout_ = layout_of(op_, whole_, metadata);
    bytes_ = sizeof(std::uint64_t) + layout_.header.size();
    std::vector<Place> places;
    for (const NamedTensor* const named : layout_.order) {
      const auto i = static_cast<std::size_t>(named - whole_.data());
      if (i < entries.size() && entries[i].parts.any()) {
        sharded_.push_back({&entries[i], bytes_});
        places.push_back(Place::of(entries[i], bytes_));
      }
      bytes_ += named->tensor.bytes();
    }
    places.push_back({.offset = static_cast<std::int64_t>(bytes_)});
    return {reinterpret_cast<const char*>(places.data()), places.size() * sizeof(Place)};
  }

  /// Called on the other ranks.
  void take_places(const std::vector<RunEntry>& entries, const std::string& table) {
    std::vector<Place> places(table.size() / sizeof(Place));
    std::memcpy(places.data(), table.data(), table.size());
    bytes_ = static_cast<std::uint64_t>(places.back().offset);
    places.pop_back();
    std::map<std::pair<std::int64_t, std::int64_t>, const RunEntry*> own;
    for (const RunEntry& e : entries) {
      const Place p = Place::of(e, 0);
      if (e.parts.any()) own.emplace(std::pair(p.name, p.elements), &e);
    }
    bool same = own.size() == places.size();
    for (const Place& p : places) {
      const auto it = own.find({p.name, p.elements});
      same = same && it != own.end();
      if (same) sharded_.push_back({it->second, static_cast<std::uint64_t>(p.offset)});
    }
    FIRN_CHECK(same, op_, "give the same optimizers, with the same names, on every rank",
               "rank {} has parts of other entries than rank 0", peers_.rank());
  }

  void write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
    first() ? file_->write_at(offset, data, bytes) : part_->write_at(offset, data, bytes);
  }

  void write_own() {
    const int rank = peers_.rank();
    std::vector<std::int64_t> mine;
    autograd::on_every_rank(op_, &peers_, [&] {
      mine.resize(sharded_.size());
      for (std::size_t i = 0; i < sharded_.size(); ++i) {
        const Sharded& d = sharded_[i];
        each_piece(d.size(rank), [&](std::int64_t at, std::int64_t n) {
          const Tensor t = on_cpu(piece_of(d.entry->parts.part, at, n));
          mine[i] = crc32(static_cast<std::uint32_t>(mine[i]), t.view().data, t.bytes());
          write_at(d.byte_of(d.begin(rank) + at), t.view().data, t.bytes());
        });
      }
      if (!first()) part_->flush();
    });
    const auto all = gather(op_, mine, peers_);
    for (int r = 0; r < peers_.size(); ++r)
      for (std::size_t i = 0; i < sharded_.size(); ++i)
        crc_of(i, r) = all[static_cast<std::size_t>(r) * sharded_.size() + i];
  }

  /// Sends the shards to rank 0, which writes them. If rank 0 cannot write, it still receives the
  /// rest, and throws afterwards.
  void send_to_first() {
    std::exception_ptr failure;
    const PieceSender sender(op_, peers_);
    for (std::size_t i = 0; i < sharded_.size(); ++i) {
      const Sharded& d = sharded_[i];
      for (int r = 0; r < peers_.size(); ++r)
        each_piece(d.size(r), [&](std::int64_t at, std::int64_t n) {
          const void* const piece = sender.send(d.entry->parts.part, r, at, n);
          if (!first() || failure) return;
          const std::size_t bytes = static_cast<std::size_t>(n) * size_of(d.dtype());
          try {
            crc_of(i, r) = crc32(static_cast<std::uint32_t>(crc_of(i, r)), piece, bytes);
            write_at(d.byte_of(d.begin(r) + at), piece, bytes);
          } catch (...) {
            failure = std::current_exception();
          }
        });
    }
    autograd::on_every_rank(op_, &peers_, [&] {
      if (failure) std::rethrow_exception(failure);
    });
  }

  /// Returns the checksum of an entry with shards.
  std::int64_t crc_of_all(std::size_t entry) {
    const Sharded& d = sharded_[entry];
    std::uint32_t out = 0;
    for (int r = 0; r < peers_.size(); ++r)
      out = crc32_of_both(out, static_cast<std::uint32_t>(crc_of(entry, r)),
                          static_cast<std::size_t>(d.size(r)) * size_of(d.dtype()));
    return out;
  }

  /// Writes the rest on rank 0: the checksums come after all other entries.
  void finish() {
    const std::uint64_t length = layout_.header.size();
    file_->write_at(0, &length, sizeof length);
    file_->write_at(sizeof length, layout_.header.data(), length);
    for (const bool sums : {false, true}) {
      std::uint64_t at = sizeof length + length;
      std::size_t next = 0;  // index into divided_
      for (const NamedTensor* const named : layout_.order) {
        const bool sharded = next < sharded_.size() && sharded_[next].offset == at &&
                             sharded_[next].entry->name == named->name;
        if (RunSums::is_sum(*named) == sums && !sharded) {
          const Tensor t = on_cpu(named->tensor);
          if (!sums) sums_->add(crc32(0, t.view().data, t.bytes()));
          file_->write_at(at, t.view().data, t.bytes());
        }
        if (sharded && !sums) sums_->add(crc_of_all(next));
        if (sharded) ++next;
        at += named->tensor.bytes();
      }
      if (!sums) sums_->finish(layout_.header);
    }
    file_->commit();
  }

  const char* op_;
  const autograd::Peers& peers_;
  std::vector<NamedTensor> whole_;  ///< sharded entries have only shape and dtype
  std::optional<RunSums> sums_;
  SafetensorsLayout layout_;
  std::vector<Sharded> sharded_;  ///< in the order of the file
  std::uint64_t bytes_ = 0;
  std::unique_ptr<AtomicFile> file_;  ///< rank 0's file
  std::optional<FilePart> part_;      ///< file of the other ranks
  bool shared_ = false;
  std::vector<std::int64_t> crcs_;  ///< CRC-32 of each sharded entry's shards
};

}  // namespace

bool& ranks_open_one_file() noexcept {
  static bool open = true;
  return open;
}

void write_parts(const char* op, const std::string& path, std::vector<RunEntry> entries,
                 std::span<const Metadata> metadata, const autograd::Peers& peers) {
  const runtime::Span span(runtime::SpanKind::phase, "save run");
  refuse_dry_run(op);
  PartsFile(op, path, entries, metadata, peers).write();
}

std::vector<NamedTensor> whole_of(const char* op, std::vector<RunEntry> entries,
                                  const autograd::Peers* peers) {
  std::vector<NamedTensor> out;
  const bool keeps = !peers || peers->rank() == 0;
  bool any = false;
  autograd::on_every_rank(op, peers, [&] {
    for (RunEntry& e : entries) {
      any = any || e.parts.any();
      out.push_back({e.name, !e.parts.any() ? e.tensor
                                            : empty(keeps ? e.tensor.shape() : Shape{0},
                                                    e.tensor.dtype(), Device::cpu())});
    }
  });
  if (!any) return out;
  const PieceSender sender(op, *peers);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const optim::TensorParts& parts = entries[i].parts;
    if (!parts.any()) continue;
    const Tensor& whole = out[i].tensor;
    auto* const to = static_cast<std::byte*>(whole.mutable_view().data);
    for (int r = 0; r < peers->size(); ++r) {
      const auto bounds = parts.bounds.begin() + r;
      each_piece(bounds[1] - bounds[0], [&](std::int64_t at, std::int64_t n) {
        const void* const piece = sender.send(parts.part, r, at, n);
        const std::size_t size = size_of(whole.dtype());
        if (keeps)
          std::memcpy(to + static_cast<std::size_t>(bounds[0] + at) * size, piece,
                      static_cast<std::size_t>(n) * size);
      });
    }
  }
  return out;
}

}  // namespace firn::io
