#include "readers/readers.h"

#include <utility>

#include "data/files/image_bytes.h"
#include "firn/firn.h"
#include "lm/gguf_writer.h"
#include "lm/read_everything.h"

namespace firn::test {
namespace {

const std::vector<std::string> kJson = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "\\",
                                        "\\u0000",
                                        "\\ud800",
                                        "-1",
                                        "1e999",
                                        "0",
                                        "4294967296",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "null",
                                        "\"dtype\"",
                                        "\"shape\"",
                                        "\"data_offsets\"",
                                        "\"F64\"",
                                        "\"BOOL\"",
                                        "\"U8\"",
                                        "[0,0]",
                                        "\"__metadata__\"",
                                        "\"weight_map\"",
                                        "\"metadata\"",
                                        "../",
                                        "/",
                                        "..",
                                        std::string(1, '\0'),
                                        "\xff",
                                        "\xc3\xa9",
                                        "one.safetensors",
                                        std::string(40, '[')};

const std::vector<std::string> kNpy = {"{",
                                       "}",
                                       "(",
                                       ")",
                                       ",",
                                       "'",
                                       "\"",
                                       ":",
                                       "True",
                                       "False",
                                       "'descr'",
                                       "'shape'",
                                       "<f4",
                                       "<u2",
                                       ">i8",
                                       "|b1",
                                       "<V2",
                                       "|O",
                                       "()",
                                       "(0,)",
                                       "(4294967296, 4294967296)",
                                       "18446744073709551616",
                                       "L",
                                       std::string(1, '\0'),
                                       "\x93NUMPY",
                                       "\x02",
                                       "\x03",
                                       "\n"};

/// The bytes of the file that `write` makes.
Bytes bytes_of(const std::function<void(const std::string& path)>& write) {
  const TempFolder folder;
  write(folder.file("x"));
  return read_file(folder.file("x"));
}

/// An array of version 1.0 without the spaces that most changes would fall into.
Bytes npy(const std::string& descr, const std::string& shape, const Bytes& elements) {
  const std::string text =
      "{'descr': '" + descr + "', 'fortran_order': True, 'shape': " + shape + ", }\n";
  return Bytes("\x93NUMPY\x01\x00", 8) + little_endian(text.size(), 2) + text + elements;
}

std::vector<nn::NamedTensor> some_tensors() {
  return {{"w", ones({2, 3})},
          {"n", zeros({}, i64)},
          {"h", ones({5}, bf16)},
          {"m", ones({3}, boolean)}};
}

void read_set(const data::Dataset& set) {
  for (std::int64_t i = 0; i < set.size(); ++i) set[i];
}

Reader safetensors() {
  const Bytes good = bytes_of([](const std::string& path) {
    io::save_safetensors(path, some_tensors(), std::vector<io::Metadata>{{"format", "pt"}});
  });
  return {"safetensors", {good}, kJson, [](const TempFolder& folder, const Bytes& input) {
            const std::string path = write_file(folder.file("x.safetensors"), input);
            io::load_safetensors(path);
            const io::SafetensorsFile file(path, {.map = true});
            file.metadata();
            for (const auto& name : file.names()) file.read(name).sum();
          }};
}

/// Into a module: what fits is loaded, and the rest is reported.
Reader module_tensors() {
  Reader reader = safetensors();
  reader.name = "module";
  reader.read = [](const TempFolder& folder, const Bytes& input) {
    nn::Linear module(3, 2);
    io::load_safetensors(write_file(folder.file("x.safetensors"), input), module,
                         {.strict = false, .rename = {{"w", "weight"}}});
  };
  return reader;
}

/// The config.json of a language model, of either kind.
Reader language_model() {
  lm::LlamaConfig llama;
  llama.model_type = "qwen2";
  llama.attention_bias = true;
  llama.sliding_window = 5;
  llama.rope = {.rope_type = "yarn", .factor = 4, .attention_factor = 1.5};
  llama.ids = {.bos_token_id = 1, .eos_token_id = {2, 3}};
  Reader reader{"config.json",
                {llama.to_json(), lm::Gpt2Config{}.to_json()},
                kJson,
                [](const TempFolder& folder, const Bytes& input) {
                  const std::string path = write_file(folder.file("config.json"), input);
                  if (input.find("gpt2") != Bytes::npos)
                    lm::Gpt2Config::from_file(path).check("test");
                  else
                    lm::LlamaConfig::from_file(path).check("test");
                }};
  for (const char* token : {"\"rope_type\"", "\"llama3\"", "\"linear\"", "\"rope_parameters\"",
                            "\"layer_types\"", "\"full_attention\"", "\"n_embd\"", "true", "0.5"})
    reader.tokens.emplace_back(token);
  return reader;
}

Reader shards() {
  Reader reader{"index", {}, kJson, [](const TempFolder& folder, const Bytes& input) {
                  io::save_safetensors(folder.file("one.safetensors"), some_tensors());
                  io::save_safetensors(
                      folder.file("two.safetensors"),
                      std::vector<nn::NamedTensor>{{"x", ones({3})}, {"y", ones({2})}});
                  write_file(folder.file("model.safetensors.index.json"), input);
                  const io::SafetensorsFile file(folder.path().string());
                  file.metadata();
                  file.read_all();
                }};
  reader.good = {
      "{\"metadata\": {\"total_size\": 65, \"a\": [1, {}]}, \"weight_map\": {"
      "\"w\": \"one.safetensors\", \"n\": \"one.safetensors\", "
      "\"x\": \"two.safetensors\"}}\n"};
  return reader;
}

Reader saved_run() {
  const auto parts = [](nn::Linear& net, optim::Adam& opt, std::int64_t& step) {
    return std::vector<io::RunPart>{net, opt, {"step", step}};
  };
  const Bytes good = bytes_of([&](const std::string& path) {
    nn::Linear net(2, 1);
    optim::Adam opt(net.parameters(), {.lr = 0.1});
    std::int64_t step = 3;
    io::save_run(path, parts(net, opt, step));
  });
  Reader reader{"run", {good}, kJson, [parts](const TempFolder& folder, const Bytes& input) {
                  nn::Linear net(2, 1);
                  optim::Adam opt(net.parameters(), {.lr = 0.1});
                  std::int64_t step = 0;
                  io::load_run(write_file(folder.file("x.safetensors"), input),
                               parts(net, opt, step));
                }};
  reader.allowance = 16384;  // net and optimizer
  reader.verified = true;
  return reader;
}

Reader npy_array() {
  return {"npy",
          {npy("<f4", "(2, 3, 4)", Bytes(96, '\1')), npy("|b1", "(3,)", Bytes(3, '\1'))},
          kNpy,
          [](const TempFolder& folder, const Bytes& input) {
            io::read_npy(write_file(folder.file("x.npy"), input)).sum();
          }};
}

Reader idx() {
  const Bytes plain = idx_header(0x08, {3, 4}) + Bytes(12, '\7');
  Reader reader{"idx",
                {plain, gzip(plain), idx_header(0x0D, {2}) + Bytes(8, '\0')},
                {"\x08", "\x09", "\x0B", "\x0C", "\x0D", "\x0E", "\x1f\x8b", "\xff\xff\xff\xff",
                 Bytes(4, '\0')},
                [](const TempFolder& folder, const Bytes& input) {
                  data::read_idx(write_file(folder.file("x.idx"), input));
                }};
  reader.allowance = 1 << 16;  // deflate expands by up to 1032
  return reader;
}

Reader csv() {
  const Bytes good = "a,b,c\n1,2.5,x\n\"3\",,\"y\"\"z\"\r\n4,nan,\"q\nr\"\n";
  Reader reader{"csv",
                {good, gzip(good)},
                {"\"", "\"\"", ",", "\n", "\r\n", "\r", "1e999", "-", "a", "nan", "NA",
                 "\xef\xbb\xbf", std::string(1, '\0'), "\x1f\x8b", std::string(200, ',')},
                [](const TempFolder& folder, const Bytes& input) {
                  const std::string path = write_file(folder.file("x.csv"), input);
                  const data::CsvTable table(path, {.missing = 0, .missing_texts = {"NA"}});
                  data::read_csv_pieces(path, 2, [](const data::CsvTable& t) { t.names(); });
                  for (const std::string& name : table.names()) {
                    table.categories(name);
                    table.text(name);
                    if (table.type(name) == data::CsvType::integer) table.column(name, i64);
                    if (table.type(name) == data::CsvType::number) table.column(name, f64);
                  }
                }};
  reader.allowance = 1 << 15;  // 8 bytes a field, and a field may be one byte
  reader.good.push_back("a,b\n1,2\n3,4\n");
  return reader;
}

Reader tokens() {
  return {"tokens",
          {Bytes(24, '\1')},
          {"\xff\xff", "\xff\xff\xff\xff"},
          [](const TempFolder& folder, const Bytes& input) {
            const std::string path = write_file(folder.file("x.bin"), input);
            read_set(data::TokenDataset(path, {.length = 3, .vocabulary = 300}));
            read_set(data::TokenDataset(path, {.length = 2, .format = data::TokenFormat::i64}));
          }};
}

Reader npy_tokens() {
  return {"tokens_npy",
          {npy("<u2", "(12,)", Bytes(24, '\1'))},
          kNpy,
          [](const TempFolder& folder, const Bytes& input) {
            read_set(data::TokenDataset(write_file(folder.file("x.npy"), input), {.length = 3}));
          }};
}

Reader gguf() {
  GgufWriter w;
  w.keys = {{"general.alignment", 4, little_endian(8, 4)},
            {"a.text", 8, gguf_text("words")},
            {"a.texts", 9, gguf_texts({"one", "two"})},
            {"a.nested", 9, gguf_array(9, 1, gguf_array(7, 2, Bytes(2, '\1')))},
            {"a.number", 10, little_endian(3, 8)}};
  w.alignment = 8;
  w.tensors = {{"w", {1, 2}, 0, Bytes(8, '\1')}, {"q", {32}, 2, Bytes(18, '\1')}};
  GgufWriter large;
  large.tensors = {{"k", {256}, 12, Bytes(144, '\1')}, {"h", {2}, 1, Bytes(4, '\1')}};
  Reader reader{"gguf",
                {w.bytes(), large.bytes()},
                {"general.alignment", "split.count", Bytes(8, '\0'), Bytes(8, '\xff')},
                [](const TempFolder& folder, const Bytes& input) {
                  read_everything(lm::GgufFile(write_file(folder.file("x.gguf"), input)));
                }};
  reader.allowance = 1 << 15;  // a number of 4 bits becomes 4 bytes
  for (std::uint64_t n = 0; n < 40; ++n) reader.tokens.push_back(little_endian(n, 4));
  for (const int bit : {16, 31, 32, 55, 56, 61, 63})
    reader.tokens.push_back(little_endian(std::uint64_t{1} << bit, 8));
  return reader;
}

/// The input is a list of records' bodies, each behind its length as one byte, and behind a zero
/// what the index lists. It becomes a set whose checksums are right, so that the rest is read.
Bytes record_body() {  // u8 [2] and i32 []
  return little_endian(2, 4) + Bytes("\6\1", 2) + little_endian(2, 8) + Bytes("\4\0", 2) + "ab" +
         little_endian(7, 4);
}
void write_records(const std::string& folder, const Bytes& input) {
  Bytes file = "firn-rec" + little_endian(0, 8), ends;
  std::size_t at = 0;
  std::uint64_t count = 0;
  while (at < input.size() && input[at] != 0) {
    const Bytes body = input.substr(at + 1, static_cast<unsigned char>(input[at]));
    at += 1 + body.size();
    file += little_endian(crc32(little_endian(count++, 8) + body), 4) + body;
    ends += little_endian(file.size(), 8);
  }
  Bytes list = "firn-idx" + little_endian(1, 8) + little_endian(count, 8) +
               little_endian(file.size(), 8) + little_endian(count, 8) + ends;
  for (std::size_t i = 8; i < list.size() && ++at < input.size(); ++i)
    list[i] = static_cast<char>(list[i] ^ input[at]);
  std::filesystem::create_directories(folder);
  write_file(folder + "/records-00000.bin", file);
  write_file(folder + "/records.index", list + little_endian(crc32(list), 4));
}

Reader records() {
  const Bytes body = record_body(), one = static_cast<char>(body.size()) + body;
  Reader reader{"records",
                {one + one, one + one + Bytes(1, '\0') + Bytes(12, '\0')},
                {Bytes(1, '\0'), "\1", "\2", "\6\1", "\10", Bytes(8, '\xff'),
                 little_endian(std::uint64_t{1} << 62, 8)},
                [](const TempFolder& folder, const Bytes& input) {
                  const std::string path = folder.file("set");
                  write_records(path, input);
                  const data::RecordDataset set(path);
                  read_set(set);
                  std::vector<std::int64_t> all;
                  for (std::int64_t i = 0; i < set.size(); ++i) all.push_back(i);
                  if (!all.empty()) set.collect(all);
                }};
  reader.allowance = 16384;
  return reader;
}

/// Images of at most 4096 pixels, so that memory stays small. A library needs some for rows.
void read_small_image(const TempFolder& folder, const Bytes& file) {
  const std::string path = write_file(folder.file("x.img"), file);
  const Tensor image = data::read_image(path, {.channels = 3, .max_pixels = 4096});
  data::resize_image(image, 3, 5, data::ImageFit::crop);
}

/// The input is a PNG file without its checksums, which become right: so what is read is not only
/// them.
Bytes with_checksums(const Bytes& input) {
  Bytes file = kPngMagic;
  for (std::size_t at = 0; at + 8 <= input.size();) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i)
      length = length << 8 | static_cast<unsigned char>(input[at + i]);
    const Bytes body = input.substr(at + 4, 4 + length);
    file += input.substr(at, 4) + body + big_endian(crc32(body), 4);
    at += 4 + body.size();
  }
  return file;
}
Bytes without_checksums(const Bytes& file) {
  Bytes input;
  for (std::size_t at = 8; at < file.size();) {
    const std::size_t length = static_cast<unsigned char>(file[at + 3]);  // below 256
    input += file.substr(at, 8 + length);
    at += 12 + length;
  }
  return input;
}

Reader png() {
  const Bytes rgb = without_checksums(png_of(ones({3, 3, 4}, u8)));
  // Grey and interlaced: 8 x 3 pixels, and a byte before each of the 14 rows of its passes.
  Bytes head = png_head(8, 3, 0);
  head.back() = '\1';
  const Bytes interlaced = big_endian(13, 4) + "IHDR" + head + big_endian(49, 4) + "IDAT" +
                           zlib_stored(Bytes(24 + 14, '\0')) + Bytes(4, '\0') + "IEND";
  // A palette of two colours, one of them transparent, for 2 x 3 pixels of a bit.
  Bytes of_palette = png_head(2, 3, 3);
  of_palette[8] = '\1';
  const Bytes palette = big_endian(13, 4) + "IHDR" + of_palette + big_endian(6, 4) + "PLTE" +
                        Bytes(6, '\5') + big_endian(1, 4) + "tRNS" + Bytes(1, '\0') +
                        big_endian(15, 4) + "IDAT" + zlib_stored(Bytes(4, '\0')) + Bytes(4, '\0') +
                        "IEND";
  return {"png",
          {rgb, interlaced, palette},
          {"IHDR", "PLTE", "tRNS", "IDAT", "IEND", "gAMA", "iCCP", "tEXt", Bytes("\x08\2\0\0\0", 5),
           Bytes("\x10\6\0\0\1", 5), Bytes("\1\3\0\0\1", 5), Bytes(4, '\0'),
           Bytes("\0\0\0\3PLTE\1\2\3", 11), "\xff\xff\xff\xff"},
          [](const TempFolder& folder, const Bytes& input) {
            read_small_image(folder, with_checksums(input));
          },
          1 << 16};
}

Reader jpeg() {
  return {"jpeg",
          {kGreyJpeg, kColourJpeg},
          {"\xff\xc0", "\xff\xc1", "\xff\xc2", "\xff\xc4", "\xff\xc9", "\xff\xda", "\xff\xdb",
           "\xff\xdd", "\xff\xd0", "\xff\xd9", "\xff\xee", "\x11", "\x22", "\x41", "\x0c",
           Bytes("\0", 1), Bytes("\0\x3f\0", 3), Bytes(4, '\xff')},
          read_small_image,
          1 << 16};
}

}  // namespace

const std::vector<Reader>& readers() {
  static const std::vector<Reader> all = [] {
    std::vector<Reader> list = {
        safetensors(), module_tensors(), shards(),     saved_run(), npy_array(), idx(),
        csv(),         tokens(),         npy_tokens(), records(),   gguf(), language_model()};
    for (Reader& reader : tokenizer_readers()) list.push_back(std::move(reader));
    if (reads_png()) list.push_back(png());
    if (reads_jpeg()) list.push_back(jpeg());
    return list;
  }();
  return all;
}

}  // namespace firn::test
